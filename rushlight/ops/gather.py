"""Gathering and scattering along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import indexed
from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.promotion import fitted
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from . import execute, inplace
from .declare import composite, structural, writes
from .geometry import Geometry, row_major
from .index import add_rows

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex

ndarray = np.ndarray
I64, I32 = np.dtype(np.int64), np.dtype(np.int32)


def f(name: str) -> Any:
    return hooks.function(name)


def dim_of(a: Any, dim: int) -> int:
    if dim.__class__ is int and -a.ndim <= dim < a.ndim:
        return dim if dim >= 0 else dim + a.ndim
    return Geometry(a.shape, a.shape).dim(dim)


def check_index_dtype(name: str, idx: Any) -> None:
    if idx.dtype != I64 and idx.dtype != I32:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {D.of(idx.dtype).name}")


def check_index(name: str, a: Any, dim: int, idx: Any, size: int | None = None) -> None:
    """Index tensors are int64 or int32 and inside the dimension."""
    check_index_dtype(name, idx)
    if isinstance(idx, MetaArray) or idx.size == 0:
        return
    n = (a.shape[dim] if a.ndim else 1) if size is None else size
    lo, hi = idx.min(), idx.max()
    if lo < 0 or hi >= n:
        raise (
            IndexError(
                f"index {lo if lo < 0 else hi} is out of bounds for dimension {dim} with size {n}: {name}() takes 0 to "
                f"{n - 1}"
            )
            if name in ("index_select", "embedding")
            else RuntimeError(f"index {lo if lo < 0 else hi} is out of bounds for dimension {dim} with size {n}")
        )


def _gather_check(input, dim, index, sparse_grad=False):
    d = dim_of(input, dim)
    if index.size == 0:
        return
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for k, (n, m) in enumerate(zip(index.shape, input.shape, strict=False)):
        if k != d and n > m:
            raise RuntimeError(
                f"Size does not match at dimension {k} expected index {list(index.shape)} to be no larger than self "
                f"{list(input.shape)} "
                f"apart from dimension {d}"
            )
    check_index_dtype("gather", index)


def _corner(a: ndarray, shape: tuple[int, ...], dim: int) -> ndarray:
    """`a` cut to `shape` in all dimensions but `dim`."""
    return a[tuple(slice(None) if k == dim else slice(0, n) for k, n in enumerate(shape))]


@structural(method=True, exact=True, out="apart")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False):
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on. RuntimeError for an index out of range or of other
    dimensions."""
    r = indexed.gather(input, index, dim, _gather_check)
    if r is not None and r is not False:
        return r
    if index.size:
        check_index("gather", input, dim_of(input, dim), index)
    if input.ndim == 0 or index.ndim == 0:
        return input.reshape(-1)[index.reshape(-1)].reshape(index.shape)
    d = dim_of(input, dim)
    if index.size == 0:
        return np.empty(index.shape, input.dtype)
    return row_major(np.take_along_axis(_corner(input, index.shape, d), index, d))


@gather.shape
def _(input, dim, index, sparse_grad):
    _gather_check(input, dim, index)
    return index.shape


def _gather_gradient(grad, input_meta, dim, index, sparse_grad):
    if sparse_grad and input_meta.shape:
        from ..backends.sparse import SparseCOO
        from .sparse import make

        at = np.indices(index.shape).reshape(len(index.shape), -1)
        at[dim % len(input_meta.shape)] = index._a.reshape(-1)
        g = grad.reshape((-1,))
        return make(g, SparseCOO(at, g._a, input_meta.shape))
    return f("scatter_add")(f("zeros")(input_meta.shape, dtype=grad.dtype), dim, index, grad)


gather.gradient(input=_gather_gradient)


_checked: set = set()      # what _scatter_check has found right; it looks at shapes and dtypes only


def _scatter_check(input, dim, index, src, reduce=None):
    key = None
    if src.__class__ is ndarray and input.__class__ is ndarray and index.__class__ is ndarray:
        key = (input.shape, dim, index.shape, src.shape, input.dtype.num, index.dtype.num, src.dtype.num)
        if key in _checked:
            return
    d = dim_of(input, dim)
    if index.size == 0:
        return
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    has = hasattr(src, "shape")
    if has and max(index.ndim, 1) != max(src.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if has and src.dtype != input.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    for k, n in enumerate(index.shape):
        if (k != d and input.ndim and n > input.shape[k]) or (has and src.ndim and n > src.shape[k]):
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from "
                f"dimension {d}" + (f" and to be no larger size than src {list(src.shape)}" if has else "")
            )
    check_index_dtype("scatter", index)
    if key is not None:
        if len(_checked) >= 4096:
            _checked.clear()
        _checked.add(key)


def _scattered(kind: str, input: ndarray, dim: int, index: ndarray, src: Any) -> bool:
    """Whether a kernel has combined `src` with what is in `input`. RuntimeError for an index out of range, before anything is
    written."""
    d = dim_of(input, dim)
    done = indexed.scatter(kind, input, index, d, src if src.__class__ is ndarray else np.full((), src, input.dtype))
    if not done:
        check_index("scatter", input, d, index)
    return bool(done)


def _scatter_at(input: ndarray, dim: int, index: ndarray) -> tuple:
    d = dim_of(input, dim)
    at = list(np.indices(index.shape, sparse=True))
    at[d] = index
    return tuple(at)


def _src_part(src: Any, index: ndarray, input: ndarray) -> Any:
    if isinstance(src, (int, float, complex)):
        return fitted(src, D.of(input.dtype))
    return src[tuple(slice(0, n) for n in index.shape)] if src.ndim else src


def _one(input: ndarray, index: ndarray, src: Any) -> tuple[ndarray, ndarray, Any]:
    """0-dim operands as vectors of one element, on the same memory."""
    if input.ndim and index.ndim:
        return input, index, src if getattr(src, "ndim", 0) else src.reshape(1) if src.__class__ is ndarray else src
    return (
        input.reshape(1) if input.ndim == 0 else input,
        index.reshape(1) if index.ndim == 0 else index,
        src.reshape(1)
        if hasattr(src, "ndim") and src.ndim == 0 and hasattr(src, "reshape") and src.__class__ is ndarray
        else src,
    )


@writes(method=True, check=_scatter_check, exact=True, public=False, name="scatter")
def _scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number):
    if index.size:
        input, index, src = _one(input, index, src)
        if src.__class__ is not ndarray:
            src = fitted(src, D.of(input.dtype))
        if not _scattered("put", input, dim, index, src):
            input[_scatter_at(input, dim, index)] = _src_part(src, index, input)


_scatter.gradient(
    input=lambda grad, dim, index: f("scatter")(grad, dim, index, 0),
    src=lambda grad, dim, index, src_meta: _src_back(grad, dim, index, src_meta),
)


def _src_back(grad, dim, index, src_meta):
    g = grad.gather(dim, index)
    if g._a.shape != src_meta.shape:
        z = f("zeros")(src_meta.shape, dtype=grad.dtype)
        z[tuple(slice(0, n) for n in g.shape)] = g
        return z
    return g


def _reduce_name(reduce: str) -> str:
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return {"add": "sum", "multiply": "prod"}[reduce]


@composite(method=True, inplace=False, out="apart")
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
):
    """`src` (or a number) written at `index` along `dim`: out[index[i][j]][j] = src[i][j] for dim 0. With `reduce`
    "add" or "multiply" it is
    combined with what is there."""
    src = value if src is None else src
    if reduce is not None:
        src = src if isinstance(src, T) else f("full_like")(index, src, dtype=input.dtype)
        return f("scatter_reduce")(input, dim, index, src, _reduce_name(reduce))
    return _scatter.function(input, dim, index, src)


def _scatter_inplace(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Any:
    src = value if src is None else src
    if reduce is not None:
        src = src if isinstance(src, T) else f("full_like")(index, src, dtype=input.dtype)
        return inplace.run_inplace(scatter_reduce, (input, dim, index, src, _reduce_name(reduce), True))
    return _scatter.inplace_function(input, dim, index, src)


T.scatter_ = _scatter_inplace  # type: ignore[attr-defined]


@writes(method=True, check=_scatter_check, exact=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor):
    """`src` added at `index` along `dim`: out[index[i][j]][j] += src[i][j] for dim 0."""
    if index.size:
        input, index, src = _one(input, index, src)
        if not _scattered("add", input, dim, index, src):
            np.add.at(input, _scatter_at(input, dim, index), _src_part(src, index, input))


scatter_add.gradient(
    input=lambda grad: grad, src=lambda grad, dim, index, src_meta: _src_back(grad, dim, index, src_meta)
)


def _lowest(d: np.dtype) -> Any:
    return False if d.kind == "b" else np.iinfo(d).min if d.kind in "iu" else -np.inf


def _highest(d: np.dtype) -> Any:
    return True if d.kind == "b" else np.iinfo(d).max if d.kind in "iu" else np.inf


@writes(
    method=True,
    check=lambda input, dim, index, src, reduce, include_self: _scatter_check(input, dim, index, src),
    exact=True,
)
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True):
    """`src` combined at `index` along `dim` by "sum", "prod", "mean", "amax" or "amin", with what is there if
    `include_self`."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    if not index.size:
        return
    input, index, src = _one(input, index, src)
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1}.get(reduce)
        if start is None:
            start = _lowest(input.dtype) if reduce == "amax" else _highest(input.dtype)
        if not _scattered("put", input, dim, index, start):
            input[_scatter_at(input, dim, index)] = start
    kind, ufunc = {"sum": ("add", np.add), "mean": ("add", np.add), "prod": ("mul", np.multiply), "amax": ("max", np.maximum),
                   "amin": ("min", np.minimum)}[reduce]
    if not _scattered(kind, input, dim, index, src):
        ufunc.at(input, _scatter_at(input, dim, index), _src_part(src, index, input))
    if reduce == "mean":
        n = np.full(input.shape, 1 if include_self else 0, np.int64)
        if not _scattered("add", n, dim, index, 1):
            np.add.at(n, _scatter_at(input, dim, index), 1)
        n = np.maximum(n, 1)
        input[...] = input // n if input.dtype.kind in "iu" else input / n


def _reduce_gradient(grad, needs, input, dim, index, src, reduce, include_self, result):
    if reduce == "sum":
        gi, gs = grad, grad.gather(dim, index)
    elif reduce == "mean":
        n = f("ones_like")(input) if include_self else f("zeros_like")(input)
        n = n.scatter_add(dim, index, f("ones_like")(src))
        n = n.clamp(min=1)
        gi, gs = grad / n, (grad / n).gather(dim, index)
    elif reduce == "prod":
        # The product of the others. Zeros are taken out of it and kept apart, as numbers that are 0 but have a derivative: with one
        # zero the others' products contain it, with two each zero's contains the other; with more it is 0 to second order.
        none = f("zeros_like")
        one = f("ones_like")(input)
        lead = (input == 0).to(input.dtype) if include_self else none(input)
        zeros = lead.scatter_add(dim, index, (src == 0).to(src.dtype))
        start = f("where")(input == 0, one, input) if include_self else f("scatter")(input, dim, index, 1)
        rest = f("scatter_reduce")(start, dim, index, f("where")(src == 0, f("ones_like")(src), src), "prod")
        zero = f("where")(input == 0, input, none(input)) if include_self else none(input)
        zero = zero.scatter_add(dim, index, f("where")(src == 0, src, none(src)))
        whole = f("where")(zeros == 0, rest, f("where")(zeros == 1, rest * zero, none(rest)))

        def others(x, zeros, rest, zero, whole):
            alone = f("where")(zeros == 1, rest, f("where")(zeros == 2, rest * (zero - x), none(rest)))
            return f("where")(x == 0, alone, whole / f("where")(x == 0, f("ones_like")(x), x))

        gi = grad * others(input, zeros, rest, zero, whole)
        gs = grad.gather(dim, index) * others(src, *[t.gather(dim, index) for t in (zeros, rest, zero, whole)])
    else:
        hit = (input == result).to(grad.dtype) if include_self else f("zeros_like")(input)
        picked = (src == result.gather(dim, index)).to(grad.dtype)
        n = hit.scatter_add(dim, index, picked)
        g = grad / f("where")(n == 0, f("ones_like")(n), n)
        gi, gs = hit * g, picked * g.gather(dim, index)
    if not include_self:
        gi = f("scatter")(gi if reduce in ("sum", "mean") else grad, dim, index, 0)
    return gi, None, gs


def _reduce_backward(grad, needs, input, dim, index, src, reduce, include_self, result):
    gi, _, gs = _reduce_gradient(grad, needs, input, dim, index, src, reduce, include_self, result)
    return gi, None, gs


scatter_reduce.backward(_reduce_backward)


def _select_check(input, dim, index):
    d = dim_of(input, dim)
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    check_index_dtype("index_select", index)
    return d


@structural(method=True, exact=True, out="apart")
def index_select(input: Tensor, dim: int, index: Tensor):
    """The slices along `dim` that the vector `index` names. IndexError out of range."""
    r = indexed.select(input, index, dim, _select_check)
    if r is not None and r is not False:
        return r
    check_index("index_select", input, dim_of(input, dim), index)
    if input.ndim == 0:
        return input.copy()
    return input.take(index.reshape(-1), dim)


@index_select.shape
def _(input, dim, index):
    d = _select_check(input, dim, index)
    return tuple(index.size if k == d else n for k, n in enumerate(input.shape))


index_select.gradient(
    input=lambda grad, input_meta, dim, index: f("index_add")(
        f("zeros")(input_meta.shape, dtype=grad.dtype), dim, index, grad
    )
)


def _index_write_check(name: str) -> Any:
    def check(input, dim, index, source, *rest):
        d = dim_of(input, dim)
        if index.ndim > 1:
            raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim}")
        if hasattr(source, "dtype") and source.dtype != input.dtype:
            raise RuntimeError(
                f"{name}(): self and source expected to have the same dtype, but got (self) {D.of(input.dtype).name} "
                "and (source) "
                f"{D.of(source.dtype).name}"
            )
        if hasattr(source, "shape") and source.ndim:
            want = list(input.shape)
            if input.ndim:
                want[d] = index.size
            if max(source.ndim, 1) != max(input.ndim, 1):
                raise RuntimeError(
                    "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                    "self.shape = "
                    f"{list(input.shape)} source.shape = {list(source.shape)}"
                )
            if source.ndim == input.ndim and list(source.shape) != want:
                raise (
                    RuntimeError(
                        "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                        "self.shape = "
                        f"{list(input.shape)} source.shape = {list(source.shape)}"
                    )
                    if source.shape[d] == index.size
                    else (RuntimeError if name == "index_add" else IndexError)(
                        f"{name}(): Number of indices ({index.size}) should be equal to source.size(dim): "
                        f"({source.shape[d]}), for dim: {d}"
                    )
                )
        check_index_dtype("index_select", index)

    return check


def _sliced(kind: str, input: ndarray, d: int, index: ndarray, source: Any) -> bool:
    """As `_scattered`, for slices."""
    source = source if source.__class__ is ndarray else np.full((), source, input.dtype)
    done = indexed.write_slices(kind, input, index, d, source) if input.ndim else None
    if not done:
        check_index("index_select", input, d, index)
    return bool(done)


@writes(method=True, check=_index_write_check("index_add"), exact=True, out="apart")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1):
    """alpha times the slices of `source` added to the slices along `dim` that `index` names."""
    d = dim_of(input, dim)
    if input.ndim == 0:
        check_index("index_select", input, d, index)
        input += (alpha * source.reshape(-1).sum()).astype(input.dtype)
        return
    s = source if alpha == 1 else (alpha * source).astype(input.dtype)
    i = index.reshape(-1)
    if _sliced("add", input, d, i, s):
        return
    if d == 0 and input.ndim == 2 and input.dtype.kind == "f":
        add_rows(input, i, s)
    else:
        np.add.at(np.moveaxis(input, d, 0), i, np.moveaxis(s, d, 0))


index_add.gradient(
    input=lambda grad: grad,
    source=lambda grad, dim, index, source_meta, alpha: (grad.index_select(dim, index) * alpha).reshape(
        source_meta.shape
    ),
)


@writes(method=True, check=_index_write_check("index_copy"), exact=True, out="apart")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor):
    """The slices of `source` written to the slices along `dim` that `index` names."""
    d, i = dim_of(input, dim), index.reshape(-1)
    if _sliced("put", input, d, i, source):
        return
    if input.ndim == 0:
        if i.size:
            input[...] = source.reshape(-1)[-1]
        return
    np.moveaxis(input, d, 0)[i] = np.moveaxis(source, d, 0)


index_copy.gradient(
    input=lambda grad, dim, index: f("index_fill")(grad, dim, index, 0),
    source=lambda grad, dim, index, source_meta: grad.index_select(dim, index).reshape(source_meta.shape),
)


@writes(
    method=True,
    check=lambda input, dim, index, value: _index_write_check("index_fill")(input, dim, index, None),
    exact=True,
)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number):
    """`value` written to the slices along `dim` that `index` names."""
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    if isinstance(value, (int, float, complex)):
        value = fitted(value, D.of(input.dtype))
    d, i = dim_of(input, dim), index.reshape(-1)
    if _sliced("put", input, d, i, value):
        return
    if input.ndim == 0:
        input[...] = value
        return
    np.moveaxis(input, d, 0)[i] = value


def _distinct(index):
    execute.reads_values("index_fill")
    return wrap(np.unique(index._a))


index_fill.gradient(
    input=lambda grad, dim, index: f("index_fill")(grad, dim, index, 0),
    value=lambda grad, dim, index: grad.index_select(dim, _distinct(index)).sum(),
)


# --- Inputs for the generated tests (ops.samples) ---
gather.samples(lambda s: [s.call(s((3, 4)), 1, s.ints((3, 2), 4)), s.call(s((3, 4)), -2, s.ints((2, 4), 3)), s.call(s((3,)), 0, s.ints((5,), 3))])
index_select.samples(lambda s: [s.call(s((3, 4)), 0, s.array([2, 0, 2])), s.call(s((3, 4)), -1, s.array([1])), s.call(s((3, 4)), 0, s.array([]))])
scatter.samples(lambda s: [s.call(s((2, 4)), 1, s.array([[0, 2], [3, 1]]), s((2, 2))), s.call(s((2, 4)), -1, s.array([[0, 2], [3, 1]]), value=1.5)])
scatter_add.samples(lambda s: [s.call(s((2, 4)), 1, s.ints((2, 3), 4), s((2, 3))), s.call(s((3,)), 0, s.ints((6,), 3), s((6,)))])
scatter_reduce.samples(lambda s: [s.call(s((3,)), 0, s.array([0, 0, 2, 2]), s((4,)), r) for r in ("sum", "mean", "amax", "amin")]
                       + [s.call(s((3,)), 0, s.array([0, 0, 2, 2]), s((4,)), "sum", include_self=False)])
index_add.samples(lambda s: [s.call(s((3, 2)), 0, s.array([2, 0, 2]), s((3, 2))), s.call(s((3, 2)), 1, s.array([1]), s((3, 1)), alpha=2)])
index_copy.samples(lambda s: [s.call(s((3, 2)), 0, s.array([2, 0]), s((2, 2)))])
index_fill.samples(lambda s: [s.call(s((3, 2)), 0, s.array([2, 0]), 1.5), s.call(s((3, 2)), -1, s.array([1]), s(()))])
