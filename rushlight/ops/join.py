"""Joining, repeating, reordering, padding: new memory from pieces of old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.layout import channels_last, channels_last_3d, strides_for
from ..core.promotion import fitted, result_of
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from .declare import composite, structural
from .execute import common_shape, reads_values
from .geometry import Geometry, row_major

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Tensors = list[Tensor]
    Number = int | float | complex
    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


def _legacy_empty(a: Any) -> bool:
    return a.ndim == 1 and a.shape[0] == 0


def _cat_check(tensors, dim):
    if not len(tensors):
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    shape = tensors[0].shape
    if (
        len(shape) > 1
        and all([a.shape == shape for a in tensors])
        and dim.__class__ is int
        and -len(shape) <= dim < len(shape)
    ):
        return
    for k, a in enumerate(tensors):
        if a.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated")
    kept = [(k, a) for k, a in enumerate(tensors) if not _legacy_empty(a)]
    if not kept:
        return
    first = kept[0][1]
    d = Geometry(first.shape, first.shape).dim(dim)
    for k, a in kept[1:]:
        if a.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {a.ndim}")
        for i, (n, m) in enumerate(zip(first.shape, a.shape, strict=True)):
            if i != d and n != m:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {n} but got size {m} for "
                    f"tensor number {k} in the list."
                )


@structural(
    exact=True,
    check=_cat_check,
    out="moved",
    aliases=("concat", "concatenate"),
    old={"inputs": "tensors", "dimension": "dim"},
)
def cat(tensors: Tensors, dim: int = 0):
    """The tensors one after the other along `dim`; dtypes are promoted. Sizes elsewhere must agree."""
    first = tensors[0].dtype
    if all([a.dtype is first for a in tensors]) and all([a.ndim > 1 for a in tensors]):
        return _in_order(np.concatenate(tensors, dim))
    d = result_of(tuple(tensors)).np
    kept = [a for a in tensors if not _legacy_empty(a)]
    if not kept:
        return np.empty((0,), d)
    if len(kept) == 1:
        return _in_order(kept[0].astype(d))
    return _in_order(np.concatenate(kept, dim, dtype=d, casting="unsafe"))


def _in_order(a: np.ndarray) -> np.ndarray:
    """Joined arrays in row-major order, or with the channels last if all of them were."""
    if a.flags.c_contiguous or a.ndim in (4, 5) and a.strides == strides_for(a.shape, a.itemsize, channels_last if a.ndim == 4 else channels_last_3d):
        return a
    return np.ascontiguousarray(a)


@cat.shape
def _(tensors, dim):
    kept = [a for a in tensors if not _legacy_empty(a)]
    d = result_of(tuple(tensors))
    if not kept:
        return (0,), d
    k = dim % kept[0].ndim
    return tuple(sum(a.shape[i] for a in kept) if i == k else n for i, n in enumerate(kept[0].shape)), d


def _cat_gradient(grad, tensors_meta, dim):
    out, start = [], 0
    for m in tensors_meta:
        if len(m.shape) == 1 and m.shape[0] == 0 and grad.dim() != 1:
            out.append(f("zeros")((0,), dtype=m.dtype))
            continue
        n = m.shape[dim]
        g = grad.narrow(dim, start, n)
        start += n
        if g.dtype is not m.dtype:
            g = (f("real")(g) if g.dtype.is_complex and not m.dtype.is_complex else g).to(m.dtype)
        out.append(g)
    return out


cat.gradient(tensors=_cat_gradient)


def _stack_check(tensors, dim):
    if not len(tensors):
        raise RuntimeError("stack expects a non-empty TensorList")
    for k, a in enumerate(tensors):
        if a.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(a.shape)} at entry {k}"
            )
    Geometry(tensors[0].shape, tensors[0].shape).dim(dim, 1)


@structural(exact=True, check=_stack_check, old={"sequence": "tensors", "inputs": "tensors", "dimension": "dim"})
def stack(tensors: Tensors, dim: int = 0):
    """The tensors along a new dimension; all of one size."""
    first = tensors[0]
    k = first.ndim + 1
    at = (slice(None),) * (dim % k) + (None,)
    if all([a.dtype is first.dtype for a in tensors]):
        return row_major(np.concatenate([a[at] for a in tensors], dim % k))
    return row_major(np.stack(tensors, dim, dtype=result_of(tuple(tensors)).np, casting="unsafe"))


@stack.shape
def _(tensors, dim):
    s = list(tensors[0].shape)
    s.insert(dim % (len(s) + 1), len(tensors))
    return s, result_of(tuple(tensors))


def _stack_gradient(grad, tensors_meta, dim):
    parts = f("unbind")(grad, dim)
    return [g if g.dtype is m.dtype else g.to(m.dtype) for g, m in zip(parts, tensors_meta, strict=True)]


stack.gradient(tensors=_stack_gradient)


def _list(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, T) else list(tensors)


def _atleast(n: int, t: Any) -> Any:
    k = t.dim()
    if n == 1:
        return t.reshape(1) if k == 0 else t
    if n == 2:
        return t.reshape(1, 1) if k == 0 else t.unsqueeze(0) if k == 1 else t
    return (
        t.reshape(1, 1, 1) if k == 0 else t.unsqueeze(0).unsqueeze(-1) if k == 1 else t.unsqueeze(-1) if k == 2 else t
    )


def _many(name: str, n: int) -> None:
    def fn(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            tensors = tuple(tensors[0])
            return tuple(_atleast(n, t) for t in tensors)
        r = tuple(_atleast(n, t) for t in tensors)
        return r[0] if len(r) == 1 else r

    fn.__name__ = name
    fn.__doc__ = f"Each tensor with at least {n} dimension{'s' * (n > 1)}."

    def body(tensors: Any):
        return fn(tensors)

    body.__name__, body.__doc__ = name, fn.__doc__
    op = composite(body)
    op._derived["function"] = fn


for _n, _k in (("atleast_1d", 1), ("atleast_2d", 2), ("atleast_3d", 3)):
    _many(_n, _k)


@composite(out=True)
def hstack(tensors: Tensors):
    """Joined along the second dimension (vectors: along the first)."""
    ts = [_atleast(1, t) for t in _list(tensors)]
    if not ts:
        raise RuntimeError("hstack expects a non-empty TensorList")
    return cat(ts, 0 if ts[0].dim() == 1 else 1)


@composite(aliases=("row_stack",), out=True)
def vstack(tensors: Tensors):
    """Joined along the first dimension; vectors are rows."""
    if not len(tensors):
        raise RuntimeError("vstack expects a non-empty TensorList")
    return cat([_atleast(2, t) for t in _list(tensors)], 0)


@composite(out=True)
def dstack(tensors: Tensors):
    """Joined along the third dimension."""
    if not len(tensors):
        raise RuntimeError("dstack expects a non-empty TensorList")
    return cat([_atleast(3, t) for t in _list(tensors)], 2)


@composite(out=True)
def column_stack(tensors: Tensors):
    """Joined along the second dimension; vectors are columns."""
    if not len(tensors):
        raise RuntimeError("column_stack expects a non-empty TensorList")
    return cat([t.reshape(t.numel(), 1) if t.dim() <= 1 else t for t in _list(tensors)], 1)


@composite(method=True)
def repeat(input: Tensor, repeats: Sizes):
    """The tensor tiled `repeats` times along each dimension; new dimensions come in front."""
    if len(repeats) < input.dim():
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(r < 0 for r in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(repeats)}: {list(repeats)}")
    shape = (1,) * (len(repeats) - input.dim()) + tuple(input._a.shape)
    wide: list[int] = []
    for r, n in zip(repeats, shape, strict=True):
        wide += [r, n]
    x = input.reshape([k for n in shape for k in (1, n)]).expand(wide)
    r = x.reshape([r * n for r, n in zip(repeats, shape, strict=True)])
    return r.clone() if r._base is not None else r


@composite(method=True)
def tile(input: Tensor, dims: Sizes):
    """`repeat` with missing factors taken as 1."""
    return repeat(input, (1,) * (input.dim() - len(dims)) + tuple(dims))


@composite(method=True)
def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
):
    """Each slice along `dim` (of the flattened tensor by default) `repeats` times in a row; `repeats` alone gives the
    indices."""
    if repeats is None:
        n = input._a
        if input.dtype.category != D.INTEGER:
            raise RuntimeError("repeats has to be Long or Int tensor")
        if input.dim() != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        reads_values("repeat_interleave")
        if n.size and n.min() < 0:
            raise RuntimeError("repeats can not be negative")
        return wrap(np.repeat(np.arange(n.size), n))
    if dim is None:
        input, dim = input.reshape(-1), 0
    n = input._a.shape[dim] if input.dim() else 1
    if isinstance(repeats, T):
        if repeats.dim() > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
        if repeats.numel() not in (1, n):
            raise RuntimeError(
                f"repeats must have the same size as input along dim, but got repeats.size(0) = {repeats.numel()} and "
                f"input.size({dim}) = {n}"
            )
        if repeats.device.type == "meta":
            if output_size is None:
                raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
            return f("index_select")(input if input.dim() else input.reshape(1), dim, f("zeros")(output_size, dtype=D.int64, device="meta"))
        reads_values("repeat_interleave")
        r = repeats._a if repeats.numel() == n and repeats.dim() else int(repeats._a.reshape(-1)[0])
    else:
        r = repeats
    if np.min(r, initial=0) < 0:
        raise RuntimeError("repeats can not be negative")
    at = np.repeat(np.arange(n), r)
    if output_size is not None and output_size != at.size:
        raise RuntimeError("allocated size does not match required size")
    return f("index_select")(input if input.dim() else input.reshape(1), dim, wrap(at) if input.device.type == "cpu" else wrap(at).to(input.device))


def _dims(a: Any, dims: Any) -> tuple[int, ...]:
    g = Geometry(a.shape, a.shape)
    return tuple(g.dim(d) for d in dims)


@structural(method=True, exact=True)
def flip(input: Tensor, dims: Sizes):
    """A copy with the order along `dims` reversed."""
    ds = _dims(input, dims)
    if len(set(ds)) != len(ds):
        raise RuntimeError(f"dim {ds[0]} appears multiple times in the list of dims")
    return np.flip(input, ds if input.ndim else ()).copy()


flip.shape(lambda input, dims: input.shape)
flip.gradient(input=lambda grad, dims: grad.flip(dims))


@composite(method=True)
def fliplr(input: Tensor):
    """Columns in reverse order."""
    if input.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, (1,))


@composite(method=True)
def flipud(input: Tensor):
    """Rows in reverse order."""
    if input.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, (0,))


@structural(exact=True, public=False)
def _roll(input: Tensor, shifts: tuple, dims: tuple):
    return row_major(np.roll(input, shifts, dims))


_roll.shape(lambda input, shifts, dims: input.shape)
_roll.gradient(input=lambda grad, shifts, dims: roll(grad, tuple(-s for s in shifts), dims))


@composite(method=True)
def roll(input: Tensor, shifts: int | tuple, dims: int | tuple | None = None):
    """Elements shifted along `dims`, those that fall off come in at the other end; without dims the flattened tensor is
    rolled."""
    s = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if not s:
        raise RuntimeError("`shifts` required")
    ds = () if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    if not ds:
        if len(s) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(s)}, dims:{len(ds)}")
        return _call_roll(input.reshape(-1), s, (0,)).reshape(input.shape)
    if len(s) != len(ds):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(s)}, dims:{len(ds)}")
    return _call_roll(input, s, _dims(input._a, ds))


def _call_roll(t: Any, s: tuple, d: tuple) -> Any:
    return _roll.function(t, s, d)


@composite(method=True)
def rot90(input: Tensor, k: int = 1, dims: tuple = (0, 1)):
    """Rotated by 90 degrees k times in the plane of two dimensions."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.dim() < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.dim()}")
    a, b = _dims(input._a, dims)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    k %= 4
    if k == 1:
        return flip(input, (b,)).transpose(a, b).clone()
    if k == 2:
        return flip(input, (a, b))
    if k == 3:
        return flip(input, (a,)).transpose(a, b).clone()
    return input.clone()


def _triangle(lower: bool) -> Any:
    def body(input: Any, diagonal: int) -> Any:
        if input.ndim < 2:
            raise RuntimeError("tril: input tensor must have at least 2 dimensions")
        m = np.tri(*input.shape[-2:], k=diagonal if lower else diagonal - 1, dtype=bool)
        return np.where(m if lower else ~m, input, np.zeros((), input.dtype))

    return body


@structural(method=True, inplace=True, exact=True, old={"k": "diagonal"})
def tril(input: Tensor, diagonal: int = 0):
    """Matrices with zeros above the given diagonal."""
    return _triangle(True)(input, diagonal)


@structural(method=True, inplace=True, exact=True, old={"k": "diagonal"})
def triu(input: Tensor, diagonal: int = 0):
    """Matrices with zeros below the given diagonal."""
    return _triangle(False)(input, diagonal)


for _op in (tril, triu):
    _op.shape(lambda input, diagonal: input.shape)
tril.gradient(input=lambda grad, diagonal: grad.tril(diagonal))
triu.gradient(input=lambda grad, diagonal: grad.triu(diagonal))


def _triangle_indices(lower: bool, row: int, col: int, offset: int, dtype: Any) -> Any:
    if row < 0 or col < 0:
        raise RuntimeError(
            f"row must be non-negative, got {row}" if row < 0 else f"col must be non-negative, got {col}"
        )
    i, j = (np.tril_indices if lower else np.triu_indices)(row, offset, col)
    return wrap(np.stack([i, j]).astype((dtype or D.int64).np))


@composite()
def tril_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """2 x n: the positions on and below a diagonal of a row x col matrix."""
    t = _triangle_indices(True, row, col, offset, dtype)
    return t if device is None else t.to(device)


@composite()
def triu_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """2 x n: the positions on and above a diagonal of a row x col matrix."""
    t = _triangle_indices(False, row, col, offset, dtype)
    return t if device is None else t.to(device)


@composite(method=True, out="same")
def diag(input: Tensor, diagonal: int = 0):
    """A matrix with the vector on a diagonal, or a copy of a diagonal of a matrix."""
    if input.dim() == 1:
        return diag_embed(input, diagonal)
    if input.dim() != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.dim()}D")
    return input.diagonal(diagonal).clone()


@composite(method=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """Matrices, in dimensions dim1 and dim2, with the last dimension on a diagonal."""
    n = input._a.shape[-1] + (offset if offset >= 0 else -offset)
    g = Geometry((0,) * (input.dim() + 1), (0,) * (input.dim() + 1))
    a, b = g.dim(dim1), g.dim(dim2)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = list(input._a.shape[:-1])
    for k in sorted((a, b)):
        shape.insert(k, n)
    z = f("zeros")(tuple(shape), dtype=input.dtype, device=input.device)
    return f("diagonal_scatter")(z, input, offset, dim1, dim2)


@composite(method=True)
def diagflat(input: Tensor, offset: int = 0):
    """A matrix with the flattened tensor on a diagonal."""
    return diag_embed(input.reshape(-1), offset)


@composite()
def meshgrid(tensors: Tensors, *, indexing: str | None = None):
    """Coordinate grids of vectors: output k varies along dimension k ("ij"), or with the first two exchanged ("xy")."""
    ts = [t.reshape(1) if t.dim() == 0 else t for t in _list(tensors)]
    if not ts:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in ts:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t!r}")
        if t.dtype is not ts[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if indexing is None:
        import warnings

        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
            UserWarning,
            stacklevel=5,
        )
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if indexing == "xy" and len(ts) >= 2:
        b, a, *rest = meshgrid.fn([ts[1], ts[0], *ts[2:]], indexing="ij")
        return (a, b, *rest)
    shape = [t.numel() for t in ts]
    return tuple(t.reshape([-1 if i == k else 1 for i in range(len(ts))]).expand(shape) for k, t in enumerate(ts))


def _meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    ts = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return meshgrid.fn(list(ts), indexing=indexing)


meshgrid._derived["function"] = _meshgrid


@composite()
def broadcast_tensors(tensors: Tensors):
    """Views of the tensors, broadcast to one shape."""
    ts = _list(tensors)
    shape = common_shape(*[t._a.shape for t in ts])
    return tuple(t.expand(shape) for t in ts)


broadcast_tensors._derived["function"] = lambda *ts: broadcast_tensors.fn(
    list(ts[0]) if len(ts) == 1 and isinstance(ts[0], (list, tuple)) else list(ts)
)


@composite()
def cartesian_prod(tensors: Tensors):
    """All combinations of elements of the vectors, one a row."""
    ts = _list(tensors)
    if len(ts) == 1:
        return ts[0]
    return stack([g.reshape(-1) for g in _meshgrid(*ts, indexing="ij")], 1)


cartesian_prod._derived["function"] = lambda *ts: cartesian_prod.fn(
    list(ts[0]) if len(ts) == 1 and isinstance(ts[0], (list, tuple)) else list(ts)
)


@composite()
def block_diag(tensors: Tensors):
    """The matrices along the diagonal of one."""
    ts = [_atleast(2, t) for t in _list(tensors)]
    for k, t in enumerate(ts):
        if t.dim() > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {k} has {t.dim()} dimensions")
    r, c = sum(t.shape[0] for t in ts), sum(t.shape[1] for t in ts)
    d = result_of(tuple(t._a for t in ts))
    out = f("zeros")((r, c), dtype=d, device=ts[0].device)
    i = j = 0
    for t in ts:
        out[i : i + t.shape[0], j : j + t.shape[1]] = t
        i, j = i + t.shape[0], j + t.shape[1]
    return out


block_diag._derived["function"] = lambda *ts: block_diag.fn(
    list(ts[0]) if len(ts) == 1 and isinstance(ts[0], (list, tuple)) else list(ts)
)


@composite(method=True)
def tensor_split(input: Tensor, indices_or_sections: int | tuple | Tensor, dim: int = 0):
    """Views of nearly equal parts, or between the given positions."""
    if input.dim() == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    n = input.size(dim)
    s = indices_or_sections
    if isinstance(s, T):
        s = s.item() if s.dim() == 0 else s.tolist()
    if isinstance(s, int):
        if s <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {s}")
        q, r = divmod(n, s)
        s = [min(i, r) + q * i for i in range(1, s)]
    # slices, each a view of its own that may be written to: `split` makes several views at once
    out, start = [], 0
    for e in [*s, n]:
        a, b, _ = slice(start, e).indices(n)
        out.append(input.narrow(dim, a, max(b - a, 0)))
        start = e
    return tuple(out)


def _named_split(name: str, at: Any, least: int) -> None:
    def body(input: Tensor, indices_or_sections: int | tuple):
        if input.dim() < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension{'s' * (least > 1)}, but got a tensor "
                f"with {input.dim()} dimensions!"
            )
        d = at(input)
        if isinstance(indices_or_sections, int) and (indices_or_sections == 0 or input.shape[d] % indices_or_sections):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension {input.shape[d]} "
                "is not divisible by the "
                f"split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, d)

    body.__name__, body.__doc__ = name, "Views of parts along one dimension."
    composite(body, method=True)


_named_split("hsplit", lambda t: 0 if t.dim() == 1 else 1, 1)
_named_split("vsplit", lambda t: 0, 2)
_named_split("dsplit", lambda t: 2, 3)


# --- padding ----------------------------------------------------------------------------------------------------------
@structural(exact=True, ns=("torch",))
def constant_pad_nd(input: Tensor, pad: tuple, value: Number = 0):
    """`value` around the tensor: pairs (before, after) from the last dimension on; negative ones cut off."""
    pairs = _pairs(input.ndim, pad)
    shape = tuple(n + a + b for n, (a, b) in zip(input.shape, pairs, strict=True))
    if any(n < 0 for n in shape):
        raise RuntimeError(
            f"The input size {list(input.shape)} plus padding {list(pad)} resulted in a negative output size, which is "
            "invalid."
        )
    out = np.full(shape, fitted(value, D.of(input.dtype)), input.dtype)
    src = input[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(input.shape, pairs, strict=True))]
    out[tuple(slice(max(a, 0), max(a, 0) + k) for k, (a, b) in zip(src.shape, pairs, strict=True))] = src
    return out


def _pairs(ndim: int, pad: Any) -> list[tuple[int, int]]:
    if len(pad) % 2:
        raise RuntimeError("Length of pad must be even but instead it equals " + str(len(pad)))
    if len(pad) // 2 > ndim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
            f"{len(pad)} while the input has "
            f"{ndim} dimensions."
        )
    return [(0, 0)] * (ndim - len(pad) // 2) + [
        (int(pad[2 * k]), int(pad[2 * k + 1])) for k in reversed(range(len(pad) // 2))
    ]


constant_pad_nd.shape(
    lambda input, pad, value: tuple(
        n + a + b for n, (a, b) in zip(input.shape, _pairs(len(input.shape), pad), strict=True)
    )
)
constant_pad_nd.gradient(input=lambda grad, pad: constant_pad_nd(grad, tuple(-p for p in pad), 0))


def _pad_index(mode: str, n: int, a: int, b: int) -> Any:
    i = np.arange(-a, n + b)
    if mode == "reflect":
        i = np.abs(i)
        return np.where(i >= n, 2 * (n - 1) - i, i)
    if mode == "replicate":
        return np.clip(i, 0, n - 1)
    # a negative amount crops first; what wraps around is the rest
    m = n + min(a, 0) + min(b, 0)
    return np.arange(-max(a, 0), m + max(b, 0)) % m - min(a, 0)


@composite(ns="nn.functional")
def pad(input: Tensor, pad: tuple, mode: str = "constant", value: Number | None = None):
    """The tensor with a border: pairs (before, after) from the last dimension on. Modes: constant, reflect, replicate,
    circular."""
    if mode == "constant":
        return constant_pad_nd(input, tuple(pad), 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    k = len(pad) // 2
    if len(pad) % 2 or k not in (1, 2, 3) or input.dim() not in (k + 1, k + 2):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now")
    x = input
    for j in range(k):
        a, b = int(pad[2 * j]), int(pad[2 * j + 1])
        d = input.dim() - 1 - j
        n = input._a.shape[d]
        if mode == "reflect" and (a >= n or b >= n):
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
                f"({a}, {b}) at dimension {d} "
                f"of input {list(input.shape)}"
            )
        if mode == "circular" and (a > n or b > n):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if n + a + b < 1:
            raise RuntimeError(f"input (size: {n}) at dimension {d} is too small for padding ({a}, {b})")
        if a or b:
            at = wrap(_pad_index(mode, n, a, b))
            x = f("index_select")(x, d, at if x.device.type == "cpu" else at.to(x.device))
    return x if x is not input else input.clone()


# --- Inputs for the generated tests (ops.samples) ---
cat.samples(lambda s: [s.call([s((2, 3)), s((1, 3))]), s.call([s((2, 3)), s((2, 1)), s((2, 0))], -1),
                       s.call([s((2, 3), transposed=True), s((2, 2))], dim=1)])
stack.samples(lambda s: [s.call([s((2, 3)), s((2, 3))]), s.call([s((2,)), s((2,)), s((2,))], -1), s.call([s(()), s(())])])
flip.samples(lambda s: [s.call(s((3, 4)), (0,)), s.call(s((3, 4)), (0, -1)), s.call(s((0, 3)), (1,))])
roll.samples(lambda s: [s.call(s((3, 4)), 1), s.call(s((3, 4)), (1, -2), (0, 1)), s.call(s((3, 4)), 5, 1)])
repeat.samples(lambda s: [s.call(s((2, 3)), 2, 2), s.call(s((3,)), (2, 1, 2)), s.call(s((2, 3)), 0, 1)])
tril.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 3)), -1), s.call(s((2, 3, 2)), 1)])
triu.samples(lambda s: [s.call(s((3, 4))), s.call(s((3, 3)), -1), s.call(s((2, 3, 2)), 1)])
repeat_interleave.samples(lambda s: [s.call(s((2, 3)), 2), s.call(s((2, 3)), 2, 1), s.call(s((2, 3)), s.array([0, 2]), 0, output_size=2)])
pad.samples(lambda s: [s.call(s((2, 3)), (1, 2)), s.call(s((2, 3)), (1, 0, 0, 2), value=1.5), s.call(s((2, 3)), (-1, 1)),
                       s.call(s((1, 2, 4)), (2, 1), mode="reflect"), s.call(s((1, 2, 4)), (2, 1), mode="replicate"),
                       s.call(s((1, 2, 4)), (2, 1), mode="circular")])
hstack.samples(lambda s: [s.call([s((2, 3)), s((2, 3))]), s.call([s((3,)), s((3,))])])
vstack.samples(lambda s: [s.call([s((2, 3)), s((2, 3))]), s.call([s((3,)), s((3,))])])
dstack.samples(lambda s: [s.call([s((2, 3)), s((2, 3))]), s.call([s((3,)), s((3,))])])
column_stack.samples(lambda s: [s.call([s((2, 3)), s((2, 3))]), s.call([s((3,)), s((3,))])])
tile.samples(lambda s: [s.call(s((2, 3)), (2,)), s.call(s((2,)), (2, 2))])
fliplr.samples(lambda s: [s.call(s((2, 3)))])
flipud.samples(lambda s: [s.call(s((2, 3)))])
rot90.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3, 2)), 3, (0, 2))])
tril_indices.samples(lambda s: [s.call(3, 4), s.call(3, 3, -1)])
triu_indices.samples(lambda s: [s.call(3, 4), s.call(3, 3, 1)])
diag.samples(lambda s: [s.call(s((3,))), s.call(s((3, 4)), 1), s.call(s((2,)), -1)])
diag_embed.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 1, 0, 2)])
diagflat.samples(lambda s: [s.call(s((2, 2))), s.call(s((2,)), 1)])
meshgrid.samples(lambda s: [s.call([s((2,)), s((3,))], indexing='ij'), s.call([s((2,)), s((3,))], indexing='xy')])
broadcast_tensors.samples(lambda s: [s.call(s((2, 1)), s((3,)))])
cartesian_prod.samples(lambda s: [s.call(s((2,)), s((3,)))])
block_diag.samples(lambda s: [s.call(s((2, 3)), s((1, 2)), s(()))])
tensor_split.samples(lambda s: [s.call(s((5, 2)), 3), s.call(s((5, 2)), (1, 4)), s.call(s((2, 5)), 2, 1)])
constant_pad_nd.samples(lambda s: [s.call(s((2, 3)), (1, 2)), s.call(s((2, 3)), (0, 1, 2, 0), 1.5), s.call(s((2, 4)), (-1, -1))])
