"""Normalisation: over channels of a batch, over features, over groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from . import execute
from .declare import composite
from .geometry import row_major
from .nn_common import f, keep_format, narrow, row_kernels_for, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor


def _is_float(name: str, input: Any) -> None:
    d = input.dtype if isinstance(input.dtype, D.dtype) else D.of(input.dtype)
    if d.category != D.FLOAT:
        from .execute import _scalar_name
        raise NotImplementedError(f"\"{name}\" not implemented for '{_scalar_name(d)}'")


# --- over features --------------------------------------------------------------------------------------------------
def _check_shape(name: str, input: Any, shape: Any, weight: Any, bias: Any) -> int:
    """How many dimensions are normalised."""
    n = len(shape)
    if n < 1:
        raise RuntimeError(f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = {list(shape)}")
    for what, p in (("weight", weight), ("bias", bias)):
        if p is not None and tuple(p.shape) != tuple(shape):
            raise RuntimeError(f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape {list(p.shape)} and normalized_shape = {list(shape)}")
    if tuple(input.shape[input.ndim - n:] if input.ndim >= n else ()) != tuple(shape):
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}")
    return n


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _same_kind(input: np.ndarray, *parameters: np.ndarray | None) -> bool:
    return all(p is None or p.dtype == input.dtype for p in parameters)


def _layer_norm_array(input, shape, weight, bias, eps, cudnn_enable, keep):
    if shape.__class__ is not tuple:
        shape = _sizes(shape)
    n = len(shape)
    if input.shape[input.ndim - n:] != shape or weight is not None and weight.shape != shape or bias is not None and bias.shape != shape or n < 1:
        _check_shape("layer_norm", input, shape, weight, bias)
    to = input.dtype
    if to.kind != "f":
        _is_float("LayerNormKernelImpl", input)
    if (native := row_kernels_for(input)) is not None and _same_kind(input, weight, bias):
        return native.layer_norm(input, weight, bias, eps, n)
    x = row_major(wide(input))
    dims = tuple(range(x.ndim - n, x.ndim))
    count = x.dtype.type(math.prod(shape))
    mean = np.add.reduce(x, dims, keepdims=True) / count
    y = x - mean
    rstd = 1 / np.sqrt(np.add.reduce(y * y, dims, keepdims=True) / count + x.dtype.type(eps))
    y = np.asarray(y * rstd)
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return narrow(y, to), mean, rstd


def _layer_norm_backward_array(grad, needs, input, weight, bias, mean, rstd, n, eps):
    if (native := row_kernels_for(input)) is not None and _same_kind(input, weight, grad):
        return native.layer_norm_backward(grad, input, mean, rstd, weight, n, needs)
    to = input.dtype
    x, g = wide(input), wide(grad)
    dims = tuple(range(x.ndim - n, x.ndim))
    lead = tuple(range(x.ndim - n))
    h = (x - mean) * rstd
    gx = None
    if needs[0]:
        d = g if weight is None else g * wide(weight)
        count = x.dtype.type(math.prod(x.shape[x.ndim - n:]))
        gx = d - np.add.reduce(d, dims, keepdims=True) / count
        gx -= h * (np.add.reduce(d * h, dims, keepdims=True) / count)
        gx = narrow(np.asarray(gx * rstd), to)
    gw = narrow(np.asarray(np.add.reduce(g * h, lead)), weight.dtype) if needs[1] else None
    gb = narrow(np.asarray(np.add.reduce(g, lead)), bias.dtype) if needs[2] else None
    return gx, gw, gb


@composite(public=False, multi=True, exact=True)
def _layer_norm_backward(grad: Tensor, needs: tuple, input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
                         rstd: Tensor | None, n: int, eps: float):
    dims, lead = tuple(range(-n, 0)), tuple(range(input.dim() - n))
    c = input - input.mean(dims, True)
    r = ((c * c).mean(dims, True) + eps).rsqrt()
    h = c * r
    d = grad if weight is None else grad * weight
    gx = r * (d - d.mean(dims, True) - h * (d * h).mean(dims, True)) if needs[0] else None
    gw = ((grad * h).sum(lead) if lead else grad * h) if needs[1] else None
    gb = (grad.sum(lead) if lead else grad) if needs[2] else None
    return gx, gw, gb


_layer_norm_backward.fast(_layer_norm_backward_array)


@composite(ns=("nn.functional", "torch"), exact=True, node="NativeLayerNormBackward0")
def layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,
               cudnn_enable: bool = True):
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dimensions, whose sizes are `normalized_shape`."""
    normalized_shape = _sizes(normalized_shape)
    _check_shape("layer_norm", input, normalized_shape, weight, bias)
    _is_float("LayerNormKernelImpl", input)
    dims = tuple(range(-len(normalized_shape), 0))
    c = input - input.mean(dims, True)
    y = c * ((c * c).mean(dims, True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


layer_norm.fast(_layer_norm_array, keeps=("mean", "rstd"))
layer_norm.backward(lambda grad, needs, input, normalized_shape, weight, bias, eps, mean, rstd: _layer_norm_backward(
    grad, needs, input, weight, bias, mean, rstd, len(_sizes(normalized_shape)), eps))


@composite(ns="torch", returns=("out", "mean", "rstd"))
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float):
    """(`layer_norm`, the means, 1 / sqrt(var + eps)); the last two keep the normalised dimensions as 1."""
    shape = _sizes(normalized_shape)
    y = layer_norm(input, shape, weight, bias, eps)
    dims = tuple(range(-len(shape), 0))
    c = input - (m := input.mean(dims, True))
    return y, m, ((c * c).mean(dims, True) + eps).rsqrt()


def _rms_array(input, shape, weight, eps, keep):
    n = _check_shape("rms_norm", input, shape, weight, None)
    to = input.dtype
    if eps is None:
        eps = float(np.finfo(np.float32 if to.itemsize <= 2 or to.itemsize == 4 else np.float64).eps)
    if (native := row_kernels_for(input)) is not None and _same_kind(input, weight):
        return native.rms_norm(input, weight, eps, n)
    x = wide(input)
    dims = tuple(range(x.ndim - n, x.ndim))
    rstd = 1 / np.sqrt(np.add.reduce(x * x, dims, keepdims=True) / x.dtype.type(math.prod(shape)) + x.dtype.type(eps))
    y = np.asarray(x * rstd)
    if weight is not None:
        y = y * weight
    return narrow(y, to), rstd


def _rms_eps(eps: float | None, dtype: Any) -> float:
    return eps if eps is not None else float(np.finfo(np.float64 if dtype.to_real().itemsize == 8 else np.float32).eps)


def _rms_backward_array(grad, needs, input, weight, rstd, n, eps):
    if (native := row_kernels_for(input)) is not None and _same_kind(input, weight, grad):
        return native.rms_norm_backward(grad, input, rstd, weight, n, needs)
    to = input.dtype
    x, g = wide(input), wide(grad)
    dims = tuple(range(x.ndim - n, x.ndim))
    h = x * rstd
    gx = None
    if needs[0]:
        d = g if weight is None else g * wide(weight)
        dot = np.add.reduce(d * h, dims, keepdims=True) / x.dtype.type(math.prod(x.shape[x.ndim - n:]))
        gx = narrow(np.asarray((d - h * dot) * rstd), to)
    return gx, narrow(np.asarray(np.add.reduce(g * h, tuple(range(x.ndim - n)))), weight.dtype) if needs[1] else None


@composite(public=False, multi=True, exact=True)
def _rms_backward(grad: Tensor, needs: tuple, input: Tensor, weight: Tensor | None, rstd: Tensor | None, n: int, eps: float):
    dims, lead = tuple(range(-n, 0)), tuple(range(input.dim() - n))
    r = ((input * input).mean(dims, True) + eps).rsqrt()
    h = input * r
    d = grad if weight is None else grad * weight
    gx = r * (d - h * (d * h).mean(dims, True)) if needs[0] else None
    return gx, ((grad * h).sum(lead) if lead else grad * h) if needs[1] else None


_rms_backward.fast(_rms_backward_array)


def _rms_body(input: Any, shape: tuple, weight: Any, eps: Any) -> Any:
    _check_shape("rms_norm", input, shape, weight, None)
    dims = tuple(range(-len(shape), 0))
    y = input * ((input * input).mean(dims, True) + _rms_eps(eps, input.dtype)).rsqrt()
    return y if weight is None else y * weight


@composite(public=False, name="rms_norm", exact=True)
def _rms_norm(input: Tensor, normalized_shape: tuple, weight: Tensor | None, eps: float | None):
    return _rms_body(input, normalized_shape, weight, eps)


_rms_norm.fast(_rms_array, keeps=("rstd",))
_rms_norm.backward(lambda grad, needs, input, normalized_shape, weight, eps, rstd: _rms_backward(
    grad, (*needs, False)[:2], input, weight, rstd, len(normalized_shape), _rms_eps(eps, input.dtype)))


@composite(ns=("nn.functional", "torch"))
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None):
    """input / sqrt(mean of squares + eps) * weight over the last dimensions, whose sizes are `normalized_shape`; `eps` is the dtype's
    machine epsilon by default."""
    shape = _sizes(normalized_shape)
    return _rms_body(input, shape, weight, eps) if input.dtype.is_complex else _rms_norm.function(input, shape, weight, eps)


# --- over a batch ---------------------------------------------------------------------------------------------------
def _norm() -> Any:
    from ..backends.cpu import norm
    return norm


def _batch_train_array(input, weight, bias, running_mean, running_var, momentum, eps, keep):
    y, mean, invstd, unbiased = _norm().batch_norm_train(input, weight, bias, eps)
    for running, now in ((running_mean, mean), (running_var, unbiased)):
        if running is None:
            continue
        if running.dtype is now.dtype:
            np.multiply(running, running.dtype.type(1 - momentum), running)
            np.add(running, now * now.dtype.type(momentum), running)
        else:
            running[...] = (1 - momentum) * wide(running) + momentum * now
    return y, mean, invstd


def _channels(v: Any, ndim: int) -> Any:
    return None if v is None else v.reshape((1, -1, *[1] * (ndim - 2)))


def _affine(h: Any, weight: Any, bias: Any) -> Any:
    n = h.dim()
    h = h if weight is None else h * _channels(weight, n)
    return h if bias is None else h + _channels(bias, n)


def _moments(input: Any, eps: float) -> tuple[Any, Any, Any]:
    """(centred input, 1 / sqrt(var + eps), variance) over all but the channels."""
    dims = (0, *range(2, input.dim()))
    c = input - input.mean(dims, True)
    v = (c * c).mean(dims, True)
    return c, (v + eps).rsqrt(), v


def _batch_backward_array(grad, needs, input, weight, bias, mean, invstd, training, eps):
    gx, gw, gb = _norm().batch_norm_backward(grad, input, weight, mean, invstd, training, tuple(needs))
    return gx, None if gw is None else narrow(gw, weight.dtype), None if gb is None else narrow(gb, bias.dtype)


@composite(public=False, multi=True, exact=True)
def _batch_backward(grad: Tensor, needs: tuple, input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor,
                    training: bool, eps: float):
    n = input.dim()
    dims = (0, *range(2, n))
    if training:
        c, r, _ = _moments(input, eps)
    else:
        c, r = input - _channels(mean, n), _channels(invstd, n)
    h = c * r
    d = grad if weight is None else grad * _channels(weight, n)
    gx = None
    if needs[0]:
        gx = r * (d - d.mean(dims, True) - h * (d * h).mean(dims, True)) if training else d * r
    return gx, (grad * h).sum(dims) if needs[1] else None, grad.sum(dims) if needs[2] else None


_batch_backward.fast(_batch_backward_array)


@composite(public=False, name="batch_norm", exact=True, mutates=("running_mean", "running_var"), node="NativeBatchNormBackward0")
def _batch_train(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                 momentum: float, eps: float):
    c, r, v = _moments(input, eps)
    n = input.numel() // input.shape[1] if input.shape[1] else 0
    from ..autograd.modes import no_grad
    with no_grad():
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(input.mean((0, *range(2, input.dim()))), alpha=momentum)
        if running_var is not None:
            running_var.mul_(1 - momentum).add_(v.reshape(-1), alpha=momentum * n / max(n - 1, 1))
    return _affine(c * r, weight, bias)


_batch_train.fast(_batch_train_array, keeps=("mean", "invstd"))
keep_format(_batch_train)
_batch_train.backward(lambda grad, needs, input, weight, bias, mean, invstd, eps: (*_batch_backward(
    grad, tuple(needs[:3]), input, weight, bias, mean, invstd, True, eps), None, None))


def _batch_eval_array(input, weight, bias, running_mean, running_var, eps, keep):
    invstd = (1 / np.sqrt(running_var.astype(np.float64) + eps)).astype(np.result_type(input.dtype if input.dtype.kind == "f" else np.float32, np.float32)) \
        if keep else None
    return _norm().batch_norm_eval(input, running_mean, running_var, weight, bias, eps), running_mean.copy() if keep else None, invstd


@composite(public=False, name="batch_norm", exact=True, node="NativeBatchNormBackward0")
def _batch_eval(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float):
    n = input.dim()
    mean, invstd = running_mean.clone(), (running_var + eps).rsqrt()
    execute.keep(mean=mean, invstd=invstd)
    return _affine((input - _channels(mean, n)) * _channels(invstd, n), weight, bias)


_batch_eval.fast(_batch_eval_array, keeps=("mean", "invstd"))
keep_format(_batch_eval)
_batch_eval.backward(lambda grad, needs, input, weight, bias, mean, invstd, eps: (*_batch_backward(
    grad, tuple(needs[:3]), input, weight, bias, mean, invstd, False, eps), None, None))


def _check_batch(input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool) -> None:
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions (N, C, ...), but got shape {list(input.shape)}")
    if input.dtype.category != D.FLOAT:
        _is_float("batch_norm", input)
    c = input._a.shape[1]
    for name, v in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if v is not None and v._a.shape != (c,):
            raise RuntimeError(f"{name} should contain {c} elements not {v.numel()}")
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError(f"Expected {'running_mean' if running_mean is None else 'running_var'} to be defined when training=False")


def _batch(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float) -> Any:
    if not input.numel():
        y = input.clone()
        y = y if weight is None else y * weight[0]
        return y if bias is None else y + bias[0]
    _check_batch(input, running_mean, running_var, weight, bias, training)
    if training:
        return _batch_train.function(input, weight, bias, running_mean, running_var, momentum, eps)
    return _batch_eval.function(input, weight, bias, running_mean, running_var, eps)


@composite(ns="nn.functional")
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-05):
    """(input - mean) / sqrt(var + eps) * weight + bias per channel of (N, C, ...). In training the batch's own statistics, towards which
    the running ones move by `momentum` (in place, with the unbiased variance); else the running ones."""
    if training and input.dim() > 1 and input.numel() // max(input.shape[0] * input.shape[1], 1) * input.shape[0] == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    if training and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    return _batch(input, weight, bias, running_mean, running_var, training, 0.0 if momentum is None else momentum, eps)


@composite(ns="torch", name="batch_norm")
def _batch_norm_torch(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                      training: bool, momentum: float, eps: float, cudnn_enabled: bool = True):
    """`nn.functional.batch_norm` with its arguments in another order."""
    return _batch(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(ns="torch", out=True)
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                      training: bool, momentum: float, eps: float):
    """(`batch_norm`, the means, 1 / sqrt(var + eps)) of the batch; the last two are empty outside training."""
    y = _batch(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training:
        empty = f("empty")((0,), dtype=input.dtype)
        return y, empty, f("empty")((0,), dtype=input.dtype)
    c, r, _ = _moments(input, eps)
    return y, input.mean((0, *range(2, input.dim()))), r.reshape(-1)


@composite(ns=("nn.functional",))
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
                  bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05):
    """`batch_norm` of each sample apart; running statistics are averages over the samples."""
    if use_input_stats:
        spatial = math.prod(input.shape[2:])
        if spatial == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    n, c = input.shape[0], input.shape[1]
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats=False")
    if not use_input_stats:
        return _batch(input, weight, bias, running_mean, running_var, False, momentum, eps)
    flat = input.reshape((1, n * c, *input.shape[2:]))
    mean = None if running_mean is None else running_mean.repeat(n)
    var = None if running_var is None else running_var.repeat(n)
    y = _batch(flat, None if weight is None else weight.repeat(n), None if bias is None else bias.repeat(n), mean, var, True, momentum, eps)
    if mean is not None:
        running_mean.copy_(mean.reshape(n, c).mean(0))  # type: ignore[union-attr]
    if var is not None:
        running_var.copy_(var.reshape(n, c).mean(0))  # type: ignore[union-attr]
    return y.reshape(input.shape)


@composite(ns=("torch",), name="instance_norm")
def _instance_norm_torch(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
                         use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True):
    """`nn.functional.instance_norm` with its arguments in another order."""
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@composite(ns=("nn.functional", "torch"))
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05, cudnn_enabled: bool = True):
    """Normalisation of each sample over groups of channels; `weight` and `bias` are per channel."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    n, c = input.shape[0], input.shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if c % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(input.shape)} and num_groups={num_groups}")
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and tuple(v.shape) != (c,):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of shape {list(v.shape)} "
                               f"and input of shape {list(input.shape)}")
    if not input.numel():
        return _affine(input * 1, weight, bias)
    rows = input.reshape(n, num_groups, -1)
    return _affine(layer_norm(rows, (rows.shape[2],), None, None, eps, True).reshape(input.shape), weight, bias)


@composite(returns=("out", "mean", "rstd"))
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float):
    """(`group_norm`, the means, 1 / sqrt(var + eps)) of each sample and group."""
    rows = input.reshape(N, group, C // group * HxW)
    c = rows - (m := rows.mean(-1, True))
    return group_norm(input, group, weight, bias, eps), m.squeeze(-1), ((c * c).mean(-1) + eps).rsqrt()


@composite(ns="nn.functional")
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
    """input / (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""
    dim = input.dim()
    if dim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {dim} dimensions)")
    if not input.numel():
        return input
    square = input * input
    padded = f("nn.functional.pad")(square, (*[0, 0] * (dim - 2), size // 2, (size - 1) // 2))
    mean = sum((padded.narrow(1, i, input.shape[1]) for i in range(1, size)), padded.narrow(1, 0, input.shape[1])) / size
    return input / (mean * alpha + k) ** beta


# --- Inputs for the generated tests (ops.samples) ---
layer_norm.samples(lambda s: [s.call(s((2, 3)), (3,)), s.call(s((2, 2, 3)), (2, 3), s((2, 3)), s((2, 3))), s.call(s((2, 3)), (3,), s((3,)), None, 1e-3)])
group_norm.samples(lambda s: [s.call(s((2, 4, 2)), 2), s.call(s((2, 4, 2)), 2, s((4,)), s((4,)))])
batch_norm.samples(lambda s: [s.call(s((3, 2)), None, None, s((2,)), s((2,)), True),
                              s.call(s((3, 2)), s((2,), requires_grad=False), s((2,), low=0.5, requires_grad=False), s((2,)), s((2,)), False)])
rms_norm.samples(lambda s: [s.call(s((2, 3)), (3,)), s.call(s((2, 3)), (3,), s((3,)), 0.1)])
instance_norm.samples(lambda s: [s.call(s((2, 2, 4))), s.call(s((2, 2, 4)), None, None, s((2,)), s((2,)))])
local_response_norm.samples(lambda s: [s.call(s((1, 4, 3)), 3)])
