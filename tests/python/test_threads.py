"""Threads of a plan's own kernels: the option, PyTorch's number, equal bits."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import uncopy

MANY = 1 << 20  # elements: well above what is shared out


@pytest.fixture(autouse=True)
def _torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def update(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """An optimizer's step and a product with few rows, all on our kernels."""
    m.mul_(0.9).add_(g)
    p.sub_(torch.sigmoid(m) * 0.01)
    return p[:1024].view(1, 1024) @ g.view(1024, -1)[:, :512]


def make_arguments() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(MANY, generator=generator) for _ in range(3))


def our_threads() -> int:
    """Threads of this process by what the system says."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_results_do_not_depend_on_the_number_of_threads():
    outcomes = []
    for threads in (1, 2, 3, 7):
        arguments = make_arguments()
        planned = uncopy.plan(update, *make_arguments(), threads=threads)
        result = planned(*arguments)
        outcomes.append((result, *arguments))
    for outcome in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], outcome, strict=True))


def test_one_thread_starts_no_workers_and_more_do():
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    x = torch.zeros(MANY)
    torch.set_num_threads(1)
    planned = uncopy.plan(program, x)
    before = our_threads()
    planned(x)
    assert our_threads() == before
    torch.set_num_threads(12)  # more than any other test asks for
    planned(x)
    started = our_threads() - before
    planned(x)
    assert our_threads() - before == started
    assert 1 <= started <= 11
    assert torch.equal(x, torch.full((MANY,), x[0].item()))


def test_the_option_goes_over_pytorchs_number():
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    x = torch.zeros(MANY)
    torch.set_num_threads(16)
    planned = uncopy.plan(program, x, threads=1)
    before = our_threads()
    planned(x)
    assert our_threads() == before


@pytest.mark.parametrize("value", [-1, True, "2"])
def test_a_number_of_threads_is_a_count(value):
    with pytest.raises((TypeError, ValueError), match="threads"):
        uncopy.plan(lambda x: x + 1, torch.zeros(2), threads=value)


def test_threads_of_the_program_run_plans_at_once():
    planned = uncopy.plan(update, *make_arguments(), threads=2)
    expected = make_arguments()
    result = planned(*expected)
    failures: list[str] = []

    def call() -> None:
        for _ in range(5):
            arguments = make_arguments()
            if not torch.equal(planned(*arguments), result):
                failures.append("result")
            if not all(torch.equal(a, b) for a, b in zip(arguments, expected, strict=True)):
                failures.append("effects")

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_child_process_runs_plans():
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    x = torch.ones(MANY)
    planned = uncopy.plan(program, x, threads=3)
    planned(x)
    child = os.fork()
    if child == 0:
        planned(x)
        # Few elements: PyTorch's own threads do not outlive a fork.
        os._exit(0 if x[:: MANY // 64].tolist() == [4.0] * 64 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
