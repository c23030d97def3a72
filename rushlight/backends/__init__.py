"""Backends: where arrays live and what computes on them.

    cpu/      NumPy arrays, a caching allocator, a thread pool, BLAS, array functions
    meta.py   arrays without memory: shape, strides and dtype only
    cudnn.py cuda.py mps.py mkldnn.py ...   `torch.backends`: settings of backends that are not here, which programs make in passing

A backend knows nothing of Tensor and must not import `core`, `ops`, `autograd`, `nn` or `optim`.
"""

from __future__ import annotations

from typing import Any

from rushlight import _missing

_SETTINGS = ("cudnn", "cuda", "mps", "mkl", "mkldnn", "mha", "nnpack", "openmp", "opt_einsum")     # torch.backends: modules of settings, loaded when asked for


def __getattr__(name: str) -> Any:
    if name in _SETTINGS:
        from importlib import import_module
        return import_module("." + name, __name__)
    raise _missing.missing(__name__, name)
