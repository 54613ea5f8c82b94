"""The logger "uncopy". UNCOPY_LOG=debug|info|warning|error prints it to stderr."""

import logging
import os

__all__ = ["LOG"]

LOG = logging.getLogger("uncopy")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def _configure(level: str) -> None:
    if level.lower() not in _LEVELS:
        raise ValueError(f"UNCOPY_LOG takes one of {', '.join(_LEVELS)}, not {level!r}")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("uncopy: %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(_LEVELS[level.lower()])
    LOG.propagate = False


if os.environ.get("UNCOPY_LOG"):
    _configure(os.environ["UNCOPY_LOG"])
