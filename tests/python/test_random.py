"""Random programs over shared memory: every way of planning gives eager's result.

UNCOPY_TEST_SEED starts elsewhere; UNCOPY_TEST_ALL=1 runs many more. A failure prints the program.
"""

import os
import random

import pytest
import torch
from compare import close, shared_bytes, tensors

COUNT = 400 if os.environ.get("UNCOPY_TEST_ALL") else 40
SEED = int(os.environ.get("UNCOPY_TEST_SEED", "0"))
WAYS = ({}, {"kernels": "extern"}, {"passes_off": {"elide"}}, {"order": "RDFS"})
ROWS, COLUMNS = 4, 6


class Writer:
    """Writes the body of a function line by line; `shapes` are those of its names."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.shapes = {
            "a": (ROWS, COLUMNS),
            "b": (ROWS, COLUMNS),
            "c": (COLUMNS, ROWS),
            "d": (ROWS,),
        }
        self.lines = []

    def pick(self, shape=None):
        names = [n for n, s in self.shapes.items() if shape is None or s == shape]
        return self.random.choice(names)

    def add(self, expression, shape):
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        self.shapes[name] = shape

    def do(self, statement):
        self.lines.append(statement)

    def step(self):
        steps = [self.view, self.fresh, self.joined, self.product, self.host]
        often = [self.pointwise, self.in_place, self.copy]
        self.random.choice([*steps, *often, *often])()

    def view(self):
        x = self.pick()
        shape = self.shapes[x]
        kind = self.random.choice(["t", "slice", "select", "flat", "expand"])
        if kind == "t" and len(shape) == 2:
            self.add(f"{x}.t()", shape[::-1])
        elif kind == "slice" and shape[0] > 1:
            start = self.random.randrange(shape[0] - 1)
            stop = self.random.randrange(start + 1, shape[0] + 1)
            self.add(f"{x}[{start}:{stop}]", (stop - start, *shape[1:]))
        elif kind == "select" and len(shape) == 2:
            self.add(f"{x}[:, {self.random.randrange(shape[1])}]", shape[:1])
        elif kind == "flat" and len(shape) == 2:
            self.add(f"{x}.reshape(-1)", (shape[0] * shape[1],))
        elif kind == "expand" and len(shape) == 1:
            self.add(f"{x}.expand(3, {shape[0]})", (3, shape[0]))

    def pointwise(self):
        x = self.pick()
        y = self.pick(self.shapes[x])
        forms = [f"{x} + {y}", f"{x} * 0.5", f"{x} - {y}", f"torch.maximum({x}, {y})", f"1 - {x}"]
        forms += [f"torch.add({x}, {y}, alpha=0.25)", f"torch.where({x} > {y}, {x}, {y})", f"-{x}"]
        self.add(self.random.choice(forms), self.shapes[x])

    def in_place(self):
        x = self.pick()
        y = self.pick(self.shapes[x])
        forms = [f"{x}.add_(1)", f"{x}.mul_(0.5)", f"{x}.zero_()", f"{x}.relu_()", f"{x}.neg_()"]
        forms += [f"{x}.add_({y}.clone())", f"{x}.fill_(0.5)", f"{x}.clamp_(-2, 2)"]
        self.do(self.random.choice(forms))

    def copy(self):
        x = self.pick()
        y = self.pick(self.shapes[x])
        forms = [f"{x}.copy_({y}.clone())", f"{x}.copy_({y} * 2)", f"{x}.copy_(({y} + {x}))"]
        self.do(self.random.choice(forms))

    def fresh(self):
        x = self.pick()
        forms = [f"{x}.clone()", f"{x}.contiguous()", f"{x}.double().float()"]
        forms += [f"torch.zeros_like({x})", f"torch.empty_like({x}).copy_({x})"]
        self.add(self.random.choice(forms), self.shapes[x])

    def joined(self):
        x = self.pick()
        y = self.pick(self.shapes[x])
        shape = self.shapes[x]
        if shape[0] <= 8:
            self.add(f"torch.cat([{x}, {y}])", (2 * shape[0], *shape[1:]))
            self.add(f"torch.slice_scatter({x}, {y}[:1], 0, 0, 1)", shape)

    def product(self):
        x = self.pick()
        shape = self.shapes[x]
        if len(shape) == 2:
            y = self.pick(shape)
            self.add(f"({x} @ {y}.t()) * 0.1", (shape[0], shape[0]))

    def host(self):
        x = self.pick()
        shape = self.shapes[x]
        forms = [f"{x}.softmax(-1)", f"{x}.cumsum(0)", f"{x}.flip(0)", f"{x}.sort(0).values"]
        self.add(self.random.choice(forms), shape)

    def source(self):
        for _ in range(self.random.randrange(4, 14)):
            self.step()
        names = list(self.shapes)
        results = self.random.sample(names, min(4, len(names)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def fn(a, b, c, d):\n{body}    return {', '.join(results)}\n"


def numbers(count):
    return (torch.arange(float(count)) % 7 - 3).clone()


def apart():
    a, b, c = (numbers(ROWS * COLUMNS) + i for i in range(3))
    return a.view(ROWS, COLUMNS), b.view(ROWS, COLUMNS), c.view(COLUMNS, ROWS), numbers(ROWS)


def neighbours():
    base = numbers(100)
    return (
        base[:24].view(ROWS, COLUMNS),
        base[24:48].view(ROWS, COLUMNS),
        base[48:72].view(COLUMNS, ROWS),
        base[72:76],
    )


def overlapping():
    base = numbers(100)
    return (
        base[:24].view(ROWS, COLUMNS),
        base[6:30].view(ROWS, COLUMNS),
        base[:24].view(COLUMNS, ROWS),
        base[12:16],
    )


def interleaved():
    base = numbers(100)
    return (
        base.as_strided((ROWS, COLUMNS), (16, 2), 1),
        base.as_strided((ROWS, COLUMNS), (16, 2), 2),
        base.as_strided((COLUMNS, ROWS), (2, 16), 1),
        base[3:7],
    )


BUILDERS = (apart, neighbours, overlapping, interleaved)


def run(fn, arguments):
    try:
        return fn(*arguments), None
    except RuntimeError as error:
        return None, error


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_a_random_program_gives_eagers_result(seed):
    source = Writer(seed).source()
    space = {"torch": torch}
    exec(source, space)
    fn = space["fn"]
    for way in WAYS:
        torch._dynamo.reset()
        options = {"strict": {"fallbacks"}, **way}
        compiled = torch.compile(
            fn, backend="uncopy", fullgraph=True, dynamic=False, options=options
        )
        for build in BUILDERS:
            ours, eagers = build(), build()
            expected, eagers_error = run(fn, eagers)
            result, error = run(compiled, ours)
            where = f"{way} {build.__name__}\n{source}"
            assert (error is None) == (eagers_error is None), f"{error or eagers_error}\n{where}"
            if error is None:
                for a, b in zip(tensors((ours, result)), tensors((eagers, expected)), strict=True):
                    assert close(a, b), where
                    assert a.stride() == b.stride(), where
                assert shared_bytes((ours, result)) == shared_bytes((eagers, expected)), where
