"""Where in the user's program a node of a graph comes from."""

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath

import torch

__all__ = ["SourceLine", "source_of"]

# Frames that are not the user's: under the device mode of uncopy.npu, ours and PyTorch's are
# kept too.
_NOT_USERS = tuple(str(Path(p).parent) + os.sep for p in (__file__, torch.__file__))

# A frame of a node's stack trace: the file, the line, the function, and the code below it.
_FRAME = re.compile(r'File "(.*?)", line (\d+), in (.*)\n\s*(.*)')


@dataclass(frozen=True)
class SourceLine:
    """One line of the user's program; `path` as Python compiled it."""

    path: str
    line: int
    function: str
    code: str

    @functools.cached_property
    def file(self) -> str:
        """The file's name without its folder, as plans print it."""
        return PurePath(self.path).name

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_of(node: torch.fx.Node) -> SourceLine | None:
    """The innermost user frame that made the node, None where the graph kept none."""
    return _innermost(node.meta.get("stack_trace") or "")


@functools.lru_cache(maxsize=1024)
def _innermost(trace: str) -> SourceLine | None:
    frames = _FRAME.findall(trace)
    users = [frame for frame in frames if not frame[0].startswith(_NOT_USERS)]
    if not users:
        return None
    path, line, function, code = users[-1]
    return SourceLine(path, int(line), function, code)
