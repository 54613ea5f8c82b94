"""An Ascend script: a flat weight buffer, gathered in place inside the function that uses it.

    torchrun --nproc_per_node 2 -m uncopy.npu examples/demo/opp.py [--form outside|inside]

Runs unmodified on an NPU machine with torch_npu and torchair. `outside` makes the two weights as
views outside the compiled function, `inside` within it. Rank 0 prints the result and, with Uncopy,
the plan and the counts of a second, warm call.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401 - makes the device known
import torchair
from torchair.configs.compiler_config import CompilerConfig

try:
    import uncopy
except ImportError:
    uncopy = None

ROWS, INNER, OUTER = 2, 8, 16
HALF = INNER * OUTER

torchair.patch_for_hcom()
config = CompilerConfig()
config.experimental_config.topology_sorting_strategy = "StableRDFS"
npu_backend = torchair.get_npu_backend(compiler_config=config)


@torch.compile(backend=npu_backend, dynamic=False, fullgraph=True)
def outside(x, w_buffer, w_partial, w1, w2):
    dist.all_gather_into_tensor(w_buffer, w_partial)
    torchair.scope.npu_wait_tensor(w1, w_buffer)
    return torch.matmul(torch.matmul(x, w1), w2)


@torch.compile(backend=npu_backend, dynamic=False, fullgraph=True)
def inside(x, w_buffer, w_partial):
    w1 = w_buffer[:HALF].view(INNER, OUTER)
    w2 = w_buffer[HALF:].view(OUTER, INNER)
    dist.all_gather_into_tensor(w_buffer, w_partial)
    torchair.scope.npu_wait_tensor(w1, w_buffer)
    return torch.matmul(torch.matmul(x, w1), w2)


def check(result, x, w_buffer, w_partial, world):
    """The buffer holds each rank's part, and the result is that of the gathered weights."""
    gathered = w_partial.repeat(world)
    w1, w2 = gathered[:HALF].view(INNER, OUTER), gathered[HALF:].view(OUTER, INNER)
    right = torch.equal(w_buffer, gathered) and torch.equal(result, (x @ w1) @ w2)
    assert right, "wrong values"


def forget_counts():
    """The first call has made the plan; what is reported is a warm call."""
    if uncopy is not None:
        uncopy.reset_stats()


def report():
    """What Uncopy made of it; nothing where another back end ran."""
    if uncopy is None:
        return
    for plan in uncopy.plans():
        print(plan.text())
    stats = uncopy.stats()
    names = ("copies", "bytes_copied", "moves", "bytes_moved", "bytes_allocated", "fallbacks")
    print("one warm call: " + ", ".join(f"{name} {stats[name]}" for name in names))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=["outside", "inside"], default="outside")
    form = parser.parse_args().form
    torch.npu.set_device(f"npu:{os.environ['LOCAL_RANK']}")
    dist.init_process_group(backend="hccl")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(ROWS, INNER, device="npu", dtype=torch.bfloat16)
    w_buffer = torch.zeros(2 * HALF, device="npu", dtype=torch.bfloat16)
    w_partial = torch.arange(2 * HALF // world, device="npu", dtype=torch.bfloat16)
    arguments = [x, w_buffer, w_partial]
    if form == "outside":
        arguments += [w_buffer[:HALF].view(INNER, OUTER), w_buffer[HALF:].view(OUTER, INNER)]
    function = {"outside": outside, "inside": inside}[form]
    function(*arguments)
    w_buffer.zero_()
    forget_counts()
    result = function(*arguments)
    torch.npu.synchronize()
    check(result, x, w_buffer, w_partial, world)
    if rank == 0:
        print(f"views {form} the function, {world} ranks: values right\n{result}\n")
        report()
    dist.destroy_process_group()


main()
