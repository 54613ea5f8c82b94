"""Tensors over memory that the caller owns."""

from collections.abc import Sequence
from typing import Any

import torch

from uncopy import _core

__all__ = ["from_blob"]


def from_blob(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    owner: Any = None,
) -> torch.Tensor:
    """A tensor of `shape` over the bytes at `address`; strides count elements, None is row-major
    without gaps.

    Nothing is copied. owner is kept alive as long as the tensor's storage; without one the caller
    keeps the memory. Its bytes are tracked like any others: what else lies there is seen on each
    call. Raises ValueError for a negative size or stride or a null address with elements, TypeError
    for other types.
    """
    sizes = [int(n) for n in shape]
    if any(n < 0 for n in sizes) or any(s < 0 for s in strides or ()):
        raise ValueError(f"sizes and strides are 0 or more, found {sizes} and {strides}")
    if strides is None:
        strides, stride = [], 1
        for size in reversed(sizes):
            strides.insert(0, stride)
            stride *= max(size, 1)
    if len(strides) != len(sizes):
        raise ValueError(f"{len(sizes)} sizes and {len(strides)} strides")
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is a torch.dtype, not {dtype!r}")
    if address == 0 and 0 not in sizes:
        raise ValueError("the address is null")
    return _core.from_blob(address, sizes, list(strides), dtype, owner)
