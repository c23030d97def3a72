"""Ready-made kernels for eager execution: what NumPy needs several passes for, in one.

`pointwise(...)` makes a function of arrays from scalar expressions; `multi_tensor(...)` one of lists of arrays
(optimizers); the row programs at the end are softmax and its kin. All take and return ndarrays. Code is made per
dtype at first use, cached in the process and on disk, and runs on the thread pool when the work is large. Contiguous
arrays take the short way (entry.py, about 0.2 us of overhead); anything else is described by strides and takes the
general one.

Where llvmlite is missing, `jit.available()` is False and nothing here can be called.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rushlight.backends.cpu import threads
from rushlight.backends.cpu.allocator import empty
from rushlight.compiler import entry, jit, llvm, scalar
from rushlight.compiler.llvm import Buffer, Kernel, Module, collapse
from rushlight.ops.expr import Expr, const, derivative, erf, postorder, tanh

__all__ = ["MultiTensor", "Pointwise", "RowKernel", "cast", "gelu", "gelu_backward", "has_native", "masked_fill",
           "multi_tensor", "native_dtype",
           "pointwise", "where"]


_names: dict[int, str] = {}


def native_dtype(a: np.ndarray) -> str | None:
    """The name of an array's dtype when kernels can be made for it, else None."""
    d = a.dtype
    name = _names.get(d.num)
    if name is None:
        name = _names[d.num] = d.name
    return name if name in scalar.MEMORY and d.isnative else None


def has_native(roots: Sequence[Expr], dtype: str) -> bool:
    """Whether every node of the expressions can be compiled for operands of that dtype."""
    return all(n.op in ("arg", "const", "cast") or scalar.has_native(n.op,
                                                                     dtype) for n in postorder(*map(const, roots)))


def _np_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def describe(roots: Mapping[str, Expr]) -> str:
    """The expressions as text with shared nodes written once: a key for code."""
    index: dict[int, int] = {}
    parts = []
    for n in postorder(*map(const, roots.values())):
        index[id(n)] = len(index)
        args = ",".join(f"@{index[id(a)]}" if isinstance(a, Expr) else f"{type(a).__name__}:{a!r}" for a in n.args)
        parts.append(f"{n.op}({args})")
    return ";".join(parts) + "|" + ",".join(f"{k}=@{index[id(const(v))]}" for k, v in roots.items())


def element_strides(a: np.ndarray, shape: tuple[int, ...]) -> list[int] | None:
    """The strides, in elements, of `a` broadcast to `shape`; None when they are no whole numbers."""
    lead = len(shape) - a.ndim
    out = [0] * lead
    item = a.itemsize
    for n, m, s in zip(a.shape, shape[lead:], a.strides, strict=True):
        if n == 1 and m != 1:
            out.append(0)
        else:
            if s % item:
                return None
            out.append(s // item)
    return out


def run_kernel(kernel: Kernel, address: int, words: bytes, grid: int, elements: int) -> None:
    """Run a kernel over its whole grid, on the pool when it is worth that."""
    keep = ctypes.create_string_buffer(words, len(words))
    at = ctypes.addressof(keep)
    grain = entry.grain_of(kernel.cost)
    if elements > 2 * grain and grid > 1:
        if kernel.kind == "rows":
            grain = max(1, grain * grid // elements)
        elif kernel.kind == "columns":
            grain = 1
        threads.parallel_call(address, at, grid, grain)
        return
    _SLICE(address)(at, 0, grid)


_SLICE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Pointwise:
    """A function of arrays from scalar expressions; see `pointwise`."""

    def __init__(self, name: str, outputs: Mapping[str, Expr], inputs: Sequence[str], scalars: Sequence[str],
                 result: str | Sequence[str], compute: str | None) -> None:
        self.name, self.outputs, self.inputs, self.scalars = name, dict(outputs), tuple(inputs), tuple(scalars)
        self.result = [result] * len(outputs) if isinstance(result, str) else list(result)
        self.compute = compute
        self._specs: dict[tuple, _PointwiseSpec] = {}
        self._quick: dict[Any, _PointwiseSpec] = {}          # by the numbers of NumPy's dtypes of the inputs
        self._text = describe(self.outputs)
        self._count = len(self.inputs)

    def spec(self, dtypes: tuple[str, ...], out: tuple[str, ...] | None = None) -> _PointwiseSpec:
        if out is None:
            out = tuple(dtypes[0] if r == "same" else r for r in self.result)
        found = self._specs.get((dtypes, out))
        if found is None:
            found = self._specs[dtypes, out] = _PointwiseSpec(self, dtypes, out)
        return found

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Arrays, then scalars. `out`: an array, or a tuple when there are several results; shapes broadcast."""
        k = self._count
        first = args[0]
        if out is None:
            spec = self._quick.get(_numbers(args, k))
            if spec is not None:
                if spec.single:
                    o = empty(first.shape, spec.np_out)
                    if spec.fast(*args[:k], o, *args[k:]):
                        return o
                else:
                    outs = tuple([empty(first.shape, d) for d in spec.np_outs])
                    if spec.fast(*args[:k], *outs, *args[k:]):
                        return outs
        return self._general(args[:k], args[k:], out)

    def _general(self, arrays: tuple[np.ndarray, ...], numbers: tuple, out: Any) -> Any:
        if len(arrays) != len(self.inputs) or len(numbers) != len(self.scalars):
            raise TypeError(f"{self.name}() takes arrays {self.inputs} and numbers {self.scalars}, got "
                            f"{len(arrays)} arrays and {len(numbers)} numbers")
        arrays = tuple([a if isinstance(a, np.ndarray) else np.asarray(a) for a in arrays])
        dtypes = []
        for n, a in zip(self.inputs, arrays, strict=True):
            d = native_dtype(a)
            if d is None:
                raise TypeError(f"{self.name}(): no native form for {n} of dtype {a.dtype}")
            dtypes.append(d)
        many = len(self.outputs) > 1
        outs = None if out is None else tuple(out) if many else (out,)
        if outs is None:
            spec = self.spec(tuple(dtypes))
            nums = tuple([a.dtype.num for a in arrays])
            self._quick[nums[0] if len(nums) == 1 else nums] = spec
            shape = arrays[0].shape if len(arrays) == 1 else np.broadcast_shapes(*[a.shape for a in arrays])
            a = arrays[0]
            if a.shape == shape and not a.flags.c_contiguous and all(b.strides == a.strides and b.shape == shape
                                                                    for b in arrays):
                outs = tuple(np.empty_like(a, dtype=_np_dtype(d), subok=False) for d in spec.out)   # keeps a's layout
            else:
                outs = tuple(empty(shape, d) for d in spec.np_outs)
        else:
            shape = np.broadcast_shapes(*[a.shape for a in arrays])
            if any(o.shape != shape for o in outs):
                raise ValueError(f"{self.name}(): out must have shape {shape}, got {[o.shape for o in outs]}")
            spec = self.spec(tuple(dtypes), tuple(native_dtype(o) or str(o.dtype) for o in outs))
        if not spec.fast(*arrays, *outs, *numbers):
            spec.strided(arrays, outs, shape, numbers)
        return outs if many else outs[0]


class _PointwiseSpec:
    """A pointwise function for fixed dtypes: the entry for contiguous arrays, and kernels by rank and inner strides."""

    def __init__(self, owner: Pointwise, dtypes: tuple[str, ...], out: tuple[str, ...]) -> None:
        for d in (*dtypes, *out):
            if d not in scalar.MEMORY:
                raise TypeError(f"{owner.name}(): no native form for dtype {d}")
        self.owner, self.dtypes, self.out = owner, dtypes, out
        self.np_outs = tuple(_np_dtype(d) for d in out)
        self.np_out, self.single = self.np_outs[0], len(out) == 1
        floats = [scalar.register_dtype(d) for d in dtypes if scalar.register_dtype(d).startswith("float")]
        self.compute = owner.compute or ("float64" if "float64" in (*floats, *out) else "float32")
        self.scalar_dtypes = tuple((s, self.compute) for s in owner.scalars)
        self._variants: dict[tuple[str, ...], Any] = {}
        self._kept: jit.Library | None = None
        self.fast: Callable[..., bool] = self._first

    def _key(self, layout: str) -> str:
        o = self.owner
        return "|".join(("pointwise", llvm.fingerprint(), o._text, *o.inputs, *self.dtypes, *o.outputs, *self.out,
                         *o.scalars, self.compute, layout))

    def _emit(self, m: Module, symbol: str, inner: Sequence[str], rank: int) -> Kernel:
        names = (*self.owner.inputs, *(f"{n}!" for n in self.owner.outputs))
        buffers = [Buffer(n, d, i) for n, d, i in zip(names, (*self.dtypes, *self.out), inner, strict=True)]
        outputs = {f"{n}!": e for n, e in self.owner.outputs.items()}
        return m.pointwise(symbol, outputs, buffers, rank=rank, scalars=self.scalar_dtypes, compute=self.compute)

    def _first(self, *args: Any) -> bool:
        """Make the entry, then be it."""
        if not entry.usable():
            self.fast = lambda *_: False
            return False
        entry.prepare()

        def text() -> str:
            m = Module(self.owner.name)
            k = self._emit(m, "kernel", ["1"] * (len(self.dtypes) + len(self.out)), 1)
            entry.emit_entry(m, k, [b.name for b in k.buffers if b.name.endswith("!")])
            return m.text()
        self._kept = jit.compile_ir(text, key=self._key("entry"), light=True)
        self.fast = entry.builtin(self._kept, "kernel.entry", self.owner.name)
        return self.fast(*args)

    def strided(self, arrays: Sequence[np.ndarray], outs: Sequence[np.ndarray], shape: tuple[int, ...],
                numbers: Sequence[float]) -> None:
        every = [*arrays, *outs]
        size = 1
        for n in shape:
            size *= n
        if size == 0:
            return
        rows = [element_strides(a, shape) for a in every]
        if any(r is None for r in rows):
            raise ValueError(f"{self.owner.name}(): strides that are not whole elements")
        lead = rows[len(arrays)] or []
        order = sorted(range(len(shape)), key=lambda d: -abs(lead[d]))
        sizes, strides = collapse([shape[d] for d in order], [[r[d] for d in order] for r in rows])     # type: ignore
        inner = tuple("1" if s[-1] == 1 else "0" if s[-1] == 0 and k < len(arrays) else "s"
                      for k, s in enumerate(strides))
        rank = len(sizes)
        found = self._variants.get((str(rank), *inner))
        if found is None:
            found = self._variants[str(rank), *inner] = self._variant(inner, rank)
        kernel, address, _ = found
        words = kernel.pack([a.__array_interface__["data"][0] for a in every], sizes, strides, numbers)
        run_kernel(kernel, address, words, size, size)

    def _variant(self, inner: tuple[str, ...], rank: int) -> tuple[Kernel, int, jit.Library]:
        m = Module(self.owner.name)
        k = self._emit(m, "kernel", inner, rank)
        library = jit.compile_ir(m.text, key=self._key(f"{rank}{''.join(inner)}"), light=True)
        return k, library.address("kernel"), library


def _numbers(args: tuple, k: int) -> Any:
    """NumPy's dtype numbers of the first k arguments, as a key; None when one is no array."""
    try:
        return args[0].dtype.num if k == 1 else tuple([a.dtype.num for a in args[:k]])
    except AttributeError:
        return None


def pointwise(outputs: Expr | Mapping[str, Expr], inputs: Sequence[str], scalars: Sequence[str] = (), *,
              result: str | Sequence[str] = "same", compute: str | None = None, name: str = "pointwise") -> Pointwise:
    """A function f(*arrays, *numbers, out=None) of the expressions, whose arguments are `inputs` (arrays) and
    `scalars`.

    `outputs` is one expression, or a mapping for several results (f then returns a tuple). `result` is the results'
    dtype: "same" as the first input's, or a name. `compute` is the dtype of numbers and of integers met by
    mathematics; by default float64 if a float64 takes part, else float32.
    """
    if isinstance(outputs, Expr):
        outputs = {"out": outputs}
    return Pointwise(name, outputs, inputs, scalars, result, compute)


# --- lists of tensors -------------------------------------------------------------------------------------------------
class MultiTensor:
    """A pointwise update of lists of arrays in one native call; see `multi_tensor`."""

    def __init__(self, outputs: Mapping[str, Expr], reads: Sequence[str], scalars: Sequence[str], name: str) -> None:
        self.name, self.outputs, self.reads, self.scalars = name, dict(outputs), tuple(reads), tuple(scalars)
        missing = [n for n in outputs if n not in self.reads]
        if missing:
            raise ValueError(f"multi_tensor: outputs {missing} are not among the arrays {self.reads}")
        self._text = describe(self.outputs)
        self._entries: dict[tuple[str, ...], Callable[..., bool] | None] = {}
        self._kept: list[jit.Library] = []

    def __call__(self, columns: Sequence[list[np.ndarray]], numbers: Sequence[float]) -> bool:
        """Update in place `columns[k][i]`, tensor number i of `reads[k]`. False, with nothing done, when an array is
        not contiguous, the arrays' dtypes are not those of the first tensor, or there is no native form."""
        if not columns or not columns[0]:
            return True
        key = tuple(native_dtype(c[0]) or "" for c in columns)
        if key not in self._entries:
            self._entries[key] = self._make(key)
        f = self._entries[key]
        return f is not None and f(*columns, *numbers)

    def _make(self, dtypes: tuple[str, ...]) -> Callable[..., bool] | None:
        if "" in dtypes or not entry.usable() or not jit.available():
            return None
        compute = "float64" if "float64" in dtypes else "float32"
        if not has_native(list(self.outputs.values()), compute):
            return None
        entry.prepare()

        def text() -> str:
            m = Module(self.name)
            buffers = [Buffer(n, d) for n, d in zip(self.reads, dtypes, strict=True)]
            k = m.pointwise("kernel", self.outputs, buffers, scalars=[(s, compute) for s in self.scalars],
                            compute=compute)
            entry.emit_list_entry(m, k, list(self.outputs))
            return m.text()
        key = "|".join(("multi", llvm.fingerprint(), self._text, *self.reads, *dtypes, *self.scalars))
        self._kept.append(jit.compile_ir(text, key=key, light=True))
        return entry.builtin(self._kept[-1], "kernel.list", self.name)


def multi_tensor(outputs: Mapping[str, Expr], reads: Sequence[str], scalars: Sequence[str] = (),
                 name: str = "multi_tensor") -> MultiTensor:
    """f(columns, numbers): for every tensor, overwrite each array named in `outputs` by its expression of `reads` and
    `scalars`. All old values are read before anything of the same element is written."""
    return MultiTensor(outputs, reads, scalars, name)


# --- row programs -----------------------------------------------------------------------------------------------------
class RowKernel:
    """A row or column kernel with an entry for contiguous arrays, made per dtype.

    `make(module, dtype)` emits it and gives the Kernel; `roles` (entry.ROLES) and `written` describe its buffers.
    Called with the arrays in the order of the buffers, then the scalars; all arrays must be C-contiguous and of the
    kernel's dtypes.
    """

    def __init__(self, name: str, make: Callable[[Module, str], Kernel], roles: Sequence[str],
                 written: Sequence[str]) -> None:
        self.name, self.make, self.roles, self.written = name, make, tuple(roles), tuple(written)
        self._entries: dict[str, Callable[..., bool]] = {}
        self.quick: dict[int, Callable[..., bool]] = {}      # the same by the number of NumPy's dtype
        self._kernels: dict[str, tuple[Kernel, jit.Library]] = {}

    def __call__(self, dtype: str, *args: Any) -> None:
        f = self._entries.get(dtype)
        if f is None:
            f = self._entries[dtype] = self.quick[_np_dtype(dtype).num] = self._entry(dtype)
        if not f(*args):
            self._run(dtype, args)

    def _library(self, dtype: str) -> tuple[Kernel, jit.Library]:
        found = self._kernels.get(dtype)
        if found is None:
            entry.prepare()
            m = Module(self.name)
            k = self.make(m, dtype)
            if entry.usable():
                entry.emit_entry(m, k, self.written, self.roles)
            found = self._kernels[dtype] = k, jit.compile_ir(m.text(), light=True)
        return found

    def _entry(self, dtype: str) -> Callable[..., bool]:
        kernel, library = self._library(dtype)
        if not entry.usable():
            return lambda *_: False
        return entry.builtin(library, f"{kernel.symbol}.entry", self.name)

    def _run(self, dtype: str, args: tuple) -> None:
        """Without an entry (or with arrays of no elements, which need nothing)."""
        kernel, library = self._library(dtype)
        nb = len(kernel.buffers)
        arrays, numbers = args[:nb], args[nb:]
        first = arrays[0]
        if first.size == 0:
            return
        n = first.shape[-1] if first.ndim else 1
        rows = first.size // n
        want = {"full": first.size, "row": rows, "column": n, "one": 1}
        for a, b, role in zip(arrays, kernel.buffers, self.roles, strict=True):
            if native_dtype(a) != b.dtype or not a.flags.c_contiguous or a.size != want[role]:
                raise TypeError(f"{self.name}(): {b.name} must be a contiguous array of {want[role]} {b.dtype}, got "
                                f"shape {a.shape}, strides {a.strides}, dtype {a.dtype}")
        strides = [{"full": (n, 1), "row": (1, 0), "column": (0, 1), "one": (0, 0)}[r] for r in self.roles]
        words = kernel.pack([a.__array_interface__["data"][0] for a in arrays], (rows, n), strides, numbers)
        run_kernel(kernel, library.address(kernel.symbol), words, kernel.grid((rows, n)), first.size)


# --- copies -----------------------------------------------------------------------------------------------------------
def _x() -> Expr:
    return Expr("arg", "x")


_casts: dict[str, Pointwise] = {}


def cast(x: np.ndarray, dtype: str, out: np.ndarray | None = None) -> np.ndarray:
    """`x` converted to the dtype of that name."""
    f = _casts.get(dtype)
    if f is None:
        f = _casts[dtype] = pointwise(_x(), ["x"], result=dtype, name=f"cast_{dtype}")
    return f(x, out=out)


where = pointwise(Expr("where", Expr("arg", "condition"), _x(), Expr("arg", "other")), ["x", "condition", "other"],
                  name="where")
"""where(x, condition, other, out=None): x where the condition holds, else other; x's dtype."""
masked_fill = pointwise(Expr("where", Expr("arg", "mask"), Expr("arg", "value"), _x()), ["x", "mask"], ["value"],
                        name="masked_fill")
"""masked_fill(x, mask, value, out=None)."""


# --- GELU -------------------------------------------------------------------------------------------------------------
def _gelu_erf(x: Expr) -> Expr:
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: Expr) -> Expr:
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


_gelu = {"none": pointwise(_gelu_erf(_x()), ["x"], name="gelu"),
         "tanh": pointwise(_gelu_tanh(_x()), ["x"], name="gelu_tanh")}
_gelu_backward = {k: pointwise(derivative(f(_x()), "x", Expr("arg", "grad")), ["grad", "x"], name=f"gelu_{k}_backward")
                  for k, f in (("none", _gelu_erf), ("tanh", _gelu_tanh))}


def gelu(x: np.ndarray, approximate: str = "none", out: np.ndarray | None = None) -> np.ndarray:
    """x times the normal distribution function of x, or with "tanh" Hendrycks and Gimpel's approximation of it."""
    return _gelu[approximate](x, out=out)


def gelu_backward(grad: np.ndarray, x: np.ndarray, approximate: str = "none",
                  out: np.ndarray | None = None) -> np.ndarray:
    """The gradient of gelu's input."""
    return _gelu_backward[approximate](grad, x, out=out)
