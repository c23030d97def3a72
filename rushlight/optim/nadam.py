"""NAdam: Adam with Nesterov momentum."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import sqrt
from .optimizer import ElementwiseOptimizer, _check_betas, _check_lr, _check_nonnegative, _number
from .update import advance_counters, lerp, update

__all__ = ["NAdam"]


def _mu(beta1: Any, momentum_decay: Any, step: Any) -> Any:
    """The momentum of that step: it warms up from beta1 / 2 to beta1."""
    return beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))


@update
def nadam(param, grad, exp_avg, exp_avg_sq, *, step, mu_product, lr, beta1, beta2, eps, weight_decay, momentum_decay,
          maximize=False, decay=False, decoupled=False, far=False):
    if maximize:
        grad = -grad
    if decay and decoupled:
        param = param * (1 - lr * weight_decay)
    elif decay:
        grad = grad + weight_decay * param
    mu, following = _mu(beta1, momentum_decay, step), _mu(beta1, momentum_decay, step + 1)
    mean = lerp(exp_avg, grad, 1 - beta1, far=far)
    square = exp_avg_sq * beta2 + (1 - beta2) * grad * grad
    denom = sqrt(square / (1 - beta2 ** step)) + eps
    param = param + -lr * (1 - mu) / (1 - mu_product) * grad / denom
    param = param + -lr * following / (1 - mu_product * following) * mean / denom
    return {"exp_avg": mean, "exp_avg_sq": square, "param": param}


class NAdam(ElementwiseOptimizer):
    """NAdam (Dozat, 2016), with a momentum that warms up: mu_t = b1 (1 - 0.96^(t * momentum_decay) / 2).

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 2e-3. betas: default (0.9, 0.999). eps: default 1e-8. momentum_decay: default 4e-3.
        weight_decay: default 0; with `decoupled_weight_decay` taken off the parameter as in AdamW.
        foreach, maximize, capturable, differentiable: as in `Adam`.
    """

    rule = nadam
    counters = ("step", "mu_product")

    def __init__(self, params: Any, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(maximize=False, foreach=None, capturable=False, differentiable=False,
                             decoupled_weight_decay=False)
        self._tensor_counters("step", "mu_product")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["decoupled_weight_decay"],
                group["betas"][0] <= 0.5)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {"lr": _number(group["lr"]), "beta1": beta1, "beta2": beta2,
                **{k: group[k] for k in ("eps", "weight_decay", "momentum_decay")}}

    def _advance(self, group: dict[str, Any], scalars: dict[str, Any], values: tuple, counters: list[list]) -> tuple:
        super()._advance(group, scalars, values, counters)
        mu = _mu(scalars["beta1"], scalars["momentum_decay"], scalars["step"])
        first = counters[1][0]._a
        advance_counters(counters[1], (first[()] * first.dtype.type(mu)).item())
        scalars["mu_product"] = first.item()      # as rounded to the counter's dtype
        return ()

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        return {"step": self._counter(group, p), "mu_product": self._counter(group, p, 1.0),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in ("exp_avg", "exp_avg_sq")}}
