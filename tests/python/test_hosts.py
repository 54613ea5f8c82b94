"""Groups whose ranks are on several hosts: network namespaces stand for hosts.

Two namespaces joined by a virtual cable, two ranks in each. Whether ranks share memory is tried:
the group of all four is served by gloo and says why, a group of one host's ranks by the engine.
Needs the right to make namespaces; without it the test is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch has no gloo here", allow_module_level=True)

RANKS_OF_A_HOST = 2
TIMEOUT_S = 120

SCRIPT = """
import sys
import torch
import torch.distributed as dist
import uncopy

rank, world, here = int(sys.argv[1]), 4, int(sys.argv[1]) // 2
dist.init_process_group("uncopy", init_method="tcp://10.231.7.1:29517", rank=rank, world_size=world)
info = uncopy.comm_info()
assert info["engine"] == "gloo", info
assert "rank" in info["reason"] and "reach" in info["reason"], info
groups = [dist.new_group([0, 1], backend="uncopy"), dist.new_group([2, 3], backend="uncopy")]
assert uncopy.comm_info(groups[here])["engine"] == "uncopy", uncopy.comm_info(groups[here])
across = dist.new_group([1, 2], backend="uncopy")

def total(group):
    x = torch.full((5000,), float(rank + 1))
    dist.all_reduce(x, group=group)
    return x.unique().tolist()

assert total(None) == [10.0]
assert total(groups[here]) == [[3.0], [7.0]][here]
if rank in (1, 2):
    assert uncopy.comm_info(across)["engine"] == "gloo"
    assert total(across) == [5.0]
out = torch.zeros(8)
dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
assert out.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]

def step(x, part):
    out = torch.empty(8)
    dist.all_gather_into_tensor(out, part)
    return out * x

compiled = torch.compile(step, backend="uncopy", fullgraph=True)
got = compiled(torch.tensor(2.0), torch.full((2,), float(rank)))
assert got.tolist() == [0.0, 0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0]
dist.barrier()
dist.destroy_process_group()
"""


def run(*words: str) -> None:
    """A command that succeeds."""
    subprocess.run(words, check=True, capture_output=True)


def join(names: list[str]) -> None:
    """Makes the namespaces, with a cable between them."""
    for name in names:
        run("ip", "netns", "add", name)
    ends = ("type", "veth", "peer", "name", "cable", "netns", names[1])
    run("ip", "-n", names[0], "link", "add", "cable", *ends)
    for i, name in enumerate(names):
        run("ip", "-n", name, "address", "add", f"10.231.7.{i + 1}/24", "dev", "cable")
        for device in ("lo", "cable"):
            run("ip", "-n", name, "link", "set", device, "up")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Names of two joined namespaces."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command on this machine")
    names = [f"uncopy-{os.getpid()}-{i}" for i in range(2)]
    try:
        try:
            join(names)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces for this user here: {error.stderr.decode()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_ranks_of_several_hosts_are_served_by_gloo_and_those_of_one_by_the_engine(
    hosts: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank in range(2 * RANKS_OF_A_HOST):
        words = ["ip", "netns", "exec", hosts[rank // RANKS_OF_A_HOST], sys.executable]
        ranks.append(
            subprocess.Popen(
                [*words, str(script), str(rank)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, output in zip(ranks, outputs, strict=True):
        assert process.returncode == 0, output
    assert "runs on gloo" in outputs[0]
