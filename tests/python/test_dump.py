"""Dumps: runnable Python, text; logs."""

import runpy
import subprocess
import sys

import pytest
import torch
from compare import range_tensor

import uncopy


def fn(x, y):
    """Has a constant, a list result and a write."""
    x[1] = 7
    a, b = y.split(2)
    return x.add_(y), torch.cat([a, b * 2]), y.sort().values


def test_python_dumps_run_and_give_the_graphs_result(tmp_path):
    compiled = torch.compile(fn, backend="uncopy", options={"dump": "py", "dump_path": tmp_path})
    expected = fn(torch.ones(4), range_tensor(4))
    compiled(torch.ones(4), range_tensor(4))
    (path,) = tmp_path.iterdir()
    assert "_rank0_" in path.name
    text = path.read_text()
    assert "# test_dump.py:" in text
    assert "# plan" in text or "plan " in text
    module = runpy.run_path(str(path))
    with torch.no_grad():
        results = module["run"](torch.ones(4), range_tensor(4))
        assert module["run"](*module["example_inputs"]())
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result, wanted)


def test_a_new_plan_is_dumped_too(tmp_path):
    def refill(x, y):
        x.copy_(y * 2)
        return x + y

    options = {"dump": "txt", "dump_path": tmp_path}
    compiled = torch.compile(refill, backend="uncopy", options=options)
    compiled(torch.ones(4), range_tensor(4))
    (path,) = tmp_path.iterdir()
    first = path.read_text()
    base = torch.ones(6)
    compiled(base[:4], base[2:])
    assert path.suffix == ".txt"
    assert len(path.read_text()) > len(first)


def test_the_environment_sets_dump_and_log(tmp_path):
    code = (
        "import torch, uncopy\n"
        "def high_rank(x): return x.view((1,) * 13 + (3,)) * 2\n"
        "torch.compile(high_rank, backend='uncopy')(torch.ones(3))\n"
        "torch.compile(lambda x: x * 2, backend='uncopy')(torch.ones(3))\n"
    )
    environment = {"UNCOPY_LOG": "info", "UNCOPY_DUMP": "txt", "UNCOPY_DUMP_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**__import__("os").environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "uncopy: graph" in done.stderr
    assert "rank" in done.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_a_log_level_that_is_none_is_an_error():
    from uncopy import logs

    with pytest.raises(ValueError, match="debug, info"):
        logs._configure("loud")
    assert uncopy.stats()["calls"] == 0
