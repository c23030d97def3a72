"""`Expr` graphs to vector instructions: types, casts, integers, logic.

A value is its text and its dtype's name. In registers a bool is one bit a lane, float16 and bfloat16 are computed as
float32 (`load` widens, `store` rounds to nearest even); in memory a bool is a byte and bfloat16 its bits.

Dtype rules of a node: constants take the dtype of the other operand; integers meet floats in the float; two floats,
or two integers, in the wider; `div` and the functions of mathematics turn integers into the kernel's `compute` dtype;
comparisons give bool. `cast(x, "compute")` is the kernel's compute dtype, `cast(x, "bfloat16")` rounds to it and
stays float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rushlight.compiler import vecmath
from rushlight.compiler.builder import Lanes, Writer, literal, vector_type
from rushlight.ops.expr import Expr, postorder

__all__ = ["ITEMSIZE", "MEMORY", "Evaluator", "Value", "convert", "has_native", "identity", "load", "register_dtype",
           "store",
           "weight"]

MEMORY = {"bool": "i8", "uint8": "i8", "int8": "i8", "uint16": "i16", "int16": "i16", "uint32": "i32", "int32": "i32",
          "uint64": "i64", "int64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float",
          "float64": "double"}
ITEMSIZE = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
            "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
_FLOATS = ("float32", "float64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


class Value(NamedTuple):
    text: str
    dtype: str


def register_dtype(dtype: str) -> str:
    """The dtype in which values of `dtype` are computed."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def element(dtype: str) -> str:
    """The LLVM type of one lane in a register."""
    return "i1" if dtype == "bool" else MEMORY[register_dtype(dtype)]


def lanes_of(w: Writer, dtype: str, lanes: int) -> Lanes:
    return Lanes(w, element(dtype), lanes)


# --- memory -----------------------------------------------------------------------------------------------------------
def from_memory(w: Writer, raw: str, dtype: str, lanes: int) -> Value:
    """A register value from what a load of the memory type gave."""
    if dtype == "bool":
        return Value(Lanes(w, "i8", lanes).cmp("ne", raw, Lanes(w, "i8", lanes).const(0)), "bool")
    if dtype == "float16":
        return Value(Lanes(w, "float", lanes).convert("fpext", raw, Lanes(w, "half", lanes)), "float32")
    if dtype == "bfloat16":
        i32 = Lanes(w, "i32", lanes)
        bits = i32.shl(i32.convert("zext", raw, Lanes(w, "i16", lanes)), i32.const(16))
        return Value(Lanes(w, "float", lanes).from_bits(bits), "float32")
    return Value(raw, dtype)


def to_memory(w: Writer, value: Value, dtype: str, lanes: int) -> str:
    """The memory form of a value converted to `dtype`."""
    v = convert(w, value, register_dtype(dtype), lanes).text
    if dtype == "bool":
        return Lanes(w, "i8", lanes).convert("zext", v, Lanes(w, "i1", lanes))
    if dtype == "float16":
        return Lanes(w, "half", lanes).convert("fptrunc", v, Lanes(w, "float", lanes))
    if dtype == "bfloat16":
        return _bfloat16_bits(w, v, lanes)
    return v


def _bfloat16_bits(w: Writer, v: str, lanes: int) -> str:
    F, N, H = Lanes(w, "float", lanes), Lanes(w, "i32", lanes), Lanes(w, "i16", lanes)
    b = F.to_bits(v)
    odd = N.and_(N.lshr(b, N.const(16)), N.const(1))
    rounded = N.lshr(N.add(b, N.add(odd, N.const(0x7FFF))), N.const(16))
    quiet = N.or_(N.lshr(b, N.const(16)), N.const(0x40))
    return H.convert("trunc", N.select(F.isnan(v), quiet, rounded), N)


def load(w: Writer, pointer: str, dtype: str, lanes: int, mask: str | None = None) -> Value:
    """`lanes` contiguous elements at `pointer`; lanes outside `mask` are zero."""
    t, size = vector_type(MEMORY[dtype], lanes), ITEMSIZE[dtype]
    if mask is None:
        raw = w.effect_value(f"load {t}, ptr {pointer}, align {size}")
    else:
        name = f"llvm.masked.load.v{lanes}{_suffix(dtype)}.p0"
        m = vector_type("i1", lanes)
        w.declarations.setdefault(name, f"declare {t} @{name}(ptr, {m}, {t})")
        raw = w.effect_value(f"call {t} @{name}(ptr align {size} {pointer}, {m} {mask}, {t} zeroinitializer)")
    return from_memory(w, raw, dtype, lanes)


def store(w: Writer, value: Value, pointer: str, dtype: str, lanes: int, mask: str | None = None) -> None:
    """Write `value`, converted to `dtype`, to contiguous memory."""
    t, size = vector_type(MEMORY[dtype], lanes), ITEMSIZE[dtype]
    raw = to_memory(w, value, dtype, lanes)
    if mask is None:
        w.do(f"store {t} {raw}, ptr {pointer}, align {size}")
    else:
        name = f"llvm.masked.store.v{lanes}{_suffix(dtype)}.p0"
        m = vector_type("i1", lanes)
        w.declarations.setdefault(name, f"declare void @{name}({t}, ptr, {m})")
        w.do(f"call void @{name}({t} {raw}, ptr align {size} {pointer}, {m} {mask})")


def _suffix(dtype: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(MEMORY[dtype], MEMORY[dtype])


# --- conversion -------------------------------------------------------------------------------------------------------
def convert(w: Writer, value: Value, dtype: str, lanes: int) -> Value:
    """`value` as `dtype`, as C converts."""
    if dtype in ("float16", "bfloat16"):
        f = convert(w, value, "float32", lanes)
        return from_memory(w, to_memory(w, f, dtype, lanes), dtype, lanes)
    source = value.dtype
    if source == dtype:
        return value
    S, D = lanes_of(w, source, lanes), lanes_of(w, dtype, lanes)
    v = value.text
    if dtype == "bool":
        text = S.cmp("une", v, S.const(0.0)) if source in _FLOATS else S.cmp("ne", v, S.const(0))
    elif source in _FLOATS:
        if dtype in _FLOATS:
            text = D.convert("fpext" if dtype == "float64" else "fptrunc", v, S)
        else:
            text = _float_to_int(w, S, D, v, dtype)
    elif dtype in _FLOATS:
        text = D.convert("uitofp" if source in _UNSIGNED or source == "bool" else "sitofp", v, S)
    elif D.bits == S.bits:
        return Value(v, dtype)
    elif D.bits < S.bits:
        text = D.convert("trunc", v, S)
    else:
        text = D.convert("zext" if source in _UNSIGNED or source == "bool" else "sext", v, S)
    return Value(text, dtype)


def _float_to_int(w: Writer, S: Lanes, D: Lanes, v: str, dtype: str) -> str:
    """Truncation as x86 does it: through int32 or int64 and then the low bits; nan and what does not fit become the
    lowest integer."""
    wide = 64 if D.bits == 64 or dtype == "uint32" else 32
    edge = 2.0 ** (wide - 1)
    L = S.of(f"i{wide}")
    big = S.cmp("oge", v, S.const(edge)) if dtype == "uint64" else None
    x = S.select(big, S.sub(v, S.const(edge)), v) if big else v
    fits = S.mask_and(S.cmp("olt", x, S.const(edge)), S.cmp("oge", x, S.const(-edge)))
    n = L.convert("fptosi", S.select(fits, x, S.const(-edge)), S)
    if big:
        n = L.xor(n, L.select(big, L.const(1 << 63), L.const(0)))
    return D.convert("trunc", n, L) if L.bits > D.bits else n


def promote(a: str, b: str) -> str:
    """The dtype in which register values of dtypes `a` and `b` meet."""
    if a == b:
        return a
    if a in _FLOATS or b in _FLOATS:
        return "float64" if "float64" in (a, b) else "float32"
    if a == "bool" or b == "bool":
        return b if a == "bool" else a
    if (a in _UNSIGNED) == (b in _UNSIGNED):
        return a if ITEMSIZE[a] >= ITEMSIZE[b] else b
    u, s = (a, b) if a in _UNSIGNED else (b, a)
    if ITEMSIZE[s] > ITEMSIZE[u]:
        return s
    return {1: "int16", 2: "int32", 4: "int64", 8: "float64"}[ITEMSIZE[u]]


# --- what exists ------------------------------------------------------------------------------------------------------
_MATH = frozenset(vecmath.FUNCTIONS)
_ARITHMETIC = frozenset("add sub mul neg abs maximum minimum fmax fmin sign where eq ne lt le gt ge and or xor not "
                        "cast isnan isinf isfinite signbit div floordiv remainder fmod floor ceil "
                        "trunc round sqrt copysign "
                        "nextafter".split())
_BITS = frozenset("bitand bitor bitxor bitnot shl shr".split())


def has_native(op: str, dtype: str) -> bool:
    """Whether the primitive `op` can be compiled for operands of that dtype."""
    if dtype not in MEMORY:
        return False
    if op in _BITS:
        return not dtype.startswith(("float", "bfloat")) and not (dtype == "bool" and op in ("shl", "shr"))
    if op == "pow":
        return dtype.startswith(("float", "bfloat"))
    return op in _ARITHMETIC or op in _MATH


_WEIGHTS = {"div": 6, "sqrt": 8, "sin": 30, "cos": 30, "tan": 60, "tanh": 28, "erf": 32, "exp": 16, "log": 22,
            "pow": 90,
            "lgamma": 400, "fmod": 60, "remainder": 60, "floordiv": 60, "erfc": 60}


def weight(roots: Iterable[Expr]) -> int:
    """About how many instructions an element costs: decides on unrolling and on the grain of parallel work."""
    return sum(_WEIGHTS.get(n.op, 25 if n.op in _MATH else 1) for n in postorder(*roots) if n.op not in ("arg",
                                                                                                         "const"))


def identity(op: str, dtype: str) -> float | int | bool:
    """The neutral element of a reduction."""
    if op in ("add", "or"):
        return False if dtype == "bool" else 0
    if op in ("mul", "and"):
        return True if dtype == "bool" else 1
    if op not in ("maximum", "minimum"):
        raise ValueError(f"reduction {op!r}: expected add, mul, maximum, minimum, or, and")
    low = op == "maximum"
    if dtype in _FLOATS:
        return -math.inf if low else math.inf
    if dtype == "bool":
        return not low
    bits = 8 * ITEMSIZE[dtype]
    if dtype in _UNSIGNED:
        return 0 if low else (1 << bits) - 1
    return -(1 << (bits - 1)) if low else (1 << (bits - 1)) - 1


# --- evaluation -------------------------------------------------------------------------------------------------------
class Evaluator:
    """Writes expressions at one width. `leaf(name)` gives the value of an argument; nodes are written once."""

    def __init__(self, w: Writer, lanes: int, leaf: Callable[[str], Value], compute: str = "float32") -> None:
        self.w, self.lanes, self.leaf, self.compute = w, lanes, leaf, register_dtype(compute)
        self._done: dict[int, Value] = {}

    def L(self, dtype: str) -> Lanes:
        return Lanes(self.w, element(dtype), self.lanes)

    def to(self, value: Value, dtype: str) -> Value:
        return convert(self.w, value, dtype, self.lanes)

    def __call__(self, root: Expr) -> Value:
        """The value of `root` (never a bare Python number)."""
        v = self._value(root)
        return v if isinstance(v, Value) else self._number(v, None)

    def _value(self, root: Expr) -> Any:
        done = self._done
        for n in postorder(root):
            if id(n) in done:
                continue
            if n.op == "const":
                done[id(n)] = n.args[0]
            elif n.op == "arg":
                done[id(n)] = self.leaf(n.args[0])
            elif n.op == "cast":
                dtype = self.compute if n.args[1] == "compute" else n.args[1]
                v = done[id(n.args[0])]
                done[id(n)] = self.to(v if isinstance(v, Value) else self._number(v, dtype), dtype)
            else:
                done[id(n)] = self._one_plus_erf(n) or self._apply(n.op, [done[id(a)] for a in n.args])
        return done[id(root)]

    def _one_plus_erf(self, n: Expr) -> Value | None:
        """The normal distribution's kernel has a cheaper form as a whole."""
        if n.op != "add":
            return None
        a, b = n.args if n.args[0].op == "const" else n.args[::-1]
        if a.op != "const" or a.args[0] != 1 or b.op != "erf":
            return None
        u = self._done[id(b.args[0])]
        if not isinstance(u, Value) or u.dtype not in _FLOATS:
            return None
        return Value(vecmath.one_plus_erf(self.L(u.dtype), u.text), u.dtype)

    def _number(self, v: Any, dtype: str | None) -> Value:
        if dtype is None:
            dtype = "bool" if isinstance(v, bool) else "int64" if isinstance(v, int) else self.compute
        dtype = register_dtype(dtype)
        return Value(self.L(dtype).const(v), dtype)

    def _meet(self, operands: list[Any]) -> tuple[str, list[str]]:
        """Operands converted to one dtype."""
        typed = [v.dtype for v in operands if isinstance(v, Value)]
        numbers = [v for v in operands if not isinstance(v, Value)]
        if typed:
            dtype = typed[0]
            for t in typed[1:]:
                dtype = promote(dtype, t)
            if dtype not in _FLOATS and any(isinstance(n, float) for n in numbers):
                dtype = self.compute if self.compute in _FLOATS else "float32"
            elif dtype == "bool" and any(not isinstance(n, bool) for n in numbers):
                dtype = "int64"
        else:
            dtype = self.compute if any(isinstance(n, float) for n in numbers) else self._number(numbers[0], None).dtype
        return dtype, [self.to(v, dtype).text if isinstance(v, Value) else self._number(v,
                                                                                        dtype).text for v in operands]

    def _floats(self, operands: list[Any]) -> tuple[str, list[str]]:
        """Operands as floats: integers become the compute dtype."""
        dtype, texts = self._meet(operands)
        if dtype in _FLOATS:
            return dtype, texts
        to = self.compute if self.compute in _FLOATS else "float32"
        return to, [self.to(Value(t, dtype), to).text for t in texts]

    def _bool(self, v: Any) -> str:
        return self.to(v if isinstance(v, Value) else self._number(bool(v), "bool"), "bool").text

    def _apply(self, op: str, a: list[Any]) -> Value:
        if op in _COMPARE:
            dtype, t = self._meet(a)
            p = _COMPARE[op][0 if dtype in _FLOATS else 2 if dtype in _UNSIGNED or dtype == "bool" else 1]
            return Value(self.L(dtype).cmp(p, *t), "bool")
        if op in ("and", "or", "xor"):
            L = self.L("float32")
            return Value({"and": L.mask_and, "or": L.mask_or, "xor": L.mask_xor}[op](self._bool(a[0]),
                                                                                     self._bool(a[1])),
                         "bool")
        if op == "not":
            return Value(self.L("float32").mask_not(self._bool(a[0])), "bool")
        if op == "where":
            dtype, t = self._meet(a[1:])
            return Value(self.L(dtype).select(self._bool(a[0]), *t), dtype)
        if op == "pow" and not isinstance(a[1], Value):
            short = self._small_power(a[0], a[1])
            if short is not None:
                return short
        if op in _MATH or op in ("div", "sqrt"):
            dtype, t = self._floats(a)
            F = self.L(dtype)
            if op == "div":
                return Value(F.div(*t), dtype)
            return Value(F.sqrt(*t) if op == "sqrt" else vecmath.FUNCTIONS[op](F, *t), dtype)
        if op in ("isnan", "isinf", "isfinite", "signbit"):
            return Value(self._classify(op, a[0]), "bool")
        dtype, t = self._meet(a)
        F = self.L(dtype)
        if dtype in _FLOATS:
            return Value(self._float_op(op, F, t), dtype)
        if dtype == "bool" and op in ("add", "maximum", "fmax", "bitor"):
            return Value(F.mask_or(*t), "bool")
        if dtype == "bool" and op in ("mul", "minimum", "fmin", "bitand"):
            return Value(F.mask_and(*t), "bool")
        if dtype == "bool" and op in ("abs", "sign", "bitnot", "bitxor"):
            return Value(F.mask_not(t[0]) if op == "bitnot" else F.mask_xor(*t) if op == "bitxor" else t[0], "bool")
        return Value(self._int_op(op, F, t, dtype in _UNSIGNED or dtype == "bool"), dtype)

    def _small_power(self, x: Any, n: Any) -> Value | None:
        if isinstance(x, Value) and x.dtype in _FLOATS:
            F = self.L(x.dtype)
            if n == 2:
                return Value(F.mul(x.text, x.text), x.dtype)
            if n == 1:
                return x
            if n == 3 and x.dtype == "float32":
                D = self.L("float64")
                d = D.convert("fpext", x.text, F)
                return Value(F.convert("fptrunc", D.mul(D.mul(d, d), d), D), x.dtype)
            if n == -1:
                return Value(F.div(F.const(1.0), x.text), x.dtype)
        elif isinstance(x, Value) and isinstance(n, int) and 0 < n <= 16 and x.dtype != "bool":
            N = self.L(x.dtype)
            r, base = None, x.text
            while n:
                if n & 1:
                    r = base if r is None else N.mul(r, base)
                base = N.mul(base, base) if n > 1 else base
                n >>= 1
            return Value(r or base, x.dtype)
        return None

    def _classify(self, op: str, v: Any) -> str:
        v = v if isinstance(v, Value) else self._number(v, None)
        L = self.L(v.dtype)
        if v.dtype not in _FLOATS:
            none = Lanes(self.w, "i1", self.lanes).const
            if op == "signbit" and v.dtype != "bool" and v.dtype not in _UNSIGNED:
                return L.cmp("slt", v.text, L.const(0))
            return none(op == "isfinite")
        if op == "isnan":
            return L.isnan(v.text)
        if op == "signbit":
            return L.ints.cmp("slt", L.to_bits(v.text), L.ints.const(0))
        return L.cmp("oeq" if op == "isinf" else "one", L.abs(v.text), L.const(math.inf))

    def _float_op(self, op: str, F: Lanes, t: list[str]) -> str:
        simple: dict[str, Callable[..., str]] = {
            "add": F.add, "sub": F.sub, "mul": F.mul, "neg": F.neg, "abs": F.abs, "copysign": F.copysign}
        if op in simple:
            return simple[op](*t)
        if op in _ROUNDING:
            return F.unary(_ROUNDING[op], t[0])
        x = t[0]
        if op in ("maximum", "minimum"):
            y = t[1]
            m = F.select(F.cmp("ogt" if op == "maximum" else "olt", x, y), x, y)       # y where either is nan
            return F.select(F.isnan(x), x, m)
        if op in ("fmax", "fmin"):
            y = t[1]
            m = F.select(F.cmp("oge" if op == "fmax" else "ole", x, y), x, y)          # y where either is nan
            return F.select(F.isnan(y), x, m)
        if op == "sign":
            one = F.select(F.cmp("olt", x, F.const(0.0)), F.const(-1.0), F.const(0.0))
            s = F.select(F.cmp("ogt", x, F.const(0.0)), F.const(1.0), one)
            return F.select(F.isnan(x), x, s)
        if op in ("fmod", "remainder", "floordiv"):
            return _float_modulo(self.w, op, F, *t)
        if op == "nextafter":
            return _nextafter(F, *t)
        raise ValueError(f"no native form of {op!r} for floats")

    def _int_op(self, op: str, N: Lanes, t: list[str], unsigned: bool) -> str:
        simple: dict[str, Callable[..., str]] = {
            "add": N.add, "sub": N.sub, "mul": N.mul, "neg": N.neg, "bitand": N.and_, "bitor": N.or_, "bitxor": N.xor}
        if op in simple:
            return simple[op](*t)
        x, zero = t[0], N.const(0)
        if op == "bitnot":
            return N.xor(x, N.const(-1))
        if op == "abs":
            return x if unsigned else N.select(N.cmp("slt", x, zero), N.neg(x), x)
        if op == "sign":
            positive = N.select(N.cmp("ne" if unsigned else "sgt", x, zero), N.const(1), zero)
            return positive if unsigned else N.select(N.cmp("slt", x, zero), N.const(-1), positive)
        if op in ("maximum", "fmax", "minimum", "fmin"):
            p = ("u" if unsigned else "s") + ("gt" if op in ("maximum", "fmax") else "lt")
            return N.select(N.cmp(p, *t), *t)
        if op in ("floor", "ceil", "trunc", "round"):
            return x
        if op in ("shl", "shr"):
            over = N.cmp("uge", t[1], N.const(N.bits))
            n = N.select(over, N.const(N.bits - 1), t[1])
            if op == "shr" and not unsigned:
                return N.ashr(x, n)
            return N.select(over, zero, N.shl(x, n) if op == "shl" else N.lshr(x, n))
        if op in ("floordiv", "remainder", "fmod"):
            return self._int_modulo(op, N, x, t[1], unsigned)
        raise ValueError(f"no native form of {op!r} for integers")

    def _int_modulo(self, op: str, N: Lanes, x: str, y: str, unsigned: bool) -> str:
        """As NumPy: a zero divisor gives 0 (callers raise before), quotients are floored except in fmod."""
        zero, w = N.const(0), self.w
        bad = N.cmp("eq", y, zero)
        if not unsigned:
            lowest = N.mask_and(N.cmp("eq", x, N.const(1 << (N.bits - 1))), N.cmp("eq", y, N.const(-1)))
            d = N.select(N.mask_or(bad, lowest), N.const(1), y)
        else:
            d = N.select(bad, N.const(1), y)
        q = w.op(f"{'udiv' if unsigned else 'sdiv'} {N.type} {x}, {d}")
        r = N.sub(x, N.mul(q, d))
        if not unsigned and op != "fmod":
            off = N.mask_and(N.cmp("ne", r, zero), N.cmp("slt", N.xor(r, y), zero))
            q = N.select(off, N.sub(q, N.const(1)), q)
            r = N.select(off, N.add(r, y), r)
        return N.select(bad, zero, q if op == "floordiv" else r)


_COMPARE = {"eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne"), "lt": ("olt", "slt", "ult"),
            "le": ("ole", "sle", "ule"),
            "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge")}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def _float_modulo(w: Writer, op: str, F: Lanes, x: str, y: str) -> str:
    r = w.op(f"frem {F.type} {x}, {y}")
    if op == "fmod":
        return r
    zero = F.const(0.0)
    other = F.mask_and(F.cmp("one", r, zero), F.mask_xor(F.cmp("olt", r, zero), F.cmp("olt", y, zero)))
    mod = F.select(other, F.add(r, y), F.select(F.cmp("oeq", r, zero), F.copysign(zero, y), r))
    if op == "remainder":
        return mod
    q = F.div(F.sub(x, r), y)
    q = F.select(other, F.sub(q, F.const(1.0)), q)
    down = F.unary("floor", q)
    down = F.select(F.cmp("ogt", F.sub(q, down), F.const(0.5)), F.add(down, F.const(1.0)), down)
    exact = F.select(F.cmp("oeq", q, zero), F.copysign(zero, F.div(x, y)), down)
    return F.select(F.cmp("oeq", y, zero), F.div(x, y), exact)


def _nextafter(F: Lanes, x: str, y: str) -> str:
    N = F.ints
    b = F.to_bits(x)
    up = F.mask_xor(F.cmp("olt", x, y), N.cmp("slt", b, N.const(0)))
    step = F.from_bits(N.add(b, N.select(up, N.const(1), N.const(-1))))
    least = F.copysign(F.from_bits(N.const(1)), y)
    r = F.select(F.cmp("oeq", x, F.const(0.0)), least, step)
    r = F.select(F.cmp("oeq", x, y), y, r)
    return F.select(F.cmp("uno", x, y), F.add(x, y), r)


def scalar_constant(dtype: str, value: float | int | bool) -> str:
    return literal(element(dtype), value)
