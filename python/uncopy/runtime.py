"""Starts the C extension: which of PyTorch's inner interfaces it may use, found by probing each
once.

UNCOPY_FORCED_OFF, names separated by commas or `all`, treats probes as failed, so that the public
routes behind them are used.
"""

import os
from typing import Any

import torch

from uncopy import _core
from uncopy.errors import StrictError
from uncopy.options import OPTIONS

__all__ = ["PROBES", "VERSION", "info"]

VERSION: str = _core.VERSION


def _initialize() -> dict[str, bool]:
    words = os.environ.get("UNCOPY_FORCED_OFF", "")
    return _core.initialize(
        tensor_type=torch.Tensor,
        parameter_type=torch.nn.Parameter,
        torch_library=torch._C.__file__,
        strict_error=StrictError,
        helpers={},
        forced_off=frozenset(filter(None, words.replace(" ", "").split(","))),
    )


# Name of each borrowed interface -> whether the fast route is used.
PROBES: dict[str, bool] = _initialize()


def info() -> dict[str, Any]:
    """Versions, which inner interfaces of PyTorch are used, and the options with defaults and
    words.
    """
    return {
        "version": VERSION,
        "torch": torch.__version__,
        "probes": dict(PROBES),
        "options": {name: {"default": o.default, "takes": o.words} for name, o in OPTIONS.items()},
    }
