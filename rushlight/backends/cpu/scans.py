"""Running sums, products, extremes and logarithms of sums of exponentials along a dimension.

float32 is accumulated in float64 and every element rounded once, from a start of 0 (1 for products): the kernels and the ways
through NumPy give the same bits, which are PyTorch's. `native` functions return None where there is no kernel.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu import indexed, native
from rushlight.backends.cpu.allocator import empty

__all__ = ["accumulate", "extremes", "logsum"]

_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_TYPES = {"f4": "float", "f8": "double", "b1": "i8", "u1": "i8", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64"}
_PIECES = 64


@cache
def _library(kind: str, element: str, acc: str, columns: bool) -> Any:
    from rushlight.backends.cpu import scan_ir
    return native.build("scan", scan_ir.scan_source, kind, element, acc, columns, native.vector_bytes())


def _plan(kind: str, a: np.ndarray, d: int, single: bool) -> Any:
    from rushlight.backends.cpu.scan_ir import CHUNK
    if not a.size or not a.dtype.isnative:
        return False
    element = _TYPES.get(f"{a.dtype.kind}{a.itemsize}")
    if element is None or kind in ("add", "mul", "logsum") and element not in ("float", "double", "i64"):
        return False
    acc = "double" if element == "float" and kind in ("add", "mul", "logsum") and not single else element
    if kind in ("max", "min") and a.dtype.kind in "bu":
        kind = "u" + kind
    n = a.shape[d]
    outer, inner = math.prod(a.shape[:d]), math.prod(a.shape[d + 1:])
    if inner > 1:
        piece, tasks = CHUNK, outer * -(-inner // CHUNK)
    else:
        piece = -(-outer // (4 * _PIECES)) * 4            # whole groups of four rows
        tasks = -(-outer // piece)
    return indexed.Plan(_library(kind, element, acc, inner > 1), [outer, n, inner, piece, tasks], tasks,
                        a.size >= (1 << 11 if kind == "logsum" else indexed.LARGE), a.shape)


def _native(kind: str, a: np.ndarray, d: int, single: bool = False) -> Any:
    key = (kind, a.shape, d, a.dtype.num, single)
    plan = indexed._plans.get(key)
    if plan is None:
        if not indexed.worth((kind, a.dtype.num, d == a.ndim - 1), a.size):
            return None
        plan = indexed.remember(key, _plan(kind, a, d, single))
    if plan is False:
        return None
    if not a.flags.c_contiguous or not a.flags.aligned:
        a = np.array(a, order="C")
    out = empty(a.shape, a.dtype)
    at = native.address
    if kind == "max" or kind == "min":
        where = empty(a.shape, _I64)
        plan(at(a), at(out), at(where))
        return out, where
    plan(at(a), at(out), 0)
    return out


def again(ufunc: np.ufunc, a: np.ndarray, dim: int) -> np.ndarray | None:
    """`accumulate` by the plan of an earlier call, if there was one for this shape, dtype and dimension."""
    plan = indexed._plans.get((ufunc, a.shape, dim, a.dtype.num))
    if not plan or not a.flags.c_contiguous or not a.flags.aligned:
        return None
    out = empty(plan.shape, a.dtype)
    plan(native.address(a), native.address(out), 0)
    return out


def accumulate(ufunc: np.ufunc, a: np.ndarray, d: int, single: bool = False) -> np.ndarray:
    """ufunc.accumulate (add or multiply) along `d`; with `single` float32 is accumulated in float32. C-contiguous."""
    kind = "add" if ufunc is np.add else "mul"
    r = _native(kind, a, d, single)
    if r is not None:
        if not single:
            plan = indexed._plans.get((kind, a.shape, d, a.dtype.num, False))
            for dim in (d, d - a.ndim):
                indexed.remember((ufunc, a.shape, dim, a.dtype.num), plan)
        return r
    x = a.astype(_F64) if a.dtype == _F32 and not single else a
    r = ufunc.accumulate(x, axis=d, dtype=x.dtype)
    if ufunc is np.add and x.dtype.kind == "f":
        r += x.dtype.type(0)                                   # -0 + 0, where the sum starts
    return np.ascontiguousarray(r, a.dtype)


def extremes(ufunc: np.ufunc, a: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """(running maxima or minima along `d`, where the last element that is as large or as small was). nan wins, the last one."""
    r = _native("max" if ufunc is np.maximum else "min", a, d)
    if r is not None:
        return r
    v = ufunc.accumulate(a, d)
    at = np.arange(a.shape[d]).reshape([-1 if j == d else 1 for j in range(a.ndim)])
    hit = a == v
    if a.dtype.kind not in "biu":
        hit |= a != a
    where = np.ascontiguousarray(np.maximum.accumulate(np.where(hit, at, 0), d))
    return np.ascontiguousarray(np.take_along_axis(a, where, d)) if a.size else v, where


def logsum(a: np.ndarray, d: int) -> np.ndarray:
    """log of the running sums of exp along `d`, of real numbers."""
    r = _native("logsum", a, d)
    if r is not None:
        return r
    return np.ascontiguousarray(np.logaddexp.accumulate(a.astype(_F64) if a.dtype == _F32 else a, d), a.dtype)
