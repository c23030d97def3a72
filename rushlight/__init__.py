"""Rushlight: a lightweight torch.

`import rushlight as torch`, or `rushlight run script.py` for programs that say `import torch`. Names are resolved when first
used; importing this loads NumPy and the operators' records, nothing else.
"""

from __future__ import annotations

import sys as _sys
from typing import Any

from . import _missing
from .core import dtype as _dtype
from .core.device import device as device
from .core.dtype import dtype as dtype
from .core.dtype import finfo as finfo
from .core.dtype import iinfo as iinfo
from .core.tensor import Size as Size
from .core.tensor import Tensor as Tensor
from .torch_version import TorchVersion as _TorchVersion
from .version import __version__ as _version

_dt = _dtype.ALL
bool, uint8, int8, int16, int32, int64 = (_dt[n] for n in ("bool", "uint8", "int8", "int16", "int32", "int64"))
uint16, uint32, uint64 = _dt["uint16"], _dt["uint32"], _dt["uint64"]
float16, bfloat16, float32, float64 = (_dt[n] for n in ("float16", "bfloat16", "float32", "float64"))
complex32, complex64, complex128 = _dt["complex32"], _dt["complex64"], _dt["complex128"]
float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu = (
    _dt[n] for n in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"))
qint8, quint8, qint32 = _dt["qint8"], _dt["quint8"], _dt["qint32"]
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
cfloat, cdouble, chalf = complex64, complex128, complex32
inf, nan, pi, e = 1e999, 1e999 - 1e999, 3.141592653589793, 2.718281828459045
newaxis = None
__version__ = _TorchVersion(_version)
del _dt

# where the names that are not operators live
_WHERE = {
    "core.dtype": ("get_default_dtype", "set_default_dtype"),
    "core.promotion": ("promote_types", "result_type"),
    "core.layout": ("layout", "memory_format", "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "contiguous_format",
                    "preserve_format", "channels_last", "channels_last_3d"),
    "core.random": ("Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"),
    "core.printing": ("set_printoptions",),
    "core.storage": ("Storage", "StorageBase", "UntypedStorage", "TypedStorage", "FloatStorage", "DoubleStorage", "HalfStorage", "LongStorage", "IntStorage", "ShortStorage",
                     "CharStorage", "ByteStorage", "BoolStorage", "BFloat16Storage", "ComplexFloatStorage", "ComplexDoubleStorage"),
    "core.names": ("is_tensor", "is_storage", "is_floating_point", "is_complex", "is_signed", "is_nonzero", "numel", "can_cast",
                   "set_default_tensor_type", "_set_default_tensor_type_", "set_default_device", "get_default_device", "get_num_threads",
                   "set_num_threads", "get_num_interop_threads", "set_num_interop_threads", "is_deterministic_algorithms_warn_only_enabled",
                   "use_deterministic_algorithms", "are_deterministic_algorithms_enabled", "set_float32_matmul_precision",
                   "get_float32_matmul_precision", "memory_stats", "set_flush_denormal", "typename", "is_warn_always_enabled", "set_warn_always",
                   "is_autocast_enabled", "is_inference", "broadcast_shapes", "compiled_with_cxx11_abi", "is_same_size", "FloatTensor",
                   "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor",
                   "BFloat16Tensor", "is_neg", "is_conj", "_assert", "_is_grad_enabled"),
    "autograd.modes": ("no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled",
                       "is_anomaly_enabled", "is_anomaly_check_nan_enabled"),
    "serialization": ("save", "load"),
    "compiler": ("compile",),
    "backends.cpu.allocator": ("OutOfMemoryError",),
    "core.errors": ("AcceleratorError",),
    "amp": ("autocast", "get_autocast_dtype", "is_autocast_cache_enabled"),
}
# modules that PyTorch has under another name
_ELSEWHERE = {"storage": "core.storage", "_tensor": "core.tensor", "random": "core.random", "torch": ""}
_NAMES = {n: m for m, ns in _WHERE.items() for n in ns}
_SUBMODULES = ("nn", "optim", "autograd", "utils", "linalg", "fft", "special", "masked", "signal", "serialization", "compiler", "alias", "cli", "ops", "core",
               "xpu", "hpu", "mtia", "mps", "cpu", "accelerator",
               "backends", "version", "torch_version", "__future__", "cuda", "functional", "testing", "_utils", "_C", "_dynamo", "return_types", "types", "multiprocessing",
               "distributions", "jit", "amp", "sparse", "onnx", "hub", "distributed", "profiler", "legacy", "library", "func", "export", "quantization")


def __getattr__(name: str) -> Any:
    from importlib import import_module
    if name in _NAMES:
        value = getattr(import_module("." + _NAMES[name], __name__), name)
    elif name in _ELSEWHERE:
        value = import_module("." + _ELSEWHERE[name], __name__)
    elif name in _SUBMODULES:
        try:
            return import_module("." + name, __name__)
        except ModuleNotFoundError as err:
            if err.name != f"{__name__}.{name}":
                raise
            raise _missing.missing(__name__, name) from None
    elif name == "__all__":  # what `import *` asks for: everything but the modules
        from types import ModuleType

        from .ops import names
        own = [n for n, v in globals().items() if not isinstance(v, ModuleType) and n not in ("Any", "annotations")]
        return sorted(n for n in {*own, *_NAMES, *names()} if not n.startswith("_"))
    elif name == "__path__":
        raise AttributeError(name)
    else:
        from .ops import declare, load
        load()
        table = declare.NAMESPACES["torch"]
        if name in table:
            value = table[name].function
        elif name.endswith("_") and name[:-1] in table and table[name[:-1]].inplace:
            value = table[name[:-1]].inplace_function
        else:
            raise _missing.missing(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from pkgutil import iter_modules

    from .ops import names
    return sorted({*globals(), *_NAMES, *names(), *(m.name for m in iter_modules(__path__) if m.name in _SUBMODULES)})


from . import ops as _ops  # noqa: E402

_ops.load()
if _missing.Finder not in _sys.meta_path:
    _sys.meta_path.append(_missing.Finder)
