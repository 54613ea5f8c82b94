#!/usr/bin/env python3
"""Wraps C block comments at 100 columns, paragraph by paragraph; --check only names long lines.

A paragraph is touched only if one of its lines is too long. Paragraphs end at blank lines, before
"Errors:" and its like, and before list items ("- ", "1. ", a tag such as "w3 "), whose later lines
are indented deeper. Any other indented line is a picture or code and is left alone. A comment that
makes its line of code too long moves above it.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

WIDTH = 100
DTYPE = r"(?:bf|[cfiu])\d+ "
ITEM = re.compile(rf"^( *)(?:[-*+]|\d+[.)]|(?!{DTYPE})[A-Za-z]\d{{1,2}})( +)(?=\S)")
HEADING = re.compile(r"^ *(?:Cost|Errors|Invariants|Owner|Threads|Algorithm|Inputs|Outputs):")
TRAILING = re.compile(r"^( *)(\S.*?) +(/\*.*\*/)$")


@dataclass
class Paragraph:
    """Consecutive lines that are wrapped together, without the comment's own marks."""

    first_indent: str
    later_indent: str
    is_verbatim: bool
    lines: list[str] = field(default_factory=list)

    def goes_on_with(self, line: str, indent: str) -> bool:
        """Whether a line that begins no list item belongs to this paragraph."""
        if ITEM.match(self.lines[0]):
            return len(indent) > len(self.first_indent)
        return indent == self.later_indent and not (self.is_verbatim or HEADING.match(line))

    def wrapped(self, room: int) -> list[str]:
        """The lines, wrapped to room columns if one is longer."""
        if self.is_verbatim or all(len(line) <= room for line in self.lines):
            return self.lines
        words = " ".join(line.strip() for line in self.lines)
        return textwrap.wrap(
            words,
            room,
            initial_indent=self.first_indent,
            subsequent_indent=self.later_indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def paragraphs(lines: list[str]) -> list[Paragraph]:
    """Splits a comment's lines."""
    result: list[Paragraph] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        item = ITEM.match(line)
        last = result[-1] if result else None
        if not line.strip():
            result.append(Paragraph("", "", True))
        elif item:
            result.append(Paragraph(indent, " " * item.end(), False))
        elif last and last.goes_on_with(line, indent):
            pass
        else:
            result.append(Paragraph(indent, indent, indent != ""))
        result[-1].lines.append(line)
    return result


def wrap_comment(indent: str, lines: list[str]) -> list[str]:
    """Wraps one comment. lines hold its text, without the opening, leading and closing marks."""
    room = WIDTH - len(indent) - len(" * ")
    wrapped = [line for p in paragraphs(lines) for line in p.wrapped(room)]
    result = [f"{indent} * {line}".rstrip() for line in wrapped]
    result[0] = f"{indent}/* {wrapped[0]}".rstrip()
    if len(result[-1]) + len(" */") <= WIDTH:
        result[-1] += " */"
    elif wrapped[-1] in lines and len(result) > 1:
        result.append(f"{indent} */")
    else:
        head, _, word = result[-1].rpartition(" ")
        result[-1:] = [head, f"{indent} * {word} */"]
    return result


def wrap_text(text: str) -> str:
    """Wraps every comment of a file that has a line which is too long."""
    result: list[str] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        indent = line[: len(line) - len(line.lstrip())]
        end = index
        if line.lstrip().startswith("/*"):
            while "*/" not in lines[end] and end + 1 < len(lines):
                end += 1
        block = lines[index : end + 1]
        index = end + 1
        is_comment = line.lstrip().startswith("/*") and block[-1].endswith("*/")
        trailing = TRAILING.match(line) if len(line) > WIDTH else None
        if is_comment and any(len(part) > WIDTH for part in block):
            result += wrap_comment(indent, strip_marks(block))
        elif not is_comment and trailing and not trailing[2].endswith("\\"):
            result += wrap_comment(trailing[1], strip_marks([trailing[3]]))
            result.append(trailing[1] + trailing[2])
        else:
            result += block
    return "\n".join(result)


def strip_marks(block: list[str]) -> list[str]:
    """The text of a comment's lines."""
    lines = [re.sub(r"^ *(/\*|\*(?!/)) ?", "", line) for line in block]
    lines[-1] = re.sub(r" *\*/$", "", lines[-1])
    return lines[:-1] if not lines[-1].strip() and len(lines) > 1 else lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    num_long = 0
    for path in arguments.files:
        text = path.read_text(encoding="utf-8")
        if not arguments.check:
            wrapped = wrap_text(text)
            if wrapped != text:
                path.write_text(wrapped, encoding="utf-8")
                text = wrapped
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > WIDTH:
                num_long += 1
                print(f"{path}:{number}: {len(line)} columns")
    return 1 if num_long and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
