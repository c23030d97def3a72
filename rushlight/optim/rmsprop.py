"""RMSprop: steps scaled by a running mean of squared gradients."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import sqrt
from .optimizer import ElementwiseOptimizer, _check_lr, _check_nonnegative, _number
from .update import lerp, update

__all__ = ["RMSprop"]


@update
def rmsprop(param, grad, square_avg, grad_avg, momentum_buffer, *, lr, alpha, eps, weight_decay, momentum,
            maximize=False, decay=False, centered=False, with_momentum=False, far=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    new = {}
    new["square_avg"] = square = square_avg * alpha + (1 - alpha) * grad * grad
    if centered:
        new["grad_avg"] = mean = lerp(grad_avg, grad, 1 - alpha, far=far)
        square = square - mean * mean
    scale = sqrt(square) + eps
    if with_momentum:
        new["momentum_buffer"] = buffer = momentum_buffer * momentum + grad / scale
        new["param"] = param + -lr * buffer
    else:
        new["param"] = param + -lr * grad / scale
    return new


class RMSprop(ElementwiseOptimizer):
    """RMSprop (Hinton; centred as in Graves, 2013): v <- alpha v + (1 - alpha) g^2, p <- p - lr * g / (sqrt(v) + eps).

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1e-2. alpha: default 0.99. eps: default 1e-8. weight_decay, momentum: defaults 0.
        centered: subtract the squared running mean of g from v.
        capturable, foreach, maximize, differentiable: as in `Adam`.
    """

    rule = rmsprop

    def __init__(self, params: Any, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
                 momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        _check_lr(lr)
        _check_nonnegative(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
            capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(momentum=0, centered=False, foreach=None, maximize=False, differentiable=False,
                             capturable=False)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["centered"], group["momentum"] > 0,
                group["alpha"] <= 0.5)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"lr": _number(group["lr"]), **{k: group[k] for k in ("alpha", "eps", "weight_decay", "momentum")}}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        names = ["square_avg"] + ["momentum_buffer"] * (group["momentum"] > 0) + ["grad_avg"] * bool(group["centered"])
        return {"step": self._counter(group, p),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in names}}
