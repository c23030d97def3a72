"""Embeddings: rows of a table by index, and bags of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import indexed
from ..core import dtype as D
from .declare import composite, structural, writes
from .execute import reads_values
from .nn_common import f, narrow, row_kernels_for, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor


def _check_index(name: str, indices: Any) -> None:
    if indices.dtype.kind != "i" or indices.dtype.itemsize < 4:
        raise RuntimeError(f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {D.of(indices.dtype).name} "
                           f"instead (while checking arguments for {name})")


def _in_range(indices: np.ndarray, n: int) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        raise IndexError("index out of range in self")


def _no_check(weight: Any, dim: int, indices: Any) -> None:
    """`_rows` has looked at its operands."""


@structural(public=False, exact=True, name="embedding")
def _rows(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool):
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but got shape {list(weight.shape)}")
    _check_index("embedding", indices)
    r = indexed.select(weight, indices, 0, _no_check)
    if r is None:
        _in_range(indices, weight.shape[0])
        return weight.take(indices, 0)
    if r is False:
        raise IndexError("index out of range in self")
    return r if indices.ndim else r.reshape(-1)


_rows.shape(lambda weight, indices, padding_idx, scale_grad_by_freq: (*indices.shape, weight.shape[1]))


@structural(public=False, exact=True, node="EmbeddingDenseBackward0")
def embedding_dense_backward(grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool):
    """Each row of `grad` added to the row of the table that it came from."""
    g = wide(grad).reshape(indices.size, grad.shape[-1])
    i = indices.reshape(-1)
    if padding_idx >= 0:
        keep = i != padding_idx
        if not keep.all():
            g, i = g[keep], i[keep]
    if scale_grad_by_freq and i.size:
        g = g / np.bincount(i, minlength=num_weights)[i][:, None].astype(g.dtype)
    return narrow(sum_rows(g, i, num_weights), grad.dtype)


def sum_rows(rows: np.ndarray, index: np.ndarray, n: int) -> np.ndarray:
    """(n, width): the sums of the rows of equal index."""
    out = np.zeros((n, rows.shape[1]), rows.dtype)
    if not index.size:
        return out
    if row_kernels_for(rows) is not None:
        from ..compiler.gather import scatter_add_rows
        return scatter_add_rows(out, index, np.ascontiguousarray(rows))
    order = np.argsort(index, kind="stable")
    sorted_index = index[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_index[1:] != sorted_index[:-1]]))
    if len(starts) == len(index):
        out[index] = rows
    else:
        out[sorted_index[starts]] = np.add.reduceat(rows[order], starts, 0)
    return out


embedding_dense_backward.shape(lambda grad, indices, num_weights, padding_idx, scale_grad_by_freq: (num_weights, grad.shape[-1]))


def _dense_backward_gradient(grad, indices, padding_idx, scale_grad_by_freq):
    g = _rows(grad, indices, padding_idx, False)
    if scale_grad_by_freq:
        counts = f("bincount")(indices.reshape(-1), minlength=grad.shape[0]).to(grad.dtype)
        g = g / counts[indices].unsqueeze(-1)
    return g.masked_fill((indices == padding_idx).unsqueeze(-1), 0) if padding_idx >= 0 else g


embedding_dense_backward.gradient(grad=_dense_backward_gradient)
_rows.gradient(weight=lambda grad, indices, padding_idx, scale_grad_by_freq, weight_meta: embedding_dense_backward(
    grad, indices, weight_meta.shape[0], padding_idx, scale_grad_by_freq))


@structural(public=False, exact=True, name="embedding")
def _rows_of_sparse(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool):
    """`_rows`, with a gradient that holds the rows that were looked up and nothing else."""
    return _rows.fn(weight, indices, padding_idx, scale_grad_by_freq)


_rows_of_sparse.shape(_rows.shape_rule)


def _sparse_gradient(grad, indices, padding_idx, scale_grad_by_freq, weight_meta):
    from ..backends.sparse import SparseCOO
    from ..core.tensor import wrap
    from .sparse import make
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    i = indices._a.reshape(-1).astype(np.int64)
    g = grad.reshape((i.size, weight_meta.shape[1]))
    if padding_idx >= 0 and (i == padding_idx).any():
        keep = np.flatnonzero(i != padding_idx)
        i, g = i[keep], g.index_select(0, wrap(keep))
    return make(g, SparseCOO(i[None].copy(), g._a, weight_meta.shape))


_rows_of_sparse.gradient(weight=_sparse_gradient)


@writes(ns="torch", name="embedding_renorm", exact=True)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float):
    """Scale down, in place, the rows that `indices` names whose norm is above `max_norm`."""
    _in_range(indices, input.shape[0])
    at = np.unique(indices)
    rows = wide(input[at])
    norms = np.linalg.norm(rows, norm_type, axis=1)
    big = norms > max_norm
    if big.any():
        input[at[big]] = (rows[big] * (max_norm / (norms[big] + 1e-7))[:, None].astype(rows.dtype)).astype(input.dtype)


def _padding(padding_idx: int | None, n: int) -> int:
    if padding_idx is None:
        return -1
    if padding_idx >= n:
        raise AssertionError("Padding_idx must be within num_embeddings")
    if padding_idx < -n:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx + n if padding_idx < 0 else padding_idx


def _renorm(weight: Any, indices: Any, max_norm: float | None, norm_type: float) -> None:
    if max_norm is not None and weight.is_cpu:
        from ..autograd.modes import no_grad
        with no_grad():
            embedding_renorm_.inplace_function(weight, indices, max_norm, norm_type)


@composite(ns="nn.functional")
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False):
    """The rows of `weight` (n, d) at the indices `input`: (*input.shape, d).

    `padding_idx`: a row that gets no gradient. `max_norm`: rows that are looked up are first scaled down, in place, to that norm.
    `scale_grad_by_freq`: gradients are divided by how often their row was looked up. `sparse`: the gradient of `weight` is a sparse
    COO tensor of the rows that were looked up."""
    pad = -1 if padding_idx is None else _padding(padding_idx, weight.shape[0])
    if max_norm is not None:
        _renorm(weight, input, max_norm, norm_type)
    return (_rows_of_sparse if sparse else _rows).function(weight, input, pad, scale_grad_by_freq)


@composite(ns="torch", name="embedding")
def _embedding_torch(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False):
    """`nn.functional.embedding` with its arguments in another order."""
    return (_rows_of_sparse if sparse else _rows)(weight, indices, padding_idx, scale_grad_by_freq)


@structural(ns="nn.functional", exact=True, out=False, differentiable=False)
def one_hot(input: Tensor, num_classes: int = -1):
    """A new last dimension with 1 at the index that the element is, 0 elsewhere; as many classes as needed by default."""
    if input.dtype != np.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {D.of(input.dtype).name}.")
    if input.size == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return np.zeros((*input.shape, num_classes), np.int64)
    if input.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    top = int(input.max())
    if num_classes == -1:
        num_classes = top + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif top >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = np.zeros((*input.shape, num_classes), np.int64)
    np.put_along_axis(out, input[..., None], 1, -1)
    return out


@one_hot.shape
def _(input, num_classes):
    if num_classes == -1:
        raise RuntimeError("one_hot: num_classes must be given for meta tensors, whose largest element is unknown")
    return (*input.shape, num_classes)


# --- bags -----------------------------------------------------------------------------------------------------------
def _bag_ids(offsets: Any, n: int, include_last: bool) -> tuple[Any, int]:
    """(the bag of each index, how many bags)."""
    o = offsets._a
    if include_last:
        o = o[:-1]
    ids = np.zeros(n, np.int64)
    if o.size:
        ids = np.searchsorted(o, np.arange(n), side="right") - 1
    return ids, o.size


@structural(public=False, exact=True, returns=("out", "which"))
def _bag_max(rows: Tensor, ids: Tensor, bags: int):
    """The maxima of runs of rows of equal (ascending) `ids`, 0 for a bag without rows; which row each is from, -1 for none."""
    out, which = np.zeros((bags, rows.shape[1]), rows.dtype), np.full((bags, rows.shape[1]), -1, np.int64)
    if ids.size:
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        x = wide(rows)
        best = np.maximum.reduceat(x, starts, 0)
        of_row = np.cumsum(np.concatenate([[0], ids[1:] != ids[:-1]]))
        here = np.where(x == best[of_row], np.arange(len(ids))[:, None], len(ids))
        out[ids[starts]], which[ids[starts]] = narrow(best, rows.dtype), np.minimum.reduceat(here, starts, 0)
    return out, which


_bag_max.shape(lambda rows, ids, bags: (((bags, rows.shape[1]), rows.dtype), ((bags, rows.shape[1]), D.int64)))
_bag_max.gradient(rows=lambda grad, which, rows_meta: f("zeros")(rows_meta.shape, dtype=grad.dtype).scatter_add(
    0, which.clamp_min(0), grad.masked_fill(which < 0, 0.0)) if rows_meta.shape[0] else f("zeros")(rows_meta.shape, dtype=grad.dtype))


@composite(ns="nn.functional")
def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
                  include_last_offset: bool = False, padding_idx: int | None = None):
    """Sums, means or maxima (`mode`) of bags of rows of `weight`, without keeping the rows.

    `input` is (B, N): B bags of N, or (N,) with the bags' beginnings in `offsets`. `per_sample_weights` multiply the rows ("sum"
    only). Empty bags give 0; rows at `padding_idx` take no part."""
    if weight.dtype.name in ("int64", "int32") and input.is_floating_point():     # the old order
        from .nn_common import warn
        warn("Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated, and should now be "
             "`embedding_bag(input, weight, ...)`.")
        weight, input = input, weight
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape as the input ({input.shape})")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, found "
                             f"offsets of type {type(offsets)}")
        offsets = f("arange")(0, input.numel(), input.shape[1], dtype=input.dtype, device=input.device) if input.shape[1] else \
            f("zeros")((input.shape[0],), dtype=input.dtype)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        include_last_offset = False
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        if offsets.is_cpu and offsets.numel():
            reads_values("embedding_bag")
            o = offsets._a
            if o[0] != 0:
                raise RuntimeError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {o[0]}")
            if o[-1] > input.shape[0]:
                raise RuntimeError(f"offsets[-1] can not be greater than input's length {input.shape[0]} but got offsets[-1] of {o[-1]}")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
                                  f"mode='{mode}'). Please open a feature request on GitHub.")
    if not input.is_cpu:
        return f("empty")((offsets.shape[0] - include_last_offset, weight.shape[1]), dtype=weight.dtype, device=input.device)
    _renorm(weight, input, max_norm, norm_type)
    reads_values("embedding_bag")
    pad = _padding(padding_idx, weight.shape[0])
    ids, bags = _bag_ids(offsets, input.shape[0], include_last_offset)
    index = input._a
    if pad >= 0:
        keep = np.flatnonzero(index != pad)
        ids, index = ids[keep], index[keep]
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights[_tensor(keep)]
    if sparse and mode == "max":
        raise ValueError("max mode does not support sparse weights")
    rows = (_rows_of_sparse if sparse else _rows)(weight, _tensor(index), -1, scale_grad_by_freq)
    where = _tensor(ids)
    zero = f("zeros")((bags, weight.shape[1]), dtype=weight.dtype)
    if mode == "max":
        return _bag_max(rows, where, bags)[0]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    total = zero.index_add(0, where, rows)
    if mode == "mean":
        total = total / _tensor(np.maximum(np.bincount(ids, minlength=bags), 1).reshape(-1, 1)).to(weight.dtype)
    return total


def _tensor(a: np.ndarray) -> Any:
    from ..core.tensor import wrap
    return wrap(a)


# --- Inputs for the generated tests (ops.samples) ---
embedding.samples(lambda s: [s.call(s.ints((2, 3), 4), s((4, 2))), s.call(s.array([0, 2, 2]), s((3, 2)), 1)])
_.samples(lambda s: [s.call(s.ints((2, 3), 4), 5), s.call(s.array([0, 2, 1]))])
embedding_bag.samples(lambda s: [s.call(s.ints((2, 3), 4), s((4, 2)), mode='mean'), s.call(s.ints((5,), 4), s((4, 2)), s.array([0, 2]), mode='sum')])
_embedding_torch.samples(lambda s: [s.call(s((4, 2)), s.ints((2, 3), 4))])
