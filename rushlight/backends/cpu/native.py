"""How the array functions of this folder reach native code: libraries by dtype, the pool, scratch memory.

Everything is imported on first use, so that `import rushlight` loads neither llvmlite nor the compiler.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rushlight.backends.cpu.allocator import empty

__all__ = ["address", "available", "conv_library", "empty", "lanes", "parallel_call", "registers", "row_tiles", "slots",
           "vector_bytes"]

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


def registers() -> int:
    """How many vector registers there are: 16 with AVX2 and SSE, 32 with AVX-512 and elsewhere."""
    from rushlight.compiler import jit
    host = jit.host()
    return 16 if "86" in host["triple"].split("-")[0] and host["vector_bytes"] < 64 else 32


@cache
def row_tiles() -> list[tuple[int, int]]:
    from rushlight.backends.cpu import conv_kernels
    return conv_kernels.tiles(registers())[0]


@cache
def conv_library(dtype: str, width: int) -> Any:
    """The convolution kernels with vectors of `width` bytes."""
    from rushlight.backends.cpu import conv_kernels
    from rushlight.compiler import jit
    # opt=2: at 3 LLVM unrolls the inner loops, which spills the accumulators
    n = registers()
    return jit.compile_ir(lambda: conv_kernels.source(dtype, width, n),
                          f"conv:{conv_kernels.VERSION}:{dtype}:{width}:{n}", opt=2)


def address(a: np.ndarray) -> int:
    """The address of an array's first element."""
    return a.__array_interface__["data"][0]


def slots(tasks: int) -> int:
    """How many scratch slots a parallel call of `tasks` tasks can hold at once."""
    from rushlight.backends.cpu import threads
    return max(1, min(tasks, threads.num_threads(), 64))


def parallel_call(code: int, table: int, n: int, grain: int) -> None:
    """Run `void code(void* table, int64 begin, int64 end)` over range(n) on the pool."""
    from rushlight.backends.cpu import threads
    threads.parallel_call(code, table, n, grain)
