"""Indexing: by slices and numbers (views), by tensors and masks (copies), gathering and scattering along a dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.tensor import Tensor as T
from ..core.tensor import bump, hooks, view_of, wrap
from . import execute, inplace
from .inplace import C_NAMES
from .declare import composite, structural, view, writes
from .geometry import Geometry, restride

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    Number = int | float | complex

ndarray = np.ndarray


def f(name: str) -> Any:
    return hooks.function(name)


# --- x[...] -----------------------------------------------------------------------------------------------------------
@view(public=False, name="slice", node="SliceBackward0")
def _basic(input: Tensor, items: tuple):
    """A view by a complete list of items: ints, slices, None (`items` covers every dimension)."""
    g, d = input, 0
    for it in items:
        if it is None:
            g = g.insert(d, 1)
            d += 1
        elif it.__class__ is slice:
            start, stop, step = it.indices(g.shape[d])
            g = g.narrow(d, start if stop > start else min(start, g.shape[d]), max(0, -(-(stop - start) // step)), step)
            d += 1
        else:
            g = g.select(d, it % g.shape[d])
    return g


@_basic.fast
def _(a, items):
    return a[(*items, ...)]     # the ellipsis: a view even where every dimension has an int


def _basic_gradient(grad, input_meta, items):
    z = f("zeros")(input_meta.shape, dtype=grad.dtype)
    execute.run(_basic, (z, items)).copy_(grad)
    return z


_basic.gradient(input=_basic_gradient)


def _plain(it: Any) -> bool:
    c = it.__class__
    return c is int or c is slice or it is None


def getitem(self: Any, index: Any) -> Any:
    """`x[index]`: ints, slices, None and Ellipsis give views; tensors, arrays, lists and masks give copies."""
    a = self._a
    c = index.__class__
    # the plain cases, on the CPU
    if a.__class__ is ND and execute.capture[0] is None:
        try:
            if c is T and index._a.ndim and index._a.__class__ is ND and a.ndim:
                i = index._a
                if i.dtype is I64:
                    v = wrap(a.take(i, 0))
                elif i.dtype is BOOL and i.shape == a.shape[:i.ndim]:
                    v = wrap(a[i])
                else:
                    return _getitem(self, index)
                if self._rg is not False and execute.modes.grad and self.requires_grad:
                    _index.derived("record")(v, self, (index,))
                return v
            if c is int:
                r = a[index, ...]
                items: Any = (index,)
            elif c is slice:
                if index.step is not None and index.step <= 0:
                    raise ValueError("step must be greater than zero")
                r = a[index]
                items = (index,)
            elif c is tuple and all(map(_plain, index)):
                for it in index:
                    if it.__class__ is slice and it.step is not None and (not isinstance(it.step, int) or it.step <= 0):
                        raise ValueError("step must be greater than zero")
                r = a[(*index, ...)]
                items = index
            else:
                r = None
            if r is not None:
                v = view_of(r, self)
                if self._rg is not False and (self._rg is True or self.requires_grad):
                    v._rg = False
                    if execute.modes.grad:
                        _basic.derived("record")(v, self, items)
                return v
        except IndexError:
            pass
        except TypeError:
            pass
    return _getitem(self, index)


ND = np.ndarray
I64, BOOL = np.dtype("int64"), np.dtype("bool")


def _normalize(self: Any, index: Any) -> tuple[list[Any], bool]:
    """The items of an index, with Ellipsis written out and masks and sequences as tensors; whether any is a tensor."""
    items = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list):
        items = [index]
    ndim = self._a.ndim
    used = 0
    out: list[Any] = []
    advanced = False
    for it in items:
        if isinstance(it, bool) or isinstance(it, np.bool_):
            it = wrap(np.array(bool(it)))
            advanced = True
        elif isinstance(it, T):
            cat = it.dtype.category
            if cat > D.INTEGER:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            if cat == D.INTEGER and it._a.ndim == 0 and it.dtype.name != "uint8" and it._a.__class__ is ndarray:
                it = int(it._a)
                used += 1
                out.append(it)
                continue
            advanced = True
            used += it._a.ndim if it.dtype.name in ("bool", "uint8") else 1
            out.append(it)
            continue
        elif isinstance(it, (list, np.ndarray, tuple, range)):
            it = it if isinstance(it, np.ndarray) else list(it)
            if isinstance(it, list) and not it:
                t = wrap(np.zeros((0,), np.int64))
            else:
                t = f("tensor")(it) if not isinstance(it, np.ndarray) else wrap(it)
            if t.dtype.category > D.INTEGER:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            advanced = True
            used += t._a.ndim if t.dtype.name in ("bool", "uint8") else 1
            out.append(t)
            continue
        elif isinstance(it, (int, np.integer)):
            it = int(it)
            used += 1
        elif isinstance(it, slice):
            it = slice(*[x if x is None else int(x) for x in (it.start, it.stop, it.step)])
            if it.step is not None and it.step <= 0:
                raise ValueError("step must be greater than zero")
            used += 1
        elif it is not None and it is not Ellipsis:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                             f"(got {type(it).__name__})")
        out.append(it)
    if sum(1 for i in out if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}" if ndim else
                         "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number")
    k = next((i for i, x in enumerate(out) if x is Ellipsis), None)
    fill = [slice(None)] * (ndim - used)
    out = [*out, *fill] if k is None else [*out[:k], *fill, *out[k + 1:]]
    d = 0
    for it in out:
        if it.__class__ is int:
            n = self._a.shape[d]
            if not -n <= it < n:
                raise IndexError(f"index {it} is out of bounds for dimension {d} with size {n}")
        if isinstance(it, T):
            d += it._a.ndim if it.dtype.name in ("bool", "uint8") else 1
        elif it is not None:
            d += 1
    return out, advanced


def _getitem(self: Any, index: Any) -> Any:
    items, advanced = _normalize(self, index)
    if not advanced:
        return execute.run(_basic, (self, tuple(items)))
    base, indices = _split_advanced(self, items)
    return _index_call(base, indices)


def _index_call(base: Any, indices: list[Any]) -> Any:
    return execute.run(index, (base, tuple(indices)))


def _split_advanced(self: Any, items: list[Any]) -> tuple[Any, list[Any]]:
    """The view by the plain items of a mixed index, and the tensors for its dimensions (None: the whole dimension)."""
    plain: list[Any] = []
    indices: list[Any] = []
    for it in items:
        if isinstance(it, T):
            bools = it.dtype.name in ("bool", "uint8")
            k = it._a.ndim if bools else 1
            if bools and k == 0:
                plain.append(None)
                indices.append(wrap(np.atleast_1d(it._a.astype(bool))))
                continue
            plain.extend([slice(None)] * k)
            indices.append(it)
        else:
            plain.append(it)
            if it.__class__ is not int:
                indices.append(None)
    base = self
    if any(p is not None and p != slice(None) or p is None for p in plain):
        base = execute.run(_basic, (self, tuple(plain)))
    while indices and indices[-1] is None:
        indices.pop()
    return base, indices


def _expand_masks(shape: tuple[int, ...], indices: Any) -> list[Any]:
    """Index arrays, masks turned into the positions where they hold. IndexError for shapes that do not fit and positions out of range."""
    out: list[Any] = []
    d = 0
    for it in indices:
        if it is None:
            out.append(None)
            d += 1
            continue
        x = it._a if isinstance(it, T) else it
        if x.dtype.kind == "b" or x.dtype == np.uint8:
            for k in range(x.ndim):
                if d + k >= len(shape) or x.shape[k] != shape[d + k]:
                    raise IndexError(f"The shape of the mask {list(x.shape)} at index {k} does not match the shape of the indexed tensor "
                                     f"{list(shape)} at index {d + k}")
            out.extend(np.nonzero(x))
            d += x.ndim
        else:
            if d >= len(shape):
                raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
            n = shape[d]
            if x.size and (x.min() < -n or x.max() >= n):
                bad = x[(x < -n) | (x >= n)].flat[0]
                raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {n}")
            out.append(x)
            d += 1
    arrays = [x for x in out if x is not None]
    try:
        np.broadcast_shapes(*[x.shape for x in arrays])
    except ValueError:
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes "
                         + ", ".join(str(list(x.shape)) for x in arrays)) from None
    return out


def _numpy_index(shape: tuple[int, ...], indices: Any) -> tuple:
    return tuple(slice(None) if x is None else x for x in _expand_masks(shape, indices))


@structural(exact=True, public=False, name="index")
def index(input: Tensor, indices: Any):
    """The elements of `input` at broadcast positions, a tensor (or None) for each leading dimension."""
    at = _numpy_index(input.shape, indices)
    if len(at) == 1 and at[0].__class__ is ndarray and at[0].dtype == np.int64:
        return input.take(at[0], 0)
    return input[at]


@index.shape
def _(input, indices):
    arrays = [i._a if isinstance(i, T) else i for i in indices if i is not None]
    if any(a.dtype.kind == "b" for a in arrays) and any(isinstance(a, MetaArray) for a in arrays):
        raise NotImplementedError("indexing with a meta mask has no shape before the values are known")
    cast = [np.empty(a.shape, np.int8).astype(np.int64) if isinstance(a, MetaArray) else a for a in arrays]
    dims = [i for i, x in enumerate(indices) if x is not None]
    b = np.broadcast_shapes(*[a.shape for a in cast])
    rest = [n for i, n in enumerate(input.shape) if i not in dims]
    together = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if together else 0
    return (*rest[:at], *b, *rest[at:])


_index = index


def _index_gradient(grad, input_meta, indices):
    z = f("zeros")(input_meta.shape, dtype=grad.dtype)
    return inplace.run_inplace(index_put, (z, indices, grad, True))


index.gradient(input=_index_gradient)


@writes(method=True, exact=True)
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False):
    """`values` (broadcast) written, or with `accumulate` added, at the positions that the tuple of index tensors gives."""
    indices = tuple(indices)
    at = _numpy_index(input.shape, indices)
    if values.dtype != input.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {D.of(input.dtype).name} for the destination and "
                           f"{D.of(values.dtype).name} for the source.")
    if not accumulate:
        try:
            input[at] = values
        except ValueError:
            raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
                               f"{list(input[at].shape)}") from None
        return
    if len(at) == 1 and at[0].__class__ is ndarray and at[0].ndim == 1 and input.ndim == 2 and input.dtype.kind == "f":
        add_rows(input, at[0], np.broadcast_to(values, (at[0].shape[0], input.shape[1])))
        return
    np.add.at(input, at, values)


def add_rows(out: ndarray, rows: ndarray, values: ndarray) -> None:
    """out[rows[i]] += values[i], in the order of i."""
    if rows.size == 0:
        return
    n = out.shape[0]
    rows = np.where(rows < 0, rows + n, rows)
    if rows.size > 8 and values.size > 64:
        order = np.argsort(rows, kind="stable")
        r = rows[order]
        starts = np.flatnonzero(np.concatenate(([True], r[1:] != r[:-1])))
        out[r[starts]] += np.add.reduceat(values[order], starts, axis=0)
    else:
        np.add.at(out, rows, values)


def _put_input_gradient(grad, indices, values_meta, accumulate):
    if accumulate:
        return grad
    z = f("zeros")(values_meta.shape, dtype=grad.dtype)
    return f("index_put")(grad, indices, z)


def _put_values_gradient(grad, indices, values_meta):
    from .generate import sum_to
    return sum_to(_index_call(grad, list(indices)), values_meta.shape)


index_put.gradient(input=_put_input_gradient, values=_put_values_gradient)


def setitem(self: Any, idx: Any, value: Any) -> None:
    """`x[index] = value`: numbers, arrays and tensors, broadcast and cast."""
    a = self._a
    if a.__class__ is ND and a.flags.c_contiguous and execute.capture[0] is None and (self._rg is False or not execute.modes.grad) \
            and _set_plain(self, a, idx, value):
        return
    items, advanced = _normalize(self, idx)
    if not isinstance(value, T):
        if isinstance(value, (int, float, complex, np.number, np.bool_)):
            value = value.item() if isinstance(value, np.generic) else value
            if not advanced:
                if execute.modes.grad:
                    inplace.check_writable(self, "index assignment")
                target = execute.run(_basic, (self, tuple(items))) if items else self
                inplace.run_inplace(_fill(), (target, value))
                return
            value = wrap(np.asarray(_convert(value, self.dtype)))
        elif isinstance(value, (list, tuple, np.ndarray)):
            value = f("tensor")(value, dtype=self.dtype)
        else:
            raise TypeError(f"can't assign a {type(value).__name__} to a {self.type()}")
    if execute.modes.grad and (value.requires_grad or self.requires_grad):
        inplace.check_writable(self, "index assignment")
    if not advanced:
        target = execute.run(_basic, (self, tuple(items)))
        _strip(target, value, self)
        return
    base, indices = _split_advanced(self, items)
    if value.dtype is not self.dtype:
        value = value.to(self.dtype)
    inplace.run_inplace(index_put, (base, tuple(indices), value, False))


def _set_plain(self: Any, a: ndarray, idx: Any, value: Any) -> bool:
    """An assignment without history that NumPy does as it stands; False where it is to be looked at."""
    c = value.__class__
    if c is T:
        v = value._a
        if v.__class__ is not ND or v.dtype is not a.dtype or v.base is not None or v is a or value._rg is not False and execute.modes.grad:
            return False
    elif c is float and a.dtype.kind == "f" or c is int and a.dtype.kind in "fi":
        v = value
    else:
        return False
    k = idx.__class__
    if k is T:
        i = idx._a
        if i.__class__ is not ND or not i.ndim or not a.ndim or i.dtype is not I64 and (i.dtype is not BOOL or i.shape != a.shape[:i.ndim]) or c is T and i.dtype is BOOL:
            return False
        at: Any = i
    elif k is int or k is slice and idx.step is None or k is tuple and all([_plain(x) and x.__class__ is not slice or
                                                                           x.__class__ is slice and x.step is None for x in idx]):
        at = idx
    else:
        return False
    try:
        a[at] = v
    except (IndexError, ValueError, TypeError, OverflowError):
        return False
    bump(self)
    return True


def _strip(target: Any, value: Any, self: Any) -> None:
    v = value
    while v._a.ndim > target._a.ndim and v._a.shape[0] == 1:
        v = v.squeeze(0)
    if v._a.ndim > target._a.ndim:
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of shape {list(target.shape)}")
    target.copy_(v)


def _fill() -> Any:
    from .copy import fill_
    return fill_


def _convert(x: Any, d: D.dtype) -> ndarray:
    if isinstance(x, complex) and not d.is_complex:
        raise RuntimeError(f"value cannot be converted to type {d.name} without overflow")
    return np.asarray(x).astype(d.np)


T.__getitem__ = getitem  # type: ignore[attr-defined]
T.__setitem__ = setitem  # type: ignore[attr-defined]


# --- along a dimension ---------------------------------------------------------------------------------------------------
def dim_of(a: Any, dim: int) -> int:
    return Geometry(a.shape, a.shape).dim(dim)


def check_index(name: str, a: Any, dim: int, idx: Any, size: int | None = None) -> None:
    """Index tensors are int64 or int32 and inside the dimension."""
    if idx.dtype not in (np.dtype("int64"), np.dtype("int32")):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {D.of(idx.dtype).name}")
    if isinstance(idx, MetaArray) or idx.size == 0:
        return
    n = (a.shape[dim] if a.ndim else 1) if size is None else size
    lo, hi = idx.min(), idx.max()
    if lo < 0 or hi >= n:
        raise IndexError(f"index {lo if lo < 0 else hi} is out of bounds for dimension {dim} with size {n}: {name}() takes 0 to {n - 1}") \
            if name in ("index_select", "embedding") else RuntimeError(
                f"index {lo if lo < 0 else hi} is out of bounds for dimension {dim} with size {n}")


def _gather_check(input, dim, index, sparse_grad=False):
    d = dim_of(input, dim)
    if index.size == 0:
        return
    if max(index.ndim, 1) != max(input.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for k, (n, m) in enumerate(zip(index.shape, input.shape, strict=False)):
        if k != d and n > m:
            raise RuntimeError(f"Size does not match at dimension {k} expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
                               f"apart from dimension {d}")
    check_index("gather", input, d, index)


def _corner(a: ndarray, shape: tuple[int, ...], dim: int) -> ndarray:
    """`a` cut to `shape` in all dimensions but `dim`."""
    return a[tuple(slice(None) if k == dim else slice(0, n) for k, n in enumerate(shape))]


@structural(method=True, check=_gather_check, exact=True, out="apart")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False):
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on. RuntimeError for an index out of range or of other dimensions."""
    if input.ndim == 0 or index.ndim == 0:
        return input.reshape(-1)[index.reshape(-1)].reshape(index.shape)
    d = dim_of(input, dim)
    if index.size == 0:
        return np.empty(index.shape, input.dtype)
    return np.take_along_axis(_corner(input, index.shape, d), index, d)


gather.shape(lambda input, dim, index, sparse_grad: index.shape)
gather.gradient(input=lambda grad, input_meta, dim, index: f("scatter_add")(f("zeros")(input_meta.shape, dtype=grad.dtype), dim, index, grad))


def _scatter_check(input, dim, index, src, reduce=None):
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
            raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} apart from dimension {d}"
                               + (f" and to be no larger size than src {list(src.shape)}" if has else ""))
    check_index("scatter", input, d, index)


def _scatter_at(input: ndarray, dim: int, index: ndarray) -> tuple:
    d = dim_of(input, dim)
    at = list(np.indices(index.shape, sparse=True))
    at[d] = index
    return tuple(at)


def _src_part(src: Any, index: ndarray) -> Any:
    return src[tuple(slice(0, n) for n in index.shape)] if hasattr(src, "shape") and src.ndim else src


def _one(input: ndarray, index: ndarray, src: Any) -> tuple[ndarray, ndarray, Any]:
    """0-dim operands as vectors of one element, on the same memory."""
    return (input.reshape(1) if input.ndim == 0 else input, index.reshape(1) if index.ndim == 0 else index,
            src.reshape(1) if hasattr(src, "ndim") and src.ndim == 0 and hasattr(src, "reshape") and src.__class__ is ndarray else src)


@writes(method=True, check=_scatter_check, exact=True, public=False, name="scatter")
def _scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number):
    if index.size:
        input, index, src = _one(input, index, src)
        input[_scatter_at(input, dim, index)] = _src_part(src, index)


_scatter.gradient(input=lambda grad, dim, index: f("scatter")(grad, dim, index, 0), src=lambda grad, dim, index, src_meta: _src_back(grad, dim, index, src_meta))


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
def scatter(input: Tensor, dim: int, index: Tensor, src: Tensor | Number = None, *, value: Number | None = None, reduce: str | None = None):
    """`src` (or a number) written at `index` along `dim`: out[index[i][j]][j] = src[i][j] for dim 0. With `reduce` "add" or "multiply" it is
    combined with what is there."""
    src = value if src is None else src
    if reduce is not None:
        src = src if isinstance(src, T) else f("full_like")(index, src, dtype=input.dtype)
        return f("scatter_reduce")(input, dim, index, src, _reduce_name(reduce))
    return execute.run(_scatter, (input, dim, index, src))


def _scatter_inplace(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Any:
    src = value if src is None else src
    if reduce is not None:
        src = src if isinstance(src, T) else f("full_like")(index, src, dtype=input.dtype)
        return inplace.run_inplace(scatter_reduce, (input, dim, index, src, _reduce_name(reduce), True))
    return inplace.run_inplace(_scatter, (input, dim, index, src))


T.scatter_ = _scatter_inplace  # type: ignore[attr-defined]


@writes(method=True, check=_scatter_check, exact=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor):
    """`src` added at `index` along `dim`: out[index[i][j]][j] += src[i][j] for dim 0."""
    if index.size:
        input, index, src = _one(input, index, src)
        np.add.at(input, _scatter_at(input, dim, index), _src_part(src, index))


scatter_add.gradient(input=lambda grad: grad, src=lambda grad, dim, index, src_meta: _src_back(grad, dim, index, src_meta))


@writes(method=True, check=lambda input, dim, index, src, reduce, include_self: _scatter_check(input, dim, index, src), exact=True)
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True):
    """`src` combined at `index` along `dim` by "sum", "prod", "mean", "amax" or "amin", with what is there if `include_self`."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    if not index.size:
        return
    input, index, src = _one(input, index, src)
    at, s = _scatter_at(input, dim, index), _src_part(src, index)
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1}.get(reduce)
        if start is None:
            lim = np.finfo(input.dtype) if input.dtype.kind == "f" else np.iinfo(input.dtype) if input.dtype.kind in "iu" else None
            start = (-np.inf if reduce == "amax" else np.inf) if input.dtype.kind == "f" else (lim.min if reduce == "amax" else lim.max) if lim else 0
        input[at] = start
    {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce].at(input, at, s)
    if reduce == "mean":
        n = np.full(input.shape, 1 if include_self else 0, np.int64)
        np.add.at(n, at, 1)
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
        # the product of the others: with one zero, what the product is without it; with several, nothing
        one = f("ones_like")(input)
        zero = (src == 0).to(src.dtype)
        lead = (input == 0).to(input.dtype) if include_self else f("zeros_like")(input)
        zeros = lead.scatter_add(dim, index, zero)
        start = f("where")(input == 0, one, input) if include_self else f("scatter")(input, dim, index, 1)
        rest = f("scatter_reduce")(start, dim, index, f("where")(src == 0, f("ones_like")(src), src), "prod")
        whole = f("where")(zeros == 0, rest, f("zeros_like")(rest))
        alone = f("where")(zeros == 1, rest, f("zeros_like")(rest))
        gi = grad * f("where")(input == 0, alone, whole / f("where")(input == 0, one, input))
        gs = grad.gather(dim, index) * f("where")(src == 0, alone.gather(dim, index),
                                                  whole.gather(dim, index) / f("where")(src == 0, f("ones_like")(src), src))
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
    check_index("index_select", input, d, index)


@structural(method=True, check=_select_check, exact=True, out="apart")
def index_select(input: Tensor, dim: int, index: Tensor):
    """The slices along `dim` that the vector `index` names. IndexError out of range."""
    if input.ndim == 0:
        return input.copy()
    return input.take(index.reshape(-1), dim)


index_select.shape(lambda input, dim, index: tuple(index.size if k == dim % max(len(input.shape), 1) else n for k, n in enumerate(input.shape)))
index_select.gradient(input=lambda grad, input_meta, dim, index: f("index_add")(f("zeros")(input_meta.shape, dtype=grad.dtype), dim, index, grad))


def _index_write_check(name: str) -> Any:
    def check(input, dim, index, source, *rest):
        d = dim_of(input, dim)
        if index.ndim > 1:
            raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim}")
        if hasattr(source, "dtype") and source.dtype != input.dtype:
            raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) {D.of(input.dtype).name} and (source) "
                               f"{D.of(source.dtype).name}")
        if hasattr(source, "shape") and source.ndim:
            want = list(input.shape)
            if input.ndim:
                want[d] = index.size
            if max(source.ndim, 1) != max(input.ndim, 1):
                raise RuntimeError(f"source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
                                   f"{list(input.shape)} source.shape = {list(source.shape)}")
            if source.ndim == input.ndim and list(source.shape) != want:
                raise RuntimeError(f"source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
                                   f"{list(input.shape)} source.shape = {list(source.shape)}") if source.shape[d] == index.size else IndexError(
                    f"{name}(): Number of indices ({index.size}) should be equal to source.size(dim): ({source.shape[d]}), for dim: {d}")
        check_index("index_select", input, d, index)
    return check


@writes(method=True, check=_index_write_check("index_add"), exact=True, out="apart")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1):
    """alpha times the slices of `source` added to the slices along `dim` that `index` names."""
    if input.ndim == 0:
        input += (alpha * source.reshape(-1).sum()).astype(input.dtype)
        return
    d = dim_of(input, dim)
    s = source if alpha == 1 else (alpha * source).astype(input.dtype)
    i = index.reshape(-1)
    if d == 0 and input.ndim == 2 and input.dtype.kind == "f":
        add_rows(input, i, s)
    else:
        np.add.at(np.moveaxis(input, d, 0), i, np.moveaxis(s, d, 0))


index_add.gradient(input=lambda grad: grad, source=lambda grad, dim, index, source_meta, alpha: (grad.index_select(dim, index) * alpha).reshape(source_meta.shape))


@writes(method=True, check=_index_write_check("index_copy"), exact=True, out="apart")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor):
    """The slices of `source` written to the slices along `dim` that `index` names."""
    if input.ndim == 0:
        input[...] = source.reshape(-1)[-1]
        return
    np.moveaxis(input, dim_of(input, dim), 0)[index.reshape(-1)] = np.moveaxis(source, dim_of(input, dim), 0)


index_copy.gradient(input=lambda grad, dim, index: f("index_fill")(grad, dim, index, 0),
                    source=lambda grad, dim, index, source_meta: grad.index_select(dim, index).reshape(source_meta.shape))


@writes(method=True, check=lambda input, dim, index, value: _index_write_check("index_fill")(input, dim, index, None), exact=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number):
    """`value` written to the slices along `dim` that `index` names."""
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
    if input.ndim == 0:
        input[...] = value
        return
    np.moveaxis(input, dim_of(input, dim), 0)[index.reshape(-1)] = value


def _distinct(index):
    return wrap(np.unique(index._a))


index_fill.gradient(input=lambda grad, dim, index: f("index_fill")(grad, dim, index, 0), value=lambda grad, dim, index: grad.index_select(dim, _distinct(index)).sum())


# --- masks ----------------------------------------------------------------------------------------------------------------
def _mask_check(input, mask, *rest):
    if mask.dtype.kind != "b" and mask.dtype != np.uint8:
        raise RuntimeError(f"expected BoolTensor for mask, got {D.of(mask.dtype).name}")


@structural(method=True, check=_mask_check, exact=True, out="apart")
def masked_select(input: Tensor, mask: Tensor):
    """The elements where the mask (broadcast) holds, as a vector."""
    a, m = np.broadcast_arrays(input, mask.astype(bool))
    return a[m]


masked_select.gradient(input=lambda grad, input_meta, mask: _masked_back(grad, input_meta, mask))


def _masked_back(grad, input_meta, mask):
    from .generate import sum_to
    shape = np.broadcast_shapes(input_meta.shape, mask._a.shape)
    z = f("zeros")(tuple(shape), dtype=grad.dtype)
    z = f("masked_scatter")(z, mask.to(D.bool_).expand(shape), grad)
    return sum_to(z, input_meta.shape)


def _masked_fill_check(input, mask, value):
    _mask_check(input, mask)
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).")
    if (isinstance(value, complex) or getattr(value, "dtype", input.dtype).kind == "c") and input.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {C_NAMES.get(D.of(input.dtype).name, '')} without overflow")
    if isinstance(value, float) and input.dtype.kind in "iu" and value != int(value):
        raise RuntimeError(f"value cannot be converted to type {D.of(input.dtype).name} without overflow")


@structural(method=True, check=_masked_fill_check, exact=True, public=False, name="masked_fill")
def _masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number):
    v = np.asarray(value).astype(input.dtype)
    m = mask if mask.dtype.kind == "b" else mask.astype(bool)
    return np.where(m, v, input)


_masked_fill.shape(lambda input, mask, value: np.broadcast_shapes(input.shape, mask.shape))


def _unmasked(grad, input_meta, mask):
    from .generate import sum_to
    return sum_to(execute.run(_masked_fill, (grad, mask, 0)), input_meta.shape)


_masked_fill.gradient(input=_unmasked, value=lambda grad, mask: f("where")(mask.to(D.bool_), grad, f("zeros_like")(grad)).sum())


@composite(method=True)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number):
    """`value` where the mask (broadcast) holds, the input elsewhere."""
    return execute.run(_masked_fill, (input, mask, value))


@writes(method=False, check=_masked_fill_check, exact=True, public=False, name="masked_fill")
def _masked_fill_into(input: Tensor, mask: Tensor, value: Tensor | Number):
    np.copyto(input, np.asarray(value).astype(input.dtype), where=mask.astype(bool))


_masked_fill_into.gradient(input=_unmasked, value=lambda grad, mask: f("where")(mask.to(D.bool_), grad, f("zeros_like")(grad)).sum())
T.masked_fill_ = lambda self, mask, value: inplace.run_inplace(_masked_fill_into, (self, mask, value))  # type: ignore[attr-defined]


def _masked_scatter_check(input, mask, source):
    if mask.dtype.kind != "b":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {D.of(mask.dtype).name}")


@writes(check=_masked_scatter_check, exact=True, public=False, name="masked_scatter")
def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor):
    if source.dtype != input.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got {D.of(input.dtype).name} and {D.of(source.dtype).name}")
    m = np.broadcast_to(mask.astype(bool), input.shape)
    n = int(m.sum())
    if source.size < n:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes and source to have at least {n} elements, got {source.size}")
    input[m] = source.reshape(-1)[:n]


_masked_scatter.gradient(input=lambda grad, mask: f("masked_fill")(grad, mask, 0), source=lambda grad, mask, source_meta: _source_back(grad, mask, source_meta))


@composite(method=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor):
    """The elements of `source`, in order, written where the mask (broadcast) holds."""
    shape = np.broadcast_shapes(input._a.shape, mask._a.shape)
    return execute.run(_masked_scatter, (input if input._a.shape == shape else input.expand(shape), mask, source))


T.masked_scatter_ = lambda self, mask, source: inplace.run_inplace(_masked_scatter, (self, mask, source))  # type: ignore[attr-defined]


def _source_back(grad, mask, source_meta):
    g = masked_select.function(grad, mask)
    n = 1
    for s in source_meta.shape:
        n *= s
    z = f("zeros")((n - g.numel(),), dtype=g.dtype)
    return f("cat")([g, z]).reshape(source_meta.shape)


@structural(public=False, differentiable=False, exact=True)
def _nonzero(input: Tensor):
    return np.stack(np.nonzero(input), 1).astype(np.int64) if input.ndim else np.zeros((int(input != 0), 0), np.int64)


@composite(method=True, out=True)
def nonzero(input: Tensor, *, as_tuple: bool = False):
    """A row of indices for each nonzero element (z x n, int64); with `as_tuple` a vector of indices for each dimension."""
    if as_tuple:
        if input.dim() == 0:
            return nonzero(input.unsqueeze(0), as_tuple=True)
        return tuple(wrap(np.ascontiguousarray(i)) for i in np.nonzero(input._a))
    return execute.run(_nonzero, (input,))


@composite(method=True)
def argwhere(input: Tensor):
    """`nonzero`."""
    return execute.run(_nonzero, (input,))


@composite(method=True, out="apart")
def take(input: Tensor, index: Tensor):
    """The elements at positions of the flattened tensor."""
    n = input.numel()
    if index.dtype is not D.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype.name.capitalize()}")
    if index.numel() and (n == 0 or bool(((index < -n) | (index >= n)).any().item())):
        raise IndexError(f"out of range: tried to access an index beyond {n - 1}" if n else "take(): tried to take from an empty tensor")
    return _index_call(input.reshape(-1), [index])


@composite(method=True, out="apart")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None):
    """The elements at `indices` along `dim`, both broadcast in the other dimensions."""
    if indices.dtype is not D.int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.name.capitalize()}")
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.dim() != indices.dim():
        raise RuntimeError(f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {input.dim()} dimensions for input, "
                           f"and {indices.dim()} dimensions for indices")
    d = dim_of(input._a, dim)
    a, b = list(input.shape), list(indices.shape)
    if indices.numel() and indices._a.__class__ is ndarray and indices._a.min() < 0:
        indices = f("where")(indices < 0, indices + a[d], indices)
    common = np.broadcast_shapes(tuple(n for k, n in enumerate(a) if k != d), tuple(n for k, n in enumerate(b) if k != d))
    sa, sb = list(common), list(common)
    sa.insert(d, a[d])
    sb.insert(d, b[d])
    return input.expand(sa).gather(d, indices.expand(sb))


# --- scattering a part back: the inverse of a view ------------------------------------------------------------------------
def _part(name: str, get: Any, doc: str) -> Any:
    pass


@writes(method=True, exact=True)
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """`src` written to every `step`-th slice along `dim` from `start` to `end`."""
    at = [slice(None)] * input.ndim
    at[dim_of(input, dim)] = slice(start, end, step)
    part = input[tuple(at)]
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(part.shape)}")
    part[...] = src


def _slice_zero(grad, src_meta, dim, start, end, step):
    return f("slice_scatter")(grad, f("zeros")(src_meta.shape, dtype=grad.dtype), dim, start, end, step)


def _slice_of(grad, dim, start, end, step):
    from .view import slice_
    return execute.run(slice_, (grad, dim, start, end, step)).clone()


slice_scatter.gradient(input=_slice_zero, src=_slice_of)


@writes(method=True, exact=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int):
    """`src` written to slice `index` of dimension `dim`."""
    at: list[Any] = [slice(None)] * input.ndim
    d = dim_of(input, dim)
    n = input.shape[d]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}")
    at[d] = index
    part = input[(*at, ...)]
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(part.shape)}")
    part[...] = src


select_scatter.gradient(input=lambda grad, src_meta, dim, index: f("select_scatter")(grad, f("zeros")(src_meta.shape, dtype=grad.dtype), dim, index),
                        src=lambda grad, dim, index: grad.select(dim, index).clone())


@writes(method=True, exact=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """`src` written to the diagonal of two dimensions."""
    from .view import diagonal
    part = restride(input, diagonal.fn(Geometry.of(input), offset, dim1, dim2))
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(part.shape)}")
    part[...] = src


diagonal_scatter.gradient(input=lambda grad, src_meta, offset, dim1, dim2: f("diagonal_scatter")(grad, f("zeros")(src_meta.shape, dtype=grad.dtype), offset, dim1, dim2),
                          src=lambda grad, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2).clone())
