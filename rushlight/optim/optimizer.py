"""Base class of the optimizers: parameter groups, state, checkpoints and hooks, with PyTorch's contracts."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import rushlight as torch
from rushlight import _missing

from .update import Rule, Variant, advance_counters, apply_update, ndarray

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

StateDict = dict[str, Any]


class _Required:
    """Marks a default that every parameter group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

_global_optimizer_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable] = OrderedDict()
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
          "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
          "_optimizer_load_state_dict_post_hooks")


def _add_hook(hooks: OrderedDict, hook: Callable, prepend: bool = False) -> Any:
    from ..utils.hooks import RemovableHandle
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable) -> Any:
    """Call `hook(optimizer, args, kwargs) -> None | (args, kwargs)` before every step of every optimizer."""
    return _add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> Any:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _add_hook(_global_optimizer_post_hooks, hook)


def _typename(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return x.type()
    cls = type(x)
    return cls.__qualname__ if cls.__module__ in ("builtins", "__builtin__") else f"{cls.__module__}.{cls.__qualname__}"


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """dtype of counters such as `step`: float32, or float64 where that is the default dtype."""
    if is_fused:
        return torch.float32
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


def _number(x: Any) -> Any:
    """A hyper-parameter as the arithmetic needs it: a Python number, or a 0-dim tensor that requires grad."""
    if isinstance(x, torch.Tensor):
        return (x.squeeze() if x.dim() else x) if x.requires_grad else x.item()
    return x


def _check_lr(lr: Any) -> None:
    if isinstance(lr, torch.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= lr:
        raise ValueError(f"Invalid learning rate: {lr}")


def _check_betas(betas: Any) -> None:
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_nonnegative(**values: Any) -> None:
    for name, value in values.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


class Optimizer:
    """Base of all optimizers.

    Args:
        params: an iterable of tensors, of (name, tensor) pairs, or of dicts, one a parameter group.
        defaults: the options that a group gets where it does not give its own.

    `param_groups` is a list of dicts with "params" and the options; `state` maps a parameter to a dict.
    """

    state: defaultdict[Any, Any]
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: OrderedDict[int, Callable]
    _optimizer_step_post_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in _HOOKS:
            setattr(self, name, OrderedDict())
        self._patch_step_function()
        if isinstance(params, torch.Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + _typename(params))
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        self._warned_capturable_if_run_uncaptured = True

    # --- pickling, printing -------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            if name not in self.__dict__:
                setattr(self, name, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines += [""] * (i > 0) + [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    # --- hooks --------------------------------------------------------------------------------------------------------
    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """`func`, a `step` method, with the step hooks called around it."""
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
            if not (before or after or _global_optimizer_pre_hooks or _global_optimizer_post_hooks):
                return func(*args, **kwargs)
            for hook in (*_global_optimizer_pre_hooks.values(), *before.values()):
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got "
                                       f"{result}.")
                args, kwargs = result
            out = func(*args, **kwargs)
            for hook in (*after.values(), *_global_optimizer_post_hooks.values()):
                hook(self, args, kwargs)
            return out
        return wrapper

    def _patch_step_function(self) -> None:
        cls = type(self)
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]
            cls.step.hooked = True  # type: ignore[attr-defined]

    def register_step_pre_hook(self, hook: Callable) -> Any:
        """Call `hook(optimizer, args, kwargs) -> None | (args, kwargs)` before each step."""
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> Any:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Call `hook(optimizer)` before `state_dict`."""
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Call `hook(optimizer, state_dict) -> None | state_dict` on what `state_dict` returns."""
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Call `hook(optimizer, state_dict) -> None | state_dict` before `load_state_dict`."""
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # --- checkpoints --------------------------------------------------------------------------------------------------
    def state_dict(self) -> StateDict:
        """{"state": {number: dict}, "param_groups": [dict]}: parameters appear as their numbers, counted over the
        groups in order; tensors are references, not copies."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        start = 0
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for i, p in enumerate(group["params"], start):
                numbers.setdefault(id(p), i)
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {numbers[id(k)] if isinstance(k, torch.Tensor) else k: v for k, v in self.state.items()}
        result: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take state and options from `state_dict`, matching parameters by position.

        State tensors take dtype and device of floating-point parameters; `step` keeps its own, unless the group is
        fused or capturable. Raises ValueError if number or size of the groups differ.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                             "group")
        own = {number: p for g, s in zip(groups, saved, strict=True)
               for number, p in zip(s["params"], g["params"], strict=True)}

        def cast(param: Any, value: Any, number: Any, key: Any = None) -> Any:
            if isinstance(value, torch.Tensor):
                return Optimizer._process_value_according_to_param_policy(
                    param, value, number, state_dict["param_groups"], key)
            if isinstance(value, dict):
                return {k: cast(param, v, number, k) for k, v in value.items()}
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
                return type(value)(cast(param, v, number) for v in value)  # type: ignore[call-arg]
            return value

        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in own:
                state[own[key]] = cast(own[key], value, key)
            else:
                state[key] = value
        for group, new in zip(groups, saved, strict=True):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        self._state_is_loaded = True
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(param: Any, value: Any, param_id: Any, param_groups: list[dict],
                                                 key: Any = None) -> Any:
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=torch.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    # --- gradients, steps, groups -------------------------------------------------------------------------------------
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros in place (`set_to_none=False`)."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p._grad
                if grad is None:
                    continue
                if set_to_none:
                    p._grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once. `closure` evaluates the loss again and returns it."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: {"params": tensor, list of tensors or of (name, tensor), option: value, ...}."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, torch.Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        else:
            params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        param_group["params"] = params
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, torch.Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + _typename(p))
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(map(id, params))):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause "
                          "an error; see github.com/pytorch/pytorch/issues/40967 for more information", stacklevel=3)
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                                 f"{'with' if 'param_names' in param_group else 'without'} names to the optimizer")
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)


def _evaluate_closure(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose step is one update rule over every element.

    A subclass names its `rule` and says, for a group: `_flags` (values of the rule's flags, in their order), `_scalars`
    (numbers by name) and `_new_state` (what a parameter's state starts as). State entries named in `counters` are 0-dim
    tensors that hold numbers: parameters whose counters are equal are updated together.
    """

    rule: Rule
    _state_is_loaded = False
    counters: tuple[str, ...] = ("step",)

    def _flags(self, group: dict[str, Any]) -> tuple:
        raise NotImplementedError

    def _scalars(self, group: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _new_state(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        raise NotImplementedError

    def _advance(self, group: dict[str, Any], scalars: dict[str, Any], values: tuple, counters: list[list]) -> tuple:
        """Move `counters[k]`, lists of tensors that hold `values[k]`, to this step; put what the rule needs of them
        into `scalars`; return further flags of the rule."""
        scalars["step"] = step = values[0] + 1.0
        advance_counters(counters[0], step)
        return ()

    def _counter(self, group: dict[str, Any], p: Any, value: float = 0.0) -> Any:
        fused = group.get("fused")
        device = p.device if fused or group.get("capturable") else "cpu"
        return torch.tensor(value, dtype=_get_scalar_dtype(fused), device=device)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have a gradient, once. Returns `closure()`, evaluated first, if there is one."""
        loss = _evaluate_closure(closure)
        if self._state_is_loaded:
            self._check_loaded_state()
        if self.defaults.get("differentiable"):
            with torch.enable_grad():
                self._step_groups()
        elif any([group.get("differentiable") for group in self.param_groups]):
            with torch.no_grad():
                self._step_groups()
        else:
            self._step_groups()
        return loss

    def _check_loaded_state(self) -> None:
        """Loaded state of another shape that holds as many elements: an update of flat arrays would not notice it."""
        for group in self.param_groups:
            for p in group["params"]:
                for name, value in self.state.get(p, {}).items():
                    if isinstance(value, torch.Tensor) and value.dim() and value.shape != p.shape \
                            and value.numel() == p.numel():
                        raise RuntimeError(f"the loaded state {name!r} of shape {list(value.shape)} does not fit its "
                                           f"parameter of shape {list(p.shape)}: the size of tensor a must match the "
                                           "size of tensor b")
        self._state_is_loaded = False

    def _step_groups(self) -> None:
        for group in self.param_groups:
            self._step_group(group)

    def _gather(self, group: dict[str, Any]) -> tuple[list, list, list]:
        """(parameters, gradients, states) of the group's parameters that have a gradient."""
        params, grads, states = [], [], []
        state_of = self.state
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            if grad._a.__class__ is not ndarray and grad.is_sparse:
                self._take_sparse(group, p, grad)
                continue
            state = state_of[p]
            if not state:
                if group.get("fused"):
                    self._check_fused(p)
                state.update(self._new_state(group, p))
            params.append(p)
            grads.append(grad)
            states.append(state)
        return params, grads, states

    def _sparse_message(self) -> str:
        return f"{type(self).__name__} does not support sparse gradients"

    def _take_sparse(self, group: dict[str, Any], p: Any, grad: Any) -> None:
        raise RuntimeError(self._sparse_message())

    def _check_group(self, group: dict[str, Any], params: list) -> None:
        """What can only be refused when the parameters and their devices are known."""
        if group.get("differentiable") and group.get("foreach"):
            raise AssertionError("_foreach ops don't support autograd")
        if group.get("capturable") and any(p.device.type == "cpu" for p in params):
            raise AssertionError("If capturable=True, params and state_steps must be on supported devices: "
                                 "['cuda', 'xpu', 'hpu', 'privateuseone', 'xla'].")

    def _check_fused_options(self) -> None:
        if self.defaults["fused"]:
            if self.defaults["differentiable"]:
                raise RuntimeError("`fused` does not support `differentiable`")
            if self.defaults["foreach"]:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    @staticmethod
    def _check_fused(p: Any) -> None:
        if not p.is_floating_point():
            raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of supported "
                               f"devices: ['cpu'] but {p.dtype} and {p.device.type}")

    def _group_defaults(self, **options: Any) -> None:
        """Options that checkpoints from before they existed lack."""
        for group in self.param_groups:
            for name, value in options.items():
                group.setdefault(name, value)

    def _tensor_counters(self, *names: str) -> None:
        """Counters that old checkpoints hold as numbers become tensors."""
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state.get(p)
                for name in names:
                    if state and not isinstance(state.get(name, 0.0), torch.Tensor):
                        state[name] = self._counter(group, p, float(state[name]))

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads, states = self._gather(group)
        if not params:
            return
        self._check_group(group, params)
        scalars = self._scalars(group)
        counters = [[state[name] for state in states] for name in self.counters]
        values = list(zip(*[[c._a.item() for c in column] for column in counters], strict=True))
        flags = self._flags(group)
        if values.count(values[0]) == len(values):
            extra = self._advance(group, scalars, values[0], counters)
            self._apply(group, self.rule.variant(*flags, *extra), params, grads, states, scalars)
            return
        buckets: dict[tuple, list[int]] = {}
        for i, value in enumerate(values):
            buckets.setdefault(value, []).append(i)
        for value, members in buckets.items():
            extra = self._advance(group, scalars, value, [[column[i] for i in members] for column in counters])
            p, g, s = ([x[i] for i in members] for x in (params, grads, states))
            self._apply(group, self.rule.variant(*flags, *extra), p, g, s, scalars)

    def _apply(self, group: dict[str, Any], rule: Variant, params: list, grads: list, states: list,
               scalars: dict[str, Any]) -> None:
        columns = {"param": params, "grad": grads}
        for name in rule.reads:
            if name not in columns:
                columns[name] = [state[name] for state in states]
        apply_update(rule, columns, scalars, bool(group.get("differentiable")))


_missing.hint(__name__)
