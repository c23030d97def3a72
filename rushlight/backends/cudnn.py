"""`torch.backends.cudnn`: the settings that programs make; without a CUDA backend they have no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rushlight import _missing

from ._settings import is_available, set_for

__all__ = ["flags", "is_acceptable", "is_available", "version"]

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def version() -> None:
    """None: there is no cuDNN here."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False: cuDNN computes nothing here."""
    return False


def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int | None = 10, deterministic: bool = False,
          allow_tf32: bool = True, fp32_precision: str = "none") -> AbstractContextManager[None]:
    """The settings for the length of a `with`."""
    return set_for(__name__, {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic,
                              "allow_tf32": allow_tf32, "fp32_precision": fp32_precision})


_missing.hint(__name__)
