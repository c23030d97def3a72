"""Copies between arrays of one dtype whose elements lie in different orders, for large arrays.

NumPy walks along one operand and jumps in the other. Here the dimensions are sorted and merged; where both operands are
contiguous along the innermost one, rows are copied as bytes, and where source and destination are contiguous along
different dimensions, squares of them are turned in registers. Tasks depend on shapes alone and run on the pool.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu import native

__all__ = ["assign"]

_LARGE = 1 << 16                # bytes from which this pays
_ROWS = 1 << 19                 # the same where rows are copied as they are
_OUTER = 3                      # dimensions around the copied rows or squares
_STRIP = 64                     # elements along the source's contiguous dimension that one task of a turn takes
_TASK = 1 << 15                 # bytes of a chunk of parallel work
_WORDS = ("src", "dst", "count", "along", "src_step", "dst_step", "strips") + tuple(f"{x}{i}" for i in range(_OUTER) for x in "nsd")
_pack = struct.Struct(f"={len(_WORDS)}q").pack


def assign(dst: np.ndarray, src: np.ndarray) -> None:
    """dst[...] = src, where src broadcasts to dst; casts as `np.copyto(casting="unsafe")`."""
    if dst.nbytes < _LARGE or dst.dtype is not src.dtype or not _native(dst, src):
        np.copyto(dst, src, casting="unsafe")


def _native(dst: np.ndarray, src: np.ndarray) -> bool:
    if dst.dtype.kind not in "biufc" or not dst.flags.writeable or np.may_share_memory(dst, src):
        return False
    if src.shape != dst.shape:
        src = np.broadcast_to(src, dst.shape)
    item = dst.itemsize
    dims = sorted(((d, s, n) for n, d, s in zip(dst.shape, dst.strides, src.strides, strict=True) if n != 1), reverse=True)
    merged: list[tuple[int, int, int]] = []
    for d, s, n in dims:
        if d <= 0 or s < 0:
            return False
        if merged and merged[-1][0] == d * n and merged[-1][1] == s * n:
            n *= merged.pop()[2]
        merged.append((d, s, n))
    if not merged or merged[-1][0] != item:
        return False
    d, s, n = merged.pop()
    if s == item:
        if not merged or len(merged) > _OUTER or n * item < 32 or dst.nbytes < _ROWS:
            return False                                                    # NumPy's call is as good
        return _run("rows", (native.address(src), native.address(dst), n * item, 0, 0, 0, 1), merged, 1, n * item)
    if item not in (4, 8):
        return False
    turned = [i for i, m in enumerate(merged) if m[1] == item]
    if not turned or n < 8:
        return False
    step, _, along = merged.pop(turned[-1])
    if along < 8 or len(merged) > _OUTER:
        return False
    strips = -(-along // _STRIP)
    return _run(f"turn{item}", (native.address(src), native.address(dst), n, along, s, step, strips), merged, strips, min(along, _STRIP) * n * item)


def _run(kind: str, words: tuple[int, ...], outer: list[tuple[int, int, int]], inner: int, size: int) -> bool:
    library = _library()
    if library is None:
        return False
    count = inner
    rest = []
    for d, s, n in [(0, 0, 1)] * (_OUTER - len(outer)) + outer:
        rest += [n, s, d]
        count *= n
    table = ctypes.create_string_buffer(_pack(*words, *rest))
    native.parallel_call(library.address(f"rl_copy_{kind}"), ctypes.addressof(table), count, max(1, _TASK // size))
    return True


@cache
def _library() -> Any:
    from rushlight.backends.cpu import threads
    if not threads.native():
        return None
    from rushlight.compiler import jit
    return native.build("copies", _source, jit.host()["vector_bytes"])


def _source(vector_bytes: int) -> str:
    return _rows() + _turn(4, vector_bytes) + _turn(8, vector_bytes) + "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"


def _prologue(name: str) -> str:
    """A loop over tasks; %s and %d are where the task's rows begin, %strip which strip of them."""
    loads = "\n".join(f"  %{n}.p = getelementptr i64, ptr %w, i64 {i}\n  %{n} = load i64, ptr %{n}.p" for i, n in enumerate(_WORDS))
    steps, left = [], "%task.outer"
    for i in reversed(range(_OUTER)):
        steps.append(f"  %i{i} = urem i64 {left}, %n{i}\n  %left{i} = udiv i64 {left}, %n{i}\n"
                     f"  %so{i} = mul i64 %i{i}, %s{i}\n  %do{i} = mul i64 %i{i}, %d{i}")
        left = f"%left{i}"
    sums = "\n".join(f"  %{x}a{i} = add i64 {f'%{x}a{i - 1}' if i else f'%{y}'}, %{x}o{i}" for x, y in (("s", "src"), ("d", "dst")) for i in range(_OUTER))
    return f"""
define void @{name}(ptr %w, i64 %begin, i64 %end) {{
entry:
{loads}
  br label %task
task:
  %k = phi i64 [%begin, %entry], [%k1, %next]
  %strip = urem i64 %k, %strips
  %task.outer = udiv i64 %k, %strips
{chr(10).join(steps)}
{sums}
  %s = inttoptr i64 %sa{_OUTER - 1} to ptr
  %d = inttoptr i64 %da{_OUTER - 1} to ptr
"""


_EPILOGUE = """
next:
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %end
  br i1 %more, label %task, label %out
out:
  ret void
}
"""


def _rows() -> str:
    return _prologue("rl_copy_rows") + """
  call void @llvm.memcpy.p0.p0.i64(ptr %d, ptr %s, i64 %count, i1 false)
  br label %next
""" + _EPILOGUE


def _turn(item: int, vector_bytes: int) -> str:
    """Element (i, j) from s + i src_step + j item to d + j dst_step + i item, for i < count and a strip of j < along."""
    from rushlight.backends.cpu.emit import transpose

    lanes = vector_bytes // item
    scalar, vector = f"i{8 * item}", f"<{lanes} x i{8 * item}>"
    body, names = [], []
    for i in range(lanes):
        body.append(f"  %lo{i} = mul i64 %src_step, {i}\n  %lp{i} = getelementptr i8, ptr %from, i64 %lo{i}\n"
                    f"  %v{i} = load {vector}, ptr %lp{i}, align {item}")
        names.append(f"v{i}")
    lines, names = transpose(names, vector)
    body += lines
    for j, x in enumerate(names):
        body.append(f"  %to{j} = mul i64 %dst_step, {j}\n  %tp{j} = getelementptr i8, ptr %into, i64 %to{j}\n"
                    f"  store {vector} %{x}, ptr %tp{j}, align {item}")
    return _prologue(f"rl_copy_turn{item}") + f"""
  %j0 = mul i64 %strip, {_STRIP}
  %jx = add i64 %j0, {_STRIP}
  %jover = icmp sgt i64 %jx, %along
  %j1 = select i1 %jover, i64 %along, i64 %jx
  %jn = sub i64 %j1, %j0
  %jq = udiv i64 %jn, {lanes}
  %jm = mul i64 %jq, {lanes}
  %jsquare = add i64 %j0, %jm
  %iq = udiv i64 %count, {lanes}
  %isquare = mul i64 %iq, {lanes}
  %anyi = icmp ne i64 %isquare, 0
  %anyj = icmp ne i64 %jm, 0
  %any = and i1 %anyi, %anyj
  br i1 %any, label %irow, label %edges
irow:
  %i = phi i64 [0, %task], [%inext, %irowend]
  %io = mul i64 %i, %src_step
  %is = getelementptr i8, ptr %s, i64 %io
  %ido = mul i64 %i, {item}
  %id = getelementptr i8, ptr %d, i64 %ido
  br label %square
square:
  %j = phi i64 [%j0, %irow], [%jnext, %square]
  %jso = mul i64 %j, {item}
  %from = getelementptr i8, ptr %is, i64 %jso
  %jdo = mul i64 %j, %dst_step
  %into = getelementptr i8, ptr %id, i64 %jdo
{chr(10).join(body)}
  %jnext = add i64 %j, {lanes}
  %jmore = icmp slt i64 %jnext, %jsquare
  br i1 %jmore, label %square, label %irowend
irowend:
  %inext = add i64 %i, {lanes}
  %imore = icmp slt i64 %inext, %isquare
  br i1 %imore, label %irow, label %edges
edges:                                                ; what is left of each row of the destination
  br label %erow
erow:
  %ej = phi i64 [%j0, %edges], [%ejnext, %erowend]
  %inside = icmp slt i64 %ej, %jsquare
  %first = select i1 %inside, i64 %isquare, i64 0
  %ejso = mul i64 %ej, {item}
  %es = getelementptr i8, ptr %s, i64 %ejso
  %ejdo = mul i64 %ej, %dst_step
  %ed = getelementptr i8, ptr %d, i64 %ejdo
  br label %etest
etest:
  %ei = phi i64 [%first, %erow], [%einext, %eitem]
  %eok = icmp slt i64 %ei, %count
  br i1 %eok, label %eitem, label %erowend
eitem:
  %eio = mul i64 %ei, %src_step
  %ep = getelementptr i8, ptr %es, i64 %eio
  %ev = load {scalar}, ptr %ep, align {item}
  %eto = mul i64 %ei, {item}
  %eq = getelementptr i8, ptr %ed, i64 %eto
  store {scalar} %ev, ptr %eq, align {item}
  %einext = add i64 %ei, 1
  br label %etest
erowend:
  %ejnext = add i64 %ej, 1
  %ejmore = icmp slt i64 %ejnext, %j1
  br i1 %ejmore, label %erow, label %next
""" + _EPILOGUE
