"""When a graph is not planned, and why: the reasons, the checks before a capture, and the call that
runs it instead.

A graph that falls back runs as Dynamo made it, which is eager's result with eager's effects and
errors. Each such call is counted with its reason.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from uncopy.errors import StrictError
from uncopy.logs import LOG
from uncopy.registry import Compiled
from uncopy.source import SourceLine, source_of

__all__ = [
    "Fallback",
    "Reason",
    "Unplannable",
    "check_allowed",
    "check_plannable",
    "needs_gradients",
]


class Reason(enum.Enum):
    """Why a graph is not planned. The value is the code that stats, explain and messages show."""

    GRADIENT = "gradient"
    SYMBOLIC = "symbolic-sizes"
    DATA_DEPENDENT = "data-dependent"
    HIGHER_ORDER = "higher-order"
    SUBCLASS = "tensor-subclass"
    DEVICE = "device"
    LAYOUT = "layout"
    CONJUGATE = "conjugate-view"
    DTYPE = "dtype"
    RANK = "rank"
    DATA_SWAP = "data-swap"
    RESIZE = "resize"
    RANGE = "out-of-range"
    SHAPE = "shape"
    ALIAS = "unknown-alias"
    CAPTURE = "capture"
    PROGRAM = "program"
    INTERNAL = "internal"


class Unplannable(Exception):  # noqa: N818 - no error of the user's, and never leaves the package
    """A graph that no plan can hold. words say what was found; node, if known, where."""

    def __init__(self, reason: Reason, words: str, node: fx.Node | None = None) -> None:
        super().__init__(words)
        self.reason = reason
        self.words = words
        self.node = node

    @property
    def source(self) -> SourceLine | None:
        """The line of the user's program, where it is known."""
        return source_of(self.node) if self.node is not None else None

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.reason.value}: {self.words}{where}"


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def check_plannable(
    module: fx.GraphModule, example_inputs: Sequence[Any], held: Sequence[torch.Tensor]
) -> None:
    """Raises Unplannable for what can be told from Dynamo's graph and its inputs alone.

    held: tensors that the graph holds itself.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if isinstance(value, torch.Tensor):
            _check_tensor(value, node)
        elif not isinstance(value, (int, torch.SymInt)):
            raise Unplannable(Reason.SYMBOLIC, f"a number that may change: {value}", node)
    for tensor in held:
        _check_tensor(tensor, None)


def _check_tensor(tensor: torch.Tensor, node: fx.Node | None) -> None:
    if type(tensor) not in _PLAIN_TYPES:
        raise Unplannable(Reason.SUBCLASS, f"an argument of type {type(tensor).__name__}", node)
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise Unplannable(Reason.LAYOUT, f"an argument of layout {tensor.layout}", node)
    if tensor.device.type != "cpu":
        raise Unplannable(Reason.DEVICE, f"an argument on {tensor.device}", node)
    if tensor.is_conj() or tensor.is_neg():
        raise Unplannable(
            Reason.CONJUGATE, "an argument that is a conjugate or negative view", node
        )


def needs_gradients(module: fx.GraphModule) -> bool:
    """Whether, run under the present grad mode, an operation's result would require a gradient."""
    is_grad_on = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    inference: list[bool] = []
    for node in module.graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            is_grad_on = bool(node.args[0])
        elif node.target is torch.autograd.grad_mode._enter_inference_mode:
            inference.append(bool(node.args[0]))
        elif node.target is torch.autograd.grad_mode._exit_inference_mode:
            inference.pop()
        elif is_grad_on and not any(inference) and _makes_gradient(node):
            return True
    return False


def _makes_gradient(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method", "call_module"):
        return False
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("example_value"))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def check_allowed(compiled: Compiled) -> None:
    """Raises StrictError for a graph that is not planned where the options forbid it."""
    if "fallbacks" in compiled.options.strict:
        raise StrictError(f"graph {compiled.name} is not planned, {compiled.fallback}")


class Fallback:
    """Runs a graph as Dynamo made it and counts each call. Raises StrictError before it runs where
    that is asked for.
    """

    def __init__(self, run: Callable[..., Any], compiled: Compiled) -> None:
        self._run = run
        self._compiled = compiled
        self._has_logged = False

    def __call__(self, *args: Any) -> Any:
        """The graph's results for these arguments."""
        check_allowed(self._compiled)
        if not self._has_logged:
            self._has_logged = True
            LOG.info(
                "graph %s is not planned and runs as eager does, %s",
                self._compiled.name,
                self._compiled.fallback,
            )
        self._compiled.extra.update(calls=1, fallbacks=1)
        return self._run(*args)
