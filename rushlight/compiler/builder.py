"""A writer of LLVM IR text.

A `Writer` collects the lines of one function; values are the text that stands for them ("%7", "splat (float 0x...)").
A `Lanes` writes instructions on one element type at one width: `Lanes(w, "float", 16)` works on `<16 x float>`, and
with one lane on plain `float`, so the same code serves vectors and scalars.

`%`-numbers are given out in order; blocks are labelled by name. Instructions with equal text inside one straight
stretch of code are written once (`Writer.fresh` ends the stretch).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["Lanes", "Writer", "literal", "vector_type"]

_INT_OF = {"float": ("i32", 32), "double": ("i64", 64), "half": ("i16", 16)}
_SHORT = {"float": "f32", "double": "f64", "half": "f16", "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32",
          "i64": "i64"}


def vector_type(elem: str, lanes: int) -> str:
    return elem if lanes == 1 else f"<{lanes} x {elem}>"


def literal(elem: str, value: float | int | bool) -> str:
    """The text of a scalar constant of that element type."""
    if elem == "float":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    if elem == "double":
        return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    if elem == "i1":
        return "true" if value else "false"
    bits = int(elem[1:])
    value = int(value) & ((1 << bits) - 1)
    return str(value - (1 << bits) if value >> (bits - 1) else value)


class Writer:
    """The text of one function, and what it needs from its module: declarations and helper functions."""

    def __init__(self, declarations: dict[str, str], helpers: dict[str, str], fma: bool = True,
                 scalef: bool = False) -> None:
        self.lines: list[str] = []
        self.declarations, self.helpers, self.has_fma, self.scalef = declarations, helpers, fma, scalef
        self._count = 0
        self._labels = 0
        self._known: dict[str, str] = {}
        self.block = "entry"

    def op(self, text: str) -> str:
        """Write `%n = text` and return `%n`; equal text in the same stretch returns the value written before."""
        v = self._known.get(text)
        if v is None:
            v = self._known[text] = f"%v{self._count}"
            self._count += 1
            self.lines.append(f"  {v} = {text}")
        return v

    def effect_value(self, text: str) -> str:
        """`op` for an instruction that reads memory or is a phi: never shared."""
        v = f"%v{self._count}"
        self._count += 1
        self.lines.append(f"  {v} = {text}")
        return v

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}{self._labels}"

    def start(self, label: str) -> None:
        """Begin the block `label`."""
        self.lines.append(f"{label}:")
        self.block = label
        self.fresh()

    def fresh(self) -> None:
        self._known = {}

    def branch(self, to: str) -> None:
        self.do(f"br label %{to}")

    def branch_if(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def phi(self, type: str, first: str, first_block: str) -> Phi:
        return Phi(self, type, first, first_block)

    def call(self, name: str, result: str, args: Sequence[tuple[str, str]]) -> str:
        """A call of an external function or intrinsic without side effects, declared at first use."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(t for t, _ in args)})"
        return self.op(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})")


class Phi:
    """A loop variable: its value now, and later the one that comes round."""

    def __init__(self, w: Writer, type: str, first: str, first_block: str) -> None:
        self.w, self.type = w, type
        self.value = w.effect_value("")
        self._line = len(w.lines) - 1
        self._from = [(first, first_block)]

    def close(self, value: str, block: str) -> None:
        self._from.append((value, block))
        pairs = ", ".join(f"[ {v}, %{b} ]" for v, b in self._from)
        self.w.lines[self._line] = f"  {self.value} = phi {self.type} {pairs}"


class Lanes:
    """Instructions on `lanes` elements of type `elem` ("float", "double", or an integer type)."""

    __slots__ = ("w", "elem", "lanes", "type", "int", "bits", "mask", "suffix", "floating")

    def __init__(self, w: Writer, elem: str, lanes: int) -> None:
        self.w, self.elem, self.lanes = w, elem, lanes
        self.type = vector_type(elem, lanes)
        self.floating = elem in _INT_OF
        ielem, self.bits = _INT_OF[elem] if self.floating else (elem, int(elem[1:]))
        self.int = vector_type(ielem, lanes)
        self.mask = vector_type("i1", lanes)
        self.suffix = (f"v{lanes}" if lanes > 1 else "") + _SHORT[elem]

    def of(self, elem: str) -> Lanes:
        """The same width with another element type."""
        return Lanes(self.w, elem, self.lanes)

    @property
    def ints(self) -> Lanes:
        """Integers as wide as the elements."""
        return Lanes(self.w, f"i{self.bits}", self.lanes)

    # --- constants
    def const(self, value: float | int | bool) -> str:
        text = literal(self.elem, value)
        return text if self.lanes == 1 else f"splat ({self.elem} {text})"

    def splat(self, scalar: str) -> str:
        """All lanes equal to a scalar value."""
        if self.lanes == 1:
            return scalar
        one = self.w.op(f"insertelement {self.type} poison, {self.elem} {scalar}, i64 0")
        return self.w.op(f"shufflevector {self.type} {one}, {self.type} poison, <{self.lanes} x i32> zeroinitializer")

    # --- floating point
    def _bin(self, name: str, a: str, b: str) -> str:
        return self.w.op(f"{name} {self.type} {a}, {b}")

    def add(self, a: str, b: str) -> str: return self._bin("fadd" if self.floating else "add", a, b)
    def sub(self, a: str, b: str) -> str: return self._bin("fsub" if self.floating else "sub", a, b)
    def mul(self, a: str, b: str) -> str: return self._bin("fmul" if self.floating else "mul", a, b)
    def div(self, a: str, b: str) -> str: return self._bin("fdiv", a, b)

    def neg(self, a: str) -> str:
        return self.w.op(f"fneg {self.type} {a}") if self.floating else self.sub(self.const(0), a)

    def unary(self, intrinsic: str, a: str) -> str:
        return self.w.call(f"llvm.{intrinsic}.{self.suffix}", self.type, [(self.type, a)])

    def binary(self, intrinsic: str, a: str, b: str) -> str:
        return self.w.call(f"llvm.{intrinsic}.{self.suffix}", self.type, [(self.type, a), (self.type, b)])

    def fma(self, a: str, b: str, c: str) -> str:
        name = "fma" if self.w.has_fma else "fmuladd"
        t = self.type
        return self.w.call(f"llvm.{name}.{self.suffix}", t, [(t, a), (t, b), (t, c)])

    def abs(self, a: str) -> str: return self.unary("fabs", a)
    def sqrt(self, a: str) -> str: return self.unary("sqrt", a)
    def copysign(self, a: str, b: str) -> str: return self.binary("copysign", a, b)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with those coefficients, the highest power first; even and odd powers apart from degree 4 on,
        because the chain of a long Horner scheme is longer than processors look ahead."""
        c = list(coefficients)
        if len(c) < 5:
            return self._horner(x, c)
        square = self.mul(x, x)
        low, high = c[::-1][0::2][::-1], c[::-1][1::2][::-1]
        return self.fma(self._horner(square, high), x, self._horner(square, low))

    def _horner(self, x: str, c: list[float]) -> str:
        r = self.const(c[0])
        for k in c[1:]:
            r = self.fma(r, x, self.const(k))
        return r

    # --- comparisons
    def cmp(self, predicate: str, a: str, b: str) -> str:
        return self.w.op(f"{'fcmp' if self.floating else 'icmp'} {predicate} {self.type} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        return self.w.op(f"select {self.mask} {mask}, {self.type} {a}, {self.type} {b}")

    def isnan(self, a: str) -> str:
        return self.cmp("uno", a, a)

    def any(self, mask: str) -> str:
        """Whether any lane of a mask is set, as a scalar i1."""
        if self.lanes == 1:
            return mask
        return self.w.call(f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", [(self.mask, mask)])

    # --- bits
    def to_bits(self, a: str) -> str: return self.w.op(f"bitcast {self.type} {a} to {self.int}")
    def from_bits(self, a: str) -> str: return self.w.op(f"bitcast {self.int} {a} to {self.type}")
    def and_(self, a: str, b: str) -> str: return self._bin("and", a, b)
    def or_(self, a: str, b: str) -> str: return self._bin("or", a, b)
    def xor(self, a: str, b: str) -> str: return self._bin("xor", a, b)
    def shl(self, a: str, b: str) -> str: return self._bin("shl", a, b)
    def lshr(self, a: str, b: str) -> str: return self._bin("lshr", a, b)
    def ashr(self, a: str, b: str) -> str: return self._bin("ashr", a, b)

    def mask_and(self, a: str, b: str) -> str: return self.w.op(f"and {self.mask} {a}, {b}")
    def mask_or(self, a: str, b: str) -> str: return self.w.op(f"or {self.mask} {a}, {b}")
    def mask_xor(self, a: str, b: str) -> str: return self.w.op(f"xor {self.mask} {a}, {b}")

    def mask_not(self, a: str) -> str:
        return self.w.op(f"xor {self.mask} {a}, {'true' if self.lanes == 1 else 'splat (i1 true)'}")

    # --- conversion
    def convert(self, instruction: str, a: str, source: Lanes) -> str:
        """`a` of `source`'s type to this one by fpext, fptrunc, sitofp, zext, ..."""
        return self.w.op(f"{instruction} {source.type} {a} to {self.type}")
