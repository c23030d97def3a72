"""The meta backend: arrays that have shape, strides and dtype and no memory."""

from __future__ import annotations

import numpy as np

__all__ = ["MetaArray", "contiguous_strides"]


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a C-contiguous array, PyTorch's rule for sizes 0 (they count as 1)."""
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


class MetaArray:
    """Shape, byte strides, byte offset and dtype of an array that is not there."""

    __slots__ = ("shape", "strides", "dtype", "offset", "__weakref__")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None, offset: int = 0) -> None:
        self.shape, self.dtype, self.offset = tuple(shape), dtype, offset
        self.strides = contiguous_strides(self.shape, dtype.itemsize) if strides is None else strides

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def astype(self, dtype: np.dtype, copy: bool = True) -> MetaArray:
        return MetaArray(self.shape, dtype)
