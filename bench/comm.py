"""Collectives of the engine, from C, beside MPICH's in one run: medians, and ratios to MPICH's.

    python bench/comm.py [--ranks 2] [--most 134217728] [--budget-ms 300] [--library FOLDER]

Builds bench/comm.c with mpicc and runs it under mpirun; without them with cc, and then there are no
ratios. FOLDER is a build folder or an installed library's; without it the installed package's.
Sizes are bytes: of the buffer for all_reduce and broadcast, of a rank's block otherwise. A time is
the slowest rank's of an iteration, median of at least 5, contenders in turn; bench/comm.c says how.
Where there are more ranks than cores MPICH runs by itself: its ranks never give their core away,
and whoever takes turns with them waits for time slices. In parentheses: MPICH's median divided by
this one, so more than 1 is faster than MPICH. Below each operation: the geometric mean of the
ratios and the least one.
"""

import argparse
import math
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("window", "memory", "staged")
ENGINE_BITS, MPI_BIT = 7, 8
# operation -> bytes -> contender -> median microseconds
Table = dict[str, dict[int, dict[str, float]]]


def build(folder: Path, library: Path) -> tuple[Path, bool]:
    """The program, and whether it has MPICH beside the engine."""
    has_mpi = shutil.which("mpicc") is not None and shutil.which("mpirun") is not None
    if not has_mpi:
        print("no mpicc or mpirun on this machine: the engine alone, without ratios")
    program = folder / "comm"
    compiler = ("mpicc", "-DWITH_MPI") if has_mpi else ("cc",)
    link = (f"-L{library}", "-luncopy", f"-Wl,-rpath,{library}")
    source = (f"-I{ROOT / 'include'}", str(ROOT / "bench" / "comm.c"))
    subprocess.run([*compiler, "-O2", *source, *link, "-o", str(program)], check=True)
    return program, has_mpi


def run(program: Path, contenders: int, has_mpi: bool, options: argparse.Namespace) -> Table:
    """One run of the program on its ranks, of these contenders (bits, see bench/comm.c)."""
    with tempfile.TemporaryDirectory() as meeting:
        words = [str(program), meeting, str(options.most), str(options.budget_ms * 1000)]
        words.append(str(contenders))
        start = ["mpirun", "-n", str(options.ranks)] if has_mpi else []
        words = [*start, *words] if has_mpi else [*words, str(options.ranks)]
        output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    table: Table = {}
    for line in output.splitlines():
        operation, size, contender, median, _least = line.split()
        table.setdefault(operation, {}).setdefault(int(size), {})[contender] = float(median)
    return table


def measure(program: Path, has_mpi: bool, options: argparse.Namespace) -> Table:
    """All contenders."""
    if not has_mpi:
        return run(program, ENGINE_BITS, False, options)
    if options.ranks <= len(os.sched_getaffinity(0)):
        return run(program, ENGINE_BITS | MPI_BIT, True, options)
    table = run(program, ENGINE_BITS, True, options)
    for operation, rows in run(program, MPI_BIT, True, options).items():
        for size, times in rows.items():
            table[operation][size] |= times
    return table


def cell(times: dict[str, float], name: str) -> str:
    """A contender's time, with its ratio where there is one."""
    ratio = f"({times['mpi'] / times[name]:.2f}x)" if "mpi" in times else ""
    return f"{times[name]:>12.2f} {ratio:<9}"


def show(table: Table) -> None:
    """Prints a table for each operation."""
    for operation, rows in table.items():
        print(f"\n{operation}, us")
        print(
            f"{'bytes':>10} " + "".join(f"{name:>12} {'':<9}" for name in ENGINES) + "       MPICH"
        )
        for size, times in rows.items():
            peer = f"{times['mpi']:>12.2f}" if "mpi" in times else ""
            print(f"{size:>10} " + "".join(cell(times, name) for name in ENGINES) + peer)
        for name in ENGINES:
            ratios = [times["mpi"] / times[name] for times in rows.values() if "mpi" in times]
            if ratios:
                mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
                print(f"  {name}: geometric mean {mean:.2f}x, least {min(ratios):.2f}x")


def main() -> None:
    """Builds, runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--most", type=int, default=128 << 20, help="bytes of the largest size")
    parser.add_argument("--budget-ms", type=int, default=300, help="of one size of one operation")
    parser.add_argument("--library", type=Path, help="the folder of libuncopy.so")
    options = parser.parse_args()
    installed = Path(sysconfig.get_path("platlib")) / "uncopy" / "lib"
    library = (options.library or installed).resolve()
    with tempfile.TemporaryDirectory() as name:
        program, has_mpi = build(Path(name), library)
        show(measure(program, has_mpi, options))


if __name__ == "__main__":
    main()
