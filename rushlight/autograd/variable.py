"""`Variable` under the module name that PyTorch gives it."""

from rushlight import _missing

from .function import Variable

__all__ = ["Variable"]


_missing.hint(__name__)
