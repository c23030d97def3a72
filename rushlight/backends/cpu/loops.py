"""Generated loops for big arrays, used by eager pointwise operators.

A loop is made for an expression and its dtypes once so much work has gone through NumPy that making it (about 10 ms, a third of one
from the disk) is paid back. None from `pointwise` means: use NumPy.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from . import native
from .allocator import empty

__all__ = ["BIG", "FEW", "Direct", "Sum", "cost", "least", "plain_sum", "pointwise"]

BIG = 65536          # elements of the result from which a loop is considered
WORTH = 1 << 22      # primitives evaluated through NumPy before a loop is made
FEW = 1024           # elements from which an expression of several primitives, for which NumPy takes as many passes, has a loop of its own
EARLY = 1 << 18      # WORTH for these
_seen: dict[tuple, Any] = {}
_TYPES = {"float32", "float64", "bool", "int64", "int32", "uint8", "int8", "int16"}
_available: list[bool] = []


@cache
def cost(root: Any) -> int:
    """The primitives that an expression computes for each element."""
    from ...ops.expr import PRIMITIVES, postorder
    return sum(1 for e in postorder(root) if e.op in PRIMITIVES)


def least(root: Any) -> int:
    """Elements from which an expression has a loop."""
    return FEW if cost(root) > 2 else BIG


def pointwise(root: Any, names: list[str], vals: list[Any], shape: tuple[int, ...], compute: np.dtype, result: np.dtype,
              out: np.ndarray | None = None) -> np.ndarray | None:
    """The expression of the named arrays and numbers, broadcast to `shape`, as `result`; written to `out` if given."""
    arrays = [n for n, v in zip(names, vals, strict=True) if v.__class__ is np.ndarray]
    numbers = [n for n, v in zip(names, vals, strict=True) if v.__class__ is not np.ndarray]
    xs = [v for v in vals if v.__class__ is np.ndarray]
    ks = [v for v in vals if v.__class__ is not np.ndarray]
    if out is not None and not out.flags.writeable or numbers and compute.kind != "f" or any(isinstance(k, complex) for k in ks):
        return None
    key = (root, tuple([x.dtype.num for x in xs]), result.num, tuple(numbers))
    f = _seen.get(key, 0)
    if f.__class__ is int:
        if f < 0:
            return None
        n = 1
        for s in shape:
            n *= s
        f += n * cost(root)
        if f < (EARLY if cost(root) > 2 else WORTH):
            _seen[key] = f
            return None
        f = _seen[key] = _make(root, arrays, numbers, xs, compute, result)
        if f is None or f == -1:
            _seen[key] = -1
            return None
    try:
        if out is not None or xs[0].shape != shape:
            if out is None:
                out = empty(shape, result)
            return f(*xs, *ks, out=out)
        return f(*xs, *ks)
    except (TypeError, ValueError):     # strides or a dtype that the loop does not take
        return None


def _make(root: Any, arrays: list[str], numbers: list[str], xs: list[np.ndarray], compute: np.dtype, result: np.dtype) -> Any:
    if not _available:
        try:
            from ...compiler import jit
            _available.append(jit.available())
        except ImportError:
            _available.append(False)
    if not _available[0] or not xs or any(x.dtype.name not in _TYPES for x in xs) or result.name not in _TYPES or compute.name not in _TYPES:
        return -1
    from ...compiler import kernels
    from ...ops.expr import postorder
    if not kernels.has_native([root], compute.name):
        return -1
    if compute.kind != "f" and any(e.op == "cast" and e.args[1] == "compute" for e in postorder(root)):
        return -1                       # kernels compute in a float type, where large integers are rounded
    try:
        return kernels.pointwise(root, arrays, numbers, result=result.name, compute=compute.name if compute.kind == "f" else None)
    except (TypeError, ValueError, NotImplementedError):
        return -1


class Direct:
    """A pointwise operator on big contiguous arrays of one shape and dtype: its loop, found by dtype alone.

    `root` in the names `tensors` (one or two; the second may be given as a number) and then `numbers`. Called with values in
    this order, and with an array for the result if there is one; None where the general path has to see to it.
    """

    __slots__ = ("root", "tensors", "numbers", "logical", "work", "made")

    def __init__(self, root: Any, tensors: list[str], numbers: list[str], logical: bool) -> None:
        self.root, self.tensors, self.numbers, self.logical = root, tensors, numbers, logical
        self.work: dict[tuple, int] = {}
        self.made: dict[tuple, Any] = {}

    def __call__(self, *args: Any, out: np.ndarray | None = None) -> np.ndarray | None:
        a = args[0]
        k = 2 if len(self.tensors) == 2 and args[1].__class__ is np.ndarray else 1
        if k == 2 and a.shape != args[1].shape:
            return self._stretched(a, args[1]) if out is None and len(args) == 2 else None
        key = (a.dtype.num, k)
        spec = self.made.get(key)
        if spec is None:
            spec = self._consider(key, a, k)
        if not spec:
            return None
        if out is None:
            out = empty(a.shape, spec.np_out)
        elif not out.flags.writeable or k == 2 and 0 < abs(native.address(args[1]) - native.address(out)) < out.nbytes:
            return None                 # NumPy refuses to write it; or the loop would read what it has written
        if len(args) == k:
            done = spec.fast(*args, out)
        else:
            done = spec.fast(*args[:k], out, *map(float, args[k:]))
        return out if done else None

    def _stretched(self, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """One operand has the result's shape; the other is one row of it for all, or one value for each row."""
        which = int(a.size < b.size)
        full, part = (b, a) if which else (a, b)
        shape, less = full.shape, part.shape
        if less == shape[len(shape) - len(less):] and less:
            n, role = part.size, "column"
        elif less == (*shape[:-1], 1):
            n, role = shape[-1], "row"
        else:
            return None
        key = (full.dtype.num, which, role)
        kernel = self.made.get(key)
        if kernel is None:
            if not self._worth(key, full.size):
                return None
            kernel = self.made[key] = self._row(full.dtype, which, role)
        if not kernel or not n:
            return None
        out = empty(shape, kernel.result or full.dtype)
        f = kernel.kernel.quick.get(full.dtype.num)
        rows = full.reshape(-1, n) if full.flags.c_contiguous else full
        if f is None:
            if not full.flags.c_contiguous or not part.flags.c_contiguous:
                return None
            kernel.kernel(full.dtype.name, rows, part, out.reshape(-1, n))
            return out
        return out if f(rows, part, out.reshape(-1, n)) else None

    def _row(self, d: np.dtype, which: int, role: str) -> Any:
        from ...compiler import jit, kernels, scalar
        from ...compiler.llvm import Buffer, Pass
        if not jit.available() or d.name not in _TYPES or not kernels.has_native([self.root], d.name):
            return False
        result = "bool" if self.logical else d.name
        names = self.tensors[::-1] if which else self.tensors

        def make(m: Any, dtype: str) -> Any:
            return m.row("pointwise", [Buffer(names[0], dtype), Buffer(names[1], dtype, "1" if role == "column" else "0"), Buffer("result!", result)],
                         [Pass({"result!": self.root})], compute=scalar.register_dtype(dtype))
        return _Row(kernels.RowKernel("pointwise", make, ["full", role, "full"], ["result!"]), np.dtype(bool) if self.logical else None)

    def _worth(self, key: tuple, size: int) -> bool:
        """Whether the work done without a loop has become worth making it."""
        n = self.work[key] = self.work.get(key, 0) + size * cost(self.root)
        return n >= (EARLY if cost(self.root) > 2 else WORTH)

    def _consider(self, key: tuple, a: np.ndarray, k: int) -> Any:
        """The loop, once the work done without it is worth making it; False when there is none."""
        if not self._worth(key, a.size):
            return None
        d = a.dtype
        numbers = self.tensors[k:] + self.numbers
        f: Any = -1 if numbers and d.kind != "f" else _make(self.root, self.tensors[:k], numbers, [a] * k, d, np.dtype(bool) if self.logical else d)
        self.made[key] = spec = False if f is None or f == -1 else f.spec((d.name,) * k)
        return spec


class _Row(NamedTuple):
    kernel: Any                     # a RowKernel
    result: np.dtype | None         # where it is not the operands'


class Sum:
    """The sum of an expression of "input" over big arrays (compiler/folds.py); None: use NumPy. It is made at the first call: the
    last bits of a sum are not to change in the course of a program."""

    __slots__ = ("root", "made")

    def __init__(self, root: Any) -> None:
        self.root = root
        self.made: Any = None

    def __call__(self, a: np.ndarray, axis: Any, keepdims: bool = False) -> np.ndarray | None:
        if self.made is None:
            if a.dtype.kind != "f":
                return None
            self.made = self._make(a.dtype)
        return self.made(a, axis, keepdims) if self.made else None

    def _make(self, d: np.dtype) -> Any:
        from ...compiler import folds, jit, kernels
        return folds.Sum(self.root) if jit.available() and kernels.has_native([self.root], d.name) else False


_plain_sum: list[Sum] = []


def plain_sum(a: np.ndarray, axis: Any, keepdims: bool = False) -> np.ndarray | None:
    """`Sum` of the elements themselves."""
    if not _plain_sum:
        from ...ops.expr import arg
        _plain_sum.append(Sum(arg("input")))
    return _plain_sum[0](a, axis, keepdims)
