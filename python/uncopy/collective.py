"""Collectives: functional ones of a graph become operations that write straight into their
destination.

In a run each calls the in-place method of the process group that the user has. The group is found
by its name on each call: one that was destroyed is an error, one of another size or rank too.
"""

import atexit
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from uncopy import _core
from uncopy.builder import Builder, Value
from uncopy.fallback import Reason, Unplannable
from uncopy.sizes import is_symbolic

__all__ = ["CollectiveCall", "Collectives"]

# The graph's operator, its in-place and its out= form -> our row.
_ROWS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "all_to_all_single": "all_to_all",
}


def _reduce_operations() -> dict[str, Any]:
    kinds = dist.ReduceOp
    return {
        "sum": kinds.SUM,
        "avg": kinds.AVG,
        "product": kinds.PRODUCT,
        "min": kinds.MIN,
        "max": kinds.MAX,
        "band": kinds.BAND,
        "bor": kinds.BOR,
        "bxor": kinds.BXOR,
    }


LET_GO_S = 0.02


@functools.cache
def _let_go_at_exit() -> None:
    """Gives a group's own threads a moment before the interpreter ends.

    A thread of Gloo lets go of a call's tensors after it has reported the call done. If it is the
    last that holds one it takes the GIL, and in an interpreter that ends that is std::terminate.
    """
    atexit.register(time.sleep, LET_GO_S)


def _resolve(name: str) -> Any:
    """The process group of that name. Raises RuntimeError if it was destroyed."""
    try:
        return torch.distributed.distributed_c10d._resolve_process_group(name)
    except Exception as error:
        raise RuntimeError(f'the process group "{name}" does not exist any more') from error


class CollectiveCall:
    """Starts one collective in place: called with (destination, source), returns the Work.

    size, rank: of the group when the graph was captured.
    """

    def __init__(
        self, row: str, group: str, size: int, rank: int, reduce: str | None, root: int
    ) -> None:
        _let_go_at_exit()
        self.group = group
        self.size = size
        self.rank = rank
        self._start = getattr(self, f"_{row}")
        self._reduce = _reduce_operations()[reduce] if reduce is not None else None
        self._root = root

    def __call__(self, destination: torch.Tensor, source: torch.Tensor) -> Any:
        """Raises RuntimeError if the group is gone or is another one, and whatever the group
        raises.
        """
        group = _resolve(self.group)
        if group.size() != self.size or group.rank() != self.rank:
            raise RuntimeError(
                f'the process group "{self.group}" is now rank {group.rank()} of {group.size()}; '
                f"this graph was compiled for rank {self.rank} of {self.size}: compile it again "
                "(torch._dynamo.reset())"
            )
        return self._start(destination, source, group)

    def _all_gather(self, destination: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(destination, source, group=group, async_op=True)

    def _reduce_scatter(self, destination: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return scatter(destination, source, op=self._reduce, group=group, async_op=True)

    def _all_to_all(self, destination: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        return dist.all_to_all_single(destination, source, group=group, async_op=True)

    def _all_reduce(self, destination: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        _bring(destination, source)
        return dist.all_reduce(destination, op=self._reduce, group=group, async_op=True)

    def _broadcast(self, destination: torch.Tensor, source: torch.Tensor, group: Any) -> Any:
        if self.rank == self._root:
            _bring(destination, source)
        return dist.broadcast(destination, group_src=self._root, group=group, async_op=True)


def _bring(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Puts the source where a collective that works in place expects it."""
    if destination.data_ptr() != source.data_ptr():
        destination.copy_(source)


class Collectives:
    """Lowers a graph's collectives and waits; knows which are still open."""

    def __init__(self, builder: Builder, recipes: list[Any], wrap: Callable[..., Any]) -> None:
        self.builder = builder
        self.wrap = wrap
        self.recipes = recipes
        self._groups: dict[str, tuple[int, int, int]] = {}
        self._open: list[Value] = []
        self._fenced_roots: set[int] = set()

    def lower(self, node: fx.Node, arguments: dict[str, Any], result: Any) -> Value | None:
        """Appends the collective of a node. None: it is one for the host.

        arguments: by name, tensors as values. result: layout of the node's result.
        """
        row = _ROWS.get(node.target._schema.name.split("::")[1])
        source = arguments.get("input")
        if (
            row is None
            or not isinstance(source, Value)
            or not isinstance(arguments["group_name"], str)
        ):
            return None
        reduce = arguments.get("reduce_op")
        if reduce is not None and reduce not in _reduce_operations():
            return None
        number, size, rank = self._group(arguments["group_name"], node)
        if row == "all_to_all" and not _is_even(arguments, size):
            return None
        destination = self._destination(node, arguments, source, result)
        if destination is None:
            return None
        if not source.layout.is_contiguous:
            source = self._contiguous(node, source)
        root = arguments.get("src", 0)
        call = CollectiveCall(row, arguments["group_name"], size, rank, reduce, root)
        self.recipes.append(_core.Recipe(self.wrap(node, call, True), None, (), {}, []))
        self.builder.operation(
            row,
            node,
            [source],
            [destination],
            attributes=_attributes(row, root, reduce),
            group=number,
            target=str(node.target),
            host_id=len(self.recipes) - 1,
        )
        self._open.append(destination)
        return destination

    def wait(self, node: fx.Node, value: Value) -> bool:
        """Appends the fence of the collective that writes a value's storage. False: it is no
        collective of this graph.
        """
        of_view = [d for d in self._open if d.view == value.view]
        found = of_view or [d for d in self._open if d.root == value.root]
        for destination in found:
            self._fence(node, destination)
        return bool(found) or value.root in self._fenced_roots

    def close(self, node: fx.Node) -> None:
        """Appends a fence for each collective that the graph never waits for; nobody else can."""
        for destination in list(self._open):
            self._fence(node, destination)

    def _fence(self, node: fx.Node, destination: Value) -> None:
        self.builder.operation("fence", node, (), [destination])
        self._open.remove(destination)
        self._fenced_roots.add(destination.root)

    def _group(self, name: str, node: fx.Node) -> tuple[int, int, int]:
        """Number in the program, size and rank of a group."""
        if name not in self._groups:
            group = _resolve(name)
            size, rank = group.size(), group.rank()
            if rank < 0:
                raise Unplannable(Reason.PROGRAM, f'this rank is not in the group "{name}"', node)
            token = f"g{len(self._groups)}"
            number = self.builder.program.add_group(token, name, size, rank)
            self._groups[name] = (number, size, rank)
        return self._groups[name]

    def _destination(
        self, node: fx.Node, arguments: dict[str, Any], source: Value, result: Any
    ) -> Value | None:
        """Where the collective writes: out=, the tensor itself for an in-place form, or a new
        storage.
        """
        if isinstance(arguments.get("out"), Value):
            destination = arguments["out"]
        elif node.target._schema.name.endswith("_"):
            destination = source
        else:
            return self.builder.storage(node.name, result)
        layout = destination.layout
        fits = layout.is_contiguous and layout.same_sizes(result) and layout.dtype == result.dtype
        return destination if fits else None

    def _contiguous(self, node: fx.Node, source: Value) -> Value:
        fresh = self.builder.storage(f"{node.name}_source", source.layout.row_major)
        self.builder.move(node, source, fresh)
        return fresh


def _attributes(row: str, root: int, reduce: str | None) -> dict[str, float] | None:
    if row == "broadcast":
        return {"root": float(root)}
    if reduce is not None:
        return {"reduction": float(getattr(_core, f"REDUCE_{reduce.upper()}"))}
    return None


def _is_even(arguments: dict[str, Any], size: int) -> bool:
    splits = [*arguments["output_split_sizes"], *arguments["input_split_sizes"]]
    if is_symbolic(splits) or arguments["input"].layout.is_symbolic:
        return False
    rows = arguments["input"].layout.sizes[0] if arguments["input"].layout.sizes else 0
    return rows % size == 0 and all(n == rows // size for n in splits)
