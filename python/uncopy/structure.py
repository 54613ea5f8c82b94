"""Operators that only move bytes or make memory, in all their spellings: each becomes storages,
views, copies and fills.

Each function of `STRUCTURE` gets a `Node` and either appends operations and returns the result's
value, or returns None having appended nothing: the host runs the operator then.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from uncopy import _core
from uncopy.builder import Builder, Layout, Value

__all__ = ["STRUCTURE", "Node", "fill_number"]


@dataclass(frozen=True)
class Node:
    """A node with its arguments by name, tensors as values; `result` is the layout of its one
    tensor result.

    out: the value that an out= form writes, else None.
    """

    builder: Builder
    node: fx.Node
    arguments: dict[str, Any]
    result: Layout
    out: Value | None

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def destination(self) -> Value:
        """Where the result goes: the out= tensor, or a new storage."""
        if self.out is not None:
            return self.out
        return self.builder.storage(self.node.name, self.result)

    @property
    def target_layout(self) -> Layout:
        """Layout of what destination() will give."""
        return self.result if self.out is None else self.out.layout


def fill_number(value: Any, dtype: torch.dtype) -> Any:
    """The number that filling with a Python scalar writes, None where only PyTorch knows."""
    if isinstance(value, (torch.Tensor, complex)) or not isinstance(value, (bool, int, float)):
        return None
    if dtype.is_floating_point or dtype.is_complex:
        is_too_large = math.isfinite(value) and abs(value) > torch.finfo(dtype).max
        return None if dtype.itemsize == 1 or is_too_large else _core.Number(float(value))
    if dtype is torch.bool:
        return _core.Number(bool(value))
    if isinstance(value, float) and not value.is_integer():
        return None
    number = int(value)
    limits = torch.iinfo(dtype)
    return _core.Number(number) if limits.min <= number <= limits.max else None


def _copied(at: Node, source: Value) -> Value | None:
    """A fresh tensor of the result's layout with the elements of source."""
    if not at.builder.can_move(source.layout, at.target_layout):
        return None
    destination = at.destination()
    at.builder.move(at.node, source, destination)
    return destination


def _clone(at: Node) -> Value | None:
    return _copied(at, at["self"])


def _copy_into(at: Node) -> Value | None:
    source, destination = at["src"], at["self"]
    if not isinstance(source, Value):
        return None
    if not at.builder.can_move(source.layout, destination.layout):
        return None
    at.builder.move(at.node, source, destination)
    return destination


def _copy_functional(at: Node) -> Value | None:
    return _copied(at, at["src"])


def _filled(at: Node, value: Any) -> Value | None:
    number = fill_number(value, at.target_layout.dtype)
    if number is None:
        return None
    destination = at.destination()
    at.builder.operation("fill", at.node, [number], [destination])
    return destination


def _fill_into(at: Node, value: Any) -> Value | None:
    destination = at["self"]
    if isinstance(value, Value):
        if not at.builder.can_move(value.layout, destination.layout):
            return None
        at.builder.move(at.node, value, destination)
        return destination
    number = fill_number(value, destination.layout.dtype)
    if number is None or not destination.layout.is_injective:
        return None
    at.builder.operation("fill", at.node, [number], [destination])
    return destination


def _fill_functional(at: Node) -> Value | None:
    value = at["value"]
    return _copied(at, value) if isinstance(value, Value) else _filled(at, value)


def _empty(at: Node) -> Value | None:
    return at.destination() if at.out is None else None


def _joined(at: Node, pieces: Sequence[Value], dim: int) -> Value | None:
    """Pieces one after the other along dim of the result; each piece has the result's rank."""
    builder, target = at.builder, at.target_layout
    if not target.is_injective or target.sizes != at.result.sizes:
        return None
    if not all(builder.can_move(p.layout, Layout(target.dtype, (), ())) for p in pieces):
        return None
    destination = at.destination()
    start = 0
    for piece in pieces:
        length = piece.layout.sizes[dim]
        if piece.layout.num_elements:
            place = builder.part(destination, lambda t, s=start, n=length: t.narrow(dim, s, n))
            builder.move(at.node, piece, place)
        start += length
    return destination


def _cat(at: Node) -> Value | None:
    # A one-dim tensor of no elements fits into any cat, for the sake of old programs.
    pieces = [p for p in at["tensors"] if p.layout.sizes != (0,)]
    if not pieces:
        return None
    return _joined(at, pieces, at["dim"] % len(at.result.sizes))


def _stack(at: Node) -> Value | None:
    dim = at["dim"] % len(at.result.sizes)
    pieces = [at.builder.part(p, lambda t: t.unsqueeze(dim)) for p in at["tensors"]]
    return _joined(at, pieces, dim)


def _constant_pad(at: Node) -> Value | None:
    builder, source, pad = at.builder, at["self"], at["pad"]
    number = fill_number(at["value"], at.target_layout.dtype)
    if number is None or not builder.can_move(source.layout, at.target_layout):
        return None
    destination = at.destination()
    rank = len(source.layout.sizes)
    before = {rank - 1 - i: pad[2 * i] for i in range(len(pad) // 2)}
    after = {rank - 1 - i: pad[2 * i + 1] for i in range(len(pad) // 2)}

    def inner(tensor: torch.Tensor, amounts: int) -> torch.Tensor:
        """Without the dims' padding (amounts 1), or without what negative padding crops (amounts
        -1).
        """
        for d in before:
            low, high = max(0, amounts * before[d]), max(0, amounts * after[d])
            tensor = tensor.narrow(d, low, tensor.shape[d] - low - high)
        return tensor

    if any(amount > 0 for amount in pad):
        builder.operation("fill", at.node, [number], [destination])
    kept = builder.part(source, lambda t: inner(t, -1))
    if kept.layout.num_elements:
        builder.move(at.node, kept, builder.part(destination, lambda t: inner(t, 1)))
    return destination


def _scattered(at: Node, take: Callable[[torch.Tensor], torch.Tensor]) -> Value | None:
    """A fresh copy of self with src written where `take` points."""
    builder, base, source = at.builder, at["self"], at["src"]
    target = at.target_layout
    # A result with gaps holds bytes of the base's storage that no copy of its elements brings
    # along.
    if not target.is_dense or not base.layout.is_dense:
        return None
    if not builder.can_move(base.layout, target) or not builder.can_move(source.layout, target):
        return None
    destination = at.destination()
    builder.move(at.node, base, destination)
    place = builder.part(destination, take)
    if place.layout.num_elements:
        builder.move(at.node, source, place)
    return destination


def _slice_scatter(at: Node) -> Value | None:
    arguments = [at[name] for name in ("dim", "start", "end", "step")]
    return _scattered(at, lambda t: torch.ops.aten.slice.Tensor(t, *arguments))


def _select_scatter(at: Node) -> Value | None:
    return _scattered(at, lambda t: t.select(at["dim"], at["index"]))


def _diagonal_scatter(at: Node) -> Value | None:
    return _scattered(at, lambda t: t.diagonal(at["offset"], at["dim1"], at["dim2"]))


def _as_strided_scatter(at: Node) -> Value | None:
    # The offset counts from the start of the base's storage, which only a storage of the program's
    # own tells.
    base = at["self"]
    if not at.builder.is_whole(base) or base.layout.offset != 0:
        return None
    size, stride, offset = at["size"], at["stride"], at["storage_offset"] or 0
    if not Layout(base.layout.dtype, tuple(size), tuple(stride)).is_injective:
        return None
    return _scattered(at, lambda t: t.as_strided(size, stride, offset))


def _view_copy(at: Node) -> Value | None:
    """`view_copy` and its like: the view of that name, copied. Those that return lists are the
    host's.
    """
    op = at.node.target
    name = op._schema.name.removeprefix("aten::").removesuffix("_copy")
    view_op = getattr(getattr(torch.ops.aten, name, None), op._overloadname, None)
    if view_op is None or name == "as_strided" or at.out is not None:
        return None
    others = {key: value for key, value in at.arguments.items() if key != "self"}
    return _copied(at, at.builder.part(at["self"], lambda t: view_op(t, **others)))


_VIEW_COPIES = (
    "alias_copy",
    "detach_copy",
    "diagonal_copy",
    "expand_copy",
    "permute_copy",
    "select_copy",
    "slice_copy",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_copy",
    "view_as_complex_copy",
    "view_as_real_copy",
    "_reshape_alias_copy",
)

STRUCTURE: dict[str, Callable[[Node], Value | None]] = {
    "copy_": _copy_into,
    "copy": _copy_functional,
    "clone": _clone,
    "contiguous": _clone,
    "_to_copy": _clone,
    "lift_fresh_copy": _clone,
    "cat": _cat,
    "stack": _stack,
    "constant_pad_nd": _constant_pad,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "as_strided_scatter": _as_strided_scatter,
    "fill_": lambda at: _fill_into(at, at["value"]),
    "zero_": lambda at: _fill_into(at, 0),
    "fill": _fill_functional,
    "zero": lambda at: _filled(at, 0),
    "full": lambda at: _filled(at, at["fill_value"]),
    "full_like": lambda at: _filled(at, at["fill_value"]),
    "new_full": lambda at: _filled(at, at["fill_value"]),
    "scalar_tensor": lambda at: _filled(at, at["s"]),
    "zeros": lambda at: _filled(at, 0),
    "zeros_like": lambda at: _filled(at, 0),
    "new_zeros": lambda at: _filled(at, 0),
    "ones": lambda at: _filled(at, 1),
    "ones_like": lambda at: _filled(at, 1),
    "new_ones": lambda at: _filled(at, 1),
    "empty": _empty,
    "empty_like": _empty,
    "empty_strided": _empty,
    "empty_permuted": _empty,
    "new_empty": _empty,
    "new_empty_strided": _empty,
    **dict.fromkeys(_VIEW_COPIES, _view_copy),
}
