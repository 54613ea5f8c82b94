"""Checked runs: they find a planted difference and name the operation, and have the effects of one
run.
"""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from compare import check_same, range_tensor

import uncopy
from uncopy import importer
from uncopy.verify import Snapshot


def compile_checked(fn, count=2):
    return torch.compile(fn, backend="uncopy", options={"verify": count})


def plant(monkeypatch, name):
    """Makes the importer swap the operands of an operation."""
    lower = importer.lower_row

    def swapped(at, recipes):
        if name in str(at.node.target):
            arguments = {**at.arguments, "self": at["other"], "other": at["self"]}
            at = dataclasses.replace(at, arguments=arguments)
        return lower(at, recipes)

    monkeypatch.setattr(importer, "lower_row", swapped)


def test_a_right_run_passes_and_returns_its_results():
    def fn(a, b):
        a.add_(1)
        return a * b, b[1:], torch.cat([a, b])

    def build():
        base = range_tensor(9)
        return base[:6], base[3:]

    check_same(fn, build, compile_checked(fn), calls=3)


def test_a_wrong_value_is_found_with_operation_and_line(monkeypatch):
    plant(monkeypatch, "sub.Tensor")

    def fn(a, b):
        c = a * b
        d = torch.sub(a, c)
        return d + 1

    with pytest.raises(uncopy.VerifyError) as raised:
        compile_checked(fn)(range_tensor(4), range_tensor(4) + 2)
    line = fn.__code__.co_firstlineno + 2
    words = str(raised.value)
    assert "result 0: values" in words
    assert f"aten.sub.Tensor at test_verify.py:{line}: d = torch.sub(a, c)" in words


def test_a_wrong_write_to_an_argument_is_found(monkeypatch):
    plant(monkeypatch, "sub.Tensor")

    def fn(a, b):
        a.copy_(torch.sub(a, b))

    with pytest.raises(uncopy.VerifyError, match="bytes of argument 0"):
        compile_checked(fn)(range_tensor(4), range_tensor(4) + 2)


def test_only_the_first_calls_of_a_plan_are_checked(monkeypatch):
    plant(monkeypatch, "sub.Tensor")
    compiled = compile_checked(torch.sub, 1)
    a, b = range_tensor(4), range_tensor(4) + 2
    with pytest.raises(uncopy.VerifyError):
        compiled(a, b)
    assert torch.equal(compiled(a, b), b - a)


def test_random_numbers_are_drawn_once():
    def fn(x):
        return F.dropout(x, 0.5) + torch.rand(6)

    check_same(fn, lambda: (range_tensor(6),), compile_checked(fn, 5), calls=3)
    torch.manual_seed(3)
    compile_checked(fn)(range_tensor(6))
    after = torch.rand(3)
    torch.manual_seed(3)
    fn(range_tensor(6))
    assert torch.equal(after, torch.rand(3))


def test_an_operator_of_unknown_effects_runs_once():
    calls = []

    @torch.library.custom_op("uncopy_test_verify::count_", mutates_args=("t",))
    def count_(t: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        t.add_(len(calls))
        return t * 2

    @count_.register_fake
    def _(t):
        return torch.empty_like(t)

    def fn(x):
        y = torch.ops.uncopy_test_verify.count_(x)
        return y + x

    x = torch.zeros(3)
    result = compile_checked(fn)(x)
    assert len(calls) == 1
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(result, torch.full((3,), 3.0))


def test_a_snapshot_keeps_every_alias():
    memory = bytearray(64)
    first = torch.frombuffer(memory, dtype=torch.float32)
    second = torch.frombuffer(memory, dtype=torch.float32, offset=16)
    base = range_tensor(8)
    tensors = [first, second, base[2:], base.view(torch.int32)[1:3], torch.empty(0)]
    copies = Snapshot(tensors).tensors
    copies[0].fill_(5)
    copies[2].zero_()
    assert copies[1].tolist() == [5.0] * 12
    assert copies[3].tolist() == [1065353216, 0]
    assert base[2] == 2
    assert first.sum() == 0
    assert [c.stride() for c in copies] == [t.stride() for t in tensors]


def test_planned_functions_are_checked_too(monkeypatch):
    planned = uncopy.plan(torch.sub, range_tensor(4), range_tensor(4), verify=1)
    assert torch.equal(planned(range_tensor(4), torch.ones(4)), range_tensor(4) - 1)
    plant(monkeypatch, "sub.Tensor")
    planned = uncopy.plan(torch.sub, range_tensor(4), range_tensor(4), verify=1)
    with pytest.raises(uncopy.VerifyError):
        planned(range_tensor(4), torch.ones(4))
