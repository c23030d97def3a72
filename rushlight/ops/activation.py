"""Activation functions: pointwise ones, softmax and its kin, dropout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from . import expr as E
from .declare import composite, pointwise, structural
from .geometry import row_major
from .nn_common import F32, F64, f, narrow, row_kernels_for, warn

if TYPE_CHECKING:
    from ..core.dtype import dtype as DType
    from ..core.tensor import Tensor
    Number = int | float | complex

NN = {"ns": "nn.functional", "inplace": "argument", "out": False}      # a function with an `inplace` argument, and its form `name_`
TWIN = {"ns": ("nn.functional", "torch"), "out": False}


def _floating(name: str) -> Any:
    def check(*operands: Any) -> None:
        d = D.of(operands[0].dtype)
        if d.category < D.FLOAT:
            raise NotImplementedError(f"\"{name}\" not implemented for '{_scalar(d)}'")
    check.integers_only = True  # type: ignore[attr-defined]
    return check


def _scalar(d: D.dtype) -> str:
    from .execute import _scalar_name
    return _scalar_name(d)


# --- rectifiers -----------------------------------------------------------------------------------------------------
def _relu_check(input: Any) -> None:
    if input.dtype.kind == "b":
        raise RuntimeError("Boolean inputs not supported for relu")


_relu_check.integers_only = True  # type: ignore[attr-defined]


@pointwise(ns=("nn.functional", "torch"), method=True, inplace="argument", out=False, check=_relu_check)
def relu(input: Tensor):
    """max(input, 0)."""
    return E.maximum(input, 0)


relu.gradient(input=lambda grad, result: E.where(result <= 0, 0, grad))


def _limits(input: Any, min_val: float, max_val: float) -> None:
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype.kind == "b":
        raise NotImplementedError("Bool inputs not supported for hardtanh")
    if input.dtype.kind == "u" and (min_val < 0 or max_val < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")


@pointwise(**NN, check=_limits)
def hardtanh(input: Tensor, min_val: Number = -1.0, max_val: Number = 1.0):
    """input kept within [min_val, max_val]."""
    return E.minimum(E.maximum(input, min_val), max_val)


hardtanh.gradient(input=lambda grad, result, min_val, max_val: E.where((result <= min_val) | (result >= max_val), 0, grad))


@pointwise(**NN, node="HardtanhBackward0", check=lambda input: _limits(input, 0, 6))
def relu6(input: Tensor):
    """input kept within [0, 6]."""
    return E.minimum(E.maximum(input, 0), 6)


relu6.gradient(input=lambda grad, result: E.where((result <= 0) | (result >= 6), 0, grad))


@pointwise(**NN, check=_floating("leaky_relu_cpu"))
def leaky_relu(input: Tensor, negative_slope: Number = 0.01):
    """input where positive, else negative_slope * input."""
    return E.where(input > 0, input, input * negative_slope)


leaky_relu.gradient(input=lambda grad, input, negative_slope: E.where(input > 0, grad, grad * negative_slope))


@pointwise(ns=("nn.functional", "torch"), inplace="argument", out=False)
def threshold(input: Tensor, threshold: Number, value: Number):
    """input where it is above `threshold`, else `value`."""
    return E.where(input <= threshold, value, input)


threshold.gradient(input=lambda grad, input, threshold: E.where(input <= threshold, 0, grad))


@pointwise(public=False, name="_prelu_kernel", check=_floating("prelu_cpu"))
def prelu_kernel(input: Tensor, weight: Tensor):
    return E.where(input > 0, input, weight * input)


prelu_kernel.gradient(input=lambda grad, input, weight: E.where(input > 0, grad, weight * grad),
                      weight=lambda grad, input: E.where(input > 0, 0, input * grad))


@composite(method=True, **TWIN)
def prelu(input: Tensor, weight: Tensor):
    """input where positive, else weight * input; `weight` has one element or one per channel (dimension 1)."""
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    n = weight.numel()
    if n != 1:
        channels = 1 if input.dim() < 2 else input.shape[1]
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        if channels != n:
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {n} and channel size = {channels}.")
    if weight.dim():
        weight = weight.reshape(tuple(n if i == (1 if input.dim() > 1 else 0) else 1 for i in range(input.dim())) if input.dim() else ())
    return prelu_kernel(input, weight)


@structural(public=False, random=True, exact=True)
def _rrelu_slopes(input: Tensor, lower: float, upper: float):
    """A slope from [lower, upper) for each element that is not positive, 1 for the others."""
    from ..core.random import stream
    at = input <= 0
    n = int(np.count_nonzero(at))
    r = np.empty(n)  # of two words each, whatever the dtype
    if n:
        stream().uniform_(r, lower, upper)
    out = np.ones(input.shape, input.dtype)
    out[at] = r.astype(input.dtype)
    return out


_rrelu_slopes.shape(lambda input, lower, upper: input.shape)


@composite(ns=("nn.functional", "torch"), inplace="argument")
def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False):
    """input where positive, else input times a random slope from [lower, upper) (their mean outside training)."""
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, but got lower={lower}, upper={upper}")
    if training:
        return input * _rrelu_slopes(input, lower, upper)
    return leaky_relu(input, (lower + upper) / 2)


# --- exponential ----------------------------------------------------------------------------------------------------
def _negative_part(alpha: Number) -> Any:
    return lambda x: alpha * E.expm1(x)


@pointwise(**NN, check=_floating("elu_cpu"))
def elu(input: Tensor, alpha: Number = 1.0):
    """input where positive, else alpha * (exp(input) - 1)."""
    return E.where(input > 0, input, alpha * E.expm1(input))


elu.gradient(input=lambda grad, input, alpha: E.where(input > 0, grad, grad * (alpha * E.exp(input))))

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


@pointwise(ns=("nn.functional", "torch"), inplace="argument", out=False, node="EluBackward0", check=_floating("elu_cpu"))
def selu(input: Tensor):
    """scale * (input where positive, else alpha * (exp(input) - 1)), with the constants that keep activations normalised."""
    return E.where(input > 0, SELU_SCALE * input, SELU_SCALE * SELU_ALPHA * E.expm1(input))


selu.gradient(input=lambda grad, input: E.where(input > 0, SELU_SCALE * grad, grad * (SELU_SCALE * SELU_ALPHA * E.exp(input))))


def _celu_check(input: Any, alpha: float) -> None:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    _floating("elu_cpu")(input)


@pointwise(ns=("nn.functional", "torch"), inplace="argument", out=False, check=_celu_check)
def celu(input: Tensor, alpha: Number = 1.0):
    """input where positive, else alpha * (exp(input / alpha) - 1)."""
    return E.where(input > 0, input, alpha * E.expm1(input / alpha))


celu.gradient(input=lambda grad, input, alpha: E.where(input > 0, grad, grad * E.exp(input / alpha)))


@pointwise(**NN, check=_floating("silu_cpu"))
def silu(input: Tensor):
    """input * sigmoid(input)."""
    return input / (1 + E.exp(-input))


def _silu_gradient(grad, input):
    s = 1 / (1 + E.exp(-input))
    return grad * (s * (1 + input * (1 - s)))


silu.gradient(input=_silu_gradient)


def _softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return E.maximum(x, 0) + E.log1p(E.exp(-abs(x)))


@pointwise(**NN, check=_floating("mish_cpu"))
def mish(input: Tensor):
    """input * tanh(softplus(input))."""
    return input * E.tanh(_softplus(input))


def _mish_gradient(grad, input):
    t = E.tanh(_softplus(input))
    return grad * (t + input / (1 + E.exp(-input)) * (1 - t * t))


mish.gradient(input=_mish_gradient)


@pointwise(ns="nn.functional", check=_floating("softplus_cpu"))
def softplus(input: Tensor, beta: Number = 1, threshold: Number = 20):
    """log(1 + exp(beta * input)) / beta; input itself where beta * input is above `threshold`."""
    z = input * beta
    return E.where(z > threshold, input, E.log1p(E.exp(E.minimum(z, threshold))) / beta)


softplus.gradient(input=lambda grad, input, beta, threshold: E.where(input * beta > threshold, grad, grad / (1 + E.exp(-(input * beta)))))


@pointwise(ns="nn.functional", name="logsigmoid", check=_floating("log_sigmoid_cpu"), node="LogSigmoidBackward0")
def logsigmoid(input: Tensor):
    """log(1 / (1 + exp(-input)))."""
    return E.minimum(input, 0) - E.log1p(E.exp(-abs(input)))


logsigmoid.gradient(input=lambda grad, input: grad / (1 + E.exp(input)))


def _gelu_check(input: Any, approximate: Any) -> None:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    _floating("GeluKernelImpl")(input)


_gelu_check.integers_only = True  # type: ignore[attr-defined]


@pointwise(ns="nn.functional", check=_gelu_check)
def gelu(input: Tensor, *, approximate: str = "none"):
    """input times the probability that a standard normal is below it; `approximate="tanh"`: by a tanh of a cubic."""
    if approximate == "tanh":
        return 0.5 * input * (1 + E.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))))
    return 0.5 * input * (1 + E.erf(input * math.sqrt(0.5)))


def _gelu_gradient(grad, input, approximate):
    if approximate == "tanh":
        t = E.tanh(math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input)))
        return grad * (0.5 * (1 + t) + 0.5 * input * (1 - t * t) * (math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * (input * input))))
    return grad * (0.5 * (1 + E.erf(input * math.sqrt(0.5))) + input * E.exp(-0.5 * (input * input)) * (1 / math.sqrt(2 * math.pi)))


gelu.gradient(input=_gelu_gradient)


# --- pieces of lines ------------------------------------------------------------------------------------------------
@pointwise(**NN, check=_floating("hardswish_cpu"))
def hardswish(input: Tensor):
    """input * relu6(input + 3) / 6."""
    return input * E.minimum(E.maximum(input + 3, 0), 6) / 6


hardswish.gradient(input=lambda grad, input: E.where(input <= -3, 0, E.where(input >= 3, grad, grad * (input / 3 + 0.5))))


@pointwise(**NN, check=_floating("hardsigmoid_cpu"))
def hardsigmoid(input: Tensor):
    """relu6(input + 3) / 6."""
    return E.minimum(E.maximum(input + 3, 0), 6) / 6


hardsigmoid.gradient(input=lambda grad, result: E.where((result > 0) & (result < 1), grad * (1 / 6), 0))


@pointwise(**{**TWIN, "out": "same"}, method=True, check=_floating("hardshrink_cpu"))
def hardshrink(input: Tensor, lambd: Number = 0.5):
    """input, but 0 within [-lambd, lambd]."""
    return E.where((input >= -lambd) & (input <= lambd), 0, input)


hardshrink.gradient(input=lambda grad, input, lambd: E.where((input >= -lambd) & (input <= lambd), 0, grad))


def _softshrink_check(input: Any, lambd: float) -> None:
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd:g}.")
    _floating("softshrink_cpu")(input)


@pointwise(ns="nn.functional", check=_softshrink_check)
def softshrink(input: Tensor, lambd: Number = 0.5):
    """input moved towards 0 by lambd, 0 within [-lambd, lambd]."""
    return E.where(input > lambd, input - lambd, E.where(input < -lambd, input + lambd, input * 0))


softshrink.gradient(input=lambda grad, input, lambd: E.where((input >= -lambd) & (input <= lambd), 0, grad))


@pointwise(ns="nn.functional", result="float", out=False, node="SubBackward0")
def tanhshrink(input: Tensor):
    """input - tanh(input)."""
    return input - E.tanh(input)


tanhshrink.gradient(input=lambda grad, input: grad * (E.tanh(input) * E.tanh(input)))


@pointwise(public=False, result="float", name="softsign", node="DivBackward0")
def _softsign(input: Tensor):
    return input / (1 + abs(input))


@composite(ns="nn.functional")
def softsign(input: Tensor):
    """input / (1 + |input|)."""
    return input / (1 + input.abs()) if input.dtype.is_complex else _softsign(input)


_softsign.gradient(input=lambda grad, input: grad / ((1 + abs(input)) * (1 + abs(input))))


@composite(ns="nn.functional", out=True)
def glu(input: Tensor, dim: int = -1):
    """The first half of `input` along `dim` times the sigmoid of the second."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    n = input.size(dim)
    if n % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {n}")
    return input.narrow(dim, 0, n // 2) * input.narrow(dim, n // 2, n // 2).sigmoid()


# --- softmax --------------------------------------------------------------------------------------------------------
def _softmax_dim(name: str, dim: int | None, ndim: int) -> int:
    if dim is None:
        warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.")
        return 0 if ndim in (0, 1, 3) else 1
    return dim


def _exponentials(name: str, x: np.ndarray, dim: int | None, level: Any, dtype: Any) -> tuple[np.ndarray, int, np.dtype]:
    """(the operand in the dtype of computation, a dimension from 0, the result's dtype)."""
    n = x.ndim
    if dim is None or dim.__class__ is not int:
        dim = _softmax_dim(name, dim, n)
    if not -(n or 1) <= dim < (n or 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-(n or 1)}, {(n or 1) - 1}], but got {dim})")
    if dtype is None and isinstance(level, D.dtype):     # torch.softmax(input, dim, dtype)
        dtype = level
    if dtype is not None and dtype.np != x.dtype:
        x = x.astype(dtype.np)
    x = row_major(x)
    to = x.dtype
    if to.kind != "f":
        if to.kind in "biuc":
            raise NotImplementedError(f"\"{name}_lastdim_kernel_impl\" not implemented for '{_scalar(D.of(to))}'")
    if to.itemsize <= 2:
        x = x.astype(F32)
    return x, dim % n if n else 0, to


def _softmax_array(input: np.ndarray, dim: Any, level: Any, dtype: Any) -> np.ndarray:
    n = input.ndim
    if dtype is None and level == 3 and dim.__class__ is int and (input.dtype is F32 or input.dtype is F64) and -n <= dim < n and input.size:
        if dim in (-1, n - 1) and (k := row_kernels_for(input)) is not None:
            return k.softmax(input)
        input = row_major(input)
        e = input - np.maximum.reduce(input, dim, None, None, True)
        np.exp(e, e)
        return np.divide(e, np.add.reduce(e, dim, None, None, True), e)
    x, dim, to = _exponentials("softmax", input, dim, level, dtype)
    if x.ndim == 0:
        return narrow(x / x if not np.isfinite(x) else np.ones_like(x), to)
    if x.size == 0:
        return np.empty(x.shape, to)
    if dim == x.ndim - 1 and (k := row_kernels_for(x)) is not None:
        return narrow(k.softmax(x), to)
    e = x - np.maximum.reduce(x, dim, None, None, True)
    np.exp(e, e)
    np.divide(e, np.add.reduce(e, dim, None, None, True), e)
    return narrow(e, to)


def _softmax_backward_array(grad: np.ndarray, result: np.ndarray, dim: int) -> np.ndarray:
    if result.ndim == 0:
        return np.zeros_like(result)
    if dim % result.ndim == result.ndim - 1 and (k := row_kernels_for(result)) is not None and grad.dtype == result.dtype:
        return k.softmax_backward(grad, result)
    g = grad * result
    g -= result * np.add.reduce(g, dim, keepdims=True)
    return g


@composite(public=False)
def _softmax_backward(grad: Tensor, result: Tensor, dim: int):
    g = grad * result
    return g - result * g.sum(dim, True)


_softmax_backward.fast(_softmax_backward_array)


def _back(gradient: Any) -> Any:
    def formula(grad, result, dim, input_meta):
        g = gradient(grad, result, dim if dim is not None else 0 if len(input_meta.shape) in (0, 1, 3) else 1)
        return g if g._a.dtype == input_meta.array_dtype else g.to(input_meta.dtype)
    return formula


@composite(ns=("nn.functional", "torch", "special"), method=True, exact=True, out=True)
def softmax(input: Tensor, dim: int | None = None, _stacklevel: Any = 3, dtype: DType | None = None):
    """exp(input) over its sum along `dim`. `dtype`: what `input` is converted to first."""
    dim = _softmax_dim("softmax", dim, input.dim())
    if dtype is None and isinstance(_stacklevel, D.dtype):
        dtype = _stacklevel
    if dtype is not None:
        input = input.to(dtype)
    e = (input - input.amax(dim, True)).exp()
    return e / e.sum(dim, True)


softmax.fast(_softmax_array)
softmax.gradient(input=_back(_softmax_backward))


def _log_softmax_array(input: np.ndarray, dim: Any, level: Any, dtype: Any) -> np.ndarray:
    x, dim, to = _exponentials("log_softmax", input, dim, level, dtype)
    if x.ndim == 0:
        return narrow(x - x, to)
    if x.size == 0:
        return np.empty(x.shape, to)
    if dim == x.ndim - 1 and (k := row_kernels_for(x)) is not None:
        return narrow(k.log_softmax(x), to)
    e = x - np.maximum.reduce(x, dim, None, None, True)
    np.subtract(e, np.log(np.add.reduce(np.exp(e), dim, None, None, True)), e)
    return narrow(e, to)


def _log_softmax_backward_array(grad: np.ndarray, result: np.ndarray, dim: int) -> np.ndarray:
    if result.ndim == 0:
        return np.zeros_like(result)
    if dim % result.ndim == result.ndim - 1 and (k := row_kernels_for(result)) is not None and grad.dtype == result.dtype:
        return k.log_softmax_backward(grad, result)
    return grad - np.exp(result) * np.add.reduce(grad, dim, keepdims=True)


@composite(public=False)
def _log_softmax_backward(grad: Tensor, result: Tensor, dim: int):
    return grad - result.exp() * grad.sum(dim, True)


_log_softmax_backward.fast(_log_softmax_backward_array)


@composite(ns=("nn.functional", "torch", "special"), method=True, exact=True, out=True)
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: Any = 3, dtype: DType | None = None):
    """log(softmax(input)), without its cancellation."""
    dim = _softmax_dim("log_softmax", dim, input.dim())
    if dtype is None and isinstance(_stacklevel, D.dtype):
        dtype = _stacklevel
    if dtype is not None:
        input = input.to(dtype)
    e = input - input.amax(dim, True)
    return e - e.exp().sum(dim, True).log()


log_softmax.fast(_log_softmax_array)
log_softmax.gradient(input=_back(_log_softmax_backward))


@composite(ns="nn.functional")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None):
    """softmax(-input)."""
    return softmax(-input, _softmax_dim("softmin", dim, input.dim()), dtype=dtype)


@composite(ns="nn.functional", random=True)
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1):
    """A sample of the relaxed one-hot distribution of `logits`; `hard`: one-hot in the forward pass, relaxed in the gradient."""
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    noise = -f("empty_like")(logits).exponential_().log()
    y = softmax((logits + noise) / tau, dim)
    if not hard:
        return y
    index = y.max(dim, True)[1]
    one = f("zeros_like")(logits).scatter(dim, index, 1.0)
    return one - y.detach() + y


@composite(ns="nn.functional", out=True)
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12):
    """input over its p-norm along `dim`, which counts as at least `eps`."""
    return input / input.norm(p, dim, True).clamp_min(eps).expand_as(input)


# --- dropout --------------------------------------------------------------------------------------------------------
def _dropout_check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@structural(public=False, random=True, exact=True, differentiable=False)
def _dropout_mask(input: Tensor, p: float, shape: tuple | None):
    """What dropout multiplies by: 0 with probability p, else 1 / (1 - p)."""
    from ..core.random import stream
    from .create import layout_like
    mask = layout_like(input.shape if shape is None else shape, input if shape is None else None, D.of(input.dtype))  # drawn in memory order
    stream().dropout_mask_(mask, p)
    return mask


_dropout_mask.shape(lambda input, p, shape: input.shape if shape is None else shape)


@composite(ns=("nn.functional", "torch"), inplace="argument", random=True)
def dropout(input: Tensor, p: float = 0.5, training: bool = True):
    """Zero elements with probability `p` and scale the others by 1 / (1 - p); outside training the input itself."""
    _dropout_check(p)
    if not training or p == 0 or not input.numel():
        return input
    return input * 0 if p == 1 else input * _dropout_mask(input, p, None)


def _features(name: str, input: Any) -> tuple[int, ...]:
    if input.dim() < 2:
        raise RuntimeError(f"{name} requires at least 2 dimensions in the inputs")
    return (*input.shape[:2], *[1] * (input.dim() - 2))


@composite(ns=("torch",), inplace=True, random=True)
def feature_dropout(input: Tensor, p: float, train: bool):
    """Zero whole channels (of an input (N, C, ...)) with probability `p`; the others are scaled by 1 / (1 - p)."""
    _dropout_check(p)
    if not train or p == 0 or not input.numel():
        return input
    return input * 0 if p == 1 else input * _dropout_mask(input, p, _features("Feature dropout", input))


def _spatial(n: int) -> None:
    def fn(input: Tensor, p: float = 0.5, training: bool = True):
        _dropout_check(p)
        d = input.dim()
        if d not in (n + 1, n + 2):
            warn(f"dropout{n}d: Received a {d}-D input to dropout{n}d, which is deprecated and will result in an error in a future release. To retain "
                 "the behavior and silence this warning, please use dropout instead." if n > 1 else
                 f"dropout1d: Expected 2D or 3D input, but received a {d}D input. Note that dropout1d exists to provide channel-wise dropout on inputs "
                 "with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).")
            if n == 1:
                raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {d}D input. Note that dropout1d exists to provide channel-wise "
                                   "dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).")
        if n != 2 and d == n + 1:
            return feature_dropout(input.unsqueeze(0), p, training).squeeze(0)
        return feature_dropout(input, p, training)
    fn.__doc__ = f"Zero whole channels of an input with {n} spatial dimension{'s' if n > 1 else ''} with probability `p`."
    fn.__annotations__ = {"input": "Tensor", "p": "float", "training": "bool"}
    composite(fn, name=f"dropout{n}d", ns="nn.functional", inplace="argument", random=True)


for _n in (1, 2, 3):
    _spatial(_n)

ALPHA = 1.7580993408473766      # the limit of selu at -inf, negated: selu's scale times its alpha


def _alpha(input: Any, p: float, train: bool, shape: tuple | None) -> Any:
    _dropout_check(p)
    if not train or p == 0 or not input.numel():
        return input
    if p == 1:
        return input * 0
    a = 1.0 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    keep = (_dropout_mask(input, p, shape) != 0).to(input.dtype)
    return input * (keep * a) + ((keep - 1) * (ALPHA * a) + ALPHA * a * p)


@composite(ns=("nn.functional", "torch"), inplace="argument", random=True)
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False):
    """Dropout that keeps mean and variance of selu's activations: dropped elements become selu's limit."""
    return _alpha(input, p, training, None)


@composite(ns=("nn.functional", "torch"), inplace="argument", random=True)
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False):
    """`alpha_dropout` of whole channels."""
    return _alpha(input, p, training, _features("Feature dropout", input) if training and p else None)


@composite(returns=("out", "mask"), random=True)
def native_dropout(input: Tensor, p: float, train: bool | None):
    """(`dropout`, the mask of what was kept)."""
    if train is False or p == 0 or not input.numel():
        return input.clone(), f("ones_like")(input, dtype=D.bool_)
    if p == 1:
        return input * 0, f("zeros_like")(input, dtype=D.bool_)
    mask = _dropout_mask(input, p, None)
    return input * mask, mask != 0


@composite(ns="ops.aten")
def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float):
    """The gradient of `native_dropout`."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


# --- Inputs for the generated tests (ops.samples) ---
softmax.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1), s.call(s((2, 3, 2)), 1), s.call(s(()), 0), s.call(s((0, 3)), 1)])
log_softmax.samples(lambda s: [s.call(s((3, 4)), 0), s.call(s((3, 4)), -1), s.call(s((2, 3, 2)), 1), s.call(s(()), 0), s.call(s((0, 3)), 1)])
glu.samples(lambda s: [s.call(s((3, 4))), s.call(s((4, 3)), 0)])
prelu.samples(lambda s: [s.call(s((2, 3)), s((1,))), s.call(s((2, 3, 2)), s((3,)))])
threshold.samples(lambda s: [s.call(s((2, 3)), 0.5, -1.0)])
softsign.samples(lambda s: [s.call(s((2, 3)))])
softmin.samples(lambda s: [s.call(s((2, 3)), dim=1)])
normalize.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 1.0, 0)])
rrelu.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3)), 0.1, 0.3)])
dropout.samples(lambda s: [s.call(s((2, 3)), 0.5, False), s.call(s((2, 3)), 0.0)])
alpha_dropout.samples(lambda s: [s.call(s((2, 3)), 0.5, False)])
