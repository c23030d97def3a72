"""The kernels of scans.py as LLVM IR: running sums, products, extremes and logarithms of sums of exponentials.

`run(t, begin, end)` as in indexed_ir.py; the pointers are x, y and the indices of running extremes. x and y are (outer, n, inner)
and contiguous. Where inner is 1 ("rows"), a task is a range of rows, and four of them go at a time, because each is a chain
of dependent operations. Otherwise ("columns") a task is a range of columns of one outer index, whose state stands on the stack.
"""

from __future__ import annotations

from rushlight.backends.cpu.emit import Fn, Value
from rushlight.backends.cpu.indexed_ir import entry

__all__ = ["CHUNK", "scan_source"]

CHUNK = 256             # columns of a task
_WORDS = "outer n inner piece tasks".split()
_ROWS = 4
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
_LOWEST = {"i8": -2**7, "i16": -2**15, "i32": -2**31, "i64": -2**63}


class _Scan:
    """What one step does to the state; `lanes` is 0 for a number, else a vector."""

    def __init__(self, kind: str, s: str, acc: str) -> None:
        self.kind, self.s, self.acc = kind, s, acc
        self.real = s in ("float", "double")
        self.extreme = kind in ("max", "min", "umax", "umin")
        self.states = [acc, "i64"] if self.extreme else [acc]

    def first(self) -> list[str]:
        if self.kind == "add":
            return ["0.0" if self.real else "0"]
        if self.kind == "mul":
            return ["1.0" if self.real else "1"]
        if self.kind == "logsum":
            return ["0xFFF0000000000000"]
        if self.real:
            return ["0xFFF0000000000000" if self.kind == "max" else "0x7FF0000000000000", "0"]
        low = _LOWEST[self.s]
        return [str({"max": low, "min": -low - 1, "umax": 0, "umin": -1}[self.kind]), "0"]

    def step(self, f: Fn, lanes: int, state: list[str], x: str, at: Value) -> tuple[list[str], list[str]]:
        """(the state after x, what is stored)."""
        def v(s: str) -> str:
            return f"<{lanes} x {s}>" if lanes else s

        s, acc, m = v(self.s), v(self.acc), v("i1")
        old = state[0]
        if self.extreme:
            if self.real:
                take = f.op(f"fcmp {'oge' if self.kind == 'max' else 'ole'} {s} {x}, {old}")
                take = f.op(f"or {m} {take}, {f.op(f'fcmp uno {s} {x}, {x}')}")
            else:
                how = ("u" if self.kind[0] == "u" else "s") + ("ge" if self.kind.endswith("max") else "le")
                take = f.op(f"icmp {how} {s} {x}, {old}")
            here = f.splat("i64", lanes, at) if lanes else at
            new = [f.op(f"select {m} {take}, {s} {x}, {s} {old}"),
                   f.op(f"select {m} {take}, {v('i64')} {here}, {v('i64')} {state[1]}")]
            return new, new
        wide = f.op(f"fpext {s} {x} to {acc}") if self.acc != self.s else x
        if self.kind == "logsum":
            y = self._logsum(f, wide, old)
        else:
            y = f.op(f"{'f' if self.real else ''}{self.kind} {acc} {old}, {wide}")
        return [y], [f.op(f"fptrunc {acc} {y} to {s}") if self.acc != self.s else y]

    def _logsum(self, f: Fn, x: str, y: str) -> str:
        """log(exp(x) + exp(y)); nan stays, and so do equal infinities."""
        nan = f.op(f"fcmp uno double {y}, {y}")
        less = f.op(f"fcmp olt double {y}, {x}")
        more = f.op(f"fcmp olt double {x}, {y}")
        low = f.select(nan, "double", y, f.select(less, "double", y, x))
        high = f.select(nan, "double", y, f.select(more, "double", y, x))
        differ = f.op(f"fcmp une double {low}, {high}")
        size = f.op(f"call double @llvm.fabs.f64(double {low})")
        finite = f.op(f"fcmp olt double {size}, 0x7FF0000000000000")
        e = f.op(f"call double @exp(double {f.op(f'fsub double {low}, {high}')})")
        both = f.op(f"fadd double {f.op(f'call double @log1p(double {e})')}, {high}")
        return f.select(f.op(f"or i1 {differ}, {finite}"), "double", both, x)


def scan_source(kind: str, element: str, acc: str, columns: bool, vector_bytes: int) -> str:
    """`kind`: "add", "mul", "max", "min" ("umax", "umin" for unsigned integers) or "logsum"; `acc`: what is computed in."""
    scan = _Scan(kind, element, acc)
    f = Fn("run", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    plan, x, y, z = (f.pointer("%t", k) for k in range(4))
    g = {name: f.word(plan, k) for k, name in enumerate(_WORDS)}
    if columns:
        lanes = 0 if kind == "logsum" else vector_bytes // 8
        _columns(f, scan, g, x, [y, z], lanes)
    else:
        _rows(f, scan, g, x, [y, z])
    return f.text() + "\n" + entry(_WORDS.index("tasks")) + ("declare double @exp(double)\ndeclare double @log1p(double)\n"
                                                             "declare double @llvm.fabs.f64(double)\n" if kind == "logsum" else "")


def _rows(f: Fn, scan: _Scan, g: dict[str, str], x: str, ys: list[str]) -> None:
    n = g["n"]
    outs = [scan.s, "i64"][:len(scan.states)]
    slots = [[f.var(type, first) for type, first in zip(scan.states, scan.first(), strict=True)] for _ in range(_ROWS)]

    def rows(r: Value, count: int) -> None:
        starts = [f.mul(f.add(r, k), n) for k in range(count)]
        for k in range(count):
            for type, first, slot in zip(scan.states, scan.first(), slots[k], strict=True):
                f.store(type, first, slot)
        of = [f.gep(scan.s, x, p) for p in starts]
        to = [[f.gep(type, y, p) for type, y in zip(outs, ys, strict=False)] for p in starts]
        with f.range(0, n) as j:
            for k in range(count):
                state = [f.load(type, slot) for type, slot in zip(scan.states, slots[k], strict=True)]
                new, stored = scan.step(f, 0, state, f.load(scan.s, f.gep(scan.s, of[k], j)), j)
                for type, value, slot in zip(scan.states, new, slots[k], strict=True):
                    f.store(type, value, slot)
                for type, value, p in zip(outs, stored, to[k], strict=True):
                    f.store(type, value, f.gep(type, p, j))

    with f.range("%begin", "%end") as task:
        lo = f.mul(task, g["piece"])
        hi = f.smin(f.add(lo, g["piece"]), g["outer"])
        whole = f.add(lo, f.op(f"and i64 {f.sub(hi, lo)}, {-_ROWS}"))
        with f.range(lo, whole, _ROWS) as r:
            rows(r, _ROWS)
        with f.range(whole, hi) as r:
            rows(r, 1)


def _columns(f: Fn, scan: _Scan, g: dict[str, str], x: str, ys: list[str], lanes: int) -> None:
    n, inner = g["n"], g["inner"]
    outs = [scan.s, "i64"][:len(scan.states)]
    state_at = []
    for type in scan.states:
        slot = "%" + f.fresh("state")
        f.entry.append(f"  {slot} = alloca [{CHUNK} x {type}], align 64")
        state_at.append(slot)
    pieces = f.udiv(f.add(inner, CHUNK - 1), CHUNK)

    def at(j: Value, i: Value, base: Value, width: int) -> None:
        def v(type: str) -> str:
            return f"<{width} x {type}>" if width else type

        here = f.add(base, j)
        state = [f.load(v(type), f.gep(type, slot, j), _BYTES[type]) for type, slot in zip(scan.states, state_at, strict=True)]
        new, stored = scan.step(f, width, state, f.load(v(scan.s), f.gep(scan.s, x, here), _BYTES[scan.s]), i)
        for type, value, slot in zip(scan.states, new, state_at, strict=True):
            f.store(v(type), value, f.gep(type, slot, j), _BYTES[type])
        for type, value, y in zip(outs, stored, ys, strict=False):
            f.store(v(type), value, f.gep(type, y, here), _BYTES[type])

    with f.range("%begin", "%end") as task:
        o = f.udiv(task, pieces)
        first = f.mul(f.sub(task, f.mul(o, pieces)), CHUNK)
        count = f.smin(f.sub(inner, first), CHUNK)
        with f.range(0, count) as j:
            for type, value, slot in zip(scan.states, scan.first(), state_at, strict=True):
                f.store(type, value, f.gep(type, slot, j))
        start = f.add(f.mul(f.mul(o, n), inner), first)
        whole = f.op(f"and i64 {count}, {-max(lanes, 1)}")
        with f.range(0, n) as i:
            base = f.add(start, f.mul(i, inner))
            if lanes:
                with f.range(0, whole, lanes) as j:
                    at(j, i, base, lanes)
            with f.range(whole if lanes else 0, count) as j:
                at(j, i, base, 0)
