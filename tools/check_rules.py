#!/usr/bin/env python3
"""Takes out one rule of elide after the other and expects a test to fail for each.

A rule is taken out by -Dwithout_rule=NAME, which defines ELIDE_WITHOUT_NAME; the rules are those
that src/compile names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "build-rules"
SUITES = ["--suite=text"]


def rules() -> list[str]:
    """The names of all rules that can be taken out."""
    names: set[str] = set()
    for source in (ROOT / "src" / "compile").glob("*.[ch]"):
        names.update(re.findall(r"\bELIDE_WITHOUT_(\w+)", source.read_text()))
    return sorted(names)


def call(*words: str) -> bool:
    """Whether a command succeeds; its output is shown only by --verbose."""
    output = None if "--verbose" in sys.argv else subprocess.DEVNULL
    return subprocess.run(words, cwd=ROOT, stdout=output, stderr=output).returncode == 0


def build(rule: str) -> bool:
    """Builds with one rule out; an empty name takes out none."""
    # A rule's variables may be unused without it.
    options = ["-Dpython=false", "-Dwerror=false", f"-Dwithout_rule={rule.lower()}"]
    action = ["configure"] if (ROOT / FOLDER / "build.ninja").exists() else ["setup"]
    return call("meson", *action, FOLDER, *options) and call("ninja", "-C", FOLDER)


def test() -> bool:
    """Whether the tests pass."""
    return call("meson", "test", "-C", FOLDER, "--no-rebuild", *SUITES)


def main() -> int:
    names = rules()
    if not names:
        print("src/compile names no ELIDE_WITHOUT_ rule")
        return 1
    os.environ["UNCOPY_TEST_SCALE"] = "1"
    if not build("") or not test():
        print("the tests fail with every rule in place")
        return 1
    failed = 0
    for name in names:
        if not build(name):
            verdict = "does not build"
        elif test():
            verdict = "no test fails without it"
        else:
            verdict = ""
        print(f"{name}: {verdict or 'a test fails without it'}", flush=True)
        failed += bool(verdict)
    build("")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
