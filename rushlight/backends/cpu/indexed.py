"""Elements of an array by the indices in another: gather, scatter, index_select and what is like them.

All are one loop over a box of up to four dimensions with the strides of three operands: the table (0 along the indexed
dimension), the index and the other operand. The box is cut into tasks on a grid that depends on shapes only; where the table is
written, along a dimension that is not the indexed one, so that tasks never meet and elements with the same place are
combined in the order of the index.

A function returns None where there is no kernel: the caller has a way through NumPy. It returns False, and nothing was
written, if an index is out of range.
"""

from __future__ import annotations

import ctypes
from functools import cache
from struct import pack
from typing import Any

import numpy as np

from rushlight.backends.cpu import native
from rushlight.backends.cpu.allocator import empty

__all__ = ["WORTH", "gather", "select", "scatter", "write_slices"]

WORTH = 1 << 16          # elements that go through NumPy before a kernel is made; a call counts as 512 at least
LARGE = 1 << 15          # elements from which the pool works
_PIECES = 64             # tasks at most; fixed, so that the grid depends on sizes only
_LINE = 64               # elements of a task at least, along the last dimension: rows that are worth beginning

_ROW = 32                # elements of a slice from which every task may look at the whole index
_SHARES = 16             # tasks then

_SHORT = 512             # bytes of a row up to which there is code for that size

_I64, _I32 = np.dtype(np.int64), np.dtype(np.int32)
_COMBINED = {"f4": "float", "f8": "double", "i1": "i8", "u1": "i8", "i2": "i16", "i4": "i32", "i8": "i64"}
_np_empty = np.empty
_work: dict[Any, int] = {}
_plans: dict[Any, Any] = {}


@cache
def _entries(library: Any) -> tuple[Any, int, int]:
    """(`one` as a function, the addresses of `run` and `bounds`, 0 where there is none)."""
    word = ctypes.c_size_t
    return (library.function("one", word, word, word, word, word, gil=True), library.address("run"),
            library.address("bounds") if "bounds" in library.symbols else 0)


class Plan:
    """The fixed words of a loop, and the code that runs it."""

    __slots__ = ("one", "run", "bounds", "address", "keep", "tasks", "large", "shape")

    def __init__(self, library: Any, words: list[int], tasks: int, large: bool, shape: tuple[int, ...]) -> None:
        self.keep = ctypes.create_string_buffer(pack(f"={len(words)}q", *words), 8 * len(words))
        self.address = ctypes.addressof(self.keep)
        self.one, self.run, self.bounds = _entries(library)
        self.tasks, self.large, self.shape = tasks, large, shape

    def __call__(self, a: int, b: int, c: int) -> int:
        """0, or 1 if an index is out of range."""
        if not self.large:
            return self.one(self.address, a, b, c)
        table = (ctypes.c_uint64 * 5)(self.address, a, b, c, 0)
        at = ctypes.addressof(table)
        if self.bounds:
            native.parallel_call(self.bounds, at, self.tasks, 1)
            if table[4]:
                return 1
        native.parallel_call(self.run, at, self.tasks, 1)
        return table[4]


@cache
def _library(kind: str, element: str, index: str, unit: bool, walk: str) -> Any:
    from rushlight.backends.cpu import indexed_ir
    return native.build("indexed", indexed_ir.indexed_source, kind, element, index, unit, walk, native.vector_bytes())


def worth(key: Any, size: int) -> bool:
    """Whether so much was done under `key` that its kernel is worth making."""
    n = _work.get(key, 0) + max(size, 512)
    _work[key] = n
    return n > WORTH and native.available()


def remember(key: Any, plan: Any) -> Any:
    """The plan (or False: there is none), kept under its key."""
    if len(_plans) >= 4096:
        _plans.clear()
    _plans[key] = plan
    return plan


def _merged(box: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """The box without dimensions of one, and with those in one that all operands walk as one."""
    out: list[tuple[int, int, int, int]] = []
    for d in box:
        if d[0] == 1:
            continue
        if out and all(x == y * d[0] for x, y in zip(out[-1][1:], d[1:], strict=True)):
            out[-1] = (out[-1][0] * d[0], *d[1:])
        else:
            out.append(d)
    return out


def _apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether all elements are different places in memory (a sufficient condition)."""
    reach = itemsize
    for s, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if s < reach:
            return False
        reach = s * (n - 1) + reach
    return True


def _plan(kind: str, element: str, index: str, box: Any, size: int, step: int, count: int,
          shape: tuple[int, ...], itemsizes: tuple[int, int], apart: bool = True) -> Any:
    """`box`: (size, strides of table, index and other operand in bytes); `step`: the table's stride along the indexed dimension."""
    each, width = itemsizes
    if any(d[1] % each or d[2] % width or d[3] % each for d in box) or step % each:
        return False
    box = _merged([(n, a // each, i // width, b // each) for n, a, i, b in box])
    if len(box) > 4:
        return False
    total = 1
    for d in box:
        total *= d[0]
    cut, pieces = -1, 1
    for k, d in enumerate(box):       # the largest dimension, of those whose elements the table has in different places if it is written
        most = d[0] // _LINE if k == len(box) - 1 else d[0]
        if kind != "take" and (d[1] == 0 or not apart):
            continue
        if min(most, _PIECES) > pieces:
            cut, pieces = k, min(most, _PIECES)
    k = 4 - len(box)
    if kind != "take" and apart and box and box[-1][2] == 0 and box[-1][0] >= _ROW and cut in (-1, len(box) - 1):
        pieces = min(size, _SHARES)           # whole slices stay together
        cut, extent = 4, size
    else:
        cut = 3 if cut < 0 else cut + k
        extent = box[cut - k][0] if cut >= k else 1
    box = [(1, 0, 0, 0)] * k + box
    piece = -(-extent // pieces)
    tasks = -(-extent // piece)
    unit = box[3][2] == 1 and box[3][3] == 1
    walk = "any" if not unit else "along" if step == each and box[3][1] == 0 else "across" if box[3][1] == 1 else "any"
    if kind in ("take", "put") and cut != 3 and box[3][1:] == (1, 0, 1) and box[3][0] * each <= _SHORT:
        walk = f"row{box[3][0] * each}"
    words = [d[j] for j in range(4) for d in box] + [cut, piece, size, step // each, tasks, count]
    return Plan(_library(kind, element, index, unit, walk), words, tasks, total >= LARGE, shape)


def _fits(a: np.ndarray, index: np.ndarray) -> bool:
    return (index.dtype.kind == "i" and index.itemsize in (4, 8) and index.dtype.isnative and index.flags.aligned
            and a.itemsize in (1, 2, 4, 8, 16) and a.dtype.isnative and not a.dtype.hasobject and a.flags.aligned)


def gather(a: np.ndarray, index: np.ndarray, dim: int, check: Any) -> Any:
    """out[..., j, ...] = a[..., index[..., j, ...], ...] along `dim`, of the shape of the index, C-contiguous.

    `check(a, dim, index)` raises for what does not go together (not for the values of the index); its word is asked until there is a
    plan for these shapes."""
    key = (a.shape, a.strides, index.shape, index.strides, dim, a.itemsize, index.dtype.num)
    plan: Any = _plans.get(key)
    if not plan:
        check(a, dim, index)
        if plan is False or not worth(("take", a.itemsize, index.itemsize), index.size):
            return None
        plan = False
        if index.size and a.ndim == index.ndim and a.ndim and _fits(a, index):
            d = dim % a.ndim
            strides = [*a.strides]
            strides[d] = 0
            box = list(zip(index.shape, strides, index.strides, _dense(index.shape, a.itemsize), strict=True))
            plan = _plan("take", f"i{8 * a.itemsize}", f"i{8 * index.itemsize}", box, a.shape[d], a.strides[d], index.size,
                         index.shape, (a.itemsize, index.itemsize))
        remember(key, plan)
    if plan is False:
        return None
    at = native.address
    if plan.large:
        out = empty(plan.shape, a.dtype)
        return False if plan(at(a), at(index), at(out)) else out
    out = _np_empty(plan.shape, a.dtype)
    return False if plan.one(plan.address, at(a), at(index), at(out)) else out


def select(a: np.ndarray, index: np.ndarray, dim: int, check: Any) -> Any:
    """a.take(index, dim), C-contiguous: the index may have any shape (0-dim as if it had one element). `check` as in `gather`."""
    key = (a.shape, a.strides, index.shape, index.strides, dim, a.itemsize, index.dtype.num, 0)
    plan: Any = _plans.get(key)
    if not plan:
        check(a, dim, index)
        if plan is False or not a.ndim or not worth(("take", a.itemsize, index.itemsize), index.size * (a.size // max(a.shape[dim], 1))):
            return None
        plan = False
        if index.size and a.size and _fits(a, index):
            d = dim % a.ndim
            index = index if index.ndim else index.reshape(1)
            shape = a.shape[:d] + index.shape + a.shape[d + 1:]
            k = index.ndim
            strides = a.strides[:d] + (0,) * k + a.strides[d + 1:]
            walk = (0,) * d + index.strides + (0,) * (a.ndim - d - 1)
            box = list(zip(shape, strides, walk, _dense(shape, a.itemsize), strict=True))
            plan = _plan("take", f"i{8 * a.itemsize}", f"i{8 * index.itemsize}", box, a.shape[d], a.strides[d], index.size, shape,
                         (a.itemsize, index.itemsize))
        remember(key, plan)
    if plan is False:
        return None
    at = native.address
    if plan.large:
        out = empty(plan.shape, a.dtype)
        return False if plan(at(a), at(index), at(out)) else out
    out = _np_empty(plan.shape, a.dtype)
    return False if plan.one(plan.address, at(a), at(index), at(out)) else out


def _dense(shape: tuple[int, ...], itemsize: int) -> list[int]:
    out, step = [0] * len(shape), itemsize
    for k in range(len(shape) - 1, -1, -1):
        out[k] = step
        step *= shape[k]
    return out


def scatter(kind: str, a: np.ndarray, index: np.ndarray, d: int, b: np.ndarray) -> bool | None:
    """a[..., index[..., j, ...], ...] = b[..., j, ...] ("put"), or combined with it ("add", "mul", "max", "min"). `b` is an array of a's
    dtype that is at least as large as the index, or has one element."""
    strides = b.strides if b.ndim == index.ndim and (b.size != 1 or index.size == 1) else (0,) * index.ndim
    return _write(kind, a, index, d, b, strides, False)


def write_slices(kind: str, a: np.ndarray, index: np.ndarray, d: int, b: np.ndarray) -> bool | None:
    """The slices of `b` along `d` written to, or combined with, the slices of `a` that the vector `index` names."""
    return _write(kind, a, index, d, b, b.strides if b.ndim == a.ndim else (0,) * a.ndim, True)


def _write(kind: str, a: np.ndarray, index: np.ndarray, d: int, b: np.ndarray, strides: tuple[int, ...], slices: bool) -> bool | None:
    dtype = a.dtype
    if b.dtype != dtype or not a.flags.writeable:
        return None
    key = (kind, slices, a.shape, a.strides, index.shape, index.strides, d, strides, dtype.num, index.itemsize)
    plan: Any = _plans.get(key)
    if plan is None:
        count = index.size * (a.size // max(a.shape[d], 1)) if slices else index.size
        if not worth((kind, dtype.num, index.itemsize), count):
            return None
        plan = remember(key, _write_plan(kind, a, index, d, strides, slices))
    if plan is False:
        return None
    if not index.flags.c_contiguous:        # its elements were not looked at
        if index.min() < 0 or index.max() >= a.shape[d]:
            return False
    if (a is b or a.base is not None or b.base is not None or index.base is not None) and (
            np.may_share_memory(a, b) or np.may_share_memory(a, index)):
        return None
    at = native.address
    return not plan(at(a), at(index), at(b))


def _write_plan(kind: str, a: np.ndarray, index: np.ndarray, d: int, strides: tuple[int, ...], slices: bool) -> Any:
    if not index.size or not a.size or not _fits(a, index) or not a.flags.writeable:
        return False
    if kind == "put":
        element = f"i{8 * a.itemsize}"
    else:
        code = f"{a.dtype.kind}{a.itemsize}"
        if code not in _COMBINED:
            return False
        element = _COMBINED[code]
        if a.dtype.kind == "u" and kind in ("max", "min"):
            kind = "u" + kind
    steps = list(a.strides)
    steps[d] = 0
    if slices:
        shape = a.shape[:d] + (index.size,) + a.shape[d + 1:]
        walk = (0,) * d + index.strides + (0,) * (a.ndim - d - 1)
    else:
        shape, walk = index.shape, index.strides
    box = list(zip(shape, steps, walk, strides, strict=True))
    count = index.size if index.flags.c_contiguous else 0
    return _plan(kind, element, f"i{8 * index.itemsize}", box, a.shape[d], a.strides[d], count, (), (a.itemsize, index.itemsize),
                 _apart(a.shape, a.strides, a.itemsize))
