"""Reductions: sums, means, extremes, norms, and where the extremes are."""

from __future__ import annotations

import builtins as B
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import order, scans
from ..core import dtype as D
from ..core.tensor import hooks
from . import expr as E
from .declare import composite, fold, pointwise, reduction, structural
from .execute import HALF, expand_reduced, normalize_dims, one_dim

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Dims = int | tuple[int, ...] | None
    DType = D.dtype


def f(name: str) -> Any:
    return hooks.function(name)


@reduction(method=True, result="sum")
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None):
    """The sum over `dim` (all dimensions by default). Integers and bools add up in int64; half precision in float32."""
    return fold("add", input)


@reduction(method=True, result="floating")
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None):
    """The mean over `dim`. RuntimeError for integers."""
    return fold("add", input, finish=lambda s, n: s / n, empty=float("nan"))


sum.named(lambda dim: "SumBackward0" if dim is None else "SumBackward1")
mean.named(lambda dim: "MeanBackward0" if dim is None else "MeanBackward1")


@reduction(method=True, result="sum")
def nansum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None):
    """The sum that counts nan as 0."""
    return fold("add", E.where(E.isnan(input), 0, input))


@reduction(method=True, result="same", out="same")
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False):
    """The largest element over `dim`; nan if there is one. Ties share the gradient evenly."""
    return fold("max", input, empty=None)


@reduction(method=True, result="same", out="same")
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False):
    """The smallest element over `dim`; nan if there is one. Ties share the gradient evenly."""
    return fold("min", input, empty=None)


def _extreme_gradient(grad, input, result, dim, keepdim):
    g = expand_reduced(grad, input.shape, dim, keepdim)
    r = expand_reduced(result, input.shape, dim, keepdim)
    hit = (input == r).to(g.dtype)
    return g * hit / hit.sum(normalize_dims(dim, input.dim()), True)


amax.gradient(input=_extreme_gradient)
amin.gradient(input=_extreme_gradient)


@reduction(method=True, result="bool", differentiable=False)
def all(input: Tensor, dim: Dims = None, keepdim: bool = False):
    """Whether every element is true."""
    return fold("and", input)


@reduction(method=True, result="bool", differentiable=False)
def any(input: Tensor, dim: Dims = None, keepdim: bool = False):
    """Whether an element is true."""
    return fold("or", input)


@reduction(method=True, result="int64", differentiable=False)
def count_nonzero(input: Tensor, dim: Dims = None):
    """The number of elements that are not zero."""
    return fold("add", E.cast(input != 0, "int64"))


@structural(public=False)
def _prod(input: Tensor, dim: int | None, keepdim: bool, dtype: DType | None):
    d = D.of(input.dtype)
    d = dtype or (D.int64 if d.category <= D.INTEGER else d)
    return np.multiply.reduce(input.astype(d.np), axis=dim, keepdims=keepdim)


def _prod_shape(input, dim, keepdim, dtype):
    dims = normalize_dims(dim, len(input.shape))
    d = D.of(input.dtype)
    d = dtype or (D.int64 if d.category <= D.INTEGER else d)
    return tuple(1 if i in dims else n for i, n in enumerate(input.shape) if keepdim or i not in dims), d


def _prod_gradient(grad, input, result, dim, keepdim):
    # the product of the others: by division where no element is 0, else by an exclusive product from both sides
    g = expand_reduced(grad, input.shape, dim, keepdim)
    if input.dim() == 0:
        return g
    if not bool((input == 0).any().item()):
        return g * expand_reduced(result, input.shape, dim, keepdim) / input
    x = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    ones = f("ones_like")(x.narrow(-1, 0, 1))
    left = f("cumprod")(f("cat")([ones, x.narrow(-1, 0, x.shape[-1] - 1)], -1), -1)
    back = x.flip((-1,))
    right = f("cumprod")(f("cat")([ones, back.narrow(-1, 0, x.shape[-1] - 1)], -1), -1).flip((-1,))
    others = left * right
    others = others.reshape(input.shape) if dim is None else others.movedim(-1, dim)
    return g * others


_prod.shape(_prod_shape)
_prod.gradient(input=_prod_gradient)


@composite(method=True, out="dtype")
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None):
    """The product over `dim` (all dimensions by default)."""
    if dim is not None:
        dim = one_dim(dim, input.dim(), "prod")
        dim = dim if input.dim() else None
    return _prod(input.to(dtype) if dtype is not None else input, dim, keepdim, dtype)


# --- variance -------------------------------------------------------------------------------------------------------
def _correction(unbiased: bool | None, correction: Any) -> float:
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


@structural(public=False)
def _var(input: Tensor, dim: tuple | None, correction: float, keepdim: bool):
    n = 1
    dims = normalize_dims(dim, input.ndim)
    for d in dims:
        n *= input.shape[d]
    m = np.add.reduce(input, axis=dims, keepdims=True) / np.asarray(n, input.dtype)
    c = input - m
    s = (c * c if c.dtype.kind != "c" else (c * c.conj()).real).sum(axis=dims, keepdims=keepdim)
    # n <= correction: 0/0 or x/0, as PyTorch
    return np.asarray(s / np.asarray(B.max(n - correction, 0), s.dtype))


_var.shape(
    lambda input, dim, correction, keepdim: tuple(
        1 if i in normalize_dims(dim, len(input.shape)) else n
        for i, n in enumerate(input.shape)
        if keepdim or i not in normalize_dims(dim, len(input.shape))
    )
)


def _var_gradient(grad, input, dim, correction, keepdim):
    n = 1
    for d in normalize_dims(dim, input.dim()):
        n *= input.shape[d]
    g = expand_reduced(grad, input.shape, dim, keepdim)
    return g * (2.0 / (n - correction) if n > correction else float("nan")) * (input - input.mean(dim, True))


_var.gradient(input=_var_gradient)


def _need_float(name: str, input: Any) -> None:
    if input.dtype.category < D.FLOAT:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _variance(name: str, input: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool) -> Any:
    """What `var` gives. UserWarning where n - correction is not positive."""
    dim, unbiased = _dims_or_flag(dim, unbiased)
    _need_float(name, input)
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() takes unbiased= or correction=, not both")
    dims, c = normalize_dims(dim, input.dim(), name), _correction(unbiased, correction)
    n = 1
    for d in dims:
        n *= input.shape[d]
    if n <= c:
        import warnings

        warnings.warn(f"{name}(): degrees of freedom is <= 0: {n} elements less a correction of {c}. Correction should be strictly less than the "
                      "reduction factor (input numel divided by output numel).", UserWarning, stacklevel=4)
    return _var(input, dims, c, keepdim)


@pointwise(public=False, name="sqrt", domain=(0.1, 4.0), result="float")
def _root(input: Tensor):
    return E.sqrt(input)


# at 0 the gradient counts as 0: equal elements have no spread in any direction
_root.gradient(input=lambda grad, result: E.where(result == 0, 0, grad / (2 * E.where(result == 0, 1, result))))


def _dims_or_flag(dim: Any, unbiased: Any) -> tuple[Any, Any]:
    """`var(x, False)`: a bool in place of dim is `unbiased`."""
    return (None, dim) if isinstance(dim, bool) else (dim, unbiased)


@composite(method=True, out=True)
def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
):
    """The variance over `dim`: the sum of squared distances from the mean over n - correction (1 by default)."""
    return _variance("var", input, dim, unbiased, correction, keepdim)


@composite(method=True, out=True)
def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
):
    """The standard deviation: the square root of `var`."""
    return _root(_variance("std", input, dim, unbiased, correction, keepdim))


@composite()
def var_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
):
    """(`var`, `mean`)."""
    return var(input, dim, unbiased, keepdim, correction=correction), mean(
        input, None if isinstance(dim, bool) else dim, keepdim
    )


@composite()
def std_mean(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
):
    """(`std`, `mean`)."""
    return std(input, dim, unbiased, keepdim, correction=correction), mean(
        input, None if isinstance(dim, bool) else dim, keepdim
    )


# --- positions ------------------------------------------------------------------------------------------------------
def _one_dim(name: str, a: Any, dim: int) -> int:
    n = a.ndim
    if dim.__class__ is int and -n <= dim < n and a.shape[dim]:
        return dim % n
    d = normalize_dims(dim, n, name)
    if a.ndim and a.shape[d[0]] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d[0]} to have non-zero size.")
    return d[0] if d else 0


def _arg_shape(input, dim, keepdim):
    if dim is None:
        return (1,) * len(input.shape) if keepdim else (), D.int64
    d = normalize_dims(dim, len(input.shape))
    return tuple(1 if i in d else n for i, n in enumerate(input.shape) if keepdim or i not in d), D.int64


def _arg(name: str, find: Any, input: np.ndarray, dim: int | None, keepdim: bool) -> np.ndarray:
    if input.dtype.kind == "c":
        raise RuntimeError(f'"{name}_cpu" not implemented for complex numbers')
    if dim is None:
        if input.size == 0:
            raise IndexError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                "with the 'dim' argument."
            )
        r = np.asarray(find(input, axis=None))
        return r.reshape((1,) * input.ndim) if keepdim else r
    d = _one_dim(name, input, dim)
    if input.ndim == 0:
        return np.zeros((), np.int64)
    if d < input.ndim - 1:                      # NumPy would turn the array first
        made = order.first(input, d, find is np.argmax, 1, find is np.argmin, keepdim)
        if made is not None:
            return made[1]
    return np.asarray(find(input, axis=d, keepdims=keepdim), np.int64)


@structural(method=True, differentiable=False)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """Index of the largest element along `dim`, of the flattened tensor by default; the first of equals; nan is the
    largest."""
    return _arg("argmax", np.argmax, input, dim, keepdim)


@structural(method=True, differentiable=False)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """Index of the smallest element along `dim`, of the flattened tensor by default; the first of equals; nan is the
    smallest."""
    return _arg("argmin", np.argmin, input, dim, keepdim)


argmax.shape(_arg_shape)
argmin.shape(_arg_shape)


def _pick(find: Any, name: str) -> Any:
    def body(input: np.ndarray, dim: int, keepdim: bool) -> tuple:
        d = _one_dim(name, input, dim)
        if input.ndim == 0:
            return input.copy(), np.zeros((), np.int64)
        if input.dtype.kind == "c":
            raise RuntimeError(f'"{name}_cpu" not implemented for complex numbers')
        made = order.first(input, d, find is np.argmax, 1, find is np.argmin, keepdim)
        if made is not None:
            return made
        i = find(input, axis=d, keepdims=True)
        v = np.take_along_axis(input, i, d)
        return (v, i) if keepdim else (v.squeeze(d), i.squeeze(d))

    return body


def _pick_shape(input, dim, keepdim):
    s, _ = _arg_shape(input, dim, keepdim)
    return (s, input.dtype), (s, D.int64)


def _pick_gradient(grad, input_meta, indices, dim, keepdim):
    return put_back(grad, input_meta, indices, dim, keepdim)


def put_back(grad, input_meta, indices, dim, keepdim):
    """The gradient of values picked along `dim` (None: the last) by `indices`: zeros elsewhere."""
    dim = -1 if dim is None else dim
    z = f("zeros")(input_meta.shape, dtype=grad.dtype)
    if not input_meta.shape:
        return grad
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return f("scatter")(z, dim, indices, grad)


@structural(public=False, returns=("values", "indices"), name="max", exact=True, node="MaxBackward0")
def _max_dim(input: Tensor, dim: int, keepdim: bool = False):
    return _pick(np.argmax, "max")(input, dim, keepdim)


@structural(public=False, returns=("values", "indices"), name="min", exact=True, node="MinBackward0")
def _min_dim(input: Tensor, dim: int, keepdim: bool = False):
    return _pick(np.argmin, "min")(input, dim, keepdim)


for _op in (_max_dim, _min_dim):
    _op.shape(_pick_shape)
    _op.gradient(input=_pick_gradient)


@reduction(public=False, name="max", result="same", node="MaxBackward1")
def _max_all(input: Tensor):
    return fold("max", input, empty=None)


@reduction(public=False, name="min", result="same", node="MinBackward1")
def _min_all(input: Tensor):
    return fold("min", input, empty=None)


for _op in (_max_all, _min_all):
    _op.gradient(input=lambda grad, input, result: _extreme_gradient(grad, input, result, None, False))


def _extreme(
    name: str, whole: Any, along: Any, elementwise: str, input: Any, dim: Any, keepdim: bool, other: Any
) -> Any:
    from ..core.tensor import Tensor

    if other is not None or isinstance(dim, Tensor):
        return f(elementwise)(input, dim if other is None else other)
    if dim is None:
        if input.numel() == 0:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
                "with the 'dim' argument."
            )
        return whole(input)
    return along(input, dim, keepdim)


@composite(method=True, out="one", old={"max": "out.0", "max_indices": "out.1"})
def max(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None):
    """The largest element; with `dim`, (values, indices) along it; with another tensor, the elementwise maximum. nan
    wins."""
    if dim.__class__ is int and other is None:
        return _max_dim.function(input, dim, keepdim)
    return _extreme("max", _max_all, _max_dim, "maximum", input, dim, keepdim, other)


@composite(method=True, out="one", old={"min": "out.0", "min_indices": "out.1"})
def min(input: Tensor, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None):
    """The smallest element; with `dim`, (values, indices) along it; with another tensor, the elementwise minimum. nan
    wins."""
    if dim.__class__ is int and other is None:
        return _min_dim.function(input, dim, keepdim)
    return _extreme("min", _min_all, _min_dim, "minimum", input, dim, keepdim, other)


@composite(returns=("min", "max"), method=True, out="same")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False):
    """(min, max) over `dim`."""
    from .execute import _named

    if dim is not None and not isinstance(dim, int):
        raise TypeError(f"aminmax(): argument 'dim' must be int, not {type(dim).__name__}")
    if dim is None and not input.numel():
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    d = () if dim is None else dim
    return _named(aminmax)((amin(input, d, keepdim), amax(input, d, keepdim)))


# --- sums of exponentials, cumulative ---------------------------------------------------------------------------------
@structural(method=True, aliases=("special_logsumexp",), out="cast")
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False):
    """log(sum(exp(input))) over `dim`, without overflow."""
    if input.dtype.kind in "biu":
        input = input.astype(D.default[0].np)
    dims = normalize_dims(dim, input.ndim, "logsumexp")
    if input.size == 0 or not input.ndim:
        s = np.log(np.exp(input).sum(axis=dims, keepdims=keepdim)) if input.size == 0 else input.copy()
        return np.asarray(s)
    m = input.max(axis=dims, keepdims=True)
    m = np.where(np.isfinite(m), m, 0).astype(input.dtype)
    s = np.log(np.exp(input - m).sum(axis=dims, keepdims=True)) + m
    return s if keepdim else s.squeeze(dims)


logsumexp.shape(
    lambda input, dim, keepdim: (
        _prod_shape(input, dim, keepdim, None)[0],
        input.dtype if input.dtype.kind not in "biu" else D.default[0].np,
    )
)
logsumexp.gradient(
    input=lambda grad, input, result, dim, keepdim: (
        expand_reduced(grad, input.shape, dim, keepdim)
        * f("exp")(
            input
            - f("where")(f("isneginf")(r := expand_reduced(result, input.shape, dim, keepdim)), f("zeros_like")(r), r)
        )
    )
)


def _cum(ufunc: Any, input: np.ndarray, dim: int, dtype: Any) -> np.ndarray:
    if dtype is None:
        r = scans.again(ufunc, input, dim)
        if r is not None:
            return r
    d = D.of(input.dtype)
    to = dtype or (D.int64 if d.category <= D.INTEGER else d)
    if input.ndim == 0:
        normalize_dims(dim, 0, "cumsum")
        return input.astype(to.np)
    (k,) = normalize_dims(dim, input.ndim, "cumsum")
    x = input.astype(to.np) if input.dtype != to.np else input
    half = HALF.get(to.name)
    if half is not None:                  # accumulated in float32, each element rounded
        return scans.accumulate(ufunc, x.astype(half), k, True).astype(to.np)
    return scans.accumulate(ufunc, x, k)


def _cum_shape(input, dim, dtype):
    normalize_dims(dim, len(input.shape))
    d = D.of(input.dtype)
    return input.shape, dtype or (D.int64 if d.category <= D.INTEGER else d)


@structural(method=True, inplace=True, exact=True, out="dtype")
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None):
    """Running sums along `dim`."""
    return _cum(np.add, input, dim, dtype)


cumsum.shape(_cum_shape)
cumsum.gradient(
    input=lambda grad, dim, input_meta: (grad if grad.dim() == 0 else grad.flip((dim,)).cumsum(dim).flip((dim,))).to(
        input_meta.dtype
    )
)


@structural(method=True, inplace=True, exact=True, out="dtype")
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None):
    """Running products along `dim`."""
    return _cum(np.multiply, input, dim, dtype)


cumprod.shape(_cum_shape)


def _cumprod_gradient(grad, input, result, dim):
    if input.dim() == 0:
        return grad
    if not bool((input == 0).any().item()):
        return (grad * result).flip((dim,)).cumsum(dim).flip((dim,)) / input
    # sum over j >= i of grad_j * prod of the others up to j, one i at a time
    n = input.shape[dim]
    parts = []
    for i in range(n):
        before = input.narrow(dim, 0, i).prod(dim, True)
        after = f("cat")([f("ones_like")(input.narrow(dim, 0, 1)), input.narrow(dim, i + 1, n - i - 1)], dim).cumprod(
            dim
        )
        parts.append((grad.narrow(dim, i, n - i) * after * before).sum(dim, True))
    return f("cat")(parts, dim)


cumprod.gradient(input=_cumprod_gradient)


# --- norms ----------------------------------------------------------------------------------------------------------
@composite(ns="linalg", out="same")
def vector_norm(x: Tensor, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None):
    """The `ord`-norm of the elements over `dim`: (sum |x|^ord)^(1/ord), the largest and smallest magnitude for inf
    and -inf, the number
    of nonzero elements for 0."""
    if dtype is not None:
        x = x.to(dtype)
    if x.dtype.category < D.FLOAT:
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {x.dtype.name.capitalize()}"
        )
    if ord == 2 and not x.dtype.is_complex:
        return _norm2(x, dim, keepdim)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.vector_norm: Order {ord} not supported.")
    if (ord < 0 or ord == float("inf")) and B.any(x.shape[d] == 0 for d in normalize_dims(dim, x.dim(), "linalg.vector_norm")):
        raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm over an empty dimension of a tensor of shape {list(x.shape)}, because the "
                           "operation does not have an identity")
    a = f("abs")(x)
    if ord == float("inf"):
        return amax(a, () if dim is None else dim, keepdim)
    if ord == -float("inf"):
        return amin(a, () if dim is None else dim, keepdim)
    if ord == 0:
        return _norm0(a, dim, keepdim)
    if ord == 1:
        return a.sum(dim, keepdim)
    if ord == 2:
        return _norm2(a, dim, keepdim)
    return _norm_p(a, ord, dim, keepdim)


@reduction(public=False, result="floating")
def _norm0(input: Tensor, dim: Dims = None, keepdim: bool = False):
    return fold("add", E.where(input != 0, 1.0, 0.0))


_norm0.gradient(input=lambda grad, input_meta: f("zeros")(input_meta.shape, dtype=grad.dtype))


@reduction(public=False, result="floating", node="LinalgVectorNormBackward0")
def _norm2(input: Tensor, dim: Dims = None, keepdim: bool = False):
    return fold("add", input * input, finish=lambda s, n: E.sqrt(s))


def _norm2_gradient(grad, input, result, dim, keepdim):
    r = expand_reduced(result, input.shape, dim, keepdim)
    g = expand_reduced(grad, input.shape, dim, keepdim)
    return f("where")(r == 0, f("zeros_like")(input), input * (g / f("where")(r == 0, f("ones_like")(r), r)))


_norm2.gradient(input=_norm2_gradient)


@reduction(public=False, result="floating", node="LinalgVectorNormBackward0")
def _norm_p(input: Tensor, p: Number, dim: Dims = None, keepdim: bool = False):
    return fold("add", E.pow(input, p), finish=lambda s, n: E.pow(s, 1.0 / p))


def _norm_p_gradient(grad, input, result, p, dim, keepdim):
    r = expand_reduced(result, input.shape, dim, keepdim)
    g = expand_reduced(grad, input.shape, dim, keepdim)
    safe = f("where")(r == 0, f("ones_like")(r), r)
    part = f("where")(
        (input == 0) | (r == 0), f("zeros_like")(input), f("where")(input == 0, f("ones_like")(input), input) ** (p - 1)
    )
    return g * part * safe ** (1 - p)


_norm_p.gradient(input=_norm_p_gradient)


@composite(method=True, out="same")
def norm(
    input: Tensor, p: Number | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
):
    """The p-norm of the elements over `dim` ("fro": 2; "nuc": the sum of singular values)."""
    if p == "nuc":
        return hooks.function("linalg.matrix_norm")(input, "nuc", dim or (-2, -1), keepdim)
    return vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@composite(method=True, out=True)
def dist(input: Tensor, other: Tensor, p: Number = 2):
    """The p-norm of input - other."""
    return norm(input - other, p)


@composite(method=True)
def trace(input: Tensor):
    """The sum of the diagonal of a matrix. NotImplementedError for bools."""
    if input.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.dim()}")
    if input.dtype is D.bool_:
        raise NotImplementedError("\"trace\" not implemented for 'Bool'")
    return sum(input.diagonal())


# --- Inputs for the generated tests (ops.samples) ---
prod.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 0), s.call(s((2, 3)), -1, keepdim=True), s.call(s((3, 0)), 1),
                        s.call(s.array([[0.0, 2.0], [3.0, 0.5]], "float64", True), 1)])
var.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((2, 3, 2)), (0, -1), keepdim=True), s.call(s((3, 4)), 1, correction=0)])
std.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((2, 3, 2)), (0, -1), keepdim=True), s.call(s((3, 4)), 1, correction=0)])
max.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((3, 4)), -1, keepdim=True), s.call(s((3, 4)), s((4,)))])
min.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((3, 4)), -1, keepdim=True), s.call(s((3, 4)), s((4,)))])
argmax.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((3, 4)), -1, keepdim=True), s.call(s(()))])
argmin.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0), s.call(s((3, 4)), -1, keepdim=True), s.call(s(()))])
logsumexp.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((2, 3, 2)), (0, -1), keepdim=True), s.call(s(()), 0)])
cumsum.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1), s.call(s((0, 3)), 0), s.call(s(()), 0)])
cumprod.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1), s.call(s.array([2.0, 0.0, 3.0], "float64", True), 0)])
norm.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 1), s.call(s((3, 4)), 2, 0), s.call(s((3, 4)), 3, 1, keepdim=True), s.call(s((3, 4)), float("inf"), 1)])
var_mean.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 1), s.call(s((2, 3)), 0, correction=0, keepdim=True)])
std_mean.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 1), s.call(s((2, 3)), 0, correction=0, keepdim=True)])
aminmax.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), dim=1), s.call(s((2, 3)), dim=0, keepdim=True)])
vector_norm.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 3), s.call(s((2, 3)), 1, 1), s.call(s((2, 3)), float('inf'), (0, 1), True)])
dist.samples(lambda s: [s.call(s((2, 3)), s((3,))), s.call(s((2, 3)), s((2, 3)), 3)])
trace.samples(lambda s: [s.call(s((3, 3))), s.call(s((2, 4)))])
