"""Adafactor: second moments of a matrix kept as one row and one column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight as torch

from .optimizer import Optimizer, _evaluate_closure, _get_scalar_dtype, _number

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), without momentum. For matrices the second moment is the outer product of its
    row and column means; steps are relative to the size of the parameter, and clipped.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: largest relative step (default 1e-2). beta2_decay: v decays by 1 - t ** beta2_decay (default -0.8).
        eps: (smallest moment, default the dtype's eps; smallest parameter size, default 1e-3).
        d: largest root mean square of an update (default 1.0). weight_decay: decoupled, default 0.
        foreach, maximize: as in `Adam`.
    """

    def __init__(self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
                 foreach: bool | None = None, maximize: bool = False) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, e in enumerate(eps, 1):
            if e is not None and not 0.0 <= e:
                raise ValueError(f"epsilon{i} should be >= 0 but is: {e}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                entries = self.state.get(p)
                if entries and not isinstance(entries["step"], torch.Tensor):
                    entries["step"] = torch.tensor(float(entries["step"]), dtype=_get_scalar_dtype())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update once. Returns `closure()`, evaluated first, if there is one."""
        loss = _evaluate_closure(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(group, p, p.grad)
        return loss

    def _new_state(self, grad: Any) -> dict[str, Any]:
        state = {"step": torch.tensor(0.0, dtype=_get_scalar_dtype())}
        shape = list(grad.shape)
        if len(shape) < 2:
            return {**state, "variance": torch.zeros_like(grad, memory_format=torch.preserve_format)}
        return {**state, "row_var": grad.new_zeros([*shape[:-1], 1]),
                "col_var": grad.new_zeros([*shape[:-2], 1, shape[-1]])}

    def _update(self, group: dict[str, Any], p: Any, grad: Any) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        state = self.state[p]
        if not state:
            state.update(self._new_state(grad))
        if group["maximize"]:
            grad = -grad
        lr, (eps1, eps2) = _number(group["lr"]), group["eps"]
        if eps1 is None:
            eps1 = torch.finfo(p.dtype).eps
        state["step"] += 1
        step = state["step"].item()
        weight = step ** group["beta2_decay"]
        size = max(eps2, p.norm(2).item() / p.numel() ** 0.5) * min(lr, 1 / step ** 0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            for moment, dim in ((rows, -1), (columns, -2)):
                mean = grad.norm(dim=dim, keepdim=True).square() / grad.size(dim)
                moment.copy_(_lerp(moment, mean, weight))
            moment = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            moment = _lerp(state["variance"], grad * grad, weight)
            state["variance"].copy_(moment)
        change = moment.clamp(min=eps1 * eps1).rsqrt() * grad
        clip = max(1.0, change.norm(2).item() / (change.numel() ** 0.5 * group["d"]))
        p.add_(change, alpha=-size / clip)


def _lerp(start: Any, end: Any, weight: float) -> Any:
    return start + (end - start) * weight if weight < 0.5 else end - (end - start) * (1 - weight)
