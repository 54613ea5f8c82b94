"""Graphs whose sizes are known at a call only: eager's results at every size from one capture."""

import math
import re

import pytest
import torch
from compare import check_same, range_tensor

import uncopy
from uncopy.registry import live


def reasons():
    return [f.reason for r in uncopy.plans() for f in r.fallbacks]


def num_graphs():
    return len(live())


def cache_step(cache, key, query, n):
    cache[n - 1] = key
    rows = cache[:n]
    weights = torch.softmax(query @ rows.t(), -1)
    return weights @ rows, n * 2, rows


def pair(n):
    return range_tensor(n, 4), range_tensor(n, 4)


def neighbours(n):
    block = range_tensor(5 * n + 5)
    return block[: 2 * n], block[2 * n : 4 * n], block[5:]


def moved(first, second, third):
    first.add_(second)
    third.mul_(2)
    return first[1:], second.view(2, -1), third.sum()


def padded(x):
    return torch.nn.functional.pad(x, (1, 2, 0, x.shape[0]), value=3.0)


def scattered(x, y):
    a = torch.slice_scatter(x, y[:-1], 0, 1)
    b = torch.select_scatter(x, y[0], 0, -1)
    return a, b, torch.slice_scatter(x, y[: x.shape[0] // 2], 0, 0, x.shape[0] // 2)


def joined(x, y):
    both = torch.cat([x, y, x[: x.shape[0] // 2]])
    return both, torch.stack([x, y], 1), both.shape[0], torch.cat([x, y], -1)


def made(x):
    n = x.shape[0]
    full = torch.full((n, 2 * n), 7.0)
    return full, x.new_zeros(n + 1), torch.arange(n), torch.ones_like(x) * n, torch.empty(n, 0)


def reshaped(x):
    n = x.shape[0]
    flat = x.reshape(-1)
    flat[: 2 * n].add_(1)
    return x.view(2 * n, 2), x.t().contiguous(), x.t().reshape(-1), x[:, None].expand(n, 3, 4)


def strided(x, y):
    x.t().mul_(2)
    return x[::2] + y.t()[::2], y.t(), x.unfold(0, 2, 1).sum(-1)


def layered(x, w, b):
    normal = torch.nn.functional.layer_norm(x, (4,), w, b)
    halves = normal.chunk(2, -1)
    return torch.nn.functional.gelu(halves[0]) * halves[1], x.mean(0) / x.shape[0]


def batched(q, k):
    return torch.bmm(q, k.transpose(1, 2)).softmax(-1).to(torch.bfloat16), q.flatten(1)


def looked_up(table, index):
    table.index_add_(0, index, torch.ones(index.shape[0], table.shape[1]))
    return torch.nn.functional.embedding(index, table), table[index], index.max() + index.shape[0]


def convolved(x, w):
    return torch.nn.functional.conv1d(x, w, padding=1), torch.nn.functional.avg_pool1d(x, 2)


def ring(buffer, x, at):
    n = x.shape[0]
    buffer[at : at + n] = x
    buffer.narrow(0, 0, at).zero_()
    return buffer[at:], buffer[: at + n].flip(0)


def counted(x, k):
    return (x * k).sum(), k + x.shape[0], -k, k // 2, k % 3, max(k, x.shape[0]), x.shape[0] * k - 7


def rearranged(x, n):
    return x[:n].clone(), x[-n:], x[n], x.roll(n, 0), x.narrow(0, n, 2)


CASES = {
    "a cache step": (
        cache_step,
        lambda n: (torch.zeros(32, 4), range_tensor(4), range_tensor(1, 4), n),
    ),
    "views of one block": (moved, neighbours),
    "padding": (padded, lambda n: (range_tensor(n, 3),)),
    "scatters": (scattered, pair),
    "joining": (joined, pair),
    "factories": (made, lambda n: (range_tensor(n),)),
    "reshaping": (reshaped, lambda n: (range_tensor(n, 4),)),
    "strides": (strided, lambda n: (range_tensor(n, n), range_tensor(n, n))),
    "normalisation": (layered, lambda n: (range_tensor(n, 4), torch.ones(4), torch.zeros(4))),
    "batches": (batched, lambda n: (range_tensor(2, n, 4), range_tensor(2, n + 1, 4))),
    "indices": (looked_up, lambda n: (range_tensor(16, 3), torch.arange(n) % 5)),
    "convolution": (convolved, lambda n: (range_tensor(2, 3, 2 * n), torch.ones(3, 3, 3))),
    "a ring": (ring, lambda n: (torch.ones(40), range_tensor(n), 2 * n - 3)),
    "numbers": (counted, lambda n: (range_tensor(3), n - 9)),
    "positions": (rearranged, lambda n: (range_tensor(24), n)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_size_gives_eagers_result_from_one_capture(case):
    fn, build = CASES[case]
    compiled = torch.compile(fn, backend="uncopy", fullgraph=True, dynamic=True)
    for n in (5, 6, 9, 12, 5, 7):
        check_same(fn, lambda n=n: build(n), compiled)
    assert reasons() == []
    assert num_graphs() == 1
    assert uncopy.stats()["plans"] >= 5


@pytest.mark.parametrize("case", CASES)
def test_sizes_of_zero_one_and_two_are_right_too(case):
    fn, build = CASES[case]
    compiled = torch.compile(fn, backend="uncopy", dynamic=True)
    check_same(fn, lambda: build(6), compiled)
    for n in (2, 3, 1, 0):
        try:
            fn(*build(n))
        except (RuntimeError, IndexError, ValueError):
            continue
        check_same(fn, lambda n=n: build(n), compiled)
    assert reasons() == []


@pytest.mark.parametrize("case", ["a cache step", "views of one block", "joining", "a ring"])
def test_without_our_kernels_every_size_is_right_too(case):
    fn, build = CASES[case]
    options = {"kernels": "extern"}
    compiled = torch.compile(fn, backend="uncopy", dynamic=True, options=options)
    for n in (5, 8, 5):
        check_same(fn, lambda n=n: build(n), compiled)
    assert reasons() == []


@pytest.mark.parametrize("case", ["a cache step", "scatters", "indices", "numbers"])
def test_verified_calls_take_numbers_too(case):
    fn, build = CASES[case]
    compiled = torch.compile(fn, backend="uncopy", dynamic=True, options={"verify": 2})
    for n in (5, 8, 8, 8):
        check_same(fn, lambda n=n: build(n), compiled)
    assert reasons() == []


def test_a_decode_loop_is_right_at_every_length():
    compiled = torch.compile(cache_step, backend="uncopy", fullgraph=True, dynamic=True)
    ours, eagers = torch.zeros(300, 8), torch.zeros(300, 8)
    for n in range(2, 301):
        key, query = torch.randn(8), torch.randn(1, 8)
        got, wanted = compiled(ours, key, query, n), cache_step(eagers, key, query, n)
        torch.testing.assert_close(got[0], wanted[0])
        assert got[1] == 2 * n
        assert got[2].data_ptr() == ours.data_ptr()
        assert torch.equal(ours, eagers)
    assert uncopy.stats()["fallbacks"] == 0
    assert uncopy.stats()["copies"] == 0
    assert num_graphs() == 1


def test_a_second_size_makes_sizes_dynamic_and_a_third_reuses():
    compiled = torch.compile(lambda x, y: x * 2 + y, backend="uncopy", fullgraph=True)
    for n in (4, 5, 6, 7):
        x = range_tensor(n)
        assert torch.equal(compiled(x, x), x * 3)
    assert num_graphs() == 2
    assert uncopy.stats()["fallbacks"] == 0


def test_a_marked_dim_is_dynamic():
    compiled = torch.compile(lambda x: x[1:] + 1, backend="uncopy", fullgraph=True)
    for n in (4, 9, 13):
        x = range_tensor(n, 3)
        torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), x[1:] + 1)
    assert num_graphs() == 1
    assert reasons() == []


def test_an_unbacked_dim_takes_zero_and_one():
    compiled = torch.compile(lambda x: (x * 2)[1:].t(), backend="uncopy", fullgraph=True)
    for n in (4, 1, 0, 9):
        x = range_tensor(n, 3)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        result = compiled(x)
        assert torch.equal(result, (x * 2)[1:].t())
        assert result.stride() == (x * 2)[1:].t().stride()
    assert num_graphs() == 1
    assert reasons() == []


def test_static_by_default_stays_static():
    with torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=False):
        compiled = torch.compile(lambda x: x + 1, backend="uncopy", fullgraph=True)
        for n in (3, 4, 3):
            assert torch.equal(compiled(range_tensor(n)), range_tensor(n) + 1)
    assert num_graphs() == 2
    assert uncopy.stats()["replans"] == 0


def test_shapes_that_share_a_symbol_are_guarded():
    compiled = torch.compile(lambda x, y: x + y, backend="uncopy", dynamic=True)
    for a, b in ((3, 3), (4, 4), (1, 5), (5, 1), (6, 6)):
        x, y = range_tensor(a), range_tensor(b)
        assert torch.equal(compiled(x, y), x + y)
    with pytest.raises(RuntimeError):
        compiled(range_tensor(3), range_tensor(4))


def test_overlap_of_arguments_may_change_with_the_size():
    def fn(x, y):
        first = x + 1
        y.mul_(3)
        x.copy_(first)
        return x + y, y[1:]

    compiled = torch.compile(fn, backend="uncopy", fullgraph=True, dynamic=True)
    for n, distance in ((8, 8), (8, 3), (9, 9), (12, 5), (12, 12), (9, 2), (8, 3)):
        ours, eagers = range_tensor(32), range_tensor(32)
        got = compiled(ours[:n], ours[distance : distance + n])
        wanted = fn(eagers[:n], eagers[distance : distance + n])
        assert torch.equal(got[0], wanted[0])
        assert torch.equal(got[1], wanted[1])
        assert torch.equal(ours, eagers)


def test_results_are_numbers_where_eagers_are():
    def fn(x, k):
        return x.shape[0], x.shape[0] * k - 100, x.numel() // 3, (k, x.shape[1])

    compiled = torch.compile(fn, backend="uncopy", dynamic=True)
    for n, k in ((4, 7), (5, -3), (9, 11)):
        result = compiled(range_tensor(n, 5), k)
        assert result == fn(range_tensor(n, 5), k)


def test_the_program_reads_sizes_from_tensors_and_numbers_from_the_call():
    compiled = torch.compile(cache_step, backend="uncopy", fullgraph=True, dynamic=True)
    compiled(torch.zeros(16, 4), torch.zeros(4), torch.zeros(1, 4), 5)
    text = live()[0][1].function.program().text()
    assert re.search(r"^symbol s\d+ = value of argument 0$", text, re.M)
    assert re.search(r"^argument cache f32\[(s\d+),(s\d+)\]", text, re.M)
    assert re.search(r"^view rows? ?|^view slice_1 = cache f32\[s\d+,s\d+\]", text, re.M)
    assert re.search(r"^number 2 \* s\d+$", text, re.M)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: x * (1 / math.sqrt(x.shape[0])), "symbolic-sizes"),
        (lambda x: x.nonzero() + 1, "data-dependent"),
        (lambda x: x[: int(x[0].item())] * 2, "data-dependent"),
    ],
)
def test_what_a_program_cannot_say_falls_back(fn, reason):
    compiled = torch.compile(fn, backend="uncopy", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        for n in (4, 6):
            x = range_tensor(n) + 2
            assert torch.equal(compiled(x), fn(x))
    assert set(reasons()) == {reason}
    assert uncopy.stats()["fallbacks"] == 2


def test_a_planned_function_misses_at_another_size():
    planned = uncopy.plan(lambda x: x * 2, range_tensor(4))
    assert torch.equal(planned(range_tensor(4)), range_tensor(4) * 2)
    assert planned.stats()["misses"] == 0
    for n in (5, 6, 7):
        assert torch.equal(planned(range_tensor(n)), range_tensor(n) * 2)
    assert planned.stats()["misses"] == 3


def test_a_dumped_graph_with_symbolic_sizes_runs(tmp_path):
    options = {"dump": "py", "dump_path": str(tmp_path)}
    compiled = torch.compile(cache_step, backend="uncopy", dynamic=True, options=options)
    compiled(torch.zeros(16, 4), torch.zeros(4), torch.zeros(1, 4), 5)
    (path,) = tmp_path.iterdir()
    namespace = {"__name__": "dumped"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with torch.no_grad():
        results = namespace["run"](*namespace["example_inputs"]())
    assert results[1] == 10
