"""Operators that the host runs: what they read, write and return, and how to call them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload

from uncopy import _core
from uncopy.builder import Builder, Layout, Value
from uncopy.effects import effects_of, out_form
from uncopy.fallback import Reason, Unplannable
from uncopy.schema import (
    aliased_arguments,
    bind,
    is_trusted,
    out_arguments,
    tensors_in,
    written_arguments,
)

__all__ = ["HostCall", "find_alias", "flat_results", "storage_key"]


def flat_results(value: Any) -> Iterator[Any]:
    """The elements of an operator's result as a recipe counts them: tuples and lists flattened,
    None kept.
    """
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from flat_results(element)
    else:
        yield value


class HostCall:
    """One node as an operation of the host.

    values: of every node met so far; keys: the fake storages of those that are tensors. After
    `emit`, `results` holds the value of each flat result, None for one that is None.
    """

    def __init__(
        self,
        builder: Builder,
        recipes: list[Any],
        values: dict[fx.Node, Any],
        keys: set[int],
        node: fx.Node,
    ) -> None:
        self.builder = builder
        self.recipes = recipes
        self.values = values
        self.keys = keys
        self.node = node
        self.op: OpOverload = node.target
        self.reads: list[Value] = []
        self.writes: list[Value] = []
        self.results: list[Value | None] = []
        self._bound = bind(self.op, node.args, node.kwargs)
        self._out_names = out_arguments(self.op)

    def emit(self, call: Callable[..., Any]) -> list[Value | None]:
        """Appends the operation and its recipe, which calls `call`; returns the value of each
        result.
        """
        args, kwargs = self._recipe_arguments()
        returns, positions = self._returns()
        is_pure = len(returns) == 1 and not self.writes
        out, out_bits = out_form(self.op) if is_pure else (None, 0)
        self.recipes.append(_core.Recipe(call, out, args, kwargs, positions))
        self.builder.operation(
            "extern",
            self.node,
            self.reads,
            self.writes,
            returns,
            target=str(self.op),
            effects=effects_of(self.op) | out_bits,
            host_id=len(self.recipes) - 1,
        )
        return self.results

    def _nodes_of(self, names: Iterable[str]) -> list[fx.Node]:
        """The tensors given for arguments, each once."""
        return list(dict.fromkeys(n for name in names for n in tensors_in(self._bound[name])))

    def _recipe_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The node's arguments with slots for tensors; fills `reads` and `writes`.

        What is written in place is read too and has its slot there. An out= tensor is only written:
        its slot counts on from the reads.
        """
        outs = self._nodes_of(self._out_names)
        read = self._nodes_of(n for n in self._bound if n not in self._out_names)
        written = [n for n in written_arguments(self.op) if n not in self._out_names]
        in_place = {self.values[n].view: self.values[n] for n in self._nodes_of(written)}
        self.reads = [self.values[n] for n in read]
        self.writes = [*in_place.values(), *(self.values[n] for n in outs)]
        self._check_swap(in_place.values())
        slots = {n: i for i, n in enumerate(read)}
        out_slots = {n: i for i, n in enumerate(outs, len(read) + len(in_place))}
        args = tuple(self._fill(a, slots) for a in self.node.args)
        kwargs = {
            k: self._fill(v, out_slots if k in self._out_names else slots)
            for k, v in self.node.kwargs.items()
        }
        return args, kwargs

    def _check_swap(self, written: Iterable[Value]) -> None:
        """Raises where an operator writes a tensor of no elements: all it can do is give the object
        other memory.
        """
        if is_trusted(self.op):
            return
        if any(not w.layout.has_elements and self.builder.is_argument(w) for w in written):
            words = f"{self.op} writes an argument of no elements: it gives it other memory"
            raise Unplannable(Reason.DATA_SWAP, words, self.node)

    def _fill(self, value: Any, slots: dict[fx.Node, int]) -> Any:
        """An argument with slots in place of nodes."""
        if isinstance(value, fx.Node):
            return _core.Slot(slots[value]) if value in slots else self._number(value)
        if isinstance(value, (list, tuple)):
            return [self._fill(v, slots) for v in value]
        return value

    def _number(self, node: fx.Node) -> Any:
        """What stands for a node that is no tensor: its number at each call."""
        number = self.values[node]
        if isinstance(number, (int, float)) or number is None:
            return number
        if isinstance(number, sympy.Basic):
            return _core.Slot(self.builder.sizes.number(number), number=True)
        raise Unplannable(Reason.DATA_DEPENDENT, f"{node.name} is no tensor", self.node)

    def _returns(self) -> tuple[list[Value], list[int]]:
        """New storages for new results, views for aliases; fills `results`."""
        returns: list[Value] = []
        positions: list[int] = []
        made: dict[int, Value] = {}
        flat = list(flat_results(self.node.meta.get("val")))
        for index, fake in enumerate(flat):
            if fake is None:
                self.results.append(None)
                continue
            if not isinstance(fake, torch.Tensor):
                words = f"{self.op} returns a {type(fake).__name__}"
                raise Unplannable(Reason.DATA_DEPENDENT, words, self.node)
            value, is_new = self._result(fake, index, made)
            self.results.append(value)
            if is_new:
                returns.append(value)
                positions.append(index)
        return returns, positions

    def _result(self, fake: torch.Tensor, index: int, made: dict[int, Value]) -> tuple[Value, bool]:
        """The value of one result, and whether the operation is what brings it about."""
        layout = Layout.of(fake)
        key = fake.untyped_storage()._cdata
        if key in made:
            words = f"two results of {self.op} share memory"
            raise Unplannable(Reason.ALIAS, words, self.node)
        operand = find_alias(self.values, self.keys, self.node, fake, index)
        name = self.node.name if index == 0 else f"{self.node.name}_{index}"
        if operand is None:
            made[key] = value = self.builder.storage(name, layout)
            return value, True
        if operand.layout == layout:
            return operand, False
        if is_trusted(self.op):
            return self.builder.view(None, operand, layout), False
        return self.builder.view(None, operand, layout), True


def find_alias(
    values: dict[fx.Node, Any], keys: set[int], node: fx.Node, fake: torch.Tensor, index: int
) -> Value | None:
    """The operand whose storage result number `index` of a node has; None where its storage is new.

    Found by the identity of the fakes' storages, by the schema, and by what is known of operators
    where both are silent. Raises Unplannable where several operands in different storages would do,
    or a hidden tensor's storage is returned.
    """
    bound = bind(node.target, node.args, node.kwargs)
    named = aliased_arguments(node.target, index)
    nodes = [n for name in named for n in tensors_in(bound[name])]
    key = fake.untyped_storage()._cdata
    sharing = [n for n in tensors_in(list(bound.values())) if storage_key(n) == key]
    nodes = ([n for n in nodes if n in sharing] or nodes) if named else sharing
    candidates = {values[n].root: values[n] for n in reversed(nodes)}
    if len(candidates) > 1:
        words = f"a result of {node.target} may share memory with either of its operands"
        raise Unplannable(Reason.ALIAS, words, node)
    if candidates:
        return values[nodes[0]]
    if key in keys:
        words = f"{node.target} returns memory of a tensor that it was not given"
        raise Unplannable(Reason.ALIAS, words, node)
    return None


def storage_key(node: fx.Node) -> int | None:
    """Identity of the storage of a node's fake tensor, None for a node that is no tensor."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
