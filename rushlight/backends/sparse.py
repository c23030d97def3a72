"""Sparse arrays: indices and values of the elements that are there; the others are zero.

A sparse tensor is a tensor whose array is one of these. `SparseCOO` has coordinates, one column an element; `SparseCompressed`
(CSR, CSC and their blocked forms BSR, BSC) the borders of rows (columns) in a list of columns (rows). The arrays are not written to
but for their values, so that patterns may be shared.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["SparseArray", "SparseCOO", "SparseCompressed", "compress", "seen"]

ndarray = np.ndarray
I64 = np.dtype(np.int64)
seen: list[bool] = [False]      # whether there has been a sparse array: as long as not, nobody need look for one


class SparseArray:
    """What sparse arrays have in common with NumPy's."""

    __slots__ = ("values", "shape", "__weakref__")
    layout: str
    base = None         # no view of another array
    values: ndarray
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def itemsize(self) -> int:
        return self.values.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """There are none; zeros, as PyTorch says."""
        return (0,) * len(self.shape)

    @property
    def nnz(self) -> int:
        raise NotImplementedError

    def with_values(self, values: ndarray, shape: tuple[int, ...] | None = None) -> Any:
        """The same pattern with other values."""
        raise NotImplementedError

    def coo(self) -> SparseCOO:
        """As coordinates."""
        raise NotImplementedError

    def dense(self) -> ndarray:
        """As an ordinary array; elements that are given several times are added up."""
        return self.coo().dense()

    def map(self, fn: Any) -> Any:
        """The same with `fn` applied to all arrays."""
        raise NotImplementedError


class SparseCOO(SparseArray):
    """`indices` (sparse dimensions, nnz) int64, `values` (nnz, *dense dimensions). `coalesced`: in order, no index twice."""

    __slots__ = ("indices", "coalesced")
    layout = "sparse_coo"

    def __init__(self, indices: ndarray, values: ndarray, shape: tuple[int, ...], coalesced: bool = False) -> None:
        seen[0] = True
        self.indices, self.values, self.shape, self.coalesced = indices, values, tuple(shape), coalesced

    @property
    def nnz(self) -> int:
        return self.indices.shape[1]

    @property
    def sparse_dim(self) -> int:
        return self.indices.shape[0]

    @property
    def sparse_shape(self) -> tuple[int, ...]:
        return self.shape[: self.indices.shape[0]]

    def with_values(self, values: ndarray, shape: tuple[int, ...] | None = None) -> SparseCOO:
        return SparseCOO(self.indices, values, self.shape if shape is None else shape, self.coalesced)

    def coo(self) -> SparseCOO:
        return self

    def keys(self) -> ndarray:
        """One number for each element, in the order of the coordinates."""
        return flat_index(self.indices, self.sparse_shape)

    def groups(self) -> tuple[ndarray, ndarray, int]:
        """(the indices without repetition, in order; the place there of each element; how many)."""
        keys, first, place = np.unique(self.keys(), return_index=True, return_inverse=True)
        return np.ascontiguousarray(self.indices[:, first]), place.reshape(-1), len(keys)

    def dense(self) -> ndarray:
        out = np.zeros(self.shape, self.values.dtype)
        at = tuple(self.indices)
        if not at:          # no sparse dimensions: a number of whole tensors
            out += self.values.sum(0, dtype=self.values.dtype)
        elif self.coalesced or self.nnz < 2:
            out[at] = self.values
        else:
            indices, place, n = self.groups()
            out[tuple(indices)] = add_groups(self.values, place, n)
        return out

    def map(self, fn: Any) -> SparseCOO:
        return SparseCOO(fn(self.indices), fn(self.values), self.shape, self.coalesced)


def flat_index(indices: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Coordinates as places in a flattened tensor. RuntimeError if there are more places than int64 counts."""
    if math.prod(shape) > 2**63 - 1:
        raise RuntimeError(f"a sparse tensor of sizes {list(shape)} has more places than can be counted")
    key = np.zeros(indices.shape[1], I64)
    for i, n in zip(indices, shape, strict=True):
        key *= n
        key += i
    return key


def add_groups(values: ndarray, place: ndarray, n: int) -> ndarray:
    """(n, ...): the sums of the values of equal `place`; for bools whether one is true."""
    out = np.zeros((n, *values.shape[1:]), values.dtype)
    if not len(place):
        return out
    order = np.argsort(place, kind="stable")
    p = place[order]
    starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    x = values[order]
    small = x.dtype.kind in "fV" and x.dtype.itemsize <= 2
    fold = np.logical_or if x.dtype.kind == "b" else np.add
    out[p[starts]] = fold.reduceat(x.astype(np.float32) if small else x, starts, 0).astype(x.dtype)
    return out


class SparseCompressed(SparseArray):
    """`ends` (..., rows + 1) and `plain` (..., nnz): row i has the columns `plain[ends[i]:ends[i + 1]]`; by columns for CSC and BSC.
    `values` (..., nnz, *block, *dense dimensions)."""

    __slots__ = ("ends", "plain", "layout")

    def __init__(self, layout: str, ends: ndarray, plain: ndarray, values: ndarray, shape: tuple[int, ...]) -> None:
        seen[0] = True
        self.layout, self.ends, self.plain, self.values, self.shape = layout, ends, plain, values, tuple(shape)

    @property
    def nnz(self) -> int:
        return self.plain.shape[-1]

    @property
    def by_rows(self) -> bool:
        return self.layout in ("sparse_csr", "sparse_bsr")

    @property
    def blocked(self) -> bool:
        return self.layout in ("sparse_bsr", "sparse_bsc")

    @property
    def batch(self) -> int:
        return self.ends.ndim - 1

    @property
    def dense_dim(self) -> int:
        return self.values.ndim - self.batch - 1 - (2 if self.blocked else 0)

    @property
    def block(self) -> tuple[int, ...]:
        return self.values.shape[self.batch + 1:self.batch + 3] if self.blocked else (1, 1)

    def with_values(self, values: ndarray, shape: tuple[int, ...] | None = None) -> SparseCompressed:
        return SparseCompressed(self.layout, self.ends, self.plain, values, self.shape if shape is None else shape)

    def pattern(self) -> ndarray:
        """The coordinates of the elements (blocks, of blocks), through the batch: (batch dimensions + 2, all of them)."""
        lead = self.ends.shape[:-1]
        counts = np.diff(self.ends, axis=-1)
        n = counts.shape[-1]
        long = np.tile(np.arange(n), math.prod(lead)).repeat(counts.reshape(-1))
        of_batch = np.indices(lead).reshape(len(lead), -1).repeat(self.nnz, 1) if lead else np.zeros((0, self.nnz), I64)
        pair = (long, self.plain.reshape(-1)) if self.by_rows else (self.plain.reshape(-1), long)
        return np.concatenate([of_batch, np.stack(pair)]).astype(I64)

    def coordinates(self) -> ndarray:
        """The coordinates of the elements, those of blocks one by one, in the order of the flattened values."""
        at = self.pattern()
        if not self.blocked:
            return at
        r, c = self.block
        spread = at[:, :, None].repeat(r * c, 2)
        spread[-2:] = spread[-2:] * np.array([r, c]).reshape(2, 1, 1) + np.indices((r, c)).reshape(2, 1, -1)
        return spread.reshape(at.shape[0], -1)

    def coo(self) -> SparseCOO:
        at = self.coordinates()
        values = self.values.reshape(at.shape[1], *self.shape[at.shape[0]:])
        made = SparseCOO(at, values, self.shape, True)
        if self.layout == "sparse_csr":
            return made
        order = np.argsort(made.keys(), kind="stable")
        return SparseCOO(np.ascontiguousarray(at[:, order]), values[order], self.shape, True)

    def map(self, fn: Any) -> SparseCompressed:
        return SparseCompressed(self.layout, fn(self.ends), fn(self.plain), fn(self.values), self.shape)


def compress(layout: str, indices: ndarray, shape: tuple[int, ...]) -> tuple[ndarray, ndarray, ndarray]:
    """(ends, plain, order) of coordinates (2, nnz) without repetition, by rows or by columns; `order` sorts the values."""
    rows, columns = indices if layout in ("sparse_csr", "sparse_bsr") else indices[::-1]
    n = shape[0] if layout in ("sparse_csr", "sparse_bsr") else shape[1]
    order = np.lexsort((columns, rows))
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(I64)
    return ends, np.ascontiguousarray(columns[order]), order
