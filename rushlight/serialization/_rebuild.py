"""The functions that make tensors from what a checkpoint says of them: PyTorch's `torch._utils._rebuild_*`.

Their names and arguments are part of the file format. Every size, stride and offset is checked against the storage's
bytes.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ..backends.meta import MetaArray, contiguous_strides
from ..backends.sparse import SparseArray, SparseCOO
from ..core import dtype as dtypes
from ..core.storage import StorageBase, TypedStorage, UntypedStorage, from_storage, storage_of
from ..core.tensor import Tensor, wrap

__all__: list[str] = []


def brief(value: Any) -> str:
    """A short text for a value from a file. Containers show their type only: their text may be exponentially long."""
    if isinstance(value, (str, bytes, int, float, bool, type(None))):
        text = repr(value[:80] if isinstance(value, (str, bytes)) else value)
        return text[:80]
    name = getattr(value, "__qualname__", None)
    return name[:80] if type(name) is str else type(value).__qualname__


def brief_id(pid: Any) -> str:
    """A short text for the kind of a persistent id."""
    return brief(pid[0] if isinstance(pid, tuple) and pid else pid)


def _ints(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or any(type(v) is not int for v in values):
        raise TypeError(f"a tensor's {what} must be a tuple of ints, got {brief(values)}")
    return tuple(values)


def _tensor(untyped: UntypedStorage, d: dtypes.dtype, offset: Any, size: Any, stride: Any) -> Tensor:
    if type(offset) is not int:
        raise TypeError(f"a tensor's storage offset must be an int, got {type(offset).__name__}")
    return wrap(from_storage(untyped, d.np, offset, _ints(size, "size"), _ints(stride, "stride")))


def _with_metadata(tensor: Tensor, metadata: Any) -> Tensor:
    """Applies the conjugate and negative bits, which views here do not have: the values are computed."""
    if metadata is None:
        return tensor
    if not isinstance(metadata, dict):
        raise TypeError(f"a tensor's metadata must be a dict, got {type(metadata).__name__}")
    if metadata.get("conj"):
        tensor = wrap(np.conjugate(tensor._a))
    if metadata.get("neg"):
        tensor = wrap(np.negative(tensor._a))
    return tensor


def _finish(tensor: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    tensor = _with_metadata(tensor, metadata)
    return tensor.requires_grad_() if requires_grad else tensor


def _typed(storage: Any) -> TypedStorage:
    if isinstance(storage, UntypedStorage):
        return TypedStorage(wrap_storage=storage, dtype=dtypes.by_name("uint8"), _internal=True)
    if type(storage) is not TypedStorage:
        raise TypeError(f"a tensor needs a storage, got {type(storage).__name__}")
    return storage


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    typed = _typed(storage)
    return _tensor(typed.untyped(), typed.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool,
                       backward_hooks: Any, metadata: Any = None) -> Tensor:
    return _finish(_rebuild_tensor(storage, storage_offset, size, stride), requires_grad, metadata)


def _rebuild_tensor_v3(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool,
                       backward_hooks: Any, dtype: Any, metadata: Any = None) -> Tensor:
    if not isinstance(storage, StorageBase):
        raise TypeError(f"a tensor needs a storage, got {type(storage).__name__}")
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"a tensor's dtype must be a torch.dtype, got {type(dtype).__name__}")
    return _finish(_tensor(storage.untyped(), dtype, storage_offset, size, stride), requires_grad, metadata)


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"a tensor's dtype must be a torch.dtype, got {type(dtype).__name__}")
    size, stride = _ints(size, "size"), _ints(stride, "stride")
    if any(n < 0 for n in (*size, *stride)) or len(size) != len(stride):
        raise RuntimeError(f"cannot make a meta tensor of sizes {list(size)} and strides {list(stride)}")
    item = dtype.np.itemsize
    return _finish(wrap(MetaArray(size, dtype.np, tuple(s * item for s in stride))), requires_grad, None)


def _parameter_type() -> Any:
    from ..nn.parameter import Parameter
    return Parameter


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    if not isinstance(data, Tensor):
        raise TypeError(f"a Parameter needs a tensor, got {type(data).__name__}")
    return _parameter_type()(data, bool(requires_grad))


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    return set_state(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    result = func(*args)
    if type(result) is not new_type:
        if not (isinstance(new_type, type) and issubclass(new_type, Tensor) and isinstance(result, Tensor)):
            raise TypeError(f"cannot make a {brief(new_type)} of a {type(result).__name__}")
        result = result.as_subclass(new_type)
    own = getattr(type(result), "__setstate__", None)
    if own is not None:
        own(result, state)
        return result
    return set_state(result, state)


def set_state(obj: Any, state: Any) -> Any:
    """Gives `obj` the attributes that a checkpoint lists: a dict, or a dict of these and one of slots."""
    if state is None:
        return obj
    slots: Any = None
    if isinstance(state, tuple):
        if len(state) != 2:
            raise RuntimeError(
                f"Invalid serialized state: expected a dict or a pair of dicts, got a tuple of {len(state)}"
            )
        state, slots = state
    for attributes in (state, slots):
        if attributes is not None and not (isinstance(attributes, dict) and all(type(k) is str for k in attributes)):
            raise RuntimeError(f"Invalid serialized state: expected a dict with names, got {type(attributes).__name__}")
    if state:
        obj.__dict__.update(state)
    if slots:
        known = {s for c in type(obj).__mro__ if not c.__module__.startswith("rushlight.core")
                 for s in getattr(c, "__slots__", ())}
        for name, value in slots.items():
            if name not in known:
                raise RuntimeError(f"Invalid serialized state: {type(obj).__name__} has no slot {brief(name)}")
            setattr(obj, name, value)
    return obj


def set_tensor_state(tensor: Tensor, state: Any) -> None:
    """The state of tensors and Parameters in files of PyTorch 0.1 to 0.3."""
    if not isinstance(state, tuple):
        raise TypeError(f"a tensor's state must be a tuple, got {type(state).__name__}")
    if len(state) == 4 and isinstance(state[0], StorageBase):
        tensor._a = _rebuild_tensor(*state)._a
    elif len(state) == 5 and isinstance(state[0], Tensor):  # data, grad, hooks, requires_grad, volatile
        tensor._a = state[0]._a
        tensor.requires_grad_(bool(state[3]))
    elif len(state) == 3:  # requires_grad, volatile, hooks
        tensor.requires_grad_(bool(state[0]))
    else:
        raise RuntimeError(f"Invalid serialized state of a tensor: a tuple of {len(state)}")


def _rebuild_device_tensor_from_numpy(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """Tensors of devices without storages (XLA and the like), which are written as NumPy arrays."""
    if not isinstance(data, np.ndarray) or not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"expected an array and a dtype, got {type(data).__name__} and {type(dtype).__name__}")
    return _finish(wrap(np.array(data, dtype=dtype.np)), requires_grad, None)


def _rebuild_device_tensor_from_cpu_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    if not isinstance(data, Tensor) or not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"expected a tensor and a dtype, got {type(data).__name__} and {type(dtype).__name__}")
    return _finish(wrap(data._a.astype(dtype.np)), requires_grad, None)


def _unsupported(what: str) -> Any:
    def refuse(*args: Any) -> Any:
        raise RuntimeError(f"the checkpoint holds a {what} tensor, which Rushlight does not have")
    return refuse


class _Unchecked(threading.local):
    """The sparse tensors of a file that is being read: an old file has their indices after the pickle."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []


_unchecked = _Unchecked()


def check_sparse() -> None:
    """After a file was read: RuntimeError for a sparse tensor whose indices do not fit its sizes."""
    from ..ops.sparse import check
    tensors, _unchecked.tensors = _unchecked.tensors, []
    for t in tensors:
        check(t._a)


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    """A sparse tensor of its parts, which `check_sparse` looks at when the whole file has been read. Of parts on the meta device
    it is what `.to("meta")` makes of one: a meta tensor without a pattern."""
    t = _sparse_tensor(layout, data)
    if isinstance(t._a, SparseArray):
        _unchecked.tensors.append(t)
    return t


def _dense_meta(values: Tensor, size: Any) -> Tensor:
    size = _ints(size, "size")
    return _rebuild_meta_tensor_no_storage(values.dtype, size, contiguous_strides(size, 1), False)


def _sparse_tensor(layout: Any, data: Any) -> Tensor:
    from ..ops import function
    name = getattr(layout, "name", None)
    if not isinstance(data, tuple) or not all(isinstance(t, Tensor) for t in data[:2]):
        raise TypeError(f"expected the parts of a sparse tensor, got {type(data).__name__}")
    if name == "sparse_coo":
        indices, values, size, *coalesced = data
        if values.device.type == "meta":
            return _dense_meta(values, size)
        return function("sparse_coo_tensor")(indices, values, tuple(size), check_invariants=False, is_coalesced=coalesced[0] if coalesced else None)
    if name not in ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")
    ends, plain, values, size = data
    if isinstance(values, Tensor) and values.device.type == "meta":
        return _dense_meta(values, size)
    return function("sparse_compressed_tensor")(ends, plain, values, tuple(size), layout=layout, check_invariants=False)


_rebuild_qtensor = _unsupported("quantized")
_rebuild_nested_tensor = _unsupported("nested")
_rebuild_wrapper_subclass = _unsupported("wrapper subclass")


def _get_layout(name: str) -> Any:
    """The layout called `name` ("torch.strided")."""
    from ..core import layout
    found = getattr(layout, name.rpartition(".")[2], None) if isinstance(name, str) else None
    if not isinstance(found, layout.layout):
        raise RuntimeError(f"unknown layout {brief(name)}")
    return found


def reduce_storage(tensor: Tensor) -> tuple[Any, tuple]:
    """The function and the arguments that make `tensor` again (without its subclass and attributes)."""
    from collections import OrderedDict
    a = tensor._a
    d = tensor.dtype
    requires_grad = bool(tensor.requires_grad)
    size, stride = tuple(tensor.shape), tuple(tensor.stride())
    if isinstance(a, SparseArray):
        values = wrap(a.values)
        if isinstance(a, SparseCOO):
            return _rebuild_sparse_tensor, (tensor.layout, (wrap(a.indices), values, tensor.shape, a.coalesced))
        return _rebuild_sparse_tensor, (tensor.layout, (wrap(a.ends), wrap(a.plain), values, tensor.shape))  # type: ignore[attr-defined]
    if not isinstance(a, np.ndarray):
        return _rebuild_meta_tensor_no_storage, (d, size, stride, requires_grad)
    if any(s < 0 for s in a.strides):
        a = a.copy()
        stride = tuple(s // a.itemsize for s in a.strides)
    untyped = storage_of(a)
    offset = 0 if untyped.nbytes() == 0 else (a.__array_interface__["data"][0] - untyped._address()) // a.itemsize
    typed = TypedStorage(wrap_storage=untyped, dtype=d, _internal=True)
    try:
        typed.pickle_storage_type()
    except KeyError:  # dtypes newer than the storage classes
        return _rebuild_tensor_v3, (untyped, offset, size, stride, requires_grad, OrderedDict(), d)
    return _rebuild_tensor_v2, (typed, offset, size, stride, requires_grad, OrderedDict())


def attributes_of(obj: Any) -> Any:
    """What the user has set on a tensor: its `__dict__`, with the slots of its subclasses where they have any; or
    None."""
    slots = {}
    for c in type(obj).__mro__:
        if c.__module__.startswith("rushlight.core") or c is object:
            continue
        names = c.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                slots[name] = getattr(obj, name)
    own = {k: v for k, v in obj.__dict__.items() if not k.startswith("_backward_hooks")}
    return (own, slots) if slots else own or None
