"""Backend "uncopy" of torch.distributed: ranks of one host exchange tensors over shared memory.

`dist.init_process_group("uncopy")`, `"cpu:uncopy"` or `new_group(backend="uncopy")` after `import
uncopy`. Where ranks share no memory (several hosts, other users or namespaces) the whole group runs
on Gloo, which also serves what the engine has not (complex sums, receives from any source,
monitored barriers); tensors on other devices go to their device's own backend. `comm_info` says
which engine serves a group.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from uncopy import _core
from uncopy.logs import LOG
from uncopy.work import UncopyWork, Works

__all__ = ["UncopyGroup"]

Tensors = Sequence[torch.Tensor]

_REDUCTIONS = [
    (dist.ReduceOp.SUM, _core.REDUCE_SUM),
    (dist.ReduceOp.AVG, _core.REDUCE_AVG),
    (dist.ReduceOp.MAX, _core.REDUCE_MAX),
    (dist.ReduceOp.MIN, _core.REDUCE_MIN),
    (dist.ReduceOp.PRODUCT, _core.REDUCE_PRODUCT),
    (dist.ReduceOp.BAND, _core.REDUCE_BAND),
    (dist.ReduceOp.BOR, _core.REDUCE_BOR),
    (dist.ReduceOp.BXOR, _core.REDUCE_BXOR),
]
_DEVICE_TYPES = {"cuda": "nccl", "xpu": "xccl"}


def _reduction(operation: Any) -> int | None:
    """The engine's number of a ReduceOp, None for one that it has not."""
    for known, number in _REDUCTIONS:
        if operation == known:
            return number
    return None


def _packed(tensors: Tensors) -> tuple[list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Contiguous tensors to write, and the pairs (wanted, written) to copy when they are."""
    written, copies = [], []
    for tensor in tensors:
        plain = tensor.detach()
        if not plain.is_contiguous():
            plain = torch.empty_like(plain, memory_format=torch.contiguous_format)
            copies.append((tensor.detach(), plain))
        written.append(plain)
    return written, copies


def _plain(tensors: Tensors) -> list[torch.Tensor]:
    """Contiguous tensors with the values of those given, to read."""
    return [tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in tensors]


class UncopyGroup(dist.ProcessGroup):
    """A process group over an engine of shared memory. Made by `create_group`."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, name: str = "group"
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._timeout = timeout
        self._name = self._description = ""
        self._others: dict[str, Any] = {}
        self._coalesced: list[Any] | None = None
        self._used_gloo: set[str] = set()
        self.reason: str | None = None
        gloo_store = dist.PrefixStore("gloo", store)
        self._gloo = dist.ProcessGroupGloo(gloo_store, rank, size, timeout)
        # Calls that C++ makes without asking Python go to Gloo.
        self._register_backend(
            torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, self._gloo
        )
        self._comm = self._connect(name)

    def _connect(self, name: str) -> Any:
        def get(key: str, seconds: float) -> bytes:
            self._store.wait([key], timedelta(seconds=seconds))
            value: bytes = self._store.get(key)
            return value

        try:
            seconds = self._timeout.total_seconds()
            store = self._store
            return _core.Communicator(name[:100], self.rank(), self.size(), seconds, store.set, get)
        except ConnectionError as error:
            self.reason = str(error)
            LOG.warning("group of %d ranks runs on gloo: %s", self.size(), error)
            return None

    # ---- names and lifetime ----

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch calls it so
        """The name it is registered by."""
        return "uncopy"

    def setGroupName(self, name: str) -> None:  # noqa: N802 - PyTorch calls it so
        """Called once by torch.distributed; plans find the group by it."""
        self._name = name
        if self._comm is not None:
            self._comm.publish(name)

    def getGroupName(self) -> str:  # noqa: N802 - PyTorch calls it so
        """The name that setGroupName gave."""
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802 - PyTorch calls it so
        """Called once by torch.distributed."""
        self._description = description

    def getGroupDesc(self) -> str:  # noqa: N802 - PyTorch calls it so
        """What setGroupDesc gave."""
        return self._description

    def set_timeout(self, timeout: timedelta) -> None:
        """For collectives that begin later."""
        self._timeout = timeout
        if self._comm is not None:
            self._comm.set_timeout(timeout.total_seconds())

    def shutdown(self) -> None:
        """Leaves: a peer that waits for this rank gets an error."""
        comm, self._comm = self._comm, None
        if comm is not None:
            self.reason = "the group was shut down"
            comm.close()

    def abort(self) -> None:
        """Ends every collective in flight, on every rank, with an error."""
        if self._comm is not None:
            self._comm.abort(f"rank {self.rank()} aborted the group")

    # ---- which engine ----

    def _other(self, tensors: Tensors) -> Any:
        """The backend of the tensors' device where that is not the CPU, else None."""
        device = tensors[0].device if tensors else torch.device("cpu")
        if device.type == "cpu":
            return None
        if device.type not in self._others:
            self._others[device.type] = self._make_other(device.type)
        return self._others[device.type]

    def _make_other(self, kind: str) -> Any:
        name = _DEVICE_TYPES.get(kind, "")
        make = getattr(dist, f"ProcessGroup{name.upper()}", None) if name else None
        if make is None:
            raise RuntimeError(
                f'backend "uncopy" has no engine for tensors on {kind}; name one for that device: '
                f'init_process_group("cpu:uncopy,{kind}:...")'
            )
        return make(dist.PrefixStore(kind, self._store), self.rank(), self.size())

    def _elsewhere(self, name: str, tensors: Tensors, reduction: int | None = 0) -> Any:
        """The backend that serves a call instead of the engine, None where the engine does."""
        other = self._other(tensors)
        if other is not None:
            return other
        is_reduced = (
            all(_core.comm_reduces(_core.dtype_code(t.dtype), reduction) for t in tensors)
            if reduction is not None and name in _REDUCING
            else True
        )
        if self._comm is not None and reduction is not None and is_reduced:
            return None
        self._used_gloo.add(name)
        return self._gloo

    def info(self) -> dict[str, Any]:
        """What `comm_info` says."""
        return {
            "backend": "uncopy",
            "engine": "uncopy" if self._comm is not None else "gloo",
            "reason": self.reason,
            "rank": self.rank(),
            "size": self.size(),
            "on_gloo": sorted(self._used_gloo),
            "error": self._comm.state() if self._comm is not None else None,
            "counts": self._comm.counts() if self._comm is not None else {},
        }

    # ---- running ----

    def _run(
        self,
        kind: int,
        destinations: Tensors,
        sources: Tensors,
        opts: Any = None,
        *,
        results: Any = None,
        reduction: int = 0,
        peer: int = 0,
        tag: int = 0,
    ) -> UncopyWork:
        """One call of the engine; destinations that are not contiguous are written beside and
        copied when the work ends.
        """
        written, copies = _packed(destinations)
        timeout = getattr(opts, "timeout", None)
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        job = self._comm.start(
            kind,
            written,
            _plain(sources),
            reduction,
            peer,
            seconds if seconds > 0 else 0.0,
            bool(getattr(opts, "asyncOp", False)),
            tag,
        )

        def finish() -> None:
            for wanted, made in copies:
                wanted.copy_(made)

        work = UncopyWork(job, results, finish if copies else None)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return Works(works)

    # ---- reductions ----

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """all_reduce of each tensor, in place."""
        return self._all_reduce("allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """all_reduce of all tensors."""
        return self._all_reduce("allreduce_coalesced", tensors, opts)

    def _all_reduce(self, name: str, tensors: Any, opts: Any) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = opts if opts is not None else dist.AllreduceOptions()
        reduction = _reduction(opts.reduceOp)
        other = self._elsewhere(name, tensors, reduction)
        if other is not None:
            return getattr(other, name)(tensors, opts)
        if len({t.dtype for t in tensors}) > 1:
            return Works([self._all_reduce(name, [t], opts) for t in tensors])
        kind = _core.COMM_ALL_REDUCE
        return self._run(kind, tensors, tensors, opts, results=tensors, reduction=reduction)

    def reduce(self, tensors: Any, opts: Any) -> Any:
        """Reduction on one rank alone, in place."""
        tensors = list(tensors)
        reduction = _reduction(opts.reduceOp)
        other = self._elsewhere("reduce", tensors, reduction)
        if other is not None:
            return other.reduce(tensors, opts)
        kind, root = _core.COMM_REDUCE, opts.rootRank
        return self._run(
            kind, tensors, tensors, opts, results=tensors, reduction=reduction, peer=root
        )

    def reduce_scatter_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """reduce_scatter of one tensor."""
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        reduction = _reduction(opts.reduceOp)
        other = self._elsewhere("reduce_scatter_single", [source], reduction)
        if other is not None:
            return _first(other, "reduce_scatter_single", "_reduce_scatter_base")(
                output, source, opts
            )
        kind = _core.COMM_REDUCE_SCATTER
        return self._run(kind, [output], [source], opts, results=[output], reduction=reduction)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """reduce_scatter of many tensors in one call."""
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        reduction = _reduction(opts.reduceOp)
        other = self._elsewhere("reduce_scatter_single_coalesced", sources, reduction)
        if other is not None or len({s.dtype for s in sources}) > 1:
            one = self.reduce_scatter_single
            return Works([one(o, s, opts) for o, s in zip(outputs, sources, strict=True)])
        kind = _core.COMM_REDUCE_SCATTER_SEGMENTS
        return self._run(kind, outputs, sources, opts, results=list(outputs), reduction=reduction)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """reduce_scatter of lists: one source for each rank."""
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        reduction = _reduction(opts.reduceOp)
        other = self._elsewhere("reduce_scatter", sources[0], reduction)
        if other is not None:
            return other.reduce_scatter(outputs, sources, opts)
        kind = _core.COMM_REDUCE_SCATTER_BLOCKS
        return Works(
            [
                self._run(kind, [o], s, opts, results=[o], reduction=reduction)
                for o, s in zip(outputs, sources, strict=True)
            ]
        )

    # ---- moves ----

    def all_gather_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """all_gather into one tensor."""
        other = self._elsewhere("all_gather_single", [source])
        if other is not None:
            return _first(other, "all_gather_single", "_allgather_base")(output, source, opts)
        return self._run(_core.COMM_ALL_GATHER, [output], [source], opts, results=[output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """all_gather of many tensors in one call."""
        other = self._elsewhere("all_gather_single_coalesced", sources)
        if other is not None:
            one = self.all_gather_single
            return Works([one(o, s, opts) for o, s in zip(outputs, sources, strict=True)])
        kind = _core.COMM_ALL_GATHER_SEGMENTS
        return self._run(kind, outputs, sources, opts, results=list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """all_gather into lists: one destination for each rank."""
        other = self._elsewhere("allgather", sources)
        if other is not None:
            return other.allgather(outputs, sources, opts)
        kind = _core.COMM_ALL_GATHER_BLOCKS
        return Works(
            [
                self._run(kind, o, [s], opts, results=[o])
                for o, s in zip(outputs, sources, strict=True)
            ],
            outputs,
        )

    def allgather_coalesced(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """all_gather of many tensors, outputs by rank."""
        by_source = [[ranks[i] for ranks in outputs] for i in range(len(sources))]
        return self.allgather(by_source, sources, opts)

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """Every rank's tensor becomes the root's."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        other = self._elsewhere("broadcast", tensors)
        if other is not None:
            return other.broadcast(tensors, opts)
        root = opts.rootRank
        if all(t.is_contiguous() for t in tensors):
            kind = _core.COMM_BROADCAST
            return self._run(kind, tensors, [], opts, results=tensors, peer=root)
        packed = [t.detach().contiguous() for t in tensors]
        work = self._run(_core.COMM_BROADCAST, packed, [], opts, results=tensors, peer=root)

        def finish() -> None:
            for wanted, made in zip(tensors, packed, strict=True):
                if wanted.data_ptr() != made.data_ptr():
                    wanted.detach().copy_(made)

        work._finish = finish
        return work

    def gather(self, outputs: Any, sources: Any, opts: Any) -> Any:
        """Every rank's tensor to a list on the root."""
        other = self._elsewhere("gather", sources)
        if other is not None:
            return other.gather(outputs, sources, opts)
        destinations = outputs[0] if outputs else []
        root = opts.rootRank
        return self._run(_core.COMM_GATHER, destinations, sources, opts, results=outputs, peer=root)

    def scatter(self, outputs: Any, sources: Any, opts: Any) -> Any:
        """The root's list to every rank."""
        other = self._elsewhere("scatter", outputs)
        if other is not None:
            return other.scatter(outputs, sources, opts)
        parts = sources[0] if sources else []
        root = opts.rootRank
        return self._run(_core.COMM_SCATTER, outputs, parts, opts, results=outputs, peer=root)

    def all_to_all_single(
        self,
        output: Any,
        source: Any,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """Rows of one tensor to each rank, in even or given numbers."""
        other = self._elsewhere("all_to_all_single", [source])
        if other is not None:
            exchange = _first(other, "all_to_all_single", "alltoall_base")
            return exchange(output, source, list(output_splits), list(input_splits), opts)
        if not output_splits and not input_splits:
            return self._run(_core.COMM_ALL_TO_ALL, [output], [source], opts, results=[output])
        written, copies = _packed([output])
        (plain,) = _plain([source])
        destinations = written[0].split(self._rows(output, output_splits))
        sources = plain.split(self._rows(source, input_splits))
        kind = _core.COMM_ALL_TO_ALL_BLOCKS
        work = self._run(kind, destinations, sources, opts, results=[output])
        if copies:
            work._finish = lambda: copies[0][0].copy_(copies[0][1])
        return work

    alltoall_base = all_to_all_single

    def _rows(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        return list(splits) or [tensor.shape[0] // self.size()] * self.size()

    def alltoall(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """One tensor to and from each rank."""
        other = self._elsewhere("alltoall", sources)
        if other is not None:
            return other.alltoall(outputs, sources, opts)
        kind = _core.COMM_ALL_TO_ALL_BLOCKS
        return self._run(kind, outputs, sources, opts, results=outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Every rank waits until all have come."""
        if self._comm is None:
            return self._gloo.barrier(opts if opts is not None else dist.BarrierOptions())
        return self._run(_core.COMM_BARRIER, [], [], opts, results=[])

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier that names the ranks that did not come, over Gloo."""
        self._used_gloo.add("monitored_barrier")
        self._gloo.monitored_barrier(timeout or self._timeout, wait_all_ranks)

    # ---- transfers ----

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """To one rank; the work ends when the tensors may be written again."""
        other = self._elsewhere("send", tensors)
        if other is not None:
            return other.send(tensors, peer, tag)
        return self._run(_core.COMM_SEND, [], tensors, _ASYNC, results=tensors, peer=peer, tag=tag)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """From one rank."""
        other = self._elsewhere("recv", tensors)
        if other is not None:
            return other.recv(tensors, peer, tag)
        return self._run(
            _core.COMM_RECEIVE, tensors, [], _ASYNC, results=tensors, peer=peer, tag=tag
        )


_REDUCING = {
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
}


class _Async:
    """Options of a transfer: dist.send and isend call the same method."""

    timeout = None
    asyncOp = True  # noqa: N815 - as in PyTorch's opts


_ASYNC = _Async()


def _first(backend: Any, *names: str) -> Any:
    """The first of these methods that a backend has: they were renamed in PyTorch 2.13."""
    return next(getattr(backend, name) for name in names if hasattr(backend, name))
