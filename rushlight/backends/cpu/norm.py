"""Batch normalization on ndarrays: (N, C, *spatial), statistics over all but dimension 1.

Contiguous float32 and float64 run through generated kernels, one task a channel: the statistics take one pass for the
mean and one for the squared deviations from it (no cancellation), partial sums of at most 1024 elements in the array's
type and the rest in double precision; the later passes find the channel in the cache. float16 and bfloat16 go through
float32. Other layouts, short rows and machines without llvmlite take the NumPy path.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu import native

__all__ = ["batch_norm_backward", "batch_norm_eval", "batch_norm_train", "channel_sum"]

_SHORT = 8          # rows (spatial sizes) shorter than this are left to NumPy, which runs along the channels
_GRAIN = 1 << 15    # elements a thread should take at a time


def _prepare(x: np.ndarray) -> tuple[np.ndarray, int, int, int]:
    """x in the dtype of computation with the sizes N, C and the product of the rest."""
    if x.ndim < 2:
        raise ValueError(f"batch norm expects an input of at least 2 dimensions (N, C, ...), got shape {list(x.shape)}")
    if x.dtype.name in ("float16", "bfloat16"):
        x = x.astype(np.float32)
    n, c = x.shape[:2]
    return x, n, c, int(np.prod(x.shape[2:]))


def _kernels(x: np.ndarray, row: int) -> Any:
    if x.dtype.name in ("float32", "float64") and x.size and row >= _SHORT and native.available():
        return _library(x.dtype.name)
    return None


def _row(v: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    return None if v is None else np.ascontiguousarray(v, dtype)


def _call(lib: Any, name: str, arrays: list[np.ndarray | None], sizes: list[int], tasks: int, per_task: int) -> None:
    table = np.array([0 if a is None else native.address(a) for a in arrays] + sizes, np.int64)
    native.parallel_call(lib.address(name), native.address(table), tasks, max(1, _GRAIN // max(per_task, 1)))


def _spread(v: np.ndarray, ndim: int) -> np.ndarray:
    return v.reshape(-1, *[1] * (ndim - 2))


def batch_norm_train(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None,
                     eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(y, mean, 1 / sqrt(var + eps), unbiased variance) with the statistics of x itself; the last three are (C,) and the
    last one is what a running variance moves towards (nan where a channel has one element)."""
    dtype = x.dtype
    x, n, c, row = _prepare(x)
    count = n * row
    if lib := _kernels(x, row):
        x = np.ascontiguousarray(x)
        y = native.empty(x.shape, x.dtype)
        mean, invstd, unbiased = (np.empty(c, x.dtype) for _ in range(3))
        eps_ = np.array([eps], np.float64)
        w, b = _row(weight, x.dtype), _row(bias, x.dtype)
        _call(lib, "train", [x, y, w, b, mean, invstd, unbiased, eps_], [n, c, row], c, count)
        return y if y.dtype == dtype else y.astype(dtype), mean, invstd, unbiased
    axes = (0, *range(2, x.ndim))
    wide = np.result_type(x.dtype, np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = x.sum(axes, dtype=np.float64) / count if count else np.full(c, np.nan)
        d = x - _spread(mean.astype(wide), x.ndim)
        square = np.square(d).sum(axes, dtype=np.float64)
        var = square / np.float64(count)
        unbiased = square / np.float64(count - 1)
        invstd = (1 / np.sqrt(var + eps)).astype(wide)
    scale = invstd if weight is None else invstd * weight.astype(wide)
    y = d * _spread(scale, x.ndim)
    if bias is not None:
        y += _spread(bias.astype(wide), x.ndim)
    return y.astype(dtype, copy=False), mean.astype(wide), invstd, unbiased.astype(wide)


def batch_norm_eval(x: np.ndarray, running_mean: np.ndarray, running_var: np.ndarray, weight: np.ndarray | None,
                    bias: np.ndarray | None, eps: float) -> np.ndarray:
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias"""
    dtype = x.dtype
    x, n, c, row = _prepare(x)
    scale = 1 / np.sqrt(running_var.astype(np.float64) + eps)
    if weight is not None:
        scale *= weight
    shift = -running_mean.astype(np.float64) * scale
    if bias is not None:
        shift += bias
    scale, shift = scale.astype(x.dtype), shift.astype(x.dtype)
    if lib := _kernels(x, row):
        x = np.ascontiguousarray(x)
        y = native.empty(x.shape, x.dtype)
        _call(lib, "affine", [x, y, scale, shift], [c, row], n * c, row)
    else:
        y = x * _spread(scale, x.ndim)
        y += _spread(shift, x.ndim)
    return y if y.dtype == dtype else y.astype(dtype)


def batch_norm_backward(gy: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, invstd: np.ndarray,
                        training: bool, want: tuple[bool, bool, bool] = (True, True, True),
                        ) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """The gradients (x, weight, bias) that are wanted, given gy and the mean and 1 / sqrt(var + eps) that the forward
    pass used: its own statistics (`training`) or constants."""
    dtype = x.dtype
    x, n, c, row = _prepare(x)
    gy = gy.astype(x.dtype, copy=False)
    if lib := _kernels(x, row):
        x, gy = np.ascontiguousarray(x), np.ascontiguousarray(gy)
        gx = native.empty(x.shape, x.dtype) if want[0] else None
        gw, gb = np.empty(c, x.dtype), np.empty(c, x.dtype)
        _call(lib, "backward", [gy, x, gx, _row(weight, x.dtype), _row(mean, x.dtype), _row(invstd, x.dtype), gw, gb],
              [n, c, row, int(training)], c, n * row)
    else:
        axes, count = (0, *range(2, x.ndim)), n * row
        inv = invstd.astype(x.dtype, copy=False)
        xhat = (x - _spread(mean.astype(x.dtype, copy=False), x.ndim)) * _spread(inv, x.ndim)
        gb_, gw_ = gy.sum(axes, dtype=np.float64), (gy * xhat).sum(axes, dtype=np.float64)
        gx = None
        if want[0]:
            scale = inv if weight is None else inv * weight.astype(x.dtype, copy=False)
            gx = gy
            if training and count:
                gx = gy - _spread((gb_ / count).astype(x.dtype), x.ndim)
                gx -= xhat * _spread((gw_ / count).astype(x.dtype), x.ndim)
            gx = gx * _spread(scale, x.ndim)
        gw, gb = gw_.astype(x.dtype), gb_.astype(x.dtype)
    if gx is not None and gx.dtype != dtype:
        gx = gx.astype(dtype)
    return gx, gw if want[1] else None, gb if want[2] else None


def channel_sum(x: np.ndarray) -> np.ndarray:
    """The sum over all dimensions but the second: (N, C, ...) -> (C,)."""
    dtype = x.dtype
    x, n, c, row = _prepare(x)
    if lib := _kernels(x, row):
        x = np.ascontiguousarray(x)
        out = np.empty(c, x.dtype)
        _call(lib, "total", [x, out], [n, c, row], c, n * row)
    else:
        wide = np.float64 if x.dtype == np.float32 else x.dtype
        out = x.sum((0, *range(2, x.ndim)), dtype=wide)
    return out.astype(dtype, copy=False)


# ---------------------------------------------------------------- kernels
_VERSION = 1
_BLOCK = 1024       # elements added in the array's own type before the sum moves to double precision


@cache
def _library(dtype: str) -> Any:
    from rushlight.compiler import jit
    wide = native.vector_bytes()
    return jit.compile_ir(lambda: _source(dtype, wide), f"norm:{_VERSION}:{dtype}:{wide}", opt=2)


def _source(dtype: str, vector_bytes: int) -> str:
    from rushlight.backends.cpu import emit
    s = emit.SCALAR[dtype]
    lanes = emit.lanes_of(s, vector_bytes)
    makers = (_emit_train, _emit_affine, _emit_backward, _emit_total)
    return emit.module([m(_Rows(name, s, lanes)) for m, name in
                        zip(makers, ("train", "affine", "backward", "total"), strict=True)], [s], [lanes]) + (
        "declare double @llvm.sqrt.f64(double)\n")


class _Rows:
    """What the kernels share: a function over tasks, passes over the rows of a channel, arithmetic in double."""

    def __init__(self, name: str, scalar: str, lanes: int) -> None:
        from rushlight.backends.cpu.emit import Fn
        self.f = Fn(name, [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
        self.s, self.lanes, self.v = scalar, lanes, f"<{lanes} x {scalar}>"
        self.size = 4 if scalar == "float" else 8

    def do(self, op: str, a: str, b: str) -> str:
        return self.f.op(f"{op} double {a}, {b}")

    def wide(self, value: str) -> str:
        return value if self.s == "double" else self.f.op(f"fpext float {value} to double")

    def narrow(self, value: str) -> str:
        return value if self.s == "double" else self.f.op(f"fptrunc double {value} to float")

    def splat(self, value: str) -> str:
        """A double in all lanes, in the array's type."""
        return self.f.splat(self.s, self.lanes, self.narrow(value))

    def element(self, ptr: str, index: str, default: str, present: str | None = None) -> str:
        """ptr[index] as a double; `default` where the pointer is null."""
        f = self.f
        out = f.var("double", default)
        with f.when(f.op(f"icmp ne ptr {ptr}, null")):
            f.store("double", self.wide(f.load(self.s, f.gep(self.s, ptr, index))), out)
        return f.load("double", out)

    def load(self, ptr: str, i: Any, mask: str | None) -> str:
        at = self.f.gep(self.s, ptr, i)
        if mask is None:
            return self.f.load(self.v, at, self.size)
        return self.f.masked_load(self.v, self.s, at, mask, self.lanes)

    def store(self, value: str, ptr: str, i: Any, mask: str | None) -> None:
        at = self.f.gep(self.s, ptr, i)
        if mask is None:
            self.f.store(self.v, value, at, self.size)
        else:
            self.f.masked_store(self.v, self.s, value, at, mask, self.lanes)

    def each(self, lo: Any, hi: Any, body: Any, unroll: int = 1) -> None:
        """body(i, number of the copy, mask or None) over [lo, hi), whole vectors first."""
        f = self.f
        step = self.lanes * unroll
        mid = f.add(lo, f.mul(f.sdiv(f.sub(hi, lo), step), step))
        with f.range(lo, mid, step) as i:
            for k in range(unroll):
                body(f.add(i, k * self.lanes), k, None)
        with f.range(mid, hi, self.lanes) as i:
            body(i, 0, f.tail_mask(self.lanes, f.sub(hi, i)))

    def sums(self, n: str, offset: Any, row: str, terms: int, body: Any) -> list[str]:
        """Sums (double) over the rows of a channel: body(i, mask) gives `terms` vectors to be added up."""
        f = self.f
        totals = [f.var("double", "0.0") for _ in range(terms)]
        accs = [[f.var(self.v, "zeroinitializer") for _ in range(4)] for _ in range(terms)]
        short = "f32" if self.s == "float" else "f64"
        with f.range(0, n) as i:
            base = offset(i)
            with f.range(0, row, _BLOCK) as block:
                for acc in accs:
                    for slot in acc:
                        f.store(self.v, "zeroinitializer", slot)

                def add(j: Any, k: int, mask: str | None) -> None:
                    for acc, value in zip(accs, body(f.add(base, j), mask), strict=True):
                        if mask is not None:
                            value = f.op(f"select <{self.lanes} x i1> {mask}, {self.v} {value}, {self.v} zeroinitializer")
                        f.store(self.v, f.op(f"fadd {self.v} {f.load(self.v, acc[k])}, {value}"), acc[k])
                self.each(block, f.smin(row, f.add(block, _BLOCK)), add, 4)
                for total, acc in zip(totals, accs, strict=True):
                    a, b, c, d = (f.load(self.v, slot) for slot in acc)
                    ab, cd = f.op(f"fadd {self.v} {a}, {b}"), f.op(f"fadd {self.v} {c}, {d}")
                    part = f.op(f"fadd {self.v} {ab}, {cd}")
                    one = f.op(f"call reassoc {self.s} @llvm.vector.reduce.fadd.v{self.lanes}{short}"
                               f"({self.s} 0.0, {self.v} {part})")
                    f.store("double", f.op(f"fadd double {f.load('double', total)}, {self.wide(one)}"), total)
        return [f.load("double", total) for total in totals]


def _emit_train(k: _Rows) -> Any:
    f = k.f
    x, y, w, b, mean_, invstd_, unbiased_, eps_ = (f.pointer("%t", i) for i in range(8))
    n, c, row = (f.word("%t", 8 + i) for i in range(3))
    eps = f.load("double", eps_)
    count_i = f.mul(n, row)
    count = f.op(f"sitofp i64 {count_i} to double")
    less = f.op(f"sitofp i64 {f.sub(count_i, 1)} to double")
    image = f.mul(c, row)
    with f.range("%begin", "%end") as ch:
        start = f.mul(ch, row)

        def offset(i: Any) -> Any:
            return f.add(f.mul(i, image), start)
        total, = k.sums(n, offset, row, 1, lambda i, mask: [k.load(x, i, mask)])
        mean = k.do("fdiv", total, count)
        centre = k.splat(mean)

        def deviations(i: Any, mask: str | None) -> list[str]:
            d = f.op(f"fsub {k.v} {k.load(x, i, mask)}, {centre}")
            return [f.op(f"fmul {k.v} {d}, {d}"), d]
        # the second sum is the rounding error of the mean, for which the first is corrected
        square, rest = k.sums(n, offset, row, 2, deviations)
        square = k.do("fsub", square, k.do("fdiv", k.do("fmul", rest, rest), count))
        inside = k.do("fadd", k.do("fdiv", square, count), eps)
        invstd = k.do("fdiv", "1.0", f.op(f"call double @llvm.sqrt.f64(double {inside})"))
        for ptr, value in ((mean_, mean), (invstd_, invstd), (unbiased_, k.do("fdiv", square, less))):
            f.store(k.s, k.narrow(value), f.gep(k.s, ptr, ch))
        scale = k.splat(k.do("fmul", invstd, k.element(w, ch, "1.0")))
        shift = k.splat(k.element(b, ch, "0.0"))
        with f.range(0, n) as i:
            base = offset(i)

            def write(j: Any, _: int, mask: str | None) -> None:
                at = f.add(base, j)
                d = f.op(f"fsub {k.v} {k.load(x, at, mask)}, {centre}")
                k.store(f.fmuladd(k.v, d, scale, shift), y, at, mask)
            k.each(0, row, write, 2)
    return f


def _emit_affine(k: _Rows) -> Any:
    f = k.f
    x, y, scale_, shift_ = (f.pointer("%t", i) for i in range(4))
    c, row = f.word("%t", 4), f.word("%t", 5)
    with f.range("%begin", "%end") as task:
        ch = f.urem(task, c)
        scale = f.splat(k.s, k.lanes, f.load(k.s, f.gep(k.s, scale_, ch)))
        shift = f.splat(k.s, k.lanes, f.load(k.s, f.gep(k.s, shift_, ch)))
        base = f.mul(task, row)

        def write(j: Any, _: int, mask: str | None) -> None:
            at = f.add(base, j)
            k.store(f.fmuladd(k.v, k.load(x, at, mask), scale, shift), y, at, mask)
        k.each(0, row, write, 2)
    return f


def _emit_backward(k: _Rows) -> Any:
    f = k.f
    gy, x, gx, w, mean_, invstd_, gw, gb = (f.pointer("%t", i) for i in range(8))
    n, c, row, training = (f.word("%t", 8 + i) for i in range(4))
    count = f.op(f"sitofp i64 {f.mul(n, row)} to double")
    image = f.mul(c, row)
    with f.range("%begin", "%end") as ch:
        start = f.mul(ch, row)

        def offset(i: Any) -> Any:
            return f.add(f.mul(i, image), start)
        centre = f.splat(k.s, k.lanes, f.load(k.s, f.gep(k.s, mean_, ch)))
        invstd = k.wide(f.load(k.s, f.gep(k.s, invstd_, ch)))

        def products(i: Any, mask: str | None) -> list[str]:
            g = k.load(gy, i, mask)
            d = f.op(f"fsub {k.v} {k.load(x, i, mask)}, {centre}")
            return [g, f.op(f"fmul {k.v} {g}, {d}")]
        total, dot = k.sums(n, offset, row, 2, products)
        f.store(k.s, k.narrow(total), f.gep(k.s, gb, ch))
        f.store(k.s, k.narrow(k.do("fmul", dot, invstd)), f.gep(k.s, gw, ch))
        with f.when(f.op(f"icmp ne ptr {gx}, null")):
            # gx = scale * (gy - [mean(gy) + (x - mean) * invstd^2 * mean(gy (x - mean))])
            scale = k.do("fmul", invstd, k.element(w, ch, "1.0"))
            on = f.icmp("ne", training, 0)
            slope = k.do("fdiv", k.do("fmul", dot, k.do("fmul", invstd, invstd)), count)
            slope = f.select(on, "double", slope, "0.0")
            level = f.select(on, "double", k.do("fdiv", total, count), "0.0")
            scale_v, slope_v, level_v = k.splat(scale), k.splat(f.op(f"fneg double {slope}")), k.splat(level)
            with f.range(0, n) as i:
                base = offset(i)

                def write(j: Any, _: int, mask: str | None) -> None:
                    at = f.add(base, j)
                    g = f.op(f"fsub {k.v} {k.load(gy, at, mask)}, {level_v}")
                    d = f.op(f"fsub {k.v} {k.load(x, at, mask)}, {centre}")
                    k.store(f.op(f"fmul {k.v} {f.fmuladd(k.v, d, slope_v, g)}, {scale_v}"), gx, at, mask)
                k.each(0, row, write, 2)
    return f


def _emit_total(k: _Rows) -> Any:
    f = k.f
    x, out = f.pointer("%t", 0), f.pointer("%t", 1)
    n, c, row = (f.word("%t", 2 + i) for i in range(3))
    image = f.mul(c, row)
    with f.range("%begin", "%end") as ch:
        start = f.mul(ch, row)
        total, = k.sums(n, lambda i: f.add(f.mul(i, image), start), row, 1, lambda i, mask: [k.load(x, i, mask)])
        f.store(k.s, k.narrow(total), f.gep(k.s, out, ch))
    return f
