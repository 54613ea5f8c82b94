"""The documents are true: the worked patch applies and runs, tables name what there is, and the
examples of reasons show them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import uncopy
from uncopy.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def run(*words: str | Path, cwd: Path, **more: str) -> str:
    """Output of a command that succeeds, with meson and ninja of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(word) for word in words]
    environment = os.environ | {"PATH": path} | more
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def copy_tree(folder: Path) -> None:
    """What git knows of the tree, with changes that are not committed."""
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        source = ROOT / name
        if source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)


def test_the_worked_operation_applies_builds_and_runs(tmp_path: Path) -> None:
    text = (DOCS / "add-an-operation.md").read_text()
    patches = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert len(patches) == 1
    tree, build = tmp_path / "tree", tmp_path / "build"
    copy_tree(tree)
    (tmp_path / "frac.patch").write_text(patches[0])
    run("git", "init", "-q", cwd=tree)
    run("git", "apply", tmp_path / "frac.patch", cwd=tree)
    run("meson", "setup", build, tree, "-Dpython=false", cwd=tmp_path)
    targets = ("tests/c/test_cpu_pointwise", "tests/c/text_runner", "libuncopy.so.0.1.0")
    run("ninja", "-C", build, *targets, cwd=tmp_path)
    run(build / "tests/c/test_cpu_pointwise", cwd=tmp_path)
    output = run(build / "tests/c/text_runner", tree / "tests/text/frac.text", cwd=tmp_path)
    assert "1 files passed, 0 failed" in output
    find = "import ctypes as c; l = c.CDLL(%r); l.uncopy_operation_find.restype = c.c_char_p; "
    find += "print(l.uncopy_operation_find(b'frac'))"
    library = str(build / "libuncopy.so")
    assert "b'frac'" in run(sys.executable, "-c", find % library, cwd=tmp_path)


def test_the_page_of_reasons_is_made_of_the_table() -> None:
    run(sys.executable, ROOT / "tools" / "make_reasons.py", "--check", cwd=ROOT)


def reasons() -> dict[str, str]:
    """The example of each code on the page of reasons."""
    text = (DOCS / "reasons.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("|` "): row[3] for row in rows}


def test_every_reason_is_on_its_page() -> None:
    table = (ROOT / "src" / "compile" / "reasons.def").read_text()
    codes = set(re.findall(r'^REASON\(\w+, "([^"]+)"', table, re.MULTILINE)) - {"none"}
    assert len(codes) > 10
    assert set(reasons()) == codes


# What the examples leave to the reader: what comes before them, and uses of what they make.
BEFORE = {"not-covered": "t = a + b"}
USES = {"not-covered": "t * 2", "written-after": "t * 2"}
# Shown by text tests (an operator of one's own is needed), or not a reason of elide.
NOT_PYTHON = {"no-out-form", "reader-overlap", "pass-off", "result-layout"}


@torch.library.custom_op("uncopy_docs::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    """An operator of a user's own."""
    return x * 2


@custom.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("code", sorted(set(reasons()) - NOT_PYTHON))
def test_the_example_of_a_reason_shows_it(code: str) -> None:
    found = re.search("`(.*?)`", reasons()[code])
    assert found is not None
    body = [BEFORE.get(code, "pass"), *found[1].split("; ")]
    if code in USES:
        body.append(f"return {USES[code]}")
    elif body[-1].startswith("y = "):
        body.append("return y")
    elif "z = x[index]" in body:
        body.append("return z")
    names = "a, b, v, v_bf16, w, x, row, index, buffer, cache, sort, custom"
    space: dict[str, object] = {}
    exec(f"def f({names}):\n" + "".join(f"    {line}\n" for line in body), space)
    tensors = {name: torch.randn(8, 8) for name in "abvwx"} | {
        "v_bf16": torch.zeros(8, 8, dtype=torch.bfloat16),
        "row": torch.randn(8),
        "index": torch.tensor([1, 2]),
        "buffer": torch.zeros(8, 16),
        "cache": torch.zeros(8, 8),
        "sort": torch.sort,
        "custom": custom,
    }
    if code in ("not-injective", "not-covered"):
        tensors["v"] = torch.zeros(4, 8)
    planned = uncopy.plan(space["f"], **tensors)
    planned(**tensors)
    (plan,) = planned.plans
    found_codes = [copy["reason"] for copy in plan.copies]
    assert found_codes == [code]


def test_options_and_counts_on_their_page_are_those_there_are() -> None:
    options, counts = (DOCS / "options.md").read_text().split("## uncopy.stats()")
    assert sorted(re.findall(r"^\| `(\w+)` \|", options, re.MULTILINE)) == sorted(OPTIONS)
    rows = re.findall(r"^\| (`.*?`) \|", counts, re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"`(\w+)`", row)]
    assert set(words) == set(uncopy.stats())


def test_operations_on_their_page_are_the_rows_there_are() -> None:
    table = (ROOT / "src" / "base" / "ops.def").read_text()
    rows = re.findall(r'^OPERATION\(\w+, "(\w+)"', table, re.MULTILINE)
    page = (DOCS / "operations.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == rows


PAGES = ["README", "docs/architecture", "docs/options", "docs/reasons", "docs/limits"]
PAGES += ["docs/operations", "docs/glossary", "docs/add-an-operation"]


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_exist(name: str) -> None:
    page = (ROOT / f"{name}.md").read_text()
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    folders = "docs|examples|bench|src|include|python|tests|tools"
    names = set(re.findall(rf"(?<![\w/])((?:{folders})/[\w./-]*\w)", text))
    assert [path for path in sorted(names) if not (ROOT / path).exists()] == []


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    output = run(sys.executable, "-c", code, cwd=tmp_path)
    assert "copies that stay: 0" in output
    assert "'bytes_copied': 0" in output
