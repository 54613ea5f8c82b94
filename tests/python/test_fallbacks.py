"""Graphs that are not planned: eager's results, counted with a reason, and refused under strict."""

import logging

import pytest
import torch
from compare import check_same, range_tensor

import uncopy


def gradient(w, x):
    return (w * x).sum()


def stale(w, x):
    """Its backward raises, in eager too."""
    y = w.exp()
    return (y * y).sum() + y.add_(x).sum()


def higher_order(x):
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def data_dependent(x):
    return x.nonzero()


def conjugate(x):
    return torch.view_as_complex(x.view(2, 2)).conj()


def data_swap(x):
    x.data = x.detach() * 2
    return x + 1


def resized_out(x):
    values, indices = x.new_empty(0), torch.empty(0, dtype=torch.int64)
    torch.ops.aten.max.dim_max(x, 0, False, max=values, max_values=indices)
    return values + 1, indices


def high_rank(x):
    return x.reshape((1,) * 13 + (4,)) * 2


def matrix():
    return (range_tensor(3, 4),)


def vector():
    return (range_tensor(4),)


CASES = {
    "gradient": (stale, lambda: (range_tensor(4).requires_grad_(), range_tensor(4))),
    "higher-order": (higher_order, vector),
    "data-dependent": (data_dependent, vector),
    "conjugate-view": (conjugate, vector),
    "data-swap": (data_swap, vector),
    "resize": (resized_out, matrix),
    "rank": (high_rank, vector),
    "tensor-subclass": (lambda x: x + 1, lambda: (range_tensor(4).as_subclass(Tagged),)),
    "layout": (lambda x: x.to_dense() * 2, lambda: (range_tensor(4, 4).to_mkldnn(),)),
    "device": (lambda x: x + 1, lambda: (torch.empty(4, device="meta"),)),
}


class Tagged(torch.Tensor):
    """A subclass without behaviour of its own."""


@pytest.mark.parametrize("reason", [r for r in CASES if r not in ("layout", "device")])
def test_a_fallback_gives_eagers_result_and_its_reason(reason):
    fn, build = CASES[reason]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check_same(fn, build, torch.compile(fn, backend="uncopy"), metadata=False)
    reports = [r for r in uncopy.plans() if r.fallbacks]
    assert [r.fallbacks[0].reason for r in reports] == [reason]
    assert uncopy.stats()["fallbacks"] == 1
    assert uncopy.stats()["calls"] >= 1


@pytest.mark.parametrize("reason", ["layout", "device"])
def test_tensors_without_strided_memory_fall_back(reason):
    fn, build = CASES[reason]
    result = torch.compile(fn, backend="uncopy")(*build())
    expected = fn(*build())
    assert (result.layout, result.device, result.shape) == (
        expected.layout,
        expected.device,
        expected.shape,
    )
    assert [r.fallbacks[0].reason for r in uncopy.plans()] == [reason]


def test_numbers_that_are_no_integers_fall_back():
    compiled = torch.compile(lambda x: x * (1 / x.shape[0]), backend="uncopy", dynamic=True)
    for size in (3, 5):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 1 / size))
    assert uncopy.stats()["fallbacks"] == 2
    assert uncopy.plans()[0].fallbacks[0].reason == "symbolic-sizes"


def test_strict_refuses_a_fallback_before_it_runs():
    def fn(x):
        x.data = x.detach() * 2
        return x.exp()

    x = range_tensor(4)
    compiled = torch.compile(fn, backend="uncopy", options={"strict": {"fallbacks"}})
    with pytest.raises(uncopy.StrictError, match=r"data-swap.*test_fallbacks\.py:\d+"):
        compiled(x)
    assert torch.equal(x, range_tensor(4))
    assert uncopy.stats()["fallbacks"] == 0


def test_the_backward_of_a_fallback_is_eagers():
    def fn(w, x):
        return (w * x).sum() * torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    ours, eagers = range_tensor(4).requires_grad_(), range_tensor(4).requires_grad_()
    fn(eagers, range_tensor(4)).sum().backward()
    torch.compile(fn, backend="uncopy")(ours, range_tensor(4)).sum().backward()
    assert torch.equal(ours.grad, eagers.grad)
    assert uncopy.stats()["fallbacks"] == 1


def test_no_gradient_is_needed_without_grad_mode_or_for_results_that_take_none():
    w = range_tensor(4).requires_grad_()

    def fn(w):
        with torch.no_grad():
            w.mul_(2)
        return w > 2

    torch.compile(fn, backend="uncopy")(w)
    with torch.no_grad():
        torch.compile(gradient, backend="uncopy")(w, w)
    assert uncopy.stats()["fallbacks"] == 0


def test_enable_grad_inside_needs_gradients():
    def fn(w):
        with torch.enable_grad():
            return w * 2

    w = range_tensor(4).requires_grad_()
    with torch.no_grad():
        result = torch.compile(fn, backend="uncopy")(w)
    assert result.requires_grad
    assert [p.name.endswith("_backward") for p in uncopy.plans()] == [False]


def test_a_fallback_is_logged_once(caplog):
    compiled = torch.compile(data_dependent, backend="uncopy")
    with (
        caplog.at_level(logging.INFO, logger="uncopy"),
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
    ):
        for _ in range(3):
            compiled(range_tensor(4))
    lines = [r.message for r in caplog.records if "is not planned and runs" in r.message]
    assert len(lines) == 1
    assert "data-dependent" in lines[0]


def test_an_error_of_the_graph_is_eagers():
    def fn(x):
        return x.expand(3, 4).add_(1)

    with pytest.raises(RuntimeError, match="more than one element"):
        fn(range_tensor(1, 4))
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.compile(fn, backend="uncopy")(range_tensor(1, 4))
