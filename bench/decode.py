"""A decode loop: attention over a cache that grows by a row a step, so every step has another size.

Prints the mean time of a step over lengths 1..N, each met for the first time, beside that of the
same step at fixed lengths, which leaves what a new length costs; eager beside both. The loops take
turns in one process; compare figures as ratios.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import torch

import uncopy


def step(cache: torch.Tensor, key: torch.Tensor, query: torch.Tensor, n: int) -> torch.Tensor:
    """Writes row n - 1 of the cache and attends over the first n rows."""
    cache[n - 1] = key
    rows = cache[:n]
    weights = torch.softmax(query @ rows.t(), -1)
    return weights @ rows


def seconds(run: Callable[..., torch.Tensor], lengths: Sequence[int], dim: int) -> float:
    """Mean time of a step over these lengths."""
    cache = torch.zeros(max(lengths), dim)
    keys, query = torch.randn(64, dim), torch.randn(1, dim)
    begin = time.perf_counter()
    for n in lengths:
        run(cache, keys[n % 64], query, n)
    return (time.perf_counter() - begin) / len(lengths)


def check(run: Callable[..., torch.Tensor], lengths: Sequence[int], dim: int) -> None:
    """Raises AssertionError where a step's result or the cache is not eager's."""
    ours, eagers = torch.zeros(max(lengths), dim), torch.zeros(max(lengths), dim)
    for n in lengths:
        key, query = torch.randn(dim), torch.randn(1, dim)
        torch.testing.assert_close(run(ours, key, query, n), step(eagers, key, query, n))
        assert torch.equal(ours, eagers), n


def main() -> None:
    """Prints one line for each kind of loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lengths = list(range(1, options.length + 1))
    with torch.no_grad():
        compiled = torch.compile(step, backend="uncopy", fullgraph=True, dynamic=True)
        check(compiled, lengths, options.dim)
        fixed = lengths[:: max(1, len(lengths) // 16)]
        best = {"new": 1e9, "fixed": 1e9, "eager": 1e9}
        for _ in range(options.rounds):
            uncopy.reset_stats()
            best["new"] = min(best["new"], seconds(compiled, lengths, options.dim))
            plans = uncopy.stats()
            again = [n for n in fixed for _ in range(options.length // len(fixed))]
            best["fixed"] = min(best["fixed"], seconds(compiled, again, options.dim))
            best["eager"] = min(best["eager"], seconds(step, lengths, options.dim))
    for name, value in best.items():
        print(f"{name:>6}: {value * 1e6:8.1f} us a step")
    print(f"a new length costs {(best['new'] - best['fixed']) * 1e6:.1f} us a step")
    print({k: v for k, v in plans.items() if k in ("calls", "plans", "replans", "resizes")})


if __name__ == "__main__":
    main()
