#!/usr/bin/env python3
"""Holds the include direction: which folder may include what. The table below is the rule.

A header is included as "room/file.h" from src or "uncopy/file.h" from include; a folder outside
src may include its own headers by bare name. Checked for each quoted or bracketed include: its
target exists and the folder may see it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

# room of src -> what it includes beside itself and the public headers: rooms, or single headers.
# A room sees what the rooms below it see: base <- span <- ir <- compile; base <- span <- plan.
ROOMS: dict[str, tuple[str, ...]] = {
    "base": (),
    "span": ("base",),
    "ir": ("base", "span"),
    "plan": ("base", "span"),
    "compile": ("base", "span", "ir", "plan"),
    "run": ("base", "span", "plan"),
    "cpu": ("base", "plan/kernel.h", "plan/tile.h"),
    "comm": ("base", "plan/kernel.h"),
    "trace": ("base", "span", "plan"),
    "api": ("base", "span", "ir", "plan", "compile", "run", "cpu", "comm", "trace"),
}
ALL_ROOMS = tuple(ROOMS)

# folder outside src -> rooms it sees; all see the public headers and their own folder's.
FOLDERS: dict[str, tuple[str, ...]] = {
    "include": (),
    "python/ext": (),
    "examples": (),
    "bench": (),
    "tests": ALL_ROOMS,
    "fuzz": ALL_ROOMS,
}

# system header -> the only folders that may include it (bench: the floor of a compiled call)
KEPT_SYSTEM_HEADERS = {"Python.h": ("python/ext", "bench"), "structmember.h": ("python/ext",)}

SUFFIXES = (".c", ".h", ".def", ".cc", ".cpp")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def sources(folder: Path) -> list[Path]:
    """Every C file under a folder, in order of path."""
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file())


def check_include(
    root: Path, owner: str, seen: tuple[str, ...], file: Path, match: re.Match
) -> str:
    """Why this include is wrong, or an empty text. owner is the file's room or folder."""
    target, system = match[1], match[2]
    if system is not None and not system.startswith("uncopy/"):
        keepers = KEPT_SYSTEM_HEADERS.get(Path(system).name, (owner,))
        return "" if owner in keepers else f"<{system}> belongs to {keepers[0]}"
    target = target or system
    room, _, name = target.partition("/")
    if room == "uncopy":
        return "" if (root / "include" / target).is_file() else f'"{target}" does not exist'
    if room in ROOMS and name:
        if not (root / "src" / target).is_file():
            return f'"{target}" does not exist'
        if room == owner or room in seen or target in seen:
            return ""
        allowed = ", ".join(seen) or "no other room"
        return f'"{target}": {owner} sees {allowed}'
    if owner in FOLDERS and (file.parent / target).is_file():
        inside = (file.parent / target).resolve().is_relative_to((root / owner).resolve())
        return "" if inside else f'"{target}" leaves {owner}'
    return f'"{target}" is not written as "room/file.h"'


def check(root: Path) -> list[str]:
    """Returns one line for each broken rule."""
    problems = [
        f"src/{path.name}: not a room; add it to ROOMS in tools/check_layers.py"
        for path in sorted((root / "src").iterdir())
        if path.is_dir() and path.name not in ROOMS
    ]
    problems += [
        f"{p.relative_to(root)}: belongs to no room" for p in (root / "src").glob("*.[ch]")
    ]
    owners = [(room, root / "src" / room, seen) for room, seen in ROOMS.items()]
    owners += [(name, root / name, seen) for name, seen in FOLDERS.items()]
    for owner, folder, seen in owners:
        for file in sources(folder):
            text = file.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                problem = check_include(root, owner, seen, file, match)
                if problem:
                    line = text.count("\n", 0, match.start(1 if match[1] else 2)) + 1
                    problems.append(f"{file.relative_to(root)}:{line}: {problem}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    problems = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
