"""Observing a call: it runs under a capture, with everything patched that must be seen."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import next_seq
from ..core.random import Generator, default_generator
from ..core.tensor import Tensor, wrap
from ..ops import execute, generate
from .capture import Capture, root_of
from .walk import Walk, origin
from .watch import Watch

__all__ = ["Update", "observe", "state_tensors"]

ndarray = np.ndarray


class Update:
    """An optimizer's update within the call: recomputes its numbers, in Python, at every replay."""

    def __init__(self, optimizer: Any, group: dict, variant: Any, params: list, states: list) -> None:
        self.optimizer, self.group, self.variant, self.params = optimizer, group, variant, params
        self.counters = [[s[name] for s in states] for name in optimizer.counters]
        self.states = states
        self.numbers: Any = None
        self.before: tuple = ()

    def undo(self) -> None:
        """Put the step counters back: the call did not happen."""
        from ..optim.update import advance_counters
        for column, v in zip(self.counters, self.before, strict=True):
            advance_counters(column, v)

    def prepare(self) -> bool:
        """Advance the step counters and compute the numbers. False, with nothing changed, if another rule is now wanted."""
        opt, group = self.optimizer, self.group
        scalars = opt._scalars(group)
        extra: tuple = ()
        if self.counters:
            self.before = values = tuple([column[0]._a.item() for column in self.counters])
            for column, v in zip(self.counters, values, strict=True):
                for c in column:
                    if c._a.item() != v:
                        return False
            extra = opt._advance(group, scalars, values, self.counters)
        if opt.rule.variant(*opt._flags(group), *extra) is not self.variant:
            self.undo()
            return False
        self.numbers = self.variant.host(**scalars)
        return True

    def get(self) -> Any:
        return self.numbers


class _Closed:
    """No array is one of these."""


_READS = ("item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__", "__format__", "data_ptr",
          "__contains__", "untyped_storage", "storage", "__dlpack__", "__reduce_ex__", "__deepcopy__", "set_")
_STREAM = ("manual_seed", "seed", "initial_seed", "get_state", "set_state", "clone_state", "get_offset", "set_offset", "__reduce__", "__setstate__")


def observe(fn: Callable, c: Capture, updates: list[Update], tensors: list[Tensor], args: tuple, kwargs: dict, walk: Walk,
             grads: dict[int, tuple[Tensor, Any]], census: bool) -> tuple[Any, Watch]:
    """Run `fn` under the capture, with everything patched that must be seen; put it all back."""
    from ..autograd import engine
    from ..optim import optimizer as O
    mine = c.thread
    start = next_seq()
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def active() -> bool:
        return execute.capture[0] is c and threading.get_ident() == mine

    def refusing(owner: type, name: str, why: Callable[[Any], str]) -> None:
        original = owner.__dict__[name]

        def read(self: Any, *a: Any, **k: Any) -> Any:
            if active():
                c.fail(why(self))
            return original(self, *a, **k)
        patch(owner, name, read)

    accumulate, run, apply = engine.accumulate, engine.run, O.ElementwiseOptimizer._apply

    def accumulating(t: Tensor, g: Tensor) -> None:
        sparse = g._a.__class__ is not ndarray or t._grad is not None and t._grad._a.__class__ is not ndarray
        if sparse or not active() or modes.grad:
            return accumulate(t, g)
        if t._grad is None:
            c.leaves.append(weakref.ref(t))
            a = g._a
            if g._base is None and sys.getrefcount(g) <= engine.ALONE and a.strides == t._a.strides and a.flags.writeable \
                    and c.view(g).buffer.kind == "temp":
                t._grad = wrap(a)
                c.adopt(t._grad)
            else:
                f = execute.hooks.function
                t._grad = f("clone")(g.detach()) if a.strides == t._a.strides else f("empty_like")(t.detach()).copy_(g.detach())
        else:
            t._grad.add_(g)
        return None

    def running(roots: Any, *a: Any, **k: Any) -> None:
        if active():
            seen = set()
            stack = [n for n, _ in roots]
            while stack:
                n = stack.pop()
                if n is None or n in seen:
                    continue
                seen.add(n)
                if n.seq < start and not n.is_accumulator:
                    c.fail("backward runs through a graph that was made before the call")
                stack += n.next
        return run(roots, *a, **k)

    def applying(self: Any, group: dict, rule: Any, params: list, grads: list, states: list, scalars: dict) -> None:
        if active():
            if group.get("differentiable"):
                c.fail("the optimizer is differentiable")
            u = Update(self, group, rule, params, states)
            columns: dict[str, Any] = {"param": params, "grad": grads}
            for name in rule.reads:
                if name not in columns:
                    columns[name] = [s[name] for s in states]
            c.update(rule, columns, u.get, len(params))
            updates.append(u)
        apply(self, group, rule, params, grads, states, scalars)

    def viewing(original: Callable) -> Callable:
        def view(self: Tensor) -> Tensor:
            r = original(self)
            if active():
                c.views.append(weakref.ref(r))
            return r
        return view

    place = Tensor.storage_offset

    def placing(self: Tensor) -> int:
        if active() and origin(sys._getframe(1).f_code.co_filename) != "own":
            c.fail("a tensor's place in its memory is read (storage_offset)")
        return place(self)

    def drawing(original: Callable, name: str) -> Callable:
        def draw(self: Any, *a: Any, **k: Any) -> Any:
            return c.draw(name, self, original, a, k) if active() else original(self, *a, **k)
        return draw

    nd = generate.G["ND"]
    watch = Watch(walk)
    c.known = {id(root_of(t._a)) for t in (*tensors, *walk.tensors, *state_tensors(walk), *[x for _, x in grads.values() if x is not None])}
    c.known |= walk.arrays
    if census:
        c.census = {id(root_of(t._a)) for t in gc.get_objects() if issubclass(type(t), Tensor) and t._a.__class__ is ndarray}
    for t in tensors:
        b = c.buffer(t._a, "external", t)
        b.argument = 0
    try:
        for n in _READS:
            if n in Tensor.__dict__:
                refusing(Tensor, n, lambda t, n=n: f"a value is read into Python ({n.strip('_')}() on a tensor of shape "  # type: ignore[misc]
                                                   f"{list(t.shape) if isinstance(t, Tensor) else '?'})")
        patch(Tensor, "detach", viewing(Tensor.detach))
        data: Any = Tensor.__dict__["data"]
        patch(Tensor, "data", property(viewing(data.fget), data.fset))
        patch(Tensor, "storage_offset", placing)
        for n in _STREAM:
            refusing(Generator, n, lambda g, n=n: f"the call uses a generator itself ({n})")  # type: ignore[misc]
        schedulers = sys.modules.get("rushlight.optim.lr_scheduler")
        if schedulers is not None:
            refusing(schedulers.LRScheduler, "step", lambda s: "a learning-rate scheduler steps within the call: step it outside")
        stream = type(default_generator._stream)
        for n in dir(stream):
            if n[0] != "_" and callable(getattr(stream, n)):
                undo.append((stream, n, stream.__dict__.get(n)))
                setattr(stream, n, drawing(getattr(stream, n), n))
        for n, value in (("accumulate", accumulating), ("run", running)):
            undo.append((engine, n, getattr(engine, n)))
            setattr(engine, n, value)
        patch(O.ElementwiseOptimizer, "_apply", applying)
        generate.G["ND"] = _Closed
        with watch:
            execute.capture[0] = c
            try:
                result = fn(*args, **kwargs)
            finally:
                execute.capture[0] = c.last = None
    finally:
        generate.G["ND"] = nd
        for owner, name, value in reversed(undo):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
    return result, watch


def state_tensors(walk: Walk) -> list[Tensor]:
    return [x for o in walk.optimizers for s in o.state.values() if isinstance(s, dict) for x in s.values() if isinstance(x, Tensor)]
