"""Random programs in the text language, run with all passes, with none, and by the reference.

    python tests/differential/programs.py --runner build-gcc/tests/c/text_runner --count 2000

Each program has arguments whose bytes meet in several ways, one after the other (`--- replan`),
copies in most places where a program may have them, operations in place, views, externs of every
kind, collectives and order marks. The runner compares the caller's memory and the results bit by
bit. A program that differs is shrunk by leaving lines out as long as it still differs, and printed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ELEMENTS = 24  # of every storage
ITEM = 4  # bytes of an element
SHAPES = [(4,), (6,), (8,), (2, 3), (3, 2), (2, 4), (4, 2), (24,), (12,)]
LIKELY_WHOLE = 0.35
BATCH = 40


@dataclass(frozen=True)
class View:
    """A view of a storage; strides and offset in elements."""

    name: str
    storage: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def elements(self) -> list[int]:
        """The element of the storage at each index, in row-major order."""
        places = [self.offset]
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = [p + i * stride for p in places for i in range(size)]
        return places

    def is_injective(self) -> bool:
        places = self.elements()
        return len(set(places)) == len(places)

    def declaration(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        strides = ",".join(map(str, self.strides))
        return f"view {self.name} = {self.storage} f32[{sizes}]({strides}) +{self.offset * ITEM}"


@dataclass
class Program:
    """Lines of one program, and the assume lines of each call."""

    storages: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)  # never left out
    operations: list[tuple[str, ...]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    options: str = ""

    def text(self) -> str:
        lines = ["program random", *self.storages, 'group g "0" size 2 rank 1', *self.views]
        lines += self.first
        lines += [line for operation in self.operations for line in operation]
        lines += self.outputs
        lines += self.calls[0]
        if self.options:
            lines.append(f"--- options {self.options}")
        lines.append("--- values")
        for call in self.calls[1:]:
            lines += ["--- replan", *call, "--- values"]
        return "\n".join(lines) + "\n"


class Maker:
    """Makes one program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.program = Program()
        self.count = 0
        self.arguments = [f"a{i}" for i in range(self.random.randint(2, 4))]
        self.scratch = [f"t{i}" for i in range(self.random.randint(2, 5))]
        self.starts: list[dict[str, int]] = []  # of each call: argument -> element address

    def make(self) -> Program:
        p = self.program
        p.storages = [f"argument {a} f32[{ELEMENTS}]" for a in self.arguments]
        p.storages += [f"scratch {t} f32[{ELEMENTS}]" for t in self.scratch]
        p.storages.append(f"fresh r f32[{ELEMENTS}]")
        for _ in range(self.random.randint(1, 4)):
            self.add_call()
        self.fill_first()
        for _ in range(self.random.randint(3, 14)):
            self.add_operation()
        p.outputs = ["output r"]
        if self.random.random() < 0.3:
            p.outputs.append(f"output {self.random.choice(self.arguments)}")
        if self.random.random() < 0.15:
            p.outputs.append(f"output {self.random.choice(self.scratch)}")
        p.options = self.random.choice(
            ["", "", "", "order=DFS", "order=RDFS", "order=BFS", "overlap"]
        )
        return p

    def fill_first(self) -> None:
        """Gives every storage bytes: what nobody has written may be anything."""
        for name in [*self.scratch, "r"]:
            if self.random.random() < 0.5:
                line = f"copy {self.random.choice(self.arguments)} -> {name}"
            else:
                line = f"fill {self.random.randint(0, 5)} -> {name}"
            self.program.first.append(line)

    def add_call(self) -> None:
        """Places the arguments: apart, equal, or shifted into each other."""
        lines, starts = [], {}
        for i, name in enumerate(self.arguments):
            starts[name] = (i + 1) * 100000
            if i > 0 and self.random.random() < 0.5:
                other = self.random.choice(self.arguments[:i])
                shift = self.random.choice([0, 0, 4, 6, 8, 12, 16, 20, 3])
                starts[name] = starts[other] + shift
                lines.append(f"assume {name} = {other} +{shift * ITEM}")
        self.program.calls.append(lines)
        self.starts.append(starts)

    # ---- views ----

    def take(self, storage: str, sizes: tuple[int, ...]) -> View:
        """A view of these sizes somewhere in the storage."""
        total = 1
        for size in sizes:
            total *= size
        step = self.random.choice([1, 1, 1, 2]) if total * 2 <= ELEMENTS else 1
        strides, stride = [], step
        for size in reversed(sizes):
            strides.insert(0, stride)
            stride *= size
        if len(sizes) == 2 and self.random.random() < 0.3:
            strides = [step, step * sizes[0]]
        reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        offset = self.random.randint(0, (ELEMENTS - reach) // 2) * self.random.choice([0, 1, 2])
        return self.named(storage, sizes, tuple(strides), min(offset, ELEMENTS - reach))

    def broadcast(self, storage: str, sizes: tuple[int, ...]) -> View:
        strides = tuple(0 if i == 0 else 1 for i in range(len(sizes)))
        return self.named(storage, sizes, strides, self.random.randint(0, 4))

    def named(
        self, storage: str, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> View:
        if sizes == (ELEMENTS,):
            return View(storage, storage, sizes, strides, offset)
        self.count += 1
        view = View(f"v{self.count}", storage, sizes, strides, offset)
        self.program.views.append(view.declaration())
        return view

    def storage(self) -> str:
        return self.random.choice(self.arguments + self.scratch + self.scratch + ["r"])

    def shape(self) -> tuple[int, ...]:
        if self.random.random() < LIKELY_WHOLE:
            return (ELEMENTS,)
        return self.random.choice(SHAPES)

    def addresses(self, view: View, call: int) -> tuple[str, list[int]]:
        """In which memory the view's elements lie at a call, and where."""
        start = self.starts[call].get(view.storage)
        if start is None:
            return view.storage, view.elements()
        return "caller", [start + e for e in view.elements()]

    def may_stand_together(self, result: View, read: View, in_place: bool) -> bool:
        """Disjoint at each call, or, in place, element by element the same."""
        for call in range(len(self.starts)):
            a, b = self.addresses(result, call), self.addresses(read, call)
            if a[0] != b[0] or not set(a[1]) & set(b[1]):
                continue
            if not in_place or a[1] != b[1]:
                return False
        return True

    # ---- operations ----

    def add_operation(self) -> None:
        kinds = [self.copy] * 8 + [self.pointwise] * 5 + [self.fill, self.matmul, self.collective]
        kinds += [self.extern, self.extern, self.mark, self.scatter]
        self.random.choice(kinds)()

    def add(self, *lines: str) -> None:
        where = f" @ p.py:{len(self.program.operations) + 1}"
        self.program.operations.append(tuple(line + where for line in lines))

    def copy(self) -> None:
        sizes = self.shape()
        result = self.take(self.storage(), sizes)
        wide = self.random.random() < 0.1
        read = (self.broadcast if wide else self.take)(self.storage(), sizes)
        if self.may_stand_together(result, read, in_place=True):
            self.add(f"copy {read.name} -> {result.name}")

    def pointwise(self) -> None:
        sizes = self.shape()
        result = self.take(self.storage(), sizes)
        reads = [self.take(self.storage(), sizes)]
        if self.random.random() < 0.4:
            reads[0] = result
        words = [reads[0].name]
        if self.random.random() < 0.6:
            words.append(str(self.random.randint(1, 3)))
        else:
            reads.append(self.take(self.storage(), sizes))
            words.append(reads[1].name)
        if all(self.may_stand_together(result, read, in_place=True) for read in reads):
            name = self.random.choice(["add", "mul", "sub", "maximum"])
            self.add(f"{name} {', '.join(words)} -> {result.name}")

    def fill(self) -> None:
        self.add(
            f"fill {self.random.randint(0, 9)} -> {self.take(self.storage(), self.shape()).name}"
        )

    def matmul(self) -> None:
        a = self.take(self.storage(), (2, 3))
        b = self.take(self.storage(), (3, 2))
        result = self.take(self.storage(), (2, 2))
        if self.may_stand_together(result, a, False) and self.may_stand_together(result, b, False):
            self.add(f"matmul {a.name}, {b.name} -> {result.name}")

    def scatter(self) -> None:
        """What functional graphs do: a new version of a whole storage with a part written."""
        base, version = self.storage(), self.random.choice(self.scratch)
        part = self.take(version, self.random.choice(SHAPES[:6]))
        source = self.take(self.storage(), part.sizes)
        back = self.random.random() < 0.6
        whole = View(version, version, (ELEMENTS,), (1,), 0)
        if version == base or not self.may_stand_together(part, source, in_place=False):
            return
        if source.storage == version or not part.is_injective() or whole.storage == base:
            return
        lines = [f"copy {base} -> {version}", f"copy {source.name} -> {part.name}"]
        if back:
            lines.append(f"copy {version} -> {base}")
        self.add(*lines)

    def extern(self) -> None:
        kind = self.random.choice(["double", "out", "increment", "kept"])
        sizes = self.shape()
        if kind in ("double", "out"):
            self.count += 1
            made, read = f"m{self.count}", self.take(self.storage(), sizes)
            words = ",".join(map(str, sizes))
            self.program.storages.append(f"scratch {made} f32[{words}]")
            effects = "audited out" if kind == "out" else "audited"
            line = (
                f'extern "test.double.default" reads {read.name} returns {made} effects {effects}'
            )
            target = self.take(self.storage(), sizes)
            self.add(line, f"copy {made} -> {target.name}")
        elif kind == "increment":
            view = self.take(self.storage(), sizes)
            self.add(f'extern "test.increment_.default" writes {view.name} effects audited')
        elif self.random.random() < 0.4:
            self.count += 1
            made = f"m{self.count}"
            self.program.storages.append(f"scratch {made} f32[{ELEMENTS}]")
            self.add(f'extern "test.kept.default" returns {made}', f"copy {made} -> r")

    def collective(self) -> None:
        """A functional gather, waited for at once, and mostly copied to its place."""
        self.count += 1
        made = f"g{self.count}"
        self.program.storages.append(f"scratch {made} f32[{ELEMENTS}]")
        part = self.named(self.storage(), (ELEMENTS // 2,), (1,), self.random.choice([0, 12]))
        target = self.storage()
        lines = [f"all_gather {part.name} -> {made} group g", f"fence {made}"]
        if self.random.random() < 0.8:
            lines.append(f"copy {made} -> {target}")
        self.add(*lines)

    def mark(self) -> None:
        a, b = self.storage(), self.storage()
        self.add(f"order {a} after {b}")


def run(runner: Path, programs: list[Program]) -> list[Program]:
    """Those of the programs that differ. All are tried at once, then one by one if one differs."""
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, program in enumerate(programs):
            file = Path(folder) / f"{number}.text"
            file.write_text(program.text())
            files.append(file)
        if subprocess.run([runner, *files], capture_output=True).returncode == 0:
            return []
        results = [subprocess.run([runner, file], capture_output=True) for file in files]
    return [p for p, r in zip(programs, results, strict=True) if r.returncode != 0]


def smaller(program: Program) -> Iterator[Program]:
    """The program with one line less, in every way."""
    for i in range(len(program.operations)):
        less = program.operations[:i] + program.operations[i + 1 :]
        yield Program(**{**vars(program), "operations": less})
        for j in range(len(program.operations[i])):
            part = program.operations[i][:j] + program.operations[i][j + 1 :]
            if part:
                kept = [*program.operations[:i], part, *program.operations[i + 1 :]]
                yield Program(**{**vars(program), "operations": kept})
    for i in range(len(program.calls)):
        if len(program.calls) > 1:
            less_calls = program.calls[:i] + program.calls[i + 1 :]
            yield Program(**{**vars(program), "calls": less_calls})
    for i in range(len(program.views)):
        yield Program(**{**vars(program), "views": program.views[:i] + program.views[i + 1 :]})
    for i in range(len(program.storages)):
        less_storages = program.storages[:i] + program.storages[i + 1 :]
        yield Program(**{**vars(program), "storages": less_storages})
    if program.options:
        yield Program(**{**vars(program), "options": ""})


def complaint(runner: Path, program: Program) -> str:
    """The runner's first words against a program, without the file's name; "" for none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "p.text"
        file.write_text(program.text())
        result = subprocess.run([runner, file], capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    line = (result.stdout + result.stderr).splitlines()[0]
    return line.split(": ", 1)[-1]


def kind(words: str) -> str:
    """A complaint without its numbers, so that a shrunk program is held to the same one."""
    return " ".join(word for word in words.split() if word.isalpha())[:40]


def shrink(runner: Path, program: Program) -> Program:
    wanted = kind(complaint(runner, program))
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for candidate in smaller(program):
            if kind(complaint(runner, candidate)) == wanted:
                program, has_shrunk = candidate, True
                break
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runner", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, help="prints the program of this seed, and stops")
    options = parser.parse_args()
    if options.show is not None:
        print(Maker(options.show).make().text(), end="")
        return 0
    num_bad = 0
    for start in range(options.seed, options.seed + options.count, BATCH):
        seeds = range(start, min(start + BATCH, options.seed + options.count))
        programs = {seed: Maker(seed).make() for seed in seeds}
        for bad in run(options.runner.resolve(), list(programs.values())):
            num_bad += 1
            (seed,) = [s for s, p in programs.items() if p is bad]
            small = shrink(options.runner.resolve(), bad)
            print(f"seed {seed}: {complaint(options.runner.resolve(), small)}\n{small.text()}")
    print(f"{options.count - num_bad} passed, {num_bad} failed")
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())
