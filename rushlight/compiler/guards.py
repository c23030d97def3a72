"""Guards: what a captured call depended on in the Python world, and whether it still holds.

Before a call, `Walk` (walk.py) goes through everything that the function's code can reach by the names in it: globals, closure variables,
defaults, attributes, items of containers, the functions that these hold, and their names in turn. Each thing visited becomes a `Node`
that can tell whether it is still the `same()`. After the call the nodes are asked: what changed is an effect of the call, which
a replay would not have, so the capture is refused. Before a replay they are asked again: what changed was changed by others. Most of
them are asked by one generated expression of identity tests; the tables of modules only when the modules' mutation epoch moved.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from ..autograd.node import hooks_epoch
from ..core.device import device as Device
from ..core.dtype import dtype as DType
from ..core.tensor import Tensor

__all__ = ["Node", "Table", "Row", "Map", "Set", "Cell", "Attributes", "Contents", "Memory", "Steps", "Hooks", "Guards", "alike", "token",
           "PLAIN", "ABSENT"]

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_is = operator.is_


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


def alike(a: Any, b: Any) -> bool:
    """Whether two values mean the same to a captured call: identity, or equality of plain values of one type, to the last bit."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b) or a != a and b != b
    if isinstance(a, complex):
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if isinstance(a, (*PLAIN, range, DType, Device)):
        return a == b
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, slice):
        return alike((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, types.MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return False


def token(x: Any) -> Any:
    """Something that compares equal for arguments that are `alike`."""
    if x.__class__ is int or x.__class__ is str or x is None or x.__class__ is bool:
        return (x.__class__, x)
    if isinstance(x, (float, complex)):
        return (type(x), repr(x) if x == 0 or x != x or isinstance(x, complex) else x)
    if isinstance(x, (*PLAIN, range, DType, Device)):
        return (type(x), x)
    if isinstance(x, np.generic):
        return (type(x), x.tobytes())
    if isinstance(x, slice):
        return (slice, token(x.start), token(x.stop), token(x.step))
    if isinstance(x, types.MethodType):
        return (types.MethodType, id(x.__self__), id(x.__func__))
    return id(x)


# --- nodes ------------------------------------------------------------------------------------------------------------
class Node:
    """Something that the call may read, as it was."""

    label = ""

    def same(self) -> bool:
        raise NotImplementedError

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        """Quick tests: all true means same; `put` gives a name for a value."""
        n = put(self.same)
        return [f"{n}()"]

    def what(self) -> str:
        return self.label


class Table(Node):
    """Some of the names of a dict: a namespace, the attributes of an object."""

    def __init__(self, d: Any, items: list[tuple[Any, Any]], label: str, length: bool = False) -> None:
        self.d, self.items, self.label = d, items, label
        self.length = len(d) if length else None

    def same(self) -> bool:
        get = self.d.get
        return (self.length is None or len(self.d) == self.length) and all(alike(get(k, ABSENT), v) for k, v in self.items)

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        out = [] if self.length is None else [f"len({put(self.d)}) == {self.length}"]
        if self.items:
            g, absent = put(self.d.get), put(ABSENT)
            out += [f"{g}({k!r}, {absent}) is {put(v)}" for k, v in self.items]
        return out

    def what(self) -> str:
        for k, v in self.items:
            if not alike(self.d.get(k, ABSENT), v):
                return f"{self.label}{k}"
        return self.label + "..."


class Row(Node):
    """The items of a list or deque."""

    def __init__(self, x: Any, label: str) -> None:
        self.x, self.items, self.label = x, tuple(x), label

    def same(self) -> bool:
        return len(self.x) == len(self.items) and all(map(alike, self.x, self.items))

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        x, i = put(self.x), put(self.items)
        return [f"len({x}) == {len(self.items)}"] + ([f"all(map(_is, {x}, {i}))"] if self.items else [])


class Map(Node):
    """A whole dict."""

    def __init__(self, d: dict, label: str) -> None:
        self.d, self.label = d, label
        self.keys, self.values = tuple(d), tuple(d.values())

    def same(self) -> bool:
        return len(self.d) == len(self.keys) and all(map(alike, self.d, self.keys)) and all(map(alike, self.d.values(), self.values))

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        d = put(self.d)
        out = [f"len({d}) == {len(self.keys)}"]
        if self.keys:
            out += [f"all(map(_is, {d}, {put(self.keys)}))", f"all(map(_is, {d}.values(), {put(self.values)}))"]
        return out

    def what(self) -> str:
        for k, v in zip(self.keys, self.values, strict=True):
            if isinstance(k, PLAIN) and not alike(self.d.get(k, ABSENT), v):
                return f"{self.label}[{k!r}]"
        return self.label


class Set(Node):
    def __init__(self, s: set, label: str) -> None:
        self.s, self.items, self.label = s, {id(x): x for x in s}, label

    def same(self) -> bool:
        if len(self.s) != len(self.items):
            return False
        return all(id(x) in self.items or isinstance(x, (*PLAIN, tuple)) and any(alike(x, y) for y in self.items.values()) for x in self.s)


class Cell(Node):
    def __init__(self, cell: Any, label: str) -> None:
        self.cell, self.label = cell, label
        self.value = self.read()

    def read(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return ABSENT

    def same(self) -> bool:
        return alike(self.read(), self.value)

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        if self.value is ABSENT:
            return super().terms(put)
        return [f"{put(self.cell)}.cell_contents is {put(self.value)}"]


class Attributes(Node):
    """Some attributes of any object: slots of an instance, code and defaults of a function."""

    def __init__(self, obj: Any, names: Iterable[str], label: str) -> None:
        self.obj, self.label = obj, label
        self.items = [(n, getattr(obj, n, ABSENT)) for n in names]

    def same(self) -> bool:
        return all(alike(getattr(self.obj, n, ABSENT), v) for n, v in self.items)

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        if any(v is ABSENT for _, v in self.items):
            return super().terms(put)
        o = put(self.obj)
        return [f"{o}.{n} is {put(v)}" for n, v in self.items]

    def what(self) -> str:
        return next((f"{self.label}{n}" for n, v in self.items if not alike(getattr(self.obj, n, ABSENT), v)), self.label)


class Contents(Node):
    """A small NumPy array, by its contents."""

    def __init__(self, a: np.ndarray, label: str) -> None:
        self.a, self.copy, self.label = a, a.copy(), label

    def same(self) -> bool:
        a, b = self.a, self.copy
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


class Memory(Node):
    """A tensor: its memory and whether it requires grad. Its contents are read by the program."""

    def __init__(self, t: Tensor, label: str) -> None:
        self.t, self.a, self.rg, self.label = t, t._a, t._rg, label
        self.fixed = t._base is None
        self.made = _maker(t)

    def same(self) -> bool:
        return self.t._a is self.a and (not self.fixed or self.t._rg is self.rg)

    def after(self) -> bool:
        """Whether the call left the history alone, too."""
        return self.same() and _maker(self.t) is self.made

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        t = put(self.t)
        return [f"{t}._a is {put(self.a)}"] + ([f"{t}._rg is {self.rg!r}"] if self.fixed else [])

    def what(self) -> str:
        return f"{self.label} (a tensor of shape {list(self.a.shape)}: its memory, requires_grad or history)"


def _maker(t: Tensor) -> Any:
    n = t._node
    return None if n is None or n.is_accumulator else n


class Steps(Node):
    """An optimizer: its groups, their parameters, and the tensors of its state. The numbers of the groups are read at every call."""

    def __init__(self, o: Any, label: str) -> None:
        self.o, self.label = o, label
        self.groups, self.state = o.param_groups, o.state
        self.each = tuple(o.param_groups)
        self.lists = tuple([(g, g["params"], tuple(g["params"])) for g in self.each])
        self.states = tuple(self.state.values())
        self.tables = tuple([s for s in self.states if isinstance(s, dict)])
        self.entries = tuple(chain.from_iterable(map(dict.values, self.tables)))

    def same(self) -> bool:
        return (self.o.param_groups is self.groups and self.o.state is self.state and len(self.groups) == len(self.each)
                and all(map(_is, self.groups, self.each)) and all(g["params"] is p and len(p) == len(c) and all(map(_is, p, c)) for g, p, c in self.lists)
                and len(self.state) == len(self.states) and all(map(_is, self.state.values(), self.states))
                and sum(map(len, self.tables)) == len(self.entries)
                and all(map(_is, chain.from_iterable(map(dict.values, self.tables)), self.entries)))

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        o, groups, state, tables = put(self.o), put(self.groups), put(self.state), put(self.tables)
        out = [f"{o}.param_groups is {groups} and len({groups}) == {len(self.each)}"]
        for k, (g, p, c) in enumerate(self.lists):
            out.append(f"{groups}[{k}] is {put(g)} and {put(g)}['params'] is {put(p)} and len({put(p)}) == {len(c)} and all(map(_is, {put(p)}, {put(c)}))")
        return [*out, f"{o}.state is {state} and len({state}) == {len(self.states)} and all(map(_is, {state}.values(), {put(self.states)}))",
                f"sum(map(len, {tables})) == {len(self.entries)} and all(map(_is, _chain(map(_values, {tables})), {put(self.entries)}))"]


class Hooks(Node):
    """The hooks of a leaf; asked when some hook was registered or removed."""

    def __init__(self, t: Tensor, label: str) -> None:
        self.t, self.label = t, label
        self.functions = self.read()

    def read(self) -> tuple:
        n = self.t._node
        if n is None or not n.is_accumulator:
            return ()
        return tuple([f for table in (n.pre_hooks, n.post_hooks, n.after_hooks) if table for f in table.values()])

    def same(self) -> bool:
        now = self.read()
        return len(now) == len(self.functions) and all(a is b or type(a) is tuple and a[1] is b[1] for a, b in zip(now, self.functions, strict=True))


class Guards:
    """`check()` says whether everything that a walk found is as it was."""

    def __init__(self, walk: Any) -> None:
        from ..nn.modules.module import mutation_epoch
        self.walk = walk
        self.nodes, self.tables, self.hooked = walk.nodes, walk.tables, walk.hooked
        self.epochs, self.hook_epochs = mutation_epoch, hooks_epoch
        self.epoch, self.hook_epoch = mutation_epoch[0], hooks_epoch[0]
        env: dict[str, Any] = {"_is": _is, "_chain": chain.from_iterable, "_values": dict.values}
        names: dict[int, str] = {}

        def put(x: Any) -> str:
            if x is None or x is True or x is False:
                return repr(x)
            n = names.get(id(x))
            if n is None:
                n = names[id(x)] = f"v{len(names)}"
                env[n] = x
            return n
        terms = [t for n in self.nodes for t in n.terms(put)]
        parts = [" and ".join(terms[k:k + 100]) for k in range(0, len(terms), 100)] or ["True"]
        body = "".join(f"    if not ({p}): return False\n" for p in parts)
        exec(compile(f"def quick():\n{body}    return True", "<rushlight guards>", "exec"), env)
        self.quick: Callable[[], bool] = env["quick"]

    def check(self) -> bool:
        try:
            if not self.quick() and not all([n.same() for n in self.nodes]):
                return False
            if self.epoch != self.epochs[0]:
                now = self.epochs[0]
                if not all([n.same() for n in self.tables]):
                    return False
                self.epoch = now
            if self.hook_epoch != self.hook_epochs[0]:
                now = self.hook_epochs[0]
                if not all([n.same() for n in self.hooked]):
                    return False
                self.hook_epoch = now
        except Exception:       # an attribute is gone, or a property of the user's raises
            return False
        return True

    def why(self) -> str:
        """The first thing that is not as it was, in words."""
        return f"{self.walk.changed() or 'nothing'} changed"
