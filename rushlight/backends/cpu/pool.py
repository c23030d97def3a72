"""Pooling of 1 to 3 dimensions on ndarrays: the last `len(kernel)` dimensions are pooled, any others lead.

Maxima come with the flat index of the winner within its plane, as PyTorch defines it: the first maximum in row-major
order, and nan beats everything (the last nan, if there are several). Contiguous float32 and float64 in 1-d and 2-d run
through the generated kernels of pool_kernels.py; the rest is NumPy, one pass per element of the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from rushlight.backends.cpu import native, norm

__all__ = [
    "adaptive_avg_pool", "adaptive_avg_pool_backward", "adaptive_max_pool", "avg_pool", "avg_pool_backward", "max_pool",
    "max_pool_backward", "pool_output_shape",
]

_GRAIN = 1 << 15            # window elements a thread should take at a time


def _like(value: int | Sequence[int] | None, kernel: Sequence[int], default: Sequence[int]) -> tuple[int, ...]:
    if value.__class__ is tuple and len(value) == len(kernel):
        return value
    if value is None:
        return tuple(default)
    if isinstance(value, (int, np.integer)):
        return (int(value),) * len(kernel)
    out = tuple(int(v) for v in value)
    if len(out) == 1:
        return out * len(kernel)
    if len(out) != len(kernel):
        raise RuntimeError(f"pooling parameters must be single integers or have {len(kernel)} values, got {list(out)}")
    return out


@lru_cache(maxsize=1024)
def pool_output_shape(spatial: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
                      padding: tuple[int, ...], dilation: tuple[int, ...], ceil_mode: bool,
                      channels: int | None = None) -> tuple[int, ...]:
    """Output sizes: (I + 2 p - d (k - 1) - 1) / s + 1, rounded down, or up with `ceil_mode` unless the last window
    would start beyond the input and its left padding. Raises PyTorch's RuntimeErrors (`channels` appears in one)."""
    if any(k <= 0 for k in kernel):
        raise RuntimeError(f"kernel size should be greater than zero, but got kernel_size={list(kernel)}")
    if any(s <= 0 for s in stride):
        raise RuntimeError("stride should not be zero" if 0 in stride else
                           f"stride should be greater than zero, but got stride={list(stride)}")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got dilation={list(dilation)}")
    for p, k, d in zip(padding, kernel, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError("pad should be at most half of effective kernel size, but got "
                               f"pad={p}, kernel_size={k} and dilation={d}")
    out = []
    for i, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        o = (i + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (o - 1) * s >= i + p:
            o -= 1
        out.append(o)
    if any(o < 1 for o in out):
        front = [] if channels is None else [channels]
        raise RuntimeError(f"Given input size: ({'x'.join(map(str, (*front, *spatial)))}). Calculated output size: "
                           f"({'x'.join(map(str, (*front, *out)))}). Output size is too small")
    return tuple(out)


def _native(x: np.ndarray, rank: int) -> bool:
    return rank <= 2 and x.dtype in native.KERNEL_DTYPES and 0 < x.size < 1 << 31 and native.available()


def _two(v: tuple[int, ...], fill: int) -> tuple[int, int]:
    return (fill, v[0]) if len(v) == 1 else (v[0], v[1])


def _taps(spatial: Sequence[int], out: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
          padding: Sequence[int], dilation: Sequence[int]) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each element of the window in row-major order: (slices of the input, slices of the output that have it)."""
    per_dim = []
    for i, o, k, s, p, d in zip(spatial, out, kernel, stride, padding, dilation, strict=True):
        pairs = []
        for t in range(k):
            start = t * d - p                                  # where output 0 finds it
            lo = max(0, -(start // s))
            hi = min(o, (i - 1 - start) // s + 1)
            hi = max(hi, lo)
            first = start + lo * s
            pairs.append((slice(first, first + (hi - lo - 1) * s + 1 if hi > lo else first, s), slice(lo, hi)))
        per_dim.append(pairs)
    return [(tuple(a for a, _ in combo), tuple(b for _, b in combo)) for combo in product(*per_dim)]


# ---------------------------------------------------------------- maximum
def max_pool(x: np.ndarray, kernel: Sequence[int], stride: int | Sequence[int] | None = None,
             padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
             indices: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
    """(the maximum of each window, its flat index within the plane as int64, or None where not asked for)."""
    kernel = tuple(kernel)
    r = len(kernel)
    s, p, d = _like(stride, kernel, kernel), _like(padding, kernel, ()), _like(dilation, kernel, ())
    lead, spatial = x.shape[:-r], x.shape[-r:]
    out, hollow, sizes = _max_sizes(spatial, kernel, s, p, d, ceil_mode, x.shape[-r - 1] if x.ndim > r else None)
    if not hollow and _native(x, r):
        x = np.ascontiguousarray(x)
        values = native.empty((*lead, *out), x.dtype)
        index = native.empty((*lead, *out), np.dtype(np.int64)) if indices else None
        _run("max_index" if indices else "max", x, values, index, *sizes)  # type: ignore[arg-type]
        return values, index
    best, index = _first(x, spatial, out, s, p, d)
    position = np.arange(math.prod(spatial)).reshape(spatial)
    floating = x.dtype.kind not in "iub"
    for src, dst in _taps(spatial, out, kernel, s, p, d):
        value = x[native.at(src)]
        if not value.size:
            continue
        held = best[native.at(dst)]
        better = value > held
        if floating:
            better |= np.isnan(value)
        np.copyto(held, value, where=better)
        np.copyto(index[native.at(dst)], position[src], where=better)
    return best, index if indices else None


@lru_cache(maxsize=1024)
def _max_sizes(spatial: tuple[int, ...], kernel: tuple[int, ...], s: tuple[int, ...], p: tuple[int, ...], d: tuple[int, ...],
               ceil_mode: bool, channels: int | None) -> tuple[tuple[int, ...], bool, tuple[tuple[int, int], ...]]:
    """(the output's sizes, whether a dilated window may step over a whole short dimension, all sizes for the kernels)."""
    out = pool_output_shape(spatial, kernel, s, p, d, ceil_mode, channels)
    hollow = any(e > 1 and q > 0 and i < e for i, q, e in zip(spatial, p, d, strict=True))
    two = () if len(kernel) > 2 else (_two(spatial, 1), _two(out, 1), _two(kernel, 1), _two(s, 1), _two(p, 0), _two(d, 1))
    return out, hollow, two


def _first(x: np.ndarray, spatial: Sequence[int], out: Sequence[int], stride: Sequence[int], padding: Sequence[int],
           dilation: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Where every window begins inside the input: the value there and its flat index. A window that steps over the
    input has the lowest value and, as in PyTorch, the index that its beginning would have."""
    starts = []
    for o, s, p, d in zip(out, stride, padding, dilation, strict=True):
        a = np.arange(o) * s - p
        starts.append(np.where(a < 0, a % d, a))
    grid = np.ix_(*starts)
    index = np.zeros(tuple(out), np.int64)
    for g, i in zip(grid, spatial, strict=True):
        index = index * i + g
    best = np.array(x[native.at(np.ix_(*(np.minimum(a, i - 1) for a, i in zip(starts, spatial, strict=True))))])
    beyond = np.zeros(tuple(out), bool)
    for g, i in zip(grid, spatial, strict=True):
        beyond |= g >= i
    if beyond.any():
        best[..., beyond] = -np.inf if x.dtype.kind not in "iub" else np.iinfo(x.dtype).min
    return best, np.array(np.broadcast_to(index, best.shape))


def max_pool_backward(gy: np.ndarray, indices: np.ndarray, x_shape: Sequence[int], rank: int) -> np.ndarray:
    """Add each gradient to the element of the input that won: `indices` are flat within the last `rank` dimensions."""
    x_shape = tuple(x_shape)
    plane, planes = math.prod(x_shape[-rank:]), math.prod(x_shape[:-rank])
    gx = native.empty(x_shape, gy.dtype)
    if gy.size and planes and gy.dtype in native.KERNEL_DTYPES and native.available():
        gy, indices = np.ascontiguousarray(gy), np.ascontiguousarray(indices, np.int64)
        each = gy.size // planes
        table = np.array([native.address(gy), native.address(indices), native.address(gx), each, plane, 0], np.int64)
        code = _library("scatter", native.KERNEL_DTYPES[gy.dtype], 0).address("scatter")
        native.parallel_call(code, native.address(table), planes, max(1, _GRAIN // (each + plane)))
        if table[5]:
            _bad_indices(indices, plane, x_shape)
        return gx
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        _bad_indices(indices, plane, x_shape)
    gx[...] = 0
    if gy.size:
        wide = gy.astype(np.float32) if gy.dtype.name in ("float16", "bfloat16") else gy
        flat = np.zeros((planes, plane), wide.dtype)
        at = indices.reshape(planes, -1) + np.arange(planes)[:, None] * plane
        np.add.at(flat.reshape(-1), at.reshape(-1), wide.reshape(-1))
        gx[...] = flat.reshape(x_shape)
    return gx


def _bad_indices(indices: np.ndarray, plane: int, x_shape: tuple[int, ...]) -> None:
    raise RuntimeError(f"max pool indices must lie in [0, {plane}) for an input of shape {list(x_shape)}, got "
                       f"{int(indices.min())} to {int(indices.max())}")


# ---------------------------------------------------------------- average
@lru_cache(maxsize=256)
def _divisors(spatial: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
              padding: tuple[int, ...], count_include_pad: bool, override: int | None) -> tuple[np.ndarray, ...]:
    """Per dimension: the number of elements of each window, whose product over the dimensions is the divisor."""
    sizes = []
    for n, (i, o, k, s, p) in enumerate(zip(spatial, out, kernel, stride, padding, strict=True)):
        if override is not None:
            sizes.append(np.full(o, override if n == 0 else 1, np.float64))
            continue
        start = np.arange(o) * s - p
        end = np.minimum(start + k, i + p)
        size = end - start if count_include_pad else np.minimum(end, i) - np.maximum(start, 0)
        sizes.append(np.maximum(size, 1).astype(np.float64))
    return tuple(sizes)


def _check_override(divisor: int | None) -> None:
    if divisor is not None and divisor == 0:
        raise RuntimeError("divisor must be not zero")


def avg_pool(x: np.ndarray, kernel: Sequence[int], stride: int | Sequence[int] | None = None,
             padding: int | Sequence[int] = 0, ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: int | None = None) -> np.ndarray:
    """The sum of each window over its number of elements (with the padding's, if `count_include_pad`) or over
    `divisor_override`."""
    kernel = tuple(kernel)
    r = len(kernel)
    s, p, ones = _like(stride, kernel, kernel), _like(padding, kernel, ()), (1,) * r
    _check_override(divisor_override)
    lead, spatial = x.shape[:-r], x.shape[-r:]
    out = pool_output_shape(spatial, kernel, s, p, ones, ceil_mode, x.shape[-r - 1] if x.ndim > r else None)
    if r == 3 and any(k > i for k, i in zip(kernel, spatial, strict=True)):    # PyTorch asks this in 3-d only
        given = " ".join(f"{n}: {i}" for n, i in zip("THW", spatial, strict=True))
        window = " ".join(f"k{n}: {k}" for n, k in zip("THW", kernel, strict=True))
        raise RuntimeError(f"input image ({given}) smaller than kernel size ({window})")
    sizes = _divisors(spatial, out, kernel, s, p, count_include_pad, divisor_override)
    if _native(x, r):
        x = np.ascontiguousarray(x)
        y = native.empty((*lead, *out), x.dtype)
        _run("avg", x, y, None, _two(spatial, 1), _two(out, 1), _two(kernel, 1), _two(s, 1), _two(p, 0), (1, 1), sizes)
        return y
    wide = np.float32 if x.dtype.name in ("float16", "bfloat16") else x.dtype
    y = np.zeros((*lead, *out), wide)
    for src, dst in _taps(spatial, out, kernel, s, p, ones):
        y[native.at(dst)] += x[native.at(src)]
    return _divide(y, sizes).astype(x.dtype, copy=False)


def _divide(y: np.ndarray, sizes: Sequence[np.ndarray]) -> np.ndarray:
    total: Any = math.prod(np.ix_(*sizes))      # of arrays that broadcast
    if y.dtype.kind in "iu":
        return (np.sign(y) * (np.abs(y) // np.abs(total).astype(y.dtype)) * np.sign(total)).astype(y.dtype)
    return y / total.astype(y.dtype if y.dtype.kind == "f" else np.float64)


def avg_pool_backward(gy: np.ndarray, x_shape: Sequence[int], kernel: Sequence[int],
                      stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0,
                      ceil_mode: bool = False, count_include_pad: bool = True,
                      divisor_override: int | None = None) -> np.ndarray:
    """Spread each gradient, divided as in the forward pass, over its window."""
    kernel, x_shape = tuple(kernel), tuple(x_shape)
    r = len(kernel)
    s, p, ones = _like(stride, kernel, kernel), _like(padding, kernel, ()), (1,) * r
    _check_override(divisor_override)
    spatial, out = x_shape[-r:], gy.shape[-r:]
    sizes = _divisors(spatial, out, kernel, s, p, count_include_pad, divisor_override)
    if gy.size and _native(gy, r):
        gy = np.ascontiguousarray(gy)
        gx = native.empty(x_shape, gy.dtype)
        _run("avg_grad", gx, gy, None, _two(spatial, 1), _two(out, 1), _two(kernel, 1), _two(s, 1), _two(p, 0), (1, 1),
             sizes)
        return gx
    wide = gy.astype(np.float32) if gy.dtype.name in ("float16", "bfloat16") else gy
    gx = np.zeros(x_shape, wide.dtype)
    if gy.size:
        share = _divide(wide, sizes)
        for src, dst in _taps(spatial, out, kernel, s, p, ones):
            gx[native.at(src)] += share[native.at(dst)]
    return gx.astype(gy.dtype, copy=False)


# ---------------------------------------------------------------- adaptive
def _windows(size: int, out: int) -> list[tuple[int, int]]:
    """PyTorch's bounds: floor(o I / O) to ceil((o + 1) I / O)."""
    return [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]


def _targets(x_shape: Sequence[int], output_size: Sequence[int | None]) -> tuple[int, ...]:
    spatial = x_shape[len(x_shape) - len(output_size):]
    out = tuple(i if o is None else int(o) for i, o in zip(spatial, output_size, strict=True))
    if any(o < 0 for o in out):
        raise RuntimeError(f"adaptive pooling: elements of output_size must be greater than or equal to 0 but received "
                           f"{list(out)}")
    if any(i == 0 for i in spatial):
        raise RuntimeError("adaptive pooling: Expected input to have non-zero size for non-batch dimensions, but input "
                           f"has sizes {list(x_shape)}")
    return out


def _uniform(spatial: Sequence[int], out: Sequence[int]) -> tuple[int, ...] | None:
    """The common window size where all windows are equal and do not overlap."""
    if all(o and i % o == 0 for i, o in zip(spatial, out, strict=True)):
        return tuple(i // o for i, o in zip(spatial, out, strict=True))
    return None


def adaptive_avg_pool(x: np.ndarray, output_size: Sequence[int | None]) -> np.ndarray:
    """Averages over windows chosen so that the output has `output_size` (None keeps a size)."""
    r = len(output_size)
    out = _targets(x.shape, output_size)
    spatial = x.shape[-r:]
    if all(o == 1 for o in out) and x.dtype.kind in "fV":
        rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-r]), math.prod(spatial))
        return norm.row_means(rows).reshape(*x.shape[:-r], *out)
    if (k := _uniform(spatial, out)) is not None:
        return avg_pool(x, k)
    # a window is a product of intervals, so averaging goes dimension by dimension
    y = x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x
    for n, (i, o) in enumerate(zip(spatial, out, strict=True)):
        axis = n - r
        y = np.moveaxis(y, axis, -1)
        z = np.empty((*y.shape[:-1], o), y.dtype)
        for j, (a, b) in enumerate(_windows(i, o)):
            z[..., j] = y[..., a:b].sum(-1) / (b - a)
        y = np.moveaxis(z, -1, axis)
    return np.ascontiguousarray(y.astype(x.dtype, copy=False))


def adaptive_avg_pool_backward(gy: np.ndarray, x_shape: Sequence[int], rank: int) -> np.ndarray:
    """The gradient of `adaptive_avg_pool` for an input of shape `x_shape`."""
    x_shape = tuple(x_shape)
    spatial, out = x_shape[-rank:], gy.shape[-rank:]
    if (k := _uniform(spatial, out)) is not None:
        return avg_pool_backward(gy, x_shape, k)
    g = gy.astype(np.float32) if gy.dtype.name in ("float16", "bfloat16") else gy
    for n, (i, o) in enumerate(zip(spatial, out, strict=True)):
        axis = n - rank
        g = np.moveaxis(g, axis, -1)
        z = np.zeros((*g.shape[:-1], i), g.dtype)
        for j, (a, b) in enumerate(_windows(i, o)):
            z[..., a:b] += (g[..., j] / (b - a))[..., None]
        g = np.moveaxis(z, -1, axis)
    return np.ascontiguousarray(g.astype(gy.dtype, copy=False))


def adaptive_max_pool(x: np.ndarray, output_size: Sequence[int | None]) -> tuple[np.ndarray, np.ndarray]:
    """(maxima, flat int64 indices) over the windows of `adaptive_avg_pool`; its gradient is `max_pool_backward`."""
    r = len(output_size)
    out = _targets(x.shape, output_size)
    lead, spatial = x.shape[:-r], x.shape[-r:]
    if (k := _uniform(spatial, out)) is not None:
        values, index = max_pool(x, k)
        assert index is not None
        return values, index
    values, index = np.empty((*lead, *out), x.dtype), np.empty((*lead, *out), np.int64)
    position = np.arange(math.prod(spatial)).reshape(spatial)
    floating = x.dtype.kind not in "iub"
    for at in product(*(list(enumerate(_windows(i, o))) for i, o in zip(spatial, out, strict=True))):
        src = tuple(slice(a, b) for _, (a, b) in at)
        dst = tuple(j for j, _ in at)
        window = x[native.at(src)].reshape(*lead, math.prod(b - a for _, (a, b) in at))
        best = window.argmax(-1)
        if floating:
            nan = np.isnan(window)
            if nan.any():
                best = np.where(nan.any(-1), window.shape[-1] - 1 - nan[..., ::-1].argmax(-1), best)
        values[native.at(dst)] = np.take_along_axis(window, best[..., None], -1)[..., 0]
        index[native.at(dst)] = position[src].reshape(-1)[best]
    return values, index


# ---------------------------------------------------------------- kernels
def _library(kind: str, dtype: str, stride: int) -> Any:
    from rushlight.backends.cpu import pool_kernels
    return pool_kernels.library(kind, dtype, min(stride, 3))


def _run(kind: str, x: np.ndarray, y: np.ndarray, index: np.ndarray | None, spatial: tuple[int, int],
         out: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int],
         dilation: tuple[int, int], sizes: Sequence[np.ndarray] = ()) -> None:
    divisors = [np.ascontiguousarray(v, x.dtype) for v in sizes]
    if len(divisors) == 1:
        divisors.insert(0, np.ones(1, x.dtype))
    words, code, plane, grain = _call(kind, x.dtype, spatial, out, kernel, stride, padding, dilation)
    table = words.copy()
    table[0], table[1] = native.address(x), native.address(y)
    if index is not None:
        table[2] = native.address(index)
    if divisors:
        table[15], table[16] = native.address(divisors[0]), native.address(divisors[1])
    native.parallel_call(code, native.address(table), x.size // plane, grain)


@lru_cache(maxsize=1024)
def _call(kind: str, dtype: np.dtype, spatial: tuple[int, int], out: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int],
          padding: tuple[int, int], dilation: tuple[int, int]) -> tuple[np.ndarray, int, int, int]:
    """What a call's sizes determine: the kernel's table without addresses, its code, the size of a plane, the planes of a task."""
    words = np.array([0, 0, 0, *spatial, *out, *kernel, *stride, *padding, *dilation, 0, 0], np.int64)
    code = _library(kind, native.KERNEL_DTYPES[dtype], stride[1]).address(kind)
    return words, code, math.prod(spatial), max(1, _GRAIN // (math.prod(out) * math.prod(kernel)))
