"""Capture for inference: from the graph that Dynamo hands over to one of ATen operators, as the
program was written.

Nothing is made functional and nothing is decomposed: in-place operations, out= forms, views and
collectives stay as they are, and each node keeps its source line. The example inputs are made fake
in Dynamo's own fake mode with their symbolic contexts, so a capture reads no data, draws no random
number and adds no guard. Tensors that the graph holds itself (parameters of a compiled optimizer)
become further arguments: their addresses are read on each call.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from uncopy.checkpoints import CHECKPOINT, has_checkpoints, run_checkpoint

__all__ = [
    "Capture",
    "ResultFacts",
    "RunWithHeldTensors",
    "capture",
    "held_tensors",
    "readable",
    "run_as_eager",
]


@dataclass(frozen=True)
class ResultFacts:
    """Autograd metadata that eager gives a result under the grad mode of the capture."""

    requires_grad: bool = False
    is_view: bool = False


@dataclass(frozen=True)
class Capture:
    """A captured graph.

    graph: of ATen operators; its placeholders are those of Dynamo's graph, then one for each tensor
    in `held`. names: a readable name for each placeholder. held: tensors that Dynamo's graph held
    itself, in placeholder order. results: facts of each element of the graph's output. is_symbolic:
    whether sizes are known at a call only, as expressions of symbols of shape_env.
    """

    graph: fx.GraphModule
    names: list[str]
    held: list[torch.Tensor]
    results: list[ResultFacts]
    inference: frozenset[int] = frozenset()
    shape_env: ShapeEnv | None = None
    is_symbolic: bool = False


class RunWithHeldTensors(fx.Interpreter):
    """Runs Dynamo's graph with given stand-ins for the tensors that it holds, and its checkpoints
    with their random state.
    """

    def __init__(self, module: fx.GraphModule, stand_ins: dict[str, torch.Tensor]) -> None:
        super().__init__(module)
        self.stand_ins = stand_ins

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        stand_in = self.stand_ins.get(target)
        return super().get_attr(target, args, kwargs) if stand_in is None else stand_in

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is CHECKPOINT:
            return run_checkpoint(_Plain, args[0], args[1:], kwargs)
        return super().call_function(target, args, kwargs)


class _Plain(RunWithHeldTensors):
    """The same for a region, which holds no tensors."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, {})


def run_as_eager(module: fx.GraphModule) -> Callable[..., Any]:
    """What runs a graph of Dynamo's as eager does."""
    if has_checkpoints(module):
        return lambda *args: _Plain(module).run(*args)
    return module.forward


def _attribute(module: fx.GraphModule, target: str) -> Any:
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def held_tensors(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The real tensors among a graph's attributes, by target, in order of use. One tensor under two
    names is one.
    """
    found: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target not in found:
            value = _attribute(module, node.target)
            if isinstance(value, torch.Tensor):
                found[node.target] = value
    return found


def _fake(value: Any, context: torch._guards.TracingContext) -> Any:
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    symbolic = context.tensor_to_context.get(value)
    source = symbolic.tensor_source if symbolic is not None else None
    return context.fake_mode.from_tensor(value, symbolic_context=symbolic, source=source)


def _has_symbols(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return not all(type(n) is int for n in (*value.shape, *value.stride(), value.storage_offset()))


def readable(name: str) -> str:
    """A name for an argument: "L_w_buffer_" becomes "w_buffer"."""
    words = "".join(c if c.isalnum() else "_" for c in name.removeprefix("L_").removeprefix("G_"))
    words = "_".join(filter(None, words.split("_")))[-100:].lstrip("_")
    return words if words and not words[0].isdigit() else f"a_{words}"


def _result_facts(module: fx.GraphModule) -> list[ResultFacts]:
    """Facts of the results, of Dynamo's graph: the captured one loses which views are detached."""
    output = next(n for n in reversed(module.graph.nodes) if n.op == "output")
    facts = []
    for element in output.args[0]:
        value = element.meta.get("example_value") if isinstance(element, fx.Node) else None
        if isinstance(value, torch.Tensor):
            facts.append(ResultFacts(value.requires_grad, value._is_view()))
        else:
            facts.append(ResultFacts())
    return facts


def capture(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Capture:
    """Captures Dynamo's graph for these inputs, real tensors as Dynamo gives them to a backend.

    Must be called inside Dynamo's call of a backend. Raises whatever the graph itself raises for
    such inputs.
    """
    context = torch._guards.TracingContext.get()
    held = held_tensors(module)
    distinct = list({id(t): t for t in held.values()}.values())
    fakes = [_fake(value, context) for value in (*example_inputs, *distinct)]
    fake_of = {id(t): n for n, t in enumerate(distinct, len(example_inputs))}

    def run(*values: Any) -> Any:
        stand_ins = {target: values[fake_of[id(t)]] for target, t in held.items()}
        return RunWithHeldTensors(module, stand_ins).run(*values[: len(example_inputs)])

    is_symbolic = any(map(_has_symbols, fakes))
    # Kernels of composite operators ask for sizes as numbers; their Python forms do not.
    dispatcher = enable_python_dispatcher() if is_symbolic else contextlib.nullcontext()
    with torch.no_grad(), dispatcher, context.fake_mode, fx.traceback.preserve_node_meta():
        graph = make_fx(run, tracing_mode="real", pre_dispatch=False, _allow_non_fake_inputs=True)(
            *fakes
        )
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    first_name = {id(t): target for target, t in reversed(held.items())}
    names = [readable(str(n.target)) for n in placeholders]
    names += [readable(first_name[id(t)]) for t in distinct]
    tensors = (*example_inputs, *distinct)
    inference = frozenset(
        n for n, t in enumerate(tensors) if isinstance(t, torch.Tensor) and t.is_inference()
    )
    env = context.fake_mode.shape_env
    facts = _result_facts(module)
    return Capture(graph, names, distinct, facts, inference, env, is_symbolic)
