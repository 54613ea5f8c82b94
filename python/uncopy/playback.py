"""Records what collectives and unaudited operators of a run gave, and plays it back in place of
running them again.

A checked run (verify.py) runs a graph a second time. Collectives must not communicate twice, and an
operator of unknown effects must not have them twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from uncopy.schema import bind, written_arguments

__all__ = ["Player", "is_recorded"]


def is_recorded(op: Any) -> bool:
    """Whether running an operator twice may differ from running it once."""
    return isinstance(op, OpOverload) and op.namespace not in ("aten", "prims", "uncopy")


@dataclass
class _Tape:
    """What one node did: bytes it wrote into its arguments, in the schema's order, and its results.

    A result that lies in an argument is kept as that argument's number with sizes, strides and the
    distance in elements.
    """

    written: list[torch.Tensor] = field(default_factory=list)
    result: Any = None


@dataclass
class _Alias:
    argument: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    distance: int


def _flat_tensors(values: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(values)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _written(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    bound = bind(op, args, kwargs)
    return _flat_tensors([bound[name] for name in written_arguments(op)])


class _Work:
    """A collective's Work that puts what arrived on tape when it is waited for."""

    def __init__(self, work: Any, tape: _Tape, destination: torch.Tensor) -> None:
        self._work, self._tape, self._destination = work, tape, destination

    def wait(self) -> Any:
        done = self._work.wait() if self._work is not None else True
        self._tape.written = [self._destination.clone()]
        return done


class _Done:
    def wait(self) -> bool:
        return True


class Player:
    """Tapes of one graph, by node. Off, a call passes through at the cost of one test."""

    def __init__(self) -> None:
        self.mode = "off"  # or "record", "play"
        self._tapes: dict[str, _Tape] = {}

    def wrap(
        self, node: fx.Node, call: Callable[..., Any], is_collective: bool
    ) -> Callable[..., Any]:
        """The call of a node's recipe, recorded or played back as the mode says."""
        if is_collective:
            return lambda destination, source: self._collective(node, call, destination, source)
        if not is_recorded(node.target):
            return call
        return lambda *args, **kwargs: self.run(node, call, args, kwargs)

    def run(
        self, node: fx.Node, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Runs an operator with real tensors, as the mode says."""
        if self.mode == "play" and node.name in self._tapes:
            return self._play(node, args, kwargs)
        result = call(*args, **kwargs)
        if self.mode == "record":
            if node.target.namespace == "_c10d_functional":
                result = torch.utils._pytree.tree_map_only(torch.Tensor, _arrived, result)
            operands = _flat_tensors((args, kwargs))
            kept = torch.utils._pytree.tree_map(lambda r: _kept(r, operands), result)
            written = [t.clone() for t in _written(node.target, args, kwargs)]
            self._tapes[node.name] = _Tape(written, kept)
        return result

    def _play(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tape = self._tapes[node.name]
        for tensor, bytes_then in zip(
            _written(node.target, args, kwargs), tape.written, strict=True
        ):
            tensor.copy_(bytes_then)
        operands = _flat_tensors((args, kwargs))
        return torch.utils._pytree.tree_map(
            lambda kept: _restored(kept, operands),
            tape.result,
            is_leaf=lambda kept: isinstance(kept, _Alias),
        )

    def arrived(self, node: fx.Node) -> torch.Tensor | None:
        """What a collective of this graph brought, None if it did not run through the host."""
        tape = self._tapes.get(node.name)
        return tape.written[0] if tape is not None and tape.written else None

    def _collective(
        self,
        node: fx.Node,
        call: Callable[..., Any],
        destination: torch.Tensor,
        source: torch.Tensor,
    ) -> Any:
        if self.mode == "play" and node.name in self._tapes:
            destination.copy_(self._tapes[node.name].written[0])
            return _Done()
        work = call(destination, source)
        if self.mode != "record":
            return work
        tape = self._tapes[node.name] = _Tape()
        return _Work(work, tape, destination)

    def clear(self) -> None:
        """Forgets all tapes."""
        self._tapes.clear()
        self.mode = "off"


def _arrived(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that a collective of PyTorch's own brings, when it is there."""
    return torch.ops._c10d_functional.wait_tensor.default(tensor)


def _kept(result: Any, operands: list[torch.Tensor]) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
    storage = result.untyped_storage()._cdata
    for number, operand in enumerate(operands):
        if operand.untyped_storage()._cdata == storage and operand.dtype == result.dtype:
            distance = result.storage_offset() - operand.storage_offset()
            return _Alias(number, tuple(result.shape), result.stride(), distance)
    copy = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
    return copy.copy_(result)


def _restored(kept: Any, operands: list[torch.Tensor]) -> Any:
    if isinstance(kept, _Alias):
        operand = operands[kept.argument]
        offset = operand.storage_offset() + kept.distance
        return operand.as_strided(kept.sizes, kept.strides, offset)
    if isinstance(kept, torch.Tensor):
        return torch.empty_strided(kept.shape, kept.stride(), dtype=kept.dtype).copy_(kept)
    return kept
