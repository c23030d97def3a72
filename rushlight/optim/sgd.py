"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import rushlight as torch

from .optimizer import ElementwiseOptimizer, _number
from .update import ndarray, update

__all__ = ["SGD"]


@update
def sgd(param, grad, momentum_buffer, *, lr, momentum, dampening, weight_decay,
        maximize=False, decay=False, with_momentum=False, nesterov=False, first=False):
    if maximize:
        grad = -grad
    if decay:
        grad = grad + weight_decay * param
    if not with_momentum:
        return {"param": param + -lr * grad}
    buffer = grad if first else momentum_buffer * momentum + (1 - dampening) * grad
    direction = grad + momentum * buffer if nesterov else buffer
    return {"momentum_buffer": buffer, "param": param + -lr * direction}


class SGD(ElementwiseOptimizer):
    """p <- p - lr * d, where d is the gradient, or with momentum the buffer b <- momentum * b + (1 - dampening) * g,
    which starts as the first gradient; with `nesterov` d is g + momentum * b.

    Args:
        params: tensors, (name, tensor) pairs or groups.
        lr: step size, a number or a one-element tensor (default 1e-3).
        momentum, dampening, weight_decay: defaults 0. Weight decay adds weight_decay * p to the gradient.
        nesterov: needs momentum > 0 and no dampening.
        maximize: ascend instead.
        foreach, fused: accepted; every choice runs the same kernels.
        differentiable: record the step for autograd.
    """

    rule = sgd
    counters = ()

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused))
        self._check_fused_options()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._group_defaults(nesterov=False, maximize=False, foreach=None, differentiable=False, fused=False)

    def _flags(self, group: dict[str, Any]) -> tuple:
        return (group["maximize"], group["weight_decay"] != 0, group["momentum"] != 0, group["nesterov"])

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        return {"lr": _number(group["lr"]), "momentum": group["momentum"], "dampening": group["dampening"],
                "weight_decay": _number(group["weight_decay"])}

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads = [], []
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            if grad._a.__class__ is not ndarray and grad.is_sparse:
                self._step_sparse(group, p, grad)
                continue
            params.append(p)
            grads.append(grad)
        if not params:
            return
        self._check_group(group, params)
        scalars, flags = self._scalars(group), self._flags(group)
        if group["momentum"] == 0:
            self._apply(group, sgd.variant(*flags), params, grads, [], scalars)
            return
        states = [self.state[p] for p in params]
        fresh = [i for i, s in enumerate(states) if s.get("momentum_buffer") is None]
        if fresh:
            for i in fresh:
                states[i]["momentum_buffer"] = torch.zeros_like(params[i], memory_format=torch.preserve_format)
            new = set(fresh)
            old = [i for i in range(len(params)) if i not in new]
            for members, first in ((fresh, True), (old, False)):
                if members:
                    p, g, s = ([x[i] for i in members] for x in (params, grads, states))
                    self._apply(group, sgd.variant(*flags, first), p, g, s, scalars)
            return
        self._apply(group, sgd.variant(*flags), params, grads, states, scalars)

    def _step_sparse(self, group: dict[str, Any], p: Any, grad: Any) -> None:
        """A sparse gradient touches only its own rows, as long as nothing (momentum, decay) touches all of them."""
        with torch.no_grad():
            if group["maximize"]:
                grad = -grad
            if group["weight_decay"] != 0:
                grad = grad.add(p, alpha=_number(group["weight_decay"]))
            momentum = group["momentum"]
            if momentum != 0:
                state = self.state[p]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = state["momentum_buffer"] = grad.detach().clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            p.add_(grad, alpha=-_number(group["lr"]))
