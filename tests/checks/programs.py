"""Small programs that break careless handling of shared memory, with the arguments to call each
with.

Each PROGRAM is a function and builders of its arguments. One compiled function is called with what
each builder makes, in turn, so aliasing, offsets and addresses change between calls. A builder may
return tensors beyond the function's parameters: they are watched, not passed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

PROGRAMS: dict[str, "Program"] = {}


@dataclass(frozen=True)
class Program:
    """num_arguments: how many of what a builder makes are passed; None: all."""

    fn: Callable[..., Any]
    builders: tuple[Callable[[], tuple[Any, ...]], ...]
    num_arguments: int | None = None


def program(*builders, num_arguments=None):
    """Adds a function to PROGRAMS under its name."""

    def add(fn):
        PROGRAMS[fn.__name__] = Program(fn, builders, num_arguments)
        return fn

    return add


def numbers(*shape, dtype=torch.float32):
    """0, 1, 2, ... in a shape, in memory of its own."""
    return torch.arange(torch.Size(shape).numel()).to(dtype).reshape(shape).clone()


def parts(size, *starts, length):
    """A builder of slices of one buffer, and the buffer."""

    def build():
        base = numbers(size)
        return (*(base[s : s + length] for s in starts), base)

    return build


def apart(count, *shape):
    """A builder of tensors that share nothing."""
    return lambda: tuple(numbers(*shape) + i for i in range(count))


# ---- arguments that share memory ----


@program(
    apart(2, 4),
    parts(9, 0, 2, length=4),
    parts(9, 3, 0, length=4),
    parts(4, 0, 0, length=4),
    num_arguments=2,
)
def write_one_read_the_other(a, b):
    a.add_(1)
    return a * b


@program(
    parts(8, 0, 4, length=4), parts(8, 4, 0, length=4), parts(8, 0, 2, length=4), num_arguments=2
)
def write_both_in_order(a, b):
    a.mul_(2)
    b.add_(a)
    a.sub_(b)
    return a + b


@program(lambda: (lambda f: (f, f.view(torch.int32)))(numbers(8)), apart(2, 8))
def same_bytes_as_two_dtypes(f, bits):
    f.add_(1)
    return bits * 1


@program(
    lambda: (lambda m: (m[:, 0], m[:, 1], m))(numbers(5, 2)),
    lambda: (lambda m: (m[0, :5], m[1, :5], m))(numbers(2, 8)),
    num_arguments=2,
)
def interleaved_columns(a, b):
    a.add_(1)
    b.mul_(a)
    return a - b


@program(lambda: (lambda m: (m, m[1:], m[:, 1]))(numbers(3, 4)))
def buffer_rows_and_column(buffer, rows, column):
    buffer.mul_(3)
    rows[0].copy_(column[0])
    return rows.narrow(0, 0, 1), column.sum(), buffer.reshape(-1)


@program(lambda: (lambda x: (x, x.t()))(numbers(4, 4)))
def write_through_the_transpose(x, transposed):
    x.triu_()
    transposed.add_(1)
    return x @ transposed


@program(lambda: (numbers(6).expand(3, 6), numbers(6)))
def read_an_expanded_argument(wide, x):
    x.add_(wide[1])
    return wide + x


# ---- copies that must stay, and such that must not change anything ----


@program(apart(2, 6))
def write_forwarded_then_changed(v, a):
    t = a * 2
    v.copy_(t)
    t.add_(1)
    return v + t


@program(apart(2, 6))
def clone_read_after_its_source_is_overwritten(v, a):
    t = v.clone()
    s = a + 1
    y = t * 2
    v.copy_(s)
    return y, t + v


@program(apart(2, 6))
def destination_read_between(v, a):
    t = a * 2
    old = v + 0
    v.copy_(t)
    return old, v * 1


@program(apart(2, 6))
def destination_written_between(v, a):
    t = a * 2
    v.zero_()
    v.add_(t)
    v.copy_(t)
    return v + 0


@program(apart(2, 8))
def part_of_a_larger_temporary(v, a):
    t = torch.cat([a, a])
    v.copy_(t[4:12])
    return t * 1


@program(lambda: (torch.zeros(4, 8), numbers(8)))
def broadcast_is_not_a_move(v, a):
    t = a * 3
    v.copy_(t)
    return v.sum()


@program(lambda: (torch.zeros(4, 4), numbers(4, 4)), lambda: (lambda m: (m, m))(numbers(4, 4)))
def matmul_into_its_own_operand(v, w):
    t = v @ w
    v.copy_(t)
    return v


@program(apart(1, 4, 4))
def transpose_into_itself(v):
    v.copy_(v.t().clone())
    return v


@program(apart(1, 5, 4))
def softmax_and_cumsum_into_themselves(v):
    v.copy_(v.softmax(-1))
    v.copy_(v.cumsum(0))
    v.copy_(v.flip(0))
    return v


@program(lambda: (torch.zeros(6, dtype=torch.bfloat16), torch.full((6,), 0.01)))
def accumulate_wide_then_round(v, step):
    t = torch.full((6,), 0.0)
    for _ in range(20):
        t += step
    v.copy_(t)
    return v


@program(lambda: (lambda m: (m[:, ::2], numbers(4, 3), m))(torch.zeros(4, 6)), num_arguments=2)
def strided_destination(v, a):
    t = a * 2
    v.copy_(t)
    return t.sort(0).values


@program(apart(1, 9, 4), lambda: (numbers(512, 64),))
def shift_rows_with_a_snapshot(x):
    n = x.size(0)
    x.narrow(0, 3, n - 3).copy_(x.narrow(0, 0, n - 3).clone())
    return x


@program(lambda: (numbers(9, 4, dtype=torch.int32),))
def shift_by_cat(x):
    base = x * 3
    base.copy_(torch.cat([base[:2], base[:-2]]))
    return base.view(1, -1)


@program(apart(1, 6))
def neutral_arithmetic_is_fresh(x):
    return x * 1, x + 0, x / 1.0


@program(apart(2, 3, 4))
def scatter_result_is_fresh(x, y):
    z = torch.select_scatter(x, y[0], 0, 1)
    x.copy_(z)
    return z


@program(apart(1, 6))
def returned_part_of_a_clone(v):
    t = v.clone()
    return t[1:], t


@program(apart(2, 4))
def two_fills_stay_two(i, v):
    a, b = torch.zeros(4), torch.zeros(4)
    a[1:3] = v[:2]
    b[2:] = v[2:]
    return a, b


@program(lambda: (torch.zeros(2, 8), numbers(8), numbers(8) + 3))
def pieces_of_a_stack(v, a, b):
    v.copy_(torch.stack([a * 2, b + a]))
    a.zero_()
    return v + 0


@program(lambda: (numbers(8), numbers(3)))
def write_back_of_a_functional_program(base, new):
    updated = torch.slice_scatter(base, new * 2, 0, 2, 5)
    updated = torch.as_strided_scatter(updated, new + 1, (3,), (2,), 1)
    base.copy_(updated)
    return updated.sum()


@program(lambda: (torch.zeros(4, 4), numbers(4, 4)))
def contiguous_of_what_is(v, a):
    t = (a + 1).contiguous()
    v.copy_(t.t().contiguous())
    return v, t


# ---- offsets, windows, views of views ----


@program(
    parts(30, 0, length=16), parts(30, 5, length=16), parts(30, 14, length=16), num_arguments=1
)
def views_of_a_moved_argument(x):
    m = x.view(4, 4)
    return m[:, :-1], m[:, 1:], m.t()[2]


@program(parts(30, 2, length=9), parts(30, 7, length=9), num_arguments=1)
def absolute_views(x):
    w = x.as_strided((2, 2), (3, 1), 5)
    w.neg_()
    return w, x.as_strided((3,), (1,))


@program(apart(1, 7))
def overlapping_windows(x):
    t = x - 3
    w = t.unfold(0, 3, 2)
    w.clamp_(min=0)
    return t, w


@program(lambda: (numbers(3, 4, dtype=torch.int32),))
def bitcast_read_before_a_write(x):
    low = x.view(torch.int16) + 1
    low.mul_(2)
    x[1].fill_(9)
    return low.view(torch.int32)


@program(apart(1, 4, 2))
def complex_and_real(x):
    z = torch.view_as_complex(x * 2)
    return torch.view_as_real(z)[:, 0] - 3, z * z


@program(parts(10, 0, length=10), lambda: (numbers(10),), num_arguments=1)
def out_arguments_into_slices(buffer):
    x = torch.arange(4.0)
    torch.add(x, 1, out=buffer[2:6])
    torch.mul(buffer[:4], 2, out=buffer[4:8])
    torch.cumsum(buffer[:3], 0, out=buffer[7:])
    return buffer[1:3]


@program(lambda: (numbers(6) / 3 - 1,))
def a_long_chain_in_place(x):
    a = x * 2
    v = a.view(2, -1)
    v.relu_()
    w = v.t()
    w.add_(1)
    other = x.exp()
    u = w.t().reshape(-1)
    u.mul_(3)
    return u, other, w


# ---- raising, random numbers, dtypes, modules ----


@program(
    lambda: (torch.zeros(3), numbers(4), torch.tensor([0, 1, 2])),
    lambda: (torch.zeros(3), numbers(4), torch.tensor([0, 9, 2])),
)
def index_that_may_be_out_of_range(cache, x, index):
    z = (x * 2)[index]
    cache.copy_(z)
    return cache * 1


@program(lambda: (numbers(3, 2), torch.tensor([1])), lambda: (numbers(3, 2), torch.tensor([5])))
def unused_operation_that_raises(table, index):
    F.embedding(index, table)
    return table + 1


@program(apart(1, 6))
def unused_random_numbers(x):
    torch.rand(3)
    return torch.rand(3), F.dropout(x, 0.5)


@program(lambda: (torch.zeros(6, 4)[:, :2], torch.zeros(4, 6)), num_arguments=None)
def random_fill_then_copy(column, matrix):
    t = torch.empty(6, 2).normal_()
    column.copy_(t)
    matrix.t().copy_(torch.empty(6, 4).uniform_())
    return column + 0


@program(apart(3, 4, 4))
def rounding_at_each_step(x, y, z):
    a, b = x.bfloat16() / 7, y.bfloat16() / 3
    return F.relu(a * b + a) * b, (a.float() @ z).bfloat16()


@program(apart(2, 4, 4), lambda: (lambda b: (b[0], b[1]))(numbers(2, 4, 4)))
def momentum_step(p, m):
    g = (p @ m).tanh()
    m.mul_(0.9).add_(g, alpha=0.1)
    p.add_(m, alpha=-0.5)
    return p.sum()


@program(
    lambda: (torch.zeros(2, 6, 4), numbers(1, 4)), lambda: (torch.zeros(2, 6, 4), numbers(1, 4))
)
def cache_row_update(cache, row):
    cache[0, 2:3].copy_(row)
    cache[1, 3:4].copy_(row * 2)
    return cache[0, :3].sum() + cache[1, 3, 0]


@program(lambda: (numbers(4, 4) / 10, torch.tensor([0, 2, 2, 1])))
def host_operations_in_place(x, index):
    t = x * 2
    u = t.index_add_(0, index, x)
    v = x.sin() @ x.cos().t()
    t.scatter_(0, index.unsqueeze(0).clamp(max=3), x[:1])
    return u, v, (v @ v) + 1


@program(lambda: (numbers(2, 3, 4), numbers(2, 4, 3)))
def products_of_batches_and_transposes(a, b):
    c = torch.bmm(a, b)
    return c, c.transpose(1, 2) @ a, torch.addmm(a[0, :, :3], c[0], c[1])
