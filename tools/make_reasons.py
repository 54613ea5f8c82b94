#!/usr/bin/env python3
"""Prints docs/reasons.md, made of src/compile/reasons.def; --check compares it with the file."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Why a copy stays

Each copy in a plan carries one of these codes; `uncopy.explain` and `uncopy_plan_explain` give it
with the operations in conflict, their bytes and lines. The rules w0 to w6 and r stand at the head
of src/compile/elide.c.

| code | rule | what it means | for example | what would remove it |
|---|---|---|---|---|
"""
ROW = re.compile(r'^REASON\((\w+), "([^"]*)", "([^"]*)", "([^"]*)", "([^"]*)", "([^"]*)"\)', re.M)


def page() -> str:
    """The page as it must be."""
    text = (ROOT / "src" / "compile" / "reasons.def").read_text()
    text = re.sub(r'"\s*\n\s*"', "", text)
    text = re.sub(r",\s*\n\s*", ", ", text)
    rows = [row for row in ROW.findall(text) if row[0] != "NONE"]
    assert len(rows) == text.count("\nREASON(") - 1, "a row of reasons.def is not understood"
    lines = [f"| `{c}` | {r or '-'} | {w} | {e} | {t} |\n" for _, c, r, w, e, t in rows]
    return HEAD + "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    path = ROOT / "docs" / "reasons.md"
    if parser.parse_args().check:
        return 0 if path.read_text() == page() else 1
    path.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
