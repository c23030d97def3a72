"""Layouts and memory formats: names for how a tensor's elements lie in memory."""

from __future__ import annotations

__all__ = ["layout", "memory_format", "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "contiguous_format",
           "preserve_format", "channels_last", "channels_last_3d", "strides_for"]


class _Name:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "torch." + self.name

    def __reduce__(self):
        return _named, (self.name,)


class layout(_Name):
    """`torch.strided`, `torch.sparse_coo`, ..."""


class memory_format(_Name):
    """`torch.contiguous_format`, `torch.channels_last`, ..."""


strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc = map(
    layout, ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"))
contiguous_format, preserve_format, channels_last, channels_last_3d = map(
    memory_format, ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"))


def _named(name: str) -> _Name:
    return globals()[name]


def strides_for(shape: tuple[int, ...], itemsize: int, fmt: memory_format) -> tuple[int, ...] | None:
    """Byte strides of a dense tensor of `shape` in the memory format; None if the format wants another number of dimensions."""
    n = len(shape)
    if fmt is channels_last or fmt is channels_last_3d:
        if n != (4 if fmt is channels_last else 5):
            return None
        order = [1, *range(n - 1, 1, -1), 0]
    else:
        order = list(range(n - 1, -1, -1))
    out, step = [0] * n, itemsize
    for d in order:
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)
