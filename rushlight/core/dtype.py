"""The dtypes of PyTorch, and what NumPy type holds each.

bf16 and fp8 are held by ml_dtypes' types, which are imported when the first such tensor is made.
"""

from __future__ import annotations

import numpy as np

__all__ = ["dtype", "ALL", "of", "by_name", "default", "get_default_dtype", "set_default_dtype", "finfo", "iinfo",
           "default_complex", "number_dtype"]

BOOL, INTEGER, FLOAT, COMPLEX = range(4)


class dtype:
    """The type of a tensor's elements. Instances are unique: compare them with `is` or `==`."""

    __slots__ = ("name", "_np", "itemsize", "category", "is_signed", "is_floating_point", "is_complex", "_np_name")

    def __init__(self, name: str, category: int, itemsize: int, signed: bool = True, np_name: str | None = None) -> None:
        self.name, self.category, self.itemsize, self.is_signed = name, category, itemsize, signed
        self.is_floating_point, self.is_complex = category == FLOAT, category == COMPLEX
        self._np_name = np_name or name
        self._np: np.dtype | None = None

    @property
    def np(self) -> np.dtype:
        """The NumPy dtype that holds it; TypeError for those that nothing here can hold."""
        if self._np is None:
            self._np = _resolve(self)
        return self._np

    def to_real(self) -> dtype:
        return by_name({"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(self.name, self.name))

    def to_complex(self) -> dtype:
        return by_name({"float16": "complex32", "float64": "complex128"}.get(self.name, "complex64")
                       if not self.is_complex else self.name)

    def __repr__(self) -> str:
        return "torch." + self.name

    def __reduce__(self):
        return by_name, (self.name,)

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict) -> dtype:
        return self


ALL: dict[str, dtype] = {}
for _d in (
    dtype("bool", BOOL, 1, False), dtype("uint8", INTEGER, 1, False), dtype("int8", INTEGER, 1),
    dtype("int16", INTEGER, 2), dtype("int32", INTEGER, 4), dtype("int64", INTEGER, 8),
    dtype("uint16", INTEGER, 2, False), dtype("uint32", INTEGER, 4, False), dtype("uint64", INTEGER, 8, False),
    dtype("float16", FLOAT, 2), dtype("bfloat16", FLOAT, 2), dtype("float32", FLOAT, 4), dtype("float64", FLOAT, 8),
    dtype("complex32", COMPLEX, 4), dtype("complex64", COMPLEX, 8), dtype("complex128", COMPLEX, 16),
    dtype("float8_e4m3fn", FLOAT, 1), dtype("float8_e5m2", FLOAT, 1), dtype("float8_e4m3fnuz", FLOAT, 1),
    dtype("float8_e5m2fnuz", FLOAT, 1), dtype("float8_e8m0fnu", FLOAT, 1, np_name="float8_e8m0fnu"),
    dtype("qint8", INTEGER, 1), dtype("quint8", INTEGER, 1, False), dtype("qint32", INTEGER, 4),
):
    ALL[_d.name] = _d

ALIASES = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
           "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32"}
_ML = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"}
_BY_NP: dict[np.dtype, dtype] = {}


def by_name(name: str) -> dtype:
    """The dtype called `name` or by one of its short names ("float", "long", ...)."""
    return ALL[ALIASES.get(name, name)]


def _resolve(d: dtype) -> np.dtype:
    if d.name in _ML:
        import ml_dtypes
        scalar = getattr(ml_dtypes, d._np_name, None)
        if scalar is None:
            raise TypeError(f"{d!r} tensors need a newer ml_dtypes (complex32: 0.6), this is {ml_dtypes.__version__}")
        n = np.dtype(scalar)
    elif d.name in ("qint8", "quint8", "qint32"):
        raise TypeError(f"{d!r} tensors are not supported: no array type here holds them")
    else:
        n = np.dtype(d._np_name)
    _BY_NP[n] = d
    return n


for _n, _d in ALL.items():
    if _n not in _ML and _n not in ("qint8", "quint8", "qint32"):
        _d.np  # noqa: B018 - fills _BY_NP


def of(np_dtype: np.dtype) -> dtype:
    """The dtype whose elements a NumPy array of `np_dtype` holds; TypeError if there is none."""
    d = _BY_NP.get(np_dtype)
    if d is None:
        name = np_dtype.name
        if name in _ML:
            ALL[name].np  # noqa: B018
            return ALL[name]
        if np_dtype.kind in "iufcb" and np_dtype.newbyteorder("=") in _BY_NP:
            raise ValueError(f"arrays in a foreign byte order are not supported (got {np_dtype}): use .astype(dtype.newbyteorder('='))")
        raise TypeError(f"can't convert np.ndarray of type {np_dtype}. The supported types are: float64, float32, float16, complex64, "
                        "complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.")
    return d


def saturated(a: np.ndarray, d: dtype) -> np.ndarray:
    """What an array is before a cast to `d`: float8_e4m3fn has no inf, what is too large for it becomes its largest number."""
    if d.name != "float8_e4m3fn" or a.dtype == d.np:
        return a
    return np.asarray(np.clip(a.astype(np.float32) if a.dtype.kind == "V" else a.real if a.dtype.kind == "c" else a, -448.0, 448.0))


float32, float64, int64, bool_ = ALL["float32"], ALL["float64"], ALL["int64"], ALL["bool"]
default: list[dtype] = [float32]


def get_default_dtype() -> dtype:
    """The dtype of new floating point tensors; float32 until `set_default_dtype` changes it."""
    return default[0]


def set_default_dtype(d: dtype) -> None:
    """Make `d` (a floating point dtype, else TypeError) the dtype of new floating point tensors."""
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: expected a torch.dtype, got {type(d).__name__}")
    if not d.is_floating_point or d.itemsize < 2:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    default[0] = d


def default_complex() -> dtype:
    return default[0].to_complex()


def number_dtype(x: object) -> dtype:
    """The dtype of a Python number in promotion."""
    if isinstance(x, bool):
        return bool_
    if isinstance(x, int):
        return int64
    if isinstance(x, float):
        return default[0]
    if isinstance(x, complex):
        return default_complex()
    return of(np.asarray(x).dtype)


class finfo:
    """Limits of a floating point dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    def __init__(self, type: dtype | None = None) -> None:
        d = default[0] if type is None else type
        if not isinstance(d, dtype) or d.category < FLOAT:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{d!r}'")
        d = d.to_real()
        if d.name in _ML:
            import ml_dtypes
            i = ml_dtypes.finfo(d.np)
        else:
            i = np.finfo(d.np)
        self.dtype, self.bits = d.name, d.itemsize * 8
        self.eps, self.max, self.min, self.tiny = float(i.eps), float(i.max), float(i.min), float(i.smallest_normal)
        self.smallest_normal, self.resolution = self.tiny, float(f"{float(i.resolution):.0e}")     # a power of ten

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Limits of an integer dtype: bits, max, min."""

    def __init__(self, type: dtype) -> None:
        if not isinstance(type, dtype) or type.category != INTEGER:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type!r}'")
        i = np.iinfo(type.np)
        self.dtype, self.bits, self.min, self.max = type.name, type.itemsize * 8, int(i.min), int(i.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
