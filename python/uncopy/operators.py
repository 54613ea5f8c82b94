"""Operators that Uncopy adds to PyTorch: `uncopy::wait`, an order mark.

`uncopy::wait(self, dependency)` computes nothing and writes nothing. In a captured graph it says
that no later reader of self's bytes may move above an earlier writer of dependency's. It is
registered as having a side effect, so neither Dynamo, make_fx nor AOTAutograd drops it; it returns
nothing, so it makes no alias and no copy. The importer finds it as `torch.ops.uncopy.wait.default`.
Importing this module defines the operator, and changes nothing else.
"""

import torch

__all__ = ["wait"]

_library = torch.library.Library("uncopy", "FRAGMENT")  # lives as long as the operator


def _wait_kernel(self: torch.Tensor, dependency: torch.Tensor) -> None:
    """Serves real and fake tensors alike: program order is the order already."""


_library.define("wait(Tensor self, Tensor dependency) -> ()")
_library.impl("wait", _wait_kernel, "CompositeExplicitAutograd")
torch.fx.node.has_side_effect(torch.ops.uncopy.wait.default)


def wait(tensor: torch.Tensor, dependency: torch.Tensor) -> None:
    """Orders later reads of tensor's bytes after all earlier writes of dependency's."""
    torch.ops.uncopy.wait.default(tensor, dependency)
