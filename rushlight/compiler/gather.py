"""Rows of a table by index: the lookup of an embedding and the sum of its gradient.

`scatter_add_rows` cuts the table, not the indices, among the pool's threads: every row is summed by one thread in the
order of the indices, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import numpy as np

from rushlight.backends.cpu import threads
from rushlight.compiler import jit, scalar
from rushlight.compiler.builder import Lanes
from rushlight.compiler.kernels import native_dtype
from rushlight.compiler.llvm import Module
from rushlight.compiler.nest import loop, tail_mask

__all__ = ["check_index", "scatter_add_rows", "take_rows"]

_PIECES = 32                    # parts of a table; fixed, so that the grid depends on sizes only


def check_index(index: np.ndarray, rows: int) -> None:
    """IndexError when an index is outside [0, rows)."""
    if index.size and (int(index.min()) < 0 or int(index.max()) >= rows):
        bad = index[(index < 0) | (index >= rows)].flat[0]
        raise IndexError(f"index out of range in self: index {bad} with {rows} rows")


def take_rows(table: np.ndarray, index: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """table[index] for a 2-d table and integers of any shape: the shape is index.shape + (width,)."""
    check_index(index, table.shape[0])
    return np.take(table, index, axis=0, out=out, mode="clip")      # checked above; "clip" copies straight into out


@cache
def _library(dtype: str) -> jit.Library:
    """void k(words, begin, end): words are table, index, source, count, width, rows of a piece; [begin, end) are
    pieces."""
    m = Module("scatter_add_rows")
    w = m.writer()
    word = [w.effect_value(f"load {t}, ptr {w.op(f'getelementptr i64, ptr %words, i64 {k}')}, align 8")
            for k, t in enumerate(("ptr", "ptr", "ptr", "i64", "i64", "i64"))]
    table, index, source, count, width, piece = word
    first, last = w.op(f"mul nsw i64 %begin, {piece}"), w.op(f"mul nsw i64 %end, {piece}")
    lanes = max(2, m.vector_bytes // max(4, scalar.ITEMSIZE[dtype]))
    reg = scalar.register_dtype(dtype)
    L = Lanes(w, scalar.element(reg), lanes)
    mem = scalar.MEMORY[dtype]

    def each(i: str, _: list[str]) -> list[str]:
        r = w.effect_value(f"load i64, ptr {w.op(f'getelementptr i64, ptr {index}, i64 {i}')}, align 8")
        mine = w.op(f"and i1 {w.op(f'icmp sge i64 {r}, {first}')}, {w.op(f'icmp slt i64 {r}, {last}')}")
        yes, after = w.label("mine"), w.label("next")
        w.branch_if(mine, yes, after)
        w.start(yes)
        to = w.op(f"getelementptr {mem}, ptr {table}, i64 {w.op(f'mul nsw i64 {r}, {width}')}")
        of = w.op(f"getelementptr {mem}, ptr {source}, i64 {w.op(f'mul nsw i64 {i}, {width}')}")

        def add(c: str, mask: str | None) -> None:
            p, q = (w.op(f"getelementptr {mem}, ptr {b}, i64 {c}") for b in (to, of))
            a, b = (scalar.load(w, x, dtype, lanes, mask) for x in (p, q))
            scalar.store(w, scalar.Value(L.add(a.text, b.text), reg), p, dtype, lanes, mask)

        def main(c: str, _: list[str]) -> list[str]:
            add(c, None)
            return []

        def rest(c: str, _: list[str]) -> list[str]:
            add(c, tail_mask(w, c, width, lanes))
            return []
        at, _ = loop(w, "0", width, lanes, [], main, whole=True)
        loop(w, at, width, lanes, [], rest)
        w.branch(after)
        w.start(after)
        return []
    loop(w, "0", count, 1, [], each)
    w.do("ret void")
    m.functions["kernel"] = ("define void @kernel(ptr %words, i64 %begin, i64 %end) #0 {\nentry:\n"
                             + "\n".join(w.lines) + "\n}")
    return jit.compile_ir(m.text(), light=True)


def scatter_add_rows(table: np.ndarray, index: np.ndarray, source: np.ndarray) -> np.ndarray:
    """table[index[i]] += source[i] for every i, in order; `table` (rows, width) is changed and returned.

    `index`: int64 of any shape, `source`: index.shape + (width,), of the table's dtype. IndexError for an index outside
    the table.
    """
    dtype = native_dtype(table)
    if dtype is None or dtype == "bool" or source.dtype != table.dtype:
        raise TypeError(f"scatter_add_rows(): no native form for a table of {table.dtype} and a source of "
                        f"{source.dtype}")
    if not table.flags.c_contiguous or not table.flags.writeable:
        raise ValueError("scatter_add_rows(): the table must be contiguous and writable")
    rows, width = table.shape
    if source.shape != (*index.shape, width):
        raise ValueError(f"scatter_add_rows(): source must have shape {(*index.shape, width)}, got {source.shape}")
    check_index(index, rows)
    if not index.size or not width:
        return table
    index, source = np.ascontiguousarray(index, np.int64), np.ascontiguousarray(source)
    library = _library(dtype)
    pieces = min(_PIECES, rows)
    words = struct.pack("=3Q3q", *[a.__array_interface__["data"][0] for a in (table, index, source)],
                        index.size, width, -(-rows // pieces))
    keep = ctypes.create_string_buffer(words, len(words))
    large = source.size > 1 << 17
    threads.parallel_call(library.address("kernel"), ctypes.addressof(keep), pieces, 1 if large else pieces)
    return table
