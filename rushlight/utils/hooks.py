"""Handles of registered hooks."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from rushlight import _missing

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

_next_id = count().__next__


class RemovableHandle:
    """Takes a hook out of its dictionary again: `remove()`, or at the end of a `with` block.

    Args:
        hooks_dict: the dictionary that holds the hook under `id`.
        extra_dict: a dictionary, or a list of them, that may hold further entries under the same id.
    """

    id: int

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = _next_id()
        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def remove(self) -> None:
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> Any:
        return (self.hooks_dict_ref(), self.id, *(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state: Any) -> None:
        hooks, self.id, *extra = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def unserializable_hook(f: Callable) -> Callable:
    """Mark `f` as a hook that is known to be lost when its tensor is pickled: no warning then."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn about hooks of `tensor` that pickling it will drop."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized. If this is expected, you can "
                          "decorate the "
                          "function with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)


_missing.hint(__name__)
