"""Data-parallel training on gloo ranks, with compiled blocks inside and with the whole module
compiled.
"""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn

import uncopy


class Block(nn.Module):
    """Of a class of its own: Dynamo takes no frame of PyTorch's own modules."""

    def __init__(self, rows, columns):
        super().__init__()
        self.linear = nn.Linear(rows, columns)
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(torch.nn.functional.gelu(self.linear(x)))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(6, 16), Block(16, 16), Block(16, 2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def model():
    torch.manual_seed(3)
    torch._dynamo.config.automatic_dynamic_shapes = False  # blocks differ in size
    return Blocks()


def compile_blocks(net):
    for index, block in enumerate(net.blocks):
        net.blocks[index] = torch.compile(block, backend="uncopy")
    return net


def train(net, rank, steps=3):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    losses = []
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(5, 6, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def replicated(net, kind):
    if kind == "whole":
        return torch.compile(nn.parallel.DistributedDataParallel(net), backend="uncopy")
    return nn.parallel.DistributedDataParallel(compile_blocks(net))


def ddp_rank(rank, world, kind):
    eager = nn.parallel.DistributedDataParallel(model())
    expected = train(eager, rank)
    net = model()
    losses = train(replicated(net, kind), rank)
    counts = uncopy.stats()
    assert counts["calls"] > 0
    assert counts["fallbacks"] == 0, [p.fallbacks for p in uncopy.plans() if p.fallbacks]
    return (losses - expected).abs().max().item()


@pytest.mark.parametrize("kind", ["blocks", "whole"])
def test_replicated_training_is_eagers(kind):
    assert max(run_ranks(ddp_rank, 2, kind)) < 1e-5


def sharded(net):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def fsdp_rank(rank, world):
    eager = sharded(model())
    expected = train(eager, rank)
    net = sharded(model())
    for block in net.blocks:
        block.compile(backend="uncopy")
    losses = train(net, rank)
    counts = uncopy.stats()
    assert counts["calls"] > 0
    assert counts["fallbacks"] == 0, [p.fallbacks for p in uncopy.plans() if p.fallbacks]
    return (losses - expected).abs().max().item()


def test_sharded_training_with_compiled_blocks_is_eagers():
    assert max(run_ranks(fsdp_rank)) < 1e-5


def gathered_rank(rank, world):
    """Weights over a flat buffer that a collective of the graph fills, with gradients."""

    def fn(x, flat, part, w1, w2):
        with torch.no_grad():
            dist.all_gather_into_tensor(flat, part)
        return (x @ w1).relu() @ w2

    def build():
        flat = torch.zeros(2 * 16)
        weights = [flat[:16].view(4, 4), flat[16:].view(4, 4)]
        leaves = [w.detach().requires_grad_() for w in weights]
        part = torch.arange(16.0).cos() * (rank + 1)
        x = torch.arange(8.0).sin().view(2, 4).requires_grad_()
        return x, flat, part, *leaves

    def step(fn, args):
        result = fn(*args)
        result.square().sum().backward()
        return [result, args[1], *(a.grad for a in args if a.requires_grad)]

    compiled = torch.compile(fn, backend="uncopy", fullgraph=True)
    for _ in range(2):
        for a, b in zip(step(compiled, build()), step(fn, build()), strict=True):
            assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    counts = uncopy.stats()
    assert counts["fallbacks"] == 0
    return counts["copies"]


def test_weights_over_a_buffer_that_a_collective_fills_train_without_copies():
    assert run_ranks(gathered_rank) == [0, 0]
