"""Adadelta: steps in the units of the parameters, without a learning rate to tune."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import sqrt
from .optimizer import ElementwiseOptimizer, _check_lr, _check_nonnegative, _number
from .update import update

__all__ = ["Adadelta"]


@update
def adadelta(param, grad, square_avg, acc_delta, *, lr, rho, eps, weight_decay, maximize=False, decay=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    square = square_avg * rho + (1 - rho) * grad * grad
    delta = sqrt(acc_delta + eps) / sqrt(square + eps) * grad
    return {"square_avg": square, "acc_delta": acc_delta * rho + (1 - rho) * delta * delta,
            "param": param + -lr * delta}


class Adadelta(ElementwiseOptimizer):
    """Adadelta (Zeiler, 2012): v <- rho v + (1 - rho) g^2, d = sqrt(u + eps) / sqrt(v + eps) * g,
    u <- rho u + (1 - rho) d^2, p <- p - lr * d.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1.0. rho: default 0.9. eps: default 1e-6. weight_decay: default 0.
        foreach, capturable, maximize, differentiable: as in `Adam`.
    """

    rule = adadelta

    def __init__(self, params: Any, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False) -> None:
        _check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        _check_nonnegative(eps=eps, weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, capturable=False)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"lr": _number(group["lr"]), **{k: group[k] for k in ("rho", "eps", "weight_decay")}}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return {"step": self._counter(group, p),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in ("square_avg", "acc_delta")}}
