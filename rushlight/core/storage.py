"""Storages: the bytes that tensors are views of (`core.untyped_storage`), and these bytes as elements of one dtype.

This is what PyTorch has as `torch.storage`, and the old classes `torch.FloatStorage` and its like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtype as dtypes
from .device import device
from .dtype import dtype
from .untyped_storage import (
    StorageBase,
    UntypedStorage,
    borrowed,
    copy_with_storage,
    from_storage,
    root_of,
    storage_of,
    storage_offset_of,
)

__all__ = [
    "StorageBase",
    "UntypedStorage",
    "TypedStorage",
    "Storage",
    "LEGACY_CLASSES",
    "borrowed",
    "class_dtype",
    "copy_with_storage",
    "from_storage",
    "root_of",
    "storage_of",
    "storage_offset_of",
]

# PyTorch's storage classes and their dtypes; these names are what checkpoints hold.
_CLASS_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
}
_DTYPE_CLASSES = {d: c for c, d in _CLASS_DTYPES.items()}


class _LegacyMeta(type):
    """Makes `isinstance(s, FloatStorage)` true of a TypedStorage of that dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        d = cls.__dict__.get("dtype")
        if isinstance(d, dtype):
            return type(instance) is TypedStorage and instance.dtype is d
        return type.__instancecheck__(cls, instance)


def _warn() -> None:
    import warnings

    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
        "class. "
        "This should only matter to you if you are using storages directly.  To access UntypedStorage directly, use "
        "tensor.untyped_storage() instead of tensor.storage()",
        UserWarning,
        stacklevel=3,
    )


class TypedStorage(StorageBase, metaclass=_LegacyMeta):
    """Elements of one dtype on an :class:`UntypedStorage`. `FloatStorage` and its like make these.

    Args: nothing, a size, or a sequence of numbers; `wrap_storage`: the untyped storage to use; `dtype`, `device`.
    """

    __slots__ = ("_untyped_storage", "_dtype", "__weakref__")
    _untyped_storage: UntypedStorage
    _dtype: dtypes.dtype

    def __new__(
        cls, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False
    ) -> Any:
        if not _internal:
            _warn()
        fixed = cls.__dict__.get("dtype") if cls is not TypedStorage else None
        fixed = fixed if isinstance(fixed, dtypes.dtype) else None
        if fixed is not None and dtype is not None and dtype is not fixed:
            raise TypeError(f"{cls.__name__}(): its dtype is {fixed!r}, got dtype={dtype!r}")
        d = fixed or dtype or dtypes.get_default_dtype()
        self = object.__new__(TypedStorage)
        self._dtype = d
        if wrap_storage is not None:
            if args:
                raise TypeError(
                    f"{cls.__name__}(): no positional argument may be given with 'wrap_storage', got {len(args)}"
                )
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(
                    f"{cls.__name__}(): Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}"
                )
            self._untyped_storage = wrap_storage
            return self
        arg = args[0] if args else 0
        if len(args) <= 1 and isinstance(arg, (int, np.integer)) and not isinstance(arg, bool):
            self._untyped_storage = UntypedStorage(int(arg) * d.itemsize, device=device)
        elif len(args) == 1 and isinstance(arg, Sequence) and not isinstance(arg, str):
            values = np.array([v for v in arg], dtype=d.np)
            if values.ndim != 1:
                raise TypeError(
                    f"{cls.__name__}(): expected a flat sequence of numbers, got one of {values.ndim} dimensions"
                )
            self._untyped_storage = storage_of(values)
        else:
            kind = type(arg) if len(args) == 1 else tuple(map(type, args))
            raise TypeError(
                f"{cls}.__new__ received an invalid combination of arguments. Expected one of:\n * no arguments\n"
                " * (int size)\n * (Sequence data)\n * (*, UntypedStorage wrap_storage)\n"
                f"Argument type not recognized: {kind}"
            )
        return self

    @property
    def dtype(self) -> dtype:
        return self._dtype

    @property
    def device(self) -> device:
        return self._untyped_storage.device

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def size(self) -> int:
        return self._untyped_storage.nbytes() // self._dtype.itemsize

    def _size(self) -> int:
        return self.size()

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    def _values(self) -> np.ndarray:
        n = self.size() * self._dtype.itemsize
        return self._untyped_storage._values()[:n].view(self._dtype.np)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a {type(self)} with {type(index)}")
        i = self._element(index)
        values = self._values()[i:i + 1]
        return (values if values.dtype.kind in "biufc" else values.astype(np.float32)).item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._values()[index] = value
        elif hasattr(index, "__index__"):
            self._values()[self._element(index)] = value
        else:
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")

    def __repr__(self) -> str:
        return self._repr(f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TypedStorage)
            and other._untyped_storage is self._untyped_storage
            and other._dtype is self._dtype
        )

    def __hash__(self) -> int:
        return hash((id(self._untyped_storage), self._dtype.name))

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> TypedStorage:
        return self._with(self._untyped_storage.__deepcopy__(memo))

    def __reduce__(self) -> Any:
        return _rebuild_typed, (self._untyped_storage, self._dtype)

    def _with(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self._dtype, _internal=True)

    def clone(self) -> TypedStorage:
        """A copy with memory of its own."""
        return self._with(self._untyped_storage.clone())

    def copy_(self, source: StorageBase, non_blocking: bool | None = None) -> TypedStorage:
        """Overwrite the elements with those of `source`, converted; the numbers of elements must agree."""
        if isinstance(source, TypedStorage) and source.dtype is not self._dtype and source.size() == self.size():
            self._values()[...] = source._values().astype(self._dtype.np)
        else:
            self._untyped_storage.copy_(source)
        return self

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element to `value`."""
        self._values()[...] = value
        return self

    def resize_(self, size: int) -> None:
        """Change the number of elements, keeping those that stay."""
        self._untyped_storage.resize_(size * self._dtype.itemsize)

    def share_memory_(self) -> TypedStorage:
        """Move the elements, in place, to memory that child processes made by fork share."""
        self._untyped_storage.share_memory_()
        return self

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """RuntimeError: page-locked memory needs an accelerator."""
        return self._with(self._untyped_storage.pin_memory(device))

    def cpu(self) -> TypedStorage:
        """This storage on the CPU."""
        return self._with(self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """RuntimeError: there is no CUDA backend."""
        return self._with(self._untyped_storage.cuda(device, non_blocking))

    def hpu(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """RuntimeError: there is no HPU backend."""
        return self._with(self._untyped_storage.hpu(device, non_blocking))

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The storage on `device`."""
        return self._with(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage class, as "torch.FloatStorage"; or the elements converted to those of such a
        class."""
        if dtype is None:
            return "torch." + self.pickle_storage_type()
        return self._cast(class_dtype(dtype).name)

    def pickle_storage_type(self) -> str:
        """The name of the storage class of this dtype; KeyError where PyTorch has none."""
        try:
            return _DTYPE_CLASSES[self._dtype.name]
        except KeyError:
            raise KeyError(f"dtype {self._dtype} is not recognized") from None

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0,
                    dtype: Any = None) -> TypedStorage:
        """A copy of the elements in a buffer: see :meth:`UntypedStorage.from_buffer`."""
        own = cls.__dict__.get("dtype")
        d = own if isinstance(own, dtypes.dtype) else dtype or dtypes.get_default_dtype()
        untyped = UntypedStorage.from_buffer(buffer, byte_order, count, offset, d)
        return TypedStorage(wrap_storage=untyped, dtype=d, _internal=True)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """`size` elements of a file, mapped: see :meth:`UntypedStorage.from_file`."""
        own = cls.__dict__.get("dtype")
        d = own if isinstance(own, dtypes.dtype) else dtypes.get_default_dtype()
        return TypedStorage(
            wrap_storage=UntypedStorage.from_file(filename, shared, size * d.itemsize), dtype=d, _internal=True
        )


def _rebuild_typed(untyped: UntypedStorage, d: dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=d, _internal=True)


def _load_from_bytes(data: bytes) -> Any:
    """A storage in a plain pickle of PyTorch's (`pickle.dumps(tensor)`): a checkpoint within it. It may run any
    code, as plain pickles may."""
    import io

    from ..serialization import load
    return load(io.BytesIO(data), weights_only=False)


def class_dtype(kind: Any) -> dtype:
    """The dtype of a storage class, given by itself or by its name."""
    if isinstance(kind, dtype):
        return kind
    name = kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", None)
    if name == "UntypedStorage":
        return dtypes.by_name("uint8")
    if name not in _CLASS_DTYPES:
        raise ValueError(f"expected a storage class or its name, got {kind!r}")
    return dtypes.by_name(_CLASS_DTYPES[name])


def _legacy_class(name: str) -> type:
    return _LegacyMeta(
        name,
        (TypedStorage,),
        {
            "dtype": dtypes.by_name(_CLASS_DTYPES[name]),
            "__module__": "torch",
            "__slots__": (),
            "__doc__": f"Makes a typed storage of {_CLASS_DTYPES[name]} elements.",
        },
    )


#: `torch.FloatStorage` and its like, by name.
LEGACY_CLASSES: dict[str, type] = {name: _legacy_class(name) for name in _CLASS_DTYPES}
globals().update(LEGACY_CLASSES)
Storage = LEGACY_CLASSES["FloatStorage"]
