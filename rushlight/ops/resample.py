"""Resizing by interpolation, and sampling at the points of a grid.

Resizing is separable: along each dimension an output element is a weighted sum of a few input elements. `_table` gives their
positions and weights, `_resize` applies one table per dimension; its gradient applies the transposed tables.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural
from .nn_common import f, keep_format, narrow, warn, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor

CUBIC, CUBIC_ANTIALIAS = -0.75, -0.5        # Keys' parameter: PyTorch uses the second with antialias, as Pillow does


class Table:
    """(out, k) positions and weights along one dimension of size n; hashable by what made it, `transposed` goes the other way."""

    __slots__ = ("index", "weight", "n", "_transposed", "exact")

    def __init__(self, index: np.ndarray, weight: np.ndarray | None, n: int) -> None:
        self.index, self.weight, self.n, self._transposed = index, weight, n, None

    @property
    def transposed(self) -> Table:
        t = self._transposed
        if t is None:
            out, k = self.index.shape
            flat = self.index.reshape(-1)
            order = np.argsort(flat, kind="stable")
            counts = np.bincount(flat, minlength=self.n)
            most = max(1, int(counts.max(initial=0)))
            index, weight = np.zeros((self.n, most), np.int64), np.zeros((self.n, most))
            place = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
            index[flat[order], place] = order // k
            weight[flat[order], place] = np.ones(len(flat)) if self.weight is None else self.weight.reshape(-1)[order]
            t = self._transposed = Table(index, weight, out)
            t._transposed = self  # type: ignore[assignment]
        return t


def _cubic(t: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(t)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@lru_cache(maxsize=512)
def _table(mode: str, n: int, out: int, align_corners: bool, scale_factor: float | None, antialias: bool, single: bool) -> Table:
    """How `out` elements are made from `n`; `single`: coordinates are computed in float32, as PyTorch does for float32."""
    real: Any = np.float32 if single else np.float64
    o = np.arange(out)
    if mode in ("nearest", "nearest-exact"):
        scale = np.float32(1.0 / scale_factor) if scale_factor else np.float32(n) / np.float32(out) if out else np.float32(0)
        x = o.astype(np.float32) * scale if mode == "nearest" else (o.astype(np.float32) + np.float32(0.5)) * scale
        if mode == "nearest" and out == n:
            x = o
        return Table(np.minimum(np.floor(x).astype(np.int64), n - 1)[:, None], None, n)
    if align_corners:
        scale = real(n - 1) / real(out - 1) if out > 1 else real(0)
    else:
        scale = real(1.0 / scale_factor) if scale_factor else real(n) / real(out) if out else real(0)
    if antialias:
        return _antialiased(mode, n, out, scale)
    x = o.astype(real) * scale if align_corners else (o.astype(real) + real(0.5)) * scale - real(0.5)
    if mode == "linear":
        x = np.maximum(x, 0)
        i = np.minimum(np.floor(x).astype(np.int64), n - 1)
        t = np.clip(x - i, 0, 1)
        return Table(np.stack([i, np.minimum(i + 1, n - 1)], 1), np.stack([1 - t, t], 1), n)
    i = np.floor(x).astype(np.int64)
    t = np.clip(x - i, 0, 1).astype(np.float64)
    taps = np.arange(-1, 3)
    return Table(np.clip(i[:, None] + taps, 0, n - 1), _cubic(t[:, None] - taps, CUBIC), n)


def _antialiased(mode: str, n: int, out: int, scale: Any) -> Table:
    size = 2 if mode == "linear" else 4
    stretch = max(float(scale), 1.0)
    support = size * 0.5 * stretch
    centre = float(scale) * (np.arange(out) + 0.5)
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centre + support + 0.5).astype(np.int64), n) - first
    k = max(1, int(count.max(initial=1)))
    j = np.arange(k)
    at = (first[:, None] + j - centre[:, None] + 0.5) / stretch
    w = np.maximum(1 - np.abs(at), 0) if mode == "linear" else _cubic(at, CUBIC_ANTIALIAS)
    w = np.where(j < count[:, None], w, 0)
    total = w.sum(1, keepdims=True)
    return Table(np.minimum(first[:, None] + j, n - 1), w / np.where(total == 0, 1, total), n)


def _apply(x: np.ndarray, axis: int, table: Table) -> np.ndarray:
    index, weight = table.index, table.weight
    if weight is None:
        return x.take(index[:, 0], axis)
    shape = [1] * x.ndim
    shape[axis] = -1
    out = None
    for k in range(index.shape[1]):
        w = weight[:, k].astype(x.dtype if x.dtype.kind == "f" else np.float64)
        part = x.take(index[:, k], axis)
        part = np.multiply(part, w.reshape(shape), out=part if part.dtype == w.dtype else None)
        out = part if out is None else np.add(out, part, out)
    return out  # type: ignore[return-value]


def _resize_bytes(x: np.ndarray, tables: tuple) -> np.ndarray:
    """uint8 as Pillow and PyTorch do it: the last dimension first, integer weights, rounded to bytes after each dimension."""
    for i in reversed(range(len(tables))):
        t, axis = tables[i], x.ndim - len(tables) + i
        if len(t.index) == t.n:
            continue
        first = t.index.min(1)
        merged = np.zeros(t.index.shape)      # taps that the border pushed together are one
        np.add.at(merged, (np.arange(len(first))[:, None], t.index - first[:, None]), t.weight)
        top, bits = merged.max(), 0
        while bits < 22 and int(0.5 + top * (1 << (bits + 1))) < 1 << 15:
            bits += 1
        w = np.trunc(merged * (1 << bits) + np.where(merged < 0, -0.5, 0.5)).astype(np.int64)
        shape = [1] * x.ndim
        shape[axis] = -1
        total = np.full((), 1 << bits >> 1, np.int64)
        for k in range(w.shape[1]):
            total = total + x.take(np.minimum(first + k, t.n - 1), axis).astype(np.int64) * w[:, k].reshape(shape)
        x = np.clip(total >> bits, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(x)


@structural(public=False, exact=True, name="upsample")
def _resize(input: Tensor, tables: tuple):
    """One table for each of the last dimensions."""
    if input.dtype == np.uint8 and tables[0].weight is not None:
        return _resize_bytes(input, tables)
    x = wide(input)
    # shrinking dimensions first: less to do for the others
    order = sorted(range(len(tables)), key=lambda i: len(tables[i].index) / max(tables[i].n, 1))
    for i in order:
        x = _apply(x, x.ndim - len(tables) + i, tables[i])
    return np.ascontiguousarray(narrow(x, input.dtype))


keep_format(_resize)
_resize.shape(lambda input, tables: (*input.shape[:len(input.shape) - len(tables)], *[len(t.index) for t in tables]))
_resize.gradient(input=lambda grad, tables: _resize(grad, tuple(t.transposed for t in tables)))

LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def _per_dim(what: Any, n: int, name: str) -> list[Any] | None:
    if what is None:
        return None
    if isinstance(what, (list, tuple)):
        if len(what) != n:
            raise ValueError(f"Input and {name} must have the same number of spatial dimensions, but got input with {n} spatial dimensions and {name} of shape {what}")
        return list(what)
    return [what] * n


@composite(ns="nn.functional")
def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None, antialias: bool = False):
    """(N, C, ...) resized to `size`, or by `scale_factor`. Modes: nearest, nearest-exact, linear (1-d), bilinear, bicubic (2-d), trilinear
    (3-d), area. `align_corners`: the corners' centres stay where they are. `antialias` widens the filters when shrinking
    (bilinear and bicubic)."""
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    n = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    sizes, scales = _per_dim(size, n, "output"), _per_dim(scale_factor, n, "scale_factor")
    if sizes is not None and recompute_scale_factor:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    spatial = input.shape[2:]
    if sizes is None:
        sizes = [math.floor(float(i * s)) for i, s in zip(spatial, scales, strict=True)]  # type: ignore[arg-type]
        if recompute_scale_factor or mode == "area":
            scales = None
    sizes = [int(s) for s in sizes]
    if antialias and not (mode in ("bilinear", "bicubic") and input.dim() == 4):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if n not in (1, 2, 3) or mode not in ("nearest", "nearest-exact", "area", *LINEAR):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | linear | bilinear | bicubic | "
                                  f"trilinear | area | nearest-exact (got {mode})")
    if mode in LINEAR and LINEAR[mode] != n:
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {LINEAR[mode] + 2}D input")
    if any(i <= 0 or o <= 0 for i, o in zip(spatial, sizes, strict=True)) or input.shape[1] == 0:
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input (shape: {list(input.shape)}) output (sizes: {sizes})")
    if mode == "area":
        return f(f"nn.functional.adaptive_avg_pool{n}d")(input, tuple(sizes))
    if input.dtype.category < D.FLOAT and mode not in ("nearest", "nearest-exact") and input.dtype.name != "uint8" or input.dtype.category > D.FLOAT:
        raise NotImplementedError(f"\"compute_indices_weights_{mode}\" not implemented for {input.dtype}")
    kind = mode if mode.startswith("nearest") else "cubic" if mode == "bicubic" else "linear"
    single = input.dtype.name not in ("float64", "uint8")
    return _resize(input, tuple(_table(kind, i, o, bool(align_corners), None if scales is None else float(scales[k]), antialias, single)
                                for k, (i, o) in enumerate(zip(spatial, sizes, strict=True))))


@composite(ns="nn.functional")
def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None):
    """`interpolate`, by its old name."""
    warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(ns="nn.functional")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None):
    """`interpolate` with mode="nearest", by its old name."""
    warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor)


@composite(ns="nn.functional")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None):
    """`interpolate` with mode="bilinear" and align_corners=True, by its old name."""
    warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, "bilinear", True)


# --- sampling at points ---------------------------------------------------------------------------------------------
def _pixels(x: Any, n: int, align_corners: bool) -> Any:
    """From [-1, 1] to positions of pixels."""
    return (x + 1) * ((n - 1) / 2) if align_corners else ((x + 1) * n - 1) / 2


def _reflect(x: Any, n: int, align_corners: bool) -> Any:
    low, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
    if span == 0:
        return x * 0
    d = (x - low).abs()
    flips = (d.detach() / span).floor()
    rest = d - flips * span
    return f("where")(flips.remainder(2) == 0, rest, span - rest) + low


def _inside(x: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    if padding_mode == "reflection":
        x = _reflect(x, n, align_corners)
    return x if padding_mode == "zeros" else x.clamp(0, n - 1)


def _look_up(flat: Any, sizes: Any, position: list[Any], zeros: bool) -> Any:
    """The values at integer positions (last dimension first), (N, C, points); 0 outside."""
    index: Any = 0
    valid: Any = None
    for p, n in zip(reversed(position), sizes, strict=True):
        if zeros:
            ok = (p >= 0) & (p <= n - 1)
            valid = ok if valid is None else valid & ok
        index = index * n + p.clamp(0, n - 1).to(D.int64)
    v = flat.gather(2, index.unsqueeze(1).expand((index.shape[0], flat.shape[1], index.shape[1])))
    return v if valid is None else f("where")(valid.unsqueeze(1), v, f("zeros_like")(v))


def _cubic_weights(t: Any) -> list[Any]:
    a = CUBIC
    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _check_grid(input: Any, grid: Any) -> None:
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes {list(input.shape)} and grid with sizes "
                           f"{list(grid.shape)}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if grid.shape[-1] != input.dim() - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, but got grid with sizes {list(grid.shape)}")
    if any(n == 0 for n in input.shape[2:]):
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)}")


@composite(ns="nn.functional")
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None):
    """The values of (N, C, H, W) at the points `grid` (N, *out, 2), x first, where -1 and 1 are the borders; also of (N, C, D, H, W) at (N, *out, 3).

    Modes: bilinear, nearest, bicubic (4-d only). Outside: zeros, the border's value, or reflection."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'")
    if align_corners is None:
        warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old behavior "
             "is desired. See the documentation of grid_sample for details.")
        align_corners = False
    _check_grid(input, grid)
    n = input.dim() - 2
    if mode == "bicubic" and n != 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    out = tuple(grid.shape[1:-1])
    sizes = tuple(input.shape[2:])
    flat = input.reshape((input.shape[0], input.shape[1], -1))
    points = grid.reshape((grid.shape[0], -1, n))
    raw = [_pixels(points.select(2, i), sizes[n - 1 - i], align_corners) for i in range(n)]     # x, y(, z)
    zeros = padding_mode == "zeros"
    if mode == "bicubic":
        base = [c.detach().floor() for c in raw]
        wx, wy = [_cubic_weights(c - b) for c, b in zip(raw, base, strict=True)]
        taps = [[_inside(b + (k - 1), sizes[1 - i], padding_mode, align_corners) for k in range(4)] for i, b in enumerate(base)]
        total: Any = 0
        for j in range(4):
            row: Any = 0
            for i in range(4):
                row = row + _look_up(flat, sizes, [taps[0][i], taps[1][j]], zeros) * wx[i].unsqueeze(1)
            total = total + row * wy[j].unsqueeze(1)
    else:
        at = [_inside(c, sizes[n - 1 - i], padding_mode, align_corners) for i, c in enumerate(raw)]
        if mode == "nearest":
            total = _look_up(flat, sizes, [c.detach().round() for c in at], zeros)
        else:
            base = [c.detach().floor() for c in at]
            part = [c - b for c, b in zip(at, base, strict=True)]
            total = 0
            for corner in range(2 ** n):
                w: Any = None
                place = []
                for i in range(n):
                    up = corner >> i & 1
                    place.append(base[i] + up)
                    side = part[i] if up else 1 - part[i]
                    w = side if w is None else w * side
                total = total + _look_up(flat, sizes, place, zeros) * w.unsqueeze(1)
    return total.reshape((input.shape[0], input.shape[1], *out))


@composite(ns="nn.functional")
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None):
    """The grid for `grid_sample` of affine maps `theta`: (N, 2, 3) for size (N, C, H, W), (N, 3, 4) for (N, C, D, H, W)."""
    if align_corners is None:
        warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old behavior "
             "is desired. See the documentation of grid_sample for details.")
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
                                  f"Got size {size}.")
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(f"Expected a batch of {'2D' if n == 2 else '3D'} affine matrices of shape Nx{n}x{n + 1} for size {size}. Got {theta.shape}.")
    if min(size) <= 0:
        raise ValueError("Expected non-zero, positive output size. Got " + str(size))
    spatial = size[2:]
    axes = []
    for i in range(n):      # x is the last dimension
        k = spatial[n - 1 - i]
        line = f("linspace")(-1.0, 1.0, k, dtype=theta.dtype, device=theta.device) if k > 1 else f("zeros")((k,), dtype=theta.dtype, device=theta.device)
        line = line if align_corners else line * ((k - 1) / k)
        axes.append(line.reshape(tuple(k if d == n - 1 - i else 1 for d in range(n))).expand(tuple(spatial)))
    axes.append(f("ones")(tuple(spatial), dtype=theta.dtype, device=theta.device))
    points = f("stack")(axes, -1).reshape((1, -1, n + 1))
    return f("matmul")(points, theta.transpose(1, 2)).reshape((theta.shape[0], *spatial, n))


# --- Inputs for the generated tests (ops.samples) ---
interpolate.samples(lambda s: [s.call(s((1, 1, 4)), 6), s.call(s((1, 1, 3, 4)), scale_factor=2, mode='bilinear', align_corners=False),
                               s.call(s((1, 1, 3, 4)), (5, 6), mode='bilinear', align_corners=True),
                               s.call(s((1, 1, 4, 4)), (3, 2), mode='bicubic', align_corners=False), s.call(s((1, 1, 3)), 5, mode='linear'),
                               s.call(s((1, 1, 5, 4)), (2, 3), mode='area')])
grid_sample.samples(lambda s: [s.call(s((1, 1, 3, 4)), s((1, 2, 2, 2), low=-0.9, high=0.9), align_corners=False),
                               s.call(s((1, 1, 3, 4)), s((1, 2, 2, 2), low=-1.5, high=1.5), padding_mode='border', align_corners=True)])
affine_grid.samples(lambda s: [s.call(s((1, 2, 3)), (1, 1, 2, 3), align_corners=False)])
