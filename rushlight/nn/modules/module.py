"""Module: the base class of everything that holds parameters.

Reads of parameters, buffers and submodules are ordinary attribute reads (see _tables.py); a call with no hooks anywhere
is one truth test and `forward`. Hook tables are made when first asked for (_hooks.py, and _call.py for calls that have
hooks). Saving and loading state is in _state.py, moving and casting in _convert.py.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rushlight.core.tensor import Tensor

from ..parameter import Buffer, Parameter
from . import _call
from ._call import note_module
from ._convert import ConvertMethods
from ._hooks import HookMethods, add_hook
from ._state import StateMethods
from ._tables import ABSENT, CallHookDict, HookDict, MemberDict, active_hooks, mutation_epoch

__all__ = [
    "Module", "mutation_epoch", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_NOTED = (RuntimeError, ValueError, TypeError, IndexError)  # what a wrong input raises; others pass untouched

_global_buffer_registration_hooks = HookDict()
_global_module_registration_hooks = HookDict()
_global_parameter_registration_hooks = HookDict()
_global_backward_pre_hooks = _call.global_backward_pre_hooks
_global_backward_hooks = _call.global_backward_hooks
_global_forward_pre_hooks = _call.global_forward_pre_hooks
_global_forward_hooks = _call.global_forward_hooks
_global_forward_hooks_always_called = _call.global_forward_hooks_always_called
_global_forward_hooks_with_kwargs = _call.global_forward_hooks_with_kwargs

# The hook tables of an instance, in PyTorch's order, and the class each is made of when first asked for.
_HOOK_TABLES: dict[str, type] = {
    "_backward_pre_hooks": CallHookDict, "_backward_hooks": CallHookDict, "_forward_hooks": CallHookDict,
    "_forward_hooks_with_kwargs": HookDict, "_forward_hooks_always_called": HookDict,
    "_forward_pre_hooks": CallHookDict, "_forward_pre_hooks_with_kwargs": HookDict, "_state_dict_hooks": HookDict,
    "_state_dict_pre_hooks": HookDict, "_load_state_dict_pre_hooks": HookDict, "_load_state_dict_post_hooks": HookDict,
}
_MEMBER_TABLES = ("_parameters", "_buffers", "_modules")
_SPECIAL = frozenset({*_HOOK_TABLES, *_MEMBER_TABLES, "__dict__", "_compiled_call_impl"})
# The order of PyTorch's own instance dictionary: pickles are written in it.
_STATE_ORDER = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_backward_pre_hooks",
                "_backward_hooks", "_is_full_backward_hook", *list(_HOOK_TABLES)[2:], "_modules")


def typename(value: Any) -> str:
    """The name of a value's type as PyTorch's messages give it (`torch.FloatTensor`, `int`, ...)."""
    import rushlight

    return rushlight.typename(value)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> Any:
    """`hook(module, name, buffer)` runs before any module registers a buffer; a result replaces it."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> Any:
    """`hook(module, name, submodule)` runs before any module registers a submodule; a result replaces it."""
    return add_hook(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> Any:
    """`hook(module, name, parameter)` runs before any module registers a parameter; a result replaces it."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Any:
    """A forward pre-hook `hook(module, args)` for every module."""
    return add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False,
                                 always_call: bool = False) -> Any:
    """A forward hook `hook(module, args, output)` for every module; see Module.register_forward_hook."""
    handle = add_hook(_global_forward_hooks, hook,
                       [_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called])
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def _global_kind(full: bool) -> None:
    if _call.global_backward_kind[0] is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
                           "Please use only one of them.")
    _call.global_backward_kind[0] = full


def register_module_backward_hook(hook: Callable[..., Any]) -> Any:
    """Deprecated in favour of register_module_full_backward_hook."""
    _global_kind(False)
    return add_hook(_global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Any:
    """A backward pre-hook `hook(module, grad_output)` for every module."""
    return add_hook(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Any:
    """A backward hook `hook(module, grad_input, grad_output)` for every module."""
    _global_kind(True)
    return add_hook(_global_backward_hooks, hook)


class _WrappedHook:
    """A hook that may take its module first, held weakly; pickles with it."""

    def __init__(self, hook: Callable, module: Module | None = None) -> None:
        self.hook = hook
        self.with_module = module is not None
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(hook, name):
                setattr(self, name, getattr(hook, name))
        if module is not None:
            self.module: Any = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict:
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state: dict) -> None:
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


def _own(module: Module, key: str) -> MemberDict:
    """The member table `key` of `module`, made its own first where other code put a plain or foreign one there."""
    table = module.__dict__[key]
    if type(table) is not MemberDict:
        table = MemberDict(weakref.ref(module), table)
        module.__dict__[key] = table
    elif all(ref() is not module for ref in table._owners):
        table.adopt(module)
    return table


def _registered(hooks: HookDict, module: Module, name: str, value: Any) -> Any:
    for hook in hooks.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


class Module(HookMethods, StateMethods, ConvertMethods):
    """Base class of neural network modules: assign Parameters and Modules as attributes and define `forward`."""

    dump_patches: bool = False
    _version: int = 1
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    call_super_init: bool = False
    _compiled_call_impl: Callable | None = None
    # Attributes that pickles of older versions lack, with the values they stand for.
    _state_defaults: dict[str, Any] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                                f"'{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} "
                                "were given")
        attributes = self.__dict__
        if "_parameters" in attributes:  # a second __init__ starts afresh
            for key in _MEMBER_TABLES:
                _own(self, key).release(self)
            for key in _HOOK_TABLES:
                attributes.pop(key, None)
        owner = weakref.ref(self)
        attributes["training"] = True
        attributes["_parameters"] = MemberDict(owner)
        attributes["_buffers"] = MemberDict(owner)
        attributes["_non_persistent_buffers_set"] = set()
        attributes["_modules"] = MemberDict(owner)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__setstate__" in cls.__dict__:  # may restore hooks behind our back: its calls look for them
            active_hooks.add(id(cls))

    # -- calling -------------------------------------------------------------------------------------------------

    def forward(self, *input: Any) -> Any:
        """Defines the computation performed at every call. Every subclass overrides it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, input: Any = ABSENT, /, *args: Any, **kwargs: Any) -> Any:
        if active_hooks:
            return self._checked_call(*(() if input is ABSENT else (input, *args)), **kwargs)
        try:
            if args or kwargs or input is ABSENT:
                if input is ABSENT:
                    return self.forward(**kwargs)
                return self.forward(input, *args, **kwargs)
            return self.forward(input)
        except _NOTED as error:
            note_module(error, self, () if input is ABSENT else (input, *args))
            raise

    def _checked_call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return _call.call_with_hooks(self, args, kwargs)
        except _NOTED as error:
            note_module(error, self, args)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return _call.call_with_hooks(self, args, kwargs)

    _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles this module's forward (with its hooks) by `rushlight.compile`; arguments are passed on to it."""
        import rushlight

        self._compiled_call_impl = rushlight.compile(self._call_impl, *args, **kwargs)

    # -- attributes ----------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Reached only where neither the instance's __dict__ nor the class has the name (see MemberDict).
        attributes = self.__dict__
        for key in _MEMBER_TABLES:
            table = attributes.get(key)
            if table is not None and name in table:
                return table[name]
        if name in _HOOK_TABLES and "_parameters" in attributes:
            table = attributes[name] = _HOOK_TABLES[name]()
            return table
        hint = ": super().__init__() of the module was not called first" if name in _MEMBER_TABLES else ""
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        parameters = attributes.get("_parameters")
        if isinstance(value, Tensor) and isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None "
                                "expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if parameters is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            _own(self, "_modules")[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif parameters is not None and name in attributes["_modules"]:
            if value is not None:
                raise TypeError(f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None "
                                "expected)")
            _own(self, "_modules")[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif parameters is not None and name in attributes["_buffers"] \
                or isinstance(value, Tensor) and isinstance(value, Buffer):
            self._set_buffer(name, value)
        elif name in _SPECIAL:
            self._set_special(name, value)
        else:
            if attributes.get(name, ABSENT) is not value:
                mutation_epoch[0] += 1
            super().__setattr__(name, value)

    def _forget(self, name: str, *tables: str) -> None:
        """Removes `name` wherever else it is, before a member of that name is registered."""
        attributes = self.__dict__
        for key in tables:
            if name in attributes[key]:
                del _own(self, key)[name]
        if name in attributes:
            own = attributes["_modules"] if "_modules" not in tables else attributes["_parameters"]
            if name not in own or own[name] is not attributes[name]:  # a plain attribute; a mirrored member stays
                del attributes[name]
        attributes["_non_persistent_buffers_set"].discard(name)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor) and not hasattr(value, "__torch_function__"):
            raise TypeError(f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or "
                            "None expected)")
        persistent = value.persistent if isinstance(value, Buffer) \
            else name not in self.__dict__.get("_non_persistent_buffers_set", ())
        if getattr(self.register_buffer, "__func__", None) is Module.register_buffer:
            self.register_buffer(name, value, persistent)
            return
        import inspect

        if "persistent" in inspect.signature(self.register_buffer).parameters:
            self.register_buffer(name, value, persistent)
        elif not persistent:
            raise RuntimeError("Registering a non-persistent buffer on a Module subclass that implements "
                               "register_buffer() without the persistent argument is not allowed.")
        else:
            self.register_buffer(name, value)

    def _set_special(self, name: str, value: Any) -> None:
        """Assigning one of Module's own tables (`self._forward_hooks = OrderedDict()`, `replica.__dict__ = {...}`)."""
        mutation_epoch[0] += 1
        attributes = self.__dict__
        if name in _MEMBER_TABLES:
            old = attributes.get(name)
            if type(old) is MemberDict:
                old.release(self)
            attributes[name] = value
            if value is not None:
                _own(self, name)
        elif name in _HOOK_TABLES:
            cls = _HOOK_TABLES[name]
            attributes[name] = value if type(value) is cls else cls(value)
        elif name == "__dict__":
            super().__setattr__(name, value)
            self._adopt_state()
        else:
            attributes[name] = value
            if value is not None:
                active_hooks.add(id(self))

    def _adopt_state(self) -> None:
        """Makes this module the owner of the tables that were put into its `__dict__`."""
        attributes = self.__dict__
        for key in _MEMBER_TABLES:
            if key in attributes:
                _own(self, key)
        for key in _HOOK_TABLES:
            table = attributes.get(key)
            if table is not None and not table:
                del attributes[key]
            elif table is not None and not isinstance(table, HookDict):
                # From a pickle. Handles hold it by identity, so it stays; calls must look into it from now on.
                active_hooks.add(id(self))
        mutation_epoch[0] += 1

    def __delattr__(self, name: str) -> None:
        attributes = self.__dict__
        for key in _MEMBER_TABLES:
            if name in attributes.get(key, ()):
                del _own(self, key)[name]
                if key == "_buffers":
                    attributes["_non_persistent_buffers_set"].discard(name)
                return
        mutation_epoch[0] += 1
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return sorted(n for n in names if n and not n[0].isdigit())

    # -- copying and pickling ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_non_persistent_buffers_set", set())  # checkpoints older than that attribute
        for name, value in self._state_defaults.items():
            self.__dict__.setdefault(name, value)
        self._adopt_state()

    def _plain_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """`state` as PyTorch would have it: no mirrored members, every table present, in PyTorch's order."""
        state = dict(state)
        for key in _MEMBER_TABLES:
            for name, value in (state.get(key) or {}).items():
                if state.get(name, ABSENT) is value:
                    del state[name]
        if "_parameters" in state:
            for key in _HOOK_TABLES:
                if key not in state:
                    state[key] = _HOOK_TABLES[key]()
            state.setdefault("_is_full_backward_hook", self._is_full_backward_hook)
            state = {**{k: state[k] for k in _STATE_ORDER if k in state}, **state}
        return state

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        if isinstance(reduced, tuple) and len(reduced) > 2 and isinstance(reduced[2], dict):
            state = self._plain_state(reduced[2])
            for key in _MEMBER_TABLES:
                if type(state.get(key)) is MemberDict:
                    state[key] = dict(state[key])
            return (*reduced[:2], state, *reduced[3:])
        return reduced

    def __copy__(self) -> Any:
        """A shallow copy shares the tables of the original, as in PyTorch."""
        copied = self.__new__(type(self))
        state = self.__getstate__()
        copied.__setstate__(self._plain_state(state) if isinstance(state, dict) else state)
        return copied

    # -- registering ---------------------------------------------------------------------------------------------

    def _check_name(self, name: Any, what: str, table: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' + (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in self.__dict__[table] and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer: a tensor that belongs to the state but is no parameter (in the state_dict if `persistent`)."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor) and not hasattr(tensor, "__torch_function__"):
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None "
                            "required)")
        _own(self, "_buffers")[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter under `name`; None reserves the name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter "
                                "or None required)")
            if param.grad_fn:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                                 f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                                 "the value in the forward() method.")
            param = _registered(_global_parameter_registration_hooks, self, name, param)
        _own(self, "_parameters")[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under `name`."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name(name, "module", "_modules")
        _own(self, "_modules")[name] = _registered(_global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias for `add_module`."""
        self.add_module(name, module)

    # -- looking up ----------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The submodule at the dotted path `target` ("" is this module); AttributeError where there is none."""
        module: Any = self
        for item in target.split(".") if target else ():
            if not hasattr(module, item):
                raise AttributeError(f"{module._get_name()} has no attribute `{item}`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError(f"`{item}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at the dotted path `target`; with `strict` something must be there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> tuple[Module, str, Any]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path `target`."""
        module, name, value = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return value

    def _named_members(self, get_members_fn: Callable[[Module], Iterable], prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter once, in order of registration."""
        for _name, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) pairs."""
        yield from self._named_members(lambda module: module._parameters.items(), prefix=prefix, recurse=recurse,
                                       remove_duplicate=remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer once, in order of registration."""
        for _name, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) pairs."""
        yield from self._named_members(lambda module: module._buffers.items(), prefix=prefix, recurse=recurse,
                                       remove_duplicate=remove_duplicate)

    def children(self) -> Iterator[Module]:
        """The immediate child modules, each once."""
        for _name, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the immediate children, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        for _name, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module ("" or `prefix`) and of all below it."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    # -- modes ---------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Any:
        """Sets training mode (or evaluation mode) here and in all submodules."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """`self.train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Sets `requires_grad` of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros."""
        if getattr(self, "_is_replica", False):
            warnings.warn("Calling .zero_grad() from a module created with nn.DataParallel() has no effect. The "
                          "parameters are copied (in a differentiable manner) from the original module. This means "
                          "they are not leaf nodes in autograd and so don't accumulate gradients. If you need "
                          "gradients in your forward method, consider using autograd.grad instead.", stacklevel=2)
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """Calls `fn` on every submodule and then on this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- text ----------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses besides the submodules."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        if len(lines) == 1 and not self._modules:
            return f"{self._get_name()}({lines[0]})"
        lines += [f"({name}): " + _addindent(repr(module), 2) for name, module in self._modules.items()]
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"

    def _replicate_for_data_parallel(self) -> Any:
        replica = self.__new__(type(self))
        replica.__dict__ = self._plain_state(self.__dict__)
        replica._parameters = {}
        replica._buffers = self._buffers.copy()
        replica._modules = self._modules.copy()
        replica._is_replica = True
        return replica


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *[" " * spaces + line if line.strip() else "" for line in rest]])
