"""Convolutions of 1, 2 and 3 dimensions on ndarrays: forward, both gradients, transposed.

float32 and float64 run through the generated kernels of conv_kernels.py (float16 and bfloat16 by way of float32);
integers, complex numbers and machines without llvmlite take the NumPy path, one matrix product per filter tap.
Layouts are PyTorch's: x (N, C, *spatial), w (O, C / groups, *kernel), y (N, O, *output). A transposed convolution is
the gradient of the input, so `conv_transpose` takes w as (C, O / groups, *kernel).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from rushlight.backends.cpu import native

__all__ = [
    "conv_bias_grad", "conv_forward", "conv_input_grad", "conv_output_shape", "conv_transpose",
    "conv_transpose_output_shape", "conv_weight_grad",
]

Ints = int | Sequence[int]
_L2 = 1 << 18            # bytes of packed input that a task keeps at hand
_L2_GRAD = 5 << 17       # the same for the weight gradient, which packs gy too
_TASKS = 8               # tasks wanted of a large problem, so that threads finish together
_BYTES = np.dtype(np.uint8)
_SMALL = 1 << 17         # multiply-adds below which a task is not split


def _tuple(value: Ints, rank: int, name: str) -> tuple[int, ...]:
    if isinstance(value, (int, np.integer)):
        return (int(value),) * rank
    out = tuple(int(v) for v in value)
    if len(out) == 1:
        return out * rank
    if len(out) != rank:
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {rank} values to match the "
                           f"convolution dimensions, but got {name}={list(out)}")
    return out


def _check(x: Sequence[int], w: Sequence[int], bias: Sequence[int] | None, stride: tuple[int, ...],
           padding: tuple[int, ...], dilation: tuple[int, ...], groups: int, transposed: bool,
           output_padding: tuple[int, ...]) -> None:
    """Raise PyTorch's RuntimeError for arguments that do not describe a convolution."""
    x, w = list(x), list(w)
    if groups <= 0:
        raise RuntimeError(f"non-positive groups is not supported, got groups={groups}")
    if any(s <= 0 for s in stride):
        raise RuntimeError(f"non-positive stride is not supported, got stride={list(stride)}")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if any(p < 0 for p in padding):
        raise RuntimeError(f"negative padding is not supported, got padding={list(padding)}")
    if any(p < 0 for p in output_padding):
        raise RuntimeError(f"negative output_padding is not supported, got output_padding={list(output_padding)}")
    if len(w) != len(x):
        raise RuntimeError(f"Expected {len(w)}-dimensional input for {len(w)}-dimensional weight {w}, but got "
                           f"{len(x)}-dimensional input of size {x} instead")
    if w[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got "
                           f"weight of size {w} instead")
    if w[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
                           f"but got weight of size {w} instead")
    if transposed:
        if x[1] != w[0]:
            raise RuntimeError(f"Given transposed=1, weight of size {w}, expected input{x} to have {w[0]} channels, "
                               f"but got {x[1]} channels instead")
        out_channels = w[1] * groups
    else:
        if x[1] != w[1] * groups:
            raise RuntimeError(f"Given groups={groups}, weight of size {w}, expected input{x} to have {w[1] * groups} "
                               f"channels, but got {x[1]} channels instead")
        out_channels = w[0]
    if bias is not None and tuple(bias) != (out_channels,):
        raise RuntimeError(f"Given {'transposed=1, ' if transposed else ''}weight of size {w}, expected bias to be "
                           f"1-dimensional with {out_channels} elements, but got bias of size {list(bias)} instead")
    if any(k <= 0 for k in w[2:]):
        raise RuntimeError(f"the kernel size must be positive in every dimension, but got weight of size {w}")


def conv_output_shape(x_shape: Sequence[int], w_shape: Sequence[int], stride: Ints = 1, padding: Ints = 0,
                      dilation: Ints = 1, groups: int = 1, bias_shape: Sequence[int] | None = None) -> tuple[int, ...]:
    """The shape of conv(x, w): each spatial size is (I + 2 p - d (k - 1) - 1) // s + 1.

    Raises RuntimeError, as PyTorch does, where channels, groups or bias do not match, where a parameter is out of range
    and where the kernel is larger than the padded input."""
    r = len(w_shape) - 2
    s, p, d = _tuple(stride, r, "stride"), _tuple(padding, r, "padding"), _tuple(dilation, r, "dilation")
    _check(x_shape, w_shape, bias_shape, s, p, d, groups, False, ())
    padded = [i + 2 * q for i, q in zip(x_shape[2:], p, strict=True)]
    reach = [e * (k - 1) + 1 for k, e in zip(w_shape[2:], d, strict=True)]
    if any(k > i for k, i in zip(reach, padded, strict=True)):
        raise RuntimeError(f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). "
                           f"Kernel size: ({' x '.join(map(str, reach))}). "
                           "Kernel size can't be greater than actual input size")
    return (x_shape[0], w_shape[0], *((i - k) // q + 1 for i, k, q in zip(padded, reach, s, strict=True)))


def conv_transpose_output_shape(x_shape: Sequence[int], w_shape: Sequence[int], stride: Ints = 1, padding: Ints = 0,
                                output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
                                bias_shape: Sequence[int] | None = None) -> tuple[int, ...]:
    """The shape of conv_transpose(x, w): each spatial size is (I - 1) s - 2 p + d (k - 1) + output_padding + 1."""
    r = len(w_shape) - 2
    s, p, d = _tuple(stride, r, "stride"), _tuple(padding, r, "padding"), _tuple(dilation, r, "dilation")
    e = _tuple(output_padding, r, "output_padding")
    _check(x_shape, w_shape, bias_shape, s, p, d, groups, True, e)
    if any(a >= b and a >= c for a, b, c in zip(e, s, d, strict=True)):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got output_padding="
                           f"{list(e)}, stride={list(s)}, dilation={list(d)}")
    out = [(i - 1) * a - 2 * b + c * (k - 1) + f + 1
           for i, a, b, c, k, f in zip(x_shape[2:], s, p, d, w_shape[2:], e, strict=True)]
    if any(o <= 0 for o in out):
        raise RuntimeError(f"Given input size per channel: ({' x '.join(map(str, x_shape[2:]))}). Calculated output "
                           f"size per channel: ({' x '.join(map(str, out))}). Output size is too small")
    return (x_shape[0], w_shape[1] * groups, *out)


# ---------------------------------------------------------------- public functions
def conv_forward(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: Ints = 1, padding: Ints = 0,
                 dilation: Ints = 1, groups: int = 1) -> np.ndarray:
    """y[n, o] = bias[o] + sum over c, k of w[o, c, k] * x[n, c, stride * i + dilation * k - padding]."""
    wide = _wide(x.dtype)
    shape, conv, plan = _forward_setup(x.shape, w.shape, None if bias is None else bias.shape, _hashable(stride),
                                       _hashable(padding), _hashable(dilation), groups, wide)
    if plan is None or wide is None:
        return _reference_forward(x, w, bias, conv, shape)
    x_, w_, b_ = _dense(x, wide), _dense(w, wide), None if bias is None else _dense(bias, wide)
    y = native.empty(shape, wide)
    plan.run(x_, w_, b_, y)
    return y if y.dtype == x.dtype else y.astype(x.dtype)


def conv_input_grad(gy: np.ndarray, w: np.ndarray, x_shape: Sequence[int], stride: Ints = 1, padding: Ints = 0,
                    dilation: Ints = 1, groups: int = 1, bias: np.ndarray | None = None) -> np.ndarray:
    """The gradient with respect to x, of shape `x_shape`, given that of the output (plus `bias` per channel, which
    makes it a transposed convolution)."""
    x_shape, wide = tuple(x_shape), _wide(gy.dtype)
    conv, plan = _grad_setup(True, gy.shape, x_shape, w.shape, _hashable(stride), _hashable(padding),
                             _hashable(dilation), groups, wide)
    if plan is None or wide is None:
        return _reference_input_grad(gy, w, x_shape, conv, bias)
    gy_, w_, b_ = _dense(gy, wide), _dense(w, wide), None if bias is None else _dense(bias, wide)
    gx = native.empty(x_shape, wide)
    plan.run(gy_, w_, b_, gx)
    return gx if gx.dtype == gy.dtype else gx.astype(gy.dtype)


def conv_weight_grad(gy: np.ndarray, x: np.ndarray, w_shape: Sequence[int], stride: Ints = 1, padding: Ints = 0,
                     dilation: Ints = 1, groups: int = 1) -> np.ndarray:
    """The gradient with respect to w, of shape `w_shape`, given that of the output."""
    w_shape, wide = tuple(w_shape), _wide(gy.dtype)
    conv, plan = _grad_setup(False, gy.shape, x.shape, w_shape, _hashable(stride), _hashable(padding),
                             _hashable(dilation), groups, wide)
    if plan is None or wide is None:
        return _reference_weight_grad(gy, x, w_shape, conv)
    gy_, x_ = _dense(gy, wide), _dense(x, wide)
    gw = plan.run(gy_, x_, w_shape)
    # The raster's gaps multiply zeros with neighbouring inputs: exact unless an input there is inf or nan.
    if not math.isfinite(gw.sum()) and not np.isfinite(gw).all():
        return _reference_weight_grad(gy, x, w_shape, conv)
    return gw if gw.dtype == gy.dtype else gw.astype(gy.dtype)


def conv_bias_grad(gy: np.ndarray) -> np.ndarray:
    """The gradient with respect to the bias: the sum of gy over all but dimension 1."""
    from rushlight.backends.cpu import norm
    return norm.channel_sum(gy)


def conv_transpose(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: Ints = 1, padding: Ints = 0,
                   output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> np.ndarray:
    """The transposed convolution; w is (C, O / groups, *kernel)."""
    shape = conv_transpose_output_shape(x.shape, w.shape, stride, padding, output_padding, groups, dilation,
                                        None if bias is None else bias.shape)
    return conv_input_grad(x, w, shape, stride, padding, dilation, groups, bias)


def _hashable(v: Ints) -> int | tuple[int, ...]:
    return v if v.__class__ is int or v.__class__ is tuple else tuple(v) if isinstance(v, Sequence) else int(v)


@lru_cache(maxsize=1024)
def _forward_setup(x: tuple[int, ...], w: tuple[int, ...], bias: tuple[int, ...] | None, stride: Ints, padding: Ints,
                   dilation: Ints, groups: int,
                   wide: np.dtype | None) -> tuple[tuple[int, ...], _Conv, _Product | None]:
    """What a call's shapes and parameters determine: the output's shape, the sizes and the plan (None: use NumPy)."""
    shape = conv_output_shape(x, w, stride, padding, dilation, groups, bias)
    conv = _conv(x[2:], shape[2:], w[2:], stride, padding, dilation, groups)
    if wide is None or math.prod(shape) == 0 or math.prod(w[1:]) == 0 or not native.available():
        return shape, conv, None
    return shape, conv, _forward_plan(conv, x[0], w[0], w[1], wide.itemsize)


@lru_cache(maxsize=2048)
def _grad_setup(of_input: bool, gy: tuple[int, ...], x: tuple[int, ...], w: tuple[int, ...], stride: Ints,
                padding: Ints, dilation: Ints, groups: int,
                wide: np.dtype | None) -> tuple[_Conv, Any]:
    """The same for the gradients of the input (a `_Product`) and of the weight (a `_WeightGrad`)."""
    conv = _conv(x[2:], gy[2:], w[2:], stride, padding, dilation, groups)
    if wide is None or not math.prod(x) or not math.prod(gy) or not math.prod(w) or not native.available():
        return conv, None
    plan: Any = _input_grad_plan if of_input else _weight_grad_plan
    return conv, plan(conv, x[0], w[0], w[1], wide.itemsize)


# ---------------------------------------------------------------- geometry
class _Conv(NamedTuple):
    """Sizes in three spatial dimensions (2-d as (H, 1, W), so that slabs are cut along H; 1-d as (1, 1, L))."""
    inp: tuple[int, int, int]
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    groups: int


def _three(v: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    if len(v) == 3:
        return v[0], v[1], v[2]
    return (v[0], fill, v[1]) if len(v) == 2 else (fill, fill, v[0])


def _conv(inp: Sequence[int], out: Sequence[int], kernel: Sequence[int], stride: Ints, padding: Ints, dilation: Ints,
          groups: int) -> _Conv:
    r = len(kernel)
    if not 1 <= r <= 3:
        raise RuntimeError(f"convolutions have 1 to 3 spatial dimensions, but the weight has {r}")
    return _Conv(_three(tuple(inp), 1), _three(tuple(out), 1), _three(tuple(kernel), 1),
                 _three(_tuple(stride, r, "stride"), 1), _three(_tuple(padding, r, "padding"), 0),
                 _three(_tuple(dilation, r, "dilation"), 1), groups)


def _wide(dtype: np.dtype) -> np.dtype | None:
    """The dtype that the kernels compute in, or None where NumPy does it."""
    if dtype in native.KERNEL_DTYPES:
        return dtype
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else None


def _dense(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return a if a.dtype == dtype and a.flags.c_contiguous else np.ascontiguousarray(a, dtype)


def _round(n: int, to: int) -> int:
    return -(-n // to) * to


class _Raster:
    """Layout of the packed buffer for slabs of `rows` raster rows. Per dimension: data of `size` at `pad` (negative:
    cropped), `split` phases of which the first `used` are read, largest tap offset `reach` within a phase, last
    element read `last`."""

    def __init__(self, size: Sequence[int], pad: Sequence[int], split: Sequence[int], used: Sequence[int],
                 reach: Sequence[int], last: Sequence[int], channels: int, item: int, budget: int, out_d: int,
                 wanted: int, lanes: int) -> None:
        def pitch(i: int) -> int:
            p = pad[i]
            return -(-max(min(p + size[i], last[i] + 1), last[i] + 1 - max(p, 0), 1) // split[i])
        self.qh, self.qw = pitch(1), pitch(2)
        self.split, self.reach, self.used = split, reach, used
        row = channels * math.prod(used) * self.qh * self.qw * item
        rows = max(1, min(out_d, budget // row - reach[0]))
        if wanted > 1:
            rows = min(rows, max(-(-out_d // wanted), -(-4 * lanes // (self.qh * self.qw))))
        self.chunks = -(-out_d // rows)
        self.rows = -(-out_d // self.chunks)
        self.slab = self.rows + reach[0]
        self.channels = channels

    def finish(self, out_h: int, out_w: int, lanes: int) -> None:
        """Sizes that depend on the largest output raster."""
        self.span = ((self.rows - 1) * self.qh + out_h - 1) * self.qw + out_w
        end = self.span + (self.reach[0] * self.qh + self.reach[1]) * self.qw + self.reach[2]
        self.phase = max(self.slab * self.qh * self.qw, end)
        self.channel = math.prod(self.used) * self.phase
        self.packed = _round(self.channels * self.channel + lanes, 16)

    def offset(self, at: Sequence[int]) -> int:
        return (at[0] * self.qh + at[1]) * self.qw + at[2]


def _forward_taps(c: _Conv, raster: _Raster, channels: int) -> np.ndarray:
    """offset[c, k]: where tap k of channel c reads for output position 0."""
    offsets = []
    for k in product(*map(range, c.kernel)):
        t = [i * d for i, d in zip(k, c.dilation, strict=True)]
        phase = 0
        for a, s, u in zip(t, c.stride, raster.used, strict=True):
            phase = phase * u + a % s
        offsets.append(phase * raster.phase + raster.offset([a // s for a, s in zip(t, c.stride, strict=True)]))
    return (np.arange(channels)[:, None] * raster.channel + np.array(offsets)).astype(np.int64).reshape(-1)


def _used(c: _Conv) -> tuple[int, ...]:
    """Per dimension: one more than the largest phase of the stride that some tap reads."""
    return tuple(max(t * d % s for t in range(k)) + 1 for k, d, s in zip(c.kernel, c.dilation, c.stride, strict=True))


def _wanted(units: int, work: int) -> int:
    """Into how many slabs an image should be cut so that `units` images and groups make enough tasks."""
    return max(1, min(-(-_TASKS // units), work // _SMALL))


def _base_words(names: dict[str, int], r: _Raster, size: Sequence[int], pad: Sequence[int], limits: Sequence[int],
                channels: int, groups: int, out_rows: int) -> np.ndarray:
    words = np.zeros(len(names), np.int64)
    spatial = math.prod(size)
    for name, value in dict(
            groups=groups, channels=channels, x_image=groups * channels * spatial, x_group=channels * spatial,
            x_channel=spatial, xd=size[0], xh=size[1], xw=size[2], pd=pad[0], ph=pad[1], pw=pad[2], sd=r.split[0],
            sh=r.split[1], sw=r.split[2], ud=r.used[0], uh=r.used[1], uw=r.used[2], qh=r.qh, qw=r.qw,
            phase=r.phase, channel=r.channel, rows=r.rows, slab=r.slab, clear=r.packed,
            dense=int(max(pad) <= 0 <= min(pad) and max(r.split) == 1 and (r.qh, r.qw) == tuple(size[1:])),
            limit_h=limits[1] + 1, limit_w=limits[2] + 1, packed=r.packed, chunks=r.chunks, out_rows=out_rows).items():
        words[names[name]] = value
    return words


def _fill(words: np.ndarray, at: list[int], values: tuple[int, ...]) -> None:
    view = words.data                 # a third of the cost of an assignment by an index array
    for i, value in zip(at, values):
        view[i] = value


class _Product:
    """A ready `run` call: the words of its table, all but the addresses of the arrays."""

    __slots__ = ("words", "keep", "tasks", "grain", "slot", "code", "at")

    def __init__(self, words: np.ndarray, keep: list[np.ndarray], tasks: int, work: int, slot: int, item: int,
                 width: int, paired: bool) -> None:
        from rushlight.backends.cpu import conv_kernels as k
        self.words, self.keep, self.tasks, self.slot = words, keep, tasks, slot
        self.grain = max(1, min(tasks // _TASKS, _SMALL * tasks // max(work, 1)))
        kind, dtype = "run_paired" if paired else "run", np.dtype(f"f{item}")
        self.code = native.conv_library(kind, dtype, width).address("run")
        self.at = [k.RUN[n] for n in ("x", "w", "bias", "y", "scratch", "n_slots")]
        words[k.RUN["slot_bytes"]] = slot

    def run(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, y: np.ndarray) -> None:
        words, slots = self.words.copy(), native.slots(self.tasks)
        scratch = native.empty((slots * self.slot + 64,), _BYTES)
        _fill(words, self.at, (native.address(x), native.address(w), 0 if bias is None else native.address(bias),
                               native.address(y), native.address(scratch) + 63 & -64, slots))
        native.parallel_call(self.code, native.address(words), self.tasks, self.grain)


def _row_mode(ow: int, rows: int, span: int, item: int) -> tuple[int, int]:
    """(vector bytes, whether to go by rows): rows of whole vectors, also of half width, waste no lanes and are stored
    directly; otherwise the raster runs through the gaps between rows."""
    full = native.vector_bytes()
    if ow * item % full == 0:
        return full, 1
    half = full // 2
    if half >= 16 and ow * item % half == 0 and 1.08 * ow * rows * item / full <= -(-span * item // full):
        return half, 1
    return full, 0


def _finish_product(words: np.ndarray, r: _Raster, phases: list[tuple], n: int, groups: int, work: int, item: int,
                    out_rows: int, lanes: int) -> _Product:
    from rushlight.backends.cpu import conv_kernels as k
    table = np.zeros((len(phases), len(k.PHASE)), np.int64)
    keep = [table]
    for row, (xo, wo, od, oh, ow, base) in zip(table, phases, strict=True):
        xo = np.concatenate((xo, np.zeros(k.AHEAD, np.int64))).astype(np.int64)
        wo = np.ascontiguousarray(wo, np.int64)
        keep += [xo, wo]
        row[:] = (len(wo), native.address(xo), native.address(wo), od, oh, ow, base)
    width, by_rows, paired = native.vector_bytes(), 0, False
    if words[k.RUN["y_w"]] == 1:
        _, _, od, oh, ow, _ = phases[0]
        width, by_rows = _row_mode(ow, min(od, r.rows) * oh, r.span, item)
        lines_even = oh % 2 == 0 or (oh == 1 and od % 2 == 0 and r.rows % 2 == 0)
        if lines_even and width < native.vector_bytes():
            width, paired = native.vector_bytes(), True
    pitch = _round(r.span, lanes) + 16
    rows = next((m for m, _ in native.row_tiles() if m <= out_rows), 1)
    for name, value in dict(phases=len(phases), phase_table=native.address(table), buffer=r.packed, pitch=pitch,
                            by_rows=by_rows).items():
        words[k.RUN[name]] = value
    return _Product(words, keep, n * groups * r.chunks, work, _round((r.packed + rows * pitch) * item, 64), item,
                    width, paired)


def _forward_plan(c: _Conv, n: int, o: int, channels: int, item: int) -> _Product:
    from rushlight.backends.cpu import conv_kernels as k
    lanes = native.lanes(item)
    g, out_rows, taps = c.groups, o // c.groups, math.prod(c.kernel)
    work = n * o * channels * taps * math.prod(c.out)
    reach = [(m - 1) * d // s for m, d, s in zip(c.kernel, c.dilation, c.stride, strict=True)]
    last = [(q - 1) * s + (m - 1) * d for q, s, m, d in zip(c.out, c.stride, c.kernel, c.dilation, strict=True)]
    r = _Raster(c.inp, c.padding, c.stride, _used(c), reach, last, channels, item, _L2, c.out[0],
                _wanted(n * g, work), lanes)
    r.finish(c.out[1], c.out[2], lanes)
    words = _base_words(k.RUN, r, c.inp, c.padding, last, channels, g, out_rows)
    plane = math.prod(c.out)
    for name, value in dict(y_image=o * plane, y_group=out_rows * plane, y_row=plane, y_d=c.out[1] * c.out[2],
                            y_h=c.out[2], y_w=1, w_group=out_rows * channels * taps, w_row=channels * taps).items():
        words[k.RUN[name]] = value
    if not any(c.padding):                  # nothing that is not data is read into an output that is kept
        words[k.RUN["clear"]] = 0
    phases = [(_forward_taps(c, r, channels), np.arange(channels * taps), *c.out, 0)]
    return _finish_product(words, r, phases, n, g, work, item, out_rows, lanes)


def _input_grad_plan(c: _Conv, n: int, o: int, channels: int, item: int) -> _Product:
    """gx[s q + rho - p] = sum over taps k with d k = s m + rho of w[k] * gy[q - m], one phase for each rho."""
    from rushlight.backends.cpu import conv_kernels as k
    lanes = native.lanes(item)
    g, og, taps = c.groups, o // c.groups, math.prod(c.kernel)
    work = n * o * channels * taps * math.prod(c.out)
    dims = []                                    # per dimension: [(first, count, q0, [(tap, m)])] for each rho in use
    for i in range(3):
        s, p, d = c.stride[i], c.padding[i], c.dilation[i]
        found = []
        for rho in range(s):
            first = (rho - p) % s
            if first < c.inp[i]:
                hits = [(t, t * d // s) for t in range(c.kernel[i]) if t * d % s == rho]
                found.append((first, -(-(c.inp[i] - first) // s), (first + p - rho) // s, hits))
        dims.append(found)
    pad = [max((m - q0 for _, _, q0, hits in f for _, m in hits), default=0) for f in dims]
    reach = [max((q0 - m + e for _, _, q0, hits in f for _, m in hits), default=0)
             for f, e in zip(dims, pad, strict=True)]
    last = [max((q0 - m + e + count - 1 for _, count, q0, hits in f for _, m in hits), default=0)
            for f, e in zip(dims, pad, strict=True)]
    most = [max(count for _, count, _, _ in f) for f in dims]
    r = _Raster(c.out, pad, (1, 1, 1), (1, 1, 1), reach, last, og, item, _L2, most[0], _wanted(n * g, work), lanes)
    r.finish(most[1], most[2], lanes)
    words = _base_words(k.RUN, r, c.out, pad, last, og, g, channels)
    plane, (_, h, w) = math.prod(c.inp), c.inp
    for name, value in dict(y_image=g * channels * plane, y_group=channels * plane, y_row=plane,
                            y_d=c.stride[0] * h * w, y_h=c.stride[1] * w, y_w=c.stride[2],
                            w_group=og * channels * taps, w_row=taps).items():
        words[k.RUN[name]] = value
    phases = []
    for d, e, f in product(*dims):
        xo, wo = [], []
        for (td, md), (te, me), (tf, mf) in product(d[3], e[3], f[3]):
            xo.append(r.offset((d[2] - md + pad[0], e[2] - me + pad[1], f[2] - mf + pad[2])))
            wo.append((td * c.kernel[1] + te) * c.kernel[2] + tf)
        each = np.arange(og)[:, None]
        phases.append(((each * r.channel + np.array(xo, np.int64)).reshape(-1),
                       (each * channels * taps + np.array(wo, np.int64)).reshape(-1),
                       d[1], e[1], f[1], (d[0] * h + e[0]) * w + f[0]))
    return _finish_product(words, r, phases, n, g, work, item, channels, lanes)


class _WeightGrad:
    """A ready `weight_grad` call."""

    __slots__ = ("words", "keep", "tasks", "parts", "slot", "code", "at", "grain")

    def __init__(self, words: np.ndarray, keep: np.ndarray, parts: int, groups: int, work: int, slot: int, item: int,
                 width: int) -> None:
        from rushlight.backends.cpu import conv_kernels as k
        self.words, self.keep, self.parts, self.slot = words, keep, parts, slot
        self.tasks = parts * groups
        self.grain = max(1, min(self.tasks // _TASKS, _SMALL * self.tasks // max(work, 1)))
        self.code = native.conv_library("weight_grad", np.dtype(f"f{item}"), width).address("weight_grad")
        self.at = [k.GRAD[n] for n in ("x", "gy", "out", "scratch", "n_slots")]
        words[k.GRAD["slot_bytes"]] = slot

    def run(self, gy: np.ndarray, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        words, slots = self.words.copy(), native.slots(self.tasks)
        scratch = native.empty((slots * self.slot + 64,), _BYTES)
        out = native.empty((self.parts, *shape), x.dtype)
        _fill(words, self.at, (native.address(x), native.address(gy), native.address(out),
                               native.address(scratch) + 63 & -64, slots))
        native.parallel_call(self.code, native.address(words), self.tasks, self.grain)
        if self.parts == 1:
            return out[0]
        total = native.empty(shape, x.dtype)
        np.add.reduce(out, axis=0, out=total)            # in the order of the parts, whichever thread made them
        return total


def _weight_grad_plan(c: _Conv, n: int, o: int, channels: int, item: int) -> _WeightGrad:
    from rushlight.backends.cpu import conv_kernels as k
    lanes = native.lanes(item)
    g, out_rows, taps = c.groups, o // c.groups, math.prod(c.kernel)
    work = n * o * channels * taps * math.prod(c.out)
    reach = [(m - 1) * d // s for m, d, s in zip(c.kernel, c.dilation, c.stride, strict=True)]
    last = [(q - 1) * s + (m - 1) * d for q, s, m, d in zip(c.out, c.stride, c.kernel, c.dilation, strict=True)]
    r = _Raster(c.inp, c.padding, c.stride, _used(c), reach, last, channels + out_rows, item, _L2_GRAD, c.out[0],
                _wanted(n * g, work), lanes)
    r.channels = channels
    r.finish(c.out[1], c.out[2], lanes)
    words = _base_words(k.GRAD, r, c.inp, c.padding, last, channels, g, out_rows)
    plane, units = math.prod(c.out), n * r.chunks
    parts = min(units, max(1, -(-4 // g)), max(1, work // _SMALL))
    per_task = -(-units // parts)
    parts = -(-units // per_task)
    width = native.vector_bytes()
    if by_rows := r.chunks == 1 and c.out[1] == 1 and c.out[2] * item in (width, width // 2) and c.out[2] * item >= 16:
        width = c.out[2] * item
        pitch, y_block, kept = plane, o * plane, 0
        steps, x_step, y_step = c.out[0], r.qh * r.qw, c.out[2]
    else:
        pitch = _round(r.span, lanes)
        y_block = kept = out_rows * pitch
        steps, x_step, y_step = pitch // lanes, lanes, lanes
    block = max(1, min(per_task, _L2_GRAD // ((r.packed + kept) * item)))
    offsets = _forward_taps(c, r, channels)
    for name, value in dict(
            gy_image=o * plane, gy_group=out_rows * plane, gy_row=plane, od=c.out[0], oh=c.out[1], ow=c.out[2],
            part=o * channels * taps, taps=channels * taps, offsets=native.address(offsets), units=units,
            per_task=per_task, block=block, y_offset=block * r.packed, y_block=y_block, y_pitch=pitch,
            steps=steps, x_step=x_step, y_step=y_step, by_rows=int(by_rows)).items():
        words[k.GRAD[name]] = value
    return _WeightGrad(words, offsets, parts, g, work, _round(block * (r.packed + kept) * item, 64), item, width)


# ---------------------------------------------------------------- NumPy path
def _taps(c: _Conv) -> list[tuple[int, tuple[slice, ...]]]:
    """(k, the slices of the padded input that tap k meets)."""
    return [(n, tuple(slice(t * d, t * d + (o - 1) * s + 1, s)
                      for t, d, o, s in zip(k, c.dilation, c.out, c.stride, strict=True)))
            for n, k in enumerate(product(*map(range, c.kernel)))]


def _padded(x: np.ndarray, c: _Conv) -> np.ndarray:
    """(N, groups, C / groups, D, H, W), zero-padded to the right far enough for every tap."""
    n = x.shape[0]
    x = x.reshape(n, c.groups, x.shape[1] // c.groups, *c.inp)
    need = [max(p + i, (o - 1) * s + (k - 1) * d + 1) for p, i, o, s, k, d in
            zip(c.padding, c.inp, c.out, c.stride, c.kernel, c.dilation, strict=True)]
    if list(c.inp) == need:
        return x
    out = np.zeros((*x.shape[:3], *need), x.dtype)
    out[native.at(slice(p, p + i) for p, i in zip(c.padding, c.inp, strict=True))] = x
    return out


def _compute_dtype(dtype: np.dtype) -> np.dtype:
    return _wide(dtype) or dtype


def _reference_forward(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, c: _Conv,
                       shape: tuple[int, ...]) -> np.ndarray:
    dtype = _compute_dtype(x.dtype)
    n, o, g = shape[0], shape[1], c.groups
    xp = _padded(x.astype(dtype, copy=False), c)
    wt = w.astype(dtype, copy=False).reshape(g, o // g, w.shape[1], math.prod(c.kernel))
    y = np.zeros((n, g, o // g, math.prod(c.out)), dtype)
    for k, at in _taps(c) if x.size and y.size else ():
        y += np.matmul(wt[..., k], xp[native.at(at)].reshape(n, g, w.shape[1], -1))
    y = y.reshape(shape)
    if bias is not None:
        y += bias.astype(dtype, copy=False).reshape(-1, *[1] * (len(shape) - 2))
    return y.astype(x.dtype, copy=False)


def _reference_input_grad(gy: np.ndarray, w: np.ndarray, x_shape: tuple[int, ...], c: _Conv,
                          bias: np.ndarray | None) -> np.ndarray:
    dtype = _compute_dtype(gy.dtype)
    n, o, g, channels = gy.shape[0], w.shape[0], c.groups, w.shape[1]
    wt = w.astype(dtype, copy=False).reshape(g, o // g, channels, math.prod(c.kernel))
    gyt = gy.astype(dtype, copy=False).reshape(n, g, o // g, math.prod(c.out))
    gx = _padded(np.zeros(x_shape, dtype), c)
    if gy.size and gx.size and w.size:
        for k, at in _taps(c):
            gx[native.at(at)] += np.matmul(wt[..., k].swapaxes(1, 2), gyt).reshape(n, g, channels, *c.out)
    gx = gx[native.at(slice(p, p + i) for p, i in zip(c.padding, c.inp, strict=True))].reshape(x_shape)
    if bias is not None:
        gx = gx + bias.astype(dtype, copy=False).reshape(-1, *[1] * (len(x_shape) - 2))
    return np.ascontiguousarray(gx.astype(gy.dtype, copy=False))


def _reference_weight_grad(gy: np.ndarray, x: np.ndarray, w_shape: tuple[int, ...], c: _Conv) -> np.ndarray:
    dtype = _compute_dtype(gy.dtype)
    n, o, g, channels = x.shape[0], w_shape[0], c.groups, w_shape[1]
    gw = np.zeros((g, o // g, channels, math.prod(c.kernel)), dtype)
    if gy.size and x.size:
        xp = _padded(x.astype(dtype, copy=False), c)
        gyt = gy.astype(dtype, copy=False).reshape(n, g, o // g, -1).transpose(1, 2, 0, 3).reshape(g, o // g, -1)
        for k, at in _taps(c):
            xs = xp[native.at(at)].reshape(n, g, channels, -1).transpose(1, 0, 3, 2).reshape(g, -1, channels)
            gw[..., k] = np.matmul(gyt, xs)
    return gw.reshape(w_shape).astype(gy.dtype, copy=False)
