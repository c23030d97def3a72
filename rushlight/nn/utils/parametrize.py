"""Parametrizations: a parameter or buffer computed, at every read, by modules from one or several originals.

A module with parametrized members gets a class of its own, `Parametrized<Name>`, with a property for each of them; the
originals lie in `module.parametrizations.<name>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import rushlight
from rushlight import _missing
from rushlight.core.tensor import Tensor

from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["cached", "ParametrizationList", "register_parametrization", "is_parametrized", "remove_parametrizations",
           "type_before_parametrizations", "transfer_parametrizations_and_params"]

_cache: dict[tuple[int, str], Any] = {}
_cache_depth = [0]


@contextmanager
def cached() -> Iterator[None]:
    """Within it a parametrized tensor is computed at its first read only; later reads give the same tensor."""
    _cache_depth[0] += 1
    try:
        yield
    finally:
        _cache_depth[0] -= 1
        if not _cache_depth[0]:
            _cache.clear()


def _agrees(what: str, kind: str, value: Any, name: str, reference: Tensor, mine: str) -> None:
    """`value`, made by `kind`, must be a tensor of the dtype and shape of `reference`."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{kind} must return a tensor. Got {type(value).__name__}.")
    for part in ("dtype", "shape"):
        if getattr(value, part) != getattr(reference, part):
            raise ValueError(f"{what} may not change the {part} of the tensor, unless the `unsafe` flag is enabled.\n"
                             f"{mine} {part}: {getattr(reference, part)}\n{name} {part}: {getattr(value, part)}")


def _add_member(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other, and what they start from: `original`, or
    `original0`, `original1`, ... where the first one's `right_inverse` gives a sequence of tensors."""

    is_tensor: bool
    ntensors: int
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        start: Any = original
        with rushlight.no_grad():
            for module in reversed(self):  # type: ignore[call-overload]
                if hasattr(module, "right_inverse"):
                    try:
                        start = module.right_inverse(start)
                    except NotImplementedError:
                        pass  # then it starts from the tensor as it is
        if not isinstance(start, (Tensor, Sequence)):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                             f"{type(start).__name__}")
        shape, dtype = original.shape, original.dtype
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        if isinstance(start, Tensor):
            if start.dtype != dtype:
                raise ValueError("When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                                 f"original.dtype: {dtype}\nright_inverse(original).dtype: {start.dtype}")
            if start is not original:
                original.data = start.detach()
            _add_member(self, "original", original)
        else:
            for i, part in enumerate(start):
                if not isinstance(part, Tensor):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                                     f"Got element {i} of the sequence with type {type(part).__name__}.")
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _add_member(self, f"original{i}", part)
        if not unsafe:
            value = self()
            if not isinstance(value, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
            for part_name, mine in (("dtype", dtype), ("shape", shape)):
                if getattr(value, part_name) != mine:
                    raise ValueError(f"Registering a parametrization may not change the {part_name} of the tensor, "
                                     f"unless `unsafe` flag is enabled.\nunparametrized {part_name}: {mine}\n"
                                     f"parametrized {part_name}: {getattr(value, part_name)}")

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the parametrized tensor becomes `value`: every parametrization must have a
        `right_inverse`."""
        with rushlight.no_grad():
            found: Any = value
            for module in reversed(self):  # type: ignore[call-overload]
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                found = module.right_inverse(found)
            if self.is_tensor:
                if not isinstance(found, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(found).__name__}")
                found = [found]
            elif not isinstance(found, Sequence):
                raise ValueError("'right_inverse' must return a sequence of tensors. Got "
                                 f"{type(found).__name__}.")
            elif len(found) != self.ntensors:
                raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a "
                                 f"sequence of length {len(found)}.")
            for i, (own, new) in enumerate(zip(self._originals(), found, strict=True)):
                if not isinstance(new, Tensor):
                    raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {i} of type "
                                     f"{type(new).__name__}")
                if new.dtype != own.dtype:
                    raise ValueError("The tensor returned by `right_inverse` has dtype "
                                     f"{new.dtype} while `original{'' if self.is_tensor else i}` has dtype {own.dtype}")
                own.data = new.detach()

    def forward(self) -> Tensor:
        first, *rest = self
        value = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


def _property(name: str) -> property:
    def get(self: Any) -> Tensor:
        if not _cache_depth[0]:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def set(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set)


def _no_pickle(self: Any) -> Any:
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). See:\n"
                       "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
                       "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training")


def _deepcopy(self: Any, memo: dict) -> Any:
    copied = self.__new__(type(self))
    memo[id(self)] = copied
    copied.__dict__ = deepcopy(self._plain_state(dict(self.__dict__)), memo)
    return copied


def _set_class(module: Any) -> None:
    """Gives `module` the class that fits its parametrizations: its original one, or one with a property for each."""
    base = type_before_parametrizations(module)
    names = list(module._modules["parametrizations"]) if "parametrizations" in module._modules else []
    if not names:
        module.__class__ = base
        return
    members: dict[str, Any] = {"__getstate__": _no_pickle, "__module__": __name__, "_parametrized": True,
                               **{n: _property(n) for n in names}}
    if "__deepcopy__" not in vars(base):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), members)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Module:
    """Makes reads of `module.<tensor_name>` give `parametrization(original)`. Returns `module`.

    A second one is applied to what the first one gives. Where it has a `right_inverse`, the original is set by it (to
    one or several tensors) so that the value need not change, and assigning to the attribute works. Unless `unsafe`,
    dtype and shape may not change (ValueError). ValueError where there is no such parameter or buffer.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        own: Any = module.parametrizations[tensor_name]  # type: ignore[index]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _agrees("Registering a parametrization", "A parametrization", after,
                    f"parametrization(module.{tensor_name})", before,
                    f"module.{tensor_name}")
            if hasattr(parametrization, "right_inverse"):
                try:
                    back: Any = parametrization.right_inverse(after)
                except NotImplementedError:
                    back = before
                _agrees("The tensor returned by parametrization.right_inverse", "parametrization.right_inverse", back,
                        "returned", before, f"module.{tensor_name}")
        own.append(parametrization)
        own.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        made = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = made  # type: ignore[index]
        _set_class(module)
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether anything in `module` is parametrized, or the member `tensor_name`."""
    own: Any = module._modules.get("parametrizations")
    if own is None or not isinstance(own, ModuleDict):
        return False
    return len(own) > 0 if tensor_name is None else tensor_name in own


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes `tensor_name` an ordinary parameter or buffer again: with its present value, or (`leave_parametrized=False`)
    with its original's. ValueError where there is no parametrization, or several originals and no value to leave."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    every: Any = module.parametrizations
    own = every[tensor_name]
    if own.is_tensor:
        tensor = own.original
        if leave_parametrized:
            with rushlight.no_grad():
                tensor.data = getattr(module, tensor_name).detach().clone()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        tensor = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    del every[tensor_name]
    _set_class(module)
    if not len(every):
        delattr(module, "parametrizations")
    _add_member(module, tensor_name, tensor)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without the one that parametrizations gave it."""
    cls = type(module)
    return cls.__bases__[0] if "_parametrized" in vars(cls) else cls


def transfer_parametrizations_and_params(from_module: Module, to_module: Module,
                                         tensor_name: str | None = None) -> Module:
    """Gives `to_module` the parametrizations of `from_module` (all, or those of one tensor) and their originals, shared
    with it. Returns `to_module`."""
    if is_parametrized(from_module):
        every: Any = from_module.parametrizations
        for name in list(every) if tensor_name is None else [tensor_name]:
            if not hasattr(to_module, name):
                setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
            for parametrization in every[name]:
                register_parametrization(to_module, name, parametrization)
            to: Any = to_module.parametrizations
            for member in ("original",) if every[name].is_tensor else [f"original{i}" for i in
                                                                      range(every[name].ntensors)]:
                setattr(to[name], member, getattr(every[name], member))
    return to_module


_missing.hint(__name__)
