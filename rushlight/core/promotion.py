"""Type promotion, as PyTorch's: tensors with dimensions outrank 0-dim tensors, which outrank Python numbers, unless the
category (bool < integer < float < complex) of the lower rank is higher."""

from __future__ import annotations

from functools import cache

import numpy as np

from .dtype import ALL, BOOL, COMPLEX, FLOAT, INTEGER, dtype, finfo, iinfo, number_dtype, saturated

__all__ = ["promote_types", "result_type", "can_cast", "result_of", "require_fits", "fitted"]

_FLOAT_ORDER = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
_cache: dict[tuple[str, str], dtype] = {}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that can hold both. RuntimeError for pairs PyTorch does not promote (fp8; uint16 and wider)."""
    if type1 is type2:
        return type1
    key = (type1.name, type2.name)
    d = _cache.get(key)
    if d is None:
        d = _cache[key] = _promote(type1, type2)
    return d


def _promote(a: dtype, b: dtype) -> dtype:
    for d in (a, b):
        if d.name.startswith("float8"):
            raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {a.name} and {b.name}")
    if a.category != b.category:
        lo, hi = sorted((a, b), key=lambda d: d.category)
        if hi.category == COMPLEX and lo.category == FLOAT:
            if lo.name == "float64" or hi.name == "complex128":
                return ALL["complex128"]
            return hi if lo.name == "float16" else ALL["complex64"]
        return hi
    if a.category == FLOAT:
        if _FLOAT_ORDER[a.name] == _FLOAT_ORDER[b.name]:
            return ALL["float32"]
        return a if _FLOAT_ORDER[a.name] > _FLOAT_ORDER[b.name] else b
    if a.category == INTEGER:
        if any(d.name in ("uint16", "uint32", "uint64") for d in (a, b)):
            raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a.name} and {b.name}")
        if a.is_signed == b.is_signed:
            return a if a.itemsize > b.itemsize else b
        u, s = (b, a) if a.is_signed else (a, b)
        return s if s.itemsize > u.itemsize else ALL["int16"]
    return a if a.itemsize > b.itemsize else b


def _combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.category == COMPLEX:
        return higher
    if higher.category == FLOAT:
        return higher.to_complex() if lower.category == COMPLEX else higher
    if higher.category == 0 or lower.category >= FLOAT:
        return promote_types(higher, lower)
    return higher


def result_of(operands: tuple) -> dtype:
    """The promoted dtype of arrays (anything with `ndim` and a dtype known to `of`), and Python numbers."""
    from .dtype import of
    dim = zero = number = None
    for x in operands:
        nd = getattr(x, "ndim", None)
        if nd is None:
            d = number_dtype(x)
            number = d if number is None else promote_types(number, d)
        elif nd:
            d = of(x.dtype)
            dim = d if dim is None else promote_types(dim, d)
        else:
            d = of(x.dtype)
            zero = d if zero is None else promote_types(zero, d)
    r = _combine(dim, _combine(zero, number))
    if r is None:
        raise RuntimeError("no operand to find a result type from")
    return r


def result_type(tensor1: object, tensor2: object) -> dtype:
    """The dtype of an arithmetic operation on two tensors or numbers."""
    return result_of(tuple(getattr(x, "_a", x) for x in (tensor1, tensor2)))


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether a result of dtype `from_` may be written into `to`: not to a lower category."""
    if from_.category > to.category:
        return from_.category == INTEGER and to.category >= INTEGER
    return True


_C_TYPES = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int32": "int",
            "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}


def require_fits(x: object, d: dtype) -> None:
    """RuntimeError for a Python number that `d` cannot hold: a complex one in a real dtype, one that is too large, nan or inf in
    integers. Negative numbers are taken for unsigned dtypes; a fraction that integers cut off is no error."""
    c = d.category
    if c == BOOL or x.__class__ is bool or c == COMPLEX and not isinstance(x, (int, float)):
        return
    if isinstance(x, complex):
        why = f"{x} is complex"
    elif c == INTEGER:
        i = iinfo(d)
        if abs(x) <= i.max or x == i.min:  # type: ignore[arg-type]
            return
        why = f"{x} is outside [{i.min}, {i.max}]"
    else:
        most = _most(d)
        if not abs(x) > most or x in (_INF, -_INF) and not d.name.startswith("float8"):  # type: ignore[arg-type]
            return
        why = f"{x} is outside [{-most}, {most}]"
    raise RuntimeError(f"value cannot be converted to type {_C_TYPES.get(d.name) or d.name + '_t'} without overflow: {why}")


_INF = float("inf")


@cache
def _most(d: dtype) -> float:
    return finfo(d.to_real()).max


def fitted(x: int | float | complex, d: dtype) -> np.ndarray:
    """A Python number as a 0-dim array of dtype `d`, as filling and assigning take it. RuntimeError as `require_fits`."""
    require_fits(x, d)
    a = np.asarray(x)
    with np.errstate(all="ignore"):
        return a if a.dtype == d.np else saturated(a, d).astype(d.np)
