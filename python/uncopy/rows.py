"""Operators that have a row of ours: pointwise ones and matrix products.

A row takes an operator only as the row's formula says: operands of one dtype, the result as the
rule gives it, scalars that would not change the dtype that PyTorch computes in, attributes that the
row knows. All else is the host's.
"""

from dataclasses import dataclass
from typing import Any

import torch

from uncopy import _core
from uncopy.builder import Value
from uncopy.effects import row_forms
from uncopy.schema import base_name
from uncopy.structure import Node

__all__ = ["lower_row"]

# Largest integer that a double, as attributes are, holds exactly with all smaller ones.
_EXACT = 2**53
# The first operand of `where` chooses, it is not computed with.
_CHOOSERS = {"where": 1}
# Operators that are a row with its operands in the other order.
_REVERSED = {"rsub": "sub"}


@dataclass(frozen=True)
class _Row:
    """A row with its operands (values and Python numbers) and the attributes that are given."""

    name: str
    operands: list[Any]
    attributes: dict[str, float]


def lower_row(at: Node, recipes: list[Any]) -> Value | None:
    """Appends the row that serves a node, if one does, with its recipe; returns its value."""
    aten_name = base_name(at.node.target)
    name = _REVERSED.get(aten_name, aten_name)
    row = _core.operation_find(name)
    found = _match(at, row) if row is not None else None
    if found is not None and name != aten_name:
        found = _Row(found.name, found.operands[::-1], found.attributes)
    if found is None or not _dtypes_fit(at, found):
        return None
    destination = _destination(at)
    if destination is None:
        return None
    is_matmul = found.name == "matmul"
    if not is_matmul:
        found = _broadcast(at, found, destination)
    is_from_number = not isinstance(found.operands[0], Value)
    call, out, bits = row_forms(found.name, name, is_from_number)
    recipes.append(_core.Recipe(call, out, *_recipe_arguments(found), [0]))
    at.builder.operation(
        found.name,
        at.node,
        [o if isinstance(o, Value) else _core.Number(o) for o in found.operands],
        [destination],
        attributes=found.attributes,
        target=str(at.node.target),
        effects=bits,
        host_id=len(recipes) - 1,
    )
    return destination


def _match(at: Node, row: str) -> _Row | None:
    """Operands and attributes by the schema's order; None if the operator has an argument that the
    row lacks.
    """
    known = [a.split("=")[0] for a in _core.operation_attributes(row).split()]
    operands: list[Any] = []
    attributes: dict[str, float] = {}
    for argument in at.node.target._schema.arguments:
        value = at.arguments[argument.name]
        if argument.is_out:
            continue
        if argument.name in known:
            is_plain = type(value) in (int, float)
            if not is_plain or abs(value) > _EXACT:
                return None
            attributes[argument.name] = float(value)
        elif len(operands) < _core.operation_num_reads(row):
            operands.append(value)
        elif value is not None:
            return None
    if len(operands) != _core.operation_num_reads(row):
        return None
    return _Row(row, operands, attributes)


def _dtypes_fit(at: Node, row: _Row) -> bool:
    """Whether the row computes in the dtype that PyTorch does, and gives the result's."""
    first = _CHOOSERS.get(row.name, 0)
    values = [o for o in row.operands if isinstance(o, Value)]
    computed = {o.layout.dtype for o in row.operands[first:] if isinstance(o, Value)}
    if len(computed) != 1:
        return False
    dtype = computed.pop()
    numbers = [o for o in row.operands if not isinstance(o, Value)]
    numbers += [a for a in row.attributes.values() if not float(a).is_integer()]
    if not all(_keeps_dtype(number, dtype) for number in numbers):
        return False
    if at.target_layout.dtype != at.result.dtype or not at.target_layout.same_sizes(at.result):
        return False
    return _core.operation_accepts(row.name, [v.layout.code for v in values], at.target_layout.code)


def _keeps_dtype(number: Any, dtype: torch.dtype) -> bool:
    """Whether a Python scalar beside tensors of a dtype is computed in that dtype, and has a value
    in it.
    """
    if isinstance(number, bool):
        return True
    if isinstance(number, int):
        if dtype is torch.bool:
            return False
        if dtype.is_floating_point or dtype.is_complex:
            return abs(number) <= _EXACT
        return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
    return isinstance(number, float) and dtype.is_floating_point


def _destination(at: Node) -> Value | None:
    """The out= tensor, the tensor written in place, or a new storage; None if PyTorch must check
    the writing.
    """
    schema = at.node.target._schema
    if at.out is not None:
        destination = at.out
    elif schema.arguments[0].alias_info is not None and schema.arguments[0].alias_info.is_write:
        destination = at.arguments[schema.arguments[0].name]
    else:
        return at.destination()
    return destination if destination.layout.is_injective else None


def _broadcast(at: Node, row: _Row, destination: Value) -> _Row:
    sizes = destination.layout.sizes
    operands = [at.builder.expanded(o, sizes) if isinstance(o, Value) else o for o in row.operands]
    return _Row(row.name, operands, row.attributes)


def _recipe_arguments(row: _Row) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments; slots count the views among the operands, numbers are not among a
    host's reads.
    """
    args: list[Any] = []
    num_views = 0
    for operand in row.operands:
        if isinstance(operand, Value):
            args.append(_core.Slot(num_views))
            num_views += 1
        else:
            args.append(operand)
    kwargs = {
        name: int(value) if value.is_integer() else value for name, value in row.attributes.items()
    }
    return tuple(args), kwargs
