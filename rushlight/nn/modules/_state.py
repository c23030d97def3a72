"""Module's state_dict and load_state_dict, with PyTorch's keys, metadata and error texts."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any, TypeVar

import rushlight
from rushlight.core.tensor import Tensor

from ..parameter import Parameter, is_lazy
from ._convert import future_flag

__all__: list[str] = []

EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class StateMethods:
    """The part of Module that saves and loads its state."""

    _version: int = 1
    T_destination = TypeVar("T_destination", bound=dict[str, Any])

    def get_extra_state(self) -> Any:
        """What this module keeps in its state_dict besides tensors; define it together with `set_extra_state`."""
        raise RuntimeError(f"{type(self).__name__} defines no get_extra_state(): Module's own is never called by "
                           "state_dict")

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__} defines no set_extra_state(): Module's own is never called by "
                           "load_state_dict")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """An OrderedDict of dotted names to the parameters and persistent buffers, detached unless `keep_vars`.

        Its `_metadata` attribute holds the version of every module.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead. Refer to "
                          "https://pytorch.org/docs/main/"
                          "generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
                          FutureWarning, stacklevel=2)
            if destination is None:
                destination = args[0]
            if len(args) > 1 and prefix == "":
                prefix = args[1]
            if len(args) > 2 and keep_vars is False:
                keep_vars = args[2]
        if destination is None:
            destination = OrderedDict()
            setattr(destination, "_metadata", OrderedDict())  # noqa: B010 - an attribute that OrderedDict does not declare
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        attributes = self.__dict__
        for hook in attributes.get("_state_dict_pre_hooks", {}).values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in attributes["_modules"].items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in attributes.get("_state_dict_hooks", {}).values():
            changed = hook(self, destination, prefix, local_metadata)
            if changed is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = changed
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        attributes: Any = self.__dict__
        for name, parameter in self._parameters.items():  # type: ignore[attr-defined]
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in attributes["_buffers"].items():
            if buffer is not None and name not in attributes["_non_persistent_buffers_set"]:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not StateMethods.get_extra_state:
            destination[prefix + EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copies the tensors of `state_dict` into this module's (or, with `assign`, puts them in their place).

        Returns the missing and unexpected keys; with `strict` (the default) there must be none. RuntimeError names all
        problems at once.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys: list[str] = []
        unexpected_keys: list[str] = []
        error_msgs: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)  # hooks and old-version code may change it
        if metadata is not None:
            state_dict._metadata = metadata  # type: ignore[attr-defined]

        def load(module: Any, local_state: Any, prefix: str) -> None:
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = assign
            module._load_from_state_dict(local_state, prefix, local_metadata, True, missing_keys, unexpected_keys,
                                         error_msgs)
            for name, child in module._modules.items():
                if child is not None:
                    path = f"{prefix}{name}."
                    load(child, {k: v for k, v in local_state.items() if k.startswith(path)}, path)
            keys = _IncompatibleKeys(missing_keys, unexpected_keys)
            for hook in module.__dict__.get("_load_state_dict_post_hooks", {}).values():
                if hook(module, keys) is not None:
                    raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not "
                                         "expected to return new values, if incompatible_keys need to be modified, "
                                         "it should be done inplace.")

        load(self, state_dict, "")
        if strict:
            if unexpected_keys:
                names = ", ".join(f'"{k}"' for k in unexpected_keys)
                error_msgs.insert(0, f"Unexpected key(s) in state_dict: {names}. ")
            if missing_keys:
                names = ", ".join(f'"{k}"' for k in missing_keys)
                error_msgs.insert(0, f"Missing key(s) in state_dict: {names}. ")
        if error_msgs:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__,
                                                                                      "\n\t".join(error_msgs)))
        return _IncompatibleKeys(missing_keys, unexpected_keys)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        """Loads this module's own tensors; what is wrong is appended to the three lists."""
        attributes = self.__dict__
        for hook in list(attributes.get("_load_state_dict_pre_hooks", {}).values()):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        local = {k: v for k, v in self._parameters.items() if v is not None}  # type: ignore[attr-defined]
        transient = attributes["_non_persistent_buffers_set"]
        local.update((k, v) for k, v in attributes["_buffers"].items() if v is not None and k not in transient)
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, current in local.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(name, key, current, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)

        extra_key = prefix + EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateMethods.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)

        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    name, dot, _ = key[len(prefix):].partition(".")
                    if name not in (attributes["_modules"] if dot else local):
                        unexpected_keys.append(key)

    def _load_one(self, name: str, key: str, current: Any, given: Any, assign: bool, error_msgs: list[str]) -> None:
        if not isinstance(given, Tensor) and not hasattr(given, "__torch_function__"):
            error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                              'object from '
                              f"checkpoint but received {type(given)}")
            return
        if not is_lazy(current):
            if current.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:  # checkpoints of 0.3 had no scalars
                given = given[0]
            if given.shape != current.shape:
                error_msgs.append(f"size mismatch for {key}: copying a param with shape {given.shape} from "
                                  "checkpoint, the "
                                  f"shape in current model is {current.shape}.")
                return
        if current.is_meta and not given.is_meta and not assign:
            warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                          "current model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the "
                          "state dictionary to their corresponding key in the module instead of copying them in "
                          "place?)",
                          stacklevel=4)
        swap = future_flag("get_swap_module_params_on_conversion")
        try:
            with rushlight.no_grad():
                if swap:
                    _swap_in(current, given, assign)
                elif assign:
                    setattr(self, name, _as_parameter(current, given) if isinstance(current, Parameter) else given)
                else:
                    current.copy_(given)
        except Exception as error:
            error_msgs.append(f'While {"swapping" if swap else "copying"} the parameter named "{key}", whose '
                              'dimensions in '
                              f"the model are {current.size()} and whose dimensions in the checkpoint are "
                              f"{given.size()}, an "
                              f"exception occurred : {error.args}.")


def _as_parameter(current: Any, given: Any) -> Any:
    if not isinstance(given, Parameter):
        return Parameter(given, requires_grad=current.requires_grad)
    return given.requires_grad_(current.requires_grad)


def _swap_in(current: Any, given: Any, assign: bool) -> None:
    """With torch.__future__.set_swap_module_params_on_conversion(True) the contents change, not the object."""
    loaded = current.module_load(given, assign=assign)
    if loaded is given or loaded is current:
        raise RuntimeError("module_load returned one of self or other, please .detach() the result if returning one "
                           "of the inputs in module_load")
    if isinstance(current, Parameter):
        loaded = _as_parameter(current, loaded)
    rushlight.utils.swap_tensors(current, loaded)
