"""The reductions of losses, and the two old flags that said the same."""

from __future__ import annotations

import warnings

__all__ = ["get_enum", "legacy_get_string", "legacy_get_enum"]

_CODES = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """0, 1 or 2 for "none", "mean" or "sum"."""
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
        return 1
    if reduction not in _CODES:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _CODES[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that `size_average` and `reduce` (both True by default) meant."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    result = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn("size_average and reduce args will be deprecated, please use "
                      f"reduction='{result}' instead.", stacklevel=2)
    return result


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """The code of the reduction that `size_average` and `reduce` meant."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
