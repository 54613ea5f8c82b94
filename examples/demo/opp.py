"""An Ascend script: a flat weight buffer, gathered in place inside the function that uses it.

    torchrun --nproc_per_node 2 -m uncopy.npu examples/demo/opp.py [--form outside|inside]

Runs unmodified on an NPU machine with torch_npu and torchair. `outside` makes the two weights as
views outside the compiled function, `inside` within it. The first call makes the plan; a second,
warm one is profiled on rank 0 (a trace for TensorBoard in --trace) and checked. Rank 0 prints the
result and, with Uncopy, the plan, why it copies nothing, and the counts of the warm call.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch_npu
import torchair as tng
from torchair.configs.compiler_config import CompilerConfig

try:
    import uncopy
except ImportError:
    uncopy = None

ROWS, INNER, OUTER = 2, 8, 16
HALF = INNER * OUTER
COUNTS = ("copies", "bytes_copied", "moves", "bytes_moved", "bytes_allocated", "fallbacks")

tng.patch_for_hcom()
config = CompilerConfig()
config.experimental_config.topology_sorting_strategy = "StableRDFS"
npu_backend = tng.get_npu_backend(compiler_config=config)


@torch.compile(backend=npu_backend, dynamic=False, fullgraph=True)
def outside(x, w_buffer, w_partial, w1, w2):
    dist.all_gather_into_tensor(w_buffer, w_partial)
    tng.scope.npu_wait_tensor(w1, w_buffer)
    h1 = torch.matmul(x, w1)
    return torch.matmul(h1, w2)


@torch.compile(backend=npu_backend, dynamic=False, fullgraph=True)
def inside(x, w_buffer, w_partial):
    w1 = w_buffer[:HALF].view(INNER, OUTER)
    w2 = w_buffer[HALF:].view(OUTER, INNER)
    dist.all_gather_into_tensor(w_buffer, w_partial)
    tng.scope.npu_wait_tensor(w1, w_buffer)
    h1 = torch.matmul(x, w1)
    return torch.matmul(h1, w2)


def profiler(folder):
    """The device's profiler, as Ascend scripts set it up."""
    experimental_config = torch_npu.profiler._ExperimentalConfig(
        aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
        profiler_level=torch_npu.profiler.ProfilerLevel.Level1,
        l2_cache=False,
    )
    return torch_npu.profiler.profile(
        activities=[
            torch_npu.profiler.ProfilerActivity.CPU,
            torch_npu.profiler.ProfilerActivity.NPU,
        ],
        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(folder),
        record_shapes=True,
        experimental_config=experimental_config,
    )


def check(result, x, w_buffer, w_partial, world):
    """The buffer holds each rank's part, and the result is that of the gathered weights."""
    gathered = w_partial.repeat(world)
    w1, w2 = gathered[:HALF].view(INNER, OUTER), gathered[HALF:].view(OUTER, INNER)
    right = torch.equal(w_buffer, gathered) and torch.equal(result, (x @ w1) @ w2)
    assert right, "wrong values"


def forget_counts():
    """The first call has made the plan; what is reported is the warm call."""
    if uncopy is not None:
        uncopy.reset_stats()


def report():
    """What Uncopy made of it; nothing where another back end ran."""
    if uncopy is None:
        return
    for plan in uncopy.plans():
        print(plan.explain().partition("\noptions\n")[0], end="\n\n")
    stats = uncopy.stats()
    print("the warm call: " + ", ".join(f"{name} {stats[name]}" for name in COUNTS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=["outside", "inside"], default="outside")
    parser.add_argument("--trace", default="op_test", help="folder of the profiler's trace")
    options = parser.parse_args()
    torch.npu.set_device(f"npu:{os.environ['LOCAL_RANK']}")
    dist.init_process_group(backend="hccl")
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    x = torch.randn(ROWS, INNER, device="npu", dtype=torch.bfloat16)
    w_buffer = torch.zeros(2 * HALF, device="npu", dtype=torch.bfloat16)
    w_partial = torch.arange(2 * HALF // world, device="npu", dtype=torch.bfloat16)
    arguments = [x, w_buffer, w_partial]
    if options.form == "outside":
        arguments += [w_buffer[:HALF].view(INNER, OUTER), w_buffer[HALF:].view(OUTER, INNER)]
    function = {"outside": outside, "inside": inside}[options.form]
    function(*arguments)
    w_buffer.zero_()
    forget_counts()
    if rank == 0:
        with profiler(options.trace):
            result = function(*arguments)
    else:
        result = function(*arguments)
    torch.npu.synchronize()
    check(result, x, w_buffer, w_partial, world)
    if rank == 0:
        print(f"views {options.form} the function, {world} ranks: values right\n{result}\n")
        report()
    dist.destroy_process_group()


main()
