"""Adagrad: steps scaled by the sum of all squared gradients."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import sqrt
from .optimizer import ElementwiseOptimizer, _check_lr, _check_nonnegative, _number
from .update import update

__all__ = ["Adagrad"]


@update
def adagrad(param, grad, sum, *, step, lr, lr_decay, weight_decay, eps, maximize=False, decay=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    total = sum + grad * grad
    return {"sum": total, "param": param + -(lr / (1 + (step - 1) * lr_decay)) * grad / (sqrt(total) + eps)}


class Adagrad(ElementwiseOptimizer):
    """Adagrad (Duchi et al., 2011): s <- s + g^2, p <- p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps).

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: default 1e-2. lr_decay, weight_decay, initial_accumulator_value: defaults 0. eps: default 1e-10.
        foreach, maximize, differentiable, fused: as in `Adam`.

    The state is made at once. Sparse gradients update only their own rows.
    """

    rule = adagrad

    def __init__(self, params: Any, lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
                 initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: bool | None = None) -> None:
        _check_lr(lr)
        _check_nonnegative(lr_decay=lr_decay, weight_decay=weight_decay,
                           initial_accumulator_value=initial_accumulator_value, eps=eps)
        super().__init__(params, dict(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
            differentiable=differentiable, fused=fused))
        self._check_fused_options()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            if not self.state[p]:
                self.state[p].update(self._new_state(group, p))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, fused=None)
        self._tensor_counters("step")

    def share_memory(self) -> None:
        """Move the state into shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"lr": _number(group["lr"]), **{k: group[k] for k in ("lr_decay", "weight_decay", "eps")}}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        if group["fused"]:
            self._check_fused(p)
        v = self.defaults["initial_accumulator_value"]
        start = complex(v, v) if p.is_complex() else v
        return {"step": self._counter(group, p), "sum": torch.full_like(p, start, memory_format=torch.preserve_format)}

    def _take_sparse(self, group: dict[str, Any], p: Any, grad: Any) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[p]
        with torch.no_grad():
            state["step"] += 1
            rate = _number(group["lr"]) / (1 + (state["step"].item() - 1) * group["lr_decay"])
            grad = (-grad if group["maximize"] else grad).coalesce()      # not linear: every row once
            rows, values = tuple(grad._indices()), grad._values()
            total = state["sum"][rows] + values * values
            state["sum"][rows] = total
            p[rows] = p[rows] - rate * (values / (total.sqrt() + group["eps"]))
