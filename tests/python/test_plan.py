"""uncopy.plan: the function's own structure back, misses, capture errors."""

from collections import namedtuple

import pytest
import torch
from compare import check_same, range_tensor

import uncopy

Pair = namedtuple("Pair", ["first", "second"])


def build():
    return (range_tensor(3, 3),)


STRUCTURES = {
    "a tensor": lambda x: x + 1,
    "a tuple": lambda x: (x + 1, x * 2),
    "a list": lambda x: [x + 1, x.t()],
    "a dict": lambda x: {"a": x + 1, "b": (x[0], [x[1]])},
    "constants": lambda x: (x + 1, None, 3, "s", 2.5),
    "an argument": lambda x: (x.mul_(2), x),
    "a namedtuple": lambda x: Pair(x + 1, x),
    "views": lambda x: (x.detach(), x[...], x.view(-1), x[1:]),
    "results that share": lambda x: (lambda y: (y, y[0], y.t()))(x + 1),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_structure_is_the_functions(name):
    fn = STRUCTURES[name]
    planned = uncopy.plan(fn, *build())
    check_same(fn, build, planned, calls=2)
    assert type(planned(*build())) is type(fn(*build()))
    assert planned.stats()["misses"] == 0
    assert planned.stats()["calls"] == 3


def test_planning_runs_nothing():
    def fn(x):
        return x.add_(1)

    x = range_tensor(3)
    uncopy.plan(fn, x)
    assert torch.equal(x, range_tensor(3))


def test_an_argument_that_the_graph_does_not_touch_is_returned():
    def fn(x, y):
        return y, x + 1, y

    planned = uncopy.plan(fn, range_tensor(2), range_tensor(3))
    x, y = range_tensor(2), range_tensor(3)
    first, result, last = planned(x, y)
    assert first is y
    assert last is y
    assert torch.equal(result, x + 1)


def test_keywords_nested_arguments_and_constants():
    def fn(xs, scale, *, other):
        return xs[0] * scale + other["y"]

    def arguments(scale=2):
        return ([range_tensor(3), None], scale), {"other": {"y": torch.ones(3)}}

    args, kwargs = arguments()
    planned = uncopy.plan(fn, *args, **kwargs)
    for scale, misses in ((2, 0), (3, 1), (2, 1)):
        args, kwargs = arguments(scale)
        assert torch.equal(planned(*args, **kwargs), fn(*args, **kwargs))
        assert planned.stats()["misses"] == misses


MISSES = {
    "sizes": lambda: range_tensor(2, 3),
    "strides": lambda: range_tensor(3, 3).t(),
    "dtype": lambda: range_tensor(3, 3, dtype=torch.float64),
    "type": lambda: torch.nn.Parameter(range_tensor(3, 3)),
    "requires_grad": lambda: range_tensor(3, 3).requires_grad_(),
}


@pytest.mark.parametrize("name", MISSES)
def test_another_kind_of_argument_is_a_miss_with_the_right_result(name):
    def fn(x):
        return x * 2

    planned = uncopy.plan(fn, *build())
    x = MISSES[name]()
    result = planned(x)
    assert torch.equal(result, x * 2)
    assert result.requires_grad == x.requires_grad
    assert planned.stats()["misses"] == 1
    assert uncopy.stats()["misses"] == 1


def test_the_plan_is_made_at_once():
    planned = uncopy.plan(torch.neg, *build())
    assert len(planned.plans) == 1
    assert planned.stats()["calls"] == 0
    planned(*build())
    assert len(planned.plans) == 1


def test_strict_refuses_a_copy_that_stays_when_planning():
    def fn(row, v):
        t = row + 1
        v.copy_(t.expand(2, 3))

    v = torch.zeros(2, 3)
    with pytest.raises(uncopy.StrictError, match="not-injective"):
        uncopy.plan(fn, torch.ones(3), v, strict=True)
    assert torch.equal(v, torch.zeros(2, 3))


def test_strict_refuses_a_fallback_when_planning():
    def fn(x):
        return x * 2

    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    with pytest.raises(uncopy.StrictError, match="conjugate"):
        uncopy.plan(fn, conjugate, strict=True)


def test_strict_misses_raises():
    planned = uncopy.plan(torch.neg, *build(), strict={"misses"})
    planned(*build())
    with pytest.raises(uncopy.StrictError, match="neg"):
        planned(range_tensor(2))


def test_parameters_are_bound_as_objects_and_read_on_each_call():
    module = torch.nn.Linear(3, 3)
    with torch.no_grad():
        planned = uncopy.plan(module, *build())
        module.weight.mul_(2)
        assert torch.allclose(planned(*build()), module(*build()))
        module.weight.data = torch.eye(3)
        assert torch.allclose(planned(*build()), module(*build()))
    assert planned.stats()["misses"] == 0


def test_a_call_that_needs_gradients_goes_the_ordinary_way():
    module = torch.nn.Linear(3, 3)
    with torch.no_grad():
        planned = uncopy.plan(module, *build())
    planned(*build()).sum().backward()
    assert module.weight.grad is not None
    assert planned.stats()["misses"] == 1


def test_aliasing_that_changes_between_calls_is_no_miss():
    def fn(a, b):
        a.add_(1)
        return a * b

    planned = uncopy.plan(fn, range_tensor(6), range_tensor(6))

    def overlapping():
        base = range_tensor(9)
        return base[:6], base[3:]

    check_same(fn, overlapping, planned)
    check_same(fn, lambda: (range_tensor(6), range_tensor(6)), planned)
    check_same(fn, lambda: (lambda x: (x, x[:]))(range_tensor(6)), planned)
    assert planned.stats()["misses"] == 0


def test_one_tensor_given_twice_stays_one():
    def fn(a, b):
        a.add_(1)
        return a, b

    x = range_tensor(3)
    planned = uncopy.plan(fn, x, x)
    y = range_tensor(3)
    first, second = planned(y, y)
    assert first is second is y
    first, second = planned(range_tensor(3), range_tensor(3))
    assert torch.equal(second, range_tensor(3))
    assert planned.stats()["misses"] == 1


def break_the_graph(x):
    print("here")
    return x + 1


kept = []


def keep(x):
    kept.append(x + 1)
    return x


class Stepping(torch.nn.Module):
    """Assigns to itself."""

    def forward(self, x):
        self.step = 1
        return x + 1


def test_a_graph_break_is_an_error_with_its_line():
    line = break_the_graph.__code__.co_firstlineno + 1
    with pytest.raises(uncopy.CaptureError, match=rf"test_plan\.py:{line}"):
        uncopy.plan(break_the_graph, range_tensor(3))


@pytest.mark.parametrize(("fn", "words"), [(keep, "kept"), (Stepping(), "changes")])
def test_a_side_effect_is_an_error_and_does_not_happen(fn, words):
    with pytest.raises(uncopy.CaptureError, match=words):
        uncopy.plan(fn, range_tensor(3))
    assert kept == []
    assert not hasattr(fn, "step")


def test_a_function_without_tensors_is_an_error():
    with pytest.raises(uncopy.CaptureError, match="no operation"):
        uncopy.plan(lambda x: 3, 1)


def test_an_option_that_is_a_parameter_of_the_function_is_the_functions():
    def fn(x, order):
        return x * order

    planned = uncopy.plan(fn, range_tensor(3), order=2)
    assert torch.equal(planned(range_tensor(3), order=2), range_tensor(3) * 2)


def test_a_compiled_function_can_be_planned():
    compiled = torch.compile(lambda x: x + 1)
    assert torch.equal(uncopy.plan(compiled, *build())(*build()), build()[0] + 1)


def test_plans_and_explain_tell_of_the_planned_function():
    def fn(x):
        return x.clone().add_(1)

    planned = uncopy.plan(fn, *build())
    planned(*build())
    assert len(planned.plans) == 1
    assert "options" in planned.explain()
    assert planned.plans[0].text()


def test_explain_runs_nothing():
    def fn(x):
        return x.add_(1)

    x = range_tensor(3)
    words = uncopy.explain(fn, x)
    assert torch.equal(x, range_tensor(3))
    assert "x" in words
    assert uncopy.stats()["calls"] == 0
