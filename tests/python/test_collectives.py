"""Collectives of a graph on gloo: eager's results, in place, nothing copied."""

import pytest
import torch
import torch.distributed as dist
from compare import check_same, range_tensor
from ranks import run_ranks

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch has no gloo here", allow_module_level=True)


def _compiled(fn, **options):
    return torch.compile(fn, backend="uncopy", fullgraph=True, options=options)


# ---- the program this project exists for ----


def gather_outside(x, w_buffer, w_partial, w1, w2):
    dist.all_gather_into_tensor(w_buffer, w_partial)
    return (x @ w1) @ w2


def gather_inside(x, w_buffer, w_partial):
    w1 = w_buffer[:128].view(8, 16)
    w2 = w_buffer[128:].view(16, 8)
    dist.all_gather_into_tensor(w_buffer, w_partial)
    return (x @ w1) @ w2


def outside(world):
    buffer = range_tensor(256, dtype=torch.bfloat16)
    partial = range_tensor(256 // world, dtype=torch.bfloat16)
    views = buffer[:128].view(8, 16), buffer[128:].view(16, 8)
    return (torch.ones(2, 8, dtype=torch.bfloat16), buffer, partial, *views)


def _refill(rank, world, kernels):
    import uncopy

    for fn, build in ((gather_outside, outside), (gather_inside, lambda w: outside(w)[:3])):
        torch._dynamo.reset()
        compiled = _compiled(fn, strict=True, kernels=kernels)
        check_same(fn, lambda b=build: b(world), compiled, calls=2)
        uncopy.reset_stats()
        arguments = build(world)
        compiled(*arguments)
        stats = uncopy.stats()
        assert (stats["copies"], stats["bytes_copied"], stats["fallbacks"]) == (0, 0, 0)
        assert stats["moves"] == (world == 1), "a gather of one rank is the move itself"
        if kernels == "native" and world > 1:
            assert stats["collectives_host"] == 1
            assert stats["bytes_allocated"] == 2 * 8 * 2, "the result alone"
        # The caller's views made outside the graph are the buffer's bytes, refilled.
        expected = range_tensor(256 // world, dtype=torch.bfloat16).repeat(world)
        assert torch.equal(arguments[1], expected)


@pytest.mark.parametrize("kernels", ["native", "extern"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_buffer_refilled_by_a_gather_is_not_copied(world, kernels):
    run_ranks(_refill, world, kernels)


# ---- each collective ----


def all_reduce(x):
    dist.all_reduce(x)
    return x * 2


def all_reduce_max_of_a_view(x):
    part = x.narrow(0, 1, 3)
    dist.all_reduce(part, op=dist.ReduceOp.MAX)
    return part


def reduce_scatter(x):
    out = torch.empty(x.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(out, x)
    return out


def all_to_all(x):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


def functional_broadcast(x):
    import torch.distributed._functional_collectives as functional

    return functional.broadcast(x, 1, dist.group.WORLD) + 0


def gather_of_a_strided_source(x):
    out = torch.empty(x.numel())
    dist.all_gather_into_tensor(out, x[::2].contiguous())
    return out


def gather_of_what_is_overwritten(x):
    import torch.distributed._functional_collectives as functional

    y = functional.all_reduce(x, "sum", dist.group.WORLD)
    x.fill_(-1)
    return functional.wait_tensor(y)


def gather_into_the_own_shard(x):
    mine = x.narrow(0, dist.get_rank() * 2, 2)
    mine.mul_(3)
    dist.all_gather_into_tensor(x, mine)
    return x.sum()


def gather_functional_then_copy(x):
    import torch.distributed._functional_collectives as functional

    full = functional.wait_tensor(functional.all_gather_tensor(x[:2], 0, dist.group.WORLD))
    x.copy_(full)
    return full


def coalesced(x):
    import torch.distributed._functional_collectives as functional

    a, b = functional.all_gather_into_tensor_coalesced([x, x * 2], dist.group.WORLD)
    return a + b


CASES = {
    f.__name__: f
    for f in (
        all_reduce,
        all_reduce_max_of_a_view,
        reduce_scatter,
        all_to_all,
        functional_broadcast,
        gather_of_a_strided_source,
        gather_of_what_is_overwritten,
        gather_into_the_own_shard,
        gather_functional_then_copy,
        coalesced,
    )
}


def _each(rank, world, options):
    failed = []
    for name, fn in CASES.items():
        torch._dynamo.reset()
        try:
            build = lambda: (range_tensor(2 * world) + 10 * rank,)  # noqa: E731
            check_same(fn, build, _compiled(fn, **options), calls=2, metadata=False)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    assert not failed, failed
    return torch._C._distributed_c10d._get_work_registry_size()


OPTIONS = {
    "native": {},
    "extern": {"kernels": "extern"},
    "no passes": {"passes_off": {"normalise", "elide", "place"}},
    "overlap": {"overlap": True},
    "verify": {"verify": 2},
    "DFS": {"order": "DFS"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_collective_gives_eagers_result_and_is_waited_for(name):
    assert run_ranks(_each, 2, OPTIONS[name]) == [0, 0]


# ---- in place, and bad input ----


def _in_place(rank, world):
    import uncopy

    compiled = _compiled(all_reduce, strict=True)
    x = torch.ones(8)
    address = x.data_ptr()
    result = compiled(x)
    assert x.data_ptr() == address
    assert torch.equal(x, torch.full((8,), float(world)))
    assert torch.equal(result, x * 2)
    assert uncopy.stats()["copies"] == 0


def test_an_all_reduce_is_in_place():
    run_ranks(_in_place, 2)


def gather(buffer, partial):
    dist.all_gather_into_tensor(buffer, partial)
    return buffer + 0


def _strided_destination(rank, world):
    import uncopy

    def fn(wide, partial):
        buffer = wide[:, 0]
        buffer.copy_(dist._functional_collectives.all_gather_tensor(partial, 0, dist.group.WORLD))
        return buffer * 1

    def build():
        return torch.zeros(4, 3), range_tensor(2) + rank

    check_same(fn, build, _compiled(fn), metadata=False)
    report = uncopy.plans()[0]
    assert len(report.copies) + report.moves == 1


def test_a_strided_destination_is_copied_to():
    run_ranks(_strided_destination, 2)


def _destroyed(rank, world):
    group = dist.new_group([0, 1])

    def fn(x):
        dist.all_reduce(x, group=group)
        return x + 1

    compiled = _compiled(fn)
    compiled(torch.ones(2))
    dist.destroy_process_group(group)
    try:
        compiled(torch.ones(2))
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_a_group_that_was_destroyed_is_an_error():
    for words in run_ranks(_destroyed, 2):
        assert "does not exist any more" in words


def _planned(rank, world):
    import uncopy

    arguments = outside(world)
    planned = uncopy.plan(gather_outside, *arguments, strict=True)
    check_same(gather_outside, lambda: outside(world), planned, calls=2)
    assert planned.stats()["misses"] == 0
    assert "all_gather" in planned.plans[0].text()
    return planned.explain()


def test_a_planned_gather_explains_itself():
    for words in run_ranks(_planned, 2):
        assert "w_buffer" in words
        assert "copies that stay: 0" in words


def _waiting(rank, world):
    import torch.distributed._functional_collectives as functional

    import uncopy

    def use(y):
        return y * 2 + 1

    def view(y):
        return y.view(2, 2)

    def make():
        return functional.all_reduce(torch.arange(4.0) + rank, "sum", dist.group.WORLD)

    expected = use(make())
    compiled = _compiled(use, strict={"fallbacks"})
    for _ in range(2):
        assert torch.equal(compiled(make()), expected)
    planned = uncopy.plan(use, make())
    for _ in range(2):
        assert torch.equal(planned(make()), expected)
    assert planned.stats()["misses"] == 0
    assert uncopy.stats()["fallbacks"] == 0
    # Eager's result would be one that nobody has waited for either.
    result = _compiled(view)(make())
    assert type(result) is functional.AsyncCollectiveTensor
    assert torch.equal(result.wait(), view(make()).wait())
    assert uncopy.stats()["fallbacks"] == 1


def test_an_argument_that_nobody_has_waited_for_is_waited_for():
    run_ranks(_waiting, 2)
