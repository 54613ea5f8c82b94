"""The main job: the scenario on two ranks, the picture of its plan, and other back ends beside it.

    python examples/demo/run.py [--ranks 2]

First runs examples/demo/opp.py, an Ascend script, on this machine's CPU in both of its forms and
prints the result, the plan and the counts. Then runs the same function with a buffer of 1 MiB under
each back end and prints what a warm call allocates and copies beyond the gather itself
(examples/demo/peers.py says how that is measured).
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
BACKENDS = ("eager", "aot_eager", "inductor", "uncopy")
NOISE = ("USDT:", "W1", "[rank", "*****", "Setting OMP_NUM_THREADS")


def torchrun(ranks: int, *words: str) -> str:
    """Output of a script on so many ranks; raises SystemExit with its errors when it fails."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", *words]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        result = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed:\n{result.stdout}\n{result.stderr}")
    lines = [line for line in result.stdout.splitlines() if not line.startswith(NOISE)]
    return "\n".join(lines)


def show_scenario(ranks: int) -> None:
    for form in ("outside", "inside"):
        print(torchrun(ranks, "-m", "uncopy.npu", str(FOLDER / "opp.py"), "--form", form), "\n")


def show_peers(ranks: int) -> None:
    print(f"a warm call with a buffer of 1 MiB, {ranks} ranks, beyond the gather itself")
    print(f"  {'back end':10s} {'views':8s} {'allocated':>12s} {'copies':>7s}")
    for backend in BACKENDS:
        if backend == "inductor" and shutil.which("c++") is None:
            print("  inductor   skipped: it needs a C++ compiler")
            continue
        for form in ("outside", "inside"):
            words = ("--backend", backend, "--form", form)
            row = json.loads(torchrun(ranks, str(FOLDER / "peers.py"), *words).splitlines()[-1])
            print(f"  {backend:10s} {form:8s} {row['allocated']:10d} B {row['copies']:7d}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    show_scenario(options.ranks)
    show_peers(options.ranks)


if __name__ == "__main__":
    main()
