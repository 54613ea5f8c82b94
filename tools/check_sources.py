#!/usr/bin/env python3
"""Holds the source lists: each folder's meson.build names the files on disk and no others.

Each folder below keeps one file list between `files(` and `)`, one quoted name a line. --update
rewrites the lists.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

# folder -> patterns of the files that its list must hold (rooms under src are added in `folders`)
LISTS = {
    "include/uncopy": ("*.h", "*.def"),
    "python/ext": ("*.c",),
    "tests/c": ("test_*.c",),
    "tests/comm": ("test_*.c",),
    "examples/c": ("*.c",),
    "fuzz": ("fuzz_*.c",),
}
FILES_CALL = re.compile(r"files\((.*?)\)", re.DOTALL)


def folders(root: Path) -> dict[str, tuple[str, ...]]:
    """All folders with a list, with their patterns."""
    rooms = {
        f"src/{path.name}": ("*.c",)
        for path in sorted((root / "src").glob("*"))
        if any(path.glob("*.c")) or (path / "meson.build").exists()
    }
    return rooms | {name: patterns for name, patterns in LISTS.items() if (root / name).is_dir()}


def check(root: Path, update: bool) -> list[str]:
    """Returns one line for each wrong list; with update the lists are rewritten first."""
    problems = []
    for name, patterns in folders(root).items():
        build = root / name / "meson.build"
        wanted = sorted(p.name for pattern in patterns for p in (root / name).glob(pattern))
        if not build.exists():
            if wanted:
                problems.append(f"{name}: has sources and no meson.build")
            continue
        text = build.read_text()
        match = FILES_CALL.search(text)
        if match is None:
            problems.append(f"{name}/meson.build: no files( ) list")
            continue
        listed = re.findall(r"'([^']+)'", match[1])
        if update and listed != wanted:
            body = "".join(f"\n  '{file}'," for file in wanted) + ("\n" if wanted else "")
            build.write_text(text[: match.start(1)] + body + text[match.end(1) :])
            listed = wanted
        problems += [f"{name}/meson.build: {f} is not listed" for f in wanted if f not in listed]
        problems += [f"{name}/meson.build: {f} does not exist" for f in listed if f not in wanted]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--update", action="store_true", help="rewrite the lists")
    arguments = parser.parse_args()
    problems = check(arguments.root, arguments.update)
    for problem in problems:
        print(problem)
    if problems:
        print("add the file to its list, or run tools/check_sources.py --update")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
