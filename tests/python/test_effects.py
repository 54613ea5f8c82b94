"""The tables of what PyTorch's operators do, measured."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from uncopy.effects import TRUE_OUT, TRUE_OUT_ANY_STRIDES, out_form, row_forms

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def matrix(dtype=torch.float32):
    return (torch.rand(33, 31, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1).to(dtype)


def arguments(name, dtype):
    """Arguments of one overload of the tables."""
    a, b = matrix(dtype), matrix(dtype).flip(0)
    square, vector, batch = a[:31], a[0], a[:31].repeat(3, 1, 1)
    index = torch.arange(31).flip(0).repeat(33, 1)
    special = {
        "mm": (a, square),
        "bmm": (batch, batch),
        "mv": (a, vector),
        "addmm": (vector, a, square),
        "addmv": (a[:, 0], a, vector),
        "addr": (square, vector, vector),
        "baddbmm": (batch, batch, batch),
        "addbmm": (square, batch, batch),
        "addcmul": (a, b, b),
        "addcdiv": (a, b, b),
        "lerp": (a, b, 0.3),
        "clamp": (a, 0.2, 0.8),
        "clamp_min": (a, 0.5),
        "clamp_max": (a, 0.5),
        "threshold": (a, 0.5, 0.1),
        "cumsum": (a, 1),
        "cumprod": (a, 1),
        "_softmax": (a, 1, False),
        "_log_softmax": (a, 1, False),
        "sum": (a, [1]),
        "amax": (a, [1]),
        "amin": (a, [1]),
        "argmax": (a, 1),
        "argmin": (a, 1),
        "all": (a > 0.5, 1),
        "any": (a > 0.5, 1),
        "linalg_vector_norm": (a, 2, [1]),
        "gather": (a, 1, index),
        "index_select": (a, 0, torch.tensor([3, 1])),
    }
    if name in special:
        return special[name]
    schema = getattr(torch.ops.aten, name).overloads()
    two = name in ("atan2", "fmax", "fmin", "hypot", "pow") or name.startswith("logical_")
    assert schema
    return (a, b) if two else (a,)


def overload(key):
    name, _, kind = key.partition(".")
    return getattr(getattr(torch.ops.aten, name), kind)


def run_measured(call):
    """Bytes allocated by a call, and whether it copied into memory of its own."""
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        call()
    events = measured.profiler.kineto_results.events()
    allocated = sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)
    return allocated, {e.name() for e in events} & {"aten::clone", "aten::contiguous"}


@pytest.mark.parametrize("key", sorted(TRUE_OUT | TRUE_OUT_ANY_STRIDES))
def test_a_true_out_form_allocates_and_clones_nothing(key):
    op = overload(key)
    args = arguments(key.partition(".")[0], torch.float32)
    out, bits = out_form(op)
    assert out is not None
    assert bits
    expected = op(*args)
    result = torch.empty_like(expected, memory_format=torch.contiguous_format)
    allocated, cloned = run_measured(lambda: out(*args, out=result))
    assert allocated == 0
    assert not cloned
    assert torch.equal(result, expected)


@pytest.mark.parametrize("key", sorted(TRUE_OUT_ANY_STRIDES))
def test_an_out_form_of_any_strides_has_the_same_bits_in_each(key):
    op = overload(key)
    out, _ = out_form(op)
    for dtype in FLOATS:
        args = arguments(key.partition(".")[0], dtype)
        expected = op(*args)
        rows, columns = expected.shape
        kind = expected.dtype
        for result in (
            torch.empty(rows, columns, 2, dtype=kind)[..., 0],
            torch.empty(columns, rows, dtype=kind).t(),
            torch.empty(rows, columns + 9, dtype=kind)[:, :columns],
        ):
            allocated, cloned = run_measured(lambda o=result, a=args: out(*a, out=o))
            assert allocated == 0
            assert not cloned
            assert torch.equal(result, expected), dtype


ROWS = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "neg": 1, "abs": 1,
    "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "reciprocal": 1, "sin": 1, "cos": 1, "tanh": 1,
    "sigmoid": 1, "relu": 1, "floor": 1, "ceil": 1, "trunc": 1, "eq": 2, "ne": 2, "lt": 2,
    "le": 2, "gt": 2, "ge": 2, "logical_not": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_hosts_form_of_a_row_writes_where_it_is_told(name, dtype):
    from uncopy import _core

    call, out, bits = row_forms(name, name)
    args = (matrix(dtype), matrix(dtype).flip(0))[: ROWS[name]]
    expected = getattr(torch.ops.aten, name)(*args)
    places = [torch.empty(33, 31, dtype=expected.dtype)]
    if bits & _core.EFFECT_OUT_LAYOUT:
        places.append(torch.empty(31, 33, dtype=expected.dtype).t())
        places.append(torch.empty(33, 62, dtype=expected.dtype)[:, ::2])
    assert torch.equal(call(*args), expected)
    for place in places:
        out(*args, out=place)
        assert torch.equal(place, expected)


def test_numbers_reach_the_hosts_form_of_a_row():
    a = matrix()
    for dtype in FLOATS:
        call, out, _ = row_forms("sub", "sub", is_from_number=True)
        place = torch.empty(31, 33, dtype=dtype).t()
        out(0.3, matrix(dtype), alpha=2, out=place)
        assert torch.equal(place, call(0.3, matrix(dtype), alpha=2))
        assert torch.equal(place, torch.rsub(matrix(dtype), 0.3, alpha=2))
    for name in ("add", "sub", "mul", "div", "eq", "lt"):
        call, out, _ = row_forms(name, name)
        place = torch.empty(33, 31, dtype=call(a, 0.5).dtype)
        out(a, 0.5, out=place)
        assert torch.equal(place, call(a, 0.5))
