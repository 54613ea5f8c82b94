"""Options: one row each, the same names in every place that takes them.

Precedence: argument of a call, over `torch.compile(options=...)`, over the environment variable
UNCOPY_<NAME>, over the default. Each value remembers where it came from, for explain.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["OPTIONS", "PASSES", "STRICT_KINDS", "Option", "Options", "resolve"]

STRICT_KINDS = ("copies", "fallbacks", "externs", "replans", "misses")
STRICT_DEFAULT = frozenset({"copies", "fallbacks"})
ORDERS = ("program", "BFS", "DFS", "RDFS", "StableRDFS")
PASSES = ("normalise", "elide", "place")


@dataclass(frozen=True)
class Option:
    """One option: `words` say what it takes, `check` returns the value in one form or raises
    TypeError or ValueError.

    `parse` makes a value of an environment variable's text. `no_effect`, where it is set, tells for
    which values the option does nothing in this version, and why.
    """

    name: str
    default: Any
    words: str
    check: Callable[[Any], Any]
    parse: Callable[[str], Any]
    no_effect: str = ""


def _wrong_type(words: str, value: Any) -> TypeError:
    return TypeError(f"takes {words}, not {value!r} ({type(value).__name__})")


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type("True or False", value)
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type("an integer from 0 up", value)
    if value < 0:
        raise ValueError(f"takes an integer from 0 up, not {value}")
    return value


def _choice(*values: str, none: bool = False) -> Callable[[Any], Any]:
    words = " or ".join(repr(v) for v in values) + (" or None" if none else "")

    def check(value: Any) -> Any:
        if value is None and none:
            return None
        if not isinstance(value, str):
            raise _wrong_type(words, value)
        if value not in values:
            raise ValueError(f"takes {words}, not {value!r}")
        return value

    return check


def _subset(*values: str) -> Callable[[Any], frozenset[str]]:
    words = "a set of " + ", ".join(repr(v) for v in values)

    def check(value: Any) -> frozenset[str]:
        if isinstance(value, str):
            value = {value}
        is_names = isinstance(value, (set, frozenset, list, tuple))
        if not is_names or not all(isinstance(v, str) for v in value):
            raise _wrong_type(words, value)
        unknown = sorted(set(value) - set(values))
        if unknown:
            raise ValueError(f"takes {words}; there is no {unknown[0]!r}")
        return frozenset(value)

    return check


def _strict(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return STRICT_DEFAULT if value else frozenset()
    try:
        return _subset(*STRICT_KINDS)(value)
    except TypeError as error:
        raise TypeError(str(error).replace("takes ", "takes True, False or ")) from None


def _path(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise _wrong_type("a folder (string or os.PathLike)", value)
    return os.fspath(value)


def _truth(text: str) -> Any:
    return {"1": True, "true": True, "0": False, "false": False, "": False}.get(text.lower(), text)


def _number(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def _names(text: str) -> Any:
    return {w for w in text.replace(" ", "").split(",") if w}


def _strict_text(text: str) -> Any:
    value = _truth(text)
    return value if isinstance(value, bool) else _names(text)


def _text(text: str) -> Any:
    return text


_ROWS = (
    Option(
        "strict",
        frozenset(),
        "True (copies and fallbacks) or a set of " + ", ".join(STRICT_KINDS),
        _strict,
        _strict_text,
    ),
    Option("verify", 0, "number of calls of each graph to check against eager", _count, _number),
    Option(
        "order", "program", "order of operations: " + ", ".join(ORDERS), _choice(*ORDERS), _text
    ),
    Option("overlap", False, "start collectives early and wait late", _switch, _truth),
    Option(
        "precision",
        "eager",
        "'eager' rounds where PyTorch does, 'fused' need not",
        _choice("eager", "fused"),
        _text,
        "precision='fused' changes nothing yet: no operations are fused, each rounds by itself",
    ),
    Option(
        "dump",
        None,
        "'py' or 'txt': write each graph and its plan",
        _choice("py", "txt", none=True),
        _text,
    ),
    Option("dump_path", ".", "folder of the dump", _path, _text),
    Option(
        "threads",
        0,
        "threads of a plan's own kernels, 0: torch.get_num_threads() at each call",
        _count,
        _number,
    ),
    Option(
        "kernels",
        "native",
        "'native' or 'extern' (PyTorch's kernels for every operation)",
        _choice("native", "extern"),
        _text,
    ),
    Option(
        "frozen",
        frozenset(),
        "names of arguments whose values never change",
        lambda value: _names_of(value),
        _names,
        "frozen changes nothing yet: no argument is packed beforehand",
    ),
    Option(
        "passes_off",
        frozenset(),
        "passes switched off: " + ", ".join(PASSES),
        _subset(*PASSES),
        _names,
    ),
)


def _names_of(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        value = {value}
    is_names = isinstance(value, (set, frozenset, list, tuple))
    if not is_names or not all(isinstance(v, str) for v in value):
        raise _wrong_type("a set of argument names", value)
    return frozenset(value)


OPTIONS: Mapping[str, Option] = {row.name: row for row in _ROWS}


@dataclass(frozen=True)
class Options:
    """All options with values, and where each value comes from: "argument", "options",
    "environment", "default".
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    notes: tuple[str, ...] = field(default=())

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def core(self) -> dict[str, Any]:
        """Those that planning needs, as the C extension takes them."""
        return {
            "order": self.order,
            "kernels": self.kernels,
            "strict": set(self.strict) & {"copies", "externs", "replans"},
            "passes_off": set(self.passes_off),
            "overlap": self.overlap,
            "threads": self.threads,
        }

    def words(self) -> list[str]:
        """A line for each option: name, value, source; then what has no effect."""
        lines = []
        for name, value in self.values.items():
            shown = "{" + ", ".join(sorted(value)) + "}" if isinstance(value, frozenset) else value
            lines.append(f"{name} = {shown} ({self.sources[name]})")
        return lines + [f"note: {note}" for note in self.notes]


def resolve(
    arguments: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
) -> Options:
    """Options from a call's arguments, `torch.compile(options=...)`, the environment and the
    defaults.

    Raises ValueError for an unknown name or value, TypeError for a wrong type, naming what is
    allowed.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    given = {"argument": dict(arguments or {}), "options": dict(options or {})}
    for names in given.values():
        for name in names:
            if name not in OPTIONS:
                raise ValueError(f"no option {name!r}; there are {', '.join(OPTIONS)}")
    own_notes = list(notes)
    for name, row in OPTIONS.items():
        values[name], sources[name] = _find(row, given)
        if row.no_effect and values[name] != row.default:
            own_notes.append(row.no_effect)
    return Options(values, sources, tuple(own_notes))


def _find(row: Option, given: Mapping[str, Mapping[str, Any]]) -> tuple[Any, str]:
    for source, names in given.items():
        if row.name in names:
            return _checked(row, names[row.name], row.name), source
    variable = f"UNCOPY_{row.name.upper()}"
    if variable in os.environ:
        return _checked(row, row.parse(os.environ[variable]), variable), "environment"
    return row.default, "default"


def _checked(row: Option, value: Any, where: str) -> Any:
    try:
        return row.check(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where} {error}") from None
