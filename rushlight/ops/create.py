"""Making tensors."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import allocator
from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.device import as_device
from ..core.promotion import fitted, promote_types, require_fits
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from .creation import check_dtype
from .declare import composite, creation
from .generate import quietly

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Sizes = tuple[int, ...]


def _fill(size: Any, value: Any, dtype: D.dtype) -> np.ndarray:
    a = allocator.empty(tuple(size), dtype.np)
    a.fill(value if value.__class__ is int and 0 <= value <= 1 else fitted(value, dtype))
    return a


@creation()
def zeros(size: Sizes, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Zeros, in the default dtype."""
    return allocator.zeros(size, dtype.np) if hasattr(allocator, "zeros") else _fill(size, 0, dtype)


@creation()
def ones(size: Sizes, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Ones, in the default dtype."""
    return _fill(size, 1, dtype)


@creation()
def empty(
    size: Sizes, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Memory as it comes, in the default dtype."""
    return layout_like(tuple(size), None, dtype, memory_format)


@creation(result=lambda size, fill_value: D.number_dtype(fill_value))
def full(
    size: tuple, fill_value: Number, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """`fill_value` everywhere; its type gives the dtype."""
    return _fill(_sizes(size), fill_value, dtype)


full.shape(lambda size, fill_value: _sizes(size))


def _sizes(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(int(s) for s in size)


@creation()
def empty_strided(
    size: tuple, stride: tuple, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """Memory as it comes, with the given strides."""
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    n = 1 + sum((s - 1) * st for s, st in zip(size, stride, strict=True)) if all(size) else 0
    base = allocator.empty((n,), dtype.np)
    return (
        np.lib.stride_tricks.as_strided(base, size, [s * dtype.itemsize for s in stride])
        if n
        else np.empty(size, dtype.np)
    )


empty_strided.shape(lambda size, stride: size)


def layout_like(shape: tuple[int, ...], like: Any, dtype: D.dtype, memory_format: Any = None) -> np.ndarray:
    """An uninitialised array laid out as `memory_format` says; "preserve" keeps the order of a dense `like`."""
    name = getattr(memory_format, "name", "preserve_format" if like is not None else "contiguous_format")
    if name == "preserve_format" and like.__class__ is np.ndarray and not like.flags.c_contiguous and dense(like):
        order = sorted(range(like.ndim), key=lambda i: (-like.strides[i], i))
        a = allocator.empty(tuple(shape[i] for i in order), dtype.np)
        return a.transpose([order.index(i) for i in range(like.ndim)])
    if name in ("channels_last", "channels_last_3d"):
        order = [0, *range(2, len(shape)), 1]
        a = allocator.empty(tuple(shape[i] for i in order), dtype.np)
        return a.transpose([order.index(i) for i in range(len(shape))])
    return allocator.empty(shape, dtype.np)


def meta_like(like: Any, dtype: D.dtype, memory_format: Any = None) -> MetaArray:
    """What `layout_like` gives in the shape of `like`, without memory."""
    shape, n = tuple(like.shape), dtype.itemsize
    name = getattr(memory_format, "name", "preserve_format")
    if name == "preserve_format" and dense(like):
        return MetaArray(shape, dtype.np, tuple(s // like.itemsize * n for s in like.strides))
    if name in ("channels_last", "channels_last_3d"):
        from ..core.layout import strides_for

        return MetaArray(shape, dtype.np, strides_for(shape, n, memory_format))
    return MetaArray(shape, dtype.np)


def dense(a: Any) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in some order of the dimensions."""
    step = a.itemsize
    for s, n in sorted((s, n) for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
        if s != step:
            return False
        step *= n
    return True


LIKE = (
    "input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None"
)


def _like_shape(input, **kw):
    return input.shape


@creation()
def empty_like(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Memory as it comes, in the shape and dtype of `input`."""
    return layout_like(input.shape, input, dtype, memory_format)


@creation()
def zeros_like(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Zeros in the shape and dtype of `input`."""
    if memory_format is None and (input.__class__ is MetaArray or input.flags.c_contiguous):
        return allocator.zeros(input.shape, dtype.np) if hasattr(allocator, "zeros") else _fill(input.shape, 0, dtype)
    a = layout_like(input.shape, input, dtype, memory_format)
    a.fill(0)
    return a


@creation()
def ones_like(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Ones in the shape and dtype of `input`."""
    a = layout_like(input.shape, input, dtype, memory_format)
    a.fill(1)
    return a


@creation()
def full_like(
    input: Tensor,
    fill_value: Number,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    memory_format=None,
):
    """`fill_value` in the shape and dtype of `input`."""
    a = layout_like(input.shape, input, dtype, memory_format)
    a.fill(fitted(fill_value, dtype))
    return a


for _op in (empty_like, zeros_like, ones_like, full_like):
    _op.shape(_like_shape)


def _new(name: str, doc: str, value: bool = False) -> None:
    if value:

        def body(
            input: Tensor,
            size: tuple,
            fill_value: Number,
            *,
            dtype=None,
            layout=None,
            device=None,
            pin_memory=False,
            requires_grad=False,
        ):
            return hooks.function("full")(
                _sizes(size),
                fill_value,
                dtype=dtype or input.dtype,
                device=device or input.device,
                requires_grad=requires_grad,
            )
    else:

        def body(
            input: Tensor, size: Sizes, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
        ):
            return hooks.function(name[4:])(
                size, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad
            )

    body.__name__, body.__doc__ = name, doc
    composite(body, ns="Tensor", method=True)


_new("new_zeros", "Zeros of the tensor's dtype and device.")
_new("new_ones", "Ones of the tensor's dtype and device.")
_new("new_empty", "Memory as it comes, of the tensor's dtype and device.")
_new("new_full", "`fill_value` everywhere, in the tensor's dtype and device.", True)


@composite(ns="Tensor", method=True)
def new_tensor(
    input: Tensor, data: Any, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False
):
    """A tensor from data, of this tensor's dtype and device."""
    return tensor(data, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


def _new_method(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """The old constructor: sizes or data, of this tensor's dtype."""
    if not args:
        return hooks.function("empty")(0, dtype=self.dtype)
    if len(args) == 1 and not isinstance(args[0], int):
        a = args[0]
        if a.__class__.__name__ == "Size":
            return hooks.function("empty")(tuple(a), dtype=self.dtype)
        return a.to(self.dtype) if isinstance(a, T) else tensor(a, dtype=self.dtype)
    return hooks.function("empty")(args, dtype=self.dtype)


T.new = _new_method  # type: ignore[attr-defined]


@creation()
def eye(n: int, m: int | None = None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """The identity: n rows, m columns (n by default)."""
    for k, x in (("n", n), ("m", m)):
        if x is not None and x < 0:
            raise RuntimeError(f"{k} must be greater or equal to 0, got {x}")
    return np.eye(n, m, dtype=dtype.np) if dtype.np.kind in "biufc" else np.eye(n, m, dtype="f").astype(dtype.np)


eye.shape(lambda n, m: (n, n if m is None else m))


def _range_dtype(start, end, step):
    xs = [x for x in (start, end, step) if x is not None]
    return D.int64 if all(isinstance(x, int) for x in xs) else D.default[0]


def _arange_args(start, end, step):
    if start is None and end is None:
        raise TypeError('arange() missing 1 required positional arguments: "end"')
    if end is None or start is None:
        start, end = 0, start if end is None else end
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not all(math.isfinite(x) for x in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if all(isinstance(x, int) for x in (start, end, step)):
        n = -((start - end) // step)
    else:
        n = math.ceil((float(end) - float(start)) / float(step))
    if n >= 2**60:                  # more bytes than an address has
        raise RuntimeError(f"invalid size, possible overflow? {n} elements from {start} to {end} in steps of {step}")
    return start, end, n


@creation(result=_range_dtype)
def arange(
    start: Number | None = None,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """start, start + step, ... below end: ceil((end - start) / step) values; `arange(end)` starts at 0. Integers give
    int64."""
    if dtype is D.bool_:
        raise NotImplementedError("\"arange_cpu\" not implemented for 'Bool'")
    if dtype.category == D.INTEGER:
        start, end, step = (x if x is None else int(x) for x in (start, end, step))
    start, _, n = _arange_args(start, end, step)
    if dtype.category <= D.INTEGER:
        return (np.arange(n, dtype=np.int64) * int(step) + int(start)).astype(dtype.np)
    r = np.arange(n, dtype=np.float64) * step + start
    return r.astype(dtype.np)


arange.shape(lambda start, end, step: (_arange_args(start, end, step)[2],))


@creation(result=lambda start, end, step: D.default[0], name="range")
def range_(
    start: Number,
    end: Number,
    step: Number = 1,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """start, start + step, ... up to and including end. Deprecated: use `arange`."""
    import warnings

    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. "
        "Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=5,
    )
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    n = math.floor((end - start) / step) + 1
    return (np.arange(n, dtype=np.float64) * step + start).astype(dtype.np)


def _steps(steps: Any) -> int:
    if steps is None:
        steps = 100
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    return int(steps)


@creation(
    result=lambda start, end, steps: (
        D.default_complex() if isinstance(start, complex) or isinstance(end, complex) else D.default[0]
    )
)
def linspace(
    start: Number,
    end: Number,
    steps: int = 100,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """`steps` points at even distance from `start` to `end`, both included."""
    n = _steps(steps)
    if n == 1:
        return np.array([start]).astype(dtype.np)
    if dtype.category == D.INTEGER:
        start, end = int(start), int(end)
    # from both ends, as PyTorch: the middle is where the halves meet
    ct = (
        dtype.np
        if dtype.np.kind in "fc" and dtype.itemsize >= 4
        else np.dtype("float32" if dtype.category == D.FLOAT else "float64")
    )
    s, e = ct.type(start), ct.type(end)
    step = (e - s) / ct.type(max(n - 1, 1))
    i = np.arange(n)
    low = s + step * i.astype(ct if ct.kind == "f" else "float64").astype(ct)
    high = e - step * (n - 1 - i).astype(ct)
    return np.where(i < n // 2, low, high).astype(dtype.np)


linspace.shape(lambda start, end, steps: (_steps(steps),))


@creation(result=lambda start, end, steps, base: D.default[0])
def logspace(
    start: Number,
    end: Number,
    steps: int = 100,
    base: float = 10.0,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """`steps` points from base**start to base**end, evenly in the exponent."""
    e = np.linspace(start, end, _steps(steps)) if _steps(steps) != 1 else np.array([float(start)])
    return np.power(float(base), e).astype(dtype.np)


logspace.shape(lambda start, end, steps, base: (_steps(steps),))


# --- from data --------------------------------------------------------------------------------------------------------
def _array_of(data: Any, dtype: D.dtype | None) -> np.ndarray:
    """A new array with the elements of numbers, nested sequences, arrays or tensors; the dtype as PyTorch infers it."""
    if isinstance(data, T):
        a = data._a if data._a.__class__ is np.ndarray else None
        if a is None:
            raise NotImplementedError("cannot copy out of a meta tensor: it has no data")
        return a.astype((dtype or data.dtype).np, order="C") if dtype else a.copy(order="C")
    if isinstance(data, np.ndarray):
        d = D.of(data.dtype)
        return np.array(data, dtype=(dtype or d).np, order="C")
    if isinstance(data, np.generic):
        return np.array(data, dtype=(dtype or D.of(data.dtype)).np)
    if isinstance(data, bool):
        return np.array(data, dtype=(dtype or D.bool_).np)
    if isinstance(data, (int, float, complex)):
        return _flat_array([data], dtype or D.number_dtype(data)).reshape(())
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if hasattr(data, "__array_interface__") or hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return _array_of(np.asarray(data), dtype)
    if _is_sequence(data):
        return _from_sequence(data, dtype)
    raise (RuntimeError if dtype is None else TypeError)(f"Could not infer dtype of {type(data).__name__}")


def _flat_array(flat: list[Any], d: D.dtype) -> np.ndarray:
    """Numbers as a vector. TypeError for what is no number and complex numbers in real dtypes, ValueError for integers beyond 64 bits,
    RuntimeError for integers that the dtype cannot hold."""
    for k in set(map(type, flat)):
        if not issubclass(k, (int, float, complex, np.generic)):
            raise TypeError(f"must be real number, not {k.__name__}")
        if issubclass(k, (complex, np.complexfloating)) and d.category < D.COMPLEX and d is not D.bool_:
            raise TypeError(f"must be real number, not {k.__name__} (for a tensor of {d!r})")
    if d.category != D.INTEGER:
        return np.array(flat, dtype=d.np) if d.np.kind in "bfc" else D.saturated(np.array(flat, dtype=np.float64), d).astype(d.np)
    if any([isinstance(x, (float, np.floating)) for x in flat]):
        for x in flat:
            require_fits(x, d)
        return np.array([int(x) for x in flat], dtype=d.np)
    i = D.iinfo(d)
    for x in (min(flat, default=0), max(flat, default=0)):
        if not (-(2**63) <= x < 2**63 or d.itemsize == 8 and not d.is_signed and 0 <= x < 2**64):
            raise ValueError(f"Overflow when unpacking long long: {x} has more than 64 bits (for a tensor of {d!r})")
        if not i.min <= x <= i.max:
            if d.itemsize == 8:
                raise OverflowError(f"can't convert negative int to unsigned: {x} (for a tensor of {d!r})")
            require_fits(x, d)
            return np.array([int(x) & (2 ** (8 * d.itemsize) - 1) for x in flat], dtype=d.np)      # negative numbers, unsigned
    return np.array(flat, dtype=d.np)


def _is_sequence(x: Any) -> bool:
    """Whether `x` has elements in an order: a list, a tuple, a range, ... but no tensor, array, text or mapping."""
    return not isinstance(x, (T, np.ndarray, np.generic, str, bytes, dict)) and hasattr(x, "__len__") and hasattr(x, "__getitem__")


def _from_sequence(data: Any, dtype: D.dtype | None) -> np.ndarray:
    shape: list[int] = []
    x = data
    while _is_sequence(x):
        shape.append(len(x))
        if len(x) == 0:
            break
        x = x[0]
    flat: list[Any] = []
    tensors = arrays = False

    def walk(x: Any, level: int) -> None:
        nonlocal tensors, arrays
        if level == len(shape):
            if isinstance(x, T):
                tensors = True
                flat.append(x)
            elif isinstance(x, (str, bytes)):
                raise ValueError(f"too many dimensions '{type(x).__name__}'")
            elif isinstance(x, np.ndarray):
                arrays = True
                flat.append(x)
            elif _is_sequence(x):
                raise TypeError(f"'{type(x).__name__}' object cannot be interpreted as a number: the elements at dim {level} are no sequences")
            else:
                flat.append(x)
            return
        if not hasattr(x, "__len__") or isinstance(x, (T, np.ndarray)) and x.ndim == 0:
            raise TypeError(f"not a sequence: expected one of length {shape[level]} at dim {level}, got {type(x).__name__}")
        if len(x) != shape[level]:
            raise ValueError(f"expected sequence of length {shape[level]} at dim {level} (got {len(x)})")
        for y in x:
            walk(y, level + 1)

    walk(data, 0)
    if arrays:
        parts = [np.asarray(y._a if isinstance(y, T) else y) for y in flat]
        if any(p.shape != parts[0].shape for p in parts):
            raise ValueError(
                "only one element tensors can be converted to Python scalars"
                if any(p.size > 1 for p in parts)
                else "expected arrays of one shape"
            )
        d = dtype or D.of(parts[0].dtype)
        return np.array(parts).astype(d.np).reshape((*shape, *parts[0].shape))
    if tensors:
        for y in flat:
            if not isinstance(y, (T, int, float, complex, np.generic)):
                raise RuntimeError(f"Could not infer dtype of {type(y).__name__}")
            if isinstance(y, T) and y.numel() != 1:
                raise ValueError(f"only one element tensors can be converted to Python scalars, got one of shape {list(y.shape)}: use stack()")
        kinds = {y.dtype if isinstance(y, T) else D.of(y.dtype) if isinstance(y, np.generic) else D.number_dtype(y) for y in flat}
        return _flat_array([y.item() if isinstance(y, T) else y for y in flat], dtype or reduce(promote_types, kinds)).reshape(shape)
    if dtype is None:
        kinds = set(map(type, flat))
        for k in kinds:
            if not issubclass(k, (int, float, complex, np.generic)):
                raise RuntimeError(f"Could not infer dtype of {k.__name__}")
        if any(issubclass(k, (complex, np.complexfloating)) for k in kinds):
            dtype = D.default_complex() if not any(k is np.complex128 for k in kinds) else D.ALL["complex128"]
        elif any(issubclass(k, np.floating) for k in kinds):
            dtype = D.of(np.result_type(*[np.dtype(k) for k in kinds if issubclass(k, np.generic)]))
        elif any(issubclass(k, float) for k in kinds) or not flat:
            dtype = D.default[0]
        elif any(issubclass(k, (int, np.integer)) and not issubclass(k, bool) for k in kinds):
            dtype = D.int64
        else:
            dtype = D.bool_
    return _flat_array(flat, dtype).reshape(shape)


@composite(data_source="python")
def tensor(data: Any, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A copy of data: numbers, nested sequences, arrays. int64 for integers, the default dtype for floats, bool for
    bools unless `dtype` says.
    ValueError for ragged lists, TypeError for text."""
    check_dtype("tensor", dtype)
    if not isinstance(requires_grad, bool):
        raise TypeError(f"tensor(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
    if isinstance(data, T):
        import warnings

        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=4,
        )
    if pin_memory:
        raise RuntimeError("Cannot access accelerator device when none is available: pin_memory=True needs one")
    a: Any = quietly(_array_of, data, dtype)
    if as_device(device).type == "meta":
        a = MetaArray(a.shape, a.dtype)
    t = wrap(a)
    return t.requires_grad_() if requires_grad else t


@composite()
def scalar_tensor(s: Any, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A 0-dim tensor in the default dtype."""
    return tensor(s, dtype=dtype or D.default[0], device=device, requires_grad=requires_grad)


@composite(ns="torch", data_source="python")
def from_numpy(ndarray: Any):
    """A tensor on the memory of an array. TypeError for what is no array and for types that tensors do not have."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    D.of(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. "
            "(You can probably work around this by making a copy of your array  with array.copy().)"
        )
    if ndarray.size and any(s % ndarray.itemsize for s in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the "
            "memory."
        )
    if not ndarray.flags.writeable:
        import warnings

        warnings.warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means "
            "writing to this tensor "
            "will result in undefined behavior.",
            UserWarning,
            stacklevel=4,
        )
    from ..core.storage import borrowed

    return wrap(borrowed(ndarray))


@composite(ns="torch")
def from_dlpack(ext_tensor: Any):
    """A tensor on the memory of what has `__dlpack__` (a tensor or an array of another library on the CPU), or of a DLPack capsule,
    which can be taken once. BufferError for memory that may not be written to or is another device's."""
    from ..backends.cpu import dlpack

    if isinstance(ext_tensor, T):
        ext_tensor.__dlpack__()                                    # its refusals
        return ext_tensor.detach()
    if type(ext_tensor).__name__ == "PyCapsule":
        a, name = dlpack.from_capsule(ext_tensor)
    elif hasattr(ext_tensor, "__dlpack__"):
        a, name = dlpack.imported(ext_tensor)
    else:
        raise TypeError(f"from_dlpack() wants an object with __dlpack__ or a DLPack capsule, got {type(ext_tensor).__name__}")
    t = from_numpy(a)
    return t if name is None else t.view(D.ALL[name])


@composite(ns="torch")
def to_dlpack(input: Tensor):
    """A DLPack capsule of the tensor's memory, for one consumer. BufferError for a tensor that requires grad."""
    return input.__dlpack__()


def _dlpack(self: Any, **kw: Any) -> Any:
    """The tensor's memory for other libraries. BufferError for one that requires grad: `detach()` it first."""
    from ..backends.cpu import dlpack

    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self._a.__class__ is not np.ndarray:
        raise BufferError(f"can't export a tensor on {self.device} in layout {self.layout}")
    kw.pop("stream", None)
    return dlpack.export(self._a, self.dtype.name, **kw)


T.__dlpack__ = _dlpack  # type: ignore[attr-defined]
T.__dlpack_device__ = lambda self: (1, 0)  # type: ignore[attr-defined]


@composite(aliases=())
def as_tensor(data: Any, dtype=None, device=None):
    """`data` as a tensor: itself or on its memory if it can be, else a copy."""
    check_dtype("as_tensor", dtype)
    if isinstance(data, T):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if type(data) is np.ndarray and all(s >= 0 for s in data.strides) and (dtype is None or D.of(data.dtype) is dtype):
        t = from_numpy(data)
        return t if device is None else t.to(device)
    return tensor(data, dtype=dtype, device=device)


@composite(data_source="python")
def asarray(obj: Any, *, dtype=None, device=None, copy=None, requires_grad=False):
    """`obj` as a tensor, sharing its memory if `copy` is not True and it can be; with copy=False a ValueError where it
    cannot."""
    if copy:
        t = (
            tensor(obj.detach() if isinstance(obj, T) else obj, dtype=dtype, device=device)
            if not isinstance(obj, T)
            else obj.detach().clone().to(dtype or obj.dtype)
        )
    else:
        t = as_tensor(obj, dtype, device)
        if copy is False and not isinstance(obj, (T, np.ndarray)):
            raise ValueError("can't alias arbitrary sequence into a tensor.")
    if isinstance(obj, T) and not requires_grad and t.requires_grad:
        t = t.detach()
    return t.requires_grad_() if requires_grad else t


@composite(data_source="python")
def frombuffer(buffer: Any, *, dtype, count: int = -1, offset: int = 0, requires_grad=False):
    """A 1-D tensor on the memory of a Python buffer."""
    mv = memoryview(buffer)
    size = dtype.itemsize
    if mv.nbytes == 0 or count == 0:
        raise ValueError(f"both buffer length ({mv.nbytes}) and count ({count}) must not be 0")
    if not 0 <= offset < mv.nbytes:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({mv.nbytes} bytes) minus "
            "1"
        )
    if count < 0 and (mv.nbytes - offset) % size:
        raise ValueError(
            f"buffer length ({mv.nbytes - offset} bytes) after offset ({offset} bytes) must be a multiple of element "
            f"size ({size})"
        )
    if count > 0 and offset + count * size > mv.nbytes:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than "
            "actual buffer length "
            f"({mv.nbytes} bytes)"
        )
    t = wrap(np.frombuffer(mv, dtype.np, count, offset))
    return t.requires_grad_() if requires_grad else t


@composite(name="complex", out="same")
def complex_(real: Tensor, imag: Tensor):
    """The complex tensor of two real ones."""
    from .execute import common_shape, require_tensors

    require_tensors(complex_, real, imag)
    if real.dtype is not imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {real.dtype.name.capitalize()} but got scalar type "
            f"{imag.dtype.name.capitalize()} for second argument"
        )
    shape = common_shape(real._a.shape, imag._a.shape)
    real, imag = (t if t._a.shape == shape else t.expand(shape) for t in (real, imag))
    return hooks.function("view_as_complex")(hooks.function("stack")([real, imag], -1))


def construct(cls: type, *args: Any, **kw: Any) -> Any:
    """`Tensor(...)`, the old constructor."""
    device = kw.pop("device", None)
    if device is not None:
        as_device(device)
    if kw:
        raise TypeError(f"Tensor() got an unexpected keyword argument '{next(iter(kw))}'")
    dt = getattr(cls, "_old_dtype", None) or D.default[0]
    if not args:
        a: Any = np.empty((0,), dt.np)
    elif len(args) == 1 and isinstance(args[0], T):
        t = args[0]
        if t.dtype is not dt and cls is not T:
            raise TypeError(f"expected {dt!r} (got {t.dtype!r}): {cls.__name__}(other) aliases a tensor of its own dtype")
        return t.detach().as_subclass(cls) if cls is not T else t.detach()
    elif len(args) == 1 and not isinstance(args[0], (int, np.integer)):
        x = args[0]
        if isinstance(x, (float, complex, np.number)):
            raise TypeError(f"new(): data must be a sequence (got {type(x).__name__})")
        a = np.empty(tuple(x), dt.np) if x.__class__.__name__ == "Size" else _array_of(x, dt)
    else:
        if any(isinstance(i, (int, np.integer)) and i < 0 for i in args):
            raise RuntimeError(f"Trying to create tensor with negative dimension {min(args)}: {list(args)}")
        a = (
            allocator.empty(tuple(int(i) for i in args), dt.np)
            if all(isinstance(i, (int, np.integer)) for i in args)
            else None
        )
        if a is None:
            raise TypeError("new() received an invalid combination of arguments: expected sizes as ints, or data")
    return cls._wrap(a)  # type: ignore[attr-defined]


hooks.construct = construct


# --- Inputs for the generated tests (ops.samples) ---
zeros.samples(lambda s: [s.call(2, 3), s.call((0, 2)), s.call(())])
ones.samples(lambda s: [s.call(2, 3), s.call((0, 2)), s.call(())])
full.samples(lambda s: [s.call((2, 3), 1.5), s.call((2,), 3), s.call((), True)])
zeros_like.samples(lambda s: [s.call(s((2, 3), requires_grad=False)), s.call(s.ints((2,), 5))])
ones_like.samples(lambda s: [s.call(s((2, 3), requires_grad=False)), s.call(s.ints((2,), 5))])
_op.samples(lambda s: [s.call(s((2, 3), requires_grad=False), 7), s.call(s.ints((2,), 5), 3)])
eye.samples(lambda s: [s.call(3), s.call(2, 4)])
arange.samples(lambda s: [s.call(5), s.call(1, 6, 2), s.call(0.5, 2.0, 0.25)])
linspace.samples(lambda s: [s.call(0, 1, 5), s.call(3.0, -2.0, 4)])
logspace.samples(lambda s: [s.call(0, 2, 3), s.call(0, 3, 4, 2.0)])
complex_.samples(lambda s: [s.call(s((2, 3)), s((2, 3)))])
