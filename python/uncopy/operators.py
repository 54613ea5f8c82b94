"""Operators that Uncopy adds to PyTorch: `uncopy::wait`, an order mark; `uncopy::view_of`, a view.

`uncopy::wait(self, dependency)` computes nothing and writes nothing. In a captured graph it says
that no later reader of self's bytes may move above an earlier writer of dependency's. It is
registered as having a side effect, so neither Dynamo, make_fx nor AOTAutograd drops it; it returns
nothing, so it makes no alias and no copy. The importer finds it as `torch.ops.uncopy.wait.default`.

`uncopy::view_of(self, dtype, size, stride, distance)` is the view with that dtype, size and stride
whose first element lies `distance` bytes after self's. It stands in a backward's graph for a view
of a tensor that the forward handed on; `as_strided` counts from the start of the storage instead.

Importing this module defines the operators, and changes nothing else.
"""

from collections.abc import Sequence

import torch

__all__ = ["view_of", "wait"]

_library = torch.library.Library("uncopy", "FRAGMENT")  # lives as long as the operator


def _wait_kernel(self: torch.Tensor, dependency: torch.Tensor) -> None:
    """Serves real and fake tensors alike: program order is the order already."""


_library.define("wait(Tensor self, Tensor dependency) -> ()")
_library.impl("wait", _wait_kernel, "CompositeExplicitAutograd")
torch.fx.node.has_side_effect(torch.ops.uncopy.wait.default)


def view_of(
    tensor: torch.Tensor,
    dtype: torch.dtype,
    size: Sequence[int],
    stride: Sequence[int],
    distance: int,
) -> torch.Tensor:
    """A view of tensor's storage, `distance` bytes after its first element; no autograd's view."""
    offset = tensor.storage_offset() * tensor.element_size() + distance
    empty = torch.empty(0, dtype=dtype, device=tensor.device)
    with torch.no_grad():
        return empty.set_(tensor.untyped_storage(), offset // dtype.itemsize, size, stride)


_library.define(
    "view_of(Tensor(a) self, ScalarType dtype, int[] size, int[] stride, int distance) -> Tensor(a)"
)
_library.impl("view_of", view_of, "CompositeExplicitAutograd")


def wait(tensor: torch.Tensor, dependency: torch.Tensor) -> None:
    """Orders later reads of tensor's bytes after all earlier writes of dependency's."""
    torch.ops.uncopy.wait.default(tensor, dependency)
