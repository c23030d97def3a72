"""`rushlight.compile`: functions, modules and whole training steps, captured once per guard and replayed as one program.

The first call runs eagerly under a capture, so its results are eager results. Later calls whose guards hold bind the memory of the
arguments, compute the optimizer's numbers, run the program and put results where eager would have left them: `.grad`, returned
tensors, parameters and optimizer state keep their identities. A result that the caller still holds from the last call gets new memory;
otherwise its memory is used again. A call that fails on its values (a class index out of bounds) is undone and runs eagerly, which raises.

Captures are one at a time in the process (what they patch is the process's), and a compiled function replays for one thread at a time; a
thread that finds another one capturing runs eagerly.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import saved_hooks
from ..core import dtype as D
from ..core.device import default_device
from ..core.random import Generator, default_generator
from ..core.tensor import Tensor, bump_all, wrap
from ..ops import execute
from .capture import Capture, CaptureError, Spent, root_of
from .graph import Buffer, View, verify
from .guards import PLAIN, Guards, Node, token
from .observe import Update, observe, state_tensors
from .program import Program, array_of, build
from .walk import Unwalkable, Walk

__all__ = ["Compiled", "compile_function", "settings"]

settings: dict[str, Any] = {"strict": False, "verify": os.environ.get("RUSHLIGHT_VERIFY") == "1", "attempts": 4, "entries": 8, "stance": "default"}
NEEDS_GRAPH = "a result still needs its graph: backward must happen within the compiled function, or gradients be off"
every: weakref.WeakSet[Compiled] = weakref.WeakSet()
ndarray = np.ndarray


class Output:
    """A tensor that the call leaves behind: returned, or as the `.grad` of a leaf. Its memory is reused if nobody else holds it."""

    __slots__ = ("view", "leaf", "spent", "node", "tensor", "array", "root", "tensor_base")

    def __init__(self, view: View, leaf: Tensor | None, node: str | None) -> None:
        self.view, self.leaf = view, leaf
        self.spent, self.node = node is not None, node      # whether it has a graph, which the call freed; what eager's node is called
        self.tensor: Any = None
        self.array: Any = None
        self.root: Any = None
        self.tensor_base: Any = None        # what the captured result was a view of, while the capture is looked at


class Graded(Node):
    """Whether a leaf has a gradient when the call begins."""

    def __init__(self, leaf: Tensor, none: bool) -> None:
        self.leaf, self.none = leaf, none
        self.label = f"whether a tensor of shape {list(leaf.shape)} has a gradient"

    def same(self) -> bool:
        return (self.leaf._grad is None) is self.none

    def terms(self, put: Callable[[Any], str]) -> list[str]:
        return [f"{put(self.leaf)}._grad is {'' if self.none else 'not '}None"]


class Failed(Exception):
    """The program failed on the values of this call, and everything is as it was before."""


class Entry:
    """One captured call: guards, program, and what goes in and out."""

    def __init__(self, capture: Capture, guards: Guards, program: Program, arguments: list[tuple[Buffer, View]], outputs: list[Output], result: Any,
                 updates: list[Update], written: list[Tensor], grown: list[tuple[Tensor, Buffer, View]], dropped: list[Tensor],
                 kept: list[Any]) -> None:
        self.capture, self.guards, self.program = capture, guards, program
        self.arguments, self.outputs, self.result, self.updates, self.written = arguments, outputs, result, updates, written
        self.grown = grown              # leaves whose .grad is read or added to: it may be another tensor at every call
        self.dropped = dropped          # leaves whose .grad is None afterwards
        self.kept = kept                # arguments that the key compares by identity
        self.leaves = [o for o in outputs if o.leaf is not None]
        self.returned = [o for o in outputs if o.leaf is None]
        self.bound: list[Any] = [None] * len(arguments)
        self.bound_grads: list[Any] = [None] * len(grown)
        g = capture.graph
        stored = {v.buffer.id for s in g.steps for v in s.outputs}
        self.stored = [k for k, (b, _) in enumerate(arguments) if b.id in stored]       # arguments that are written to
        grads = {b.id for _, b, _ in grown}
        self.stored_grads = [leaf for leaf, b, _ in grown if b.id in stored]
        # memory that is written to although it is not made here: no argument may lie in it
        self.stored_memory = [_extent(b.array) for b in g.buffers if b.kind == "external" and b.id in stored and b.id not in grads
                              and b.argument is None and b.array is not None]
        self.apart = bool(self.stored or self.stored_memory or self.stored_grads)
        self.random = any(s.kind == "host" and s.data["op"].random for s in g.steps)
        self.failures = 0
        self.repeats: list[int] | None = None       # for each tensor of the call its place among `arguments`, if one was passed twice

    def once(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """Each tensor of a call once; None if other ones are the same than when the call was captured."""
        found: list[Tensor] = []
        for t, k in zip(tensors, self.repeats, strict=True):  # type: ignore[arg-type]
            if k == len(found):
                found.append(t)
            elif found[k] is not t:
                return None
        return found

    def matches(self, tensors: list[Tensor]) -> bool:
        for (_, v), t in zip(self.arguments, tensors, strict=True):
            a = t._a
            if a.__class__ is not ndarray or a.shape != v.shape or a.dtype != v.dtype or a.strides != v.strides:
                return False
        return self.guards.check()

    def replay(self, tensors: list[Tensor]) -> Any:
        program = self.program
        if self.apart and not self._apart(tensors):
            return NotImplemented
        for k, ((b, v), t) in enumerate(zip(self.arguments, tensors, strict=True)):
            a = t._a
            if a is not self.bound[k]:
                program.bind(b, a if v.offset == 0 and a.base is None and a.flags.forc else _block(a, v))
                self.bound[k] = a
        for k, (leaf, b, v) in enumerate(self.grown):
            g = leaf._grad
            if g is None or g._rg is True or g._a.shape != v.shape or g._a.strides != v.strides or g._a.dtype != v.dtype:
                return NotImplemented
            if g._a is not self.bound_grads[k]:
                a = g._a
                program.bind(b, a if v.offset == 0 and a.base is None and a.flags.forc else _block(a, v))
                self.bound_grads[k] = a
        done: list[Update] = []
        for u in self.updates:
            if not u.prepare():
                for d in done:
                    d.undo()
                return NotImplemented
            done.append(u)
        for o in self.outputs:
            self._output(o, program)
        stream = default_generator.get_state() if self.random else None
        try:
            program.run()
        except BaseException as e:
            for u in done:
                u.undo()
            if not isinstance(e, Exception) or not getattr(e, "before_writes", False):
                raise
            if stream is not None:
                default_generator.set_state(stream)
            self.failures += 1
            raise Failed from e
        for o in self.leaves:
            o.leaf._grad = o.tensor  # type: ignore[union-attr]
        bump_all(self.written)
        if self.stored:
            bump_all([tensors[k] for k in self.stored])
        if self.stored_grads:
            bump_all([leaf._grad for leaf in self.stored_grads])
        for leaf in self.dropped:
            leaf._grad = None
        result = self._result(self.result, tensors)
        for o in self.returned:
            o.tensor = None
        return result

    def _apart(self, tensors: list[Tensor]) -> bool:
        """Whether what is written to may be, and is no other argument's or gradient's memory."""
        mine = [_extent(t._a) for t in tensors]
        grads = [_extent(leaf._grad._a) for leaf, _, _ in self.grown if leaf._grad is not None and leaf._grad._a.__class__ is ndarray]
        all_ = mine + grads
        for k in self.stored:
            if not tensors[k]._a.flags.writeable or any(_meet(mine[k], x) for i, x in enumerate(all_) if i != k):
                return False
        for x in self.stored_memory:
            if any(_meet(x, y) for y in all_):
                return False
        if self.stored_grads or self.grown and self.apart:
            order = sorted(x for x in grads if x[1] > x[0])
            if any(a[1] > b[0] for a, b in zip(order, order[1:], strict=False)) or any(_meet(g, x) for g in grads for x in mine):
                return False
        return True

    def _output(self, o: Output, program: Program) -> None:
        leaf = o.leaf
        if o.array is not None:
            if leaf is None:
                # the tensor went to the caller: it, and every view of it, holds the array, whose count is ours and getrefcount's own
                if sys.getrefcount(o.array) <= 2:
                    self._wrap(o)
                    return
            # held by: this Output, the variable, and the leaf's .grad if it is there
            elif sys.getrefcount(t := o.tensor) <= 3 + (leaf._grad is t) and sys.getrefcount(o.array) <= 3:
                if t._a is not o.array or t._rg is not o.spent or t._grad is not None or t._base is not None:
                    self._wrap(o)           # somebody changed what the old tensor is
                return
        from ..backends.cpu import allocator
        v = o.view
        root = allocator.empty((v.buffer.nbytes,), np.dtype(np.uint8))
        program.bind(v.buffer, root)
        o.root = root
        o.array = array_of(root, v)
        self._wrap(o)

    @staticmethod
    def _wrap(o: Output) -> None:
        t = wrap(o.array)
        if o.spent:
            t._rg, t._node = True, Spent(o.node)  # type: ignore[arg-type]
        o.tensor = t

    def _result(self, r: Any, tensors: list[Tensor]) -> Any:
        if isinstance(r, Output):
            return r.tensor
        if isinstance(r, _Keep):
            return r.value
        if isinstance(r, _Argument):
            return tensors[r.index]
        if isinstance(r, (list, tuple)):
            items = [self._result(x, tensors) for x in r]
            return type(r)(items) if type(r) in (list, tuple) else type(r)._make(items)  # type: ignore[union-attr]
        if isinstance(r, _Object):
            made: Any = object.__new__(r.cls)
            made.__dict__.update({k: self._result(x, tensors) for k, x in r.items.items()})
            return made
        return type(r)([(k, self._result(x, tensors)) for k, x in r.items()])


class _Keep:
    """A result that is the same object at every call (a parameter, a number)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Object:
    """A result that is an instance of a dataclass."""

    __slots__ = ("cls", "items")

    def __init__(self, cls: type, items: dict[str, Any]) -> None:
        self.cls, self.items = cls, items


class _Argument:
    """A result that is one of the call's tensors."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _extent(a: ndarray) -> tuple[int, int]:
    """The addresses between which the elements of an array lie."""
    if not a.size:
        return 0, 0
    lo = hi = a.__array_interface__["data"][0]
    for n, s in zip(a.shape, a.strides, strict=True):
        lo, hi = (lo, hi + (n - 1) * s) if s >= 0 else (lo + (n - 1) * s, hi)
    return lo, hi + a.itemsize


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _block(a: ndarray, v: View) -> ndarray:
    """Bytes in which `a` lies as the view `v` says: a window into the memory around `a`."""
    import ctypes
    if not a.size:
        return np.empty(v.buffer.nbytes, np.uint8)
    at = a.__array_interface__["data"][0] - v.offset
    raw = (ctypes.c_char * v.span[1]).from_address(at)
    return np.frombuffer(raw, np.uint8)  # type: ignore[call-overload]


_one_capture = threading.Lock()


class Compiled:
    """A compiled function. `entries` are its captures; `reasons` say why calls ran eagerly, with counts."""

    def __init__(self, fn: Callable, fullgraph: bool = False) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.fullgraph = fn, fullgraph
        self._reset()

    def _reset(self) -> None:
        self.entries: list[tuple[Any, Entry]] = []
        self.reasons: dict[str, int] = {}
        self.refused: list[list[Any]] = []          # [key, number of captures that failed]
        self.extra: list[Any] = []                  # functions that were found only while a call ran
        self.given_up = self.census = False
        self.calls = {"replayed": 0, "captured": 0, "eager": 0}
        self.lock = threading.RLock()
        every.add(self)

    def __getstate__(self) -> dict[str, Any]:
        own = ("entries", "reasons", "refused", "extra", "given_up", "census", "calls", "lock")
        return {k: v for k, v in self.__dict__.items() if k not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        c = execute.capture[0]
        if c is not None and c.thread == threading.get_ident():
            return self.fn(*args, **kwargs)
        if settings["stance"] == "force_eager":
            self.calls["eager"] += 1
            return self.fn(*args, **kwargs)
        if saved_hooks or modes.anomaly:
            return self._eager("hooks on saved tensors or anomaly detection are on", args, kwargs)
        tensors: list[Tensor] = []
        key = _key(args, kwargs, tensors)
        try:
            with self.lock:
                for k, e in self.entries:
                    if k == key:
                        ts = tensors if e.repeats is None else e.once(tensors)
                        if ts is None or not e.matches(ts):
                            continue
                        r = e.replay(ts)
                        if r is not NotImplemented:
                            self.calls["replayed"] += 1
                            return r
        except Failed as failed:
            if e.failures >= settings["attempts"]:
                with self.lock:
                    self.entries = [x for x in self.entries if x[1] is not e]
                self.refused.append([key, settings["attempts"]])
            return self._eager(f"the program failed on the values of the call ({failed.__cause__})", args, kwargs)
        if settings["stance"] != "default" and self.entries:
            if settings["stance"] == "fail_on_recompile":
                raise RuntimeError(f"{getattr(self.fn, '__qualname__', self.fn)} would be captured anew, which the stance fail_on_recompile forbids: "
                                   + self.entries[0][1].guards.why())
            return self._eager("no capture fits, and the stance is eager_on_recompile", args, kwargs)
        if self.given_up or any(n >= settings["attempts"] for k, n in self.refused if k == key):
            self.calls["eager"] += 1
            return self.fn(*args, **kwargs)
        if not _one_capture.acquire(blocking=False):
            return self._eager("another thread was capturing", args, kwargs)
        try:
            return self._capture(key, tensors, args, kwargs)
        finally:
            _one_capture.release()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _eager(self, reason: str, args: tuple, kwargs: dict) -> Any:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.calls["eager"] += 1
        return self.fn(*args, **kwargs)

    # --- capturing --------------------------------------------------------------------------------------------------
    def _capture(self, key: Any, tensors: list[Tensor], args: tuple, kwargs: dict) -> Any:
        c = Capture()
        updates: list[Update] = []
        first: dict[int, int] = {}
        repeats = [first.setdefault(id(t), len(first)) for t in tensors]
        if len(first) == len(tensors):
            repeats = []
        tensors = list({id(t): t for t in tensors}.values())
        try:
            walk = Walk(self.fn, args, kwargs, self.extra, tensors)
            if any(t._a.__class__ is not ndarray or t._grad is not None and t._grad._a.__class__ is not ndarray for t in (*tensors, *walk.tensors)):
                raise Unwalkable("a tensor that is not dense or not on the CPU")
        except Unwalkable as e:
            self._refused(key, str(e))
            return self.fn(*args, **kwargs)
        before = _settings()
        grads = {id(t): (t, t._grad) for t in (*walk.tensors, *tensors) if t._rg is True or t._grad is not None}
        result, watch = observe(self.fn, c, updates, tensors, args, kwargs, walk, grads, self.census)
        try:
            if c.reason:
                raise CaptureError(c.reason)
            if watch.unknown:
                self.extra += watch.found()
                if watch.reason is None:
                    code = next(iter(watch.unknown))
                    raise CaptureError(f"code was seen for the first time ({code.co_name} at {code.co_filename}:{code.co_firstlineno}); "
                                       "the next call is tried")
            if watch.reason:
                raise CaptureError(watch.reason)
            if _settings() != before:
                raise CaptureError("the call changes a mode: gradients, inference, the default dtype or device")
            changed = walk.changed()
            if changed is not None:
                raise CaptureError(f"the call changes {changed}" + (" (an optimizer's first step makes its state)" if "or state of" in changed else ""))
            entry = self._finish(c, walk, updates, tensors, result, grads, (args, kwargs))
            entry.repeats = repeats or None
        except CaptureError as e:
            self._refused(key, str(e))
            return result
        except Exception as e:
            if settings["strict"]:
                raise
            self._refused(key, f"the compiler failed: {type(e).__name__}: {e}")
            return result
        with self.lock:
            while len(self.entries) >= settings["entries"]:
                self.entries.pop()
            self.entries.insert(0, (key, entry))
        self.calls["captured"] += 1
        if self.calls["captured"] > 4 * settings["entries"]:
            self._give_up("the guards changed at too many calls")
        return result

    def _refused(self, key: Any, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.calls["eager"] += 1
        mine = next((r for r in self.refused if r[0] == key), None)
        if mine is None:
            mine = [key, 0]
            self.refused.append(mine)
            if len(self.refused) > 4 * settings["entries"]:
                self._give_up("calls of too many kinds could not be captured")
        mine[1] += 1
        if settings["strict"] or self.fullgraph and mine[1] >= settings["attempts"] and reason != NEEDS_GRAPH:    # as good a program as any
            raise RuntimeError(f"the call could not be compiled: {reason}")

    def _give_up(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.given_up = True

    def _finish(self, c: Capture, walk: Walk, updates: list[Update], tensors: list[Tensor], result: Any, grads: dict[int, tuple[Tensor, Any]],
                call: tuple) -> Entry:
        g = c.graph
        outputs: list[Output] = []
        seen: dict[int, Output] = {}
        places = {id(t): k for k, t in enumerate(tensors)}
        pool = {id(t) for t in walk.tensors}
        old_grads = {id(x): t for t, x in grads.values() if x is not None}
        outside = walk.containers | {id(x) for x in call}

        def output(t: Tensor, leaf: Tensor | None) -> Any:
            if leaf is None and id(t) in places:
                return _Argument(places[id(t)])
            if t._a.__class__ is not ndarray:
                raise CaptureError("a result is not dense or not on the CPU")
            v = c.view(t)
            if v.buffer.id in c.constants and not c.constant(v.buffer):
                self.census = True
                raise CaptureError("a result is memory that the guards do not reach; the next call is tried")
            c.release(v.buffer)
            if v.buffer.kind == "external":
                if leaf is None and id(t) in pool:
                    return _Keep(t)
                raise CaptureError("a result is a view of memory that lives outside of the call")
            if type(t) is not Tensor or t.__dict__:
                raise CaptureError(f"a result is a {type(t).__name__} with attributes of its own")
            if id(t) in seen and leaf is None:
                return seen[id(t)]
            spent = None
            if t._rg is True or t._rg and t.requires_grad:
                if t._node.is_accumulator or _alive(t._node):
                    raise CaptureError(NEEDS_GRAPH)
                spent = t._node.name()
            if t._grad is not None:
                raise CaptureError("a result has a gradient")
            if any(o.view.buffer is v.buffer for o in outputs):
                raise CaptureError("two results share memory")
            v.buffer.kind, v.buffer.tensor = "output", leaf
            o = Output(v, leaf, spent)
            o.tensor_base = t._base
            seen[id(t)] = o
            outputs.append(o)
            return o

        def walk_result(r: Any) -> Any:
            if isinstance(r, Tensor):
                return output(r, None)
            kind = type(r)
            if kind in (list, dict, OrderedDict) and id(r) in outside:
                raise CaptureError("a result is a container that lives outside of the call")
            if kind in (list, tuple) or isinstance(r, tuple) and hasattr(kind, "_make"):
                items = [walk_result(x) for x in r]
                return kind(items) if kind in (list, tuple) else kind._make(items)
            if kind in (dict, OrderedDict):
                return kind([(k, walk_result(x)) for k, x in r.items()])
            if hasattr(kind, "__dataclass_fields__") and kind.__new__ is object.__new__ and not hasattr(kind, "__slots__") and id(r) not in walk.memo:
                return _Object(kind, {k: walk_result(x) for k, x in vars(r).items()})
            if isinstance(r, tuple) and all(map(_constant, r)):
                return _Keep(r)
            if type(token(r)) is tuple or id(r) in walk.memo or isinstance(r, (type, type(walk_result))) or _constant(r):
                return _Keep(r)
            raise CaptureError(f"a result is a {kind.__name__}, which would have to be made anew")

        if modes.inference and any(t._rg is not False for t in tensors):
            raise CaptureError("an argument requires grad in inference mode")
        shape = walk_result(result)
        dropped = []
        for leaf, old in grads.values():
            new = leaf._grad
            if new is old:
                continue
            if id(leaf) in places:
                raise CaptureError("the gradient of an argument is set within the call")
            if new is None:
                dropped.append(leaf)
            elif not any(o.leaf is leaf for o in outputs):
                output(new, leaf)
        for ref in c.leaves:
            leaf = ref()
            if leaf is not None and id(leaf) not in grads and id(leaf) not in seen and leaf._grad is not None:
                raise CaptureError("the gradient of a tensor is set that the guards do not reach")
        if any(t is not None and id(t) not in seen and id(t) not in places for t in [ref() for ref in (*[r for r, _ in c.made], *c.views)]):
            gc.collect()            # cycles of references keep nothing
        live = [ref() for ref, _ in c.made]
        for t in live:
            if t is None or id(t) in places:
                continue
            v = c.view(t)
            if v.buffer.kind == "temp" and id(t) not in seen:
                raise CaptureError("a tensor made in the call is kept somewhere that a replay would not know of "
                                   f"(shape {list(t.shape)}); the call may have been the first one, which makes optimizer state")
            # the base of returned views may live on: nobody else holds it (beside them: this list, this variable, the count's argument)
            if v.buffer.kind == "output" and id(t) not in seen and sys.getrefcount(t) > 3 + 2 * sum(o.tensor_base is t for o in outputs):
                raise CaptureError("a view of a result is kept somewhere that a replay would not know of")
        live.clear()
        for o in outputs:
            o.tensor_base = None
        for t in [ref() for ref in c.views]:
            if t is not None and id(t) not in seen and id(t) not in places and id(t) not in pool:
                raise CaptureError("a view made in the call is kept somewhere that a replay would not know of")
        t = None
        arguments = []
        argument_buffers: dict[int, View] = {}
        for t in tensors:
            v = c.view(t)
            if v.buffer.id in argument_buffers:
                raise CaptureError("two arguments share memory")
            argument_buffers[v.buffer.id] = v
            arguments.append((v.buffer, v))
        known: set[int] = set()
        for t in (*walk.tensors, *state_tensors(walk)):
            if id(t) in places or t._a.__class__ is not ndarray:
                continue
            b = c.buffers.get(id(root_of(t._a)))
            if b is not None:
                known.add(b.id)
                if b.id in argument_buffers:
                    raise CaptureError("an argument shares memory with a tensor that the function reaches otherwise")
        grown = []
        grown_buffers: set[int] = set()
        for leaf, old in grads.values():
            if old is None or old._a.__class__ is not ndarray:
                continue
            b = c.buffers.get(id(root_of(old._a)))
            if b is None or b.kind != "external":
                continue
            if id(leaf) in places:
                raise CaptureError("the gradient of an argument is used within the call")
            if id(old) in places or id(old) in pool or b.id in argument_buffers or b.id in known or b.id in grown_buffers or old._rg is True:
                raise CaptureError("a gradient shares memory with another tensor")
            grown_buffers.add(b.id)
            v = c.view(old)
            b.tensor = None
            grown.append((leaf, b, v))
        if any(id(r) in old_grads for r in _tensors_of(result)):
            raise CaptureError("a result is a gradient of before the call")
        windows = {**argument_buffers, **{b.id: v for _, b, v in grown}}
        for s in g.steps:
            for v in (*s.reads, *s.outputs):
                w = windows.get(v.buffer.id)
                if w is not None and v.size and (v.span[0] < w.span[0] or v.span[1] > w.span[1]):
                    raise CaptureError("memory around an argument is used")
        c.settle()
        used = {v.buffer.id for s in g.steps for v in (*s.reads, *s.outputs)}
        for b in g.buffers:
            if b.kind == "external" and b.id in used and b.id not in windows and b.id not in known and not c.constant(b) \
                    and id(b.array) not in walk.arrays:
                self.census, first = True, not self.census
                raise CaptureError(f"the call uses memory of {b.nbytes} bytes that the guards do not reach" + ("; the next call is tried" if first else ""))
        if settings["verify"]:
            verify(g)
        written: list[Tensor] = []
        for s in g.steps:
            for v in s.outputs:
                if v.buffer.kind == "external" and v.buffer.tensor is not None and v.buffer.id not in windows and s.kind != "update" \
                        and not any(w is v.buffer.tensor for w in written):
                    written.append(v.buffer.tensor)
            if s.kind == "update":
                written += [t for t in s.data["tensors"] if not any(w is t for w in written)]
        for b in g.buffers:
            if b.id in argument_buffers:
                b.tensor = None
        walk.nodes += [Graded(leaf, old is None) for leaf, old in grads.values() if id(leaf) not in places]
        kept = [x for x in (*call[0], *call[1].values()) if not isinstance(x, Tensor)]
        walk.release()
        guards = Guards(walk)
        program = build(g)
        # the tensors of this first call live on their own memory; the next call makes the program's
        return Entry(c, guards, program, arguments, outputs, shape, updates, written, grown, dropped, kept)


def _constant(r: Any) -> bool:
    return isinstance(r, (*PLAIN, D.dtype, Generator, Compiled, np.dtype))


def _tensors_of(r: Any) -> Any:
    if isinstance(r, Tensor):
        yield r
    elif isinstance(r, (list, tuple)):
        for x in r:
            yield from _tensors_of(x)
    elif isinstance(r, dict):
        for x in r.values():
            yield from _tensors_of(x)


def _settings() -> tuple:
    return (modes.grad, modes.inference, D.default[0], default_device[0])


def _alive(node: Any) -> bool:
    """Whether backward could still run through a node."""
    if node.saved is None:
        return False
    seen, stack = {node}, [node]
    while stack:
        for m in stack.pop().next:
            if m is not None and m not in seen:
                if m.saved is None:
                    return False
                seen.add(m)
                stack.append(m)
    return bool(node.saved) or bool(node.next)


def _key(args: tuple, kwargs: dict, tensors: list[Tensor]) -> Any:
    """What distinguishes calls by their arguments: tensors are collected, the rest is compared."""
    def one(x: Any) -> Any:
        if isinstance(x, Tensor):
            tensors.append(x)
            # no graph is wanted, a leaf, or something with a history
            return (x.__class__, x._rg is not False and x.requires_grad and (1 if x._node.is_accumulator else 2))
        if isinstance(x, (list, tuple)):
            return (type(x), tuple([one(y) for y in x]))
        if isinstance(x, dict):
            return (type(x), tuple([(token(k), one(y)) for k, y in x.items()]))
        return token(x)
    now = (modes.grad, modes.inference, D.default[0], default_device[0])
    if not args and not kwargs:
        return now
    return (now, one(args), one(kwargs) if kwargs else None)


def compile_function(fn: Callable, fullgraph: bool = False) -> Compiled:
    return Compiled(fn, fullgraph)
