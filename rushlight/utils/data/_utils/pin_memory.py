"""Copies into page-locked memory, for devices that can read it directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rushlight as torch

__all__ = ["accelerator_available", "pin_memory"]


def accelerator_available() -> bool:
    """Whether there is a device for which pinned memory makes sense."""
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and cuda.is_available()


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` with every tensor in it pinned; containers are rebuilt, other things returned as they are."""
    if isinstance(data, torch.Tensor):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return type(data)({k: pin_memory(v, device) for k, v in data.items()})  # type: ignore[call-arg]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(v, device) for v in data))
    if isinstance(data, tuple):
        return [pin_memory(v, device) for v in data]
    if isinstance(data, Sequence):
        return type(data)([pin_memory(v, device) for v in data])  # type: ignore[call-arg]
    return data.pin_memory() if hasattr(data, "pin_memory") else data
