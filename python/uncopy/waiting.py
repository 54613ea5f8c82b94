"""Arguments that are results of a functional collective nobody has waited for yet.

PyTorch hands them out as `AsyncCollectiveTensor`, which waits when it is first used. A planned
graph takes the tensor inside and waits for it before each call.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from uncopy.fallback import Reason, Unplannable

__all__ = ["WaitingCall", "check_results", "find_waiting", "inner"]

try:
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
except ImportError:  # a build without torch.distributed
    AsyncCollectiveTensor = None


def _is_waiting(value: Any) -> bool:
    return AsyncCollectiveTensor is not None and type(value) is AsyncCollectiveTensor


def find_waiting(example_inputs: Sequence[Any]) -> list[int]:
    """Which of a graph's arguments are such results."""
    return [n for n, value in enumerate(example_inputs) if _is_waiting(value)]


def inner(example_inputs: Sequence[Any]) -> list[Any]:
    """The arguments as a planned graph takes them."""
    return [value.trigger_wait() if _is_waiting(value) else value for value in example_inputs]


def check_results(graph: fx.GraphModule) -> None:
    """Raises Unplannable where eager's result would be such a tensor: a view of an argument that
    is one.
    """
    for node in graph.graph.find_nodes(op="output"):
        for result in node.all_input_nodes:
            if _is_waiting(result.meta.get("example_value")):
                words = "a result is a view of an AsyncCollectiveTensor"
                raise Unplannable(Reason.SUBCLASS, words, result)


class WaitingCall:
    """A planned graph that waits for some of its arguments first."""

    def __init__(self, run: Callable[..., Any], waiting: Sequence[int]) -> None:
        self._run = run
        self._waiting = tuple(waiting)

    def __call__(self, *args: Any) -> Any:
        """Raises what the wait raises, and what the graph raises."""
        taken = list(args)
        for n in self._waiting:
            if _is_waiting(taken[n]):
                taken[n] = taken[n].trigger_wait()
        return self._run(*taken)
