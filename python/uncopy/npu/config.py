"""`CompilerConfig`, the tree of compiler options of an Ascend script, and its translation to
Uncopy's options.

Requires: the rows of options.py. Establishes: a configuration holds checked values only;
`translate` turns the ones that were assigned into `(options, notes)` for
`uncopy.backend.make_backend`.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from uncopy.npu.options import COMPILER_OPTIONS, GRAPH_OPTIONS, Option

__all__ = ["CompilerConfig", "check_graph_options", "nearest_name", "translate"]

_GROUPS = frozenset(
    name[:end] for name in COMPILER_OPTIONS for end, letter in enumerate(name) if letter == "."
)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known dotted name that was most likely meant: the same last part first, else the closest
    spelling.
    """
    known = sorted(known)
    last_parts = {other.rpartition(".")[2]: other for other in reversed(known)}
    last_part = name.rpartition(".")[2]
    if last_part in last_parts:
        return last_parts[last_part]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return close[0]
    close = difflib.get_close_matches(last_part, last_parts, n=1, cutoff=0.5)
    return last_parts[close[0]] if close else None


def _unknown(owner: str, name: str, known: Iterable[str]) -> str:
    nearest = nearest_name(name, known)
    hint = f"; the nearest known name is {nearest!r}" if nearest else ""
    return f"{owner} has no option {name!r}{hint}"


class _Group:
    """One level of the tree. All levels of a configuration share one dict of assigned values by
    dotted name.
    """

    __slots__ = ("_prefix", "_values")

    def __init__(self, prefix: str, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_prefix", prefix)
        object.__setattr__(self, "_values", values)

    def __getattr__(self, name: str) -> Any:
        full = self._prefix + name
        if full in COMPILER_OPTIONS:
            return self._values.get(full, COMPILER_OPTIONS[full].default)
        if full in _GROUPS:
            return _Group(full + ".", self._values)
        raise self._unknown_error(name, full)

    def __setattr__(self, name: str, value: object) -> None:
        full = self._prefix + name
        if full in _GROUPS:
            raise TypeError(f"CompilerConfig.{full} is a group; assign to one of: {_inside(full)}")
        if full not in COMPILER_OPTIONS:
            raise self._unknown_error(name, full)
        COMPILER_OPTIONS[full].kind.check(f"CompilerConfig.{full}", value)
        self._values[full] = value

    def _unknown_error(self, name: str, full: str) -> AttributeError:
        message = _unknown("CompilerConfig", full, [*COMPILER_OPTIONS, *_GROUPS])
        # name and obj stay unset: Python would add a second hint from its own search.
        return AttributeError(name if name.startswith("__") else message)

    def __dir__(self) -> list[str]:
        return _inside(self._prefix.rstrip(".")).split(", ")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Group) or self._prefix != other._prefix:
            return NotImplemented
        names = [name for name in COMPILER_OPTIONS if name.startswith(self._prefix)]
        return all(_value(self, name) == _value(other, name) for name in names)

    __hash__ = None  # mutable

    def __reduce__(self) -> tuple[Any, ...]:
        return _Group, (self._prefix, self._values)

    def __repr__(self) -> str:
        values = [f"{n}={v!r}" for n, v in self._values.items() if n.startswith(self._prefix)]
        return f"CompilerConfig({', '.join(values)})"


class CompilerConfig(_Group):
    """The options of a compilation, as in TorchAir: `config.debug.graph_dump.type = "py"`.

    Assigning checks: an unknown name raises AttributeError with the nearest known one, a wrong type
    TypeError, a value that is not allowed ValueError. Reading gives the assigned value or the
    default. uncopy/npu/options.py lists each option, what it does here, or why it does nothing.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", {})

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._values,)


def _restore(values: dict[str, Any]) -> CompilerConfig:
    config = CompilerConfig()
    config._values.update(values)
    return config


def _value(group: _Group, name: str) -> object:
    return group._values.get(name, COMPILER_OPTIONS[name].default)


def _inside(group: str) -> str:
    """The names one level below a group, the empty string for the root."""
    prefix = f"{group}." if group else ""
    names = (name[len(prefix) :] for name in COMPILER_OPTIONS if name.startswith(prefix))
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))


def check_graph_options(values: Mapping[str, object]) -> None:
    """Checks the flat options of backend "npugraph_ex"; ValueError names the nearest known one for
    an unknown name.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"npugraph_ex options must be a dict, not {type(values).__name__}")
    for name, value in values.items():
        if name not in GRAPH_OPTIONS:
            raise ValueError(_unknown("npugraph_ex", str(name), GRAPH_OPTIONS))
        GRAPH_OPTIONS[name].kind.check(f"npugraph_ex option {name}", value)


def translate(config: CompilerConfig | Mapping[str, object]) -> tuple[dict[str, Any], list[str]]:
    """Uncopy's options and the notes on what has no effect, from a CompilerConfig or from checked
    npugraph_ex options.

    An option that was not assigned gives neither; one assigned its default gives no note.
    """
    is_tree = isinstance(config, CompilerConfig)
    rows, values = (COMPILER_OPTIONS, config._values) if is_tree else (GRAPH_OPTIONS, config)
    options: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in values.items():
        row = rows[name]
        if row.sets and value in (row.values or (value,)) and value is not None:
            options[row.sets] = row.values.get(value, value) if row.values else value
        elif value != row.default:
            notes.append(_note(row, value))
    if "dump" not in options:
        options.pop("dump_path", None)
    return options, notes


def _note(row: Option, value: object) -> str:
    shown = getattr(value, "__name__", None) or repr(value)
    return f"{row.name}={shown}: {row.reason}"
