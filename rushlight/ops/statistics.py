"""Quantiles, differences, integrals, means without nan, covariances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import dtype as D
from ..core.tensor import Tensor as T
from ..core.tensor import hooks
from .declare import composite
from .execute import normalize_dims

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Dims = int | tuple[int, ...] | None


def f(name: str) -> Any:
    return hooks.function(name)


@composite(method=True, out=True)
def nanmean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None):
    """The mean of the elements that are not nan."""
    if input.dtype.category < D.FLOAT:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.name.capitalize()}"
        )
    n = (~f("isnan")(input)).sum(dim, keepdim)
    return f("nansum")(input, dim, keepdim, dtype=dtype) / n


METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


def _quantile(name: str, skip: bool, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Any:
    if input.dtype.name not in ("float32", "float64"):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in METHODS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    given = isinstance(q, T)
    if given:
        if q.dim() > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q.dtype is not input.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = f("tensor")(q, dtype=input.dtype, device=input.device)
    if given and not q.is_meta and bool(((q < 0) | (q > 1)).any().item()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    (d,) = normalize_dims((dim,), input.dim(), name) or (0,) if dim is not None else (0,)
    x = input.reshape(-1) if dim is None or input.dim() == 0 else input.movedim(d, -1)
    x = f("sort")(x, -1)[0]
    n = x.shape[-1]
    points = q.reshape(-1)
    if skip:
        top = ((~f("isnan")(x)).sum(-1, True) - 1).clamp(min=0).to(x.dtype)
        rank = points * top
    else:
        # a row with nan gives nan: its last element is one
        rank = f("where")(f("isnan")(x.narrow(-1, n - 1, 1)), float(n - 1), points * (n - 1))
    if interpolation == "lower":
        rank = f("floor")(rank)
    elif interpolation == "higher":
        rank = f("ceil")(rank)
    elif interpolation == "nearest":
        rank = f("round")(rank)
    below = rank.detach().to(D.int64)
    low = x.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weight = f("full_like")(rank, 0.5) if interpolation == "midpoint" else rank - below
        low = f("lerp")(low, x.gather(-1, f("ceil")(rank.detach()).to(D.int64)), weight)
    # the quantiles come first
    r = low.movedim(-1, 0)
    if keepdim:
        r = r.reshape((r.shape[0], *[1] * input.dim())) if dim is None else r.unsqueeze(d + 1) if input.dim() else r
    elif input.dim() == 0 or dim is None:
        r = r.reshape(r.shape[0])
    return r.squeeze(0) if q.dim() == 0 else r


@composite(method=True, out="same")
def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
):
    """The q-quantiles along `dim` (of all elements by default); a vector `q` gives a new first dimension. nan where
    there is one."""
    return _quantile("quantile", False, input, q, dim, keepdim, interpolation)


@composite(method=True, out="same")
def nanquantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
):
    """`quantile` of the elements that are not nan."""
    return _quantile("nanquantile", True, input, q, dim, keepdim, interpolation)


@composite(method=True, out=True)
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None):
    """Differences of neighbours along `dim`, `n` times over; `prepend` and `append` are joined to the input first."""
    if input.dim() == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    parts = [t for t in (prepend, input, append) if t is not None]
    for name, t in (("prepend", prepend), ("append", append)):
        if t is not None and t.dim() != input.dim():
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input: {name} has {t.dim()} dimensions, "
                f"the input {input.dim()}"
            )
    x = f("cat")(parts, dim) if len(parts) > 1 else input
    if n == 0:
        return f("zeros_like")(x) if x.shape[dim] == 0 else x.clone() if x is input else x
    for _ in range(min(n, x.shape[dim])):
        size = x.shape[dim]
        a, b = x.narrow(dim, min(1, size), max(size - 1, 0)), x.narrow(dim, 0, max(size - 1, 0))
        x = f("logical_xor")(a, b) if x.dtype is D.bool_ else a - b
    return x


# --- integrals --------------------------------------------------------------------------------------------------------
def _steps(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    """The widths of the intervals: a number, or a tensor that broadcasts with the pairs of neighbours of `y`."""
    if x is not None and dx is not None:
        raise TypeError(f"{name}() takes x or dx, not both")
    if x is None:
        if isinstance(dx, bool) or isinstance(dx, complex):
            raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")
        return 1 if dx is None else dx
    (d,) = normalize_dims((dim,), y.dim(), name)
    if x.dim() == 1:
        if x.shape[0] != y.shape[d]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        w = x.narrow(0, 1, max(x.shape[0] - 1, 0)) - x.narrow(0, 0, max(x.shape[0] - 1, 0)) if x.shape[0] else x
        return w.reshape([-1 if k == d else 1 for k in range(y.dim())])
    lead = y.dim() - x.dim()
    x = x.reshape((*[1] * lead, *x.shape)) if lead > 0 else x
    k = dim if dim < 0 else dim - y.dim()
    n = x.shape[k]
    return x.narrow(k, 1, n - 1) - x.narrow(k, 0, n - 1)


def _trapezoids(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    if y.dim() == 0:
        raise IndexError(f"{name}: the input must have at least one dimension")
    (d,) = normalize_dims((dim,), y.dim(), name)
    n = y.shape[d]
    if y.dtype is D.bool_ or x is not None and x.dtype is D.bool_:
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    w = _steps(name, y, x, dx, dim)
    pairs = y.narrow(d, min(1, n), max(n - 1, 0)) + y.narrow(d, 0, max(n - 1, 0))
    return w * pairs


@composite(aliases=("trapz",))
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1):
    """The integral of `y` along `dim` by the trapezoidal rule, at distances `dx` (1) or at the points `x`."""
    if y.dim() and y.shape[dim] == 0:
        return f("zeros")(
            tuple(n for k, n in enumerate(y.shape) if k != dim % y.dim()),
            dtype=y.dtype if y.dtype.category >= D.FLOAT else D.default[0],
        )
    return _trapezoids("trapezoid", y, x, dx, dim).sum(dim) / 2.0


@composite()
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1):
    """The running integral of `y` along `dim` by the trapezoidal rule."""
    return _trapezoids("cumulative_trapezoid", y, x, dx, dim).cumsum(dim) / 2.0


# --- covariances ------------------------------------------------------------------------------------------------------
@composite(method=True)
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None):
    """The covariance matrix of variables in rows and observations in columns."""
    if input.dim() > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions"
        )
    if input.dtype is D.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    n = x.shape[1]
    w = None
    for name, t, kinds in (("fweights", fweights, (D.INTEGER,)), ("aweights", aweights, (D.INTEGER, D.FLOAT))):
        if t is None:
            continue
        if t.dim() > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with {t.dim()} dimensions"
            )
        if t.dtype.category not in kinds:
            raise RuntimeError(
                f"cov(): expected {name} to have {'integral' if name == 'fweights' else 'floating point'} dtype but "
                f"got {name} with "
                f"{t.dtype.name} dtype"
            )
        if t.numel() != n:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                f"{t.numel()} != {n}"
            )
        if t.numel() and not t.is_meta and bool((t < 0).any().item()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        w = t if w is None else w * t
    if x.dtype.category < D.FLOAT:
        x = x.to(D.default[0])
    total = n if w is None else w.sum()
    mean = x.mean(1, True) if w is None else (x * w).sum(1, True) / total
    if w is not None and aweights is not None and correction:
        norm = total - correction * (w * aweights).sum() / total
    else:
        norm = total - correction
    c = x - mean
    other = c if w is None else c * w
    if isinstance(norm, T):
        norm = norm.clamp(min=0).to(x.dtype.to_real())
    else:
        norm = max(norm, 0)
        if norm == 0:
            norm = f("zeros")((), dtype=x.dtype.to_real())
    r = f("mm")(other, f("conj")(c.t())) / norm
    return r.squeeze()


@composite(method=True)
def corrcoef(input: Tensor):
    """The matrix of correlation coefficients of variables in rows."""
    if input.dim() > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions"
        )
    c = cov.fn(input)
    if c.dim() == 0:
        return c / c
    d = f("sqrt")(f("real")(c.diagonal()) if c.dtype.is_complex else c.diagonal())
    r = c / d.unsqueeze(1) / d.unsqueeze(0)
    if r.dtype.is_complex:
        return f("complex")(f("real")(r).clamp(-1, 1), f("imag")(r).clamp(-1, 1))
    return r.clamp(-1, 1)


# --- distances --------------------------------------------------------------------------------------------------------
@composite()
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary"):
    """The p-norms of the differences of all pairs of rows: (..., P, M) and (..., R, M) give (..., P, R)."""
    if x1.dim() < 2 or x2.dim() < 2:
        raise RuntimeError(f"X1 and X2 must be at least two dimensional: cdist got {x1.dim()}D and {x2.dim()}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in (
        None,
        "use_mm_for_euclid_dist_if_necessary",
        "use_mm_for_euclid_dist",
        "donot_use_mm_for_euclid_dist",
    ):
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for t in (x1, x2):
        if t.dtype.category != D.FLOAT:
            raise RuntimeError(f"cdist only supports floating-point dtypes, X1 got: {t.dtype.name}")
    rows = max(x1.shape[-2], x2.shape[-2])
    if (
        p == 2
        and x1.shape[-1]
        and (compute_mode == "use_mm_for_euclid_dist" or rows > 25 and compute_mode != "donot_use_mm_for_euclid_dist")
    ):
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a.b, as one product
        a, b = (x1 * x1).sum(-1, True), (x2 * x2).sum(-1, True)
        s = f("matmul")(f("cat")([-2 * x1, a, f("ones_like")(a)], -1), f("cat")([x2, f("ones_like")(b), b], -1).mT)
        s = s.clamp(min=0)
        safe = f("where")(s == 0, f("ones_like")(s), s)
        return f("where")(s == 0, f("zeros_like")(s), f("sqrt")(safe))
    return f("linalg.vector_norm")(x1.unsqueeze(-2) - x2.unsqueeze(-3), float(p), -1)


@composite(method=True, inplace=True, out="same")
def renorm(input: Tensor, p: Number, dim: int, maxnorm: Number):
    """Each slice along `dim` whose p-norm is above `maxnorm` scaled down to it."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    (d,) = normalize_dims((dim,), input.dim(), "renorm")
    n = f("linalg.vector_norm")(input, p, tuple(k for k in range(input.dim()) if k != d), True)
    factor = f("where")(n > maxnorm, maxnorm / (n + 1e-7), f("ones_like")(n))
    return input * factor


@composite(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1):
    """Estimated derivatives along each dimension, by central differences in the interior; `spacing` gives distances or
    coordinates."""
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = (
        list(range(input.dim()))
        if dim is None
        else [normalize_dims((d,), input.dim(), "gradient")[0] for d in ((dim,) if isinstance(dim, int) else dim)]
    )
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {dims[0]} appears multiple times in the list of dims")
    spacing = 1 if spacing is None else spacing
    sp = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(sp) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or it's spacing and dim arguments to have "
            "the same length, but got a "
            f"spacing argument of length {len(sp)} and a dim argument of length {len(dims)}."
        )
    x = input if input.dtype.category >= D.FLOAT else input.to(D.default[0])
    out = []
    for d, s in zip(dims, sp, strict=True):
        n = x.shape[d]
        if n < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        out.append(_gradient_along(x, d, s, edge_order))
    return tuple(out)


def _gradient_along(x: Any, d: int, s: Any, edge: int) -> Any:
    n = x.shape[d]

    def at(i: int, k: int) -> Any:
        return x.narrow(d, i, k)

    def first(a: Any, b: Any, c: Any, h1: Any, h2: Any, sign: int) -> Any:
        # one-sided, through three points at distances h1 and h1 + h2
        return sign * (
            a * (-(2 * h1 + h2) / (h1 * (h1 + h2))) + b * ((h1 + h2) / (h1 * h2)) + c * (-h1 / (h2 * (h1 + h2)))
        )

    if isinstance(s, T) and s.dim() == 1:
        if s.numel() != n:
            raise RuntimeError(
                f"torch.gradient expected each spacing tensor to have one coordinate for each element of dimension {d} "
                f"({n}), got {s.numel()}"
            )
        h = (s.narrow(0, 1, n - 1) - s.narrow(0, 0, n - 1)).reshape([-1 if k == d else 1 for k in range(x.dim())])
        h1, h2 = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
        inner = (
            at(0, n - 2) * (-h2 / (h1 * (h1 + h2)))
            + at(1, n - 2) * ((h2 - h1) / (h1 * h2))
            + at(2, n - 2) * (h1 / (h2 * (h1 + h2)))
        )
        a, b, y, z = (
            h.narrow(d, 0, 1),
            h.narrow(d, min(1, n - 2), 1),
            h.narrow(d, n - 2, 1),
            h.narrow(d, max(n - 3, 0), 1),
        )
    else:
        h = s
        inner = (at(2, n - 2) - at(0, n - 2)) / (2 * h)
        a = b = y = z = h
    if edge == 1:
        left, right = (at(1, 1) - at(0, 1)) / a, (at(n - 1, 1) - at(n - 2, 1)) / y
    else:
        left = first(at(0, 1), at(1, 1), at(2, 1), a, b, 1)
        right = first(at(n - 1, 1), at(n - 2, 1), at(n - 3, 1), y, z, -1)
    return f("cat")([left, inner, right], d)


# --- Inputs for the generated tests (ops.samples) ---
nanmean.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 1, True)])
quantile.samples(lambda s: [s.call(s((3, 4)), 0.3), s.call(s((3, 4)), s.array([0.1, 0.5], 'float64'), 1), s.call(s((3, 4)), 0.4, 0, True, interpolation='lower')])
nanquantile.samples(lambda s: [s.call(s((3, 4)), 0.3), s.call(s((3, 4)), 0.6, 1)])
diff.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 2, 0), s.call(s((4,)), prepend=s((1,)), append=s((2,)))])
trapezoid.samples(lambda s: [s.call(s((2, 4))), s.call(s((2, 4)), s((4,))), s.call(s((4, 2)), dx=0.5, dim=0)])
cumulative_trapezoid.samples(lambda s: [s.call(s((2, 4))), s.call(s((2, 4)), s((4,)))])
cov.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), correction=0), s.call(s((3, 4)), fweights=s.array([1, 2, 1, 3]))])
corrcoef.samples(lambda s: [s.call(s((3, 4)))])
cdist.samples(lambda s: [s.call(s((3, 2)), s((4, 2))), s.call(s((2, 3, 2)), s((2, 2, 2)), 1.0), s.call(s((3, 2)), s((2, 2)), 3.0)])
renorm.samples(lambda s: [s.call(s((3, 4)), 2, 0, 1.0), s.call(s((2, 3)), 1, 1, 0.5)])
gradient.samples(lambda s: [s.call(s((5,))), s.call(s((3, 4)), dim=1), s.call(s((5,)), spacing=2.0)])
