"""Custom functions: `Function` in the style of today (static forward and backward with a context) and of 0.3 (instances).

One class serves both. A subclass whose `forward` is a staticmethod is called as `F.apply(...)`; one whose `forward` is an
instance method is called as `F(...)(...)`, and the instance itself is the context.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from rushlight import _missing

from ..core.errors import place
from ..core.tensor import Tensor, bump, hooks, view_of, wrap
from .modes import modes
from .node import Node, Output, TensorMeta, edge, freed, next_seq, save_checked, save_result, unpack

__all__ = ["Function", "FunctionCtx", "NestedIOFunction", "once_differentiable", "Variable"]


class FunctionCtx:
    """What forward leaves for backward."""

    _to_save: tuple = ()
    _dirty: tuple = ()
    _non_differentiable: tuple = ()
    materialize_grads = True
    needs_input_grad: tuple = ()
    _node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs or outputs of forward for backward; read them there as `saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """The inputs that forward wrote to; it must return them."""
        self._dirty = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Accepted: sharing is found without being told."""

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """The outputs that have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients of unused outputs arrive as zeros (True) or as None."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple:
        """What was saved. RuntimeError if it was written to since, or freed."""
        node = None if self._node is None else self._node()  # weak, so that node and context do not keep each other alive
        if node is None:
            return self._to_save
        if node.saved is None:
            raise freed()
        return tuple(unpack(s, node) for s in node.saved)

    saved_variables = saved_tensors


class FunctionNode(Node):
    """The tape's node for one call of a custom function."""

    __slots__ = ()
    custom = True
    ctx: Any
    metas: tuple
    count: int

    @property
    def public(self) -> Any:
        return self.ctx if isinstance(self.ctx, Node) else self

    def name(self) -> str:
        return type(self.ctx).__name__ if isinstance(self.ctx, Function) else type(self).__name__

    def __getattr__(self, name: str) -> Any:
        ctx = self.__dict__.get("ctx")
        if ctx is not None and name != "ctx":
            try:
                return getattr(ctx, name)
            except AttributeError:
                pass
        return Node.__getattr__(self, name)

    def backward(self, grad: Any, next: tuple) -> tuple:
        ctx = self.ctx
        grads = list(grad) if self.outputs > 1 else [grad]
        if ctx.materialize_grads:
            for i, g in enumerate(grads):
                if g is None and self.metas[i] is not None:
                    m = self.metas[i]
                    grads[i] = hooks.function("zeros")(m.shape, dtype=m.dtype)
        r = self.call(ctx, grads)
        r = r if isinstance(r, tuple) else (r,)
        if len(r) > self.count:
            if any(x is not None for x in r[self.count:]):
                raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {self.count}, got {len(r)})")
            r = r[:self.count]
        if len(r) != self.count:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {self.count}, got {len(r)})")
        out: list[Any] = []
        tensors = {k for k, _ in self.inputs}  # type: ignore[attr-defined]
        for k, g in enumerate(r):
            if g is not None and k not in tensors:
                raise RuntimeError(f"function {self.name()} returned a gradient different than None at position {k + 1}, but the corresponding "
                                   "forward input was not a Variable")
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"function {self.name()}: expected Variable or None (got {type(g).__name__}) at position {k + 1}")
        for i, (k, m) in enumerate(self.inputs):  # type: ignore[attr-defined]
            g = r[k]
            if g is None or next[i] is None:
                out.append(None)
                continue
            if g.dtype.is_complex and not m.dtype.is_complex:
                raise RuntimeError(f"Function {self.name()} returned an invalid gradient at index {k} - expected a real one (dtype {m.dtype!r}) but got "
                                   f"{g.dtype!r}")
            if g._a.shape != m.shape:
                g = self.fit(g, m, k)
            if g._a.dtype != m.array_dtype:
                g = g.to(m.dtype)
            out.append(g)
        return tuple(out)

    def fit(self, g: Tensor, m: TensorMeta, k: int) -> Tensor:
        from ..ops.generate import sum_to
        have, want = g._a.shape, m.shape
        lead = len(have) - len(want)
        if lead < 0 or any(n not in (1, h) for n, h in zip(want, have[lead:], strict=True)):
            raise RuntimeError(f"Function {self.name()} returned an invalid gradient at index {k} - got {list(have)} but expected shape compatible with {list(want)}")
        return sum_to(g, want)

    def call(self, ctx: Any, grads: list[Any]) -> Any:
        return type(ctx)._owner.backward(ctx, *grads)


class _OldNode(FunctionNode):
    __slots__ = ()

    def call(self, ctx: Any, grads: list[Any]) -> Any:
        with _no_grad():
            r = ctx.backward(*[g.detach() for g in grads])
        return r


class _no_grad:
    def __enter__(self) -> None:
        self.before, modes.grad = modes.grad, False

    def __exit__(self, *exc: object) -> None:
        modes.grad = self.before


def _is_static(cls: type) -> bool:
    for c in cls.__mro__:
        if "forward" in c.__dict__:
            return isinstance(c.__dict__["forward"], (staticmethod, classmethod))
    return False


class Function(FunctionCtx):
    """An operation of one's own: `forward` computes, `backward` gives the gradients of the inputs, one for each.

    New style: both are static methods with a context first, called by `apply`. Old style (0.3): methods of an instance, whose
    constructor takes what is no tensor, called as `MyFunction(args)(tensors)`.
    """

    generate_vmap_rule = False
    _context_class: Any = None
    _owner: Any = None

    @staticmethod
    def forward(*args: Any, **kw: Any) -> Any:
        """Computes. New style: `forward(ctx, *inputs)`, or `forward(*inputs)` beside `setup_context(ctx, inputs, output)`."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs from those of the outputs."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with backward "
                                  "mode AD.")

    vjp = backward

    @classmethod
    def _context(cls) -> Any:
        c = cls.__dict__.get("_context_class")
        if c is None:
            c = type(cls.__name__ + "Backward", (FunctionCtx,), {"_owner": cls, "__module__": cls.__module__})
            cls._context_class = c
        return c()

    @classmethod
    def apply(cls, *args: Any, **kw: Any) -> Any:
        """Run forward and record it."""
        if not _is_static(cls):
            raise RuntimeError(f"{cls.__name__} is a function in the old style (forward is no staticmethod): call it as {cls.__name__}(...)(inputs)")
        owner = cls
        if cls.backward is Function.backward and cls.vjp is not Function.vjp:
            cls.backward = staticmethod(cls.vjp)  # type: ignore[method-assign]
        ctx = owner._context()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recording = modes.grad and any(ctx.needs_input_grad)
        with _no_grad():
            if "setup_context" in {n for c in cls.__mro__[:-2] for n in c.__dict__ if c is not Function}:
                out = cls.forward(*args, **kw)
                cls.setup_context(ctx, args, out)  # type: ignore[attr-defined]
            else:
                out = cls.forward(ctx, *args, **kw)
        return _finish(ctx, cls.__name__, FunctionNode, args, out, recording)

    def __call__(self, *args: Any) -> Any:
        if _is_static(type(self)):
            raise RuntimeError(f"{type(self).__name__} has static forward and backward: call {type(self).__name__}.apply(...)")
        for a in args:
            if not isinstance(a, Tensor):
                raise TypeError(f"expected a Variable or Tensor argument, but got {type(a).__name__}: pass what is no tensor to the constructor of "
                                f"{type(self).__name__}")
        self.needs_input_grad = tuple(a.requires_grad for a in args)
        recording = modes.grad and any(self.needs_input_grad)
        with _no_grad():
            plain = [a.detach() if a.requires_grad else a for a in args]
            out = self.forward(*plain)
        given = {id(p): a for p, a in zip(plain, args, strict=True)}      # what forward names by the plain tensor is the argument
        self._to_save = tuple(next((a for a in args if s is not None and a._a is s._a), s) for s in self._to_save)
        self._dirty = tuple(given.get(id(t), t) for t in self._dirty)
        if isinstance(out, (tuple, list)):
            out = type(out)([given.get(id(o), o) for o in out])
        else:
            out = given.get(id(out), out)
        return _finish(self, type(self).__name__, _OldNode, args, out, recording)


Function.__init__ = object.__init__  # type: ignore[method-assign]


def _finish(ctx: Any, name: str, kind: type, args: tuple, out: Any, recording: bool) -> Any:
    single = not isinstance(out, (tuple, list))
    outs = [out] if single else list(out)
    dirty = {id(t) for t in ctx._dirty}
    if dirty - {id(t) for t in outs}:
        raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace "
                           "must all be outputs of the Function.")
    for t in ctx._dirty:
        if not any(t is a for a in args if isinstance(a, Tensor)):
            raise RuntimeError("mark_dirty only accepts input tensors, but argument is not an input")
        if recording and t.requires_grad and t.is_leaf:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if recording and t._base is not None and len(outs) > 1:
            raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one "
                               "Tensor: clone() the input, or return only one")
        bump(t)
    if not recording:
        return out if single else type(out)(outs)
    cls = ctx.__class__
    nodes = cls.__dict__.get("_node_class")
    if nodes is None:
        nodes = type(name + "Backward", (kind,), {"__slots__": ()})
        cls._node_class = nodes
    n = nodes()
    n.seq = next_seq()
    n.ctx = ctx
    n.count = len(args)
    tensors = [(k, a) for k, a in enumerate(args) if isinstance(a, Tensor)]
    n.next = tuple(edge(a) if a._rg else None for _, a in tensors)
    n.inputs = [(k, TensorMeta(a)) for k, a in tensors]
    n.where = place()
    inputs = {id(a) for _, a in tensors}
    quiet = {id(t) for t in ctx._non_differentiable}
    results: list[Any] = []
    made: dict[int, int] = {}
    for i, t in enumerate(outs):
        if not isinstance(t, Tensor):
            if t is not None and kind is FunctionNode:
                results.append(t)
                continue
            results.append(t)
            continue
        made[id(t)] = i
        if id(t) in dirty:
            results.append(t)
        elif id(t) in inputs or t._base is not None:
            r = view_of(t._a, t)    # must not be written to: that would pass by the function's own backward
            r._vg, r._rg = -1 - r._v[1], False
            results.append(r)
        else:
            results.append(t.detach() if t._rg else t)
    n.outputs = len(outs)
    n.metas = tuple(TensorMeta(t) if isinstance(t, Tensor) else None for t in outs)
    refs = []
    for i, t in enumerate(results):
        if not isinstance(t, Tensor) or id(outs[i]) in quiet or t.dtype.category < 2:
            continue
        node: Node = n
        if len(outs) > 1:
            node = Output(n, i)
            refs.append(weakref.ref(node))
        if id(outs[i]) in dirty and t._base is not None:
            from ..ops.inplace import set_history
            set_history(t, node, next(j for j, (_, a) in enumerate(tensors) if a is t))
        else:
            if id(outs[i]) in dirty:
                node.take_retained(t._node)
                t._v[1] += 1        # its views find their node again
            t._node, t._rg = node, True
    n.output_nodes = refs
    n.saved = tuple(save_result(results[made[id(t)]], made[id(t)]) if t is not None and id(t) in made else save_checked(t) for t in ctx._to_save)
    ctx._node = weakref.ref(n)
    if ctx._to_save:
        ctx._to_save = (True,)
    return results[0] if single else type(out)(results)


def once_differentiable(fn: Callable) -> Callable:
    """For a backward that cannot itself be differentiated: a second derivative is a RuntimeError."""
    import functools

    @functools.wraps(fn)
    def wrapped(ctx: Any, *args: Any) -> Any:
        recording = modes.grad and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        with _no_grad():
            out = fn(ctx, *args)
        if not recording:
            return out
        outs = out if isinstance(out, tuple) else (out,)

        class Refuse(Node):
            __slots__ = ()

            def backward(self, grad: Any, next: tuple) -> tuple:
                raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

        made = []
        for o in outs:
            if isinstance(o, Tensor) and o.dtype.category >= 2:
                o = wrap(o._a)
                r = Refuse()
                r.seq, r.next, r.saved, r.where = next_seq(), (), (), None
                o._node, o._rg = r, True
            made.append(o)
        return tuple(made) if isinstance(out, tuple) else made[0]
    return wrapped


class NestedIOFunction(Function):
    """Kept for the name: functions whose inputs and outputs are nested."""


def _variable(data: Any = None, requires_grad: bool = False, volatile: bool = False, **kw: Any) -> Tensor:
    """A tensor that takes part in autograd; `volatile` is accepted and has no effect any more."""
    if volatile:
        import warnings
        if requires_grad:
            raise ValueError("Variable can't be volatile and require_grad at the same time!")
        warnings.warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", UserWarning, stacklevel=3)
    if data is None:
        data = hooks.function("empty")(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
    t = data.detach()
    return t.requires_grad_() if requires_grad else t


class _VariableMeta(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor)

    def __call__(cls, *args: Any, **kw: Any) -> Tensor:
        return _variable(*args, **kw)


class Variable(metaclass=_VariableMeta):
    """`Variable(data, requires_grad=False, volatile=False)`: today a tensor; `isinstance(x, Variable)` holds for every tensor."""


_missing.hint(__name__)
