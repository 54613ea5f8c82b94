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
from uncopy.sizes import Size, is_symbolic, known

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
    if not target.is_injective or not target.same_sizes(at.result):
        return None
    if not all(builder.can_move(p.layout, Layout(target.dtype, (), ())) for p in pieces):
        return None
    destination = at.destination()
    start: Size = 0
    for piece in pieces:
        length = piece.layout.sizes[dim]
        if not piece.layout.is_empty:
            place = destination.layout.narrow(dim, start, length)
            builder.move(at.node, piece, builder.view(None, destination, place))
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
    pieces = [at.builder.view(None, p, p.layout.unsqueeze(dim)) for p in at["tensors"]]
    return _joined(at, pieces, dim)


def _constant_pad(at: Node) -> Value | None:
    builder, source, pad = at.builder, at["self"], at["pad"]
    number = fill_number(at["value"], at.target_layout.dtype)
    if is_symbolic(pad):
        return None
    if number is None or not builder.can_move(source.layout, at.target_layout):
        return None
    destination = at.destination()
    rank = len(source.layout.sizes)
    before = {rank - 1 - i: pad[2 * i] for i in range(len(pad) // 2)}
    after = {rank - 1 - i: pad[2 * i + 1] for i in range(len(pad) // 2)}

    def inner(layout: Layout, amounts: int) -> Layout:
        """Without the dims' padding (amounts 1), or without what negative padding crops (amounts
        -1).
        """
        for d in before:
            low, high = max(0, amounts * before[d]), max(0, amounts * after[d])
            layout = layout.narrow(d, low, layout.sizes[d] - low - high)
        return layout

    if any(amount > 0 for amount in pad):
        builder.operation("fill", at.node, [number], [destination])
    kept = inner(source.layout, -1)
    if not kept.is_empty:
        place = builder.view(None, destination, inner(destination.layout, 1))
        builder.move(at.node, builder.view(None, source, kept), place)
    return destination


def _scattered(at: Node, take: Callable[[Layout], Layout | None]) -> Value | None:
    """A fresh copy of self with src written where `take` points; None where it cannot say."""
    builder, base, source = at.builder, at["self"], at["src"]
    target = at.target_layout
    # A result with gaps holds bytes of the base's storage that no copy of its elements brings
    # along.
    if not target.is_dense or not base.layout.is_dense:
        return None
    if not builder.can_move(base.layout, target) or not builder.can_move(source.layout, target):
        return None
    if take(target) is None:
        return None
    destination = at.destination()
    builder.move(at.node, base, destination)
    place = take(destination.layout)
    if place is not None and not place.is_empty:
        builder.move(at.node, source, builder.view(None, destination, place))
    return destination


def _from_zero(index: Any, size: Size) -> Size | None:
    """An index that may count from the end, as one that counts from 0; None where nobody knows."""
    if known(index >= 0):
        return index if known(index <= size) else size if known(index > size) else None
    return index + size if known(index < 0) and known(index + size >= 0) else None


def _slice_scatter(at: Node) -> Value | None:
    dim = at["dim"] % len(at["self"].layout.sizes)
    start = _from_zero(at["start"] or 0, at["self"].layout.sizes[dim])
    length = at["src"].layout.sizes[dim]

    def take(layout: Layout) -> Layout | None:
        return None if start is None else layout.strided(dim, start, length, at["step"])

    return _scattered(at, take)


def _select_scatter(at: Node) -> Value | None:
    dim = at["dim"] % len(at["self"].layout.sizes)
    index = _from_zero(at["index"], at["self"].layout.sizes[dim])
    return _scattered(at, lambda layout: None if index is None else layout.select(dim, index))


def _diagonal_scatter(at: Node) -> Value | None:
    rank, offset = len(at["self"].layout.sizes), at["offset"]
    first, second = at["dim1"] % rank, at["dim2"] % rank
    length = at["src"].layout.sizes[-1]

    def take(layout: Layout) -> Layout | None:
        if is_symbolic([offset]):
            return None
        start = offset * layout.strides[second] if offset > 0 else -offset * layout.strides[first]
        others = [d for d in range(rank) if d not in (first, second)]
        return Layout(
            layout.dtype,
            (*(layout.sizes[d] for d in others), length),
            (*(layout.strides[d] for d in others), layout.strides[first] + layout.strides[second]),
            layout.offset + (0 if length == 0 else start),
        )

    return _scattered(at, take)


def _as_strided_scatter(at: Node) -> Value | None:
    # The offset counts from the start of the base's storage, which only a storage of the program's
    # own tells.
    base = at["self"]
    if not at.builder.is_whole(base) or base.layout.offset != 0:
        return None
    size, stride, offset = at["size"], at["stride"], at["storage_offset"] or 0
    place = Layout(base.layout.dtype, tuple(size), tuple(stride), offset)
    return _scattered(at, lambda layout: place) if place.is_injective else None


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
    taken = _part(at["self"].layout, lambda t: view_op(t, **others))
    return None if taken is None else _copied(at, at.builder.view(None, at["self"], taken))


def _part(layout: Layout, take: Callable[[torch.Tensor], torch.Tensor]) -> Layout | None:
    """The layout of the view that `take` returns of a tensor laid out so; None for symbolic
    sizes.
    """
    if layout.is_symbolic or is_symbolic([layout.offset]):
        return None
    with torch.no_grad():
        stand_in = torch.empty_strided(
            layout.sizes, layout.strides, dtype=layout.dtype, device="meta"
        )
        taken = take(stand_in)
    offset = taken.storage_offset() * taken.dtype.itemsize + layout.offset * layout.dtype.itemsize
    return Layout(taken.dtype, tuple(taken.shape), taken.stride(), offset // taken.dtype.itemsize)


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
