"""Copies, casts, and filling in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import copies
from ..backends.meta import MetaArray
from ..backends.sparse import SparseArray
from ..core import dtype as D
from ..core.device import as_device, device
from ..core.layout import contiguous_format
from ..core.promotion import fitted, require_fits
from ..core.tensor import Tensor as T
from ..core.tensor import bump, hooks, inference, wrap
from .create import layout_like, meta_like
from .declare import composite, structural, writes
from .generate import G, quietly

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Sizes = tuple[int, ...]


@structural(method=True, exact=True)
def clone(input: Tensor, *, memory_format: Any = None):
    """A copy, laid out as the input if that is dense."""
    if memory_format is None and input.flags.c_contiguous and input.nbytes < 65536:
        return input.copy()
    a = layout_like(input.shape, input, D.of(input.dtype), memory_format)
    copies.assign(a, input)
    return a


clone.shape(lambda input, memory_format: meta_like(input, D.of(input.dtype), memory_format))
clone.gradient(input=lambda grad: grad)


@structural(public=False, exact=True, name="to", node="ToCopyBackward0")
def _to_copy(input: Tensor, dtype: D.dtype, memory_format: Any):
    if input.dtype.kind == "W":
        input = input.astype(np.complex64)
    input = D.saturated(input, dtype)
    if memory_format is None and input.flags.c_contiguous and input.dtype.kind != "c":
        return input.astype(dtype.np)
    a = layout_like(input.shape, input, dtype, memory_format)
    np.copyto(a, input.real if input.dtype.kind == "c" and dtype.category < D.COMPLEX else input, casting="unsafe")
    return a


_to_copy.shape(lambda input, dtype, memory_format: meta_like(input, dtype, memory_format))


def _cast_back(grad, input_meta):
    if grad.dtype.is_complex and not input_meta.dtype.is_complex:
        grad = hooks.function("real")(grad)
    return grad.to(input_meta.dtype)


_to_copy.gradient(input=_cast_back)


def cast(t: Tensor, dtype: D.dtype) -> Any:
    """`t` in another dtype; `t` itself if it has it."""
    from .execute import run

    return t if t.dtype is dtype else run(_to_copy, (t, dtype, None))


_E4M3 = D.ALL["float8_e4m3fn"]      # casts to it saturate


def _as(a: np.ndarray, d: np.dtype) -> np.ndarray:
    """`a.astype(d)`, where NumPy does not report what is out of range."""
    if a.dtype.kind != "f" and (d.kind != "f" or d.itemsize > 2) or d.kind == "f" and d.itemsize >= a.itemsize or d.kind == "b":
        return a.astype(d)
    return quietly(a.astype, d)


def _to(self: Tensor, *args: Any, **kw: Any) -> Any:
    """`to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`; with `copy=True` always a copy."""
    from .execute import run

    if not kw and len(args) == 1 and args[0].__class__ is D.dtype:
        d, a = args[0], self._a
        if a.dtype is d.np:
            return self
        if a.__class__ is G["ND"] and self._rg is False and a.dtype.kind in "biuf" and a.flags.c_contiguous and d is not _E4M3:
            return wrap(_as(a, d.np))
        return run(_to_copy, (self, d, None)) if a.dtype.kind != "c" else _to(self, dtype=d)
    dt, dev, copy, fmt = (
        kw.pop("dtype", None),
        kw.pop("device", None),
        kw.pop("copy", False),
        kw.pop("memory_format", None),
    )
    other = kw.pop("other", None)
    kw.pop("non_blocking", None)
    if kw:
        raise TypeError(f"to() received an invalid combination of arguments: unexpected keyword '{next(iter(kw))}'")
    rest = list(args)
    if rest and isinstance(rest[0], T):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], D.dtype):
        dt = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], (str, device, int)) and not isinstance(rest[0], bool)):
        dev = rest.pop(0)
        if rest and (isinstance(rest[0], D.dtype) or rest[0] is None):
            dt = rest.pop(0) or dt
    if rest and isinstance(rest[0], (bool, int)):
        rest.pop(0)
        if rest and isinstance(rest[0], (bool, int)):
            copy = bool(rest.pop(0))
    if rest:
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({', '.join(type(a).__name__ for a in args)}): "
            "expected a dtype, "
            "a device, or a tensor"
        )
    if dt is not None and not isinstance(dt, D.dtype):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dt).__name__}")
    if other is not None:
        dt, dev = other.dtype, other.device
    if dev is not None:
        dev = as_device(dev)
        if dev.type != self.device.type:
            if dev.type == "meta":
                return T._wrap(meta_like(self._a, dt or self.dtype, kw.get("memory_format")))
            raise NotImplementedError(
                "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                "torch.nn.Module.to() when "
                "moving module from meta to a different device."
            )
    dt = dt or self.dtype
    if (
        dt is self.dtype
        and not copy
        and (fmt is None or fmt.name == "preserve_format" or self.is_contiguous(memory_format=fmt))
    ):
        return self
    if dt is self.dtype:
        return run(clone, (self, fmt))
    if self.dtype.is_complex and not dt.is_complex:
        import warnings

        warnings.warn("Casting complex values to real discards the imaginary part", UserWarning, stacklevel=3)
    return run(_to_copy, (self, dt, fmt))


@composite(ns="Tensor", method=True)
def to(input: Tensor):
    """In another dtype or on another device; itself if nothing changes."""


to._derived["function"] = _to


def _cast_method(name: str, d: D.dtype) -> None:
    def method(self: Any, memory_format: Any = None) -> Any:
        a = self._a
        to = d.np
        if (
            a.dtype is not to
            and a.__class__ is G["ND"]
            and memory_format is None
            and self._rg is False
            and a.dtype.kind in "biuf"
            and a.flags.c_contiguous
        ):
            return wrap(_as(a, to))
        return self.to(d, memory_format=memory_format) if memory_format is not None else cast(self, d)

    method.__name__ = name
    method.__doc__ = f"`to({d!r})`."

    def body(input: Tensor, memory_format: Any = None):
        return method(input, memory_format)

    body.__doc__ = method.__doc__
    body.__name__ = name
    op = composite(body, ns="Tensor", method=True)
    op._derived["function"] = method


for _n, _d in (
    ("float", "float32"),
    ("double", "float64"),
    ("half", "float16"),
    ("bfloat16", "bfloat16"),
    ("long", "int64"),
    ("int", "int32"),
    ("short", "int16"),
    ("char", "int8"),
    ("byte", "uint8"),
    ("bool", "bool"),
    ("chalf", "complex32"),
    ("cfloat", "complex64"),
    ("cdouble", "complex128"),
):
    _cast_method(_n, D.by_name(_d))


OLD_TYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
    "ComplexFloatTensor": "complex64",
    "ComplexDoubleTensor": "complex128",
}


@composite(ns="Tensor", method=True, name="type")
def type_(input: Tensor, dtype: Any = None, non_blocking: bool = False):
    """Without an argument the old name of the tensor's type ("torch.FloatTensor"); with one, a cast to it (a dtype, a
    name, a class)."""
    if dtype is None:
        name = {v: k for k, v in OLD_TYPES.items()}.get(input.dtype.name)
        space = "torch.sparse." if input.is_sparse else "torch."
        return space + (name or input.dtype.name)
    if isinstance(dtype, str):
        name = dtype.rsplit(".", 1)[-1]
        if dtype.startswith("torch.sparse.") and not input.is_sparse:
            raise RuntimeError(f"type(): {dtype} is a sparse type: use to_sparse()")
        if "cuda" in dtype:
            raise RuntimeError("torch.cuda is not available: use a CPU type")
        if name not in OLD_TYPES:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = D.by_name(OLD_TYPES[name])
    elif not isinstance(dtype, D.dtype):
        old = getattr(dtype, "_old_dtype", None)
        if old is None:
            raise TypeError("dtype must be a type, str, or dtype object")
        dtype = old
    return cast(input, dtype)


@composite(method=True, ns="Tensor")
def type_as(input: Tensor, other: Tensor):
    """In the dtype of `other`."""
    return cast(input, other.dtype)


@composite(ns="Tensor", method=True)
def cpu(input: Tensor, memory_format: Any = None):
    """On the CPU."""
    return input.to("cpu")


@composite(ns="Tensor", method=True)
def cuda(input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None):
    """On a GPU. RuntimeError where there is none."""
    return input.to("cuda" if device is None else device)


@composite(ns="Tensor", method=True)
def contiguous(input: Tensor, memory_format: Any = None):
    """The tensor itself if its elements lie in row-major order, else a copy that does."""
    if input.is_contiguous(memory_format=memory_format) if memory_format is not None else input.is_contiguous():
        return input
    if memory_format is None:
        memory_format = contiguous_format
    return hooks.function("clone")(input, memory_format=memory_format)


@composite(method=True, out="same")
def conj_physical(input: Tensor):
    """The complex conjugate, computed; a real tensor itself."""
    return conj(input)


@structural(public=False, exact=True, name="conj")
def _conj_copy(input: Tensor):
    return np.conjugate(input)


_conj_copy.shape(lambda input: input.shape)
_conj_copy.gradient(input=lambda grad: conj(grad))
T.conj_physical_ = lambda self: self.copy_(conj(self)) if self.dtype.is_complex else self  # type: ignore[attr-defined]


@composite(method=True)
def conj(input: Tensor):
    """The complex conjugate; a real tensor itself."""
    from .execute import run

    return run(_conj_copy, (input,)) if input.dtype.is_complex else input


@composite(method=True)
def resolve_conj(input: Tensor):
    """The tensor itself: conjugates are never delayed here."""
    return input


@composite(method=True)
def resolve_neg(input: Tensor):
    """The tensor itself: negation is never delayed here."""
    return input


def _copy_check(input, src, non_blocking):
    if src.ndim > input.ndim or any(
        s != 1 and s != n for s, n in zip(src.shape[::-1], input.shape[::-1], strict=False)
    ):
        if not (src.ndim > input.ndim and all(s == 1 for s in src.shape[: src.ndim - input.ndim])):
            k = next(
                (
                    i
                    for i, (s, n) in enumerate(zip(src.shape[::-1], input.shape[::-1], strict=False))
                    if s != 1 and s != n
                ),
                0,
            )
            raise RuntimeError(
                f"The size of tensor a ({input.shape[::-1][k] if input.ndim else 1}) must match the size of tensor b "
                f"({src.shape[::-1][k]}) at "
                f"non-singleton dimension {max(input.ndim - 1 - k, 0)}: cannot copy a tensor of shape "
                f"{list(src.shape)} into one of shape "
                f"{list(input.shape)}"
            )


@writes(ns="Tensor", method=False, name="copy", check=_copy_check, exact=True, public=True, node="CopyBackwards")
def copy_(input: Tensor, src: Tensor, non_blocking: bool = False):
    """The elements of `src`, broadcast and cast, written into the tensor."""
    if isinstance(src, MetaArray):
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    while src.ndim > input.ndim:
        src = src[0]
    if input.dtype.itemsize == 1 and input.dtype.kind == "V":
        src = D.saturated(src, D.of(input.dtype))
    copies.assign(input, src.real if src.dtype.kind == "c" and input.dtype.kind != "c" else src)


def _copy_src(grad, src_meta):
    from .generate import fit

    return fit(grad, src_meta)


copy_.gradient(input=lambda grad: grad * 0, src=_copy_src)


def _check_fill(input, value):
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    if isinstance(value, (int, float, complex)):
        require_fits(value, D.of(input.dtype))


@writes(method=False, name="fill", check=_check_fill, exact=True)
def fill_(input: Tensor, value: Tensor | Number):
    """`value` (a number or 0-dim tensor) in every element."""
    d = D.of(input.dtype)
    if isinstance(value, (int, float, complex)):
        value = fitted(value, d)
    elif value.dtype.kind == "c" and not d.is_complex:
        value = value.real
    input[...] = value if value.dtype == input.dtype else D.saturated(value, d).astype(input.dtype)


fill_.expanded = True
fill_.gradient(input=lambda grad: grad * 0, value=lambda grad: grad.sum())


@writes(method=False, exact=True, name="zero")
def zero_(input: Tensor):
    """Zero in every element."""
    input.fill(0)


zero_.expanded = True
zero_.gradient(input=lambda grad: grad * 0)


@composite(ns="Tensor", method=True)
def resize_(input: Tensor, sizes: Sizes, *, memory_format: Any = None):
    """The tensor itself with other sizes: the storage grows if need be, old elements stay. RuntimeError for memory of
    others."""
    if input.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    inference.check_write(input)
    if input._a.shape != tuple(sizes):
        resize(input, sizes)
        bump(input)
    return input


def resize(t: Tensor, sizes: tuple[int, ...]) -> None:
    """Other sizes for the tensor, which its version counter does not notice: `resize_`, and `out=` that is written to next."""
    a = t._a
    if isinstance(a, SparseArray):
        raise NotImplementedError("Could not run 'aten::resize_' with arguments from the 'SparseCPU' backend: use sparse_resize_")
    n = 1
    for s in sizes:
        if s < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {s}: {list(sizes)}")
        n *= s
    if isinstance(a, MetaArray):
        t._a = MetaArray(sizes, a.dtype)
        return
    from ..core.storage import from_storage, storage_of

    st = storage_of(a)
    off = t.storage_offset() if a.size else 0
    if (off + n) * a.itemsize > st.nbytes():
        st.resize_((off + n) * a.itemsize)
    t._a = from_storage(st, a.dtype, off, tuple(sizes), _strides(sizes))


def _strides(sizes: Any) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(sizes):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


@composite(ns=("Tensor", "torch"), method=True)
def resize_as_(input: Tensor, other: Tensor, *, memory_format: Any = None):
    """`resize_(other.size())`."""
    return input.resize_(other.shape)


@composite(ns="Tensor", method=True)
def set_(
    input: Tensor, source: Any = None, storage_offset: int = 0, size: tuple | None = None, stride: tuple | None = None
):
    """The tensor itself on other memory: that of a tensor, or a storage with offset, sizes and strides."""
    from ..core.storage import from_storage
    from .inplace import check_writable

    check_writable(input, "set_")
    bump(input)
    if source is None:
        input._a = np.empty((0,), input._a.dtype)
        return input
    if isinstance(source, T):
        if size is None:
            input._a = source._a
            return input
        source = source.untyped_storage()
    st = source.untyped() if hasattr(source, "untyped") else source
    if size is None:
        size = (st.nbytes() // input._a.itemsize,)
    input._a = from_storage(
        st, input._a.dtype, storage_offset, tuple(size), tuple(stride) if stride is not None else _strides(size)
    )
    return input


@composite(ns="Tensor", method=True)
def fill_diagonal_(input: Tensor, fill_value: Number, wrap: bool = False):
    """`fill_value` on the main diagonal, in place; with `wrap` it goes on below in a matrix of more rows than columns. RuntimeError for
    vectors, and for more than two dimensions that differ."""
    n, strides = input.shape, input.stride()
    if len(n) < 2:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, got sizes {list(n)}")
    if len(n) > 2 and len(set(n)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got sizes {list(n)}")
    step, first = sum(strides), input.storage_offset()
    hooks.function("as_strided")(input, (min(n),), (step,), first).fill_(fill_value)
    if wrap and len(n) == 2 and n[0] > n[1] + 1 and n[1]:
        for start in range(n[1] + 1, n[0], n[1] + 1):
            below = hooks.function("as_strided")(input, (min(n[1], n[0] - start),), (step,), first + start * strides[0])
            below.fill_(fill_value)
    return input


def _by_function(input: Tensor, name: str, others: tuple[Any, ...], callable: Any) -> Any:
    from .execute import bad_argument
    from .inplace import check_overlap

    if input.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    inference.check_write(input)
    arrays = []
    for p, other in zip(map_.params[1:], others, strict=False):
        if not isinstance(other, T):
            raise bad_argument(map_, p, other)
        if other.dtype is not input.dtype:
            raise TypeError(f"{name}: expected {input.dtype!r} for '{p.name}' (got {other.dtype!r})")
        arrays.append(other.expand(input.shape))
    if isinstance(input._a, MetaArray):
        raise NotImplementedError(f"{name}: a meta tensor has no elements to call a function with")
    check_overlap(input._a, name)
    made = [callable(*values) for values in zip(*[t.reshape(-1).tolist() for t in (input, *arrays)], strict=True)]
    for x in made:
        if not isinstance(x, (int, float, complex, np.number, np.bool_)):
            raise TypeError(f"{name}: must be real number, not {type(x).__name__}")
    input._a[...] = np.array(made, dtype=None if made else input._a.dtype).reshape(input.shape).astype(input._a.dtype)
    bump(input)
    return input


@composite(ns="Tensor", method=True)
def apply_(input: Tensor, callable: Any):
    """Each element becomes what `callable` makes of it, in place. Slow: a call of Python for each. RuntimeError if it requires grad."""
    return _by_function(input, "apply_", (), callable)


@composite(ns="Tensor", method=True)
def map_(input: Tensor, tensor: Tensor, callable: Any):
    """Each element becomes `callable(element, element of tensor)`, in place; `tensor` is of the same dtype and is broadcast."""
    return _by_function(input, "map_", (tensor,), callable)


@composite(ns="Tensor", method=True)
def map2_(input: Tensor, x: Tensor, y: Tensor, callable: Any):
    """As `map_`, with two other tensors."""
    return _by_function(input, "map2_", (x, y), callable)


@composite(ns="Tensor", method=True)
def pin_memory(input: Tensor, device: Any = None):
    """A copy in page-locked memory. RuntimeError without an accelerator."""
    raise RuntimeError("Cannot access accelerator device when none is available: page-locked memory needs one")


# --- Inputs for the generated tests (ops.samples) ---
clone.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4), transposed=True)), s.call(s((0, 3)))])
contiguous.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4), transposed=True))])
fill_.samples(lambda s: [s.call(s((3, 4)), 1.5), s.call(s((3, 4)), s(()))])
zero_.samples(lambda s: [s.call(s((3, 4)))])
conj_physical.samples(lambda s: [s.call(s((2, 3), 'complex128')), s.call(s((2, 3)))])
conj.samples(lambda s: [s.call(s((2, 3), 'complex128')), s.call(s((2, 3)))])
resolve_conj.samples(lambda s: [s.call(s((2, 3)))])
resolve_neg.samples(lambda s: [s.call(s((2, 3)))])
type_as.samples(lambda s: [s.call(s((2, 3)), s((1,), requires_grad=False))])
copy_.samples(lambda s: [s.call(s((2, 3)), s((3,))), s.call(s((2, 3), transposed=True), s((2, 3)))])
