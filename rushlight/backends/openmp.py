"""`torch.backends.openmp`: Rushlight does not use it."""

from rushlight import _missing

from ._settings import is_available

__all__ = ["is_available"]

_missing.hint(__name__)
