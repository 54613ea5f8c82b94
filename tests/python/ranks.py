"""Runs a function on several ranks, processes of this machine; returns what each rank returned."""

import tempfile
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT_S = 240


def run_ranks(function, world=2, *args, backend="gloo"):
    """Each rank's result of function(rank, world, *args), which must be importable and picklable.

    Fails with the traceback of a rank that raised. backend: of the default process group.
    """
    context = mp.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rendezvous")
        processes = [
            context.Process(
                target=_entry, args=(function, rank, world, path, results, args, backend)
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        got = dict(results.get(timeout=TIMEOUT_S) for _ in processes)
        for process in processes:
            process.join(TIMEOUT_S)
    failed = [f"rank {rank}: {value[1]}" for rank, value in sorted(got.items()) if not value[0]]
    assert not failed, "\n".join(failed)
    return [got[rank][1] for rank in range(world)]


def _entry(function, rank, world, path, results, args, backend):
    torch.set_num_threads(1)
    try:
        import uncopy  # noqa: F401 - registers its backend

        dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=world)
        results.put((rank, (True, function(rank, world, *args))))
    except BaseException:
        results.put((rank, (False, traceback.format_exc())))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
