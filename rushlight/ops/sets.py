"""Distinct elements, membership, places in sorted sequences, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import order
from ..core import dtype as D
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from .declare import composite, structural
from .execute import reads_values, run

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex


def f(name: str) -> Any:
    return hooks.function(name)


def _computable(a: np.ndarray) -> np.ndarray:
    """Dtypes that NumPy cannot order (bfloat16) as float32, which holds them exactly."""
    return a if a.dtype.kind in "biufc" else a.astype(np.float32)


def _data(t: Any, name: str) -> np.ndarray:
    a = t._a
    if a.__class__ is not np.ndarray:
        raise NotImplementedError(f"{name} of a meta tensor: its size depends on the data")
    reads_values(name)
    return a


def _returned(name: str, values: np.ndarray, inverse: np.ndarray, counts: np.ndarray, want: tuple[bool, bool]) -> Any:
    out = [wrap(np.ascontiguousarray(values))]
    if want[0]:
        out.append(wrap(np.asarray(inverse, np.int64)))
    if want[1]:
        out.append(wrap(np.asarray(counts, np.int64)))
    return out[0] if len(out) == 1 else tuple(out)


@composite(method=True, old={"return_inverses": "return_inverse"})
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
):
    """The distinct elements in ascending order, or the distinct slices along `dim`; then, as asked, for each
    element the place of its value
    and for each value the number of elements."""
    a = _data(input, "unique")
    if dim is not None:
        d = dim % max(a.ndim, 1)
        if not -max(a.ndim, 1) <= dim < max(a.ndim, 1):
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-max(a.ndim, 1)}, {max(a.ndim, 1) - 1}], but "
                f"got {dim})"
            )
        if a.size == 0 and a.shape[d] and any(n == 0 for n in a.shape):
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        if a.size == 0:
            return _returned(
                "unique", a.copy(), np.empty((0,), np.int64), np.empty((0,), np.int64), (return_inverse, return_counts)
            )
        v, i, c = np.unique(_computable(a), return_inverse=True, return_counts=True, axis=d)
        return _returned("unique", v.astype(a.dtype), i.reshape(-1), c, (return_inverse, return_counts))
    flat = a.reshape(-1)
    made = order.sort(flat, 0, False)
    if made is None:
        places = np.argsort(_computable(flat), kind="stable")
        made = flat[places], places
    v, places = made
    new = np.ones(v.size, bool)
    np.not_equal(v[1:], v[:-1], out=new[1:])    # every nan is a value of its own
    if return_inverse:
        i = np.empty(v.size, np.int64)
        i[places] = np.cumsum(new) - 1
    else:
        i = places
    c = np.diff(np.flatnonzero(np.append(new, True))) if return_counts else places
    return _returned("unique", v[new], i.reshape(a.shape), c, (return_inverse, return_counts))


@composite(method=True)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
):
    """The elements (slices along `dim`) without those equal to the one before; then, as asked, places and counts as in
    `unique`."""
    a = _data(input, "unique_consecutive")
    if dim is None:
        flat = a.reshape(-1)
        keep = np.ones(flat.size, bool)
        keep[1:] = flat[1:] != flat[:-1]
        values = flat[keep]
        shape = a.shape
    else:
        m = np.moveaxis(a, dim, 0)
        if a.size == 0 and m.shape[0]:
            raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
        keep = np.ones(m.shape[0], bool)
        if m.shape[0] > 1:
            keep[1:] = (m[1:] != m[:-1]).reshape(m.shape[0] - 1, -1).any(1)
        values = np.moveaxis(m[keep], 0, dim)
        shape = (m.shape[0],)
    inverse = np.cumsum(keep) - 1
    counts = np.diff(np.append(np.flatnonzero(keep), keep.size))
    return _returned("unique_consecutive", values, inverse.reshape(shape), counts, (return_inverse, return_counts))


@structural(exact=True, differentiable=False, public=False)
def _isin(elements: Tensor, test_elements: Tensor, invert: bool):
    return np.isin(_computable(elements), _computable(test_elements), invert=invert)


_isin.shape(lambda elements, test_elements, invert: (elements.shape, D.bool_))


@composite(out="cast")
def isin(
    elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: bool = False, invert: bool = False
):
    """Whether each element is among `test_elements`; with `invert`, whether it is not."""
    if not isinstance(elements, T) and not isinstance(test_elements, T):
        raise TypeError(
            "isin() received an invalid combination of arguments: at least one of elements and test_elements must be a "
            "Tensor"
        )
    a, b = (x if isinstance(x, T) else f("tensor")(x) for x in (elements, test_elements))
    return run(_isin, (a, b, invert))


# --- sorted sequences -------------------------------------------------------------------------------------------------
def _search_check(sequence, values, right, side, sorter):
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if sequence.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if sequence.ndim != 1 and (values.ndim != sequence.ndim or values.shape[:-1] != sequence.shape[:-1]):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            "tensor and input value "
            f"tensor must match, but we got boundaries tensor {list(sequence.shape)} and input value tensor "
            f"{list(values.shape)}"
        )
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise RuntimeError(
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sequence.shape)} and got "
                f"sorter tensor {list(sorter.shape)}"
            )
        if sorter.dtype != np.int64:
            raise RuntimeError(
                f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {D.of(sorter.dtype).name}"
            )
        if sorter.__class__ is np.ndarray and sorter.size and (sorter.min() < 0 or sorter.max() >= sequence.shape[-1]):
            raise RuntimeError("torch.searchsorted(): sorter index out of range")


@structural(exact=True, differentiable=False, public=False)
def _search(sequence: Tensor, values: Tensor, sorter: Tensor | None, right: bool, to: Any):
    s, v = _computable(sequence), _computable(values)
    if sorter is not None:
        s = np.take_along_axis(s, sorter, -1)
    side = "right" if right else "left"
    if v.size == 0:
        return np.empty(v.shape, to.np)
    if s.ndim == 1:
        return np.searchsorted(s, v, side).astype(to.np)
    rows, wanted = s.reshape(-1, s.shape[-1]), v.reshape(-1, v.shape[-1])
    out = np.empty(wanted.shape, to.np)
    for k in range(rows.shape[0]):
        out[k] = np.searchsorted(rows[k], wanted[k], side)
    return out.reshape(v.shape)


_search.shape(lambda sequence, values, sorter, right, to: (values.shape, to))


@composite(out="same", old={"input": "values", "self": "values"})
def searchsorted(
    sorted_sequence: Tensor,
    values: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
):
    """For each value, where in the last dimension of `sorted_sequence` it would be put: before equal elements, or after
    them (`right`)."""
    if not isinstance(values, T):
        values = f("tensor")(values)
    elif values.dtype is not sorted_sequence.dtype:
        raise RuntimeError(
            "torch.searchsorted(): boundary tensor and input value tensor should have same dtype, but got boundary "
            "tensor dtype "
            f"{sorted_sequence.dtype.name} and input value tensor dtype {values.dtype.name}"
        )
    _search_check(sorted_sequence._a, values._a, right, side, None if sorter is None else sorter._a)
    return run(
        _search, (sorted_sequence, values, sorter, right or side == "right", D.ALL["int32"] if out_int32 else D.int64)
    )


@composite(out="same")
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False):
    """For each element the bucket between sorted `boundaries` that it falls into, as `searchsorted`."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")
    return searchsorted.fn(boundaries, input, out_int32=out_int32, right=right)


# --- counts -----------------------------------------------------------------------------------------------------------
@composite(method=True)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0):
    """How often each of 0, 1, ... occurs in a vector of nonnegative integers; with `weights`, the sums of their
    weights."""
    a = _data(input, "bincount")
    if a.ndim != 1 or a.size and a.min() < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if a.dtype.kind not in "iu":
        raise RuntimeError(f"\"bincount_cpu\" not implemented for '{input.dtype.name.capitalize()}'")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is None:
        return wrap(np.bincount(a, minlength=minlength).astype(np.int64))
    w = _data(weights, "bincount")
    if w.ndim != 1 or w.size != a.size:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    r = np.bincount(a, w, minlength)
    return wrap(r.astype(w.dtype if w.dtype == np.float32 else np.float64))


def _range_of(name: str, a: np.ndarray, low: float, high: float, around: float = 1) -> tuple[float, float]:
    if low == high and a.size:
        low, high = float(a.min()), float(a.max())
    if low == high:
        low, high = low - around, high + around
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: max must be larger than min")
    return low, high


@structural(method=True, differentiable=False)
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0):
    """How many elements fall into each of `bins` equal bins from `min` to `max` (of the data if both are 0). Others are
    not counted."""
    if input.dtype.kind != "f":
        raise NotImplementedError(f"\"histogram_cpu\" not implemented for '{D.of(input.dtype).name.capitalize()}'")
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    low, high = _range_of("torch.histc", input, float(min), float(max))
    x = input.reshape(-1)
    x = x[(x >= low) & (x <= high)].astype(np.float64)
    at = np.minimum(((x - low) * bins / (high - low)).astype(np.int64), bins - 1)
    return np.bincount(at, minlength=bins).astype(input.dtype)


histc.shape(lambda input, bins, min, max: (bins,))


def _bin_of(x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin of each value, by bisection (which says something for edges in any order, as PyTorch's does); the last edge belongs
    to the last bin, -1 stands for values outside."""
    first = np.zeros(x.shape, np.int64)
    left = np.full(x.shape, len(edges))
    while (left > 0).any():
        half = left >> 1
        below = (x < edges[np.minimum(first + half, len(edges) - 1)]) | (left == 0)
        first = np.where(below, first, first + half + 1)
        left = np.where(below, np.minimum(half, left), left - half - 1)
    return np.where((x >= edges[0]) & (x <= edges[-1]), np.minimum(first - 1, len(edges) - 2), -1)


def counts_in_bins(points: np.ndarray, edges: list[np.ndarray], weights: np.ndarray | None, density: bool) -> np.ndarray:
    """How many of the rows of `points` (or what weight) lie in each cell of the grid of `edges`; with `density`, by their sum and the
    cells' volumes."""
    shape = tuple(len(e) - 1 for e in edges)
    with np.errstate(all="ignore"):
        bins = [_bin_of(points[:, k], e) for k, e in enumerate(edges)]
        inside = np.logical_and.reduce([b >= 0 for b in bins], axis=0)
        n = int(np.prod(shape))
        cells = np.ravel_multi_index([b[inside] for b in bins], shape) if n and inside.any() else np.zeros(0, np.int64)
        h = np.bincount(cells, None if weights is None else weights[inside], n).astype(np.float64)[:n].reshape(shape)
        if density:
            h = h / h.sum()
            for k, e in enumerate(edges):
                h = h / np.diff(e).reshape([-1 if i == k else 1 for i in range(len(shape))])
    return h


@composite(method=True, returns=("hist", "bin_edges"))
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple | None = None,
    weight: Tensor | None = None,
    density: bool = False,
):
    """(counts, edges) of the elements in equal bins over `range`, or between the edges that `bins` gives."""
    from .execute import _named

    a = _data(input, "histogram")
    w = None if weight is None else _data(weight, "histogram").reshape(-1)
    if isinstance(bins, T):
        edges = _data(bins, "histogram")
        if edges.dtype != a.dtype:
            raise RuntimeError("torch.histogram(): input tensor and bins tensors should have the same dtype")
    else:
        if bins <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins}")
        low, high = range if range is not None else (0.0, 0.0) if a.size else (0.0, 1.0)
        if low > high:
            raise RuntimeError("torch.histogram(): min should not exceed max")
        low, high = _range_of("torch.histogram", a if range is None else a[:0], float(low), float(high), 0.5)
        edges = np.linspace(low, high, bins + 1).astype(a.dtype)
    h = counts_in_bins(a.reshape(-1, 1).astype(np.float64), [edges.astype(np.float64)], w, density)
    return _named(histogram)((wrap(h.astype(a.dtype)), wrap(edges.copy())))


# --- Inputs for the generated tests (ops.samples) ---
unique.samples(lambda s: [s.call(s.ints((8,), 4)), s.call(s.ints((8,), 4), return_inverse=True, return_counts=True), s.call(s.ints((4, 2), 2), dim=0)])
unique_consecutive.samples(lambda s: [s.call(s.ints((8,), 2)), s.call(s.ints((8,), 2), return_inverse=True, return_counts=True)])
isin.samples(lambda s: [s.call(s.ints((2, 3), 5), s.ints((3,), 5)), s.call(s.ints((2, 3), 5), 2, invert=True)])
searchsorted.samples(lambda s: [s.call(s.array([1.0, 3.0, 5.0], 'float64'), s((4,), low=0.0, high=6.0, requires_grad=False)),
                                s.call(s.array([1, 3, 3, 5]), s.ints((2, 2), 6), right=True), s.call(s.array([1, 3, 5]), 3)])
bucketize.samples(lambda s: [s.call(s((4,), low=0.0, high=6.0, requires_grad=False), s.array([1.0, 3.0, 5.0], 'float64')),
                             s.call(s.ints((4,), 6), s.array([1, 3, 5]), right=True)])
bincount.samples(lambda s: [s.call(s.ints((8,), 4)), s.call(s.ints((8,), 4), s((8,), requires_grad=False)), s.call(s.ints((3,), 2), minlength=5)])
histc.samples(lambda s: [s.call(s((9,), requires_grad=False), 4), s.call(s((9,), requires_grad=False), 5, -2, 2)])
