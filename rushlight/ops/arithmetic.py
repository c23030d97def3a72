"""Arithmetic of two operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core import dtype as D
from ..core.promotion import result_of
from . import expr as E
from .declare import composite, pointwise
from .execute import require_fits

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex


def _kind(x: object) -> int:
    """The category of an array or number."""
    return D.of(x.dtype).category if hasattr(x, "dtype") else D.number_dtype(x).category


def _check_alpha(input, other, alpha):
    top = max(_kind(input), _kind(other))
    if isinstance(alpha, bool) and top != D.BOOL:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and top < D.FLOAT:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and top < D.COMPLEX:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")


def _check_sub(input, other, alpha=1):
    if _kind(input) == D.BOOL and _kind(other) == D.BOOL:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        )
    if _kind(input) == D.BOOL or _kind(other) == D.BOOL:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or "
            "`logical_not()` operator instead."
        )
    _check_alpha(input, other, alpha)


def _careful(check):
    """A check that the fast path may skip: floats of one dtype always pass it."""
    check.integers_only = True
    check.integers_pass = check in (_check_alpha, _check_sub)
    return check


# `value` alone is what is added; beside `other` it is its factor
FACTOR = {"value": "other", "value+": "alpha"}


@pointwise(
    method=True, numbers=True, inplace=True, operator="add", legacy="input, alpha, other", check=_careful(_check_alpha), old=FACTOR
)
def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1):
    """`input + alpha * other`, element by element, with broadcasting and type promotion."""
    return input + alpha * other


@pointwise(
    method=True,
    numbers=True,
    inplace=True,
    operator="sub",
    aliases=("subtract",),
    legacy="input, alpha, other",
    check=_careful(_check_sub),
    old=FACTOR,
)
def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1):
    """`input - alpha * other`, element by element."""
    return input - alpha * other


@pointwise(method=True, check=_careful(_check_sub))
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1):
    """`other - alpha * input`, element by element."""
    return other - alpha * input


@pointwise(method=True, numbers=True, inplace=True, operator="mul", aliases=("multiply",), old={"value": "other"})
def mul(input: Tensor | Number, other: Tensor | Number):
    """`input * other`, element by element."""
    return input * other


def _no_bools(name, *operands):
    if all(_kind(x) == D.BOOL for x in operands):
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def _check_zero(input, other):
    _no_bools("division with rest", input, other)
    if max(_kind(input), _kind(other)) < D.FLOAT and np.any(np.asarray(other) == 0):
        raise RuntimeError("ZeroDivisionError")


def _check_div(input, other, rounding_mode=None):
    if rounding_mode not in (None, "trunc", "floor"):
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    if rounding_mode is not None:
        _check_zero(input, other)


def _div_dtypes(d, rounding_mode):
    c = d if d.category >= D.FLOAT or rounding_mode is not None else D.default[0]
    return c, c


_floor_divide = E.floor_divide


@pointwise(
    method=True,
    numbers=True,
    inplace=True,
    operator="truediv",
    aliases=("divide", "true_divide"),
    result=_div_dtypes,
    domain=(0.5, 3.0),
    check=_careful(_check_div),
    old={"value": "other", "divisor": "other"},
)
def div(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None):
    """`input / other`, element by element. Integers give the default float dtype, unless `rounding_mode` is "floor" or
    "trunc"."""
    if rounding_mode == "floor":
        return _floor_divide(input, other)
    if rounding_mode == "trunc":
        return E.cast(E.trunc(E.cast(input / other, "compute")), "compute")
    return input / other


@pointwise(public=False, numbers=True, name="div", check=_careful(_check_div), result=_div_dtypes, differentiable=False)
def _div_of_integers(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None):
    """Exact beyond the integers that floats hold: the floor, plus one where it went below the truncated quotient."""
    q = _floor_divide(input, other)
    return q if rounding_mode == "floor" else E.where((q < 0) & (q * other != input), q + 1, q)


div.forms[D.INTEGER] = _div_of_integers


@pointwise(method=True, numbers=True, inplace=True, operator="floordiv", check=_careful(_check_zero), domain=(0.5, 3.0),
           differentiable=False)
def floor_divide(input: Tensor | Number, other: Tensor | Number):
    """The floor of `input / other`."""
    return _floor_divide(input, other)


@pointwise(
    method=True, inplace=True, operator="mod", check=_careful(_check_zero), domain=(0.5, 3.0), old={"divisor": "other"}
)
def remainder(input: Tensor | Number, other: Tensor | Number):
    """The remainder of the floored division: it has the sign of the divisor."""
    return E.remainder(input, other)


@pointwise(method=True, inplace=True, check=_careful(_check_zero), domain=(0.5, 3.0), old={"divisor": "other"})
def fmod(input: Tensor, other: Tensor | Number):
    """The remainder of the truncated division: it has the sign of the dividend."""
    return E.fmod(input, other)


def _check_pow(input, exponent):
    _no_bools("pow", input, exponent)
    if max(_kind(input), _kind(exponent)) < D.FLOAT and not hasattr(exponent, "dtype"):
        if exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        require_fits(exponent, D.of(input.dtype))
    if (
        max(_kind(input), _kind(exponent)) < D.FLOAT
        and hasattr(exponent, "dtype")
        and hasattr(exponent, "strides")
        and np.any(np.asarray(exponent) < 0)
    ):
        # what C's integer arithmetic gives: 1/x cut off
        x = np.asarray(input)
        e = np.asarray(exponent)
        x, e = np.broadcast_arrays(x, e)
        odd = e % 2 == 1
        neg = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0))
        p = np.power(x, np.where(e < 0, 0, e))
        return np.where(e < 0, neg, p).astype(result_of((input, exponent)).np), 1
    return None


@pointwise(method=True, inplace=True, operator="pow", check=_careful(_check_pow), domain=(0.3, 2.0), old={"base": "input>exponent"})
def pow(input: Tensor | Number, exponent: Tensor | Number):
    """`input` to the power of `exponent`, element by element."""
    return E.pow(input, exponent)


@pointwise(method=True, inplace=True, node="PowBackward0")
def square(input: Tensor):
    """`input * input`; of bools in int64."""
    return input * input


@composite(public=False, name="square")
def _square_of_bool(input: Tensor):
    return input.to(D.int64)


square.forms[D.BOOL] = _square_of_bool


@pointwise(method=True, inplace=True)
def maximum(input: Tensor, other: Tensor):
    """The larger of two elements; nan if either is. Where they are equal the gradient is shared."""
    return E.maximum(input, other)


@pointwise(method=True, inplace=True)
def minimum(input: Tensor, other: Tensor):
    """The smaller of two elements; nan if either is."""
    return E.minimum(input, other)


@pointwise(method=True)
def fmax(input: Tensor, other: Tensor):
    """The larger of two elements, ignoring nan."""
    return E.fmax(input, other)


@pointwise(method=True)
def fmin(input: Tensor, other: Tensor):
    """The smaller of two elements, ignoring nan."""
    return E.fmin(input, other)


def _check_addcmul(input, tensor1, tensor2, value):
    _no_bools("addcmul", input, tensor1, tensor2)


@pointwise(method=True, inplace=True, legacy="input, value, tensor1, tensor2", check=_careful(_check_addcmul))
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1):
    """`input + value * tensor1 * tensor2`."""
    return input + value * tensor1 * tensor2


def _check_addcdiv(input, tensor1, tensor2, value):
    if _kind(tensor1) < D.FLOAT and _kind(tensor2) < D.FLOAT:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of "
            "tensor1 and tensor2."
        )


@pointwise(
    method=True,
    inplace=True,
    legacy="input, value, tensor1, tensor2",
    domain=(0.5, 3.0),
    check=_careful(_check_addcdiv),
)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1):
    """`input + value * tensor1 / tensor2`."""
    return input + value * tensor1 / tensor2


def _check_lerp(input, end, weight):
    d = D.of(input.dtype)
    for x, name in ((end, "end"), (weight, "weight")):
        if hasattr(x, "dtype") and x.dtype != input.dtype and (x is end or x.ndim):
            raise RuntimeError(f"expected dtype {d.name} for `{name}` but got dtype {D.of(x.dtype).name}")
    if d.category < D.FLOAT:
        raise NotImplementedError(f"\"lerp\" not implemented for '{d.name}': its operands must be floating point")


@pointwise(method=True, inplace=True, check=_careful(_check_lerp), out="same", old={"start": "input"})
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number):
    """`input + weight * (end - input)`."""
    return E.where(E.prim("abs", weight) < 0.5, input + weight * (end - input), end - (end - input) * (1 - weight))


@composite(public=False, name="lerp")
def _complex_lerp(input: Tensor, end: Tensor, weight: Tensor | Number):
    return input + weight * (end - input)


lerp.forms[D.COMPLEX] = _complex_lerp


@pointwise(method=True, result="float", domain=(0.5, 3.0), inplace=True, aliases=("arctan2",), old={"input1": "input", "input2": "other"})
def atan2(input: Tensor, other: Tensor):
    """The angle of the point (other, input), in (-pi, pi]."""
    return E.atan2(input, other)


def _check_hypot(input, other):
    if max(_kind(input), _kind(other)) < D.FLOAT:
        raise NotImplementedError(f"\"hypot\" not implemented for '{D.of(input.dtype).name}': its operands must be floating point")


@pointwise(method=True, inplace=True, domain=(0.5, 3.0), check=_careful(_check_hypot))
def hypot(input: Tensor, other: Tensor):
    """The length of the hypotenuse, without overflow in between."""
    return E.hypot(input, other)


@pointwise(method=True, result="float", inplace=True)
def copysign(input: Tensor, other: Tensor | Number):
    """The magnitude of `input` with the sign of `other`."""
    return E.copysign(input, other)


@pointwise(method=True, inplace=True, exact=True)
def nextafter(input: Tensor, other: Tensor):
    """The next representable number after `input` in the direction of `other`."""
    return E.nextafter(input, other)


# a step of one unit in the last place: the derivative is 1, and 0 where there is nowhere to go
nextafter.gradient(input=lambda grad, input, other: E.where((input <= other) & (input >= other), 0, grad), other=lambda grad: E.const(0))


@pointwise(method=True)
def logaddexp(input: Tensor, other: Tensor):
    """log(exp(input) + exp(other)), stably."""
    return E.logaddexp(input, other)


@pointwise(method=True)
def logaddexp2(input: Tensor, other: Tensor):
    """log2(2**input + 2**other), stably."""
    return E.logaddexp2(input, other)
