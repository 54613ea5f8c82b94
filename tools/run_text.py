#!/usr/bin/env python3
"""Calls the text runner with every program under a folder: run_text.py RUNNER FOLDER."""

import os
import sys
from pathlib import Path

SUFFIX = ".text"


def main() -> None:
    runner, folder = sys.argv[1], Path(sys.argv[2])
    paths = sorted(str(path) for path in folder.rglob("*" + SUFFIX))
    if not paths:
        sys.exit(f"{folder}: holds no *{SUFFIX} file")
    os.execv(runner, [runner, *paths])


if __name__ == "__main__":
    main()
