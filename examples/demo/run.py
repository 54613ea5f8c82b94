"""The demo: the scenario on two ranks, the picture of its plan, and other back ends beside it.

    python examples/demo/run.py [--ranks 2] [--side 512] [--trace FOLDER]

First runs opp.py, an Ascend script, on this machine's CPU in both of its forms; prints the result,
the plan with its reasons, and the counts of a warm call. Then runs the same function on a buffer of
1 MiB under each back end and prints what a warm call allocates and copies beyond the gather itself;
peers.py says how that is measured. Leaves no files; with --trace the profiler's traces.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FORMS = ("outside", "inside")
NOISE = ("USDT:", "W1", "[rank", "*****", "Setting OMP_NUM_THREADS")
TIMEOUT_S = 300


def torchrun(ranks: int, *words: str | Path) -> str:
    """Output of a script on so many ranks, from a folder of its own that is removed.

    Raises SystemExit with the script's errors when it fails.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", *(str(word) for word in words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}\n{result.stderr}")
    lines = [line for line in result.stdout.splitlines() if not line.startswith(NOISE)]
    return "\n".join(lines)


def show_scenario(ranks: int, trace: Path | None) -> None:
    """Both forms of the Ascend script, with their plans."""
    for form in FORMS:
        words: list[str | Path] = ["-m", "uncopy.npu", FOLDER / "opp.py", "--form", form]
        if trace is not None:
            words += ["--trace", trace / form]
        print(f"=== {torchrun(ranks, *words)}\n", flush=True)


def show_peers(ranks: int, side: int) -> None:
    """One line for each back end and form."""
    backends = ["eager", "aot_eager", "inductor", "uncopy"]
    has_compiler = shutil.which(os.environ.get("CXX", "g++")) is not None
    if not has_compiler:
        backends.remove("inductor")
    words = (FOLDER / "peers.py", "--side", str(side), "--backends", *backends)
    output = torchrun(ranks, *words).splitlines()
    rows = [json.loads(line) for line in output if line.startswith("{")]
    buffer, result = rows[0]["buffer"], rows[0]["result"]
    print(f"=== a warm call, {ranks} ranks, buffer of {buffer:,} B, beyond the gather itself\n")
    print(f"{'back end':10s} {'views':8s} {'allocated':>13s} {'copies':>8s} {'copied':>13s}")
    for row in rows:
        print(
            f"{row['backend']:10s} {row['form']:8s} {row['allocated']:11,d} B"
            f" {row['copies']:8d} {row['bytes_copied']:11,d} B"
        )
    if not has_compiler:
        print("inductor   skipped: it needs a C++ compiler")
    print(f"\nThe result is {result:,} B of what is allocated, on each line.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 4, 8), help="processes")
    parser.add_argument("--side", type=int, default=512, help="of the table's square weights")
    parser.add_argument("--trace", type=Path, help="folder for the profiler's traces")
    options = parser.parse_args()
    show_scenario(options.ranks, options.trace and options.trace.absolute())
    show_peers(options.ranks, options.side)


if __name__ == "__main__":
    main()
