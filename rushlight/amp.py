"""`torch.amp` as far as it does nothing: autocast and gradient scaling that are switched off, or for devices that are not here (a
warning says so, as in PyTorch). Mixed precision on the CPU is a NotImplementedError."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from rushlight import _missing

from .core import dtype as _dtype
from .core.device import device as _device

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available", "is_autocast_cache_enabled"]

_DTYPES = {"cpu": "bfloat16", "cuda": "float16", "xpu": "float16", "mps": "float16", "hpu": "bfloat16", "mtia": "float16", "maia": "bfloat16",
           "xla": "bfloat16", "ipu": "float16", "privateuseone": "float16"}


def _checked(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    kind = _device(device_type).type
    if kind not in _DTYPES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{kind}'")
    return kind


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast has an effect on a device: False, Rushlight does not have it yet. RuntimeError for an unknown device."""
    _device(device_type)
    return False


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype of autocast on a device, as PyTorch sets it at start. RuntimeError for an unsupported device."""
    return _dtype.ALL[_DTYPES[_checked(device_type)]]


def is_autocast_cache_enabled() -> bool:
    """True, as PyTorch says at start."""
    return True


class autocast:
    """`with torch.autocast(device_type, enabled=False):` and the decorator: nothing is cast.

    `enabled=True` for a device that is not here warns and is switched off, as in PyTorch. Raises NotImplementedError for the CPU,
    RuntimeError for an unknown device, ValueError for one that is no str.
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        self.device = _checked(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = True if cache_enabled is None else cache_enabled
        self._enabled = False
        if not enabled:
            return
        if self.device == "cpu":
            if self.fast_dtype in (_dtype.ALL["bfloat16"], _dtype.ALL["float16"]):
                raise NotImplementedError("torch.autocast('cpu') computes in lower precision, which Rushlight does not have yet: pass enabled=False")
            warnings.warn("In CPU autocast, but the target dtype is not supported. Disabling autocast.\nCPU Autocast only supports dtype of "
                          f"torch.bfloat16, torch.float16 currently, got {self.fast_dtype}.", stacklevel=2)
        else:
            warnings.warn(f"{self.device.upper()} is not available. Disabling autocast.", stacklevel=2)

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exc: Any) -> None:
        return None

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kw: Any) -> Any:
            with self:
                return func(*args, **kw)
        return decorated


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: Any = None) -> Callable:
    """For `forward` of a custom Function; there is no autocast that it could see."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    _checked(device_type)
    return fwd


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """For `backward` of a custom Function; there is no autocast that it could see."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    _checked(device_type)
    return bwd


class GradScaler:
    """Gradient scaling that is switched off: losses stay as they are and `step` calls the optimizer's.

    `enabled=True` (the default) for a device that is not here warns and is switched off, as in PyTorch; for the CPU it is a
    NotImplementedError.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device, self._enabled = device, False
        if enabled and _device(device).type == "cpu":
            raise NotImplementedError("torch.amp.GradScaler('cpu') scales losses, which Rushlight does not have yet: pass enabled=False")
        if enabled:
            warnings.warn(f"torch.amp.GradScaler is enabled, but {_device(device).type.upper()} is not available. Disabling.", stacklevel=2)

    def scale(self, outputs: Any) -> Any:
        """`outputs`, unscaled."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: gradients are not scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)`."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing: there is no scale."""

    def get_scale(self) -> float:
        """1.0."""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """An empty dict, as of a scaler that is switched off."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: a scaler that is switched off has no state."""


_missing.hint(__name__)
