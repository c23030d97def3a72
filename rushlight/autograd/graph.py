"""`torch.autograd.graph`: the tape's nodes and edges, and hooks on what the tape saves."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rushlight import _missing

from ..core.tensor import Tensor, bump
from .modes import modes
from .node import Node, RemovableHandle, _output_of, edge, saved_hooks

__all__ = ["saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks", "register_multi_grad_hook", "allow_mutation_on_saved_tensors",
           "Node", "GradientEdge", "get_gradient_edge", "increment_version"]


class GradientEdge(NamedTuple):
    """A place on the tape where the gradient of a tensor arrives: a node and the number of its output. `backward` and `grad` take
    it in place of the tensor."""

    node: Node
    output_nr: int
    ownership_token: Any = None      # keeps alive what the node itself does not hold


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge of a tensor: `grad(loss, get_gradient_edge(x))` is `grad(loss, x)` without holding on to x.
    RuntimeError for a tensor that does not require grad."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    n = edge(tensor)
    return GradientEdge(n.public, n.index, None if n.public is n else n)


def node_of(x: Tensor | GradientEdge) -> Node:
    """The tape's own node for a tensor that requires grad, or for an edge."""
    if isinstance(x, Tensor):
        return edge(x)
    if isinstance(x.ownership_token, Node):
        return x.ownership_token
    return x.node if x.node.outputs == 1 else _output_of(x.node, x.output_nr)


class saved_tensors_hooks:
    """While it is entered, in this thread: what is saved for backward goes through `pack_hook(tensor)`, and what that returns through
    `unpack_hook`, which must give a tensor of the same value, when backward needs it. RuntimeError while hooks are disabled."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> Any:
        if modes.no_hooks is not None:
            raise RuntimeError(modes.no_hooks)
        saved_hooks.append((self.pack_hook, self.unpack_hook, get_ident()))
        return None

    def __exit__(self, *exc: object) -> None:
        me = get_ident()
        del saved_hooks[max(i for i, h in enumerate(saved_hooks) if h[2] == me)]


class save_on_cpu(saved_tensors_hooks):
    """Tensors of other devices are kept on the CPU until backward needs them; on the CPU they stay as they are."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> tuple:
            return t.device, t.cpu() if t.device.type != "meta" else t

        def unpack(packed: tuple) -> Tensor:
            device, t = packed
            return t if t.device == device else t.to(device, non_blocking=pin_memory)
        super().__init__(pack, unpack)


class disable_saved_tensors_hooks:
    """While it is entered, using hooks on saved tensors is a RuntimeError with this message. Also a decorator."""

    def __init__(self, error_message: str) -> None:
        self.message = error_message
        self.before: list[str | None] = []

    def __enter__(self) -> None:
        self.before.append(modes.no_hooks)
        modes.no_hooks = self.message

    def __exit__(self, *exc: object) -> None:
        modes.no_hooks = self.before.pop()

    def __call__(self, fn: Callable) -> Callable:
        from functools import wraps

        @wraps(fn)
        def wrapped(*args: Any, **kw: Any) -> Any:
            with disable_saved_tensors_hooks(self.message):
                return fn(*args, **kw)
        return wrapped


class _Copies:
    """What `allow_mutation_on_saved_tensors` hands out; `clear()` is there for PyTorch's interface."""

    def clear(self) -> None:
        """Nothing is held here: the copies belong to the graph."""


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """While it is entered, tensors that backward needs may be written to: what is saved is a copy."""

    def __init__(self) -> None:
        super().__init__(lambda t: t.detach().clone(), lambda t: t)

    def __enter__(self) -> _Copies:
        super().__enter__()
        return _Copies()


class _Handles:
    """Takes several hooks out at once."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for h in self.handles:
            h.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _Handles:
    """`fn(grads)` once in a backward pass, when the gradients of all those `tensors` that take part in it are there (None for the
    others). With mode "any", `fn(grad)` for the first of them. The handle's `remove()` takes the hook out."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    key = object()
    if mode == "any":
        def first(grad: Tensor) -> None:
            notes = modes.task.__dict__
            if key not in notes:
                notes[key] = True
                fn(grad)
        return _Handles([t.register_hook(first) for t in tensors if t.requires_grad])
    nodes = [edge(t) for t in tensors]

    def hook(i: int) -> Callable:
        def arrived(grad: Tensor) -> None:
            task = modes.task
            state = task.__dict__.get(key)
            if state is None:
                state = task.__dict__[key] = [[None] * len(nodes), sum(task.will_run(n) for n in nodes)]
            state[0][i] = grad
            state[1] -= 1
            if state[1] == 0:
                fn(state[0])
        return arrived
    return _Handles([t.register_hook(hook(i)) for i, t in enumerate(tensors)])


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to the memory of a tensor (or of several) that was made by other means, so that backward notices it."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        bump(t)


_missing.hint(__name__)
