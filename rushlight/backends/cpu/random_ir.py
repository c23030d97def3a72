"""LLVM IR of the random fills' native loops (random_kernels.py says when they are used).

Functions that draw take the twister's 624 state words and the position in them, and return the new position. They fetch
tempered words a chunk at a time and transform them while the chunk is in the first-level cache.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable

from rushlight.backends.cpu import cephes

__all__ = ["VERSION", "emit"]

VERSION = 4  # part of the cached code's name: raise it with every change here


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


    def lanes(self, start: str, stop: str, width: int, body: Callable[[str, int], None]) -> None:
        """range(start, stop) in vectors of `width`, and one by one where less is left: body(index, lanes)."""
        count = self(f"sub i64 {stop}, {start}")
        whole = self(f"and i64 {count}, {-width}")
        middle = self(f"add i64 {start}, {whole}")
        self.loop(start, middle, width, lambda i: body(i, width))
        self.loop(middle, stop, 1, lambda i: body(i, 1))

    def least(self, x: str, y: str) -> str:
        smaller = self(f"icmp slt i64 {x}, {y}")
        return self(f"select i1 {smaller}, i64 {x}, i64 {y}")

    def at(self, kind: str, base: str, index: str) -> str:
        return self(f"getelementptr {kind}, ptr {base}, i64 {index}")


def _f32(x: float) -> str:
    """A float32 constant as IR writes it: the double with the same value, in hexadecimal."""
    return "0x" + struct.pack(">d", struct.unpack("f", struct.pack("f", x))[0]).hex().upper()


def _f64(x: float) -> str:
    return "0x" + struct.pack(">d", x).hex().upper()


def _splat(kind: str, value: str, lanes: int) -> str:
    return f"<{', '.join([f'{kind} {value}'] * lanes)}>" if lanes > 1 else value


def _vector(kind: str, lanes: int) -> str:
    return f"<{lanes} x {kind}>" if lanes > 1 else kind


def _integer(value: int, lanes: int) -> str:
    return _splat("i32", str(value - (1 << 32) if value >> 31 else value), lanes)


def _op(b: _Body, name: str, x: str, y: str | int, lanes: int) -> str:
    return b(f"{name} {_vector('i32', lanes)} {x}, {_integer(y, lanes) if isinstance(y, int) else y}")


def _twist(b: _Body) -> None:
    """The next state in place."""

    def word(i: str, offset: int, lanes: int) -> str:
        p = b.at("i32", "%state", b(f"add i64 {i}, {offset}"))
        return b(f"load {_vector('i32', lanes)}, ptr {p}, align 4")

    def mix(u: str, v: str, m: str, lanes: int) -> str:
        both = _op(b, "or", _op(b, "and", u, 0x80000000, lanes), _op(b, "and", v, 0x7FFFFFFF, lanes), lanes)
        odd = _op(b, "sub", _integer(0, lanes), _op(b, "and", v, 1, lanes), lanes)
        x = _op(b, "xor", _op(b, "lshr", both, 1, lanes), _op(b, "and", odd, 0x9908B0DF, lanes), lanes)
        return _op(b, "xor", x, m, lanes)

    def part(i: str, other: int, lanes: int) -> None:
        x = mix(word(i, 0, lanes), word(i, 1, lanes), word(i, other, lanes), lanes)
        b.do(f"store {_vector('i32', lanes)} {x}, ptr {b.at('i32', '%state', i)}, align 4")

    b.loop("0", "224", 16, lambda i: part(i, 397, 16))
    b.loop("224", "227", 1, lambda i: part(i, 397, 1))
    b.loop("227", "611", 16, lambda i: part(i, -227, 16))
    b.loop("611", "623", 4, lambda i: part(i, -227, 4))
    # the last word's neighbour is the first, already new
    x = mix(word("623", 0, 1), word("0", 0, 1), word("396", 0, 1), 1)
    b.do(f"store i32 {x}, ptr {b.at('i32', '%state', '623')}, align 4")
    b.do("ret void")


def _fetch(b: _Body) -> None:
    """The next %n tempered words into %out; returns the new position."""
    b.lines += [
        "  br label %again",
        "again:",
        "  %at = phi i64 [ 0, %entry ], [ %end, %copied ]",
        "  %p0 = phi i64 [ %pos, %entry ], [ %p2, %copied ]",
        "  %more = icmp slt i64 %at, %n",
        "  br i1 %more, label %some, label %finished",
        "some:",
        "  %spent = icmp eq i64 %p0, 624",
        "  br i1 %spent, label %renew, label %ready",
        "renew:",
        "  call void @twist(ptr %state)",
        "  br label %ready",
        "ready:",
        "  %p1 = phi i64 [ %p0, %some ], [ 0, %renew ]",
    ]
    m = b.least(b("sub i64 %n, %at"), b("sub i64 624, %p1"))
    source, target = b.at("i32", "%state", "%p1"), b.at("i32", "%out", "%at")

    def temper(i: str, lanes: int) -> None:
        kind = _vector("i32", lanes)
        y = b(f"load {kind}, ptr {b.at('i32', source, i)}, align 4")
        y = _op(b, "xor", y, _op(b, "lshr", y, 11, lanes), lanes)
        y = _op(b, "xor", y, _op(b, "and", _op(b, "shl", y, 7, lanes), 0x9D2C5680, lanes), lanes)
        y = _op(b, "xor", y, _op(b, "and", _op(b, "shl", y, 15, lanes), 0xEFC60000, lanes), lanes)
        y = _op(b, "xor", y, _op(b, "lshr", y, 18, lanes), lanes)
        b.do(f"store {kind} {y}, ptr {b.at('i32', target, i)}, align 4")

    b.lanes("0", m, 16, temper)
    b.lines += [
        f"  %end = add i64 %at, {m}",
        f"  %p2 = add i64 %p1, {m}",
        "  br label %copied",
        "copied:",
        "  br label %again",
        "finished:",
        "  ret i64 %p0",
    ]


_CHUNK = 4096  # elements between drawing and transforming: what was drawn is still in the first-level cache


def _in_chunks(b: _Body, use: Callable[[str, str, str], None], per: int = 1, into: str = "") -> None:
    """Chunk by chunk: fetch `per` words an element to `into` or to the output itself, then use(base, first, count)."""
    b.do("%place = alloca i64, align 8")
    b.do("store i64 %pos, ptr %place, align 8")

    def chunk(i: str) -> None:
        count = b.least(b(f"sub i64 %n, {i}"), str(_CHUNK))
        target = into or b.at("i32", "%out", i)
        _draw(b, target, b(f"mul i64 {count}, {per}"))
        use(target, i, count)

    b.loop("0", "%n", _CHUNK, chunk)


def _draw(b: _Body, target: str, words: str) -> None:
    now = b("load i64, ptr %place, align 8")
    after = b(f"call i64 @fetch(ptr %state, i64 {now}, ptr {target}, i64 {words})")
    b.do(f"store i64 {after}, ptr %place, align 8")


def _finish(b: _Body) -> None:
    b.do(f"ret i64 {b('load i64, ptr %place, align 8')}")


def _words(b: _Body) -> None:
    b.do(f"ret i64 {b('call i64 @fetch(ptr %state, i64 %pos, ptr %out, i64 %n)')}")


def _unit(b: _Body, base: str, count: str, scale: str = "", shift: str = "") -> None:
    """Words to float32 in [0, 1), and on to fma(x, scale, shift) where given, in place."""

    def convert(i: str, lanes: int) -> None:
        w, v = _vector("i32", lanes), _vector("float", lanes)
        p = b.at("i32", base, i)
        x = _op(b, "and", b(f"load {w}, ptr {p}, align 4"), (1 << 24) - 1, lanes)
        x = b(f"sitofp {w} {x} to {v}")
        x = b(f"fmul {v} {x}, {_splat('float', _f32(2.0**-24), lanes)}")
        if scale:
            a, c = (_spread(b, "float", s, lanes) for s in (scale, shift))
            x = b(f"call {v} @llvm.fma.{f'v{lanes}' if lanes > 1 else ''}f32({v} {x}, {v} {a}, {v} {c})")
        b.do(f"store {v} {x}, ptr {p}, align 4")

    b.lanes("0", count, 16, convert)


def _spread(b: _Body, kind: str, scalar: str, lanes: int) -> str:
    """A scalar value in every lane."""
    if lanes == 1:
        return scalar
    v = _vector(kind, lanes)
    one = b(f"insertelement {v} undef, {kind} {scalar}, i32 0")
    return b(f"shufflevector {v} {one}, {v} undef, <{lanes} x i32> zeroinitializer")


def _uniform32(b: _Body) -> None:
    _in_chunks(b, lambda base, first, count: _unit(b, base, count, "%scale", "%shift"))
    _finish(b)


def _high_low(b: _Body, i: str, lanes: int) -> tuple[str, str]:
    """Elements of word pairs: the high words' 21 bits and the low words, as i32."""
    if lanes == 1:
        at = b(f"shl i64 {i}, 1")
        high = b(f"load i32, ptr {b.at('i32', '%pairs', at)}, align 4")
        low = b(f"load i32, ptr {b.at('i32', '%pairs', b(f'add i64 {at}, 1'))}, align 4")
    else:
        p = b.at("i32", "%pairs", b(f"shl i64 {i}, 1"))
        both = b(f"load <{2 * lanes} x i32>, ptr {p}, align 4")
        picked = []
        kind = _vector("i32", 2 * lanes)
        for first in (0, 1):
            mask = ", ".join(f"i32 {2 * k + first}" for k in range(lanes))
            picked.append(b(f"shufflevector {kind} {both}, {kind} undef, <{lanes} x i32> <{mask}>"))
        high, low = picked
    return _op(b, "and", high, (1 << 21) - 1, lanes), low


def _doubles(b: _Body) -> None:
    b.do(f"%pairs = alloca [{2 * _CHUNK} x i32], align 64")

    def use(base: str, first: str, count: str) -> None:
        def convert(i: str, lanes: int) -> None:
            high, low = _high_low(b, i, lanes)
            w, q, v = _vector("i32", lanes), _vector("i64", lanes), _vector("double", lanes)
            high, low = b(f"zext {w} {high} to {q}"), b(f"zext {w} {low} to {q}")
            whole = b(f"or {q} {b(f'shl {q} {high}, ' + _splat('i64', '32', lanes))}, {low}")
            x = b(f"fmul {v} {b(f'sitofp {q} {whole} to {v}')}, {_splat('double', _f64(2.0**-53), lanes)}")
            b.do(f"store {v} {x}, ptr {b.at('double', '%out', b(f'add i64 {first}, {i}'))}, align 8")

        b.lanes("0", count, 8, convert)

    _in_chunks(b, use, 2, "%pairs")
    _finish(b)


def _trials(kind: str, one: str, zero: str, align: int) -> Callable[[_Body], None]:
    """Bernoulli trials: (high, low) of an element's words under (%high, %low) is a success, written as `one`."""

    def emit_trials(b: _Body) -> None:
        b.do(f"%pairs = alloca [{2 * _CHUNK} x i32], align 64")

        def use(base: str, first: str, count: str) -> None:
            def decide(i: str, lanes: int) -> None:
                high, low = _high_low(b, i, lanes)
                w, m, v = _vector("i32", lanes), _vector("i1", lanes), _vector(kind, lanes)
                edge, rest = _spread(b, "i32", "%high", lanes), _spread(b, "i32", "%low", lanes)
                tie = b(f"and {m} {b(f'icmp eq {w} {high}, {edge}')}, {b(f'icmp ult {w} {low}, {rest}')}")
                yes = b(f"or {m} {b(f'icmp ult {w} {high}, {edge}')}, {tie}")
                x = b(f"select {m} {yes}, {v} {_spread(b, kind, one, lanes)}, {v} {_splat(kind, zero, lanes)}")
                b.do(f"store {v} {x}, ptr {b.at(kind, '%out', b(f'add i64 {first}, {i}'))}, align {align}")

            b.lanes("0", count, 16, decide)

        _in_chunks(b, use, 2, "%pairs")
        _finish(b)

    return emit_trials


def _residues(b: _Body) -> None:
    """int64 of word mod %modulus + %base. The quotient of 32-bit integers, divided in float64, truncates rightly."""
    b.do(f"%drawn = alloca [{_CHUNK} x i32], align 64")

    def use(base: str, first: str, count: str) -> None:
        def divide(i: str, lanes: int) -> None:
            w, q, v = _vector("i32", lanes), _vector("i64", lanes), _vector("double", lanes)
            x = b(f"load {w}, ptr {b.at('i32', '%drawn', i)}, align 4")
            m = _spread(b, "i32", "%modulus", lanes)
            ratio = b(f"fdiv {v} {b(f'uitofp {w} {x} to {v}')}, {b(f'uitofp {w} {m} to {v}')}")
            rest = _op(b, "sub", x, _op(b, "mul", b(f"fptoui {v} {ratio} to {w}"), m, lanes), lanes)
            y = b(f"add {q} {b(f'zext {w} {rest} to {q}')}, {_spread(b, 'i64', '%base', lanes)}")
            b.do(f"store {q} {y}, ptr {b.at('i64', '%out', b(f'add i64 {first}, {i}'))}, align 8")

        b.lanes("0", count, 8, divide)

    _in_chunks(b, use, 1, "%drawn")
    _finish(b)


def _normal32(b: _Body) -> None:
    """PyTorch's fill of 16 or more: uniforms, whole blocks transformed, and the last 16 once more."""

    def transform(base: str, count: str) -> None:
        _unit(b, base, count)
        b.do(f"call i64 @random_transform32(ptr {base}, i64 {b(f'lshr i64 {count}, 4')}, float %mean, float %std)")

    _in_chunks(b, lambda base, first, count: transform(base, count))
    b.lines += [
        "  %odd = and i64 %n, 15",
        "  %ragged = icmp ne i64 %odd, 0",
        "  br i1 %ragged, label %tail, label %end",
        "tail:",
    ]
    last = b.at("float", "%out", b("sub i64 %n, 16"))
    _draw(b, last, "16")
    transform(last, "16")
    b.lines += ["  br label %end", "end:"]
    _finish(b)


def _transform32(b: _Body) -> None:
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

    mean, std = _spread(b, "float", "%mean", 8), _spread(b, "float", "%std", 8)

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


_SINCOS = sys.platform == "linux"  # glibc and musl have both in one call, with the bits of the two


def _radius_angle(b: _Body, log: str, angle: str) -> tuple[str, str, str]:
    r = b(f"call double @llvm.sqrt.f64(double {b(f'fmul double {_f64(-2.0)}, {log}')})")
    theta = b(f"fmul double {_f64(2.0 * math.pi)}, {angle}")
    if _SINCOS:
        b.do(f"call void @sincos(double {theta}, ptr %sine, ptr %cosine)")
        return r, b("load double, ptr %cosine, align 8"), b("load double, ptr %sine, align 8")
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


def _function(head: str, fill: Callable[[_Body], None]) -> list[str]:
    b = _Body()
    if _SINCOS and fill in (_normal64, _pairs):
        b.lines += ["  %sine = alloca double, align 8", "  %cosine = alloca double, align 8"]
    fill(b)
    if not b.lines[-1].startswith("  ret"):
        b.do("ret i64 0")
    return [f"define {head} {{", "entry:", *b.lines, "}"]


def emit() -> str:
    """The module's LLVM IR."""
    drawing = "ptr noalias %state, i64 %pos, ptr noalias %out, i64 %n"
    functions: dict[str, tuple[str, Callable[[_Body], None]]] = {
        "words": (drawing, _words),
        "uniform32": (f"{drawing}, float %scale, float %shift", _uniform32),
        "doubles": (drawing, _doubles),
        "normal32": (f"{drawing}, float %mean, float %std", _normal32),
        "trials": (f"{drawing}, i32 %high, i32 %low", _trials("i8", "1", "0", 1)),
        "trials32": (f"{drawing}, i32 %high, i32 %low, float %one", _trials("float", "%one", _f32(0.0), 4)),
        "residues": (f"{drawing}, i32 %modulus, i64 %base", _residues),
        "transform32": ("ptr %data, i64 %n, float %mean, float %std", _transform32),
        "normal64": ("ptr %data, i64 %n, double %mean, double %std", _normal64),
        "pairs": ("ptr noalias %u, ptr noalias %cosines, ptr noalias %sines, i64 %n", _pairs),
        "shuffle": ("ptr noalias %items, ptr noalias %words, i64 %n", _shuffle),
        **{name: ("ptr %data, i64 %n", _mapped(name)) for name in ("log", "log1p", "exp", "tan")},
    }
    text = [f"declare double @{f}(double)" for f in ("log", "log1p", "exp", "tan")]
    if _SINCOS:
        text.append("declare void @sincos(double, ptr, ptr)")
    else:
        text += ["declare double @sin(double)", "declare double @cos(double)"]
    text += [
        "declare double @llvm.sqrt.f64(double)",
        "declare double @llvm.fma.f64(double, double, double)",
        "declare float @llvm.fma.f32(float, float, float)",
        "declare <8 x float> @llvm.sqrt.v8f32(<8 x float>)",
        "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)",
        "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
    ]
    text += _function("internal void @twist(ptr %state)", _twist)
    text += _function("internal i64 @fetch(ptr noalias %state, i64 %pos, ptr noalias %out, i64 %n)", _fetch)
    for name, (arguments, fill) in functions.items():
        text += _function(f"i64 @random_{name}({arguments})", fill)
    return "\n".join(text) + "\n"
