"""Runs a function eagerly and compiled on arguments built alike, and compares everything a caller
can see.
"""

import torch
from torch.utils._pytree import tree_leaves


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def close(a, b):
    """Equal, but for the last bits of computed floating numbers."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach(), b.detach()
    if a.dtype.is_floating_point and a.itemsize == 1:
        return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return torch.equal(a, b)


def shared_bytes(tree):
    """For each pair of tensors whose storages have common bytes, how far apart they begin."""
    found = {}
    ts = tensors(tree)
    for j, b in enumerate(ts):
        for i, a in enumerate(ts[:j]):
            if not a.numel() or not b.numel():
                continue
            x, y = a.untyped_storage(), b.untyped_storage()
            starts, ends = (x.data_ptr(), y.data_ptr()), (x.nbytes(), y.nbytes())
            if min(ends) and starts[0] < starts[1] + ends[1] and starts[1] < starts[0] + ends[0]:
                found[i, j] = b.data_ptr() - a.data_ptr()
    return found


def identities(tree):
    """For each pair of tensors, whether they are one object."""
    ts = tensors(tree)
    return {(i, j) for j, b in enumerate(ts) for i, a in enumerate(ts[:j]) if a is b}


def check_same(fn, build, compiled, *, calls=1, metadata=True):
    """Compares `calls` calls of fn and of compiled, each on fresh arguments from build().

    metadata: autograd's, of the results, too.
    """
    for _ in range(calls):
        ours, eagers = build(), build()
        torch.manual_seed(0)
        expected = fn(*eagers)
        torch.manual_seed(0)
        result = compiled(*ours)
        all_ours, all_eagers = (ours, result), (eagers, expected)
        got, wanted = tensors(all_ours), tensors(all_eagers)
        assert len(got) == len(wanted)
        for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
            assert close(a, b), f"tensor {number}: {a} is not {b}"
        for a, b in zip(tensors(result), tensors(expected), strict=True):
            assert a.stride() == b.stride()
            if metadata:
                assert (a.requires_grad, a._is_view()) == (b.requires_grad, b._is_view())
        assert shared_bytes(all_ours) == shared_bytes(all_eagers)
        assert identities(all_ours) == identities(all_eagers)


def range_tensor(*shape, dtype=torch.float32):
    """0, 1, 2, ... in a shape."""
    count = torch.Size(shape).numel()
    return torch.arange(count).to(dtype).reshape(shape).clone()
