"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import rushlight
from rushlight.core.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _same_device(parameters: Iterable[Tensor]) -> list[Tensor]:
    given = list(parameters)
    if any(p.device != given[0].device for p in given):
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return given


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened, in one vector."""
    return rushlight.cat([p.view(-1) for p in _same_device(parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes the parameters' data consecutive pieces (views) of `vec`."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {rushlight.typename(vec)}")
    start = 0
    for parameter in _same_device(parameters):
        end = start + parameter.numel()
        parameter.data = vec[start:end].view_as(parameter).data
        start = end
