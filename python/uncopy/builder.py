"""A program under construction: tensors of the captured graph as views of storages.

Every tensor value is a `Value`: a view, the storage it lies in, and its distance from that
storage's first view. A fake tensor's storage offset is only ever used as a difference between two
views of one storage, for the offsets of arguments differ from call to call. The exception is an
absolute as_strided on an argument, which counts from the start of the caller's storage object;
views derived from it do too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.utils._sympy import functions

from uncopy import _core
from uncopy.fallback import Reason, Unplannable
from uncopy.sizes import Size, Sizes, equal, is_symbolic, known, size_of, sizes_of
from uncopy.source import source_of

__all__ = ["MAX_RANK", "Builder", "Layout", "Value"]

MAX_RANK = 12
_TENSOR_TYPES = (FakeTensor, torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Layout:
    """dtype, sizes, strides and storage offset (both in elements) of a tensor.

    What a property says of symbolic sizes holds at every call; a property is False where that is
    not proven.
    """

    dtype: torch.dtype
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0

    @staticmethod
    def of(tensor: torch.Tensor) -> "Layout":
        """That of a tensor. Raises Unplannable where it has no layout."""
        if type(tensor) not in _TENSOR_TYPES:
            raise Unplannable(Reason.SUBCLASS, f"a {type(tensor).__name__} in the graph")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unplannable(Reason.LAYOUT, f"a tensor of layout {tensor.layout}")
        if tensor.device.type != "cpu":
            raise Unplannable(Reason.DEVICE, f"a tensor on {tensor.device}")
        if tensor.is_conj() or tensor.is_neg():
            raise Unplannable(Reason.CONJUGATE, "a conjugate or negative view that is not resolved")
        if tensor.dim() > MAX_RANK:
            raise Unplannable(Reason.RANK, f"a tensor of {tensor.dim()} dims, above {MAX_RANK}")
        offset = size_of(tensor.storage_offset())
        return Layout(tensor.dtype, sizes_of(tensor.shape), sizes_of(tensor.stride()), offset)

    @property
    def code(self) -> int:
        """The library's number of the dtype."""
        try:
            return _core.dtype_code(self.dtype)
        except KeyError as error:
            raise Unplannable(Reason.DTYPE, f"no dtype {self.dtype}") from error

    @property
    def is_symbolic(self) -> bool:
        """Whether a size or stride is known at a call only."""
        return is_symbolic(self.sizes) or is_symbolic(self.strides)

    @property
    def num_elements(self) -> Size:
        """Number of elements."""
        return math.prod(self.sizes)

    @property
    def is_empty(self) -> bool:
        """Whether there is no element."""
        return any(equal(size, 0) for size in self.sizes)

    @property
    def has_elements(self) -> bool:
        """Whether there is an element."""
        return all(size > 0 if type(size) is int else known(size > 0) for size in self.sizes)

    @property
    def extent_bytes(self) -> Size:
        """Bytes from the first element to the end of the last; 0 for no elements."""
        if self.is_empty:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize

    @property
    def is_injective(self) -> bool:
        """Whether distinct elements are proven to be distinct bytes."""
        if self.is_symbolic:
            return self._is_injective_at_every_call()
        dims = sorted((s, n) for n, s in zip(self.sizes, self.strides, strict=True) if n > 1)
        reach = 0
        for stride, size in dims:
            if stride <= reach:
                return 0 in self.sizes
            reach += stride * (size - 1)
        return True

    def _is_injective_at_every_call(self) -> bool:
        """As is_injective: dims in an order in which each one's stride is above the reach of all
        before it. Any such order proves it.
        """
        dims = [(s, n) for n, s in zip(self.sizes, self.strides, strict=True) if n != 1]
        for order in (dims[::-1], sorted(dims, key=lambda dim: _typical(dim[0]))):
            reach: Size = 0
            for stride, size in order:
                if not known(stride > reach):
                    break
                reach += stride * (size - 1)
            else:
                return True
        return self.is_empty

    @property
    def is_dense(self) -> bool:
        """Whether the elements are distinct and leave no gap."""
        return self.is_injective and equal(
            self.extent_bytes, self.num_elements * self.dtype.itemsize
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        expected: Size = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and not equal(stride, expected):
                return self.is_empty
            expected *= size
        return True

    @property
    def row_major(self) -> "Layout":
        """The same sizes in row-major order without gaps, at offset 0."""
        strides, stride = [], 1
        for size in reversed(self.sizes):
            strides.append(stride)
            stride *= max(size, 1) if type(size) is int else functions.Max(size, 1)
        return Layout(self.dtype, self.sizes, tuple(reversed(strides)))

    def same_sizes(self, other: "Layout") -> bool:
        """Whether both have the same sizes."""
        return len(self.sizes) == len(other.sizes) and all(map(equal, self.sizes, other.sizes))

    # ---- layouts of parts ----

    def narrow(self, dim: int, start: Size, length: Size) -> "Layout":
        """Elements start .. start + length - 1 of a dim."""
        return self.strided(dim, start, length, 1)

    def strided(self, dim: int, start: Size, length: Size, step: Size) -> "Layout":
        """length elements of a dim, step apart."""
        sizes, strides = list(self.sizes), list(self.strides)
        offset = self.offset + start * strides[dim]
        sizes[dim], strides[dim] = length, strides[dim] * step
        return Layout(self.dtype, tuple(sizes), tuple(strides), offset)

    def unsqueeze(self, dim: int) -> "Layout":
        """With a dim of size 1."""
        stride = self.sizes[dim] * self.strides[dim] if dim < len(self.sizes) else 1
        return Layout(
            self.dtype,
            (*self.sizes[:dim], 1, *self.sizes[dim:]),
            (*self.strides[:dim], stride, *self.strides[dim:]),
            self.offset,
        )

    def select(self, dim: int, index: Size) -> "Layout":
        """Without a dim, at an index of it."""
        return Layout(
            self.dtype,
            (*self.sizes[:dim], *self.sizes[dim + 1 :]),
            (*self.strides[:dim], *self.strides[dim + 1 :]),
            self.offset + index * self.strides[dim],
        )


def _typical(size: Size) -> float:
    """A number to order sizes by; nothing is proven by it."""
    return size if type(size) is int else float(size.xreplace(dict.fromkeys(size.free_symbols, 64)))


@dataclass(frozen=True)
class Value:
    """A tensor of the graph in the program.

    view: its number. root: the view number of its storage's first view. offset_bytes: from that
    view's start, or from the start of the caller's storage object if is_from_storage. layout: the
    fake tensor's.
    """

    view: int
    root: int
    offset_bytes: Size
    is_from_storage: bool
    layout: Layout


class Builder:
    """Adds storages, views and operations to one program. Values belong to the builder that made
    them.
    """

    def __init__(self, name: str) -> None:
        self.program = _core.Program(name)
        self.sizes = Sizes(self.program)
        self.arguments: list[Value] = []
        self._names: set[str] = set()
        self._root_bytes: dict[int, Size] = {}  # of storages other than arguments

    def argument(self, name: str, layout: Layout) -> Value:
        """The next argument. All arguments come before the first storage."""
        name = self._free_name(name)
        view = self.program.add_argument(name, layout.code, *self._dims(layout))
        value = Value(view, view, 0, False, layout)
        self.arguments.append(value)
        return value

    def integer(self, name: str) -> Value:
        """The next argument, an integer."""
        return self.argument(name, Layout(torch.int64, (), ()))

    def storage(self, name: str, layout: Layout) -> Value:
        """A new storage just large enough for a layout, and the view of it."""
        name = self._free_name(name)
        view = self.program.add_storage(name, False, layout.code, *self._dims(layout))
        self._root_bytes[view] = layout.extent_bytes
        return Value(view, view, 0, False, layout)

    def view(self, name: str | None, of: Value, layout: Layout) -> Value:
        """The view with a layout in the storage of `of`: their fakes' offsets tell where."""
        distance = layout.offset * layout.dtype.itemsize
        distance -= of.layout.offset * of.layout.dtype.itemsize
        return self._view(name, of, layout, of.offset_bytes + distance, of.is_from_storage)

    def absolute_view(self, name: str | None, of: Value, layout: Layout) -> Value:
        """The view whose offset in layout counts from the start of the storage of `of`."""
        if self.is_argument(of):
            offset_bytes = layout.offset * layout.dtype.itemsize
            return self._view(name, of, layout, offset_bytes, True)
        return self.view(name, of, layout)

    def expanded(self, of: Value, sizes: Sequence[int]) -> Value:
        """The view of `of` broadcast to sizes, by strides of 0. Raises Unplannable where it does
        not broadcast.
        """
        layout = of.layout
        if layout.sizes == tuple(sizes):
            return of
        missing = len(sizes) - len(layout.sizes)
        pairs = list(zip(layout.sizes, sizes[max(missing, 0) :], strict=False))
        if missing < 0 or not all(size == 1 or equal(size, wanted) for size, wanted in pairs):
            raise Unplannable(Reason.SHAPE, f"{layout.sizes} does not broadcast to {tuple(sizes)}")
        strides: list[Size] = [0] * missing
        for stride, (size, wanted) in zip(layout.strides, pairs, strict=True):
            strides.append(0 if size == 1 and wanted != 1 else stride)
        wide = Layout(layout.dtype, tuple(sizes), tuple(strides), layout.offset)
        return self.view(None, of, wide)

    def is_argument(self, value: Value) -> bool:
        """Whether a value lies in the storage of an argument."""
        return value.root < len(self.arguments)

    def is_whole(self, value: Value) -> bool:
        """Whether a value covers its storage, one made in the program, from its first byte to its
        last.
        """
        return (
            not self.is_argument(value)
            and value.offset_bytes == 0
            and equal(value.layout.extent_bytes, self._root_bytes[value.root])
            and value.layout.is_dense
        )

    def operation(
        self,
        name: str,
        node: torch.fx.Node,
        reads: Sequence[Any] = (),
        writes: Sequence[Value] = (),
        returns: Sequence[Value] = (),
        **more: Any,
    ) -> None:
        """Appends an operation with the node's source line; numbers read are _core.Number."""
        source = source_of(node)
        self.program.add_operation(
            name,
            [r.view if isinstance(r, Value) else r for r in reads],
            [w.view for w in writes],
            [r.view for r in returns],
            file=source.file if source else None,
            line=source.line if source else 0,
            **more,
        )

    def can_move(self, source: Layout, destination: Layout) -> bool:
        """Whether bytes go from one layout to another as `copy` or `convert` does it, with eager's
        checks passed.
        """
        if not destination.is_injective:
            return False
        if source.dtype == destination.dtype:
            return True
        if source.dtype.is_complex or destination.dtype.is_complex:
            return False
        return _core.operation_accepts("convert", [source.code], destination.code)

    def move(self, node: torch.fx.Node, source: Value, destination: Value) -> None:
        """Appends the move of a source, broadcast where needed, to a destination; can_move must
        hold.
        """
        source = self.expanded(source, destination.layout.sizes)
        is_same = source.layout.dtype == destination.layout.dtype
        self.operation("copy" if is_same else "convert", node, [source], [destination])

    def _view(
        self, name: str | None, of: Value, layout: Layout, offset_bytes: Size, from_storage: bool
    ) -> Value:
        if known(offset_bytes < 0):
            raise Unplannable(Reason.RANGE, "a view that starts before its storage's first view")
        limit = self._root_bytes.get(of.root)
        if limit is not None and not layout.is_empty:
            end = offset_bytes + layout.extent_bytes
            if known(end > limit):
                raise Unplannable(Reason.RANGE, f"a view up to byte {end} of {limit}")
        view = self.program.add_view(
            self._free_name(name) if name else None,
            of.root,
            layout.code,
            *self._dims(layout),
            self.sizes.dim(offset_bytes),
            from_storage,
        )
        return Value(view, of.root, offset_bytes, from_storage, layout)

    def _dims(self, layout: Layout) -> tuple[Sequence[int], Sequence[int]]:
        return self.sizes.dims(layout.sizes), self.sizes.dims(layout.strides)

    def _free_name(self, name: str) -> str:
        free, number = name, 1
        while free in self._names:
            free = f"{name}_{number}"
            number += 1
        self._names.add(free)
        return free
