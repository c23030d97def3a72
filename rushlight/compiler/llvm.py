"""Loops over strided arrays around scalar expressions, as one LLVM module.

    m = Module("step")
    k = m.pointwise("gelu", {"y": gelu_expr}, [Buffer("x", "float32"), Buffer("y", "float32")])
    s = m.row("softmax", [Buffer("x", "float32"), Buffer("y", "float32")], [Pass(...), Compute(...), Pass(...)])
    library = jit.compile_ir(m.text(), light=True)
    library.address(k.symbol)

**ABI.** Every kernel is `void k(void* words, int64 begin, int64 end)`: the form of a task of the thread pool
(backends/cpu/threads.py). `words` is an array of 8-byte words, laid out by `Kernel.pack`:

    buffers          one pointer for each buffer, in the order given
    sizes            `rank` int64: the extents of the loop nest, the innermost last
    strides          for each buffer `rank` int64, in elements (innermost last); the innermost is read for "s" buffers
    only
    scalars          one word each: a double for float scalars, an int64 for the others

`[begin, end)` is a slice of the grid. The grid of a pointwise kernel is its elements (the product of all sizes), of a
row kernel its rows (the product of all sizes but the last), of a columns kernel (outer, column tile) pairs,
`Kernel.grid(sizes)` each. Any cut of the grid gives the same bits. Sizes and strides given to the emitter as integers
are built in; their words stay in the layout and are ignored.

**Nest.** A kernel is a nest of `rank` loops, collapsed as far as the operands allow (`collapse`). Outer strides are
free (0 broadcasts). The innermost stride is fixed in the code: "1" contiguous, "0" one value for the row, "s" any.

**Row programs.** For every row, stages in order:

    Pass       one sweep over the row: stores of elements and reductions, fused
    Compute    scalars of the row from reduced and computed ones
    Put        stores of row scalars (to "0" buffers)
    Take       one element of the row at a computed index
    Flag       an int64 buffer's first element becomes row + 1 when a condition holds (errors found inside a kernel)

Expressions name buffers, scalars, reduced and computed values, and "$i" (index in the row), "$row" (grid index), "$n"
(row length), which are int64. A buffer that a Pass stores may be read by later stages, so an output can hold an
intermediate. In-place use is fine where an element is read only at its own place.

**Reductions.** float32 sums run in vector accumulators for `BLOCK` steps and are then folded into float64
accumulators, so their error is that of `BLOCK` additions whatever the length; float64 sums are folded with
compensation. maximum and minimum hand nan on. The order of all operations depends on sizes only.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from rushlight.compiler import scalar
from rushlight.compiler.builder import Writer
from rushlight.ops.expr import Expr, const, inputs_of

__all__ = ["BLOCK", "Buffer", "Compute", "Flag", "Kernel", "Module", "Pass", "Put", "Reduce", "Take", "collapse",
           "fingerprint"]

BLOCK = 16


@cache
def fingerprint() -> str:
    """A name for this version of the emitter: part of the keys of code whose text is not at hand (jit.compile_ir)."""
    digest = hashlib.sha256()
    for name in ("builder", "entry", "llvm", "nest", "scalar", "vecmath"):
        with open(os.path.join(os.path.dirname(__file__), name + ".py"), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()[:16]


class Buffer(NamedTuple):
    """An array that a kernel reads or writes; `inner` is its innermost stride: "1", "0" or "s"."""
    name: str
    dtype: str
    inner: str = "1"


class Reduce(NamedTuple):
    """`name` = reduction by `op` of `expr` over the row, accumulated as `dtype` and given as `result` (default `dtype`;
    "float64" keeps all bits of a float32 sum). `op`: add, mul, maximum, minimum, or, and."""
    name: str
    op: str
    expr: Expr
    dtype: str = "float32"
    result: str | None = None


@dataclass(frozen=True)
class Pass:
    stores: Mapping[str, Expr] = field(default_factory=dict)
    reduces: Sequence[Reduce] = ()


@dataclass(frozen=True)
class Compute:
    values: Mapping[str, Expr]


@dataclass(frozen=True)
class Put:
    stores: Mapping[str, Expr]


@dataclass(frozen=True)
class Take:
    name: str
    buffer: str
    index: Expr


@dataclass(frozen=True)
class Flag:
    buffer: str
    condition: Expr


Stage = Pass | Compute | Put | Take | Flag


@dataclass(frozen=True)
class Kernel:
    """What a caller needs to know of an emitted kernel. `cost` is about the instructions an element takes."""
    symbol: str
    kind: str                       # "elements", "rows" or "columns"
    buffers: tuple[Buffer, ...]
    rank: int
    scalars: tuple[tuple[str, str], ...]
    cost: int
    tile: int = 0

    @property
    def word_count(self) -> int:
        return len(self.buffers) * (1 + self.rank) + self.rank + len(self.scalars)

    @property
    def format(self) -> str:
        """The struct format of `words`."""
        s = "".join("d" if scalar.register_dtype(d).startswith("float") else "q" for _, d in self.scalars)
        return f"={len(self.buffers)}Q{self.rank * (1 + len(self.buffers))}q{s}"

    def grid(self, sizes: Sequence[int]) -> int:
        """The extent of the grid for those sizes."""
        n = 1
        for s in sizes[:-1]:
            n *= s
        if self.kind == "elements":
            return n * sizes[-1]
        if self.kind == "columns":
            return n // max(1, sizes[-2]) * -(-sizes[-1] // self.tile) if sizes[-2] else \
                _product(sizes[:-2]) * -(-sizes[-1] // self.tile)
        return n

    def pack(self, pointers: Sequence[int], sizes: Sequence[int], strides: Sequence[Sequence[int]],
             scalars: Sequence[float] = ()) -> bytes:
        """The words for one call; `strides` holds one sequence of `rank` element strides for each buffer."""
        flat = [x for st in strides for x in st]
        return struct.pack(self.format, *pointers, *sizes, *flat, *scalars)


def _product(sizes: Sequence[int]) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring dimensions that every operand walks as one, and drop those of extent 1; at least one is left.

    `strides` holds one sequence for each operand; the order of dimensions is kept.
    """
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        step = [s[d] for s in strides]
        if sizes and all(k[-1] == s * n for k, s in zip(kept, step, strict=True)):
            sizes[-1] *= n
            for k, s in zip(kept, step, strict=True):
                k[-1] = s
        else:
            sizes.append(n)
            for k, s in zip(kept, step, strict=True):
                k.append(s)
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, kept


class Module:
    """Kernels that are compiled together. Names of kernels become symbols and must be unique."""

    def __init__(self, name: str = "kernels", vector_bytes: int | None = None) -> None:
        from rushlight.compiler import jit
        h = jit.host()
        self.name = name
        self.vector_bytes = vector_bytes or h["vector_bytes"]
        self.masks_are_cheap = "avx512vl" in h["features"]
        self.scalef = "avx512f" in h["features"]
        self.fma = "fma" in h["features"] or not h["triple"].startswith(("x86", "i"))
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.kernels: dict[str, Kernel] = {}

    def writer(self) -> Writer:
        return Writer(self.declarations, self.helpers, self.fma, self.scalef)

    def add(self, kernel: Kernel, lines: list[str]) -> Kernel:
        if kernel.symbol in self.functions:
            raise ValueError(f"Module {self.name!r} has a kernel {kernel.symbol!r} already")
        head = f"define void @{kernel.symbol}(ptr nocapture readonly %words, i64 %begin, i64 %end) #0 {{\nentry:\n"
        self.functions[kernel.symbol] = head + "\n".join(lines) + "\n}"
        self.kernels[kernel.symbol] = kernel
        return kernel

    def text(self) -> str:
        """The IR of the whole module."""
        wide = 8 * self.vector_bytes
        attributes = (f'attributes #0 = {{ nounwind "prefer-vector-width"="{wide}" "min-legal-vector-width"="{wide}" '
                      '"no-trapping-math"="true" }')
        return "\n\n".join([*self.declarations.values(), *self.helpers.values(), *self.functions.values(),
                            attributes]) + "\n"

    def pointwise(self, symbol: str, outputs: Mapping[str, Expr], buffers: Sequence[Buffer], *, rank: int = 1,
                  scalars: Sequence[tuple[str, str]] = (), compute: str = "float32",
                  sizes: Sequence[int | None] | None = None,
                  strides: Mapping[str, Sequence[int | None]] | None = None) -> Kernel:
        """outputs[name] = its expression, for every element of the nest. Grid: elements."""
        from rushlight.compiler.nest import Nest
        return Nest(self, symbol, buffers, [Pass(outputs)], rank, scalars, compute, sizes, strides, "elements").emit()

    def row(self, symbol: str, buffers: Sequence[Buffer], stages: Sequence[Stage], *, rank: int = 2,
            scalars: Sequence[tuple[str, str]] = (), compute: str = "float32",
            sizes: Sequence[int | None] | None = None,
            strides: Mapping[str, Sequence[int | None]] | None = None) -> Kernel:
        """The row program `stages` for every row of the nest. Grid: rows."""
        from rushlight.compiler.nest import Nest
        return Nest(self, symbol, buffers, stages, rank, scalars, compute, sizes, strides, "rows").emit()

    def reduce(self, symbol: str, outputs: Mapping[str, Expr], reduces: Sequence[Reduce], buffers: Sequence[Buffer], *,
               rank: int = 2, scalars: Sequence[tuple[str, str]] = (), compute: str = "float32",
               sizes: Sequence[int | None] | None = None,
               strides: Mapping[str, Sequence[int | None]] | None = None) -> Kernel:
        """Reductions over the innermost dimension; `outputs` are per-row stores made from the reduced names. Grid:
        rows."""
        return self.row(symbol, buffers, [Pass({}, tuple(reduces)), Put(outputs)], rank=rank, scalars=scalars,
                        compute=compute, sizes=sizes, strides=strides)

    def columns(self, symbol: str, outputs: Mapping[str, Expr], reduces: Sequence[Reduce], buffers: Sequence[Buffer], *,
                rank: int = 2, scalars: Sequence[tuple[str, str]] = (), compute: str = "float32",
                sizes: Sequence[int | None] | None = None,
                strides: Mapping[str, Sequence[int | None]] | None = None) -> Kernel:
        """Reductions over the last dimension but one, for every column; output buffers have stride 0 there.
        Grid: (outer, column tile)."""
        from rushlight.compiler.nest import Columns
        return Columns(self, symbol, buffers, reduces, outputs, rank, scalars, compute, sizes, strides).emit()


def names_read(stages: Sequence[Stage]) -> list[str]:
    """The names that the stages' expressions read."""
    found: dict[str, None] = {}
    for st in stages:
        roots: list[Expr] = []
        if isinstance(st, Pass):
            roots = [*st.stores.values(), *(r.expr for r in st.reduces)]
        elif isinstance(st, Compute):
            roots = list(st.values.values())
        elif isinstance(st, Put):
            roots = list(st.stores.values())
        elif isinstance(st, Take):
            roots = [st.index]
            found[st.buffer] = None
        else:
            roots = [st.condition]
        found.update(dict.fromkeys(inputs_of(*[const(r) for r in roots])))
    return list(found)

