"""Order: sorting, the largest and smallest, medians, running extremes. nan counts as the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import order as native
from ..backends.cpu import scans
from ..core import dtype as D
from ..core.tensor import hooks
from .declare import composite, structural
from .execute import normalize_dims, one_dim
from .reduce import put_back

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex


def f(name: str) -> Any:
    return hooks.function(name)


def _dim(name: str, a: Any, dim: int | None) -> int:
    n = len(a.shape)
    if dim.__class__ is int and -n <= dim < n:  # type: ignore[operator]
        return dim % n  # type: ignore[operator]
    d = normalize_dims((-1 if dim is None else dim,), n, name)
    return d[0] if d else 0


# the oldest programs name the two results' memory; PyTorch has out= for both
RESULTS = {"values": "out.0", "indices": "out.1"}


def _no_complex(name: str, a: np.ndarray) -> None:
    if a.dtype.kind == "c":
        raise RuntimeError(f"\"{name}\" not implemented for '{D.of(a.dtype).name}': complex numbers have no order")


def keys(a: np.ndarray) -> np.ndarray:
    """What the elements are ordered by: NumPy puts nan last only for dtypes of its own."""
    return a.astype(np.float32) if a.dtype.kind == "V" else a


def _no_bool(name: str, a: np.ndarray) -> None:
    if a.dtype.kind == "b":
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")


def order(a: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The stable order of the elements along `dim`, as indices."""
    a = keys(a)
    if not descending:
        return np.argsort(a, dim, kind="stable")
    # reversed, ordered and reversed again, equal elements stay in their order
    r = np.flip(np.argsort(np.flip(a, dim), dim, kind="stable"), dim)
    return a.shape[dim] - 1 - r


def _sorted(name: str, input: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    _no_complex(name, input)
    d = _dim(name, input, dim)
    if input.ndim == 0:
        return input.copy(), np.zeros((), np.int64)
    made = native.sort(input, d, bool(descending))
    if made is not None:
        return made
    i = order(input, d, bool(descending))
    return np.take_along_axis(input, i, d), i


@structural(returns=("values", "indices"), exact=True, public=False, name="sort")
def _sort(input: Tensor, dim: int = -1, descending: bool = False):
    return _sorted("sort", input, dim, descending)


_sort.shape(lambda input, dim, descending: (_checked(input, dim), (input.shape, D.int64)))
_sort.gradient(input=lambda grad, input_meta, dim, indices: put_back(grad, input_meta, indices, dim, True))


def _checked(input: Any, dim: int) -> Any:
    _dim("sort", input, dim)
    return input.shape


@composite(method=True, out="same", old=RESULTS)
def sort(input: Tensor, dim: int | None = -1, descending: bool = False, *, stable: bool = False):
    """(values, indices) in ascending (descending) order along `dim`, None for the last. Equal elements always keep their order."""
    return _sort.function(input, dim if dim.__class__ is int else -1 if dim is None else one_dim(dim, input.dim(), "sort"), bool(descending))


@composite(method=True, out="same")
def argsort(input: Tensor, dim: int | None = -1, descending: bool = False, *, stable: bool = False):
    """The indices that sort along `dim`. Equal elements always keep their order."""
    return _sort.function(input, dim if dim.__class__ is int else -1 if dim is None else one_dim(dim, input.dim(), "argsort"), bool(descending))[1]


def _flexible(op: Any) -> Any:
    """`op(input, stable, dim, descending)` too: the overload with `stable` in second place, by keyword or as a bool."""
    plain = op.function

    def call(input: Any, *args: Any, **kw: Any) -> Any:
        if args and isinstance(args[0], bool):
            return plain(input, *args[1:], stable=args[0], **kw)
        return plain(input, *args, **kw)

    call.__name__, call.__doc__ = op.name, op.__doc__
    return call


sort._derived["function"] = _flexible(sort)
argsort._derived["function"] = _flexible(argsort)


@composite(method=True, out="same")
def msort(input: Tensor):
    """The values in ascending order along the first dimension."""
    return _sort.function(input, 0, False)[0]


def _top(input: np.ndarray, k: int, d: int, largest: bool) -> np.ndarray:
    at = [slice(None)] * input.ndim
    at[d] = slice(0, k)
    return np.ascontiguousarray(order(input, d, largest)[tuple(at)])


def _top_check(input, k, dim, largest, sorted):
    d = _dim("topk", input, dim)
    n = input.shape[d] if len(input.shape) else 1
    if not 0 <= k <= n:
        raise RuntimeError(f"selected index k out of range: topk of {k} along dimension {d} of size {n}")


@structural(method=True, returns=("values", "indices"), exact=True, check=_top_check, out="same", old=RESULTS)
def topk(input: Tensor, k: int, dim: int | None = -1, largest: bool = True, sorted: bool = True):
    """(values, indices) of the `k` largest (smallest) elements along `dim`, best first; of equals the first."""
    _no_complex("topk_impl_loop", input)
    _no_bool("topk", input)
    if input.ndim == 0:
        return input.copy(), np.zeros((), np.int64)
    d = _dim("topk", input, dim)
    made = native.first(input, d, bool(largest), k)
    if made is not None:
        return made
    i = _top(input, k, d, largest)
    return np.take_along_axis(input, i, d), i


@topk.shape
def _(input, k, dim, largest, sorted):
    if not input.shape:
        return (), ((), D.int64)
    d = _dim("topk", input, dim)
    s = tuple(k if j == d else n for j, n in enumerate(input.shape))
    return s, (s, D.int64)


topk.gradient(input=lambda grad, input_meta, dim, indices: put_back(grad, input_meta, indices, dim, True))


# --- one element of each row ------------------------------------------------------------------------------------------
def _picked(input: np.ndarray, d: int, i: np.ndarray, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    v = np.take_along_axis(input, i, d)
    return (v, i) if keepdim else (v.squeeze(d), i.squeeze(d))


def _nonempty(name: str, a: Any, d: int) -> None:
    if len(a.shape) and a.shape[d] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _kth(input: np.ndarray, d: int, k: Any) -> np.ndarray:
    """The index of the k-th smallest of each row (k a number or an array of the rows' shape with size 1 along d)."""
    i = np.argsort(keys(input), d, kind="stable")
    at = np.broadcast_to(np.asarray(k), tuple(1 if j == d else n for j, n in enumerate(input.shape)))
    return np.take_along_axis(i, at, d)


def _pick_shape(input, dim, keepdim):
    d = normalize_dims((-1 if dim is None else dim,), len(input.shape))
    s = tuple(1 if i in d else n for i, n in enumerate(input.shape) if keepdim or i not in d)
    return s, (s, D.int64)


def _pick_gradient(grad, input_meta, indices, dim, keepdim):
    return put_back(grad, input_meta, indices, dim, keepdim)


@structural(method=True, returns=("values", "indices"), exact=True, out="same", old=RESULTS)
def kthvalue(input: Tensor, k: int, dim: int | None = -1, keepdim: bool = False):
    """(value, index) of the `k`-th smallest element along `dim`, counted from 1."""
    _no_bool("kthvalue", input)
    d = _dim("kthvalue", input, dim)
    _nonempty("kthvalue", input, d)
    n = input.shape[d] if input.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}: {k} of {n}")
    if input.ndim == 0:
        return input.copy(), np.zeros((), np.int64)
    made = native.pick(input, d, k - 1, 0, keepdim)
    if made is not None:
        return made
    return _picked(input, d, _kth(input, d, k - 1), keepdim)


kthvalue.shape(lambda input, k, dim, keepdim: _pick_shape(input, dim, keepdim))
kthvalue.gradient(input=_pick_gradient)


def _middle(input: np.ndarray, d: int, skip: bool) -> Any:
    """Which in order is the median: the lower of two; the first nan if there is one, or with `skip` the median of the
    others."""
    n = input.shape[d]
    if input.dtype.kind not in "fV":
        return (n - 1) // 2
    nans = np.isnan(input).sum(d, keepdims=True)
    good = n - nans
    if skip:
        return np.where(good > 0, (good - 1) // 2, 0)
    return np.where(nans > 0, good, (n - 1) // 2)


def _median_body(name: str, skip: bool) -> Any:
    def body(input: np.ndarray, dim: int, keepdim: bool) -> tuple:
        _no_bool(name, input)
        d = _dim(name, input, dim)
        _nonempty(name, input, d)
        if input.ndim == 0:
            return input.copy(), np.zeros((), np.int64)
        made = native.pick(input, d, 0, 2 if skip else 1, keepdim)
        if made is not None:
            return made
        return _picked(input, d, _kth(input, d, _middle(input, d, skip)), keepdim)

    return body


@structural(returns=("values", "indices"), exact=True, public=False, name="median")
def _median_dim(input: Tensor, dim: int, keepdim: bool):
    return _median_body("median", False)(input, dim, keepdim)


@structural(returns=("values", "indices"), exact=True, public=False, name="nanmedian")
def _nanmedian_dim(input: Tensor, dim: int, keepdim: bool):
    return _median_body("nanmedian", True)(input, dim, keepdim)


def _median_of_all(input: np.ndarray, skip: bool) -> np.ndarray:
    _no_bool("median", input)
    if input.size == 0:
        return np.asarray(np.nan).astype(input.dtype)
    x = input.reshape(-1)
    made = native.pick(x, 0, 0, 2 if skip else 1)
    if made is not None:
        return made[0].reshape(())
    return np.asarray(np.take_along_axis(x, _kth(x, 0, _middle(x, 0, skip)), 0)[0])


@structural(exact=True, public=False, name="median")
def _median_all(input: Tensor):
    _no_complex("median", input)
    return _median_of_all(input, False)


@structural(exact=True, public=False, name="nanmedian")
def _nanmedian_all(input: Tensor):
    _no_complex("nanmedian", input)
    return _median_of_all(input, True)


def share_evenly(grad, input, result):
    """The gradient of one value of all elements: shared by the elements that have it."""
    hit = (input != input) if bool((result != result).item()) else input == result
    hit = hit.to(grad.dtype)
    return hit * (grad / hit.sum())


for _op in (_median_dim, _nanmedian_dim):
    _op.shape(_pick_shape)
    _op.gradient(input=_pick_gradient)
for _op in (_median_all, _nanmedian_all):
    _op.shape(lambda input: ())
    _op.gradient(input=share_evenly)


@composite(method=True, out="same", old=RESULTS)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """The median of all elements, the lower of the two middle ones; with `dim`, (values, indices) along it. nan where
    there is one."""
    return _median_all.function(input) if dim is None else _median_dim.function(input, dim, keepdim)


@composite(method=True, out="same", old=RESULTS)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False):
    """The median of the elements that are not nan; with `dim`, (values, indices) along it."""
    return _nanmedian_all.function(input) if dim is None else _nanmedian_dim.function(input, dim, keepdim)


@structural(method=True, returns=("values", "indices"), exact=True, out="same", old=RESULTS)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False):
    """(values, indices) of the most frequent element along `dim`: the smallest of several, its last occurrence."""
    d = _dim("mode", input, dim)
    _nonempty("mode", input, d)
    if input.ndim == 0:
        return input.copy(), np.zeros((), np.int64)
    made = native.mode(input, d, keepdim)
    if made is not None:
        return made
    x = np.moveaxis(input, d, -1)
    rows = x.reshape(-1, x.shape[-1])
    i = np.argsort(keys(rows), 1, kind="stable")
    s = np.take_along_axis(rows, i, 1)
    # lengths of the runs of equal elements, put at their ends
    n = s.shape[1]
    at = np.arange(n)
    ends = np.concatenate([s[:, 1:] != s[:, :-1], np.ones((s.shape[0], 1), bool)], 1)
    start = np.concatenate([np.ones((s.shape[0], 1), bool), ends[:, :-1]], 1)
    first = np.maximum.accumulate(np.where(start, at, 0), 1)
    best = np.argmax(np.where(ends, at - first + 1, 0), 1)[:, None]
    k = np.take_along_axis(i, best, 1).reshape(x.shape[:-1] + (1,))
    return _picked(input, d, np.moveaxis(k, -1, d), keepdim)


mode.shape(_pick_shape)
mode.gradient(input=_pick_gradient)


# --- running extremes -------------------------------------------------------------------------------------------------
def _cum_shape(input, dim):
    _dim("cummax", input, dim)
    return input.shape, (input.shape, D.int64)


@structural(method=True, returns=("values", "indices"), out="same")
def cummax(input: Tensor, dim: int):
    """(values, indices) of the largest element so far along `dim`."""
    d = _dim("cummax", input, dim)
    return scans.extremes(np.maximum, input, d) if input.ndim else (input.copy(), np.zeros((), np.int64))


@structural(method=True, returns=("values", "indices"), out="same")
def cummin(input: Tensor, dim: int):
    """(values, indices) of the smallest element so far along `dim`."""
    d = _dim("cummin", input, dim)
    return scans.extremes(np.minimum, input, d) if input.ndim else (input.copy(), np.zeros((), np.int64))


def _cum_gradient(grad, input_meta, indices, dim):
    if not input_meta.shape:
        return grad
    return f("scatter_add")(f("zeros")(input_meta.shape, dtype=grad.dtype), dim, indices, grad)


for _op in (cummax, cummin):
    _op.shape(_cum_shape)
    _op.gradient(input=_cum_gradient)


@structural(method=True)
def logcumsumexp(input: Tensor, dim: int):
    """log of the running sums of exponentials along `dim`, without overflow."""
    d = _dim("logcumsumexp", input, dim)
    if input.dtype.kind not in "fc":
        raise NotImplementedError(
            f"\"logcumsumexp_out_cpu\" not implemented for '{D.of(input.dtype).name.capitalize()}'"
        )
    if input.ndim == 0:
        return input.copy()
    if input.dtype.kind == "f":
        return scans.logsum(input, d)
    top = input.real.max(d, keepdims=True) if input.size else input.real.sum(d, keepdims=True)
    return np.log(np.cumsum(np.exp(input - top), d)) + top


logcumsumexp.shape(lambda input, dim: (_checked(input, dim), input.dtype))


def _logcumsumexp_gradient(grad, input, result, dim):
    if input.dim() == 0:
        return grad
    if grad.dtype.is_complex:
        return (grad * f("exp")(-result).conj()).flip((dim,)).cumsum(dim).flip((dim,)) * f("exp")(input).conj()
    # in logarithms, the positive and the negative part of the gradient apart
    low = f("full_like")(grad, -float("inf"))

    def part(g: Any) -> Any:
        there = (g > 0) & (result > -float("inf"))
        logs = f("where")(there, f("log")(f("where")(there, g, 1.0)) - f("where")(there, result, 0.0), low)
        return f("exp")(logs.flip((dim,)).logcumsumexp(dim).flip((dim,)) + input)

    return part(grad) - part(-grad)


logcumsumexp.gradient(input=_logcumsumexp_gradient)


# --- Inputs for the generated tests (ops.samples) ---
sort.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0, descending=True), s.call(s((0, 3)))])
argsort.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 0, descending=True)])
topk.samples(lambda s: [s.call(s((3, 4)), 2), s.call(s((3, 4)), 2, 0), s.call(s((5,)), 3, largest=False)])
kthvalue.samples(lambda s: [s.call(s((3, 4)), 2), s.call(s((3, 4)), 1, 0, keepdim=True)])
cummax.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1)])
cummin.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1)])
logcumsumexp.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1)])
msort.samples(lambda s: [s.call(s((3, 2)))])
median.samples(lambda s: [s.call(s((3, 5))), s.call(s((3, 5)), 1), s.call(s((3, 4)), 0, True)])
nanmedian.samples(lambda s: [s.call(s((3, 5))), s.call(s((3, 5)), 1)])
mode.samples(lambda s: [s.call(s((3, 4))), s.call(s.ints((3, 6), 3), 1)])
