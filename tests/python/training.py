"""Runs a step of training eagerly and compiled, on arguments built alike, and compares what a
caller can see: results, gradients, arguments, version counters, which of these share memory.
"""

import contextlib

import torch
from compare import close, identities, shared_bytes, tensors

import uncopy


def differentiable(results):
    return [r for r in tensors(results) if r.requires_grad]


def backward_of_sum(args, results):
    """The backward of one number that every result with a history is part of."""
    sum((r * r).sum() for r in differentiable(results)).backward()


def step(fn, args, backward=backward_of_sum, retain=True):
    """Results of fn, its backward run; then the gradients of the arguments and of the leaves that
    they are made of. retain: the gradient of an argument that is no leaf is kept.
    """
    edges = [e[0] for t in tensors(args) if t.grad_fn for e in t.grad_fn.next_functions]
    leaves = [t for t in tensors(args) if t.requires_grad and (t.is_leaf or retain)]
    leaves += [e.variable for e in edges if hasattr(e, "variable")]
    for t in leaves:
        if not t.is_leaf:
            t.retain_grad()
    torch.manual_seed(0)
    results = fn(*args)
    backward(args, results)
    return results, [t.grad for t in leaves]


def versions(tree):
    return [t._version for t in tensors(tree)]


def check_training(
    fn,
    build,
    *,
    calls=2,
    backward=backward_of_sum,
    fallbacks=0,
    exact=False,
    retain=True,
    options=None,
    **compile,
):
    """Compares `calls` steps of fn, each on fresh arguments from build(). exact: every bit."""
    compiled = torch.compile(fn, backend="uncopy", options=options, **compile)
    for _ in range(calls):
        ours, eagers = build(), build()
        expected, expected_grads = step(fn, eagers, backward, retain)
        result, grads = step(compiled, ours, backward, retain)
        compare_steps((ours, result, grads), (eagers, expected, expected_grads), exact=exact)
    assert uncopy.stats()["fallbacks"] == fallbacks
    return compiled


def compare_steps(ours, eagers, *, exact=False):
    """Compares (arguments, results, gradients) of two steps."""
    got, wanted = tensors(ours), tensors(eagers)
    assert [g is None for g in ours[2]] == [g is None for g in eagers[2]]
    assert len(got) == len(wanted)
    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert close(a, b), f"tensor {number}: {a} is not {b}"
        assert not exact or torch.equal(a, b), f"tensor {number}: bits differ"
        assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf), f"tensor {number}"
        assert a.stride() == b.stride(), f"tensor {number}: {a.stride()} is not {b.stride()}"
    for a, b in zip(tensors(ours[1]), tensors(eagers[1]), strict=True):
        assert a._is_view() == b._is_view()
    assert shared_bytes(ours) == shared_bytes(eagers)
    assert identities(ours) == identities(eagers)
    assert [v > 0 for v in versions(ours[0])] == [v > 0 for v in versions(eagers[0])]


def error_of(run):
    """Type and message of what a call raises, None for nothing."""
    try:
        run()
    except Exception as error:
        return type(error), str(error)
    return None


@contextlib.contextmanager
def strictly():
    """No fallback inside."""
    uncopy.reset_stats()
    yield
    assert uncopy.stats()["fallbacks"] == 0
