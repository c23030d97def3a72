"""Matrix products: tiles of our own kernels and of NumPy's BLAS library, spread over our threads.

Generated code (blas_ir.py) cuts a product into tiles by its shape alone; so a large product costs one native call, uses
the process's one pool, and has equal bits for any number of threads. A tile runs in a kernel of ours (gemm_ir.py) or in
the OpenBLAS that NumPy's wheels carry, whose C symbols are called directly, one thread to a call. Small products go to
`numpy.dot` and `numpy.matmul`, which are cheaper to call.

OpenBLAS's own threads are set to ONE at the first product (`set_library_threads`). The setting is the library's, not
ours, and has no form for one thread or one call: NumPy's own products in the same process run on one thread from then
on. `RUSHLIGHT_BLAS_THREADS` names another number (results then may depend on it, as OpenBLAS cuts by thread).

Where the library is not found (another BLAS, or no llvmlite), everything goes to `numpy.matmul`.

Operands may have any strides: rows or columns that BLAS can step over are used as they lie, transposed too; the rest is
copied. Integers are multiplied exactly modulo their width (in float64 where that is exact, else by NumPy's loops);
float16 and bfloat16 are multiplied in float32 and rounded once at the end.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import struct
import threading
from typing import Any

import numpy as np

from rushlight.backends.cpu import blas_ir, gemm_ir, native, threads
from rushlight.backends.cpu.allocator import empty, zeros

__all__ = ["address", "bgemm", "dot", "gemm", "gemv", "info", "set_library_threads"]

_TYPES: dict[np.dtype, str] = {np.dtype(np.float32): "s", np.dtype(np.float64): "d", np.dtype(np.complex64): "c",
                               np.dtype(np.complex128): "z"}
_LETTERS = frozenset("sdcz")
_BIASED = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_pack = struct.Struct(f"={blas_ir.GIVEN}q").pack
# NumPy's own call is as good with fewer multiplications than these (a matrix-vector product is bound by memory), and
# with results of fewer elements, as memory is then not worth reusing.
_SMALL = {t: 600_000 if t.kind == "f" else 1_500_000 for t in _TYPES}
_SMALL_VECTOR = _SMALL_OUT = 1 << 18
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_VIA_F32 = frozenset(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
_DOT_CHUNK = 1 << 18
_lock = threading.RLock()


class _Routines:
    """The BLAS library that NumPy uses, found by its symbols."""

    # prefix, suffix, integer type: scipy-openblas wheels, then plain OpenBLAS builds
    FORMS = (("scipy_", "64_", "i64"), ("scipy_", "", "i32"), ("", "64_", "i64"), ("", "", "i32"))

    def __init__(self, path: str) -> None:
        # Symbols are looked up in the extension module and in what it was linked with.
        self.handle = ctypes.CDLL(path)
        for form in self.FORMS:
            self.prefix, self.suffix, self.int_type = form
            if all(hasattr(self.handle, self.name(f"cblas_{t}{r}")) for t in "sdcz" for r in ("gemm", "gemv")):
                break
        else:
            raise OSError(f"no cblas symbols in {path}")
        setter = getattr(self.handle, self.name("openblas_set_num_threads"), None)
        if setter is None:
            raise OSError("this BLAS is not OpenBLAS")
        self.set_threads = setter
        setter.argtypes, setter.restype = [ctypes.c_int], None
        self.get_threads = getattr(self.handle, self.name("openblas_get_num_threads"))
        self.programs: dict[str, Any] = {}              # by type letter, as they are first wanted
        self.libraries: dict[str, Any] = {}
        self.tiles: dict[str, Any] = {}

    def name(self, symbol: str) -> str:
        return f"{self.prefix}{symbol}{self.suffix}"

    def address(self, symbol: str) -> int:
        found = ctypes.cast(getattr(self.handle, self.name(symbol)), ctypes.c_void_p).value
        assert found
        return found

    def describe(self) -> str:
        get = getattr(self.handle, self.name("openblas_get_config"))
        get.restype = ctypes.c_char_p
        return get().decode(errors="replace").strip()

    def compile(self, t: str) -> None:
        """Generate the tiled product of type `t`; it calls this library and the pool through their addresses."""
        from rushlight.compiler import jit

        jit.import_symbol("rl_parallel", threads.entry_address())
        for r in ("gemm", "gemv"):
            jit.import_symbol(f"rl_blas_{t}{r}", self.address(f"cblas_{t}{r}"))
        if t in "sd":
            self.tiles[t] = native.build("gemm", gemm_ir.source, t, native.vector_bytes(), native.registers())
            jit.import_symbol(f"rl_{t}tile", self.tiles[t].address(f"rl_{t}tile"))
        self.libraries[t] = library = jit.compile_ir(blas_ir.source(t, self.int_type), opt=2)
        self.programs[t] = library.function(f"rl_{t}gemm_run", None, ctypes.c_void_p)


_routines: _Routines | None = None
_ready = False                              # the library was looked for


def _prepare() -> None:
    global _routines, _ready
    with _lock:
        if _ready:
            return
        try:
            from numpy._core import _multiarray_umath
            _routines = _Routines(_multiarray_umath.__file__)
        except (ImportError, OSError, AttributeError):
            _routines = None
        _ready = True
        text = os.environ.get("RUSHLIGHT_BLAS_THREADS", "1")
        set_library_threads(int(text) if text.isdigit() and int(text) > 0 else 1)


def _program(t: str) -> Any:
    """The tiled product of type letter `t`; None without library or compiler."""
    if not _ready:
        _prepare()
    if _routines is None:
        return None
    program = _routines.programs.get(t)
    if program is not None:
        threads.ensure()                    # a forked child has no workers yet
        return program
    with _lock:
        if t not in _routines.programs and threads.native():
            _routines.compile(t)
    return _routines.programs.get(t)


def set_library_threads(n: int) -> int | None:
    """Set the number of threads of the OpenBLAS that NumPy uses, for the whole process; the number before, or None when
    the library is another one. Called with 1 at the first product."""
    if n < 1:
        raise ValueError(f"set_library_threads expects a positive number, got {n}")
    if not _ready:
        _prepare()
    if _routines is None:
        return None
    before = int(_routines.get_threads())
    _routines.set_threads(n)
    return before


def info() -> dict[str, Any]:
    """For `rushlight doctor`: `library` (OpenBLAS's own description, or None), `native` (whether our code tiles),
    `integers`, `library_threads`."""
    if not _ready:
        _prepare()
    if _routines is None:
        return {"library": None, "native": False, "integers": None, "library_threads": None}
    return {"library": _routines.describe(), "native": _program("s") is not None, "integers": _routines.int_type,
            "library_threads": int(_routines.get_threads())}


def address(name: str) -> int:
    """The address of a routine for generated code. Calls are C; all arguments of the first two are 64-bit but `alpha`
    and `beta`, which are float (s), double (d), or pointers to two floats (c) or doubles (z).

    * "sgemm", "dgemm", "cgemm", "zgemm": `void (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)`, row-major
      C = alpha op(A) op(B) + beta C with C m x n; `ta`, `tb`: 111 as it lies, 112 transposed, 113 conjugated too (only
      where m and n exceed 1); C is not read when beta is 0; k must not be 0. Tiled over the pool.
    * "sgemm_run", ...: `void (words)`: the block described in blas_ir.py, for batches.
    * "cblas_sgemm", ..., "cblas_sgemv", ...: the library's own routine, with its own integers (`info()["integers"]`)
      and C enumerations of 32 bits.

    KeyError for an unknown name, RuntimeError where there is no such library.
    """
    letter = name[6:7] if name.startswith("cblas_") else name[:1]
    if _program(letter if letter in _LETTERS else "s") is None or _routines is None:
        raise RuntimeError("no BLAS library to call: NumPy uses another one than OpenBLAS, or llvmlite is missing")
    if letter in _LETTERS and name[1:] in ("gemm", "gemm_run"):
        return _routines.libraries[letter].address("rl_" + name)
    if name.startswith("cblas_") and letter in _LETTERS and name[7:] in ("gemm", "gemv"):
        return _routines.address(name)
    raise KeyError(f"unknown BLAS routine {name!r}: expected [sdcz]gemm, [sdcz]gemm_run, cblas_[sdcz]gemm or "
                   "cblas_[sdcz]gemv")


def _layout(rows: int, cols: int, rs: int, cs: int, size: int) -> tuple[int, int]:
    """(111 or 112, leading dimension) for a matrix with byte strides `rs`, `cs`; (0, 0) if BLAS cannot step over it."""
    if rows == 1 and cols == 1:
        return 111, 1
    if cs == size or cols == 1:
        if rows == 1:
            return 111, cols
        if rs >= cols * size and rs % size == 0:
            return 111, rs // size
    if rs == size or rows == 1:
        if cs >= rows * size and cs % size == 0:
            return 112, cs // size
    return 0, 0


def _packed(a: np.ndarray) -> np.ndarray:
    out = empty(a.shape, a.dtype)
    out[...] = a
    return out


def _usable(a: np.ndarray) -> tuple[np.ndarray, int, int]:
    """The matrices in the last two dimensions of `a` (copied if they must be), flag and leading dimension."""
    flag, ld = _layout(a.shape[-2], a.shape[-1], a.strides[-2], a.strides[-1], a.itemsize)
    if not flag or not a.flags.aligned or not a.dtype.isnative:
        a = _packed(a.astype(a.dtype.newbyteorder("=")) if not a.dtype.isnative else a)
        flag, ld = 111, a.shape[-1]
    return a, flag, max(ld, 1)


def _run(t: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: Any, beta: Any, bias: np.ndarray | None = None) -> None:
    """C = alpha A B + beta C, or alpha A B + bias for real matrices, for equal batch dimensions (two at most, the strides of a batch at will), nothing empty.
    C's matrices are row-major."""
    a, ta, lda = _usable(a)
    b, tb, ldb = _usable(b)
    m, k = a.shape[-2:]
    n = b.shape[-1]
    batch = c.shape[:-2]
    inner = batch[-1] if batch else 1
    strides = [(x.strides[0] if len(batch) == 2 else 0, x.strides[-3] if batch else 0) for x in (a, b, c)]
    _, s = _scalars(alpha, beta, c.dtype)
    _program(t)(_pack(
        ta, tb, m, n, k, native.address(a), lda, native.address(b), ldb, native.address(c),
        _layout(m, n, c.strides[-2], c.strides[-1], c.itemsize)[1] if m > 1 else n, s, s + c.itemsize,
        math.prod(batch), inner, *strides[0], *strides[1], *strides[2], 0 if bias is None else native.address(bias)))


@functools.lru_cache(256)
def _scalars(alpha: Any, beta: Any, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """The two numbers side by side, and where they lie."""
    pair = np.array((alpha, beta), dtype)
    return pair, native.address(pair)


def _result(a: np.ndarray, b: np.ndarray) -> np.dtype:
    return a.dtype if a.dtype == b.dtype else np.result_type(a.dtype, b.dtype)


def gemm(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None, alpha: Any = 1.0, beta: Any = 0.0,
         bias: np.ndarray | None = None) -> np.ndarray:
    """alpha * (a @ b) + beta * out for matrices (m, k) and (k, n) of any strides; plus `bias` (n,) in every row, which
    must have the dtype of a product without `out` and is added in the same pass where that is possible.

    `out` (m, n) is written and returned; without it the result is new, C-contiguous and `beta` has no effect. `out` is
    not read when `beta` is 0; it may overlap `a` and `b`. Operands of different dtypes are promoted as NumPy does.
    RuntimeError for shapes that do not fit or an `out` of another shape or dtype.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"gemm expects two matrices, but got arrays of shapes {a.shape} and {b.shape}")
    m, k = a.shape
    n = b.shape[1]
    if b.shape[0] != k:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {b.shape[0]}x{n})")
    if out is None:
        dtype = a.dtype
        limit = _SMALL.get(dtype, 0)
        if m * n * k < limit and m * n < _SMALL_OUT and (m > 1 < n or m * n * k < _SMALL_VECTOR) and dtype == b.dtype:
            if not _ready:
                _prepare()
            c = np.dot(a, b)
            if alpha != 1:
                np.multiply(c, c.dtype.type(alpha), out=c)
        elif bias is not None and dtype in _BIASED and dtype == b.dtype == bias.dtype and m > 1 < n and k and bias.flags.c_contiguous \
                and bias.flags.aligned and _program(_TYPES[dtype]) is not None:
            c = empty((m, n), dtype)
            _run(_TYPES[dtype], a, b, c, alpha, 0, bias)
            return c
        else:
            c = _product(a, b, None, (m, n), alpha, 0)
        if bias is not None:
            c += bias
        return c
    if bias is not None:
        raise RuntimeError("gemm takes a bias or an out, not both")
    _check_out(out, (m, n), _result(a, b))
    return _product(a, b, out, (m, n), alpha, beta)


def bgemm(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None, alpha: Any = 1.0, beta: Any = 0.0) -> np.ndarray:
    """`gemm` for each of a batch: (..., m, k) and (..., k, n), at least two dimensions each, whose leading dimensions
    are broadcast against each other; `out`, if given, has the full shape. Errors as `gemm`."""
    if a.ndim < 2 or b.ndim < 2:
        raise RuntimeError(f"bgemm expects arrays of at least two dimensions, but got shapes {a.shape} and {b.shape}")
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if b.shape[-2] != k:
        raise RuntimeError(f"the matrices of a batch cannot be multiplied ({m}x{k} and {b.shape[-2]}x{n}): the shapes "
                           f"are {a.shape} and {b.shape}")
    if a.shape[:-2] == b.shape[:-2]:
        batch = a.shape[:-2]
    else:
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise RuntimeError(f"the batch dimensions of shapes {a.shape} and {b.shape} cannot be broadcast") from None
    shape = (*batch, m, n)
    if out is not None:
        _check_out(out, shape, _result(a, b))
    return _product(a, b, out, shape, alpha, beta if out is not None else 0)


def gemv(a: np.ndarray, x: np.ndarray, out: np.ndarray | None = None, alpha: Any = 1.0, beta: Any = 0.0) -> np.ndarray:
    """alpha * (a @ x) + beta * out for a matrix (m, k) and a vector (k,); otherwise as `gemm`."""
    if a.ndim != 2 or x.ndim != 1:
        raise RuntimeError(f"gemv expects a matrix and a vector, but got arrays of shapes {a.shape} and {x.shape}")
    m, k = a.shape
    if x.shape[0] != k:
        raise RuntimeError(f"size mismatch, got input ({m}), mat ({m}x{k}), vec ({x.shape[0]})")
    if out is not None:
        _check_out(out, (m,), _result(a, x))
        _product(a, x[:, None], out[:, None], (m, 1), alpha, beta)
        return out
    if a.dtype in _TYPES and a.dtype == x.dtype and m * k < _SMALL_VECTOR:
        if not _ready:
            _prepare()
        y = np.dot(a, x)
        return y if alpha == 1 else np.multiply(y, y.dtype.type(alpha), out=y)
    return _product(a, x[:, None], None, (m, 1), alpha, 0)[:, 0]


def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The sum of x * y (no conjugation) of two vectors, as a 0-d array. Long ones are cut in pieces of fixed length."""
    if x.ndim != 1 or y.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors")
    if x.shape != y.shape:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{x.size}] and src [{y.size}] to have the same "
                           f"number of elements, but got {x.size} and {y.size} elements respectively")
    if not _ready:
        _prepare()
    dtype = _result(x, y)
    if dtype not in _TYPES and not (dtype.kind in "iu" and dtype.itemsize == 8):
        return _product(x[None, :], y[:, None], None, (1, 1), 1, 0)[0, 0:1].reshape(())
    if x.size <= 2 * _DOT_CHUNK:
        return np.asarray(np.dot(x, y), dtype)
    parts = np.empty(-(-x.size // _DOT_CHUNK), dtype)

    def piece(begin: int, end: int) -> None:
        parts[begin // _DOT_CHUNK] = np.dot(x[begin:end], y[begin:end])

    threads.parallel_for(x.size, piece, grain=_DOT_CHUNK)
    return np.asarray(parts.sum(), dtype)


def _check_out(out: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if out.shape != shape:
        raise RuntimeError(f"the product has shape {shape}, but out has shape {out.shape}")
    if out.dtype != dtype:
        raise RuntimeError(f"the product has dtype {dtype}, but out has dtype {out.dtype}")
    if not out.flags.writeable:
        raise RuntimeError("out is read-only")


def _product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None, shape: tuple[int, ...], alpha: Any,
             beta: Any) -> np.ndarray:
    """The general case, shapes and dtypes checked; `beta` is 0 when `out` is None."""
    if not _ready:
        _prepare()
    dtype = _result(a, b)
    t = _TYPES.get(dtype)
    if t is None:
        return _other(a, b, out, shape, alpha, beta, dtype)
    k = a.shape[-1]
    size = math.prod(shape)
    if size == 0 or k == 0:
        if out is None:
            return zeros(shape, dtype)
        out[...] = 0 if beta == 0 else dtype.type(beta) * out
        return out
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    limit = _SMALL_VECTOR if 1 in shape[-2:] else _SMALL[dtype]
    if size * k < limit and size < _SMALL_OUT or _program(t) is None:
        if out is None or beta != 0 or alpha != 1:
            c = np.matmul(a, b, out=None if size < _SMALL_OUT else empty(shape, dtype))
            return _finish(c, out, alpha, beta)
        return np.matmul(a, b, out=out)
    if out is not None:
        flag, ld = _layout(shape[-2], shape[-1], out.strides[-2], out.strides[-1], out.itemsize)
        if flag == 112 and len(shape) == 2 and shape[0] > 1 and shape[1] > 1:          # C^T = B^T A^T
            _product(b.T, a.T, out.T, shape[::-1], alpha, beta)
            return out
        if flag != 111 or not _distinct(out) or np.may_share_memory(out, a) or np.may_share_memory(out, b):
            c = empty(shape, dtype)
            if beta != 0:
                c[...] = out
            _tiled(t, a, b, c, alpha, beta)
            out[...] = c
            return out
        _tiled(t, a, b, out, alpha, beta)
        return out
    c = empty(shape, dtype)
    _tiled(t, a, b, c, alpha, 0)
    return c


def _finish(c: np.ndarray, out: np.ndarray | None, alpha: Any, beta: Any) -> np.ndarray:
    """alpha * c + beta * out into `out`, or into `c` when there is none; in the dtype of `c`."""
    if alpha != 1:
        np.multiply(c, c.dtype.type(alpha), out=c)
    if out is None:
        return c
    if beta != 0:
        c += out if beta == 1 else c.dtype.type(beta) * out
    out[...] = c
    return out


def _distinct(out: np.ndarray) -> bool:
    """No batch dimension with stride 0, in which one matrix would be written many times."""
    return all(s != 0 or n == 1 for n, s in zip(out.shape[:-2], out.strides[:-2], strict=True))


def _tiled(t: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: Any, beta: Any) -> None:
    """Reduce the batch to at most two dimensions of any strides, then run."""
    batch = c.shape[:-2]
    if not batch:
        _run(t, a, b, c, alpha, beta)
        return
    m, n = c.shape[-2:]
    k = a.shape[-1]
    if b.ndim == 2 and c.flags.c_contiguous and a.flags.c_contiguous:       # one tall product
        _run(t, a.reshape(-1, k), b, c.reshape(-1, n), alpha, beta)
        return
    a, b = _expanded(_usable(a)[0], batch), _expanded(_usable(b)[0], batch)
    if len(batch) <= 2:
        _run(t, a, b, c, alpha, beta)
        return
    dims: list[tuple[int, ...]] = []                                        # size, strides of a, b, c; outermost first
    for size, *strides in zip(batch, a.strides, b.strides, c.strides):
        if size == 1:
            continue
        if dims and all(outer == inner * size for outer, inner in zip(dims[-1][1:], strides, strict=True)):
            size *= dims.pop()[0]
        dims.append((size, *strides))
    a, b, c = (np.lib.stride_tricks.as_strided(x, (*(d[0] for d in dims), *x.shape[-2:]),
                                               (*(d[w] for d in dims), *x.strides[-2:]))
               for w, x in ((1, a), (2, b), (3, c)))
    for index in np.ndindex(*(d[0] for d in dims[:-2])):
        _run(t, a[index], b[index], c[index], alpha, beta)


def _expanded(a: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    return a if a.shape[:-2] == batch else np.broadcast_to(a, (*batch, *a.shape[-2:]))


def _other(a: np.ndarray, b: np.ndarray, out: np.ndarray | None, shape: tuple[int, ...], alpha: Any, beta: Any,
           dtype: np.dtype) -> np.ndarray:
    """Dtypes that BLAS does not have. NotImplementedError for bools."""
    if dtype.kind == "b":
        raise NotImplementedError("matrix products are not implemented for 'Bool': convert the operands first, for instance with .int()")
    if dtype.name in _VIA_F32:
        c = _product(a.astype(_F32), b.astype(_F32), None, shape, alpha, 0)
        if beta != 0 and out is not None:
            c += _F32.type(beta) * out.astype(_F32)
        if out is None:
            out = empty(shape, dtype)
        out[...] = c.astype(dtype)
        return out
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    wide = _exact_float(a, b, math.prod(shape)) if dtype.kind in "iu" else None
    if wide is None:
        c = np.matmul(a, b)
    else:
        c = empty(shape, dtype)
        c[...] = _product(a.astype(wide), b.astype(wide), None, shape, 1, 0).astype(np.int64)
    return _finish(c, out, alpha, beta)


def _exact_float(a: np.ndarray, b: np.ndarray, size: int) -> np.dtype | None:
    """The float type in which an integer product is exact: every partial sum is an integer below 2^24 or 2^53."""
    k = a.shape[-1]
    if size * k < 1 << 13:
        return None
    bound = k
    for x in (a, b):
        bound *= max(int(x.max()), -int(x.min()))
    return _F32 if bound <= 1 << 24 else _F64 if bound <= 1 << 53 else None
