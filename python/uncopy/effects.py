"""What is known of an operator that the host runs, as effect bits: does it raise on data, has it a
true out= form.

Whoever is not listed here is taken to be the worst: it may raise, and its bits depend on the layout
of its operands.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from uncopy import _core
from uncopy.schema import base_name, is_trusted

__all__ = ["TRUE_OUT", "TRUE_OUT_ANY_STRIDES", "effects_of", "out_form", "row_forms"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Base names of aten operators whose kernels raise for no values, only for types and shapes, which
# the capture has checked.
_NEVER_RAISES = _names(
    """
    _adaptive_avg_pool2d _foreach_abs _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_copy
    _foreach_div _foreach_exp _foreach_lerp _foreach_maximum _foreach_minimum _foreach_mul
    _foreach_neg _foreach_norm _foreach_pow _foreach_reciprocal _foreach_sqrt _foreach_sub
    _foreach_zero _fused_rms_norm _log_softmax _native_batch_norm_legit _softmax _to_copy abs acos
    acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax any arange argmax argmin
    asin asinh atan atan2 atanh avg_pool2d baddbmm bitwise_and bitwise_not bitwise_or bitwise_xor
    bmm cat ceil clamp clamp_max clamp_min clone constant_pad_nd convolution copy copysign cos cosh
    cumprod cumsum div dot elu empty empty_like empty_strided eq erf erfc erfinv exp exp2 expm1 eye
    fill flip floor fmax fmin frac full full_like ge gelu glu gt hardsigmoid hardswish hardtanh
    hypot isfinite isinf isnan isneginf isposinf le leaky_relu lerp lgamma linalg_vector_norm log
    log10 log1p log2 log_sigmoid_forward logaddexp logical_and logical_not logical_or logical_xor
    logit logsumexp lt masked_fill max max_pool2d_with_indices maximum mean min minimum mish mm
    mse_loss mul mv nan_to_num native_batch_norm native_dropout native_group_norm native_layer_norm
    ne neg norm ones ones_like pow prod rand rand_like randn randn_like reciprocal reflection_pad1d
    reflection_pad2d relu repeat replication_pad1d replication_pad2d roll round rsqrt rsub
    scalar_tensor sgn sigmoid sign signbit silu sin sinc sinh softplus sort split_with_sizes_copy
    sqrt square stack std std_mean sub sum tan tanh threshold topk tril triu trunc
    upsample_bilinear2d upsample_nearest2d var var_mean where xlogy zero zeros zeros_like
    """
)

# Overloads whose out= form allocates nothing and copies nothing inside, into a contiguous result; a
# test measures each by the profiler. Measured: torch 2.13, CPU. Left out for what they do:
# masked_fill, embedding, flip, logsumexp, mean.out of half types, renorm, avg_pool2d into strides.
TRUE_OUT = _names(
    """
    _log_softmax.default _softmax.default addbmm.default addmm.default addmv.default addr.default
    all.dim amax.default amin.default any.dim argmax.default argmin.default atan2.default
    baddbmm.default bmm.default cosh.default cumprod.default cumsum.default elu.default exp2.default
    gather.default gelu.default hypot.default index_select.default linalg_vector_norm.default
    mm.default mv.default pow.Tensor_Tensor silu.default sinh.default softplus.default
    sum.dim_IntList tril.default triu.default
    """
)

# As above, and into any strides of the result, with the same bits in every floating dtype.
TRUE_OUT_ANY_STRIDES = _names(
    """
    acos.default addcdiv.default addcmul.default asin.default atan.default clamp.default
    clamp_max.default clamp_min.default erf.default erfc.default expm1.default fmax.default
    fmin.default frac.default hardsigmoid.default hardswish.default hardtanh.default
    leaky_relu.default lerp.Scalar log10.default log1p.default log2.default logical_and.default
    logical_or.default logical_xor.default nan_to_num.default round.default sign.default
    square.default tan.default threshold.default
    """
)

# Rows of ours whose out= form on PyTorch's kernels gives other bits into strides than into
# contiguous memory.
_ROWS_WITH_LAYOUT = frozenset({"matmul", "rsqrt", "sigmoid"})

_OPENS_THREADS = frozenset(
    {
        "convolution",
        "_scaled_dot_product_flash_attention_for_cpu",
        "mkldnn_rnn_layer",
        "native_group_norm",
        "upsample_bilinear2d",
    }
)


@functools.cache
def effects_of(op: OpOverload) -> int:
    """The effect bits of an operator that the host runs."""
    effects = _core.EFFECT_LAYOUT
    if not is_trusted(op):
        return effects | _core.EFFECT_RAISES | _core.EFFECT_RANDOM
    effects |= _core.EFFECT_AUDITED
    if op.namespace != "aten" or torch.Tag.nondeterministic_seeded in op.tags:
        effects |= _core.EFFECT_RANDOM
    if base_name(op) not in _NEVER_RAISES:
        effects |= _core.EFFECT_RAISES
    if base_name(op) in _OPENS_THREADS:
        effects |= _core.EFFECT_THREADS
    return effects


@functools.cache
def out_form(op: OpOverload) -> tuple[Callable[..., Any] | None, int]:
    """The true out= form of an operator and its effect bits; (None, 0) where it has none.

    The form takes the operator's own arguments and out=.
    """
    key = f"{base_name(op)}.{op._overloadname}"
    if op.namespace != "aten" or key not in TRUE_OUT | TRUE_OUT_ANY_STRIDES:
        return None, 0
    found = _out_overload(op)
    if found is None:
        return None, 0
    bits = _core.EFFECT_OUT
    if key in TRUE_OUT_ANY_STRIDES:
        bits |= _core.EFFECT_OUT_LAYOUT
    builtin = getattr(torch._C._VariableFunctions, op._schema.name.removeprefix("aten::"), None)
    # The builtin parses Python arguments faster (826 against 1899 ns for mm, 8x8) and reaches the
    # same overload; operators whose name starts with an underscore, or whose arguments its parser
    # orders otherwise, keep the overload.
    is_plain = builtin is not None and not key.startswith("_") and _has_plain_arguments(op)
    return (builtin if is_plain else found), bits


def _has_plain_arguments(op: OpOverload) -> bool:
    """Whether all arguments are tensors, or scalars that have defaults by keyword."""
    return all(
        isinstance(a.type, torch.TensorType) or (a.kwarg_only and a.has_default_value())
        for a in op._schema.arguments
    )


def _out_overload(op: OpOverload) -> OpOverload | None:
    """The overload with the same arguments and one more, `out`, that it writes and returns."""
    own = [(a.name, str(a.type)) for a in op._schema.arguments]
    packet = op._overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        arguments = candidate._schema.arguments
        outs = [a for a in arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        if len(outs) == 1 and outs[0].name == "out" and rest == own:
            return candidate
    return None


def _relu_into(tensor: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """relu.out copies its result; clamp_min is what relu is made of."""
    return torch.clamp_min(tensor, 0, out=out)


def _subtract_from(number: float, tensor: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    """Gives number - alpha * tensor."""
    return torch.rsub(tensor, number, alpha=alpha)


def _subtract_from_into(
    number: float, tensor: torch.Tensor, *, alpha: float = 1, out: torch.Tensor
) -> torch.Tensor:
    """As sub with the number as a tensor, whose own dtype decides nothing: rsub has no out=."""
    kind = torch.float64 if isinstance(number, float) else torch.int64
    return torch.sub(torch.scalar_tensor(number, dtype=kind), tensor, alpha=alpha, out=out)


def row_forms(
    row: str, name: str, is_from_number: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """For a row of ours: PyTorch's function for aten base name `name`, its out= form, and the
    form's effect bits. is_from_number: the first operand is a number.
    """
    call = out = getattr(torch, name)
    if name == "relu":
        out = _relu_into
    if name == "sub" and is_from_number:
        call, out = _subtract_from, _subtract_from_into
    bits = _core.EFFECT_OUT
    if row not in _ROWS_WITH_LAYOUT:
        bits |= _core.EFFECT_OUT_LAYOUT
    return call, out, bits
