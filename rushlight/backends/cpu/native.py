"""How the array functions of this folder reach native code: libraries by dtype, the pool, scratch memory.

Everything is imported on first use, so that `import rushlight` loads neither llvmlite nor the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu.allocator import empty

__all__ = ["KERNEL_DTYPES", "address", "at", "available", "build", "conv_library", "empty", "lanes", "parallel_call",
           "registers", "row_tiles", "slots", "vector_bytes"]

# The dtypes that kernels exist for; `dtype.name` is computed at every use, which costs a microsecond.
KERNEL_DTYPES = {np.dtype(np.float32): "float32", np.dtype(np.float64): "float64"}


@cache
def available() -> bool:
    """Whether kernels can be generated here; without, every function has its NumPy path."""
    try:
        from rushlight.compiler import jit
    except ImportError:
        return False
    return jit.available()


@cache
def vector_bytes() -> int:
    """The width of the vectors that pay on this CPU."""
    from rushlight.compiler import jit
    return jit.host()["vector_bytes"]


def lanes(itemsize: int) -> int:
    """Elements of a vector."""
    return vector_bytes() // itemsize


def registers() -> int:
    """How many vector registers there are: 16 with AVX2 and SSE, 32 with AVX-512 and elsewhere."""
    from rushlight.compiler import jit
    host = jit.host()
    return 16 if "86" in host["triple"].split("-")[0] and host["vector_bytes"] < 64 else 32


@cache
def row_tiles() -> list[tuple[int, int]]:
    """The convolution's register tiles on this machine."""
    from rushlight.backends.cpu import conv_kernels
    return conv_kernels.tiles(registers())[0]


@cache
def build(name: str, source: Callable[..., str], *args: Any) -> Any:
    """The library that `source(*args)` describes. The cached object code is found by `name`, the arguments and a hash
    of the files that the text is made by: it never outlives them, and the text is not made to look it up."""
    from rushlight.backends.cpu import emit
    from rushlight.compiler import jit
    digest = hashlib.sha256()
    for path in (source.__code__.co_filename, emit.__file__):
        try:
            with open(path, "rb") as file:
                digest.update(file.read())
        except OSError:                                   # no source files (a frozen program): the text is the key
            return jit.compile_ir(source(*args), opt=2)
    # opt=2: at 3 LLVM unrolls the inner loops, which spills the accumulators
    return jit.compile_ir(lambda: source(*args), f"{name}:{digest.hexdigest()}:{args}", opt=2)


@cache
def conv_library(kind: str, dtype: np.dtype, width: int) -> Any:
    """The convolution kernels of a kind ("run", "run_paired", "weight_grad") with vectors of `width` bytes."""
    from rushlight.backends.cpu import conv_kernels
    return build("conv", conv_kernels.source, kind, KERNEL_DTYPES[dtype], width, registers())


def at(slices: Iterable[Any]) -> tuple[Any, ...]:
    """The index that takes these in the last dimensions."""
    return (..., *slices)


def _address_by_interface(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def _address_in_object(a: np.ndarray) -> int:
    return _word_at(id(a) + _HEAD).value or 0


# `__array_interface__` costs 1 us and `ctypes.data` 0.7; the pointer is the first field after the object's head in
# every NumPy ABI so far, and read there in 0.15 us where a probe confirms it.
_HEAD = object.__basicsize__
_word_at = ctypes.c_void_p.from_address
_probes = [np.empty(3), np.arange(8)[3:]]
_confirmed = (sys.implementation.name == "cpython"
              and all(_address_in_object(p) == _address_by_interface(p) for p in _probes))
address: Callable[[np.ndarray], int] = _address_in_object if _confirmed else _address_by_interface


def slots(tasks: int) -> int:
    """How many scratch slots a parallel call of `tasks` tasks can hold at once."""
    return max(1, min(tasks, (_pool or _load_pool()).num_threads(), 64))


def parallel_call(code: int, table: int, n: int, grain: int) -> None:
    """Run `void code(void* table, int64 begin, int64 end)` over range(n) on the pool."""
    (_pool or _load_pool()).parallel_call(code, table, n, grain)


_pool: Any = None


def _load_pool() -> Any:
    global _pool
    from rushlight.backends.cpu import threads
    _pool = threads
    return threads
