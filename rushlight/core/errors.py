"""Where the user's code stands, and the exceptions PyTorch has beyond Python's own."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

__all__ = ["Place", "place", "describe", "warn_once", "warn_always", "LinAlgError", "AcceleratorError"]

Place = tuple[CodeType, int]  # a code object and an instruction in it: cheap to take, resolved to a line when asked


def place(depth: int = 3) -> Place | None:
    """The innermost frame outside Rushlight, as something that keeps no locals alive; looked for from `depth` frames out."""
    f = sys._getframe(depth)  # place < bump or record < the operator's function < here
    while f is not None:
        if f.f_globals.get("__name__", "")[:9] != "rushlight":
            return f.f_code, f.f_lasti
        f = f.f_back  # type: ignore[assignment]
    return None


def describe(where: Place | None) -> str:
    """`file:line` of a place."""
    if where is None:
        return "an unknown place"
    code, lasti = where
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"


warn_always = [False]       # `torch.set_warn_always`
_warned: set[str] = set()


def warn_once(key: str, message: str, stacklevel: int) -> None:
    """A UserWarning that a process gives once for each `key`, or each time after `torch.set_warn_always(True)`."""
    if key in _warned and not warn_always[0]:
        return
    _warned.add(key)
    import warnings
    warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)


class LinAlgError(RuntimeError):
    """A matrix has no inverse, no factorization, or none was found."""

    def __reduce__(self) -> Any:        # not by the name that is printed: `torch` may be something else there
        return _linalg_error, self.args, self.__dict__


def _linalg_error(*args: Any) -> LinAlgError:
    return LinAlgError(*args)


LinAlgError.__module__, LinAlgError.__name__, LinAlgError.__qualname__ = "torch._C", "_LinAlgError", "_LinAlgError"


class AcceleratorError(RuntimeError):
    """A failure of a device; here for programs that name it."""


AcceleratorError.__module__ = "torch"
