"""The engine: walks the tape backwards.

`run` collects the nodes that lead from the roots to where gradients are wanted, orders them by descending `seq` (a node is
always made after the nodes of its operands), and hands each the sum of what arrived. Gradients of several paths add up in
`buffers`; a buffer that the engine made itself is added to in place.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ..backends.sparse import SparseArray
from ..core.errors import describe
from ..core.tensor import Tensor, bump, hooks, ndarray, wrap
from .modes import modes
from .node import AccumulateGrad, Node, Output, RemovableHandle, edge

__all__ = ["backward", "grad", "run", "accumulate"]

_seq = attrgetter("seq")
capturing: list[Any] = [None]    # execute.capture: while a capture is active everything goes through operators


def _op(name: str) -> Any:
    return hooks.function(name)


def _holders(t: Any, g: Any) -> tuple[int, int]:
    a = g._a
    return sys.getrefcount(g), sys.getrefcount(a)


def _calibrate() -> tuple[int, int]:
    """What `accumulate` counts for a gradient that nobody else holds: how references are counted depends on the interpreter."""
    g = wrap(np.zeros(1))
    return _holders(None, g)


ALONE, ALONE_ARRAY = _calibrate()


# Passes of several threads may end at one leaf: reading its gradient and writing the sum is one act.
_adding = threading.RLock()


def _fresh_lock() -> None:
    global _adding
    _adding = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def accumulate(t: Tensor, g: Tensor) -> None:
    """Add `g` to `t.grad`; a gradient that nobody else holds becomes the `.grad` itself."""
    with _adding:
        old = t._grad
        if old is None:
            a = g._a
            if modes.grad:
                t._grad = g if g._rg else _op("clone")(g)
            elif (a.__class__ is ndarray and g._base is None and a.strides == t._a.strides and a.flags.writeable
                  and sys.getrefcount(g) <= ALONE and sys.getrefcount(a) <= ALONE_ARRAY):
                t._grad = wrap(a)
            else:
                d = g.detach()
                same = a.strides == t._a.strides or isinstance(a, SparseArray)       # a sparse gradient stays one
                t._grad = _op("clone")(d) if same else _op("empty_like")(t.detach()).copy_(d)
            return
        if modes.grad:
            t._grad = _added(old, g)
        else:
            a = old._a
            b = g._a
            if a.__class__ is ndarray and b.__class__ is ndarray and not capturing[0] and a.dtype is b.dtype and a.shape == b.shape and a.flags.writeable and a.flags.forc:
                with np.errstate(all="ignore"):
                    np.add(a, b, out=a)
                bump(old)
            elif isinstance(a, SparseArray):
                t._grad = _added(old, g)
            else:
                old.add_(g)


def _added(a: Any, b: Any) -> Any:
    """Two gradients of one tensor; the sum of a sparse and a dense one is dense."""
    if isinstance(a._a, SparseArray) and not isinstance(b._a, SparseArray):
        a, b = b, a
    return _op("add")(a, b)


class Task:
    """A pass of the engine that is under way: the nodes it may run, of which only the `wanted` ones do, and notes of hooks."""

    __slots__ = ("nodes", "wanted", "__dict__")

    def __init__(self, nodes: set[Node], wanted: set[Node] | None) -> None:
        self.nodes, self.wanted = nodes, wanted

    def will_run(self, n: Node) -> bool:
        return n in self.nodes and (self.wanted is None or n in self.wanted)


def run(roots: Sequence[tuple[Node, Any]], keep: bool, create: bool, targets: dict[Node, Any] | None = None,
        only_leaves: bool = False) -> None:
    """Run the tape from `roots` (pairs of node and gradient). With `targets`, a dict whose keys are the nodes where gradients are
    wanted, these are put into it and nothing is accumulated (unless `only_leaves`: then they are leaves that accumulate)."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [n for n, _ in roots]
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        order.append(n)
        for m in n.next:
            if m is not None and m not in seen:
                stack.append(m)
    order.sort(key=_seq, reverse=True)
    wanted: set[Node] | None = None
    if targets is not None:
        wanted = set(targets)
        for n in reversed(order):
            for m in n.next:
                if m in wanted:
                    wanted.add(n)
                    break
    buffers: dict[Node, Any] = {}
    owned: set[Node] = set()
    for n, g in roots:
        _put(buffers, owned, n, g)
    before, outer = modes.grad, modes.task
    modes.grad, modes.task = create, Task(seen, wanted)
    try:
        for n in order:
            g = buffers.pop(n, None)
            if g is None or (wanted is not None and n not in wanted):
                continue
            if n.pre_hooks is not None:
                g = _pre_hooks(n, g)
            if n.retained is not None:
                t = n.retained()
                if t is not None:
                    t._grad = _op("add")(t._grad, g) if t._grad is not None else _op("clone")(g if create else g.detach())
                t = None
            if targets is not None and n in targets and not only_leaves:
                targets[n] = g
                if n.is_accumulator:
                    continue
            cls = n.__class__
            if cls is Output:
                parent = n.next[0]
                slots = buffers.get(parent)
                if slots is None:
                    slots = buffers[parent] = [None] * parent.outputs
                i = n.index
                slots[i] = g if slots[i] is None else _added(slots[i], g)
                continue
            if cls is AccumulateGrad:
                t = n.ref()  # type: ignore[attr-defined]
                if t is not None:
                    accumulate(t, g)
                    if n.after_hooks is not None:  # type: ignore[attr-defined]
                        for h in list(n.after_hooks.values()):  # type: ignore[attr-defined]
                            h(t)
                    t = None
                if n.post_hooks is not None:
                    _post_hooks(n, (), g)
                continue
            nxt = n.next
            if wanted is not None:
                nxt = tuple([m if m in wanted else None for m in nxt])
            if modes.anomaly:
                gs = _watched(n, g, nxt)
            else:
                gs = n.backward(g, nxt)
            if n.post_hooks is not None:
                gs = _post_hooks(n, gs, g)
            if not keep and n.saved and n.frees:
                n.saved = None
            for m, gi in zip(nxt, gs):
                if m is not None and gi is not None:
                    if m in buffers:
                        _put(buffers, owned, m, gi)
                    else:
                        buffers[m] = gi
            gs = gi = None     # so that `accumulate` sees whether anyone else holds a gradient
    finally:
        modes.grad, modes.task = before, outer


def _put(buffers: dict, owned: set, n: Node, g: Any) -> None:
    old = buffers.get(n)
    if old is None:
        buffers[n] = g
    elif n.outputs > 1:
        buffers[n] = [b if a is None else a if b is None else _added(a, b) for a, b in zip(old, g, strict=True)]
    elif n in owned and not modes.grad and not isinstance(old._a, SparseArray):
        old.add_(g)
    else:
        buffers[n] = _added(old, g)
        owned.add(n)


def _pre_hooks(n: Node, g: Any) -> Any:
    for kind, fn in list(n.pre_hooks.values()):  # type: ignore[union-attr]
        if kind == "tensor":
            r = fn(g)
            if r is not None:
                if not isinstance(r, Tensor):
                    raise TypeError(f"expected Variable, but hook returned '{type(r).__name__}'")
                if r._a.shape != g._a.shape:  # type: ignore[union-attr]
                    raise RuntimeError(f"hook '{getattr(fn, '__name__', fn)}' has changed the size of value")
                if r._a.dtype != g._a.dtype:  # type: ignore[union-attr]
                    raise RuntimeError(f"hook '{getattr(fn, '__name__', fn)}' has changed the type of value "
                                       f"(was {g.dtype!r}, got {r.dtype!r})")  # type: ignore[union-attr]
                g = r
        else:
            r = fn(tuple(g) if n.outputs > 1 else (g,))
            if r is not None:
                r = r if isinstance(r, tuple) else (r,)
                g = list(r) if n.outputs > 1 else r[0]
    return g


def _post_hooks(n: Node, gs: tuple, g: Any) -> tuple:
    outs = tuple(g) if n.outputs > 1 else (g,)
    for fn in list(n.post_hooks.values()):  # type: ignore[union-attr]
        r = fn(tuple(gs), outs)
        if r is not None:
            gs = r if isinstance(r, tuple) else (r,)
    return gs


def _watched(n: Node, g: Any, nxt: tuple) -> tuple:
    try:
        gs = n.backward(g, nxt)
    except Exception as e:
        e.add_note(f"Error detected in {n.name()}. Its forward ran at {describe(n.where)}")
        raise
    if modes.check_nan:
        for i, x in enumerate(gs):
            if isinstance(x, Tensor) and x._a.__class__ is ndarray and (x._a != x._a).any():
                raise RuntimeError(f"Function '{n.name()}' returned nan values in its {i}th output. "
                                   f"Its forward ran at {describe(n.where)}")
    return gs


def _roots(tensors: Sequence[Tensor], grads: Sequence[Any], create: bool) -> list[tuple[Node, Any]]:
    roots = []
    for i, (t, g) in enumerate(zip(tensors, grads, strict=True)):
        if not isinstance(t, Tensor):       # an edge
            if g is None:
                raise RuntimeError(f"element {i} of tensors is a GradientEdge: its gradient must be given")
            roots.append((node_of(t), g))
            continue
        if not t.requires_grad:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if t.numel() != 1:
                raise RuntimeError(f"grad can be implicitly created only for scalar outputs (got a tensor of shape {list(t.shape)}: "
                                   "pass gradient= of that shape, or reduce it first, e.g. .sum())")
            if not t.dtype.is_floating_point:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {t.dtype!r}")
            a = t._a
            g = wrap(np.ones(a.shape, a.dtype)) if a.__class__ is ndarray and not capturing[0] else _op("ones_like")(t.detach())
        else:
            if not isinstance(g, Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
            if g._a.shape != t._a.shape:
                raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}.")
            if g.dtype.is_complex != t.dtype.is_complex:
                raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. "
                                   f"Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype!r} and output[{i}] has a dtype of {t.dtype!r}.")
            if g.dtype is not t.dtype:
                g = g.to(t.dtype)
        roots.append((edge(t), g))
    return roots


def _tensors(x: Any, what: str) -> tuple[Tensor, ...]:
    xs = (x,) if isinstance(x, Tensor) or hasattr(x, "ownership_token") else tuple(x)
    for t in xs:
        if not isinstance(t, Tensor) and not hasattr(t, "ownership_token"):
            raise TypeError(f"{what} must be Tensors, got {type(t).__name__}")
    return xs


def node_of(x: Any) -> Node:
    if isinstance(x, Tensor):
        return edge(x)
    from .graph import node_of
    return node_of(x)


def _ends(inputs: Sequence[Any]) -> list[Node]:
    """The nodes at which the gradients of `inputs` (tensors and edges) arrive. RuntimeError for one that requires none."""
    if any(isinstance(t, Tensor) and not t.requires_grad for t in inputs):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return [node_of(t) for t in inputs]


def _grads(grads: Any, n: int) -> tuple:
    if grads is None:
        return (None,) * n
    gs = (grads,) if isinstance(grads, Tensor) else tuple(grads)
    if len(gs) != n:
        raise RuntimeError(f"got {n} tensors and {len(gs)} gradients")
    return gs


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Adds the derivatives of `tensors` (each weighted by its entry in `grad_tensors`; None for scalars) to the `.grad` of the leaves
    they depend on, or only of `inputs`. The graph is freed unless `retain_graph` (default: `create_graph`).

    RuntimeError: nothing requires grad, a missing or misshapen weight, a graph that was freed.
    """
    if grad_variables is not None:
        import warnings
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use "
                               "`grad_tensors`.")
        grad_tensors = grad_variables
    ts = _tensors(tensors, "tensors")
    roots = _roots(ts, _grads(grad_tensors, len(ts)), create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run(roots, keep, create_graph)
        return
    ins = _tensors(inputs, "inputs")
    if not ins:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    ends = _ends(ins)
    if any(not isinstance(t, Tensor) and not n.is_accumulator for t, n in zip(ins, ends, strict=True)):
        raise RuntimeError("backward() cannot accumulate at an edge that is no leaf's: pass the tensor, or use grad()")
    leaves = {n: None for n in ends if n.is_accumulator}
    others = {n: None for n in ends if not n.is_accumulator}
    if not others:
        run(roots, keep, create_graph, leaves, only_leaves=True)
        return
    targets: dict[Node, Any] = {**leaves, **others}
    run(roots, keep, create_graph, targets)
    for t, n in zip(ins, ends, strict=True):
        g = targets[n]
        t = t if isinstance(t, Tensor) else n.ref()
        if g is not None and t is not None:
            before, modes.grad = modes.grad, create_graph
            try:
                accumulate(t, g)
            finally:
                modes.grad = before


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple:
    """The derivatives of `outputs` (weighted by `grad_outputs`) by each of `inputs`, as a tuple; `.grad` is left alone.

    An input that the outputs do not depend on is a RuntimeError, or None with `allow_unused`, or zeros with `materialize_grads`.
    """
    ts = _tensors(outputs, "outputs")
    ins = _tensors(inputs, "inputs")
    if not ins:
        raise RuntimeError("grad requires non-empty inputs.")
    if not only_inputs:
        import warnings
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True).", FutureWarning, stacklevel=2)
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    if allow_unused is None:
        allow_unused = materialize_grads
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        gos = _grads(grad_outputs, len(ts))
        n = next(g for g in gos if g is not None).shape[0]
        parts = [grad(ts, ins, [None if g is None else g[i] for g in gos], True if i < n - 1 else keep, create_graph,
                      allow_unused=allow_unused, materialize_grads=materialize_grads) for i in range(n)]
        return tuple(None if p[0] is None else _op("stack")(list(p)) for p in zip(*parts, strict=True))
    roots = _roots(ts, _grads(grad_outputs, len(ts)), create_graph)
    ends = _ends(ins)
    targets: dict[Node, Any] = dict.fromkeys(ends)
    run(roots, keep, create_graph, targets)
    result = []
    for i, (t, n) in enumerate(zip(ins, ends, strict=True)):
        g = targets[n]
        if g is None:
            if materialize_grads and isinstance(t, Tensor):
                g = _op("zeros_like")(t.detach())
            elif not allow_unused:
                raise RuntimeError(f"One of the differentiated Tensors (input {i}) appears to not have been used in the graph. "
                                   "Set allow_unused=True if this is the desired behavior.")
        elif not create_graph and g._rg:
            g = g.detach()
        result.append(g)
    return tuple(result)


def _tensor_backward(t: Tensor, gradient: Any, retain_graph: bool | None, create_graph: bool, inputs: Any) -> None:
    backward(t, gradient, retain_graph, create_graph, inputs=inputs)


def register_hook(t: Tensor, fn: Any) -> RemovableHandle:
    """`fn(grad)` is called when the gradient of `t` is computed; a tensor that it returns takes its place."""
    if not t.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return edge(t)._pre(("tensor", fn))


def register_post_accumulate_grad_hook(t: Tensor, fn: Any) -> RemovableHandle:
    """`fn(tensor)` is called after the gradient of the leaf was added to its `.grad`."""
    if not t.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not t.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    n = edge(t)
    if n.after_hooks is None:
        n.after_hooks = {}
    h = RemovableHandle(n.after_hooks)
    n.after_hooks[h.id] = fn
    return h


def retain_grad(t: Tensor) -> None:
    """Keep the gradient of a non-leaf in `.grad`."""
    if not t.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if not t.is_leaf:
        import weakref
        n = edge(t)
        n.retained, n.retains = weakref.ref(t), True


Tensor.register_hook = register_hook  # type: ignore[attr-defined]
Tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook  # type: ignore[attr-defined]
Tensor.retain_grad = retain_grad  # type: ignore[attr-defined]
Tensor.retains_grad = property(lambda t: t._node is not None and not t.is_leaf  # type: ignore[attr-defined]
                               and getattr(t._node, "retains", False))
hooks.backward = _tensor_backward
