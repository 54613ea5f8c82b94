"""Processes that a script starts by multiprocessing's spawn: they get the stand-ins before the
script is read again.

Parent: `install_spawn` names this module as the child's main. Child: run as "__mp_main__", this
module installs the stand-ins, then runs the script under that name and takes over its names, so
that its functions unpickle.
"""

import functools
import multiprocessing.spawn
import os
import runpy
from pathlib import Path
from typing import Any

__all__ = ["install_spawn"]

_SCRIPT_VARIABLE = "_UNCOPY_NPU_SCRIPT"
_PACKAGE_ROOT = str(Path(__file__).parents[2])


def install_spawn(script: Path) -> None:
    """Makes children of this process, whose main is the script, run it through this module."""
    os.environ[_SCRIPT_VARIABLE] = str(script)  # sys.argv[0] is this module's while it runs
    prepare = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepare)
    def get_preparation_data(name: str) -> dict[str, Any]:
        data = prepare(name)
        if data.pop("init_main_from_path", None) is not None:
            data["init_main_from_name"] = __name__
            data["sys_path"] = [*data["sys_path"], _PACKAGE_ROOT]
        return data

    multiprocessing.spawn.get_preparation_data = get_preparation_data


if __name__ == "__mp_main__":
    from uncopy.npu import install
    from uncopy.npu.spawn import install_spawn as _install_spawn

    _script = os.environ[_SCRIPT_VARIABLE]
    install()
    _install_spawn(Path(_script))
    globals().update(runpy.run_path(_script, run_name="__mp_main__"))
