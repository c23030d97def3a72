"""Native loops behind the random fills: the twister, Box-Muller transforms, the C library's mathematics, the shuffle.

Every kernel computes exactly what its NumPy counterpart computes (mt19937.py, boxmuller.py, distributions.py,
sampling.py), only faster; the float64 functions call the C library, whose bits PyTorch has. They are loaded when the
time that NumPy has lost against them pays for importing llvmlite and loading the code. Their text is in random_ir.py.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

__all__ = ["kernel", "COST"]

enabled = True  # tests turn it off to compare with NumPy

_PATIENCE_COLD, _PATIENCE_WARM = 40e6, 2e6  # ns lost before loading, without and with llvmlite already in the process
_functions: dict[str, Callable[..., int]] = {}
_lost = 0.0
unavailable: str | None = None  # why there are no native loops, once that is known

_P, _N, _D, _F, _U = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_float, ctypes.c_uint32
# Those that draw take the state's 624 words and the position in them, and return the new position.
_SIGNATURES = {
    "words": (_P, _N, _P, _N),
    "uniform32": (_P, _N, _P, _N, _F, _F),
    "doubles": (_P, _N, _P, _N),
    "normal32": (_P, _N, _P, _N, _F, _F),
    "trials": (_P, _N, _P, _N, _U, _U),
    "trials32": (_P, _N, _P, _N, _U, _U, _F),
    "residues": (_P, _N, _P, _N, _U, _N),
    "transform32": (_P, _N, _F, _F),
    "normal64": (_P, _N, _D, _D),
    "pairs": (_P, _P, _P, _N),
    "shuffle": (_P, _P, _N),
    "log": (_P, _N),
    "log1p": (_P, _N),
    "exp": (_P, _N),
    "tan": (_P, _N),
}
# ns that NumPy loses a call and an element
COST = {
    "words": (2e3, 2.5), "uniform32": (4e3, 4.0), "doubles": (6e3, 6.0), "normal32": (8e4, 30.0), "trials": (8e3, 6.0),
    "trials32": (8e3, 6.0), "residues": (6e3, 4.0), "transform32": (8e4, 30.0), "normal64": (2e3, 100.0),
    "pairs": (2e3, 200.0), "shuffle": (0.0, 100.0), "log": (0.0, 60.0), "log1p": (0.0, 60.0), "exp": (0.0, 60.0),
    "tan": (0.0, 60.0),
}  # fmt: skip


def kernel(name: str, n: int) -> Callable[..., int] | None:
    """The native `name`, or None while it does not pay; `n` is the number of elements of this call."""
    global _lost
    if not enabled:
        return None
    f = _functions.get(name)
    if f is not None or unavailable:
        return f
    call, element = COST[name]
    _lost += call + element * n
    if _lost < (_PATIENCE_WARM if "llvmlite" in sys.modules else _PATIENCE_COLD):
        return None
    _load()
    return _functions.get(name)


def _load() -> None:
    global unavailable
    try:
        from rushlight.backends.cpu.random_ir import VERSION, emit
        from rushlight.compiler.jit import compile_ir

        library = compile_ir(emit, f"random kernels {VERSION}")
    except (ImportError, RuntimeError) as error:  # no llvmlite, or a platform it cannot serve: NumPy does the work
        unavailable = str(error)
        return
    for name, arguments in _SIGNATURES.items():
        f = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(library.address(f"random_{name}"))
        f.library = library  # type: ignore[attr-defined]  # the code lives as long as its library
        _functions[name] = f
