"""Writes captured graphs for people: as a Python file that runs, or as text; the plan beside it.

One file a graph: `uncopy_<graph>_rank<r>_<pid>.py` or `.txt` in the folder of `dump_path`. It is
written when the graph is first called, when there is a plan, and again when there is a new one.
"""

import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from uncopy.capture import Capture
from uncopy.importer import Imported
from uncopy.registry import Compiled
from uncopy.source import source_of

__all__ = ["Dumped", "python_text"]


class Dumped:
    """Runs a graph's function and keeps its file up to date."""

    def __init__(
        self, run: Callable[..., Any], captured: Capture, imported: Imported, compiled: Compiled
    ) -> None:
        self._run = run
        self._captured = captured
        self._imported = imported
        self._compiled = compiled
        self._num_plans = -1

    def __call__(self, *args: torch.Tensor) -> Any:
        """The results of the function."""
        results = self._run(*args)
        num_plans = len(self._compiled.function.plans())
        if num_plans != self._num_plans:
            self._num_plans = num_plans
            self._write()
        return results

    def _write(self) -> None:
        options = self._compiled.options
        folder = Path(options.dump_path)
        folder.mkdir(parents=True, exist_ok=True)
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        path = folder / f"uncopy_{self._compiled.name}_rank{rank}_{os.getpid()}.{options.dump}"
        plans = [plan.text() for plan in self._compiled.function.plans()]
        if options.dump == "py":
            path.write_text(python_text(self._captured, self._compiled.name, plans))
        else:
            path.write_text("\n".join([self._imported.program.text(), *plans]))


def python_text(captured: Capture, name: str, plans: list[str]) -> str:
    """A Python module with a function `run` of the graph's inputs, its source lines and plans as
    comments.
    """
    graph = captured.graph.graph
    arguments = [n for n in graph.nodes if n.op == "placeholder"]
    lines = [f'"""Graph {name} as captured: ATen operators in the order of the program."""', ""]
    if any(_is_builtin(n.target) for n in graph.nodes):
        lines += ["import operator"]
    lines += ["import torch", "from torch import device, inf, nan  # noqa: F401", ""]
    if any("_c10d_functional" in str(n.target) for n in graph.nodes):
        lines += ["import torch.distributed._functional_collectives  # noqa: F401", ""]
    if any(str(n.target).startswith("uncopy.") for n in graph.nodes):
        lines += ["import uncopy.operators  # noqa: F401", ""]
    lines += _constants(captured.graph)
    lines += ["", f"def run({', '.join(n.name for n in arguments)}):"]
    lines += [
        f"    # {n.name}: {known}  {_layout(n)}"
        for n, known in zip(arguments, captured.names, strict=True)
    ]
    lines += [f"    {line}" for n in graph.nodes for line in _statement(n)]
    lines += ["", "", "def example_inputs():"]
    lines += [f"    return ({''.join(_example(n) + ', ' for n in arguments)})", "", ""]
    lines += [
        'if __name__ == "__main__":',
        "    with torch.no_grad():",
        "        print(run(*example_inputs()))",
        "",
    ]
    for plan in plans:
        lines += [f"# {line}".rstrip() for line in plan.splitlines()] + ["#"]
    return "\n".join(lines) + "\n"


def _constants(module: fx.GraphModule) -> list[str]:
    lines = []
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = getattr(module, node.target)
            dtype = value.dtype
            lines.append(f"{node.name} = torch.tensor({value.tolist()!r}, dtype={dtype})")
    return lines


def _statement(node: fx.Node) -> list[str]:
    if node.op == "output":
        return [f"return {_words(node.args[0])}"]
    if node.op != "call_function":
        return []
    target = node.target
    if target is operator.getitem:
        return [f"{node.name} = {_words(node.args[0])}[{node.args[1]!r}]"]
    name = f"torch.ops.{target}"
    if not isinstance(target, torch._ops.OpOverload):  # computes with sizes
        name = f"{'operator' if _is_builtin(target) else 'torch'}.{target.__name__}"
    words = [_words(a) for a in node.args]
    words += [f"{k}={_words(v)}" for k, v in node.kwargs.items()]
    source = source_of(node)
    comment = f"  # {source}: {source.code}" if source else ""
    return [f"{node.name} = {name}({', '.join(words)}){comment}"]


def _is_builtin(target: Any) -> bool:
    return target is not operator.getitem and target is getattr(
        operator, getattr(target, "__name__", ""), None
    )


def _words(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple):
        return "(" + "".join(_words(v) + ", " for v in value) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_words(v) for v in value) + "]"
    return repr(value)


def _layout(node: fx.Node) -> str:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return f"the number {value}"
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"


def _example(node: fx.Node) -> str:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return repr(_seen(value))
    sizes, strides = tuple(map(_seen, value.shape)), tuple(map(_seen, value.stride()))
    return f"torch.empty_strided({sizes}, {strides}, dtype={value.dtype}).fill_(1)"


def _seen(size: Any) -> int:
    """A size as it was when the graph was captured; 2 for one that depends on data."""
    if type(size) is int:
        return size
    return size.node.hint if size.node.has_hint() else 2
