"""`torch.backends.mkldnn`: Rushlight does not use it; the settings that programs make have no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from rushlight import _missing

from ._settings import is_available, set_for

__all__ = ["is_available", "is_acl_available", "flags", "set_flags"]

enabled = True
deterministic = False
allow_tf32: bool | None = None
fp32_precision = "none"
is_acl_available = is_available


def set_flags(_enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None,
              _fp32_precision: str | None = None) -> tuple[bool, bool, bool | None, str]:
    """Set what is given; the old values."""
    global enabled, deterministic, allow_tf32, fp32_precision
    old = (enabled, deterministic, allow_tf32, fp32_precision)
    enabled = enabled if _enabled is None else _enabled
    deterministic = deterministic if _deterministic is None else _deterministic
    allow_tf32 = allow_tf32 if _allow_tf32 is None else _allow_tf32
    fp32_precision = fp32_precision if _fp32_precision is None else _fp32_precision
    return old


def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none") -> AbstractContextManager[None]:
    """The settings for the length of a `with`."""
    return set_for(__name__, {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32, "fp32_precision": fp32_precision})


_missing.hint(__name__)
