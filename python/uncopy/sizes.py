"""Sizes that are known at each call only: expressions of the capture as expressions of a program.

A capture with symbolic sizes gives tensors' sizes, strides and offsets as sympy expressions of
Dynamo's symbols. A `Size` is an int or such an expression. What the importer decides by sizes must
hold at every call that Dynamo's guards let through: `known` and `equal` say yes only to what is
proven from the ranges of the symbols, and add no guard.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true
from torch.utils._sympy import functions

from uncopy.fallback import Reason, Unplannable

__all__ = [
    "Size",
    "Sizes",
    "bindings",
    "environment",
    "equal",
    "is_symbolic",
    "known",
    "size_of",
    "sizes_of",
]

Size = int | sympy.Expr

_environment: contextvars.ContextVar[ShapeEnv | None] = contextvars.ContextVar(
    "uncopy_shape_environment", default=None
)

# Kinds of Program.add_expression and Program.add_symbol.
_ADD, _SUBTRACT, _MULTIPLY, _FLOOR_DIVIDE, _MODULO, _MINIMUM, _MAXIMUM = range(7)
_SIZE, _STRIDE, _VALUE = range(3)

_PAIRS = {
    functions.FloorDiv: _FLOOR_DIVIDE,
    functions.CleanDiv: _FLOOR_DIVIDE,
    functions.Mod: _MODULO,
    functions.PythonMod: _MODULO,
    sympy.Mod: _MODULO,
}
_CHAINS = {
    functions.Max: _MAXIMUM,
    sympy.Max: _MAXIMUM,
    functions.Min: _MINIMUM,
    sympy.Min: _MINIMUM,
}


@contextlib.contextmanager
def environment(env: ShapeEnv | None) -> Iterator[None]:
    """While it lasts, `known` proves from the ranges of this environment's symbols."""
    token = _environment.set(env)
    try:
        yield
    finally:
        _environment.reset(token)


def size_of(value: Any) -> Size:
    """An int, or the expression of a SymInt."""
    if type(value) is int:
        return value
    constant = value.node.maybe_as_int()
    return constant if constant is not None else value.node.expr


def sizes_of(values: Sequence[Any]) -> tuple[Size, ...]:
    """Each as size_of gives it."""
    return tuple(n if type(n) is int else size_of(n) for n in values)


def is_symbolic(sizes: Sequence[Size]) -> bool:
    """Whether one of them is known at a call only."""
    return not all(type(n) is int for n in sizes)


def known(relation: Any) -> bool:
    """Whether a relation of sizes, a bool or a sympy one, is proven to hold."""
    if isinstance(relation, bool):
        return relation
    if relation in (sympy.true, sympy.false):
        return bool(relation)
    env = _environment.get()
    return env is not None and statically_known_true(env.create_symboolnode(relation))


def equal(a: Size, b: Size) -> bool:
    """Whether two sizes are proven to be equal."""
    if type(a) is int and type(b) is int:
        return a == b
    return bool(a == b) or known(sympy.Eq(a, b))


class Sizes:
    """The dims of one program: each symbol, expression and number once."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self._dims: dict[Any, int] = {}
        self._pairs: dict[tuple[int, int, int], int] = {}
        self._numbers: dict[int, int] = {}

    def add_symbol(self, symbol: sympy.Symbol, argument: int, kind: int, dim: int) -> None:
        """Names what a symbol stands for: kind 0 a size, 1 a stride, 2 the value of an argument."""
        self._dims[symbol] = self.program.add_symbol(str(symbol), argument, kind, dim)

    def has(self, symbol: sympy.Symbol) -> bool:
        """Whether a symbol has been named."""
        return symbol in self._dims

    def dims(self, sizes: Sequence[Size]) -> Sequence[int]:
        """Each as dim gives it."""
        return [self.dim(n) for n in sizes]

    def dim(self, size: Any) -> int:
        """The program's dim of a size or relation (0 or 1). Raises Unplannable for what a program
        cannot say.
        """
        if type(size) is int:
            if size < 0:
                raise Unplannable(Reason.RANGE, f"a size or offset of {size}")
            return size
        found = self._dims.get(size)
        if found is None:
            found = self._dims[size] = self._made(size)
        return found

    def number(self, size: Any) -> int:
        """The program's number that has the value of a size or relation at each call."""
        dim = self.dim(size)
        if dim not in self._numbers:
            self._numbers[dim] = self.program.add_number(dim)
        return self._numbers[dim]

    def _made(self, size: Any) -> int:
        if isinstance(size, sympy.Symbol):
            words = f"{size}, a number that depends on data or is of no argument"
            raise Unplannable(Reason.DATA_DEPENDENT, words)
        if isinstance(size, sympy.Integer):
            number = int(size)
            return number if number >= 0 else self._pair(_SUBTRACT, 0, -number)
        if isinstance(size, bool) or size in (sympy.true, sympy.false):
            return int(bool(size))
        if isinstance(size, sympy.logic.boolalg.Boolean):
            return self._relation(size)
        for kinds, build in ((_PAIRS, self._two), (_CHAINS, self._chain)):
            if type(size) in kinds:
                return build(kinds[type(size)], size.args)
        return self._arithmetic(size)

    def _arithmetic(self, size: Any) -> int:
        if isinstance(size, sympy.Add):
            return self._sum(size)
        if isinstance(size, sympy.Mul):
            sign, rest = size.could_extract_minus_sign(), size
            if sign:
                return self._pair(_SUBTRACT, 0, self.dim(-rest))
            return self._chain(_MULTIPLY, rest.args)
        if isinstance(size, (sympy.Pow, functions.PowByNatural)):
            base, exponent = size.args
            if isinstance(exponent, sympy.Integer) and 0 < exponent <= 8:
                return self._chain(_MULTIPLY, [base] * int(exponent))
        if isinstance(size, functions.ModularIndexing):
            base, divisor, modulus = (self.dim(a) for a in size.args)
            return self._pair(_MODULO, self._pair(_FLOOR_DIVIDE, base, divisor), modulus)
        if isinstance(size, functions.Identity):
            return self.dim(size.args[0])
        raise Unplannable(Reason.SYMBOLIC, f"{size}, a number that is no expression of integers")

    def _sum(self, size: sympy.Add) -> int:
        """Terms with a plus sign first, so that what is written 1 - n starts above zero."""
        terms = size.args
        plus = [t for t in terms if not t.could_extract_minus_sign()]
        total = self._chain(_ADD, plus) if plus else 0
        for term in terms:
            if term not in plus:
                total = self._pair(_SUBTRACT, total, self.dim(-term))
        return total

    def _relation(self, relation: Any) -> int:
        """1 where it holds, else 0."""
        if isinstance(relation, sympy.Not):
            return self._pair(_SUBTRACT, 1, self.dim(relation.args[0]))
        if isinstance(relation, sympy.And):
            return self._chain(_MINIMUM, relation.args)
        if isinstance(relation, sympy.Or):
            return self._chain(_MAXIMUM, relation.args)
        if not isinstance(relation, sympy.core.relational.Relational):
            raise Unplannable(Reason.SYMBOLIC, f"{relation}, a condition on numbers")
        a, b = relation.args
        if isinstance(relation, (sympy.Le, sympy.Lt)):
            a, b = b, a
        if isinstance(relation, (sympy.Ge, sympy.Le)):
            return self._is_positive(a - b + 1)
        if isinstance(relation, (sympy.Gt, sympy.Lt)):
            return self._is_positive(a - b)
        differs = self._pair(_MAXIMUM, self._is_positive(a - b), self._is_positive(b - a))
        return differs if isinstance(relation, sympy.Ne) else self._pair(_SUBTRACT, 1, differs)

    def _is_positive(self, size: Any) -> int:
        return self._pair(_MAXIMUM, 0, self._pair(_MINIMUM, self.dim(size), 1))

    def _two(self, kind: int, args: Sequence[Any]) -> int:
        return self._pair(kind, self.dim(args[0]), self.dim(args[1]))

    def _chain(self, kind: int, args: Sequence[Any]) -> int:
        first, *rest = (self.dim(a) for a in args)
        for dim in rest:
            first = self._pair(kind, first, dim)
        return first

    def _pair(self, kind: int, a: int, b: int) -> int:
        key = (kind, a, b)
        if key not in self._pairs:
            self._pairs[key] = self.program.add_expression(*key)
        return self._pairs[key]


def bindings(
    layouts: Sequence[Any], integers: Sequence[Any]
) -> dict[int, list[tuple[sympy.Symbol, int, int]]]:
    """Where each symbol is read from: for an argument's number, (symbol, kind, dim) in order.

    layouts: of each argument, None for one that is an integer. integers: of each of those the
    expression, None for a tensor. A symbol is read from the first tensor that mentions it, if it is
    a size or stride of that by itself, else from an integer argument before.
    """
    found: dict[int, list[tuple[sympy.Symbol, int, int]]] = {}
    places = {v: n for n, v in enumerate(integers) if isinstance(v, sympy.Symbol)}
    bound: set[sympy.Symbol] = set()

    def bind(symbol: sympy.Symbol, argument: int, kind: int, dim: int) -> None:
        if symbol not in bound:
            bound.add(symbol)
            found.setdefault(argument, []).append((symbol, kind, dim))

    for number, layout in enumerate(layouts):
        lists = () if layout is None else ((_SIZE, layout.sizes), (_STRIDE, layout.strides))
        for kind, sizes in lists:
            for dim, size in enumerate(sizes):
                if isinstance(size, sympy.Symbol):
                    bind(size, number, kind, dim)
        mentioned = {
            s for _, sizes in lists for n in sizes if type(n) is not int for s in n.free_symbols
        }
        for symbol in sorted(mentioned, key=str):
            if places.get(symbol, number) < number:
                bind(symbol, places[symbol], _VALUE, 0)
    for symbol, number in places.items():
        bind(symbol, number, _VALUE, 0)
    return found
