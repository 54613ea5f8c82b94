"""Collectives through torch.distributed: the group "uncopy" beside gloo, interleaved, medians.

    python bench/collectives.py [--world 2] [--sizes 4096 1048576 33554432] [--rounds 0]

Sizes are bytes: of a rank's part for all_gather, of the tensor for all_reduce. A call's time is the
last rank's exit minus the last rank's arrival; before each all ranks meet in the same barrier, the
engine's, so that they arrive as close together for either. `window`: the source lies in memory of
`uncopy.empty`. One thread a rank.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Rows = dict[str, tuple[Callable[[], object], Callable[[], object]]]


def gathers(size: int, world: int, rank: int, groups: dict[str, object]) -> Rows:
    """Rows of all_gather: what prepares a call, and the call."""
    import uncopy

    rows: Rows = {}
    for name in ("gloo", "uncopy", "uncopy window"):
        group = groups[name.split()[0]]
        out = torch.zeros(size * world, dtype=torch.uint8)
        part = torch.full((size,), rank, dtype=torch.uint8)
        if "window" in name:
            part = uncopy.empty(size, dtype=torch.uint8, group=group)
        rows[f"all_gather {name}"] = (
            lambda part=part: part.fill_(rank),
            lambda o=out, p=part, g=group: dist.all_gather_into_tensor(o, p, group=g),
        )
    return rows


def reductions(size: int, dtype: torch.dtype, rank: int, groups: dict[str, object]) -> Rows:
    """Rows of all_reduce."""
    rows: Rows = {}
    for name, group in groups.items():
        x = torch.ones(size // dtype.itemsize, dtype=dtype)
        rows[f"all_reduce {str(dtype).removeprefix('torch.')} {name}"] = (
            lambda x=x: x.fill_(rank + 1),
            lambda x=x, g=group: dist.all_reduce(x, group=g),
        )
    return rows


def interleaved(rows: Rows, rounds: int, group: object) -> dict[str, float]:
    """Median seconds of each row."""
    spans: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, (prepare, call) in rows.items():
            prepare()
            dist.barrier(group)
            start = time.monotonic()
            call()
            spans[name].append((start, time.monotonic()))
    found = {}
    for name, own in spans.items():
        every: list[list[tuple[float, float]]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(every, own)
        steps = zip(*every, strict=True)
        times = [max(end for _, end in step) - max(start for start, _ in step) for step in steps]
        found[name] = statistics.median(times)
    return found


def worker(rank: int, options: argparse.Namespace, store: str) -> None:
    """One rank."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    import uncopy  # noqa: F401 - registers the backend

    world = options.world
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    groups = {"gloo": dist.group.WORLD, "uncopy": dist.new_group(backend="uncopy")}
    for size in options.sizes:
        rounds = options.rounds or max(9, min(500, 100_000_000 // size))
        for rows in (
            gathers(size, world, rank, groups),
            reductions(size, torch.float32, rank, groups),
            reductions(size, torch.bfloat16, rank, groups),
        ):
            interleaved(rows, 3, groups["uncopy"])
            found = interleaved(rows, rounds, groups["uncopy"])
            base = next(iter(found.values()))
            for name, seconds in found.items():
                if rank == 0:
                    ratio = f"{base / seconds:7.1f} x gloo"
                    print(f"{size:>10} B  {name:<34} {seconds * 1e6:>10.1f} us {ratio}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Starts the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 1 << 20, 32 << 20])
    parser.add_argument("--rounds", type=int, default=0, help="calls a row; 0: by size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (options, str(Path(folder) / "store")), options.world)


if __name__ == "__main__":
    main()
