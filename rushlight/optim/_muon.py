"""Muon: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rushlight as torch

from .optimizer import Optimizer, _evaluate_closure, _number

__all__ = ["Muon"]


def _orthogonal(m: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """About the nearest matrix with orthonormal rows (or columns), by Newton-Schulz iterations in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if m.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = m.size(0) > m.size(1)
    x = m.to(torch.bfloat16)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


class Muon(Optimizer):
    """Muon (Jordan, 2024), for the matrices of hidden layers; leave the other parameters to AdamW.

    Args:
        params: two-dimensional parameters. lr: default 1e-3. weight_decay: decoupled, default 0.1.
        momentum: default 0.95. nesterov: default True.
        ns_coefficients, eps, ns_steps: of the Newton-Schulz iteration.
        adjust_lr_fn: None or "original": lr * sqrt(max(1, rows / columns)); "match_rms_adamw": lr * 0.2 sqrt(max(rows,
            columns)).
    """

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not 0.0 <= value:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients,
            eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError("Muon only supports 2D parameters whereas we found a parameter with size: "
                                     f"{p.size()}")

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
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Muon does not support sparse gradients")
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad, memory_format=torch.preserve_format)
        buffer, momentum, lr = state["momentum_buffer"], group["momentum"], _number(group["lr"])
        buffer.lerp_(grad, 1 - momentum)
        direction = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        direction = _orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            size = lr * 0.2 * math.sqrt(max(rows, columns))
        else:
            size = lr * math.sqrt(max(1, rows / columns))
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(direction, alpha=-size)
