"""Uncopy: torch.compile for programs whose tensors share memory and are written in place. Nothing
is copied needlessly.

    torch.compile(fn, backend="uncopy", options={"strict": True})
    planned = uncopy.plan(fn, *args)      # direct calls, without Dynamo's time on each
    print(uncopy.explain(fn, *args))      # what shares with what, each copy that stays and why
    uncopy.stats()                        # counts of copies, moves, externs, fallbacks, ... so far
    dist.init_process_group("uncopy")     # collectives over shared memory; uncopy.comm_info(group)

Options (argument, torch.compile(options=), environment UNCOPY_<NAME>, default; in that order) are
in info()["options"]. UNCOPY_LOG=info or debug shows what is compiled.
"""

from uncopy import logs  # noqa: F401 - reads UNCOPY_LOG
from uncopy.backend import backend
from uncopy.communication import comm_info, empty, register
from uncopy.errors import CaptureError, StrictError, VerifyError
from uncopy.memory import from_blob
from uncopy.planned import Planned, explain, plan
from uncopy.registry import reset_stats, stats
from uncopy.report import PlanReport, plans
from uncopy.runtime import VERSION, info

__version__ = VERSION
register()  # dist.init_process_group("uncopy")

__all__ = [
    "CaptureError",
    "PlanReport",
    "Planned",
    "StrictError",
    "VerifyError",
    "__version__",
    "backend",
    "comm_info",
    "empty",
    "explain",
    "from_blob",
    "info",
    "plan",
    "plans",
    "reset_stats",
    "stats",
]
