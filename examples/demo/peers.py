"""The demo's function under each back end: what one warm call allocates and copies.

    torchrun --nproc_per_node 2 examples/demo/peers.py [--backends eager aot_eager] [--side 512]

Prints one JSON line a row on rank 0; values are checked first. PyTorch's profiler lists what a call
hands out and every aten::copy_ with the shape it writes; a clone, contiguous or as_strided_scatter
is listed with the copy_ that does its work, so that only copy_ is counted. Two sources are not in
that list and are added: Inductor's loops, counted as they are called with the tensors they write
(the function has no arithmetic but its two matmuls, which stay calls: each loop is a copy), and
Uncopy's own copies and moves, from uncopy.stats(). What the same gather does alone is taken off.
"""

import argparse
import json
import math
import warnings

import torch
import torch.distributed as dist

FORMS = ("outside", "inside")
ELEMENT_BYTES = 2  # bf16


class InductorLoops:
    """Counts the loops that Inductor generates each time they run, with the bytes of the tensors
    that they write.
    """

    def __init__(self):
        self.calls = self.num_bytes = 0

    def install(self):
        """Puts the count around each loop that is compiled from now on in this process."""
        import torch._inductor.config
        from torch._inductor.async_compile import AsyncCompile

        torch._inductor.config.compile_threads = 1  # a loop is then there at once
        compile_loop = AsyncCompile.cpp_pybinding

        def compile_counted(compiler, argument_types, source_code):
            loop = compile_loop(compiler, argument_types, source_code)

            def counted(*arguments):
                self.calls += 1
                for kind, argument in zip(argument_types, arguments, strict=True):
                    if kind.endswith("*") and not kind.startswith("const "):
                        self.num_bytes += argument.nbytes
                return loop(*arguments)

            return counted

        AsyncCompile.cpp_pybinding = compile_counted


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
    """Bytes handed out, copy_ kernels and the bytes these write, in one call."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities, profile_memory=True, record_shapes=True
    ) as profiler:
        call()
    events = profiler.profiler.kineto_results.events()
    allocated = sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)
    written = [math.prod(e.shapes()[0]) for e in events if e.name() == "aten::copy_"]
    return {
        "allocated": allocated,
        "copies": len(written),
        "bytes_copied": ELEMENT_BYTES * sum(written),
    }


def own_moves(backend):
    """What Uncopy's kernels have moved since the counts were reset: (number, bytes)."""
    if backend != "uncopy":
        return 0, 0
    import uncopy

    stats = uncopy.stats()
    assert not stats["fallbacks"], stats["fallbacks"]
    uncopy.reset_stats()
    return stats["copies"] + stats["moves"], stats["bytes_copied"] + stats["bytes_moved"]


def measure(backend, form, side, loops):
    """One row of the table."""
    torch._dynamo.reset()
    world, half = dist.get_world_size(), side * side
    buffer = torch.zeros(2 * half, dtype=torch.bfloat16)
    part = torch.randn(2 * half // world, dtype=torch.bfloat16)
    x = torch.randn(2, side, dtype=torch.bfloat16)
    views = [buffer[:half].view(side, side), buffer[half:].view(side, side)]
    function = make_function(form, side)
    if backend != "eager":
        function = torch.compile(function, backend=backend, dynamic=False, fullgraph=True)
    arguments = (x, buffer, part, *views)
    function(*arguments)
    buffer.zero_()
    result = function(*arguments)
    assert torch.equal(buffer, part.repeat(world)), "the gather's effect on the buffer is missing"
    torch.testing.assert_close(result, torch.matmul(torch.matmul(x, views[0]), views[1]))
    gather = profile(lambda: dist.all_gather_into_tensor(buffer, part))
    own_moves(backend)
    loops.calls = loops.num_bytes = 0
    call = profile(lambda: function(*arguments))
    row = {name: call[name] - gather[name] for name in call}
    moves, bytes_moved = own_moves(backend)
    row["copies"] += moves + loops.calls
    row["bytes_copied"] += bytes_moved + loops.num_bytes
    sizes = {"buffer": buffer.nbytes, "result": result.nbytes}
    return {"backend": backend, "form": form, **sizes, **row}


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["eager", "aot_eager", "uncopy"])
    parser.add_argument("--side", type=int, default=512, help="of each square weight, bf16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # every rank has the same part
    dist.init_process_group("gloo")
    loops = InductorLoops()
    if "inductor" in options.backends:
        loops.install()
    with torch.no_grad():
        for backend in options.backends:
            for form in FORMS:
                row = measure(backend, form, options.side, loops)
                if dist.get_rank() == 0:
                    print(json.dumps(row), flush=True)
    dist.destroy_process_group()


main()
