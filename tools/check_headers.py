#!/usr/bin/env python3
"""Compiles each header alone: public ones as C11 and as C++17, internal ones as C11.

A *_body.h is no header but the text of a file that is compiled several times; it is left out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def command_c() -> list[str]:
    """The C compiler, with the flags that the build gives."""
    compiler = shlex.split(os.environ.get("CC") or shutil.which("gcc") or "cc")
    return [*compiler, "-std=c11", "-D_POSIX_C_SOURCE=200809L", *WARNINGS]


def command_cpp() -> list[str] | None:
    """The C++ compiler, or None where there is none."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    return [*shlex.split(compiler), "-std=c++17", *WARNINGS] if compiler else None


def compile_header(command: list[str], name: str, folder: str) -> str:
    """The compiler's words about one header included alone; empty if it compiles."""
    suffix = ".cpp" if "-std=c++17" in command else ".c"
    source = Path(folder) / (name.replace("/", "_") + suffix)
    # Included twice: a header without its guard fails. ISO C forbids an empty unit.
    source.write_text(f'#include "{name}"\n#include "{name}"\nextern int unit_is_not_empty;\n')
    includes = [f"-I{ROOT / 'include'}"]
    if not name.startswith("uncopy/"):
        includes.append(f"-I{ROOT / 'src'}")
    result = subprocess.run([*command, *includes, str(source)], capture_output=True, text=True)
    return result.stderr if result.returncode != 0 else ""


def main() -> int:
    public = sorted(str(p.relative_to(ROOT / "include")) for p in ROOT.glob("include/uncopy/*.h"))
    internal = sorted(str(p.relative_to(ROOT / "src")) for p in ROOT.glob("src/*/*.h"))
    internal = [name for name in internal if not name.endswith("_body.h")]
    jobs = [(command_c(), name) for name in public + internal]
    if (cpp := command_cpp()) is not None:
        jobs += [(cpp, name) for name in public]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        words = list(pool.map(lambda job: compile_header(*job, folder), jobs))
    for (command, name), output in zip(jobs, words, strict=True):
        if output:
            print(f"{name} does not compile alone with {command[0]}:\n{output}")
    return 1 if any(words) else 0


if __name__ == "__main__":
    sys.exit(main())
