"""Capture for training: one run of forward and backward on fake tensors, cut where the forward
ends.

Autograd itself runs under the trace, so the backward holds the formulas that eager would use, in
eager's order; what the backward reads of the forward is what eager's autograd saves. Nothing is
made functional. Each argument is made fake with a storage of its own, for which arguments share
memory differs from call to call.

A trace is made for tangents (gradients of results) of given layouts. A result that got no gradient
has no tangent, so an argument that only it depends on has no gradient either, as in eager.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from uncopy.capture import RunWithHeldTensors
from uncopy.checkpoints import draws_random_numbers, is_random_state
from uncopy.fallback import Reason, Unplannable
from uncopy.host_call import flat_results, storage_key
from uncopy.schema import aliased_arguments, bind, tensors_in, written_arguments

__all__ = [
    "Cut",
    "Joint",
    "JointTracer",
    "Mode",
    "Saved",
    "TangentKey",
    "views_between",
    "writes_of",
]

# In the meta of nodes that the forward made, and of those that only give an argument a history.
_FORWARD, _ENTRY = "uncopy_forward", "uncopy_entry"

# For each differentiable result the strides of its tangent, None where there is none.
TangentKey = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Mode:
    """Modes that a run depends on and that Dynamo does not set in the graph: autocast's."""

    is_autocast: bool
    autocast_dtype: torch.dtype

    @staticmethod
    def now() -> "Mode":
        """The modes of the caller."""
        return Mode(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Runs with these modes. Casts that autocast keeps for reuse are dropped before and after:
        fake ones must not be found later.
        """
        torch.clear_autocast_cache()
        try:
            with torch.autocast("cpu", self.autocast_dtype, enabled=self.is_autocast):
                yield
        finally:
            torch.clear_autocast_cache()


@dataclass(frozen=True)
class Saved:
    """A tensor that autograd saved: an argument's, at that position among the forward's nodes."""

    argument: int
    position: int


@dataclass
class Joint:
    """A traced graph of forward and backward.

    module: its placeholders are the arguments. forward: nodes of the forward, in order. results:
    nodes of what the forward makes and the caller may see, one for each storage. outputs: for each
    element of Dynamo's output its node, "argument" with a number, or a constant. tangents: a node
    that stands for the tangent of each result and then of each changed argument; None where there
    is none. gradients: by argument that requires a gradient, None for none. changed: arguments that
    are given a history by the graph, ascending. requires_grad: of each element of the output.
    saved: arguments saved, empty where it was not asked for.
    """

    module: fx.GraphModule
    forward: list[fx.Node] = field(default_factory=list)
    backward: list[fx.Node] = field(default_factory=list)
    results: list[fx.Node] = field(default_factory=list)
    result_requires_grad: list[bool] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    requires_grad: list[bool] = field(default_factory=list)
    tangents: list[fx.Node | None] = field(default_factory=list)
    gradients: list[fx.Node | None] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)


class _Entry(torch.autograd.Function):
    """Gives an argument that is no leaf a history in the trace, so that it can be written in place
    and the gradient is that of what it was.
    """

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


@dataclass
class _Run:
    """What one run under the trace notes for what comes after it."""

    num_outputs: int = 0
    outputs: list[Any] = field(default_factory=list)
    requires_grad: list[bool] = field(default_factory=list)
    num_results: int = 0
    result_requires_grad: list[bool] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    has_tangent: list[bool] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)


class JointTracer:
    """Traces one graph of Dynamo's, as often as tangents of other layouts come.

    tensors: the arguments, and then the tensors that the graph holds itself.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        num_arguments: int,
        tensors: Sequence[torch.Tensor],
        held: dict[str, int],
        fake_mode: Any,
        is_grad_on: bool,
    ) -> None:
        self.module = module
        self.num_arguments = num_arguments
        self.held = held
        self.fake_mode = fake_mode
        self.is_grad_on = is_grad_on
        self.mode = Mode.now()
        self.facts = [_Facts.of(t) for t in tensors]
        self.needing = [n for n, f in enumerate(self.facts) if f.requires_grad]

    def trace(self, key: TangentKey | None, backward_mode: Mode, saves: bool = False) -> Joint:
        """The joint graph for tangents laid out as key says, None for those laid out as the
        results. saves: notes which arguments autograd saves, and where.

        Raises what autograd raises, as when a saved tensor was written.
        """
        run = _Run()
        with self.fake_mode, torch.enable_grad():
            primals = [f.fake() for f in self.facts]
        storages = {p.untyped_storage()._cdata: n for n, p in enumerate(primals)}
        hooks = _Hooks(storages, run.saved)
        is_hooked = saves or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        watching = hooks.entered() if is_hooked else contextlib.nullcontext()

        def joint(*leaves: torch.Tensor) -> list[Any]:
            with torch.enable_grad(), self.mode.entered():
                used = [
                    _Entry.apply(leaf) if f.requires_grad and not f.is_leaf else leaf
                    for leaf, f in zip(leaves, self.facts, strict=True)
                ]
                for node in _nodes_so_far():
                    node.meta[_ENTRY] = True
                before = [(u.requires_grad, u.grad_fn) for u in used]
                outs = self._run_graph(used)
                changed = [
                    n for n, u in enumerate(used) if (u.requires_grad, u.grad_fn) != before[n]
                ]
                return self._finish(run, leaves, used, changed, outs, key, backward_mode)

        with self.fake_mode, fx.traceback.preserve_node_meta(), watching:
            graph = make_fx(
                joint, tracing_mode="real", pre_dispatch=False, _allow_non_fake_inputs=True
            )(*primals)
        return self._joint(graph, run)

    def _run_graph(self, used: Sequence[torch.Tensor]) -> Sequence[Any]:
        stand_ins = {target: used[number] for target, number in self.held.items()}
        with torch.set_grad_enabled(self.is_grad_on):
            interpreter = RunWithHeldTensors(self.module, stand_ins)
            return interpreter.run(*used[: self.num_arguments])

    def _finish(
        self,
        run: _Run,
        leaves: Sequence[torch.Tensor],
        used: Sequence[torch.Tensor],
        changed: list[int],
        outs: Sequence[Any],
        key: TangentKey | None,
        backward_mode: Mode,
    ) -> list[Any]:
        """Ends the forward and runs the backward; returns what the traced graph returns."""
        arguments = {id(u): n for n, u in enumerate(used)}
        storages = {u.untyped_storage()._cdata for u in used}
        results = _results(outs, storages)
        for node in _nodes_so_far():
            node.meta[_FORWARD] = True
        run.changed = changed
        run.num_outputs = len(outs)
        run.outputs = [("argument", arguments[id(o)]) if id(o) in arguments else o for o in outs]
        run.requires_grad = [isinstance(o, torch.Tensor) and o.requires_grad for o in outs]
        run.num_results = len(results)
        run.result_requires_grad = [r.requires_grad for r in results]
        roots = [*(r for r in results if r.requires_grad), *(used[n] for n in changed)]
        tangents = _tangents(roots, key)
        run.has_tangent = [t is not None for t in tangents]
        given = [(r, t) for r, t in zip(roots, tangents, strict=True) if t is not None]
        gradients: Sequence[Any] = [None] * len(self.needing)
        if given and self.needing:
            with backward_mode.entered():
                gradients = _gradients(given, [leaves[n] for n in self.needing])
        tensors = [o if isinstance(o, torch.Tensor) else None for o in outs]
        return [*tensors, *results, *(t for _, t in given), *gradients]

    def _joint(self, graph: fx.GraphModule, run: _Run) -> Joint:
        nodes = list(graph.graph.nodes)
        flat = list(nodes[-1].args[0])
        outputs = flat[: run.num_outputs]
        results = flat[run.num_outputs :][: run.num_results]
        rest = iter(flat[run.num_outputs + run.num_results :])
        tangents = [next(rest) if has else None for has in run.has_tangent]
        inner = [n for n in nodes if n.op != "output" and n not in set(tangents)]
        if not draws_random_numbers(inner):
            inner = [n for n in inner if not is_random_state(n)]
        return Joint(
            module=graph,
            forward=[n for n in inner if _FORWARD in n.meta],
            backward=[n for n in inner if _FORWARD not in n.meta],
            results=results,
            result_requires_grad=run.result_requires_grad,
            outputs=[
                node if isinstance(value, torch.Tensor) else value
                for node, value in zip(outputs, run.outputs, strict=True)
            ],
            requires_grad=run.requires_grad,
            tangents=tangents,
            gradients=list(rest),
            changed=run.changed,
            saved=run.saved,
        )


@dataclass(frozen=True)
class _Facts:
    """What a trace needs of an argument."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    num_storage: int  # elements that the storage holds
    requires_grad: bool
    is_leaf: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> "_Facts":
        num_storage = tensor.untyped_storage().nbytes() // tensor.element_size()
        return _Facts(
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            num_storage,
            tensor.requires_grad,
            tensor.is_leaf,
        )

    def fake(self) -> torch.Tensor:
        """A leaf with a storage and a version counter of its own. Inside a fake mode only."""
        base = torch.empty(self.num_storage, dtype=self.dtype)
        leaf = base.as_strided(self.sizes, self.strides, self.offset).data
        return leaf.requires_grad_(self.requires_grad)


class _Hooks:
    """Hooks on what autograd saves that note arguments and check versions, which PyTorch does not
    do under hooks.
    """

    def __init__(self, storages: dict[int, int], saved: list[Saved]) -> None:
        self.storages = storages
        self.saved = saved

    def entered(self) -> Any:
        """The hooks as a context."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        argument = self.storages.get(tensor.untyped_storage()._cdata)
        if argument is not None:
            self.saved.append(Saved(argument, len(_nodes_so_far())))
        return tensor, tensor._version

    @staticmethod
    def _unpack(packed: tuple[torch.Tensor, int]) -> torch.Tensor:
        tensor, version = packed
        if tensor._version != version:
            raise RuntimeError("a tensor that the backward needs was written after it was saved")
        return tensor


def _nodes_so_far() -> Any:
    mode = get_proxy_mode()
    assert mode is not None, "only called under a trace"
    return mode.tracer.graph.nodes


def _results(outs: Sequence[Any], storages: set[int]) -> list[torch.Tensor]:
    """One tensor for each storage among the outputs that is no argument's: the one that the others
    are views of.
    """
    groups: dict[int, list[torch.Tensor]] = {}
    for out in outs:
        if isinstance(out, torch.Tensor):
            key = out.untyped_storage()._cdata
            if key not in storages:
                groups.setdefault(key, []).append(out)
    return [_base_of(group) for group in groups.values()]


def _base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """The tensor that autograd takes all of a group to be views of."""
    with_history = [t for t in group if t.requires_grad] or group
    bases = [t._base if t._is_view() else t for t in with_history]
    if any(b is not bases[0] for b in bases):
        if bases[0].requires_grad:
            words = "results that share memory have histories apart"
            raise Unplannable(Reason.GRADIENT, words)
        return max(bases, key=lambda t: t.numel())
    return bases[0]


def _gradients(
    given: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[torch.Tensor]
) -> Sequence[Any]:
    """Gradients of leaves, of results with their tangents."""
    roots, tangents = zip(*given, strict=True)
    try:
        return torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
    except RuntimeError as error:
        # Eager's forward succeeds and its backward raises this.
        raise Unplannable(Reason.GRADIENT, f"the backward raises: {error}") from error


def _tangents(roots: Sequence[torch.Tensor], key: TangentKey | None) -> list[torch.Tensor | None]:
    """A stand-in for the tangent of each root; their nodes become placeholders."""
    if key is None:
        key = tuple(r.stride() for r in roots)
    return [
        None if strides is None else torch.empty_strided(r.shape, strides, dtype=r.dtype)
        for r, strides in zip(roots, key, strict=True)
    ]


def roots_of(nodes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """For each node with a tensor the first one in its storage: an argument, or what made it."""
    first: dict[int, fx.Node] = {}
    roots: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        key = storage_key(node)
        if key is None:
            continue
        if key not in first:
            hidden = _hidden_alias(node)
            first[key] = roots[hidden] if hidden is not None else node
        roots[node] = first[key]
    return roots


def _hidden_alias(node: fx.Node) -> fx.Node | None:
    """The operand whose storage a node has where its fake does not say so: a collective's."""
    if not isinstance(node.target, OpOverload) or node.target.namespace != "_c10d_functional":
        return None
    named = aliased_arguments(node.target, 0)
    bound = bind(node.target, node.args, node.kwargs)
    return next((n for name in named for n in tensors_in(bound[name])), None)


def writes_of(
    nodes: Sequence[fx.Node], roots: dict[fx.Node, fx.Node], hidden: bool = True
) -> dict[fx.Node, int]:
    """For each root that nodes write the position of the last write. hidden: also what operators
    write that eager's version counters do not show.
    """
    last: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        if not isinstance(node.target, OpOverload):
            continue
        bound = bind(node.target, node.args, node.kwargs)
        for name in written_arguments(node.target, hidden):
            for written in tensors_in(bound[name]):
                last[roots[written]] = position
    return last


class Cut:
    """The graphs on either side of the cut.

    slots: what the forward hands to the backward, by root: arguments, results, and intermediates,
    which the forward returns besides. A later trace of the same graph is cut with the first one's
    slots.
    """

    def __init__(self, joint: Joint, slots: "dict[str, int] | None" = None) -> None:
        self.joint = joint
        self.roots = roots_of(joint.forward)
        results = {self.roots[r]: r for r in joint.results}
        used = _used_of_forward(joint)
        # A root is handed on by its result where the caller sees it: then it has one counter.
        self.holders = {r: results.get(r, r) for r in dict.fromkeys(self.roots[n] for n in used)}
        names = [r.name for r in self.holders]
        self.slots = {name: n for n, name in enumerate(names)} if slots is None else slots
        missing = [name for name in names if name not in self.slots]
        if missing:
            raise Unplannable(Reason.GRADIENT, f"the backward needs {missing[0]}, not kept")

    def forward(self) -> tuple[fx.GraphModule, list[fx.Node]]:
        """The forward's graph, which returns results and then intermediates to keep; and the
        latter.
        """
        kept = [
            h
            for r, h in self.holders.items()
            if r.op != "placeholder" and h not in self.joint.results
        ]
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.joint.forward:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output(tuple(copies[n] for n in (*self.joint.results, *kept)))
        return fx.GraphModule(self.joint.module, graph), kept

    def backward(self) -> tuple[fx.GraphModule, list[str], list[int], list[int]]:
        """The backward's graph; names of its arguments; which slots, then which tangents these
        are.
        """
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        names: list[str] = []

        def placeholder(node: fx.Node, name: str) -> fx.Node:
            names.append(name)
            made = graph.placeholder(name)
            made.meta["val"] = node.meta["val"]
            return made

        kept = {h: placeholder(h, _kept_name(h)) for h in self.holders.values()}
        given = [n for n, t in enumerate(self.joint.tangents) if t is not None]
        for number in given:
            node = self.joint.tangents[number]
            assert node is not None
            copies[node] = placeholder(node, f"tangent_{number}")

        def of_forward(node: fx.Node) -> fx.Node:
            if node not in copies:
                copies[node] = self._handed_on(graph, node, kept)
            return copies[node]

        for node in self.joint.backward:
            copies[node] = graph.node_copy(node, of_forward)
            _take_source(copies[node], node, self.joint)
        graph.output(tuple(None if n is None else of_forward(n) for n in self.joint.gradients))
        slots = [self.slots[r.name] for r in self.holders]
        return fx.GraphModule(self.joint.module, graph), names, slots, given

    def _handed_on(self, graph: fx.Graph, node: fx.Node, kept: dict[fx.Node, fx.Node]) -> fx.Node:
        """A node of the forward as the backward has it: what was kept of its root, or a view of
        that.
        """
        if node.op == "get_attr":
            return graph.node_copy(node)
        if node not in self.roots:
            raise Unplannable(Reason.DATA_DEPENDENT, f"{node.name} is no tensor", node)
        holder = self.holders[self.roots[node]]
        fake, whole = node.meta["val"], holder.meta["val"]
        if _layout(fake) == _layout(whole):
            return kept[holder]
        distance = fake.storage_offset() * fake.element_size()
        distance -= whole.storage_offset() * whole.element_size()
        view = graph.call_function(
            torch.ops.uncopy.view_of.default,
            (kept[holder], fake.dtype, list(fake.shape), list(fake.stride()), distance),
        )
        view.meta["val"] = fake
        return view


def _layout(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.dtype, fake.shape, fake.stride(), fake.storage_offset()


def _kept_name(node: fx.Node) -> str:
    return node.name if node.op == "placeholder" else f"kept_{node.name}"


def _used_of_forward(joint: Joint) -> list[fx.Node]:
    """Nodes of the forward that the backward reads, in order of use."""
    forward = set(joint.forward)
    used: dict[fx.Node, None] = {}
    for node in joint.backward:
        used.update(dict.fromkeys(n for n in node.all_input_nodes if n in forward))
    used.update(dict.fromkeys(g for g in joint.gradients if g in forward))
    return [n for n in used if storage_key(n) is not None and n.op != "get_attr"]


def _take_source(copy: fx.Node, node: fx.Node, joint: Joint) -> None:
    """Gives a backward node the line of a forward node whose value it reads, or of the backward
    node before it: autograd's formulas keep none.
    """
    if copy.meta.get("stack_trace"):
        return
    for operand in node.all_input_nodes:
        trace = operand.meta.get("stack_trace")
        if trace:
            copy.meta["stack_trace"] = node.meta["stack_trace"] = trace
            return


def views_between(
    source: fx.Node, target: fx.Node, roots: dict[fx.Node, fx.Node]
) -> list[fx.Node] | None:
    """The view nodes that lead from source to target, both in one storage; None where target is not
    reached from source by views.
    """
    if source is target:
        return []
    own, other = _chain(source, roots), _chain(target, roots)
    if own is None or other is None or other[: len(own)] != own:
        return None
    return other[len(own) :]


def _chain(node: fx.Node, roots: dict[fx.Node, fx.Node]) -> list[fx.Node] | None:
    """The views from a node's root to it; operators that write in place return what they were
    given.
    """
    steps: list[fx.Node] = []
    root = roots[node]
    while node is not root:
        parents = [n for n in node.all_input_nodes if roots.get(n) is root]
        op = node.target
        if len(set(parents)) != 1 or not isinstance(op, OpOverload):
            return None
        if not written_arguments(op):
            if sum(1 for _ in flat_results(node.meta["val"])) != 1:
                return None
            if _ENTRY not in node.meta:
                steps.append(node)
        elif op._schema.name.startswith("aten::set_") or torch.Tag.inplace_view in op.tags:
            return None
        node = parents[0]
    return steps[::-1]
