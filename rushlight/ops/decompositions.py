"""Factorizations of matrices: QR, LU, singular values, eigenvalues, and what is solved with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.errors import LinAlgError
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from .declare import composite, structural
from .execute import _named, _scalar_name, common_shape, reads_values, run
from .linalg import (
    INT32,
    _broadcast_batches,
    _raise_singular,
    batch_of,
    each,
    eye_like,
    getrf,
    need_matrices,
    solve_triangular,
)

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex


def f(name: str) -> Any:
    return hooks.function(name)


def _diag(v: Any) -> Any:
    return f("diag_embed")(v)


def _or_zeros(g: Any, like: Any) -> Any:
    return f("zeros_like")(like) if g is None else g


# --- QR ---------------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="qr", node="LinalgQrBackward0", returns=("Q", "R"))
def _qr(A: Tensor, mode: str):
    q, r = np.linalg.qr(A, mode)
    return q, r


def _qr_shape(A, mode):
    *batch, m, n = A.shape
    k = m if mode == "complete" else min(m, n)
    return (*batch, m, k), (*batch, k, n)


_qr.shape(_qr_shape)


def _qr_square(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    """For R square: [gQ + Q herm(triu(gR R^H - Q^H gQ))] R^-H."""
    x = f("triu")(gr @ r.mH - q.mH @ gq)
    x = x + x.mH - _diag(f("real")(x.diagonal(0, -2, -1)).to(x.dtype) if x.dtype.is_complex else x.diagonal(0, -2, -1))
    return solve_triangular(r.mH, gq + q @ x, upper=False, left=False)


def _qr_backward(grads, needs, Q, R, mode):
    gq, gr = grads
    if gq is None and gr is None:
        return (None,)
    gq, gr = _or_zeros(gq, Q), _or_zeros(gr, R)
    m, n = Q.shape[-2], R.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    if m >= n:
        return (_qr_square(gq, gr, Q, R),)
    # wide: the square part, and R2 = Q^H A2 for the rest
    r1, r2, g1, g2 = R.narrow(-1, 0, m), R.narrow(-1, m, n - m), gr.narrow(-1, 0, m), gr.narrow(-1, m, n - m)
    return (f("cat")([_qr_square(gq + Q @ (r2 @ g2.mH), g1, Q, r1), Q @ g2], -1),)


_qr.backward(_qr_backward)


@composite(ns="linalg", returns=("Q", "R"), out="same")
def qr(A: Tensor, mode: str = "reduced"):
    """(Q, R) with A = QR, Q orthonormal, R upper triangular. Modes: reduced, complete (Q square), r (R alone)."""
    need_matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "r":
        return _named(qr)((f("empty")((0,), dtype=A.dtype), run(_qr, (A.detach(), "reduced"))[1]))
    return run(_qr, (A, mode))


@composite(method=True, returns=("Q", "R"), name="qr", out="same")
def qr_old(input: Tensor, some: bool = True):
    """`linalg.qr`."""
    return qr(input, "reduced" if some else "complete")


@composite(method=True, returns=("a", "tau"), out="cast")
def geqrf(input: Tensor):
    """QR in LAPACK's compact form: (reflectors below R, their scales)."""
    need_matrices("geqrf", input)
    reads_values("geqrf")
    a = input._a
    k = min(a.shape[-2:])
    if not a.size:
        return _named(geqrf)((wrap(a.copy()), wrap(np.empty((*a.shape[:-2], k), a.dtype))))
    h, tau = np.empty(a.shape, a.dtype), np.empty((*a.shape[:-2], k), a.dtype)
    for i, x in enumerate(each(a)):
        r, t = np.linalg.qr(x, "raw")
        each(h)[i] = r.T
        tau.reshape(-1, k)[i] = t
    return _named(geqrf)((wrap(h), wrap(tau)))


@composite(ns=("linalg",), out="cast")
def householder_product(A: Tensor, tau: Tensor):
    """The first columns of the product of the reflections I - tau v v^H, whose v are the columns of A below its
    diagonal of ones."""
    need_matrices("torch.linalg.householder_product", A)
    *_, m, n = A.shape
    if m < n:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    k = tau.shape[-1]
    if n < k:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    if A.dim() - tau.dim() != 1 or tuple(tau.shape[:-1]) != batch_of(A):
        raise RuntimeError(
            "torch.linalg.householder_product: Expected tau to have one dimension less than input, got tau.ndim equal "
            f"to {tau.dim()} and "
            f"input.ndim is equal to {A.dim()}"
            if A.dim() - tau.dim() != 1
            else "torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], "
            f"but got {list(tau.shape[:-1])}"
        )
    if A.dtype is not tau.dtype:
        raise RuntimeError(
            f"torch.linalg.householder_product: tau dtype {tau.dtype.name} does not match input dtype {A.dtype.name}"
        )
    v = f("tril")(A, -1) + eye_like(A, m).narrow(1, 0, n)
    q = eye_like(A, m).narrow(1, 0, n).expand(A.shape)
    for i in reversed(range(k)):
        c = v.narrow(-1, i, 1)
        q = q - (c * tau[..., i].unsqueeze(-1).unsqueeze(-1)) @ (c.mH @ q)
    return q if k else A.clone().copy_(q)


@composite(method=True, out="cast", old={"tau": "input2"})
def orgqr(input: Tensor, input2: Tensor):
    """`linalg.householder_product`."""
    return householder_product(input, input2)


@composite(method=True, out="same", old={"mat": "other", "input2": "tau", "input3": "other"})
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False):
    """Q other (other Q), or with Q^H, for the orthogonal Q that the reflections `input`, `tau` give."""
    m = input.shape[-2]
    pad = m - input.shape[-1]
    input = input.narrow(-1, 0, m) if pad < 0 else input
    a = f("cat")([input, f("zeros")((*input.shape[:-1], pad), dtype=input.dtype)], -1) if pad > 0 else input
    q = householder_product(a, tau)
    q = q.mH if transpose else q
    return q @ other if left else other @ q


# --- singular values --------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="svd", node="LinalgSvdBackward0", returns=("U", "S", "Vh"))
def _svd(A: Tensor, full_matrices: bool):
    try:
        u, s, vh = np.linalg.svd(A, full_matrices)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.svd: The algorithm failed to converge because the input matrix is ill-conditioned, has too many "
            "repeated singular values, or "
            "contains nan or infinity."
        ) from None
    return u, s, vh


def _svd_shape(A, full):
    *batch, m, n = A.shape
    k = min(m, n)
    return (*batch, m, m if full else k), ((*batch, k), D.of(A.dtype).to_real()), (*batch, n if full else k, n)


_svd.shape(_svd_shape)


def _skew(x: Any) -> Any:
    return x - x.mH


def _svd_backward(grads, needs, U, S, Vh, full_matrices):
    gu, gs, gvh = grads
    k = S.shape[-1]
    m, n = U.shape[-2], Vh.shape[-1]
    if full_matrices:
        U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
        gu = None if gu is None else gu.narrow(-1, 0, k)
        gvh = None if gvh is None else gvh.narrow(-2, 0, k)
    if gu is None and gvh is None:
        return (None if gs is None else (U * gs.unsqueeze(-2).to(U.dtype)) @ Vh,)
    s = S.to(U.dtype)
    square = S * S
    e = square.unsqueeze(-2) - square.unsqueeze(-1)
    e = (e + eye_like(e, k)).to(U.dtype)
    inner = None
    if gu is not None:
        w = U.mH @ gu
        inner = (_skew(w) / e) * s.unsqueeze(-2)
        if U.dtype.is_complex:
            inner = inner - _diag(inner.diagonal(0, -2, -1)) + _diag((f("imag")(w.diagonal(0, -2, -1)) * 1j) / s)
    if gvh is not None:
        part = s.unsqueeze(-1) * (_skew(Vh @ gvh.mH) / e)
        part = part - _diag(part.diagonal(0, -2, -1))
        inner = part if inner is None else inner + part
    if gs is not None:
        inner = inner + _diag(gs.to(U.dtype))
    ga = U @ inner @ Vh
    if gu is not None and m > k:
        x = (gu / s.unsqueeze(-2)) @ Vh
        ga = ga + x - U @ (U.mH @ x)
    if gvh is not None and n > k:
        x = U @ (gvh / s.unsqueeze(-1))
        ga = ga + x - (x @ Vh.mH) @ Vh
    return (ga,)


_svd.backward(_svd_backward)


@composite(ns="linalg", returns=("U", "S", "Vh"), out="same")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None):
    """(U, S, Vh) with A = U diag(S) Vh, S descending; U and Vh square, or without full_matrices min(m, n) wide."""
    need_matrices("linalg.svd", A)
    return run(_svd, (A, full_matrices))


@composite(ns="linalg", out="same")
def svdvals(A: Tensor, *, driver: str | None = None):
    """The singular values of matrices, descending."""
    need_matrices("linalg.svdvals", A)
    return run(_svd, (A, False))[1]


@composite(method=True, returns=("U", "S", "V"), name="svd", out="same")
def svd_old(input: Tensor, some: bool = True, compute_uv: bool = True):
    """(U, S, V) with input = U diag(S) V^H."""
    need_matrices("linalg.svd", input)
    u, s, vh = run(_svd, (input, not some))
    if not compute_uv:
        m, n = input.shape[-2:]
        u, v = (f("zeros")((*batch_of(input), k, k), dtype=input.dtype) for k in (m, n))
        return _named(svd_old)((u, s, v))
    return _named(svd_old)((u, s, vh.mH))


# --- eigenvalues ------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="eigh", node="LinalgEighBackward0", returns=("eigenvalues", "eigenvectors"))
def _eigh(A: Tensor, UPLO: str):
    try:
        w, v = np.linalg.eigh(A, UPLO)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
            "repeated "
            "eigenvalues."
        ) from None
    return w, v


_eigh.shape(lambda A, UPLO: ((A.shape[:-1], D.of(A.dtype).to_real()), A.shape))


def _gaps(w: Any) -> Any:
    """w_j - w_i, and 1 on the diagonal."""
    return w.unsqueeze(-2) - w.unsqueeze(-1) + eye_like(w, w.shape[-1])


def _eigh_backward(grads, needs, eigenvalues, eigenvectors):
    gw, gv = grads
    v = eigenvectors
    if gv is None:
        return (None if gw is None else (v * gw.unsqueeze(-2).to(v.dtype)) @ v.mH,)
    x = (v.mH @ gv) / _gaps(eigenvalues).to(v.dtype)
    x = x - _diag(x.diagonal(0, -2, -1))
    if gw is not None:
        x = x + _diag(gw.to(v.dtype))
    return (v @ (0.5 * (x + x.mH)) @ v.mH,)


_eigh.backward(_eigh_backward)


def _uplo(UPLO: str) -> str:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper()


@composite(ns="linalg", returns=("eigenvalues", "eigenvectors"), out="same")
def eigh(A: Tensor, UPLO: str = "L"):
    """(eigenvalues ascending, eigenvectors in columns) of symmetric or Hermitian matrices, of which the lower (upper)
    triangle is read."""
    need_matrices("linalg.eigh", A, square=True)
    return run(_eigh, (A, _uplo(UPLO)))


@composite(ns="linalg", out="same")
def eigvalsh(A: Tensor, UPLO: str = "L"):
    """The eigenvalues of symmetric or Hermitian matrices, ascending."""
    need_matrices("linalg.eigvalsh", A, square=True)
    return run(_eigh, (A, _uplo(UPLO)))[0]


@structural(ns="linalg", public=False, exact=True, name="eig", returns=("eigenvalues", "eigenvectors"))
def _eig(A: Tensor):
    if not np.isfinite(A).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    c = np.dtype(
        "complex128" if A.dtype.itemsize == 8 and A.dtype.kind == "f" or A.dtype.itemsize == 16 else "complex64"
    )
    w, v = np.linalg.eig(A)
    return w.astype(c), v.astype(c)


def _eig_shape(A):
    c = D.of(A.dtype).to_complex() if A.dtype.kind != "c" else D.of(A.dtype)
    return (A.shape[:-1], c), (A.shape, c)


_eig.shape(_eig_shape)


def _eig_backward(grads, needs, A_meta, eigenvalues, eigenvectors):
    gw, gv = grads
    if gw is None and gv is None:
        return (None,)
    v = eigenvectors
    if gv is None:
        x = _diag(gw)
    else:
        w = v.mH @ gv
        d = f("real")(w.diagonal(0, -2, -1)).to(w.dtype)
        x = (w - (v.mH @ v) * d.unsqueeze(-2)) / _gaps(eigenvalues).conj()
        x = x - _diag(x.diagonal(0, -2, -1))
        if gw is not None:
            x = x + _diag(gw)
    g = f("linalg.solve")(v.mH, x @ v.mH)
    return (g if A_meta.dtype.is_complex else f("real")(g),)


_eig.backward(_eig_backward)


@composite(ns="linalg", returns=("eigenvalues", "eigenvectors"), out="cast")
def eig(A: Tensor):
    """(eigenvalues, eigenvectors in columns of norm 1) of square matrices; always complex, in no order."""
    need_matrices("linalg.eig", A, square=True)
    return run(_eig, (A,))


@composite(ns="linalg", out="cast")
def eigvals(A: Tensor):
    """The eigenvalues of square matrices; always complex, in no order."""
    need_matrices("linalg.eigvals", A, square=True)
    return run(_eig, (A,))[0]


# --- LU ---------------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="lu_factor_ex", returns=("LU", "pivots", "info"))
def _lu(A: Tensor, pivot: bool):
    if pivot:
        return getrf(A)
    lu = np.array(A)
    info = np.zeros(A.shape[:-2], np.int32)
    m, n = A.shape[-2:]
    for k in range(min(m, n)):
        p = lu[..., k, k]
        info = np.where((p == 0) & (info == 0), k + 1, info).astype(np.int32)
        with np.errstate(all="ignore"):
            lu[..., k + 1 :, k] /= p[..., None]
        lu[..., k + 1 :, k + 1 :] -= lu[..., k + 1 :, k, None] * lu[..., k, None, k + 1 :]
    piv = np.broadcast_to(np.arange(1, min(m, n) + 1, dtype=np.int32), (*A.shape[:-2], min(m, n))).copy()
    return lu, piv, info


_lu.shape(lambda A, pivot: (A.shape, ((*A.shape[:-2], min(A.shape[-2:])), INT32), (A.shape[:-2], INT32)))


def permutation(pivots: np.ndarray, m: int) -> np.ndarray:
    """The order of the rows that LAPACK's interchanges give: row i of PA is row perm[i] of A."""
    p = np.broadcast_to(np.arange(m), (*pivots.shape[:-1], m)).copy()
    if not p.size:
        return p
    rows, piv = p.reshape(-1, m), pivots.reshape(-1, pivots.shape[-1])
    for r, q in zip(rows, piv, strict=True):
        for i, j in enumerate(q - 1):
            r[i], r[j] = r[j], r[i]
    return p


def _permutation_matrix(pivots: Any, m: int, dtype: Any) -> Any:
    """P of A = P L U."""
    if pivots.is_meta:
        return f("empty")((*pivots.shape[:-1], m, m), dtype=dtype, device="meta")
    reads_values("a permutation from pivots")
    p = permutation(pivots._a, m)
    a = np.zeros((*p.shape, m), dtype.np)
    np.put_along_axis(a, p[..., None], 1, -1)
    return wrap(np.ascontiguousarray(a.swapaxes(-1, -2)))


def _parts(lu: Any) -> tuple[Any, Any]:
    """(L with its unit diagonal, U) of packed factors."""
    *_, m, n = lu.shape
    k = min(m, n)
    low = f("tril")(lu.narrow(-1, 0, k), -1) + eye_like(lu, m).narrow(1, 0, k)
    return low, f("triu")(lu.narrow(-2, 0, k))


def _lu_backward(grads, needs, LU, pivots, pivot):
    g = grads[0]
    if g is None:
        return (None,)
    *_, m, n = LU.shape
    k = min(m, n)
    low, up = _parts(LU)
    gl, gu = f("tril")(g.narrow(-1, 0, k), -1), f("triu")(g.narrow(-2, 0, k))
    l1, u1, g1, h1 = low.narrow(-2, 0, k), up.narrow(-1, 0, k), gl.narrow(-2, 0, k), gu.narrow(-1, 0, k)
    rest = None
    if m > k:  # L2 = A2 U^-1
        l2, g2 = low.narrow(-2, k, m - k), gl.narrow(-2, k, m - k)
        rest = solve_triangular(u1.mH, g2, upper=False, left=False)
        h1 = f("triu")(h1 - l2.mH @ rest)
    elif n > k:  # U2 = L^-1 A2
        u2, h2 = up.narrow(-1, k, n - k), gu.narrow(-1, k, n - k)
        rest = solve_triangular(l1.mH, h2, upper=True, unitriangular=True)
        g1 = f("tril")(g1 - rest @ u2.mH, -1)
    x = f("tril")(l1.mH @ g1, -1) + f("triu")(h1 @ u1.mH)
    x = solve_triangular(l1.mH, x, upper=True, unitriangular=True)
    x = solve_triangular(u1.mH, x, upper=False, left=False)
    if rest is not None:
        x = f("cat")([x, rest], -2 if m > k else -1)
    return (_permutation_matrix(pivots, m, LU.dtype) @ x if pivot else x,)


_lu.backward(_lu_backward)


@composite(ns="linalg", returns=("LU", "pivots", "info"), out="same")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False):
    """(LU, pivots, info): the factors packed in one matrix, and the row interchanges counted from 1."""
    need_matrices("torch.linalg.lu_factor_ex", A)
    r = run(_lu, (A, pivot))
    if check_errors:
        _raise_singular(
            "torch.linalg.lu_factor_ex",
            r[2]._a,
            "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.",
        )
    return r


@composite(ns="linalg", returns=("LU", "pivots"), out="same")
def lu_factor(A: Tensor, *, pivot: bool = True):
    """(LU, pivots): the factors of A = P L U packed in one matrix, and the row interchanges counted from 1."""
    need_matrices("torch.linalg.lu_factor", A)
    lu, piv, info = run(_lu, (A, pivot))
    if info._a.__class__ is np.ndarray:
        _raise_singular(
            "torch.linalg.lu_factor",
            info._a,
            "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.",
        )
    return _named(lu_factor)((lu, piv))


@composite(ns="linalg", returns=("P", "L", "U"), out="same", name="lu")
def lu(A: Tensor, *, pivot: bool = True):
    """(P, L, U) with A = P L U: a permutation, a lower triangle with ones on the diagonal, an upper triangle."""
    need_matrices("linalg.lu", A)
    packed, piv, _ = run(_lu, (A, pivot))
    low, up = _parts(packed)
    p = _permutation_matrix(piv, A.shape[-2], A.dtype) if pivot else f("empty")((0,), dtype=A.dtype)
    return _named(lu)((p, low, up))


@composite(method=True, name="lu", multi=True)
def lu_old(A: Tensor, pivot: bool = True, get_infos: bool = False):
    """(LU, pivots), and with `get_infos` the infos. Deprecated: use `linalg.lu_factor`."""
    need_matrices("torch.lu", A)
    r = run(_lu, (A, pivot))
    return r if get_infos else tuple(r[:2])


@composite(returns=("P", "L", "U"), out="same")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True):
    """(P, L, U) of packed factors."""
    if LU_pivots.dtype is not INT32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this "
            "function is intended to be used "
            "with the output produced by torch.linalg.lu_factor"
        )
    none = f("empty")((0,), dtype=LU_data.dtype)
    low, up = _parts(LU_data) if unpack_data else (none, none)
    p = _permutation_matrix(LU_pivots, LU_data.shape[-2], LU_data.dtype) if unpack_pivots else none
    return _named(lu_unpack)((p, low, up))


@composite(ns="linalg", out="same", name="lu_solve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False):
    """X of AX = B (XA = B; with `adjoint` of A^H), with A given by its packed factors and pivots."""
    need_matrices("torch.linalg.lu_solve", LU, "LU", square=True)
    if LU.dtype is not B.dtype:
        raise RuntimeError(
            f"linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type {_scalar_name(LU.dtype)} "
            "and B of type "
            f"{_scalar_name(B.dtype)} instead"
        )
    if pivots.dtype is not INT32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    if (B.shape[-2] if left else B.shape[-1]) != LU.shape[-1]:
        raise RuntimeError(
            f"linalg.lu_solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({LU.shape[-2]}x{LU.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )
    if tuple(pivots.shape) != tuple(LU.shape[:-1]):
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix")
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    low, up = _parts(LU)
    p = _permutation_matrix(pivots, LU.shape[-1], LU.dtype)
    if adjoint:
        y = solve_triangular(up.mH, B, upper=False)
        return p @ solve_triangular(low.mH, y, upper=True, unitriangular=True)
    y = solve_triangular(low, p.mT @ B, upper=False, unitriangular=True)
    return solve_triangular(up, y, upper=True)


@composite(method=True, out="same", name="lu_solve")
def lu_solve_old(b: Tensor, LU_data: Tensor, LU_pivots: Tensor):
    """`linalg.lu_solve`."""
    return lu_solve(LU_data, LU_pivots, b)


# --- pseudo-inverses, ranks, least squares ----------------------------------------------------------------------------
def _tolerance(A: Any, s: Any, atol: Any, rtol: Any) -> Any:
    """max(atol, rtol * largest singular value), as a tensor over the batch; rtol is max(m, n) * eps where neither is
    given."""
    eps = float(np.finfo(A.dtype.to_real().np).eps) * max(A.shape[-2:])

    def column(t: Any) -> Any:
        return t.unsqueeze(-1) if isinstance(t, T) and t.dim() else t

    if rtol is None:
        zero = 0.0
        if isinstance(atol, T):
            rtol = f("where")(atol > 0, f("zeros_like")(atol), f("full_like")(atol, eps))
        else:
            rtol = zero if atol is not None and atol > 0 else eps
    atol = 0.0 if atol is None else atol
    a, r = column(atol), column(rtol)
    top = s.narrow(-1, 0, 1) if s.shape[-1] else f("zeros")((*s.shape[:-1], 1), dtype=s.dtype)
    t = r * top
    return (
        f("maximum")(t, a.to(t.dtype).expand(common_shape(a._a.shape, t._a.shape)))
        if isinstance(a, T)
        else t.clamp(min=a)
    )


@structural(ns="linalg", public=False, exact=True, name="pinv")
def _pinv(A: Tensor, tolerance: Tensor, hermitian: bool):
    if A.size == 0:
        return np.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    if hermitian:
        w, u = np.linalg.eigh(A)
        inverse = np.where(np.abs(w) > tolerance, 1 / w, 0).astype(A.dtype)
        return (u * inverse[..., None, :]) @ u.swapaxes(-1, -2).conj()
    u, s, vh = np.linalg.svd(A, full_matrices=False)
    inverse = np.where(s > tolerance, 1 / s, 0).astype(A.dtype)
    return (vh.swapaxes(-1, -2).conj() * inverse[..., None, :]) @ u.swapaxes(-1, -2).conj()


def _pinv_gradient(grad, A, result):
    # the adjoint of dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P
    p, ph, gh = result, result.mH, grad.mH
    x, y = gh @ p @ ph, ph @ p @ gh
    return -(ph @ grad @ ph) + x - A @ (p @ x) + y - (y @ p) @ A


_pinv.shape(lambda A, tolerance, hermitian: (*A.shape[:-2], A.shape[-1], A.shape[-2]))
_pinv.gradient(A=_pinv_gradient)


def _values(A: Any, hermitian: bool) -> Any:
    """Singular values, descending."""
    if hermitian:
        return f("sort")(f("abs")(eigvalsh(A)), -1, True)[0]
    return svdvals(A)


@composite(ns="linalg", out="cast")
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None):
    """The pseudo-inverses of matrices; singular values up to max(atol, rtol * the largest) count as zero."""
    need_matrices("linalg.pinv", A, square=hermitian)
    rtol = rcond if rtol is None else rtol
    with f_no_grad():
        t = _tolerance(A, _values(A.detach(), hermitian), atol, rtol)
    return run(_pinv, (A, t, hermitian))


def f_no_grad() -> Any:
    from ..autograd.modes import no_grad

    return no_grad()


@composite(method=True)
def pinverse(input: Tensor, rcond: float = 1e-15):
    """`linalg.pinv`."""
    return pinv(input, rtol=rcond)


@composite(ns="linalg", out="cast")
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None):
    """The number of singular values above max(atol, rtol * the largest)."""
    need_matrices("linalg.matrix_rank", A, square=hermitian)
    atol, rtol = (tol, 0.0 if rtol is None else rtol) if tol is not None else (atol, rtol)
    with f_no_grad():
        s = _values(A.detach(), hermitian)
        return (s > _tolerance(A, s, atol, rtol)).sum(-1)


@composite(ns="linalg", returns=("solution", "residuals", "rank", "singular_values"))
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None):
    """(X, residuals, rank, singular values): X minimizes the norm of AX - B. Drivers: gels (full rank assumed), gelsy,
    gelsd, gelss."""
    need_matrices("torch.linalg.lstsq", A, "input")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss) but is {driver}"
        )
    if A.dtype is not B.dtype:
        raise RuntimeError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{_scalar_name(A.dtype)} and other's dtype {_scalar_name(B.dtype)}"
        )
    vectors = B.dim() == 1 or A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1])
    b = B.unsqueeze(-1) if vectors else B
    if b.dim() < 2 or b.shape[-2] != A.shape[-2]:
        raise RuntimeError(
            "torch.linalg.lstsq: input.size(-2) should match other.size(-2)"
            if not vectors
            else "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
        )
    a, b = _broadcast_batches("torch.linalg.lstsq", A, b)
    driver = driver or "gelsy"
    m, n = A.shape[-2:]
    real = A.dtype.to_real()
    with f_no_grad():
        s = svdvals(A.detach())
        eps = float(np.finfo(real.np).eps) * max(m, n) if rcond is None or rcond < 0 else rcond
        full = (s > eps * s.narrow(-1, 0, 1)).sum(-1) if s.shape[-1] else f("zeros")(batch_of(A), dtype=D.int64)
    x = pinv(a, rtol=None if driver == "gels" else eps) @ b
    residuals = f("abs")(x.reshape(-1).narrow(0, 0, 0))
    if m > n and driver != "gelsy" and bool((full == n).all().item()):
        e = f("abs")(a @ x - b)
        residuals = (e * e).sum(-2)
    rank = f("empty")((0,), dtype=D.int64) if driver == "gels" else full
    values = s if driver in ("gelsd", "gelss") else f("empty")((0,), dtype=real)
    return _named(lstsq)(
        (
            x.squeeze(-1) if vectors else x,
            residuals.squeeze(-1) if vectors and residuals.dim() > 1 else residuals,
            rank,
            values,
        )
    )


# --- LDL --------------------------------------------------------------------------------------------------------------
@composite(ns="linalg", returns=("LD", "pivots", "info"), out="same")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False):
    """(LD, pivots, info) of symmetric or Hermitian matrices, in LAPACK's packed form (Bunch and Kaufman's pivoting)."""
    need_matrices("torch.linalg.ldl_factor_ex", A, square=True)
    from scipy.linalg import get_lapack_funcs

    a = A._a
    reads_values("ldl_factor_ex")
    (trf,) = get_lapack_funcs(("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf",), (a,))
    ld, piv, info = np.empty(a.shape, a.dtype), np.zeros(a.shape[:-1], np.int32), np.zeros(a.shape[:-2], np.int32)
    if a.size:
        for k, x in enumerate(each(a)):
            each(ld)[k], piv.reshape(-1, a.shape[-1])[k], info.reshape(-1)[k] = trf(x, lower=True)
    if check_errors:
        _raise_singular(
            "torch.linalg.ldl_factor_ex",
            info,
            "D[{0},{0}] is zero and using it to solve would result in a division by zero.",
        )
    return _named(ldl_factor_ex)((wrap(np.tril(ld)), wrap(piv), wrap(info)))


@composite(ns="linalg", returns=("LD", "pivots"), out="same")
def ldl_factor(A: Tensor, *, hermitian: bool = False):
    """(LD, pivots) of symmetric or Hermitian matrices."""
    need_matrices("torch.linalg.ldl_factor_ex", A, square=True)
    r = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return _named(ldl_factor)((r[0], r[1]))


@composite(ns="linalg", out="same")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False):
    """X of AX = B, with A given by its LDL factors."""
    need_matrices("torch.linalg.ldl_solve", LD, "LD", square=True)
    from scipy.linalg import get_lapack_funcs

    if pivots.dtype.category != D.INTEGER:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {_scalar_name(pivots.dtype)}")
    if B.dim() < 2 or B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(f"Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is {LD.shape[-1]} by {LD.shape[-1]} but B has "
                           f"shape {list(B.shape)}")
    a, b = _broadcast_batches("torch.linalg.ldl_solve", LD, B)
    if not b.numel():
        return f("zeros_like")(b)
    reads_values("ldl_solve")
    p = np.broadcast_to(pivots._a, a._a.shape[:-1]).reshape(-1, a.shape[-1]).astype(np.int32)
    (trs,) = get_lapack_funcs(("hetrs" if hermitian and a._a.dtype.kind == "c" else "sytrs",), (a._a, b._a))
    r = np.empty(b._a.shape, b._a.dtype)
    for k, (x, y) in enumerate(zip(each(a._a), each(b._a), strict=True)):
        each(r)[k] = trs(x, p[k], y, lower=True)[0]
    return wrap(r)


# --- Inputs for the generated tests (ops.samples) ---
svdvals.samples(lambda s: [s.call(s((3, 2))), s.call(s((2, 2, 3)))])
eigvalsh.samples(lambda s: [s.call(s.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], 'float64'))])
pinv.samples(lambda s: [s.call(s((3, 2))), s.call(s((2, 2, 3)))])
pinverse.samples(lambda s: [s.call(s((3, 2)))])
matrix_rank.samples(lambda s: [s.call(s((3, 4), requires_grad=False))])
lu_solve.samples(lambda s: [s.call(s.array([[2.0, 1.0], [0.5, 3.0]], 'float64'), s.array([2, 2], 'int32'), s((2, 2)))])
qr.samples(lambda s: [s.call(s((3, 2))), s.call(s((2, 3, 3)))])
lu_factor.samples(lambda s: [s.call(s((3, 3)))])
