"""Batch normalization on ndarrays: (N, C, *spatial), statistics over all but dimension 1.

Contiguous float32 and float64 run through generated kernels, one task a channel: the statistics take one pass for the
mean and one for the squared deviations from it (no cancellation), partial sums of at most 1024 elements in the array's
type and the rest in double precision; the later passes find the channel in the cache. float16 and bfloat16 go through
float32. Other layouts, short rows and machines without llvmlite take the NumPy path.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu import native

__all__ = ["batch_norm_backward", "batch_norm_eval", "batch_norm_train", "channel_sum", "row_means"]

_SHORT = 8          # rows (spatial sizes) shorter than this are left to NumPy, which runs along the channels
_GRAIN = 1 << 15    # elements a thread should take at a time


def _prepare(x: np.ndarray) -> tuple[np.ndarray, int, int, int]:
    """x in the dtype of computation with the sizes N, C and the product of the rest."""
    if x.ndim < 2:
        raise ValueError(f"batch norm expects an input of at least 2 dimensions (N, C, ...), got shape {list(x.shape)}")
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iub":
        x = x.astype(np.float32)
    n, c = x.shape[:2]
    return x, n, c, math.prod(x.shape[2:])


def _kernels(x: np.ndarray, row: int) -> Any:
    name = native.KERNEL_DTYPES.get(x.dtype)
    if name is not None and x.size and (row >= _SHORT or row == 1) and native.available():
        return _library(name)
    return None


def _row(v: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    return None if v is None else np.ascontiguousarray(v, dtype)


def _call(lib: Any, name: str, arrays: list[np.ndarray | None], sizes: list[int], tasks: int, per_task: int) -> None:
    if per_channel := name in ("train", "backward", "total"):
        row = sizes[2]
    elif name == "affine":
        row = sizes[1]
    else:
        row = 0
    if row == 1:                                   # (N, C): vectors of channels, or whole rows
        name += "_columns"
        if per_channel:
            lanes = native.lanes(arrays[0].itemsize)      # type: ignore[union-attr]
            tasks, per_task = -(-tasks // lanes), per_task * lanes
        else:
            tasks, per_task = tasks // sizes[0], sizes[0]
    table = np.array([0 if a is None else native.address(a) for a in arrays] + sizes, np.int64)
    native.parallel_call(lib.address(name), native.address(table), tasks, max(1, _GRAIN // max(per_task, 1)))


def _spread(v: np.ndarray, ndim: int) -> np.ndarray:
    return v.reshape(-1, *[1] * (ndim - 2))


def batch_norm_train(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None,
                     eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(y, mean, 1 / sqrt(var + eps), unbiased variance) with the statistics of x itself; the last three are (C,) and
    the last one is what a running variance moves towards (nan where a channel has one element)."""
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


def row_means(x: np.ndarray) -> np.ndarray:
    """The mean of each row of a contiguous (rows, length) array."""
    if lib := _kernels(x, x.shape[1]):
        out = native.empty((x.shape[0],), x.dtype)
        _call(lib, "means", [x, out], [x.shape[1]], x.shape[0], x.shape[1])
        return out
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    return x.mean(1, dtype=wide).astype(x.dtype, copy=False)


# ---------------------------------------------------------------- kernels
_BLOCK = 1024       # elements added in the array's own type before the sum moves to double precision


@cache
def _library(dtype: str) -> Any:
    return native.build("norm", _source, dtype, native.vector_bytes())


def _source(dtype: str, vector_bytes: int) -> str:
    from rushlight.backends.cpu import emit
    s = emit.SCALAR[dtype]
    lanes = emit.lanes_of(s, vector_bytes)
    makers = {"train": _emit_train, "affine": _emit_affine, "backward": _emit_backward, "total": _emit_total,
              "means": _emit_means}
    functions = [make(_Rows(name, s, lanes)) for name, make in makers.items()]
    functions += _column_kernels(s, lanes)
    return emit.module(functions, [s], [lanes]) + (
        "declare double @llvm.sqrt.f64(double)\n"
        f"declare <{lanes} x double> @llvm.sqrt.v{lanes}f64(<{lanes} x double>)\n")


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

    def sums(self, n: str | int, offset: Any, row: str, terms: int, body: Any) -> list[str]:
        """Sums (double) over the rows of a channel: body(i, mask) gives `terms` vectors to be added up."""
        f = self.f
        totals = [f.var("double", "0.0") for _ in range(terms)]
        accs = [[f.var(self.v, "zeroinitializer") for _ in range(4)] for _ in range(terms)]
        short = "f32" if self.s == "float" else "f64"
        together = f.smax(1, f.sdiv(_BLOCK, row))                  # short rows share one sum in the array's type
        with f.range(0, n, together) as first, f.range(0, row, _BLOCK) as block:
            for acc in accs:
                for slot in acc:
                    f.store(self.v, "zeroinitializer", slot)
            with f.range(first, f.smin(n, f.add(first, together))) as i:
                base = offset(i)

                def add(j: Any, k: int, mask: str | None) -> None:
                    for acc, value in zip(accs, body(f.add(base, j), mask), strict=True):
                        if mask is not None:
                            value = f.op(f"select <{self.lanes} x i1> {mask}, {self.v} {value}, "
                                         f"{self.v} zeroinitializer")
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
    channel = f.var("i64", f.urem("%begin", c))
    with f.range("%begin", "%end") as task:
        ch = f.load("i64", channel)
        after = f.add(ch, 1)
        f.store("i64", f.select(f.icmp("eq", after, c), "i64", 0, after), channel)
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


def _emit_means(k: _Rows) -> Any:
    f = k.f
    x, out, row = f.pointer("%t", 0), f.pointer("%t", 1), f.word("%t", 2)
    count = f.op(f"sitofp i64 {row} to double")
    with f.range("%begin", "%end") as task:
        total, = k.sums(1, lambda i: f.mul(task, row), row, 1, lambda i, mask: [k.load(x, i, mask)])
        f.store(k.s, k.narrow(k.do("fdiv", total, count)), f.gep(k.s, out, task))
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


def _column_kernels(s: str, lanes: int) -> list[Any]:
    """The same for (N, C) arrays: vectors run along the channels, sums are double, tasks are vectors of channels."""
    from rushlight.backends.cpu.emit import Fn
    v, vd = f"<{lanes} x {s}>", f"<{lanes} x double>"

    def wide(f: Fn, a: str) -> str:
        return a if s == "double" else f.op(f"fpext {v} {a} to {vd}")

    def narrow(f: Fn, a: str) -> str:
        return a if s == "double" else f.op(f"fptrunc {vd} {a} to {v}")

    def do(f: Fn, op: str, a: str, b: str) -> str:
        return f.op(f"{op} {vd} {a}, {b}")

    def optional(f: Fn, ptr: str, at: Any, mask: str, default: str) -> str:
        out = f.var(vd, f.splat("double", lanes, default))
        with f.when(f.op(f"icmp ne ptr {ptr}, null")):
            f.store(vd, wide(f, f.masked_load(v, s, f.gep(s, ptr, at), mask, lanes)), out)
        return f.load(vd, out)

    def as_double(f: Fn, i: Any) -> str:
        return f.splat("double", lanes, f.op(f"sitofp i64 {i} to double"))

    def rows(f: Fn, n: str, c: str, ptrs: list[str], at: Any, mask: str, body: Any) -> None:
        with f.range(0, n) as i:
            here = f.add(f.mul(i, c), at)
            body(here, *(wide(f, f.masked_load(v, s, f.gep(s, p, here), mask, lanes)) for p in ptrs))

    def sums(f: Fn, n: str, c: str, ptrs: list[str], at: Any, mask: str, terms: int, body: Any) -> list[str]:
        slots = [f.var(vd, "zeroinitializer") for _ in range(terms)]
        for slot in slots:
            f.store(vd, "zeroinitializer", slot)

        def add(_: Any, *values: str) -> None:
            for slot, value in zip(slots, body(*values), strict=True):
                f.store(vd, do(f, "fadd", f.load(vd, slot), value), slot)
        rows(f, n, c, ptrs, at, mask, add)
        return [f.load(vd, slot) for slot in slots]

    def put(f: Fn, value: str, ptr: str, at: Any, mask: str) -> None:
        f.masked_store(v, s, narrow(f, value), f.gep(s, ptr, at), mask, lanes)

    args = [("ptr", "t"), ("i64", "begin"), ("i64", "end")]

    f = train = Fn("train_columns", args)
    x, y, w, b, mean_, invstd_, unbiased_, eps_ = (f.pointer("%t", i) for i in range(8))
    n, c = f.word("%t", 8), f.word("%t", 9)
    eps = f.splat("double", lanes, f.load("double", eps_))
    count, less = as_double(f, n), as_double(f, f.sub(n, 1))
    with f.range("%begin", "%end") as task:
        at = f.mul(task, lanes)
        mask = f.tail_mask(lanes, f.sub(c, at))
        total, = sums(f, n, c, [x], at, mask, 1, lambda a: [a])
        mean = do(f, "fdiv", total, count)

        def squared(a: str) -> list[str]:
            d = do(f, "fsub", a, mean)
            return [do(f, "fmul", d, d)]
        square, = sums(f, n, c, [x], at, mask, 1, squared)
        inside = do(f, "fadd", do(f, "fdiv", square, count), eps)
        root = f.op(f"call {vd} @llvm.sqrt.v{lanes}f64({vd} {inside})")
        invstd = do(f, "fdiv", f.splat("double", lanes, "1.0"), root)
        for ptr, value in ((mean_, mean), (invstd_, invstd), (unbiased_, do(f, "fdiv", square, less))):
            put(f, value, ptr, at, mask)
        scale = do(f, "fmul", invstd, optional(f, w, at, mask, "1.0"))
        shift = optional(f, b, at, mask, "0.0")
        rows(f, n, c, [x], at, mask, lambda here, a: put(
            f, do(f, "fadd", do(f, "fmul", do(f, "fsub", a, mean), scale), shift), y, here, mask))

    f = backward = Fn("backward_columns", args)
    gy, x, gx, w, mean_, invstd_, gw, gb = (f.pointer("%t", i) for i in range(8))
    n, c, training = f.word("%t", 8), f.word("%t", 9), f.word("%t", 11)
    count = as_double(f, n)
    factor = f.splat("double", lanes, f.select(f.icmp("ne", training, 0), "double", "1.0", "0.0"))
    with f.range("%begin", "%end") as task:
        at = f.mul(task, lanes)
        mask = f.tail_mask(lanes, f.sub(c, at))
        mean, invstd = (wide(f, f.masked_load(v, s, f.gep(s, p, at), mask, lanes)) for p in (mean_, invstd_))
        total, dot = sums(f, n, c, [gy, x], at, mask, 2,
                          lambda g, a: [g, do(f, "fmul", g, do(f, "fsub", a, mean))])
        put(f, total, gb, at, mask)
        put(f, do(f, "fmul", dot, invstd), gw, at, mask)
        with f.when(f.op(f"icmp ne ptr {gx}, null")):
            scale = do(f, "fmul", invstd, optional(f, w, at, mask, "1.0"))
            share = do(f, "fdiv", factor, count)
            level = do(f, "fmul", total, share)
            slope = do(f, "fmul", do(f, "fmul", dot, share), do(f, "fmul", invstd, invstd))

            def write(here: Any, g: str, a: str) -> None:
                pull = do(f, "fadd", level, do(f, "fmul", do(f, "fsub", a, mean), slope))
                put(f, do(f, "fmul", do(f, "fsub", g, pull), scale), gx, here, mask)
            rows(f, n, c, [gy, x], at, mask, write)

    f = total_ = Fn("total_columns", args)
    x, out, n, c = f.pointer("%t", 0), f.pointer("%t", 1), f.word("%t", 2), f.word("%t", 3)
    with f.range("%begin", "%end") as task:
        at = f.mul(task, lanes)
        mask = f.tail_mask(lanes, f.sub(c, at))
        total, = sums(f, n, c, [x], at, mask, 1, lambda a: [a])
        put(f, total, out, at, mask)

    f = affine = Fn("affine_columns", args)
    x, y, scale_, shift_ = (f.pointer("%t", i) for i in range(4))
    c = f.word("%t", 4)
    with f.range("%begin", "%end") as task:                       # tasks are rows here
        base = f.mul(task, c)
        with f.range(0, c, lanes) as j:
            mask = f.tail_mask(lanes, f.sub(c, j))
            a, m, d = (f.masked_load(v, s, f.gep(s, p, i), mask, lanes)
                       for p, i in ((x, f.add(base, j)), (scale_, j), (shift_, j)))
            f.masked_store(v, s, f.fmuladd(v, a, m, d), f.gep(s, y, f.add(base, j)), mask, lanes)
    return [train, backward, total_, affine]
