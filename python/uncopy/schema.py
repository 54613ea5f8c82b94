"""What an operator's schema says, corrected where measurement found that it is silent.

The corrections come from running 509 CPU overloads under a dispatch mode and comparing schema, fake
and real aliasing.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

__all__ = [
    "aliased_arguments",
    "base_name",
    "bind",
    "changes_metadata",
    "is_trusted",
    "out_arguments",
    "tensors_in",
    "written_arguments",
]

# Arguments that are written although the schema does not say so.
_HIDDEN_WRITES = {
    "aten::native_batch_norm": ("running_mean", "running_var"),
    "aten::cudnn_batch_norm": ("running_mean", "running_var"),
    "aten::miopen_batch_norm": ("running_mean", "running_var"),
}

# Result -> the argument whose storage it has, although neither schema nor fake says so.
_HIDDEN_ALIASES = {
    "_c10d_functional::wait_tensor": "tensor",
    "_c10d_functional::all_gather_into_tensor_out": "out",
    "_c10d_functional::reduce_scatter_tensor_out": "out",
}

# Namespaces whose schemas, with the corrections above, agreed with what their kernels did.
_TRUSTED_NAMESPACES = frozenset({"aten", "prims", "_c10d_functional", "c10d"})


def is_trusted(op: OpOverload) -> bool:
    """Whether reads, writes and results are all that the operator does."""
    return op.namespace in _TRUSTED_NAMESPACES


@functools.cache
def base_name(op: OpOverload) -> str:
    """Name without namespace, overload, and the underscore of an in-place form: "add" of
    aten::add_.Tensor.
    """
    name = op._schema.name.split("::")[1]
    is_in_place = name.endswith("_") and not name.endswith("__") and bool(written_arguments(op))
    return name[:-1] if is_in_place else name


@functools.cache
def _arguments(op: OpOverload) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether by keyword only, and default of each argument."""
    return tuple((a.name, a.kwarg_only, a.default_value) for a in op._schema.arguments)


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Each argument by its name in the schema, in order, defaults filled in."""
    bound = {}
    count = len(args)
    for index, (name, is_keyword, default) in enumerate(_arguments(op)):
        if index < count and not is_keyword:
            bound[name] = args[index]
        else:
            bound[name] = kwargs.get(name, default)
    return bound


@functools.cache
def written_arguments(op: OpOverload, hidden: bool = True) -> tuple[str, ...]:
    """Names of the arguments whose bytes the operator writes; with `hidden` those, too, of which
    its schema does not say so and whose version counter eager does not increase.
    """
    written = [
        a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    return (*written, *(_HIDDEN_WRITES.get(op._schema.name, ()) if hidden else ()))


@functools.cache
def out_arguments(op: OpOverload) -> tuple[str, ...]:
    """Names of the arguments that are written and not read: out=."""
    return tuple(a.name for a in op._schema.arguments if a.is_out)


@functools.cache
def aliased_arguments(op: OpOverload, result: int) -> tuple[str, ...]:
    """Names of the arguments whose storage result number `result` has, as far as the operator
    itself tells.
    """
    hidden = _HIDDEN_ALIASES.get(op._schema.name)
    if hidden is not None:
        return (hidden,)
    returns = op._schema.returns
    alias = returns[min(result, len(returns) - 1)].alias_info if returns else None
    if alias is None:
        return ()
    sets = set(alias.before_set) | set(alias.after_set)
    return tuple(
        a.name
        for a in op._schema.arguments
        if a.alias_info is not None and sets & (a.alias_info.before_set | a.alias_info.after_set)
    )


@functools.cache
def changes_metadata(op: OpOverload) -> bool:
    """Whether the operator changes sizes, strides or storage of its first argument's object."""
    is_unmarked = op._schema.name == "aten::shallow_copy_data_"
    return is_unmarked or torch.Tag.inplace_view in op.tags


def tensors_in(value: Any) -> Iterator[fx.Node]:
    """The nodes in an argument that stand for tensors, nested lists included, in order."""
    if isinstance(value, fx.Node):
        if isinstance(value.meta.get("val"), torch.Tensor):
            yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors_in(element)
