#!/usr/bin/env python3
"""Runs every part of the test run, and goes on when one fails: run_tests.py [lint|test|all].

lint: source lists, include direction, headers alone, clang-format, ruff. test: lint, the C tests
in four builds (gcc as released, gcc with sanitizers and asserts, those that use threads with the
thread sanitizer, clang with asserts), the exports, then pytest, whose closing line ends the
output. all: also the C tests under valgrind, each rule of elide taken out, the fuzz targets for a
while, coverage; and UNCOPY_TEST_ALL=1 for every test program. What this machine lacks is skipped
with one printed line. Exit code: 0 only if no part failed. Called by the Makefile, which has made
the virtual environment that runs this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
C_LIBRARY = ["-Dpython=false"]
WITH_ASSERTS = ["-Dbuildtype=debugoptimized", "-Doptimization=1"]
SANITIZED = ["-Db_sanitize=address,undefined", "-Db_lundef=false"]
THREADS_SANITIZED = ["-Db_sanitize=thread", "-Db_lundef=false"]
C_FILES = ("include", "src", "python/ext", "tests", "examples", "bench", "fuzz")
FUZZ_SECONDS = 30
PYTEST_PROCESSES = 2
# Files of src/compile whose every branch a text test takes.
RULES = ("elide*.c", "depend.c", "normalise.c", "order.c", "place.c")

# command -> what a machine without it skips
OPTIONAL_COMMANDS = {
    "clang": "the clang build and the fuzz targets",
    "c++": "headers and C example as C++, inductor as a peer",
    "mpirun": "what needs MPICH",
    "valgrind": "what needs valgrind",
    "pkg-config": "the C example through pkg-config",
}


@dataclass
class Run:
    """The outcome of each part so far, in order."""

    outcomes: list[tuple[str, bool, float]] = field(default_factory=list)

    def part(self, name: str, *steps: Callable[[], bool]) -> None:
        """Runs the steps until one fails and notes the outcome."""
        print(f"=== {name}", flush=True)
        start = time.monotonic()
        passed = all(step() for step in steps)
        self.outcomes.append((name, passed, time.monotonic() - start))

    def print_summary(self) -> None:
        """One line a part."""
        print("=== summary", flush=True)
        for name, passed, seconds in self.outcomes:
            print(f"{'passed' if passed else 'FAILED'}  {name}  ({seconds:.0f} s)", flush=True)

    @property
    def has_failed(self) -> bool:
        """Whether any part failed."""
        return not all(passed for _, passed, _ in self.outcomes)


def command(*words: str | Path, **environment: str) -> Callable[[], bool]:
    """A step that runs a command in the root folder."""

    def step() -> bool:
        variables = os.environ | environment
        return subprocess.run([str(w) for w in words], cwd=ROOT, env=variables).returncode == 0

    return step


def tool(name: str, *words: str | Path) -> Callable[[], bool]:
    """A step that runs a script of this folder."""
    return command(PYTHON, ROOT / "tools" / f"{name}.py", *words)


def build(folder: str, compiler: str, *options: str) -> Callable[[], bool]:
    """A step that sets the build folder up, once, and builds it."""

    def step() -> bool:
        if not (ROOT / folder / "build.ninja").exists():
            words = ["meson", "setup", folder, *C_LIBRARY, *options]
            result = subprocess.run(
                words,
                cwd=ROOT,
                env=os.environ | {"CC": compiler},
                capture_output=True,
                text=True,
            )
            if result.returncode != 0:
                print(result.stdout, result.stderr)
                shutil.rmtree(ROOT / folder, ignore_errors=True)
                return False
        return command("ninja", "-C", folder, "--quiet")()

    return step


def c_tests(folder: str, *options: str, **environment: str) -> Callable[[], bool]:
    """A step that runs the C tests of a build folder."""
    words = ("meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", *options)
    return command(*words, **environment)


def c_files() -> list[Path]:
    """Every C source and header of the project, which clang-format lays out."""
    files = (p for folder in C_FILES for p in (ROOT / folder).rglob("*.[ch]"))
    return sorted(p.relative_to(ROOT) for p in files)


def gcc() -> str:
    """The compiler of the ordinary build."""
    return "gcc" if shutil.which("gcc") else "cc"


def lint(run: Run) -> None:
    """Checks that need no build."""
    run.part("lint: source lists", tool("check_sources"))
    run.part("lint: include direction", tool("check_layers"))
    run.part("lint: headers alone", tool("check_headers"))
    run.part(
        "lint: clang-format",
        tool("wrap_comments", "--check", *c_files()),
        command("clang-format", "--dry-run", "-Werror", *c_files()),
    )
    run.part("lint: ruff", command("ruff", "check", "--quiet", "."))
    run.part("lint: ruff format", command("ruff", "format", "--quiet", "--diff", "."))


def c_builds(run: Run) -> None:
    """The C tests in each build."""
    run.part("C: gcc", build("build-gcc", gcc()), c_tests("build-gcc"))
    run.part("C: exports", tool("check_symbols", "build-gcc/libuncopy.so"))
    run.part(
        "C: gcc, ASan and UBSan",
        build("build-sanitize", gcc(), *WITH_ASSERTS, *SANITIZED),
        c_tests("build-sanitize"),
    )
    run.part(
        "C: gcc, TSan",
        build("build-threads", gcc(), *WITH_ASSERTS, *THREADS_SANITIZED),
        c_tests("build-threads", "--suite=threads", TSAN_OPTIONS="halt_on_error=1"),
    )
    if shutil.which("clang"):
        run.part("C: clang", build("build-clang", "clang", *WITH_ASSERTS), c_tests("build-clang"))


def long_checks(run: Run) -> None:
    """What only `make test-all` runs."""
    if shutil.which("valgrind"):
        run.part(
            "C: valgrind",
            c_tests("build-gcc", "--setup=valgrind", "--suite=c", UNCOPY_TEST_SCALE="0.01"),
        )
    run.part("C: each rule taken out", tool("check_rules"))
    if shutil.which("clang"):
        run.part(
            "C: fuzz",
            build("build-fuzz", "clang", "-Dfuzz=true", *WITH_ASSERTS, *SANITIZED),
            fuzz_targets,
        )
    run.part("C: coverage", tool("coverage"))
    found = (p for name in RULES for p in (ROOT / "src" / "compile").glob(name))
    files = sorted(p.relative_to(ROOT) for p in found)
    run.part(
        "C: a text test for every branch of elide, depend, normalise, order, place",
        tool("coverage", *files, "--suite=text", "--require"),
    )


def fuzz_targets() -> bool:
    """Runs each fuzz target from the seeds in fuzz/seeds/NAME, where there are any."""
    passed = True
    for source in sorted((ROOT / "fuzz").glob("fuzz_*.c")):
        found = ROOT / "build-fuzz" / "corpus" / source.stem
        found.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "fuzz" / "seeds" / source.stem
        words = [ROOT / "build-fuzz" / "fuzz" / source.stem, f"-max_total_time={FUZZ_SECONDS}"]
        words += [f"-artifact_prefix={found.parent}/", "-verbosity=0", "-timeout=10", found]
        words += [seeds] if seeds.is_dir() else []
        passed = command(*words)() and passed
    return passed


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else "test"
    if what not in ("lint", "test", "all"):
        sys.exit(__doc__)
    run = Run()
    if what != "lint":
        for name, skipped in OPTIONAL_COMMANDS.items():
            if shutil.which(name) is None:
                print(f"skipped, no {name} on this machine: {skipped}", flush=True)
    if what == "all":
        os.environ["UNCOPY_TEST_ALL"] = "1"
        os.environ.setdefault("UNCOPY_TEST_SCALE", "10")
    lint(run)
    if what == "lint":
        return 1 if run.has_failed else 0
    c_builds(run)
    if what == "all":
        long_checks(run)
    run.part("Python: package", command(os.environ.get("MAKE", "make"), "--silent", "package"))
    run.print_summary()
    # Last, so that its closing line ends the output. A file's tests stay in one process.
    words = ("-n", str(PYTEST_PROCESSES), "--dist", "loadfile")
    run.part("Python: pytest", command(PYTHON, "-m", "pytest", *words, "tests"))
    return 1 if run.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
