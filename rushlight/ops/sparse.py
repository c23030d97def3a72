"""Sparse tensors: how they are made, taken apart and turned into one another.

A sparse tensor is an ordinary Tensor on a `backends.sparse.SparseArray`. Two nodes of the tape know about patterns: `make` (values and
a pattern to a tensor) and `values_of` (a tensor to its values); everything else is written in them and in tensor operators on the
values, so that gradients of any order come with it. The gradient of a sparse tensor has its pattern.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import Node, edge, next_seq
from ..backends.sparse import SparseArray, SparseCompressed, SparseCOO, add_groups, compress, flat_index
from ..core import dtype as D
from ..core import layout as L
from ..core.tensor import Size, wrap
from ..core.tensor import Tensor as T
from . import execute
from .declare import composite
from .nn_common import f

if TYPE_CHECKING:
    from ..core.dtype import dtype as DType
    from ..core.tensor import Tensor

COMPRESSED = {"sparse_csr": "CSR", "sparse_csc": "CSC", "sparse_bsr": "BSR", "sparse_bsc": "BSC"}


# --- the tape ---------------------------------------------------------------------------------------------------------
class Make(Node):
    """Values and a pattern to a sparse tensor."""

    __slots__ = ("pattern",)

    def backward(self, grad: Any, next: tuple) -> tuple:
        return (values_at(grad, self.pattern),)


class Take(Node):
    """A sparse tensor to its values."""

    __slots__ = ("pattern",)

    def backward(self, grad: Any, next: tuple) -> tuple:
        return (make(grad, self.pattern),)


Make.__name__ = Make.__qualname__ = "SparseCooTensorWithDimsAndTensorsBackward0"
Take.__name__ = Take.__qualname__ = "ValuesBackward0"


def _record(cls: type, t: Any, source: Any, pattern: SparseArray) -> None:
    if modes.grad and source.requires_grad:
        n = cls()
        n.seq, n.next, n.saved, n.where, n.pattern = next_seq(), (edge(source),), (), None, pattern
        t._node, t._rg = n, True


def make(values: Any, pattern: SparseArray, shape: tuple[int, ...] | None = None) -> Any:
    """The sparse tensor of `values` at the places of `pattern` (whose own values do not matter)."""
    c = execute.capture[0]
    if c is not None:
        c.fail("a sparse tensor is made")
    a = pattern.with_values(values._a, shape)
    t = wrap(a)
    _record(Make, t, values, a)
    return t


def values_of(t: Any) -> Any:
    """The values of a sparse tensor, on the same memory."""
    v = wrap(t._a.values)
    if t._v is None:
        t._v = [0, 0, None]
    v._v = t._v
    _record(Take, v, t, t._a)
    return v


def coordinates(a: SparseArray) -> np.ndarray:
    """Where the values lie: (sparse dimensions, elements), for blocks each of their elements, in the order of the values."""
    return a.indices if isinstance(a, SparseCOO) else a.coordinates()  # type: ignore[attr-defined]


def _at(coordinates: np.ndarray) -> tuple:
    return tuple(wrap(np.ascontiguousarray(i)) for i in coordinates)


def values_at(t: Any, pattern: SparseArray) -> Any:
    """What a tensor, dense or sparse, has at the places of a pattern, in the shape of the pattern's values."""
    a, at, shape = t._a, coordinates(pattern), pattern.values.shape
    if isinstance(a, SparseArray):
        if a.__class__ is pattern.__class__ and a.values.shape == shape and a.layout == pattern.layout and same_pattern(a, pattern):
            return values_of(t)
        g = coalesced(coo_of(t))
        b = g._a
        if b.sparse_dim == at.shape[0]:
            keys, want = b.keys(), flat_index(at, b.sparse_shape)
            v = values_of(g)
            if not len(keys):
                return f("zeros")(shape, dtype=v.dtype)
            place = np.minimum(np.searchsorted(keys, want), len(keys) - 1)
            v = v.index_select(0, wrap(place))
            there = keys[place] == want
            if not there.all():
                v = v.masked_fill(wrap(~there).reshape((-1, *(1,) * (v.dim() - 1))), 0)
            return v.reshape(shape)
        t = dense_of(t)
    if not at.shape[0]:
        return t.unsqueeze(0).expand(shape)
    return t[_at(at)].reshape(shape)


def same_pattern(a: Any, b: Any) -> bool:
    """Whether the values of two records of one class and layout stand at the same places."""
    if isinstance(a, SparseCOO):
        return a.indices is b.indices or np.array_equal(a.indices, b.indices)
    return (a.ends is b.ends or np.array_equal(a.ends, b.ends)) and (a.plain is b.plain or np.array_equal(a.plain, b.plain))


# --- from one to another ----------------------------------------------------------------------------------------------
def is_sparse(t: Any) -> bool:
    return isinstance(t, T) and isinstance(t._a, SparseArray)


def coalesced(t: Any) -> Any:
    """A COO tensor in order, with no index twice: its own values where it is so already, else sums."""
    a = t._a
    if a.coalesced:
        return t
    indices, place, n = a.groups()
    pattern = SparseCOO(indices, a.values, a.shape, True)
    v = values_of(t)
    if not v.requires_grad or not modes.grad:
        return make(wrap(add_groups(a.values, place, n)), pattern)
    return make(f("zeros")((n, *v.shape[1:]), dtype=v.dtype).index_add(0, wrap(place), v), pattern)


def coo_of(t: Any) -> Any:
    """A sparse tensor as COO, in order."""
    a = t._a
    if isinstance(a, SparseCOO):
        return t
    at = a.coordinates()
    v = values_of(t).reshape((at.shape[1], *a.shape[at.shape[0]:]))
    made = SparseCOO(at, a.values, a.shape, True)
    if a.layout != "sparse_csr":
        order = np.argsort(made.keys(), kind="stable")
        made.indices, v = np.ascontiguousarray(at[:, order]), v.index_select(0, wrap(order))
    return make(v, made)


def dense_of(t: Any) -> Any:
    """A sparse tensor as an ordinary one."""
    a = t._a
    v = values_of(t)
    if not v.requires_grad or not modes.grad:
        return wrap(a.dense())
    at = coordinates(a)
    if not at.shape[0]:
        return v.sum(0)
    v = v.reshape((at.shape[1], *a.shape[at.shape[0]:]))
    return f("index_put")(f("zeros")(a.shape, dtype=v.dtype), _at(at), v, True)


def sparse_of(t: Any, sparse_dim: int) -> Any:
    """An ordinary tensor as COO, with the places where it is not zero; the last dimensions stay dense."""
    a = t._a
    there = a != 0
    if sparse_dim < a.ndim:
        there = there.any(tuple(range(sparse_dim, a.ndim)))
    if sparse_dim:
        at = np.stack(np.nonzero(there)).astype(np.int64)
        v = t[_at(at)]
    else:
        at = np.zeros((0, int(there)), np.int64)
        v = t.unsqueeze(0)[:int(there)]
    return make(v, SparseCOO(at, a, a.shape, True))


def compressed_of(t: Any, layout: str, blocksize: tuple[int, int] | None = None, dense_dim: int = 0) -> Any:
    """A COO tensor as CSR, CSC, BSR or BSC. RuntimeError unless it has two sparse dimensions (that blocks fit), or more where the
    matrices of the batch have equal numbers of elements."""
    t = coalesced(t)
    a = t._a
    if a.sparse_dim < 2 or a.sparse_dim > 2 and layout.startswith("sparse_bs"):
        raise RuntimeError(f"Only tensors with two sparse dimensions can be converted to the {COMPRESSED[layout].lower()} layout, got self with "
                           f"{a.sparse_dim} sparse dimensions.")
    v = values_of(t)
    if a.sparse_dim > 2:
        return _compressed_batch(v, a, layout)
    if not layout.startswith("sparse_bs"):
        ends, plain, order = compress(layout, a.indices, a.shape)
        return make(v if layout == "sparse_csr" else v.index_select(0, wrap(order)), SparseCompressed(layout, ends, plain, a.values, a.shape))
    r, c = blocksize  # type: ignore[misc]
    if a.shape[0] % r or a.shape[1] % c:
        raise RuntimeError(f"tensor sparse size ({a.shape[0]},{a.shape[1]}) must be divisible by given blocksize ({r},{c})")
    size = (a.shape[0] // r, a.shape[1] // c)
    block = a.indices // np.array([[r], [c]])
    keys, first, place = np.unique(flat_index(block, size), return_index=True, return_inverse=True)
    ends, plain, order = compress(layout, block[:, first], size)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    inner = a.indices % np.array([[r], [c]])
    empty = f("zeros")((len(keys), r, c, *a.shape[2:]), dtype=v.dtype)
    v = f("index_put")(empty, _at(np.stack([back[place.reshape(-1)], *inner])), v)
    return make(v, SparseCompressed(layout, ends, plain, v._a, a.shape))


def _compressed_batch(v: Any, a: SparseCOO, layout: str) -> Any:
    lead, pair = a.shape[:a.sparse_dim - 2], a.shape[a.sparse_dim - 2:a.sparse_dim]
    n = math.prod(lead)
    which = flat_index(a.indices[:-2], lead)
    counts = np.bincount(which, minlength=n)
    if len(set(counts.tolist())) > 1:
        raise RuntimeError(f"Expect the same number of specified elements per batch, but got {counts.tolist()}")
    k = int(counts[0]) if n else 0
    long, wide = a.indices[-2:] if layout == "sparse_csr" else a.indices[-2:][::-1]
    rows = pair[0] if layout == "sparse_csr" else pair[1]
    order = np.lexsort((wide, long, which))
    ends = np.zeros((n, rows + 1), np.int64)
    np.cumsum(np.bincount(which * rows + long, minlength=n * rows).reshape(n, rows), 1, out=ends[:, 1:])
    v = v.index_select(0, wrap(order)).reshape((*lead, k, *v.shape[1:]))
    return make(v, SparseCompressed(layout, ends.reshape(*lead, rows + 1), np.ascontiguousarray(wide[order]).reshape(*lead, k), v._a, a.shape))


def to_layout(t: Any, layout: str, blocksize: Any = None, dense_dim: int | None = None, sparse_dim: int | None = None) -> Any:
    """A tensor of any layout in another."""
    if layout == "strided":
        return dense_of(t) if is_sparse(t) else t
    if is_sparse(t):
        if t._a.layout == layout and (blocksize is None or tuple(blocksize) == t._a.block):
            return t
        t = coo_of(t)
    else:
        if t._a.__class__ is not np.ndarray:
            raise NotImplementedError("to_sparse: meta tensors have no values to find the zeros of")
        dense = dense_dim or 0
        n = t.dim() - dense if sparse_dim is None else sparse_dim
        if layout != "sparse_coo" and n < 2:
            raise RuntimeError(f"to_sparse: the {COMPRESSED[layout]} layout wants two sparse dimensions, but the tensor has {t.dim()} dimensions, {dense} of them dense")
        t = sparse_of(t, n)
    if layout == "sparse_coo":
        return t
    if layout.startswith("sparse_bs") and blocksize is None:
        raise RuntimeError(f"to_sparse: the {COMPRESSED[layout]} layout needs blocksize=(rows, columns)")
    return compressed_of(t, layout, None if blocksize is None else tuple(blocksize))


def _expect(t: Any, name: str, *layouts: str) -> SparseArray:
    """The record of a tensor of one of these layouts; RuntimeError for others."""
    a = t._a
    if not isinstance(a, SparseArray) or a.layout not in layouts:
        what = {"sparse_coo": "sparse coordinate", "sparse_csr": "sparse row compressed", "sparse_csc": "sparse column compressed"}[layouts[0]]
        got = "Strided" if not isinstance(a, SparseArray) else COMPRESSED.get(a.layout, "Sparse")
        raise RuntimeError(f"{name} expected {what if len(layouts) < 5 else 'sparse'} tensor layout but got {got}")
    return a


# --- methods ----------------------------------------------------------------------------------------------------------
@composite(ns="Tensor", method=True)
def to_dense(input: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None):
    """The tensor with its zeros written out; itself if it is not sparse. Its gradient has the sparse tensor's pattern."""
    t = dense_of(input) if is_sparse(input) else input
    return t if dtype is None else t.to(dtype)


@composite(ns="Tensor", method=True)
def to_sparse(input: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None):
    """The tensor in a sparse layout (COO by default). `sparse_dim`: how many leading dimensions have indices; the others stay dense."""
    if isinstance(sparse_dim, L.layout):
        layout, sparse_dim = sparse_dim, None
    if sparse_dim is not None and not is_sparse(input) and not 0 <= sparse_dim <= input.dim() or sparse_dim == 0 and input.dim():
        raise RuntimeError(f"sparse_dim argument must be in [0,{input.dim()}] range, but {sparse_dim} is given")
    return to_layout(input, "sparse_coo" if layout is None else layout.name, blocksize, dense_dim, sparse_dim)


def _to(name: str, layout: str) -> None:
    if layout.startswith("sparse_bs"):
        def convert(input: Tensor, blocksize: Any, dense_dim: int | None = None):
            return to_layout(input, layout, blocksize, dense_dim)
    else:
        def convert(input: Tensor, dense_dim: int | None = None):  # type: ignore[misc]
            return to_layout(input, layout, None, dense_dim)
    convert.__doc__ = f"The tensor in the {COMPRESSED.get(layout, 'COO')} layout."
    composite(convert, name=name, ns="Tensor", method=True)


for _layout in ("sparse_coo", *COMPRESSED):
    _to("to_" + _layout, _layout)


@composite(ns="Tensor", method=True)
def coalesce(input: Tensor):
    """A COO tensor with its indices in order and values of equal index added; itself if it is so already."""
    _expect(input, "coalesce", "sparse_coo")
    return coalesced(input)


@composite(ns="Tensor", method=True)
def is_coalesced(input: Tensor):
    """Whether a COO tensor is known to have its indices in order, none twice."""
    return _expect(input, "is_coalesced", "sparse_coo").coalesced  # type: ignore[attr-defined]


def _indices(input: Any) -> Any:
    return wrap(_expect(input, "_indices", "sparse_coo").indices)  # type: ignore[attr-defined]


def _values(input: Any) -> Any:
    _expect(input, "_values", "sparse_coo", *COMPRESSED)
    return values_of(input).detach()


def _coalesced_(input: Any, coalesced: bool) -> Any:
    _expect(input, "_coalesced_", "sparse_coo").coalesced = bool(coalesced)  # type: ignore[attr-defined]
    return input


@composite(ns="Tensor", method=True)
def indices(input: Tensor):
    """The indices of a coalesced COO tensor: (sparse dimensions, number of elements)."""
    a = _expect(input, "indices", "sparse_coo")
    if not a.coalesced:  # type: ignore[attr-defined]
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return _indices(input)


@composite(ns="Tensor", method=True)
def values(input: Tensor):
    """The values of a coalesced COO tensor, or of a compressed one."""
    a = _expect(input, "values", "sparse_coo", *COMPRESSED)
    if isinstance(a, SparseCOO) and not a.coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return values_of(input)


def _part(name: str, attribute: str, layouts: tuple[str, str], doc: str) -> None:
    def part(input: Tensor):
        return wrap(getattr(_expect(input, name, *layouts), attribute))
    part.__doc__ = doc
    composite(part, name=name, ns="Tensor", method=True)


_part("crow_indices", "ends", ("sparse_csr", "sparse_bsr"), "Where each row begins in `col_indices`, and where the last one ends.")
_part("col_indices", "plain", ("sparse_csr", "sparse_bsr"), "The columns of the elements (blocks), row by row.")
_part("ccol_indices", "ends", ("sparse_csc", "sparse_bsc"), "Where each column begins in `row_indices`, and where the last one ends.")
_part("row_indices", "plain", ("sparse_csc", "sparse_bsc"), "The rows of the elements (blocks), column by column.")


def _nnz(input: Any) -> int:
    if not is_sparse(input):
        raise NotImplementedError("Could not run 'aten::_nnz' with arguments from the 'CPU' backend: it is for sparse tensors")
    return input._a.nnz


@composite(ns="Tensor", method=True)
def sparse_dim(input: Tensor):
    """How many dimensions have indices: 0 for an ordinary tensor."""
    a = input._a
    return 0 if not isinstance(a, SparseArray) else a.sparse_dim if isinstance(a, SparseCOO) else a.batch + 2  # type: ignore[attr-defined]


@composite(ns="Tensor", method=True)
def dense_dim(input: Tensor):
    """How many dimensions the values have beside their count: all for an ordinary tensor."""
    a = input._a
    return a.ndim - a.sparse_dim if isinstance(a, SparseCOO) else a.dense_dim if isinstance(a, SparseCompressed) else a.ndim


@composite(ns="Tensor", method=True)
def sparse_mask(input: Tensor, mask: Tensor):
    """The elements of a tensor, dense or sparse, at the places of the sparse `mask`. RuntimeError unless the sizes agree."""
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): mask must be a sparse tensor")
    if tuple(input.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(input.shape)} but mask has size {list(mask.shape)}")
    if isinstance(mask._a, SparseCOO):
        mask = coalesced(mask.detach())
    a = mask._a
    shape = (*a.values.shape[:1], *input.shape[a.sparse_dim:]) if isinstance(a, SparseCOO) else a.values.shape
    return make(values_at(input, a.with_values(np.broadcast_to(np.zeros((), input._a.dtype), shape))), a)


def _resized(input: Any, size: Any, sparse_dim: int, dense_dim: int, clear: bool) -> Any:
    a = _expect(input, "sparse_resize_", "sparse_coo")
    size = tuple(size)
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}")
    if clear or not a.nnz:
        input._a = _empty(size, sparse_dim, a.dtype)
        return input
    if sparse_dim != a.sparse_dim or dense_dim != a.ndim - a.sparse_dim or any(n < m for n, m in zip(size, a.shape, strict=True)):  # type: ignore[attr-defined]
        raise RuntimeError(f"sparse_resize_: a tensor with elements can only grow, but {list(a.shape)} is to become {list(size)}")
    grown = np.zeros((a.nnz, *size[sparse_dim:]), a.dtype)
    grown[(slice(None), *(slice(n) for n in a.values.shape[1:]))] = a.values
    input._a = SparseCOO(a.indices, grown, size, a.coalesced)  # type: ignore[attr-defined]
    return input


def _empty(size: tuple[int, ...], sparse_dim: int, dtype: Any) -> SparseCOO:
    return SparseCOO(np.zeros((sparse_dim, 0), np.int64), np.zeros((0, *size[sparse_dim:]), dtype), size, True)


def empty_of(size: tuple[int, ...], layout: str, dtype: Any) -> SparseArray:
    """A sparse array of zeros. RuntimeError where the layout wants another number of dimensions."""
    if layout == "sparse_coo":
        return _empty(size, len(size), dtype)
    if layout not in ("sparse_csr", "sparse_csc"):
        raise RuntimeError(f"empty: Expected a layout without blocks, but got torch.{layout}")
    if len(size) < 2:
        raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(size)}")
    n = size[-2] if layout == "sparse_csr" else size[-1]
    lead = size[:-2]
    return SparseCompressed(layout, np.zeros((*lead, n + 1), np.int64), np.zeros((*lead, 0), np.int64), np.zeros((*lead, 0), dtype), size)


T._indices, T._values, T._nnz, T._coalesced_ = _indices, _values, _nnz, _coalesced_  # type: ignore[attr-defined]
T._dimI, T._dimV = (lambda self: sparse_dim.fn(self)), (lambda self: dense_dim.fn(self))  # type: ignore[attr-defined]
T.sparse_resize_ = lambda self, size, sparse_dim, dense_dim: _resized(self, size, sparse_dim, dense_dim, False)  # type: ignore[attr-defined]
T.sparse_resize_and_clear_ = lambda self, size, sparse_dim, dense_dim: _resized(self, size, sparse_dim, dense_dim, True)  # type: ignore[attr-defined]


# --- making them ------------------------------------------------------------------------------------------------------
def _given(name: str, x: Any, dtype: Any = None) -> Any:
    """Indices or values as a tensor; ordinary data are taken as `tensor` does."""
    if isinstance(x, T):
        return x if dtype is None or x.dtype is dtype else x.to(dtype)
    return f("tensor")(x, dtype=dtype)


def _whole(name: str, x: Any) -> np.ndarray:
    t = _given(name, x)
    a = t._a
    if not isinstance(a, np.ndarray):
        raise NotImplementedError(f"{name}(): sparse tensors on the meta device are not supported")
    return a.astype(np.int64) if a.dtype != np.int64 or a.size == 0 else a


def check_coo(indices: np.ndarray, size: tuple[int, ...]) -> None:
    """RuntimeError for an index that is not within the sizes."""
    for d, (i, n) in enumerate(zip(indices, size, strict=False)):
        if i.size and i.min() < 0:
            raise RuntimeError(f"found negative index {i.min()} for dim {d}")
        if i.size and i.max() >= n:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {n} but found index {i.max()}")


def check(a: SparseArray) -> None:
    """RuntimeError for a record whose indices do not fit its sizes, or are not in the order that it claims."""
    if isinstance(a, SparseCOO):
        check_coo(a.indices, a.shape)
        if a.coalesced and a.nnz > 1 and (np.diff(a.keys()) <= 0).any():
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")
    else:
        _check_compressed("sparse_compressed_tensor", a.layout, a.ends, a.plain, a.values, a.shape)  # type: ignore[attr-defined]


def _finish(name: str, v: Any, pattern: SparseArray, device: Any, requires_grad: bool) -> Any:
    if device is not None:
        from ..core.device import as_device
        if as_device(device).type != "cpu":
            raise NotImplementedError(f"{name}(): sparse tensors are on the CPU only, not on {as_device(device)}")
    t = make(v, pattern)
    if requires_grad:
        t = t.detach().requires_grad_()
    return t


@composite(ns="torch")
def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None):
    """The sparse tensor with `values` (nnz, *dense sizes) at `indices` (sparse dimensions, nnz), which are added up where an index comes
    twice. `size` is as small as the indices allow if not given; without indices and values an empty tensor of `size`.

    RuntimeError for indices that are negative or not within `size` (unless check_invariants=False), and for counts that differ."""
    name = "sparse_coo_tensor"
    if indices is None or isinstance(indices, (tuple, list, Size)) and values is None and size is None and all(isinstance(n, int) for n in indices):
        size = tuple(indices if size is None else size)  # type: ignore[arg-type]
        return _finish(name, wrap(np.zeros(0, (dtype or D.default[0]).np)), _empty(size, len(size), (dtype or D.default[0]).np), device, requires_grad)
    at = _whole(name, indices)
    v = _given(name, values, dtype)
    if at.ndim != 2:
        if at.size or v.numel():
            raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
        at = at.reshape(0 if size is None else len(tuple(size)) - max(v.dim() - 1, 0), 0)
    if v.dim() == 0 or at.shape[1] != v.shape[0]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, nnz from values: {v.shape[0] if v.dim() else 1}")
    n, dense = at.shape[0], v.dim() - 1
    if size is None:
        if at.size and at.min() < 0:
            raise RuntimeError(f"found negative index {at.min()} for dim {int(np.argwhere(at < 0)[0][0])}")
        size = (*((int(i.max()) + 1 if i.size else 0) for i in at), *v.shape[1:])
    else:
        size = tuple(int(s) for s in size)
        if len(size) != n + dense:
            raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {n}, dense_dim = {dense}")
        if tuple(v.shape[1:]) != size[n:]:
            raise RuntimeError(f"values has incorrect size, expected {[v.shape[0], *size[n:]]}, got {list(v.shape)}")
        if check_invariants is not False:
            check_coo(at, size)
    pattern = SparseCOO(at, v._a, size, False)
    pattern.coalesced = bool(is_coalesced) or is_coalesced is None and at.shape[1] < 2
    if is_coalesced and check_invariants is not False:
        check(pattern)
    return _finish(name, v, pattern, device, requires_grad)


def _check_compressed(name: str, layout: str, ends: np.ndarray, plain: np.ndarray, v: Any, size: tuple[int, ...]) -> None:
    rows, columns = ("crow_indices", "col_indices") if layout in ("sparse_csr", "sparse_bsr") else ("ccol_indices", "row_indices")
    r, c = v.shape[ends.ndim:ends.ndim + 2] if layout.startswith("sparse_bs") else (1, 1)
    b = ends.ndim - 1
    shape = (size[b] // r, size[b + 1] // c)
    n, m = shape if layout in ("sparse_csr", "sparse_bsr") else shape[::-1]
    if ends.shape[-1] != n + 1:
        raise RuntimeError(f"{rows}.shape[-1] must be equal to the number of {'rows' if rows[1] == 'r' else 'columns'} plus one (={n + 1}), but got {ends.shape[-1]}")
    if plain.shape[-1] != v.shape[b]:
        raise RuntimeError(f"number of {columns} (={plain.shape[-1]}) must be equal to the number of values (={v.shape[b]})")
    if (ends[..., 0] != 0).any():
        raise RuntimeError(f"`{rows}[..., 0] == 0` is not satisfied.")
    if (ends[..., -1] != plain.shape[-1]).any():
        raise RuntimeError(f"`{rows}[..., -1] == nnz` is not satisfied.")
    if (np.diff(ends, axis=-1) < 0).any():
        raise RuntimeError(f"`0 <= {rows}[..., 1:] - {rows}[..., :-1] <= {m}` is not satisfied.")
    if plain.size and (plain.min() < 0 or plain.max() >= m):
        raise RuntimeError(f"`0 <= {columns} < {m}` is not satisfied.")
    if plain.ndim == 1 and plain.size > 1:
        within = np.ones(plain.size - 1, bool)
        borders = ends[1:-1]
        within[borders[(borders > 0) & (borders < plain.size)] - 1] = False
        if (np.diff(plain)[within] <= 0).any():
            raise RuntimeError(f"`{columns}[..., {rows}[..., i - 1]:{rows}[..., i]] for all i = 1, ..., n are sorted and distinct along the last dimension values` "
                               "is not satisfied.")


def _compressed(name: str, layout: str, ends: Any, plain: Any, given: Any, size: Any, dtype: Any, device: Any, requires_grad: bool, check: bool | None) -> Any:
    e, p = _given(name, ends)._a, _given(name, plain)._a
    for what, a in (("compressed", e), ("plain", p)):
        if a.dtype.kind != "i" or a.dtype.itemsize < 4:
            raise RuntimeError(f"{name}(): {what} indices must be int32 or int64, but got {D.of(a.dtype).name}")
    v = _given(name, given, dtype)
    blocked = layout.startswith("sparse_bs")
    b = e.ndim - 1
    if b < 0 or p.ndim != e.ndim or v.dim() < p.ndim + (2 if blocked else 0):
        raise RuntimeError(f"{name}(): the indices must have equal numbers of dimensions and the values at least {p.ndim + (2 if blocked else 0)}, but got "
                           f"{e.ndim}, {p.ndim} and {v.dim()}")
    if size is None:
        r, c = v.shape[b + 1:b + 3] if blocked else (1, 1)
        long, wide = e.shape[-1] - 1, int(p.max()) + 1 if p.size else 0
        pair = (long * r, wide * c) if layout in ("sparse_csr", "sparse_bsr") else (wide * r, long * c)
        size = (*e.shape[:-1], *pair, *v.shape[b + (3 if blocked else 1):])
    size = tuple(int(n) for n in size)
    if len(size) < b + 2:
        raise RuntimeError(f"{name}(): size must have at least {b + 2} entries, but got {list(size)}")
    if check is not False:
        _check_compressed(name, layout, e, p, v, size)
    return _finish(name, v, SparseCompressed(layout, e, p, v._a, size), device, requires_grad)


def _compressed_constructor(layout: str) -> None:
    first, second = ("crow_indices", "col_indices") if layout in ("sparse_csr", "sparse_bsr") else ("ccol_indices", "row_indices")
    name = layout + "_tensor"
    env: dict[str, Any] = {"compressed": _compressed}
    exec(f"""def {name}({first}, {second}, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
    return compressed({name!r}, {layout!r}, {first}, {second}, values, size, dtype, device, requires_grad, check_invariants)""", env)
    fn = env[name]
    fn.__doc__ = (f"The {COMPRESSED[layout]} tensor: `{first}` says where each {'row' if first == 'crow_indices' else 'column'} begins in `{second}` and `values`. "
                  "`size` is as small as the indices allow if not given. RuntimeError for indices that do not fit (unless check_invariants=False).")
    composite(fn, ns="torch")


for _layout in COMPRESSED:
    _compressed_constructor(_layout)


@composite(ns="torch")
def sparse_compressed_tensor(compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None, layout: Any = None,
                             device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None):
    """A CSR, CSC, BSR or BSC tensor, as `layout` says."""
    if layout is None or layout.name not in COMPRESSED:
        raise RuntimeError(f"sparse_compressed_tensor expected sparse compressed tensor layout but got {layout}")
    return _compressed("sparse_compressed_tensor", layout.name, compressed_indices, plain_indices, values, size, dtype, device, requires_grad, check_invariants)


def old_constructor(dtype: DType) -> Any:
    """`torch.sparse.FloatTensor(indices, values, size)`, `(*sizes)`, `()`."""
    def construct(*args: Any) -> Any:
        if not args:
            args = (Size((0,)),)
        if isinstance(args[0], int) or isinstance(args[0], Size):
            size = tuple(args[0] if isinstance(args[0], Size) else args)
            return f("sparse_coo_tensor")(size=size, dtype=dtype)
        if args[1].dtype is not dtype:
            raise TypeError(f"expected values of {dtype!r}, but got {args[1].dtype!r}")
        return f("sparse_coo_tensor")(*args)
    return construct

