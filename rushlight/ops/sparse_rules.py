"""What operators do with sparse operands: a rule for each that can. Those of `torch.sparse` are in sparse_functions.py.

`execute.run` finds the rule of a record when an operand is sparse. A record without one runs its body if it is a composite and is
otherwise refused by name. Rules are written in tensor operators on the values, so that gradients of any order come with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.sparse import SparseArray, SparseCompressed, SparseCOO
from ..core import dtype as D
from ..core.promotion import can_cast, result_of
from ..core.tensor import Tensor as T
from ..core.tensor import bump, wrap
from . import declare, execute
from .copy import _to_copy
from .declare import structural
from .execute import normalize_dims
from .nn_common import f
from .reduce import _norm2
from .sparse import (
    coalesced,
    compressed_of,
    coo_of,
    coordinates,
    empty_of,
    is_sparse,
    make,
    same_pattern,
    to_layout,
    values_at,
    values_of,
)

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex


def rule(*names: str) -> Any:
    """Declare what the records of these (qualified) names do with sparse operands; the function takes the operator's arguments."""
    def put(fn: Any) -> Any:
        for n in names:
            declare.OPERATORS[n].sparse(fn)
        return fn
    return put


def layout_name(t: Any) -> str:
    return f"torch.{t._a.layout}" if is_sparse(t) else "torch.strided"


def run(op: Any, values: tuple) -> Any:
    """A call with a sparse operand."""
    c = execute.capture[0]
    if c is not None:
        c.fail(f"{op.name} has a sparse operand")
    if op.sparse_rule is not None:
        return op.sparse_rule(*values)
    if op.kind == "composite":
        return op.body(*values)
    layouts = sorted({layout_name(t) for v in values for t in (v if isinstance(v, (list, tuple)) else (v,)) if is_sparse(t)})
    raise NotImplementedError(f"Could not run 'aten::{op.name}' with arguments from the 'SparseCPU' backend: {op.name} is not implemented for tensors of layout "
                              f"{', '.join(layouts)}; use .to_dense() first")


def run_inplace(op: Any, values: tuple) -> Any:
    """The form `name_` with a sparse operand."""
    from .inplace import check_writable
    t = values[0]
    c = execute.capture[0]
    if c is not None:
        c.fail(f"{op.name}_ has a sparse operand")
    recording = check_writable(t, op.name + "_")
    if not is_sparse(t) and op.name in ("add", "sub") and not (recording and any(getattr(v, "requires_grad", False) for v in values)):
        return _add_into(t, values[1], values[2] if op.name == "add" else -values[2])
    r = run(op, values)
    if r._a.shape != t._a.shape:
        raise RuntimeError(f"output with shape {list(t._a.shape)} doesn't match the broadcast shape {list(r._a.shape)}")
    if not can_cast(r.dtype, t.dtype):
        raise RuntimeError(f"result type {r.dtype!r} can't be cast to the desired output type {t.dtype!r}")
    if not is_sparse(t):
        return t.copy_(r)
    if r.dtype is not t.dtype:
        r = r.to(t.dtype)
    t._a = r._a if isinstance(r._a, SparseArray) else to_layout(r, t._a.layout)._a
    bump(t)
    if r.requires_grad:
        t._node, t._rg = r._node, True
    return t


def _add_into(t: Any, other: Any, alpha: Any) -> Any:
    """`t += alpha * other` for an ordinary tensor: only the places of the sparse `other` are touched."""
    a, b = t._a, other._a.coo()
    if a.shape != b.shape:
        raise RuntimeError(f"add: expected 'self' and 'other' to have same sizes, but {list(a.shape)} and {list(b.shape)} don't match")
    if not can_cast(other.dtype, t.dtype):
        raise RuntimeError(f"result type {other.dtype!r} can't be cast to the desired output type {t.dtype!r}")
    if not b.coalesced:
        b = coalesced(wrap(b))._a
    v = b.values if alpha == 1 else np.asarray(b.values * np.asarray(alpha, b.values.dtype))
    with np.errstate(all="ignore"):
        at = tuple(b.indices)
        a[at] = (a[at] + v).astype(a.dtype)
    bump(t)
    return t


def _number_of(x: Any) -> Any:
    """A number or an ordinary 0-dim tensor, which multiply values as they are; None for others."""
    return x if not isinstance(x, T) else x if not is_sparse(x) and x.dim() == 0 else None


# --- one operand ------------------------------------------------------------------------------------------------------
LINEAR = ("neg", "conj_physical", "positive", "deg2rad", "rad2deg")
# functions that leave 0 where it is; they are not linear, so that each element must be there once
ZERO = ("abs", "sqrt", "square", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p", "sgn", "sign", "ceil", "floor", "trunc", "round",
        "frac", "erf", "erfinv", "isnan", "isinf", "isneginf", "isposinf", "signbit", "nan_to_num", "nn.functional.relu", "angle", "nn.functional.threshold")


def _unary(name: str, linear: bool) -> None:
    op = declare.OPERATORS.get(name)
    if op is None:
        return

    def apply(input: Any, *rest: Any) -> Any:
        t = input if linear or not isinstance(input._a, SparseCOO) else coalesced(input)
        return make(execute.run(op, (values_of(t), *rest)), t._a)
    op.sparse(apply)


for _name in LINEAR:
    _unary(_name, True)
for _name in ZERO:
    _unary(_name, False)


@rule("pow")
def _pow(input: Any, exponent: Any) -> Any:
    p = _number_of(exponent)
    if p is None or not is_sparse(input):
        raise NotImplementedError("pow: a sparse tensor can only be raised to the power of a number")
    if p == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    t = coalesced(input) if isinstance(input._a, SparseCOO) else input
    return make(values_of(t).pow(p), t._a)


@rule("clone")
def _clone(input: Any, memory_format: Any = None) -> Any:
    a = input._a
    return make(values_of(input).clone(), a.map(lambda x: x.copy()))


def _cast(input: Any, dtype: Any, memory_format: Any = None) -> Any:
    return make(values_of(input).to(dtype), input._a)


_to_copy.sparse(_cast)


# --- two operands -----------------------------------------------------------------------------------------------------
def _like(t: Any, layout: str) -> Any:
    return t if t._a.layout == layout else to_layout(t, layout)


@rule("add")
def _add(input: Any, other: Any, alpha: Any = 1) -> Any:
    if is_sparse(input) and is_sparse(other):
        if tuple(input.shape) != tuple(other.shape):
            raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}")
        a, b = input._a, other._a
        dtype = D.of(_common(input, other))
        if a.__class__ is b.__class__ and a.layout == b.layout and a.values.shape == b.values.shape and same_pattern(a, b):
            x, y = values_of(input), values_of(other)
            return make(f("add")(x, y, alpha=alpha), a if not isinstance(b, SparseCOO) or a.coalesced else b)
        x, y = coo_of(input), coo_of(other)
        if x._a.sparse_dim != y._a.sparse_dim:
            raise RuntimeError(f"add: expected 'self' and 'other' to have same number of sparse dimensions, but {x._a.sparse_dim} != {y._a.sparse_dim}")
        v = f("cat")([values_of(x).to(dtype), f("mul")(values_of(y).to(dtype), alpha) if alpha != 1 else values_of(y).to(dtype)])
        both = coalesced(make(v, SparseCOO(np.concatenate([x._a.indices, y._a.indices], 1), v._a, a.shape)))
        return both if isinstance(a, SparseCOO) else _back(both, a)
    if is_sparse(input):
        if isinstance(input._a, SparseCOO) or not isinstance(other, T):
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        return _add(f("mul")(other, alpha) if alpha != 1 else other, input)
    if not isinstance(input, T) or tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, but a tensor of sizes {list(getattr(input, 'shape', ()))} cannot be added to a sparse "
                           f"one of sizes {list(other.shape)}")
    dtype = D.of(_common(input, other))
    at = coordinates(other._a)
    v = values_of(other).to(dtype)
    v = f("mul")(v, alpha) if alpha != 1 else v
    if not at.shape[0]:
        return input.to(dtype) + v.sum(0)
    v = v.reshape((at.shape[1], *other.shape[at.shape[0]:]))
    return f("index_put")(input.to(dtype), tuple(wrap(np.ascontiguousarray(i)) for i in at), v, True)


def _common(a: Any, b: Any) -> np.dtype:
    """The dtype that two tensors have in common, as arrays of the tensors' dimensions."""
    def probe(t: Any) -> np.ndarray:
        return np.empty((1,) * t.dim(), t._a.dtype)
    return result_of((probe(a), probe(b))).np


def _back(t: Any, a: Any) -> Any:
    """A COO tensor in the layout of the record `a`."""
    return compressed_of(t, a.layout, a.block if a.blocked else None)


@rule("sub")
def _sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return _add(input, other, -alpha)


@rule("rsub")
def _rsub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return _add(other, input, -alpha)


@rule("mul")
def _mul(input: Any, other: Any) -> Any:
    if not is_sparse(input):
        input, other = other, input
    n = _number_of(other)
    if n is not None:
        return make(f("mul")(values_of(input), n), input._a)
    if not is_sparse(other):
        a = input._a
        if tuple(np.broadcast_shapes(tuple(input.shape), tuple(other.shape))) != tuple(input.shape):
            raise RuntimeError(f"mul(sparse, dense): a dense tensor of sizes {list(other.shape)} cannot be broadcast to {list(input.shape)}")
        return make(f("mul")(values_of(input), values_at(other.expand(tuple(input.shape)), a)), a)
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"mul: expected sizes of 'self' and 'other' to match, but {list(input.shape)} != {list(other.shape)}")
    a = input._a
    x, y = coalesced(coo_of(input)), coalesced(coo_of(other))
    if x._a.sparse_dim != y._a.sparse_dim:
        raise RuntimeError(f"mul: expected 'self' and 'other' to have same number of sparse dimensions, but {x._a.sparse_dim} != {y._a.sparse_dim}")
    _, i, j = np.intersect1d(x._a.keys(), y._a.keys(), assume_unique=True, return_indices=True)
    v = values_of(x).index_select(0, wrap(i)) * values_of(y).index_select(0, wrap(j))
    both = make(v, SparseCOO(np.ascontiguousarray(x._a.indices[:, i]), v._a, a.shape, True))
    return both if isinstance(a, SparseCOO) else _back(both, a)


@rule("div")
def _div(input: Any, other: Any, rounding_mode: Any = None) -> Any:
    n = _number_of(other)
    if n is None or not is_sparse(input):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor "
                           f"(got shape {list(getattr(other, 'shape', ()))} for divisor)")
    t = coalesced(input) if rounding_mode is not None and isinstance(input._a, SparseCOO) else input
    return make(f("div")(values_of(t), n, rounding_mode=rounding_mode), t._a)


@rule("Tensor.copy")
def _copy(input: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_sparse(input) or not is_sparse(src):
        raise RuntimeError(f"copy_() between dense and sparse Tensors is not implemented! Found self of layout {layout_name(input)} and src of layout {layout_name(src)}")
    return _cast(_like(src, input._a.layout), input.dtype)


@rule("zero")
def _zero(input: Any) -> Any:
    a = input._a
    if isinstance(a, SparseCOO):
        return wrap(SparseCOO(a.indices[:, :0], a.values[:0], a.shape, True))
    return make(f("zeros_like")(values_of(input).detach()), a)


def _zeros_like(input: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Any:
    a = input._a
    d = (dtype or input.dtype).np
    name = layout.name if layout is not None else a.layout
    if name == "strided":
        t = wrap(np.zeros(a.shape, d))
    elif name == "sparse_coo" and isinstance(a, SparseCOO):
        t = wrap(SparseCOO(a.indices[:, :0], a.values[:0].astype(d), a.shape, True))
    else:
        t = wrap(empty_of(a.shape, name, d))
    return t.requires_grad_() if requires_grad else t


for _name in ("zeros_like", "empty_like"):
    _op = declare.OPERATORS[_name]
    _op.sparse(lambda *v, names=tuple(p.name for p in _op.params): _zeros_like(**dict(zip(names, v, strict=True))))


# --- products ---------------------------------------------------------------------------------------------------------
@structural(public=False, name="sparse_mm", out=False)
def product(values: Tensor, rows: Tensor, columns: Tensor, dense: Tensor, n: int):
    """(n, k): the product of the matrix with `values` at (`rows`, `columns`) and a dense matrix."""
    from scipy.sparse import coo_matrix
    dtype = np.result_type(values.dtype, dense.dtype)
    if dtype.kind == "b":
        dtype = np.dtype(np.uint8)
    return coo_matrix((values.astype(dtype, copy=False), (rows, columns)), shape=(n, dense.shape[0])).tocsr() @ dense.astype(dtype, copy=False)


product.shape(lambda values, rows, columns, dense, n: (n, dense.shape[1]))
product.gradient(
    values=lambda grad, rows, columns, dense: (grad.index_select(0, rows) * _conj(dense).index_select(0, columns)).sum(1),
    dense=lambda grad, values, rows, columns, dense_meta: product.function(_conj(values), columns, rows, grad, dense_meta.shape[0]))


def _conj(t: Any) -> Any:
    return f("conj_physical")(t) if t.dtype.is_complex else t


def matrix(name: str, t: Any) -> tuple[Any, Any, Any]:
    """(values, rows, columns) of a sparse matrix."""
    a = t._a
    if a.ndim != 2 or isinstance(a, SparseCOO) and a.sparse_dim != 2:
        raise RuntimeError(f"{name}: Expected a matrix of two sparse dimensions, but got a tensor of sizes {list(a.shape)}")
    at = coordinates(a)
    return values_of(t).reshape((at.shape[1],)), wrap(np.ascontiguousarray(at[0])), wrap(np.ascontiguousarray(at[1]))


def require_product(name: str, a: Any, b: Any) -> None:
    if a.dim() != 2 or b.dim() != 2:
        raise RuntimeError(f"{name}: Expected 2D (or 1D, vector) tensors, but got {a.dim()}D and {b.dim()}D")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"{name}: Argument #3: Expected dim 0 size {a.shape[1]}, got {b.shape[0]} (of matrices {list(a.shape)} and {list(b.shape)})")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype!r} != {b.dtype!r}")


@rule("mm")
def _mm(input: Any, mat2: Any) -> Any:
    require_product("mm", input, mat2)
    if is_sparse(input) and is_sparse(mat2):
        return _sparse_times_sparse(input, mat2)
    if is_sparse(input):
        v, i, j = matrix("mm", input)
        return product.function(v, i, j, mat2, input.shape[0])
    v, i, j = matrix("mm", mat2)
    return product.function(v, j, i, input.t(), mat2.shape[1]).t()


def _sparse_times_sparse(x: Any, y: Any) -> Any:
    a = x._a
    x, y = coalesced(coo_of(x)), coalesced(coo_of(y))
    i, k = x._a.indices
    ends = np.searchsorted(y._a.indices[0], np.arange(y.shape[0] + 1))
    count = np.diff(ends)[k]                                       # how many elements of y each one of x meets
    mine = np.repeat(np.arange(len(k)), count)
    theirs = np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(ends[k], count)
    v = values_of(x).index_select(0, wrap(mine)) * values_of(y).index_select(0, wrap(theirs))
    at = np.stack([i[mine], y._a.indices[1][theirs]]) if len(mine) else np.zeros((2, 0), np.int64)
    both = coalesced(make(v, SparseCOO(at, v._a, (x.shape[0], y.shape[1]))))
    return both if isinstance(a, SparseCOO) or a.blocked else _back(both, a)


@rule("mv")
def _mv(input: Any, vec: Any) -> Any:
    if vec.dim() != 1 or input.dim() != 2 or input.shape[1] != vec.shape[0]:
        raise RuntimeError(f"mv: size mismatch, got input ({list(input.shape)}), vec ({list(vec.shape)})")
    return _mm(input, vec.unsqueeze(1)).squeeze(1)


@rule("bmm")
def _bmm(input: Any, mat2: Any) -> Any:
    if not is_sparse(input) or is_sparse(mat2):
        raise NotImplementedError("bmm: only a sparse times a dense batch is implemented")
    b, n, m = input.shape
    if mat2.dim() != 3 or mat2.shape[0] != b or mat2.shape[1] != m:
        raise RuntimeError(f"bmm: Argument #3: Expected sizes ({b}, {m}, *), but got {list(mat2.shape)}")
    at = coordinates(input._a)
    rows, columns = at[0] * n + at[1], at[0] * m + at[2]
    r = product.function(values_of(input).reshape((at.shape[1],)), wrap(rows), wrap(columns), mat2.reshape((b * m, -1)), b * n)
    return r.reshape((b, n, mat2.shape[2]))


@rule("addmm")
def add_product(input: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    p = _mm(mat1, mat2) if is_sparse(mat1) or is_sparse(mat2) else f("mm")(mat1, mat2)
    p = p if alpha == 1 else p * alpha
    if is_sparse(input) and not is_sparse(p):
        raise RuntimeError(f"addmm: a sparse tensor of sizes {list(input.shape)} cannot be added to a dense product: use sspaddmm or .to_dense()")
    return p if beta == 0 else (input if beta == 1 else input * beta) + p


# --- sums -------------------------------------------------------------------------------------------------------------
@rule("sum")
def _sum(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    a = input._a
    dims = normalize_dims(dim, a.ndim, "sum")
    if len(dims) == a.ndim and not keepdim:
        return values_of(input).sum(dtype=dtype)
    t = coo_of(input)
    a, n = t._a, t._a.sparse_dim
    v = values_of(t)
    dense = tuple(d - n + 1 for d in dims if d >= n)
    if dense or dtype is not None or v.dtype.category <= D.INTEGER:
        v = v.sum(dense, keepdim, dtype=dtype) if dense else v.to(dtype or D.int64)
    gone = [d for d in dims if d < n]
    shape = tuple(1 if d in dims else s for d, s in enumerate(a.shape) if keepdim or d not in dims)
    if len(gone) == n and not keepdim:
        return v.sum(0)
    at = a.indices.copy() if keepdim else a.indices[[d for d in range(n) if d not in gone]]
    if keepdim:
        at[gone] = 0
    r = make(v, SparseCOO(at, v._a, shape, a.coalesced and not gone))
    r = coalesced(r)
    return r if isinstance(input._a, SparseCOO) else _in_layout(r, input._a)


def _in_layout(t: Any, a: SparseCompressed) -> Any:
    return _back(t, a) if t._a.sparse_dim == 2 and not a.blocked else t


@rule("any")
def _any(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None and dim != ():
        raise NotImplementedError("any: a sparse tensor is reduced as a whole only")
    return values_of(coalesced(input) if isinstance(input._a, SparseCOO) else input).any()


@rule("linalg.vector_norm")
def _norm(input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dim is not None and len(normalize_dims(dim, input.dim())) != input.dim() or keepdim:
        raise RuntimeError("norm: Expected a full reduction of a sparse tensor, without keepdim")
    v = values_of(coalesced(input) if isinstance(input._a, SparseCOO) else input)
    return f("linalg.vector_norm")(v.reshape((-1,)), 2 if p in ("fro", None) else p, dtype=dtype)


_norm2.sparse(lambda input, dim, keepdim: _norm(input, 2, dim, keepdim))


# --- shapes -----------------------------------------------------------------------------------------------------------
def _coo_only(name: str, t: Any) -> SparseCOO:
    if not isinstance(t._a, SparseCOO):
        raise NotImplementedError(f"{name} is not implemented for tensors of layout {layout_name(t)}")
    return t._a


FLIPPED = {"sparse_csr": "sparse_csc", "sparse_csc": "sparse_csr", "sparse_bsr": "sparse_bsc", "sparse_bsc": "sparse_bsr"}


@rule("transpose")
def _transpose(input: Any, dim0: int, dim1: int) -> Any:
    a = input._a
    i, j = (normalize_dims((d,), a.ndim, "transpose")[0] for d in (dim0, dim1))
    order = list(range(a.ndim))
    order[i], order[j] = j, i
    if isinstance(a, SparseCompressed):
        if {i, j} != {a.ndim - 2, a.ndim - 1} or a.batch or a.dense_dim:
            raise RuntimeError(f"transpose: only the two sparse dimensions of a {layout_name(input)} tensor can be exchanged, got {dim0} and {dim1}")
        v = values_of(input)
        v = v.transpose(1, 2).contiguous() if a.blocked else v
        return make(v, SparseCompressed(FLIPPED[a.layout], a.ends, a.plain, v._a, a.shape[::-1]))
    return _permute(input, order)


@rule("t")
def _t(input: Any) -> Any:
    if input.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {input.dim()}D")
    return input if input.dim() < 2 else _transpose(input, 0, 1)


@rule("permute")
def _permute(input: Any, dims: Any) -> Any:
    a = _coo_only("permute", input)
    n = a.sparse_dim
    order = [d % a.ndim for d in dims]
    if sorted(order) != list(range(a.ndim)):
        raise RuntimeError(f"permute(sparse_coo): dims {list(dims)} are not an order of the {a.ndim} dimensions")
    if any(d >= n for d in order[:n]):
        raise RuntimeError("transpose: can't exchange sparse and dense dimensions of a tensor: they must stay among themselves")
    v = values_of(input)
    if order[n:] != list(range(n, a.ndim)):
        v = v.permute((0, *(d - n + 1 for d in order[n:])))
    at = np.ascontiguousarray(a.indices[order[:n]])
    return make(v, SparseCOO(at, v._a, tuple(a.shape[d] for d in order), a.coalesced and order[:n] == list(range(n))))


@rule("unsqueeze")
def _unsqueeze(input: Any, dim: int) -> Any:
    a = _coo_only("unsqueeze", input)
    if not -a.ndim - 1 <= dim <= a.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-a.ndim - 1}, {a.ndim}], but got {dim})")
    d = dim % (a.ndim + 1)
    shape = (*a.shape[:d], 1, *a.shape[d:])
    if d <= a.sparse_dim:
        at = np.insert(a.indices, d, 0, 0)
        return make(values_of(input), SparseCOO(at, a.values, shape, a.coalesced))
    v = values_of(input).unsqueeze(d - a.sparse_dim + 1)
    return make(v, SparseCOO(a.indices, v._a, shape, a.coalesced))


def _chosen(t: Any, keep: np.ndarray, indices: np.ndarray, shape: tuple[int, ...], ordered: bool) -> Any:
    """The elements `keep` with new indices."""
    v = values_of(t).index_select(0, wrap(keep))
    return make(v, SparseCOO(np.ascontiguousarray(indices), v._a, shape, ordered))


@rule("select")
def _select(input: Any, dim: int, index: int) -> Any:
    t = coo_of(input)
    a = t._a
    (d,) = normalize_dims((dim,), a.ndim, "select")
    size = a.shape[d]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(a.shape)} at dimension {d}")
    index %= size
    shape = (*a.shape[:d], *a.shape[d + 1:])
    n = a.sparse_dim
    if d >= n:
        v = values_of(t).select(d - n + 1, index)
        return make(v, SparseCOO(a.indices, v._a, shape, a.coalesced))
    keep = np.flatnonzero(a.indices[d] == index)
    if n == 1:
        return values_of(t).index_select(0, wrap(keep)).sum(0)
    return _chosen(t, keep, np.delete(a.indices[:, keep], d, 0), shape, a.coalesced)


@rule("unbind")
def _unbind(input: Any, dim: int = 0) -> Any:
    (d,) = normalize_dims((dim,), input.dim(), "unbind")
    return tuple(_select(input, d, i) for i in range(input.shape[d]))


def _between(input: Any, dim: int, start: int, end: int) -> Any:
    t = coo_of(input)
    a = t._a
    n = a.sparse_dim
    shape = (*a.shape[:dim], end - start, *a.shape[dim + 1:])
    if dim >= n:
        v = values_of(t).narrow(dim - n + 1, start, end - start)
        return make(v, SparseCOO(a.indices, v._a, shape, a.coalesced))
    keep = np.flatnonzero((a.indices[dim] >= start) & (a.indices[dim] < end))
    at = a.indices[:, keep]
    at[dim] -= start
    return _chosen(t, keep, at, shape, a.coalesced)


@rule("narrow", "narrow_copy")
def _narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    (d,) = normalize_dims((dim,), input.dim(), "narrow")
    size = input.shape[d]
    start = int(start)
    start = start + size if start < 0 else start
    if start < 0 or length < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _between(input, d, start, start + length)


@rule("index_select")
def _index_select(input: Any, dim: int, index: Any) -> Any:
    t = coo_of(input)
    a, i = t._a, index._a
    (d,) = normalize_dims((dim,), a.ndim, "index_select")
    if i.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    i = np.atleast_1d(i)
    if i.size and (i.min() < 0 or i.max() >= a.shape[d]):
        raise IndexError(f"index_select(): found an index out of range for size {a.shape[d]} of dimension {d}")
    shape = (*a.shape[:d], len(i), *a.shape[d + 1:])
    if d >= a.sparse_dim:
        v = values_of(t).index_select(d - a.sparse_dim + 1, wrap(i))
        return make(v, SparseCOO(a.indices, v._a, shape, a.coalesced))
    order = np.argsort(a.indices[d], kind="stable")
    places = a.indices[d][order]
    first, last = np.searchsorted(places, i, "left"), np.searchsorted(places, i, "right")
    count = last - first
    new = np.repeat(np.arange(len(i)), count)
    keep = order[np.arange(len(new)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)] if len(new) else new
    at = a.indices[:, keep]
    at[d] = new
    r = _chosen(t, keep, at, shape, False)
    return coalesced(r) if a.coalesced else r


@rule("cat")
def _cat(tensors: Any, dim: int = 0) -> Any:
    if not all(is_sparse(t) and isinstance(t._a, SparseCOO) for t in tensors):
        raise RuntimeError(f"cat: all tensors must be sparse COO tensors, but got {', '.join(layout_name(t) for t in tensors)}")
    first = tensors[0]._a
    (d,) = normalize_dims((dim,), first.ndim, "cat")
    for t in tensors:
        a = t._a
        if a.sparse_dim != first.sparse_dim or a.ndim != first.ndim or any(p != q for k, (p, q) in enumerate(zip(a.shape, first.shape, strict=True)) if k != d):
            raise RuntimeError(f"cat: sizes of sparse tensors must match except in dimension {d}, but got {list(first.shape)} and {list(a.shape)}")
    total = sum(t._a.shape[d] for t in tensors)
    shape = (*first.shape[:d], total, *first.shape[d + 1:])
    before = np.cumsum([0, *(t._a.shape[d] for t in tensors)])
    parts, values = [], []
    for t, b in zip(tensors, before, strict=False):
        at, v = t._a.indices, values_of(t)
        if d < first.sparse_dim:
            at = at.copy()
            at[d] += b
        else:
            lead, k = v.shape[0], d - first.sparse_dim + 1
            pad = [list(v.shape), list(v.shape)]
            pad[0][k], pad[1][k] = int(b), total - int(b) - v.shape[k]
            v = f("cat")([f("zeros")(tuple(pad[0]), dtype=v.dtype), v, f("zeros")(tuple(pad[1]), dtype=v.dtype)], k) if lead else v.reshape((0, *shape[first.sparse_dim:]))
        parts.append(at)
        values.append(v)
    v = f("cat")(values)
    ordered = d == 0 and all(t._a.coalesced for t in tensors) and first.sparse_dim > 0
    return make(v, SparseCOO(np.concatenate(parts, 1), v._a, shape, ordered))


@rule("stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


def getitem(t: Any, index: Any) -> Any:
    """`t[index]`: ints, full and plain slices, None, Ellipsis, and one vector of indices."""
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in [i for i in items if not isinstance(i, T)]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at:at + 1] = [slice(None)] * (t.dim() - sum(i is not None and i is not Ellipsis for i in items))
    d = 0
    for i in items:
        if i is None:
            t = _unsqueeze(t, d)
            d += 1
        elif isinstance(i, slice):
            if t.dim() <= d:
                raise IndexError("too many indices for tensor of dimension " + str(t.dim()))
            start, stop, step = i.indices(t.shape[d])
            if step != 1:
                raise NotImplementedError("slices of sparse tensors have a step of 1")
            if (start, stop) != (0, t.shape[d]):
                t = _between(t, d, start, max(start, stop))
            d += 1
        elif isinstance(i, T) and i.dim() == 1 and i.dtype.name in ("int64", "int32"):
            t = _index_select(t, d, i)
            d += 1
        elif isinstance(i, (int, np.integer, T)) and not isinstance(i, bool) and not (isinstance(i, T) and (i.dim() or i.dtype is D.bool_)):
            t = f("select")(t, d, int(i))
        else:
            raise NotImplementedError(f"a sparse tensor cannot be indexed with {type(i).__name__}: use .to_dense() first")
    return t
