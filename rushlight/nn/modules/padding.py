"""Padding layers. `padding` is a number for all sides or (left, right, top, bottom, front, back)."""

from __future__ import annotations

from typing import Any

from rushlight.core.tensor import Tensor

from .. import functional as F
from .batchnorm import _require_dims
from .module import Module
from .utils import _ntuple

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


class _PadNd(Module):
    __constants__ = ["padding"]
    _dims = 0  # padded dimensions
    _mode = ""
    padding: tuple[int, ...]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        _require_dims(input, self._dims + 1, self._dims + 2)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")


class CircularPad1d(_CircularPadNd):
    """Continues the last dimension periodically."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """Continues the last two dimensions periodically."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """Continues the last three dimensions periodically."""

    _dims = 3


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]
    value: float

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`."""

    _dims = 3


class ReflectionPad1d(_PadNd):
    """Mirrors at the border elements, which are not repeated."""

    _dims, _mode = 1, "reflect"


class ReflectionPad2d(_PadNd):
    """Mirrors at the border elements, which are not repeated."""

    _dims, _mode = 2, "reflect"


class ReflectionPad3d(_PadNd):
    """Mirrors at the border elements, which are not repeated."""

    _dims, _mode = 3, "reflect"


class ReplicationPad1d(_PadNd):
    """Repeats the border elements."""

    _dims, _mode = 1, "replicate"


class ReplicationPad2d(_PadNd):
    """Repeats the border elements."""

    _dims, _mode = 2, "replicate"


class ReplicationPad3d(_PadNd):
    """Repeats the border elements."""

    _dims, _mode = 3, "replicate"


class ZeroPad1d(ConstantPad1d):
    """Pads the last dimension with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Pads the last two dimensions with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Pads the last three dimensions with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
