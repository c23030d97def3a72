"""Helpers around training: `data` (datasets and loaders), `hooks` (handles of registered hooks). Submodules load when
first used; this package must not import nn, optim or the compiler."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and any(m.name == name for m in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
