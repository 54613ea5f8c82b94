"""The scenario on several ranks of this machine: a warm call beside its parts.

    python bench/seed.py [--world 2] [--megabytes 64] [--calls 100]

One function gathers into a flat buffer and multiplies with two weights that lie in it. A call of
the compiled function is compared with the same gather alone plus the two matmuls alone
(interleaved, medians, rank 0), with what the profiler reports for the gather alone plus the result,
and with the process's peak memory before the calls. One thread a rank, gloo.
"""

import argparse
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROWS = 8


def step(
    x: torch.Tensor, buffer: torch.Tensor, part: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor
) -> torch.Tensor:
    """X [m,k], buffer [2*k*n], part [2*k*n/world], w1 [k,n] and w2 [n,k] in buffer -> [m,k]."""
    dist.all_gather_into_tensor(buffer, part)
    return torch.matmul(torch.matmul(x, w1), w2)


def profiled_bytes(call: Callable[[], object], calls: int) -> int:
    """Bytes that the profiler saw handed out in so many calls."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        for _ in range(calls):
            call()
    events = profile.profiler.kineto_results.events()
    return sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)


def interleaved(rows: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(calls):
        for name, call in rows.items():
            dist.barrier()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def worker(rank: int, options: argparse.Namespace, store: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    import uncopy

    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=options.world
    )
    elements = options.megabytes * (1 << 20) // 2
    side = int((elements // 2) ** 0.5)
    buffer = torch.zeros(2 * side * side, dtype=torch.bfloat16)
    part = torch.full((buffer.numel() // options.world,), 0.01 * (rank + 1), dtype=torch.bfloat16)
    w1, w2 = buffer[: side * side].view(side, side), buffer[side * side :].view(side, side)
    x = torch.full((ROWS, side), 0.5, dtype=torch.bfloat16)
    with torch.no_grad():
        compiled = torch.compile(
            step, backend="uncopy", dynamic=False, fullgraph=True, options={"strict": True}
        )
        rows: dict[str, Callable[[], object]] = {
            "gather": lambda: dist.all_gather_into_tensor(buffer, part),
            "matmuls": lambda: torch.matmul(torch.matmul(x, w1), w2),
            "compiled": lambda: compiled(x, buffer, part, w1, w2),
        }
        for call in rows.values():
            call()
        medians = interleaved(rows, options.calls)
        uncopy.reset_stats()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(options.calls):
            rows["compiled"]()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
        stats = uncopy.stats()
        gather_bytes = profiled_bytes(rows["gather"], options.calls)
        compiled_bytes = profiled_bytes(rows["compiled"], options.calls)
    if rank == 0:
        result_bytes = x.numel() * x.element_size()
        parts = medians["gather"] + medians["matmuls"]
        print(f"{options.world} ranks, buffer {buffer.numel() * 2} B, {options.calls} warm calls")
        for name, seconds in medians.items():
            print(
                f"  {name:8s} {seconds * 1e3:9.3f} ms   {seconds / parts:.3f} x (gather + matmuls)"
            )
        print(
            f"  profiler: {compiled_bytes} B; gather alone + result: "
            f"{gather_bytes + options.calls * result_bytes} B"
        )
        print(f"  peak memory grew by {grown} KiB")
        print(
            f"  copied {stats['bytes_copied']} B, allocated {stats['bytes_allocated']} B "
            f"({options.calls} results are {options.calls * result_bytes} B)"
        )
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            worker, args=(options, f"{folder}/store"), nprocs=options.world, start_method="spawn"
        )


if __name__ == "__main__":
    main()
