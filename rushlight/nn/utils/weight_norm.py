"""Weight normalisation (Salimans, Kingma 2016): weight = g * v / |v|, recomputed before every forward."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight.core.tensor import Tensor

from ..modules.module import Module
from ..parameter import Parameter, is_lazy

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]


def _norm(v: Tensor, dim: int) -> Tensor:
    """The norm over all dimensions but `dim` (kept, of size 1), or over all of them for -1."""
    if dim == -1:
        return rushlight.linalg.vector_norm(v)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return rushlight.linalg.vector_norm(v, 2, others, True) if others else v.abs()


class WeightNorm:
    """The forward pre-hook that computes the weight from its length and direction."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight that the two parameters stand for."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / _norm(v, self.dim))

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Splits the parameter `name` into `name`_g and `name`_v and installs the hook."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to "
                             "run the dummy forward before applying weight normalization")
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(_norm(weight, hook.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Makes the present weight an ordinary parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces the parameter `name` of `module` by its norm `name`_g, one for each index of `dim` (None: one for all),
    and its direction `name`_v. Returns `module`."""
    warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
                  "`torch.nn.utils.parametrizations.weight_norm`.",
                  FutureWarning, stacklevel=2)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `weight_norm`; ValueError where there is none."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
