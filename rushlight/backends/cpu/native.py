"""How the array functions of this folder reach native code: libraries by dtype, the pool, scratch memory.

Everything is imported on first use, so that `import rushlight` loads neither llvmlite nor the compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

__all__ = ["address", "available", "conv_library", "empty", "lanes", "parallel_call", "row_tiles", "slots", "vector_bytes"]

_task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


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
    from rushlight.compiler import jit
    return jit.host()["vector_bytes"]


def lanes(itemsize: int) -> int:
    return vector_bytes() // itemsize


@cache
def row_tiles() -> list[tuple[int, int]]:
    from rushlight.backends.cpu import conv_kernels
    return conv_kernels.tiles(vector_bytes())[0]


@cache
def conv_library(dtype: str) -> Any:
    from rushlight.backends.cpu import conv_kernels
    from rushlight.compiler import jit
    wide = vector_bytes()
    return jit.compile_ir(lambda: conv_kernels.source(dtype, wide), f"conv:{conv_kernels.VERSION}:{dtype}:{wide}", opt=2)


def address(a: np.ndarray) -> int:
    """The address of an array's first element."""
    return a.__array_interface__["data"][0]


try:
    from rushlight.backends.cpu.allocator import empty
except ImportError:
    def empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        return np.empty(shape, dtype)


def slots(tasks: int) -> int:
    """How many scratch slots a parallel call of `tasks` tasks can hold at once."""
    from rushlight.backends.cpu import threads
    return max(1, min(tasks, threads.num_threads(), 64))


def parallel_call(code: int, table: int, n: int, grain: int) -> None:
    """Run `void code(void* table, int64 begin, int64 end)` over range(n) on the pool."""
    from rushlight.backends.cpu import threads
    threads.parallel_call(code, table, n, grain)


@lru_cache(maxsize=64)
def _callable(code: int) -> Any:
    return _task_type(code)
