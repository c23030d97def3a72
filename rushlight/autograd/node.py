"""The nodes of the tape.

A node belongs to one call of one operator. `next` holds, for each differentiable operand, the node that made it (an
AccumulateGrad for a leaf, None if no gradient is wanted); `saved` what the gradient's formulas read (None once freed).
Nodes hold no operand that no formula reads. `seq` grows with every node, so that descending `seq` is a valid order for
backward. An operator with several results has one `Output` node per result in front of its own node.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable
from itertools import count
from typing import Any

from ..core.errors import Place, describe
from ..core.tensor import MAYBE, Tensor, hooks, inference, wrap
from .modes import modes

__all__ = ["Node", "AccumulateGrad", "Output", "Saved", "TensorMeta", "edge", "save", "save_result", "unpack", "freed", "next_seq",
           "attach", "attach_many", "RemovableHandle", "saved_hooks", "hooks_epoch"]

next_seq = count(1).__next__
hooks_epoch: list[int] = [0]     # moves when a hook of a tensor or node is registered or removed; compiled programs compare it
_new = object.__new__


class RemovableHandle:
    """Takes a hook out again: `handle.remove()`, or at the end of a `with` block."""

    def __init__(self, table: dict, key: int | None = None) -> None:
        self.id = next_seq() if key is None else key
        self._table = weakref.ref(table) if hasattr(table, "__weakref__") else (lambda: table)
        hooks_epoch[0] += 1

    def remove(self) -> None:
        hooks_epoch[0] += 1
        table = self._table()
        if table is not None:
            table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class TensorMeta:
    """What a formula may want of an operand it does not read: `shape`, `dtype`, `strides`."""

    __slots__ = ("shape", "dtype", "array_dtype", "strides", "contiguous")

    def __init__(self, t: Tensor) -> None:
        a = t._a
        self.shape, self.array_dtype, self.strides, self.dtype = a.shape, a.dtype, a.strides, t.dtype


class Node:
    """One call of an operator on the tape."""

    __slots__ = ("seq", "next", "saved", "where", "__dict__", "__weakref__")
    seq: int
    next: tuple
    saved: Any
    is_accumulator = False
    custom = False                     # made by a custom function
    frees = True                       # whether it saves tensors, which backward frees
    index = 0
    outputs = 1
    pre_hooks: dict | None = None      # on the gradient that arrives: tensor hooks, Node.register_prehook
    post_hooks: dict | None = None
    retained: Any = None               # weak reference to the tensor that retain_grad() was called on
    where: Place | None                # the user's line, when something is saved or anomaly mode is on

    def backward(self, grad: Any, next: tuple) -> tuple:
        raise NotImplementedError

    @property
    def public(self) -> Node:
        """The node as `grad_fn` shows it."""
        return self

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple:
        """((node, output number), ...) of the operands."""
        return tuple((None, 0) if n is None else (n.public, n.index) for n in self.next)

    @property
    def metadata(self) -> dict:
        return self.__dict__.setdefault("_metadata", {})

    @property
    def _sequence_nr(self) -> int:
        return self.seq

    def register_hook(self, fn: Callable) -> RemovableHandle:
        """`fn(grad_inputs, grad_outputs)` after the node ran; may return replacements for grad_inputs."""
        if self.post_hooks is None:
            self.post_hooks = {}
        h = RemovableHandle(self.post_hooks)
        self.post_hooks[h.id] = fn
        return h

    def register_prehook(self, fn: Callable) -> RemovableHandle:
        """`fn(grad_outputs)` before the node runs; may return replacements."""
        return self._pre(("node", fn))

    def _pre(self, entry: tuple) -> RemovableHandle:
        if self.pre_hooks is None:
            self.pre_hooks = {}
        h = RemovableHandle(self.pre_hooks)
        self.pre_hooks[h.id] = entry
        if entry[0] == "tensor":    # hooks of the tensor come before those of the node
            later = [(k, e) for k, e in self.pre_hooks.items() if e[0] == "node"]
            for k, e in later:
                del self.pre_hooks[k]
                self.pre_hooks[k] = e
        return h

    def take_retained(self, old: Node | None) -> None:
        """After an in-place operation `retain_grad` means the new value: this node's gradient, no longer that of `old`."""
        if old is not None and old is not self and old.retained is not None:
            self.retained, self.retains = old.retained, True  # type: ignore[attr-defined]
            old.retained = None

    def __call__(self, *grads: Any) -> Any:
        """Run the node by hand: gradients of the results in, gradients of the operands out."""
        r = self.backward(grads[0] if self.outputs == 1 else list(grads), self.next)
        return r[0] if len(r) == 1 else r

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return self._saved_value(name[7:])
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _saved_value(self, name: str) -> Any:
        names = getattr(type(self), "saved_names", ())
        key = {"self": "input"}.get(name, name)
        if key not in names:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '_saved_{name}'")
        if self.saved is None:
            raise freed()
        return unpack(self.saved[names.index(key)], self)


class AccumulateGrad(Node):
    """The end of the tape at a leaf: adds what arrives to the leaf's `.grad`."""

    __slots__ = ("ref",)
    is_accumulator = True
    after_hooks: dict | None = None

    def __init__(self, t: Tensor) -> None:
        self.ref = weakref.ref(t)
        self.seq, self.next, self.saved, self.where = 0, (), (), None

    @property
    def variable(self) -> Tensor | None:
        return self.ref()

    def backward(self, grad: Any, next: tuple = ()) -> tuple:
        t = self.ref()
        if t is not None:
            from .engine import accumulate
            accumulate(t, grad)
        return ()


class Output(Node):
    """One of several results of an operator; `next[0]` is the operator's node."""

    def __init__(self, parent: Node, index: int) -> None:
        self.seq, self.next, self.saved, self.where, self.index = next_seq(), (parent,), (), None, index

    @property
    def public(self) -> Node:
        return self.next[0]

    def name(self) -> str:
        return self.next[0].name()


class Saved:
    """A tensor as it was when a formula asked for it: array, version, and the tensor itself unless it is the node's own result
    (which would tie a knot that only the garbage collector undoes)."""

    __slots__ = ("tensor", "array", "count", "at", "rg", "index")

    def __init__(self, tensor: Any, array: Any, count: Any, at: int, rg: bool, index: int = 0) -> None:
        self.tensor, self.array, self.count, self.at, self.rg, self.index = tensor, array, count, at, rg, index


class Packed:
    """A saved tensor that went through saved_tensors_hooks."""

    __slots__ = ("value", "unpack", "rg", "index", "is_result", "node")

    def __init__(self, value: Any, unpack: Callable, node: Any, is_result: bool, index: int) -> None:
        self.value, self.unpack, self.node, self.is_result, self.index = value, unpack, node, is_result, index


saved_hooks: list[tuple[Callable, Callable, int]] = []     # (pack, unpack, thread) of the hooks that are on, in any thread


def _hooks_here() -> tuple[Callable, Callable, int] | None:
    me = get_ident()
    return next((h for h in reversed(saved_hooks) if h[2] == me), None)


def _packed(x: Tensor, h: tuple, node: Any, is_result: bool, index: int = 0) -> Packed:
    before, modes.grad = modes.grad, False
    try:
        return Packed(h[0](x), h[1], node, is_result, index)
    finally:
        modes.grad = before


def save(x: Any) -> Any:
    """An operand for later; numbers and None as they are."""
    if not isinstance(x, Tensor):
        return [save(y) for y in x] if x.__class__ in (list, tuple) and x and isinstance(x[0], Tensor) else x
    if saved_hooks and (h := _hooks_here()) is not None:
        return _packed(x, h, edge(x) if x._rg else None, False)
    s = _new(Saved)
    s.tensor, s.array = x, x._a
    v = x._v
    s.at = 0 if v is None else v[0]
    s.count = None
    return s


def save_checked(x: Any) -> Any:
    """`save`, once there may be inference tensors. RuntimeError for these."""
    for t in x if x.__class__ in (list, tuple) else (x,):
        if isinstance(t, Tensor):
            inference.check_save(t)
    return save(x)


def save_result(t: Tensor, index: int = 0) -> Any:
    """A result of the node that is being recorded."""
    if saved_hooks and (h := _hooks_here()) is not None:
        return _packed(t.detach(), h, None, True, index)
    s = _new(Saved)
    v = t._v
    if v is None:
        v = t._v = [0, 0, None]
    s.tensor, s.array, s.count, s.at, s.index = None, t._a, v, v[0], index
    return s


def unpack(s: Any, node: Node) -> Any:
    """The saved value as a tensor. RuntimeError if its memory was written to since it was saved."""
    c = s.__class__
    if c is not Saved:
        if c is list:
            return [unpack(x, node) for x in s]
        return _unpack_packed(s, node) if c is Packed else s
    t = s.tensor
    if t is None:
        v = s.count
        if v[0] != s.at:
            raise _overwritten(s.array, v[0], s.at, v[2], node, True)
        r = wrap(s.array)
        if modes.grad:
            r._v = v
            r._rg = True
            r._node = node if node.outputs == 1 else _output_of(node, s.index)
        return r
    v = t._v
    if v is not None and v[0] != s.at:
        raise _overwritten(s.array, v[0], s.at, v[2], node, False)
    if t._a is not s.array:
        return wrap(s.array)
    return t


def _unpack_packed(p: Packed, node: Node) -> Any:
    t = p.unpack(p.value)
    if not isinstance(t, Tensor):
        raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}")
    if modes.grad:
        if p.is_result:
            t = t.detach()
            t._rg, t._node = True, node if node.outputs == 1 else _output_of(node, p.index)
        elif p.node is not None and not (t._rg and t._node is p.node):
            t = t.detach()
            t._rg, t._node = True, p.node
    return t


def _output_of(node: Node, index: int) -> Node:
    for ref in node.__dict__.get("output_nodes", ()):
        o = ref()
        if o is not None and o.index == index:
            return o
    o = Output(node, index)
    return o


def _overwritten(a: Any, now: int, then: int, at: Place | None, node: Node, output: bool) -> RuntimeError:
    from ..core.dtype import of
    kind = {"float32": "FloatTensor", "float64": "DoubleTensor"}.get(of(a.dtype).name, "Tensor")
    what = f"is {'output 0 of ' + node.name() + ', ' if output else ''}at version {now}; expected version {then} instead."
    return RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{kind} {list(a.shape)}], which {what}\n"
        f"  saved for {node.name()} at {describe(node.where)}\n"
        f"  overwritten at {describe(at)}\n"
        "Hint: make the later operation out of place (x = x + y instead of x += y), or clone() the tensor first.")


def freed() -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
        "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you "
        "need to backward through the graph a second time or if you need to access saved tensors after calling backward.")


def edge(t: Tensor) -> Any:
    """The node behind a tensor whose `_rg` is not False; None if it turns out not to require grad."""
    if t._base is not None:
        v = t._v
        if v[1] != t._vg and v[1]:
            hooks.regenerate(t)
        if t._rg is MAYBE:
            return None
    return t._node


def attach(t: Tensor, node: Node) -> None:
    """Make `node` the origin of the fresh tensor `t`."""
    t._node = node
    t._rg = True


def attach_many(tensors: tuple, node: Node, differentiable: tuple | None = None) -> None:
    """Make `node` the origin of several fresh tensors (those that are None or of integers get no history)."""
    refs = []
    for i, t in enumerate(tensors):
        if t is None or (differentiable is not None and not differentiable[i]) or t.dtype.category < 2:
            continue
        o = Output(node, i)
        t._node, t._rg = o, True
        refs.append(weakref.ref(o))
    node.output_nodes = refs  # type: ignore[attr-defined]


hooks.accumulator = AccumulateGrad
