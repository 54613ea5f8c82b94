"""The backend of torch.compile: capture, import, a function of the C extension; or a fallback.

What Dynamo gets back is a `functools.partial` around the function and nothing else: it runs without
Python code, and it can be held weakly, so that the registry sees when Dynamo drops it.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from uncopy import _core
from uncopy.capture import Capture, capture, held_tensors, run_as_eager
from uncopy.dump import Dumped
from uncopy.fallback import Fallback, Reason, Unplannable, check_plannable, needs_gradients
from uncopy.importer import Imported, import_graph
from uncopy.logs import LOG
from uncopy.options import Options, resolve
from uncopy.playback import Player
from uncopy.registry import Compiled, FallbackFacts, register
from uncopy.training import SizedTraining, Training, trace_training
from uncopy.verify import Verified
from uncopy.waiting import WaitingCall, check_results, find_waiting, inner

__all__ = ["Prepared", "backend", "make_backend", "prepare"]

_numbers = itertools.count()

Handle = Callable[..., Any]
Backend = Callable[[fx.GraphModule, Sequence[Any]], Handle]


def backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Handle:
    """`torch.compile(backend="uncopy", options=...)`. mode takes only "default".

    An option that is unknown or has a wrong type raises ValueError or TypeError at the first call.
    """
    try:
        if mode not in (None, "default"):
            raise ValueError(f'backend "uncopy" takes no mode {mode!r}, only options')
        resolved = resolve(options=options)
    except (TypeError, ValueError) as error:
        return _Refusal(error)
    return compile_graph(graph, example_inputs, resolved)


def make_backend(options: Mapping[str, Any], notes: Sequence[str] = ()) -> Backend:
    """A backend with options set beforehand, as a call's arguments; notes are shown by explain.

    Raises ValueError for an unknown option or value, TypeError for a wrong type.
    """
    resolved = resolve(arguments=options, notes=notes)

    def uncopy_backend(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Handle:
        return compile_graph(graph, example_inputs, resolved)

    return uncopy_backend


class _Refusal:
    """Raises an error on each call: one raised inside a backend would reach the caller as another
    type.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, *args: Any) -> Any:
        raise self._error.with_traceback(None)


def compile_graph(graph: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Handle:
    """The handle that runs Dynamo's graph. Must be called inside Dynamo's call of a backend."""
    return prepare(graph, example_inputs, options).finish()[0]


@dataclass
class Prepared:
    """A graph on its way: captured and imported, or with what stands against it. `finish` makes
    what runs it.
    """

    name: str
    options: Options
    run: Handle  # as Dynamo made it
    captured: Capture | None = None
    imported: Imported | None = None
    player: Player | None = None
    fallback: FallbackFacts | None = None
    training: Training | SizedTraining | None = None
    waiting: Sequence[int] = ()  # arguments to wait for before a call

    def finish(self) -> tuple[Handle, Compiled]:
        """The handle that runs the graph, registered, and what is known of it."""
        if self.training is not None:
            compiled = getattr(self.training, "compiled", None)
            return functools.partial(self.training), compiled or Compiled(self.name, self.options)
        if self.imported is None or self.captured is None:
            compiled = Compiled(self.name, self.options, fallback=self.fallback)
            return self._registered(Fallback(self.run, compiled), compiled)
        imported = self.imported
        # Verification records what collectives give, which it sees where they go through recipes.
        uses_engine = self.player is None and self.options.kernels != "extern"
        function = _core.Function(
            imported.program, self.options.core(), imported.recipes, imported.outputs, uses_engine
        )
        compiled = Compiled(self.name, self.options, function=function)
        run: Handle = function
        if imported.held:
            run = _with_held(function, imported)
        if self.player is not None:
            run = Verified(run, self.captured, imported, compiled, self.player)
        if self.options.dump:
            run = Dumped(run, self.captured, imported, compiled)
        if self.waiting:
            run = WaitingCall(run, self.waiting)
        return self._registered(run, compiled)

    @staticmethod
    def _registered(run: Handle, compiled: Compiled) -> tuple[Handle, Compiled]:
        handle = functools.partial(run)
        register(handle, compiled)
        return handle, compiled


def prepare(graph: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Prepared:
    """Captures and imports Dynamo's graph. Must be called inside Dynamo's call of a backend."""
    prepared = Prepared(f"graph{next(_numbers)}", options, run_as_eager(graph))
    waiting = find_waiting(example_inputs)
    try:
        if waiting:
            check_results(graph)
            example_inputs = inner(example_inputs)
        check_plannable(graph, example_inputs, list(held_tensors(graph).values()))
        if waiting and needs_gradients(graph):
            raise Unplannable(
                Reason.SUBCLASS, "an AsyncCollectiveTensor where gradients are needed"
            )
        if needs_gradients(graph):
            prepared.training = _training(graph, example_inputs, prepared)
        if prepared.training is None:
            _import(_captured(capture, graph, example_inputs), prepared)
            prepared.waiting = waiting
    except Unplannable as problem:
        prepared.fallback = FallbackFacts(problem.reason.value, problem.words, problem.source)
        LOG.debug("graph %s is not planned, %s", prepared.name, prepared.fallback)
    except Exception as error:
        # A fault of ours must not become one of the program's: it still has eager's result.
        words = f"a fault in Uncopy: {type(error).__name__}: {error}"
        prepared.fallback = FallbackFacts(Reason.INTERNAL.value, words, None)
        LOG.warning("graph %s is not planned, %s", prepared.name, words, exc_info=True)
    return prepared


def _import(captured: Capture, prepared: Prepared) -> None:
    player = Player() if prepared.options.verify else None
    imported = import_graph(captured, prepared.name, player.wrap if player else None)
    prepared.captured, prepared.imported, prepared.player = captured, imported, player
    LOG.debug("graph %s: %d recipes", prepared.name, len(imported.recipes))


def _training(
    graph: fx.GraphModule, example_inputs: Sequence[Any], prepared: Prepared
) -> Training | SizedTraining | None:
    """What runs a graph with gradients; None if no result of it needs them."""
    options = prepared.options
    fake_mode = torch._guards.TracingContext.get().fake_mode

    def make(name: str, captured: Capture) -> tuple[Handle, Compiled]:
        part = Prepared(name, options, captured.graph.forward)
        _import(captured, part)
        return part.finish()

    def make_fallback(name: str, run: Handle, facts: FallbackFacts) -> tuple[Handle, Compiled]:
        return Prepared(name, options, run, fallback=facts).finish()

    def trace(graph: fx.GraphModule, inputs: Sequence[Any], name: str) -> Training | None:
        return trace_training(graph, inputs, name, fake_mode, make, make_fallback)

    def trace_sizes(graph: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Handle:
        name = f"graph{next(_numbers)}"
        try:
            found = _captured(lambda g, i: trace(g, i, name), graph, inputs)
            if found is not None:
                return found
            facts = FallbackFacts(Reason.SYMBOLIC.value, "no result needs its gradient", None)
        except Unplannable as problem:
            facts = FallbackFacts(problem.reason.value, problem.words, problem.source)
        return make_fallback(name, run_as_eager(graph), facts)[0]

    def fall_back(facts: FallbackFacts) -> Handle:
        return make_fallback(prepared.name, prepared.run, facts)[0]

    if not _is_static(graph):
        return SizedTraining(graph, trace_sizes, fall_back)
    return _captured(lambda g, i: trace(g, i, prepared.name), graph, example_inputs)


def _is_static(graph: fx.GraphModule) -> bool:
    """Whether all arguments of Dynamo's graph are tensors of sizes that do not change."""
    values = [n.meta.get("example_value") for n in graph.graph.nodes if n.op == "placeholder"]
    return all(
        isinstance(v, torch.Tensor) and all(type(n) is int for n in (*v.shape, *v.stride()))
        for v in values
    )


def _captured(
    how: Callable[[fx.GraphModule, Sequence[Any]], Any],
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
) -> Any:
    try:
        return how(graph, example_inputs)
    except Unplannable:
        raise
    except Exception as error:
        # The graph itself raises for such inputs, or the capture cannot follow it: eager's result
        # is that of running it.
        words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        LOG.debug("graph is not captured: %s", words, exc_info=True)
        raise Unplannable(Reason.CAPTURE, words) from error


def _with_held(function: Any, imported: Imported) -> Handle:
    """The function with the tensors that the graph holds as its last arguments."""
    count = imported.num_arguments
    sources = [*range(count), *imported.held]
    tree = ("tuple", list(range(len(imported.outputs))))

    def miss(*tensors: torch.Tensor) -> Any:
        return function(*tensors, *imported.held)

    return _core.Bound(function, sources, {}, count, tree, miss)
