"""Adamax: Adam with the infinity norm."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import maximum
from .optimizer import ElementwiseOptimizer, _check_betas, _check_lr, _check_nonnegative, _number
from .update import lerp, update

__all__ = ["Adamax"]


@update
def adamax(param, grad, exp_avg, exp_inf, *, step, lr, beta1, beta2, eps, weight_decay,
           maximize=False, decay=False, far=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    mean = lerp(exp_avg, grad, 1 - beta1, far=far)
    norm = maximum(exp_inf * beta2, abs(grad) + eps)
    return {"exp_avg": mean, "exp_inf": norm, "param": param + -(lr / (1 - beta1 ** step)) * mean / norm}


class Adamax(ElementwiseOptimizer):
    """Adamax (Kingma and Ba, 2014): u <- max(b2 u, |g| + eps), p <- p - lr / (1 - b1^t) * m / u.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 2e-3. betas: default (0.9, 0.999). eps: default 1e-8. weight_decay: default 0.
        foreach, maximize, differentiable, capturable: as in `Adam`.
    """

    rule = adamax

    def __init__(self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, capturable=False)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["betas"][0] <= 0.5)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {"lr": _number(group["lr"]), "beta1": beta1, "beta2": beta2, "eps": group["eps"],
                "weight_decay": group["weight_decay"]}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return {"step": self._counter(group, p),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in ("exp_avg", "exp_inf")}}
