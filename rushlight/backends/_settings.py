"""What the modules of settings have in common: there is no such library, and settings may be made for the length of a `with`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["is_available", "set_for"]


def is_available() -> bool:
    """False: Rushlight does not use this library."""
    return False


@contextlib.contextmanager
def set_for(module: str, settings: dict[str, Any]) -> Iterator[None]:
    """Attributes of `module` set to what is not None, and back at the end."""
    names = vars(sys.modules[module])
    old = {k: names[k] for k in settings}
    names.update({k: v for k, v in settings.items() if v is not None})
    try:
        yield
    finally:
        names.update(old)
