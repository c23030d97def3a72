"""Writing objects: pickles in which storages stand apart and our classes have PyTorch's names."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.layout import layout
from ..core.storage import LEGACY_CLASSES, StorageBase, UntypedStorage
from ..core.tensor import Size, Tensor
from . import _rebuild
from ._names import to_file

__all__ = ["StorageTable", "dumps"]

# Objects of these types are frequent and never ours.
_PLAIN = frozenset({str, int, float, bool, type(None), tuple, list, dict, bytes})
_WRITTEN_HERE = _PLAIN | {Tensor}


class StorageTable:
    """The storages that a pickle refers to, by the key each gets in the file."""

    def __init__(
        self, location_tag: Callable[[Any], str], key: Callable[[int, UntypedStorage], str], legacy: bool
    ) -> None:
        self.storages: dict[str, UntypedStorage] = {}
        self.element_sizes: dict[str, int] = {}
        self._location_tag, self._key, self._legacy = location_tag, key, legacy
        self._keys: dict[int, str] = {}
        self._dtypes: dict[int, Any] = {}

    def persistent_id(self, storage: StorageBase) -> tuple:
        """What stands in the pickle for `storage`. RuntimeError if its bytes were already saved as another dtype."""
        untyped = storage.untyped()
        d = getattr(storage, "dtype", None)
        if d is None:
            kind: Any = UntypedStorage
            numel = untyped.nbytes()
        else:
            kind = LEGACY_CLASSES[storage.pickle_storage_type()]  # type: ignore[attr-defined]
            numel = storage.size()
        if untyped.nbytes():
            before = self._dtypes.setdefault(id(untyped), d)
            if before is not d:
                raise RuntimeError(
                    "Cannot save multiple tensors or storages that view the same data as different types: "
                    f"got {before or 'bytes'} and {d or 'bytes'}"
                )
        key = self._keys.get(id(untyped))
        if key is None:
            key = self._keys[id(untyped)] = self._key(len(self._keys), untyped)
            self.storages[key] = untyped
            self.element_sizes[key] = 1 if d is None else d.itemsize
        pid = ("storage", kind, key, self._location_tag(untyped), numel)
        return (*pid, None) if self._legacy else pid


def _reduce(obj: Any) -> Any:
    """How an object of ours is written, as `reducer_override` wants it; NotImplemented for all others."""
    if isinstance(obj, Tensor):
        return _reduce_tensor(obj)
    if isinstance(obj, dtype):
        return obj.name
    if isinstance(obj, device):
        return device, ((obj.type,) if obj.index is None else (obj.type, obj.index))
    if isinstance(obj, Size):
        return Size, (tuple(obj),)
    if isinstance(obj, layout):
        return _rebuild._get_layout, (repr(obj),)
    return NotImplemented


def _reduce_tensor(tensor: Tensor) -> Any:
    from collections import OrderedDict

    from ..nn.parameter import Parameter, is_lazy
    cls = type(tensor)
    if "__reduce_ex__" in cls.__dict__ and not cls.__module__.startswith("rushlight."):
        return NotImplemented  # the subclass says itself how
    if is_lazy(tensor):
        return tensor.__reduce_ex__(2)
    state = _rebuild.attributes_of(tensor)
    if cls is Parameter:
        data = tensor.detach()
        if state is None:
            return _rebuild._rebuild_parameter, (data, tensor.requires_grad, OrderedDict())
        return _rebuild._rebuild_parameter_with_state, (data, tensor.requires_grad, OrderedDict(), state)
    function, args = _rebuild.reduce_storage(tensor)
    if cls is Tensor and state is None:
        return function, args
    return _rebuild._rebuild_from_type_v2, (function, cls, args, state)


def _int(n: int) -> bytes:
    if 0 <= n < 1 << 8:
        return pickle.BININT1 + n.to_bytes(1, "little")
    if 0 <= n < 1 << 16:
        return pickle.BININT2 + n.to_bytes(2, "little")
    if n < 1 << 31:
        return pickle.BININT + n.to_bytes(4, "little", signed=True)
    data = pickle.encode_long(n)
    return pickle.LONG1 + len(data).to_bytes(1, "little") + data


def _ints(values: tuple[int, ...]) -> bytes:
    end = {0: pickle.EMPTY_TUPLE, 1: pickle.TUPLE1, 2: pickle.TUPLE2, 3: pickle.TUPLE3}.get(len(values))
    items = b"".join(map(_int, values))
    return items + end if end is not None else pickle.MARK + items + pickle.TUPLE


_Base: Any = pickle._Pickler  # type: ignore[attr-defined]


class _Pickler(_Base):
    """Python's own pickler in Python, since the one in C checks that a global is importable under the name written."""

    def __init__(self, file: Any, protocol: int, table: StorageTable) -> None:
        super().__init__(file, protocol)
        self._table = table

    def persistent_id(self, obj: Any) -> Any:
        return self._table.persistent_id(obj) if isinstance(obj, StorageBase) else None

    def reducer_override(self, obj: Any) -> Any:
        return NotImplemented if obj.__class__ in _WRITTEN_HERE else _reduce(obj)

    def save_tensor(self, tensor: Tensor) -> None:
        """Writes a plain tensor as `_reduce` would, in fewer steps: most of a checkpoint is these."""
        reduced = _reduce_tensor(tensor)
        function, args = reduced
        if function is not _rebuild._rebuild_tensor_v2:
            self.save_reduce(*reduced, obj=tensor)
            return
        storage, offset, size, stride, requires_grad, hooks = args
        name, kind, key, tag, numel, *rest = self._table.persistent_id(storage)
        self.save(function)
        self.write(pickle.MARK + pickle.MARK)
        for part in (name, kind, key, tag):
            self.save(part)
        self.write(b"".join((_int(numel), pickle.NONE * len(rest), pickle.TUPLE, pickle.BINPERSID, _int(offset),
                             _ints(size), _ints(stride), pickle.NEWTRUE if requires_grad else pickle.NEWFALSE)))
        self.save(type(hooks))
        self.write(pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.TUPLE + pickle.REDUCE)
        self.memoize(tensor)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        where = to_file(obj, name)
        if where is None:
            super().save_global(obj, name)
        elif self.proto >= 4:
            self.save(where[0])
            self.save(where[1])
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        else:
            self.write(pickle.GLOBAL + where[0].encode() + b"\n" + where[1].encode() + b"\n")
            self.memoize(obj)

    dispatch = {**_Base.dispatch, FunctionType: save_global, Tensor: save_tensor}


def _by_other_module(obj: Any, module: Any, protocol: int, table: StorageTable) -> bytes:
    """With a pickle module of the user's (dill, cloudpickle): its Pickler writes everything except storages and
    tensors."""

    class OtherPickler(module.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            return table.persistent_id(obj) if isinstance(obj, StorageBase) else None

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type) and obj in LEGACY_CLASSES.values():  # these say that they are torch's
                return storage_class, (obj.__name__,)
            reduced = NotImplemented if obj.__class__ in _PLAIN else _reduce(obj)
            if isinstance(reduced, str):  # a dtype: a global, but not where such a pickler looks for it
                reduced = dtype_by_name, (reduced,)
            if reduced is NotImplemented and hasattr(super(), "reducer_override"):
                return super().reducer_override(obj)
            return reduced

    buffer = io.BytesIO()
    OtherPickler(buffer, protocol).dump(obj)
    return buffer.getvalue()


def dtype_by_name(name: str) -> dtype:
    """The dtype called `name`."""
    from ..core import dtype as dtypes
    return dtypes.by_name(name)


def storage_class(name: str) -> type:
    """The storage class called `name`: "FloatStorage"."""
    return LEGACY_CLASSES[name]


def dumps(obj: Any, protocol: int, table: StorageTable, pickle_module: Any = None) -> bytes:
    """The pickle of `obj`; its storages are entered in `table`."""
    if pickle_module is not None and pickle_module is not pickle:
        return _by_other_module(obj, pickle_module, protocol, table)
    buffer = io.BytesIO()
    _Pickler(buffer, protocol, table).dump(obj)
    return buffer.getvalue()
