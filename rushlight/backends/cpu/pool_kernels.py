"""LLVM text of the 2-d pooling kernels: tasks are planes, vectors run along a row of the output.

For strides 1 and 2 the inputs of a vector of outputs come from one or two masked loads (and a shuffle), otherwise from
a gather. Masks stand for the padding, so there is no border code. A maximum carries 32-bit positions and accepts an
element that is greater, or nan, or the first of its window.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rushlight.backends.cpu import native
from rushlight.backends.cpu.emit import SCALAR, Fn, Value, lanes_of, module

__all__ = ["library", "source"]

_WORDS = "x y index h w oh ow kh kw sh sw ph pw dh dw div_h div_w".split()


@cache
def library(kind: str, dtype: str, stride: int) -> Any:
    """`kind`: "max", "max_index", "avg", "avg_grad" (with `stride` 1, 2, or 3 for any other) or "scatter"."""
    return native.build("pool", source, kind, dtype, stride, native.vector_bytes())


def source(kind: str, dtype: str, stride: int, vector_bytes: int) -> str:
    s = SCALAR[dtype]
    lanes = lanes_of(s, vector_bytes)
    if kind == "scatter":
        return module([_scatter(s)], [s], [lanes])
    if kind == "avg_grad":
        return module([_avg_grad(s)], [s], [lanes])
    text = module([_forward(kind, s, lanes, stride)], [s, "i64"], [lanes, lanes])
    short = "f32" if s == "float" else "f64"
    return text + (f"declare <{lanes} x {s}> @llvm.masked.gather.v{lanes}{short}.v{lanes}p0(<{lanes} x ptr>, i32, "
                   f"<{lanes} x i1>, <{lanes} x {s}>)\n")


def _table(f: Fn) -> dict[str, str]:
    return {name: f.word("%t", i) for i, name in enumerate(_WORDS)}


def _forward(kind: str, s: str, lanes: int, stride: int) -> Fn:
    f = Fn(kind, [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    v, vi, vm = f"<{lanes} x {s}>", f"<{lanes} x i32>", f"<{lanes} x i1>"
    indexed, average = kind == "max_index", kind == "avg"
    g = _table(f)
    x, y, index, div_h, div_w = (f.pointer("%t", _WORDS.index(n)) for n in ("x", "y", "index", "div_h", "div_w"))
    w32 = f.op(f"trunc i64 {g['w']} to i32")
    width = f.splat("i32", lanes, w32)
    step = f.op(f"trunc i64 {g['sw']} to i32")
    ramp = f.op(f"mul {vi} <{', '.join(f'i32 {i}' for i in range(lanes))}>, {f.splat('i32', lanes, step)}")
    lowest = "0.0" if average else "0xFFF0000000000000"
    nothing = f.splat(s, lanes, lowest)
    outside = f"<{', '.join(['i32 -1'] * lanes)}>"
    acc, pos = f.var(v, nothing), f.var(vi, outside)
    plane, oplane = f.mul(g["h"], g["w"]), f.mul(g["oh"], g["ow"])
    with f.range("%begin", "%end") as task, f.range(0, g["oh"]) as i, f.range(0, g["ow"], lanes) as j:
        xp = f.gep(s, x, f.mul(task, plane))
        f.store(v, nothing, acc)
        f.store(vi, outside, pos)
        top = f.sub(f.mul(i, g["sh"]), g["ph"])
        left = f.sub(f.mul(j, g["sw"]), g["pw"])
        with f.range(0, g["kh"]) as a:
            ih = f.add(top, f.mul(a, g["dh"]))
            inside = f.op(f"icmp ult i64 {ih}, {g['h']}")
            with f.when(inside), f.range(0, g["kw"]) as b:
                start = f.add(left, f.mul(b, g["dw"]))
                row_at = f.mul(ih, g["w"])
                row = f.gep(s, xp, row_at)
                columns = f.op(f"add {vi} {f.splat('i32', lanes, f.op(f'trunc i64 {start} to i32'))}, {ramp}")
                mask = f.op(f"icmp ult {vi} {columns}, {width}")
                value = _strided(f, s, lanes, stride, row, start, columns, mask, nothing, g["w"], width)
                old = f.load(v, acc)
                if average:
                    result = f.op(f"fadd {v} {old}, {value}")
                else:
                    better = f.op(f"fcmp ogt {v} {value}, {old}")
                    nan = f.op(f"fcmp uno {v} {value}, {value}")
                    take = f.op(f"or {vm} {better}, {nan}")
                    if indexed:
                        seen = f.load(vi, pos)
                        first = f.op(f"icmp slt {vi} {seen}, zeroinitializer")
                        take = f.op(f"and {vm} {f.op(f'or {vm} {take}, {first}')}, {mask}")
                        at = f.op(f"add {vi} {columns}, {f.splat('i32', lanes, f.op(f'trunc i64 {row_at} to i32'))}")
                        f.store(vi, f.op(f"select {vm} {take}, {vi} {at}, {vi} {seen}"), pos)
                    result = f.op(f"select {vm} {take}, {v} {value}, {v} {old}")
                f.store(v, result, acc)
        at = f.add(f.add(f.mul(task, oplane), f.mul(i, g["ow"])), j)
        left_over = f.tail_mask(lanes, f.sub(g["ow"], j))
        result = f.load(v, acc)
        if average:
            tall = f.splat(s, lanes, f.load(s, f.gep(s, div_h, i)))
            wide = f.masked_load(v, s, f.gep(s, div_w, j), left_over, lanes, f.splat(s, lanes, "1.0"))
            result = f.op(f"fdiv {v} {result}, {f.op(f'fmul {v} {tall}, {wide}')}")
        f.masked_store(v, s, result, f.gep(s, y, at), left_over, lanes)
        if indexed:
            long = f.op(f"sext {vi} {f.load(vi, pos)} to <{lanes} x i64>")
            f.masked_store(f"<{lanes} x i64>", "i64", long, f.gep("i64", index, at), left_over, lanes)
    return f


def _strided(f: Fn, s: str, lanes: int, stride: int, row: str, start: Value, columns: str, mask: str, other: str,
             w: str, width: str) -> str:
    """row[columns] where the mask holds, else `other`."""
    v, vi = f"<{lanes} x {s}>", f"<{lanes} x i32>"
    size = 4 if s == "float" else 8
    if stride == 1:
        return f.masked_load(v, s, f.gep(s, row, start), mask, lanes, other)
    if stride == 2:
        halves = []
        for half in (0, 1):
            ramp = f"<{', '.join(f'i32 {half * lanes + i}' for i in range(lanes))}>"
            at = f.op(f"add {vi} {f.splat('i32', lanes, f.op(f'trunc i64 {start} to i32'))}, {ramp}")
            ok = f.op(f"icmp ult {vi} {at}, {width}")
            halves.append(f.masked_load(v, s, f.gep(s, row, f.add(start, half * lanes)), ok, lanes, other))
        even = ", ".join(f"i32 {2 * i}" for i in range(lanes))
        return f.op(f"shufflevector {v} {halves[0]}, {v} {halves[1]}, {vi} <{even}>")
    short = "f32" if s == "float" else "f64"
    at = f.op(f"sext {vi} {columns} to <{lanes} x i64>")
    ptrs = f.op(f"getelementptr {s}, ptr {row}, <{lanes} x i64> {at}")
    return f.op(f"call {v} @llvm.masked.gather.v{lanes}{short}.v{lanes}p0(<{lanes} x ptr> {ptrs}, i32 {size}, "
                f"<{lanes} x i1> {mask}, {v} {other})")


def _scatter(s: str) -> Fn:
    """gx[index] += gy, plane by plane; an index outside its plane is left out and sets the last word of the table."""
    f = Fn("scatter", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    gy, index, gx = (f.pointer("%t", i) for i in range(3))
    each, plane = f.word("%t", 3), f.word("%t", 4)
    with f.range("%begin", "%end") as task:
        out = f.gep(s, gx, f.mul(task, plane))
        size = f.mul(plane, 4 if s == "float" else 8)
        f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {size}, i1 false)")
        base = f.mul(task, each)
        with f.range(base, f.add(base, each)) as i:
            k = f.load("i64", f.gep("i64", index, i))
            inside = f.op(f"icmp ult i64 {k}, {plane}")
            with f.when(inside):
                at = f.gep(s, out, k)
                f.store(s, f.op(f"fadd {s} {f.load(s, at)}, {f.load(s, f.gep(s, gy, i))}"), at)
            with f.when(f.op(f"xor i1 {inside}, true")):
                f.store("i64", 1, f.gep("i64", "%t", 5))
    return f


def _avg_grad(s: str) -> Fn:
    """x is the gradient to be made, y the one given."""
    f = Fn("avg_grad", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    g = _table(f)
    gx, gy, div_h, div_w = (f.pointer("%t", _WORDS.index(n)) for n in ("x", "y", "div_h", "div_w"))
    plane, oplane = f.mul(g["h"], g["w"]), f.mul(g["oh"], g["ow"])
    with f.range("%begin", "%end") as task:
        out = f.gep(s, gx, f.mul(task, plane))
        size = f.mul(plane, 4 if s == "float" else 8)
        f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {size}, i1 false)")
        with f.range(0, g["oh"]) as i:
            top = f.sub(f.mul(i, g["sh"]), g["ph"])
            h0, h1 = f.smax(0, top), f.smin(g["h"], f.add(top, g["kh"]))
            tall = f.load(s, f.gep(s, div_h, i))
            with f.range(0, g["ow"]) as j:
                left = f.sub(f.mul(j, g["sw"]), g["pw"])
                w0, w1 = f.smax(0, left), f.smin(g["w"], f.add(left, g["kw"]))
                at = f.add(f.add(f.mul(task, oplane), f.mul(i, g["ow"])), j)
                size = f.op(f"fmul {s} {tall}, {f.load(s, f.gep(s, div_w, j))}")
                share = f.op(f"fdiv {s} {f.load(s, f.gep(s, gy, at))}, {size}")
                with f.range(h0, h1) as a, f.range(w0, w1) as b:
                    p = f.gep(s, out, f.add(f.mul(a, g["w"]), b))
                    f.store(s, f.op(f"fadd {s} {f.load(s, p)}, {share}"), p)
    return f
