"""`torch.mps` without a backend for Apple GPUs: the questions are answered (there is none)."""

from rushlight import _missing

from ._absent import device_count, empty_cache, is_available, is_initialized, manual_seed, manual_seed_all

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]

_missing.hint(__name__)
