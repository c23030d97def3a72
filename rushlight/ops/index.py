"""Indexing: by slices and numbers (views), by tensors and masks (copies)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import indexed
from ..backends.meta import MetaArray
from ..backends.sparse import SparseArray
from ..core import dtype as D
from ..core.promotion import fitted
from ..core.tensor import Tensor as T
from ..core.tensor import bump, hooks, inference, view_of, wrap
from . import execute, inplace
from .declare import structural, view, writes

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
    return a[(*items, ...)]  # the ellipsis: a view even where every dimension has an int


def _basic_gradient(grad, input_meta, items):
    z = f("zeros")(input_meta.shape, dtype=grad.dtype)
    execute.run(_basic, (z, items)).copy_(grad)
    return z


_basic.gradient(input=_basic_gradient)


@_basic.named
def _(input_meta, items):
    """PyTorch takes the items one after the other, each as a view; the node that one sees is that of the last which changed something."""
    name, sizes = "SliceBackward0", iter(input_meta.shape)      # of x[:], where nothing has changed anything
    for it in items:
        if it is None:
            name = "UnsqueezeBackward0"
            continue
        n = next(sizes)
        if it.__class__ is not slice:
            name = "SelectBackward0"
        elif it.indices(n) != (0, n, 1):
            name = "SliceBackward0"
    return name


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
                elif i.dtype is BOOL and i.shape == a.shape[: i.ndim]:
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


def _is_tuple(index: Any) -> bool:
    """Whether a list is taken as a tuple of indices: `x[[[0, 1], [1, 0]]]` is `x[[0, 1], [1, 0]]` in PyTorch."""
    return len(index) < 32 and any([x is None or x is Ellipsis or isinstance(x, (T, list, tuple, range, slice, np.ndarray, str)) for x in index])


def _normalize(self: Any, index: Any) -> tuple[list[Any], bool]:
    """The items of an index, with Ellipsis written out and masks and sequences as tensors; whether any is a tensor."""
    items = list(index) if isinstance(index, tuple) or isinstance(index, (list, range)) and _is_tuple(index) else [index]
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
                execute.reads_values("a 0-dim tensor as an index")
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
            if isinstance(it, (str, bytes)):
                raise TypeError(f"new(): invalid data type '{type(it).__name__}': text is no index")
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                f"(got {type(it).__name__})"
            )
        out.append(it)
    if sum(1 for i in out if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise IndexError(
            f"too many indices for tensor of dimension {ndim}"
            if ndim
            else "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
            "convert a 0-dim tensor to a number"
        )
    k = next((i for i, x in enumerate(out) if x is Ellipsis), None)
    fill = [slice(None)] * (ndim - used)
    out = [*out, *fill] if k is None else [*out[:k], *fill, *out[k + 1 :]]
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
    if isinstance(self._a, SparseArray):
        from .sparse_rules import getitem as sparse_getitem
        return sparse_getitem(self, index)
    items, advanced = _normalize(self, index)
    if not advanced:
        return execute.run(_basic, (self, tuple(items)))
    base, indices = _split_advanced(self, items)
    return index_by(base, indices)


def index_by(base: Any, indices: list[Any]) -> Any:
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
                execute.reads_values("a 0-dim mask as an index")
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
    """Index arrays, masks turned into the positions where they hold. IndexError for shapes that do not fit and
    positions out of range."""
    out: list[Any] = []
    d = 0
    for it in indices:
        if it is None:
            out.append(None)
            d += 1
            continue
        x = it._a if isinstance(it, T) else it
        if x.ndim == 0 and (x.dtype.kind == "b" or x.dtype == np.uint8):
            out.append(np.asarray(bool(x)))       # a dimension of its own
        elif x.dtype.kind == "b" or x.dtype == np.uint8:
            for k in range(x.ndim):
                if d + k >= len(shape) or x.shape[k] != shape[d + k]:
                    raise IndexError(
                        f"The shape of the mask {list(x.shape)} at index {k} does not match the shape of the indexed "
                        "tensor "
                        f"{list(shape)} at index {d + k}"
                    )
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
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(x.shape)) for x in arrays)
        ) from None
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
    """`values` (broadcast) written, or with `accumulate` added, at the positions that a tuple of tensors gives."""
    indices = tuple(indices)
    at = _numpy_index(input.shape, indices)
    if values.dtype != input.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {D.of(input.dtype).name} for the "
            "destination and "
            f"{D.of(values.dtype).name} for the source."
        )
    if not accumulate:
        try:
            input[at] = values
        except ValueError:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
                "shape "
                f"{list(input[at].shape)}"
            ) from None
        return
    if _slices_added(input, at, values):
        return
    if len(at) == 1 and at[0].__class__ is ndarray and at[0].ndim == 1 and input.ndim == 2 and input.dtype.kind == "f":
        add_rows(input, at[0], np.broadcast_to(values, (at[0].shape[0], input.shape[1])))
        return
    np.add.at(input, at, values)


def _slices_added(input: ndarray, at: tuple, values: ndarray) -> bool:
    """Whether a kernel has added `values`: where one vector of indices (that are not negative) names slices."""
    d = len(at) - 1
    i = at[d]
    if i.__class__ is not ndarray or i.ndim != 1 or any(x.__class__ is not slice for x in at[:d]):
        return False
    shape = input.shape[:d] + i.shape + input.shape[d + 1:]
    try:
        v = values if values.shape == shape else np.broadcast_to(values, shape)
    except ValueError:
        return False
    return bool(indexed.write_slices("add", input, i, d, v))


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

    return sum_to(index_by(grad, list(indices)), values_meta.shape)


index_put.gradient(input=_put_input_gradient, values=_put_values_gradient)


def setitem(self: Any, idx: Any, value: Any) -> None:
    """`x[index] = value`: numbers, arrays and tensors, broadcast and cast."""
    a = self._a
    if (
        a.__class__ is ND
        and a.flags.c_contiguous
        and execute.capture[0] is None
        and (self._rg is False or not execute.modes.grad)
        and (not inference.used or not self.is_inference())
        and _set_plain(self, a, idx, value)
    ):
        return
    items, advanced = _normalize(self, idx)
    given = value
    if not isinstance(value, T):
        if isinstance(value, (int, float, complex, np.number, np.bool_)):
            value = value.item() if isinstance(value, np.generic) else value
            if not advanced:
                if execute.modes.grad:
                    inplace.check_writable(self, "index assignment")
                target = execute.run(_basic, (self, tuple(items))) if items else self
                inplace.run_inplace(_fill(), (target, value))
                return
            value = wrap(fitted(value, self.dtype))
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
        masked = len(indices) == 1 and indices[0] is not None and indices[0].dtype.category == D.BOOL and value._a.size == 1
        if value is given and (not masked or value.dtype.is_complex):
            raise RuntimeError(f"Index put requires the source and destination dtypes match, got {self.dtype!r} for the destination and "
                               f"{value.dtype!r} for the source.")
        value = value.to(self.dtype)
    inplace.run_inplace(index_put, (base, tuple(indices), value, False))


def _set_plain(self: Any, a: ndarray, idx: Any, value: Any) -> bool:
    """An assignment without history that NumPy does as it stands; False where it is to be looked at."""
    c = value.__class__
    if c is T:
        v = value._a
        if (
            v.__class__ is not ND
            or v.dtype is not a.dtype
            or v.base is not None
            or v is a
            or value._rg is not False
            and execute.modes.grad
        ):
            return False
    elif c is float and a.dtype.kind == "f" and -65504 <= value <= 65504 or c is int and a.dtype.kind in "fi":
        v = value
    else:
        return False
    k = idx.__class__
    if k is T:
        i = idx._a
        if (
            i.__class__ is not ND
            or not i.ndim
            or not a.ndim
            or i.dtype is not I64
            and (i.dtype is not BOOL or i.shape != a.shape[: i.ndim])
            or c is T
            and i.dtype is BOOL
        ):
            return False
        at: Any = i
    elif (
        k is int
        or k is slice
        and idx.step is None
        or k is tuple
        and all([_plain(x) and x.__class__ is not slice or x.__class__ is slice and x.step is None for x in idx])
    ):
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
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing result of "
            f"shape {list(target.shape)}"
        )
    target.copy_(v)


def _fill() -> Any:
    from .copy import fill_

    return fill_


T.__getitem__ = getitem  # type: ignore[attr-defined]
T.__setitem__ = setitem  # type: ignore[attr-defined]


def _delitem(self: Any, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


T.__delitem__ = _delitem  # type: ignore[attr-defined]


# --- Inputs for the generated tests (ops.samples) ---
index_put.samples(lambda s: [s.call(s((3, 4)), (s.array([2, 0]), s.array([1, 3])), s((2,))), s.call(s((3, 4)), (s.array([0, 0, 2]),), s((4,)), True),
                             s.call(s((3, 4)), (s.bools((3, 4)),), s(()))])
