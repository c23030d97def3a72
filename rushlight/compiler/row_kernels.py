"""Softmax, normalisation, losses and embedding rows as single kernels over C-contiguous arrays.

Each function takes ndarrays, works over the last dimension and returns ndarrays (`out=` where there is one result).
Arrays that are not contiguous are copied first. dtypes: float32, float64, float16, bfloat16; sums and exponentials
are taken in float32 (float64 for float64), whatever the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rushlight.backends.cpu.allocator import empty
from rushlight.compiler import scalar
from rushlight.compiler.kernels import RowKernel, _np_dtype, native_dtype
from rushlight.compiler.llvm import Buffer, Compute, Flag, Kernel, Module, Pass, Put, Reduce, Take
from rushlight.ops.expr import Expr, arg, cast, exp, log, prim, sqrt, where

__all__ = ["cross_entropy", "cross_entropy_backward", "layer_norm", "layer_norm_backward",
           "log_softmax", "log_softmax_backward", "rms_norm", "rms_norm_backward", "softmax", "softmax_backward"]


_floating: dict[int, str] = {}


def _dtype(name: str, *arrays: np.ndarray) -> str:
    num = arrays[0].dtype.num
    d = _floating.get(num)
    if d is None:
        d = native_dtype(arrays[0])
        if d is None or not scalar.register_dtype(d).startswith("float"):
            raise TypeError(f"{name}(): expected a floating point array that has a native form, got {arrays[0].dtype}")
        _floating[num] = d
    for a in arrays[1:]:
        if a.dtype.num != num:
            raise TypeError(f"{name}(): expected arrays of one dtype, got {arrays[0].dtype} and {a.dtype}")
    return d


def _dense(a: np.ndarray) -> np.ndarray:
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


def _result(name: str, shape: tuple[int, ...], dtype: Any, out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"{name}(): out must have shape {shape} and dtype {dtype}, got {out.shape} and {out.dtype}")
    return out


def _run(kernel: RowKernel, dtype: str, out: np.ndarray, *args: Any, at: int) -> np.ndarray:
    """Call with `out` as argument number `at`; an out that is not contiguous gets a copy of the result."""
    if out.flags.c_contiguous:
        kernel(dtype, *args[:at], out, *args[at:])
        return out
    dense = np.empty(out.shape, out.dtype)
    kernel(dtype, *args[:at], dense, *args[at:])
    out[...] = dense
    return out


def _compute(dtype: str) -> str:
    return scalar.register_dtype(dtype)


x, y, g, n = arg("x"), arg("y"), arg("g"), arg("$n")


# --- softmax ----------------------------------------------------------------------------------------------------------
def _make_softmax(m: Module, dtype: str) -> Kernel:
    c = _compute(dtype)
    e = exp(x - arg("max"))
    if dtype == c:      # the exponentials wait in the result
        sums, last = Pass({"y": e}, [Reduce("sum", "add", e, c)]), y * arg("scale")
    else:
        sums, last = Pass({}, [Reduce("sum", "add", e, c)]), e * arg("scale")
    return m.row("softmax", [Buffer("x", dtype), Buffer("y", dtype)], [
        Pass({},
             [Reduce("max", "maximum", x, c)]), sums, Compute({"scale": 1 / arg("sum")}), Pass({"y": last})], compute=c)


def _make_log_softmax(m: Module, dtype: str) -> Kernel:
    c = _compute(dtype)
    return m.row("log_softmax", [Buffer("x", dtype), Buffer("y", dtype)], [
        Pass({}, [Reduce("max", "maximum", x, c)]),
        Pass({}, [Reduce("sum", "add", exp(x - arg("max")), c)]),
        Compute({"log": log(arg("sum"))}),
        Pass({"y": (x - arg("max")) - arg("log")})], compute=c)


def _make_softmax_backward(m: Module, dtype: str) -> Kernel:
    c = _compute(dtype)
    return m.row("softmax_backward", [Buffer("g", dtype), Buffer("y", dtype), Buffer("dx", dtype)], [
        Pass({}, [Reduce("dot", "add", g * y, c)]), Pass({"dx": y * (g - arg("dot"))})], compute=c)


def _make_log_softmax_backward(m: Module, dtype: str) -> Kernel:
    c = _compute(dtype)
    return m.row("log_softmax_backward", [Buffer("g", dtype), Buffer("y", dtype), Buffer("dx", dtype)], [
        Pass({}, [Reduce("sum", "add", g, c)]), Pass({"dx": g - exp(y) * arg("sum")})], compute=c)


_softmax = RowKernel("softmax", _make_softmax, ["full"] * 2, ["y"])
_log_softmax = RowKernel("log_softmax", _make_log_softmax, ["full"] * 2, ["y"])
_softmax_backward = RowKernel("softmax_backward", _make_softmax_backward, ["full"] * 3, ["dx"])
_log_softmax_backward = RowKernel("log_softmax_backward", _make_log_softmax_backward, ["full"] * 3, ["dx"])


def softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """exp(x - max) / sum over the last dimension."""
    if out is None:
        f = _softmax.quick.get(x.dtype.num)
        o = empty(x.shape, x.dtype)
        if f is not None and f(x, o):
            return o
        out = o
    return _run(_softmax, _dtype("softmax", x), _result("softmax", x.shape, x.dtype, out), _dense(x), at=1)


def log_softmax(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """x - max - log(sum(exp(x - max))) over the last dimension."""
    if out is None:
        f = _log_softmax.quick.get(x.dtype.num)
        o = empty(x.shape, x.dtype)
        if f is not None and f(x, o):
            return o
        out = o
    return _run(_log_softmax, _dtype("log_softmax", x), _result("log_softmax", x.shape, x.dtype, out), _dense(x), at=1)


def softmax_backward(grad: np.ndarray, result: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The gradient of softmax's input from that of its result: y (g - sum(g y))."""
    o = _result("softmax_backward", grad.shape, grad.dtype, out)
    return _run(_softmax_backward, _dtype("softmax_backward", grad, result), o, _dense(grad), _dense(result), at=2)


def log_softmax_backward(grad: np.ndarray, result: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The gradient of log_softmax's input from that of its result: g - exp(y) sum(g)."""
    o = _result("log_softmax_backward", grad.shape, grad.dtype, out)
    return _run(_log_softmax_backward, _dtype("log_softmax_backward", grad, result), o, _dense(grad), _dense(result),
                at=2)


# --- normalisation ----------------------------------------------------------------------------------------------------
def _affine(value: Expr, weight: bool, bias: bool) -> Expr:
    value = value * arg("w") if weight else value
    return value + arg("b") if bias else value


def _optional(dtype: str, weight: bool, bias: bool) -> list[Buffer]:
    return [Buffer(k, dtype) for k, here in (("w", weight), ("b", bias)) if here]


def _layer_norm_maker(weight: bool, bias: bool) -> Any:
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        d = x - arg("m")
        return m.row("layer_norm", [Buffer("x", dtype), *_optional(dtype, weight, bias), Buffer("y", dtype),
                                    Buffer("mean", c, "0"), Buffer("rstd", c, "0")], [
            Pass({}, [Reduce("sum", "add", x, c, "float64")]),
            Compute({"m": cast(arg("sum") / n, c)}),
            Pass({}, [Reduce("square", "add", d * d, c, "float64")]),
            Compute({"r": cast(1 / sqrt(arg("square") / n + arg("eps")), c)}),
            Pass({"y": _affine(d * arg("r"), weight, bias)}),
            Put({"mean": arg("m"), "rstd": arg("r")})], scalars=[("eps", "float64")], compute=c)
    return make


def _rms_norm_maker(weight: bool) -> Any:
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        return m.row("rms_norm", [Buffer("x", dtype), *_optional(dtype, weight, False), Buffer("y", dtype),
                                  Buffer("rstd", c, "0")], [
            Pass({}, [Reduce("square", "add", x * x, c, "float64")]),
            Compute({"r": cast(1 / sqrt(arg("square") / n + arg("eps")), c)}),
            Pass({"y": _affine(x * arg("r"), weight, False)}),
            Put({"rstd": arg("r")})], scalars=[("eps", "float64")], compute=c)
    return make


def _norm_backward_maker(weight: bool, centred: bool) -> Any:
    """dx = rstd (gw - mean(gw) - h mean(gw h)), h = (x - mean) rstd; without the mean(gw) term for rms_norm."""
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        gw = g * arg("w") if weight else g
        h = (x - arg("mean")) * arg("rstd") if centred else x * arg("rstd")
        reduces = [Reduce("s2", "add", gw * h, c, "float64")]
        means = {"m2": cast(arg("s2") / n, c)}
        value = gw - h * arg("m2")
        if centred:
            reduces.append(Reduce("s1", "add", gw, c, "float64"))
            means["m1"] = cast(arg("s1") / n, c)
            value = (gw - arg("m1")) - h * arg("m2")
        stats = ["mean", "rstd"] if centred else ["rstd"]
        return m.row("norm_backward", [Buffer("g", dtype), Buffer("x", dtype), *[Buffer(s, c, "0") for s in stats],
                                       *_optional(dtype, weight, False), Buffer("dx", dtype)], [
            Pass({}, reduces), Compute(means), Pass({"dx": arg("rstd") * value})], compute=c)
    return make


def _norm_weights_maker(weight: bool, bias: bool, centred: bool) -> Any:
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        h = (x - arg("mean")) * arg("rstd") if centred else x * arg("rstd")
        reduces = [Reduce("dw", "add", g * h, c)] if weight else []
        reduces += [Reduce("db", "add", g, c)] if bias else []
        stats = ["mean", "rstd"] if centred else ["rstd"]
        outs = [r.name + "_out" for r in reduces]
        return m.columns("norm_weights", {r.name + "_out": arg(r.name) for r in reduces}, reduces,
                         [Buffer("g", dtype), Buffer("x", dtype), *[Buffer(s, c, "0") for s in stats],
                          *[Buffer(o, dtype) for o in outs]], compute=c)
    return make


_norms: dict[tuple, RowKernel] = {}


def _norm_kernel(kind: str, weight: bool, bias: bool) -> RowKernel:
    found = _norms.get((kind, weight, bias))
    if found is None:
        w, b = ["column"] * weight, ["column"] * bias
        if kind == "layer":
            k = RowKernel("layer_norm", _layer_norm_maker(weight, bias), ["full", *w, *b, "full", "row", "row"],
                          ["y", "mean", "rstd"])
        elif kind == "rms":
            k = RowKernel("rms_norm", _rms_norm_maker(weight), ["full", *w, "full", "row"], ["y", "rstd"])
        elif kind.endswith("input"):
            stats = ["row"] * (2 if kind.startswith("layer") else 1)
            k = RowKernel(f"{kind}_backward", _norm_backward_maker(weight, kind.startswith("layer")),
                          ["full", "full", *stats, *w, "full"], ["dx"])
        else:
            stats = ["row"] * (2 if kind.startswith("layer") else 1)
            k = RowKernel(f"{kind}_backward", _norm_weights_maker(weight, bias, kind.startswith("layer")),
                          ["full", "full", *stats, *w, *b], ["dw_out", "db_out"])
        found = _norms[kind, weight, bias] = k
    return found


def _flat(name: str, a: np.ndarray | None, like: np.ndarray, width: int) -> list[np.ndarray]:
    if a is None:
        return []
    if a.size != width or a.dtype != like.dtype:
        raise ValueError(f"{name}(): weight and bias must have {width} elements of {like.dtype}, got shape "
                         f"{a.shape} of {a.dtype}")
    return [_dense(a)]


def _rows(x: np.ndarray, dims: int) -> tuple[np.ndarray, tuple[int, ...], int]:
    """(contiguous view as (rows, width), shape of per-row statistics, width) for the last `dims` dimensions."""
    if not 1 <= dims <= x.ndim:
        raise ValueError(f"normalized dimensions: expected 1 to {x.ndim}, got {dims}")
    lead = x.shape[:x.ndim - dims]
    width = 1
    for s in x.shape[x.ndim - dims:]:
        width *= s
    return _dense(x).reshape(-1 if width else 0, width) if dims > 1 else _dense(x), (*lead, *[1] * dims), width


def layer_norm(x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, eps: float = 1e-5,
               dims: int = 1, out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(y, mean, rstd) of layer normalisation over the last `dims` dimensions; mean and rstd keep them as 1."""
    d = _dtype("layer_norm", x)
    rows, stats, width = _rows(x, dims)
    c = _np_dtype(_compute(d))
    o = _result("layer_norm", x.shape, x.dtype, out)
    mean, rstd = empty(stats, c), empty(stats, c)
    extra = _flat("layer_norm", weight, x, width) + _flat("layer_norm", bias, x, width)
    flat = o if dims == 1 or not o.flags.c_contiguous else o.reshape(rows.shape)
    if not flat.flags.c_contiguous:
        flat = np.empty(rows.shape, x.dtype)
    _norm_kernel("layer", weight is not None, bias is not None)(d, rows, *extra, flat, mean, rstd, eps)
    if not np.may_share_memory(flat, o):
        o[...] = flat.reshape(o.shape)
    return o, mean, rstd


def layer_norm_backward(grad: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray,
                        weight: np.ndarray | None = None,
                        dims: int = 1, need: Sequence[bool] = (True, True, True)
                        ) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """(grad of x, of weight, of bias), None where `need` says no. The weight's has the shape of the last `dims`."""
    return _norm_backward("layer", grad, x, [mean, rstd], weight, dims, need)


def rms_norm(x: np.ndarray, weight: np.ndarray | None = None, eps: float = 1e-6, dims: int = 1,
             out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(y, rstd) of root-mean-square normalisation over the last `dims` dimensions."""
    d = _dtype("rms_norm", x)
    rows, stats, width = _rows(x, dims)
    o = _result("rms_norm", x.shape, x.dtype, out)
    rstd = empty(stats, _np_dtype(_compute(d)))
    flat = o.reshape(rows.shape) if o.flags.c_contiguous else np.empty(rows.shape, x.dtype)
    _norm_kernel("rms", weight is not None, False)(d, rows, *_flat("rms_norm", weight, x, width), flat, rstd, eps)
    if not o.flags.c_contiguous:
        o[...] = flat.reshape(o.shape)
    return o, rstd


def rms_norm_backward(grad: np.ndarray, x: np.ndarray, rstd: np.ndarray, weight: np.ndarray | None = None,
                      dims: int = 1,
                      need: Sequence[bool] = (True, True)) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(grad of x, of weight), None where `need` says no."""
    return _norm_backward("rms", grad, x, [rstd], weight, dims, (*need, False))[:2]


def _norm_backward(kind: str, grad: np.ndarray, x: np.ndarray, stats: list[np.ndarray], weight: np.ndarray | None,
                   dims: int, need: Sequence[bool]) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    name = f"{kind}_norm_backward"
    d = _dtype(name, grad, x)
    rows, _, width = _rows(x, dims)
    gr = _rows(grad, dims)[0]
    stats = [_dense(s) for s in stats]
    dx = None
    if need[0]:
        dx = empty(x.shape, x.dtype)
        _norm_kernel(f"{kind}_input", weight is not None, False)(
            d, gr, rows, *stats, *_flat(name, weight, x, width), dx if dims == 1 else dx.reshape(rows.shape))
    shape = x.shape[x.ndim - dims:]
    outs = [empty(shape, x.dtype) if k else None for k in need[1:]]
    some = [o for o in outs if o is not None]
    if some and not x.size:
        for o in some:
            o[...] = 0
    elif some:
        _norm_kernel(f"{kind}_weights", need[1], need[2])(d, gr, rows, *stats, *some)
    return dx, outs[0], outs[1]


# --- cross entropy ----------------------------------------------------------------------------------------------------
def _cross_entropy_maker(smooth: bool) -> Any:
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        t, ignored = arg("target"), arg("target") == arg("ignore")
        inside = (t >= 0) & (t < n)
        reduces = [Reduce("sum", "add", exp(x - arg("max")), c)]
        if smooth:
            reduces.append(Reduce("all", "add", x - arg("max"), c))
        plain = arg("log") - (arg("xt") - arg("max"))
        loss = plain
        if smooth:
            eps = cast(arg("smoothing"), c)
            loss = (1 - eps) * plain + eps * (arg("log") - arg("all") / cast(n, c))
        return m.row("cross_entropy", [Buffer("x", dtype), Buffer("target", "int64", "0"), Buffer("loss", dtype, "0"),
                                       Buffer("lse", c, "0"), Buffer("bad", "int64", "0")], [
            Pass({}, [Reduce("max", "maximum", x, c)]),
            Pass({}, reduces),
            Take("xt", "x", where(inside, t, prim("mul", t, 0))),
            Compute({"log": log(arg("sum"))}),
            Put({"loss": where(ignored, 0.0, loss), "lse": arg("max") + arg("log")}),
            Flag("bad", prim("not", inside | ignored))],
            scalars=[("ignore", "int64"), *([("smoothing", "float64")] if smooth else [])], compute=c)
    return make


def _cross_entropy_backward_maker(smooth: bool) -> Any:
    def make(m: Module, dtype: str) -> Kernel:
        c = _compute(dtype)
        p = exp(x - arg("lse"))
        if smooth:
            eps = cast(arg("smoothing"), c)
            hit, miss = p - (1 - eps) - eps / cast(n, c), p - eps / cast(n, c)
        else:
            hit, miss = p - 1.0, p
        d = where(arg("$i") == arg("target"), hit, miss)
        return m.row("cross_entropy_backward", [
            Buffer("x", dtype), Buffer("target", "int64", "0"), Buffer("lse", c, "0"), Buffer("g", dtype, "0"),
            Buffer("dx", dtype)],
            [Pass({"dx": where(arg("target") == arg("ignore"), 0.0, arg("g") * d)})],
            scalars=[("ignore", "int64"), *([("smoothing", "float64")] if smooth else [])], compute=c)
    return make


_ce = [RowKernel("cross_entropy", _cross_entropy_maker(s), ["full", "row", "row", "row", "one"], ["loss", "lse", "bad"])
       for s in (False, True)]
_ce_backward = [RowKernel("cross_entropy_backward", _cross_entropy_backward_maker(s),
                          ["full", "row", "row", "row", "full"],
                          ["dx"]) for s in (False, True)]


def cross_entropy(logits: np.ndarray, target: np.ndarray, ignore_index: int = -100, label_smoothing: float = 0.0
                  ) -> tuple[np.ndarray, np.ndarray]:
    """(losses, log-sum-exp) of every row of `logits` (rows, classes) against int64 class indices.

    Losses of rows whose target is `ignore_index` are 0. IndexError names the first target found outside the classes.
    """
    d = _dtype("cross_entropy", logits)
    rows, classes = logits.shape
    loss, lse = empty((rows,), logits.dtype), empty((rows,), _np_dtype(_compute(d)))
    bad = np.zeros(1, np.int64)
    more = (label_smoothing,) if label_smoothing else ()
    if rows and not classes:
        raise IndexError(f"Target {target[0]} is out of bounds: there are no classes")
    _ce[bool(more)](d, _dense(logits), _dense(target), loss, lse, bad, ignore_index, *more)
    if bad[0]:
        raise IndexError(f"Target {target[bad[0] - 1]} is out of bounds.")
    return loss, lse


def cross_entropy_backward(grad: np.ndarray, logits: np.ndarray, target: np.ndarray, lse: np.ndarray,
                           ignore_index: int = -100, label_smoothing: float = 0.0, out: np.ndarray | None = None
                           ) -> np.ndarray:
    """The gradient of the logits from that of each row's loss (`grad`: (rows,), of the logits' dtype)."""
    d = _dtype("cross_entropy_backward", logits, grad)
    more = (label_smoothing,) if label_smoothing else ()
    o = _result("cross_entropy_backward", logits.shape, logits.dtype, out)
    return _run(_ce_backward[bool(more)], d, o, _dense(logits), _dense(target), _dense(lse), _dense(grad),
                ignore_index, *more, at=4)
