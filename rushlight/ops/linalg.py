"""Linear algebra: inverses, determinants, linear systems, triangular systems, Cholesky factors, norms and products of matrices.

Factorizations come from NumPy's LAPACK; SciPy is imported where NumPy has none. Gradients are the usual adjoints (Giles, "An
extended collection of matrix derivative results", 2008; Murray, "Differentiation of the Cholesky decomposition", 2016).
"""

from __future__ import annotations

import builtins as B_
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.errors import LinAlgError
from ..core.tensor import hooks
from .declare import composite, structural
from .execute import _scalar_name, normalize_dims, run

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    Number = int | float | complex
    Tensors = list[Tensor]
    Dims = int | tuple[int, ...] | None

INT32 = D.ALL["int32"]


def f(name: str) -> Any:
    return hooks.function(name)


def need_matrices(name: str, a: Any, letter: str = "A", square: bool = False) -> None:
    """RuntimeError unless the operand is a (batch of) floating or complex matrices."""
    d = a.dtype if isinstance(a.dtype, D.dtype) else D.of(a.dtype)
    shape = tuple(a.shape)
    if len(shape) < 2:
        raise RuntimeError(f"{name}: The input tensor {letter} must have at least 2 dimensions.")
    if d.category < D.FLOAT:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {_scalar_name(d)}")
    if d.itemsize < 4:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {_scalar_name(d)}")
    if square and shape[-1] != shape[-2]:
        raise RuntimeError(f"{name}: {letter} must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices")


def eye_like(a: Any, n: int) -> Any:
    return f("eye")(n, dtype=a.dtype, device=a.device)


def batch_of(a: Any) -> tuple[int, ...]:
    return tuple(a.shape[:-2])


def each(a: np.ndarray) -> np.ndarray:
    """A batch of matrices as one dimension of them."""
    return a.reshape((-1, *a.shape[-2:]))


def getrf(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LAPACK's LU factors of each matrix: (LU, pivots counted from 1, info)."""
    from scipy.linalg import get_lapack_funcs
    m, n = a.shape[-2:]
    lu, piv, info = np.empty(a.shape, a.dtype), np.zeros((*a.shape[:-2], B_.min(m, n)), np.int32), np.zeros(a.shape[:-2], np.int32)
    if not a.size:
        return lu, piv, info
    (fn,) = get_lapack_funcs(("getrf",), (a,))
    rows, pivots, codes = each(lu), piv.reshape(-1, B_.min(m, n)), info.reshape(-1)
    for k, x in enumerate(each(a)):
        r, p, c = fn(x)
        rows[k], pivots[k], codes[k] = r, p + 1, c
    return lu, piv, info


def _per_matrix(info: np.ndarray) -> str:
    k = int(np.flatnonzero(info.reshape(-1))[0])
    return f"(Batch element {k}): " if info.ndim else ""


def _raise_singular(name: str, info: np.ndarray, what: str) -> None:
    if info.any():
        code = int(info.reshape(-1)[np.flatnonzero(info.reshape(-1))[0]])
        raise LinAlgError(f"{name}: {_per_matrix(info)}" + what.format(code))


# --- inverses --------------------------------------------------------------------------------------------------------------
def _inverse(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(inverses, info): info is which pivot is zero, 0 for a matrix that has an inverse."""
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        return np.linalg.inv(a), info
    except np.linalg.LinAlgError:
        info = getrf(a)[2]
        r = np.empty(a.shape, a.dtype)
        rows, codes = each(r), info.reshape(-1)
        for k, x in enumerate(each(a)):
            try:
                rows[k] = np.linalg.inv(x)
            except np.linalg.LinAlgError:
                rows[k] = np.nan
                codes[k] = codes[k] or x.shape[-1]
        return r, info


@structural(ns="linalg", public=False, exact=True, name="inv_ex", returns=("inverse", "info"))
def _inv_ex(A: Tensor):
    return _inverse(A)


_inv_ex.shape(lambda A: (A.shape, (A.shape[:-2], INT32)))
_inv_ex.gradient(A=lambda grad, inverse: -(inverse.mH @ grad @ inverse.mH))


@composite(ns="linalg", returns=("inverse", "info"), out="cast")
def inv_ex(A: Tensor, *, check_errors: bool = False):
    """(inverse, info) of square matrices; info is not 0 where there is no inverse, which is an error only with `check_errors`."""
    need_matrices("linalg.inv_ex", A, square=True)
    r = run(_inv_ex, (A,))
    if check_errors:
        _raise_singular("linalg.inv_ex", r[1]._a, SINGULAR)
    return r


SINGULAR = "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."


@composite(ns="linalg", out="cast")
def inv(A: Tensor):
    """The inverses of square matrices. LinAlgError for a singular one."""
    need_matrices("linalg.inv", A, square=True)
    r, info = run(_inv_ex, (A,))
    if info._a.__class__ is np.ndarray:
        _raise_singular("linalg.inv", info._a, SINGULAR)
    return r


@composite(method=True, out="cast")
def inverse(input: Tensor):
    """`linalg.inv`."""
    return inv(input)


# --- determinants --------------------------------------------------------------------------------------------------------------
@structural(ns=("linalg", "torch"), method=True, exact=True, check=lambda A: need_matrices("linalg.det", A, square=True), out="cast", old={"input": "A"})
def det(A: Tensor):
    """The determinants of square matrices."""
    return np.asarray(np.linalg.det(A))


det.shape(lambda A: A.shape[:-2])


def products_of_others(s: Any) -> Any:
    """For each element of the last dimension the product of the others."""
    n = s.shape[-1]
    if n == 0:
        return s
    one = f("ones_like")(s.narrow(-1, 0, 1))
    left = f("cumprod")(f("cat")([one, s.narrow(-1, 0, n - 1)], -1), -1)
    right = f("cumprod")(f("cat")([one, s.flip((-1,)).narrow(-1, 0, n - 1)], -1), -1).flip((-1,))
    return left * right


def _det_gradient(grad, A, result):
    if bool((result != 0).all().item()):
        return (grad * result.conj()).unsqueeze(-1).unsqueeze(-1) * inv(A).mH
    # a singular matrix: the adjugate, from the singular values
    u, s, vh = f("linalg.svd")(A, False)
    unit = (det(u) * det(vh)).conj()
    return ((grad * unit).unsqueeze(-1).unsqueeze(-1) * u * products_of_others(s).unsqueeze(-2)) @ vh


det.gradient(A=_det_gradient)


@structural(ns="linalg", public=False, exact=True, name="slogdet", returns=("sign", "logabsdet"))
def _slogdet(A: Tensor):
    s, d = np.linalg.slogdet(A)
    return np.asarray(s), np.asarray(d)


_slogdet.shape(lambda A: (A.shape[:-2], (A.shape[:-2], D.of(A.dtype).to_real())))


def _slogdet_backward(grads, needs, A, sign):
    gs, gl = grads
    g = None if gl is None else gl
    if A.dtype.is_complex and gs is not None:
        turn = f("imag")(gs.conj() * sign) * -1j
        g = turn if g is None else g + turn
    if g is None:
        return (None,)
    return (g.unsqueeze(-1).unsqueeze(-1) * inv(A).mH,)


_slogdet.backward(_slogdet_backward)


@composite(ns=("linalg", "torch"), method=True, returns=("sign", "logabsdet"), out="cast", old={"input": "A"})
def slogdet(A: Tensor):
    """(sign, log of the absolute value) of the determinants of square matrices."""
    need_matrices("linalg.slogdet", A, square=True)
    return run(_slogdet, (A,))


@composite(method=True)
def logdet(input: Tensor):
    """The logarithm of the determinants of square matrices; nan for a negative one."""
    need_matrices("linalg.slogdet", input, square=True)
    s, d = run(_slogdet, (input,))
    if input.dtype.is_complex:
        return d + f("log")(s)
    return f("where")(s == -1, f("full_like")(d, float("nan")), d)


# --- linear systems ------------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="solve_ex", returns=("result", "info"))
def _solve_ex(A: Tensor, B: Tensor):
    info = np.zeros(A.shape[:-2], np.int32)
    try:
        return np.linalg.solve(A, B), info
    except np.linalg.LinAlgError:
        info = getrf(np.asarray(A))[2]
        r = np.full(B.shape, np.nan, B.dtype)
        for k, (x, y) in enumerate(zip(each(A), each(B), strict=True)):
            if not info.reshape(-1)[k]:
                each(r)[k] = np.linalg.solve(x, y)
        return r, info


_solve_ex.shape(lambda A, B: (B.shape, (A.shape[:-2], INT32)))


def _solve_backward(grads, needs, A, result):
    if grads[0] is None:
        return None, None
    gb = run(_solve_ex, (A.mH, grads[0]))[0]
    return (-(gb @ result.mH) if needs[0] else None), gb


_solve_ex.backward(_solve_backward)


def _broadcast_batches(name: str, *ts: Any) -> list[Any]:
    try:
        batch = np.broadcast_shapes(*[batch_of(t) for t in ts])
    except ValueError:
        raise RuntimeError(f"{name}: the batch dimensions {', '.join(str(list(batch_of(t))) for t in ts)} cannot be broadcast: the size of tensor a must match "
                           "the size of tensor b") from None
    return [t if batch_of(t) == batch else t.expand((*batch, *t.shape[-2:])) for t in ts]


def _system(name: str, A: Any, B: Any, left: bool) -> tuple[Any, Any, bool]:
    """The operands of AX = B as batches of matrices of one batch shape, and whether B was of vectors."""
    need_matrices(name, A, square=True)
    if B.dtype is not A.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type {_scalar_name(A.dtype)} and B of type {_scalar_name(B.dtype)} instead")
    vectors = B.dim() == 1 or A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1])
    if vectors and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case {name} is equivalent to "
                           "B / A.squeeze(-1)")
    b = B.unsqueeze(-1) if vectors else B
    n = b.shape[-2] if left else b.shape[-1]
    if b.dim() < 2 or n != A.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
                           f"{b.shape[-2]}x{b.shape[-1]})")
    a, b = _broadcast_batches(name, A, b)
    return a, b, vectors


def _solved(name: str, A: Any, B: Any, left: bool) -> tuple[Any, Any]:
    a, b, vectors = _system(name, A, B, left)
    r, info = run(_solve_ex, (a, b) if left else (a.mT, b.mT))
    r = r if left else r.mT
    return (r.squeeze(-1) if vectors else r), info


@composite(ns="linalg", out="cast")
def solve(A: Tensor, B: Tensor, *, left: bool = True):
    """X of AX = B, or with left=False of XA = B, for square matrices A. LinAlgError for a singular one."""
    r, info = _solved("linalg.solve", A, B, left)
    if info._a.__class__ is np.ndarray:
        _raise_singular("linalg.solve", info._a, "The solver failed because the input matrix is singular.")
    return r


@composite(ns="linalg", returns=("result", "info"), out="cast")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False):
    """(X, info) of AX = B; info is not 0 where A is singular."""
    from .execute import _named
    r, info = _solved("linalg.solve_ex", A, B, left)
    if check_errors:
        _raise_singular("linalg.solve_ex", info._a, "The solver failed because the input matrix is singular.")
    return _named(solve_ex)((r, info))


@structural(ns="linalg", public=False, exact=True, name="solve_triangular")
def _solve_triangular(A: Tensor, B: Tensor, upper: bool, unitriangular: bool):
    from scipy.linalg import get_blas_funcs
    r = np.empty(B.shape, B.dtype)
    if r.size:
        (trsm,) = get_blas_funcs(("trsm",), (A, B))
        for k, (x, y) in enumerate(zip(each(A), each(B), strict=True)):
            each(r)[k] = trsm(1.0, x, y, lower=not upper, diag=unitriangular)
    return r


_solve_triangular.shape(lambda A, B, upper, unitriangular: B.shape)


def _triangular_backward(grad, needs, A, result, upper, unitriangular):
    gb = run(_solve_triangular, (A.mH, grad, not upper, unitriangular))
    if not needs[0]:
        return None, gb
    ga = -(gb @ result.mH)
    k = 1 if unitriangular else 0
    return (f("triu")(ga, k) if upper else f("tril")(ga, -k)), gb


_solve_triangular.backward(_triangular_backward)


@composite(ns="linalg", out="cast")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False):
    """X of AX = B (XA = B) for triangular A, of which only that triangle is read; with `unitriangular` its diagonal counts as ones."""
    name = "linalg.solve_triangular"
    need_matrices(name, A, square=True)
    if B.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if B.dtype is not A.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type {_scalar_name(A.dtype)} and B of type {_scalar_name(B.dtype)} instead")
    if (B.shape[-2] if left else B.shape[-1]) != A.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{A.shape[-1]} and "
                           f"{B.shape[-2]}x{B.shape[-1]})")
    a, b = _broadcast_batches(name, A, B)
    if left:
        return run(_solve_triangular, (a, b, upper, unitriangular))
    return run(_solve_triangular, (a.mT, b.mT, not upper, unitriangular)).mT


@composite(method=True, returns=("solution", "cloned_coefficient"), out="cast")
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False):
    """(X, A) of AX = input for triangular A. Deprecated: use `linalg.solve_triangular`."""
    from .execute import _named
    x = solve_triangular(A.mT if transpose else A, input, upper=upper != transpose, unitriangular=unitriangular)
    return _named(triangular_solve)((x, A.clone()))


# --- Cholesky --------------------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="cholesky_ex", returns=("L", "info"))
def _cholesky_ex(A: Tensor, upper: bool):
    info = np.zeros(A.shape[:-2], np.int32)
    a = A.swapaxes(-1, -2).conj() if upper else A
    try:
        r = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        from scipy.linalg import get_lapack_funcs
        (potrf,) = get_lapack_funcs(("potrf",), (a,))
        r = np.empty(A.shape, A.dtype)
        for k, x in enumerate(each(a)):
            each(r)[k], info.reshape(-1)[k] = potrf(x, lower=True, clean=True)
    return (np.ascontiguousarray(r.swapaxes(-1, -2).conj()) if upper else r), info


_cholesky_ex.shape(lambda A, upper: (A.shape, (A.shape[:-2], INT32)))


def _cholesky_gradient(grad, L, upper):
    if upper:
        L, grad = L.mH, grad.mH
    s = f("tril")(L.mH @ grad)
    s = s - 0.5 * f("diag_embed")(s.diagonal(0, -2, -1))
    s = s + s.mH
    # L^-H s L^-1 / 2
    x = run(_solve_triangular, (L.mH, s, True, False))
    return 0.5 * run(_solve_triangular, (L.mT, x.mT, True, False)).mT


_cholesky_ex.gradient(A=_cholesky_gradient)
NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite (the leading minor of order {} is not positive-definite)."


@composite(ns="linalg", returns=("L", "info"), out="cast")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False):
    """(L, info) with A = L L^H, L lower triangular (with `upper`, A = U^H U); info is not 0 where A is not positive definite."""
    need_matrices("linalg.cholesky_ex", A, square=True)
    r = run(_cholesky_ex, (A, upper))
    if check_errors:
        _raise_singular("linalg.cholesky_ex", r[1]._a, NOT_POSITIVE)
    return r


def _cholesky(name: str, A: Any, upper: bool) -> Any:
    need_matrices(name, A, square=True)
    r, info = run(_cholesky_ex, (A, upper))
    if info._a.__class__ is np.ndarray:
        _raise_singular(name, info._a, NOT_POSITIVE)
    return r


@composite(ns="linalg", out="cast")
def cholesky(A: Tensor, *, upper: bool = False):
    """L with A = L L^H, lower triangular (with `upper`, U with A = U^H U). LinAlgError where A is not positive definite."""
    return _cholesky("linalg.cholesky", A, upper)


@composite(method=True, out="cast", name="cholesky")
def cholesky_old(input: Tensor, upper: bool = False):
    """`linalg.cholesky`."""
    return _cholesky("cholesky", input, upper)


@structural(public=False, exact=True, name="cholesky_solve")
def _cholesky_solve(B: Tensor, L: Tensor, upper: bool):
    low = L.swapaxes(-1, -2).conj() if upper else L
    y = _solve_triangular.fn(low, B, False, False)
    return _solve_triangular.fn(low.swapaxes(-1, -2).conj(), y, True, False)


def _cholesky_solve_backward(grad, needs, L, result, upper):
    gb = run(_cholesky_solve, (grad, L, upper))
    if not needs[1]:
        return gb, None
    x = gb @ result.mH
    x = x + x.mH
    return gb, -(L @ x) if upper else -(x @ L)


_cholesky_solve.shape(lambda B, L, upper: B.shape)
_cholesky_solve.backward(_cholesky_solve_backward)


@composite(method=True, out="cast")
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False):
    """X of AX = B, with A given by its Cholesky factor."""
    if B.dim() < 2 or L.dim() < 2:
        raise RuntimeError(f"{'b' if B.dim() < 2 else 'u'} should have at least 2 dimensions, but has {B.dim() if B.dim() < 2 else L.dim()} dimensions instead")
    if L.shape[-1] != L.shape[-2] or L.shape[-1] != B.shape[-2]:
        raise RuntimeError(f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b matrix is {B.shape[-2]} by "
                           f"{B.shape[-1]}")
    if B.dtype is not L.dtype:
        raise RuntimeError(f"cholesky_solve: expected B and L to have the same dtype, got {B.dtype.name} and {L.dtype.name}")
    L, B = _broadcast_batches("cholesky_solve", L, B)
    return run(_cholesky_solve, (B, L, upper))


@composite(method=True, out="cast")
def cholesky_inverse(L: Tensor, upper: bool = False):
    """The inverse of a matrix given by its Cholesky factor."""
    need_matrices("cholesky_inverse", L, square=True)
    return cholesky_solve.fn(eye_like(L, L.shape[-1]).expand(L.shape), L, upper)


# --- norms -----------------------------------------------------------------------------------------------------------------------
def _two_dims(name: str, dim: Any, n: int) -> tuple[int, int]:
    dims = tuple(dim)
    if len(dims) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {list(dims)}")
    a, b = (normalize_dims((d,), n, name)[0] for d in dims)
    if a == b:
        raise RuntimeError(f"{name}: dims must be different. Got ({dims[0]}, {dims[1]})")
    return a, b


@composite(ns="linalg", out="cast")
def matrix_norm(A: Tensor, ord: Number | str = "fro", dim: tuple = (-2, -1), keepdim: bool = False, *, dtype: Any = None):
    """The norm of matrices: "fro", "nuc", 2 and -2 (largest and smallest singular value), 1 and -1 (sums of columns), inf and -inf (of rows)."""
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


@composite(ns="linalg", out="cast")
def norm(A: Tensor, ord: Number | str | None = None, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None):
    """A vector norm (one dimension, or `ord` None: of all elements) or a matrix norm (two dimensions, or a matrix and an `ord`)."""
    if dim is None:
        if ord is None:
            return f("linalg.vector_norm")(A, 2, None, keepdim, dtype=dtype)
        if A.dim() == 1 and not isinstance(ord, str):
            return f("linalg.vector_norm")(A, ord, None, keepdim, dtype=dtype)
        if A.dim() not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D.")
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
    return f("where")(info != 0, f("full_like")(v, float("inf")), v) if bool((info != 0).any().item()) else v


# --- products --------------------------------------------------------------------------------------------------------------------
@composite(ns=("linalg", "torch"), method=True, out="cast", old={"input": "A"})
def matrix_power(A: Tensor, n: int):
    """Square matrices to an integer power; negative powers are those of the inverse."""
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.")
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.matrix_power: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices")
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


@composite(ns="linalg", out="cast")
def multi_dot(tensors: Tensors):
    """The product of a chain of matrices in the cheapest order; the first and the last may be vectors."""
    ts = list(tensors)
    if len(ts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(ts)))
    for k, t in enumerate(ts):
        ends = k in (0, len(ts) - 1)
        if t.dim() not in ((1, 2) if ends else (2,)):
            raise RuntimeError(f"multi_dot(): the {'first' if k == 0 else 'last' if ends else ''} tensor must be {'1D or 2D' if ends else '2D'} but got {t.dim()}D "
                               f"(tensor {k})")
        if t.dtype is not ts[0].dtype:
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {ts[0].dtype.name} and tensor {k} {t.dtype.name}")
    row, column = ts[0].dim() == 1, ts[-1].dim() == 1
    ts[0] = ts[0].unsqueeze(0) if row else ts[0]
    ts[-1] = ts[-1].unsqueeze(-1) if column else ts[-1]
    for k in range(len(ts) - 1):
        if ts[k].shape[1] != ts[k + 1].shape[0]:
            raise RuntimeError(f"multi_dot(): tensors {k} and {k + 1} with shapes {list(ts[k].shape)} and {list(ts[k + 1].shape)} cannot be multiplied")
    n = len(ts)
    size = [t.shape[0] for t in ts] + [ts[-1].shape[1]]
    # cost[i][j] of the product of i ... j and where it is cut (the classic dynamic programme)
    cost, cut = [[0] * n for _ in ts], [[0] * n for _ in ts]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = B_.min((cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1], k) for k in range(i, j))

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
        raise RuntimeError("linalg.matrix_exp: Expected a floating point or complex tensor as input. Got " + _scalar_name(A.dtype))
    need_matrices("linalg.matrix_exp", A, square=True)
    return run(_matrix_exp, (A,))


@composite(ns="linalg", out="cast", name="cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1):
    """The cross products of vectors of three elements along `dim`."""
    if input.dim() != other.dim():
        raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions: got {input.dim()} and {other.dim()}")
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")
    shape = np.broadcast_shapes(input._a.shape, other._a.shape)
    a, b = (t.expand(shape) for t in (input, other))
    return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)


@composite(method=True, out="cast")
def cross(input: Tensor, other: Tensor, dim: int | None = None):
    """The cross products of vectors of three elements along `dim`, the first dimension of size 3 by default."""
    if dim is None:
        dim = next((k for k, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input (shape {list(input.shape)})")
    return linalg_cross(input, other, dim=dim)


@composite(ns="linalg", out="cast")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1):
    """The sums over `dim` of the products of conj(x) and y."""
    for n, t in (("x", x), ("y", y)):
        if t.dtype.category < D.FLOAT:
            raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {_scalar_name(t.dtype)}")
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


@composite(ns="linalg", out="cast")
def tensorinv(A: Tensor, ind: int = 2):
    """The inverse of A as a linear map between tensors: its first `ind` dimensions are the rows."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    a, b = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    n, m = int(np.prod(a, dtype=int)), int(np.prod(b, dtype=int))
    if n != m:
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {m} != {n}")
    return inv(A.reshape(n, m)).reshape((*b, *a))


@composite(ns="linalg", out="cast")
def tensorsolve(A: Tensor, B: Tensor, dims: tuple | None = None):
    """X of tensordot(A, X, X.dim()) = B."""
    n = A.dim()
    if dims is not None:
        ds = [d % n for d in dims]
        A = A.permute([k for k in range(n) if k not in ds] + ds)
    rest = tuple(A.shape[B.dim():])
    k = int(np.prod(rest, dtype=int))
    if k * k != A.numel():
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])")
    return solve(A.reshape(k, k), B.reshape(-1)).reshape(rest)

