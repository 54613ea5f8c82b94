"""From a captured graph to a program: one pass over the nodes.

A node is, in this order: a view (its result shares storage with an operand and its schema writes
nothing: it vanishes), a collective or its wait, an order mark, an operator that moves bytes
(structure.py), one with a row of ours (rows.py), else a call of the host's (host_call.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload

import uncopy.operators  # noqa: F401 - defines torch.ops.uncopy
from uncopy import _core
from uncopy.builder import Builder, Layout, Value
from uncopy.capture import Capture, ResultFacts
from uncopy.collective import Collectives
from uncopy.fallback import Reason, Unplannable
from uncopy.host_call import HostCall, find_alias, flat_results, storage_key
from uncopy.rows import lower_row
from uncopy.schema import (
    aliased_arguments,
    bind,
    changes_metadata,
    is_trusted,
    out_arguments,
    written_arguments,
)
from uncopy.sizes import bindings, environment, equal, known, size_of
from uncopy.structure import STRUCTURE, Node

__all__ = ["Imported", "import_graph"]

Wrap = Callable[[fx.Node, Callable[..., Any], bool], Callable[..., Any]]

_aten = torch.ops.aten
_WAIT = torch.ops._c10d_functional.wait_tensor.default
_ORDER = torch.ops.uncopy.wait.default
_VIEW_OF = torch.ops.uncopy.view_of.default
# Checks of types and shapes, which the capture has made.
_DROPPED = {_aten._assert_tensor_metadata.default}
_ASSERT = _aten._assert_scalar.default
_ITEM = _aten._local_scalar_dense.default
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
# Views whose offset counts from the start of the storage, by the name of the argument that gives
# it.
_ABSOLUTE = {
    _aten.as_strided.default: "storage_offset",
    _aten.as_strided_.default: "storage_offset",
}


@dataclass(frozen=True)
class Imported:
    """A program with what runs it.

    outputs: one _core.Output for each element of the graph's result. held: tensors that are
    arguments after those of a call. num_arguments: those of a call.
    """

    program: Any
    recipes: list[Any]
    outputs: list[Any]
    held: list[torch.Tensor]
    num_arguments: int
    output_numbers: dict[int, int]  # view -> number of the program's output

    def add_output(self, view: int, facts: ResultFacts) -> int:
        """A further result: a view. Returns its place among the outputs. Two results of one view
        are one object.
        """
        if view not in self.output_numbers:
            self.output_numbers[view] = len(self.output_numbers)
            self.program.add_output(view)
        number = self.output_numbers[view]
        self.outputs.append(
            _core.Output(number, requires_grad=facts.requires_grad, is_view=facts.is_view)
        )
        return len(self.outputs) - 1

    def add_argument_output(self, number: int) -> int:
        """A further result: argument `number` itself, whose view has that number. Returns its
        place.
        """
        return self.add_output(number, ResultFacts())

    def add_constant_output(self, value: Any) -> int:
        """A further result: a Python value. Returns its place among the outputs."""
        self.outputs.append(_core.Output(-1, value=value))
        return len(self.outputs) - 1

    def add_number_output(self, number: int) -> None:
        """A further result: a number of the program."""
        self.outputs.append(_core.Output(-1, number=number))


def import_graph(captured: Capture, name: str, wrap: Wrap | None = None) -> Imported:
    """The program of a captured graph. Raises Unplannable for what a program cannot say.

    wrap(node, call, is_collective) gives what is called in place of a host's call.
    """
    with environment(captured.shape_env):
        return _Importer(captured, name, wrap or _as_it_is).run()


def _as_it_is(node: fx.Node, call: Callable[..., Any], is_collective: bool) -> Callable[..., Any]:
    return call


class _Importer:
    def __init__(self, captured: Capture, name: str, wrap: Wrap) -> None:
        self.captured = captured
        self.wrap = wrap
        self.builder = Builder(name)
        self.recipes: list[Any] = []
        self.collectives = Collectives(self.builder, self.recipes, wrap)
        self.values: dict[fx.Node, Any] = {}
        self.keys: set[int] = set()  # fake storages of the values
        num_arguments = len(captured.names) - len(captured.held)
        held = list(captured.held)
        self.imported = Imported(self.builder.program, self.recipes, [], held, num_arguments, {})

    def run(self) -> Imported:
        nodes = list(self.captured.graph.graph.nodes)
        self._add_arguments(nodes)
        for node in nodes:
            try:
                if node.op == "call_function":
                    self._set(node, self._call(node))
                elif node.op == "output":
                    self.collectives.close(node)
                    self._add_outputs(node)
            except Unplannable as problem:
                problem.node = problem.node or node
                raise
            except (ValueError, NotImplementedError) as error:
                raise Unplannable(Reason.PROGRAM, str(error), node) from error
        return self.imported

    # ---- arguments and results ----

    def _add_arguments(self, nodes: list[fx.Node]) -> None:
        """Placeholders, then tensors that the graph holds: arguments come before storages."""
        placeholders = [n for n in nodes if n.op == "placeholder"]
        fakes = [n.meta["val"] for n in placeholders]
        is_tensor = [isinstance(fake, torch.Tensor) for fake in fakes]
        layouts = [Layout.of(f) if is_t else None for f, is_t in zip(fakes, is_tensor, strict=True)]
        integers = [None if is_t else _number(f) for f, is_t in zip(fakes, is_tensor, strict=True)]
        places = bindings(layouts, integers) if self.captured.is_symbolic else {}
        for number, (node, name) in enumerate(zip(placeholders, self.captured.names, strict=True)):
            for symbol, kind, dim in places.get(number, ()):
                self.builder.sizes.add_symbol(symbol, number, kind, dim)
            layout = layouts[number]
            if layout is not None:
                self._set(node, self.builder.argument(name, layout))
            else:
                self.builder.integer(f"{name}_int" if places else name)
                self.values[node] = integers[number]
        for node in nodes:
            if node.op != "get_attr":
                continue
            held = getattr(self.captured.graph, node.target)
            if not isinstance(held, torch.Tensor):
                words = f"a {type(held).__name__} in the graph"
                raise Unplannable(Reason.HIGHER_ORDER, words, node)
            if isinstance(held, torch._subclasses.FakeTensor):
                raise Unplannable(Reason.CAPTURE, "a tensor that the capture made", node)
            value = self.builder.argument(node.name.strip("_"), Layout.of(held))
            node.meta.setdefault("val", held)
            self.imported.held.append(held)
            self._set(node, value)

    def _add_outputs(self, node: fx.Node) -> None:
        """Results in order; one that is there twice is one output."""
        results = node.args[0]
        facts = self.captured.results or [ResultFacts()] * len(results)
        for result, fact in zip(results, facts, strict=True):
            value = self.values[result] if isinstance(result, fx.Node) else result
            if isinstance(value, Value):
                # Fakes know no inference tensors, whose views have no autograd metadata.
                is_bare = value.root in self.captured.inference
                self.imported.add_output(value.view, ResultFacts() if is_bare else fact)
            elif value is None or isinstance(value, (bool, int, float, str)):
                self.imported.add_constant_output(value)
            elif isinstance(value, sympy.Expr):
                self.imported.add_number_output(self.builder.sizes.number(value))
            else:
                words = f"a result of type {type(value).__name__}"
                raise Unplannable(Reason.DATA_DEPENDENT, words, node)

    def _set(self, node: fx.Node, value: Any) -> None:
        self.values[node] = value
        key = storage_key(node)
        if key is not None:
            self.keys.add(key)
        else:
            for fake in flat_results(node.meta.get("val")):
                if isinstance(fake, torch.Tensor):
                    self.keys.add(fake.untyped_storage()._cdata)

    # ---- one node ----

    def _call(self, node: fx.Node) -> Any:
        op = node.target
        if getattr(op, "__name__", "") == "getitem" and not isinstance(op, OpOverload):
            return self.values[node.args[0]][node.args[1]]
        if isinstance(op, torch._ops.HigherOrderOperator):
            raise Unplannable(Reason.HIGHER_ORDER, f"the higher-order operator {op}")
        fake = node.meta.get("val")
        if isinstance(fake, _NUMBERS) or not isinstance(op, OpOverload):
            return self._number(op, fake)
        if op in _DROPPED or self._is_met(node):
            return None
        arguments = self._arguments(node)
        self._check_metadata_change(node, arguments)
        if op is _ORDER:
            self.builder.operation("order", node, [arguments["self"], arguments["dependency"]])
            return None
        if op is _VIEW_OF:
            return self.builder.view(node.name, arguments["self"], Layout.of(node.meta["val"]))
        if op is _WAIT and self.collectives.wait(node, arguments["tensor"]):
            return arguments["tensor"]
        if op.namespace == "_c10d_functional" and isinstance(fake, torch.Tensor):
            found = self.collectives.lower(node, arguments, Layout.of(fake))
            if found is not None:
                return found
        if op is not _WAIT and is_trusted(op) and not written_arguments(op) and fake is not None:
            views = self._views(node, arguments, fake)
            if views is not None:
                return views
        return self._compute(node, arguments, fake)

    def _number(self, op: Any, fake: Any) -> Any:
        """The value of a node that computes with sizes."""
        if op is _ITEM:
            raise Unplannable(Reason.DATA_DEPENDENT, "a number that depends on data")
        if not isinstance(fake, _NUMBERS):
            raise Unplannable(Reason.DATA_DEPENDENT, f"{op} computes with sizes")
        return _number(fake)

    def _is_met(self, node: fx.Node) -> bool:
        """Whether a node only asserts what is proven."""
        if node.target is not _ASSERT or not isinstance(node.args[0], fx.Node):
            return False
        condition = self.values[node.args[0]]
        return isinstance(condition, (bool, sympy.Basic)) and known(condition)

    def _arguments(self, node: fx.Node) -> dict[str, Any]:
        """Arguments by name with nodes replaced by their values."""
        bound = bind(node.target, node.args, node.kwargs)
        return {name: self._replace(value) for name, value in bound.items()}

    def _replace(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self._replace(element) for element in value]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Unplannable(Reason.DATA_DEPENDENT, "a number that depends on data")
        return value

    def _check_metadata_change(self, node: fx.Node, arguments: dict[str, Any]) -> None:
        """Raises for what gives a tensor other memory: only the caller's own object can be changed
        so.
        """
        op = node.target
        if changes_metadata(op):
            name = op._schema.name
            changed = next(iter(arguments.values()))
            is_callers = isinstance(changed, Value) and changed in self.builder.arguments
            if is_callers or name == "aten::shallow_copy_data_":
                raise Unplannable(Reason.DATA_SWAP, f"{op} changes a tensor of the caller")
            if name.startswith("aten::resize"):
                raise Unplannable(Reason.RESIZE, f"{op} changes a storage")
            if name.startswith("aten::set_") and op._overloadname != "source_Tensor":
                raise Unplannable(Reason.DATA_SWAP, f"{op} gives a tensor another storage")
        for out in out_arguments(op):
            if isinstance(arguments[out], Value):
                self._check_out_size(node, out, arguments[out])

    def _check_out_size(self, node: fx.Node, name: str, out: Value) -> None:
        """Raises if an out= tensor has not the size of the result that it gets: PyTorch would
        resize it.
        """
        for index, fake in enumerate(flat_results(node.meta.get("val"))):
            is_result = name in aliased_arguments(node.target, index)
            if is_result and isinstance(fake, torch.Tensor):
                layout = Layout.of(fake)
                pairs = [*zip(layout.sizes, out.layout.sizes, strict=False)]
                pairs += [*zip(layout.strides, out.layout.strides, strict=False)]
                is_rank = len(layout.sizes) == len(out.layout.sizes)
                if not is_rank or not all(equal(a, b) for a, b in pairs):
                    words = f"{name}= of size {out.layout.sizes} is resized to {layout.sizes}"
                    raise Unplannable(Reason.RESIZE, words, node)

    def _views(self, node: fx.Node, arguments: dict[str, Any], fake: Any) -> Any:
        """The views that a node's results are, None if one of them is no view."""
        fakes = list(flat_results(fake))
        views = []
        for index, one in enumerate(fakes):
            if not isinstance(one, torch.Tensor):
                return None
            operand = find_alias(self.values, self.keys, node, one, index)
            if operand is None:
                return None
            name = node.name if index == 0 else f"{node.name}_{index}"
            views.append(self._view(node, arguments, name, operand, Layout.of(one)))
        if isinstance(fake, (list, tuple)):
            return views
        return views[0]

    def _view(
        self, node: fx.Node, arguments: dict[str, Any], name: str, operand: Value, layout: Layout
    ) -> Value:
        offset = _ABSOLUTE.get(node.target)
        if offset is not None and arguments[offset] is not None:
            return self.builder.absolute_view(name, operand, layout)
        return self.builder.view(name, operand, layout)

    def _compute(self, node: fx.Node, arguments: dict[str, Any], fake: Any) -> Any:
        op = node.target
        if changes_metadata(op):  # of a tensor that the graph made: a view, too
            operand = find_alias(self.values, self.keys, node, fake, 0)
            if op._schema.name == "aten::set_":
                operand = arguments["source"]
            return self._view(node, arguments, node.name, operand, Layout.of(fake))
        if op.namespace == "aten" and isinstance(fake, torch.Tensor):
            at = Node(self.builder, node, arguments, Layout.of(fake), self._out(node, arguments))
            lower = STRUCTURE.get(op._schema.name.removeprefix("aten::"))
            value = lower(at) if lower is not None else lower_row(at, self.recipes)
            if value is not None:
                return value
        call = HostCall(self.builder, self.recipes, self.values, self.keys, node)
        results = call.emit(self.wrap(node, op, False))
        if isinstance(fake, (list, tuple)):
            return _like(fake, iter(results))
        return results[0] if results else None

    def _out(self, node: fx.Node, arguments: dict[str, Any]) -> Value | None:
        names = out_arguments(node.target)
        return arguments[names[0]] if len(names) == 1 else None


def _number(fake: Any) -> Any:
    """A Python number, or the expression of one that is known at a call only."""
    if isinstance(fake, (bool, int, float)):
        return fake
    if isinstance(fake, torch.SymInt):
        return size_of(fake)
    return fake.node.expr


def _like(fake: Any, results: Any) -> Any:
    """Flat results in the nesting of the fake ones."""
    if isinstance(fake, (list, tuple)):
        return [_like(element, results) for element in fake]
    return next(results)
