"""Sums over big contiguous arrays as single kernels, for the reductions that add.

A sum over trailing dimensions is one over rows, a sum over leading ones goes down the columns, a sum over everything is
cut into parts of `PART` elements whose sums are added in float64: the cut depends on the shape alone, so the bits do not
depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from rushlight.backends.cpu.allocator import empty
from rushlight.compiler import scalar
from rushlight.compiler.kernels import RowKernel
from rushlight.compiler.llvm import Buffer, Kernel, Module, Reduce
from rushlight.ops.expr import Expr, arg

__all__ = ["PART", "Sum"]

PART = 8192
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class Sum:
    """The sum of `root`, an expression of "input", over leading, trailing or all dimensions. float32 and float64."""

    def __init__(self, root: Expr) -> None:
        def rows(result: str | None) -> RowKernel:
            def make(m: Module, dtype: str) -> Kernel:
                c = scalar.register_dtype(dtype)
                return m.reduce("sum", {"y": arg("s")}, [Reduce("s", "add", root, c, result)],
                                [Buffer("input", dtype), Buffer("y", result or dtype)], compute=c)
            return RowKernel("sum", make, ["full", "row"], ["y"])

        def columns(m: Module, dtype: str) -> Kernel:
            c = scalar.register_dtype(dtype)
            return m.columns("sum", {"y": arg("s")}, [Reduce("s", "add", root, c)], [Buffer("input", dtype), Buffer("y", dtype)],
                             compute=c)

        self.rows, self.parts = rows(None), rows("float64")
        self.columns = RowKernel("sum", columns, ["full", "column"], ["y"])

    def __call__(self, a: np.ndarray, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> np.ndarray | None:
        """As `np.add.reduce`, axes sorted; None for arrays or axes that this is not made for."""
        d = a.dtype
        if not a.flags.c_contiguous or d not in _DTYPES or a.size == 0:
            return None
        nd = a.ndim
        axes = range(nd) if axis is None else (axis % nd,) if axis.__class__ is int else axis
        k = len(axes)                                                   # type: ignore[arg-type]
        shape = a.shape
        if k == nd:
            s = self._whole(a)
            return s.reshape((1,) * nd) if keepdims else s
        if axes[0] == nd - k:                                           # type: ignore[index]
            lead = shape[:nd - k]
            rows = 1
            for n in lead:
                rows *= n
            out = empty((rows,), d)
            if rows < 8:                                                # too few for the pool: each row as a whole
                for i, row in enumerate(a.reshape(rows, -1)):
                    out[i] = self._whole(row)
            else:
                _call(self.rows, d, a.reshape(rows, -1), out)
            return out.reshape(lead + (1,) * k if keepdims else lead)
        if axes[0] == 0 and axes[-1] == k - 1:                          # type: ignore[index]
            trail = shape[k:]
            view = a.reshape(-1, a.size // _size(shape[:k]))
            out = empty((view.shape[1],), d)
            _call(self.columns, d, view, out)
            return out.reshape((1,) * k + trail if keepdims else trail)
        return None

    def _whole(self, a: np.ndarray) -> np.ndarray:
        flat = a.reshape(-1)
        count, rest = divmod(flat.size, PART)
        parts = np.empty(count + (rest > 0))
        if count:
            _call(self.parts, a.dtype, flat[:count * PART].reshape(count, PART), parts[:count])
        if rest:
            _call(self.parts, a.dtype, flat[count * PART:].reshape(1, rest), parts[count:])
        return np.asarray(np.add.reduce(parts), a.dtype)


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for k in shape:
        n *= k
    return n


def _call(kernel: RowKernel, d: np.dtype, *arrays: np.ndarray) -> None:
    f = kernel.quick.get(d.num)
    if f is None or not f(*arrays):
        kernel(d.name, *arrays)
