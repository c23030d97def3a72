"""Module's methods that register hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _call
from ._tables import HookDict

__all__: list[str] = []


def removable_handle(hooks: dict, extra: Any = None) -> Any:
    from rushlight.utils.hooks import RemovableHandle

    return RemovableHandle(hooks, extra_dict=extra)


def add_hook(hooks: HookDict, hook: Callable, extra: Any = None, prepend: bool = False) -> Any:
    """Puts `hook` last (or first) into `hooks`; the handle returned removes it there and in the `extra` tables."""
    handle = removable_handle(hooks, extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class HookMethods:
    """The part of Module that registers hooks (its tables are made by `Module.__getattr__` when first asked for)."""

    _forward_hooks: HookDict
    _forward_hooks_with_kwargs: HookDict
    _forward_hooks_always_called: HookDict
    _forward_pre_hooks: HookDict
    _forward_pre_hooks_with_kwargs: HookDict
    _backward_hooks: HookDict
    _backward_pre_hooks: HookDict
    _state_dict_hooks: HookDict
    _state_dict_pre_hooks: HookDict
    _load_state_dict_pre_hooks: HookDict
    _load_state_dict_post_hooks: HookDict
    _is_full_backward_hook: bool | None = None

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> Any:
        """`hook(module, args)` (with_kwargs: `hook(module, args, kwargs)`) runs before forward.

        A result replaces the arguments: a value or tuple; with_kwargs a tuple (new_args, new_kwargs).
        """
        handle = add_hook(self._forward_pre_hooks, hook, self._forward_pre_hooks_with_kwargs, prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> Any:
        """`hook(module, args, output)` (with_kwargs: `hook(module, args, kwargs, output)`) runs after forward.

        A result other than None replaces the output. With `always_call` it runs also when forward raises.
        """
        handle = add_hook(self._forward_hooks, hook,
                          [self._forward_hooks_with_kwargs, self._forward_hooks_always_called], prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Any:
        """`hook(module, grad_output)` runs when the gradients of the outputs are known; a result replaces them."""
        return add_hook(self._backward_pre_hooks, hook, None, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Any:
        """`hook(module, grad_input, grad_output)` runs when the gradients of the inputs are known; a result replaces
        `grad_input`."""
        self._backward_kind(True)
        return add_hook(self._backward_hooks, hook, None, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> Any:
        """Deprecated in favour of `register_full_backward_hook`."""
        self._backward_kind(False)
        return add_hook(self._backward_hooks, hook)

    def _backward_kind(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. "
                               "Please use only one of them.")
        self._is_full_backward_hook = full

    def _get_backward_hooks(self) -> tuple[list[Callable], list[Callable]]:
        """(full, non-full) backward hooks that apply to this module."""
        full: list[Callable] = []
        plain: list[Callable] = []
        for kind, hooks in ((_call.global_backward_kind[0], _call.global_backward_hooks),
                            (self._is_full_backward_hook, self.__dict__.get("_backward_hooks", {}))):
            if kind is not None:
                (full if kind else plain).extend(hooks.values())
        return full, plain

    def _get_backward_pre_hooks(self) -> list[Callable]:
        return [*_call.global_backward_pre_hooks.values(), *self.__dict__.get("_backward_pre_hooks", {}).values()]

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, state_dict, prefix, local_metadata)` runs after `state_dict`; a result replaces the dict."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously "
                               "registered via register_state_dict_post_hook")
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Any) -> Any:
        """`hook(module, state_dict, prefix, local_metadata)` runs after `state_dict` and may change it in place."""
        hook._from_public_api = True
        return add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, prefix, keep_vars)` runs before `state_dict`."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Any:
        from .module import _WrappedHook

        return add_hook(self._load_state_dict_pre_hooks,
                        _WrappedHook(hook, self if with_module else None))  # type: ignore[arg-type]

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)` runs
        before this module's part of `load_state_dict`."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Any:
        """`hook(module, incompatible_keys)` runs after `load_state_dict` and may change the keys in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)
