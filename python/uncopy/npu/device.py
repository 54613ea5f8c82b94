"""Device "npu" as the CPU's memory: names parse, and whatever takes a device gets the CPU.

PyTorch's spare device type is renamed to "npu", so that `torch.device("npu:0")` parses; nothing is
ever allocated there. A function mode then replaces the device wherever a torch function is given
one, and the few routes that no function mode sees are replaced one by one. `tensor.device` says
cpu, for that is where the tensor is.

A function mode belongs to one thread; each thread that Python starts later enters it too. Limits: a
move between "cpu" and "npu" returns the same memory, as a move to the device that a tensor is on
already does; the type "torch.npu.FloatTensor" and a C++ thread that allocates on "npu" are errors.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["NpuIsCpu", "cpu_for_npu", "install_device", "npu_index"]

DEVICE_TYPE = "npu"


def cpu_for_npu(device: Any) -> Any:
    """The CPU for the name or device "npu" and "npu:i"; anything else as it is."""
    if isinstance(device, str):
        return "cpu" if device == "npu" or device.startswith("npu:") else device
    if isinstance(device, torch.device) and device.type == "npu":
        return torch.device("cpu")
    return device


def npu_index(device: int | str | torch.device | None, current: int = 0) -> int:
    """The index of an NPU that a script names; `current` for None and for "npu". ValueError for
    another device.
    """
    if device is None:
        return current
    if isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        parsed = torch.device(device)
        if parsed.type != DEVICE_TYPE:
            raise ValueError(f'expected an NPU: an index, "npu" or "npu:i", not {device!r}')
        index = current if parsed.index is None else parsed.index
    if index < 0:
        raise ValueError(f"an NPU's index is 0 or more, not {index}")
    return index


class NpuIsCpu(TorchFunctionMode):
    """Gives the CPU to every torch function that is given an NPU. Dynamo traces through it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls func with its devices replaced; a torch.device itself stays what it was made as."""
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = dict(kwargs) if kwargs else {}
        if "device" in kwargs:
            kwargs["device"] = cpu_for_npu(kwargs["device"])
        return func(*[cpu_for_npu(value) for value in args], **kwargs)


def _first_argument_mapped(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method whose first argument after self, also as keyword `name`, is a device."""

    @functools.wraps(function)
    def mapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in kwargs:
            kwargs[name] = cpu_for_npu(kwargs[name])
        elif args:
            args = (cpu_for_npu(args[0]), *args[1:])
        return function(self, *args, **kwargs)

    return mapped


def _run_in_mode(run: Callable[[Any], None]) -> Callable[[Any], None]:
    """What a new thread runs, in the mode."""

    @functools.wraps(run)
    def run_in_mode(self: Any) -> None:
        with NpuIsCpu():
            run(self)

    return run_in_mode


class _GeneratorType(type(torch.Generator)):
    """Makes every generator an instance of the replaced class, which only adds the mapping."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TorchGenerator)

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        return _TorchGenerator(device=cpu_for_npu(device))


_TorchGenerator = torch.Generator


def _tensor_npu(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The tensor itself: it is in the CPU's memory already."""
    return self


def _module_npu(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
    """The module itself: its tensors are in the CPU's memory already."""
    return self


def _load_npu_storage(storage: Any, location: str) -> Any:
    """Keeps a storage that was saved on, or is to be loaded to, an NPU where it is read: in the
    CPU's memory.
    """
    return storage if cpu_for_npu(location) == "cpu" and location != "cpu" else None


def install_device(module: Any) -> None:
    """Makes PyTorch know device "npu", with `module` as torch.npu, and enters the mode for this
    thread.
    """
    torch.utils.rename_privateuse1_backend(DEVICE_TYPE)
    torch._register_device_module(DEVICE_TYPE, module)

    # A renamed device type counts as an accelerator; Dynamo would ask it for a stream, and fail.
    torch._C._get_accelerator = lambda check=False: torch.device("cpu")
    torch.accelerator.is_available = lambda: False
    torch.accelerator.current_accelerator = lambda check_available=False: None

    context = torch.utils._device.DeviceContext
    context.__init__ = _first_argument_mapped(context.__init__, "device")
    autocast = torch.amp.autocast_mode.autocast
    autocast.__init__ = _first_argument_mapped(autocast.__init__, "device_type")
    torch.Generator = _GeneratorType("Generator", (), {"__doc__": _TorchGenerator.__doc__})
    torch.serialization.register_package(0, lambda storage: None, _load_npu_storage)

    torch.Tensor.npu = _tensor_npu
    torch.Tensor.is_npu = property(lambda self: self.device.type == "cpu")
    torch.nn.Module.npu = _module_npu

    NpuIsCpu().__enter__()
    threading.Thread._bootstrap_inner = _run_in_mode(threading.Thread._bootstrap_inner)
