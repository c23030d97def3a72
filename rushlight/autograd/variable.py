"""`Variable` under the module name that PyTorch gives it."""

from .function import Variable

__all__ = ["Variable"]
