"""The questions that programs ask of a kind of device in passing, for kinds that are not here: `torch.xpu` and the like."""

from __future__ import annotations

from typing import Any

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available() -> bool:
    """False: there is no such backend."""
    return False


def is_initialized() -> bool:
    """False, as `is_available`."""
    return False


def device_count() -> int:
    """0: there is no such device."""
    return 0


def manual_seed(seed: int) -> None:
    """Accepted: there is no device whose generator could be seeded."""
    int(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Accepted: nothing is cached for a device."""


def missing_device(*args: Any, **kw: Any) -> Any:
    """What needs an accelerator: RuntimeError."""
    raise RuntimeError("Cannot access accelerator device when none is available.")
