"""Resilient backpropagation: steps from the signs of the gradients only."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from ..ops.expr import maximum, minimum, sign, where
from .optimizer import ElementwiseOptimizer, _check_lr
from .update import update

__all__ = ["Rprop"]


@update
def rprop(param, grad, prev, step_size, *, etaminus, etaplus, smallest, largest, maximize=False):
    if maximize:
        grad = -grad
    agreement = grad * prev
    factor = where(agreement > 0, etaplus, where(agreement < 0, etaminus, 1))
    size = minimum(maximum(step_size * factor, smallest), largest)
    grad = where(agreement < 0, 0, grad)
    return {"step_size": size, "prev": grad, "param": param - sign(grad) * size}


class Rprop(ElementwiseOptimizer):
    """Rprop (Riedmiller and Braun, 1993): each element has a step size, which grows by etas[1] while its gradient keeps
    its sign and shrinks by etas[0] when it turns (that element then rests for one step).

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: first step size (default 1e-2). etas: default (0.5, 1.2). step_sizes: smallest and largest, (1e-6, 50).
        capturable, foreach, maximize, differentiable: as in `Adam`.
    """

    rule = rprop

    def __init__(self, params: Any, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False) -> None:
        _check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, dict(
            lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize, differentiable=differentiable,
            capturable=capturable))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(foreach=None, maximize=False, differentiable=False, capturable=False)
        self._tensor_counters("step")

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"],)

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        (etaminus, etaplus), (smallest, largest) = group["etas"], group["step_sizes"]
        return {"etaminus": etaminus, "etaplus": etaplus, "smallest": smallest, "largest": largest}

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        lr = float(group["lr"])
        start = complex(lr, lr) if p.is_complex() else lr      # two numbers, each with its own step size
        return {"step": self._counter(group, p), "prev": torch.zeros_like(p, memory_format=torch.preserve_format),
                "step_size": torch.full_like(p.grad, start)}
