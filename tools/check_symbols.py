#!/usr/bin/env python3
"""Holds the exports: libuncopy, the public headers and tools/exports.txt name the same.

check_symbols.py LIBRARY compares; with --update the list is rewritten from the library, and the
rest still compared.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "uncopy_"
DECLARATION = re.compile(r"\bUNCOPY_API\b[^;{]*?\b(\w+)\s*\(")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def exported(library: Path) -> set[str]:
    """Names that the dynamic linker sees in a library."""
    output = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[0].split("@")[0] for line in output.splitlines() if line.strip()}


def declared(headers: Path) -> set[str]:
    """Names that the public headers declare with UNCOPY_API."""
    names: set[str] = set()
    for header in headers.glob("*.h"):
        text = COMMENT.sub(" ", header.read_text(encoding="utf-8"))
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        text = text.replace("UNCOPY_MUST_CHECK", " ")
        names.update(DECLARATION.findall(text))
    return names


def compare(library: set[str], listed: set[str], headers: set[str]) -> list[str]:
    """Returns one line for each difference; a leading + or - reads as in a diff of the list."""
    problems = [f"+{name}: exported, not in the list" for name in sorted(library - listed)]
    problems += [f"-{name}: in the list, not exported" for name in sorted(listed - library)]
    problems += [f" {n}: declared in a header, not exported" for n in sorted(headers - library)]
    problems += [f" {n}: exported, declared in no header" for n in sorted(library - headers)]
    problems += [
        f" {n}: does not start with {PREFIX}" for n in sorted(library) if not n.startswith(PREFIX)
    ]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--list", type=Path, default=ROOT / "tools" / "exports.txt")
    parser.add_argument("--headers", type=Path, default=ROOT / "include" / "uncopy")
    parser.add_argument("--update", action="store_true", help="rewrite the list")
    arguments = parser.parse_args()
    library = exported(arguments.library)
    if arguments.update:
        arguments.list.write_text("".join(f"{name}\n" for name in sorted(library)))
    listed = set(arguments.list.read_text().split()) if arguments.list.exists() else set()
    problems = compare(library, listed, declared(arguments.headers))
    for problem in problems:
        print(problem)
    if library != listed:
        print(f"if the change is meant, run tools/check_symbols.py {arguments.library} --update")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
