"""`uncopy.plan`: a function captured once and bound for direct calls, without Dynamo's time on
each.

Dynamo captures with fullgraph. Its own code then runs once with stand-ins for the graph's results,
which tells the Python structure of what the function returns; nothing of the function's own is run.
Tensors that were not arguments (of a module, a closure, a global) are bound as objects.
"""

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch.utils import _pytree as pytree

from uncopy import _core
from uncopy.backend import Prepared, prepare
from uncopy.errors import CaptureError, StrictError
from uncopy.fallback import check_allowed
from uncopy.options import OPTIONS, Options, resolve
from uncopy.registry import COUNTS
from uncopy.report import PlanReport, reports_of
from uncopy.waiting import inner

__all__ = ["Planned", "explain", "plan"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


class _SideEffect(Exception):  # noqa: N818 - carries words out of Dynamo's call of a backend
    pass


class Trace:
    """One capture by Dynamo: the graph, the tensors it was called with, and what the function
    returns.

    leaves, spec: the function's arguments, flattened. result, result_spec: what it returned,
    flattened, with stand-ins for the graph's results.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.prepared: Prepared | None = None
        self.inputs: tuple[Any, ...] = ()
        self.stand_ins: list[Any] = []
        self.leaves: list[Any] = []
        self.spec: Any = None
        self.result: list[Any] = []
        self.result_spec: Any = None

    def backend(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """The backend of the capture."""
        side_effect = _side_effect()
        self.prepared = prepare(graph, example_inputs, self.options)
        output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")

        def stand_in(*inputs: Any) -> tuple[Any, ...]:
            if side_effect is not None:
                raise _SideEffect(side_effect)
            self.inputs = inputs
            self.stand_ins = [torch.empty(0) if _is_tensor(n) else n for n in output.args[0]]
            return tuple(self.stand_ins)

        return stand_in


def _is_tensor(result: Any) -> bool:
    return isinstance(result, fx.Node) and isinstance(
        result.meta.get("example_value"), torch.Tensor
    )


def _side_effect() -> str | None:
    """What Dynamo would do to Python objects after the graph, None for nothing."""
    effects = InstructionTranslator.current_tx().output.side_effects
    for variable in effects.id_to_variable.values():
        kind = type(getattr(variable, "mutation_type", None)).__name__
        if kind.endswith("Existing") and effects.is_modified(variable):
            return f"it changes {variable.source.name if variable.source else 'an object'}"
    for variable, names in effects.store_attr_mutations.items():
        if type(variable).__name__ == "TensorVariable" and names:
            return f"it sets the attribute {next(iter(names))} of a tensor"
    return "it registers a hook" if effects.tensor_hooks else None


def _plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compile was given, for a compiled function or module."""
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    return getattr(fn, "_orig_mod", fn)


def _where(fn: Callable[..., Any]) -> str:
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    code = getattr(inspect.unwrap(target), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def trace(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
) -> Trace:
    """Captures fn as one graph for these arguments without running it.

    Raises CaptureError, with the line, for a graph break, a side effect on Python objects, or a
    function without tensors.
    """
    found = Trace(options)
    found.leaves, found.spec = pytree.tree_flatten((args, kwargs))
    torch_compiled = torch.compile(fn, backend=found.backend, fullgraph=True, dynamic=False)
    try:
        result = torch_compiled(*args, **kwargs)
    except _SideEffect as effect:
        raise CaptureError(f"{effect} of Python{_where(fn)}; a plan would not") from None
    except torch._dynamo.exc.Unsupported as error:
        frames = getattr(error, "real_stack", None) or []
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else _where(fn)
        words = str(error).splitlines()[0]
        raise CaptureError(f"the function is not one graph{where}: {words}") from error
    if found.prepared is None:
        raise CaptureError(f"the function has no operation on tensors{_where(fn)}")
    found.result, found.result_spec = pytree.tree_flatten(result)
    return found


class Planned:
    """A planned function. Called like the function; returns the same Python structure.

    Not seen by a call: changes of closures, globals and Python values of modules after the capture,
    and modes other than grad mode. A call whose arguments differ in type, dtype, sizes, strides or
    requires_grad, or that needs gradients, goes through torch.compile and counts as a miss;
    `strict={"misses"}` makes it a StrictError.
    """

    def __init__(self, fn: Callable[..., Any], found: Trace) -> None:
        assert found.prepared is not None
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._elsewhere = torch.compile(fn, backend=compiling(found.options), fullgraph=True)
        self._strict = found.options.strict
        self._spec = found.spec
        self._same = _same_objects(found.leaves)
        self._assemble: Callable[[Sequence[Any], Any], Any] | None = None
        tree = self._tree(found) if found.prepared.imported is not None else None
        # The handle keeps the graph known to the registry as long as this object lives.
        self._handle, self._compiled = found.prepared.finish()
        self._bound = self._bind(found, tree) if tree is not None else None
        self._compiled.bound = self._bound
        is_flat = found.spec == pytree.tree_flatten((tuple(found.leaves), {}))[1]
        self._is_direct = is_flat and not self._same and self._assemble is None
        self._direct = self._bound if self._is_direct else None

    def _plan_for(self, found: Trace) -> None:
        """Makes the plan for the captured arguments, which a strict option may refuse."""
        prepared = found.prepared
        assert prepared is not None
        if prepared.fallback is not None:
            check_allowed(self._compiled)
        elif prepared.imported is not None:
            self._compiled.function.plan(*inner(found.inputs), *prepared.imported.held)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises whatever its operations raise."""
        if self._direct is not None and not kwargs:
            return self._direct(*args)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose arguments or results have a structure that the C callable does not see."""
        if self._bound is None:
            return self._elsewhere(*args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._spec or not all(leaves[a] is leaves[b] for a, b in self._same):
            self._compiled.extra["misses"] += 1
            return self._miss(args, kwargs)
        result = self._bound(*leaves)
        if isinstance(result, _Missed):
            return result.value
        return result if self._assemble is None else self._assemble(result, leaves)

    def _bind(self, found: Trace, tree: Any) -> Any:
        """The callable of the arguments' leaves."""
        assert found.prepared is not None
        positions: dict[int, int] = {}
        for number, leaf in enumerate(found.leaves):
            if isinstance(leaf, torch.Tensor):
                positions.setdefault(id(leaf), number)
        sources = [positions.get(id(t), t) for t in found.inputs]
        constants = {
            n: leaf for n, leaf in enumerate(found.leaves) if not isinstance(leaf, torch.Tensor)
        }
        # Weak, for the registry holds the callable, and must not hold this object by it.
        method = weakref.WeakMethod(self._miss_leaves)

        def miss(*leaves: Any) -> Any:
            return method()(*leaves)  # type: ignore[misc]

        if found.options.verify or found.options.dump or found.prepared.waiting:
            return _Slow(weakref.ref(self._handle), sources, found.leaves, tree, miss)
        sources += found.prepared.imported.held if found.prepared.imported is not None else []
        function = self._compiled.function
        return _core.Bound(function, sources, constants, len(found.leaves), tree, miss)

    def _tree(self, found: Trace) -> Any:
        """Where each output goes in what is returned. Adds outputs for arguments and constants that
        are returned too.
        """
        assert found.prepared is not None
        imported = found.prepared.imported
        assert imported is not None
        outputs = {id(t): n for n, t in enumerate(found.stand_ins) if isinstance(t, torch.Tensor)}
        inputs = {id(t): n for n, t in enumerate(found.inputs)}
        arguments = {id(t): n for n, t in enumerate(found.leaves) if isinstance(t, torch.Tensor)}
        leaves: list[Any] = []
        for leaf in found.result:
            if id(leaf) in outputs:
                leaves.append(outputs[id(leaf)])
            elif id(leaf) in inputs:
                leaves.append(imported.add_argument_output(inputs[id(leaf)]))
            elif id(leaf) in arguments:
                leaves.append(_Returned(arguments[id(leaf)]))
            elif isinstance(leaf, (torch.Tensor, *_PLAIN)):
                leaves.append(imported.add_constant_output(leaf))
            else:
                words = f"{self._name} returns a {type(leaf).__name__}, which a plan cannot make"
                raise CaptureError(words)
        tree = _native_tree(found.result_spec, iter(leaves))
        if tree is not None and not any(isinstance(leaf, _Returned) for leaf in leaves):
            return tree
        self._assemble = _assembler(leaves, found.result_spec)
        return ("tuple", [leaf for leaf in leaves if not isinstance(leaf, _Returned)])

    def _miss_leaves(self, *leaves: Any) -> Any:
        """Called by the C callable where the arguments differ from those that were bound."""
        if self._is_direct:
            return self._miss(leaves, {})
        args, kwargs = pytree.tree_unflatten(list(leaves), self._spec)
        return _Missed(self._miss(args, kwargs))

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if "misses" in self._strict:
            raise StrictError(f"{self._name}: arguments differ from those that were planned for")
        return self._elsewhere(*args, **kwargs)

    @property
    def plans(self) -> list[PlanReport]:
        """The plans made so far, oldest first."""
        return reports_of(self._compiled)

    def explain(self) -> str:
        """The plans in words, with options and notes."""
        return "\n".join(report.explain() for report in self.plans)

    def stats(self) -> dict[str, int]:
        """Counts of direct calls, and of misses."""
        counts = self._compiled.counts()
        return {name: counts[name] for name in COUNTS}


class _Missed:
    """What a missed call returned, in its own structure."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Returned:
    """An argument, by number, that is returned and that the graph does not touch."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Slow:
    """Stands in for _core.Bound where a call must go through Python, as with verify and dump."""

    def __init__(
        self,
        run: "weakref.ref[Callable[..., Any]]",
        sources: Sequence[Any],
        leaves: Sequence[Any],
        tree: Any,
        miss: Callable[..., Any],
    ) -> None:
        self._run, self._sources, self._tree, self._miss = run, sources, tree, miss
        self._expected = [_signature(leaf) for leaf in leaves]
        self.calls = self.misses = 0

    def __call__(self, *leaves: Any) -> Any:
        self.calls += 1
        if [_signature(leaf) for leaf in leaves] != self._expected:
            self.misses += 1
            return self._miss(*leaves)
        run = self._run()
        assert run is not None, "the planned function lives while it is called"
        results = run(*(leaves[s] if type(s) is int else s for s in self._sources))
        return _laid_out(self._tree, results)


def _signature(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    needs_grad = leaf.requires_grad and torch.is_grad_enabled()
    return type(leaf), leaf.dtype, leaf.shape, leaf.stride(), needs_grad


def _laid_out(tree: Any, results: Sequence[Any]) -> Any:
    if isinstance(tree, int):
        return results[tree]
    kind, parts = tree
    if kind == "dict":
        return {key: _laid_out(part, results) for key, part in parts.items()}
    made = [_laid_out(part, results) for part in parts]
    return made if kind == "list" else tuple(made)


def _native_tree(spec: Any, leaves: Iterator[Any]) -> Any:
    """A spec of tuples, lists and dicts as the C extension takes it; None for any other."""
    if spec.is_leaf():
        return next(leaves)
    names = {tuple: "tuple", list: "list", dict: "dict"}
    if spec.type not in names:
        return None
    parts = [_native_tree(child, leaves) for child in spec.children()]
    if any(part is None for part in parts):
        return None
    if spec.type is dict:
        return ("dict", dict(zip(spec.context, parts, strict=True)))
    return (names[spec.type], parts)


def _assembler(leaves: Sequence[Any], spec: Any) -> Callable[[Sequence[Any], Any], Any]:
    """Puts a flat tuple of outputs, and arguments returned, into the structure of a spec."""

    def assemble(outputs: Sequence[Any], arguments: Sequence[Any]) -> Any:
        made = iter(outputs)
        flat = [arguments[p.number] if isinstance(p, _Returned) else next(made) for p in leaves]
        return pytree.tree_unflatten(flat, spec)

    return assemble


def _same_objects(leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of arguments that are one tensor object: the capture knows them as one."""
    first: dict[int, int] = {}
    pairs = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and first.setdefault(id(leaf), number) != number:
            pairs.append((first[id(leaf)], number))
    return pairs


def compiling(options: Options) -> Callable[..., Any]:
    """A backend with options that are resolved already."""

    def uncopy_backend(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return prepare(graph, example_inputs, options).finish()[0]

    return uncopy_backend


def split_options(
    fn: Callable[..., Any], kwargs: Mapping[str, Any]
) -> tuple[Options, dict[str, Any]]:
    """Options among keyword arguments, and the rest. A parameter of fn's own keeps its name.

    Raises ValueError, TypeError as options.resolve does.
    """
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        own = set(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        own = set()
    ours = {name: value for name, value in kwargs.items() if name in OPTIONS and name not in own}
    rest = {name: value for name, value in kwargs.items() if name not in ours}
    return resolve(arguments=ours), rest


def plan(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Planned:
    """Captures fn once for these arguments and returns a Planned that is called like it. fn is not
    run.

    Keyword arguments named as an option (see `uncopy.info()["options"]`) that are no parameters of
    fn's are options. Tensors reached through a module, closure or global are bound as objects,
    their addresses read on each call; other Python values are frozen.

    Raises CaptureError, with the line, for a graph break or a side effect on Python objects;
    StrictError where the options forbid what the plan holds; ValueError and TypeError for options.
    """
    fn = _plain_function(fn)
    options, kwargs = split_options(fn, kwargs)
    found = trace(fn, args, kwargs, options)
    planned = Planned(fn, found)
    planned._plan_for(found)
    return planned


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What a call of fn with these arguments would do, in words; fn is not run, nothing is written.

    Which arguments share memory, each copy that stays and why, each operation that the host runs,
    the order, each fallback with its reason; options with where they come from, and what has no
    effect. Takes options as `plan` does.

    Raises as `plan` does; StrictError where the options forbid the plan.
    """
    fn = _plain_function(fn)
    options, kwargs = split_options(fn, kwargs)
    found = trace(fn, args, kwargs, options)
    assert found.prepared is not None
    handle, compiled = found.prepared.finish()
    if compiled.function is not None and found.prepared.imported is not None:
        compiled.function.plan(*inner(found.inputs), *found.prepared.imported.held)
    words = "\n".join(report.explain() for report in reports_of(compiled))
    del handle
    return words
