"""`torch.signal`: windows."""

from rushlight import _missing

from . import windows

__all__ = ["windows"]


_missing.hint(__name__)
