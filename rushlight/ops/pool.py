"""Pooling: maxima, averages, norms and fractions of windows; adaptive windows; and back."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural
from .nn_common import f, ints, keep_format

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    Number = int | float | complex

_arrays: list[Any] = []


def _pool() -> Any:
    """backends.cpu.pool, imported at the first call."""
    if not _arrays:
        from ..backends.cpu import pool
        _arrays.append(pool)
    return _arrays[0]


def _window(name: str, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> tuple[tuple, tuple, tuple, tuple]:
    """One value per dimension of everything; the stride is the kernel by default."""
    try:
        return _known_window(name, n, kernel, stride, padding, dilation)
    except TypeError:      # lists
        return _each_window(name, n, kernel, stride, padding, dilation)


@lru_cache(maxsize=256)
def _known_window(*args: Any) -> tuple[tuple, tuple, tuple, tuple]:
    return _each_window(*args)


def _each_window(name: str, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[tuple, tuple, tuple, tuple]:
    def each(what: str, v: Any) -> tuple[int, ...]:
        try:
            return ints(v, n, what)
        except RuntimeError:
            raise RuntimeError(f"{name}: {what} must be either a single int, or a tuple of {n} ints, but got {v}") from None
    k = each("kernel_size", kernel)
    s = k if stride is None or stride.__class__ in (tuple, list) and not len(stride) else each("stride", stride)
    return k, s, each("padding", padding), each("dilation", dilation)


def _check_dims(name: str, input: Any, n: int, lead: bool = True) -> None:
    shape = input._a.shape
    d = len(shape)
    if d not in (n + 1, n + 2) or 0 in (shape[1:] if d == n + 2 else shape):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got: {list(input.shape)}")


def _pooled(shape: Any, k: tuple, s: tuple, p: tuple, d: tuple, ceil_mode: bool) -> tuple[int, ...]:
    n = len(k)
    return (*shape[:len(shape) - n], *_pool().pool_output_shape(shape[len(shape) - n:], k, s, p, d, ceil_mode))


# --- maxima ---------------------------------------------------------------------------------------------------------
@structural(public=False, exact=True, name="max_pool_backward")
def _unpool_sum(grad: Tensor, indices: Tensor, shape: tuple, rank: int):
    """Each element added to the place, in a plane of the last `rank` dimensions of `shape`, that `indices` says."""
    return _pool().max_pool_backward(grad, indices, shape, rank)


_unpool_sum.shape(lambda grad, indices, shape, rank: shape)


def _take(grad: Any, indices: Any, n: int) -> Any:
    """What `indices` point at in the planes of the last `n` dimensions of `grad`."""
    lead = tuple(indices.shape[:indices.dim() - n])
    flat = grad.reshape((*lead, math.prod(grad.shape[grad.dim() - n:])))
    return flat.gather(-1, indices.reshape((*lead, math.prod(indices.shape[len(lead):])))).reshape(indices.shape)


_unpool_sum.gradient(grad=lambda grad, indices, rank: _take(grad, indices, rank))


@structural(public=False, returns=("out", "indices"), exact=True, name="max_pool_with_indices")
def _max_indices(input: Tensor, k: tuple, s: tuple, p: tuple, d: tuple, ceil_mode: bool):
    return _pool().max_pool(input, k, s, p, d, ceil_mode)


keep_format(_max_indices)
_max_indices.shape(lambda input, k, s, p, d, ceil_mode: ((o := _pooled(input.shape, k, s, p, d, ceil_mode), input.dtype), (o, D.int64)))
_max_indices.gradient(input=lambda grad, indices, input_meta, k: _unpool_sum(grad, indices, tuple(input_meta.shape), len(k)))


@composite(public=False, exact=True, name="max_pool", node="MaxPool2DWithIndicesBackward0")
def _max(input: Tensor, k: tuple, s: tuple, p: tuple, d: tuple, ceil_mode: bool):
    return _max_indices(input, k, s, p, d, ceil_mode)[0]


_max.fast(lambda input, k, s, p, d, ceil_mode, keep: _pool().max_pool(input, k, s, p, d, ceil_mode, keep), keeps=("indices",))
keep_format(_max)
_max.gradient(input=lambda grad, indices, input_meta, k: _unpool_sum(grad, indices, tuple(input_meta.shape), len(k)))


def _max_family(n: int) -> None:
    def check(name: str, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> tuple:
        _check_dims(name, input, n)
        return _window(name, n, kernel_size, stride, padding, dilation)

    def pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             return_indices: bool = False):
        w = check(f"max_pool{n}d", input, kernel_size, stride, padding, dilation)
        return tuple(_max_indices(input, *w, ceil_mode)) if return_indices else _max.function(input, *w, ceil_mode)

    def both(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             return_indices: bool = False):
        return tuple(_max_indices(input, *check(f"max_pool{n}d", input, kernel_size, stride, padding, dilation), ceil_mode))

    def adaptive(input: Tensor, output_size: Any, return_indices: bool = False):
        r = _adaptive_max(input, _adaptive_size(f"adaptive_max_pool{n}d", input, n, output_size, "max"))
        return tuple(r) if return_indices else r[0]

    def adaptive_both(input: Tensor, output_size: Any, return_indices: bool = False):
        return tuple(_adaptive_max(input, _adaptive_size(f"adaptive_max_pool{n}d", input, n, output_size, "max")))

    dims = ("L", "H, W", "D, H, W")[n - 1]
    pool.__doc__ = f"The maximum of each window of (N, C, {dims}); with `return_indices` also its flat index in the plane."
    both.__doc__ = f"`max_pool{n}d` with the indices."
    adaptive.__doc__ = "Maxima over windows such that the result has `output_size` (None: as the input)."
    adaptive_both.__doc__ = f"`adaptive_max_pool{n}d` with the indices."
    spaces = ("nn.functional", "torch")
    composite(pool, name=f"max_pool{n}d", ns=spaces)
    composite(both, name=f"max_pool{n}d_with_indices", ns=spaces if n == 1 else "nn.functional")
    composite(adaptive, name=f"adaptive_max_pool{n}d", ns="nn.functional")
    composite(adaptive_both, name=f"adaptive_max_pool{n}d_with_indices", ns="nn.functional")
    composite(adaptive_both, name=f"adaptive_max_pool{n}d", ns="torch") if n == 1 else None


# --- averages -------------------------------------------------------------------------------------------------------
def _avg_check(input: Any, *rest: Any) -> None:
    if input.dtype.kind in "b":
        raise NotImplementedError("\"avg_pool\" not implemented for 'Bool'")


@structural(public=False, exact=True, name="avg_pool", node="AvgPool2DBackward0", check=_avg_check)
def _avg(input: Tensor, k: tuple, s: tuple, p: tuple, ceil_mode: bool, count_include_pad: bool, divisor: int | None):
    return _pool().avg_pool(input, k, s, p, ceil_mode, count_include_pad, divisor)


@structural(public=False, exact=True, name="avg_pool_backward")
def _avg_backward(grad: Tensor, shape: tuple, k: tuple, s: tuple, p: tuple, ceil_mode: bool, count_include_pad: bool, divisor: int | None):
    return _pool().avg_pool_backward(grad, shape, k, s, p, ceil_mode, count_include_pad, divisor)


keep_format(_avg)
_avg.shape(lambda input, k, s, p, ceil_mode, count_include_pad, divisor: _pooled(input.shape, k, s, p, (1,) * len(k), ceil_mode))
_avg.gradient(input=lambda grad, input_meta, k, s, p, ceil_mode, count_include_pad, divisor: _avg_backward(
    grad, tuple(input_meta.shape), k, s, p, ceil_mode, count_include_pad, divisor))
_avg_backward.shape(lambda grad, shape, k, s, p, ceil_mode, count_include_pad, divisor: shape)
_avg_backward.gradient(grad=lambda grad, k, s, p, ceil_mode, count_include_pad, divisor: _avg(grad, k, s, p, ceil_mode, count_include_pad, divisor))


def _average(n: int, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: int | None) -> Any:
    name = f"avg_pool{n}d"
    _check_dims(name, input, n)
    k, s, p, _ = _window(name, n, kernel_size, stride, padding)
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    return _avg.function(input, k, s, p, ceil_mode, count_include_pad, divisor)


TWIN = ("nn.functional", "torch")


@composite(ns=TWIN)
def avg_pool1d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True):
    """The mean of each window of (N, C, L)."""
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(ns="nn.functional", out=True)
def avg_pool2d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None):
    """The mean of each window of (N, C, H, W), or its sum over `divisor_override`."""
    return _average(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(ns="nn.functional", out=True)
def avg_pool3d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None):
    """The mean of each window of (N, C, D, H, W), or its sum over `divisor_override`."""
    return _average(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp(n: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    k = ints(kernel_size, n, "kernel_size")
    out = _average(n, input ** norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    return (f("sign")(out) * out.abs().relu() * math.prod(k)) ** (1.0 / norm_type)


@composite(ns="nn.functional")
def lp_pool1d(input: Tensor, norm_type: Number, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
    """The p-norm of each window (without absolute values) of (N, C, L)."""
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite(ns="nn.functional")
def lp_pool2d(input: Tensor, norm_type: Number, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
    """The p-norm of each window (without absolute values) of (N, C, H, W)."""
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite(ns="nn.functional")
def lp_pool3d(input: Tensor, norm_type: Number, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
    """The p-norm of each window (without absolute values) of (N, C, D, H, W)."""
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)


# --- adaptive -------------------------------------------------------------------------------------------------------
def _adaptive_size(name: str, input: Any, n: int, output_size: Any, kind: str) -> tuple[int, ...]:
    d = input.dim()
    if n > 1 and d <= n:
        raise ValueError(f"Input dimension should be at least {n + 1}")
    if d not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    if any(s == 0 for s in input.shape[d - n - (kind == "max"):]):
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(input.shape)} with dimension "
                           f"{[i for i in range(1, d) if input.shape[i] == 0][:1] or [0]} being empty")
    size = (output_size,) * n if not isinstance(output_size, (tuple, list)) else tuple(output_size)
    if len(size) == 1:
        size *= n
    if len(size) != n:
        raise RuntimeError(f"{name}(): output_size must be {n}, but got {len(size)} sizes: {list(size)}")
    out = tuple(input.shape[d - n + i] if s is None else int(s) for i, s in enumerate(size))
    if any(s < 0 for s in out):
        raise RuntimeError(f"{name}(): elements of output_size must be greater than or equal to 0 but received {list(out)}")
    return out


@structural(public=False, returns=("out", "indices"), exact=True, name="adaptive_max_pool", node="AdaptiveMaxPool2DBackward0")
def _adaptive_max(input: Tensor, size: tuple):
    if math.prod(size) == 0:
        shape = (*input.shape[:input.ndim - len(size)], *size)
        return np.empty(shape, input.dtype), np.empty(shape, np.int64)
    return _pool().adaptive_max_pool(input, size)


keep_format(_adaptive_max)
_adaptive_max.shape(lambda input, size: ((o := (*input.shape[:len(input.shape) - len(size)], *size), input.dtype), (o, D.int64)))
_adaptive_max.gradient(input=lambda grad, indices, input_meta, size: _unpool_sum(grad, indices, tuple(input_meta.shape), len(size)))


@structural(public=False, exact=True, name="adaptive_avg_pool", node="AdaptiveAvgPool2DBackward0")
def _adaptive_avg(input: Tensor, size: tuple):
    return _pool().adaptive_avg_pool(input, size)


@structural(public=False, exact=True, name="adaptive_avg_pool_backward")
def _adaptive_avg_backward(grad: Tensor, shape: tuple, rank: int):
    return _pool().adaptive_avg_pool_backward(grad, shape, rank)


keep_format(_adaptive_avg)
_adaptive_avg.shape(lambda input, size: (*input.shape[:len(input.shape) - len(size)], *size))
_adaptive_avg.gradient(input=lambda grad, input_meta, size: _adaptive_avg_backward(grad, tuple(input_meta.shape), len(size)))
_adaptive_avg_backward.shape(lambda grad, shape, rank: shape)
_adaptive_avg_backward.gradient(grad=lambda grad, shape, rank, grad_meta: _adaptive_avg(grad, tuple(grad_meta.shape[len(shape) - rank:])))


@composite(ns=TWIN)
def adaptive_avg_pool1d(input: Tensor, output_size: Any):
    """Means over windows such that the result has `output_size`."""
    return _adaptive_avg.function(input, _adaptive_size("adaptive_avg_pool1d", input, 1, output_size, "avg"))


@composite(ns="nn.functional")
def adaptive_avg_pool2d(input: Tensor, output_size: Any):
    """Means over windows such that the result has `output_size` (None: as the input)."""
    return _adaptive_avg.function(input, _adaptive_size("adaptive_avg_pool2d", input, 2, output_size, "avg"))


@composite(ns="nn.functional")
def adaptive_avg_pool3d(input: Tensor, output_size: Any):
    """Means over windows such that the result has `output_size` (None: as the input)."""
    return _adaptive_avg.function(input, _adaptive_size("adaptive_avg_pool3d", input, 3, output_size, "avg"))


for _n in (1, 2, 3):
    _max_family(_n)


# --- back -----------------------------------------------------------------------------------------------------------
@structural(public=False, exact=True, name="max_unpool")
def _unpool(input: Tensor, indices: Tensor, size: tuple):
    """Each element written to the place that `indices` says, zeros elsewhere."""
    lead = input.shape[:input.ndim - len(size)]
    plane = math.prod(size)
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        bad = indices[(indices < 0) | (indices >= plane)].reshape(-1)[0]
        raise RuntimeError(f"Found an invalid max index: {bad} (output volumes are of size {'x'.join(map(str, size))}")
    out = np.zeros((math.prod(lead), plane), input.dtype)
    if input.size:
        rows = math.prod(lead)
        np.put_along_axis(out, indices.reshape(rows, -1), input.reshape(rows, -1), 1)
    return out.reshape(*lead, *size)


_unpool.shape(lambda input, indices, size: (*input.shape[:len(input.shape) - len(size)], *size))
_unpool.gradient(input=lambda grad, indices, size: _take(grad, indices, len(size)))


def _unpool_size(n: int, input: Any, k: tuple, s: tuple, p: tuple, output_size: Any) -> tuple[int, ...]:
    spatial = input.shape[-n:]
    default = tuple((i - 1) * t + q - 2 * r for i, q, t, r in zip(spatial, k, s, p, strict=True))
    if output_size is None:
        return default
    size = tuple(output_size)
    if len(size) == n + 2:
        size = size[2:]
    if len(size) != n:
        raise ValueError(f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(size)}'")
    for i, (a, b, t) in enumerate(zip(size, default, s, strict=True)):
        if not b - t < a < b + t:
            raise ValueError(f"invalid output_size {list(size)} (dim {i} must be between {b - t} and {b + t})")
    return size


def _unpool_family(n: int) -> None:
    def unpool(input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None):
        name = f"max_unpool{n}d"
        k, s, p, _ = _window(name, n, kernel_size, stride, padding)
        if indices.dtype is not D.int64:
            raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype.name}")
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Input to {name} should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with {input.dim()} dimensions.")
        if tuple(input.shape) != tuple(indices.shape):
            raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices tensor with shape: "
                               f"{list(indices.shape)}")
        return _unpool(input, indices, _unpool_size(n, input, k, s, p, output_size))
    unpool.__doc__ = f"The partial inverse of `max_pool{n}d`: each value at its index, zeros elsewhere."
    composite(unpool, name=f"max_unpool{n}d", ns="nn.functional")


for _n in (1, 2, 3):
    _unpool_family(_n)


# --- fractional -----------------------------------------------------------------------------------------------------
def _fraction_starts(sample: np.ndarray, size: int, out: int, k: int) -> np.ndarray:
    """Where the windows of a pseudo-random partition begin, per sample (Graham, Fractional Max-Pooling, 2014)."""
    i = np.arange(out - 1)
    starts = np.empty((*sample.shape, out), np.int64)
    if out > 1:
        alpha = sample.dtype.type(size - k) / sample.dtype.type(out - 1)
        u = sample[..., None]
        starts[..., :-1] = ((i + u) * alpha).astype(np.int64) - (u * alpha).astype(np.int64)
    starts[..., -1] = size - k
    return starts


@structural(public=False, returns=("out", "indices"), exact=True, name="fractional_max_pool")
def _fractional(input: Tensor, samples: Tensor, kernel: tuple, size: tuple):
    n = len(kernel)
    batch = input.ndim == n + 2
    x = input if batch else input[None]
    spatial = x.shape[2:]
    # samples are (N, C, n), the last dimension of space first
    places = [_fraction_starts(samples[..., n - 1 - d] if n == 2 else samples[..., d], spatial[d], size[d], kernel[d]) for d in range(n)]
    b, c = np.ix_(np.arange(x.shape[0]), np.arange(x.shape[1]))
    best = index = None
    for at in np.ndindex(*kernel):
        where = [(p + a).reshape(*p.shape[:2], *[p.shape[2] if e == d else 1 for e in range(n)]) for d, (p, a) in enumerate(zip(places, at, strict=True))]
        expand = (..., *[None] * n)
        v = x[(b[expand], c[expand], *where)]
        flat = np.zeros((), np.int64)
        for w, m in zip(where, spatial, strict=True):
            flat = flat * m + w
        flat = np.broadcast_to(flat, v.shape)
        if best is None:
            best, index = v.copy(), flat.copy()
            continue
        better = (v > best) | np.isnan(v)
        np.copyto(best, v, where=better)
        np.copyto(index, flat, where=better)
    return (best, index) if batch else (best[0], index[0])  # type: ignore[index]


_fractional.shape(lambda input, samples, kernel, size: ((o := (*input.shape[:len(input.shape) - len(size)], *size), input.dtype), (o, D.int64)))
_fractional.gradient(input=lambda grad, indices, input_meta, size: _unpool_sum(grad, indices, tuple(input_meta.shape), len(size)))


def _fractional_family(n: int) -> None:
    def run(input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
        name = f"fractional_max_pool{n}d"
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if input.dim() not in (n + 1, n + 2) or any(s == 0 for s in input.shape[-n - 1:]):
            raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor with non-zero sizes of channels and space, but got: {list(input.shape)}")
        spatial = input.shape[-n:]
        if output_size is None:
            ratio = (output_ratio,) * n if not isinstance(output_ratio, (tuple, list)) else tuple(output_ratio)
            output_size = tuple(int(i * r) for i, r in zip(spatial, ratio, strict=True))
        kernel, size = ints(kernel_size, n, "kernel_size"), ints(output_size, n, "output_size")
        for k, o, i in zip(kernel, size, spatial, strict=True):
            if k <= 0 or o <= 0:
                raise RuntimeError(f"{name}: kernel_size and output_size must be positive, but got {list(kernel)} and {list(size)}")
            if o + k - 1 > i:
                raise RuntimeError(f"{name}(): pool size {list(kernel)} too large relative to input size {list(spatial)} and output size {list(size)}")
        if samples is None:
            batch = 1 if input.dim() == n + 1 else input.shape[0]
            samples = f("rand")((batch, input.shape[-n - 1], n), dtype=input.dtype)
        return tuple(_fractional(input, samples, kernel, size))

    def pool(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
             _random_samples: Tensor | None = None):
        r = run(input, kernel_size, output_size, output_ratio, _random_samples)
        return r if return_indices else r[0]

    def both(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
             _random_samples: Tensor | None = None):
        return run(input, kernel_size, output_size, output_ratio, _random_samples)

    pool.__doc__ = "Maxima over windows of a pseudo-random partition, to `output_size` or `output_ratio` times the input's size."
    both.__doc__ = f"`fractional_max_pool{n}d` with the indices."
    composite(pool, name=f"fractional_max_pool{n}d", ns="nn.functional", random=True)
    composite(both, name=f"fractional_max_pool{n}d_with_indices", ns="nn.functional", random=True)


for _n in (2, 3):
    _fractional_family(_n)


# --- Inputs for the generated tests (ops.samples) ---
avg_pool1d.samples(lambda s: [s.call(s((1, 2, 6)), 2), s.call(s((2, 5)), 3, 2, 1, True)])
avg_pool2d.samples(lambda s: [s.call(s((1, 2, 4, 4)), 2), s.call(s((1, 1, 5, 4)), (3, 2), 2, 1, True, False)])
avg_pool3d.samples(lambda s: [s.call(s((1, 1, 3, 4, 2)), 2, 1)])
lp_pool1d.samples(lambda s: [s.call(s((1, 2, 6), low=0.5), 2, 2)])
lp_pool2d.samples(lambda s: [s.call(s((1, 1, 4, 4), low=0.5), 3, 2)])
adaptive_avg_pool1d.samples(lambda s: [s.call(s((1, 2, 5)), 3)])
adaptive_avg_pool2d.samples(lambda s: [s.call(s((1, 2, 5, 4)), (3, 2)), s.call(s((1, 1, 3, 3)), 1)])
adaptive_avg_pool3d.samples(lambda s: [s.call(s((1, 1, 3, 2, 4)), 2)])
