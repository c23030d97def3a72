"""Comparisons, logic, bits, and choosing between elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core import dtype as D
from ..core.promotion import require_fits, result_of
from ..core.tensor import hooks
from . import expr as E
from .declare import composite, pointwise
from .execute import require_tensors

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Mask = Tensor


def _real_only(input, other):
    if any(hasattr(x, "dtype") and x.dtype.kind == "c" or isinstance(x, complex) for x in (input, other)):
        raise NotImplementedError("comparison of complex tensors is not implemented: complex numbers have no order")


_real_only.integers_only = _real_only.integers_pass = True
TEST = {"method": True, "inplace": True, "result": "bool", "differentiable": False, "exact": True}


@pointwise(operator="eq", old={"value": "other"}, **TEST)
def eq(input: Tensor, other: Tensor | Number):
    """Whether the elements are equal."""
    return input == other


@pointwise(operator="ne", aliases=("not_equal",), old={"value": "other"}, **TEST)
def ne(input: Tensor, other: Tensor | Number):
    """Whether the elements differ."""
    return input != other


@pointwise(operator="lt", aliases=("less",), check=_real_only, old={"value": "other"}, **TEST)
def lt(input: Tensor, other: Tensor | Number):
    """Whether input < other."""
    return input < other


@pointwise(operator="le", aliases=("less_equal",), check=_real_only, old={"value": "other"}, **TEST)
def le(input: Tensor, other: Tensor | Number):
    """Whether input <= other."""
    return input <= other


@pointwise(operator="gt", aliases=("greater",), check=_real_only, old={"value": "other"}, **TEST)
def gt(input: Tensor, other: Tensor | Number):
    """Whether input > other."""
    return input > other


@pointwise(operator="ge", aliases=("greater_equal",), check=_real_only, old={"value": "other"}, **TEST)
def ge(input: Tensor, other: Tensor | Number):
    """Whether input >= other."""
    return input >= other


PREDICATE = {"method": True, "result": "bool", "differentiable": False, "exact": True}


@pointwise(**PREDICATE)
def isnan(input: Tensor):
    """Whether the element is nan."""
    return input != input


@pointwise(**PREDICATE)
def isinf(input: Tensor):
    """Whether the element is infinite."""
    return E.isinf(input)


@pointwise(**PREDICATE)
def isfinite(input: Tensor):
    """Whether the element is neither infinite nor nan."""
    return E.isfinite(input)


@pointwise(out="same", **PREDICATE)
def isposinf(input: Tensor):
    """Whether the element is plus infinity."""
    return E.isinf(input) & (input > 0)


@pointwise(out="same", **PREDICATE)
def isneginf(input: Tensor):
    """Whether the element is minus infinity."""
    return E.isinf(input) & (input < 0)


@pointwise(**PREDICATE)
def isreal(input: Tensor):
    """Whether the element has no imaginary part."""
    return (input == input) | (input != input)


@composite(public=False, name="isreal")
def _complex_isreal(input: Tensor):
    return hooks.function("imag")(input) == 0


isreal.forms[D.COMPLEX] = _complex_isreal


@pointwise(out="same", **PREDICATE)
def signbit(input: Tensor):
    """Whether the sign bit is set."""
    return E.signbit(input)


LOGIC = {"method": True, "inplace": True, "result": "bool", "differentiable": False, "exact": True}


@pointwise(**LOGIC)
def logical_and(input: Tensor, other: Tensor):
    """Whether both elements are true."""
    return E.prim("and", input, other)


@pointwise(**LOGIC)
def logical_or(input: Tensor, other: Tensor):
    """Whether an element is true."""
    return E.prim("or", input, other)


@pointwise(**LOGIC)
def logical_xor(input: Tensor, other: Tensor):
    """Whether exactly one element is true."""
    return E.logical_xor(input, other)


@pointwise(**LOGIC)
def logical_not(input: Tensor):
    """Whether the element is zero."""
    return E.prim("not", input)


def _integral(input, other=0):
    for x in (input, other):
        if (hasattr(x, "dtype") and D.of(x.dtype).category > D.INTEGER) or isinstance(x, float):
            raise NotImplementedError(
                'bitwise operators are not implemented for floating point: "bitwise" needs integer or bool tensors'
            )


BITS = {"method": True, "inplace": True, "differentiable": False, "check": _integral, "domain": (0, 8)}


@pointwise(operator="and", **BITS)
def bitwise_and(input: Tensor | Number, other: Tensor | Number):
    """Bits set in both; of bools, logical and."""
    return E.bitwise_and(input, other)


@pointwise(operator="or", **BITS)
def bitwise_or(input: Tensor | Number, other: Tensor | Number):
    """Bits set in either; of bools, logical or."""
    return E.bitwise_or(input, other)


@pointwise(operator="xor", **BITS)
def bitwise_xor(input: Tensor | Number, other: Tensor | Number):
    """Bits set in one; of bools, logical xor."""
    return E.bitwise_xor(input, other)


@pointwise(operator="invert", **BITS)
def bitwise_not(input: Tensor):
    """All bits flipped; of bools, logical not."""
    return E.bitwise_not(input)


@pointwise(operator="lshift", **BITS)
def bitwise_left_shift(input: Tensor | Number, other: Tensor | Number):
    """`input` shifted left by `other` bits."""
    return E.left_shift(input, other)


@pointwise(operator="rshift", **BITS)
def bitwise_right_shift(input: Tensor | Number, other: Tensor | Number):
    """`input` shifted right by `other` bits, keeping the sign."""
    return E.right_shift(input, other)


def _check_where(condition, input, other):
    if condition.dtype.kind not in "b" and condition.dtype != np.uint8:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{D.of(condition.dtype).name.capitalize()}"
        )
    for x in (input, other):
        if x.__class__ is int and (d := result_of((input, other))).category == D.INTEGER:
            require_fits(x, d)


_check_where.integers_only = True


@pointwise(exact=True, check=_check_where, public=False)
def _where(condition: Mask, input: Tensor | Number, other: Tensor | Number):
    return E.where(condition, input, other)


@composite(out=True)
def where(condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None):
    """`input` where the condition holds, else `other`; with the condition alone, the indices where it holds (as
    `nonzero`)."""
    if input is None and other is None:
        return hooks.function("nonzero")(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where() takes a condition alone, or a condition with input and other")
    return _where(condition, input, other)


@composite(ns="Tensor", method=True, name="where")
def where_method(input: Tensor, condition: Tensor, other: Tensor | Number):
    """The tensor's elements where the condition holds, else those of `other`."""
    return _where(condition, input, other)


@composite(method=True, old={"tensor1": "input", "tensor2": "other"})
def equal(input: Tensor, other: Tensor):
    """Whether two tensors have the same size and elements: a bool. TypeError for what is no tensor."""
    require_tensors(equal, input, other)
    return input.shape == other.shape and bool((input == other).all().item())


@composite(method=True)
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """Whether |input - other| <= atol + rtol * |other|, element by element."""
    require_tensors(isclose, input, other)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype!r} did not match {other.dtype!r}")
    if rtol < 0:
        raise RuntimeError(f"rtol must be greater than or equal to zero, but got {rtol}")
    if atol < 0:
        raise RuntimeError(f"atol must be greater than or equal to zero, but got {atol}")
    close = input == other
    if equal_nan and input.dtype.category >= D.FLOAT:
        close = close | ((input != input) & (other != other))
    if rtol == 0 and atol == 0:
        return close
    f = hooks.function
    a, b = (input, other) if input.dtype.category >= D.FLOAT else (input.to(D.default[0]), other.to(D.default[0]))
    error = f("abs")(a - b)
    return close | (f("isfinite")(error) & (error <= atol + f("abs")(rtol * b)))


@composite(method=True)
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
    """Whether all elements are close: a bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


# --- Inputs for the generated tests (ops.samples) ---
where.samples(lambda s: [s.call(s.bools((3, 4)), s((3, 4)), s((3, 4))), s.call(s.bools((3, 1)), s((4,)), 1.5), s.call(s.bools(()), s((0, 3)), s(()))])
where_method.samples(lambda s: [s.call(s((2, 3)), s.bools((2, 3)), s((3,)))])
isclose.samples(lambda s: [s.call(s((2, 3), requires_grad=False), s((2, 3), requires_grad=False)),
                           s.call(s.array([1.0, 2.0], 'float64'), s.array([1.0 + 1e-9, 2.1], 'float64'))])
