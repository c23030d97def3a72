"""Losses that compare tensors element by element, or pair by pair."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu.evaluate import numpy_function
from ..core import dtype as D
from ..core.promotion import result_of
from . import expr as E
from .declare import Operator, composite, pointwise
from .execute import common_shape, pointwise_arrays
from .generate import sum_to, trace
from .nn_common import f, legacy_reduction, reduced, warn

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    Number = int | float | complex


def _compare_sizes(input: Any, target: Any) -> None:
    if tuple(input.shape) != tuple(target.shape):
        warn(f"Using a target size (torch.Size({list(target.shape)})) that is different to the input size (torch.Size({list(input.shape)})). "
             "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.")


def _weighted(loss: Any, input: Any, weight: Any, reduction: str, by_weight: bool = True) -> Any:
    """A loss with one factor per element; "mean" divides by their sum where `by_weight`."""
    if weight is None:
        return reduced(loss, reduction)
    if tuple(weight.shape) != tuple(input.shape):
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" and by_weight else reduced(loss, reduction)


# --- distances ------------------------------------------------------------------------------------------------------
def _fused(pw: Operator, node: str) -> Operator:
    """A pointwise loss and its reduction as one operator of (input, target, numbers, reduction): one node on the tape, and no tensor of
    losses where it is not asked for. The gradients are those of the pointwise record."""
    names = [p.name for p in pw.params]
    small: list[Any] = []      # the function for small arrays

    def array(input: np.ndarray, target: np.ndarray, numbers: tuple, reduction: str) -> np.ndarray:
        if input.size < SMALL and target.size < SMALL:
            if not small:
                small.append(numpy_function(names, [trace(pw)], numbers=names[2:]))
            r = small[0](input, target, *numbers, input.dtype.type)
        else:
            d = D.of(input.dtype)
            r = pointwise_arrays(pw, [input, target, *numbers], d, d)
        if reduction == "none":
            return r
        s = np.add.reduce(r, None)
        return s if reduction == "sum" else s / s.dtype.type(r.size)

    def body(input: Tensor, target: Tensor, numbers: tuple, reduction: str):
        return reduced(pw(input, target, *numbers), reduction)

    def backward(grad, needs, input, target, numbers, reduction):
        shape = tuple(input.shape)
        if shape != tuple(target.shape):
            shape = common_shape(shape, tuple(target.shape))
            grad = grad.expand(shape)
        if reduction == "mean":
            n = math.prod(shape)
            grad = grad * (1 / n if n else math.nan)
        have = dict(zip(names, (input, target, *numbers), strict=True), grad=grad)
        out = []
        for name, operand, need in zip(names[:2], (input, target), needs, strict=True):
            formula = pw.derived("formulas").get(name)
            g = None
            if need and formula is not None:
                g = formula.fn(*[have[r] for r in formula.reads])
                g = sum_to(g if tuple(g.shape) == shape else g.expand(shape), tuple(operand.shape))
            out.append(g)
        return tuple(out)

    body.__doc__ = pw.__doc__
    op = composite(body, public=False, name=pw.name, node=node)
    op.fast(array)
    return op.backward(backward)


SMALL = 65536


def _loss(op: Operator, pw: Operator, input: Any, target: Any, numbers: tuple, reduction: str) -> Any:
    """The fused operator where it serves (floats of one dtype), else its parts."""
    if input._a.shape != target._a.shape:
        f("broadcast_tensors")(input, target)     # RuntimeError for shapes that do not go together
    if input.dtype is target.dtype and input.dtype.category == D.FLOAT:
        return op.function(input, target, numbers, reduction)
    return reduced(pw(input, target, *numbers), reduction)


@pointwise(public=False, name="mse_loss")
def _mse(input: Tensor, target: Tensor):
    """The square of the difference."""
    return (input - target) * (input - target)


_mse.gradient(input=lambda grad, input, target: grad * 2 * (input - target), target=lambda grad, input, target: grad * -2 * (input - target))
_mse_fused = _fused(_mse, "MseLossBackward0")


@composite(ns="nn.functional")
def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
             weight: Tensor | None = None):
    """(input - target)^2, its mean by default; with `weight` (of input's shape) the weighted mean."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _compare_sizes(input, target)
    if weight is None:
        if input.dtype.is_complex or target.dtype.is_complex:
            raise NotImplementedError("\"mse_cpu\" not implemented for complex numbers")
        return _loss(_mse_fused, _mse, input, target, (), reduction)
    return _weighted(_mse(input, target), input, weight, reduction)


@pointwise(public=False, name="l1_loss")
def _l1(input: Tensor, target: Tensor):
    """The absolute difference."""
    return abs(input - target)


_l1_fused = _fused(_l1, "MeanBackward0")


@composite(ns="nn.functional")
def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
            weight: Tensor | None = None):
    """|input - target|, its mean by default; with `weight` (of input's shape) the weighted mean."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _compare_sizes(input, target)
    if weight is None and not input.dtype.is_complex and not target.dtype.is_complex:
        return _loss(_l1_fused, _l1, input, target, (), reduction)
    return _weighted((input - target).abs(), input, weight, reduction)


@pointwise(public=False, name="smooth_l1_loss")
def _smooth_l1(input: Tensor, target: Tensor, beta: Number):
    e = abs(input - target)
    return E.where(e < beta, 0.5 * e * e / beta, e - 0.5 * beta)


_smooth_l1_fused = _fused(_smooth_l1, "SmoothL1LossBackward0")


@composite(ns="nn.functional")
def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0):
    """0.5 e^2 / beta where e = |input - target| is below `beta`, else e - 0.5 beta."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _compare_sizes(input, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return _loss(_l1_fused, _l1, input, target, (), reduction)
    return _loss(_smooth_l1_fused, _smooth_l1, input, target, (beta,), reduction)


@pointwise(public=False, name="huber_loss")
def _huber(input: Tensor, target: Tensor, delta: Number):
    e = abs(input - target)
    return E.where(e <= delta, 0.5 * e * e, delta * (e - 0.5 * delta))


_huber_fused = _fused(_huber, "HuberLossBackward0")


@composite(ns="nn.functional")
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None):
    """0.5 e^2 where e = |input - target| is at most `delta`, else delta (e - 0.5 delta)."""
    reduction = legacy_reduction(None, None, reduction)
    _compare_sizes(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is None:
        return _loss(_huber_fused, _huber, input, target, (delta,), reduction)
    return _weighted(_huber(input, target, delta), input, weight, reduction, False)


# --- probabilities --------------------------------------------------------------------------------------------------
@pointwise(public=False, name="binary_cross_entropy", domain=(0.05, 0.95))
def _bce(input: Tensor, target: Tensor):
    """Logarithms count as at least -100, so that the loss is finite."""
    return -(target * E.maximum(E.log(input), -100) + (1 - target) * E.maximum(E.log1p(-input), -100))


_bce.gradient(input=lambda grad, input, target: grad * (input - target) / E.maximum((1 - input) * input, 1e-12),
              target=lambda grad, input: grad * (E.log1p(-input) - E.log(input)))
_bce_fused = _fused(_bce, "BinaryCrossEntropyBackward0")


@composite(ns="nn.functional")
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
                         reduction: str = "mean"):
    """-(target log(input) + (1 - target) log(1 - input)) of probabilities."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
                         "Please ensure they have the same size.")
    if input.dtype is not target.dtype:
        raise RuntimeError(f"Found dtype {_scalar(target)} but expected {_scalar(input)}")
    if input.is_cpu and input.numel() and not bool(((input >= 0) & (input <= 1)).all().item()):
        raise RuntimeError("all elements of input should be between 0 and 1")
    return _bce_fused.function(input, target, (), reduction) if weight is None else reduced(_bce(input, target) * weight, reduction)


def _scalar(t: Any) -> str:
    from .execute import _scalar_name
    return _scalar_name(t.dtype)


@pointwise(public=False, name="binary_cross_entropy_with_logits")
def _bce_logits(input: Tensor, target: Tensor):
    return (1 - target) * input + (E.maximum(-input, 0) + E.log1p(E.exp(-abs(input))))


_bce_logits.gradient(input=lambda grad, input, target: grad * (1 / (1 + E.exp(-input)) - target), target=lambda grad, input: -(grad * input))
_bce_logits_fused = _fused(_bce_logits, "BinaryCrossEntropyWithLogitsBackward0")


@pointwise(public=False, name="binary_cross_entropy_with_logits")
def _bce_logits_weighted(input: Tensor, target: Tensor, pos_weight: Tensor):
    return (1 - target) * input + (1 + (pos_weight - 1) * target) * (E.maximum(-input, 0) + E.log1p(E.exp(-abs(input))))


_bce_logits_weighted.gradient(
    input=lambda grad, input, target, pos_weight: grad * ((1 - target) - (1 + (pos_weight - 1) * target) / (1 + E.exp(input))))


@composite(ns=("nn.functional",))
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                                     reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None):
    """`binary_cross_entropy` of sigmoid(input), without overflow; `pos_weight` multiplies the positive term."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    if weight is None and pos_weight is None:
        return _loss(_bce_logits_fused, _bce_logits, input, target, (), reduction)
    loss = _bce_logits(input, target) if pos_weight is None else _bce_logits_weighted(input, target, pos_weight)
    return reduced(loss if weight is None else loss * weight, reduction)


@pointwise(public=False, name="kl_div", domain=(0.1, 3.0))
def _kl(input: Tensor, target: Tensor):
    return E.where(target == 0, 0, target * E.log(target)) - target * input


_kl.gradient(input=lambda grad, target: -(grad * target),
             target=lambda grad, input, target: grad * (E.where(target == 0, 0, E.log(target) + 1) - input))
_kl_fused = _fused(_kl, "MeanBackward0")


@composite(ns="nn.functional")
def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", log_target: bool = False):
    """target (log(target) - input) of log-probabilities `input` and probabilities `target` (their logarithms if `log_target`).
    "batchmean" divides the sum by the first size."""
    batch = reduction == "batchmean" and size_average is None and reduce is None
    if reduction == "mean" and size_average is None and reduce is None:
        warn("reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by the batch size, and "
             "aligns with the KL div math definition.'mean' will be changed to behave the same as 'batchmean' in the next major release.")
    r = legacy_reduction(size_average, reduce, "sum" if batch else reduction)
    loss = reduced(target.exp() * (target - input), r) if log_target else _loss(_kl_fused, _kl, input, target, (), r)
    return loss / input.shape[0] if batch and input.dim() else loss


@composite(ns="nn.functional")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
                     reduce: bool | None = None, reduction: str = "mean"):
    """The negative log likelihood of counts `target` under rates exp(input) (`input` itself unless `log_input`); `full` adds Stirling's
    approximation of log(target!)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        t = f("where")(target > 1, target, f("ones_like")(target))
        loss = loss + f("where")(target > 1, t * t.log() - t + 0.5 * (2 * math.pi * t).log(), f("zeros_like")(t))
    return reduced(loss, reduction)


@composite(ns="nn.functional")
def gaussian_nll_loss(input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
    """The negative log likelihood of `target` under normals of mean `input` and variance `var`, which counts as at least `eps`."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = f("ones_like")(input) * var
    elif var.is_cpu and bool((var < 0).any().item()):
        raise ValueError("var has negative entry/entries")
    if tuple(var.shape) != tuple(input.shape):
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = var.unsqueeze(-1)
        elif not (input.dim() == var.dim() and sum(b for a, b in zip(input.shape, var.shape, strict=True) if a != b) == 1):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    # the gradient goes past the lower limit
    v = var + (var.detach().clamp_min(eps) - var.detach())
    e = input - target
    loss = 0.5 * (v.log() + e * e / v)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


# --- margins --------------------------------------------------------------------------------------------------------
@composite(ns="nn.functional")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
                         reduction: str = "mean"):
    """input where the target is 1, max(0, margin - input) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    zero = f("zeros_like")(input)
    return reduced(f("where")(target == 1, zero, (margin - input).clamp_min(0)) + f("where")(target == -1, zero, input), reduction)


@pointwise(public=False, name="soft_margin_loss")
def _soft_margin(input: Tensor, target: Tensor):
    z = -(target * input)
    return E.maximum(z, 0) + E.log1p(E.exp(-abs(z)))


_soft_margin.gradient(input=lambda grad, input, target: -(grad * target) / (1 + E.exp(target * input)),
                      target=lambda grad, input, target: -(grad * input) / (1 + E.exp(target * input)))
_soft_margin_fused = _fused(_soft_margin, "SoftMarginLossBackward0")


@composite(ns="nn.functional")
def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    return _loss(_soft_margin_fused, _soft_margin, input, target, (), legacy_reduction(size_average, reduce, reduction))


@composite(ns="nn.functional")
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean"):
    """max(0, -target (input1 - input2) + margin): target 1 where input1 should be larger, -1 where smaller."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: "
                           f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} ")
    return reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@composite(ns="nn.functional")
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                                reduce: bool | None = None, reduction: str = "mean"):
    """The mean over classes of `binary_cross_entropy_with_logits`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    log = f("nn.functional.logsigmoid")
    loss = -(target * log(input) + (1 - target) * log(-input))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.sum(-1) / input.shape[-1], reduction)


# --- similarity -----------------------------------------------------------------------------------------------------
@composite(ns=("nn.functional", "torch"), old={"input1": "x1", "input2": "x2"})
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8):
    """The cosine of the angle between the vectors along `dim`; norms count as at least `eps`."""
    d = result_of((x1._a, x2._a))
    if not d.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {d}")
    x1, x2 = f("broadcast_tensors")(x1.to(d), x2.to(d))
    n1, n2 = x1.norm(2, dim, True).clamp_min(eps), x2.norm(2, dim, True).clamp_min(eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


@composite(ns=("nn.functional", "torch"))
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return f("linalg.vector_norm")(x1 - x2 + eps, p, -1, keepdim)


@composite(ns=("nn.functional", "torch"))
def pdist(input: Tensor, p: float = 2.0):
    """The p-norm distance of every pair of rows of (N, M), (0, 1), (0, 2), ...: N (N - 1) / 2 of them."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    i, j = f("triu_indices")(input.shape[0], input.shape[0], 1, device=input.device).unbind(0)
    return f("linalg.vector_norm")(input.index_select(0, i) - input.index_select(0, j), p, -1)


@composite(ns="nn.functional")
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
                          reduce: bool | None = None, reduction: str = "mean"):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.dim() == 1:
        if input1.dim() != 2 or input2.dim() != 2 and input2.dim() != input1.dim():
            raise RuntimeError("1D target tensor expects 2D input tensors, but found inputs with sizes "
                               f"{list(input1.shape)} and {list(input2.shape)}.")
    elif target.dim() == 0:
        if input1.dim() != 1 or input2.dim() != 1:
            raise RuntimeError("0D target tensor expects 1D input tensors, but found inputs with sizes "
                               f"{list(input1.shape)} and {list(input2.shape)}.")
    else:
        raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported, but got {target.dim()}D")
    tiny = 1e-12
    product = (input1 * input2).sum(-1)
    cos = product / ((input1.square().sum(-1) + tiny) * (input2.square().sum(-1) + tiny)).sqrt()
    zero = f("zeros_like")(cos)
    loss = f("where")(target == 1, 1 - cos, zero) + f("where")(target == -1, (cos - margin).clamp_min(0), zero)
    return reduced(loss, reduction)


def _triplet(distance: Any, anchor: Any, positive: Any, negative: Any, margin: float, swap: bool, reduction: str) -> Any:
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
                           f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = f("minimum")(far, distance(positive, negative))
    return reduced((margin + near - far).clamp_min(0), reduction)


@composite(ns="nn.functional")
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
                        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
    """max(0, margin + |anchor - positive| - |anchor - negative|) in the p-norm; `swap`: the nearer of the two distances to `negative`."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(lambda a, b: pairwise_distance(a, b, p, eps), anchor, positive, negative, margin, swap, reduction)


@composite(ns="nn.functional")
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None, margin: float = 1.0,
                                      swap: bool = False, reduction: str = "mean"):
    """`triplet_margin_loss` with a distance of one's own (`pairwise_distance` by default)."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(distance_function or pairwise_distance, anchor, positive, negative, margin, swap, reduction)


# --- the forms of the main namespace: the reduction is a number, 0 none (what PyTorch takes by default here), 1 mean, 2 sum
REDUCTIONS = ("none", "mean", "sum")


@composite(name="binary_cross_entropy_with_logits")
def _bce_logits_number(input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 0):
    """`nn.functional.binary_cross_entropy_with_logits` with the reduction as a number."""
    return binary_cross_entropy_with_logits(input, target, weight, None, None, REDUCTIONS[reduction], pos_weight)


@composite(name="kl_div")
def _kl_number(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False):
    """`nn.functional.kl_div` with the reduction as a number."""
    loss = target.exp() * (target - input) if log_target else _kl(input, target)
    return reduced(loss, REDUCTIONS[reduction])


@composite(name="poisson_nll_loss")
def _poisson_number(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int):
    """`nn.functional.poisson_nll_loss` with the reduction as a number."""
    return poisson_nll_loss(input, target, log_input, full, None, eps, None, REDUCTIONS[reduction])


@composite(name="hinge_embedding_loss")
def _hinge_number(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0):
    """`nn.functional.hinge_embedding_loss` with the reduction as a number."""
    return hinge_embedding_loss(input, target, margin, None, None, REDUCTIONS[reduction])


@composite(name="margin_ranking_loss")
def _ranking_number(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0):
    """`nn.functional.margin_ranking_loss` with the reduction as a number."""
    return margin_ranking_loss(input1, input2, target, margin, None, None, REDUCTIONS[reduction])


@composite(name="cosine_embedding_loss")
def _cosine_number(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0):
    """`nn.functional.cosine_embedding_loss` with the reduction as a number."""
    return cosine_embedding_loss(input1, input2, target, margin, None, None, REDUCTIONS[reduction])


@composite(name="triplet_margin_loss")
def _triplet_number(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
                    reduction: int = 0):
    """`nn.functional.triplet_margin_loss` with the reduction as a number."""
    return triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, None, None, REDUCTIONS[reduction])


# --- Inputs for the generated tests (ops.samples) ---
def _unit(s: Any, grad: bool = False) -> Any:
    """Probabilities."""
    return s((2, 3), low=0.1, high=0.9, requires_grad=grad)


mse_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((2, 3)), reduction='sum'), s.call(s((2, 3)), s((2, 3)), reduction='none')])
l1_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((2, 3)), reduction='sum'), s.call(s((2, 3)), s((2, 3)), reduction='none')])
smooth_l1_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((2, 3)), reduction='sum'), s.call(s((2, 3)), s((2, 3)), reduction='none')])
huber_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((2, 3)), reduction='sum'), s.call(s((2, 3)), s((2, 3)), reduction='none')])
binary_cross_entropy.samples(lambda s: [s.call(_unit(s, True), _unit(s)),
                                        s.call(_unit(s, True), _unit(s), s((3,), low=0.5, requires_grad=False), reduction='none')])
binary_cross_entropy_with_logits.samples(lambda s: [s.call(s((2, 3)), _unit(s, True)),
                                                    s.call(s((2, 3)), _unit(s), s((3,), low=0.5, requires_grad=False), reduction='sum',
                                                           pos_weight=s((3,), low=0.5, requires_grad=False))])
kl_div.samples(lambda s: [s.call(s((2, 3)), s((2, 3), low=0.1), reduction='batchmean'), s.call(s((2, 3)), s((2, 3)), log_target=True, reduction='sum')])
poisson_nll_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3), low=0.5)), s.call(s((2, 3), low=0.5), s((2, 3), low=1.5), log_input=False, full=True)])
gaussian_nll_loss.samples(lambda s: [s.call(s((2, 3)), s((2, 3)), s((2, 3), low=0.5)), s.call(s((2, 3)), s((2, 3)), s((2, 1), low=0.5), True)])
hinge_embedding_loss.samples(lambda s: [s.call(s((2, 3)), s.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], 'float64'))])
soft_margin_loss.samples(lambda s: [s.call(s((2, 3)), s.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]], 'float64'))])
margin_ranking_loss.samples(lambda s: [s.call(s((3,)), s((3,)), s.array([1.0, -1.0, 1.0], 'float64'), 0.3)])
multilabel_soft_margin_loss.samples(lambda s: [s.call(s((2, 3)), s.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], 'float64'))])
cosine_similarity.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((3,)), 0)])
pairwise_distance.samples(lambda s: [s.call(s((2, 3)), s((2, 3))), s.call(s((2, 3)), s((3,)), 3.0, keepdim=True)])
pdist.samples(lambda s: [s.call(s((4, 3))), s.call(s((3, 2)), 1.0)])
cosine_embedding_loss.samples(lambda s: [s.call(s((3, 2)), s((3, 2)), s.array([1, -1, 1]), 0.2)])
triplet_margin_loss.samples(lambda s: [s.call(s((3, 2)), s((3, 2)), s((3, 2))), s.call(s((3, 2)), s((3, 2)), s((3, 2)), 2.0, swap=True, reduction='sum')])
