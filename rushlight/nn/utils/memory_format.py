"""Convolution weights in another memory format."""

from __future__ import annotations

from typing import Any

from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, memory_format: Any, classes: tuple[type, ...]) -> Any:
    for layer in [m for m in module.modules() if isinstance(m, classes)]:
        weight = getattr(layer, "weight")  # noqa: B009 - the classes' common base is not in their type
        weight.data = weight.detach().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Any:
    """Lays out the weights of all Conv2d and ConvTranspose2d in `module` in `memory_format`; returns `module`."""
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Any:
    """Lays out the weights of all Conv3d and ConvTranspose3d in `module` in `memory_format`; returns `module`."""
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))
