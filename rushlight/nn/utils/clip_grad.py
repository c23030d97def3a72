"""Clipping of gradients by norm or by value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

import rushlight
from rushlight import _missing
from rushlight.core.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _as_list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of all `tensors` together, as if they were one vector.

    RuntimeError if it is nan or inf and `error_if_nonfinite`. `foreach` is accepted and changes nothing.
    """
    given = _as_list(tensors)
    norm_type = float(norm_type)
    if not given:
        return rushlight.tensor(0.0)
    with rushlight.no_grad():
        device = given[0].device
        norms = [rushlight.linalg.vector_norm(t, norm_type) for t in given]
        total = rushlight.linalg.vector_norm(rushlight.stack([n.to(device) for n in norms]), norm_type)
        if error_if_nonfinite and not bool(rushlight.isfinite(total)):
            raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
                               "so it cannot be clipped. To disable this error and scale the gradients by the "
                               "non-finite norm anyway, set `error_if_nonfinite=False`")
        return total


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
                          foreach: bool | None = None) -> None:
    """Scales the gradients in place by min(1, max_norm / (total_norm + 1e-6))."""
    with rushlight.no_grad():
        grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
        if grads:
            factor = rushlight.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
            for grad in grads:
                grad.mul_(factor.to(grad.device))


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scales the gradients in place so that their total norm is at most `max_norm`; returns the norm before."""
    generator = isinstance(parameters, GeneratorType)
    parameters = _as_list(parameters)
    if generator and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """Deprecated name of `clip_grad_norm_`."""
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
                  FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamps the gradients in place to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with rushlight.no_grad():
        for parameter in _as_list(parameters):
            if parameter.grad is not None:
                parameter.grad.clamp_(min=-clip_value, max=clip_value)


_missing.hint(__name__)
