"""The command line: `python -m uncopy.npu script.py [args]`, also under torchrun with `-m
uncopy.npu`.

The script sees what it would see if Python ran it: its own `__main__`, sys.argv, and its folder
first in sys.path. An exception that it lets out is shown with the script's own traceback, and gives
its exit code.
"""

import argparse
import importlib.machinery
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

from uncopy.npu import install
from uncopy.npu.spawn import install_spawn

_DESCRIPTION = """\
Run an Ascend (NPU) script on a machine without an NPU.

Device "npu" is the CPU's memory, backend "hccl" a process group on the CPU, and torchair's
compiler is Uncopy; the script runs unmodified. Where a real torch_npu is installed, the script
runs on it, and nothing is replaced."""

_EPILOG = """\
on several ranks:
  torchrun --nproc_per_node 2 -m uncopy.npu script.py [args]

Options of Uncopy that the script does not set come from the environment: UNCOPY_STRICT=1."""


def parse_command_line(arguments: Sequence[str]) -> argparse.Namespace:
    """The script and its arguments. Everything after the script's name is the script's."""
    parser = argparse.ArgumentParser(
        prog="python -m uncopy.npu",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", help="the Python file to run")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="handed to the script as they are"
    )
    rest.required = False  # else a message about a missing script names this one too
    parsed = parser.parse_args(arguments)
    if not Path(parsed.script).is_file():
        parser.error(f"can't open {parsed.script!r}: there is no such file")
    return parsed


def _show_script_errors(script: str) -> None:
    """Leaves the frames above the script out of the traceback that Python prints at the end."""

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        frame = traceback
        while frame is not None and frame.tb_frame.f_code.co_filename != script:
            frame = frame.tb_next
        # None when the script did not compile; the error names file and line itself.
        hidden = frame is not None or isinstance(error, SyntaxError)
        sys.__excepthook__(kind, error.with_traceback(frame) if hidden else error, frame)

    sys.excepthook = show


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Runs the file as `__main__`, as `python script arguments...` does."""
    path = str(Path(script).absolute())
    with io.open_code(path) as file:
        source = file.read()
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    module.__spec__ = None
    module.__cached__ = None
    module.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = module
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        # In place of the current folder, which -m had put there.
        sys.path[0] = str(Path(script).resolve().parent)
    _show_script_errors(path)
    code = compile(source, path, "exec", dont_inherit=True)
    exec(code, vars(module))


def main() -> None:
    """Runs the command line."""
    parsed = parse_command_line(sys.argv[1:])
    if install():
        install_spawn(Path(parsed.script).resolve())
    run_script(parsed.script, parsed.arguments)


if __name__ == "__main__":
    main()
