"""`torch.sparse`: products, sums and softmax of sparse tensors, looked up when first used; the old constructors; checks of indices."""

from __future__ import annotations

from typing import Any

_OLD = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16", "LongTensor": "int64", "IntTensor": "int32",
        "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8"}


class check_sparse_tensor_invariants:
    """Switches for the checks of indices: here they are always made unless a constructor is told `check_invariants=False`; this
    only remembers what was asked for.

    `enable()`, `disable()`, `is_enabled()`; also a context manager and a decorator."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self._want, self._before = enable, []  # type: ignore[var-annotated]

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self._before.append(self.is_enabled())
        check_sparse_tensor_invariants._enabled = self._want

    def __exit__(self, *exc: object) -> None:
        check_sparse_tensor_invariants._enabled = self._before.pop()

    def __call__(self, fn: Any) -> Any:
        from functools import wraps

        @wraps(fn)
        def checked(*args: Any, **kw: Any) -> Any:
            with type(self)(self._want):
                return fn(*args, **kw)
        return checked


def __getattr__(name: str) -> Any:
    from rushlight import ops
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _OLD:
        from .core.dtype import by_name
        from .ops.sparse import old_constructor
        value: Any = old_constructor(by_name(_OLD[name]))
    else:
        value = ops.attribute("sparse", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from rushlight import ops
    return sorted({*globals(), *_OLD, *ops.names("sparse")})
