"""Checkpoints in a graph: a region that is run again draws the same random numbers again.

Dynamo's operator for `torch.utils.checkpoint` leaves that to a back end: it runs a region again
without the random state that the region began with. Here a region keeps the state and brings it
back, by operators: in a trace they are recorded, in a graph that runs as Dynamo made it they act at
once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

import uncopy.operators  # noqa: F401 - defines torch.ops.uncopy

__all__ = [
    "CHECKPOINT",
    "draws_random_numbers",
    "has_checkpoints",
    "is_random_state",
    "run_checkpoint",
]

CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint

_STATE = torch.ops.uncopy.random_state.default
_SET_STATE = torch.ops.uncopy.set_random_state.default
_AUDITED = ("aten", "prims", "_c10d_functional", "uncopy")


class _Region:
    """A region of a graph. The first run keeps the random state that it begins with; each later one
    begins with that, and leaves the caller's state as it was.
    """

    def __init__(self, interpreter: type[fx.Interpreter], module: fx.GraphModule) -> None:
        self.interpreter = interpreter
        self.module = module
        self.state: torch.Tensor | None = None

    def __call__(self, *args: Any) -> Any:
        if self.state is None:
            self.state = _STATE()
            return self.run(*args)
        before = _STATE()
        _SET_STATE(self.state)
        try:
            return self.run(*args)
        finally:  # PyTorch ends a later run by an exception when it has what it needs
            _SET_STATE(before)

    def run(self, *args: Any) -> Any:
        """The region's results. The interpreter, which holds tensors, does not outlive the run."""
        return self.interpreter(self.module).run(*args)


def run_checkpoint(
    interpreter: type[fx.Interpreter],
    module: fx.GraphModule,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """What Dynamo's operator does with a region: runs it, and again in the backward."""
    region = _Region(interpreter, module)
    if not torch.is_grad_enabled():
        return region.run(*args)
    # Where Dynamo leaves contexts that the user gave, for selective checkpoints.
    contexts = module.meta.get("_checkpoint_context_fn")
    more = {"context_fn": contexts} if contexts is not None else {}
    keeps_state = kwargs.get("preserve_rng_state", True)
    return checkpoint(
        region if keeps_state else region.run,
        *args,
        use_reentrant=False,
        preserve_rng_state=False,
        **more,
    )


def has_checkpoints(module: fx.GraphModule) -> bool:
    """Whether a graph of Dynamo's has a checkpoint."""
    return any(node.target is CHECKPOINT for node in module.graph.nodes)


def is_random_state(node: fx.Node) -> bool:
    """Whether a node of a traced graph reads or sets the random state for a checkpoint."""
    return node.target in (_STATE, _SET_STATE)


def draws_random_numbers(nodes: Sequence[fx.Node]) -> bool:
    """Whether a traced graph draws random numbers, or has an operator that might."""
    return any(
        isinstance(node.target, torch._ops.OpOverload)
        and not is_random_state(node)
        and (
            torch.Tag.nondeterministic_seeded in node.target.tags
            or node.target.namespace not in _AUDITED
        )
        for node in nodes
    )
