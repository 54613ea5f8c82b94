#!/usr/bin/env python3
"""Branch coverage of C sources under the C and text tests, by gcov.

coverage.py [FILE ...] [--suite c|text] [--require] [--show]. FILE defaults to every file of
src/compile. --show lists the branches that were not taken. --require exits with 1 if one of them
is no mere failure path.

Asserts are compiled out. Branches on a line that passes a failure up (TRY, ARENA_PUSH, a NULL from
an allocation, marked by one of FAILURE_WORDS) are counted apart: they are taken by the test that
fails each allocation in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build-coverage"
FAILURE_WORDS = ("TRY(", "ARENA_PUSH(", "== NULL", "!= NULL")


@dataclass
class Coverage:
    """Counts of one source file."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_taken: int = 0
    failure_branches: int = 0
    failure_branches_taken: int = 0
    missing: list[str] = field(default_factory=list)


def build_and_test(suites: list[str]) -> bool:
    """Builds with counters, clears them and runs the tests, whose outcome is not judged here."""
    if not (FOLDER / "build.ninja").exists():
        options = ["-Dpython=false", "-Dwerror=false", "-Db_coverage=true", "-Doptimization=0"]
        environment = os.environ | {"CC": "gcc"}
        setup = ["meson", "setup", str(FOLDER), *options]
        if subprocess.run(setup, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL).returncode:
            shutil.rmtree(FOLDER, ignore_errors=True)
            return False
    if subprocess.run(["ninja", "-C", str(FOLDER), "--quiet"]).returncode:
        return False
    for counters in FOLDER.rglob("*.gcda"):
        counters.unlink()
    words = ["meson", "test", "-C", str(FOLDER), "--no-rebuild", "--quiet"]
    words += [f"--suite={suite}" for suite in suites]
    if subprocess.run(words, stdout=subprocess.DEVNULL).returncode:
        print("note: a test failed while coverage was taken")
    return True


def object_of(source: str) -> Path | None:
    """The counters of one source file, whose name is in its room's library."""
    room = Path(source).parts[1]
    stem = source.replace("/", "_")
    found = list(FOLDER.glob(f"libuncopy_{room}.a.p/{stem}.gcda"))
    return found[0] if found else None


def read_coverage(source: str) -> Coverage:
    """What gcov says of one source file."""
    result = Coverage()
    counters = object_of(source)
    text = (ROOT / source).read_text().splitlines()
    if counters is None:
        result.missing.append(f"{source}: never run")
        return result
    words = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(counters)]
    output = subprocess.run(words, cwd=FOLDER, check=True, capture_output=True, text=True).stdout
    for file in json.loads(output)["files"]:
        if (FOLDER / file["file"]).resolve() != (ROOT / source).resolve():
            continue
        for line in file["lines"]:
            add_line(result, source, line, text[line["line_number"] - 1])
    return result


def add_line(result: Coverage, source: str, line: dict, text: str) -> None:
    """Adds one line's counts."""
    result.lines += 1
    result.lines_run += line["count"] > 0
    taken = sum(branch["count"] > 0 for branch in line["branches"])
    count = len(line["branches"])
    if any(word in text for word in FAILURE_WORDS):
        result.failure_branches += count
        result.failure_branches_taken += taken
        return
    result.branches += count
    result.branches_taken += taken
    if taken < count:
        place = f"{source}:{line['line_number']}"
        result.missing.append(f"{place}: {taken} of {count} branches taken: {text.strip()}")


def percent(part: int, whole: int) -> str:
    """A share for a table."""
    return f"{part}/{whole} ({100 * part / whole:.1f} %)" if whole else "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--suite", action="append", default=[], choices=["c", "text", "examples"])
    parser.add_argument("--show", action="store_true", help="list the branches not taken")
    parser.add_argument("--require", action="store_true", help="fail if one is not taken")
    arguments = parser.parse_args()
    if shutil.which("gcov") is None:
        print("skipped, no gcov on this machine: coverage")
        return 0
    if not build_and_test(arguments.suite or ["c", "text"]):
        return 1
    default = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("src/compile/*.c"))
    is_short = False
    print(f"{'file':32} {'lines':>20} {'branches':>20} {'failure paths':>20}")
    for source in arguments.files or default:
        found = read_coverage(source)
        lines = percent(found.lines_run, found.lines)
        branches = percent(found.branches_taken, found.branches)
        failures = percent(found.failure_branches_taken, found.failure_branches)
        print(f"{source:32} {lines:>20} {branches:>20} {failures:>20}")
        if arguments.show or arguments.require:
            print("".join(f"    {line}\n" for line in found.missing), end="")
        is_short = is_short or bool(found.missing)
    return 1 if arguments.require and is_short else 0


if __name__ == "__main__":
    sys.exit(main())
