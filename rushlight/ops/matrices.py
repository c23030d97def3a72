"""Norms of matrices, their powers, exponentials and chains of products, cross products."""

from __future__ import annotations

import builtins as B_
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.errors import warn_once
from ..core.tensor import hooks
from .declare import composite, structural
from .execute import _scalar_name, common_shape, normalize_dims, run
from .linalg import _inv_ex, batch_of, eye_like, inv, need_matrices, solve

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Tensors = list[Tensor]
    Dims = int | tuple[int, ...] | None


def f(name: str) -> Any:
    return hooks.function(name)


# --- norms ------------------------------------------------------------------------------------------------------------
def _two_dims(name: str, dim: Any, n: int) -> tuple[int, int]:
    dims = tuple(dim)
    if len(dims) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {list(dims)}")
    a, b = (normalize_dims((d,), n, name)[0] for d in dims)
    if a == b:
        raise RuntimeError(f"{name}: dims must be different. Got ({dims[0]}, {dims[1]})")
    return a, b


@composite(ns="linalg", out="same")
def matrix_norm(
    A: Tensor, ord: Number | str = "fro", dim: tuple = (-2, -1), keepdim: bool = False, *, dtype: Any = None
):
    """The norm of matrices: "fro", "nuc", 2 and -2 (largest and smallest singular value), 1 and -1 (sums of columns),
    inf and -inf (of rows)."""
    name = "linalg.matrix_norm"
    if A.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if A.dtype.category < D.FLOAT:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {_scalar_name(A.dtype)}")
    x = A if dtype is None else A.to(dtype)
    r, c = _two_dims(name, dim, A.dim())
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"{name}: Order {ord} not supported.")
        if ord == "fro":
            return f("linalg.vector_norm")(x, 2, (r, c), keepdim)
    elif abs(ord) not in (1, 2, float("inf")):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    if ord == "nuc" or abs(ord) == 2:
        if ord == 2 and not min(x.shape[r], x.shape[c]):
            return f("linalg.vector_norm")(x, 2, (r, c), keepdim)
        s = f("linalg.svdvals")(x.permute([k for k in range(x.dim()) if k not in (r, c)] + [r, c]))
        v = s.sum(-1) if ord == "nuc" else f("amax")(s, -1) if ord > 0 else f("amin")(s, -1)
    else:
        if abs(ord) == 1:
            r, c = c, r
        v = f("linalg.vector_norm")(x, 1, c, True)
        if ord > 0 and not v.shape[r]:
            v = f("cat")([v, f("zeros")([1 if k == r else n for k, n in enumerate(v.shape)], dtype=v.dtype)], r)
        v = (f("amax") if ord > 0 else f("amin"))(v, r, True)
        return v if keepdim else v.squeeze((r, c))
    if keepdim:
        for k in sorted((r, c)):
            v = v.unsqueeze(k)
    return v


@composite(ns="linalg", out="same")
def norm(A: Tensor, ord: Number | str | None = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None):
    """A vector norm (one dimension, or `ord` None: of all elements) or a matrix norm (two dimensions, or a matrix and
    an `ord`)."""
    if dim is None:
        if ord is None:
            return f("linalg.vector_norm")(A, 2, None, keepdim, dtype=dtype)
        if A.dim() == 1 and not isinstance(ord, str):
            return f("linalg.vector_norm")(A, ord, None, keepdim, dtype=dtype)
        if A.dim() not in (1, 2):
            raise RuntimeError(
                f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D."
            )
        return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if len(dims) == 1 or ord is None:
        if isinstance(ord, str):
            raise RuntimeError(f"linalg.norm: dim must be a 2-tuple for the norm {ord}. Got {list(dims)}")
        return f("linalg.vector_norm")(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)
    return matrix_norm(A, ord, dims, keepdim, dtype=dtype)


@composite(ns="linalg", out="cast")
def cond(A: Tensor, p: Number | str | None = None):
    """The condition numbers of matrices with respect to a norm; the ratio of the singular values by default."""
    need_matrices("linalg.cond", A)
    if p is None or p in (2, -2):
        s = f("linalg.svdvals")(A)
        if not s.shape[-1]:
            return f("zeros")(batch_of(A), dtype=s.dtype)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"linalg.cond: got an invalid norm type: {p}")
    need_matrices("linalg.cond", A, square=True)
    r, info = run(_inv_ex, (A,))
    v = matrix_norm(A, p) * matrix_norm(r, p)
    return f("where")(info != 0, f("full_like")(v, float("inf")), v) if info.is_meta or bool((info != 0).any().item()) else v


# --- products ---------------------------------------------------------------------------------------------------------
@composite(ns=("linalg", "torch"), method=True, out="same", old={"input": "A"})
def matrix_power(A: Tensor, n: int):
    """Square matrices to an integer power; negative powers are those of the inverse."""
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} "
            "matrices"
        )
    if n == 0:
        return A.clone().copy_(eye_like(A, A.shape[-1]).expand(A.shape))
    x = inv(A) if n < 0 else A
    n, r = abs(n), None
    while True:
        if n & 1:
            r = x if r is None else r @ x
        n >>= 1
        if not n:
            return r.clone() if r is A else r
        x = x @ x


@composite(ns="linalg", out="same")
def multi_dot(tensors: Tensors):
    """The product of a chain of matrices in the cheapest order; the first and the last may be vectors."""
    ts = list(tensors)
    if len(ts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(ts)))
    for k, t in enumerate(ts):
        ends = k in (0, len(ts) - 1)
        if t.dim() not in ((1, 2) if ends else (2,)):
            raise RuntimeError(
                f"multi_dot(): the {'first' if k == 0 else 'last' if ends else ''} tensor must be "
                f"{'1D or 2D' if ends else '2D'} but got {t.dim()}D "
                f"(tensor {k})"
            )
        if t.dtype is not ts[0].dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {ts[0].dtype.name} and tensor "
                f"{k} {t.dtype.name}"
            )
    row, column = ts[0].dim() == 1, ts[-1].dim() == 1
    ts[0] = ts[0].unsqueeze(0) if row else ts[0]
    ts[-1] = ts[-1].unsqueeze(-1) if column else ts[-1]
    for k in range(len(ts) - 1):
        if ts[k].shape[1] != ts[k + 1].shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {k} and {k + 1} with shapes {list(ts[k].shape)} and {list(ts[k + 1].shape)} "
                "cannot be multiplied"
            )
    n = len(ts)
    size = [t.shape[0] for t in ts] + [ts[-1].shape[1]]
    # cost[i][j] of the product of i ... j and where it is cut (the classic dynamic programme)
    cost, cut = [[0] * n for _ in ts], [[0] * n for _ in ts]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = B_.min(
                (cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        return ts[i] if i == j else f("mm")(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    r = product(0, n - 1)
    r = r.squeeze(0) if row else r
    return r.squeeze(-1) if column else r


@structural(ns="linalg", public=False, exact=True, name="matrix_exp")
def _matrix_exp(A: Tensor):
    from scipy.linalg import expm

    return np.asarray(expm(A), A.dtype) if A.size else A.copy()


def _matrix_exp_gradient(grad, A):
    # exp of [[A^H, G], [0, A^H]] has the derivative in its corner (Najfeld and Havel, 1995)
    n = A.shape[-1]
    top = f("cat")([A.mH, grad], -1)
    low = f("cat")([f("zeros_like")(A), A.mH], -1)
    return run(_matrix_exp, (f("cat")([top, low], -2),)).narrow(-2, 0, n).narrow(-1, n, n)


_matrix_exp.shape(lambda A: A.shape)
_matrix_exp.gradient(A=_matrix_exp_gradient)


@composite(ns=("linalg", "torch"), method=True, old={"input": "A"})
def matrix_exp(A: Tensor):
    """The exponentials of square matrices."""
    if A.dtype.category < D.FLOAT:
        raise RuntimeError(
            "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got " + _scalar_name(A.dtype)
        )
    need_matrices("linalg.matrix_exp", A, square=True)
    return run(_matrix_exp, (A,))


@composite(ns="linalg", out="same", name="cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1):
    """The cross products of vectors of three elements along `dim`."""
    if input.dim() != other.dim():
        raise RuntimeError(
            f"linalg.cross: inputs must have the same number of dimensions: got {input.dim()} and {other.dim()}"
        )
    if input.dtype is not other.dtype:
        raise RuntimeError(f"linalg.cross: expected operands of one dtype, but got {input.dtype.name} and {other.dtype.name}")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}"
        )
    shape = common_shape(input._a.shape, other._a.shape)
    a, b = (t.expand(shape) for t in (input, other))
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)


@composite(method=True, out="same")
def cross(input: Tensor, other: Tensor, dim: int | None = None):
    """The cross products of vectors of three elements along `dim`, the first dimension of size 3 by default (with a UserWarning, once)."""
    if dim is None:
        warn_once("cross", "Using torch.cross without specifying the dim arg is deprecated. Please either pass the dim explicitly or simply use "
                  "torch.linalg.cross, whose dim is -1 by default.", 3)
        dim = next((k for k, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input (shape {list(input.shape)})")
    return linalg_cross(input, other, dim=dim)


@composite(ns="linalg", out="same")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1):
    """The sums over `dim` of the products of conj(x) and y."""
    for t in (x, y):
        if t.dtype.category < D.FLOAT:
            raise RuntimeError(
                f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {_scalar_name(t.dtype)}"
            )
    return (x.conj() * y).sum(dim)


@composite(ns="linalg")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """`torch.diagonal` of the last two dimensions."""
    return f("diagonal")(A, offset, dim1, dim2)


@composite(ns="linalg")
def vander(x: Tensor, N: int | None = None):
    """Vandermonde matrices: the powers 0 ... N - 1 of each element."""
    if N is not None and N <= 1:
        raise RuntimeError("N must be greater than 1.")
    x = x.reshape(1) if x.dim() == 0 else x
    n = x.shape[-1] if N is None else N
    if x.dtype.category < D.FLOAT and x.dtype is not D.int64:
        x = x.to(D.int64)
    powers = x.unsqueeze(-1).expand((*x.shape, n - 1)).cumprod(-1)
    return f("cat")([f("ones_like")(powers.narrow(-1, 0, 1)), powers], -1) if n > 1 else f("ones_like")(x.unsqueeze(-1))


@composite(ns="torch", name="vander")
def _vander(x: Tensor, N: int | None = None, increasing: bool = False):
    """The Vandermonde matrix of a vector, as `numpy.vander`: powers N - 1 ... 0 of each element, or 0 ... N - 1."""
    if x.dim() != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor, but got {x.dim()} dimensions")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError(f"N must be non-negative, but got {n}")
    if x.dtype.category < D.FLOAT and x.dtype is not D.int64:
        x = x.to(D.int64)
    if n == 0:
        return x.new_empty((x.shape[0], 0))
    powers = f("ones_like")(x.unsqueeze(-1))
    if n > 1:
        powers = f("cat")([powers, x.unsqueeze(-1).expand((x.shape[0], n - 1)).cumprod(-1)], -1)
    return powers if increasing else powers.flip(-1)


@composite(ns="linalg", out="cast")
def tensorinv(A: Tensor, ind: int = 2):
    """The inverse of A as a linear map between tensors: its first `ind` dimensions are the rows."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    a, b = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    n, m = int(np.prod(a, dtype=int)), int(np.prod(b, dtype=int))
    if n != m:
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {m} "
            f"!= {n}"
        )
    return inv(A.reshape(n, m)).reshape((*b, *a))


@composite(ns="linalg", out="cast")
def tensorsolve(A: Tensor, B: Tensor, dims: tuple | None = None):
    """X of tensordot(A, X, X.dim()) = B."""
    n = A.dim()
    if dims is not None:
        ds = [d % n for d in dims]
        A = A.permute([k for k in range(n) if k not in ds] + ds)
    rest = tuple(A.shape[B.dim() :])
    k = int(np.prod(rest, dtype=int))
    if k * k != A.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])"
        )
    return solve(A.reshape(k, k), B.reshape(-1)).reshape(rest)


# --- Inputs for the generated tests (ops.samples) ---
matrix_norm.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3, 2)), 1), s.call(s((2, 3)), float('inf'), keepdim=True), s.call(s((3, 2)), 'nuc')])
norm.samples(lambda s: [s.call(s((2, 3))), s.call(s((4,)), 3), s.call(s((2, 3)), 'fro'), s.call(s((2, 3)), 1, 1)])
matrix_power.samples(lambda s: [s.call(s((3, 3)), 3), s.call(s((2, 3, 3)), 0), s.call(s((2, 2)), -2)])
multi_dot.samples(lambda s: [s.call([s((2, 3)), s((3, 4)), s((4, 2))]), s.call([s((3,)), s((3, 2))])])
matrix_exp.samples(lambda s: [s.call(s((2, 3, 3), low=-1.0, high=1.0))])
linalg_cross.samples(lambda s: [s.call(s((2, 3)), s((2, 3)))])
cross.samples(lambda s: [s.call(s((3, 2)), s((3, 2)), 0)])
vecdot.samples(lambda s: [s.call(s((2, 3)), s((3,))), s.call(s((2, 3)), s((2, 3)), dim=0)])
diagonal.samples(lambda s: [s.call(s((2, 3, 4))), s.call(s((3, 3)), offset=1)])
vander.samples(lambda s: [s.call(s((3,))), s.call(s((2, 2)), N=3)])
tensorinv.samples(lambda s: [s.call(s((4, 2, 2)), ind=1)])
tensorsolve.samples(lambda s: [s.call(s((2, 2, 4)), s((2, 2)))])
cond.samples(lambda s: [s.call(s((3, 3))), s.call(s((2, 2)), 1)])
