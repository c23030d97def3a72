"""Views as copies (`view_copy`, ...), views that are promised not to be written to, and constructors and indexing that
are seldom needed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from . import declare
from .declare import composite
from .execute import normalize_dims, run

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


# --- a view, copied ---------------------------------------------------------------------------------------------------
def _copy_of(name: str, view: Any, method: bool = False) -> None:
    def fn(*args: Any, out: Any = None, **kw: Any) -> Any:
        r = view(*args, **kw)
        if isinstance(r, tuple):
            if out is None:
                return tuple(x.clone() for x in r)
            for o, x in zip(out, r, strict=True):
                o.resize_(x.shape).copy_(x)
            return None
        return r.clone() if out is None else out.resize_(r.shape).copy_(r)

    fn.__name__, fn.__doc__ = name, f"`{name[:-5]}`, as a copy."

    def body(input: Tensor):
        return fn(input)

    body.__name__, body.__doc__ = name, fn.__doc__
    op = composite(body, method=method)
    op._derived["function"] = fn


def _method(name: str) -> Any:
    return lambda input, *args, **kw: getattr(input, name)(*args, **kw)


for _n in (
    "view",
    "expand",
    "unsqueeze",
    "unfold",
    "transpose",
    "t",
    "squeeze",
    "permute",
    "diagonal",
    "as_strided",
    "unbind",
    "split_with_sizes",
    "narrow",
    "detach",
):
    _copy_of(_n + "_copy", _method(_n), _n == "narrow")
_copy_of("view_as_complex_copy", lambda input: f("view_as_complex")(input))
_copy_of("view_as_real_copy", lambda input: f("view_as_real")(input))
_copy_of("alias_copy", lambda input: f("alias")(input))
_copy_of("slice_copy", lambda input, dim=0, start=None, end=None, step=1: _slice(input, dim, start, end, step))
_copy_of("select_copy", _method("select"))
_copy_of("split_copy", _method("split"))


@composite(ns="torch")
def detach(input: Tensor):
    """`input` without its history, on the same memory."""
    return input.detach()


def _slice(input: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    from .slices import slice_

    return run(slice_, (input, dim, start, end, step))


@composite(method=True)
def unsafe_split(input: Tensor, split_size: int, dim: int = 0):
    """`split`."""
    return tuple(f("alias")(x) for x in input.split(split_size, dim))


@composite(method=True)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0):
    """`chunk`."""
    return tuple(f("alias")(x) for x in input.chunk(chunks, dim))


@composite(method=True)
def as_strided_scatter(input: Tensor, src: Tensor, size: tuple, stride: tuple, storage_offset: int | None = None):
    """`src` written to the view of these sizes and strides of a copy."""
    r = input.clone()
    f("as_strided")(r, size, stride, storage_offset).copy_(src)
    return r


# --- shapes -----------------------------------------------------------------------------------------------------------
@composite(ns="Tensor", method=True)
def sum_to_size(input: Tensor, size: Sizes):
    """Summed over the dimensions that broadcasting `size` to this shape would stretch."""
    from .generate import sum_to

    have = tuple(input.shape)
    if len(size) > len(have) or any(s not in (n, 1) for s, n in zip(reversed(size), reversed(have), strict=False)):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(have)}}}.")
    return sum_to(input, tuple(size)) if have != tuple(size) else input.clone()


@composite(ns="Tensor", method=True)
def new_empty_strided(
    input: Tensor,
    size: tuple,
    stride: tuple,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Memory as it comes, with the given strides, in the tensor's dtype and device."""
    return f("empty_strided")(
        size, stride, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad
    )


@composite()
def empty_permuted(
    size: tuple, physical_layout: tuple, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """Memory as it comes, with the dimensions in memory in the order `physical_layout`."""
    order = list(physical_layout)
    if len(order) != len(size) or sorted(order) != list(range(len(size))):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to "
            f"len(physical_layout) = {len(order)}"
            if len(order) != len(size)
            else "Duplicate dim or dim out of range in physical_layout"
        )
    t = f("empty")(tuple(size[k] for k in order), dtype=dtype, device=device)
    r = f("permute")(t, tuple(order.index(k) for k in range(len(order)))) if order else t
    r = r.detach()
    return r.requires_grad_() if requires_grad else r


@composite(method=True)
def unravel_index(indices: Tensor, shape: int | tuple):
    """Indices into the flattened tensor as coordinates, a tensor for each dimension of `shape`."""
    if indices.dtype.category != D.INTEGER:
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    if isinstance(shape, T):
        shape = tuple(shape.tolist())
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    out, step = [], 1
    for n in reversed(shape):
        out.append(f("remainder")(f("floor_divide")(indices, step), n))
        step *= n
    return tuple(reversed(out))


@composite()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False):
    """The r-element combinations of a vector's elements, a row each, in lexicographic order of positions."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    n = input.shape[0]
    if r == 0:
        return f("empty")((0,), dtype=input.dtype)
    rows = list((itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(n), r))
    at = wrap(np.array(rows, np.int64).reshape(len(rows), r))
    return f("index_select")(input, 0, at.reshape(-1).to(input.device)).reshape(len(rows), r)


# --- indexing ---------------------------------------------------------------------------------------------------------
@declare.writes(method=True, exact=True, out=False)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False):
    """`source` written (with `accumulate`, added) at positions of the flattened tensor."""
    n = input.size
    if index.dtype != np.int64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {D.of(index.dtype).name.capitalize()}")
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {D.of(input.dtype).name} "
            "and source.dtype = "
            f"{D.of(source.dtype).name}"
        )
    if index.size != source.size:
        raise RuntimeError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.size}, index.numel() = "
            f"{index.size}"
        )
    if index.size and (n == 0 or index.min() < -n or index.max() >= n):
        raise IndexError(f"out of range: tried to access an index beyond {n - 1} (a tensor of {n} elements)")
    at = np.unravel_index(index.reshape(-1) % max(n, 1), input.shape) if input.ndim else ((),)
    if input.ndim == 0:
        flat = input.reshape(1)
        if accumulate:
            np.add.at(flat, index.reshape(-1) * 0, source.reshape(-1))
        elif index.size:
            flat[0] = source.reshape(-1)[-1]
    elif accumulate:
        np.add.at(input, at, source.reshape(-1))
    else:
        input[at] = source.reshape(-1)


put.gradient(
    input=lambda grad, index, source_meta, accumulate: (
        grad if accumulate else f("put")(grad, index, f("zeros")(source_meta.shape, dtype=grad.dtype))
    ),
    source=lambda grad, index, source_meta: f("take")(grad, index).reshape(source_meta.shape),
)


@composite(method=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1):
    """The first `size` rows of `nonzero`, with rows of `fill_value` where there are fewer."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    r = f("nonzero")(input)
    have = r.shape[0]
    if have >= size:
        return r.narrow(0, 0, size).clone()
    return f("cat")([r, f("full")((size - have, r.shape[1]), fill_value, dtype=r.dtype)])


REDUCTIONS = ("prod", "mean", "amax", "amin")


def _index_of(name: str, input: Any, dim: int, index: Any, source: Any, reduce: str) -> Any:
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"{name}(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    if index.dim() > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.dim()}")
    (d,) = normalize_dims((dim,), input.dim(), name) or (0,)
    shape = [index.numel() if k == d else 1 for k in range(source.dim())]
    return d, index.reshape(shape).expand(source.shape) if source.dim() else index.reshape(())


@composite(method=True, out="same")
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True):
    """The slices of `source` combined (prod, mean, amax, amin) with the slices along `dim` that `index` names."""
    d, at = _index_of("index_reduce", input, dim, index, source, reduce)
    return f("scatter_reduce")(input, d, at.to(D.int64), source, reduce, include_self=include_self)


def _index_reduce_(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    d, at = _index_of("index_reduce_", self, dim, index, source, reduce)
    return self.scatter_reduce_(d, at.to(D.int64), source, reduce, include_self=include_self)


T.index_reduce_ = _index_reduce_  # type: ignore[attr-defined]


@composite(returns=("hist", "bin_edges"), method=True)
def histogramdd(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False):
    """(counts, edges) of points, the rows of `input`, in a grid of bins over their dimensions."""
    from .execute import _named, reads_values
    from .sets import counts_in_bins

    reads_values("histogramdd")
    x = input._a.reshape(-1, input.shape[-1]).astype(np.float64)
    n = x.shape[1]
    counts = [bins] * n if isinstance(bins, int) else list(bins)
    if len(counts) != n:
        raise RuntimeError(
            f"histogramdd: The size of bins must be equal to the innermost dimension of the input: {len(counts)} != {n}"
        )
    edges = []
    for k, b in enumerate(counts):
        if isinstance(b, T):
            edges.append(b._a.astype(np.float64))
            continue
        low, high = (
            range[2 * k : 2 * k + 2] if range is not None else (x[:, k].min(), x[:, k].max()) if len(x) else (0.0, 1.0)
        )
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges.append(np.linspace(low, high, b + 1).astype(input._a.dtype).astype(np.float64))
    h = counts_in_bins(x, edges, None if weight is None else weight._a.reshape(-1), density)
    d = input._a.dtype
    return _named(histogramdd)((wrap(h.astype(d)), tuple(wrap(e.astype(d)) for e in edges)))


# --- factorizations at random -----------------------------------------------------------------------------------------
def _range_finder(A: Any, q: int, niter: int, M: Any) -> Any:
    a = A if M is None else A - M
    x = f("randn")((a.shape[-1], q), dtype=a.dtype)
    y = f("linalg.qr")(a @ x)[0]
    for _ in range(niter):
        y = f("linalg.qr")(a.mH @ y)[0]
        y = f("linalg.qr")(a @ y)[0]
    return y


@composite()
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None):
    """(U, S, V): about the `q` largest singular values and their vectors (Halko, Martinsson and Tropp, 2009)."""
    q = 6 if q is None else q
    if A.shape[-2] < A.shape[-1]:  # the draws are for the smaller side
        u, s, v = svd_lowrank.fn(A.mH, q, niter, None if M is None else M.expand(A.shape).mH)
        return v, s, u
    a = A if M is None else A - M
    y = _range_finder(A, min(q, *A.shape[-2:]), 2 if niter is None else niter, M)
    u, s, vh = f("linalg.svd")(y.mH @ a, False)
    return y @ u, s, vh.mH


@composite()
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2):
    """(U, S, V) of the principal components of the rows of A."""
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(A.shape[-2:])}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank.fn(A - A.mean(-2, True) if center else A, q, niter)


# --- Inputs for the generated tests (ops.samples) ---
as_strided_scatter.samples(lambda s: [s.call(s((6,)), s((2, 2)), (2, 2), (2, 1), 1)])
sum_to_size.samples(lambda s: [s.call(s((2, 3)), 1, 3), s.call(s((2, 3)), (3,))])
unravel_index.samples(lambda s: [s.call(s.ints((4,), 6), (2, 3))])
combinations.samples(lambda s: [s.call(s((4,))), s.call(s((3,)), 2, True)])
put.samples(lambda s: [s.call(s((2, 3)), s.array([0, 4]), s((2,)))])
index_reduce.samples(lambda s: [s.call(s((3, 2)), 0, s.array([0, 2, 0]), s((3, 2)), 'amax')])
