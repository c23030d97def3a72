"""Elementary functions of one operand."""

from __future__ import annotations

import math as M
from typing import TYPE_CHECKING

import numpy as np

from ..core import dtype as D
from ..core.tensor import hooks
from . import expr as E
from .declare import composite, pointwise, structural
from .execute import require_fits

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex

FLOAT = {"method": True, "inplace": True, "result": "float"}


@pointwise(**FLOAT)
def exp(input: Tensor):
    """e to the power of each element."""
    return E.exp(input)


exp.gradient(input=lambda grad, result: grad * result)


@pointwise(ns=("torch", "special"), **FLOAT)
def exp2(input: Tensor):
    """2 to the power of each element."""
    return E.exp2(input)


@pointwise(ns=("torch", "special"), **FLOAT)
def expm1(input: Tensor):
    """exp(input) - 1, exact near 0."""
    return E.expm1(input)


expm1.gradient(input=lambda grad, result: grad * (result + 1))


@pointwise(domain=(0.1, 4.0), **FLOAT)
def log(input: Tensor):
    """Natural logarithm."""
    return E.log(input)


log.gradient(input=lambda grad, input: grad / input)


@pointwise(domain=(0.1, 4.0), **FLOAT)
def log2(input: Tensor):
    """Logarithm to base 2."""
    return E.log2(input)


@pointwise(domain=(0.1, 4.0), **FLOAT)
def log10(input: Tensor):
    """Logarithm to base 10."""
    return E.log10(input)


@pointwise(ns=("torch", "special"), domain=(-0.9, 4.0), **FLOAT)
def log1p(input: Tensor):
    """log(1 + input), exact near 0."""
    return E.log1p(input)


log1p.gradient(input=lambda grad, input: grad / (input + 1))


@pointwise(domain=(0.1, 4.0), **FLOAT)
def sqrt(input: Tensor):
    """Square root."""
    return E.sqrt(input)


sqrt.gradient(input=lambda grad, result: grad / (2 * result))


@pointwise(domain=(0.1, 4.0), **FLOAT)
def rsqrt(input: Tensor):
    """1 / sqrt(input)."""
    return 1 / E.sqrt(input)


rsqrt.gradient(input=lambda grad, result: -0.5 * grad * (result * result * result))


@pointwise(domain=(0.3, 3.0), **FLOAT)
def reciprocal(input: Tensor):
    """1 / input."""
    return 1 / input


reciprocal.gradient(input=lambda grad, result: -grad * (result * result))


@pointwise(**FLOAT)
def sin(input: Tensor):
    """Sine, of radians."""
    return E.sin(input)


@pointwise(**FLOAT)
def cos(input: Tensor):
    """Cosine, of radians."""
    return E.cos(input)


@pointwise(domain=(-1.2, 1.2), **FLOAT)
def tan(input: Tensor):
    """Tangent, of radians."""
    return E.tan(input)


tan.gradient(input=lambda grad, result: grad * (1 + result * result))


@pointwise(aliases=("arcsin",), domain=(-0.9, 0.9), **FLOAT)
def asin(input: Tensor):
    """Inverse sine."""
    return E.asin(input)


@pointwise(aliases=("arccos",), domain=(-0.9, 0.9), **FLOAT)
def acos(input: Tensor):
    """Inverse cosine."""
    return E.acos(input)


@pointwise(aliases=("arctan",), **FLOAT)
def atan(input: Tensor):
    """Inverse tangent."""
    return E.atan(input)


@pointwise(**FLOAT)
def sinh(input: Tensor):
    """Hyperbolic sine."""
    return E.sinh(input)


@pointwise(**FLOAT)
def cosh(input: Tensor):
    """Hyperbolic cosine."""
    return E.cosh(input)


@pointwise(ns=("torch", "nn.functional"), **FLOAT)
def tanh(input: Tensor):
    """Hyperbolic tangent."""
    return E.tanh(input)


tanh.gradient(input=lambda grad, result: grad * (1 - result * result))


@pointwise(aliases=("arcsinh",), **FLOAT)
def asinh(input: Tensor):
    """Inverse hyperbolic sine."""
    return E.asinh(input)


@pointwise(aliases=("arccosh",), domain=(1.2, 4.0), **FLOAT)
def acosh(input: Tensor):
    """Inverse hyperbolic cosine."""
    return E.acosh(input)


@pointwise(aliases=("arctanh",), domain=(-0.9, 0.9), **FLOAT)
def atanh(input: Tensor):
    """Inverse hyperbolic tangent."""
    return E.atanh(input)


@pointwise(ns=("torch", "special"), **FLOAT)
def erf(input: Tensor):
    """The error function."""
    return E.erf(input)


@pointwise(ns=("torch", "special"), **FLOAT)
def erfc(input: Tensor):
    """1 - erf(input), exact for large arguments."""
    return E.erfc(input)


@pointwise(ns=("torch", "special"), domain=(-0.9, 0.9), **FLOAT)
def erfinv(input: Tensor):
    """The inverse of erf."""
    return E.erfinv(input)


@pointwise(domain=(0.3, 4.0), **FLOAT)
def lgamma(input: Tensor):
    """The logarithm of the absolute value of the gamma function."""
    return E.lgamma(input)


@pointwise(ns=("torch", "special"), domain=(0.3, 4.0), aliases=("psi",), **FLOAT)
def digamma(input: Tensor):
    """The derivative of lgamma."""
    return E.digamma(input)


@pointwise(method=True, inplace=True, aliases=("special_expit",), ns=("torch", "nn.functional"), result="float")
def sigmoid(input: Tensor):
    """1 / (1 + exp(-input)), without overflow."""
    return 1 / (1 + E.exp(-input))


sigmoid.gradient(input=lambda grad, result: grad * ((1 - result) * result))


def _check_neg(input):
    if input.dtype.kind == "b":
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or "
            "`logical_not()` operator instead."
        )


_check_neg.integers_only = _check_neg.integers_pass = True


@pointwise(method=True, inplace=True, operator="neg", aliases=("negative",), check=_check_neg, exact=True, out="same")
def neg(input: Tensor):
    """The element with its sign changed."""
    return -input


@composite(method=True, operator="pos")
def positive(input: Tensor):
    """The tensor itself. RuntimeError for bools."""
    if input.dtype is D.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def _no_bool(input, *more):
    if input.dtype.kind == "b":
        raise NotImplementedError("not implemented for 'Bool': bools have no sign to drop and nothing to round; convert them first, with .int()")


_no_bool.integers_only = _no_bool.integers_pass = True


@pointwise(method=True, inplace=True, operator="abs", aliases=("absolute",), result="real", check=_no_bool, out="same")
def abs(input: Tensor):
    """Absolute value; of complex numbers the modulus."""
    return E.prim("abs", input)


abs.gradient(input=lambda grad, input: grad * E.where(E.isnan(input), 0, E.sign(input)))


@pointwise(method=True, inplace=True, out="same")
def sign(input: Tensor):
    """-1, 0 or 1; 0 for nan."""
    return E.where(E.isnan(input), 0, E.sign(input))


sign.gradient(input=lambda grad: grad * 0)


@pointwise(method=True, inplace=True, out="same")
def sgn(input: Tensor):
    """The sign; of complex numbers the number divided by its modulus. 0 for nan."""
    return E.where(E.isnan(input), 0, E.sign(input))


sgn.gradient(input=lambda grad: grad * 0)


@structural(public=False, exact=True, name="abs")
def _complex_abs(input: Tensor):
    return np.abs(input)


@structural(public=False, exact=True, name="sgn")
def _complex_sgn(input: Tensor):
    return np.sign(input)


def _complex_sgn_gradient(grad, input, result):
    # what changes the direction of z, over its modulus
    r = hooks.function("abs")(input)
    safe = hooks.function("where")(r == 0, hooks.function("ones_like")(r), r)
    along = hooks.function("real")(grad * result.conj())
    return hooks.function("where")(r == 0, hooks.function("zeros_like")(grad), (grad - along * result) / safe)


_complex_abs.shape(lambda input: (input.shape, D.of(input.dtype).to_real()))
_complex_abs.gradient(input=lambda grad, input: grad * hooks.function("sgn")(input))
_complex_sgn.shape(lambda input: input.shape)
_complex_sgn.gradient(input=_complex_sgn_gradient)
abs.forms[D.COMPLEX], sgn.forms[D.COMPLEX] = _complex_abs, _complex_sgn


@composite(public=False, name="sign")
def _sign_of_bool(input: Tensor):
    return input.clone()


sign.forms[D.BOOL] = sgn.forms[D.BOOL] = _sign_of_bool
ROUNDING = {"method": True, "inplace": True, "check": _no_bool, "out": "same"}


@pointwise(**ROUNDING)
def floor(input: Tensor):
    """The greatest integer not above the element."""
    return E.floor(input)


floor.gradient(input=lambda grad: grad * 0)


@pointwise(**ROUNDING)
def ceil(input: Tensor):
    """The least integer not below the element."""
    return E.ceil(input)


ceil.gradient(input=lambda grad: grad * 0)


@pointwise(aliases=("fix",), **ROUNDING)
def trunc(input: Tensor):
    """The integer part."""
    return E.trunc(input)


trunc.gradient(input=lambda grad: grad * 0)


def _floats(input):
    if D.of(input.dtype).category < D.FLOAT:
        raise NotImplementedError(f"\"frac\" not implemented for '{D.of(input.dtype).name}': only floating point numbers have a fraction")


_floats.integers_only = True


@pointwise(method=True, inplace=True, check=_floats, out="same")
def frac(input: Tensor):
    """The element less its integer part."""
    return input - E.trunc(input)


frac.gradient(input=lambda grad: grad)


@pointwise(ns=("torch", "special"), **ROUNDING)
def round(input: Tensor, *, decimals: int = 0):
    """The nearest integer, halves to even; with `decimals`, the nearest multiple of 10**-decimals."""
    if decimals == 0:
        return E.round(input)
    if decimals > 0:
        return E.round(input * 10.0**decimals) / 10.0**decimals
    return E.round(input / 10.0**-decimals) * 10.0**-decimals


round.gradient(input=lambda grad: grad * 0)


def _check_clamp(input, min, max):
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if all(x is None or isinstance(x, bool) or getattr(x, "dtype", None) == np.bool_ for x in (min, max)):
        _no_bool(input)
    for bound in (min, max):
        if isinstance(bound, int):
            require_fits(bound, D.of(input.dtype))


_check_clamp.integers_only = True


@pointwise(method=True, inplace=True, aliases=("clip",), check=_check_clamp, node="ClampBackward1")
def clamp(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None):
    """Elements below `min` become `min`, those above `max` become `max` (also where min > max); nan stays."""
    if min is not None:
        input = E.maximum(input, min)
    return input if max is None else E.minimum(input, max)


def _inside(grad, input, min, max):
    ok = input >= min if min is not None else None
    if max is not None:
        ok = input <= max if ok is None else ok & (input <= max)
    return E.where(ok, grad, 0)


def _at_max(grad, input, min, max):
    if max is None:
        return grad * 0
    return E.where(input > max if min is None else (input > max) | (max < min), grad, 0)


def _at_min(grad, input, min, max):
    if min is None:
        return grad * 0
    return E.where(input < min if max is None else (min < max) & (input < min), grad, 0)


clamp.gradient(input=_inside, min=_at_min, max=_at_max)


@pointwise(method=True, inplace=True)
def clamp_min(input: Tensor, min: Tensor | Number):
    """max(input, min)."""
    return E.maximum(input, min)


clamp_min.gradient(
    input=lambda grad, input, min: E.where(input >= min, grad, 0),
    min=lambda grad, input, min: E.where(input < min, grad, 0),
)


@pointwise(method=True, inplace=True)
def clamp_max(input: Tensor, max: Tensor | Number):
    """min(input, max)."""
    return E.minimum(input, max)


clamp_max.gradient(
    input=lambda grad, input, max: E.where(input <= max, grad, 0),
    max=lambda grad, input, max: E.where(input > max, grad, 0),
)


def _limits(input, nan, posinf, neginf):
    d = D.of(input.dtype)
    if d.category < D.FLOAT:
        return input, 0, 0, 0
    f = D.finfo(d)
    return (
        input,
        0.0 if nan is None else nan,
        f.max if posinf is None else posinf,
        f.min if neginf is None else neginf,
    )


@pointwise(method=True, inplace=True, check=_limits, out="same")
def nan_to_num(input: Tensor, nan: Number = None, posinf: Number = None, neginf: Number = None):
    """nan becomes `nan` (0), infinities become `posinf` and `neginf` (the dtype's largest and smallest numbers)."""
    return E.where(E.isnan(input), nan, E.where(E.isinf(input), E.where(input > 0, posinf, neginf), input))


@composite(public=False, name="nan_to_num")
def _complex_nan_to_num(input: Tensor, nan: Number = None, posinf: Number = None, neginf: Number = None):
    return hooks.function("view_as_complex")(nan_to_num(hooks.function("view_as_real")(input), nan, posinf, neginf))


nan_to_num.forms[D.COMPLEX] = _complex_nan_to_num
nan_to_num.gradient(input=lambda grad, input: E.where(E.isnan(input) | E.isinf(input), 0, grad))


@pointwise(method=True, domain=(0.1, 0.9), ns=("torch", "special"), inplace=True, result="float")
def logit(input: Tensor, eps: float | None = None):
    """log(p / (1 - p)), with p clamped to [eps, 1 - eps] if eps is given."""
    if eps is not None:
        input = E.minimum(E.maximum(input, eps), 1 - eps)
    return E.log(input / (1 - input))


def _logit_gradient(grad, input, eps):
    low, high, outside = (0, 1, M.nan) if eps is None else (eps, 1 - eps, 0)
    return E.where((input < low) | (input > high), outside, grad / (input * (1 - input)))


logit.gradient(input=_logit_gradient)


@pointwise(method=True, inplace=True, result="float")
def rad2deg(input: Tensor):
    """Radians to degrees."""
    return input * (180 / M.pi)


@pointwise(method=True, inplace=True, result="float")
def deg2rad(input: Tensor):
    """Degrees to radians."""
    return input * (M.pi / 180)


# --- Inputs for the generated tests (ops.samples) ---
positive.samples(lambda s: [s.call(s((2, 3)))])
