"""What a user calls beside torch.distributed: the backend's registration, which engine serves a
group, and tensors in memory that peers read where it lies.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from uncopy import _core
from uncopy.group import UncopyGroup

__all__ = ["comm_info", "create_group", "empty", "register"]


def create_group(options: Any, backend_options: Any = None) -> UncopyGroup:
    """What torch.distributed calls to make the backend "uncopy" (its extended form)."""
    return UncopyGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id or "group"),
    )


def _monitored_barrier(barrier: Callable[..., Any]) -> Callable[..., Any]:
    """dist.monitored_barrier, which asks for backend "gloo" by name, that takes our groups too."""

    @functools.wraps(barrier)
    def monitored_barrier(
        group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
    ) -> Any:
        group = group if group is not None else dist.group.WORLD
        if not isinstance(group, UncopyGroup):
            return barrier(group, timeout, wait_all_ranks)
        return group.monitored_barrier(timeout, wait_all_ranks)

    return monitored_barrier


def register() -> None:
    """Makes torch.distributed know the backend "uncopy"; calling it again does nothing."""
    if dist.is_available() and "UNCOPY" not in dist.Backend._plugins:
        for module in (dist, dist.distributed_c10d):
            module.monitored_barrier = _monitored_barrier(module.monitored_barrier)
        dist.Backend.register_backend("uncopy", create_group, extended_api=True, devices=["cpu"])


def comm_info(group: Any = None) -> dict[str, Any]:
    """Which engine serves a process group (None: the default one), and what it has done.

    backend, engine ("uncopy", "gloo", ...), reason (why not the engine of its own), rank, size,
    on_gloo (calls that Gloo served), error (what broke the group), counts (of this rank; see
    docs/collectives.md). Raises ValueError where there is no group.
    """
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    if isinstance(group, UncopyGroup):
        return group.info()
    name = dist.get_backend(group)
    return {
        "backend": name,
        "engine": name,
        "reason": f'the group was made with backend "{name}"',
        "rank": group.rank(),
        "size": group.size(),
        "on_gloo": [],
        "error": None,
        "counts": {},
    }


def empty(
    *sizes: Any, dtype: torch.dtype | None = None, group: Any = None, requires_grad: bool = False
) -> torch.Tensor:
    """An uninitialised tensor in memory that the ranks of a group read where it lies.

    sizes: as torch.empty takes them. A collective: every rank of the group calls it, with sizes of
    its own. It and views of it behave as any tensor; collectives of the group, eager and compiled,
    read it without staging. Where the group has no engine of shared memory it is an ordinary
    tensor. Raises ValueError where there is no group.
    """
    shape = torch.Size(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    dtype = dtype if dtype is not None else torch.get_default_dtype()
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    comm = group._comm if isinstance(group, UncopyGroup) else None
    if comm is None:
        return torch.empty(shape, dtype=dtype, requires_grad=requires_grad)
    window = comm.window(shape.numel() * dtype.itemsize)
    strides = torch.empty(shape, device="meta").stride()
    tensor = _core.from_blob(window.address, list(shape), list(strides), dtype, window)
    return tensor.requires_grad_(requires_grad)
