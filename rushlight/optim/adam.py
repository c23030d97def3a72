"""Adam: steps scaled by running moments of the gradient."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import maximum, sqrt
from .optimizer import ElementwiseOptimizer, _check_betas, _check_lr, _check_nonnegative, _number
from .update import lerp, update

__all__ = ["Adam"]


@update
def adam(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, *, step, lr, beta1, beta2, eps, weight_decay,
         maximize=False, decay=False, decoupled=False, amsgrad=False, far=False):
    if maximize:
        grad = -grad
    if decay and decoupled:
        param = param * (1 - lr * weight_decay)
    elif decay:
        grad = grad + weight_decay * param
    new = {}
    new["exp_avg"] = exp_avg = lerp(exp_avg, grad, 1 - beta1, far=far)
    new["exp_avg_sq"] = second = exp_avg_sq * beta2 + (1 - beta2) * grad * grad
    if amsgrad:
        new["max_exp_avg_sq"] = second = maximum(max_exp_avg_sq, second)
    denom = sqrt(second) / sqrt(1 - beta2 ** step) + eps
    new["param"] = param + -(lr / (1 - beta1 ** step)) * exp_avg / denom
    return new


class Adam(ElementwiseOptimizer):
    """Adam (Kingma and Ba, 2014): m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, and
    p <- p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1e-3, a number or a one-element tensor. betas: default (0.9, 0.999). eps: default 1e-8.
        weight_decay: default 0; added to the gradient, or with `decoupled_weight_decay` taken off the parameter
            (AdamW).
        amsgrad: divide by the largest v so far (Reddi et al., 2018).
        maximize: ascend instead.
        foreach, fused: accepted; every choice runs the same kernels.
        capturable: for accelerators only, as in PyTorch. differentiable: record the step for autograd.
    """

    rule = adam

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        tensor = torch.Tensor
        if isinstance(lr, tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        _check_lr(lr)
        _check_nonnegative(eps=eps)
        _check_betas(betas)
        _check_nonnegative(weight_decay=weight_decay)
        if not any(all(isinstance(b, kind) for b in betas[:2]) for kind in (float, tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, b in enumerate(betas[:2]):
            if isinstance(b, tensor):
                if foreach and not capturable:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if b.numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        betas = tuple(b.squeeze() if isinstance(b, tensor) and b.dim() else b for b in betas)  # type: ignore[assignment]
        super().__init__(params, dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay))
        self._check_fused_options()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(amsgrad=False, maximize=False, foreach=None, capturable=False, differentiable=False,
                             decoupled_weight_decay=False, fused=None)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["decoupled_weight_decay"], group["amsgrad"],
                bool(group["betas"][0] <= 0.5))

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        return {"lr": _number(group["lr"]), "beta1": _number(beta1), "beta2": _number(beta2), "eps": group["eps"],
                "weight_decay": _number(group["weight_decay"])}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[:3 if group["amsgrad"] else 2]
        return {"step": self._counter(group, p),
                **{n: torch.zeros_like(p, memory_format=torch.preserve_format) for n in names}}

    def _sparse_message(self) -> str:
        return "Adam does not support sparse gradients, please consider SparseAdam instead"
