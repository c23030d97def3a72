"""Calling a Module that has hooks, and naming the module path in the errors of one that fails."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

from rushlight.core.tensor import Tensor

from ._tables import CallHookDict

__all__: list[str] = []

# Hooks common to all modules.
global_backward_pre_hooks = CallHookDict()
global_backward_hooks = CallHookDict()
global_forward_pre_hooks = CallHookDict()
global_forward_hooks = CallHookDict()
global_forward_hooks_always_called = CallHookDict()
global_forward_hooks_with_kwargs = CallHookDict()
# None: no global backward hook was registered yet; then which of the two kinds it was.
global_backward_kind: list[bool | None] = [None]

_NO_HOOKS: OrderedDict = OrderedDict()


def call_with_hooks(module: Any, args: tuple, kwargs: dict) -> Any:
    """`module(*args, **kwargs)` with every hook that applies, in PyTorch's order."""
    attributes = module.__dict__
    pre = attributes.get("_forward_pre_hooks", _NO_HOOKS)
    post = attributes.get("_forward_hooks", _NO_HOOKS)
    backward = attributes.get("_backward_hooks", _NO_HOOKS)
    backward_pre = attributes.get("_backward_pre_hooks", _NO_HOOKS)
    if not (pre or post or backward or backward_pre or global_forward_pre_hooks or global_forward_hooks
            or global_backward_hooks or global_backward_pre_hooks):
        return module.forward(*args, **kwargs)
    state: dict[str, Any] = {"args": args, "kwargs": kwargs, "result": None, "called": set()}
    try:
        return _run(module, state, pre, post)
    except Exception:
        _always_called(module, state, post)
        raise


def _run(module: Any, state: dict[str, Any], pre: OrderedDict, post: OrderedDict) -> Any:
    full, plain, before = module._get_backward_hooks() + (module._get_backward_pre_hooks(),)
    pre_kwargs = module.__dict__.get("_forward_pre_hooks_with_kwargs", ())
    for handle, hook in (*global_forward_pre_hooks.items(), *pre.items()):
        if handle in pre_kwargs:
            changed = hook(module, state["args"], state["kwargs"])
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                state["args"], state["kwargs"] = changed
        else:
            changed = hook(module, state["args"])
            if changed is not None:
                state["args"] = changed if isinstance(changed, tuple) else (changed,)

    marker = None
    if full or before:
        from ._backward import BackwardHook

        marker = BackwardHook(module, full, before)
        state["args"] = marker.setup_input_hook(state["args"])
    state["result"] = module.forward(*state["args"], **state["kwargs"])
    for handle, hook in (*global_forward_hooks.items(), *post.items()):
        if handle in module.__dict__.get("_forward_hooks_always_called", ()) \
                or handle in global_forward_hooks_always_called:
            state["called"].add(handle)
        _forward_hook(module, state, handle, hook)
    if marker is not None:
        if not isinstance(state["result"], (Tensor, tuple)):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                          f"but received {type(state['result'])}", stacklevel=4)
        state["result"] = marker.setup_output_hook(state["result"])
    if plain:
        from ._backward import setup_plain_hooks

        setup_plain_hooks(module, plain, state["args"], state["result"])
    return state["result"]


def _forward_hook(module: Any, state: dict[str, Any], handle: int, hook: Any) -> None:
    if handle in module.__dict__.get("_forward_hooks_with_kwargs", ()) or handle in global_forward_hooks_with_kwargs:
        changed = hook(module, state["args"], state["kwargs"], state["result"])
    else:
        changed = hook(module, state["args"], state["result"])
    if changed is not None:
        state["result"] = changed


def _always_called(module: Any, state: dict[str, Any], post: OrderedDict) -> None:
    """After an exception: the forward hooks registered with always_call=True that did not run yet."""
    local = module.__dict__.get("_forward_hooks_always_called", ())
    for hooks, always, what in ((global_forward_hooks, global_forward_hooks_always_called, "global module"),
                                (post, local, "module")):
        for handle, hook in list(hooks.items()):
            if handle not in always or handle in state["called"]:
                continue
            try:
                _forward_hook(module, state, handle, hook)
            except Exception as error:
                warnings.warn(f"{what} forward hook with ``always_call=True`` raised an exception that was silenced as "
                              f"another error was raised in forward: {error}", stacklevel=4)


def note_module(error: BaseException, module: Any, args: tuple) -> None:
    """Adds to `error`, which is leaving `module.forward`, a note that names the failing module by its path.

    Called at every level that the exception passes: the innermost one describes the failing layer and its input, the
    outer ones extend the path. Costs nothing while nothing fails.
    """
    notes = getattr(error, "__notes__", None)
    trail = getattr(error, "_module_trail", None)
    if trail is None:
        description = type(module).__name__ if module.__dict__.get("_modules") else _one_line(module)
        shapes = ", ".join(f"{tuple(a.shape)} {a.dtype}" for a in args if isinstance(a, Tensor))
        path, given = "", f", given {shapes}" if shapes else ""
    else:
        child, path, description, given, note = trail
        if child is module:  # the same call seen twice, as with a compiled call
            return
        name = _name_of(child, module)
        path = name if not path else f"{name}.{path}"
        if notes and note in notes:
            notes.remove(note)
    note = f"In module {path} ({description}) of {type(module).__name__}{given}" if path \
        else f"In module {description}{given}"
    error._module_trail = (module, path, description, given, note)  # type: ignore[attr-defined]
    error.add_note(note)


def _name_of(child: Any, module: Any) -> str:
    for name, member in module.named_modules():
        if member is child:
            return name
    return f"<{type(child).__name__}, not registered>"


def _one_line(module: Any) -> str:
    try:
        text = repr(module)
    except Exception:  # a failing extra_repr must not replace the error that is being described
        return type(module).__name__
    return text if "\n" not in text and len(text) < 200 else type(module).__name__
