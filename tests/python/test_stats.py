"""Counts: exact, kept when a graph is gone, set to zero together."""

import gc

import torch
from compare import range_tensor

import uncopy
from uncopy.registry import COUNTS


def refill(buffer, new):
    """A write that needs no copy."""
    buffer.copy_(new * 2)
    return buffer @ buffer


def test_stats_have_the_documented_words():
    assert tuple(uncopy.stats()) == COUNTS
    assert set(uncopy.stats().values()) == {0}


def test_calls_plans_and_copies_are_counted():
    compiled = torch.compile(refill, backend="uncopy")
    for _ in range(3):
        compiled(torch.zeros(4, 4), range_tensor(4, 4))
    stats = uncopy.stats()
    assert (stats["calls"], stats["plans"], stats["replans"]) == (3, 1, 0)
    assert (stats["copies"], stats["bytes_copied"], stats["fallbacks"]) == (0, 0, 0)
    assert stats["bytes_allocated"] >= 3 * 64


def test_other_aliasing_is_a_replan():
    compiled = torch.compile(refill, backend="uncopy")
    compiled(torch.zeros(4, 4), range_tensor(4, 4))
    both = range_tensor(4, 4)
    compiled(both, both.view(4, 4))
    stats = uncopy.stats()
    assert (stats["plans"], stats["replans"]) == (2, 1)


def test_a_copy_that_stays_has_a_reason_and_a_line():
    def fn(x):
        y = x.clone()
        x.add_(1)
        return y + x

    compiled = torch.compile(fn, backend="uncopy")
    compiled(range_tensor(8))
    report = uncopy.plans()[0]
    if report.copies:
        copy = report.copies[0]
        assert copy["reason"]
        assert copy["file"] == "test_stats.py"
        assert uncopy.stats()["copies"] == 1
        assert uncopy.stats()["bytes_copied"] == 32
    else:
        assert report.moves == 1
        assert uncopy.stats()["bytes_moved"] == 32


def test_externs_are_counted_and_listed():
    compiled = torch.compile(lambda x: x.softmax(-1), backend="uncopy")
    compiled(range_tensor(4, 4))
    assert uncopy.stats()["externs"] == 1
    assert uncopy.plans()[0].externs[0]["target"] == "aten._softmax.default"


def test_counts_outlive_the_graph():
    compiled = torch.compile(refill, backend="uncopy")
    compiled(torch.zeros(4, 4), range_tensor(4, 4))
    assert len(uncopy.plans()) == 1
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert uncopy.plans() == []
    assert uncopy.stats()["calls"] == 1


def test_reset_sets_all_counts_to_zero():
    compiled = torch.compile(refill, backend="uncopy")
    compiled(torch.zeros(4, 4), range_tensor(4, 4))
    uncopy.reset_stats()
    assert set(uncopy.stats().values()) == {0}
    compiled(torch.zeros(4, 4), range_tensor(4, 4))
    assert uncopy.stats()["calls"] == 1


def test_fallbacks_are_calls():
    torch.compile(lambda x: x.view((1,) * 13 + (3,)) * 2, backend="uncopy")(range_tensor(3))
    stats = uncopy.stats()
    assert (stats["calls"], stats["fallbacks"], stats["plans"]) == (1, 1, 0)
