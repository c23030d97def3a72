"""Sorting and selecting along a dimension with generated kernels; equal elements keep their order, nan is the greatest.

Every function gives (values, indices), or None where there is no kernel: for dtypes without one, for rows that 32-bit
counts cannot number, without llvmlite, and for few elements before the kernel is loaded. The results are those of
NumPy's stable argsort, bit for bit, for any number of threads.
"""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np

from rushlight.backends.cpu import native

__all__ = ["FEW", "first", "mode", "pick", "sort"]

FEW = 32                        # up to so many, the first of a row are found without sorting it
_SMALL = 512                    # elements for which no kernel is loaded
_PIECES = 64                    # tasks of a call; fixed, so that the grid depends on sizes only
_BLOCK, _SHORT = 4, 64          # order_kernels.BLOCK and SHORT, which are not loaded before they are wanted
_ALONE = 1 << 13                # elements that one thread orders faster than two
_NAMES: dict[np.dtype, str | None] = {np.dtype(bool): "uint8"}
_CODE: dict[tuple[str, np.dtype], tuple[int, Any] | None] = {}       # address, and the function for calls without the pool
_words = struct.Struct("=3Q3qQ7q").pack
_KINDS = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
          "uint64")
_BYTE, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_EVERY = -1                     # all bits of a word


def _code(kind: str, dtype: np.dtype, size: int) -> tuple[int, Any] | None:
    """The kernel's address and function, or None where there is none."""
    code = _CODE.get((kind, dtype))
    if code is None:
        if dtype not in _NAMES:
            _NAMES[dtype] = dtype.name if dtype.name in _KINDS and dtype.isnative else None
        name = _NAMES[dtype]
        if name is None or not native.available():
            code = None
        elif size < _SMALL:
            return None
        else:
            from rushlight.backends.cpu import order_kernels
            library = order_kernels.library(kind, name)
            code = library.address(kind), library.function(kind, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        _CODE[kind, dtype] = code
    return code


def _run(kind: str, a: np.ndarray, dim: int, keep: int, scratch: int, flip: int, nan: int, place: int = 0,
         rule: int = 0, keepdim: bool = True, places: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray] | None:
    """Call a kernel; `scratch` is how many entries a task has room for, twice (if more than _SHORT). Without `keepdim`, `keep` is 1. With
    `places` these are the scratch memory of all tasks."""
    dtype, shape, size = a.dtype, a.shape, a.size
    behind = shape[dim + 1:]
    inner = math.prod(behind) if behind else 1
    if (kind == "top" and keep == 1 and inner > 1 and size >= _SMALL and native.available()
            and inner * dtype.itemsize >= _BLOCK * native.vector_bytes()):
        kind = "best"
    code = _CODE.get((kind, dtype)) or _code(kind, dtype, size)
    if not code:
        return None
    n = shape[dim]
    if n >= 1 << 31:
        return None
    if not a.flags.c_contiguous:
        a = np.ascontiguousarray(a)
    to = (*shape[:dim], keep, *behind) if keepdim else shape[:dim] + behind
    empty = np.empty if size <= _ALONE else native.empty
    values, indices = empty(to, dtype), empty(to, _INT64)
    if not size or not keep:
        return values, indices
    rows = size // n
    pieces = min(rows, _PIECES) if size > _ALONE else 1
    address = native.address
    half = room = 0
    if scratch > _SHORT:
        half = scratch * (16 if dtype.itemsize == 8 else 8)
        places = empty((2 * pieces * half,), _BYTE)
    if places is not None:
        room = address(places)
    tasks, grain = pieces, 1
    if kind == "best":
        width = _BLOCK * native.lanes(dtype.itemsize)
        pieces = -(-inner // width)
        tasks, grain = rows // inner * pieces, max(1, _ALONE // (n * width))
    table = _words(address(a), address(values), address(indices), n, keep, inner, room, half, rows, pieces, flip, nan,
                   place, rule)
    if tasks <= grain:
        code[1](table, 0, tasks)
    else:
        words = ctypes.create_string_buffer(table, len(table))
        native.parallel_call(code[0], ctypes.addressof(words), tasks, grain)
    return values, indices


def sort(a: np.ndarray, dim: int, descending: bool, keep: int | None = None) -> tuple[np.ndarray, np.ndarray] | None:
    """The elements along `dim` in order, or the first `keep` of them."""
    n = a.shape[dim]
    return _run("sort", a, dim, n if keep is None else keep, n, _EVERY if descending else 0, _EVERY)


def first(a: np.ndarray, dim: int, largest: bool, k: int, least_nan: bool = False,
          keepdim: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
    """The `k` largest (smallest) along `dim`, best first. With `least_nan`, nan is the smallest. Without `keepdim` one,
    and no `dim` any more."""
    flip, nan = _EVERY if largest else 0, 0 if least_nan else _EVERY
    if k <= FEW and (k == 1 or k * 4 <= a.shape[dim]):
        return _run("top", a, dim, k, 0, flip, nan, 0, 0, keepdim)
    return _run("sort", a, dim, k, a.shape[dim], flip, nan)


def pick(a: np.ndarray, dim: int, place: int, rule: int = 0,
         keepdim: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
    """The element at `place` in the order along `dim`, whose size becomes 1 or which goes. With `rule` 1 the median, the lower of two,
    of the nans the first if there is one; with 2 the median of what is not nan."""
    return _run("pick", a, dim, 1, a.shape[dim], 0, _EVERY, place, rule, keepdim)


def mode(a: np.ndarray, dim: int, keepdim: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
    """The most frequent element along `dim`, the smallest of several, at its last place."""
    if a.size < _SMALL and ("mode", a.dtype) not in _CODE:
        return None
    made = sort(a, dim, False)
    return made and _run("mode", made[0], dim, 1, 0, 0, _EVERY, 0, 0, keepdim, made[1])
