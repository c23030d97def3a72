"""Utilities on gradients, parameters and sequences."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Not when first asked for: these functions have their file's name, which a later import of the file would put here.
from rushlight import _missing

from .spectral_norm import remove_spectral_norm, spectral_norm
from .weight_norm import remove_weight_norm, weight_norm

_FILES = {
    "clip_grad": "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm",
    "convert_parameters": "parameters_to_vector vector_to_parameters",
    "fusion": "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
    "init": "skip_init",
    "memory_format": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format",
}
_SUBMODULES = (*_FILES, "parametrizations", "parametrize", "rnn", "stateless")
_FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = [*sorted(_FILE_OF), "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm", "stateless",
           "weight_norm"]


def __getattr__(name: str) -> Any:
    if name in _FILE_OF:
        value = getattr(import_module(f"{__name__}.{_FILE_OF[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise _missing.missing(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
