"""Tensors and other libraries on the same memory: `from_dlpack`, `to_dlpack` (PyTorch's `torch.utils.dlpack`)."""

from __future__ import annotations

from rushlight import _missing
from rushlight.core.tensor import hooks

__all__ = ["from_dlpack", "to_dlpack"]

from_dlpack = hooks.function("from_dlpack")
to_dlpack = hooks.function("to_dlpack")


_missing.hint(__name__)
