"""The C extension: programs, functions and the host entries that run PyTorch's kernels. Decides
what C can decide.

Every failing call raises; the exception type follows from the status: `ValueError` (argument,
program), `MemoryError`, `SyntaxError` (parse), `uncopy.StrictError` (strict), `RuntimeError`
(facts, host, range, group), `NotImplementedError` (unsupported). An exception that a PyTorch kernel
raised inside a run passes through unchanged.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch

VERSION: Final[str]

# bits of Program.add_operation(effects=)
EFFECT_AUDITED: Final[int]
EFFECT_RAISES: Final[int]
EFFECT_RANDOM: Final[int]
EFFECT_LAYOUT: Final[int]
EFFECT_OUT: Final[int]
EFFECT_THREADS: Final[int]
EFFECT_OUT_LAYOUT: Final[int]

def initialize(
    *,
    tensor_type: type,
    parameter_type: type,
    torch_library: str,
    strict_error: type[Exception],
    helpers: dict[str, Callable[..., Any]],
    forced_off: frozenset[str],
) -> dict[str, bool]:
    """Finds the borrowed symbols (dlsym on `torch_library`, the path of torch._C) and probes each
    with its layouts.

    helpers: replacements for the public functions of torch behind the fast routes, by name
    ("empty_strided", "as_strided", "increment_version", "matmul_out", ...; python/ext/state.h lists
    them). What is not given is torch's own.
    forced_off: probes to treat as failed, "all" for every one. Returns name -> whether the fast
    route is used. A second call raises RuntimeError.
    """

def dtype_code(dtype: torch.dtype) -> int:
    """The library's number of a torch dtype; raises KeyError for one it has no name for
    (quantized).
    """

def operation_find(aten_base_name: str) -> str | None:
    """The row that serves an aten operation ("add" -> "add", "mm" -> "matmul"), None: it is an
    extern.
    """

def operation_accepts(name: str, reads: Sequence[int], result: int) -> bool: ...
def operation_num_reads(name: str) -> int: ...
def operation_attributes(name: str) -> str: ...

@final
class Program:
    """A program under construction (see uncopy/program.h). Views and groups are ints.

    A size, stride or offset is an int from 0 on, or a dim that add_symbol or add_expression
    returned, which is below zero.
    """

    def __init__(self, name: str) -> None: ...
    @staticmethod
    def parse(text: str) -> Program: ...
    def text(self) -> str: ...
    def add_argument(
        self, name: str | None, dtype: int, sizes: Sequence[int], strides: Sequence[int]
    ) -> int: ...
    def add_storage(
        self,
        name: str | None,
        fresh: bool,
        dtype: int,
        sizes: Sequence[int],
        strides: Sequence[int],
    ) -> int: ...
    def add_view(
        self,
        name: str | None,
        of: int,
        dtype: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        offset_bytes: int,
        from_storage: bool,
    ) -> int: ...
    def add_symbol(self, name: str, argument: int, kind: int, dim: int) -> int:
        """A dim for a size (kind 0), stride (1) or the value (2) of an argument, the next one to be
        added allowed.
        """

    def add_expression(self, kind: int, a: int, b: int) -> int:
        """A dim for a + b (kind 0), a - b, a * b, a // b, a % b, min, max (6)."""

    def add_number(self, dim: int) -> int:
        """Appends a number that each plan knows; returns its place."""

    def add_group(self, token: str, name: str, size: int, rank: int) -> int: ...
    def add_operation(
        self,
        name: str,
        reads: Sequence[int | Number],
        writes: Sequence[int],
        returns: Sequence[int] = (),
        *,
        attributes: dict[str, float] | None = None,
        group: int | None = None,
        target: str | None = None,
        effects: int = 0,
        host_id: int = -1,
        file: str | None = None,
        line: int = 0,
    ) -> None: ...
    def add_output(self, view: int) -> None: ...
    def verify(self) -> None: ...

@final
class Number:
    """A number read by an operation in place of a view: Number(2), Number(0.5), Number(True)."""

    def __init__(self, value: float | int | bool) -> None: ...

@final
class Slot:
    """Marks a tensor in a recipe's arguments: reads[index], or writes[index - number of reads] from
    there on.

    Only views count as reads: a Number among an operation's reads has no index. With number set it
    marks number `index` of the program, an int at each call.
    """

    def __init__(self, index: int, *, number: bool = False) -> None: ...

@final
class Recipe:
    """How the host runs one operation. Number i of the list given to Function has host_id i.

    call: called with args and kwargs, in which every Slot is replaced by the operand's tensor.
    out: called likewise plus out=tensor, or None where the operation has no out form.
    results: for each view in `returns`, the index in the flattened result of `call` (tuples and
    lists flattened, None kept). For a collective, call is callable(destination, source) -> Work
    (with wait()) and fences wait for it.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        out: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: Sequence[int],
    ) -> None: ...

@final
class Output:
    """One element of a function's result. index: number of the program's output, or -1: value
    itself is returned, or an int, the program's number `number`, if that is not negative.

    requires_grad, is_view: eager's autograd metadata of the result under the capture's grad mode;
    an output that is a view of an argument is made through the dispatcher when is_view is set.
    """

    def __init__(
        self,
        index: int,
        *,
        requires_grad: bool = False,
        is_view: bool = False,
        value: Any = None,
        number: int = -1,
    ) -> None: ...

@final
class Plan:
    """One plan of a function, alive as long as it is held."""

    def text(self) -> str: ...
    def explain(self) -> str: ...
    def counts(self) -> dict[str, int]: ...
    def copies(self) -> list[dict[str, Any]]:
        """Each copy that stayed: reason, words, bytes, file, line."""

    def externs(self) -> list[dict[str, Any]]:
        """Each operation that the host runs: target, file, line."""

@final
class Function:
    """A program with its plans, called with its argument tensors; returns a tuple of one value for
    each Output.

    options: order ("program", "BFS", "DFS", "RDFS", "StableRDFS"), kernels ("native", "extern"),
    strict (set of "copies", "externs", "replans"), passes_off (set of "normalise", "elide",
    "place"), overlap (bool), threads (int).
    Arguments: torch.Tensor or Parameter, strided, on the CPU, no conjugate or negative views, and
    ints for arguments that are i64 without dims; others raise TypeError with the argument's number.
    Mutated arguments' version counters are increased, on the error exit too. The host's operations
    run with grad mode off, results are made in the caller's mode. Any thread may call it.
    uses_engine:
    collectives of groups that a Communicator was published for run on it, in C; else all go through
    their recipes.
    """

    def __init__(
        self,
        program: Program,
        options: dict[str, Any],
        recipes: Sequence[Recipe],
        outputs: Sequence[Output],
        uses_engine: bool = True,
    ) -> None: ...
    def __call__(self, *tensors: torch.Tensor | int) -> tuple[Any, ...]: ...
    def plan(self, *tensors: torch.Tensor | int) -> Plan:
        """Makes or finds the plan for these tensors without running it."""

    def plans(self) -> list[Plan]: ...
    def counts(self) -> dict[str, int]:
        """Of all runs. layout_copies, layout_bytes: results of the host's operations that came in
        another layout than planned and were copied; they are part of copies and bytes_copied too.
        """

    def reset_counts(self) -> None: ...
    def program(self) -> Program: ...

@final
class Bound:
    """A function bound for direct calls: checks in C what Dynamo's guards would, then runs.

    sources: for each of the function's arguments, the number of the positional argument it is, or a
    tensor object that is read at each call (its address, not its value, is what is bound).
    positions: number of positional arguments a call must have; others must be `constants` at their
    position (compared by identity or ==).
    tree: how results are laid out: an int (that output), or ("tuple"|"list", [tree, ...]), or
    ("dict", {key: tree}).
    miss: called with the same arguments when types, dtype, sizes, strides, number of arguments or
    constants differ, when keywords are given, or when a tensor requires grad while grad mode is on;
    its result is returned and a miss is counted.
    """

    def __init__(
        self,
        function: Function,
        sources: Sequence[int | torch.Tensor],
        constants: dict[int, Any],
        positions: int,
        tree: Any,
        miss: Callable[..., Any],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    misses: int
    calls: int

def from_blob(
    address: int, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, owner: Any
) -> torch.Tensor:
    """A tensor over bytes the caller owns; owner is kept alive as long as the tensor's storage."""

def comm_reduces(dtype: int, reduction: int) -> bool:
    """Whether the engine of collectives reduces the dtype of that number by that reduction."""

@final
class Communicator:
    """Ranks of one host that exchange tensors over shared memory (include/uncopy/comm.h).

    Made together with the other ranks: set(key, bytes) and get(key, seconds) are their store.
    Raises ConnectionError where ranks share no memory, RuntimeError for a rank that does not come.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        timeout: float,
        set: Callable[[str, bytes], Any],
        get: Callable[[str, float], bytes],
    ) -> None: ...
    def start(
        self,
        kind: int,
        destinations: Sequence[torch.Tensor],
        sources: Sequence[torch.Tensor],
        reduction: int = 0,
        peer: int = 0,
        timeout: float = 0.0,
        is_async: bool = False,
        tag: int = 0,
    ) -> Job:
        """Starts a collective or transfer (COMM_...) of contiguous CPU tensors, which are kept
        until it is done. Not async: it is done when this returns, or waits behind those in flight.
        Raises ValueError for tensors that do not fit.
        """

    def window(self, bytes: int) -> Window:
        """Memory that every rank reads where it lies; a collective."""

    def publish(self, group_name: str) -> None:
        """Lets plans find the communicator by the name of its group."""

    def close(self) -> None: ...
    def abort(self, reason: str) -> None: ...
    def set_timeout(self, seconds: float) -> None: ...
    def is_alive(self, rank: int) -> bool: ...
    def state(self) -> str | None:
        """What broke it, None while it is whole."""

    def counts(self) -> dict[str, int]: ...

@final
class Job:
    """One call of a communicator."""

    def wait(self, seconds: float | None = None) -> None:
        """Raises the call's error; RuntimeError where it is not done in time."""

    def is_done(self) -> bool: ...
    def error(self) -> Exception | None: ...
    def on_done(self, callback: Callable[[], Any]) -> None:
        """Calls callback when the call has ended, at once if it has."""

@final
class Window:
    """Memory of this rank that the peers read where it lies; gone with the object."""

    address: int
    bytes: int

COMM_BARRIER: int
COMM_ALL_GATHER: int
COMM_ALL_GATHER_BLOCKS: int
COMM_ALL_GATHER_SEGMENTS: int
COMM_REDUCE_SCATTER: int
COMM_REDUCE_SCATTER_BLOCKS: int
COMM_REDUCE_SCATTER_SEGMENTS: int
COMM_ALL_REDUCE: int
COMM_REDUCE: int
COMM_BROADCAST: int
COMM_GATHER: int
COMM_SCATTER: int
COMM_ALL_TO_ALL: int
COMM_ALL_TO_ALL_BLOCKS: int
COMM_SEND: int
COMM_RECEIVE: int
REDUCE_SUM: int
REDUCE_PRODUCT: int
REDUCE_MIN: int
REDUCE_MAX: int
REDUCE_AVG: int
REDUCE_BAND: int
REDUCE_BOR: int
REDUCE_BXOR: int
