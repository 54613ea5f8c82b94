"""Checked runs: the first n calls of each plan are run a second time by PyTorch, on a snapshot, and
compared.

The snapshot keeps every alias: storages whose byte ranges touch become one block. Collectives and
unaudited operators are played back (playback.py), the random state of the start is restored, so a
checked call has the effects of one call. Compared are sizes, strides, dtypes, values, which tensors
share memory at what distance, and which arguments were written.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from uncopy import _core
from uncopy.capture import Capture
from uncopy.errors import VerifyError
from uncopy.importer import Imported, import_graph
from uncopy.logs import LOG
from uncopy.playback import Player, is_recorded
from uncopy.registry import Compiled
from uncopy.source import source_of

__all__ = ["Snapshot", "Verified"]

# Largest relative error by dtype; what is not floating must be equal.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}


class Snapshot:
    """Copies of tensors and of all bytes of their storages, with every alias between them kept.
    Integers among the tensors stay as they are.

    Raises ValueError for tensors whose distance in a block of several storages is no whole number
    of elements.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors: list[Any] = list(tensors)
        self.has_shared_blocks = False
        for start, members in _blocks(tensors):
            self._copy_block(start, members, tensors)

    def _copy_block(self, start: int, members: list[int], tensors: Sequence[torch.Tensor]) -> None:
        storages = {
            t.untyped_storage().data_ptr(): t.untyped_storage()
            for t in (tensors[m] for m in members)
        }
        self.has_shared_blocks |= len(storages) > 1
        size = max(at + s.nbytes() for at, s in storages.items()) - start
        block = torch.empty(size, dtype=torch.uint8)
        for at, storage in storages.items():
            source = torch.empty(0, dtype=torch.uint8).set_(storage)
            block[at - start : at - start + storage.nbytes()].copy_(source)
        for member in members:
            tensor = tensors[member]
            offset, rest = divmod(tensor.data_ptr() - start, tensor.element_size())
            if rest and tensor.numel():
                raise ValueError("tensors that share memory at a distance of no whole elements")
            empty = torch.empty(0, dtype=tensor.dtype)
            self.tensors[member] = empty.set_(
                block.untyped_storage(),
                offset if tensor.numel() else 0,
                tensor.shape,
                tensor.stride(),
            )


def _blocks(tensors: Sequence[torch.Tensor]) -> list[tuple[int, list[int]]]:
    """Tensors whose storages touch, in groups, each with the address of its first byte."""
    ranges = []
    for number, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            continue
        storage = tensor.untyped_storage()
        ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), number))
    groups: list[tuple[int, list[int]]] = []
    reach = -1
    for start, end, number in sorted(ranges):
        if groups and start < reach:
            groups[-1][1].append(number)
        else:
            groups.append((start, [number]))
        reach = max(reach, end) if groups[-1][1] != [number] else end
    return groups


class _Replay(fx.Interpreter):
    """Runs a captured graph eagerly, with collectives and unaudited operators from tape."""

    def __init__(self, graph: fx.GraphModule, player: Player) -> None:
        super().__init__(graph)
        self.player = player

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function" or not is_recorded(n.target):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        arrived = self.player.arrived(n)
        if n.target.namespace == "_c10d_functional" and arrived is not None:
            return self._collective(n, args, kwargs, arrived)
        return self.player.run(n, n.target, args, kwargs)

    @staticmethod
    def _collective(n: fx.Node, args: Any, kwargs: Any, arrived: torch.Tensor) -> Any:
        if "out" in kwargs:
            return kwargs["out"].copy_(arrived)
        if n.target._schema.name.endswith("_"):
            return args[0].copy_(arrived)
        return arrived.clone()


class Verified:
    """Runs a graph's function and checks the first calls of each of its plans against eager."""

    def __init__(
        self,
        run: Callable[..., Any],
        captured: Capture,
        imported: Imported,
        compiled: Compiled,
        player: Player,
    ) -> None:
        self.run = run
        self.captured = captured
        self.held = imported.held
        self.compiled = compiled
        self.player = player
        self._checked: Counter[int] = Counter()

    def __call__(self, *args: torch.Tensor) -> Any:
        """The results. Raises VerifyError naming the first operation whose result differs."""
        plan = self.compiled.function.plan(*args, *self.held)
        key = hash(plan.text())
        if self._checked[key] >= self.compiled.options.verify:
            return self.run(*args)
        self._checked[key] += 1
        return self._check(args)

    def _check(self, args: Sequence[torch.Tensor]) -> Any:
        everything = (*args, *self.held)
        try:
            pristine = Snapshot(everything)
        except ValueError as error:
            LOG.warning("graph %s: a call is not checked: %s", self.compiled.name, error)
            return self.run(*args)
        if pristine.has_shared_blocks and self._has_absolute_views():
            LOG.warning("graph %s: a call is not checked: storages overlap", self.compiled.name)
            return self.run(*args)
        versions = [_version(t) for t in everything]
        before = torch.get_rng_state()
        self.player.mode = "record"
        try:
            results = self.run(*args)
            is_written = [_version(t) != v for t, v in zip(everything, versions, strict=True)]
            after = torch.get_rng_state()
            self.player.mode = "play"
            found = self._compare_run(everything, results, is_written, pristine, before, after)
            if found is not None:
                raise VerifyError(self._words(found, pristine, before))
            torch.set_rng_state(after)
        finally:
            self.player.clear()
        return results

    def _compare_run(
        self,
        everything: Sequence[torch.Tensor],
        results: Sequence[Any],
        is_written: list[bool],
        pristine: Snapshot,
        before: torch.Tensor,
        after: torch.Tensor,
    ) -> str | None:
        """What differs between a run and eager's, None for nothing."""
        inputs = Snapshot(pristine.tensors).tensors
        torch.set_rng_state(before)
        versions = [_version(t) for t in inputs]
        with torch.no_grad():
            expected = _Replay(self._graph, self.player).run(*self._placeholders(inputs))
        # A planned function returns arguments and constants besides, after the graph's own results.
        found = _compare(everything, results[: len(expected)], inputs, expected)
        if found is None and not torch.equal(after, torch.get_rng_state()):
            found = "the state of the random numbers after the call"
        if found is None:
            expected_writes = [_version(t) != v for t, v in zip(inputs, versions, strict=True)]
            found = self._compare_versions(everything, is_written, expected_writes)
        return found

    def _compare_versions(
        self, everything: Sequence[torch.Tensor], ours: list[bool], eagers: list[bool]
    ) -> str | None:
        """Arguments whose version counter eager increases, and it was not. One more may share the
        counter of another.
        """
        for number, tensor in enumerate(everything):
            shares = [_distance(tensor, other) is not None for other in everything]
            may_change = any(e and s for e, s in zip(eagers, shares, strict=True))
            if (eagers[number] and not ours[number]) or (ours[number] and not may_change):
                return f"whether the version of argument {self._argument_name(number)} changed"
        return None

    @property
    def _graph(self) -> fx.GraphModule:
        return self.captured.graph

    def _placeholders(self, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Inputs of the captured graph: tensors that the capture made itself are not among them."""
        return inputs[: len(self.captured.names)]

    def _argument_name(self, number: int) -> str:
        names = self.captured.names
        return names[number] if number < len(names) else f"number {number}"

    def _has_absolute_views(self) -> bool:
        return any("as_strided" in str(n.target) for n in self._graph.graph.nodes)

    # ---- the first operation that differs ----

    def _words(self, found: str, pristine: Snapshot, before: torch.Tensor) -> str:
        node = self._first_difference(pristine, before)
        name = self.compiled.name
        if node is None:
            return f"graph {name} differs from eager in {found}; no part of it alone does"
        source = source_of(node)
        where = f" at {source}: {source.code}" if source else ""
        return f"graph {name} differs from eager in {found}; first in {node.target}{where}"

    def _first_difference(self, pristine: Snapshot, before: torch.Tensor) -> fx.Node | None:
        """The first node at which the graph, ended there, differs from eager."""
        for node in self._graph.graph.nodes:
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            if node.op != "call_function" or not is_tensor or "empty" in str(node.target):
                continue
            if self._differs_until(node, pristine, before):
                return node
        return None

    def _differs_until(self, node: fx.Node, pristine: Snapshot, before: torch.Tensor) -> bool:
        shortened = _ended_at(self.captured, node)
        imported = import_graph(shortened, self.compiled.name, self.player.wrap)
        options = self.compiled.options.core() | {"strict": set()}
        function = _core.Function(imported.program, options, imported.recipes, imported.outputs)
        ours, eagers = Snapshot(pristine.tensors).tensors, Snapshot(pristine.tensors).tensors
        with torch.no_grad():
            torch.set_rng_state(before)
            results = function(
                *ours[: len(self.captured.names)], *imported.held[len(self.captured.held) :]
            )
            torch.set_rng_state(before)
            expected = _Replay(shortened.graph, self.player).run(*self._placeholders(eagers))
        return _compare(ours, results, eagers, expected) is not None


def _ended_at(captured: Capture, node: fx.Node) -> Capture:
    """The capture with the graph ended after a node, whose value is the result."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for old in captured.graph.graph.nodes:
        copies[old] = graph.node_copy(old, lambda n: copies[n])
        if old is node:
            break
    rest = [n for n in captured.graph.graph.nodes if n.op == "placeholder" and n not in copies]
    for old in rest:
        copies[old] = graph.node_copy(old, lambda n: copies[n])
    graph.output((copies[node],))
    module = fx.GraphModule(captured.graph, graph)
    return Capture(
        module,
        captured.names,
        captured.held,
        [],
        shape_env=captured.shape_env,
        is_symbolic=captured.is_symbolic,
    )


def _version(tensor: Any) -> int:
    is_counted = isinstance(tensor, torch.Tensor) and not tensor.is_inference()
    return tensor._version if is_counted else 0


def _compare(
    arguments: Sequence[torch.Tensor],
    results: Sequence[Any],
    eager_arguments: Sequence[torch.Tensor],
    eager_results: Sequence[Any],
) -> str | None:
    """What differs, in words; None for nothing."""
    for number, (ours, eagers) in enumerate(zip(results, eager_results, strict=True)):
        found = _compare_result(ours, eagers)
        if found is not None:
            return f"result {number}: {found}"
    for number, (ours, eagers) in enumerate(zip(arguments, eager_arguments, strict=True)):
        is_tensor = isinstance(ours, torch.Tensor)
        if is_tensor and not _same_values(_storage_of(ours, ours), _storage_of(eagers, ours)):
            return f"bytes of argument {number} after the call"
    ours_all = [*arguments, *(r for r in results if isinstance(r, torch.Tensor))]
    eagers_all = [*eager_arguments, *(r for r in eager_results if isinstance(r, torch.Tensor))]
    for second in range(len(arguments), len(ours_all)):
        for first in range(second):
            ours_distance = _distance(ours_all[first], ours_all[second])
            eagers_distance = _distance(eagers_all[first], eagers_all[second])
            if ours_distance != eagers_distance:
                return (
                    f"what result {second - len(arguments)} shares memory with: "
                    f"{ours_distance} bytes from tensor {first}, eager {eagers_distance}"
                )
    return None


def _compare_result(ours: Any, eagers: Any) -> str | None:
    if not isinstance(eagers, torch.Tensor):
        return None if ours == eagers else f"{ours!r}, eager {eagers!r}"
    for what in ("dtype", "shape"):
        if getattr(ours, what) != getattr(eagers, what):
            return f"{what} {getattr(ours, what)}, eager {getattr(eagers, what)}"
    if eagers.numel() > 1 and ours.stride() != eagers.stride():
        return f"strides {ours.stride()}, eager {eagers.stride()}"
    return None if _same_values(ours, eagers) else "values"


def _storage_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Elements from as far before a tensor's first as the storage of `like` reaches, up to that
    storage's end.
    """
    storage = like.untyped_storage()
    before = like.storage_offset()
    count = storage.nbytes() // like.element_size()
    start = tensor.storage_offset() - before
    with torch.no_grad():
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(tensor.untyped_storage(), start, (count,), (1,))


def _same_values(ours: torch.Tensor, eagers: torch.Tensor) -> bool:
    ours, eagers = ours.detach(), eagers.detach()
    if ours.shape != eagers.shape:
        return False
    tolerance = _TOLERANCE.get(eagers.dtype)
    if tolerance is not None:
        return torch.allclose(ours, eagers, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    if eagers.dtype.is_floating_point or eagers.dtype.is_complex:
        return torch.equal(
            ours.contiguous().view(torch.uint8), eagers.contiguous().view(torch.uint8)
        )
    return torch.equal(ours, eagers)


def _distance(first: Any, second: Any) -> int | None:
    """Bytes from one tensor's first element to another's if their storages have common bytes, else
    None.
    """
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return None
    a, b = first.untyped_storage(), second.untyped_storage()
    if not a.nbytes() or not b.nbytes():
        return None
    touches = a.data_ptr() < b.data_ptr() + b.nbytes() and b.data_ptr() < a.data_ptr() + a.nbytes()
    return second.data_ptr() - first.data_ptr() if touches else None
