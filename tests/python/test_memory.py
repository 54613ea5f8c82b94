"""from_blob: bytes of others, tracked like any."""

import ctypes
import gc
import weakref

import pytest
import torch
from compare import range_tensor

import uncopy


class Owner:
    """Holds memory."""

    def __init__(self, size):
        self.bytes = (ctypes.c_float * size)(*range(size))

    @property
    def address(self):
        return ctypes.addressof(self.bytes)


def test_a_blob_is_the_owners_memory():
    owner = Owner(6)
    tensor = uncopy.from_blob(owner.address, (2, 3), owner=owner)
    assert torch.equal(tensor, range_tensor(2, 3))
    tensor[0, 0] = 9
    assert owner.bytes[0] == 9
    strided = uncopy.from_blob(owner.address + 4, (2, 2), (3, 1), dtype=torch.float32)
    assert strided.tolist() == [[1, 2], [4, 5]]
    bits = uncopy.from_blob(owner.address, [6], dtype=torch.int32)
    assert bits[1] == torch.tensor(1.0).view(torch.int32)


def test_the_owner_lives_as_long_as_the_storage():
    owner = Owner(4)
    gone = weakref.ref(owner)
    view = uncopy.from_blob(owner.address, (4,), owner=owner)[1:]
    del owner
    gc.collect()
    assert gone() is not None
    assert view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert gone() is None


def test_two_blobs_over_one_memory_alias():
    owner = Owner(8)

    def fn(a, b):
        a.add_(1)
        return b * 2

    compiled = torch.compile(fn, backend="uncopy")
    a = uncopy.from_blob(owner.address, (8,), owner=owner)
    b = uncopy.from_blob(owner.address + 8, (4,), owner=owner)
    assert compiled(a, b).tolist() == [6, 8, 10, 12]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shape": (-1,)}, ValueError),
        ({"shape": (2,), "strides": (-1,)}, ValueError),
        ({"shape": (2,), "strides": (1, 1)}, ValueError),
        ({"shape": (2,), "dtype": "f32"}, TypeError),
        ({"shape": (2,), "address": 0}, ValueError),
    ],
)
def test_bad_blobs_are_errors(arguments, error):
    owner = Owner(4)
    with pytest.raises(error):
        uncopy.from_blob(**{"address": owner.address, **arguments})
