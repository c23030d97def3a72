"""The straight-line functions that run a step: one a segment, `i64 segmentN(words)`.

`Layout` collects the words of a program (one array of 64-bit words) and, per segment, the lines of its driver. What is
written into the text is known from the graph's shapes alone: positions of words, grids, sizes of products. Addresses
and numbers stand in words. A segment returns 0, or 1 + the number of the check that failed, and runs nothing after
that."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.cpu import blas_ir
from . import scalar
from .codegen import KernelPlan
from .entry import grain_of
from .graph import Buffer, Step, View
from .llvm import Buffer as KBuffer
from .llvm import Kernel, Module

__all__ = ["Layout", "MultiPlan", "Product", "product_of"]

LETTERS = {"float32": "s", "float64": "d"}


class MultiPlan:
    """An optimizer's update: one pointwise kernel, called for pieces of every tensor by a function of the table of
    their words."""

    def __init__(self, step: Step) -> None:
        v = step.data["variant"]
        self.step, self.variant = step, v
        self.columns = [step.data["columns"][n] for n in v.reads]
        self.count = len(self.columns[0])
        self.dtypes = tuple([c[0].dtype.name for c in self.columns])
        self.compute = "float64" if "float64" in self.dtypes else "float32"
        self.buffers = tuple([KBuffer(n, d) for n, d in zip(v.reads, self.dtypes, strict=True)])
        self.scalars = tuple([(s, self.compute) for s in v.hoisted])
        from .kernels import describe

        self.key = "|".join(("multi", describe(v.outputs), *v.reads, *self.dtypes, *v.hoisted))
        self.symbol = ""

    @staticmethod
    def fits(step: Step) -> bool:
        """Every tensor of a column has the column's dtype, and the tensors of a row the same gapless layout."""
        from .kernels import has_native

        v = step.data["variant"]
        columns = [step.data["columns"][n] for n in v.reads]
        for column in columns:
            d = column[0].dtype
            if (
                d.name not in scalar.MEMORY
                or not scalar.register_dtype(d.name).startswith("float")
                or any(x.dtype != d for x in column)
            ):
                return False
        for row in zip(*columns, strict=True):
            first = row[0]
            lo, hi = first.span
            if first.size == 0 or hi - lo != first.size * first.dtype.itemsize or lo != first.offset:
                return False
            item = [s // first.dtype.itemsize for s in first.strides]
            if any([s // x.dtype.itemsize for s in x.strides] != item or x.shape != first.shape for x in row[1:]):
                return False
        return has_native(
            list(v.outputs.values()), "float64" if any(c[0].dtype.name == "float64" for c in columns) else "float32"
        )

    def kernel(self) -> Kernel:
        cost = scalar.weight(self.variant.outputs.values()) + 1
        return Kernel(self.symbol, "elements", self.buffers, 1, self.scalars, cost)

    def emit(self, m: Module) -> None:
        k = m.pointwise(self.symbol, self.variant.outputs, self.buffers, scalars=self.scalars, compute=self.compute)
        record = k.word_count + 1
        grain = grain_of(self.kernel().cost)
        m.functions[self.symbol + ".tasks"] = _TASKS.format(
            name=self.symbol, record=record, words=k.word_count, nb=len(self.buffers), grain=grain, less=grain - 1
        )


# ctx: the table's address and its number of records; a record is a tensor's words and the number of its first chunk
_TASKS = """define internal void @{name}.tasks(ptr %ctx, i64 %begin, i64 %end) {{
entry:
  %table = load ptr, ptr %ctx
  %np = getelementptr i64, ptr %ctx, i64 1
  %n = load i64, ptr %np
  br label %find
find:
  %lo = phi i64 [ 0, %entry ], [ %lo1, %split ]
  %hi = phi i64 [ %n, %entry ], [ %hi1, %split ]
  %gap = sub i64 %hi, %lo
  %wide = icmp sgt i64 %gap, 1
  br i1 %wide, label %split, label %head
split:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %ma = mul i64 %mid, {record}
  %mb = add i64 %ma, {words}
  %mp = getelementptr i64, ptr %table, i64 %mb
  %mv = load i64, ptr %mp
  %left = icmp sgt i64 %mv, %begin
  %lo1 = select i1 %left, i64 %lo, i64 %mid
  %hi1 = select i1 %left, i64 %mid, i64 %hi
  br label %find
head:
  %t = phi i64 [ %lo, %find ], [ %t1, %after ]
  %c = phi i64 [ %begin, %find ], [ %c1, %after ]
  %inside = icmp slt i64 %c, %end
  %exists = icmp slt i64 %t, %n
  %go = and i1 %inside, %exists
  br i1 %go, label %body, label %done
body:
  %at = mul i64 %t, {record}
  %rec = getelementptr i64, ptr %table, i64 %at
  %fp = getelementptr i64, ptr %rec, i64 {words}
  %first = load i64, ptr %fp
  %sp = getelementptr i64, ptr %rec, i64 {nb}
  %size = load i64, ptr %sp
  %k = sub i64 %c, %first
  %from = mul i64 %k, {grain}
  %ends = sub i64 %end, %first
  %far = mul i64 %ends, {grain}
  %less = icmp slt i64 %far, %size
  %to = select i1 %less, i64 %far, i64 %size
  %some = icmp slt i64 %from, %to
  br i1 %some, label %run, label %after
run:
  call void @{name}(ptr %rec, i64 %from, i64 %to)
  br label %after
after:
  %up = add i64 %size, {less}
  %mine = udiv i64 %up, {grain}
  %c1 = add i64 %first, %mine
  %t1 = add i64 %t, 1
  br label %head
done:
  ret void
}}"""


class Product:
    """A matrix product as BLAS takes it: sizes, layouts, and for a batch two dimensions of byte strides."""

    def __init__(
        self,
        letter: str,
        m: int,
        n: int,
        k: int,
        a: tuple[View, int, int],
        b: tuple[View, int, int],
        c: tuple[View, int],
        batch: int,
        inner: int,
        steps: list[tuple[int, int]],
    ) -> None:
        self.letter, self.m, self.n, self.k, self.a, self.b, self.c = letter, m, n, k, a, b, c
        self.batch, self.inner, self.steps = batch, inner, steps

    @property
    def small(self) -> bool:
        return self.batch == 1 and self.m > 1 and self.n > 1 and 2 * self.m * self.n * self.k < blas_ir.SPLIT_FLOPS


def product_of(step: Step) -> Product | None:
    """The product of a "gemm" step, None where BLAS has no form for it."""
    from ..backends.cpu.blas import _layout

    a, b, c = step.inputs["a"], step.inputs["b"], step.outputs[0]
    letter = LETTERS.get(c.dtype.name)
    if letter is None or a.dtype != c.dtype or b.dtype != c.dtype or c.size == 0 or a.shape[-1] == 0:
        return None
    lead = c.shape[:-2]
    a, b = _expanded(a, lead), _expanded(b, lead)
    sizes: list[int] = []
    kept: list[list[int]] = [[], [], []]
    for d, n in enumerate(lead):
        if n == 1:
            continue
        s = [v.strides[d] for v in (a, b, c)]
        if sizes and all(k[-1] == x * n for k, x in zip(kept, s, strict=True)):
            sizes[-1] *= n
            for k, x in zip(kept, s, strict=True):
                k[-1] = x
        else:
            sizes.append(n)
            for k, x in zip(kept, s, strict=True):
                k.append(x)
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    (ar, ac), (br, bc), (cr, cc) = [v.strides[-2:] for v in (a, b, c)]
    # rows of one tall product
    while sizes and kept[1][-1] == 0 and kept[0][-1] == m * ar and kept[2][-1] == m * cr:
        m *= sizes.pop()
        for x in kept:
            x.pop()
    if len(sizes) > 2:
        return None
    item = c.dtype.itemsize
    ta, lda = _layout(m, k, ar, ac, item)
    tb, ldb = _layout(k, n, br, bc, item)
    tc, ldc = _layout(m, n, cr, cc, item)
    if not ta or not tb or tc != 111 or any(0 in x for x in (kept[2],)):
        if ta and tb and tc == 112 and not sizes:  # C^T = B^T A^T
            tb2, ldb2 = _layout(n, k, bc, br, item)
            ta2, lda2 = _layout(k, m, ac, ar, item)
            if ta2 and tb2:
                return Product(letter, n, m, k, (b, tb2, ldb2), (a, ta2, lda2), (c, ldc), 1, 1, [(0, 0)] * 3)
        return None
    outer = [x[0] if len(x) == 2 else 0 for x in kept]
    inner = [x[-1] if x else 0 for x in kept]
    batch = 1
    for x in sizes:
        batch *= x
    return Product(
        letter,
        m,
        n,
        k,
        (a, ta, max(lda, 1)),
        (b, tb, max(ldb, 1)),
        (c, max(ldc, 1)),
        batch,
        sizes[-1] if sizes else 1,
        list(zip(outer, inner, strict=True)),
    )


def _expanded(v: View, lead: tuple[int, ...]) -> View:
    gap = len(lead) - (len(v.shape) - 2)
    strides = (0,) * gap + tuple([0 if n == 1 else s for n, s in zip(v.shape[:-2], v.strides[:-2], strict=True)])
    return View(v.buffer, v.dtype, (*lead, *v.shape[-2:]), (*strides, *v.strides[-2:]), v.offset)


class Layout:
    """The words and drivers of a program under construction.

    `words`: initial values; `pointers`: buffer id -> [(word, byte offset)]; `own`: [(word, word)] for words that hold
    the address of another word; `scalars` and `updates`: words that hold the call's numbers; `flags`: the checks."""

    def __init__(self, int_type: str, pool: bool) -> None:
        self.int_type, self.pool = int_type, pool
        self.words: list[int] = []
        self.pointers: dict[int, list[tuple[int, int]]] = {}
        self.own: list[tuple[int, int]] = []
        self.scalars: list[tuple[int, Any]] = []
        self.updates: list[tuple[np.ndarray, Any]] = []
        self.flags: list[Step] = []  # the checks, by number
        self.symbols: dict[str, tuple[str, Any]] = {}  # key -> symbol, plan
        self.segments: list[list[str]] = []
        self.declared: dict[str, str] = {}
        self.parallel = False
        self.count = 0
        one = self.place([0, 0])  # 1.0 and 0.0, as the products' alpha and beta
        self.one = {"s": one, "d": self.place([0])}
        self.zero = self.place([0])
        self.constants = [(self.one["s"], np.float32), (self.one["d"], np.float64)]

    def place(self, values: list[int]) -> int:
        at = len(self.words)
        self.words += values
        return at

    def point(self, word: int, buffer: Buffer, offset: int) -> None:
        self.pointers.setdefault(buffer.id, []).append((word, offset))

    def begin(self) -> None:
        self.segments.append([])

    def say(self, line: str) -> None:
        self.segments[-1].append("  " + line)

    def fresh(self) -> str:
        self.count += 1
        return f"%x{self.count}"

    def address(self, word: int) -> str:
        v = self.fresh()
        self.say(f"{v} = getelementptr i64, ptr %w, i64 {word}")
        return v

    def load(self, word: int, type: str = "ptr") -> str:
        p, v = self.address(word), self.fresh()
        self.say(f"{v} = load {type}, ptr {p}, align 8")
        return v

    def symbol(self, key: str, plan: Any) -> str:
        found = self.symbols.get(key)
        if found is None:
            found = self.symbols[key] = (f"k{len(self.symbols)}", plan)
            plan.symbol = found[0]
        return found[0]

    # --- calls
    def run(self, function: str, ctx: str, grid: int, grain: int) -> None:
        if grain and grid > grain and self.pool:
            self.parallel = True
            self.declared["rl_parallel"] = "declare void @rl_parallel(ptr, ptr, i64, i64)"
            self.say(f"call void @rl_parallel(ptr {function}, ptr {ctx}, i64 {grid}, i64 {grain})")
        else:
            self.say(f"call void {function}(ptr {ctx}, i64 0, i64 {grid})")

    def kernel(self, plan: KernelPlan) -> None:
        name = self.symbol(plan.key, plan)
        at = self.place(plan.words())
        for k, (b, offset) in enumerate(plan.pointers):
            self.point(at + k, b, offset)
        first = at + len(plan.buffers) * (1 + plan.rank) + plan.rank
        for k, s in enumerate(plan.values):
            self.scalars.append((first + k, s))
        grid, grain = plan.grid()
        self.run(f"@{name}", self.address(at), grid, grain)

    def check(self, flag: View, step: Step) -> None:
        """Stop here if the int64 that `flag` is, is not 0."""
        self.flags.append(step)
        at = self.place([0])
        self.point(at, flag.buffer, flag.offset)
        p, v, c = self.load(at), self.fresh(), self.fresh()
        self.say(f"{v} = load i64, ptr {p}, align 8")
        self.say(f"{c} = icmp eq i64 {v}, 0")
        n = len(self.flags)
        self.say(f"br i1 {c}, label %ok{n}, label %bad{n}\nbad{n}:\n  ret i64 {n}\nok{n}:")

    def update(self, plan: MultiPlan) -> None:
        name = self.symbol(plan.key, plan)
        k = plan.kernel()
        nb, record = len(plan.buffers), k.word_count + 1
        grain = grain_of(k.cost)
        table = self.place([0] * (record * plan.count))
        chunks = elements = 0
        for t, row in enumerate(zip(*plan.columns, strict=True)):
            at = table + t * record
            for i, v in enumerate(row):
                self.point(at + i, v.buffer, v.offset)
            n = row[0].size
            self.words[at + nb], self.words[at + record - 1] = n, chunks
            chunks += -(-n // grain)
            elements += n
        if plan.scalars:
            first = table + 2 * nb + 1
            where = first + np.arange(plan.count)[:, None] * record + np.arange(len(plan.scalars))
            self.updates.append((where, plan.step.data["numbers"]))
        ctx = self.place([0, plan.count])
        self.own.append((ctx, table))
        self.run(f"@{name}.tasks", self.address(ctx), chunks, 1 if elements > 2 * grain else 0)

    def product(self, p: Product) -> None:
        t, i = p.letter, self.int_type
        real = "float" if t == "s" else "double"
        if p.small:
            self.declared[f"rl_blas_{t}gemm"] = (
                f"declare void @rl_blas_{t}gemm(i32, i32, i32, {i}, {i}, {i}, {real}, ptr, {i}, ptr, {i}, "
                f"{real}, ptr, {i})"
            )
            at = self.place([0, 0, 0])
            for k, v in enumerate((p.a[0], p.b[0], p.c[0])):
                self.point(at + k, v.buffer, v.offset)
            a, b, c = self.load(at), self.load(at + 1), self.load(at + 2)
            self.say(
                f"call void @rl_blas_{t}gemm(i32 101, i32 {p.a[1]}, i32 {p.b[1]}, {i} {p.m}, {i} {p.n}, {i} {p.k}, "
                f"{real} 1.0, ptr {a}, {i} {p.a[2]}, ptr {b}, {i} {p.b[2]}, {real} 0.0, ptr {c}, {i} {p.c[1]})"
            )
            return
        self.declared[f"rl_{t}gemm_run"] = f"declare void @rl_{t}gemm_run(ptr)"
        self.parallel = True
        values = {
            "ta": p.a[1],
            "tb": p.b[1],
            "m": p.m,
            "n": p.n,
            "k": p.k,
            "lda": p.a[2],
            "ldb": p.b[2],
            "ldc": p.c[1],
            "batch": p.batch,
            "inner": p.inner,
        }
        for x, (outer, inner) in zip("abc", p.steps, strict=True):
            values[x + "_outer"], values[x + "_inner"] = outer, inner
        at = self.place([values.get(n, 0) for n in blas_ir.WORDS])
        for n, v in (("a", p.a[0]), ("b", p.b[0]), ("c", p.c[0])):
            self.point(at + blas_ir.WORDS[n], v.buffer, v.offset)
        self.own += [(at + blas_ir.WORDS["alpha"], self.one[t]), (at + blas_ir.WORDS["beta"], self.zero)]
        self.say(f"call void @rl_{t}gemm_run(ptr {self.address(at)})")

    # --- the module
    def key(self) -> str:
        return "\n".join([self.int_type, str(self.pool), *self.symbols, *["{" + "\n".join(s) for s in self.segments]])

    def text(self) -> str:
        m = Module("step")
        for _, plan in self.symbols.values():
            plan.emit(m)
        for name, d in self.declared.items():
            m.declarations.setdefault(name, d)
        for n, lines in enumerate(self.segments):
            m.functions[f"segment{n}"] = (
                f"define i64 @segment{n}(ptr %w) {{\nentry:\n" + "\n".join(lines) + "\n  ret i64 0\n}"
            )
        return m.text().replace("define void @k", "define internal void @k")
