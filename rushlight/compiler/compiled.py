"""`rushlight.compile`: functions, modules and whole training steps, captured once per guard and replayed as one program.

The first call runs eagerly under a capture, so its results are eager results. Later calls whose guards hold bind the memory of the
arguments, compute the optimizer's numbers, run the program and put results where eager would have left them: `.grad`, returned
tensors, parameters and optimizer state keep their identities. A result that the caller still holds from the last call gets new memory;
otherwise its memory is used again.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..core.tensor import Tensor, bump_all, wrap
from ..ops import execute, generate
from .capture import Capture, CaptureError, Spent
from .graph import Buffer, View, verify
from .guards import Guards, Watch, token
from .program import Program, array_of, build

__all__ = ["Compiled", "compile_function", "settings"]

settings: dict[str, Any] = {"strict": False, "verify": False, "attempts": 4, "entries": 8}
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


class Output:
    """A tensor that the call leaves behind: returned, or as the `.grad` of a leaf. Its memory is reused if nobody else holds it."""

    __slots__ = ("view", "leaf", "spent", "tensor", "array", "root", "refs")

    def __init__(self, view: View, leaf: Tensor | None, spent: bool) -> None:
        self.view, self.leaf, self.spent = view, leaf, spent
        self.tensor: Any = None
        self.array: Any = None
        self.root: Any = None


class Entry:
    """One captured call: guards, program, and what goes in and out."""

    def __init__(self, capture: Capture, guards: Guards, program: Program, arguments: list[tuple[Buffer, View]], outputs: list[Output], result: Any,
                 updates: list[Update], written: list[Tensor], fresh: list[Tensor], grown: list[tuple[Tensor, Buffer, View]]) -> None:
        self.capture, self.guards, self.program = capture, guards, program
        self.arguments, self.outputs, self.result, self.updates, self.written, self.fresh = arguments, outputs, result, updates, written, fresh
        self.grown = grown              # leaves whose .grad is added to: it may be another tensor at every call
        self.bound: list[Any] = [None] * len(arguments)
        self.bound_grads: list[Any] = [None] * len(grown)

    def matches(self, tensors: list[Tensor]) -> bool:
        for (_, v), t in zip(self.arguments, tensors, strict=True):
            a = t._a
            if a.__class__ is not ndarray or a.shape != v.shape or a.dtype != v.dtype or a.strides != v.strides:
                return False
        return self.guards.check()

    def replay(self, tensors: list[Tensor]) -> Any:
        for leaf in self.fresh:
            if leaf._grad is not None:
                return NotImplemented
        program = self.program
        for k, ((b, v), t) in enumerate(zip(self.arguments, tensors, strict=True)):
            a = t._a
            if a is not self.bound[k]:
                if v.offset == 0 and a.base is None:
                    program.bind(b, a)
                else:
                    lo, hi = v.span
                    if a.flags.c_contiguous:
                        program.bind(b, _block(a, v.offset))
                    else:
                        return NotImplemented
                self.bound[k] = a
        for k, (leaf, b, v) in enumerate(self.grown):
            g = leaf._grad
            if g is None or g._rg is True or g._a.shape != v.shape or g._a.strides != v.strides or not g._a.flags.c_contiguous:
                return NotImplemented
            if g._a is not self.bound_grads[k]:
                program.bind(b, g._a if v.offset == 0 and g._a.base is None else _block(g._a, v.offset))
                self.bound_grads[k] = g._a
        done: list[Update] = []
        for u in self.updates:
            if not u.prepare():
                for d in done:
                    d.undo()
                return NotImplemented
            done.append(u)
        for o in self.outputs:
            self._output(o, program)
        try:
            program.run()
        except BaseException:
            for u in done:
                u.undo()
            raise
        bump_all(self.written)
        bump_all([leaf._grad for leaf, _, _ in self.grown])
        return self._result(self.result)

    def _output(self, o: Output, program: Program) -> None:
        leaf, t = o.leaf, o.tensor
        if t is not None:
            # held by: this Output, and by the leaf's .grad if it is there; getrefcount itself adds one
            mine = 2 + (1 if leaf is not None and leaf._grad is t else 0) + 1
            if sys.getrefcount(t) <= mine and sys.getrefcount(o.array) <= 3:
                if leaf is not None:
                    leaf._grad = t
                return
        from ..backends.cpu import allocator
        v = o.view
        root = allocator.empty((v.buffer.nbytes,), np.dtype(np.uint8))
        program.bind(v.buffer, root)
        o.root = root
        a = array_of(root, v)
        o.array = a
        t = wrap(a)
        if o.spent:
            t._rg, t._node = True, Spent()
        o.tensor = t
        if leaf is not None:
            leaf._grad = t

    def _result(self, r: Any) -> Any:
        if isinstance(r, Output):
            return r.tensor
        if isinstance(r, _Keep):
            return r.value
        if isinstance(r, (list, tuple)):
            items = [self._result(x) for x in r]
            return type(r)(items) if type(r) in (list, tuple) else type(r)._make(items)  # type: ignore[union-attr]
        if isinstance(r, dict):
            return {k: self._result(x) for k, x in r.items()}
        return r


class _Keep:
    """A result that is the same object at every call (a parameter, a number)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _block(a: ndarray, offset: int) -> ndarray:
    """Bytes whose element `offset` is where `a` begins: a window into the memory around `a`."""
    import ctypes
    at = a.__array_interface__["data"][0] - offset
    raw = (ctypes.c_char * (offset + a.nbytes)).from_address(at)
    b = np.frombuffer(raw, np.uint8)  # type: ignore[call-overload]
    return b


class Compiled:
    """A compiled function. `entries` are its captures; `reasons` say why calls ran eagerly, with counts."""

    def __init__(self, fn: Callable, fullgraph: bool = False) -> None:
        self.fn, self.fullgraph = fn, fullgraph
        self.entries: list[tuple[Any, Entry]] = []
        self.reasons: dict[str, int] = {}
        self.attempts = 0
        self.given_up = False
        self.calls = {"replayed": 0, "captured": 0, "eager": 0}
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if execute.capture[0] is not None:
            return self.fn(*args, **kwargs)
        tensors: list[Tensor] = []
        key = _key(args, kwargs, tensors)
        for k, e in self.entries:
            if k == key and e.matches(tensors):
                r = e.replay(tensors)
                if r is not NotImplemented:
                    self.calls["replayed"] += 1
                    return r
        if self.given_up:
            self.calls["eager"] += 1
            return self.fn(*args, **kwargs)
        return self._capture(key, tensors, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # --- capturing --------------------------------------------------------------------------------------------------
    def _capture(self, key: Any, tensors: list[Tensor], args: tuple, kwargs: dict) -> Any:
        self.attempts += 1
        c = Capture()
        updates: list[Update] = []
        result, watch = _observe(self.fn, c, updates, tensors, args, kwargs)
        try:
            if c.reason or watch.reason:
                raise CaptureError(c.reason or watch.reason)
            if watch.written:
                raise CaptureError(f"the call writes the module attribute {watch.written[0]}")
            entry = self._finish(c, watch, updates, tensors, result)
        except CaptureError as e:
            self._refused(str(e))
            return result
        while len(self.entries) >= settings["entries"]:
            self.entries.pop(0)
        self.entries.insert(0, (key, entry))
        self.calls["captured"] += 1
        if self.calls["captured"] > 4 * settings["entries"]:
            self._give_up("the guards changed at too many calls: " + entry.guards.why())
        return result

    def _refused(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.calls["eager"] += 1
        if settings["strict"] or self.fullgraph and self.attempts >= settings["attempts"]:
            raise RuntimeError(f"the call could not be compiled: {reason}")
        if self.attempts >= settings["attempts"] and not self.entries:
            self.given_up = True

    def _give_up(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        self.given_up = True

    def _finish(self, c: Capture, watch: Watch, updates: list[Update], tensors: list[Tensor], result: Any) -> Entry:
        g = c.graph
        if settings["verify"]:
            verify(g)
        outputs: list[Output] = []
        seen: dict[int, Output] = {}

        def output(t: Tensor, leaf: Tensor | None) -> Any:
            v = c.view(t)
            if v.buffer.kind == "external":
                if leaf is not None:
                    return None
                return _Keep(t)
            if id(t) in seen and leaf is None:
                return seen[id(t)]
            spent = False
            if t._rg is True or t._rg and t.requires_grad:
                if t._node.is_accumulator or _alive(t._node):
                    raise CaptureError("a result still needs its graph: backward must happen within the compiled function, or gradients be off")
                spent = True
            if any(o.view.buffer is v.buffer for o in outputs):
                raise CaptureError("two results share memory")
            v.buffer.kind = "output"
            o = Output(v, leaf, spent)
            seen[id(t)] = o
            outputs.append(o)
            return o

        def walk(r: Any) -> Any:
            if isinstance(r, Tensor):
                return output(r, None)
            if isinstance(r, (list, tuple)):
                items = [walk(x) for x in r]
                return type(r)(items) if type(r) in (list, tuple) else type(r)._make(items)  # type: ignore[union-attr]
            if isinstance(r, dict):
                return {k: walk(x) for k, x in r.items()}
            return _Keep(r)

        shape = walk(result)
        grads = []
        for leaf, was_none in c.leaves.values():
            if leaf._grad is None:
                continue
            if not was_none:
                grads.append(leaf)
            if not any(o.leaf is leaf for o in outputs):
                output(leaf._grad, leaf)
        live = [ref() for ref, _ in c.made]
        for t in live:
            if t is None:
                continue
            v = c.view(t)
            if v.buffer.kind == "temp" and id(t) not in seen:
                raise CaptureError("a tensor made in the call is kept somewhere that a replay would not know of "
                                   f"(shape {list(t.shape)}); the call may have been the first one, which makes optimizer state")
            if v.buffer.kind == "output" and id(t) not in seen and not any(o.view.same(v) for o in outputs):
                raise CaptureError("a view of a result is kept somewhere that a replay would not know of")
        live.clear()
        arguments = []
        argument_buffers: set[int] = set()
        for t in tensors:
            v = c.view(t)
            if v.buffer.id in argument_buffers:
                raise CaptureError("two arguments share memory")
            argument_buffers.add(v.buffer.id)
            arguments.append((v.buffer, v))
        grown = []
        for leaf in c.grown.values():
            v = c.view(leaf._grad)
            v.buffer.tensor = None
            grown.append((leaf, v.buffer, v))
        externals = []
        for b in g.buffers:
            if b.kind == "external" and b.id not in argument_buffers:
                if b.tensor is None:
                    continue
                externals.append(b.tensor)
        written: list[Tensor] = []
        for s in g.steps:
            for v in s.outputs:
                if v.buffer.kind == "external" and v.buffer.tensor is not None and s.kind != "update" and not any(w is v.buffer.tensor for w in written):
                    written.append(v.buffer.tensor)
            if s.kind == "update":
                written += [t for t in s.data["tensors"] if not any(w is t for w in written)]
        guards = watch.finish(externals)
        # a gradient that was None when the call began must be so again (else eager would add to it), unless the call itself drops it
        fresh = [leaf for leaf, was_none in c.leaves.values() if was_none]
        program = build(g)
        # the tensors of this first call live on their own memory; the next call makes the program's
        return Entry(c, guards, program, arguments, outputs, shape, updates, written, fresh, grown)


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
            return (Tensor, x._rg is not False and x.requires_grad)
        if isinstance(x, (list, tuple)):
            return (type(x), tuple([one(y) for y in x]))
        if isinstance(x, dict):
            return (dict, tuple([(k, one(y)) for k, y in x.items()]))
        return token(x, 1)
    if not args and not kwargs:
        return modes.grad
    return (modes.grad, one(args), one(kwargs) if kwargs else None)


def _parameters(fn: Callable, args: tuple) -> list[Tensor]:
    """Parameters of modules and optimizers that the function can reach by closure, globals, `self` or arguments."""
    from ..nn.modules.module import Module
    from ..optim.optimizer import Optimizer
    pool: list[Any] = [*args, getattr(fn, "__self__", None)]
    f = getattr(fn, "__func__", fn)
    for cell in getattr(f, "__closure__", None) or ():
        try:
            pool.append(cell.cell_contents)
        except ValueError:
            pass
    code = getattr(f, "__code__", None)
    if code is not None:
        pool += [f.__globals__[n] for n in code.co_names if n in f.__globals__]
    out: dict[int, Tensor] = {}
    for x in pool:
        if isinstance(x, Module):
            out.update((id(p), p) for p in x.parameters())
        elif isinstance(x, Optimizer):
            out.update((id(p), p) for g in x.param_groups for p in g["params"])
        elif isinstance(x, Tensor):
            out[id(x)] = x
        elif isinstance(x, (list, tuple)):
            for y in x:
                if isinstance(y, Module):
                    out.update((id(p), p) for p in y.parameters())
                elif isinstance(y, Tensor):
                    out[id(y)] = y
    return list(out.values())


class _Closed:
    """No array is one of these."""


_READS = ("item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__", "__repr__", "__format__", "data_ptr",
          "__contains__", "untyped_storage", "storage")


def _observe(fn: Callable, c: Capture, updates: list[Update], tensors: list[Tensor], args: tuple, kwargs: dict) -> tuple[Any, Watch]:
    """Run `fn` under the capture, with everything patched that must be seen; put it all back."""
    from ..autograd import engine
    from ..optim import optimizer as O
    entry_grads = {id(p): p._grad for p in _parameters(fn, args)}
    before = {n: Tensor.__dict__[n] for n in _READS}

    def reading(name: str) -> Callable:
        original = before[name]

        def read(self: Tensor, *a: Any, **k: Any) -> Any:
            if execute.capture[0] is c:
                c.fail(f"a value is read into Python ({name.strip('_')}() on a tensor of shape {list(self.shape)})")
            return original(self, *a, **k)
        return read

    accumulate = engine.accumulate

    def accumulating(t: Tensor, g: Tensor) -> None:
        if execute.capture[0] is not c or modes.grad:
            return accumulate(t, g)
        if t._grad is None:
            was_none = entry_grads.get(id(t), None) is None
            if id(t) not in entry_grads and not any(t is x for x in tensors):
                c.keep.append(t)
            c.leaves[id(t)] = (t, was_none)
            a = g._a
            if g._base is None and a.strides == t._a.strides and not any(leaf._grad is not None and leaf._grad._a is a for leaf, _ in c.leaves.values()) \
                    and c.view(g).buffer.kind == "temp":
                t._grad = wrap(a)
            else:
                f = execute.hooks.function
                t._grad = f("clone")(g.detach()) if a.strides == t._a.strides else f("empty_like")(t.detach()).copy_(g.detach())
        else:
            if id(t) not in c.leaves:
                c.grown[id(t)] = t
                c.keep.append(t)
            t._grad.add_(g)
        return None

    apply = O.ElementwiseOptimizer._apply

    def applying(self: Any, group: dict, rule: Any, params: list, grads: list, states: list, scalars: dict) -> None:
        if execute.capture[0] is c:
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

    schedulers = sys.modules.get("rushlight.optim.lr_scheduler")
    restore_scheduler = None
    if schedulers is not None:
        base = schedulers.LRScheduler
        original_step = base.step

        def stepping(self: Any, *a: Any, **k: Any) -> Any:
            c.fail("a learning-rate scheduler steps within the call: step it outside")
            return original_step(self, *a, **k)
        base.step = stepping
        restore_scheduler = (base, original_step)
    nd = generate.G["ND"]
    watch = Watch(fn)
    for n in _READS:
        setattr(Tensor, n, reading(n))
    engine.accumulate = accumulating  # type: ignore[assignment]
    O.ElementwiseOptimizer._apply = applying  # type: ignore[method-assign]
    generate.G["ND"] = _Closed
    for t in tensors:
        b = c.buffer(t._a, "external", t)
        b.argument = 0
    try:
        with watch:
            execute.capture[0] = c
            try:
                result = fn(*args, **kwargs)
            finally:
                execute.capture[0] = None
    finally:
        generate.G["ND"] = nd
        O.ElementwiseOptimizer._apply = apply  # type: ignore[method-assign]
        engine.accumulate = accumulate  # type: ignore[assignment]
        for n in _READS:
            setattr(Tensor, n, before[n])
        if restore_scheduler is not None:
            restore_scheduler[0].step = restore_scheduler[1]
    return result, watch


def compile_function(fn: Callable, fullgraph: bool = False) -> Compiled:
    return Compiled(fn, fullgraph)


