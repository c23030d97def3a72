"""What the families of nn.functional share: finding operators, kernels when they pay, warnings, reductions of losses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.tensor import hooks

if TYPE_CHECKING:
    from .declare import Operator

__all__ = ["F32", "F64", "NATIVE", "f", "ints", "keep_format", "kernels", "legacy_reduction", "narrow", "reduced", "reduction_of", "row_kernels", "row_kernels_for", "warn", "wide"]

F32, F64 = np.dtype("float32"), np.dtype("float64")
NATIVE = 256                # elements from which a generated kernel is quicker than several NumPy calls
_kernels: list[Any] = []


def f(name: str) -> Any:
    """An operator by name."""
    return hooks.function(name)


def _is_channels_last(a: np.ndarray) -> bool:
    """Whether the strides of a 4- or 5-dim array grow from the channels over the places to the samples, as PyTorch decides it."""
    least = 0
    for d in (1, *range(a.ndim - 1, 1, -1), 0):
        n, s = a.shape[d], a.strides[d]
        if not n or s < least or not s and d == 1 or not d and least == a.strides[1]:
            return False
        least = s * n if n > 1 else s
    return True


def _in_channels_last(r: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(r, 1, -1)), -1, 1)


def keep_format(op: Operator, operands: int = 1) -> None:
    """The results of `op` are in channels_last where one of its first `operands` arrays is (and not row-major at the same time)."""
    inner = op.array or op.body

    def array(*args: Any) -> Any:
        r = inner(*args)
        for a in args[:operands]:
            if a.ndim > 3 and not a.flags.c_contiguous and a.ndim < 6 and _is_channels_last(a):
                if r.__class__ is not tuple:
                    return _in_channels_last(r)
                return tuple([_in_channels_last(x) if x is not None and x.ndim == a.ndim else x for x in r])
        return r
    op.array = array


def kernels() -> tuple[Any, Any] | None:
    """(compiler.kernels, compiler.row_kernels) if this machine can generate code. Imported at the first call."""
    if not _kernels:
        found = None
        try:
            from ..compiler import jit
            if jit.available():
                from ..compiler import kernels as k
                from ..compiler import row_kernels as r
                found = k, r
        except ImportError:
            pass
        _kernels.append(found)
    return _kernels[0]


def row_kernels() -> Any:
    """compiler.row_kernels, or None."""
    k = kernels()
    return None if k is None else k[1]


def row_kernels_for(x: np.ndarray) -> Any:
    """compiler.row_kernels if it serves `x`: float32 or float64, and enough of it."""
    d = x.dtype
    if x.size < NATIVE or d is not F32 and d is not F64 and d != F32 and d != F64:
        return None
    k = kernels()
    return None if k is None else k[1]


def wide(a: np.ndarray) -> np.ndarray:
    """Half precision as float32, anything else as it is."""
    return a.astype(F32) if a.dtype.itemsize <= 2 and a.dtype.kind in "fV" else a


def narrow(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Back from `wide`."""
    return a if a.dtype is dtype or a.dtype == dtype else a.astype(dtype)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the user's line: the innermost frame outside Rushlight. Python shows it once for each."""
    import warnings
    frame = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith("rushlight"):
        frame = frame.f_back  # type: ignore[assignment]
        level += 1
    warnings.warn(message, category, stacklevel=level)


def ints(value: Any, n: int, name: str = "") -> tuple[int, ...]:
    """An int for each of `n` dimensions, or a sequence of one or `n` of them."""
    if value.__class__ is int:
        return (value,) * n
    if isinstance(value, (int, np.integer)):
        return (int(value),) * n
    t = tuple([int(v) for v in value])
    if len(t) == 1:
        return t * n
    if len(t) != n:
        raise RuntimeError(f"{name} must be an int or {n} ints, but got {list(t)}")
    return t


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the two old flags of losses meant; `reduction` itself where neither is given. ValueError for unknown ones."""
    if size_average is None and reduce is None:
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction_of`, with the warning that the flags are old."""
    r = reduction_of(size_average, reduce, reduction)
    if size_average is not None or reduce is not None:
        warn(f"size_average and reduce args will be deprecated, please use reduction='{r}' instead.")
    return r


def reduced(loss: Any, reduction: str) -> Any:
    """A tensor of losses, reduced."""
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()
