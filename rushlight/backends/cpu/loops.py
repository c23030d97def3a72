"""Generated loops for big arrays. None from any function here means: NumPy is as good, use it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["pointwise"]


def pointwise(root: Any, names: list[str], vals: list[Any], compute: np.dtype, result: np.dtype | None) -> np.ndarray | None:
    """One pass over arrays of one shape for an expression of several primitives."""
    return None
