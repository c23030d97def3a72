"""Views: other shapes, strides and offsets on the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.tensor import Size
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, view_of, wrap
from . import declare as d
from .execute import normalize_dims
from .geometry import Geometry, restride

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


def infer(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """`shape` with its -1 worked out. RuntimeError where the sizes do not fit."""
    if -1 in shape:
        if shape.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        n = 1
        for s in shape:
            n *= s if s != -1 else 1
        if any(s < -1 for s in shape):
            raise RuntimeError(f"invalid shape dimension {min(shape)}")
        if n == 0:
            if numel == 0:
                raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be "
                                   "any value and is ambiguous")
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        if numel % n:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return tuple(numel // n if s == -1 else s for s in shape)
    n = 1
    for s in shape:
        if s < 0:
            raise RuntimeError(f"invalid shape dimension {s}")
        n *= s
    if n != numel:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return shape


@d.view(method=True, public=False, name="view")
def _view(input: Tensor, size: tuple):
    shape = infer(size, input.numel)
    g = input.reshape(shape)
    if g is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
                           "subspaces). Use .reshape(...) instead.")
    return g


@_view.fast
def _(a, size):
    if a.flags.c_contiguous:
        try:
            return a.reshape(size)
        except ValueError:
            infer(size, a.size)
            raise
    return restride(a, _view.fn(Geometry.of(a), size))


_view.gradient(input=lambda grad, input_meta: grad.reshape(input_meta.shape))


@d.composite(ns="Tensor", method=True)
def view(input: Tensor, size: Sizes):
    """The same elements in other sizes, on the same memory; one size may be -1. With a dtype instead of sizes, the same bytes read as
    that dtype. RuntimeError if no strides give the shape (`reshape` copies then)."""
    return _view(input, size)


def _view_method(self: Tensor, *size: Any, **kw: Any) -> Any:
    from . import execute
    from .generate import sizes
    if kw:
        if "dtype" in kw:
            return view_dtype(self, kw["dtype"])
        size = (kw["size"],)
    if size.__len__() == 1 and size[0].__class__ is not int:
        if isinstance(size[0], D.dtype):
            return view_dtype(self, size[0])
        size = sizes(size[0], "view")
    elif size.__len__() == 0:
        raise TypeError("view() received an invalid combination of arguments - got (), but expected sizes or a dtype")
    else:
        for s in size:
            if s.__class__ is not int:
                size = sizes(size, "view")
                break
    return execute.run(_view, (self, size))


def _quick_view() -> Any:
    """`x.view(...)` of a contiguous CPU tensor that does not require grad: one reshape. Everything else goes the general way."""
    from .generate import make
    return make('''
def view(self, *size, **kw):
    a = self._a
    if self._rg is False and a.__class__ is ND and a.flags.c_contiguous and not kw:
        try:
            n = size[0]
            r = a.reshape(n if n.__class__ is tuple or n.__class__ is Size else size)
            t = new(Tensor); t._a = r; t._node = t._grad = None; t._rg = MAYBE
            b = self._base; t._base = self if b is None else b
            v = self._v
            if v is None: self._v = v = [0, 0, None]
            t._v = v; t._vg = v[1]
            return t
        except FAST_ERRORS: pass
        except IndexError: pass
    return SLOW(self, *size, **kw)
''', "view", SLOW=_view_method, Size=Size)


def view_dtype(t: Tensor, to: D.dtype) -> Any:
    """The bytes of `t` read as another dtype."""
    a = t._a
    if to is t.dtype:
        return f("alias")(t)
    if t.requires_grad:
        raise RuntimeError("view(dtype) of a tensor that requires grad is not supported")
    old, new = a.dtype.itemsize, to.itemsize
    if isinstance(a, MetaArray):
        raise NotImplementedError("view(dtype) of a meta tensor")
    if old == new:
        return view_of(a.view(to.np), t)
    if a.ndim == 0:
        raise RuntimeError(f"self.dim() cannot be 0 to view {t.dtype!r} as {to!r} (different element sizes)")
    if a.strides[-1] != old and a.shape[-1] > 1:
        raise RuntimeError(f"self.stride(-1) must be 1 to view {t.dtype!r} as {to!r} (different element sizes), but got {a.strides[-1] // old}")
    if new > old and (a.shape[-1] * old) % new:
        raise RuntimeError(f"self.size(-1) must be divisible by {new // old} to view {t.dtype!r} as {to!r} (different element sizes), but got {a.shape[-1]}")
    return view_of(a.view(to.np), t)


@d.composite(method=True)
def reshape(input: Tensor, shape: Sizes):
    """The same elements in other sizes: a view if strides allow, else a copy. One size may be -1."""
    a = input._a
    if a.__class__ is np.ndarray and a.flags.c_contiguous:
        return _view(input, shape)
    shape = infer(shape, a.size)
    if Geometry.of(a).reshape(shape) is not None:
        return _view(input, shape)
    return _view(f("clone")(input, memory_format=_contiguous()), shape)


def _contiguous() -> Any:
    from ..core.layout import contiguous_format
    return contiguous_format


@d.composite(method=True)
def view_as(input: Tensor, other: Tensor):
    """`view(other.size())`."""
    return input.view(other.shape)


@d.composite(method=True)
def reshape_as(input: Tensor, other: Tensor):
    """`reshape(other.size())`."""
    return reshape(input, other.shape)


@d.composite(method=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1):
    """Dimensions `start_dim` to `end_dim` as one."""
    a = input._a
    n = a.ndim
    if n == 0:
        return input.reshape(1)
    g = Geometry(a.shape, a.shape)
    i, j = g.dim(start_dim), g.dim(end_dim)
    if i > j:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if i == j:
        return input
    size = 1
    for s in a.shape[i:j + 1]:
        size *= s
    return reshape(input, (*a.shape[:i], size, *a.shape[j + 1:]))


@d.composite(method=True)
def unflatten(input: Tensor, dim: int, sizes: tuple):
    """Dimension `dim` as several of the given sizes; one may be -1."""
    i = Geometry(input._a.shape, input._a.shape).dim(dim)
    if not len(sizes):
        raise RuntimeError("unflatten: sizes must be non-empty")
    n = input._a.shape[i]
    try:
        sizes = infer(tuple(sizes), n)
    except RuntimeError:
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({n}) in the input tensor") from None
    return input.view((*input._a.shape[:i], *sizes, *input._a.shape[i + 1:]))


@d.composite(method=True)
def ravel(input: Tensor):
    """All elements in one dimension."""
    return _view(input.contiguous(), (-1,))


@d.view(method=True)
def alias(input: Tensor):
    """The tensor again, as a view."""
    return input


alias.gradient(input=lambda grad: grad)


@d.view(method=True, inplace=True, aliases=("swapaxes", "swapdims"), old={"axis0": "dim0", "axis1": "dim1"})
def transpose(input: Tensor, dim0: int, dim1: int):
    """Dimensions `dim0` and `dim1` exchanged."""
    return input.swap(dim0, dim1)


@transpose.fast
def _(a, dim0, dim1):
    try:
        return a.swapaxes(dim0, dim1)
    except (ValueError, TypeError):
        return restride(a, transpose.fn(Geometry.of(a), dim0, dim1))


transpose.gradient(input=lambda grad, dim0, dim1: grad.transpose(dim0, dim1))


@d.view(method=True, inplace=True)
def t(input: Tensor):
    """The transpose of a matrix; vectors and scalars as they are. RuntimeError for more dimensions."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return input.swap(0, 1) if input.ndim == 2 else input


@t.fast
def _(a):
    return a.T if a.ndim == 2 else restride(a, t.fn(Geometry.of(a)))


t.gradient(input=lambda grad: grad.t())


@d.view(method=True)
def permute(input: Tensor, dims: Sizes):
    """The dimensions in another order."""
    if len(dims) != input.ndim:
        raise RuntimeError(f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
                           f"dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(dims)}")
    order = [input.dim(i) for i in dims]
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return input.permute(order)


@permute.fast
def _(a, dims):
    try:
        return a.transpose(dims) if len(dims) == a.ndim else restride(a, permute.fn(Geometry.of(a), dims))
    except (ValueError, TypeError):
        return restride(a, permute.fn(Geometry.of(a), dims))


def _unpermute(grad, dims):
    n = len(dims)
    back = [0] * n
    for i, k in enumerate(dims):
        back[k % n] = i
    return grad.permute(back) if n else grad


permute.gradient(input=_unpermute)


@d.composite(prop=True, name="T")
def transpose_all(input: Tensor):
    """The dimensions in reverse order."""
    return permute(input, tuple(range(input.dim() - 1, -1, -1)))


@d.composite(prop=True)
def mT(input: Tensor):
    """The transposes of the last two dimensions."""
    if input.dim() < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {input.dim()}-D tensor.")
    return transpose(input, -2, -1)


@d.composite(prop=True)
def H(input: Tensor):
    """The conjugate transpose of a matrix."""
    if input.dim() not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {input.dim()}-D tensor.")
    return f("conj")(t(input))


@d.composite(prop=True)
def mH(input: Tensor):
    """The conjugate transposes of the last two dimensions."""
    return f("conj")(input.mT)


@d.composite(method=True)
def adjoint(input: Tensor):
    """The conjugate transposes of the last two dimensions."""
    return f("conj")(input.mT)


def _dims_list(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


@d.composite(method=True, aliases=("moveaxis",))
def movedim(input: Tensor, source: int | tuple, destination: int | tuple):
    """Dimensions `source` moved to the places `destination`; the others keep their order."""
    g = Geometry(input._a.shape, input._a.shape)
    s, e = [g.dim(i) for i in _dims_list(source)], [g.dim(i) for i in _dims_list(destination)]
    if len(s) != len(e):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(s)} dims) should contain the same number of dims as "
                           f"destination ({list(e)} dims)")
    if len(set(s)) != len(s) or len(set(e)) != len(e):
        raise RuntimeError("movedim: repeated dim in `source` or `destination`")
    rest = [i for i in range(g.ndim) if i not in s]
    order: list[int | None] = [None] * g.ndim
    for a, b in zip(s, e, strict=True):
        order[b] = a
    it = iter(rest)
    return permute(input, tuple(next(it) if o is None else o for o in order)) if g.ndim else alias(input)


@d.view(method=True, public=False, name="squeeze")
def _squeeze(input: Tensor, dim: tuple):
    return input.without([i for i in dim if input.shape[i] == 1])


@_squeeze.fast
def _(a, dim):
    return a.reshape([n for i, n in enumerate(a.shape) if n != 1 or i not in dim]) if a.flags.c_contiguous else \
        restride(a, _squeeze.fn(Geometry.of(a), dim))


_squeeze.gradient(input=lambda grad, input_meta: grad.reshape(input_meta.shape))


@d.composite(method=True, inplace="view")
def squeeze(input: Tensor, dim: int | tuple | None = None):
    """Without the dimensions of size one, or without those of `dim` that are."""
    return _squeeze(input, normalize_dims(dim, input.dim(), "squeeze") if dim != () else ())


@d.view(method=True, inplace=True)
def unsqueeze(input: Tensor, dim: int):
    """A dimension of size one put in at `dim`."""
    return input.insert(input.dim(dim, 1))


@unsqueeze.fast
def _(a, dim):
    n = a.ndim + 1
    if dim.__class__ is int and -n <= dim < n and a.size:
        return restride(a, unsqueeze.fn(Geometry.of(a), dim)) if not a.flags.c_contiguous else a.reshape(
            (*a.shape[:dim % n], 1, *a.shape[dim % n:]))
    return restride(a, unsqueeze.fn(Geometry.of(a), dim))


unsqueeze.gradient(input=lambda grad, dim, input_meta: grad.reshape(input_meta.shape))


@d.view(method=True)
def expand(input: Tensor, size: Sizes, *, implicit: bool = False):
    """Dimensions of size one stretched to `size` with stride 0; -1 keeps a size; new dimensions come in front."""
    size = tuple(size)
    lead = len(size) - input.ndim
    if lead < 0:
        raise RuntimeError(f"expand(torch.FloatTensor{{{list(input.shape)}}}, size={list(size)}): the number of sizes provided ({len(size)}) must be "
                           f"greater or equal to the number of dimensions in the tensor ({input.ndim})")
    shape, stride = [], []
    for i, n in enumerate(size):
        have = input.shape[i - lead] if i >= lead else 1
        st = input.stride[i - lead] if i >= lead else 0
        if n == -1:
            if i < lead:
                raise RuntimeError(f"expand: the expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {i}")
            n = have
        elif n != have:
            if have != 1:
                raise RuntimeError(f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension {i}.  "
                                   f"Target sizes: {list(size)}.  Tensor sizes: {list(input.shape)}")
            if n < 0:
                raise RuntimeError(f"expand: invalid size {n} at dimension {i}")
            st = 0
        elif i < lead:
            st = 0
        shape.append(n)
        stride.append(st)
    return Geometry(shape, stride, input.offset)


def _sum_to(grad, input_meta):
    from .generate import sum_to
    return sum_to(grad, input_meta.shape)


expand.gradient(input=_sum_to)


@d.composite(method=True)
def expand_as(input: Tensor, other: Tensor):
    """`expand(other.size())`."""
    return expand(input, other.shape)


@d.composite(method=True)
def broadcast_to(input: Tensor, size: Sizes):
    """Stretched to `size` by broadcasting, as a view."""
    return expand(input, size)


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


@d.view(method=True)
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
    return f("slice_scatter")(f("zeros")(input_meta.shape, dtype=grad.dtype), grad, dim, start, min(start + step * grad.shape[dim], input_meta.shape[dim]), step)


narrow.gradient(input=_narrow_gradient)


@d.view(method=True, name="slice", public=False)
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """Every `step`-th slice along `dim` from `start` to `end`."""
    i = input.dim(dim)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    a, b, _ = slice(start, end, step).indices(input.shape[i])
    return input.narrow(i, a if b > a else min(a, input.shape[i]), max(0, -(-(b - a) // step)), step)


slice_.gradient(input=lambda grad, input_meta, dim, start, end, step: pad_back(
    grad, input_meta, dim % len(input_meta.shape), slice(start, end, step).indices(input_meta.shape[dim])[0], step))


@d.view(method=True)
def select(input: Tensor, dim: int, index: int):
    """Slice `index` of dimension `dim`, which goes."""
    if input.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    i = input.dim(dim)
    n = input.shape[i]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {i}")
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


@d.composite(method=True, old={"tensor": "input", "split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"})
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
        sizes = tuple(int(x) for x in s)
        if any(x < 0 for x in sizes):
            raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(sizes)}")
        total = 0
        for x in sizes:
            total += x
        if total != n:
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), but got "
                               f"split_sizes={list(sizes)}")
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
    return _as_strided(input, tuple(int(s) for s in size), tuple(int(s) for s in stride), 0 if storage_offset is None else storage_offset - here)


# --- complex numbers as pairs -------------------------------------------------------------------------------------------
@d.view()
def view_as_real(input: Tensor):
    """A complex tensor as a real one with a last dimension of 2."""
    raise NotImplementedError


def _as_real(a):
    if a.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    r = np.dtype(f"f{a.dtype.itemsize // 2}")
    if isinstance(a, MetaArray):
        return MetaArray((*a.shape, 2), r, (*a.strides, r.itemsize), a.offset)
    if a.ndim and a.strides[-1] == a.itemsize:
        return a.view(r).reshape((*a.shape, 2)) if a.flags.c_contiguous else a[..., None].view(r)
    return a[..., None].view(r)


view_as_real.array = _as_real
view_as_real.gradient(input=lambda grad: f("view_as_complex")(grad.contiguous()))


@d.view()
def view_as_complex(input: Tensor):
    """A real tensor with a last dimension of 2 as a complex one."""
    raise NotImplementedError


def _as_complex(a):
    if a.dtype.kind != "f":
        raise RuntimeError(f"view_as_complex is only supported for floating point tensors, but got a tensor of scalar type: {D.of(a.dtype)!r}")
    if a.ndim == 0 or a.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if not a.size:
        return np.empty(a.shape[:-1], f"c{a.dtype.itemsize * 2}")
    if a.strides[-1] != a.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % (2 * a.itemsize) for s in a.strides[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    return a.view(np.dtype(f"c{a.dtype.itemsize * 2}"))[..., 0]


view_as_complex.array = _as_complex
view_as_complex.gradient(input=lambda grad: f("view_as_real")(grad))


@d.view(public=False, name="real", node="ViewAsRealBackward0")
def _real(input: Tensor):
    raise NotImplementedError


_real.array = lambda a: a.real
_real.gradient(input=lambda grad: grad.to(grad.dtype.to_complex()))


@d.view(public=False, name="imag", node="ViewAsRealBackward0")
def _imag(input: Tensor):
    raise NotImplementedError


_imag.array = lambda a: a.imag
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


view._derived["function"] = _quick_view()
