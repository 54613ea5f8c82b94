"""What one call costs: the refill function at small sizes, compiled, planned, and a floor.

    python bench/call.py [--rounds 31] [--calls 3000]

The floor is a back end whose C callable returns a tensor made beforehand (bench/noop.c, built here
with the machine's C compiler): what torch.compile itself costs on each call. All rows are
interleaved; figures are medians over the rounds.
"""

import argparse
import functools
import importlib.util
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import uncopy

BUFFER, ROWS, INNER, OUTER = 256, 2, 8, 16


def make_refill() -> Callable[..., torch.Tensor]:
    """A function object of its own at each call, so that each back end compiles its own."""
    source = (
        "def refill(x, w_buffer, new, w1, w2):\n"
        "    w_buffer.copy_(new)\n"
        "    return torch.matmul(torch.matmul(x, w1), w2)\n"
    )
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, "refill.py", "exec"), names)
    return names["refill"]


def make_arguments() -> tuple[torch.Tensor, ...]:
    """X [2,8], w_buffer [256], new [256], and views w1 [8,16], w2 [16,8] of w_buffer, all bf16."""
    buffer = torch.zeros(BUFFER, dtype=torch.bfloat16)
    half = INNER * OUTER
    new = torch.arange(BUFFER, dtype=torch.float32).to(torch.bfloat16)
    x = torch.randn(ROWS, INNER).to(torch.bfloat16)
    return x, buffer, new, buffer[:half].view(INNER, OUTER), buffer[half:].view(OUTER, INNER)


def build_noop(folder: Path) -> ModuleType:
    """Builds and imports bench/noop.c."""
    library = folder / "noop.so"
    include = sysconfig.get_paths()["include"]
    source = Path(__file__).with_name("noop.c")
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("noop", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(rows: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, float]:
    """Median seconds of one call of each row, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, call in rows.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    arguments = make_arguments()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        noop = build_noop(Path(folder))
        noop.keep((torch.zeros(ROWS, INNER, dtype=torch.bfloat16),))
        floor = torch.compile(make_refill(), backend=lambda *_: functools.partial(noop.call))
        compiled = torch.compile(make_refill(), backend="uncopy")
        planned = uncopy.plan(make_refill(), *arguments)
        eager = make_refill()
        rows = {
            "floor of torch.compile": lambda: floor(*arguments),
            "uncopy, torch.compile": lambda: compiled(*arguments),
            "uncopy.plan": lambda: planned(*arguments),
            "eager": lambda: eager(*arguments),
        }
        for call in rows.values():
            call()
        medians = measure(rows, options.rounds, options.calls)
    base = medians["floor of torch.compile"]
    for name, seconds in medians.items():
        print(f"{name:24s} {seconds * 1e6:7.2f} us   {seconds / base:5.2f} x floor")


if __name__ == "__main__":
    main()
