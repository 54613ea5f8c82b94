"""What a script asked for that has no effect here: each said once in the log, and handed to the
backend for explain.

A note reads "name=value: reason". Those of a configuration belong to its backend. Those of scopes
and helper functions are kept when they are met, in a script or while a function is traced, and
belong to the graph that is compiled next.
"""

import logging
from collections.abc import Iterable

import torch

__all__ = ["log_once", "record", "take"]

_log = logging.getLogger("uncopy.npu")
_logged: set[str] = set()
_recorded: dict[str, None] = {}  # an ordered set


def log_once(notes: Iterable[str]) -> None:
    """Warns about each note that this process has not warned about yet."""
    for note in notes:
        if note not in _logged:
            _logged.add(note)
            _log.warning("no effect here: %s", note)


@torch._dynamo.assume_constant_result
def record(note: str) -> bool:
    """Keeps a note for later graphs. Inside a traced function it runs while tracing and leaves
    nothing in the graph.
    """
    _recorded[note] = None
    log_once([note])
    return True


def take() -> list[str]:
    """The notes kept since the last call, oldest first."""
    notes = list(_recorded)
    _recorded.clear()
    return notes
