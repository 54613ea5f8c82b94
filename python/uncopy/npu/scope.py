"""`torchair.scope`: an order mark, and with-blocks that are accepted and noted as having no effect
here.
"""

from types import TracebackType

import torch

import uncopy.operators  # noqa: F401 - defines uncopy::wait
from uncopy.npu.notes import record

__all__ = [
    "data_dump",
    "limit_core_num",
    "npu_stream_switch",
    "npu_wait_tensor",
    "op_never_timeout",
    "super_kernel",
]


def npu_wait_tensor(self: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """Orders later reads of self's bytes after all earlier writes of dependency's. Returns self."""
    torch.ops.uncopy.wait.default(self, dependency)
    return self


def _require(name: str, value: object, kind: type, words: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name} must be {words}, not {value!r}")


class _Scope:
    """A with-block that changes nothing. Usable inside a compiled function, where it leaves nothing
    in the graph.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


class npu_stream_switch(_Scope):  # noqa: N801 - the name that scripts use
    """Operations inside would go to a named stream."""

    def __init__(
        self, stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True
    ) -> None:
        _require("stream_tag", stream_tag, str, "a string")
        _require("stream_priority", stream_priority, int, "an integer")
        _require("enable_inner_parallel", enable_inner_parallel, bool, "True or False")
        record("scope.npu_stream_switch: a plan runs its operations in one order, on one stream")


class limit_core_num(_Scope):  # noqa: N801
    """Operations inside would use so many cores."""

    def __init__(self, op_aicore_num: int, op_vectorcore_num: int) -> None:
        _require("op_aicore_num", op_aicore_num, int, "an integer")
        _require("op_vectorcore_num", op_vectorcore_num, int, "an integer")
        record("scope.limit_core_num: there are no NPU cores here; threads= bounds a plan")


class super_kernel(_Scope):  # noqa: N801
    """Operations inside would be fused into one kernel."""

    def __init__(self, scope: str | None, options: str = "") -> None:
        _require("scope", scope, str | None, "a string or None")
        _require("options", options, str, "a string")
        record("scope.super_kernel: kernels are not fused into one launch here")


class op_never_timeout(_Scope):  # noqa: N801
    """Operations inside would not trip the device's watchdog."""

    def __init__(self, enable: bool) -> None:
        _require("enable", enable, bool, "True or False")
        record("scope.op_never_timeout: there is no device watchdog here")


class data_dump(_Scope):  # noqa: N801
    """Only operations inside would be dumped."""

    def __init__(self) -> None:
        record("scope.data_dump: operations' tensors are not dumped here")
