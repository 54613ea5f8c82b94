"""The C library as its users get it: installed, found by pkg-config, used from C and C++."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "c").glob("*.c"))
COMPILERS = {"c": ("cc", "-std=c11"), "c++": ("c++", "-std=c++17")}
PACKAGE = Path(sysconfig.get_path("platlib")) / "uncopy"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Output of a command that succeeds; meson and ninja are those of this Python's environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary installation of the C library, moved after it was made."""
    folder = tmp_path_factory.mktemp("install")
    first, moved = folder / "first", folder / "moved"
    options = ["-Dpython=false", "-Dtests=false", "--libdir=lib", f"--prefix={first}"]
    run("meson", "setup", folder / "build", ROOT, *options)
    run("meson", "install", "-C", folder / "build")
    first.rename(moved)
    return moved


def pkg_config(prefix: Path, *words: str) -> list[str]:
    """What pkg-config says of an installation."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config on this machine")
    return run(
        "pkg-config", *words, "uncopy", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig")
    ).split()


def build_and_run(source: Path, language: str, prefix: Path, folder: Path) -> str:
    """Compiles a program in a language through pkg-config, runs it, and returns its output."""
    compiler, standard = COMPILERS[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    program = folder / f"{source.stem}.{compiler}"
    compile_flags = pkg_config(prefix, "--cflags")
    link_flags = pkg_config(prefix, "--libs")
    run(
        *(compiler, standard, *WARNINGS, *compile_flags, "-x", language, source, "-x", "none"),
        *("-o", program, *link_flags, f"-Wl,-rpath,{prefix / 'lib'}", "-lm"),
    )
    return run(program, cwd=folder)


def test_installation_holds_headers_library_and_pkg_config_file(prefix: Path) -> None:
    headers = {p.name for p in (ROOT / "include" / "uncopy").glob("*.[hd]*")} - {"meson.build"}
    assert {p.name for p in (prefix / "include" / "uncopy").iterdir()} == headers
    assert (prefix / "lib" / "libuncopy.so").is_file()
    assert not list(prefix.rglob("*.a"))


def test_pkg_config_follows_an_installation_that_was_moved(prefix: Path) -> None:
    folder = Path(pkg_config(prefix, "--variable=includedir")[0])
    assert folder.resolve() == (prefix / "include").resolve()


@pytest.mark.parametrize("language", COMPILERS)
def test_version_of_the_library_is_that_of_its_header(
    language: str, prefix: Path, tmp_path: Path
) -> None:
    source = tmp_path / "version.c"
    source.write_text(
        "#include <stdio.h>\n"
        "#include <uncopy/uncopy.h>\n"
        "int main(void)\n{\n"
        '    printf("%s %d.%d.%d", uncopy_version(), UNCOPY_VERSION_MAJOR,\n'
        "           UNCOPY_VERSION_MINOR, UNCOPY_VERSION_PATCH);\n"
        "    return 0;\n}\n"
    )
    library, header = build_and_run(source, language, prefix, tmp_path).split()
    assert library == header == pkg_config(prefix, "--modversion")[0]


@pytest.mark.parametrize("language", COMPILERS)
@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_from_an_installed_copy(
    source: Path, language: str, prefix: Path, tmp_path: Path
) -> None:
    assert build_and_run(source, language, prefix, tmp_path)


def test_package_holds_the_library_for_c_programs_too(tmp_path: Path) -> None:
    source = tmp_path / "name.c"
    source.write_text(
        "#include <stdio.h>\n"
        "#include <uncopy/dtype.h>\n"
        "int main(void)\n{\n"
        '    printf("%s", uncopy_dtype_name(UNCOPY_DTYPE_BF16));\n'
        "    return 0;\n}\n"
    )
    assert build_and_run(source, "c", PACKAGE, tmp_path) == "bf16"


def test_extension_finds_its_library_wherever_the_package_lies(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "uncopy")
    words = "import torch, uncopy; print(uncopy._core.__file__)"
    output = run(sys.executable, "-c", words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert Path(output.strip()).is_relative_to(tmp_path)
