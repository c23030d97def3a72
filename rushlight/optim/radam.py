"""RAdam: Adam with a rectified variance."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import sqrt
from .optimizer import ElementwiseOptimizer, _check_betas, _check_lr, _check_nonnegative, _number
from .update import lerp, update

__all__ = ["RAdam"]


def _rho(beta2: Any, step: Any) -> tuple[Any, Any]:
    """(length of the simple moving average that v amounts to at that step, its limit)."""
    limit = 2 / (1 - beta2) - 1
    return limit - 2 * step * beta2 ** step / (1 - beta2 ** step), limit


@update
def radam(param, grad, exp_avg, exp_avg_sq, *, step, lr, beta1, beta2, eps, weight_decay,
          maximize=False, decay=False, decoupled=False, far=False, rectified=False):
    if maximize:
        grad = -grad
    if decay and decoupled:
        param = param * (1 - lr * weight_decay)
    elif decay:
        grad = grad + weight_decay * param
    mean = lerp(exp_avg, grad, 1 - beta1, far=far)
    square = exp_avg_sq * beta2 + (1 - beta2) * grad * grad
    change = mean / (1 - beta1 ** step) * lr
    if rectified:
        rho, limit = _rho(beta2, step)
        rectification = sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        change = change * (sqrt(1 - beta2 ** step) / (sqrt(square) + eps)) * rectification
    return {"exp_avg": mean, "exp_avg_sq": square, "param": param - change}


class RAdam(ElementwiseOptimizer):
    """RAdam (Liu et al., 2019): while the variance of v is intractable (rho_t <= 5) steps follow the momentum alone,
    later they are Adam's times a rectification.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1e-3. betas: default (0.9, 0.999). eps: default 1e-8.
        weight_decay: default 0; with `decoupled_weight_decay` taken off the parameter as in AdamW.
        foreach, maximize, capturable, differentiable: as in `Adam`.
    """

    rule = radam

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, decoupled_weight_decay=False,
                             capturable=False)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["decoupled_weight_decay"],
                group["betas"][0] <= 0.5)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {"lr": _number(group["lr"]), "beta1": beta1, "beta2": beta2, "eps": group["eps"],
                "weight_decay": group["weight_decay"]}

    def _advance(self, group: dict[str, Any], scalars: dict[str, Any], values: tuple, counters: list[list]) -> tuple:
        super()._advance(group, scalars, values, counters)
        return (_rho(scalars["beta2"], scalars["step"])[0] > 5.0,)

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return {"step": self._counter(group, p),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in ("exp_avg", "exp_avg_sq")}}
