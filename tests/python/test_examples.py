"""The demo's script gives right values and a plan without a copy, in both forms."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def torchrun(folder: Path, ranks: int, *words: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "UNCOPY_STRICT": "1"}
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("form", ["outside", "inside"])
def test_the_scenario_copies_nothing(form: str, tmp_path: Path) -> None:
    script = str(DEMO / "opp.py")
    output = torchrun(tmp_path, 2, "-m", "uncopy.npu", script, "--form", form)
    assert "values right" in output
    assert "0 copies, 0 moves, 0 externs" in output
    assert "bytes_copied 0" in output
    assert "bytes_allocated 32" in output  # the result: bf16[2,8]
    assert "opp.py:" in output  # lines are the user's
