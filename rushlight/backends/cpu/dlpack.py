"""DLPack (github.com/dmlc/dlpack, version 1) for the dtypes that NumPy's own export and import leave out.

NumPy makes and reads the capsules, which keep the memory alive. bfloat16, float8 and complex32 travel as bytes of the same
width: the type in the capsule is set to theirs on the way out, and to an unsigned integer's on the way in.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

__all__ = ["export", "from_capsule", "imported"]

_UNSIGNED = 1
# (code, bits) of DLDataType
_CODES = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
          "float8_e8m0fnu": (14, 8), "complex32": (5, 32)}
_NAMES = {code: name for name, code in _CODES.items()}
# where the DLDataType stands in a DLManagedTensor and in a DLManagedTensorVersioned
_AT = {b"dltensor": 20, b"dltensor_versioned": 52}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_valid = ctypes.pythonapi.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _type_of(capsule: Any) -> Any:
    """The three fields of the capsule's DLDataType (code, bits, lanes), to read and to write."""
    for name, offset in _AT.items():
        if _valid(capsule, name):
            at = _pointer(capsule, name) + offset
            return ctypes.c_uint8.from_address(at), ctypes.c_uint8.from_address(at + 1), ctypes.c_uint16.from_address(at + 2)
    raise RuntimeError("from_dlpack() expects a capsule named 'dltensor' or 'dltensor_versioned' that was not consumed yet")


def export(a: np.ndarray, name: str, **kw: Any) -> Any:
    """The capsule for an array of the dtype called `name`; `kw` as of `__dlpack__`."""
    if name not in _CODES:
        return a.__dlpack__(**kw)
    capsule = a.view(f"u{a.itemsize}").__dlpack__(**kw)
    code, bits, _ = _type_of(capsule)
    code.value, bits.value = _CODES[name]
    return capsule


class _Holder:
    """What NumPy's from_dlpack wants: an object that hands out a capsule."""

    def __init__(self, capsule: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **kw: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class _Writable:
    """The memory of an array that NumPy took for read-only because capsules before version 1 cannot tell."""

    def __init__(self, a: np.ndarray) -> None:
        self.keep = a
        self.__array_interface__ = {**a.__array_interface__, "data": (a.__array_interface__["data"][0], False), "strides": a.strides}


def from_capsule(capsule: Any) -> tuple[np.ndarray, str | None]:
    """The memory as an array and, if NumPy has no such dtype, the name of the one it holds. A capsule can be taken once."""
    code, bits, lanes = _type_of(capsule)
    name = _NAMES.get((code.value, bits.value)) if lanes.value == 1 else None
    if name is not None:
        code.value = _UNSIGNED
    old = bool(_valid(capsule, b"dltensor"))
    a = np.from_dlpack(_Holder(capsule))
    return (np.asarray(_Writable(a)) if old and not a.flags.writeable else a), name


def imported(x: Any) -> tuple[np.ndarray, str | None]:
    """`from_capsule` of what an object with `__dlpack__` hands out. BufferError for memory that is not the CPU's."""
    device = x.__dlpack_device__()
    if device[0] not in (1, 3):         # kDLCPU; page-locked memory is the CPU's too
        raise BufferError(f"from_dlpack() takes memory of the CPU, got an object on DLPack device {tuple(device)}")
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:                   # from before version 1
        capsule = x.__dlpack__()
    return from_capsule(capsule)
