"""The repository's own checks: each fails on a tree that breaks its rule, and on no other."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_layers  # noqa: E402
import check_sources  # noqa: E402
import check_symbols  # noqa: E402
import wrap_comments  # noqa: E402


def write(root: Path, files: dict[str, str]) -> Path:
    """Makes a tree of the given files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GOOD_TREE = {
    "include/uncopy/plan.h": '#include <stddef.h>\n#include "uncopy/status.def"\n',
    "include/uncopy/status.def": "",
    "src/base/arena.h": '#include "uncopy/plan.h"\n',
    "src/span/span.h": '#include "base/arena.h"\n',
    "src/plan/kernel.h": '#include "span/span.h"\n',
    "src/plan/plan.h": '#include "plan/kernel.h"\n',
    "src/ir/program.h": '#include "span/span.h"\n',
    "src/compile/elide.c": '#include "ir/program.h"\n#include "plan/plan.h"\n',
    "src/run/frame.h": '#include "plan/plan.h"\n',
    "src/cpu/scalar.c": '#include "plan/kernel.h"\n',
    "src/api/function.c": '#include "run/frame.h"\n#include "ir/program.h"\n',
    "python/ext/module.c": '#include <Python.h>\n#include "uncopy/plan.h"\n#include "module.h"\n',
    "python/ext/module.h": "",
    "examples/c/refill.c": "#include <uncopy/plan.h>\n",
    "tests/c/test_elide.c": '#include "check.h"\n#include "ir/program.h"\n',
    "tests/c/check.h": "",
}

BROKEN_LAYERS = {
    "lower includes higher": ("src/base/a.c", '"span/span.h"', "base sees no other room"),
    "span includes plan": ("src/span/a.c", '"plan/plan.h"', "span sees base"),
    "plan includes ir": ("src/plan/a.c", '"ir/program.h"', "plan sees base, span"),
    "ir includes plan": ("src/ir/a.c", '"plan/plan.h"', "ir sees base, span"),
    "compile includes run": ("src/compile/a.c", '"run/frame.h"', "compile sees"),
    "run includes ir": ("src/run/a.c", '"ir/program.h"', "run sees base, span, plan"),
    "cpu includes the whole plan": ("src/cpu/a.c", '"plan/plan.h"', "cpu sees base, plan/kernel.h"),
    "trace includes run": ("src/trace/a.c", '"run/frame.h"', "trace sees base, span, plan"),
    "include sees src": ("include/uncopy/a.h", '"base/arena.h"', "include sees no other room"),
    "extension sees src": ("python/ext/a.c", '"run/frame.h"', "python/ext sees no other room"),
    "example sees src": ("examples/c/a.c", '"base/arena.h"', "examples sees no other room"),
    "example sees src in brackets": ("examples/c/a.c", "<uncopy/none.h>", "does not exist"),
    "bench sees src": ("bench/a.c", '"plan/plan.h"', "bench sees no other room"),
    "a bare name in src": ("src/plan/a.c", '"plan.h"', 'not written as "room/file.h"'),
    "a path upwards": ("examples/c/a.c", '"../../src/base/arena.h"', "leaves examples"),
    "a missing header": ("src/span/a.c", '"base/none.h"', "does not exist"),
    "Python.h in src": ("src/api/a.c", "<Python.h>", "<Python.h> belongs to python/ext"),
    "an unknown room": ("src/cuda/a.c", "<stddef.h>", "src/cuda: not a room"),
    "a file in no room": ("src/a.c", "<stddef.h>", "src/a.c: belongs to no room"),
}


def test_layers_pass_on_a_tree_that_keeps_them(tmp_path: Path) -> None:
    assert check_layers.check(write(tmp_path, GOOD_TREE)) == []


@pytest.mark.parametrize("name", BROKEN_LAYERS)
def test_layers_fail_when(name: str, tmp_path: Path) -> None:
    path, target, words = BROKEN_LAYERS[name]
    tree = GOOD_TREE | {path: f"\n#  include {target}\n"}
    problems = check_layers.check(write(tmp_path, tree))
    assert len(problems) == 1
    assert words in problems[0]
    if "not a room" not in words and "no room" not in words:
        assert problems[0].startswith(f"{path}:2: ")


def test_layers_program_exits_with_one_on_a_broken_tree(tmp_path: Path) -> None:
    write(tmp_path, GOOD_TREE | {"src/base/a.c": '#include "ir/program.h"\n'})
    words = [sys.executable, str(ROOT / "tools" / "check_layers.py"), "--root", str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 1
    assert 'src/base/a.c:1: "ir/program.h"' in result.stdout


def test_layers_table_names_every_room_of_the_tree() -> None:
    rooms = {p.name for p in (ROOT / "src").iterdir() if p.is_dir()}
    assert rooms <= set(check_layers.ROOMS)


def test_sources_fail_on_a_file_that_no_list_names_and_update_adds_it(tmp_path: Path) -> None:
    files = {
        "src/base/meson.build": "room_sources = files(\n  'a.c',\n  'gone.c',\n)\n",
        "src/base/a.c": "",
        "src/base/b.c": "",
    }
    write(tmp_path, files)
    assert check_sources.check(tmp_path, update=False) == [
        "src/base/meson.build: b.c is not listed",
        "src/base/meson.build: gone.c does not exist",
    ]
    assert check_sources.check(tmp_path, update=True) == []
    text = (tmp_path / "src/base/meson.build").read_text()
    assert text == "room_sources = files(\n  'a.c',\n  'b.c',\n)\n"


def test_symbols_name_each_difference() -> None:
    problems = check_symbols.compare(
        library={"uncopy_a", "uncopy_new", "leaked"},
        listed={"uncopy_a", "uncopy_gone"},
        headers={"uncopy_a", "uncopy_new", "uncopy_forgotten"},
    )
    assert problems == [
        "+leaked: exported, not in the list",
        "+uncopy_new: exported, not in the list",
        "-uncopy_gone: in the list, not exported",
        " uncopy_forgotten: declared in a header, not exported",
        " leaked: exported, declared in no header",
        " leaked: does not start with uncopy_",
    ]


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("nm") is None, reason="no cc, nm")
def test_symbols_program_fails_until_the_list_is_updated(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int uncopy_a(void) { return 0; }\nstatic int b;\nint *uncopy_b = &b;\n")
    library = tmp_path / "liba.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    header = tmp_path / "include" / "a.h"
    header.parent.mkdir()
    header.write_text(
        "#define UNCOPY_API\n"
        "/* UNCOPY_API int uncopy_comment(void); */\n"
        "UNCOPY_API UNCOPY_MUST_CHECK int\nuncopy_a(void);\n"
        "UNCOPY_API int *uncopy_b(void);\n"
    )
    listed = tmp_path / "exports.txt"
    words = [sys.executable, str(ROOT / "tools" / "check_symbols.py"), str(library)]
    words += ["--list", str(listed), "--headers", str(header.parent)]
    before = subprocess.run(words, capture_output=True, text=True)
    assert before.returncode == 1
    assert "+uncopy_a: exported, not in the list" in before.stdout
    update = subprocess.run([*words, "--update"], capture_output=True, text=True)
    assert (update.returncode, update.stdout) == (0, "")
    assert listed.read_text() == "uncopy_a\nuncopy_b\n"
    assert subprocess.run(words).returncode == 0


def project_version() -> str:
    """The version that meson.build states, from which the package takes its own."""
    text = (ROOT / "meson.build").read_text()
    match = re.search(r"version: '([\d.]+)'", text)
    assert match is not None
    return match[1]


def test_version_of_the_header_is_the_version_of_the_project() -> None:
    text = (ROOT / "include" / "uncopy" / "version.h").read_text()
    numbers = re.findall(r"#define UNCOPY_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
    assert ".".join(numbers) == project_version()


def test_version_is_written_nowhere_else() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text
    assert not re.search(r"^version\s*=", text, re.MULTILINE)


def test_version_of_the_installed_package_is_the_version_of_the_project() -> None:
    assert importlib.metadata.version("uncopy") == project_version()


LONG_WORDS = "a word " * 20 + "more"


def test_comments_are_wrapped_and_lists_stay_lists() -> None:
    text = f"/* Title.\n *\n *   p1 {LONG_WORDS}\n *   p2 short */\nint a;\n"
    wrapped = wrap_comments.wrap_text(text).split("\n")
    assert wrapped[:2] == ["/* Title.", " *"]
    assert wrapped[2].startswith(" *   p1 a word")
    assert wrapped[3].startswith(" *      ")
    assert wrapped[4:] == [" *   p2 short */", "int a;", ""]
    assert max(len(line) for line in wrapped) <= 100


def test_a_comment_that_makes_its_line_too_long_moves_above_it() -> None:
    text = f"    int size; /* {LONG_WORDS[:84]}end */\n"
    assert wrap_comments.wrap_text(text) == f"    /* {LONG_WORDS[:84]}end */\n    int size;\n"


def test_comments_that_fit_are_left_alone() -> None:
    text = "/* One\n * two\n *     picture  kept\n */\nint a; /* three */\n"
    assert wrap_comments.wrap_text(text) == text
