"""Modules on several devices. There is the CPU only here, so DataParallel calls its module, as PyTorch's does without GPUs."""

from rushlight import _missing

from .data_parallel import DataParallel, data_parallel

__all__ = ["DataParallel", "data_parallel"]


_missing.hint(__name__)
