"""A stand-in for the C extension that runs programs by PyTorch, one operation after another,
exactly as they are written.

It plans nothing and removes nothing, so what it computes is what the program says. Tests of the
importer run captured graphs with it: a wrong result is the importer's fault. Rows are read from the
library's own table.
"""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
(
    EFFECT_AUDITED,
    EFFECT_RAISES,
    EFFECT_RANDOM,
    EFFECT_LAYOUT,
    EFFECT_OUT,
    EFFECT_THREADS,
    EFFECT_OUT_LAYOUT,
) = (1 << i for i in range(7))

_NAMES = {"uint8": "u8", "bool": "bool", "bfloat16": "bf16"}
_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
    torch.complex128, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip
_OPAQUE = set(_DTYPES[16:])
_ROW = re.compile(
    r'^OPERATION\((\w+), "(\w+)", (\w+), (\w+), (\w+), ([^"]*), "([^"]*)", "([^"]*)"', re.M
)


class _Row:
    def __init__(self, match):
        _, self.name, self.kind, reads, self.rule, _, aten, self.attributes = match.groups()
        self.num_reads = -1 if reads == "VARIABLE" else int(reads)
        self.aten = aten.split()


_TABLE = (ROOT / "src/base/ops.def").read_text().split("*/")[1]
ROWS = {row.name: row for row in map(_Row, _ROW.finditer(_TABLE))}


def dtype_code(dtype):
    if dtype not in _DTYPES:
        raise KeyError(dtype)
    return _DTYPES.index(dtype)


def operation_find(name):
    return next((r.name for r in ROWS.values() if name in r.aten), None)


def operation_num_reads(name):
    return ROWS[name].num_reads


def operation_attributes(name):
    return ROWS[name].attributes


def operation_accepts(name, reads, result):
    rule = ROWS[name].rule
    kinds = [_DTYPES[r] for r in reads]
    out = _DTYPES[result]
    if rule in ("MOVED", "CONVERT"):
        return kinds[0] is out if rule == "MOVED" else not {kinds[0], out} & _OPAQUE
    if rule == "SELECT":
        return kinds[0] is torch.bool and len({*kinds[1:], out}) == 1 and out not in _OPAQUE
    if len(set(kinds)) != 1 or kinds[0] in _OPAQUE:
        return False
    kind = kinds[0]
    if rule == "COMPARE":
        return not kind.is_complex and out is torch.bool
    if kind is not out:
        return False
    return {
        "SAME": True,
        "NUMBER": not kind.is_complex and kind is not torch.bool,
        "FLOAT": kind.is_floating_point,
        "BITS": not kind.is_floating_point and not kind.is_complex,
        "MATMUL": kind.is_floating_point,
    }[rule]


class Number:
    def __init__(self, value):
        self.value = value


class Slot:
    def __init__(self, index):
        self.index = index


class Recipe:
    def __init__(self, call, out, args, kwargs, results):
        self.call, self.out, self.args, self.kwargs = call, out, args, kwargs
        self.results = results


class Output:
    def __init__(self, index, *, requires_grad=False, is_view=False, value=None):
        self.index, self.requires_grad = index, requires_grad
        self.is_view, self.value = is_view, value


class View:
    def __init__(self, name, root, dtype, sizes, strides, offset, from_storage):
        self.name, self.root, self.dtype = name, root, _DTYPES[dtype]
        self.sizes, self.strides = tuple(sizes), tuple(strides)
        self.offset, self.from_storage = offset, from_storage


class Operation:
    def __init__(self, name, reads, writes, returns, more):
        self.name, self.reads, self.writes, self.returns = name, reads, writes, returns
        self.attributes = more.pop("attributes", None) or {}
        self.host_id = more.pop("host_id", -1)
        self.effects = more.pop("effects", 0)
        self.more = more

    @property
    def target(self):
        return self.more.get("target")


class Program:
    def __init__(self, name):
        self.name, self.views, self.operations, self.outputs = name, [], [], []
        self.num_arguments, self.groups = 0, []

    def _add(self, name, root, dtype, sizes, strides, offset, from_storage):
        number = len(self.views)
        root = number if root is None else self.views[root].root
        name = name or f"v{number}"
        assert re.fullmatch(r"[A-Za-z_]\w*", name), name
        assert name not in {v.name for v in self.views}, name
        assert offset >= 0
        self.views.append(View(name, root, dtype, sizes, strides, offset, from_storage))
        return number

    def add_argument(self, name, dtype, sizes, strides):
        assert len(self.views) == self.num_arguments, "arguments come first"
        self.num_arguments += 1
        return self._add(name, None, dtype, sizes, strides, 0, False)

    def add_storage(self, name, fresh, dtype, sizes, strides):
        return self._add(name, None, dtype, sizes, strides, 0, False)

    def add_view(self, name, of, dtype, sizes, strides, offset_bytes, from_storage):
        return self._add(name, of, dtype, sizes, strides, offset_bytes, from_storage)

    def add_group(self, token, name, size, rank):
        self.groups.append((token, name, size, rank))
        return len(self.groups) - 1

    def add_operation(self, name, reads, writes, returns=(), **more):
        row = ROWS[name]
        assert row.num_reads in (-1, len(reads)), (name, reads)
        views = [self.views[r].dtype for r in reads if isinstance(r, int)]
        if row.kind in ("POINTWISE", "MATMUL") or name == "convert":
            result = dtype_code(self.views[writes[0]].dtype)
            assert operation_accepts(name, [dtype_code(v) for v in views], result)
        if row.kind in ("POINTWISE", "MOVE"):
            sizes = {self.views[v].sizes for v in (*reads, *writes) if isinstance(v, int)}
            assert len(sizes) == 1, (name, sizes)
        self.operations.append(Operation(name, reads, writes, returns, more))

    def add_output(self, view):
        self.outputs.append(view)

    def verify(self):
        pass

    def names(self):
        """Names of the operations in order; of externs their targets."""
        return [o.target if o.name == "extern" else o.name for o in self.operations]

    def text(self):
        lines = [f"program {self.name}"]
        for o in self.operations:
            reads = [self.views[r].name if isinstance(r, int) else str(r.value) for r in o.reads]
            names = [[self.views[v].name for v in vs] for vs in (o.writes, o.returns)]
            lines.append(f"{o.target or o.name} {reads} -> {names}")
        return "\n".join(lines)


class Run:
    """One run of a program: where each storage is."""

    def __init__(self, program, recipes, tensors):
        self.program, self.recipes, self.works = program, recipes, {}
        self.bases = {}  # first view -> (storage, byte offset of the first view)
        for number, tensor in enumerate(tensors):
            view = program.views[number]
            assert (tensor.dtype, tensor.shape, tensor.stride()) == (
                view.dtype, view.sizes, view.strides,
            )  # fmt: skip
            self.bases[number] = _base(tensor)

    def tensor(self, number):
        view = self.program.views[number]
        if view.root not in self.bases:
            root = self.program.views[view.root]
            made = torch.empty_strided(root.sizes, root.strides, dtype=root.dtype)
            self.bases[view.root] = _base(made)
        storage, start = self.bases[view.root]
        offset = view.offset if view.from_storage else start + view.offset
        assert offset % view.dtype.itemsize == 0
        empty = torch.empty(0, dtype=view.dtype)
        return empty.set_(storage, offset // view.dtype.itemsize, view.sizes, view.strides)

    def step(self, o):
        reads = [self.tensor(r) if isinstance(r, int) else r.value for r in o.reads]
        if o.name in ("copy", "convert"):
            self.tensor(o.writes[0]).copy_(reads[0])
        elif o.name == "fill":
            self.tensor(o.writes[0]).fill_(reads[0])
        elif o.name == "fence":
            self.works.pop(o.writes[0]).wait()
        elif o.name == "extern":
            self.call(o, reads)
        elif ROWS[o.name].kind == "COLLECTIVE":
            work = self.recipes[o.host_id].call(self.tensor(o.writes[0]), reads[0])
            self.works[o.writes[0]] = work
        elif o.name != "order":
            self.out(o, reads)

    def slots(self, o, reads):
        recipe = self.recipes[o.host_id]
        tensors = [r for r in reads if isinstance(r, torch.Tensor)]
        tensors += [self.tensor(w) for w in o.writes]

        def fill(value):
            if isinstance(value, Slot):
                return tensors[value.index]
            return [fill(v) for v in value] if isinstance(value, (list, tuple)) else value

        kwargs = {k: fill(v) for k, v in recipe.kwargs.items()}
        return recipe, [fill(a) for a in recipe.args], kwargs

    def out(self, o, reads):
        recipe, args, kwargs = self.slots(o, reads)
        assert o.effects & EFFECT_OUT
        recipe.out(*args, **kwargs, out=self.tensor(o.writes[0]))

    def call(self, o, reads):
        recipe, args, kwargs = self.slots(o, reads)
        flat = list(_flat(recipe.call(*args, **kwargs)))
        for number, position in zip(o.returns, recipe.results, strict=True):
            view, result = self.program.views[number], flat[position]
            assert (result.dtype, result.shape, result.stride()) == (
                view.dtype, view.sizes, view.strides,
            )  # fmt: skip
            if view.root == number:
                self.bases[number] = _base(result)
            else:
                assert result.data_ptr() == self.tensor(number).data_ptr()


def _base(tensor):
    return tensor.untyped_storage(), tensor.storage_offset() * tensor.itemsize


def _flat(value):
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _flat(element)
    else:
        yield value


class Function:
    """Runs without a plan. An output that is an argument's own view is the caller's object."""

    def __init__(self, program, options, recipes, outputs):
        self._program, self.options = program, options
        self.recipes, self.outputs, self.calls = recipes, outputs, 0

    def __call__(self, *tensors):
        self.calls += 1
        with torch.no_grad():
            return self._run(tensors)

    def _run(self, tensors):
        run = Run(self._program, self.recipes, tensors)
        for operation in self._program.operations:
            run.step(operation)
            written = {self._program.views[w].root for w in operation.writes}
            own = [tensors[w] for w in written if w < self._program.num_arguments]
            torch._C._increment_version([t for t in own if not t.is_inference()])
        assert not run.works, "collectives never waited for"
        own = self._program.num_arguments
        made = [tensors[v] if v < own else run.tensor(v) for v in self._program.outputs]
        return tuple(made[o.index] if o.index >= 0 else o.value for o in self.outputs)

    def program(self):
        return self._program
