"""Adam for sparse gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rushlight as torch

from .optimizer import Optimizer, _check_betas, _evaluate_closure, _number

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that moves, in each step, only the elements (and their moments) that the sparse gradient holds.

    Args:
        params: dense, real parameters whose gradients are sparse, such as those of Embedding(sparse=True).
        lr: default 1e-3. betas: default (0.9, 0.999). eps: default 1e-8. maximize: ascend instead.
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        places = [([i, j], p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        sparse = [at for at, p in places if p.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        cplx = [at for at, p in places if p.is_complex()]
        if cplx:
            raise ValueError(f"Complex params at indices {cplx}: SparseAdam does not support complex parameters")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update once. Returns `closure()`, evaluated first, if there is one."""
        loss = _evaluate_closure(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(group, p, p.grad)
        return loss

    def _update(self, group: dict[str, Any], p: Any, grad: Any) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state = self.state[p]
        if not state:
            state["step"] = 0
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(p, memory_format=torch.preserve_format)
        state["step"] += 1
        grad = (-grad if group.get("maximize", False) else grad).coalesce()      # not linear: every element once
        at, values = tuple(grad._indices()), grad._values()
        if values.numel() == 0:
            return
        beta1, beta2 = group["betas"]
        old = state["exp_avg"][at]
        mean = (values - old) * (1 - beta1) + old
        old = state["exp_avg_sq"][at]
        square = (values.pow(2) - old) * (1 - beta2) + old
        state["exp_avg"][at] = mean
        state["exp_avg_sq"][at] = square
        size = _number(group["lr"]) * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        p[at] = p[at] + -size * (mean / (square.sqrt() + group["eps"]))
