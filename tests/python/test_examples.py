"""The examples run and show what they say: the demo's script, its table, and the C program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
PACKAGE = Path(sysconfig.get_path("platlib")) / "uncopy"
COMPILERS = {"c": ("cc", "-std=c11"), "c++": ("c++", "-std=c++17")}


def run(folder: Path, *words: str | Path, **environment: str) -> str:
    """Output of a command that succeeds."""
    result = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def torchrun(folder: Path, ranks: int, *words: str | Path) -> str:
    """Output of a script on so many ranks, where a copy or fallback would be an error."""
    start = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    environment = {"OMP_NUM_THREADS": "1", "UNCOPY_STRICT": "1"}
    return run(folder, *start, f"--nproc_per_node={ranks}", *words, **environment)


def plan_of(text: str) -> list[str]:
    """The plan's lines in a text, with single blanks."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("plan graph"))
    return lines[first : next(i for i in range(first, len(lines)) if not lines[i])]


@pytest.mark.parametrize("form", ["outside", "inside"])
def test_the_scenario_copies_nothing(form: str, tmp_path: Path) -> None:
    output = torchrun(tmp_path, 2, "-m", "uncopy.npu", DEMO / "opp.py", "--form", form)
    assert "values right" in output
    assert "0 copies, 0 moves, 0 externs" in output
    assert "copies that stay: 0" in output
    assert "copies that were removed: 1" in output
    assert "bytes_copied 0" in output
    assert "bytes_allocated 32" in output  # the result: bf16[2,8]
    assert "opp.py:" in output  # lines are the user's
    assert len(list((tmp_path / "op_test").glob("*.pt.trace.json"))) == 1
    if form == "outside":
        assert plan_of(output) == plan_of((ROOT / "README.md").read_text())


def test_the_table_counts_what_other_back_ends_copy(tmp_path: Path) -> None:
    words = (DEMO / "peers.py", "--backends", "aot_eager", "uncopy", "--side", "64")
    output = torchrun(tmp_path, 2, *words).splitlines()
    rows = [json.loads(line) for line in output if line.startswith("{")]
    assert [row["form"] for row in rows] == ["outside", "inside"] * 2
    for row in rows[:2]:
        assert row["copies"] > 0
        assert row["bytes_copied"] >= row["buffer"]
    for row in rows[2:]:
        assert (row["copies"], row["bytes_copied"]) == (0, 0)
        assert row["allocated"] == row["result"]


def test_the_demo_explains_its_options(tmp_path: Path) -> None:
    output = run(tmp_path, sys.executable, DEMO / "run.py", "--help")
    assert all(word in output for word in ("--ranks", "--side", "--trace"))
    assert list(tmp_path.iterdir()) == []


def run_c_example(folder: Path, language: str, name: str) -> str:
    """Output of a C example built against the library of the package."""
    compiler, standard = COMPILERS[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    source, library = ROOT / "examples" / "c" / f"{name}.c", PACKAGE / "lib"
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    flags = (standard, *warnings, f"-I{PACKAGE / 'include'}", "-x", language)
    link = ("-x", "none", library / "libuncopy.so", f"-Wl,-rpath,{library}")
    run(folder, compiler, *flags, source, *link, "-o", folder / name)
    return run(folder, folder / name)


@pytest.mark.parametrize("language", COMPILERS)
def test_the_c_example_of_a_program_runs_on_the_library_of_the_package(
    language: str, tmp_path: Path
) -> None:
    output = run_c_example(tmp_path, language, "refill")
    once, twice = output.split("4 calls, 2 plans, 1 of them replans, 0 copies, 0 moves")[:2]
    lines = re.compile(r"refill\.(c|text):\d+ *")
    assert " ".join(lines.sub("", once).split()) == " ".join(lines.sub("", twice).split())
    assert "after 0: writes buffer" in once
    assert once.count("copies removed: 1, bytes moved: 0, bytes copied: 0") == 2
    assert "WRONG" not in output


@pytest.mark.parametrize("language", COMPILERS)
def test_the_c_example_of_three_ranks_gathers_into_windows(language: str, tmp_path: Path) -> None:
    output = run_c_example(tmp_path, language, "gather")
    assert output == "rank 0 of 3: sum 449850000, 800000 bytes from windows, 16 staged: right\n"
