"""A fixed part of the random programs (tests/differential/programs.py says what they are)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNNERS = sorted(ROOT.glob("build-*/tests/c/text_runner"))


def test_random_programs_give_the_same_bytes_with_and_without_passes() -> None:
    if not RUNNERS:
        pytest.skip("no build-*/tests/c/text_runner: make test builds it first")
    script = ROOT / "tests" / "differential" / "programs.py"
    command = [sys.executable, script, "--runner", RUNNERS[0], "--count", "2000", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "2000 passed, 0 failed"
