"""Shape, strides and offset: what a view operator computes with, and all that it computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.meta import MetaArray

__all__ = ["Geometry", "restride", "row_major"]


class Geometry:
    """Sizes and strides (in elements) and the offset (in elements, from the start of the storage)."""

    __slots__ = ("shape", "stride", "offset")

    def __init__(self, shape: Any, stride: Any, offset: int = 0) -> None:
        self.shape, self.stride, self.offset = tuple(shape), tuple(stride), offset

    @classmethod
    def of(cls, a: Any) -> Geometry:
        """The geometry of an array; the offset of a CPU array is found when a view of it is made (0 here means its first element)."""
        n = a.dtype.itemsize
        return cls(a.shape, [s // n for s in a.strides], 0)

    @classmethod
    def relative(cls, view: Any, base: Any) -> Geometry:
        """The geometry of `view`, with the offset counted from the first element of `base`."""
        n = view.dtype.itemsize
        d = 0
        if view.__class__ is np.ndarray:
            d = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // n
        else:
            d = (view.offset - base.offset) // n
        return cls(view.shape, [s // n for s in view.strides], d)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self, d: int, extra: int = 0) -> int:
        """A dimension as a nonnegative number. IndexError out of range."""
        n = max(self.ndim + extra, 1)
        if not isinstance(d, (int, np.integer)) or isinstance(d, bool):
            raise TypeError(f"a dimension must be int, not {type(d).__name__}")
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        return int(d) % n

    def permute(self, order: Any) -> Geometry:
        return Geometry([self.shape[i] for i in order], [self.stride[i] for i in order], self.offset)

    def swap(self, d0: int, d1: int) -> Geometry:
        order = list(range(self.ndim))
        if order:
            i, j = self.dim(d0), self.dim(d1)
            order[i], order[j] = order[j], order[i]
        else:
            self.dim(d0), self.dim(d1)
        return self.permute(order)

    def without(self, dims: Any) -> Geometry:
        keep = [i for i in range(self.ndim) if i not in dims]
        return self.permute(keep)

    def narrow(self, d: int, start: int, length: int, step: int = 1) -> Geometry:
        shape, stride = list(self.shape), list(self.stride)
        off = self.offset + start * stride[d]
        shape[d], stride[d] = length, stride[d] * step
        return Geometry(shape, stride, off)

    def select(self, d: int, i: int) -> Geometry:
        return self.narrow(d, i, 1).without((d,))

    def insert(self, d: int, size: int = 1, stride: int | None = None) -> Geometry:
        if stride is None:
            stride = self.shape[d] * self.stride[d] if d < self.ndim else 1
        return Geometry([*self.shape[:d], size, *self.shape[d:]], [*self.stride[:d], stride, *self.stride[d:]], self.offset)

    def reshape(self, shape: tuple[int, ...]) -> Geometry | None:
        """The view with other sizes of the same elements in the same order; None if no strides give it."""
        if self.numel == 0:
            st, step = [], 1
            for n in reversed(shape):
                st.append(step)
                step *= max(n, 1)
            return Geometry(shape, reversed(st), self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.stride, strict=True) if n != 1]
        out: list[int] = []
        i = len(old) - 1
        # runs of old dimensions that lie on one line, from the last
        chunk, base = 1, 1
        have = 1
        k = len(shape) - 1
        out = [0] * len(shape)
        if not old:
            step = 1
            for j in range(len(shape) - 1, -1, -1):
                out[j] = step
            return Geometry(shape, out, self.offset)
        while i >= 0:
            base = old[i][1]
            chunk = old[i][0]
            while i > 0 and old[i - 1][1] == old[i][1] * old[i][0]:
                i -= 1
                chunk *= old[i][0]
            have = 1
            while k >= 0 and (have < chunk or shape[k] == 1):
                out[k] = base * have
                have *= shape[k]
                k -= 1
            if have != chunk:
                return None
            i -= 1
        while k >= 0:
            out[k] = out[k + 1] * shape[k + 1] if k + 1 < len(shape) else 1
            k -= 1
        return Geometry(shape, out, self.offset)

    @property
    def numel(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n


def restride(a: Any, g: Geometry) -> Any:
    """The view of an array with geometry `g`, whose offset counts from the first element of `a`. Never outside the memory of `a`'s
    storage: RuntimeError."""
    n = a.dtype.itemsize
    if a.__class__ is np.ndarray and a.flags.c_contiguous and g.offset >= 0:
        try:  # NumPy checks the bounds; what lies outside of `a` may still be inside its storage
            return np.ndarray(g.shape, a.dtype, a, g.offset * n, tuple([s * n for s in g.stride]))
        except (ValueError, TypeError):
            pass
    if a.__class__ is MetaArray:
        return MetaArray(g.shape, a.dtype, tuple(s * n for s in g.stride), a.offset + g.offset * n)
    if g.numel == 0:
        r = np.ndarray(g.shape, a.dtype, strides=tuple(s * n for s in g.stride)) if a.size == 0 or a.base is None and a.nbytes == 0 else None
        if r is None:
            from ..core.storage import from_storage, storage_of
            return from_storage(storage_of(a), a.dtype, 0, g.shape, g.stride)
        return r
    from ..core.storage import from_storage, storage_of
    st = storage_of(a)
    start = (a.__array_interface__["data"][0] - st.data_ptr()) // n + g.offset
    return from_storage(st, a.dtype, start, g.shape, g.stride)


def row_major(a: np.ndarray) -> np.ndarray:
    """The array with its elements in row-major order, as PyTorch has the results of all but pointwise operators: NumPy keeps the order of
    transposed operands."""
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)
