"""The same function under another back end: what one warm call allocates and copies.

    torchrun --nproc_per_node 2 examples/demo/peers.py --backend aot_eager --form outside

Prints one JSON line on rank 0. Copies are counted in PyTorch's profiler: calls of aten::copy_,
aten::clone and aten::as_strided_scatter in a warm call, less those that the same gather makes
alone. Inductor's own loops are not in the profiler's list; what it allocates is.
"""

import argparse
import json
import warnings

import torch
import torch.distributed as dist

ROWS = 2
COPIES = ("aten::copy_", "aten::clone", "aten::as_strided_scatter")


def make_function(form, side):
    half = side * side

    def outside(x, buffer, part, w1, w2):
        dist.all_gather_into_tensor(buffer, part)
        return torch.matmul(torch.matmul(x, w1), w2)

    def inside(x, buffer, part, w1, w2):
        w1, w2 = buffer[:half].view(side, side), buffer[half:].view(side, side)
        dist.all_gather_into_tensor(buffer, part)
        return torch.matmul(torch.matmul(x, w1), w2)

    return {"outside": outside, "inside": inside}[form]


def profile(call):
    """Bytes handed out and copies made in one call."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        call()
    events = profiler.profiler.kineto_results.events()
    allocated = sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)
    return allocated, sum(e.name() in COPIES for e in events)


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--form", choices=["outside", "inside"], default="outside")
    parser.add_argument("--side", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    half = options.side * options.side
    buffer = torch.zeros(2 * half, dtype=torch.bfloat16)
    part = torch.ones(2 * half // world, dtype=torch.bfloat16)
    x = torch.ones(ROWS, options.side, dtype=torch.bfloat16)
    views = [buffer[:half].view(options.side, -1), buffer[half:].view(options.side, -1)]
    function = make_function(options.form, options.side)
    if options.backend != "eager":
        function = torch.compile(function, backend=options.backend, dynamic=False, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            function(x, buffer, part, *views)
        base_bytes, base_copies = profile(lambda: dist.all_gather_into_tensor(buffer, part))
        call_bytes, call_copies = profile(lambda: function(x, buffer, part, *views))
    if dist.get_rank() == 0:
        row = {
            "buffer": 4 * half,
            "allocated": call_bytes - base_bytes,
            "copies": call_copies - base_copies,
        }
        print(json.dumps(row))
    dist.destroy_process_group()


main()
