"""The process group "uncopy": every call that a user of torch.distributed makes, beside gloo."""

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch has no gloo here", allow_module_level=True)

UNCOPY = "uncopy"


def values(rank, count, dtype=torch.float32):
    """Values that differ between ranks and whose sums round."""
    torch.manual_seed(rank)
    if dtype.is_floating_point:
        return torch.randn(count, dtype=torch.float64).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,)).bool()
    return torch.randint(0, 50, (count,), dtype=dtype)


def on_both(call):
    """What call(group) gives on gloo and on uncopy; the world is gloo's."""
    ours = dist.new_group(backend=UNCOPY)
    return call(dist.group.WORLD), call(ours)


# ---- collectives beside gloo's ----

REDUCED = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8]
OPERATIONS = ["SUM", "PRODUCT", "MIN", "MAX"]


def _reductions(rank, world):
    ours = dist.new_group(backend=UNCOPY)
    for dtype in REDUCED:
        for name in OPERATIONS:
            for count in (0, 1, 7, 4099):
                expected, found = values(rank, count, dtype), values(rank, count, dtype)
                dist.all_reduce(expected, getattr(dist.ReduceOp, name))
                dist.all_reduce(found, getattr(dist.ReduceOp, name), group=ours)
                torch.testing.assert_close(found, expected, msg=f"{dtype} {name} {count}")
    for dtype in (torch.bfloat16, torch.float16):
        x = values(rank, 1000, dtype)
        wide = [torch.zeros(1000, dtype=torch.float64) for _ in range(world)]
        dist.all_gather(wide, x.double())
        dist.all_reduce(x, group=ours)
        assert torch.equal(x, torch.stack(wide).float().sum(0).to(dtype)), dtype
    x = values(rank, 100)
    dist.all_reduce(x, dist.ReduceOp.AVG, group=ours)
    y = values(rank, 100)
    dist.all_reduce(y, group=ours)
    torch.testing.assert_close(x, y / world)
    flags = values(rank, 64, torch.int32)
    for name in ("BAND", "BOR", "BXOR"):
        expected, found = flags.clone(), flags.clone()
        dist.all_reduce(expected, getattr(dist.ReduceOp, name))
        dist.all_reduce(found, getattr(dist.ReduceOp, name), group=ours)
        assert torch.equal(expected, found), name


@pytest.mark.parametrize("world", [2, 3])
def test_reductions_are_those_of_gloo(world):
    run_ranks(_reductions, world)


def _same_bits(rank, world):
    ours = dist.new_group(backend=UNCOPY)
    for count in (1, 1000, 70_000, 1_000_003):
        x = values(rank, count)
        dist.all_reduce(x, group=ours)
        gathered = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(gathered, x)
        assert all(torch.equal(x, other) for other in gathered), count


def test_reductions_give_the_same_bits_on_all_ranks():
    run_ranks(_same_bits, 3)


def _moves(rank, world):
    ours = dist.new_group(backend=UNCOPY)
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.float8_e4m3fn):
        for count in (0, 3, 5000, 300_001):
            x = torch.arange(count).add(rank).to(torch.float32).to(dtype)
            out = torch.zeros(count * world).to(dtype)
            dist.all_gather_into_tensor(out, x, group=ours)
            expected = [
                torch.arange(count).add(r).to(torch.float32).to(dtype) for r in range(world)
            ]
            assert torch.equal(out.view(torch.uint8), torch.cat(expected).view(torch.uint8)), dtype
    parts = [torch.zeros(4 + r) for r in range(world)]
    dist.all_gather(parts, torch.full((4 + rank,), float(rank)), group=ours)
    assert [p.tolist() for p in parts] == [[float(r)] * (4 + r) for r in range(world)]
    x = torch.full((6, 2), float(rank))
    dist.broadcast(x, world - 1, group=ours)
    assert torch.equal(x, torch.full((6, 2), float(world - 1)))
    strided = torch.full((6, 2), float(rank)).t()
    dist.broadcast(strided, 0, group=ours)
    assert torch.equal(strided, torch.zeros(2, 6))
    gathered = [torch.zeros(3) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank)), gathered, dst=0, group=ours)
    assert rank != 0 or [g[0].item() for g in gathered] == list(range(world))
    out = torch.zeros(3)
    sources = [torch.full((3,), float(r)) for r in range(world)] if rank == 1 else None
    dist.scatter(out, sources, src=1, group=ours)
    assert torch.equal(out, torch.full((3,), float(rank)))


@pytest.mark.parametrize("world", [2, 4])
def test_moves_take_every_dtype_and_size(world):
    run_ranks(_moves, world)


def _exchanges(rank, world):
    ours = dist.new_group(backend=UNCOPY)
    out = torch.zeros(2 * world)
    dist.all_to_all_single(out, torch.arange(2.0 * world) + 100 * rank, group=ours)
    assert out.tolist() == [100 * r + 2 * rank + i for r in range(world) for i in range(2)]
    # Uneven: rank r sends r + 1 + p rows to rank p.
    sends, receives = [rank + 1 + p for p in range(world)], [p + 1 + rank for p in range(world)]
    source = torch.full((sum(sends), 3), float(rank))
    out = torch.zeros(sum(receives), 3)
    dist.all_to_all_single(out, source, receives, sends, group=ours)
    expected = torch.cat([torch.full((p + 1 + rank, 3), float(p)) for p in range(world)])
    assert torch.equal(out, expected)
    outs = [torch.zeros(2) for _ in range(world)]
    dist.all_to_all(
        outs, [torch.full((2,), float(10 * rank + p)) for p in range(world)], group=ours
    )
    assert [o[0].item() for o in outs] == [10 * p + rank for p in range(world)]
    out = torch.zeros(4)
    dist.reduce_scatter_tensor(out, torch.arange(4.0 * world) + rank, group=ours)
    shared = torch.arange(4.0 * world) * world + sum(range(world))
    assert torch.equal(out, shared[4 * rank : 4 * rank + 4])
    out = torch.zeros(rank + 1)
    dist.reduce_scatter(out, [torch.ones(r + 1) * (rank + 1) for r in range(world)], group=ours)
    assert torch.equal(out, torch.full((rank + 1,), float(sum(range(1, world + 1)))))
    x = torch.full((3,), float(rank + 1))
    dist.reduce(x, 0, group=ours)
    assert rank != 0 or x[0].item() == sum(range(1, world + 1))


@pytest.mark.parametrize("world", [2, 3])
def test_exchanges_even_and_uneven(world):
    run_ranks(_exchanges, world)


def _strided(rank, world):
    out = torch.zeros(4, 2 * world)[:, ::2].t()  # [world, 4], not contiguous
    dist.all_gather_into_tensor(out, torch.full((4,), float(rank)))
    assert torch.equal(out, torch.arange(float(world)).unsqueeze(1).expand(world, 4))
    x = torch.full((4, 4), float(rank + 1))[:, 1:3]
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((4, 2), float(sum(range(1, world + 1)))))


def test_strided_tensors_are_served():
    run_ranks(_strided, 2, backend=UNCOPY)


# ---- works ----


def _asynchronous(rank, world):
    works, tensors = [], []
    for i in range(20):
        x = torch.full((1000 * (i + 1),), float(rank + i))
        works.append(dist.all_reduce(x, async_op=True))
        tensors.append(x)
    for i, (work, x) in enumerate(zip(works, tensors, strict=True)):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert torch.equal(x, torch.full_like(x, float(sum(range(world)) + world * i)))
    x = torch.ones(5)
    future = dist.all_reduce(x, async_op=True).get_future()
    assert torch.equal(future.wait()[0], torch.full((5,), float(world)))
    seen = []
    done = dist.all_reduce(x, async_op=True).get_future().then(lambda f: seen.append(f.value()))
    done.wait()
    assert len(seen) == 1
    # An asynchronous one that is not waited for keeps its place before a synchronous one.
    y = torch.full((300_000,), float(rank))
    work = dist.all_reduce(y, async_op=True)
    dist.all_reduce(x)
    work.wait()
    assert torch.equal(y, torch.full_like(y, float(sum(range(world)))))


def test_asynchronous_works():
    run_ranks(_asynchronous, 2, backend=UNCOPY)


def _two_groups_in_two_orders(rank, world):
    a, b = dist.new_group(), dist.new_group()
    x, y = torch.ones(10), torch.ones(10)
    first, second = (a, b) if rank == 0 else (b, a)
    works = [dist.all_reduce(x, group=first, async_op=True)]
    works.append(dist.all_reduce(y, group=second, async_op=True))
    for work in works:
        work.wait()
    assert x[0].item() == y[0].item() == world


def test_asynchronous_works_of_two_groups_do_not_wait_for_each_other():
    run_ranks(_two_groups_in_two_orders, 2, backend=UNCOPY)


def _transfers(rank, world):
    peer = 1 - rank
    x = torch.full((1000,), float(rank))
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, 1, tag=7)
    else:
        y = torch.empty(1000)
        dist.recv(y, 0)
        assert torch.equal(y, torch.zeros(1000))
        dist.send(x, 0, tag=7)
    assert torch.equal(x, torch.ones(1000))
    # Both send first, large ones, and receive tags in another order than they were sent.
    big = [torch.full((500_000,), float(10 * rank + i)) for i in range(2)]
    got = [torch.empty(500_000) for _ in range(2)]
    works = [dist.isend(big[i], peer, tag=i) for i in range(2)]
    works += [dist.irecv(got[i], peer, tag=i) for i in (1, 0)]
    for work in works:
        work.wait()
    assert [g[0].item() for g in got] == [10.0 * peer, 10.0 * peer + 1]
    operations = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, got[0][:1000], peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert torch.equal(got[0][:1000], torch.ones(1000))


def test_transfers():
    run_ranks(_transfers, 2, backend=UNCOPY)


def _coalesced(rank, world):
    xs = [torch.full((n,), float(rank + n)) for n in (1, 100, 10_000)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x)
    manager.wait()
    assert [x[0].item() for x in xs] == [sum(r + n for r in range(world)) for n in (1, 100, 10_000)]
    outs = [torch.zeros(n * world) for n in (2, 3000)]
    with dist._coalescing_manager():
        for out, n in zip(outs, (2, 3000), strict=True):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank)))
    assert all(o.view(world, -1)[r, 0] == r for o in outs for r in range(world))
    outs = [torch.zeros(n) for n in (2, 3000)]
    with dist._coalescing_manager():
        for out, n in zip(outs, (2, 3000), strict=True):
            dist.reduce_scatter_tensor(out, torch.ones(n * world))
    assert all(torch.equal(o, torch.full_like(o, float(world))) for o in outs)


def test_coalesced_collectives():
    run_ranks(_coalesced, 2, backend=UNCOPY)


# ---- what stands on process groups ----


def _objects_and_groups(rank, world):
    import uncopy

    found = [None] * world
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(world)]
    shared = [rank, "x"]
    dist.broadcast_object_list(shared, src=1)
    assert shared == [1, "x"]
    dist.barrier()
    dist.monitored_barrier()
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = torch.ones(2)
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [2.0, 2.0]
        assert uncopy.comm_info(pair)["size"] == 2
    z = torch.full((3,), 1 + 2j)
    dist.all_reduce(z)
    assert z[0].item() == world * (1 + 2j)
    info = uncopy.comm_info()
    assert (info["backend"], info["engine"]) == ("uncopy", "uncopy")
    assert info["counts"]["calls"] > 0
    assert info["on_gloo"] == ["monitored_barrier"]
    dist.destroy_process_group(pair) if rank < 2 else None


def test_objects_subgroups_and_what_gloo_serves():
    run_ranks(_objects_and_groups, 3, backend=UNCOPY)


def _cpu_prefix(rank, world):
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0].item() == world


def test_the_backend_by_device():
    run_ranks(_cpu_prefix, 2, backend="cpu:uncopy")


def _functional(rank, world):
    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
    wait = ops.wait_tensor
    x = torch.full((2,), float(rank))
    gathered = wait(ops.all_gather_into_tensor(x, world, name))
    assert gathered.view(world, 2)[:, 0].tolist() == list(range(world))
    out = torch.zeros(2 * world)
    wait(ops.all_gather_into_tensor_out(x, world, name, out=out))
    assert torch.equal(out, gathered)
    many = ops.all_gather_into_tensor_coalesced([x, x + 1], world, name)
    assert [wait(m)[-1].item() for m in many] == [world - 1.0, world * 1.0]
    assert wait(ops.all_reduce(x, "sum", name))[0].item() == sum(range(world))
    assert wait(ops.broadcast(x, 1, name))[0].item() == 1
    exchanged = wait(
        ops.all_to_all_single(torch.arange(2.0 * world), [2] * world, [2] * world, name)
    )
    assert exchanged.tolist() == [2.0 * rank, 2.0 * rank + 1] * world
    scattered = wait(ops.reduce_scatter_tensor(torch.arange(2.0 * world), "sum", world, name))
    assert scattered.tolist() == [world * (2.0 * rank + i) for i in range(2)]


def test_functional_collectives():
    run_ranks(_functional, 2, backend=UNCOPY)


def _parallel(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    inputs = [torch.full((2, 8), float(r + 1)) for r in range(world)]
    alone = model()
    loss = sum(alone(x).square().mean() for x in inputs) / world
    loss.backward()
    replicated = torch.nn.parallel.DistributedDataParallel(model())
    replicated(inputs[rank]).square().mean().backward()
    for a, b in zip(alone.parameters(), replicated.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    mesh = init_device_mesh("cpu", (world,))
    sharded = model()
    for layer in sharded:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for _ in range(2):
        sharded.zero_grad()
        sharded(inputs[rank]).square().mean().backward()
    for a, b in zip(alone.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad.full_tensor())
    whole = torch.arange(24.0).view(6, 4)
    spread = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(spread.redistribute(mesh, [Replicate()]).to_local(), whole)


def test_ddp_fsdp_and_dtensor():
    run_ranks(_parallel, 2, backend=UNCOPY)


def _checkpoint(rank, world, folder):
    import torch.distributed.checkpoint as dcp

    state = {"w": torch.full((4,), 3.0), "rank": torch.tensor(rank)}
    dcp.save(state, checkpoint_id=folder)
    loaded = {"w": torch.zeros(4)}
    dcp.load(loaded, checkpoint_id=folder)
    assert torch.equal(loaded["w"], state["w"])


def test_distributed_checkpoint(tmp_path):
    run_ranks(_checkpoint, 2, str(tmp_path), backend=UNCOPY)


# ---- in plans ----


def refill(x, buffer, part, w1, w2):
    dist.all_gather_into_tensor(buffer, part)
    return (x @ w1) @ w2


def _planned(rank, world, in_window):
    import uncopy

    buffer = torch.zeros(256, dtype=torch.bfloat16)
    part = torch.empty(256 // world, dtype=torch.bfloat16)
    if in_window:
        part = uncopy.empty(256 // world, dtype=torch.bfloat16)
    part.fill_(rank + 1)
    views = buffer[:128].view(8, 16), buffer[128:].view(16, 8)
    x = torch.ones(2, 8, dtype=torch.bfloat16)
    compiled = torch.compile(refill, backend="uncopy", fullgraph=True, options={"strict": True})
    for _ in range(3):
        buffer.zero_()
        result = compiled(x, buffer, part, *views)
        expected = torch.arange(1, world + 1).repeat_interleave(256 // world).bfloat16()
        assert torch.equal(buffer, expected)
        assert torch.equal(result, (x @ views[0]) @ views[1])
    stats = uncopy.stats()
    assert (stats["collectives"], stats["collectives_host"], stats["copies"]) == (3, 0, 0)

    def reductions(x):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        out = torch.empty(x.numel() // world)
        dist.reduce_scatter_tensor(out, x * 2, op=dist.ReduceOp.AVG)
        return out

    x = torch.arange(4.0 * world) + rank
    out = torch.compile(reductions, backend="uncopy", fullgraph=True)(x)
    assert torch.equal(x, torch.arange(4.0 * world) + world - 1)
    assert torch.equal(out, 2 * x[4 * rank : 4 * rank + 4])
    assert uncopy.stats()["collectives"] == 5


@pytest.mark.parametrize("in_window", [False, True])
def test_collectives_of_a_plan_run_on_the_engine(in_window):
    run_ranks(_planned, 2, in_window, backend=UNCOPY)


def _windows(rank, world):
    import uncopy

    x = uncopy.empty(1000, 2, dtype=torch.float32)
    x.copy_(torch.full((1000, 2), float(rank)))
    out = torch.zeros(world * 2000)
    before = uncopy.comm_info()["counts"]
    dist.all_gather_into_tensor(out, x[:].view(-1))
    after = uncopy.comm_info()["counts"]
    assert after["bytes_window"] - before["bytes_window"] >= 8000 * (world - 1)
    assert torch.equal(out.view(world, -1)[:, 0], torch.arange(float(world)))
    view = x[500:]
    del x
    dist.barrier()
    view.add_(1)  # the window lives as long as a view of it
    assert view[0, 0].item() == rank + 1


def test_windows_are_read_where_they_lie():
    run_ranks(_windows, 2, backend=UNCOPY)


# ---- faults ----


def _mismatched(rank, world):
    x = torch.ones(4 + rank)
    with pytest.raises(RuntimeError, match=r"all_reduce.*rank") as caught:
        dist.all_reduce(x)
    return str(caught.value)


def test_sizes_that_differ_are_an_error_on_both_sides():
    for message in run_ranks(_mismatched, 2, backend=UNCOPY):
        assert "16 bytes" in message
        assert "20 bytes" in message


def _late(rank, world):
    group = dist.new_group(backend=UNCOPY, timeout=timedelta(seconds=0.3))
    if rank == 0:
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.all_reduce(torch.ones(3), group=group)
        assert time.monotonic() - start >= 0.3
    dist.barrier()


def test_a_rank_that_does_not_come_is_named_after_the_timeout():
    run_ranks(_late, 2)


SCRIPT = """
import os, signal, sys, time, torch, torch.distributed as dist, uncopy
# A test run in the background passes on that this signal is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
rank, world = int(sys.argv[2]), int(sys.argv[3])
path = "file://" + sys.argv[1]
dist.init_process_group("uncopy", init_method=path, rank=rank, world_size=world)
def refill(x):
    out = torch.empty(x.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(out, x)
    return out * 2
f = torch.compile(refill, backend="uncopy") if sys.argv[4] == "compiled" else refill
x = torch.ones(100_000)
f(x)
print("ready", flush=True)
try:
    while True:
        f(x)
except (RuntimeError, KeyboardInterrupt) as error:
    print(type(error).__name__, error, flush=True)
    os._exit(3)
"""


def _start(tmp_path, world, how):
    return [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "rendezvous"), str(r), str(world), how],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for r in range(world)
    ]


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_killed_peer_is_an_error_on_every_survivor(tmp_path, how):
    processes = _start(tmp_path, 3, how)
    assert [p.stdout.readline() for p in processes] == ["ready\n"] * 3
    time.sleep(0.1)
    processes[1].kill()
    for rank in (0, 2):
        output, _ = processes[rank].communicate(timeout=20)
        assert output.startswith("RuntimeError"), output
        assert "rank 1" in output or "aborted" in output, output
        assert processes[rank].returncode == 3


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_an_interrupt_ends_a_wait(tmp_path, how):
    processes = _start(tmp_path, 2, how)
    assert [p.stdout.readline() for p in processes] == ["ready\n"] * 2
    os.kill(processes[1].pid, signal.SIGSTOP)
    time.sleep(0.2)
    processes[0].send_signal(signal.SIGINT)
    output, _ = processes[0].communicate(timeout=20)
    processes[1].kill()
    processes[1].wait()
    assert output.startswith("KeyboardInterrupt"), output


def _forked(rank, world):
    x = torch.ones(4)
    dist.all_reduce(x)
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(x)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    dist.all_reduce(x)
    assert x[0].item() == world * world
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=4, num_workers=2)
    for batch in loader:
        y = batch.float()
        dist.all_reduce(y)
    dist.barrier()


def test_a_fork_leaves_the_group_to_the_parent():
    run_ranks(_forked, 2, backend=UNCOPY)


def _threads(rank, world):
    groups = [dist.new_group() for _ in range(3)]
    failures = []

    def work(group):
        try:
            for _ in range(50):
                x = torch.full((100,), float(rank))
                dist.all_reduce(x, group=group)
                assert x[0].item() == sum(range(world))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(g,)) for g in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_groups_in_several_threads():
    run_ranks(_threads, 2, backend=UNCOPY)


def _gone(rank, world):
    group = dist.new_group()

    def f(x):
        dist.all_reduce(x, group=group)
        return x + 1

    compiled = torch.compile(f, backend="uncopy", fullgraph=True)
    compiled(torch.ones(3))
    dist.barrier()
    dist.destroy_process_group(group)
    with pytest.raises(RuntimeError, match="does not exist any more"):
        compiled(torch.ones(3))


def test_a_destroyed_group_is_an_error():
    run_ranks(_gone, 2, backend=UNCOPY)
