"""Run an Ascend script on a machine without an NPU: `python -m uncopy.npu script.py [args]`.

`install()` makes device "npu" the CPU's memory, backend "hccl" a process group on the CPU, and
torch_npu, torch.npu and torchair modules whose compiler is Uncopy. Importing this package changes
nothing; only `install()` and the command line do. Where a real torch_npu is installed, `install()`
leaves everything as it is: the script runs on the NPU with Ascend's own compiler, and
`torch.compile(backend=uncopy.npu.get_npu_backend(...))` asks for Uncopy there.
"""

import importlib.util
import logging
import sys

from uncopy.npu.compiler import get_compiler, get_npu_backend
from uncopy.npu.config import CompilerConfig

__all__ = ["CompilerConfig", "get_compiler", "get_npu_backend", "has_torch_npu", "install"]

_log = logging.getLogger("uncopy.npu")


def has_torch_npu() -> bool:
    """Whether a real torch_npu is installed, found without importing it."""
    if _is_installed():
        return False
    return importlib.util.find_spec("torch_npu") is not None


def _is_installed() -> bool:
    spec = getattr(sys.modules.get("torch_npu"), "__spec__", None)
    return getattr(spec, "origin", None) == "uncopy.npu"


def install() -> bool:
    """Puts the stand-ins in place, for this process; calling it again does nothing.

    Returns whether they are in place: False where a real torch_npu is installed, which is left
    alone.
    """
    if _is_installed():
        return True
    if has_torch_npu():
        _log.warning("torch_npu is installed and left alone: torchair's own compiler is used")
        return False

    from uncopy.npu.compiler import register_backends
    from uncopy.npu.device import install_device
    from uncopy.npu.group import install_group
    from uncopy.npu.modules import build_torch_npu, build_torchair, register

    torch_npu = build_torch_npu()
    install_device(torch_npu.npu)
    install_group()
    register(torch_npu)
    register(torch_npu.npu, "torch.npu")
    register(build_torchair())
    register_backends()
    return True
