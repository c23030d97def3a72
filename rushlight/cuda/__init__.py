"""`torch.cuda` without a CUDA backend: the questions are answered (no device), the settings that programs make in passing are
accepted, and what needs a GPU is a RuntimeError that says so."""

from __future__ import annotations

from typing import Any

from rushlight import _missing

__all__ = ["is_available", "device_count", "is_initialized", "init", "current_device", "set_device", "get_device_name", "get_device_properties",
           "get_device_capability", "manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "empty_cache", "synchronize", "memory_allocated",
           "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "is_bf16_supported", "device", "Stream", "Event",
           "stream", "current_stream", "get_arch_list", "get_rng_state_all", "set_rng_state_all", "amp", "OutOfMemoryError"]


def _none(what: str) -> RuntimeError:
    return RuntimeError(f"{what} needs a CUDA device, and Rushlight has no CUDA backend yet: torch.cuda.is_available() is False; use device 'cpu'")


def is_available() -> bool:
    """False: there is no CUDA backend yet."""
    return False


def device_count() -> int:
    return 0


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def manual_seed(seed: int) -> None:
    """Accepted: there is no device whose generator could be seeded."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Accepted, as `manual_seed`."""
    int(seed)


def seed() -> None:
    """Accepted, as `manual_seed`."""


seed_all = seed


def empty_cache() -> None:
    """Accepted: nothing is cached for a device."""


def memory_allocated(device: Any = None) -> int:
    """0: nothing lies on a device. The same for the other three counts."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Accepted."""


def get_arch_list() -> list[str]:
    """[]: there are no kernels for GPUs."""
    return []


def get_rng_state_all() -> list[Any]:
    """[]: one state for each device."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Accepted for no states, as `get_rng_state_all` gives them; else RuntimeError."""
    if len(list(new_states)):
        raise _none("torch.cuda.set_rng_state_all()")


def init() -> None:
    raise _none("torch.cuda.init()")


def current_device() -> int:
    raise _none("torch.cuda.current_device()")


def set_device(device: Any) -> None:
    raise _none("torch.cuda.set_device()")


def get_device_name(device: Any = None) -> str:
    raise _none("torch.cuda.get_device_name()")


def get_device_properties(device: Any = None) -> Any:
    raise _none("torch.cuda.get_device_properties()")


def get_device_capability(device: Any = None) -> tuple[int, int]:
    raise _none("torch.cuda.get_device_capability()")


def initial_seed() -> int:
    raise _none("torch.cuda.initial_seed()")


def synchronize(device: Any = None) -> None:
    raise _none("torch.cuda.synchronize()")


def current_stream(device: Any = None) -> Any:
    raise _none("torch.cuda.current_stream()")


def stream(stream: Any) -> Any:
    raise _none("torch.cuda.stream()")


class device:
    """`with torch.cuda.device(i):` selects a GPU, of which there is none."""

    def __init__(self, device: Any) -> None:
        raise _none(f"torch.cuda.device({device!r})")


class Stream:
    def __init__(self, *args: Any, **kw: Any) -> None:
        raise _none("torch.cuda.Stream")


class Event:
    def __init__(self, *args: Any, **kw: Any) -> None:
        raise _none("torch.cuda.Event")


def __getattr__(name: str) -> Any:
    if name == "amp":
        from importlib import import_module
        return import_module(f"{__name__}.amp")
    if name == "OutOfMemoryError":      # what `except torch.cuda.OutOfMemoryError` names
        from ..backends.cpu.allocator import OutOfMemoryError
        return OutOfMemoryError
    raise _missing.missing(__name__, name)
