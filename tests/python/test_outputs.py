"""Results as eager gives them: identity, aliasing, autograd metadata; version counters of
arguments.
"""

import pytest
import torch
from compare import check_same, range_tensor

MODES = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def vector():
    return (range_tensor(6),)


def parameter():
    return (torch.nn.Parameter(range_tensor(2, 3)),)


RESULTS = {
    "the argument itself": lambda x: (x.add_(1), x),
    "an alias": lambda x: (x[...], x.view_as(x)),
    "a detached alias": lambda x: (x.detach(), x.detach()[1:]),
    "views": lambda x: (x[1:], x.view(2, 3).t(), x[2:].unsqueeze(0)),
    "views of a result": lambda x: (lambda y: (y, y[1:], y.view(2, 3)))(x * 2),
    "only views of a result": lambda x: (lambda y: (y[1:], y.view(2, 3)))(x * 2),
    "another dtype": lambda x: (x.view(torch.int32), (x + 1).view(torch.int16)),
    "a fresh copy": lambda x: (x.clone(), x.clone()),
    "a result written after": lambda x: (lambda y: (y[1:], y.mul_(2)))(x + 1),
    "an extern's result": lambda x: (x.softmax(0), x.sort()[0][1:]),
    "no elements": lambda x: (x[6:], x[6:] + 1, torch.empty(0)),
    "a scalar": lambda x: (x.sum(), x[0]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_eagers(name, mode):
    fn = RESULTS[name]
    with MODES[mode]():
        check_same(fn, vector, torch.compile(fn, backend="uncopy", fullgraph=True), calls=2)


@pytest.mark.parametrize("mode", ["no_grad", "inference"])
def test_views_of_a_parameter_require_grad_as_eagers_do(mode):
    def fn(p):
        return p.t(), p.view(-1)[1:], p.detach(), p * 2, p[...]

    with MODES[mode]():
        check_same(fn, parameter, torch.compile(fn, backend="uncopy", fullgraph=True))


def test_a_view_result_has_the_argument_as_base():
    p = torch.nn.Parameter(range_tensor(2, 3))
    with torch.no_grad():
        view = torch.compile(lambda p: p.t(), backend="uncopy")(p)
        view.zero_()
    assert view._base is p
    assert p._version == 1


def test_written_arguments_get_a_new_version():
    def fn(x, y, z):
        x.add_(1)
        y[1:].copy_(z)
        return x + z

    x, y, z = range_tensor(4), range_tensor(4), range_tensor(3)
    x_base = range_tensor(8)
    compiled = torch.compile(lambda x, y, z: fn(x, y, z[:1]), backend="uncopy")
    compiled(x_base[:4], y, z)
    assert (x_base._version, y._version, z._version) == (1, 1, 0)
    compiled(x, y, z)
    assert (x._version, y._version, z._version) == (1, 2, 0)


def test_versions_rise_on_the_error_exit_too():
    def fn(x, table, index):
        x.add_(1)
        return torch.nn.functional.embedding(index, table)

    x = range_tensor(3)
    compiled = torch.compile(fn, backend="uncopy")
    with pytest.raises(IndexError):
        compiled(x, range_tensor(3, 2), torch.tensor([7]))
    assert torch.equal(x, range_tensor(3) + 1)
    assert x._version == 1


def test_an_error_of_a_kernel_says_where_it_arose():
    def fn(index, table):
        return torch.nn.functional.embedding(index, table)

    line = fn.__code__.co_firstlineno + 1
    with pytest.raises(IndexError) as caught:
        torch.compile(fn, backend="uncopy")(torch.tensor([7]), range_tensor(3, 2))
    (note,) = caught.value.__notes__
    assert "aten.embedding.default" in note
    assert f"test_outputs.py:{line})" in note
    assert "index i64[1]" in note
    assert "table f32[3, 2]" in note


def test_backward_notices_that_a_saved_tensor_was_written():
    x = range_tensor(3)
    w = torch.ones(3, requires_grad=True)
    y = (w * x).sum()
    with torch.no_grad():
        torch.compile(lambda x: x.add_(1), backend="uncopy")(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_results_can_be_resized_and_kept():
    compiled = torch.compile(lambda x: x * 2, backend="uncopy")
    results = [compiled(range_tensor(4) + i) for i in range(4)]
    results[0].resize_(9)
    assert len({r.data_ptr() for r in results}) == 4
    assert torch.equal(results[3], (range_tensor(4) + 3) * 2)
