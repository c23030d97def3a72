"""LAPACK's old names: the matrix factorizations and solvers of PyTorch 0.1 to 1.x, some of which PyTorch has no longer. They take matrices
in the old order of arguments, and upper triangles by default; the work is that of `linalg`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import LinAlgError
from ..core.tensor import hooks, wrap
from .declare import composite, structural
from .decompositions import _eig, _eigh, _lu, lu_solve
from .execute import _named, _scalar_name, reads_values, run
from .linalg import INT32, _cholesky, _raise_singular, cholesky_inverse, cholesky_solve, need_matrices, solve

if TYPE_CHECKING:
    from ..core.tensor import Tensor


def f(name: str) -> Any:
    return hooks.function(name)


def _need_real(name: str, *matrices: Any) -> None:
    """RuntimeError unless all are real floating point matrices of one dtype."""
    for a in matrices:
        need_matrices(name, a)
        if a.dtype.is_complex or a.dtype is not matrices[0].dtype:
            raise RuntimeError(f"{name}: Expected real floating point matrices of one dtype, but got {' and '.join(_scalar_name(x.dtype) for x in matrices)}")


def _need_dims(name: str, a: Any, letter: str, n: int) -> None:
    if a.dim() != n:
        raise RuntimeError(f"{name}: {letter} should have {n} dimensions, but has {a.dim()} (its shape is {list(a.shape)})")


# --- LU ---------------------------------------------------------------------------------------------------------------
@composite(method=True, returns=("LU_data", "pivots"), out="same")
def btrifact(A: Tensor, info: Tensor | None = None, pivot: bool = True):
    """(LU, pivots) of a batch of square matrices (B x n x n): the factors packed in one matrix, and the row exchanges counted from 1
    (int32). `info` (int32) is resized to B and receives 0, or the place of the zero pivot; without it a singular matrix is a LinAlgError.
    Today: `linalg.lu_factor`, `linalg.lu_factor_ex`."""
    need_matrices("btrifact", A, square=True)
    _need_dims("btrifact", A, "A", 3)
    lu, piv, codes = run(_lu, (A, pivot))
    if info is None and not codes.is_meta:
        _raise_singular("btrifact", codes._a, "U[{0},{0}] is zero: the matrix is singular; with info= it is factorized as far as possible.")
    elif info is not None and info.dtype is not codes.dtype:
        raise RuntimeError(f"btrifact: info must be an IntTensor (torch.int32), but it has dtype {info.dtype!r}")
    elif info is not None:
        f("resize_")(info, codes.shape)
        info.copy_(codes)
    return _named(btrifact)((lu, piv))


@composite(method=True, out="same")
def btrisolve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor):
    """The solutions (B x n) of A x = b, one vector for each matrix of a batch that `btrifact` has factorized; or (B x n x k) for matrices b.
    Today: `linalg.lu_solve`."""
    need_matrices("btrisolve", LU_data, "LU_data", square=True)
    _need_dims("btrisolve", LU_data, "LU_data", 3)
    if b.dim() not in (2, 3) or tuple(b.shape[:2]) != tuple(LU_data.shape[:2]):
        raise RuntimeError(f"btrisolve: b must hold one vector for each matrix, so have shape {list(LU_data.shape[:2])}, but its shape is {list(b.shape)}")
    return lu_solve(LU_data, LU_pivots, b.unsqueeze(-1)).squeeze(-1) if b.dim() == 2 else lu_solve(LU_data, LU_pivots, b)


@composite(method=True, returns=("solution", "LU"), out="same", old={"b": "B", "a": "A", "input": "B"})
def gesv(B: Tensor, A: Tensor):
    """(X, LU) with AX = B (n x k), and A's packed LU factors. LinAlgError if A is singular, RuntimeError if it is not square. Today:
    `linalg.solve`, with the arguments the other way round."""
    need_matrices("gesv", A, square=True)
    need_matrices("gesv", B, "B")
    return _named(gesv)((solve(A, B), run(_lu, (A, True))[0]))


# --- Cholesky ---------------------------------------------------------------------------------------------------------
@composite(method=True, out="same")
def potrf(a: Tensor, upper: bool = True):
    """The Cholesky factor u with a = u'u; with upper=False l with a = ll'. LinAlgError if a is not positive definite. Today:
    `linalg.cholesky`, where the lower one is the default."""
    return _cholesky("potrf", a, upper)


@composite(method=True, out="same")
def potri(u: Tensor, upper: bool = True):
    """The inverse of the matrix whose Cholesky factor is given. Today: `cholesky_inverse`."""
    return cholesky_inverse.fn(u, upper)


@composite(method=True, out="same")
def potrs(b: Tensor, u: Tensor, upper: bool = True):
    """X with AX = b, where u is the Cholesky factor of A. Today: `cholesky_solve`."""
    return cholesky_solve.fn(b, u, upper)


@composite(method=True, returns=("u", "piv"), out="same")
def pstrf(a: Tensor, upper: bool = True):
    """(u, piv): the Cholesky factor with pivots of a positive semidefinite matrix, a[piv][:, piv] = u'u (ll' with upper=False); piv (int32)
    counts from 0. Where the rank is less than n, what is below (right of) its rows (columns) is 0. LinAlgError for other matrices."""
    need_matrices("pstrf", a, square=True)
    _need_dims("pstrf", a, "a", 2)
    _need_real("pstrf", a)
    from scipy.linalg import get_lapack_funcs

    n = a.shape[0]
    if not n or a.is_meta:
        return _named(pstrf)((a.clone(), f("empty")((n,), dtype=INT32, device=a.device)))
    reads_values("pstrf")
    (fn,) = get_lapack_funcs(("pstrf",), (a._a,))
    c, p, rank, _ = fn(a._a, lower=not upper)
    piv = wrap((p - 1).astype(np.int32))
    if rank == n:    # the factor of the reordered matrix, which has a gradient
        at = piv.long()
        return _named(pstrf)((_cholesky("pstrf", a.index_select(0, at).index_select(1, at), upper), piv))
    c = np.triu(c) if upper else np.tril(c)
    if upper:
        c[rank:] = 0
    else:
        c[:, rank:] = 0
    left = a._a[np.ix_(p - 1, p - 1)] - (c.T @ c if upper else c @ c.T)
    if not np.abs(left).max() <= 100 * n * np.finfo(left.dtype).eps * np.abs(a._a).max():
        raise LinAlgError(f"pstrf: the matrix is not positive semidefinite: the factorization ends after {rank} of {n} pivots and leaves a rest")
    return _named(pstrf)((wrap(c), piv))


# --- eigenvalues ------------------------------------------------------------------------------------------------------
@composite(method=True, returns=("eigenvalues", "eigenvectors"), out="same")
def eig(a: Tensor, eigenvectors: bool = False):
    """(e, v) of a real square matrix: e (n x 2) holds real and imaginary parts, of a pair the positive imaginary part first. With
    `eigenvectors` v has them in its columns, a complex pair takes two, for real and imaginary part; else v is empty. Today: `linalg.eig`."""
    need_matrices("eig", a, square=True)
    _need_real("eig", a)
    w, v = run(_eig, (a,))
    e = f("stack")([f("real")(w), f("imag")(w)], -1)
    if not eigenvectors:
        return _named(eig)((e, f("empty")((0,), dtype=a.dtype, device=a.device)))
    second = (f("imag")(w) < 0).unsqueeze(-2)        # the conjugate's column has the imaginary part of the first one
    return _named(eig)((e, f("where")(second, -f("imag")(v), f("real")(v))))


@composite(method=True, returns=("eigenvalues", "eigenvectors"), out="same")
def symeig(input: Tensor, eigenvectors: bool = False, upper: bool = True):
    """(e, V) of a symmetric matrix, of which only the upper (with upper=False the lower) triangle is read: the eigenvalues in rising order, and
    with `eigenvectors` the vectors in V's columns; else V is empty. Today: `linalg.eigh`, which reads the lower triangle by default."""
    need_matrices("symeig", input, square=True)
    e, v = run(_eigh, (input, "U" if upper else "L"))
    return _named(symeig)((e, v if eigenvectors else f("empty")((0,), dtype=input.dtype, device=input.device)))


# --- least squares ----------------------------------------------------------------------------------------------------
@structural(public=False, exact=True, name="gels", returns=("X", "QR"))
def _gels(B: Tensor, A: Tensor):
    from scipy.linalg import get_lapack_funcs

    (m, n), k = A.shape, B.shape[1]
    if not (m and n and k):
        return np.zeros((max(m, n), k), A.dtype), A.copy()
    (fn,) = get_lapack_funcs(("gels",), (A, B))
    b = np.zeros((max(m, n), k), A.dtype, order="F")
    b[:m] = B
    qr, x, info = fn(A, b)
    if info > 0:
        raise RuntimeError(f"gels: A does not have full rank (the {info}-th diagonal element of its triangular factor is zero): there is no one least "
                           "squares solution")
    return np.ascontiguousarray(x), np.ascontiguousarray(qr)


def _gels_backward(grads, needs, B, A, X):
    # of the solution, the first n rows: what lies below tells the residual, in a basis that is LAPACK's choice
    g = grads[0]
    if g is None:
        return None, None
    (m, n), x = A.shape, X.narrow(0, 0, A.shape[1])
    g = g.narrow(0, 0, n)
    if m >= n:
        s = f("linalg.solve")(A.t() @ A, g)
        gb = A @ s
        return (gb if needs[0] else None), ((B - A @ x) @ s.t() - gb @ x.t() if needs[1] else None)
    p = A @ A.t()
    h, y = f("linalg.solve")(p, A @ g), f("linalg.solve")(p, B)
    return (h if needs[0] else None), (y @ g.t() - h @ x.t() - y @ (h.t() @ A) if needs[1] else None)


_gels.shape(lambda B, A: ((max(A.shape), B.shape[1]), A.shape))
_gels.backward(_gels_backward)


@composite(method=True, returns=("X", "QR"), out="same", old={"b": "B", "a": "A", "input": "B"})
def gels(B: Tensor, A: Tensor):
    """(X, QR) for A (m x n) of full rank and B (m x k). For m >= n the first n rows of X (m x k) minimize the norm of AX - B, and the norm of each
    column below them is that of the residual; QR is as `geqrf` gives it. For m < n X (n x k) is the solution of AX = B with the least norm, and
    the factor is LQ. Only the solution is differentiated. Today: `linalg.lstsq`."""
    _need_real("gels", A, B)
    for t, letter in ((A, "A"), (B, "B")):
        _need_dims("gels", t, letter, 2)
    if A.shape[0] != B.shape[0]:
        raise RuntimeError(f"gels: A and B must have the same number of rows, but their shapes are {list(A.shape)} and {list(B.shape)}")
    return _named(gels)(run(_gels, (B, A)))
