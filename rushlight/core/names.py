"""Functions of the top namespace that are no operators: questions about objects, and global settings."""

from __future__ import annotations

from typing import Any

from . import dtype as D
from . import errors
from .device import default_device, device
from .layout import strided
from .promotion import can_cast as _can_cast
from .tensor import Size, Tensor

_settings: dict[str, Any] = {"deterministic": False, "warn_only": False, "precision": "highest", "interop": 1}


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage, typed or not."""
    from .storage import StorageBase, TypedStorage
    return isinstance(obj, (StorageBase, TypedStorage))


def _tensor(obj: Any, name: str) -> Tensor:
    if not isinstance(obj, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(obj).__name__}")
    return obj


def is_floating_point(input: Tensor) -> bool:
    return _tensor(input, "is_floating_point").is_floating_point()


def is_complex(input: Tensor) -> bool:
    return _tensor(input, "is_complex").is_complex()


def is_signed(input: Tensor) -> bool:
    return _tensor(input, "is_signed").is_signed()


def is_neg(input: Tensor) -> bool:
    return False


def is_conj(input: Tensor) -> bool:
    return False


def is_inference(input: Tensor) -> bool:
    return _tensor(input, "is_inference").is_inference()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.shape == other.shape


def is_nonzero(input: Tensor) -> bool:
    """Whether a tensor of one element is not zero. RuntimeError for others."""
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with " + ("no values" if input.numel() == 0 else "more than one value") + " is ambiguous")
    return bool(input)


def numel(input: Tensor) -> int:
    """The number of elements. TypeError for what is no tensor."""
    return _tensor(input, "numel").numel()


def can_cast(from_: D.dtype, to: D.dtype) -> bool:
    """Whether promotion rules let a result of one dtype be written into the other."""
    return _can_cast(from_, to)


def typename(obj: Any) -> str:
    """The full name of the type of an object; of tensors the old name (`torch.FloatTensor`)."""
    if isinstance(obj, Tensor):
        return obj.type()  # type: ignore[attr-defined]
    c = obj if isinstance(obj, type) else type(obj)
    return c.__qualname__ if c.__module__ == "builtins" else f"{c.__module__}.{c.__qualname__}"


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that the given shapes broadcast to. RuntimeError if there is none."""
    ss = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    n = max(map(len, ss), default=0)
    out = [1] * n
    for s in ss:
        for i, k in enumerate(reversed(s)):
            if k < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({k}): ({k})")
            if k != 1:
                if out[n - 1 - i] not in (1, k):
                    raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {', '.join(str(list(t)) for t in ss)}")
                out[n - 1 - i] = k
    return Size(out)


# --- defaults -------------------------------------------------------------------------------------------------------
def set_default_tensor_type(t: Any) -> None:
    """Make a floating tensor type (a class or its name) the default. TypeError for others."""
    name = t if isinstance(t, str) else getattr(t, "__module__", "torch") + "." + getattr(t, "__name__", str(t))
    from ..ops.copy import OLD_TYPES
    short = name.rsplit(".", 1)[-1]
    if "cuda" in name:
        raise TypeError(f"type {name} not available: Rushlight has no CUDA backend yet")
    if short not in OLD_TYPES:
        raise TypeError(f"invalid type object: {name}")
    D.set_default_dtype(D.by_name(OLD_TYPES[short]))


_set_default_tensor_type_ = set_default_tensor_type


def set_default_device(d: Any) -> None:
    """Where constructors put tensors when `device=` is not given; None for the CPU."""
    from .device import CPU, as_device
    default_device[0] = CPU if d is None else as_device(d)


def get_default_device() -> device:
    return default_device[0]


def get_num_threads() -> int:
    """The number of threads that big operations use."""
    from ..backends.cpu import threads
    return threads.num_threads()


def set_num_threads(n: int) -> None:
    """Use `n` threads for big operations. Results do not depend on it."""
    from ..backends.cpu import threads
    threads.set_num_threads(n)


def get_num_interop_threads() -> int:
    return _settings["interop"]


def set_num_interop_threads(n: int) -> None:
    if not isinstance(n, int) or n < 1:
        raise RuntimeError(f"set_num_interop_threads expects a positive int, got {n}")
    _settings["interop"] = n


def memory_stats() -> dict[str, Any]:
    """What the CPU allocator holds: bytes allocated and reserved, peaks, hits and misses of the free lists."""
    from ..backends.cpu import allocator
    return allocator.stats()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: the algorithms here are deterministic in any case."""
    _settings["deterministic"], _settings["warn_only"] = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    return _settings["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return _settings["warn_only"]


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: float32 products are computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high' or 'medium'")
    _settings["precision"] = precision


def get_float32_matmul_precision() -> str:
    return _settings["precision"]


def set_warn_always(b: bool) -> None:
    """Whether warnings that are given once (by default) are given at each call. RuntimeError for what is no bool."""
    if not isinstance(b, bool):
        raise RuntimeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    errors.warn_always[0] = b


def is_warn_always_enabled() -> bool:
    return errors.warn_always[0]


def set_flush_denormal(mode: bool) -> bool:
    """False: denormals are never flushed here."""
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    return False


def compiled_with_cxx11_abi() -> bool:
    return True


def _assert(condition: Any, message: str) -> None:
    assert condition, message


def _is_grad_enabled() -> bool:
    from ..autograd.modes import is_grad_enabled
    return is_grad_enabled()


# --- the old types ----------------------------------------------------------------------------------------------------
class _OldType(type):
    """`torch.FloatTensor` and its like: constructors, and `isinstance` by dtype."""

    _old_dtype: D.dtype

    def __call__(cls, *args: Any, **kw: Any) -> Tensor:
        from ..ops.create import construct
        kw["cls"] = Tensor
        return _construct(cls, construct, *args, **{k: v for k, v in kw.items() if k != "cls"})

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls._old_dtype and x.layout is strided

    @property
    def dtype(cls) -> D.dtype:
        return cls._old_dtype


def _construct(cls: Any, construct: Any, *args: Any, **kw: Any) -> Tensor:
    if args and len(args) == 1 and isinstance(args[0], Tensor):
        t = args[0]
        if t.dtype is not cls._old_dtype:
            raise TypeError(f"expected {cls.__name__} (got {t.dtype!r})")
        return t.detach()

    class _Kind:
        _old_dtype = cls._old_dtype
        _wrap = staticmethod(Tensor._wrap)
    return construct(_Kind, *args, **kw)


for _n, _t in {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "LongTensor": "int64", "IntTensor": "int32",
               "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8", "BoolTensor": "bool", "BFloat16Tensor": "bfloat16"}.items():
    globals()[_n] = _OldType(_n, (), {"_old_dtype": D.ALL[_t], "__module__": "torch"})
