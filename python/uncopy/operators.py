"""Operators that Uncopy adds to PyTorch: an order mark, a view, the random state.

`uncopy::wait(self, dependency)` computes nothing and writes nothing. In a captured graph it says
that no later reader of self's bytes may move above an earlier writer of dependency's. It is
registered as having a side effect, so neither Dynamo, make_fx nor AOTAutograd drops it; it returns
nothing, so it makes no alias and no copy. The importer finds it as `torch.ops.uncopy.wait.default`.

`uncopy::view_of(self, dtype, size, stride, distance)` is the view with that dtype, size and stride
whose first element lies `distance` bytes after self's. It stands in a backward's graph for a view
of a tensor that the forward handed on; `as_strided` counts from the start of the storage instead.

`uncopy::random_state() -> Tensor` and `uncopy::set_random_state(state)` read and set the state of
PyTorch's default generator on CPU; they keep their order with whatever draws random numbers.

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


def _random_state() -> torch.Tensor:
    return torch.get_rng_state()


def _set_random_state(state: torch.Tensor) -> None:
    torch.set_rng_state(state)


_STATE_BYTES = torch.get_rng_state().numel()
_library.define("random_state() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("set_random_state(Tensor state) -> ()", tags=(torch.Tag.nondeterministic_seeded,))
_library.impl("random_state", _random_state, "CompositeExplicitAutograd")
_library.impl("set_random_state", _set_random_state, "CompositeExplicitAutograd")
torch.library.register_fake(
    "uncopy::random_state", lambda: torch.empty(_STATE_BYTES, dtype=torch.uint8), lib=_library
)
torch.library.register_fake("uncopy::set_random_state", lambda state: None, lib=_library)
torch.fx.node.has_side_effect(torch.ops.uncopy.random_state.default)
torch.fx.node.has_side_effect(torch.ops.uncopy.set_random_state.default)


def wait(tensor: torch.Tensor, dependency: torch.Tensor) -> None:
    """Orders later reads of tensor's bytes after all earlier writes of dependency's."""
    torch.ops.uncopy.wait.default(tensor, dependency)
