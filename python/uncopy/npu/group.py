"""Backend "hccl" of torch.distributed: a process group on the CPU.

A few functions let go of what names an NPU, which PyTorch takes for no group on a CPU.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from uncopy.npu.device import cpu_for_npu

__all__ = ["install_group", "make_group"]

_Function = Callable[..., Any]


def make_group(options: Any, backend_options: Any = None) -> Any:
    """The engine behind "hccl": the one place that decides which."""
    make = importlib.import_module("uncopy.communication").create_group
    return make(options, backend_options)


def install_group() -> None:
    """Registers "hccl" for tensors on the CPU and on "npu", which are the same."""
    if not dist.is_available():
        return
    dist.Backend.register_backend("hccl", make_group, extended_api=True, devices=["cpu", "npu"])
    dist.is_hccl_available = lambda: True
    for module in (dist, dist.distributed_c10d):
        module.init_process_group = _init_without_device(module.init_process_group)
    mesh = torch.distributed.device_mesh
    mesh.init_device_mesh = dist.init_device_mesh = _mesh_of_cpus(mesh.init_device_mesh)
    parallel = torch.nn.parallel.DistributedDataParallel
    parallel.__init__ = _parallel_without_devices(parallel.__init__)


def _init_without_device(init: _Function) -> _Function:
    """init_process_group that binds the process to no device, and knows "npu:hccl" alone."""

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        device = kwargs.get("device_id")
        if isinstance(device, int) or cpu_for_npu(device) is not device:
            del kwargs["device_id"]
        if backend and backend.startswith("npu:") and "cpu:" not in backend:
            backend = f"cpu:{backend.removeprefix('npu:')},{backend}"
        init(backend, *args, **kwargs)

    return init_process_group


def _mesh_of_cpus(make_mesh: _Function) -> _Function:
    """init_device_mesh that makes a mesh of CPUs when it is asked for one of NPUs."""

    @functools.wraps(make_mesh)
    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return make_mesh(cpu_for_npu(device_type), *args, **kwargs)

    return init_device_mesh


def _parallel_without_devices(initialize: _Function) -> _Function:
    """DistributedDataParallel.__init__ without the indices of devices."""

    @functools.wraps(initialize)
    def initialize_on_cpu(
        self: Any,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        initialize(self, module, None, None, *args, **kwargs)

    return initialize_on_cpu
