"""`torch.cuda.amp`: the older names of `torch.amp` with device "cuda"."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from rushlight import _missing

from .. import amp as _amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def _old(name: str) -> None:
    warnings.warn(f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', args...)` instead.",
                  FutureWarning, stacklevel=3)


class autocast(_amp.autocast):
    """`torch.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _old("autocast")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`."""

    def __init__(self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        _old("GradScaler")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable | None = None, **kwargs: Any) -> Callable:
    """`torch.amp.custom_fwd` for "cuda"."""
    return functools.partial(_amp.custom_fwd, device_type="cuda")(fwd, **kwargs)


def custom_bwd(bwd: Callable | None = None) -> Callable:
    """`torch.amp.custom_bwd` for "cuda"."""
    return functools.partial(_amp.custom_bwd, device_type="cuda")(bwd)


_missing.hint(__name__)
