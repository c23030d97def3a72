"""Views of parts: diagonals, slices, windows, several parts at once, complex numbers as pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from . import declare as d
from .geometry import Geometry

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


@d.view(method=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """The diagonal of two dimensions, as a new last dimension."""
    i, j = input.dim(dim1), input.dim(dim2)
    if i == j:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n, m = input.shape[i], input.shape[j]
    size = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    off = 0 if size == 0 else offset * input.stride[j] if offset >= 0 else -offset * input.stride[i]
    g = input.without((i, j))
    return Geometry([*g.shape, size], [*g.stride, input.stride[i] + input.stride[j]], input.offset + off)


def _diagonal_gradient(grad, input_meta, offset, dim1, dim2):
    return f("diagonal_scatter")(f("zeros")(input_meta.shape, dtype=grad.dtype), grad, offset, dim1, dim2)


diagonal.gradient(input=_diagonal_gradient)


@d.view(method=True, node="SliceBackward0")
def narrow(input: Tensor, dim: int, start: int, length: int):
    """`length` slices along `dim` from `start` on."""
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    i = input.dim(dim)
    n = input.shape[i]
    if isinstance(start, T):
        if start.dim() or start.dtype.category != D.INTEGER:
            raise RuntimeError("start must be an 0-dim integral Tensor.")
        start = int(start.item())
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    if start < 0:
        start += n
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return input.narrow(i, start, length)


def _narrow_gradient(grad, input_meta, dim, start, length):
    i = dim % len(input_meta.shape)
    n = input_meta.shape[i]
    start = int(start.item()) if isinstance(start, T) else start
    return pad_back(grad, input_meta, i, start + n if start < 0 else start, 1)


def pad_back(grad, input_meta, dim, start, step):
    """The gradient of a slice: zeros around it."""
    return f("slice_scatter")(
        f("zeros")(input_meta.shape, dtype=grad.dtype),
        grad,
        dim,
        start,
        min(start + step * grad.shape[dim], input_meta.shape[dim]),
        step,
    )


narrow.gradient(input=_narrow_gradient)


@d.view(method=True, name="slice", public=False)
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """Every `step`-th slice along `dim` from `start` to `end`."""
    i = input.dim(dim)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    a, b, _ = slice(start, end, step).indices(input.shape[i])
    return input.narrow(i, a if b > a else min(a, input.shape[i]), max(0, -(-(b - a) // step)), step)


slice_.gradient(
    input=lambda grad, input_meta, dim, start, end, step: pad_back(
        grad, input_meta, dim % len(input_meta.shape), slice(start, end, step).indices(input_meta.shape[dim])[0], step
    )
)


@d.view(method=True)
def select(input: Tensor, dim: int, index: int):
    """Slice `index` of dimension `dim`, which goes."""
    if input.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    i = input.dim(dim)
    n = input.shape[i]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {i}"
        )
    return input.select(i, index % n)


def _select_gradient(grad, input_meta, dim, index):
    return f("select_scatter")(f("zeros")(input_meta.shape, dtype=grad.dtype), grad, dim, index)


select.gradient(input=_select_gradient)


# --- several views ----------------------------------------------------------------------------------------------------
@d.view(method=True, public=False, multi=True, name="split", node="SplitBackward0")
def _split(input: Tensor, sizes: tuple, dim: int):
    out, start = [], 0
    for n in sizes:
        out.append(input.narrow(dim, start, n))
        start += n
    return tuple(out)


@_split.fast
def _(a, sizes, dim):
    out, start, lead = [], 0, (slice(None),) * dim
    for n in sizes:
        out.append(a[(*lead, slice(start, start + n))])
        start += n
    return tuple(out)


def _split_gradient(grads, input_meta, sizes, dim):
    parts = []
    like = next(g for g in grads if g is not None)
    for g, n in zip(grads, sizes, strict=True):
        if g is None:
            shape = list(input_meta.shape)
            shape[dim] = n
            g = f("zeros")(tuple(shape), dtype=like.dtype)
        parts.append(g)
    return f("cat")(parts, dim)


_split.gradient(input=_split_gradient)


@d.composite(
    method=True,
    old={"tensor": "input", "split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"},
)
def split(tensor: Tensor, split_size_or_sections: int | list[int], dim: int = 0):
    """Views of `split_size` slices each, the last may be smaller; or of the listed sizes, which must add up."""
    if tensor.dim() == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    i = Geometry(tensor._a.shape, tensor._a.shape).dim(dim)
    n = tensor._a.shape[i]
    s = split_size_or_sections
    if isinstance(s, (int, np.integer)) and not isinstance(s, bool):
        if s < 0:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={s}")
        if s == 0 and n:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
        sizes = tuple(min(s, n - k) for k in range(0, n, s)) if n else (0,)
    else:
        from .calls import sizes as ints

        sizes = ints(s, "split_with_sizes", "split_sizes")
        if any(x < 0 for x in sizes):
            raise RuntimeError(
                "split_with_sizes expects split_sizes have only non-negative entries, but got "
                f"split_sizes={list(sizes)}"
            )
        total = 0
        for x in sizes:
            total += x
        if total != n:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), "
                "but got "
                f"split_sizes={list(sizes)}"
            )
    return _split(tensor, sizes, i)


@d.composite(method=True)
def split_with_sizes(input: Tensor, split_sizes: list[int], dim: int = 0):
    """Views of the listed sizes along `dim`."""
    return split(input, list(split_sizes), dim)


@d.composite(method=True, old={"tensor": "input"})
def chunk(input: Tensor, chunks: int, dim: int = 0):
    """At most `chunks` views of ceil(size / chunks) slices each, the last may be smaller."""
    if input.dim() == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.size(dim)
    if n == 0:
        return split(input, [0] * chunks, dim)
    return split(input, max(-(-n // chunks), 1), dim)


@d.view(method=True, multi=True, old={"tensor": "input"})
def unbind(input: Tensor, dim: int = 0):
    """A view of each slice along `dim`, which goes."""
    if input.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    i = input.dim(dim)
    return tuple(input.select(i, k) for k in range(input.shape[i]))


@unbind.fast
def _(a, dim):
    if a.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    i = Geometry(a.shape, a.shape).dim(dim)
    b = np.moveaxis(a, i, 0) if i else a
    return tuple([b[k, ...] for k in range(b.shape[0])])


def _unbind_gradient(grads, input_meta, dim):
    like = next(g for g in grads if g is not None)
    z = None
    parts = []
    for g in grads:
        if g is None:
            z = f("zeros_like")(like) if z is None else z
            g = z
        parts.append(g)
    return f("stack")(parts, dim)


unbind.gradient(input=_unbind_gradient)


@d.view(method=True)
def unfold(input: Tensor, dimension: int, size: int, step: int):
    """Windows of `size` slices every `step` along a dimension, as a new last dimension."""
    i = input.dim(dimension)
    n = input.shape[i] if input.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {i} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if input.ndim == 0:
        return Geometry((size,), (1,), input.offset)
    count = (n - size) // step + 1
    shape, stride = list(input.shape), list(input.stride)
    st = stride[i]
    shape[i], stride[i] = count, st * step
    return Geometry([*shape, size], [*stride, st], input.offset)


def _unfold_gradient(grad, input_meta, dimension, size, step):
    if not input_meta.shape:
        return grad.reshape(()) if size else f("zeros")((), dtype=grad.dtype)
    i = dimension % len(input_meta.shape)
    n = input_meta.shape[i]
    z = f("zeros")(input_meta.shape, dtype=grad.dtype)
    index = f("arange")(0, n).unfold(0, size, step).reshape(-1)
    rest = grad.movedim(-1, i + 1).flatten(i, i + 1)
    return f("index_add")(z, i, index, rest)


unfold.gradient(input=_unfold_gradient)


@d.view(public=False, name="as_strided", node="AsStridedBackward0")
def _as_strided(input: Tensor, size: tuple, stride: tuple, offset: int):
    return Geometry(size, stride, offset)


def _as_strided_gradient(grad, input_meta, size, stride, offset):
    # the index of each element of the view in the input, seen as one line of memory
    span = 1
    itemsize = input_meta.array_dtype.itemsize
    istride = [s // itemsize for s in input_meta.strides]
    for n, s in zip(input_meta.shape, istride, strict=True):
        span += (n - 1) * s if n else 0
    at = np.full(size, offset, np.int64)
    for k, (n, s) in enumerate(zip(size, stride, strict=True)):
        at += (np.arange(n) * s).reshape([-1 if j == k else 1 for j in range(len(size))])
    line = f("zeros")((max(span, int(at.max(initial=0)) + 1),), dtype=grad.dtype)
    line = f("index_add")(line, 0, wrap(at.reshape(-1)), grad.reshape(-1))
    src = np.zeros(input_meta.shape, np.int64)
    for k, (n, s) in enumerate(zip(input_meta.shape, istride, strict=True)):
        src += (np.arange(n) * s).reshape([-1 if j == k else 1 for j in range(len(input_meta.shape))])
    count = np.bincount(src.reshape(-1), minlength=1)
    g = f("index_select")(line, 0, wrap(src.reshape(-1))).reshape(input_meta.shape)
    if count.max(initial=0) > 1:  # the input itself overlaps: its elements share
        g = g / wrap(count[src].astype(itemsize and input_meta.array_dtype))
    return g


_as_strided.gradient(input=_as_strided_gradient)


@d.composite(method=True, inplace="view")
def as_strided(input: Tensor, size: tuple, stride: tuple, storage_offset: int | None = None):
    """The view with these sizes, strides and offset in elements on the storage. RuntimeError outside the storage."""
    here = input.storage_offset()
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if storage_offset is not None and storage_offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    return _as_strided(
        input,
        tuple(int(s) for s in size),
        tuple(int(s) for s in stride),
        0 if storage_offset is None else storage_offset - here,
    )


# --- complex numbers as pairs -----------------------------------------------------------------------------------------
@d.view()
def view_as_real(input: Tensor):
    """A complex tensor as a real one with a last dimension of 2."""
    raise NotImplementedError


def _part(a: MetaArray, part: int) -> MetaArray:
    """The real parts (0) or the imaginary parts (1) of an array that is not there."""
    if a.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    r = np.dtype(f"f{a.dtype.itemsize // 2}")
    return MetaArray(a.shape, r, a.strides, a.offset + part * r.itemsize)


def _as_real(a):
    if a.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    r = np.dtype(f"f{a.dtype.itemsize // 2}")
    if a.ndim and a.strides[-1] == a.itemsize:
        return a.view(r).reshape((*a.shape, 2)) if a.flags.c_contiguous else a[..., None].view(r)
    return a[..., None].view(r)


view_as_real.array = _as_real
view_as_real.shape(lambda a: (half := _part(a, 0), MetaArray((*a.shape, 2), half.dtype, (*a.strides, half.itemsize), a.offset))[1])
view_as_real.gradient(input=lambda grad: f("view_as_complex")(grad.contiguous()))


@d.view()
def view_as_complex(input: Tensor):
    """A real tensor with a last dimension of 2 as a complex one."""
    raise NotImplementedError


def _as_complex(a):
    if a.dtype.kind != "f":
        raise RuntimeError(
            "view_as_complex is only supported for floating point tensors, but got a tensor of scalar type: "
            f"{D.of(a.dtype)!r}"
        )
    if a.ndim == 0 or a.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if not a.size and a.__class__ is np.ndarray:
        return np.empty(a.shape[:-1], f"c{a.dtype.itemsize * 2}")
    if a.strides[-1] != a.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % (2 * a.itemsize) for s in a.strides[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    c = np.dtype(f"c{a.dtype.itemsize * 2}")
    return a.view(c)[..., 0] if a.__class__ is np.ndarray else MetaArray(a.shape[:-1], c, a.strides[:-1], a.offset)


view_as_complex.array = _as_complex
view_as_complex.shape(_as_complex)
view_as_complex.gradient(input=lambda grad: f("view_as_real")(grad))


@d.view(public=False, name="real", node="ViewAsRealBackward0")
def _real(input: Tensor):
    raise NotImplementedError


def _half_parts(a: np.ndarray) -> np.ndarray:
    """complex32 as float16 pairs: NumPy knows no parts of a dtype that is not its own."""
    return a[..., None].view(np.float16)


_real.array = lambda a: a.real if a.dtype.kind != "W" else _half_parts(a)[..., 0]
_real.shape(lambda a: _part(a, 0))
_real.gradient(input=lambda grad: grad.to(grad.dtype.to_complex()))


@d.view(public=False, name="imag", node="ViewAsRealBackward0")
def _imag(input: Tensor):
    raise NotImplementedError


_imag.array = lambda a: a.imag if a.dtype.kind != "W" else _half_parts(a)[..., 1]
_imag.shape(lambda a: _part(a, 1))
_imag.gradient(input=lambda grad: grad * 1j)


@d.composite(prop=True)
def real(input: Tensor):
    """The real part, as a view; a real tensor itself."""
    return _real(input) if input.dtype.is_complex else input


@d.composite(prop=True)
def imag(input: Tensor):
    """The imaginary part, as a view. RuntimeError for real tensors."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _imag(input)


# --- Inputs for the generated tests (ops.samples) ---
narrow.samples(lambda s: [s.call(s((3, 4)), 1, 1, 2), s.call(s((3, 4)), -2, -2, 2), s.call(s((3, 4)), 0, 3, 0)])
select.samples(lambda s: [s.call(s((3, 4)), 0, 1), s.call(s((3, 4)), -1, -1)])
unbind.samples(lambda s: [s.call(s((3, 2))), s.call(s((3, 2)), -1)])
unfold.samples(lambda s: [s.call(s((2, 5)), 1, 3, 1), s.call(s((6,)), 0, 2, 3)])
diagonal.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 4)), 1), s.call(s((2, 3, 3)), -1, 1, 2), s.call(s((2, 3)), 5)])
split.samples(lambda s: [s.call(s((5, 2)), 2), s.call(s((3, 4)), [1, 3], 1), s.call(s((3, 4)), 9, -1)])
chunk.samples(lambda s: [s.call(s((5, 2)), 2), s.call(s((3, 4)), 3, 1)])
split_with_sizes.samples(lambda s: [s.call(s((5, 2)), [2, 3]), s.call(s((2, 5)), [1, 4], 1)])
as_strided.samples(lambda s: [s.call(s((6,)), (2, 2), (2, 1), 1), s.call(s((6,)), (3, 2), (1, 1)), s.call(s((4,)), (2, 2), (0, 1))])
view_as_real.samples(lambda s: [s.call(s((2, 3), 'complex128'))])
view_as_complex.samples(lambda s: [s.call(s((3, 2)))])
real.samples(lambda s: [s.call(s((2, 3), 'complex128')), s.call(s((2, 3)))])
imag.samples(lambda s: [s.call(s((2, 3), 'complex128'))])
