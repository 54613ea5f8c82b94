"""`torch_npu.profiler` on PyTorch's own profiler: the same trace files, for the work that the CPU
does.

What only the device can measure (AI core metrics, levels, exports) is accepted, checked and left
out.
"""

import enum
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerAction, record_function, schedule

from uncopy.npu.config import nearest_name

__all__ = [
    "AiCMetrics",
    "ExportType",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

_log = logging.getLogger("uncopy.npu")


class ProfilerActivity(enum.Enum):
    """Where work is recorded. The NPU's work is the CPU's here."""

    CPU = "CPU"
    NPU = "NPU"


class ProfilerLevel(enum.Enum):
    """How much the device would collect."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(enum.Enum):
    """Which counters of the AI core the device would collect."""

    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    MemoryAccess = "MemoryAccess"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    AiCoreNone = "AiCoreNone"


class ExportType(enum.Enum):
    """Which files the device's profiler would write."""

    Text = "Text"
    Db = "Db"


# What each device setting takes; none changes what PyTorch's profiler records.
_SETTINGS: dict[str, type] = {
    "profiler_level": ProfilerLevel,
    "aic_metrics": AiCMetrics,
    "l2_cache": bool,
    "msprof_tx": bool,
    "mstx": bool,
    "mstx_domain_include": list,
    "mstx_domain_exclude": list,
    "data_simplification": bool,
    "record_op_args": bool,
    "op_attr": bool,
    "gc_detect_threshold": float,
    "export_type": ExportType,
    "host_sys": list,
    "sys_io": bool,
    "sys_interconnection": bool,
}


class _ExperimentalConfig:
    """Device settings: accepted, checked by name and type, without effect here."""

    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            if name not in _SETTINGS:
                nearest = nearest_name(name, _SETTINGS)
                hint = f"; the nearest known name is {nearest!r}" if nearest else ""
                raise TypeError(f"_ExperimentalConfig has no setting {name!r}{hint}")
            _check_setting(name, value)
            setattr(self, name, value)
        if settings:
            _log.info("no effect here: profiler settings of the device: %s", ", ".join(settings))


def _check_setting(name: str, value: object) -> None:
    expected = _SETTINGS[name]
    accepted = (int, float) if expected is float else expected
    values = value if isinstance(value, list) and issubclass(expected, enum.Enum) else [value]
    for each in values:
        if each is not None and not isinstance(each, accepted):
            members = f", one of {', '.join(expected.__members__)}" if _is_enum(expected) else ""
            raise TypeError(f"{name} takes a {expected.__name__}{members}, not {each!r}")


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def supported_activities() -> set[ProfilerActivity]:
    """Both."""
    return set(ProfilerActivity)


def _check_activities(activities: Iterable[Any]) -> None:
    for activity in activities:
        if not isinstance(activity, ProfilerActivity | torch.profiler.ProfilerActivity):
            raise TypeError(
                f"activities takes ProfilerActivity.CPU and ProfilerActivity.NPU, not {activity!r}"
            )


class profile(torch.profiler.profile):  # noqa: N801 - the name that scripts use
    """torch.profiler.profile that takes an Ascend script's arguments.

    Whatever activities are named, the CPU's is recorded: all work is there. `experimental_config`
    is accepted without effect. Everything else is PyTorch's.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
        **kwargs: Any,
    ) -> None:
        _check_activities(activities or ())
        if not isinstance(experimental_config, _ExperimentalConfig | None):
            kind = type(experimental_config).__name__
            raise TypeError(f"experimental_config takes an _ExperimentalConfig, not {kind}")
        super().__init__(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            **kwargs,
        )


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
) -> Callable[[Any], None]:
    """A handler that writes each trace into the folder, as a file that TensorBoard and Perfetto
    load.

    The device's analysis (`analyse_flag`, `async_mode`) has nothing to do here.
    """
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)
