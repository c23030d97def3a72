"""Helpers around training: `data` (datasets and loaders), `hooks` (handles of registered hooks). Submodules load when
first used; this package must not import nn, optim or the compiler."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from rushlight import _missing


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges two tensors: everything that knows one of them sees the other's contents, class and attributes.

    RuntimeError for tensors that are views or have them, whose memory is not theirs alone.
    """
    import weakref

    from rushlight.autograd.node import AccumulateGrad

    for t, name in ((t1, "t1"), (t2, "t2")):
        if t._base is not None:
            raise RuntimeError(f"Cannot swap {name} because it is a view of another tensor")
    for slot in ("_a", "_rg", "_node", "_grad", "_v", "_base", "_vg", "_inf"):
        missing = object()
        a, b = getattr(t1, slot, missing), getattr(t2, slot, missing)
        for t, value in ((t1, b), (t2, a)):
            if value is not missing:
                setattr(t, slot, value)
            elif hasattr(t, slot):
                delattr(t, slot)
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for t in (t1, t2):
        if isinstance(t._node, AccumulateGrad):  # it knows its leaf
            t._node.ref = weakref.ref(t)


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and any(m.name == name for m in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f"{__name__}.{name}")
    raise _missing.missing(__name__, name)
