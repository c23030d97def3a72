"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from .optimizer import ElementwiseOptimizer, _check_lr, _check_nonnegative, _number
from .update import advance_counters, update

__all__ = ["ASGD"]


@update
def asgd(param, grad, ax, *, eta, mu, lambd, weight_decay, maximize=False, decay=False, averaging=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    param = param * (1 - lambd * eta) + -eta * grad
    return {"ax": ax + (param - ax) * mu if averaging else param, "param": param}


class ASGD(ElementwiseOptimizer):
    """Averaged SGD (Polyak and Juditsky, 1992): p <- p (1 - lambd * eta) - eta * g with eta = lr / (1 + lambd lr
    t)^alpha; `state["ax"]` is the average of p from step t0 on.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1e-2. lambd: default 1e-4. alpha: default 0.75. t0: default 1e6. weight_decay: default 0.
        foreach, maximize, differentiable, capturable: as in `Adam`.
    """

    rule = asgd
    counters = ("step", "eta", "mu")

    def __init__(self, params: Any, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
                 weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False) -> None:
        _check_lr(lr)
        _check_nonnegative(weight_decay=weight_decay)
        super().__init__(params, dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, capturable=False)
        self._tensor_counters("step", "eta", "mu")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"lambd": group["lambd"], "weight_decay": group["weight_decay"]}

    def _advance(self, group: dict[str, Any], scalars: dict[str, Any], values: tuple, counters: list[list]) -> tuple:
        step, scalars["eta"], scalars["mu"] = values
        step += 1.0
        lr, lambd = _number(group["lr"]), group["lambd"]
        advance_counters(counters[0], step)
        advance_counters(counters[1], lr / (1 + lambd * lr * step) ** group["alpha"])
        advance_counters(counters[2], 1 / max(1, step - group["t0"]))
        return (scalars["mu"] != 1,)

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return {"step": self._counter(group, p), "eta": self._counter(group, p, float(group["lr"])),
                "mu": self._counter(group, p, 1.0), "ax": torch.zeros_like(p, memory_format=torch.preserve_format)}
