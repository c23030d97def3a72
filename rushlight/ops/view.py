"""Views: other shapes, strides and offsets on the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.tensor import Size, hooks, view_of
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
                raise RuntimeError(
                    f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension "
                    "size -1 can be "
                    "any value and is ambiguous"
                )
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
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous "
            "subspaces). Use .reshape(...) instead."
        )
    return g


@_view.fast
def _(a, size):
    if a.flags.c_contiguous:
        try:
            r = a.reshape(size)
        except ValueError:
            infer(size, a.size)
            raise
        if r.shape != size:
            infer(size, a.size)     # NumPy takes any negative size for -1
        return r
    return restride(a, _view.fn(Geometry.of(a), size))


_view.gradient(input=lambda grad, input_meta: grad.reshape(input_meta.shape))


@d.composite(ns="Tensor", method=True)
def view(input: Tensor, size: Sizes):
    """The same elements in other sizes, on the same memory; one size may be -1. With a dtype instead of sizes, the
    same bytes read as
    that dtype. RuntimeError if no strides give the shape (`reshape` copies then)."""
    return _view(input, size)


def _view_method(self: Tensor, *size: Any, **kw: Any) -> Any:
    from . import execute
    from .calls import sizes

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
    """`x.view(...)` of a contiguous CPU tensor that does not require grad: one reshape. Everything else goes the
    general way."""
    from .generate import make

    return make(
        """
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
""",
        "view",
        SLOW=_view_method,
        Size=Size,
    )


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
        raise RuntimeError(
            f"self.stride(-1) must be 1 to view {t.dtype!r} as {to!r} (different element sizes), but got "
            f"{a.strides[-1] // old}"
        )
    if new > old and (a.shape[-1] * old) % new:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {new // old} to view {t.dtype!r} as {to!r} (different element sizes), "
            f"but got {a.shape[-1]}"
        )
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
    for s in a.shape[i : j + 1]:
        size *= s
    return reshape(input, (*a.shape[:i], size, *a.shape[j + 1 :]))


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
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({n}) in the input "
            "tensor"
        ) from None
    return input.view((*input._a.shape[:i], *sizes, *input._a.shape[i + 1 :]))


@d.composite(method=True)
def ravel(input: Tensor):
    """All elements in one dimension."""
    return _view(input.contiguous(), (-1,))


@d.view(method=True)
def alias(input: Tensor):
    """The tensor again, as a view."""
    return input


alias.gradient(input=lambda grad: grad)


@d.view(method=True, inplace=True, out="view", aliases=("swapaxes", "swapdims"), old={"axis0": "dim0", "axis1": "dim1"})
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


@d.view(method=True, inplace=True, out="view")
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
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            "ordering of "
            f"dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(dims)}"
        )
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
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {input.dim()}-D tensor."
        )
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
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(s)} dims) should contain the same number of "
            "dims as "
            f"destination ({list(e)} dims)"
        )
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
    return (
        a.reshape([n for i, n in enumerate(a.shape) if n != 1 or i not in dim])
        if a.flags.c_contiguous
        else restride(a, _squeeze.fn(Geometry.of(a), dim))
    )


_squeeze.gradient(input=lambda grad, input_meta: grad.reshape(input_meta.shape))


@d.composite(method=True, inplace="view", out="view")
def squeeze(input: Tensor, dim: int | tuple | None = None):
    """Without the dimensions of size one, or without those of `dim` that are."""
    return _squeeze(input, normalize_dims(dim, input.dim(), "squeeze") if dim != () else ())


@d.view(method=True, inplace=True, out="view")
def unsqueeze(input: Tensor, dim: int):
    """A dimension of size one put in at `dim`."""
    return input.insert(input.dim(dim, 1))


@unsqueeze.fast
def _(a, dim):
    n = a.ndim + 1
    if dim.__class__ is int and -n <= dim < n and a.size:
        return (
            restride(a, unsqueeze.fn(Geometry.of(a), dim))
            if not a.flags.c_contiguous
            else a.reshape((*a.shape[: dim % n], 1, *a.shape[dim % n :]))
        )
    return restride(a, unsqueeze.fn(Geometry.of(a), dim))


unsqueeze.gradient(input=lambda grad, dim, input_meta: grad.reshape(input_meta.shape))


@d.view(method=True)
def expand(input: Tensor, size: Sizes, *, implicit: bool = False):
    """Dimensions of size one stretched to `size` with stride 0; -1 keeps a size; new dimensions come in front."""
    size = tuple(size)
    lead = len(size) - input.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.FloatTensor{{{list(input.shape)}}}, size={list(size)}): the number of sizes provided "
            f"({len(size)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({input.ndim})"
        )
    shape, stride = [], []
    for i, n in enumerate(size):
        have = input.shape[i - lead] if i >= lead else 1
        st = input.stride[i - lead] if i >= lead else 0
        if n == -1:
            if i < lead:
                raise RuntimeError(
                    "expand: the expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension "
                    f"{i}"
                )
            n = have
        elif n != have:
            if have != 1:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton "
                    f"dimension {i}.  "
                    f"Target sizes: {list(size)}.  Tensor sizes: {list(input.shape)}"
                )
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


view._derived["function"] = _quick_view()


# --- Inputs for the generated tests (ops.samples) ---
view.samples(lambda s: [s.call(s((3, 4)), 2, 6), s.call(s((3, 4)), -1), s.call(s((2, 3, 2)), (6, 2)), s.call(s((1, 4)), 2, 2)])
reshape.samples(lambda s: [s.call(s((3, 4)), (2, -1)), s.call(s((3, 4), transposed=True), (12,)), s.call(s((0, 3)), (3, 0)), s.call(s(()), (1, 1))])
transpose.samples(lambda s: [s.call(s((2, 3, 4)), 0, 2), s.call(s((2, 3)), -1, -2), s.call(s(()), 0, -1)])
t.samples(lambda s: [s.call(s((3, 4))), s.call(s((3,))), s.call(s(()))])
permute.samples(lambda s: [s.call(s((2, 3, 4)), (2, 0, 1)), s.call(s((2, 3)), (-1, 0)), s.call(s(()), ())])
unsqueeze.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1), s.call(s(()), 0)])
squeeze.samples(lambda s: [s.call(s((1, 3, 1))), s.call(s((1, 3, 1)), 0), s.call(s((1, 3, 1)), 1), s.call(s((1, 3, 1)), (0, -1)), s.call(s(()), 0)])
expand.samples(lambda s: [s.call(s((3, 1)), 3, 4), s.call(s((1, 4)), 2, -1, 4), s.call(s(()), (2,)), s.call(s((1, 3)), 0, 3)])
flatten.samples(lambda s: [s.call(s((2, 3, 2))), s.call(s((2, 3, 2)), 1), s.call(s((2, 3, 2), transposed=True), 0, 1), s.call(s(()))])
expand_as.samples(lambda s: [s.call(s((3, 1)), s((2, 3, 4), requires_grad=False))])
view_as.samples(lambda s: [s.call(s((3, 4)), s((2, 6), requires_grad=False))])
movedim.samples(lambda s: [s.call(s((2, 3, 4)), 0, -1), s.call(s((2, 3, 4)), (0, 1), (2, 0))])
reshape_as.samples(lambda s: [s.call(s((3, 4)), s((2, 6), requires_grad=False))])
unflatten.samples(lambda s: [s.call(s((2, 6)), 1, (2, 3)), s.call(s((6,)), 0, (-1, 2))])
ravel.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3), transposed=True))])
adjoint.samples(lambda s: [s.call(s((2, 3)))])
broadcast_to.samples(lambda s: [s.call(s((3,)), (2, 3)), s.call(s((3, 1)), (2, 3, 4))])
