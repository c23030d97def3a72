"""`torch.masked`: reductions and normalizations that leave elements out.

An element takes part where `mask` is true. Elements that are left out are replaced by the value that does not change the
result (0 for a sum, -inf for a maximum, ...); a result over no elements at all is that value, or nan where there is none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as D
from .declare import composite
from .nn_common import f

if TYPE_CHECKING:
    from ..core.dtype import dtype as DType
    from ..core.tensor import Tensor

    Number = int | float | complex
    Dims = Any


def fit_mask(input: Any, mask: Any) -> Any:
    """`mask` as bool in the shape of `input`. IndexError if it has more dimensions, RuntimeError if it does not broadcast."""
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    if mask.dtype is not D.bool_:
        mask = mask.ne(0)
    return mask if mask.shape == input.shape else f("broadcast_to")(mask, tuple(input.shape))


def least(dt: Any, name: str) -> Any:
    """The smallest value of a dtype, which a maximum does not see. NotImplementedError for bool and complex dtypes."""
    if dt.is_complex or dt is D.bool_:
        raise NotImplementedError(f"identity of {name} on {dt!r} input")
    return -math.inf if dt.is_floating_point else D.iinfo(dt).min


def greatest(dt: Any, name: str) -> Any:
    if dt.is_complex or dt is D.bool_:
        raise NotImplementedError(f"identity of {name} on {dt!r} input")
    return math.inf if dt.is_floating_point else D.iinfo(dt).max


def filled(input: Any, mask: Any, value: Any) -> Any:
    """`input` with `value` where it is left out."""
    return input if mask is None else input.masked_fill(fit_mask(input, mask).logical_not(), value)


def dims_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, sorted. IndexError out of range, RuntimeError for one given twice."""
    if dim is None or isinstance(dim, (tuple, list)) and not dim:
        return tuple(range(ndim))
    n = max(ndim, 1)
    out: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        if d % n in out:
            raise RuntimeError(f"dim={d % n} appears multiple times in the list of dims")
        out.append(d % n)
    return tuple(sorted(out)) if ndim else ()


def kept(input: Any, mask: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """How many elements take part in each result: a number, or a tensor of counts."""
    if mask is None:
        n = 1
        for d in dims:
            n *= input.shape[d]
        return n
    return fit_mask(input, mask).sum(dims, keepdim)


@composite(ns="masked", name="sum")
def sum_(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """The sum over `dim` of the elements where `mask` is true; 0 where there are none. Integers give int64."""
    return filled(input, mask, 0).sum(dims_of(dim, input.ndim), keepdim, dtype=dtype)


@composite(ns="masked")
def prod(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """The product over `dim` of the elements where `mask` is true; 1 where there are none. Integers give int64."""
    x = filled(input, mask, 1)
    dims = dims_of(dim, input.ndim)
    for d in reversed(dims):
        x = x.prod(d, keepdim, dtype=dtype)
    if dims:
        return x
    return x.to(dtype or (D.int64 if x.dtype.category <= D.INTEGER else x.dtype))     # a number: itself


def _running(name: str, start: int, what: str) -> Any:
    def cumulate(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None):
        return f(name)(filled(input if dtype is None else input.to(dtype), mask, start), dim, dtype=dtype or input.dtype)
    cumulate.__doc__ = f"The running {what} along `dim` of the elements where `mask` is true, in the dtype of `input` unless `dtype` says another."
    return composite(ns="masked", name=name)(cumulate)


cumsum = _running("cumsum", 0, "sum")
cumprod = _running("cumprod", 1, "product")


def _extremum(name: str, identity: Any, what: str) -> Any:
    def reduce(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
        x = input if mask is None else filled(input, mask, identity(input.dtype, name))
        r = f(name)(x, dims_of(dim, input.ndim), keepdim)
        return r if dtype is None else r.to(dtype)
    reduce.__doc__ = (f"The {what} over `dim` of the elements where `mask` is true; where there are none, the {'smallest' if name == 'amax' else 'greatest'} "
                      "value of the dtype. IndexError if a reduced dimension has size 0.")
    return composite(ns="masked", name=name)(reduce)


amax = _extremum("amax", least, "greatest")
amin = _extremum("amin", greatest, "smallest")


def _place(name: str, identity: Any, what: str) -> Any:
    def find(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
        x = input if mask is None else filled(input, mask, identity(input.dtype, name))
        return f(name)(x, dim, keepdim).to(dtype or input.dtype)
    find.__doc__ = f"Where along `dim` (or in the flattened tensor) the {what} of the elements where `mask` is true stands, in the dtype of `input` or `dtype`."
    return composite(ns="masked", name=name, differentiable=False)(find)


argmax = _place("argmax", least, "greatest")
argmin = _place("argmin", greatest, "smallest")


@composite(ns="masked")
def mean(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """The mean over `dim` of the elements where `mask` is true; nan where there are none. ValueError for integers without a
    floating `dtype`."""
    d = dtype or input.dtype
    if not (d.is_floating_point or d.is_complex):
        raise ValueError(f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a floating point or complex "
                         f"dtype. Got: {d!r}")
    dims = dims_of(dim, input.ndim)
    if mask is None:
        return input.mean(dims or None, keepdim, dtype=d)
    return filled(input, mask, 0).sum(dims, keepdim, dtype=d) / kept(input, mask, dims, keepdim)


@composite(ns="masked")
def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """The median along `dim` (the lower one of two) of the elements where `mask` is true; nan where there are none. ValueError where
    there are none and the dtype is an integer's, or if an element that takes part is nan."""
    x = input if dtype is None else input.to(dtype)
    if mask is None:
        return f("median")(x, dim, keepdim).values
    m = fit_mask(x, mask)
    if x.dtype.is_floating_point:
        nan = f("isnan")(x) & m
        if x.device.type != "meta" and bool(nan.any()):
            raise ValueError("masked median expects no nan among the elements that take part")
        return f("nanmedian")(x.masked_fill(m.logical_not(), math.nan), dim, keepdim).values
    if x.device.type != "meta" and not bool(m.any(dim).all()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return f("nanmedian")(x.to(D.float64).masked_fill(m.logical_not(), math.nan), dim, keepdim).values.to(x.dtype)


def _for_norm(input: Any, mask: Any, ord: float) -> Any:
    """`input` with what a norm of order `ord` does not see where it is left out. RuntimeError for integers."""
    if input.dtype.category < D.FLOAT:
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {input.dtype!r}")
    return filled(input, mask, math.inf if ord == -math.inf else 0)


@composite(ns="masked")
def norm(input: Tensor, ord: float = 2.0, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """The vector norm of order `ord` over `dim` of the elements where `mask` is true; 0 where there are none (inf for ord=-inf)."""
    return f("linalg.vector_norm")(_for_norm(input, mask, ord), ord, dims_of(dim, input.ndim), keepdim, dtype=dtype)


def _variance(input: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool, dtype: Any, mask: Any) -> Any:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    correction = (1.0 if unbiased is None or unbiased else 0.0) if correction is None else correction
    x = input if dtype is None else input.to(dtype)
    if x.dtype is D.bool_:
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
                           "`logical_not()` operator instead.")
    if x.dtype.category < D.FLOAT:
        x = x.to(D.float32)
    dims = dims_of(dim, input.ndim)
    n = kept(x, mask, dims, True)
    off = x - filled(x, mask, 0).sum(dims, True) / n
    square = off * (off.conj() if x.dtype.is_complex else off)
    total = filled(square, mask, 0).sum(dims, keepdim)
    count = kept(x, mask, dims, keepdim)
    free = max(count - correction, 0) if isinstance(count, int) else (count - correction).clamp(min=0).to(x.dtype.to_real())
    return total / free if not isinstance(free, (int, float)) or free else total / 0.0


@composite(ns="masked")
def var(input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: Number | None = None, keepdim: bool = False,
        dtype: DType | None = None, mask: Tensor | None = None):
    """The variance over `dim` of the elements where `mask` is true, divided by their number less `correction` (1, or 0 if not
    `unbiased`). Integers are taken as float32."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask)


@composite(ns="masked")
def std(input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: Number | None = None, keepdim: bool = False,
        dtype: DType | None = None, mask: Tensor | None = None):
    """The square root of the variance (see `torch.masked.var`)."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


def _softly(name: str, identity: Any, what: str) -> Any:
    def normalize(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None):
        x = input if dtype is None else input.to(dtype)
        return f("nn.functional." + name)(x if mask is None else filled(x, mask, identity(x.dtype, name)), dim)
    normalize.__doc__ = f"{what} along `dim` over the elements where `mask` is true; nan in rows without any."
    return composite(ns="masked", name=name)(normalize)


softmax = _softly("softmax", least, "exp(x) / sum(exp(x))")
log_softmax = _softly("log_softmax", least, "x - log(sum(exp(x)))")
softmin = _softly("softmin", greatest, "exp(-x) / sum(exp(-x))")


@composite(ns="masked")
def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None):
    """Each element divided by the norm of order `ord` along `dim` of those where `mask` is true, or by `eps` if that is greater; 0
    where the element is left out."""
    x = input if dtype is None else input.to(dtype)
    n = f("linalg.vector_norm")(_for_norm(x, mask, ord), ord, (dim,), True)
    return filled(x, mask, 0) / n.clamp(min=eps)


@composite(ns="masked")
def logsumexp(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None):
    """log(sum(exp(x))) over `dim` of the elements where `mask` is true; -inf where there are none."""
    x = input if dtype is None else input.to(dtype)
    r = f("logsumexp")(x if mask is None else filled(x, mask, least(x.dtype, "logsumexp")), dims_of(dim, input.ndim), keepdim)
    return r if r.dtype is x.dtype else r.to(x.dtype)


@composite(ns="masked")
def logaddexp(input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None):
    """log(exp(input) + exp(other)), an operand left out where its mask is false; -inf where both are."""
    x, y = (t if dtype is None else t.to(dtype) for t in (input, other))
    x = x if input_mask is None else filled(x, input_mask, least(x.dtype, "logaddexp"))
    y = y if other_mask is None else filled(y, other_mask, least(y.dtype, "logaddexp"))
    return f("logaddexp")(x, y)


# --- Inputs for the generated tests (ops.samples) ---
for _op in (sum_, prod, amax, amin, argmax, argmin, mean, var, std, logsumexp):
    _op.samples(lambda s, g=_op.can_differentiate: [
        s.call(s((3, 4), requires_grad=g), 1, mask=s.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], "bool")),
        s.call(s((2, 3), requires_grad=g), 0, keepdim=True), s.call(s((2, 3), requires_grad=g), mask=s.array([True, False, True], "bool"))])
log_softmax.samples(lambda s: [s.call(s((2, 3)), 0), s.call(s((2, 3)), 1, mask=s.array([True, True, True], "bool"))])
for _op in (cumsum, cumprod, softmax, softmin, median):
    _op.samples(lambda s: [s.call(s((3, 4)), 1, mask=s.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], "bool")), s.call(s((2, 3)), 0)])
norm.samples(lambda s: [s.call(s((3, 4)), 2.0, 1, mask=s.array([True, False, True, True], "bool")), s.call(s((3, 4)), 1, (0, 1))])
normalize.samples(lambda s: [s.call(s((3, 4)), 2.0, 1, mask=s.array([True, False, True, True], "bool")), s.call(s((3, 4)), 1.0, 0)])
logaddexp.samples(lambda s: [s.call(s((3, 4)), s((3, 4)), input_mask=s.array([True, False, True, True], "bool")), s.call(s((3,)), s((3,)))])
