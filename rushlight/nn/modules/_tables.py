"""The dictionaries behind a Module: members (parameters, buffers, submodules) and hooks.

`module._parameters`, `_buffers` and `_modules` are the truth, as in PyTorch, and may be changed directly by user code.
PyTorch reads `module.weight` through `__getattr__`, which costs half a microsecond in Python. Here a `MemberDict` also
keeps each of its entries in the `__dict__` of the module that owns it, so that the read is an ordinary attribute read.

Both kinds of dictionary bump `mutation_epoch`, the one integer that a compiled program's guards compare.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

__all__ = ["ABSENT", "CallHookDict", "HookDict", "MemberDict", "active_hooks", "mutation_epoch"]


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Any = _Absent()

# Bumped whenever an attribute, member, hook or training flag of any Module changes.
mutation_epoch: list[int] = [0]

# Identities of everything that makes `Module.__call__` more than `forward`: hook tables that are not empty, modules
# with a compiled call, classes that restore their state themselves. Empty in most programs: one truth test a call.
active_hooks: set[int] = set()


class MemberDict(dict):
    """A dict of str -> member whose entries also lie in the `__dict__` of the owning modules.

    An entry is mirrored only where an ordinary lookup would not already find something else: class attributes and
    foreign entries of `__dict__` keep their precedence, exactly as with `__getattr__`. Pickles and copies as a dict.
    """

    __slots__ = ("_owners",)
    _owners: tuple[weakref.ref, ...]

    def __init__(self, owner: weakref.ref, items: Iterable = ()) -> None:
        self._owners = (owner,)
        if items:
            self.update(items)

    def adopt(self, module: Any) -> None:
        """Makes `module` one more owner (`copy.copy` of a module shares the dictionaries of the original)."""
        for ref in self._owners:
            if ref() is module:
                break
        else:
            self._owners = (*[r for r in self._owners if r() is not None], weakref.ref(module))
        attributes, cls = module.__dict__, type(module)
        for name, value in self.items():
            if name not in attributes and name.isidentifier() and not hasattr(cls, name):
                attributes[name] = value

    def release(self, module: Any) -> None:
        """Removes this dictionary's entries from the `__dict__` of `module`, which no longer owns it."""
        self._owners = tuple(r for r in self._owners if r() is not module)
        attributes = module.__dict__
        for name, value in self.items():
            if attributes.get(name, ABSENT) is value:
                del attributes[name]

    def __setitem__(self, name: str, value: Any) -> None:
        old = self.get(name, ABSENT)
        dict.__setitem__(self, name, value)
        mutation_epoch[0] += 1
        for ref in self._owners:
            module = ref()
            if module is None:
                continue
            attributes = module.__dict__
            current = attributes.get(name, ABSENT)
            if current is ABSENT:
                if name.isidentifier() and not hasattr(type(module), name):
                    attributes[name] = value
            elif current is old:
                attributes[name] = value

    def __delitem__(self, name: str) -> None:
        old = self[name]
        dict.__delitem__(self, name)
        mutation_epoch[0] += 1
        for ref in self._owners:
            module = ref()
            if module is not None and module.__dict__.get(name, ABSENT) is old:
                del module.__dict__[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self:
            return dict.pop(self, name, *default)
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self), ABSENT)
        if name is ABSENT:
            return dict.popitem(self)
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> MemberDict:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return dict, (), None, None, iter(self.items())


class HookDict(OrderedDict):
    """An OrderedDict of handle id -> hook that bumps `mutation_epoch`. Pickles as an OrderedDict."""

    def _changed(self) -> None:
        mutation_epoch[0] += 1

    def __setitem__(self, key: Any, value: Any) -> None:
        OrderedDict.__setitem__(self, key, value)
        self._changed()

    def __delitem__(self, key: Any) -> None:
        OrderedDict.__delitem__(self, key)
        self._changed()

    def clear(self) -> None:
        OrderedDict.clear(self)
        self._changed()

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self:
            return OrderedDict.pop(self, key, *default)
        value = self[key]
        del self[key]
        return value

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        item = OrderedDict.popitem(self, last)
        self._changed()
        return item

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return OrderedDict, (), None, None, iter(self.items())

    def __deepcopy__(self, memo: dict) -> HookDict:
        # Handles hold their dictionary by identity: the copy of a handle must find the copy of this one.
        memo[id(self)] = copied = type(self)()
        for key, value in self.items():
            copied[key] = deepcopy(value, memo)
        return copied


class CallHookDict(HookDict):
    """Hooks that a call of the module must run: while there are any, calls take the checked path."""

    def _changed(self) -> None:
        mutation_epoch[0] += 1
        if self:
            active_hooks.add(id(self))
        else:
            active_hooks.discard(id(self))
