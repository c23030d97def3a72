"""Losses over classes: nll_loss, cross_entropy, margins between classes, CTC."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural
from .nn_common import f, legacy_reduction, narrow, reduced, reduction_of, row_kernels_for, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor


# --- what both losses share: rows of classes ------------------------------------------------------------------------
def _of(a: Any) -> D.dtype:
    return a.dtype if isinstance(a.dtype, D.dtype) else D.of(a.dtype)


def _class_dim(ndim: int) -> int:
    return 0 if ndim == 1 else 1


def _check_indices(name: str, input: Any, target: Any, weight: Any) -> None:
    """Shapes and dtypes of a loss over class indices. Tensors or arrays."""
    n, t = input.ndim, target.ndim
    if n < 1:
        raise RuntimeError(f"{name}: expected an input of shape (C,), (N, C) or (N, C, d1, ...), but got a 0-dimensional one")
    if _of(target).name not in ("int64", "uint8"):
        raise RuntimeError(f"expected scalar type Long but found {_scalar(_of(target))}")
    if n == 1 and t > 0 or n > 1 and t != n - 1:
        if n == 1 or t == 0 or n == 2:
            raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0] if t else 1}).") \
                if n == 2 and t == 1 else RuntimeError(f"{name}: expected a target of class indices of shape {_wanted(input)}, but got {list(target.shape)}")
        raise RuntimeError(f"only batches of spatial targets supported ({n - 1}D tensors) but got targets of dimension: {t}" if n == 4 else
                           f"Expected target size {_wanted(input)}, got {list(target.shape)}")
    if n > 1 and input.shape[0] != target.shape[0]:
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")
    if n > 2 and tuple(input.shape[2:]) != tuple(target.shape[1:]):
        raise RuntimeError(f"size mismatch (got input: {list(input.shape)}, target: {list(target.shape)}): Expected target size {_wanted(input)}")
    c = input.shape[_class_dim(n)]
    if weight is not None and weight.dtype != input.dtype:
        raise RuntimeError(f"expected scalar type {_scalar(_of(input))} but found {_scalar(_of(weight))}")
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != c):
        raise RuntimeError(f"{'cross_entropy: ' if name == 'cross_entropy' else ''}weight tensor should be defined either for all {c} classes or no classes but got "
                           f"weight tensor of shape: {list(weight.shape)}")


def _wanted(input: Any) -> list[int]:
    return [] if input.ndim == 1 else [input.shape[0], *input.shape[2:]]


def _scalar(d: D.dtype) -> str:
    from .execute import _scalar_name
    return _scalar_name(d)


def _rows(x: np.ndarray) -> np.ndarray:
    """(N, C, d1, ...) as (N * d1 * ..., C)."""
    if x.ndim == 2:
        return x
    if x.ndim == 1:
        return x[None]
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])


def _unrows(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 2:
        return rows
    if len(shape) == 1:
        return rows[0]
    return np.ascontiguousarray(np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1))


def _picked(target: np.ndarray, classes: int, ignore_index: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(indices within the classes, which rows count: None for all). IndexError for a target outside."""
    t = target.reshape(-1)
    if t.dtype != np.int64:
        t = t.astype(np.int64)
    valid = None
    if not 0 <= ignore_index < classes:
        if t.size and (t.min() < 0 or t.max() >= classes):
            valid = t != ignore_index
    elif (t == ignore_index).any():
        valid = t != ignore_index
    if valid is not None:
        t = np.where(valid, t, 0)
    if t.size:
        bad = (t < 0) | (t >= classes)
        if bad.any():
            raise IndexError(f"Target {t[bad][0]} is out of bounds.")
    return t, valid


def _row_weights(t: np.ndarray, valid: np.ndarray | None, weight: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    """What each row counts: its class's weight, 0 where ignored; None for 1 everywhere."""
    if weight is None:
        return None if valid is None else valid.astype(dtype)
    w = weight[t]
    return w if valid is None else w * valid


def _total(w: np.ndarray | None, n: int) -> Any:
    return n if w is None else w.sum()


def _finish(loss: np.ndarray, total: Any, reduction: str, shape: tuple[int, ...]) -> np.ndarray:
    if reduction == "none":
        return loss.reshape(shape)
    s = np.asarray(np.add.reduce(loss))
    return s if reduction == "sum" else np.asarray(s / s.dtype.type(total))


# --- negative log likelihood ----------------------------------------------------------------------------------------
def _nll_array(input, target, weight, size_average, ignore_index, reduce, reduction):
    _check_indices("nll_loss", input, target, weight)
    reduction = legacy_reduction(size_average, reduce, reduction)
    x = _rows(input)
    to = x.dtype
    x = wide(x)
    t, valid = _picked(target, x.shape[1], ignore_index)
    w = _row_weights(t, valid, None if weight is None else wide(weight), x.dtype)
    loss = -x[np.arange(len(t)), t]
    if w is not None:
        loss = np.where(w == 0, 0, loss * w).astype(x.dtype) if valid is not None else loss * w
    return narrow(_finish(loss, _total(w, len(t)), reduction, target.shape), to)


def _nll_backward_array(grad, target, weight, ignore_index, reduction, shape):
    rows = math.prod(shape) // shape[_class_dim(len(shape))] if math.prod(shape) else 0
    c = shape[_class_dim(len(shape))]
    to = grad.dtype
    grad = wide(grad)
    t, valid = _picked(target, c, ignore_index)
    w = _row_weights(t, valid, None if weight is None else wide(weight), grad.dtype)
    g = _row_gradients(grad, w, rows, reduction)
    out = np.zeros((rows, c), grad.dtype)
    out[np.arange(rows), t] = -g
    return narrow(_unrows(out, shape), to)


def _row_gradients(grad: np.ndarray, w: np.ndarray | None, n: int, reduction: str) -> np.ndarray:
    """The gradient of each row's unweighted loss from that of the result."""
    if reduction == "none":
        g = grad.reshape(-1)
    else:
        g = np.broadcast_to(grad if reduction == "sum" else grad / grad.dtype.type(_total(w, n)), (n,))
    return g if w is None else np.where(w == 0, 0, g * w).astype(grad.dtype)


@structural(public=False, exact=True, differentiable=False, name="check_target")
def _checked(target: Tensor, classes: int, ignore_index: int):
    """A copy of the class indices, none outside the classes. Compiled code checks in every run, before anything is updated."""
    bad = out_of_bounds(target, classes, ignore_index)
    if bad is not None:
        raise bad
    return target.copy()


_checked.shape(lambda target, classes, ignore_index: target.shape)


def out_of_bounds(target: np.ndarray, classes: int, ignore_index: int) -> IndexError | None:
    """The error for the first target that is no class and not ignored."""
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    return IndexError(f"Target {target[bad][0]} is out of bounds.") if bad.any() else None


def _one_hot(target: Any, dim: int, classes: int, ignore_index: int, dtype: Any) -> Any:
    """1 at each target's class along a new dimension `dim`; nothing where ignored. By comparison, so that it fuses."""
    t = _checked(target.to(D.int64), classes, ignore_index).unsqueeze(dim)
    k = f("arange")(classes, device=t.device).reshape((classes, *[1] * (t.dim() - 1 - dim)))
    hot = t == k
    return (hot & (t != ignore_index) if 0 <= ignore_index < classes else hot).to(dtype)


def _spread_classes(weight: Any, ndim: int) -> Any:
    return weight if ndim == 1 else weight.reshape((1, -1, *[1] * (ndim - 2)))


@composite(public=False, exact=True)
def _nll_backward(grad: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, shape: tuple):
    d = _class_dim(len(shape))
    coefficient = _one_hot(target, d, shape[d], ignore_index, grad.dtype)
    if weight is not None:
        coefficient = coefficient * _spread_classes(weight, len(shape))
    if reduction == "mean":
        grad = grad / coefficient.sum()
    elif reduction == "none":
        grad = grad.unsqueeze(d)
    return -(coefficient * grad)


_nll_backward.fast(_nll_backward_array)


@composite(ns=("nn.functional",), exact=True)
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
             reduce: bool | None = None, reduction: str = "mean"):
    """-weight[target] * input[target] of log-probabilities (N, C, d1, ...) and class indices (N, d1, ...). Targets equal to `ignore_index`
    count nothing; "mean" divides by the sum of the weights that took part."""
    _check_indices("nll_loss", input, target, weight)
    reduction = legacy_reduction(size_average, reduce, reduction)
    d = _class_dim(input.dim())
    w = _one_hot(target, d, input.shape[d], ignore_index, input.dtype)
    if weight is not None:
        w = w * _spread_classes(weight, input.dim())
    loss = -f("where")(w == 0, f("zeros_like")(input), input * w).sum(d)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / w.sum()


nll_loss.fast(_nll_array)
nll_loss.gradient(input=lambda grad, target, weight, size_average, ignore_index, reduce, reduction, input_meta: _nll_backward(
    grad, target, weight, ignore_index, reduction_of(size_average, reduce, reduction), tuple(input_meta.shape)))


# --- cross entropy --------------------------------------------------------------------------------------------------
def _check_cross_entropy(input: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float) -> bool:
    """Whether the target holds probabilities."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if input.shape == target.shape and input.ndim:
        if _of(target).category < D.FLOAT:
            raise RuntimeError(f"Expected floating point type for target with class probabilities, got {_scalar(_of(target))}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        c = input.shape[_class_dim(input.ndim)]
        if weight is not None and (weight.ndim != 1 or weight.shape[0] != c):
            raise RuntimeError("cross_entropy: weight tensor should be defined either for all "
                               f"{c} classes or no classes but got weight tensor of shape: {list(weight.shape)}")
        return True
    _check_indices("cross_entropy", input, target, weight)
    return False


def _log_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x - max, log of the sum of exponentials of that), of rows."""
    s = x - np.maximum.reduce(x, 1, keepdims=True) if x.shape[1] else x
    return s, np.log(np.add.reduce(np.exp(s), 1))


def _cross_entropy_array(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing, keep):
    reduction = legacy_reduction(size_average, reduce, reduction)
    k = input.dtype
    # the usual case in one native call
    if input.ndim == 2 and weight is None and target.ndim == 1 and target.dtype is _I64 and input.shape[0] == target.shape[0] and 0.0 <= label_smoothing <= 1.0 \
            and (native := row_kernels_for(input)) is not None:
        loss, lse = native.cross_entropy(input, target, ignore_index, label_smoothing)
        if reduction == "none":
            return loss, lse
        s = np.add.reduce(loss)
        return np.asarray(s if reduction == "sum" else s / k.type(_counted(target, ignore_index))), lse
    probabilities = _check_cross_entropy(input, target, weight, ignore_index, label_smoothing)
    x = wide(_rows(input))
    w = None if weight is None else wide(weight)
    n, c = x.shape
    s, log = _log_rows(x)
    if probabilities:
        p = wide(_rows(target))
        if label_smoothing:
            p = p * p.dtype.type(1 - label_smoothing) + p.dtype.type(label_smoothing / c)
        terms = p * (log[:, None] - s)
        if w is not None:
            terms *= w
        return narrow(_finish(terms.sum(1), n, reduction, _target_shape(input)).astype(x.dtype, copy=False), k), None
    t, valid = _picked(target, c, ignore_index)
    row = _row_weights(t, valid, w, x.dtype)
    loss = log - s[np.arange(n), t]
    if row is not None:
        loss = np.where(row == 0, 0, loss * row).astype(x.dtype)
    if label_smoothing:
        every = (log[:, None] - s) if w is None else (log[:, None] - s) * w
        smooth = every.sum(1)
        if valid is not None:
            smooth = np.where(valid, smooth, 0).astype(x.dtype)
        loss = x.dtype.type(1 - label_smoothing) * loss + x.dtype.type(label_smoothing / c) * smooth
    return narrow(_finish(loss, _total(row, n), reduction, target.shape), k), None


_I64 = np.dtype(np.int64)


def _counted(target: np.ndarray, ignore_index: int) -> int:
    return target.size - int(np.count_nonzero(target == ignore_index))


def _target_shape(input: Any) -> tuple[int, ...]:
    return () if input.ndim == 1 else (input.shape[0], *input.shape[2:])


def _cross_entropy_backward_array(grad, input, target, weight, ignore_index, reduction, label_smoothing, lse):
    if lse is not None and input.dtype == grad.dtype and (native := row_kernels_for(input)) is not None:
        n = input.shape[0]
        if reduction != "none":
            g = grad if reduction == "sum" else grad / grad.dtype.type(_counted(target, ignore_index))
            g = np.full((n,), g, grad.dtype)
        else:
            g = grad
        return native.cross_entropy_backward(g, input, target, lse, ignore_index, label_smoothing)
    to = input.dtype
    x, grad = wide(_rows(input)), wide(grad)
    w = None if weight is None else wide(weight)
    n, c = x.shape
    s, log = _log_rows(x)
    p = np.exp(s - log[:, None])
    if target.shape == input.shape:
        q = wide(_rows(target))
        if label_smoothing:
            q = q * q.dtype.type(1 - label_smoothing) + q.dtype.type(label_smoothing / c)
        if w is not None:
            q = q * w
        g = grad.reshape(-1) if reduction == "none" else np.broadcast_to(grad if reduction == "sum" else grad / grad.dtype.type(n), (n,))
        out = (p * q.sum(1, keepdims=True) - q) * g[:, None]
        return narrow(_unrows(out.astype(x.dtype, copy=False), input.shape), to)
    t, valid = _picked(target, c, ignore_index)
    row = _row_weights(t, valid, w, x.dtype)
    if reduction == "none":
        g = grad.reshape(-1)
    else:
        g = np.broadcast_to(grad if reduction == "sum" else grad / grad.dtype.type(_total(row, n)), (n,))
    hard = g if row is None else g * row
    hard = hard * x.dtype.type(1 - label_smoothing)
    if label_smoothing:
        every = np.ones(c, x.dtype) if w is None else w
        soft = g * x.dtype.type(label_smoothing / c)
        if valid is not None:
            soft = soft * valid
        out = p * (hard + soft * every.sum())[:, None] - soft[:, None] * every
    else:
        out = p * hard[:, None]
    out[np.arange(n), t] -= hard
    if valid is not None:
        out[~valid] = 0
    return narrow(_unrows(out.astype(x.dtype, copy=False), input.shape), to)


def _coefficients(target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float, shape: tuple, dtype: Any) -> Any:
    """The loss is -sum(coefficients * log_softmax(input)): they depend on the target alone."""
    d, ndim = _class_dim(len(shape)), len(shape)
    c = shape[d]
    w = None if weight is None else _spread_classes(weight, ndim)
    if tuple(target.shape) == tuple(shape):
        q = target * (1 - smoothing) + smoothing / c if smoothing else target
        q = q if w is None else q * w
        return q / (math.prod(shape) // c if math.prod(shape) else 0) if reduction == "mean" and math.prod(shape) else q
    one = _one_hot(target, d, c, ignore_index, dtype)
    hot = one if w is None else one * w
    q = hot
    if smoothing:
        counted = (target.to(D.int64) != ignore_index).to(dtype).unsqueeze(d)
        every = counted.expand(tuple(shape)) if w is None else counted * w
        q = hot * (1 - smoothing) + every * (smoothing / c)
    return q / hot.sum() if reduction == "mean" else q


@composite(public=False, exact=True)
def _cross_entropy_backward(grad: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                            label_smoothing: float, lse: Tensor | None):
    d = _class_dim(input.dim())
    q = _coefficients(target, weight, ignore_index, reduction, label_smoothing, tuple(input.shape), input.dtype)
    g = q * (grad.unsqueeze(d) if reduction == "none" else grad)
    return f("softmax")(input, d) * g.sum(d, True) - g


_cross_entropy_backward.fast(_cross_entropy_backward_array)


@composite(ns="nn.functional", exact=True)
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
                  reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0):
    """The cross entropy of logits (N, C, d1, ...) against class indices (N, d1, ...) or class probabilities of the logits' shape.

    Targets equal to `ignore_index` count nothing; `weight` is one factor per class; `label_smoothing` mixes the target with the
    uniform distribution. "mean" divides by the weights of the classes that took part (indices) or by the number of rows."""
    _check_cross_entropy(input, target, weight, ignore_index, label_smoothing)
    reduction = legacy_reduction(size_average, reduce, reduction)
    d = _class_dim(input.dim())
    q = _coefficients(target, weight, ignore_index, reduction, label_smoothing, tuple(input.shape), input.dtype)
    logp = f("log_softmax")(input, d)
    terms = f("where")(q == 0, f("zeros_like")(logp), q * logp)
    loss = -terms.sum(d)
    return loss if reduction == "none" else loss.sum()


cross_entropy.fast(_cross_entropy_array, keeps=("lse",))


def _cross_entropy_gradient(grad, needs, input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing, lse):
    r = reduction_of(size_average, reduce, reduction)
    gi = gt = None
    if needs[0]:
        gi = _cross_entropy_backward(grad, input, target, weight, ignore_index, r, label_smoothing, lse)
    if needs[1]:
        d = _class_dim(input.dim())
        g = -f("log_softmax")(input, d) * (1 - label_smoothing)
        if weight is not None:
            g = g * _spread_classes(weight, input.dim())
        n = input.numel() // input.shape[d] if input.numel() else 0
        gt = g * (grad.unsqueeze(d) if r == "none" else grad / n if r == "mean" and n else grad)
    return gi, gt, None


cross_entropy.backward(_cross_entropy_gradient)
cross_entropy.node_name = "NllLossBackward0"


@composite(ns="nn.functional")
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
                         reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None):
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`: input (N, in) or (in,), linear_weight (classes, *out, in). `options`, which
    in PyTorch trade memory for time, change nothing here."""
    if input.dim() < 1 or input.dim() > 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    n = input.shape[-1]
    if n != linear_weight.shape[-1]:
        raise RuntimeError(f"expected equal input and linear_weight last dimensions (in_features), got {n} and {linear_weight.shape[-1]}, respectively")
    classes, out = linear_weight.shape[0], tuple(linear_weight.shape[1:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != (classes, *out):
        raise RuntimeError(f"expected linear_bias shape {(classes, *out)}, got {tuple(linear_bias.shape)}")
    if out and input.dim() == 1:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, (N, {n}), got unbatched "
                           f"input with shape {tuple(input.shape)}")
    shape = (*input.shape[:-1], classes, *out)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    logits = f("nn.functional.linear")(input, linear_weight.reshape(-1, n), None if linear_bias is None else linear_bias.reshape(-1))
    return cross_entropy(logits.reshape(shape), target, weight, None, -100 if ignore_index is None else ignore_index, None, reduction, label_smoothing)


# --- margins between classes ----------------------------------------------------------------------------------------
@composite(ns="nn.functional")
def multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None,
                      reduce: bool | None = None, reduction: str = "mean"):
    """The mean over classes j other than the target y of max(0, margin - input[y] + input[j])^p, times weight[y]."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if input.dim() > 2 or input.dim() == 2 and input.shape[1] == 0 or input.dim() == 1 and input.shape[0] == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    n, c = x.shape
    if target.dim() > 1 or target.numel() != n:
        raise RuntimeError(f"inconsistent target size, expected {n} but got {list(target.shape)}")
    if weight is not None and weight.numel() != c:
        raise RuntimeError(f"inconsistent weight size, expected {c} but got {list(weight.shape)}")
    if target.is_cpu and n and not bool(((target >= 0) & (target < c)).all().item()):
        raise RuntimeError("target out of range")
    t = target.reshape(-1, 1)
    z = (margin - x.gather(1, t) + x).clamp_min(0)
    z = z * z if p == 2 else z
    if weight is not None:
        z = z * weight[t.reshape(-1)].unsqueeze(1)
    loss = z.scatter(1, t, 0.0).sum(1) / c
    return reduced(loss.reshape(target.shape) if reduction == "none" else loss, reduction)


@composite(ns="nn.functional")
def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
    """The sum over targets y (those before the first -1 in a row of `target`) and classes j that are none of them of max(0, 1 - input[y] + input[j]),
    over the number of classes."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.dim() > 2 or input.dim() and input.shape[-1] == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    if tuple(input.shape) != tuple(target.shape):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    x, t = (input.reshape(1, -1), target.reshape(1, -1)) if input.dim() < 2 else (input, target)
    c = x.shape[1]
    if t.is_cpu and t.numel() and not bool(((t >= -1) & (t < c)).all().item()):
        raise RuntimeError("target is out of range")
    counts = ((t < 0).to(D.int64).cumsum(1) == 0).to(x.dtype)                       # targets before the first -1
    at = t.clamp_min(0)
    others = (f("zeros_like")(x).scatter_add(1, at, counts) == 0).to(x.dtype)        # classes that are no target
    z = (1 - x.gather(1, at).unsqueeze(2) + x.unsqueeze(1)).clamp_min(0)
    loss = (z * (counts.unsqueeze(2) * others.unsqueeze(1))).sum((1, 2)) / c
    return reduced(loss.reshape(tuple(input.shape[:-1])) if reduction == "none" else loss, reduction)


# --- Inputs for the generated tests (ops.samples) ---
nll_loss.samples(lambda s: [s.call(s((3, 4)), s.ints((3,), 4)), s.call(s((3, 4)), s.ints((3,), 4), s((4,), low=0.2, requires_grad=False)),
                            s.call(s((3, 4)), s.array([1, -100, 2]), reduction="sum"), s.call(s((2, 3, 2)), s.ints((2, 2), 3), reduction="none")])
cross_entropy.samples(lambda s: [s.call(s((3, 4)), s.ints((3,), 4)), s.call(s((3, 4)), s.ints((3,), 4), s((4,), low=0.2, requires_grad=False)),
                                 s.call(s((3, 4)), s.array([1, -100, 2]), reduction="sum"), s.call(s((3, 4)), s.ints((3,), 4), label_smoothing=0.1),
                                 s.call(s((2, 3, 2)), s.ints((2, 2), 3), reduction="none"), s.call(s((4,)), s.ints((), 4)),
                                 s.call(s((3, 4)), s((3, 4), low=0.1, high=0.9))])
multi_margin_loss.samples(lambda s: [s.call(s((3, 4)), s.array([1, 0, 3])), s.call(s((3, 4)), s.array([1, 0, 3]), 2, 0.5)])
multilabel_margin_loss.samples(lambda s: [s.call(s((2, 4)), s.array([[2, 0, -1, 1], [1, -1, 0, 0]]))])
