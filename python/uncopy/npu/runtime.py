"""`torch.npu`: what scripts ask of the device, answered for the CPU.

Work on a CPU is done when its call returns, so streams order nothing more and waiting returns at
once. There is one random generator, the CPU's: seeding either device seeds it. Memory is the
process's own and is not counted per device.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from uncopy.npu.device import npu_index

__all__ = [
    "Event",
    "Stream",
    "_is_in_bad_fork",
    "_lazy_init",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "finalize_dump",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_compile_mode",
    "set_device",
    "set_option",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "utilization",
]

_Device = int | str | torch.device | None


class _Current:
    """The process's current device and stream."""

    device: int = 0


_current = _Current()


def is_available() -> bool:
    """True: the stand-in is."""
    return True


def is_initialized() -> bool:
    """True: there is nothing to initialize."""
    return True


def init() -> None:
    """Does nothing."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    """False: a forked process may use the CPU."""
    return False


def device_count() -> int:
    """One for each process that torchrun started on this host."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def current_device() -> int:
    """The index that was set last, 0 at the start."""
    return _current.device


def set_device(device: _Device) -> None:
    """Sets the current index: i, "npu:i" or a torch.device. ValueError for another device or a
    negative index.
    """
    _current.device = npu_index(device, _current.device)


class device:  # noqa: N801 - the name that scripts use
    """A with-block in which another index is current."""

    def __init__(self, device: _Device) -> None:
        self.idx = npu_index(device, _current.device)
        self.prev_idx = self.idx

    def __enter__(self) -> None:
        self.prev_idx = _current.device
        _current.device = self.idx

    def __exit__(self, *error: object) -> None:
        _current.device = self.prev_idx


def synchronize(device: _Device = None) -> None:
    """Returns at once; the device is checked."""
    npu_index(device)


def get_device_name(device: _Device = None) -> str:
    """A name that says what runs."""
    npu_index(device)
    return "CPU in place of an NPU (uncopy.npu)"


def get_device_capability(device: _Device = None) -> None:
    """None, as on an NPU."""
    npu_index(device)


def _host_memory() -> tuple[int, int]:
    """Free and total bytes of the host."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def get_device_properties(device: _Device = None) -> SimpleNamespace:
    """The name, and the host's memory in bytes."""
    return SimpleNamespace(name=get_device_name(device), total_memory=_host_memory()[1])


def can_device_access_peer(device: _Device, peer_device: _Device) -> bool:
    """True: all indices are the same memory."""
    npu_index(device)
    npu_index(peer_device)
    return True


def is_bf16_supported() -> bool:
    """True."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast of the CPU takes."""
    return [torch.bfloat16, torch.float16]


def set_option(option: dict[str, Any]) -> None:
    """Accepts device options; they set nothing here."""
    if not isinstance(option, dict):
        raise TypeError(f"option must be a dict, not {type(option).__name__}")


def set_compile_mode(jit_compile: bool = False) -> None:
    """Accepts the switch; no kernel is compiled here."""


def finalize_dump() -> None:
    """Does nothing: there is no dump."""


def utilization(device: _Device = None) -> int:
    """0: nothing runs on an NPU."""
    npu_index(device)
    return 0


# Memory. The caching allocator that scripts ask about does not exist here; 0 is what it holds.


def empty_cache() -> None:
    """Does nothing: there is no cache."""


def memory_allocated(device: _Device = None) -> int:
    """0 bytes of an NPU's memory."""
    npu_index(device)
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: _Device = None) -> None:
    """Does nothing: no peak is kept."""
    npu_index(device)


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device: _Device = None) -> dict[str, int]:
    """Empty."""
    npu_index(device)
    return {}


def memory_summary(device: _Device = None, abbreviated: bool = False) -> str:
    """One line that says where memory is counted instead."""
    return f"{get_device_name(device)}: memory is the process's own"


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Free and total bytes of the host."""
    npu_index(device)
    return _host_memory()


# Random numbers. torch.manual_seed calls manual_seed_all, which must not call it back.


def manual_seed(seed: int) -> None:
    """Seeds the CPU's generator."""
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds the CPU's generator with a number that is not predictable."""
    torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the CPU's generator."""
    return torch.default_generator.initial_seed()


def get_rng_state(device: _Device = None) -> torch.Tensor:
    """The state of the CPU's generator."""
    npu_index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: _Device = None) -> None:
    """Sets the state of the CPU's generator."""
    npu_index(device)
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The same state for each index."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Sets the state from the first: there is one generator."""
    for state in new_states[:1]:
        set_rng_state(state)


# Streams. A call has done its work when it returns: whatever one waits for has happened.


class Event:
    """A moment that can be recorded, and the time between two of them."""

    def __init__(self, enable_timing: bool = False, **kwargs: Any) -> None:
        self._nanoseconds = 0

    def record(self, stream: "Stream | None" = None) -> None:
        """Keeps the time of now; not inside a compiled function, whose order is its plan's."""
        if not torch.compiler.is_compiling():
            self._nanoseconds = time.perf_counter_ns()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this event to the end. RuntimeError when one was not recorded."""
        if not self._nanoseconds or not end_event._nanoseconds:
            raise RuntimeError("both events must be recorded before their distance is asked for")
        return (end_event._nanoseconds - self._nanoseconds) / 1e6

    def wait(self, stream: "Stream | None" = None) -> None:
        """Returns at once."""

    def synchronize(self) -> None:
        """Returns at once."""

    def query(self) -> bool:
        """True: all work is done."""
        return True


class Stream:
    """A queue of work that is always empty."""

    def __init__(self, device: _Device = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority

    def wait_stream(self, stream: "Stream") -> None:
        """Returns at once."""

    def wait_event(self, event: Event) -> None:
        """Returns at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records the event, a new one by default."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Returns at once."""

    def query(self) -> bool:
        """True: all work is done."""
        return True


_default_stream = Stream()


def default_stream(device: _Device = None) -> Stream:
    """The one stream that is current outside of `stream`."""
    npu_index(device)
    return _default_stream


current_stream = default_stream


def set_stream(stream: Stream) -> None:
    """Accepts the stream; work is done at once on any."""


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A with-block whose work belongs to the stream: done at once, as everywhere."""
    yield
