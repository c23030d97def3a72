"""Spectral normalisation (Miyato et al. 2018): weight / sigma, its largest singular value by power iteration."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.core.tensor import Tensor

from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from ..parameter import Parameter, is_lazy

__all__ = ["SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "spectral_norm",
           "remove_spectral_norm"]


def _normalize(x: Tensor, eps: float) -> Tensor:
    return x / rushlight.linalg.vector_norm(x).clamp_min(eps)


class SpectralNorm:
    """The forward pre-hook that divides the weight by its spectral norm; in training it iterates first."""

    _version: int = 1  # 1 added the vector v to the state

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got n_power_iterations="
                             f"{n_power_iterations}")
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """(size of dim, everything else)"""
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.dim()) if d != self.dim])
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight; the buffers u and v are advanced in place where asked."""
        weight, u, v = (getattr(module, self.name + s) for s in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with rushlight.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(_normalize(rushlight.mv(matrix.t(), u), self.eps))
                    u.copy_(_normalize(rushlight.mv(matrix, v), self.eps))
                # backward keeps these vectors, and the next forward overwrites the buffers
                u, v = u.clone(), v.clone()
        return weight / rushlight.dot(u, rushlight.mv(matrix, v))

    def remove(self, module: Module) -> None:
        """Makes the present weight an ordinary parameter again."""
        with rushlight.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, matrix: Tensor, u: Tensor, sigma: Tensor) -> Tensor:
        """The v that states before version 1 lack: from W^T W v' = W^T u, scaled so that u^T W v is sigma."""
        v = rushlight.mv(rushlight.mm(rushlight.linalg.pinv(matrix.t().mm(matrix)), matrix.t()), u)
        return v.mul_(sigma / rushlight.dot(u, rushlight.mv(matrix, v)))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Moves the parameter `name` to `name`_orig, draws u and v, and installs the hooks."""
        for other in module._forward_pre_hooks.values():
            if isinstance(other, SpectralNorm) and other.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight: Any = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError("The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to "
                             "run the dummy forward before applying spectral normalization")
        with rushlight.no_grad():
            rows, columns = hook.reshape_weight_to_matrix(weight).size()
            u = _normalize(weight.new_empty(rows).normal_(0, 1), eps)
            v = _normalize(weight.new_empty(columns).normal_(0, 1), eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)  # a plain attribute until the first forward
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Computes v for states that were saved before there was one."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list,
                 unexpected_keys: list, error_msgs: list) -> None:
        fn = self.fn
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        key = prefix + fn.name
        if version is None and key not in state_dict and all(key + s in state_dict for s in ("_orig", "_u", "_v")):
            return  # new, but its metadata was lost
        missing = [key + s for s in ("_orig", "", "_u") if key + s not in state_dict]
        if missing:
            if strict:
                missing_keys.extend(missing)
            return
        with rushlight.no_grad():
            original, weight = state_dict[key + "_orig"], state_dict.pop(key)
            state_dict[key + "_v"] = fn._solve_v_and_rescale(fn.reshape_weight_to_matrix(original),
                                                             state_dict[key + "_u"],
                                                             (original / weight).mean())


class SpectralNormStateDictHook:
    """Notes the version in the metadata."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Any:
    """Divides the parameter `name` of `module` by its spectral norm before every forward. Returns `module`.

    `dim` is the dimension of the outputs: 0, or 1 for transposed convolutions.
    """
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `spectral_norm`; ValueError where there is none."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for table, kind in ((module._state_dict_hooks, SpectralNormStateDictHook),
                        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook)):
        for key, hook in list(table.items()):
            hook = getattr(hook, "hook", hook)
            if isinstance(hook, kind) and hook.fn.name == name:
                del table[key]
                break
    return module
