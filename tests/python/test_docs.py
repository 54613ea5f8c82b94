"""The documents are true: the worked patch applies and runs; generated pages are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    names = set(re.findall(r"\b((?:docs|examples|bench)/[\w./-]*\w)", text))
    assert len(names) > 8
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    output = run(sys.executable, "-c", code, cwd=tmp_path)
    assert "copies that stay: 0" in output
    assert "'bytes_copied': 0" in output
