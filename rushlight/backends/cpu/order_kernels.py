"""LLVM text of the kernels that sort and select, row by row.

An element's key is an unsigned number of its width that orders as the elements do: equal elements (0.0 and -0.0, all
nans) have equal keys, nan the greatest (or the least, as the table says), and for a descending order all bits are
turned over. An entry is a key with the element's place: one word `key << 32 | place` for elements of up to 32 bits,
two words for those of 64. Entries are distinct and order as a stable sort does.

* `sort`: short rows by counting what comes before each element, others by radix, a byte at a time from the lowest;
  bytes that all elements share are passed over. Writes the first `keep` of each row.
* `top`: the first few of a row by one look at every vector: what does not come before the last of those found so far is
  left out, others are put in their place.
* `best`: the first one where rows lie side by side: vectors run across `BLOCK` of them, down from element to element.
* `pick`: one place of the sorted row, by radix from the highest byte: only what shares the byte is looked at again.
* `mode`: of sorted rows, whose places are the scratch memory, the end of the first of the longest runs.

Tasks are `pieces` of the rows, each with two buffers of `half` bytes in the scratch memory, for `sort` and `pick` of rows
that are not short. Row r lies at
(r // inner) * n * inner + r % inner, its elements `inner` apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from rushlight.backends.cpu import native
from rushlight.backends.cpu.emit import Fn, Value, module

__all__ = ["BLOCK", "FEW", "INFINITY", "SHORT", "WORDS", "library", "source"]

WORDS = "x values indices n keep inner scratch half rows pieces flip nan place rule".split()
BLOCK = 4                       # vectors of rows side by side
FEW = 32                        # the most that `top` finds
SHORT = 64                      # rows up to this length are sorted by counting
# the bits of infinity: what is above them without the sign is nan
INFINITY = {"float32": 0x7f800000, "float64": 0x7ff0000000000000, "float16": 0x7c00, "bfloat16": 0x7f80}


@cache
def library(kind: str, dtype: str) -> Any:
    """`kind`: "sort", "top", "best", "pick" or "mode"; `dtype`: a float's name of INFINITY, or an integer's."""
    return native.build("order", source, kind, dtype, native.vector_bytes())


def source(kind: str, dtype: str, vector_bytes: int) -> str:
    k = _Kernel(kind, dtype, vector_bytes)
    {"sort": k.sort, "top": k.top, "best": k.best, "pick": k.pick, "mode": k.mode}[kind]()
    return module([k.f], [], []) + "declare i64 @llvm.cttz.i64(i64, i1)\n"


class _Kernel:
    """One kernel under construction."""

    def __init__(self, kind: str, dtype: str, vector_bytes: int) -> None:
        self.dtype, self.bits = dtype, next(b for b in (8, 16, 32, 64) if dtype.endswith(str(b)))
        self.type, self.size = f"i{self.bits}", self.bits // 8
        self.wide = 2 if self.bits == 64 else 1         # words of an entry
        self.lanes = vector_bytes // self.size
        self.words_lanes = vector_bytes // 8
        self.f = Fn(kind, [("ptr", "t"), ("i64", "begin"), ("i64", "end")])

    # ---- keys and entries
    def _const(self, value: int, lanes: int) -> str:
        value &= (1 << self.bits) - 1
        return f"<{', '.join([f'{self.type} {value}'] * lanes)}>" if lanes else str(value)

    def key(self, x: str, flip: str, nan: str, lanes: int = 0) -> str:
        """The keys of elements; `flip` and `nan` are of the same type."""
        f, c = self.f, lambda value: self._const(value, lanes)
        t = f"<{lanes} x {self.type}>" if lanes else self.type
        b = f"<{lanes} x i1>" if lanes else "i1"
        sign = 1 << (self.bits - 1)
        if self.dtype in INFINITY:
            magnitude = f.op(f"and {t} {x}, {c(sign - 1)}")
            is_nan = f.op(f"icmp ugt {t} {magnitude}, {c(INFINITY[self.dtype])}")
            is_zero = f.op(f"icmp eq {t} {magnitude}, {c(0)}")
            turn = f.op(f"or {t} {f.op(f'ashr {t} {x}, {c(self.bits - 1)}')}, {c(sign)}")
            x = f.op(f"xor {t} {x}, {turn}")
            x = f.op(f"select {b} {is_zero}, {t} {c(sign)}, {t} {x}")
            x = f.op(f"select {b} {is_nan}, {t} {nan}, {t} {x}")
        elif self.dtype[0] == "i":
            x = f.op(f"xor {t} {x}, {c(sign)}")
        return f.op(f"xor {t} {x}, {flip}")

    def entry(self, key: str, place: Value) -> list[Value]:
        f = self.f
        if self.wide == 2:
            return [key, place]
        high = f.op(f"shl i64 {f.op(f'zext {self.type} {key} to i64')}, 32")
        return [f.op(f"or i64 {high}, {place}")]

    def get(self, array: str, i: Value) -> list[Value]:
        f = self.f
        at = f.gep("i64", array, f.mul(i, self.wide))
        return [f.load("i64", f.gep("i64", at, w)) for w in range(self.wide)]

    def put(self, entry: list[Value], array: str, i: Value) -> None:
        f = self.f
        at = f.gep("i64", array, f.mul(i, self.wide))
        for w, x in enumerate(entry):
            f.store("i64", x, f.gep("i64", at, w))

    def digit(self, entry: list[Value], d: int) -> str:
        shift = 8 * d + (0 if self.wide == 2 else 32)
        return self.f.op(f"and i64 {self.f.op(f'lshr i64 {entry[0]}, {shift}')}, 255")

    def place(self, entry: list[Value]) -> Value:
        return entry[1] if self.wide == 2 else self.f.op(f"and i64 {entry[0]}, 4294967295")

    # ---- rows
    @contextmanager
    def rows(self) -> Iterator[str]:
        """For each row of the pieces: sets what the bodies read."""
        f = self.f
        w = {name: f.word("%t", i) for i, name in enumerate(WORDS)}
        self.n, self.keep, self.inner, self.w = w["n"], w["keep"], w["inner"], w
        x, values, indices, scratch = (f.pointer("%t", WORDS.index(n)) for n in ("x", "values", "indices", "scratch"))
        narrow = "" if self.bits == 64 else self.type
        self.flip, self.nan = (f.op(f"trunc i64 {w[n]} to {narrow}") if narrow else w[n] for n in ("flip", "nan"))
        with f.range("%begin", "%end") as p:
            self.a = f.gep("i8", scratch, f.mul(f.mul(p, 2), w["half"]))
            self.b = f.gep("i8", self.a, w["half"])
            first = f.udiv(f.mul(p, w["rows"]), w["pieces"])
            last = f.udiv(f.mul(f.add(p, 1), w["rows"]), w["pieces"])
            with f.range(first, last) as r:
                outer, column = f.udiv(r, self.inner), f.urem(r, self.inner)
                at = f.add(f.mul(outer, f.mul(self.n, self.inner)), column)
                to = f.add(f.mul(outer, f.mul(self.keep, self.inner)), column)
                self.at, self.x = at, f.gep(self.type, x, at)
                self.values, self.indices = f.gep(self.type, values, to), f.gep("i64", indices, to)
                yield r

    def element(self, i: Value) -> str:
        f = self.f
        return f.load(self.type, f.gep(self.type, self.x, f.mul(i, self.inner)))

    def write(self, rank: Value, place: Value) -> None:
        """The element at `place` is the one of this rank."""
        f = self.f
        to = f.mul(rank, self.inner)
        f.store(self.type, self.element(place), f.gep(self.type, self.values, to))
        f.store("i64", place, f.gep("i64", self.indices, to))

    # ---- sort
    def sort(self) -> None:
        f = self.f
        digits = self.size
        f.entry.append(f"  %count = alloca [{256 * digits} x i32], align 64")
        with self.rows():
            short = f.icmp("sle", self.n, SHORT)
            with f.when(short):
                self._fill()

                def write(rank: str, i: str) -> None:
                    with f.when(f.icmp("slt", rank, self.keep)):
                        self.write(rank, i)
                self._by_counting(write)
            with f.when(f.op(f"xor i1 {short}, true")):
                self._by_radix(digits)

    def _fill(self, note: Callable[[str], None] | None = None) -> None:
        """The first words of a row's entries; `note` sees each key."""
        f = self.f
        f.entry.append(f"  %words = alloca [{SHORT} x i64], align 64")
        with f.range(0, self.n) as i:
            key = self.key(self.element(i), self.flip, self.nan)
            if note is not None:
                note(key)
            f.store("i64", self.entry(key, i)[0], f.gep("i64", "%words", i))

    def _by_counting(self, use: Callable[[str, str], None]) -> None:
        """`use(rank, place)` for each element of a row whose entries' first words are made."""
        f, lanes = self.f, self.words_lanes
        f.entry.append(f"  %ranks = alloca [{SHORT} x i64], align 64")
        v, m = f"<{lanes} x i64>", f"<{lanes} x i1>"
        block = [lanes * b for b in range(4)]             # SHORT is a multiple of all four
        steps = f"<{', '.join(f'i64 {i}' for i in range(lanes))}>"
        with f.range(0, self.n, 4 * lanes) as i:
            mine = [f.load(v, f.gep("i64", "%words", f.add(i, b)), 8) for b in block]
            places = [f.op(f"add {v} {f.splat('i64', lanes, f.add(i, b))}, {steps}") for b in block]
            ranks = [f.var(v, "zeroinitializer") for _ in block]
            with f.range(0, self.n) as j:
                other = f.splat("i64", lanes, f.load("i64", f.gep("i64", "%words", j)))
                for x, place, rank in zip(mine, places, ranks, strict=True):
                    before = f.op(f"icmp ult {v} {other}, {x}")
                    if self.wide == 2:                    # of equal keys the one at the lower place
                        equal = f.op(f"icmp eq {v} {other}, {x}")
                        lower = f.op(f"icmp ult {v} {f.splat('i64', lanes, j)}, {place}")
                        before = f.op(f"or {m} {before}, {f.op(f'and {m} {equal}, {lower}')}")
                    f.store(v, f.op(f"add {v} {f.load(v, rank)}, {f.op(f'zext {m} {before} to {v}')}"), rank)
            for b, rank in zip(block, ranks, strict=True):
                f.store(v, f.load(v, rank), f.gep("i64", "%ranks", f.add(i, b)), 8)
        with f.range(0, self.n) as i:
            use(f.load("i64", f.gep("i64", "%ranks", i)), i)

    def _count(self, at: Value) -> str:
        return self.f.gep("i32", "%count", at)

    def _clear(self, counts: int) -> None:
        self.f.line(f"call void @llvm.memset.p0.i64(ptr %count, i8 0, i64 {counts * 4}, i1 false)")

    def _tally(self, at: Value) -> None:
        f = self.f
        c = self._count(at)
        f.store("i32", f.op(f"add i32 {f.load('i32', c)}, 1"), c)

    def _by_radix(self, digits: int) -> None:
        f = self.f
        self._clear(256 * digits)
        with f.range(0, self.n) as i:
            entry = self.entry(self.key(self.element(i), self.flip, self.nan), i)
            self.put(entry, self.a, i)
            for d in range(digits):
                self._tally(f.add(self.digit(entry, d), 256 * d))
        here, there = f.var("ptr", self.a), f.var("ptr", self.b)
        n32 = f.op(f"trunc i64 {self.n} to i32")
        for d in range(digits):
            source, target = f.load("ptr", here), f.load("ptr", there)
            one = self._count(f.add(self.digit(self.get(source, 0), d), 256 * d))
            with f.when(f.icmp("ne", f.load("i32", one), n32, "i32")):
                total = f.var("i32", 0)
                with f.range(0, 256) as c:
                    slot = self._count(f.add(c, 256 * d))
                    many, start = f.load("i32", slot), f.load("i32", total)
                    f.store("i32", start, slot)
                    f.store("i32", f.op(f"add i32 {start}, {many}"), total)
                with f.range(0, self.n) as i:
                    entry = self.get(source, i)
                    slot = self._count(f.add(self.digit(entry, d), 256 * d))
                    at = f.load("i32", slot)
                    f.store("i32", f.op(f"add i32 {at}, 1"), slot)
                    self.put(entry, target, f.op(f"zext i32 {at} to i64"))
                f.store("ptr", target, here)
                f.store("ptr", source, there)
        source = f.load("ptr", here)
        with f.range(0, self.keep) as i:
            self.write(i, self.place(self.get(source, i)))

    # ---- the first few
    def top(self) -> None:
        f, lanes, t = self.f, self.lanes, self.type
        v = f"<{lanes} x {t}>"
        last = f.var(t, 0)
        f.entry.append(f"  %few = alloca [{FEW * self.wide} x i64], align 64")
        with self.rows():
            self.a = "%few"
            flips, nans = f.splat(t, lanes, self.flip), f.splat(t, lanes, self.nan)

            def insert(key: str, i: Value, found: Value) -> None:
                """Into the `found` entries in order; the last of `keep` falls out."""
                entry = self.entry(key, i)
                at = f.var("i64", found)
                go, look, move, done = (f.fresh(s) for s in ("go", "look", "move", "put"))
                f.line(f"br label %{go}")
                f.body.append(f"{go}:")
                p = f.load("i64", at)
                f.line(f"br i1 {f.icmp('sgt', p, 0)}, label %{look}, label %{done}")
                f.body.append(f"{look}:")
                before = f.sub(p, 1)
                other = self.get(self.a, before)
                f.line(f"br i1 {f.icmp('ugt', other[0], entry[0])}, label %{move}, label %{done}")
                f.body.append(f"{move}:")
                self.put(other, self.a, p)
                f.store("i64", before, at)
                f.line(f"br label %{go}")
                f.body.append(f"{done}:")
                self.put(entry, self.a, f.load("i64", at))

            def note() -> None:
                word = self.get(self.a, f.sub(self.keep, 1))[0]
                if self.wide == 1:
                    word = f.op(f"trunc i64 {f.op(f'lshr i64 {word}, 32')} to {t}")
                f.store(t, word, last)

            def consider(i: Value) -> None:
                key = self.key(self.element(i), self.flip, self.nan)
                with f.when(f.icmp("ult", key, f.load(t, last), t)):
                    insert(key, i, f.sub(self.keep, 1))
                    note()

            with f.range(0, self.keep) as i:
                insert(self.key(self.element(i), self.flip, self.nan), i, i)
            note()
            straight = f.icmp("eq", self.inner, 1)
            whole = f.sub(self.n, f.urem(f.sub(self.n, self.keep), lanes))
            bound = f.select(straight, "i64", whole, self.keep)
            with f.range(self.keep, bound, lanes) as i:
                keys = self.key(f.load(v, f.gep(t, self.x, i), self.size), flips, nans, lanes)
                better = f.op(f"icmp ult {v} {keys}, {f.splat(t, lanes, f.load(t, last))}")
                mask = f.op(f"bitcast <{lanes} x i1> {better} to i{lanes}")
                if lanes < 64:
                    mask = f.op(f"zext i{lanes} {mask} to i64")
                with f.when(f.icmp("ne", mask, 0)):
                    left = f.var("i64", mask)
                    with f.repeat_while() as cond:
                        bits = f.load("i64", left)
                        consider(f.add(i, f.op(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 true)")))
                        rest = f.op(f"and i64 {bits}, {f.sub(bits, 1)}")
                        f.store("i64", rest, left)
                        cond.append(f.icmp("ne", rest, 0))
            with f.range(bound, self.n) as i:
                consider(i)
            with f.range(0, self.keep) as i:
                self.write(i, self.place(self.get(self.a, i)))

    def best(self) -> None:
        """Tasks are blocks of rows side by side, `pieces` of them to each outer index; the last may overlap its neighbour."""
        f, lanes, t = self.f, self.lanes, self.type
        v, vi, m, v64 = f"<{lanes} x {t}>", f"<{lanes} x i32>", f"<{lanes} x i1>", f"<{lanes} x i64>"
        w = {name: f.word("%t", i) for i, name in enumerate(WORDS)}
        n, self.inner = w["n"], w["inner"]
        x, values, indices = (f.pointer("%t", WORDS.index(name)) for name in ("x", "values", "indices"))
        flip, nan = (f.splat(t, lanes, w[a] if self.wide == 2 else f.op(f"trunc i64 {w[a]} to {t}")) for a in ("flip", "nan"))
        width = BLOCK * lanes
        with f.range("%begin", "%end") as task:
            outer, block = f.udiv(task, w["pieces"]), f.urem(task, w["pieces"])
            column = f.smin(f.mul(block, width), f.sub(self.inner, width))
            base = f.add(f.mul(outer, f.mul(n, self.inner)), column)
            to = f.add(f.mul(outer, self.inner), column)
            found = [(f.var(v, "zeroinitializer"), f.var(vi, "zeroinitializer")) for _ in range(BLOCK)]

            def keys(i: Value, b: int) -> str:
                at = f.gep(t, x, f.add(f.add(base, f.mul(i, self.inner)), b * lanes))
                return self.key(f.load(v, at, self.size), flip, nan, lanes)

            for b, (key, _) in enumerate(found):
                f.store(v, keys(0, b), key)
            with f.range(1, n) as i:
                here = f.splat("i32", lanes, f.op(f"trunc i64 {i} to i32"))
                for b, (key, place) in enumerate(found):
                    new, old = keys(i, b), f.load(v, key)
                    better = f.op(f"icmp ult {v} {new}, {old}")
                    f.store(v, f.op(f"select {m} {better}, {v} {new}, {v} {old}"), key)
                    f.store(vi, f.op(f"select {m} {better}, {vi} {here}, {vi} {f.load(vi, place)}"), place)
            for b, (_, place) in enumerate(found):
                f.store(v64, f.op(f"zext {vi} {f.load(vi, place)} to {v64}"), f.gep("i64", indices, f.add(to, b * lanes)), 8)
            with f.range(0, width) as c:
                i = f.load("i64", f.gep("i64", indices, f.add(to, c)))
                element = f.load(t, f.gep(t, x, f.add(f.add(base, c), f.mul(i, self.inner))))
                f.store(t, element, f.gep(t, values, f.add(to, c)))

    # ---- one place
    def pick(self) -> None:
        """`rule`: 0 the place is word `place`; 1 the median, of the nans the first; 2 the median of what is not nan."""
        f = self.f
        digits = self.size
        f.entry.append("  %count = alloca [256 x i32], align 64")
        with self.rows():
            nans = f.var("i64", 0)
            short = f.icmp("sle", self.n, SHORT)
            long = f.op(f"xor i1 {short}, true")

            def note(key: str) -> None:
                if self.dtype in INFINITY:
                    one = f.op(f"zext i1 {f.icmp('eq', key, self._const(-1, 0), self.type)} to i64")
                    f.store("i64", f.add(f.load("i64", nans), one), nans)

            with f.when(short):
                self._fill(note)
            with f.when(long):
                self._clear(256)
                with f.range(0, self.n) as i:
                    key = self.key(self.element(i), self.flip, self.nan)
                    entry = self.entry(key, i)
                    self.put(entry, self.a, i)
                    self._tally(self.digit(entry, digits - 1))
                    note(key)
            bad = f.load("i64", nans)
            good = f.sub(self.n, bad)
            middle = f.udiv(f.sub(self.n, 1), 2)
            half = f.select(f.icmp("sgt", good, 0), "i64", f.udiv(f.smax(f.sub(good, 1), 0), 2), 0)
            first = f.select(f.icmp("sgt", bad, 0), "i64", good, middle)
            by_rule = f.select(f.icmp("eq", self.w["rule"], 2), "i64", half, first)
            place = f.select(f.icmp("eq", self.w["rule"], 0), "i64", self.w["place"], by_rule)

            def write(rank: str, i: str) -> None:
                with f.when(f.icmp("eq", rank, place)):
                    self.write(0, i)

            with f.when(short):
                self._by_counting(write)
            with f.when(long):
                self._narrow(place)

    def mode(self) -> None:
        f = self.f
        with self.rows():
            places = f.gep("i64", self.a, self.at)
            run, longest, end, last = f.var("i64", 0), f.var("i64", 0), f.var("i64", 0), f.var(self.type, 0)
            with f.range(0, self.n) as i:
                key = self.key(self.element(i), self.flip, self.nan)
                same = f.icmp("eq", key, f.load(self.type, last), self.type)
                if self.dtype in INFINITY:                # every nan is a value of its own
                    same = f.op(f"and i1 {same}, {f.icmp('ne', key, self.nan, self.type)}")
                length = f.add(f.select(same, "i64", f.load("i64", run), 0), 1)
                f.store("i64", length, run)
                f.store(self.type, key, last)
                old = f.load("i64", longest)
                longer = f.icmp("sgt", length, old)
                f.store("i64", f.select(longer, "i64", length, old), longest)
                f.store("i64", f.select(longer, "i64", i, f.load("i64", end)), end)
            at = f.load("i64", end)
            f.store(self.type, self.element(at), self.values)
            f.store("i64", f.load("i64", f.gep("i64", places, f.mul(at, self.inner))), self.indices)

    def _narrow(self, place: str) -> None:
        """From byte to byte, what may be at `place`; the highest is counted already."""
        f = self.f
        digits = self.size
        want, many = f.var("i64", place), f.var("i64", self.n)
        for d in reversed(range(digits)):
            m = f.load("i64", many)
            with f.when(f.icmp("sgt", m, 1)):
                if d != digits - 1:
                    self._clear(256)
                    with f.range(0, m) as i:
                        self._tally(self.digit(self.get(self.a, i), d))
                k = f.load("i64", want)
                bucket, below = f.var("i64", 0), f.var("i64", 0)
                with f.repeat_while() as cond:
                    c, low = f.load("i64", bucket), f.load("i64", below)
                    size = f.op(f"zext i32 {f.load('i32', self._count(c))} to i64")
                    high = f.add(low, size)
                    beyond = f.icmp("sle", high, k)
                    f.store("i64", f.select(beyond, "i64", f.add(c, 1), c), bucket)
                    f.store("i64", f.select(beyond, "i64", high, low), below)
                    cond.append(beyond)
                c = f.load("i64", bucket)
                f.store("i64", f.sub(k, f.load("i64", below)), want)
                size = f.op(f"zext i32 {f.load('i32', self._count(c))} to i64")
                with f.when(f.icmp("slt", size, m)):
                    end = f.var("i64", 0)
                    with f.range(0, m) as i:
                        entry = self.get(self.a, i)
                        e = f.load("i64", end)
                        self.put(entry, self.a, e)
                        same = f.op(f"zext i1 {f.icmp('eq', self.digit(entry, d), c)} to i64")
                        f.store("i64", f.add(e, same), end)
                    f.store("i64", size, many)
        self.write(0, self.place(self.get(self.a, f.load("i64", want))))
