"""Training: one autograd.Function around two functions of the C extension, forward and backward.

The forward returns the graph's results and the intermediates that the backward needs. All of what
the backward needs goes through `save_for_backward`, arguments and results included, so version
counters, hooks on saved tensors and the release after the backward are PyTorch's own. Results that
are views, of arguments or of each other, are taken outside the Function from what it gave: their
history is then eager's.

A backward is traced for tangents of given layouts. The first is compiled with the forward; one for
other layouts, or for results without a gradient, when such tangents first come.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from uncopy.capture import Capture, held_tensors, readable, run_as_eager
from uncopy.fallback import Reason, Unplannable
from uncopy.joint import Cut, Joint, JointTracer, Mode, TangentKey, views_between, writes_of
from uncopy.registry import Compiled, FallbackFacts

__all__ = ["SizedTraining", "Training", "trace_training"]

Handle = Callable[..., Any]
# Makes what runs a captured graph, by the name it is to have: a handle, and what is known of it.
Make = Callable[[str, Capture], tuple[Handle, Compiled]]
# The same for a graph that is not planned.
MakeFallback = Callable[[str, Handle, FallbackFacts], tuple[Handle, Compiled]]

# Sizes that a graph is planned for; above that a call runs as eager.
_MAX_SIZES = 64

# Backwards kept for tangents of different layouts; above that tangents are copied.
_MAX_BACKWARDS = 16

_TWICE = (
    b"a graph compiled by uncopy has no second derivative: its backward is compiled without one. "
    b"Leave the function out of torch.compile where create_graph=True is needed."
)
_STALE = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: argument {saved} of a graph compiled by uncopy was written through argument "
    "{written} after it was used."
)


@dataclass(frozen=True)
class _View:
    """A result taken outside the Function. source: "result" or "argument" and its number. steps:
    the views from there; None for as_strided with layout, whose offset counts from the source's.
    """

    source: str
    number: int
    is_detached: bool = False
    steps: tuple[Callable[[torch.Tensor], torch.Tensor], ...] | None = ()
    layout: tuple[Any, ...] = ()

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of a source."""
        if self.is_detached:
            tensor = tensor.detach()
        if self.steps is None:
            sizes, strides, distance = self.layout
            return tensor.as_strided(sizes, strides, tensor.storage_offset() + distance)
        for step in self.steps:
            tensor = step(tensor)
        return tensor


@dataclass(frozen=True)
class _Backward:
    """A compiled backward. slots, given: which saved tensors and which tangents it takes."""

    run: Handle
    slots: list[int]
    given: list[int]


@dataclass
class _Parts:
    """What a trace says about a call."""

    num_results: int
    needing: list[int]  # arguments that get a gradient
    changed: list[int]  # arguments that the forward gives a history
    not_differentiable: list[int]  # results
    outputs: list[Any]  # of the graph: _View, or a constant
    slots: list[tuple[str, int]]  # of saved tensors: "argument", "result", "kept"
    unversioned: set[int]  # saved arguments whose counter eager does not increase
    hazards: list[tuple[int, int]]  # saved argument, argument written after it was saved
    differentiable: list[int] = field(default_factory=list)  # of what the Function returns


class _Step(torch.autograd.Function):
    """One run of forward and backward; the graph is the first argument."""

    @staticmethod
    def forward(ctx: Any, graph: "Training", *tensors: torch.Tensor) -> Any:
        return graph._forward(ctx, tensors)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return ctx.graph._backward(ctx, tangents)


# Without the wrapper that looks for function transforms: Dynamo guards on these.
_apply: Callable[..., Any] = super(torch.autograd.Function, _Step).apply  # type: ignore[misc]


class Training:
    """Runs a graph some of whose results need gradients."""

    def __init__(
        self,
        name: str,
        tracer: JointTracer,
        joint: Joint,
        held: Sequence[torch.Tensor],
        names: Sequence[str],
        make: Make,
        make_fallback: MakeFallback,
    ) -> None:
        self.name = name
        self.held = tuple(held)
        self._tracer = tracer
        self._make, self._make_fallback = make, make_fallback
        self._is_grad_on = tracer.is_grad_on
        cut = Cut(joint)
        graph, kept = cut.forward()
        self._slots = cut.slots
        self._parts = _parts_of(joint, cut, kept, tracer)
        self._run_forward, self.compiled = make(name, Capture(graph, list(names), [], []))
        self._default_key: TangentKey = tuple(
            tuple(t.meta["val"].stride()) for t in joint.tangents if t is not None
        )
        self._backwards: dict[tuple[TangentKey, Mode | None], _Backward] = {}
        self._backwards[self._default_key, None] = self._compile_backward(joint, cut)
        self._fallback: Handle | None = None
        outputs = self._parts.outputs
        self._is_direct = not self._parts.changed and outputs == [
            _View("result", n) for n in range(self._parts.num_results)
        ]
        self._has_function = bool(self._parts.num_results or self._parts.changed)

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """The graph's results."""
        parts = self._parts
        tensors = (*arguments, *self.held) if self.held else arguments
        if parts.changed and not self._may_change(tensors):
            return self._run_eager(arguments)
        if not self._has_function:
            with torch.no_grad():
                self._run_forward(*tensors)
            results: Any = ()
        elif self._is_grad_on:
            results = _apply(self, *tensors)
        else:
            with torch.enable_grad():
                results = _apply(self, *tensors)
        return results if self._is_direct else self._assembled(tensors, results)

    def _assembled(self, tensors: Sequence[torch.Tensor], results: Sequence[Any]) -> list[Any]:
        sources = {"argument": tensors, "result": results}
        with torch.enable_grad():
            return [
                o.take(sources[o.source][o.number]) if isinstance(o, _View) else o
                for o in self._parts.outputs
            ]

    # ---- arguments that get a history ----

    def _may_change(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether arguments can get their history from the Function: no autograd view, no leaf that
        requires grad, none whose gradient is retained (PyTorch fails there), and no other argument
        that shares their memory.
        """
        addresses = [t.untyped_storage().data_ptr() for t in tensors]
        return all(
            not tensors[n]._is_view()
            and not tensors[n].retains_grad
            and not (tensors[n].is_leaf and tensors[n].requires_grad)
            and addresses.count(addresses[n]) == 1
            for n in self._parts.changed
        )

    def _run_eager(self, arguments: Sequence[torch.Tensor]) -> Any:
        if self._fallback is None:
            words = "an argument that gets a history shares memory with another tensor"
            facts = FallbackFacts(Reason.GRADIENT.value, words, None)
            run = run_as_eager(self._tracer.module)
            self._fallback = self._make_fallback(f"{self.name}_shared", run, facts)[0]
        return self._fallback(*arguments)

    # ---- inside the Function ----

    def _forward(self, ctx: Any, tensors: Sequence[torch.Tensor]) -> Any:
        parts = self._parts
        versions = [tensors[s]._version for s, _ in parts.hazards]
        everything = self._run_forward(*tensors)
        results = everything[: parts.num_results]
        sources = {
            "argument": tensors,
            "result": results,
            "kept": everything[parts.num_results :],
        }
        saved = [sources[kind][number] for kind, number in parts.slots]
        for slot in parts.unversioned:
            saved[slot] = saved[slot].data
        ctx.graph = self
        ctx.stale = self._stale(tensors, versions) if versions else None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        if parts.not_differentiable:
            ctx.mark_non_differentiable(*(results[n] for n in parts.not_differentiable))
        if not parts.changed:
            return results
        changed = [tensors[n] for n in parts.changed]
        ctx.mark_dirty(*changed)
        return (*results, *changed)

    def _stale(self, tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> str | None:
        """Words of the error that eager's backward raises where an argument was written, through
        another one over the same bytes, after it had been saved.
        """
        for (saved, written), version in zip(self._parts.hazards, versions, strict=True):
            a, b = tensors[saved], tensors[written]
            is_one = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            if is_one and a._version != version:
                return _STALE.format(saved=saved, written=written)
        return None

    def _backward(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Any:
        if ctx.stale is not None:
            raise RuntimeError(ctx.stale)
        parts = self._parts
        saved = ctx.saved_tensors
        given = [tangents[n] for n in parts.differentiable]
        key: TangentKey = tuple([None if t is None else t.stride() for t in given])
        mode = Mode.now() if torch.is_autocast_enabled("cpu") else None
        backward = self._backwards.get((key, mode))
        if backward is None:
            backward, given = self._other_backward(key, mode, given)
        operands = [saved[s] for s in backward.slots]
        operands += [given[n] for n in backward.given]
        gradients: list[Any] = [None] * (1 + len(ctx.needs_input_grad[1:]))
        is_twice = torch.is_grad_enabled()
        if is_twice:
            with torch.no_grad():
                found = backward.run(*operands)
        else:
            found = backward.run(*operands)
        for number, gradient in zip(parts.needing, found, strict=True):
            gradients[1 + number] = gradient
        return _once(gradients) if is_twice else tuple(gradients)

    # ---- backwards ----

    def _other_backward(
        self, key: TangentKey, mode: Mode | None, given: list[torch.Tensor | None]
    ) -> tuple[_Backward, list[torch.Tensor | None]]:
        """The backward for tangents of other layouts, traced now, and the tangents for it."""
        if len(self._backwards) >= _MAX_BACKWARDS:
            key = tuple(
                None if k is None else default
                for k, default in zip(key, self._default_key, strict=True)
            )
            given = [
                None if t is None else torch.empty_strided(t.shape, s, dtype=t.dtype).copy_(t)
                for t, s in zip(given, self._default_key, strict=True)
            ]
        backward = self._backwards.get((key, mode))
        if backward is None:
            joint = self._tracer.trace(key, mode or _no_autocast())
            backward = self._compile_backward(joint, Cut(joint, self._slots))
            self._backwards[key, mode] = backward
        return backward, given

    def _compile_backward(self, joint: Joint, cut: Cut) -> _Backward:
        graph, names, slots, given = cut.backward()
        number = len(self._backwards)
        name = f"{self.name}_backward{number or ''}"
        run, _ = self._make(name, Capture(graph, [readable(n) for n in names], [], []))
        return _Backward(run, slots, given)


class SizedTraining:
    """Runs a graph with gradients whose sizes may change: as one Training for each set of sizes."""

    def __init__(
        self,
        module: fx.GraphModule,
        trace: Callable[[fx.GraphModule, Sequence[torch.Tensor]], Handle],
        make_fallback: Callable[[FallbackFacts], Handle],
    ) -> None:
        self._module = module
        self._trace = trace
        self._make_fallback = make_fallback
        self._runs: dict[tuple[Any, ...], Handle] = {}
        self._fallback: Handle | None = None

    def __call__(self, *arguments: Any) -> Any:
        """The graph's results. arguments: tensors, and the sizes that Dynamo passes."""
        key = tuple(
            [(a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in arguments]
        )
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        run = self._runs.get(key)
        if run is None:
            if len(self._runs) >= _MAX_SIZES:
                return self._run_eager(arguments)
            run = self._runs[key] = self._trace(_with_numbers(self._module, arguments), tensors)
        return run(*tensors)

    def _run_eager(self, arguments: Sequence[Any]) -> Any:
        if self._fallback is None:
            words = f"more than {_MAX_SIZES} sets of sizes, and gradients are needed"
            self._fallback = self._make_fallback(FallbackFacts(Reason.SYMBOLIC.value, words, None))
        return self._fallback(*arguments)


def _with_numbers(module: fx.GraphModule, arguments: Sequence[Any]) -> fx.GraphModule:
    """A graph of Dynamo's with numbers in place of the arguments that are numbers."""
    graph = fx.Graph()
    values: dict[fx.Node, Any] = {}
    rest = iter(arguments)
    for node in module.graph.nodes:
        value = next(rest) if node.op == "placeholder" else None
        is_number = node.op == "placeholder" and not isinstance(value, torch.Tensor)
        values[node] = value if is_number else graph.node_copy(node, lambda n: values[n])
    return fx.GraphModule(module, graph)


def _once(gradients: list[Any]) -> tuple[Any, ...]:
    """Gradients that raise where they are differentiated themselves."""
    numbers = [n for n, g in enumerate(gradients) if g is not None]
    guard = torch._C._functions.DelayedError(_TWICE, len(numbers))
    guarded = guard(*(gradients[n].detach().requires_grad_() for n in numbers))
    if len(numbers) == 1:
        guarded = (guarded,)
    for number, gradient in zip(numbers, guarded, strict=True):
        gradients[number] = gradient
    return tuple(gradients)


def _no_autocast() -> Mode:
    return Mode(False, torch.get_autocast_dtype("cpu"))


def trace_training(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    name: str,
    fake_mode: Any,
    make: Make,
    make_fallback: MakeFallback,
) -> Training | None:
    """What runs a graph of Dynamo's with gradients; None if no result needs one after all.

    fake_mode: Dynamo's. Raises Unplannable for what the trace or a program cannot say, and whatever
    the graph itself raises.
    """
    if torch._C._are_functorch_transforms_active():
        raise Unplannable(Reason.GRADIENT, "a transform of torch.func around the graph")
    held = held_tensors(module)
    distinct = list({id(t): t for t in held.values()}.values())
    number_of = {id(t): n for n, t in enumerate(distinct, len(example_inputs))}
    tracer = JointTracer(
        module,
        len(example_inputs),
        (*example_inputs, *distinct),
        {target: number_of[id(t)] for target, t in held.items()},
        fake_mode,
        torch.is_grad_enabled(),
    )
    joint = tracer.trace(None, _no_autocast())
    if not joint.tangents:
        return None
    if _written_arguments(joint):
        joint = tracer.trace(None, _no_autocast(), saves=True)
    first_name = {id(t): target for target, t in reversed(held.items())}
    names = [readable(str(n.target)) for n in module.graph.nodes if n.op == "placeholder"]
    names += [readable(first_name[id(t)]) for t in distinct]
    return Training(name, tracer, joint, distinct, names, make, make_fallback)


def _written_arguments(joint: Joint, hidden: bool = False) -> dict[int, int]:
    """For each argument that the forward writes the position of the last write."""
    cut = Cut(joint)
    numbers = _argument_numbers(joint)
    writes = writes_of(joint.forward, cut.roots, hidden)
    return {numbers[root]: at for root, at in writes.items() if root in numbers}


def _argument_numbers(joint: Joint) -> dict[fx.Node, int]:
    placeholders = [n for n in joint.forward if n.op == "placeholder"]
    return {node: number for number, node in enumerate(placeholders)}


def _parts_of(joint: Joint, cut: Cut, kept: list[fx.Node], tracer: JointTracer) -> _Parts:
    numbers = _argument_numbers(joint)
    result_numbers = {node: n for n, node in enumerate(joint.results)}
    slots: list[tuple[str, int]] = []
    for root, holder in cut.holders.items():
        if root in numbers:
            slots.append(("argument", numbers[root]))
        elif holder in result_numbers:
            slots.append(("result", result_numbers[holder]))
        else:
            slots.append(("kept", kept.index(holder)))
    seen, all_writes = _written_arguments(joint), _written_arguments(joint, hidden=True)
    first_saved: dict[int, int] = {}
    for saved in joint.saved:
        first_saved.setdefault(saved.argument, saved.position)
    is_result_differentiable = joint.result_requires_grad
    num_results = len(joint.results)
    differentiable = [n for n, needs in enumerate(is_result_differentiable) if needs]
    differentiable += [num_results + n for n in range(len(joint.changed))]
    return _Parts(
        num_results=num_results,
        needing=tracer.needing,
        changed=joint.changed,
        not_differentiable=[n for n, needs in enumerate(is_result_differentiable) if not needs],
        outputs=_outputs_of(joint, cut, numbers, result_numbers, tracer),
        slots=slots,
        unversioned={
            slot
            for slot, (kind, n) in enumerate(slots)
            if kind == "argument" and n in all_writes and n not in seen
        },
        hazards=[
            (s, m)
            for s, at in first_saved.items()
            for m, last in seen.items()
            if m != s and last >= at
        ],
        differentiable=differentiable,
    )


def _outputs_of(
    joint: Joint,
    cut: Cut,
    numbers: dict[fx.Node, int],
    result_numbers: dict[fx.Node, int],
    tracer: JointTracer,
) -> list[Any]:
    """How each element of the graph's output comes about."""
    arguments = {n: node for node, n in numbers.items()}
    result_of = {cut.roots[r]: r for r in joint.results}
    outputs: list[Any] = []
    for value, requires_grad in zip(joint.outputs, joint.requires_grad, strict=True):
        if isinstance(value, tuple):
            outputs.append(_View("argument", value[1]))
        elif not isinstance(value, fx.Node):
            if not isinstance(value, (type(None), bool, int, float, str)):
                words = f"a result of type {type(value).__name__}"
                raise Unplannable(Reason.DATA_DEPENDENT, words)
            outputs.append(value)
        else:
            root = cut.roots[value]
            if root in numbers:
                number = numbers[root]
                source, has_grad = arguments[number], tracer.facts[number].requires_grad
                has_grad = has_grad or number in joint.changed
                kind = "argument"
            else:
                source = result_of[root]
                number = result_numbers[source]
                has_grad, kind = joint.result_requires_grad[number], "result"
            if requires_grad and not has_grad:
                words = f"{value.name} has a history that what it is a view of has not"
                raise Unplannable(Reason.GRADIENT, words, value)
            outputs.append(_view(kind, number, source, value, has_grad and not requires_grad, cut))
    return outputs


def _view(
    kind: str, number: int, source: fx.Node, target: fx.Node, is_detached: bool, cut: Cut
) -> _View:
    nodes = views_between(source, target, cut.roots)
    if nodes is not None:
        detaches = any(n.target is torch.ops.aten.detach.default for n in nodes)
        steps = tuple(_step_of(node) for node in nodes)
        return _View(kind, number, is_detached and not detaches, steps)
    whole, part = source.meta["val"], target.meta["val"]
    if whole.dtype != part.dtype:
        words = f"{target.name} is a view of another dtype that no views lead to"
        raise Unplannable(Reason.GRADIENT, words, target)
    distance = part.storage_offset() - whole.storage_offset()
    layout = (tuple(part.shape), tuple(part.stride()), distance)
    return _View(kind, number, is_detached, None, layout)


def _step_of(node: fx.Node) -> Callable[[torch.Tensor], torch.Tensor]:
    """The view that a node takes of its operand, as a function of that."""
    op, args, kwargs = node.target, node.args, dict(node.kwargs)
    if any(isinstance(a, fx.Node) for a in (*args[1:], *kwargs.values())):
        raise Unplannable(Reason.DATA_DEPENDENT, f"{node.name} is a view by a tensor", node)
    rest = args[1:]
    return lambda tensor: op(tensor, *rest, **kwargs)
