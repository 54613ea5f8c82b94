"""Plans as a person looks at them: `uncopy.plans()`, `uncopy.explain()`."""

from dataclasses import dataclass
from typing import Any

from uncopy.registry import Compiled, FallbackFacts, live

__all__ = ["PlanReport", "plans", "reports_of"]


@dataclass(frozen=True)
class PlanReport:
    """One plan of a graph, or the one fallback of a graph that has none.

    copies: each copy that stayed, with reason, words, bytes, file, line. externs: each operation
    that the host runs, with target, file, line. moves: number of instructions that only move bytes
    and are needed. fallbacks: why there is no plan.
    """

    name: str
    copies: list[dict[str, Any]]
    moves: int
    externs: list[dict[str, Any]]
    fallbacks: list[FallbackFacts]
    _compiled: Compiled
    _plan: Any = None

    def text(self) -> str:
        """The instructions with their bytes and lines."""
        if self._plan is None:
            return f"graph {self.name}: no plan, {self.fallbacks[0]}"
        return self._plan.text()

    def explain(self) -> str:
        """In words: what shares with what, copies, externs, order; then options and notes."""
        words = self.text() if self._plan is None else self._plan.explain()
        options = "\n".join(f"  {line}" for line in self._compiled.options.words())
        return f"{words.rstrip()}\noptions\n{options}\n"


def reports_of(compiled: Compiled) -> list[PlanReport]:
    """The plans of a graph, oldest first."""
    if compiled.fallback is not None:
        return [PlanReport(compiled.name, [], 0, [], [compiled.fallback], compiled)]
    return [
        PlanReport(
            compiled.name,
            plan.copies(),
            plan.counts()["moves"],
            plan.externs(),
            [],
            compiled,
            plan,
        )
        for plan in compiled.function.plans()
    ]


def plans() -> list[PlanReport]:
    """The plans of every compiled graph that is in use, oldest graph first."""
    return [report for _, compiled in live() for report in reports_of(compiled)]
