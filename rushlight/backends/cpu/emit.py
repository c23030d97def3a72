"""A small writer of LLVM IR text for the hand-written kernels of this backend (convolution, pooling, norms).

Loops and branches are context managers; mutable variables are stack slots that LLVM turns into registers. Values are
strings of IR; Python ints stand for i64 constants. The text is made only when the object code is not in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Fn", "Value", "module", "SCALAR", "lanes_of", "transpose"]

Value = str | int
SCALAR = {"float32": "float", "float64": "double"}
_BITS = {"float": 32, "double": 64, "i64": 64, "i32": 32}


def lanes_of(scalar: str, vector_bytes: int) -> int:
    """How many elements of the IR type `scalar` fill one vector register."""
    return vector_bytes * 8 // _BITS[scalar]


class Fn:
    """One function under construction. `args` are (type, name) pairs; `internal` ones are not exported."""

    def __init__(self, name: str, args: Sequence[tuple[str, str]], *, internal: bool = False) -> None:
        self.name, self.args, self.internal = name, list(args), internal
        self.entry: list[str] = []
        self.body: list[str] = []
        self._n = 0

    def fresh(self, stem: str = "t") -> str:
        self._n += 1
        return f"{stem}{self._n}"

    def line(self, text: str) -> None:
        self.body.append("  " + text)

    def op(self, text: str) -> str:
        name = "%" + self.fresh()
        self.line(f"{name} = {text}")
        return name

    # ---- integers (i64)
    def _int(self, op: str, a: Value, b: Value) -> Value:
        return self.op(f"{op} i64 {a}, {b}")

    def add(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        return a if b == 0 else b if a == 0 else self._int("add nsw", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return a if b == 0 else self._int("sub nsw", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return a if b == 1 else b if a == 1 else self._int("mul nsw", a, b)

    def udiv(self, a: Value, b: Value) -> Value:
        return self._int("udiv", a, b)

    def urem(self, a: Value, b: Value) -> Value:
        return self._int("urem", a, b)

    def sdiv(self, a: Value, b: Value) -> Value:
        return self._int("sdiv", a, b)

    def smin(self, a: Value, b: Value) -> Value:
        return self.select(self.icmp("slt", a, b), "i64", a, b)

    def smax(self, a: Value, b: Value) -> Value:
        return self.select(self.icmp("sgt", a, b), "i64", a, b)

    def icmp(self, how: str, a: Value, b: Value, type: str = "i64") -> str:
        return self.op(f"icmp {how} {type} {a}, {b}")

    def select(self, cond: str, type: str, a: Value, b: Value) -> str:
        return self.op(f"select i1 {cond}, {type} {a}, {type} {b}")

    # ---- memory
    def gep(self, type: str, ptr: str, index: Value) -> str:
        if index == 0:
            return ptr
        return self.op(f"getelementptr inbounds {type}, ptr {ptr}, i64 {index}")

    def load(self, type: str, ptr: str, align: int | None = None) -> str:
        return self.op(f"load {type}, ptr {ptr}" + (f", align {align}" if align else ""))

    def store(self, type: str, value: Value, ptr: str, align: int | None = None) -> None:
        self.line(f"store {type} {value}, ptr {ptr}" + (f", align {align}" if align else ""))

    def word(self, table: str, index: int) -> str:
        """The i64 at position `index` of a table."""
        return self.load("i64", self.gep("i64", table, index))

    def pointer(self, table: str, index: int) -> str:
        return self.load("ptr", self.gep("i64", table, index))

    def var(self, type: str, init: Value) -> str:
        slot = "%" + self.fresh("v")
        self.entry.append(f"  {slot} = alloca {type}")
        self.store(type, init, slot)
        return slot

    # ---- vectors
    def splat(self, scalar: str, lanes: int, value: Value) -> str:
        one = self.op(f"insertelement <{lanes} x {scalar}> poison, {scalar} {value}, i64 0")
        return self.op(f"shufflevector <{lanes} x {scalar}> {one}, <{lanes} x {scalar}> poison, "
                       f"<{lanes} x i32> zeroinitializer")

    def tail_mask(self, lanes: int, count: Value) -> str:
        """<lanes x i1>: true in the first `count` lanes."""
        steps = ", ".join(f"i64 {i}" for i in range(lanes))
        return self.op(f"icmp slt <{lanes} x i64> <{steps}>, {self.splat('i64', lanes, count)}")

    def masked_load(self, vec: str, scalar: str, ptr: str, mask: str, lanes: int,
                    other: str = "zeroinitializer") -> str:
        size = _BITS[scalar] // 8
        return self.op(f"call {vec} @llvm.masked.load.v{lanes}{_short(scalar)}.p0(ptr {ptr}, i32 {size}, "
                       f"<{lanes} x i1> {mask}, {vec} {other})")

    def masked_store(self, vec: str, scalar: str, value: str, ptr: str, mask: str, lanes: int) -> None:
        size = _BITS[scalar] // 8
        self.line(f"call void @llvm.masked.store.v{lanes}{_short(scalar)}.p0({vec} {value}, ptr {ptr}, i32 {size}, "
                  f"<{lanes} x i1> {mask})")

    def fmuladd(self, type: str, a: str, b: str, c: str) -> str:
        """a * b + c, fused where the CPU fuses it."""
        return self.op(f"call {type} @llvm.fmuladd.{_mangle(type)}({type} {a}, {type} {b}, {type} {c})")

    # ---- control
    @contextmanager
    def range(self, lo: Value, hi: Value, step: Value = 1) -> Iterator[str]:
        """for (i64 i = lo; i < hi; i += step)"""
        slot = self.var("i64", lo)
        head, body, done = self.fresh("head"), self.fresh("body"), self.fresh("done")
        self.line(f"br label %{head}")
        self.body.append(f"{head}:")
        i = self.load("i64", slot)
        self.line(f"br i1 {self.icmp('slt', i, hi)}, label %{body}, label %{done}")
        self.body.append(f"{body}:")
        yield i
        self.store("i64", self.add(i, step), slot)
        self.line(f"br label %{head}")
        self.body.append(f"{done}:")

    @contextmanager
    def when(self, cond: str) -> Iterator[None]:
        """if (cond)"""
        then, done = self.fresh("then"), self.fresh("done")
        self.line(f"br i1 {cond}, label %{then}, label %{done}")
        self.body.append(f"{then}:")
        yield
        self.line(f"br label %{done}")
        self.body.append(f"{done}:")

    @contextmanager
    def repeat_while(self) -> Iterator[list[str]]:
        """do { ... } while (the condition that the body appends to the list)"""
        head, done = self.fresh("head"), self.fresh("done")
        cond: list[str] = []
        self.line(f"br label %{head}")
        self.body.append(f"{head}:")
        yield cond
        self.line(f"br i1 {cond[0]}, label %{head}, label %{done}")
        self.body.append(f"{done}:")

    def call(self, other: Fn, *values: Value) -> None:
        args = ", ".join(f"{t} {v}" for (t, _), v in zip(other.args, values, strict=True))
        self.line(f"call void @{other.name}({args})")

    def text(self) -> str:
        args = ", ".join(f"{t} %{n}" for t, n in self.args)
        head = "define internal void" if self.internal else "define void"
        attrs = 'nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'
        if self.internal:
            attrs += " noinline"
        return "\n".join([f"{head} @{self.name}({args}) {attrs} {{", "entry:", *self.entry, "  br label %start",
                          "start:", *self.body, "  ret void", "}"])


def _short(scalar: str) -> str:
    return {"float": "f32", "double": "f64"}.get(scalar, scalar)


def _mangle(type: str) -> str:
    if type[0] == "<":
        n, _, scalar = type[1:-1].split()
        return f"v{n}{_short(scalar)}"
    return _short(type)


def module(functions: Sequence[Fn], scalars: Sequence[str], lanes: Sequence[int]) -> str:
    """The module's text: the functions and the intrinsics for these scalar types and vector lengths."""
    out = [f.text() for f in functions]
    for s, n in zip(scalars, lanes, strict=True):
        v, m, k = f"<{n} x {s}>", f"v{n}{_short(s)}", f"<{n} x i1>"
        out += [f"declare {v} @llvm.masked.load.{m}.p0(ptr, i32, {k}, {v})",
                f"declare void @llvm.masked.store.{m}.p0({v}, ptr, i32, {k})"]
        if s in ("float", "double"):
            out += [f"declare {v} @llvm.fmuladd.{m}({v}, {v}, {v})",
                    f"declare {s} @llvm.fmuladd.{_short(s)}({s}, {s}, {s})",
                    f"declare {s} @llvm.vector.reduce.fadd.{m}({s}, {v})"]
    out.append("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    return "\n".join(out) + "\n"


def transpose(names: Sequence[str], vector: str) -> tuple[list[str], list[str]]:
    """Instructions that turn a square of registers (as many as `vector` has lanes, a power of two), and the names of its
    columns. Squares off the diagonal are swapped, of side 1, 2, 4 and so on."""
    lines: list[str] = []
    now, lanes, d = list(names), len(names), 1
    while d < lanes:
        new = list(now)
        for i in range(lanes):
            if i & d:
                continue
            low = [j if not j & d else lanes + j - d for j in range(lanes)]
            high = [j + d if not j & d else lanes + j for j in range(lanes)]
            for to, mask in ((i, low), (i | d, high)):
                new[to] = f"{now[to]}.{d}"
                lines.append(f"  %{new[to]} = shufflevector {vector} %{now[i]}, {vector} %{now[i | d]}, <{lanes} x i32> "
                             f"<{', '.join(f'i32 {m}' for m in mask)}>")
        now, d = new, 2 * d
    return lines, now
