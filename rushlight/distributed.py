"""`torch.distributed` without a backend: the questions are answered (it is not available)."""

from __future__ import annotations

from rushlight import _missing

__all__ = ["is_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
           "is_ucc_available", "is_xccl_available"]


def is_available() -> bool:
    """False: Rushlight trains in one process so far."""
    return False


def is_initialized() -> bool:
    """False: there is no process group."""
    return False


def is_torchelastic_launched() -> bool:
    """False, as `is_available`."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_ucc_available = is_xccl_available = is_available

_missing.hint(__name__)
