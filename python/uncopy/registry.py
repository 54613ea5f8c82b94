"""Every compiled graph of the process, weakly held, and the counts of those that are gone.

A graph is known by the callable that Dynamo holds; when Dynamo drops it, its counts go into the
totals.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uncopy.options import Options
from uncopy.source import SourceLine

__all__ = ["COUNTS", "Compiled", "FallbackFacts", "live", "register", "reset_stats", "stats"]

# The words of stats(), in order.
COUNTS = (
    "calls",
    "plans",
    "replans",
    "moves",
    "bytes_moved",
    "copies",
    "bytes_copied",
    "bytes_staged",
    "bytes_allocated",
    "externs",
    "collectives",
    "collectives_host",
    "fallbacks",
    "misses",
)


@dataclass(frozen=True)
class FallbackFacts:
    """Why a graph is not planned: reason code, words, and the line where it is known."""

    reason: str
    words: str
    source: SourceLine | None

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.reason}: {self.words}{where}"


@dataclass
class Compiled:
    """One compiled graph: a function of the C extension, or a fallback.

    function: the _core.Function, None for a fallback. bound: the _core.Bound of a planned function,
    None without one. extra: counts that Python keeps.
    """

    name: str
    options: Options
    function: Any = None
    fallback: FallbackFacts | None = None
    bound: Any = None
    extra: Counter[str] = field(default_factory=Counter)

    def counts(self) -> Counter[str]:
        """Counts since creation or reset."""
        own = self.function.counts() if self.function is not None else {}
        counts = Counter({name: own.get(name, 0) for name in COUNTS})
        counts["misses"] += self.bound.misses if self.bound is not None else 0
        counts.update(self.extra)
        return counts

    def reset(self) -> None:
        """Sets the counts to zero."""
        self.extra.clear()
        if self.bound is not None:
            self.extra["misses"] = -self.bound.misses
        if self.function is not None:
            self.function.reset_counts()


_live: dict[int, tuple["weakref.ref[Any]", Compiled]] = {}
_gone: Counter[str] = Counter()


def register(handle: Callable[..., Any], compiled: Compiled) -> None:
    """Makes a compiled graph known as long as its handle lives."""
    key = id(compiled)
    _live[key] = (weakref.ref(handle), compiled)
    weakref.finalize(handle, _retire, key).atexit = False


def _retire(key: int) -> None:
    entry = _live.pop(key, None)
    if entry is not None:
        _gone.update(entry[1].counts())


def live() -> list[tuple[Callable[..., Any], Compiled]]:
    """The compiled graphs that somebody holds, oldest first, each with its handle."""
    found = [(reference(), compiled) for reference, compiled in list(_live.values())]
    return [(handle, compiled) for handle, compiled in found if handle is not None]


def stats() -> dict[str, int]:
    """Counts of all compiled graphs, those that are gone included."""
    total = Counter(_gone)
    for _, compiled in list(_live.values()):
        total.update(compiled.counts())
    return {name: total[name] for name in COUNTS}


def reset_stats() -> None:
    """Sets all counts to zero."""
    _gone.clear()
    for _, compiled in list(_live.values()):
        compiled.reset()
