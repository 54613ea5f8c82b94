"""Fixtures of the Python tests. What needs a built package is skipped without it, and says so."""

import gc
import sys

import pytest

try:
    import uncopy
except ImportError as error:
    HAS_PACKAGE = False
    print(f"skipped, uncopy is not installed ({error}): tests of the package", file=sys.stderr)
else:
    HAS_PACKAGE = True


@pytest.fixture
def reference(monkeypatch):
    """Puts the reference core in the place of the C extension, in every module that uses it."""
    import reference_core

    for name, module in list(sys.modules.items()):
        if name.startswith("uncopy.") and hasattr(module, "_core"):
            monkeypatch.setattr(module, "_core", reference_core)
    return reference_core


@pytest.fixture(autouse=True)
def _fresh_state():
    """Each test starts with no compiled graph and no count."""
    if not HAS_PACKAGE:
        yield
        return
    import torch

    torch._dynamo.reset()
    gc.collect()
    uncopy.reset_stats()
    yield
    torch._dynamo.reset()
