"""`torch.accelerator`: the questions are answered (there is none); what needs one is a RuntimeError."""

from __future__ import annotations

from rushlight import _missing

from ._absent import device_count, empty_cache, is_available
from ._absent import missing_device as _missing_device

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "device_count", "empty_cache", "is_available",
           "set_device_idx", "set_device_index", "synchronize"]


def current_accelerator(check_available: bool = False) -> None:
    """None: there is no accelerator."""


current_device_index = current_device_idx = set_device_index = set_device_idx = synchronize = _missing_device

_missing.hint(__name__)
