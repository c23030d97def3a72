"""Names that PyTorch has in its compiled module: `torch._C.Generator` and the like. Here they are the classes of `core`."""

from __future__ import annotations

from rushlight import _missing

from .core.device import device
from .core.dtype import dtype
from .core.errors import LinAlgError as _LinAlgError
from .core.layout import layout, memory_format
from .core.random import Generator, default_generator
from .core.tensor import Size
from .core.tensor import Tensor as TensorBase

__all__ = ["_LinAlgError", "Generator", "Size", "TensorBase", "default_generator", "device", "dtype", "layout", "memory_format"]


_missing.hint(__name__)
