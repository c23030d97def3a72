"""Storages: the bytes that tensors are views of.

A tensor holds an array; its storage is made when somebody asks for it, from the root of that array: the ndarray at
the end of the chain of `.base`, which owns the memory or borrows it from something that is not an array. Storages
alive are kept by their root, so that two views of one memory give one storage object. (Typed storages are in
`core.storage`.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ..backends.cpu import allocator
from . import dtype as dtypes
from .device import CPU, META, device
from .dtype import dtype

if TYPE_CHECKING:
    from .storage import TypedStorage

__all__ = [
    "StorageBase",
    "UntypedStorage",
    "copy_with_storage",
    "from_storage",
    "root_of",
    "storage_of",
    "storage_offset_of",
]

_INT64_MAX = 2**63 - 1
_U8 = np.dtype(np.uint8)
_alive: WeakValueDictionary[int, UntypedStorage] = WeakValueDictionary()

# Methods that convert a storage, and the dtype that each converts to.
_CASTS = {"byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "half": "float16",
          "float": "float32", "double": "float64", "bool": "bool", "bfloat16": "bfloat16", "complex_float": "complex64",
          "complex_double": "complex128", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
          "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz"}


# ---------------------------------------------------------------- arrays and their memory

def root_of(array: np.ndarray) -> np.ndarray:
    """The array at the end of the chain of bases: the one that owns, or borrows from outside, the memory of `array`.

    Subclasses of ndarray count as outside: the allocator's blocks are larger than the arrays on them."""
    base = array.base
    while base.__class__ is np.ndarray:
        array = base
        base = array.base
    return array


class _Span:
    """Memory between two addresses, for NumPy to look at; keeps alive what owns it."""

    def __init__(self, owner: np.ndarray, address: int, nbytes: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1",
                                    "data": (address, not owner.flags.writeable)}


class _Foreign:
    """An array of the user's, as the base of an array of ours: the chain of bases ends here, so that a tensor's storage is the memory
    that was handed over, and nobody resizes it."""

    def __init__(self, owner: np.ndarray) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": owner.shape, "strides": owner.strides, "typestr": owner.dtype.str,
                                    "data": (_address(owner), not owner.flags.writeable)}


def borrowed(array: np.ndarray) -> np.ndarray:
    """An array on the memory of the user's `array`, whose storage cannot be resized."""
    return np.asarray(_Foreign(array))


def _bytes_of(root: np.ndarray) -> np.ndarray:
    """All memory between the lowest and the highest byte of `root`, as a flat array of bytes that shares it."""
    if root.size == 0:
        return np.empty(0, np.uint8)
    flat = root
    if not root.flags.c_contiguous:
        flat = root.transpose(sorted(range(root.ndim), key=lambda d: (-root.strides[d], root.shape[d] == 1)))
        if not flat.flags.c_contiguous:  # gaps or negative strides
            low, high = np.lib.array_utils.byte_bounds(root)
            return np.asarray(_Span(root, low, high - low))
    return flat.reshape(-1).view(np.uint8)


def storage_of(array: Any) -> UntypedStorage:
    """The storage that `array` (of a tensor) is a view of; the same object for all views while it is alive."""
    if not isinstance(array, np.ndarray):
        return _meta_storage(array)
    root = root_of(array)
    found = _alive.get(id(root))
    if found is None:
        found = UntypedStorage._wrap(_bytes_of(root), root)
    return found


def _meta_storage(array: Any) -> UntypedStorage:
    last = array.offset + array.itemsize * (array.size > 0)
    last += sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if n > 0) if array.size else 0
    s = UntypedStorage._wrap(np.empty(0, np.uint8), None)
    s._meta_nbytes = max(int(last), int(getattr(array, "storage_nbytes", 0) or 0))
    return s


def storage_offset_of(array: np.ndarray) -> int:
    """Elements between the start of the storage of `array` and its first element."""
    if array.base is None or array.itemsize == 0:
        return 0
    start = _address(root_of(array)) if array.size == 0 else storage_of(array)._address()
    return (_address(array) - start) // array.itemsize


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def from_storage(storage: UntypedStorage, np_dtype: np.dtype, offset: int, shape: Sequence[int],
                 strides: Sequence[int] | None = None) -> Any:
    """The array at `offset` (elements) of `storage` with `shape` and `strides` (elements; row-major if None).

    RuntimeError, in PyTorch's words, for negative sizes, strides or offset and for anything outside the storage's
    bytes.
    """
    shape = tuple(map(int, shape))
    itemsize = np_dtype.itemsize
    if strides is None:
        from ..backends.meta import contiguous_strides
        strides = tuple(s // itemsize for s in contiguous_strides(shape, itemsize))
    strides = tuple(map(int, strides))
    if len(shape) != len(strides):
        raise RuntimeError(
            f"mismatch in length of strides and shape: got sizes {list(shape)} and strides {list(strides)}"
        )
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(shape)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}: "
                           "strides must not be negative")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    empty = 0 in shape
    need = 0 if empty else (offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * itemsize
    nbytes = storage.nbytes()
    if need > nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize "
            f"{itemsize} requiring a storage size of {need} are out of bounds for storage of size {nbytes}"
        )
    if any(v > _INT64_MAX // itemsize for v in (*shape, *strides, offset)):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}")
    byte_strides = tuple(s * itemsize for s in strides)
    if storage.device.type == "meta":
        from ..backends.meta import MetaArray
        return MetaArray(shape, np_dtype, byte_strides, offset * itemsize)
    try:
        # NumPy checks an empty array's place too, though it reads nothing there.
        start = offset * itemsize if offset * itemsize <= nbytes else 0
        return np.ndarray(shape, np_dtype, storage._bytes, start, byte_strides)
    except (ValueError, OverflowError) as error:
        raise RuntimeError(
            f"cannot view a storage with sizes {list(shape)} and strides {list(strides)}: {error}"
        ) from None


def copy_with_storage(array: np.ndarray, memo: dict) -> np.ndarray:
    """A copy of `array` on a copy of its whole storage; one copy for all arrays of that storage that `memo` sees
    (deepcopy)."""
    storage = storage_of(array)
    offset = 0 if array.size == 0 else (_address(array) - storage._address()) // array.itemsize
    if array.size == 0 or any(s < 0 for s in array.strides):
        return array.copy(order="K")
    return from_storage(storage.__deepcopy__(memo), array.dtype, offset, array.shape,
                        [s // array.itemsize for s in array.strides])


# ---------------------------------------------------------------- classes

class StorageBase:
    """What typed and untyped storages have in common."""

    __slots__ = ()
    is_sparse = False
    is_sparse_csr = False
    is_cuda = False
    is_hpu = False
    filename: str | None = None

    def untyped(self) -> UntypedStorage:
        """The bytes of this storage."""
        raise NotImplementedError

    def _values(self) -> np.ndarray:
        """The elements as a flat array on the same memory."""
        raise NotImplementedError

    def _cast(self, name: str) -> TypedStorage:
        from .storage import TypedStorage
        d = dtypes.by_name(name)
        values = self._values().astype(d.np)
        return TypedStorage(wrap_storage=storage_of(values), dtype=d, _internal=True)

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where there is none."""
        return self.untyped()._data_ptr()

    def tolist(self) -> list:
        """The elements as Python numbers."""
        values = self._values()
        return (values if values.dtype.kind in "biufc" else values.astype(np.float32)).tolist()

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """The number of elements."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """The number of bytes."""
        raise NotImplementedError

    def get_device(self) -> int:
        """-1: the storage is not on a GPU."""
        return -1

    def is_pinned(self, device: Any = None) -> bool:
        """False: page-locked memory needs an accelerator."""
        return False

    def is_shared(self) -> bool:
        """Whether child processes made by fork share the memory."""
        return getattr(self.untyped()._map(), "shared", False)

    def resizable(self) -> bool:
        """Whether `resize_` may change the size: not for memory that belongs to somebody else."""
        storage = self.untyped()
        return storage._resizable and _anonymous(storage._map())

    def _repr(self, head: str) -> str:
        if self.untyped().device.type == "meta":
            body = "..."
        else:
            body = "\n ".join(map(str, self.tolist()))
        return f" {body}\n[{head} of size {len(self)}]"

    def _element(self, index: Any) -> int:
        n = len(self)
        i = index.__index__()
        if not -n <= i < n:
            raise IndexError(f"index {i} out of range for storage of size {n}")
        return i % n


def _add_casts() -> None:
    for method, name in _CASTS.items():
        def cast(self: StorageBase, _name: str = name) -> TypedStorage:
            return self._cast(_name)
        cast.__name__, cast.__qualname__ = method, f"StorageBase.{method}"
        cast.__doc__ = f"A storage with the elements converted to {name}."
        setattr(StorageBase, method, cast)


@cache
def _shared_map() -> Any:
    import mmap

    class SharedMap(mmap.mmap):
        """Memory that child processes made by fork share; `anonymous` unless it is that of a file."""

        shared = True
        anonymous = True

    return SharedMap


def _anonymous(mapped: Any) -> bool:
    return mapped is None or getattr(mapped, "anonymous", False)


def _shared_memory(nbytes: int) -> np.ndarray:
    return np.frombuffer(_shared_map()(-1, nbytes), np.uint8)


def _no_backend(kind: str) -> RuntimeError:
    return RuntimeError(f"cannot move a storage to {kind}: Rushlight has no {kind} backend; use device 'cpu'")


class UntypedStorage(StorageBase):
    """Bytes on a device. `UntypedStorage(n)` has `n` bytes of any value, `UntypedStorage([1, 2])` those given."""

    __slots__ = ("_bytes", "_root", "_resizable", "_meta_nbytes", "__weakref__")
    _bytes: np.ndarray
    _root: Any

    def __init__(self, *args: Any, device: Any = None, dtype: Any = None) -> None:
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a size or a sequence of ints, got {len(args)} arguments")
        from .device import as_device
        where = CPU if device is None else as_device(device)
        arg = args[0] if args else 0
        if isinstance(arg, (int, np.integer)) and not isinstance(arg, bool):
            if arg < 0:
                raise RuntimeError(f"UntypedStorage(): the size must not be negative, got {arg}")
            nbytes, values = int(arg), None
        else:
            try:
                values = list(arg)
            except TypeError:
                raise TypeError(
                    f"UntypedStorage(): expected a size or a sequence of ints, got {type(arg).__name__}"
                ) from None
            for v in values:
                if isinstance(v, bool) or not hasattr(v, "__index__"):
                    raise RuntimeError(
                        f"torch.UntypedStorage(): tried to construct a storage from a sequence ({type(arg).__name__}), "
                        f"but one of the items was of type {type(v).__name__} instead of int"
                    )
            nbytes = len(values)
        self._meta_nbytes = nbytes
        if where.type == "meta":
            self._set(np.empty(0, np.uint8), None)
            return
        memory = allocator.empty((nbytes,), _U8)
        if values is not None:
            memory[:] = [int(v) & 0xFF for v in values]
        self._set(memory, memory)

    def _set(self, memory: np.ndarray, root: Any) -> None:
        self._bytes, self._root = memory, root
        self._resizable = root is None or root.base.__class__ is not _Foreign
        if root is not None:
            _alive[id(root)] = self
            base = root_of(memory)
            if base is not root:
                _alive[id(base)] = self

    @classmethod
    def _wrap(cls, memory: np.ndarray, root: Any) -> UntypedStorage:
        """A storage on the bytes `memory`, a view of the array `root` (None: no memory, on meta)."""
        s = object.__new__(cls)
        s._meta_nbytes = 0
        s._set(memory, root)
        return s

    def _map(self) -> Any:
        """The mmap that holds the bytes, or None. It tells, for as long as the memory lives, whether others share
        it."""
        base = getattr(self._root, "base", None)
        return base.obj if isinstance(base, memoryview) and type(base.obj).__name__ in ("mmap", "SharedMap") else None

    def _address(self) -> int:
        return _address(self._bytes)

    def _data_ptr(self) -> int:
        return _address(self._bytes) if self._bytes.size else 0

    @property
    def device(self) -> device:
        return META if self._root is None else CPU

    @property
    def _cdata(self) -> int:
        return id(self._root) if self._root is not None else id(self)

    def untyped(self) -> UntypedStorage:
        return self

    def _values(self) -> np.ndarray:
        if self._root is None:
            raise NotImplementedError("Not available for 'meta' device type: the storage has no bytes")
        return self._bytes

    def size(self) -> int:
        return self._meta_nbytes if self._root is None else self._bytes.size

    nbytes = size

    def element_size(self) -> int:
        """1."""
        return 1

    def __getitem__(self, index: Any) -> Any:
        values = self._values()
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            part = values[index]
            s = object.__new__(UntypedStorage)  # not kept by its root: the whole storage is
            s._meta_nbytes, s._bytes, s._root, s._resizable = 0, part, self._root, False
            return s
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        return int(values[self._element(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        values = self._values()
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise RuntimeError(f"can only set storage content with a int types, but got {type(value).__name__} instead")
        byte = int(value) & 0xFF
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            values[index] = byte
        elif hasattr(index, "__index__"):
            values[self._element(index)] = byte
        else:
            raise RuntimeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")

    def __repr__(self) -> str:
        return self._repr(f"torch.storage.UntypedStorage(device={self.device})")

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict) -> UntypedStorage:
        copies = memo.setdefault("torch", {})
        key = self._cdata
        if key not in copies:
            copies[key] = (self.clone(), self)  # keeping self alive keeps the key unique
        return copies[key][0]

    def __reduce__(self) -> Any:
        return _rebuild_untyped, (self._values().tobytes(),)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.size()

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        if self._root is None:
            return UntypedStorage(self._meta_nbytes, device="meta")
        memory = allocator.empty(self._bytes.shape, _U8)
        memory[:] = self._bytes
        return UntypedStorage._wrap(memory, memory)

    def copy_(self, source: StorageBase, non_blocking: bool = False) -> UntypedStorage:
        """Overwrite the bytes with those of `source`, which must have as many."""
        other = source.untyped()
        if other.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was {other.nbytes()} bytes"
            )
        if self._root is not None:
            self._values()[...] = other._values()
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte to `value`."""
        if not hasattr(value, "__index__"):
            raise TypeError(f"fill_ expects int, but got {type(value).__name__}")
        self._values()[...] = int(value) & 0xFF
        return self

    def resize_(self, size: int) -> UntypedStorage:
        """Change the number of bytes, keeping those that stay; tensors on the storage see the new memory when it grows.

        RuntimeError for memory that belongs to somebody else."""
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"resize_ expects an int, but got {type(size).__name__}")
        size = int(size)
        if size < 0:
            raise RuntimeError(f"resize_: the size must not be negative, got {size}")
        if not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable")
        if self._root is None:
            self._meta_nbytes = size
        elif size <= self._bytes.size:
            self._bytes = self._bytes[:size]  # the memory stays: tensors may be looking at all of it
        else:
            memory = _shared_memory(size) if self.is_shared() else allocator.empty((size,), _U8)
            memory[:self._bytes.size] = self._bytes
            self._move(memory)
        return self

    def _move(self, memory: np.ndarray) -> None:
        """Use `memory`, which holds what this storage's bytes did, and let every tensor on the storage see it."""
        import gc

        from .tensor import Tensor
        old, start = self._root, self._address()
        # By type: isinstance would ask every object of the process for its __class__, which some compute.
        views = [
            t
            for t in gc.get_objects()
            if issubclass(type(t), Tensor)
            and isinstance(getattr(t, "_a", None), np.ndarray)
            and _alive.get(id(root_of(t._a))) is self
        ]
        for key in [k for k, s in _alive.items() if s is self]:
            del _alive[key]
        self._set(memory, root_of(memory))
        for t in views:
            a = t._a
            if a.size:
                t._a = np.ndarray(a.shape, a.dtype, memory, _address(a) - start, a.strides)
            else:
                t._a = np.ndarray(a.shape, a.dtype, memory, 0, a.strides)
        del old

    def share_memory_(self, *args: Any, **kwargs: Any) -> UntypedStorage:
        """Move the bytes, in place, to memory that child processes made by fork share."""
        if not self.is_shared() and self._root is not None and self._bytes.size:
            memory = _shared_memory(self._bytes.size)
            memory[:] = self._bytes
            self._move(memory)
        return self

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """RuntimeError: page-locked memory needs an accelerator."""
        raise RuntimeError("Cannot access accelerator device when none is available.")

    def cpu(self) -> UntypedStorage:
        """This storage on the CPU: itself."""
        if self._root is None:
            raise NotImplementedError("Cannot copy out of meta storage; no data!")
        return self

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """RuntimeError: there is no CUDA backend."""
        raise _no_backend("cuda")

    def mps(self) -> UntypedStorage:
        """RuntimeError: there is no MPS backend."""
        raise _no_backend("mps")

    def hpu(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """RuntimeError: there is no HPU backend."""
        raise _no_backend("hpu")

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """The storage on `device`."""
        from .device import as_device
        where = as_device(device)
        if where == self.device:
            return self
        return UntypedStorage(self.size(), device="meta") if where.type == "meta" else self.cpu()

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the class, or the elements converted to those of a storage class."""
        from .storage import class_dtype
        return "torch.storage.UntypedStorage" if dtype is None else self._cast(class_dtype(dtype).name)

    def byteswap(self, dtype: dtype) -> None:
        """Reverse the bytes of each element of `dtype`, in place."""
        size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        values = self._values()
        if values.size % size:
            raise RuntimeError(f"the storage's {values.size} bytes are not a multiple of the element size {size}")
        values.view(f"u{size}").byteswap(inplace=True)

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0,
                    dtype: Any = None) -> UntypedStorage:
        """A copy of the bytes of `buffer` from byte `offset` on, `count` elements of `dtype` (all if -1), to native
        byte order."""
        d = dtypes.by_name("uint8") if dtype is None else dtype
        view = memoryview(buffer).cast("B")
        size = d.itemsize
        if size > 1 and byte_order is None:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        if byte_order not in (None, "native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        if offset < 0 or offset > len(view):
            raise ValueError(
                f"offset must be non-negative and no greater than buffer length ({len(view)}), but got {offset}"
            )
        if count < 0:
            if (len(view) - offset) % size:
                raise ValueError(f"buffer size ({len(view)}) must be a multiple of element size ({size})")
            count = (len(view) - offset) // size
        if offset + count * size > len(view):
            raise ValueError(
                f"buffer has only {len(view) - offset} elements after offset {offset}, but specified a size of {count}"
            )
        memory = np.frombuffer(view, np.uint8, count * size, offset).copy()
        storage = cls._wrap(memory, memory)
        if size > 1 and byte_order not in (None, "native", sys.byteorder):
            storage.byteswap(d)
        return storage

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file, mapped; with `shared` writes go to the file, which is grown if needed."""
        import mmap
        import os
        if nbytes <= 0:
            return cls(0)
        with open(filename, "a+b" if shared else "rb") as f:
            have = os.fstat(f.fileno()).st_size
            if have < nbytes:
                if not shared:
                    raise RuntimeError(f"file '{filename}' has {have} bytes, but {nbytes} were asked for")
                f.truncate(nbytes)
            if shared:
                mapped = _shared_map()(f.fileno(), nbytes, access=mmap.ACCESS_WRITE)
                mapped.anonymous = False
            else:
                mapped = mmap.mmap(f.fileno(), nbytes, access=mmap.ACCESS_COPY)
        memory = np.frombuffer(mapped, np.uint8)
        return cls._wrap(memory, memory)


def _rebuild_untyped(data: bytes) -> UntypedStorage:
    return UntypedStorage.from_buffer(data)


_add_casts()
