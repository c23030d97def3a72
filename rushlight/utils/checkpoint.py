"""Checkpointing: parts of a model whose intermediate tensors are computed again in the backward pass instead of kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import rushlight
from rushlight import _missing
from rushlight.autograd.function import Function
from rushlight.autograd.graph import saved_tensors_hooks
from rushlight.autograd.modes import modes
from rushlight.core.tensor import Tensor

__all__ = ["checkpoint", "checkpoint_sequential", "CheckpointError", "CheckpointFunction", "check_backward_validity",
           "noop_context_fn", "set_checkpoint_early_stop", "detach_variable"]

_early_stop: list[bool | None] = [None]


class CheckpointError(RuntimeError):
    """The computation of the backward pass is not that of the forward pass."""


class _Enough(Exception):
    """Everything that is needed has been computed again."""


def noop_context_fn() -> tuple[Any, Any]:
    """The default `context_fn`: nothing around forward and recomputation."""
    return nullcontext(), nullcontext()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within it, whether recomputations stop as soon as the last tensor is there, whatever the calls say."""
    before, _early_stop[0] = _early_stop[0], enable
    try:
        yield
    finally:
        _early_stop[0] = before


def check_backward_validity(inputs: Any) -> None:
    """Warns when none of `inputs` requires grad."""
    if not any(isinstance(i, Tensor) and i.requires_grad for i in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs: tuple) -> tuple:
    """The inputs with each tensor detached; what required grad does so again, as a leaf."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(i.detach().requires_grad_(i.requires_grad) if isinstance(i, Tensor) else i for i in inputs)


@contextmanager
def _random_state(state: Any) -> Iterator[None]:
    """Within it the default generator goes on from `state` (None: its own), afterwards from where it was."""
    if state is None:
        yield
        return
    before = rushlight.get_rng_state()
    rushlight.set_rng_state(state)
    try:
        yield
    finally:
        rushlight.set_rng_state(before)


class CheckpointFunction(Function):
    """The reentrant form: the whole part is one node, whose backward runs the part again and a backward pass in it."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run, ctx.state = run_function, rushlight.get_rng_state() if preserve_rng_state else None
        ctx.at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.at])
        with rushlight.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if modes.task is not None and modes.task.wanted is not None:  # the pass within would go to all leaves
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing "
                               "an `inputs` parameter to .backward(). To resolve this error, you can either set "
                               "use_reentrant=False, or call .backward() without passing the `inputs` argument.")
        args = list(ctx.args)
        for i, t in zip(ctx.at, ctx.saved_tensors, strict=True):
            args[i] = t
        again = detach_variable(tuple(args))
        with _random_state(ctx.state), rushlight.enable_grad():
            outputs = ctx.run(*again)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        rushlight.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[a.grad if isinstance(a, Tensor) else None for a in again])


def _described(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


class _Frame:
    """One call: what the tape asked to save, by number, and how to compute it again."""

    def __init__(self, run: Callable[[], Any], early_stop: bool, check: bool) -> None:
        self.run, self.early_stop, self.check = run, early_stop, check
        self.saved: list[dict[str, Any]] = []
        self.again: list[Tensor] | None = None
        self.left: set[int] = set()  # numbers not yet asked for since the last recomputation

    def pack(self, t: Tensor) -> int:
        self.saved.append(_described(t))
        return len(self.saved) - 1

    def unpack(self, number: int) -> Tensor:
        if self.again is None or number not in self.left:
            self.recompute()
        again: Any = self.again
        self.left.discard(number)
        if not self.left:
            self.again = None
        return again[number]

    def recompute(self) -> None:
        found: list[Tensor] = []

        def keep(t: Tensor) -> Tensor:
            if len(found) == len(self.saved):
                raise CheckpointError("torch.utils.checkpoint: trying to save more tensors during recomputation than "
                                      "during the original forward pass.")
            found.append(t.detach())
            if self.early_stop and len(found) == len(self.saved):
                raise _Enough
            return found[-1]

        with saved_tensors_hooks(keep, lambda t: t), rushlight.enable_grad():
            try:
                self.run()
            except _Enough:
                pass
        if len(found) != len(self.saved):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the "
                                  "original forward and recomputation.\nNumber of tensors saved during forward: "
                                  f"{len(self.saved)}\nNumber of tensors saved during recomputation: {len(found)}.")
        wrong = [f"tensor at position {i}:\nsaved metadata: {old}\nrecomputed metadata: {_described(t)}\n"
                 for i, (old, t) in enumerate(zip(self.saved, found, strict=True)) if old != _described(t)]
        if wrong and self.check:
            raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                                  f"metadata than during the forward pass.\n{''.join(wrong)}.")
        self.again, self.left = found, set(range(len(found)))


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn, determinism_check: str = "default",
               debug: bool = False, early_stop: bool = True, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, whose intermediate tensors are computed again in the backward pass.

    `use_reentrant=False` is the form to use: it also works with `autograd.grad`, keyword arguments and nested calls.
    `preserve_rng_state=False` lets the second computation draw other random numbers. `context_fn` gives two context
    managers, for the first and for the second computation. CheckpointError when the second one saves other tensors.
    """
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
                      "use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
                      "you can pass use_reentrant=True.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    first, second = context_fn()
    if not rushlight.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    state = rushlight.get_rng_state() if preserve else None

    def run() -> None:
        with _random_state(state), second:
            function(*args, **kwargs)

    frame = _Frame(run, early_stop if _early_stop[0] is None else _early_stop[0], determinism_check == "default")
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None,
                          **kwargs: Any) -> Any:
    """A Sequential, or a list of functions, in `segments` parts, all but the last of them checkpointed."""
    if use_reentrant is None:
        warnings.warn("torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
                      "explicitly. use_reentrant=False is recommended, but if you need to preserve the current "
                      "default behavior, you can pass use_reentrant=True.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    parts: Sequence[Callable] = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def chain(low: int, high: int) -> Callable:
        def run(x: Any) -> Any:
            for part in parts[low:high]:
                x = part(x)
            return x

        return run

    size, low = len(parts) // segments, 0
    for low in range(0, size * (segments - 1), size):
        input = checkpoint(chain(low, low + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return chain(size * (segments - 1), len(parts))(input)


_missing.hint(__name__)
