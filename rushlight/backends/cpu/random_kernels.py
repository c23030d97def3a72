"""Native loops behind the random fills: the twister, Box-Muller transforms, the C library's mathematics, the shuffle.

Every kernel computes exactly what its NumPy counterpart computes (boxmuller.py, mt19937.py, sampling.py), only faster;
the float64 functions call the C library, whose bits PyTorch has. They are loaded when the time that NumPy has lost
against them pays for importing llvmlite and loading the code.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable

from rushlight.backends.cpu import cephes

__all__ = ["kernel"]

VERSION = 1
enabled = True  # tests turn it off to compare with NumPy

_PATIENCE_COLD, _PATIENCE_WARM = 40e6, 2e6  # ns lost before loading, without and with llvmlite already in the process
_functions: dict[str, Callable[..., None]] = {}
_lost = 0.0
_failed = False

_P, _N, _D, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_float
_SIGNATURES = {
    "draw": (_P, _P, _N),
    "normal32": (_P, _N, _F, _F),
    "normal64": (_P, _N, _D, _D),
    "pairs": (_P, _P, _P, _N),
    "shuffle": (_P, _P, _N),
    "log": (_P, _N),
    "log1p": (_P, _N),
    "exp": (_P, _N),
    "tan": (_P, _N),
}


def kernel(name: str, lost_ns: float) -> Callable[..., None] | None:
    """The native `name`, or None while it does not pay; `lost_ns` estimates what going without costs this call."""
    global _lost
    if not enabled:
        return None
    f = _functions.get(name)
    if f is not None or _failed:
        return f
    _lost += lost_ns
    if _lost < (_PATIENCE_WARM if "llvmlite" in sys.modules else _PATIENCE_COLD):
        return None
    _load()
    return _functions.get(name)


def _load() -> None:
    global _failed
    try:
        from rushlight.compiler.jit import compile_ir

        library = compile_ir(emit, f"random kernels {VERSION}")
    except (ImportError, RuntimeError):  # no llvmlite, or a platform it cannot serve: NumPy does the work
        _failed = True
        return
    for name, arguments in _SIGNATURES.items():
        f = ctypes.CFUNCTYPE(None, *arguments)(library.address(f"random_{name}"))
        f.library = library  # type: ignore[attr-defined]  # the code lives as long as its library
        _functions[name] = f


# ---- emission -------------------------------------------------------------------------------------------------------


class _Body:
    """Straight-line IR text with numbered values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def __call__(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def loop(self, start: str, stop: str, step: int, body: Callable[[str], None]) -> None:
        """for i in range(start, stop, step); nothing when start >= stop."""
        self.count += 1
        tag = f"l{self.count}"
        self.do(f"br label %{tag}.entry")
        self.lines.append(f"{tag}.entry:")
        self.do(f"br label %{tag}.test")
        self.lines.append(f"{tag}.test:")
        self.do(f"%{tag}.i = phi i64 [ {start}, %{tag}.entry ], [ %{tag}.next, %{tag}.latch ]")
        self.do(f"%{tag}.more = icmp slt i64 %{tag}.i, {stop}")
        self.do(f"br i1 %{tag}.more, label %{tag}.body, label %{tag}.done")
        self.lines.append(f"{tag}.body:")
        body(f"%{tag}.i")
        self.do(f"br label %{tag}.latch")
        self.lines.append(f"{tag}.latch:")
        self.do(f"%{tag}.next = add i64 %{tag}.i, {step}")
        self.do(f"br label %{tag}.test")
        self.lines.append(f"{tag}.done:")


def _f32(x: float) -> str:
    """A float32 constant as IR writes it: the double with the same value, in hexadecimal."""
    return "0x" + struct.pack(">d", struct.unpack("f", struct.pack("f", x))[0]).hex().upper()


def _f64(x: float) -> str:
    return "0x" + struct.pack(">d", x).hex().upper()


def _splat(kind: str, value: str, lanes: int) -> str:
    return f"<{', '.join([f'{kind} {value}'] * lanes)}>" if lanes > 1 else value


def _twister(b: _Body) -> None:
    """Blocks of 624 words: twist the state in place, write the tempered words."""

    def word(base: str, index: str, offset: int, kind: str) -> str:
        at = b(f"add i64 {index}, {offset}") if offset else index
        p = b(f"getelementptr i32, ptr {base}, i64 {at}")
        return b(f"load {kind}, ptr {p}, align 4")

    def constant(value: int, lanes: int) -> str:
        return _splat("i32", str(value - (1 << 32) if value >> 31 else value), lanes)

    def op(name: str, x: str, y: str | int, lanes: int) -> str:
        kind = f"<{lanes} x i32>" if lanes > 1 else "i32"
        return b(f"{name} {kind} {x}, {constant(y, lanes) if isinstance(y, int) else y}")

    def twist(u: str, v: str, m: str, lanes: int) -> str:
        mixed = op("or", op("and", u, 0x80000000, lanes), op("and", v, 0x7FFFFFFF, lanes), lanes)
        odd = op("sub", constant(0, lanes), op("and", v, 1, lanes), lanes)
        x = op("xor", op("lshr", mixed, 1, lanes), op("and", odd, 0x9908B0DF, lanes), lanes)
        return op("xor", x, m, lanes)

    def twisted(i: str, other: int, lanes: int) -> None:
        kind = f"<{lanes} x i32>" if lanes > 1 else "i32"
        x = twist(word("%state", i, 0, kind), word("%state", i, 1, kind), word("%state", i, other, kind), lanes)
        b.do(f"store {kind} {x}, ptr {b(f'getelementptr i32, ptr %state, i64 {i}')}, align 4")

    def block(k: str) -> None:
        b.loop("0", "224", 16, lambda i: twisted(i, 397, 16))
        b.loop("224", "227", 1, lambda i: twisted(i, 397, 1))
        b.loop("227", "611", 16, lambda i: twisted(i, -227, 16))
        b.loop("611", "623", 4, lambda i: twisted(i, -227, 4))
        # the last word's neighbour is the first, already new
        x = twist(word("%state", "623", 0, "i32"), word("%state", "0", 0, "i32"), word("%state", "396", 0, "i32"), 1)
        b.do(f"store i32 {x}, ptr {b('getelementptr i32, ptr %state, i64 623')}, align 4")
        base = b(f"mul i64 {k}, 624")

        def temper(i: str) -> None:
            y = word("%state", i, 0, "<16 x i32>")
            y = op("xor", y, op("lshr", y, 11, 16), 16)
            y = op("xor", y, op("and", op("shl", y, 7, 16), 0x9D2C5680, 16), 16)
            y = op("xor", y, op("and", op("shl", y, 15, 16), 0xEFC60000, 16), 16)
            y = op("xor", y, op("lshr", y, 18, 16), 16)
            at = b(f"add i64 {base}, {i}")
            b.do(f"store <16 x i32> {y}, ptr {b(f'getelementptr i32, ptr %out, i64 {at}')}, align 4")

        b.loop("0", "624", 16, temper)

    b.loop("0", "%n", 1, block)


def _normal32(b: _Body) -> None:
    """Box-Muller on blocks of 16 float32 uniforms, 8 radii and 8 angles: the arithmetic of cephes.py, lane by lane."""
    v, w = "<8 x float>", "<8 x i32>"

    def c(x: float) -> str:
        return _splat("float", _f32(x), 8)

    def n(x: int) -> str:
        return _splat("i32", str(x), 8)

    def op(name: str, x: str, y: str) -> str:
        return b(f"{name} {v} {x}, {y}")

    def iop(name: str, x: str, y: str) -> str:
        return b(f"{name} {w} {x}, {y}")

    def fma(x: str, y: str, z: str) -> str:
        return b(f"call {v} @llvm.fma.v8f32({v} {x}, {v} {y}, {v} {z})")

    def neg(x: str) -> str:
        return b(f"fneg {v} {x}")

    def cast(name: str, x: str, a: str, to: str) -> str:
        return b(f"{name} {a} {x} to {to}")

    def splat(scalar: str) -> str:
        one = b(f"insertelement {v} undef, float {scalar}, i32 0")
        return b(f"shufflevector {v} {one}, {v} undef, {w} zeroinitializer")

    mean, std = splat("%mean"), splat("%std")

    def block(k: str) -> None:
        first = b(f"getelementptr float, ptr %data, i64 {b(f'mul i64 {k}, 16')}")
        second = b(f"getelementptr float, ptr {first}, i64 8")
        u1 = op("fsub", c(1.0), b(f"load {v}, ptr {first}, align 4"))
        u2 = b(f"load {v}, ptr {second}, align 4")
        # the logarithm
        bits = cast("bitcast", u1, v, w)
        e = op("fadd", cast("sitofp", iop("sub", iop("lshr", bits, n(23)), n(127)), w, v), c(1.0))
        m = cast("bitcast", iop("or", iop("and", bits, n(0x7FFFFF)), n(0x3F000000)), w, v)
        small = b(f"fcmp olt {v} {m}, {c(cephes.SQRTHF)}")
        extra = b(f"select <8 x i1> {small}, {v} {m}, {v} {c(0.0)}")
        e = op("fsub", e, b(f"select <8 x i1> {small}, {v} {c(1.0)}, {v} {c(0.0)}"))
        x = op("fadd", op("fsub", m, c(1.0)), extra)
        z = op("fmul", x, x)
        y = c(cephes.LOG_P[0])
        for p in cephes.LOG_P[1:]:
            y = fma(y, x, c(p))
        y = fma(op("fmul", y, x), z, op("fmul", e, c(cephes.LOG_Q1)))
        y = op("fsub", y, op("fmul", z, c(0.5)))
        log = op("fadd", op("fadd", x, y), op("fmul", e, c(cephes.LOG_Q2)))
        radius = b(f"call {v} @llvm.sqrt.v8f32({v} {op('fmul', c(-2.0), log)})")
        # sine and cosine
        x = op("fmul", c(2.0 * math.pi), u2)
        j = iop("and", iop("add", cast("fptosi", op("fmul", x, c(cephes.FOPI)), v, w), n(1)), n(-2))
        q = cast("sitofp", j, w, v)
        for p in cephes.DP:
            x = fma(q, c(p), x)
        z = op("fmul", x, x)
        cosine = fma(fma(c(cephes.COS_P[0]), z, c(cephes.COS_P[1])), z, c(cephes.COS_P[2]))
        cosine = op("fadd", fma(op("fmul", cosine, z), z, neg(op("fmul", z, c(0.5)))), c(1.0))
        sine = fma(fma(c(cephes.SIN_P[0]), z, c(cephes.SIN_P[1])), z, c(cephes.SIN_P[2]))
        sine = fma(op("fmul", sine, z), x, x)
        even = b(f"icmp eq {w} {iop('and', j, n(2))}, {n(0)}")
        s = b(f"select <8 x i1> {even}, {v} {sine}, {v} {cosine}")
        t = b(f"select <8 x i1> {even}, {v} {cosine}, {v} {sine}")
        flip = iop("shl", iop("and", j, n(4)), n(29))
        s = cast("bitcast", iop("xor", cast("bitcast", s, v, w), flip), w, v)
        flip = iop("shl", iop("xor", iop("and", iop("sub", j, n(2)), n(4)), n(4)), n(29))
        t = cast("bitcast", iop("xor", cast("bitcast", t, v, w), flip), w, v)
        b.do(f"store {v} {fma(op('fmul', radius, t), std, mean)}, ptr {first}, align 4")
        b.do(f"store {v} {fma(op('fmul', radius, s), std, mean)}, ptr {second}, align 4")

    b.loop("0", "%n", 1, block)


def _double_at(b: _Body, base: str, index: str) -> tuple[str, str]:
    p = b(f"getelementptr double, ptr {base}, i64 {index}")
    return p, b(f"load double, ptr {p}, align 8")


def _radius_angle(b: _Body, log: str, angle: str) -> tuple[str, str, str]:
    r = b(f"call double @llvm.sqrt.f64(double {b(f'fmul double {_f64(-2.0)}, {log}')})")
    theta = b(f"fmul double {_f64(2.0 * math.pi)}, {angle}")
    return r, b(f"call double @cos(double {theta})"), b(f"call double @sin(double {theta})")


def _normal64(b: _Body) -> None:
    def block(k: str) -> None:
        base = b(f"mul i64 {k}, 16")
        stop = b(f"add i64 {base}, 8")

        def pair(i: str) -> None:
            first, u1 = _double_at(b, "%data", i)
            second, u2 = _double_at(b, "%data", b(f"add i64 {i}, 8"))
            r, c, s = _radius_angle(b, b(f"call double @log(double {b(f'fsub double {_f64(1.0)}, {u1}')})"), u2)
            for p, part in ((first, c), (second, s)):
                x = b(f"fmul double {r}, {part}")
                y = b(f"call double @llvm.fma.f64(double {x}, double %std, double %mean)")
                b.do(f"store double {y}, ptr {p}, align 8")

        b.loop(base, stop, 1, pair)

    b.loop("0", "%n", 1, block)


def _pairs(b: _Body) -> None:
    def pair(i: str) -> None:
        at = b(f"shl i64 {i}, 1")
        _, u1 = _double_at(b, "%u", at)
        _, u2 = _double_at(b, "%u", b(f"add i64 {at}, 1"))
        r, c, s = _radius_angle(b, b(f"call double @log1p(double {b(f'fneg double {u2}')})"), u1)
        for base, part in (("%cosines", c), ("%sines", s)):
            p = b(f"getelementptr double, ptr {base}, i64 {i}")
            b.do(f"store double {b(f'fmul double {r}, {part}')}, ptr {p}, align 8")

    b.loop("0", "%n", 1, pair)


def _mapped(name: str) -> Callable[[_Body], None]:
    def emit_map(b: _Body) -> None:
        def one(i: str) -> None:
            p, x = _double_at(b, "%data", i)
            b.do(f"store double {b(f'call double @{name}(double {x})')}, ptr {p}, align 8")

        b.loop("0", "%n", 1, one)

    return emit_map


def _shuffle(b: _Body) -> None:
    """Exchange items[i] with items[i + words[i] mod (n - i)], first to last but one."""
    last = b("sub i64 %n, 1")

    def swap(i: str) -> None:
        p = b(f"getelementptr i32, ptr %words, i64 {i}")
        w = b(f"load i32, ptr {p}, align 4")
        w, left = b(f"zext i32 {w} to i64"), b(f"sub i64 %n, {i}")
        w = b(f"urem i64 {w}, {left}")
        j = b(f"add i64 {i}, {w}")
        p, q = b(f"getelementptr i64, ptr %items, i64 {i}"), b(f"getelementptr i64, ptr %items, i64 {j}")
        x, y = b(f"load i64, ptr {p}, align 8"), b(f"load i64, ptr {q}, align 8")
        b.do(f"store i64 {y}, ptr {p}, align 8")
        b.do(f"store i64 {x}, ptr {q}, align 8")

    b.loop("0", last, 1, swap)


def emit() -> str:
    """The module's LLVM IR."""
    functions: dict[str, tuple[str, Callable[[_Body], None]]] = {
        "draw": ("ptr noalias %state, ptr noalias %out, i64 %n", _twister),
        "normal32": ("ptr %data, i64 %n, float %mean, float %std", _normal32),
        "normal64": ("ptr %data, i64 %n, double %mean, double %std", _normal64),
        "pairs": ("ptr noalias %u, ptr noalias %cosines, ptr noalias %sines, i64 %n", _pairs),
        "shuffle": ("ptr noalias %items, ptr noalias %words, i64 %n", _shuffle),
        **{name: ("ptr %data, i64 %n", _mapped(name)) for name in ("log", "log1p", "exp", "tan")},
    }
    text = [f"declare double @{f}(double)" for f in ("log", "log1p", "exp", "tan", "sin", "cos")]
    text += [
        "declare double @llvm.sqrt.f64(double)",
        "declare double @llvm.fma.f64(double, double, double)",
        "declare <8 x float> @llvm.sqrt.v8f32(<8 x float>)",
        "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)",
    ]
    for name, (arguments, fill) in functions.items():
        b = _Body()
        fill(b)
        text += [f"define void @random_{name}({arguments}) {{", "entry:", *b.lines, "  ret void", "}"]
    return "\n".join(text) + "\n"
