"""Linear algebra: inverses, determinants, linear systems, triangular systems, Cholesky factors, norms and products of
matrices.

Factorizations come from NumPy's LAPACK; SciPy is imported where NumPy has none. Gradients are the usual adjoints
(Giles, "An
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
from .execute import _scalar_name, reads_values, run

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
        raise RuntimeError(
            f"{name}: {letter} must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices"
        )


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
    lu, piv, info = (
        np.empty(a.shape, a.dtype),
        np.zeros((*a.shape[:-2], B_.min(m, n)), np.int32),
        np.zeros(a.shape[:-2], np.int32),
    )
    if not a.size:
        return lu, piv, info
    (fn,) = get_lapack_funcs(("getrf",), (a,))
    rows, pivots, codes = each(lu), piv.reshape(-1, B_.min(m, n)), info.reshape(-1)
    for k, x in enumerate(each(a)):
        r, p, c = fn(x)
        if c and np.isnan(x).any():         # some libraries take a pivot that is nan for zero and stop
            c, r = 0, np.full_like(r, np.nan)
        rows[k], pivots[k], codes[k] = r, p + 1, c
    return lu, piv, info


def _per_matrix(info: np.ndarray) -> str:
    k = int(np.flatnonzero(info.reshape(-1))[0])
    return f"(Batch element {k}): " if info.ndim else ""


def _raise_singular(name: str, info: np.ndarray, what: str) -> None:
    reads_values(name)
    if info.any():
        code = int(info.reshape(-1)[np.flatnonzero(info.reshape(-1))[0]])
        raise LinAlgError(f"{name}: {_per_matrix(info)}" + what.format(code))


# --- inverses ---------------------------------------------------------------------------------------------------------
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
                codes[k] = codes[k] or np.isfinite(x).all() and x.shape[-1]
        return r, info


@structural(ns="linalg", public=False, exact=True, name="inv_ex", node="LinalgInvExBackward0", returns=("inverse", "info"))
def _inv_ex(A: Tensor):
    return _inverse(A)


_inv_ex.shape(lambda A: (A.shape, (A.shape[:-2], INT32)))
_inv_ex.gradient(A=lambda grad, inverse: -(inverse.mH @ grad @ inverse.mH))


@composite(ns="linalg", returns=("inverse", "info"), out="same")
def inv_ex(A: Tensor, *, check_errors: bool = False):
    """(inverse, info) of square matrices; info is not 0 where there is no inverse, which is an error only with
    `check_errors`."""
    need_matrices("linalg.inv_ex", A, square=True)
    r = run(_inv_ex, (A,))
    if check_errors:
        _raise_singular("linalg.inv_ex", r[1]._a, SINGULAR)
    return r


SINGULAR = "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."


@composite(ns="linalg", out="same")
def inv(A: Tensor):
    """The inverses of square matrices. LinAlgError for a singular one."""
    need_matrices("linalg.inv", A, square=True)
    r, info = run(_inv_ex, (A,))
    if info._a.__class__ is np.ndarray:
        _raise_singular("linalg.inv", info._a, SINGULAR)
    return r


@composite(method=True, out="same")
def inverse(input: Tensor):
    """`linalg.inv`."""
    return inv(input)


# --- determinants -----------------------------------------------------------------------------------------------------
@structural(
    ns=("linalg", "torch"),
    method=True,
    exact=True,
    check=lambda A: need_matrices("linalg.det", A, square=True),
    out="same",
    node="LinalgDetBackward0",
    old={"input": "A"},
)
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


@structural(ns="linalg", public=False, exact=True, name="slogdet", node="LinalgSlogdetBackward0", returns=("sign", "logabsdet"))
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


@composite(ns=("linalg", "torch"), method=True, returns=("sign", "logabsdet"), out="same", old={"input": "A"})
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


# --- linear systems ---------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="solve_ex", node="LinalgSolveExBackward0", returns=("result", "info"))
def _solve_ex(A: Tensor, B: Tensor):
    info = np.zeros(A.shape[:-2], np.int32)
    try:
        return np.linalg.solve(A, B), info
    except np.linalg.LinAlgError:
        info = getrf(np.asarray(A))[2]
        r = np.full(B.shape, np.nan, B.dtype)
        for k, (x, y) in enumerate(zip(each(A), each(B), strict=True)):
            if not info.reshape(-1)[k]:
                try:
                    each(r)[k] = np.linalg.solve(x, y)
                except np.linalg.LinAlgError:   # nan or inf in x: nan
                    pass
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
        raise RuntimeError(
            f"{name}: the batch dimensions {', '.join(str(list(batch_of(t))) for t in ts)} cannot be broadcast: the "
            "size of tensor a must match "
            "the size of tensor b"
        ) from None
    return [t if batch_of(t) == batch else t.expand((*batch, *t.shape[-2:])) for t in ts]


def _system(name: str, A: Any, B: Any, left: bool) -> tuple[Any, Any, bool]:
    """The operands of AX = B as batches of matrices of one batch shape, and whether B was of vectors."""
    need_matrices(name, A, square=True)
    if B.dtype is not A.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {_scalar_name(A.dtype)} and B of "
            f"type {_scalar_name(B.dtype)} instead"
        )
    vectors = B.dim() == 1 or A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1])
    if vectors and not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case {name} "
            "is equivalent to "
            "B / A.squeeze(-1)"
        )
    b = B.unsqueeze(-1) if vectors else B
    n = b.shape[-2] if left else b.shape[-1]
    if b.dim() < 2 or n != A.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A.shape[-2]}x{A.shape[-1]} and "
            f"{b.shape[-2]}x{b.shape[-1]})"
        )
    a, b = _broadcast_batches(name, A, b)
    return a, b, vectors


def _solved(name: str, A: Any, B: Any, left: bool) -> tuple[Any, Any]:
    a, b, vectors = _system(name, A, B, left)
    r, info = run(_solve_ex, (a, b) if left else (a.mT, b.mT))
    r = r if left else r.mT
    return (r.squeeze(-1) if vectors else r), info


@composite(ns="linalg", out="same")
def solve(A: Tensor, B: Tensor, *, left: bool = True):
    """X of AX = B, or with left=False of XA = B, for square matrices A. LinAlgError for a singular one."""
    r, info = _solved("linalg.solve", A, B, left)
    if info._a.__class__ is np.ndarray:
        _raise_singular("linalg.solve", info._a, "The solver failed because the input matrix is singular.")
    return r


@composite(ns="linalg", returns=("result", "info"), out="same")
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


@composite(ns="linalg", out="same")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False):
    """X of AX = B (XA = B) for triangular A, of which only that triangle is read; with `unitriangular` its diagonal
    counts as ones."""
    name = "linalg.solve_triangular"
    need_matrices(name, A, square=True)
    if B.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if B.dtype is not A.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {_scalar_name(A.dtype)} and B of "
            f"type {_scalar_name(B.dtype)} instead"
        )
    if (B.shape[-2] if left else B.shape[-1]) != A.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A.shape[-2]}x{A.shape[-1]} and "
            f"{B.shape[-2]}x{B.shape[-1]})"
        )
    a, b = _broadcast_batches(name, A, B)
    if left:
        return run(_solve_triangular, (a, b, upper, unitriangular))
    return run(_solve_triangular, (a.mT, b.mT, not upper, unitriangular)).mT


@composite(method=True, aliases=("trtrs",), returns=("solution", "cloned_coefficient"), out="same", old={"b": "input"})
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
):
    """(X, A) of AX = input for triangular A. Deprecated: use `linalg.solve_triangular`."""
    from .execute import _named

    x = solve_triangular(A.mT if transpose else A, input, upper=upper != transpose, unitriangular=unitriangular)
    return _named(triangular_solve)((x, A.clone()))


# --- Cholesky ---------------------------------------------------------------------------------------------------------
@structural(ns="linalg", public=False, exact=True, name="cholesky_ex", node="LinalgCholeskyExBackward0", returns=("L", "info"))
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
    lost = np.isnan(np.diagonal(r, 0, -2, -1))
    if lost.any():          # a pivot that is nan is not positive either
        info = np.where(lost.any(-1) & (info == 0), np.argmax(lost, -1) + 1, info).astype(np.int32)
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
NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite (the leading minor of order "
    "{} is not positive-definite)."
)


@composite(ns="linalg", returns=("L", "info"), out="same")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False):
    """(L, info) with A = L L^H, L lower triangular (with `upper`, A = U^H U); info is not 0 where A is not positive
    definite."""
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


@composite(ns="linalg", out="same")
def cholesky(A: Tensor, *, upper: bool = False):
    """L with A = L L^H, lower triangular (with `upper`, U with A = U^H U). LinAlgError where A is not positive
    definite."""
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
        raise RuntimeError(
            f"{'b' if B.dim() < 2 else 'u'} should have at least 2 dimensions, but has "
            f"{B.dim() if B.dim() < 2 else L.dim()} dimensions instead"
        )
    if L.shape[-1] != L.shape[-2] or L.shape[-1] != B.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b "
            f"matrix is {B.shape[-2]} by "
            f"{B.shape[-1]}"
        )
    if B.dtype is not L.dtype:
        raise RuntimeError(
            f"cholesky_solve: expected B and L to have the same dtype, got {B.dtype.name} and {L.dtype.name}"
        )
    L, B = _broadcast_batches("cholesky_solve", L, B)
    return run(_cholesky_solve, (B, L, upper))


@composite(method=True, out="cast")
def cholesky_inverse(L: Tensor, upper: bool = False):
    """The inverse of a matrix given by its Cholesky factor."""
    need_matrices("cholesky_inverse", L, square=True)
    return cholesky_solve.fn(eye_like(L, L.shape[-1]).expand(L.shape), L, upper)


# --- Inputs for the generated tests (ops.samples) ---
inv.samples(lambda s: [s.call(s((2, 3, 3)))])
inverse.samples(lambda s: [s.call(s((3, 3)))])
det.samples(lambda s: [s.call(s((2, 3, 3))), s.call(s((2, 2)))])
slogdet.samples(lambda s: [s.call(s((2, 3, 3)))])
logdet.samples(lambda s: [s.call(s.array([[2.0, 0.5], [0.25, 1.5]], 'float64', True))])
solve.samples(lambda s: [s.call(s((2, 3, 3)), s((2, 3, 2))), s.call(s((3, 3)), s((3,))), s.call(s((3, 3)), s((2, 3)), left=False)])
solve_triangular.samples(lambda s: [s.call(s.array([[2.0, 0.0], [1.0, 3.0]], 'float64', True), s((2, 2)), upper=False),
                                    s.call(s.array([[2.0, 1.0], [0.0, 3.0]], 'float64', True), s((3, 2)), upper=True, left=False)])
cholesky.samples(lambda s: [s.call(s.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], 'float64'))])
cholesky_old.samples(lambda s: [s.call(s.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], 'float64'))])
cholesky_solve.samples(lambda s: [s.call(s((3, 2)), s.array([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [0.5, 0.2, 1.0]], 'float64'))])
cholesky_inverse.samples(lambda s: [s.call(s.array([[2.0, 0.0], [1.0, 3.0]], 'float64'))])
