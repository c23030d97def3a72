"""`torch.sparse`: products, sums and softmax of sparse tensors, diagonals, and the products' old names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.sparse import SparseCOO
from ..core.tensor import Tensor as T
from ..core.tensor import wrap
from .declare import composite
from .execute import normalize_dims
from .nn_common import f
from .sparse import coalesced, is_sparse, make, to_layout, values_of
from .sparse_rules import add_product, layout_name, matrix, require_product

if TYPE_CHECKING:
    from ..core.dtype import dtype as DType
    from ..core.tensor import Tensor

    Number = int | float | complex


@composite(ns="sparse", name="mm")
def sparse_mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None):
    """The product of two matrices of which at least one is sparse; sparse if both are. With `reduce` ("sum", "mean", "amax", "amin") the
    products of a CSR matrix's row are combined in that way."""
    if reduce is None:
        return f("mm")(mat1, mat2)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise RuntimeError(f"sparse.mm: reduce must be sum, mean, amax or amin, but got {reduce}")
    if not is_sparse(mat1) or mat1._a.layout != "sparse_csr":
        raise RuntimeError(f"sparse.mm: with reduce the first matrix must be of layout torch.sparse_csr, but got {layout_name(mat1)}")
    require_product("sparse.mm", mat1, mat2)
    v, _, columns = matrix("sparse.mm", mat1)
    rows = v.unsqueeze(1) * mat2.index_select(0, columns)
    lengths = wrap(np.diff(mat1._a.ends).astype(np.int64))
    kind = {"amax": "max", "amin": "min"}.get(reduce, reduce)
    r = f("segment_reduce")(rows, kind, lengths=lengths)
    return r if reduce == "sum" else r.masked_fill((lengths == 0).unsqueeze(1), 0)


@composite(ns="sparse", name="addmm")
def sparse_addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1.0, alpha: Number = 1.0):
    """beta * mat + alpha * (mat1 @ mat2), where `mat1` is sparse."""
    return add_product(mat, mat1, mat2, beta, alpha)


@composite(ns="sparse")
def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1.0, alpha: Number = 1.0):
    """alpha * (mat1 @ mat2) at the places of the CSR matrix `input` (only these are computed), plus beta * input."""
    if not is_sparse(input) or input._a.layout != "sparse_csr":
        raise RuntimeError(f"sampled_addmm: Expected self to have sparse csr layout, but got {layout_name(input)}")
    if mat1.shape[-1] != mat2.shape[-2] or tuple(input.shape[-2:]) != (mat1.shape[-2], mat2.shape[-1]):
        raise RuntimeError(f"sampled_addmm: sizes {list(input.shape)}, {list(mat1.shape)} and {list(mat2.shape)} do not fit")
    a = input._a
    at = a.coordinates()
    lead = tuple(wrap(np.ascontiguousarray(i)) for i in at[:-2])
    rows, columns = (wrap(np.ascontiguousarray(i)) for i in at[-2:])
    p = (mat1[(*lead, rows)] * mat2.transpose(-2, -1)[(*lead, columns)]).sum(-1).reshape(a.values.shape)
    return make((p if alpha == 1 else p * alpha) + values_of(input) * beta, a)


@composite(ns="sparse", name="sum")
def sparse_sum(input: Tensor, dim: Any = None, dtype: DType | None = None):
    """The sum of a sparse tensor, or sums over dimensions: sparse unless all sparse dimensions are summed over."""
    return f("sum")(input, dim, dtype=dtype) if dim is not None else f("sum")(input, dtype=dtype)


def _softly(input: Any, dim: int, dtype: Any, log: bool) -> Any:
    t = input if dtype is None else input.to(dtype)
    name = "log_softmax" if log else "softmax"
    if not t.dtype.is_floating_point:
        raise NotImplementedError(f"\"sparse.{name}\" not implemented for '{t.dtype!r}': give a floating dtype")
    if not is_sparse(t) or not isinstance(t._a, SparseCOO):
        raise RuntimeError(f"sparse.{name}: expected a sparse COO tensor, but got layout {layout_name(t)}")
    t = coalesced(t)
    a, v = t._a, values_of(t)
    (d,) = normalize_dims((dim,), a.ndim, name)
    if d >= a.sparse_dim:
        return make(f(name)(v, d - a.sparse_dim + 1), a)
    others = SparseCOO(np.delete(a.indices, d, 0), a.values, tuple(np.delete(a.shape, d)))
    _, place, n = others.groups() if a.sparse_dim > 1 else (None, np.zeros(a.nnz, np.int64), 1)
    top = np.full((n, *a.values.shape[1:]), -np.inf, a.values.dtype if a.values.dtype.kind == "f" else np.float32)
    np.maximum.at(top, place, a.values.astype(top.dtype))
    at = wrap(place)
    x = v - wrap(top.astype(a.values.dtype)).index_select(0, at)
    e = x.exp()
    total = f("zeros")((n, *a.values.shape[1:]), dtype=v.dtype).index_add(0, at, e).index_select(0, at)
    return make(x - total.log() if log else e / total, a)


@composite(ns="sparse", name="softmax")
def sparse_softmax(input: Tensor, dim: int, *, dtype: DType | None = None):
    """`softmax` along `dim` over the elements that are there: the others count as -inf."""
    return _softly(input, dim, dtype, False)


@composite(ns="sparse", name="log_softmax")
def sparse_log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None):
    """`log_softmax` along `dim` over the elements that are there: the others count as -inf."""
    return _softly(input, dim, dtype, True)


@composite(ns="sparse")
def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None):
    """The sparse matrix whose diagonals are the rows of `diagonals`, that of offset k starting at column max(k, 0)."""
    if isinstance(diagonals, T) and diagonals.dim() == 1:
        diagonals = diagonals.unsqueeze(0)
    k = np.atleast_1d(offsets._a).astype(np.int64)
    n, m = shape
    if diagonals.dim() != 2 or diagonals.shape[0] != len(k):
        raise RuntimeError(f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({len(k)})")
    if len(np.unique(k)) != len(k):
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout is not None and layout.name not in ("sparse_coo", "sparse_csr", "sparse_csc"):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    columns = np.broadcast_to(np.arange(diagonals.shape[1]), (len(k), diagonals.shape[1]))
    rows = columns - k[:, None]
    keep = (columns < m) & (rows >= 0) & (rows < n)
    which, at = np.nonzero(keep)
    v = diagonals[(wrap(which), wrap(at))]
    t = make(v, SparseCOO(np.stack([rows[keep], columns[keep]]), v._a, (n, m)))
    return t if layout is None or layout.name == "sparse_coo" else to_layout(t, layout.name)


@composite(ns="torch", method=True)
def smm(input: Tensor, mat: Tensor):
    """The product of a sparse and a dense matrix, as a sparse one."""
    return to_layout(f("mm")(input, mat), "sparse_coo")


@composite(ns="torch", method=True)
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * (mat1 @ mat2) for a sparse `input` and `mat1`, as a sparse matrix."""
    return input * beta + smm.fn(mat1, mat2) * alpha


@composite(ns="torch")
def saddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """`sspaddmm`, by its old name."""
    return sspaddmm.fn(input, mat1, mat2, beta=beta, alpha=alpha)


@composite(ns="torch", aliases=("dsmm",))
def spmm(input: Tensor, mat2: Tensor):
    """`mm`, by its old name."""
    return f("mm")(input, mat2)


@composite(ns="torch", method=True)
def resize_as_sparse_(input: Tensor, the_template: Tensor):
    """The sparse tensor itself with the sizes and numbers of dimensions of another."""
    return input.sparse_resize_(tuple(the_template.shape), the_template.sparse_dim(), the_template.dense_dim())


@composite(ns="torch", aliases=("hsmm",))
def hspmm(mat1: Tensor, mat2: Tensor):
    """The product of a sparse COO and a dense matrix, as a tensor of one sparse dimension: the rows that have elements."""
    rows = np.unique(coalesced(mat1)._a.indices[0])
    p = f("mm")(mat1, mat2).index_select(0, wrap(rows))
    return make(p, SparseCOO(rows[None], p._a, (mat1.shape[0], mat2.shape[1]), True))

