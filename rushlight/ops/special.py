"""Functions of mathematical physics and statistics, and arithmetic that is seldom needed."""

from __future__ import annotations

import math as M
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.promotion import result_of
from ..core.tensor import Tensor as T
from ..core.tensor import hooks
from . import expr as E
from .declare import composite, pointwise, structural
from .execute import common_shape, require_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.tensor import Tensor

    Number = int | float | complex


def f(name: str) -> Any:
    return hooks.function(name)


SPECIAL = {"ns": "special", "result": "float"}
BOTH = {"ns": ("torch", "special"), "method": True, "inplace": True, "result": "float"}


# --- logarithms that are kind at 0 ------------------------------------------------------------------------------------
@pointwise(domain=(0.2, 3.0), **BOTH)
def xlogy(input: Tensor | Number, other: Tensor | Number):
    """input * log(other), 0 where input is 0; nan where other is."""
    return E.where(E.isnan(other), other, E.where(input == 0, 0, input * E.log(other)))


xlogy.gradient(
    input=lambda grad, input, other: grad * E.where((input == 0) & (other <= 0), 0, E.log(other)),
    other=lambda grad, input, other: grad * input / other,
)


@pointwise(domain=(0.2, 3.0), **SPECIAL)
def xlog1py(input: Tensor | Number, other: Tensor | Number):
    """input * log1p(other), 0 where input is 0; nan where other is."""
    return E.where(E.isnan(other), other, E.where(input == 0, 0, input * E.log1p(other)))


xlog1py.gradient(
    input=lambda grad, input, other: grad * E.where((input == 0) & (other <= -1), 0, E.log1p(other)),
    other=lambda grad, input, other: grad * input / (other + 1),
)


@pointwise(domain=(0.2, 3.0), **SPECIAL)
def entr(input: Tensor):
    """The entropy -x log x of a probability; 0 at 0, -inf below."""
    return E.where(E.isnan(input), input, E.where(input > 0, -input * E.log(input), E.where(input == 0, 0, -M.inf)))


entr.gradient(input=lambda grad, input: grad * (-E.log(input) - 1))


# --- the normal distribution ------------------------------------------------------------------------------------------
@pointwise(**SPECIAL)
def ndtr(input: Tensor):
    """The distribution function of the standard normal distribution."""
    x = input * M.sqrt(0.5)
    return E.where(x < 1.0, 0.5 * E.erfc(-x), 1 - 0.5 * E.erfc(x))


ndtr.gradient(input=lambda grad, input: grad * E.exp(-0.5 * input * input) * (1 / M.sqrt(2 * M.pi)))


@pointwise(domain=(0.1, 0.9), **SPECIAL)
def ndtri(input: Tensor):
    """The quantile function of the standard normal distribution, the inverse of `ndtr`."""
    return E.ndtri(input)


@pointwise(**SPECIAL)
def log_ndtr(input: Tensor):
    """log(ndtr(input)), also far to the left."""
    return E.log_ndtr(input)


@pointwise(**SPECIAL)
def erfcx(input: Tensor):
    """exp(x**2) * erfc(x), without overflow."""
    return E.erfcx(input)


# --- gamma functions --------------------------------------------------------------------------------------------------
GAMMA = {"method": True, "inplace": True, "result": "float", "domain": (0.5, 3.0)}


@pointwise(**GAMMA)
def igamma(input: Tensor, other: Tensor):
    """The regularized lower incomplete gamma function of shape `input` at `other`. No gradient for the shape."""
    return E.gammainc(input, other)


@pointwise(**GAMMA)
def igammac(input: Tensor, other: Tensor):
    """The regularized upper incomplete gamma function, 1 - igamma."""
    return E.gammaincc(input, other)


def _second_only(name: str, by_other: Callable) -> Any:
    """The gradient of a function of two operands that has none for the first; asking for that is an error, as in PyTorch."""

    def backward(grad: Any, needs: Any, input: Any, other: Any) -> tuple:
        if needs[0]:
            raise NotImplementedError(f"the derivative for '{name}' is not implemented.")
        return None, (grad * by_other(input, other)).sum_to_size(other.shape)

    return backward


def _gamma_density(a: Any, x: Any) -> Any:
    return f("exp")((a - 1) * f("log")(x) - x - f("lgamma")(a))


igamma.backward(_second_only("igamma: input", _gamma_density))
igammac.backward(_second_only("igammac: input", lambda a, x: -_gamma_density(a, x)))


@pointwise(result="float", public=False, name="polygamma", domain=(0.5, 3.0))
def _polygamma(n: Number, input: Tensor):
    return E.polygamma(n, input)


def _polygamma_call(n: int, input: Any) -> Any:
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return f("digamma")(input) if n == 0 else _polygamma.function(float(n), input)


_polygamma.gradient(input=lambda grad, n, input: grad * E.polygamma(n + 1, input))


@composite(ns=("torch", "special"), out=True)
def polygamma(n: int, input: Tensor):
    """The n-th derivative of digamma."""
    return _polygamma_call(n, input)


@composite(ns="Tensor", method=True, inplace=True, name="polygamma")
def polygamma_method(input: Tensor, n: int):
    """The n-th derivative of digamma."""
    return _polygamma_call(n, input)


@composite(method=True, inplace=True, aliases=("multigammaln",), ns=("torch", "special"), out=True)
def mvlgamma(input: Tensor, p: int):
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype.category < D.FLOAT:
        input = input.to(D.default[0])
    steps = f("arange")(0, p, dtype=input.dtype, device=input.device) / -2
    return f("lgamma")(input.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) * M.log(M.pi) / 4


@pointwise(domain=(1.5, 4.0), **SPECIAL)
def zeta(input: Tensor | Number, other: Tensor | Number):
    """The Hurwitz zeta function: the sum over k of (k + other) ** -input. No gradient for the exponent."""
    return E.zeta(input, other)


zeta.backward(_second_only("zeta", lambda x, q: -x * zeta.function(x + 1, q)))


# --- Bessel functions -------------------------------------------------------------------------------------------------
def _one(name: str, primitive: Any, doc: str, ns: Any = "special", domain: tuple = (0.5, 4.0), **kw: Any) -> Any:
    def body(input: Tensor):
        return primitive(input)

    body.__name__, body.__doc__ = name, doc
    return pointwise(body, ns=ns, result="float", domain=domain, **kw)


_one(
    "i0",
    E.i0,
    "The modified Bessel function of the first kind of order 0.",
    ("torch", "special"),
    method=True,
    inplace=True,
)
for _name, _prim, _doc in (
    ("i0e", E.i0e, "exp(-|x|) * i0(x)."),
    ("i1", E.i1, "The modified Bessel function of the first kind of order 1."),
    ("i1e", E.i1e, "exp(-|x|) * i1(x)."),
):
    _one(_name, _prim, _doc)
# SciPy's are the published Cephes algorithm, right to the last places. PyTorch 2.13's j0, j1, y0, y1 leave out the leading 1 of the
# denominators (Cephes' p1evl) and are off by up to 9e-7 around 5.
for _name, _prim, _doc in (
    ("bessel_j0", E.bessel_j0, "The Bessel function of the first kind of order 0."),
    ("bessel_j1", E.bessel_j1, "... of order 1."),
    ("bessel_y0", E.bessel_y0, "The Bessel function of the second kind of order 0."),
    ("bessel_y1", E.bessel_y1, "... of order 1."),
    ("modified_bessel_i0", E.i0, "The modified Bessel function of the first kind of order 0."),
    ("modified_bessel_i1", E.i1, "... of order 1."),
    ("modified_bessel_k0", E.bessel_k0, "The modified Bessel function of the second kind of order 0."),
    ("modified_bessel_k1", E.bessel_k1, "... of order 1."),
    ("scaled_modified_bessel_k0", E.bessel_k0e, "exp(x) * modified_bessel_k0(x)."),
    ("scaled_modified_bessel_k1", E.bessel_k1e, "exp(x) * modified_bessel_k1(x)."),
):
    _one(_name, _prim, _doc, differentiable=False)


@pointwise(differentiable=False, **SPECIAL)
def spherical_bessel_j0(input: Tensor):
    """sin(x) / x."""
    return E.where(input == 0, 1, E.where(E.isinf(input), 0, E.sin(input) / input))


@structural(ns="special", differentiable=False)
def airy_ai(input: Tensor):
    """The Airy function Ai."""
    from scipy.special import airy

    x = input if input.dtype.kind == "f" else input.astype(D.default[0].np)
    return np.asarray(airy(x)[0], x.dtype)


airy_ai.shape(lambda input: (input.shape, D.of(input.dtype) if input.dtype.kind == "f" else D.default[0]))


# --- orthogonal polynomials: p[k + 1] = (a x + b) p[k] - c p[k - 1] ---------------------------------------------------
def _polynomial(name: str, first: Any, step: Any, doc: str) -> None:
    @structural(public=False, differentiable=False, name=name)
    def values(input: Tensor, n: Tensor):
        shape = common_shape(input.shape, n.shape)
        x, k = np.broadcast_to(input, shape), np.broadcast_to(n.astype(np.int64), shape)
        out = np.where(k == 0, 1.0, 0.0).astype(x.dtype)
        before, now = np.ones_like(x), first(x)
        for j in range(1, int(k.max(initial=0)) + 1):
            np.copyto(out, now, where=k == j)
            before, now = now, step(j, x, now, before)
        return out

    values.shape(lambda input, n: common_shape(input.shape, n.shape))

    def body(input: Tensor | Number, n: Tensor | Number):
        a, b = (t for t in (input, n))
        tensors = [t for t in (a, b) if isinstance(t, T)]
        if not tensors:
            raise TypeError(
                f"{name}() received an invalid combination of arguments: one of input and n must be a Tensor"
            )
        from ..core.promotion import result_of

        d = result_of(tuple(getattr(t, "_a", t) for t in (a, b)))
        d = d if d.category >= D.FLOAT else D.default[0]
        a, b = (t.to(d) if isinstance(t, T) else f("tensor")(t, dtype=d) for t in (a, b))
        return values(a, b)

    body.__name__, body.__doc__ = name, doc
    composite(body, ns="special", out=True)


def _shifted(step: Any) -> Any:
    return lambda j, x, p, q: step(j, 2 * x - 1, p, q)


def _chebyshev(j, x, p, q):
    return 2 * x * p - q


for _name, _first, _doc in (
    ("t", lambda x: x, "T"),
    ("u", lambda x: 2 * x, "U"),
    ("v", lambda x: 2 * x - 1, "V"),
    ("w", lambda x: 2 * x + 1, "W"),
):
    _polynomial(f"chebyshev_polynomial_{_name}", _first, _chebyshev, f"Chebyshev's polynomial {_doc} of degree n.")
    _polynomial(
        f"shifted_chebyshev_polynomial_{_name}",
        lambda x, first=_first: first(2 * x - 1),
        _shifted(_chebyshev),
        f"Chebyshev's polynomial {_doc} of degree n at 2 x - 1.",
    )
_polynomial(
    "hermite_polynomial_h",
    lambda x: 2 * x,
    lambda j, x, p, q: 2 * x * p - 2 * j * q,
    "The physicists' Hermite polynomial of degree n.",
)
_polynomial(
    "hermite_polynomial_he",
    lambda x: x,
    lambda j, x, p, q: x * p - j * q,
    "The probabilists' Hermite polynomial of degree n.",
)
_polynomial(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda j, x, p, q: ((2 * j + 1 - x) * p - j * q) / (j + 1),
    "Laguerre's polynomial of degree n.",
)
_polynomial(
    "legendre_polynomial_p",
    lambda x: x,
    lambda j, x, p, q: ((2 * j + 1) * x * p - j * q) / (j + 1),
    "Legendre's polynomial of degree n.",
)


# --- names of this namespace for operators of others ------------------------------------------------------------------
def _alias(name: str, target: str, doc: str) -> None:
    def body(input: Tensor):
        return f(target)(input)

    body.__name__, body.__doc__ = name, doc
    composite(body, ns="special", out=True)


_alias("expit", "sigmoid", "`torch.sigmoid`.")
_alias("gammaln", "lgamma", "`torch.lgamma`.")


@composite(ns="special", out=True)
def gammainc(input: Tensor, other: Tensor):
    """`torch.igamma`."""
    return igamma(input, other)


@composite(ns="special", out=True)
def gammaincc(input: Tensor, other: Tensor):
    """`torch.igammac`."""
    return igammac(input, other)


@composite(ns="special", out=True)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False):
    """`torch.logsumexp`."""
    return f("logsumexp")(input, dim, keepdim)


@composite(ns="special")
def softmax(input: Tensor, dim: int, *, dtype: Any = None):
    """`torch.softmax`."""
    return f("softmax")(input, dim, dtype=dtype)


@composite(ns="special")
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None):
    """`torch.log_softmax`."""
    return f("log_softmax")(input, dim, dtype=dtype)


# --- more arithmetic --------------------------------------------------------------------------------------------------
@pointwise(ns=("torch", "special"), method=True, inplace=True, result="float")
def sinc(input: Tensor):
    """sin(pi x) / (pi x), 1 at 0."""
    return E.where(input == 0, 1, E.sin(M.pi * input) / (M.pi * input))


def _sinc_gradient(grad, input):
    x = M.pi * input
    return E.where(input == 0, 0, grad * (E.cos(x) * x - E.sin(x)) / (x * input))


sinc.gradient(input=_sinc_gradient)


def _integers(name: str) -> Any:
    def check(input, other):
        d = result_of((input, other))
        if d.category != D.INTEGER:
            raise RuntimeError(f"\"{name}_cpu\" not implemented for '{d.name.capitalize()}'")

    return check


@pointwise(method=True, inplace=True, check=_integers("gcd"), differentiable=False)
def gcd(input: Tensor, other: Tensor):
    """The greatest common divisor; gcd(0, 0) is 0."""
    return E.gcd(input, other)


@pointwise(method=True, inplace=True, check=_integers("lcm"), differentiable=False)
def lcm(input: Tensor, other: Tensor):
    """The least common multiple."""
    return E.lcm(input, other)


def _heaviside_check(input, values):
    if input.dtype.kind == "c" or values.dtype.kind == "c":
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


@pointwise(method=True, inplace=True, check=_heaviside_check, differentiable=False, out="same")
def heaviside(input: Tensor, values: Tensor):
    """0 below zero, 1 above, `values` at zero (and 0 for nan)."""
    return E.where(input == 0, values, E.cast(input > 0, "compute"))


@composite(method=True, inplace=True, out=True)
def ldexp(input: Tensor, other: Tensor):
    """input * 2**other."""
    require_tensors(ldexp, input, other)
    if other.dtype.category <= D.INTEGER and input.dtype.category == D.FLOAT:      # 2**other may be out of range where the product is not
        half = f("floor_divide")(other, 2) if other.dtype.category else other
        x, a, b = input.to(D.float64), half.to(D.float64), (other - half if other.dtype.category else f("zeros_like")(other)).to(D.float64)
        return (x * f("pow")(2.0, a) * f("pow")(2.0, b)).to(input.dtype)
    return input * f("pow")(2.0, other)


@composite(method=True, inplace=False, out=True)
def float_power(input: Tensor | Number, exponent: Tensor | Number):
    """`input` to the power of `exponent`, in float64 (complex128)."""
    return _float_power(input, exponent)


def _float_power(input: Any, exponent: Any) -> Any:
    wide = any(x.dtype.is_complex if isinstance(x, T) else isinstance(x, complex) for x in (input, exponent))
    d = D.ALL["complex128" if wide else "float64"]
    a, b = (x.to(d) if isinstance(x, T) else complex(x) if wide else float(x) for x in (input, exponent))
    return f("pow")(a, b)


def _float_power_inplace(self: Any, exponent: Any) -> Any:
    r = _float_power(self, exponent)
    if r.dtype is not self.dtype:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype.name.capitalize()} but the operation's result "
            "requires dtype "
            f"{r.dtype.name.capitalize()}"
        )
    return self.copy_(r)


T.float_power_ = _float_power_inplace  # type: ignore[attr-defined]


@structural(public=False, name="frexp", returns=("mantissa", "exponent"))
def _frexp(input: Tensor):
    m, e = np.frexp(input)
    return m, e.astype(np.int32)


_frexp.shape(lambda input: (input.shape, (input.shape, D.ALL["int32"])))
_frexp.gradient(input=lambda grad, exponent: grad / f("pow")(2.0, exponent.to(grad.dtype)))


@composite(method=True, returns=("mantissa", "exponent"), out=True)
def frexp(input: Tensor):
    """(mantissa in [0.5, 1), exponent) with input = mantissa * 2**exponent."""
    if input.dtype.category != D.FLOAT:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return _frexp(input)


# --- complex numbers --------------------------------------------------------------------------------------------------
@structural(public=False, exact=True, name="angle")
def _angle(input: Tensor):
    return np.angle(input)


_angle.shape(lambda input: (input.shape, D.of(input.dtype).to_real()))


def _angle_gradient(grad, input):
    # d arg z = Im(conj(z) dz) / |z|^2
    re, im = f("real")(input), f("imag")(input)
    n = re * re + im * im
    n = f("where")(n == 0, f("ones_like")(n), n)
    return f("complex")(-im / n * grad, re / n * grad)


_angle.gradient(input=_angle_gradient)


@pointwise(public=False, name="angle", result="float")
def _angle_of_real(input: Tensor):
    return E.where(E.isnan(input), input, E.where(input < 0, M.pi, 0))


_angle_of_real.gradient(input=lambda grad: grad * 0)


@composite(method=True, out=True)
def angle(input: Tensor):
    """The angle of complex numbers in (-pi, pi]; of real ones 0, or pi below zero."""
    return _angle(input) if input.dtype.is_complex else _angle_of_real(input)


@composite(out=True)
def polar(abs: Tensor, angle: Tensor):
    """The complex numbers of given modulus and angle."""
    require_tensors(polar, abs, angle)
    if abs.dtype is not angle.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {abs.dtype.name.capitalize()} but got scalar type "
            f"{angle.dtype.name.capitalize()} for second argument"
        )
    if abs.dtype.name not in ("float32", "float64"):
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {abs.dtype.name.capitalize()} and "
            f"{angle.dtype.name.capitalize()}"
        )
    return f("complex")(abs * f("cos")(angle), abs * f("sin")(angle))


# --- Inputs for the generated tests (ops.samples): no gradient for the first operand ---
def _second(low: float, high: float) -> Any:
    return lambda s: [s.call(s(a, low=low, high=high, requires_grad=False), s(b, low=low, high=high))
                      for a, b in (((3, 4), (3, 4)), ((), ()), ((0, 3), (0, 3)), ((3, 1), (4,)))]


# --- Inputs for the generated tests (ops.samples) ---
igamma.samples(_second(0.5, 3.0))
igammac.samples(_second(0.5, 3.0))
zeta.samples(_second(1.5, 4.0))

polygamma.samples(lambda s: [s.call(1, s((3,), low=0.5)), s.call(2, s((3,), low=0.5))])
mvlgamma.samples(lambda s: [s.call(s((3,), low=2.0), 2)])
logsumexp.samples(lambda s: [s.call(s((2, 3)), 1)])
softmax.samples(lambda s: [s.call(s((2, 3)), 1)])
log_softmax.samples(lambda s: [s.call(s((2, 3)), 0)])
ldexp.samples(lambda s: [s.call(s((2, 3)), s.ints((3,), 4))])
float_power.samples(lambda s: [s.call(s((3,), low=0.5), s((3,))), s.call(s.ints((3,), 5), 2)])
angle.samples(lambda s: [s.call(s((2, 3))), s.call(s((2,), 'complex128'))])
polar.samples(lambda s: [s.call(s((3,), low=0.5), s((3,)))])
