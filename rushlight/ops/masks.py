"""Choosing and writing elements by masks and by positions in the flattened tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import loops
from ..core import dtype as D
from ..core.promotion import require_fits
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from . import execute, inplace
from .compare import _where
from .declare import composite, structural, writes
from .gather import dim_of
from .index import index_by
from .inplace import C_NAMES

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex

ndarray = np.ndarray


def f(name: str) -> Any:
    return hooks.function(name)


def _mask_check(input, mask, *rest):
    if mask.dtype.kind != "b" and mask.dtype != np.uint8:
        raise RuntimeError(f"expected BoolTensor for mask, got {D.of(mask.dtype).name}")


def _fits(mask, input):
    """Refuses a mask that would have to stretch a tensor which is written in place."""
    if mask.shape != input.shape and (common := execute.common_shape(input.shape, mask.shape)) != input.shape:
        raise RuntimeError(f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(common)}")


@structural(method=True, check=_mask_check, exact=True, out="apart")
def masked_select(input: Tensor, mask: Tensor):
    """The elements where the mask (broadcast) holds, as a vector."""
    shape = execute.common_shape(mask.shape, input.shape)
    return np.broadcast_to(input, shape)[np.broadcast_to(mask.astype(bool), shape)]


masked_select.gradient(input=lambda grad, input_meta, mask: _masked_back(grad, input_meta, mask))


def _masked_back(grad, input_meta, mask):
    from .generate import sum_to

    shape = execute.common_shape(input_meta.shape, mask._a.shape)
    z = f("zeros")(tuple(shape), dtype=grad.dtype)
    z = f("masked_scatter")(z, mask.to(D.bool_).expand(shape), grad)
    return sum_to(z, input_meta.shape)


def _masked_fill_check(input, mask, value):
    _mask_check(input, mask)
    if hasattr(value, "ndim") and value.ndim:
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    if (isinstance(value, complex) or getattr(value, "dtype", input.dtype).kind == "c") and input.dtype.kind != "c":
        raise RuntimeError(
            f"value cannot be converted to type {C_NAMES.get(D.of(input.dtype).name, '')} without overflow"
        )
    if isinstance(value, (int, float)):
        require_fits(value, D.of(input.dtype))


@structural(method=True, check=_masked_fill_check, exact=True, public=False, name="masked_fill")
def _masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number):
    v = np.asarray(value).astype(input.dtype)
    m = mask if mask.dtype.kind == "b" else mask.astype(bool)
    if m.shape != input.shape:
        execute.common_shape(m.shape, input.shape)
    if input.size >= loops.BIG and input.dtype.kind == "f" and input.dtype.itemsize >= 4:
        to = D.of(input.dtype)
        return execute.pointwise_arrays(_where, [m, float(v), input], to, to)
    return np.where(m, v, input)


_masked_fill.shape(lambda input, mask, value: execute.common_shape(input.shape, mask.shape))


def _unmasked(grad, input_meta, mask):
    from .generate import sum_to

    return sum_to(execute.run(_masked_fill, (grad, mask, 0)), input_meta.shape)


_masked_fill.gradient(
    input=_unmasked, value=lambda grad, mask: f("where")(mask.to(D.bool_), grad, f("zeros_like")(grad)).sum()
)


@composite(method=True)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number):
    """`value` where the mask (broadcast) holds, the input elsewhere."""
    return execute.run(_masked_fill, (input, mask, value))


@writes(method=False, check=_masked_fill_check, exact=True, public=False, name="masked_fill")
def _masked_fill_into(input: Tensor, mask: Tensor, value: Tensor | Number):
    _fits(mask, input)
    np.copyto(input, np.asarray(value).astype(input.dtype), where=mask.astype(bool))


_masked_fill_into.expanded = True
_masked_fill_into.gradient(
    input=_unmasked, value=lambda grad, mask: f("where")(mask.to(D.bool_), grad, f("zeros_like")(grad)).sum()
)
T.masked_fill_ = lambda self, mask, value: inplace.run_inplace(_masked_fill_into, (self, mask, value))  # type: ignore[attr-defined]


def _masked_scatter_check(input, mask, source):
    if mask.dtype.kind != "b":
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {D.of(mask.dtype).name}"
        )


@writes(check=_masked_scatter_check, exact=True, public=False, name="masked_scatter")
def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor):
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {D.of(input.dtype).name} and "
            f"{D.of(source.dtype).name}"
        )
    _fits(mask, input)
    m = np.broadcast_to(mask.astype(bool), input.shape)
    n = int(m.sum())
    if source.size < n:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes and source to have at least {n} elements, "
            f"got {source.size}"
        )
    input[m] = source.reshape(-1)[:n]


_masked_scatter.gradient(
    input=lambda grad, mask: f("masked_fill")(grad, mask, 0),
    source=lambda grad, mask, source_meta: _source_back(grad, mask, source_meta),
)


@composite(method=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor):
    """The elements of `source`, in order, written where the mask (broadcast) holds."""
    shape = execute.common_shape(input._a.shape, mask._a.shape)
    return execute.run(_masked_scatter, (input if input._a.shape == shape else input.expand(shape), mask, source))


T.masked_scatter_ = lambda self, mask, source: inplace.run_inplace(_masked_scatter, (self, mask, source))  # type: ignore[attr-defined]


def _source_back(grad, mask, source_meta):
    g = masked_select.function(grad, mask)
    n = 1
    for s in source_meta.shape:
        n *= s
    z = f("zeros")((n - g.numel(),), dtype=g.dtype)
    return f("cat")([g, z]).reshape(source_meta.shape)


@structural(public=False, differentiable=False, exact=True)
def _nonzero(input: Tensor):
    return np.stack(np.nonzero(input), 1).astype(np.int64) if input.ndim else np.zeros((int(input != 0), 0), np.int64)


@composite(method=True, out=True)
def nonzero(input: Tensor, *, as_tuple: bool = False):
    """A row of indices for each nonzero element (z x n, int64); with `as_tuple` a vector for each dimension."""
    if as_tuple:
        if input.dim() == 0:
            return nonzero(input.unsqueeze(0), as_tuple=True)
        execute.reads_values("nonzero")
        return tuple(wrap(np.ascontiguousarray(i)) for i in np.nonzero(input._a))
    return execute.run(_nonzero, (input,))


@composite(method=True)
def argwhere(input: Tensor):
    """`nonzero`."""
    return execute.run(_nonzero, (input,))


@composite(method=True, out="apart")
def take(input: Tensor, index: Tensor):
    """The elements at positions of the flattened tensor."""
    n = input.numel()
    if index.dtype is not D.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype.name.capitalize()}")
    # on meta there are no values to look at
    if index.numel() and index.device.type == "cpu" and (n == 0 or bool(((index < -n) | (index >= n)).any().item())):
        raise IndexError(
            f"out of range: tried to access an index beyond {n - 1}"
            if n
            else "take(): tried to take from an empty tensor"
        )
    return index_by(input.reshape(-1), [index])


@composite(method=True, out="apart")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None):
    """The elements at `indices` along `dim`, both broadcast in the other dimensions."""
    if indices.dtype is not D.int64:
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype.name.capitalize()}"
        )
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.dim() != indices.dim():
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.dim()} dimensions for input, "
            f"and {indices.dim()} dimensions for indices"
        )
    d = dim_of(input._a, dim)
    a, b = list(input.shape), list(indices.shape)
    if a[:d] == b[:d] and a[d + 1:] == b[d + 1:] and execute.capture[0] is None:
        try:
            return input.gather(d, indices)
        except RuntimeError:                 # some are negative, or wrong
            pass
    if indices.numel() and indices._a.__class__ is ndarray and indices._a.min() < 0:
        indices = f("where")(indices < 0, indices + a[d], indices)
    common = execute.common_shape(
        tuple(n for k, n in enumerate(a) if k != d), tuple(n for k, n in enumerate(b) if k != d)
    )
    sa, sb = list(common), list(common)
    sa.insert(d, a[d])
    sb.insert(d, b[d])
    return input.expand(sa).gather(d, indices.expand(sb))


# --- Inputs for the generated tests (ops.samples) ---
masked_fill.samples(lambda s: [s.call(s((3, 4)), s.bools((3, 4)), 2.5), s.call(s((3, 4)), s.bools((4,)), s(()))])
take.samples(lambda s: [s.call(s((3, 4)), s.ints((2, 3), 12)), s.call(s((3, 4)), s.array([-1, 0]))])
take_along_dim.samples(lambda s: [s.call(s((3, 4)), s.ints((3, 2), 4), 1), s.call(s((3, 4)), s.ints((5,), 12))])
masked_select.samples(lambda s: [s.call(s((3, 4)), s.bools((3, 4))), s.call(s((3, 4)), s.bools((4,))), s.call(s((4,)), s.bools((3, 4)))])
masked_scatter.samples(lambda s: [s.call(s((3, 4)), s.bools((3, 4)), s((12,))), s.call(s((3, 4)), s.bools((4,)), s((12,)))])
nonzero.samples(lambda s: [s.call(s.ints((3, 4), 2)), s.call(s.bools((5,)))])
argwhere.samples(lambda s: [s.call(s.ints((3, 4), 2)), s.call(s.bools(()))])
