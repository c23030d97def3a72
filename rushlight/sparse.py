"""`torch.sparse`: products, sums and softmax of sparse tensors, looked up when first used; the old constructors; checks of indices."""

from __future__ import annotations

from typing import Any

from .core.dtype import by_name
from .core.tensor import Tensor

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


class _SparseType(type):
    """`torch.sparse.FloatTensor` and its like: constructors, and `isinstance` by dtype and layout."""

    _old_dtype: Any

    def __call__(cls, *args: Any, **kw: Any) -> Any:
        from .ops.sparse import old_constructor
        return old_constructor(cls._old_dtype)(*args, **kw)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls._old_dtype and x.is_sparse


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """`gradcheck` (or `gradgradcheck`) for functions of sparse tensors too: derivatives by their values, sparse results made dense."""
    def check(func: Any, inputs: Any, **kw: Any) -> bool:
        from .ops.sparse import is_sparse, make, values_of
        inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        patterns = [x._a if is_sparse(x) else None for x in inputs]
        plain = [values_of(x.detach()).clone().requires_grad_(x.requires_grad) if is_sparse(x) else x for x in inputs]
        kw.pop("masked", None)

        def dense(y: Any) -> Any:
            return type(y)(dense(v) for v in y) if isinstance(y, (tuple, list)) else y.to_dense() if is_sparse(y) else y

        def fn(*xs: Any) -> Any:
            return dense(func(*(x if p is None else make(x, p) for x, p in zip(xs, patterns, strict=True))))
        return gradcheck(fn, tuple(plain), **kw)
    return check


def __getattr__(name: str) -> Any:
    from rushlight import ops
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _OLD:
        value: Any = _SparseType(name, (), {"_old_dtype": by_name(_OLD[name]), "__module__": "torch.sparse"})
    else:
        value = ops.attribute("sparse", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from rushlight import ops
    return sorted({*globals(), *_OLD, *ops.names("sparse")})
