"""The loop nests behind `llvm.Module`: how kernels are written. llvm.py says what they mean.

A pass over a row is a main loop of unmasked vectors, unrolled when the expressions are light, and a loop of masked
vectors for what is left. Where masks cost nothing (AVX-512) and the expressions are heavy, the masked loop does it
all, which halves the code. All of it is written as vectors: LLVM's vectoriser has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rushlight.compiler import scalar
from rushlight.compiler.builder import Lanes, Writer, vector_type
from rushlight.compiler.llvm import (
    BLOCK,
    Buffer,
    Compute,
    Kernel,
    Module,
    Pass,
    Put,
    Reduce,
    Stage,
    Take,
    names_read,
)
from rushlight.compiler.scalar import ITEMSIZE, MEMORY, Evaluator, Value
from rushlight.ops.expr import Expr, const

HEAVY = 24                          # from this many instructions an element, a loop is not unrolled nor doubled


def loop(w: Writer, start: str, stop: str, step: int, carried: Sequence[tuple[str, str]],
         body: Callable[[str, list[str]], list[str]], whole: bool = False, hint: str = "loop") -> tuple[str, list[str]]:
    """for i in range(start, stop, step): carried = body(i, carried). With `whole`, only while i + step <= stop. Returns
    the i after the last step and the carried values."""
    head, inside, after = w.label(hint), w.label(hint + "body"), w.label(hint + "end")
    before = w.block
    w.branch(head)
    w.start(head)
    i = w.phi("i64", start, before)
    phis = [w.phi(t, v, before) for t, v in carried]
    if whole:
        ahead = w.op(f"add nsw i64 {i.value}, {step}")
        go = w.op(f"icmp sle i64 {ahead}, {stop}")
    else:
        go = w.op(f"icmp slt i64 {i.value}, {stop}")
    w.branch_if(go, inside, after)
    w.start(inside)
    new = body(i.value, [p.value for p in phis])
    nxt = w.op(f"add nsw i64 {i.value}, {step}")
    for p, v in zip(phis, new, strict=True):
        p.close(v, w.block)
    i.close(nxt, w.block)
    w.branch(head)
    w.start(after)
    return i.value, [p.value for p in phis]


def iota(lanes: int, elem: str) -> str:
    return "0" if lanes == 1 else "<" + ", ".join(f"{elem} {k}" for k in range(lanes)) + ">"


def tail_mask(w: Writer, i: str, stop: str, lanes: int) -> str:
    """The lanes of [i, i + lanes) below stop."""
    left = w.op(f"sub nsw i64 {stop}, {i}")
    some = w.call("llvm.umin.i64", "i64", [("i64", left), ("i64", str(lanes))])
    B = Lanes(w, "i8", lanes)
    return B.cmp("ult", iota(lanes, "i8"), B.splat(w.op(f"trunc i64 {some} to i8")))


def halves(w: Writer, t: str, lanes: int, v: str) -> tuple[str, str]:
    """The two halves of a vector."""
    h = lanes // 2
    full = vector_type(t, lanes)
    if h == 1:
        return w.op(f"extractelement {full} {v}, i64 0"), w.op(f"extractelement {full} {v}, i64 1")
    parts = []
    for base in (0, h):
        index = ", ".join(f"i32 {base + k}" for k in range(h))
        parts.append(w.op(f"shufflevector {full} {v}, {full} poison, <{h} x i32> <{index}>"))
    return parts[0], parts[1]


class Accumulator:
    """One reduction within a pass: vectors for the sweep and, for float sums, the wider ones they are folded into."""

    def __init__(self, w: Writer, r: Reduce, lanes: int, copies: int) -> None:
        self.w, self.r, self.lanes, self.copies = w, r, lanes, copies
        self.dtype = scalar.register_dtype(r.dtype)
        self.elem = scalar.element(self.dtype)
        self.L = Lanes(w, self.elem, lanes)
        self.blocked = r.op == "add" and self.dtype in ("float32", "float64")
        self.start = self.L.const(scalar.identity(r.op, self.dtype))
        # folded sums of float32 are two vectors of doubles; those of float64 a vector and its compensation
        self.F = Lanes(w, "double", lanes // 2 if self.dtype == "float32" else lanes)

    def combine(self, a: str, b: str, lanes: int | None = None) -> str:
        ev = Evaluator(self.w, lanes or self.lanes, lambda n: Value(n, self.dtype), self.dtype)
        return ev._apply(self.r.op, [Value(a, self.dtype), Value(b, self.dtype)]).text

    def masked(self, value: str, mask: str | None) -> str:
        return value if mask is None else self.L.select(mask, value, self.start)

    def merge(self, parts: list[str]) -> str:
        while len(parts) > 1:
            parts = [self.combine(parts[k], parts[k + 1]) if k + 1 < len(parts) else parts[k]
                     for k in range(0, len(parts), 2)]
        return parts[0]

    # --- folding
    def carried(self) -> list[tuple[str, str]]:
        return [(self.F.type, self.F.const(0.0))] * 2 if self.blocked else []

    def fold(self, sums: list[str], part: str) -> list[str]:
        F = self.F
        if self.dtype == "float32":
            low, high = halves(self.w, "float", self.lanes, part)
            S = Lanes(self.w, "float", F.lanes)
            return [F.add(sums[0], F.convert("fpext", low, S)), F.add(sums[1], F.convert("fpext", high, S))]
        s, c = sums
        t = F.add(s, part)
        b = F.sub(t, s)
        return [t, F.add(c, F.add(F.sub(s, F.sub(t, b)), F.sub(part, b)))]

    def result(self, sums: list[str], part: str | None) -> Value:
        """The reduction's value from the folded sums, or from the one vector of the sweep."""
        w = self.w
        if self.blocked:
            F = self.F
            if self.dtype == "float32":
                v = F.add(*sums)
            else:       # the compensation of an infinite or nan sum is nan
                finite = F.cmp("olt", F.abs(sums[0]), F.const(float("inf")))
                v = F.select(finite, F.add(*sums), sums[0])
            n, elem, dtype = F.lanes, "double", "float64"
        else:
            v, n, elem, dtype = part or "", self.lanes, self.elem, self.dtype
        while n > 1:
            a, b = halves(w, elem, n, v)
            n //= 2
            v = Lanes(w, elem, n).add(a, b) if self.blocked else self.combine(a, b, n)
        return scalar.convert(w, Value(v, dtype), self.r.result or self.r.dtype, 1)


class Frame:
    """What the words of a call hold, as values: loaded at entry, or built in."""

    def __init__(self, module: Module, symbol: str, buffers: Sequence[Buffer], rank: int,
                 scalars: Sequence[tuple[str, str]], compute: str, sizes: Sequence[int | None] | None,
                 strides: Mapping[str, Sequence[int | None]] | None) -> None:
        self.module, self.symbol, self.rank, self.compute = module, symbol, rank, compute
        self.buffers = {b.name: b for b in buffers}
        if len(self.buffers) != len(buffers):
            raise ValueError(f"kernel {symbol!r}: buffer names repeat: {[b.name for b in buffers]}")
        for b in buffers:
            if b.dtype not in MEMORY or b.inner not in ("0", "1", "s"):
                raise ValueError(f"kernel {symbol!r}: no native form of {b}")
        self.order = tuple(buffers)
        self.scalars = tuple(scalars)
        self.w = module.writer()
        w = self.w
        nb = len(buffers)
        self.pointer = {b.name: self._word(k, "ptr") for k, b in enumerate(buffers)}
        fixed = list(sizes) if sizes is not None else [None] * rank
        self.sizes = [str(s) if s is not None else self._word(nb + d, "i64") for d, s in enumerate(fixed)]
        self.strides: dict[str, list[str]] = {}
        for k, b in enumerate(buffers):
            given = list(strides[b.name]) if strides is not None and b.name in strides else [None] * rank
            row = []
            for d in range(rank):
                if d == rank - 1 and b.inner != "s":
                    row.append(b.inner)
                elif given[d] is not None:
                    row.append(str(given[d]))
                else:
                    row.append(self._word(nb + rank + k * rank + d, "i64"))
            self.strides[b.name] = row
        self.scalar_values: dict[str, Value] = {}
        for k, (name, dtype) in enumerate(scalars):
            at = nb * (1 + rank) + rank + k
            reg = scalar.register_dtype(dtype)
            if reg in ("float32", "float64"):
                self.scalar_values[name] = scalar.convert(w, Value(self._word(at, "double"), "float64"), reg, 1)
            else:
                self.scalar_values[name] = scalar.convert(w, Value(self._word(at, "i64"), "int64"), reg, 1)

    def _word(self, index: int, type: str) -> str:
        w = self.w
        p = w.op(f"getelementptr i64, ptr %words, i64 {index}")
        return w.effect_value(f"load {type}, ptr {p}, align 8")

    def kernel(self, kind: str, cost: int, tile: int = 0) -> Kernel:
        return Kernel(self.symbol, kind, self.order, self.rank, self.scalars, cost, tile)

    def splat(self, v: Value, lanes: int) -> Value:
        return v if lanes == 1 else Value(scalar.lanes_of(self.w, v.dtype, lanes).splat(v.text), v.dtype)

    def at(self, base: str, buffer: Buffer, offset: str) -> str:
        return self.w.op(f"getelementptr {MEMORY[buffer.dtype]}, ptr {base}, i64 {offset}")

    def read(self, base: str, b: Buffer, i: str, lanes: int, mask: str | None, stride: str) -> Value:
        """Elements [i, i + lanes) of a row that starts at `base`."""
        w = self.w
        if b.inner == "1":
            return scalar.load(w, self.at(base, b, i), b.dtype, lanes, mask)
        t = MEMORY[b.dtype]
        v = "poison" if mask is None else "zeroinitializer"
        # outside the mask the last valid element is read again: every address is inside the array
        last = None
        if mask is not None:
            last = w.op(f"sub nsw i64 {self.stop}, 1")
        for k in range(lanes):
            j = w.op(f"add nsw i64 {i}, {k}") if k else i
            if last is not None and k:
                j = w.call("llvm.smin.i64", "i64", [("i64", j), ("i64", last)])
            p = self.at(base, b, w.op(f"mul nsw i64 {j}, {stride}"))
            e = w.effect_value(f"load {t}, ptr {p}, align {ITEMSIZE[b.dtype]}")
            v = e if lanes == 1 else w.op(f"insertelement {vector_type(t, lanes)} {v}, {t} {e}, i64 {k}")
        return scalar.from_memory(w, v, b.dtype, lanes)

    def write(self, value: Value, base: str, b: Buffer, i: str, lanes: int, mask: str | None, stride: str) -> None:
        w = self.w
        if b.inner == "1":
            scalar.store(w, value, self.at(base, b, i), b.dtype, lanes, mask)
            return
        raw = scalar.to_memory(w, value, b.dtype, lanes)
        t, vt = MEMORY[b.dtype], vector_type(MEMORY[b.dtype], lanes)

        def put(j: str) -> None:
            e = w.effect_value(f"extractelement {vt} {raw}, i64 {j}") if lanes > 1 else raw
            at = w.op(f"add nsw i64 {i}, {j}")
            p = self.at(base, b, w.op(f"mul nsw i64 {at}, {stride}"))
            w.do(f"store {t} {e}, ptr {p}, align {ITEMSIZE[b.dtype]}")

        if mask is None:
            for k in range(lanes):
                put(str(k))
        else:
            left = w.op(f"sub nsw i64 {self.stop}, {i}")
            some = w.call("llvm.smin.i64", "i64", [("i64", left), ("i64", str(lanes))])

            def one(j: str, _: list[str]) -> list[str]:
                put(j)
                return []
            loop(w, "0", some, 1, [], one, hint="scatter")

    stop: str = ""


class Nest(Frame):
    """Pointwise and row kernels."""

    def __init__(self, module: Module, symbol: str, buffers: Sequence[Buffer], stages: Sequence[Stage], rank: int,
                 scalars: Sequence[tuple[str, str]], compute: str, sizes: Sequence[int | None] | None,
                 strides: Mapping[str, Sequence[int | None]] | None, kind: str) -> None:
        super().__init__(module, symbol, buffers, rank, scalars, compute, sizes, strides)
        self.stages, self.kind = list(stages), kind
        self.inner = self.sizes[-1]
        self.values: dict[str, Value] = {}               # row scalars by name
        self.base: dict[str, str] = {}                   # where the row starts in each buffer
        self.read_names = set(names_read(self.stages))
        known = set(self.buffers) | {n for n, _ in scalars} | {"$i", "$row", "$n"}
        for st in self.stages:
            if isinstance(st, Pass):
                known.update(r.name for r in st.reduces)
            elif isinstance(st, Compute):
                known.update(st.values)
            elif isinstance(st, Take):
                known.add(st.name)
        unknown = sorted(self.read_names - known)
        if unknown:
            raise ValueError(f"kernel {symbol!r} reads {unknown}, which are no buffer, scalar or computed value")

    # --- the frame of the loops
    def emit(self) -> Kernel:
        w = self.w
        cost = sum(scalar.weight([*map(const, st.stores.values()), *(r.expr for r in st.reduces)]) + 1
                   for st in self.stages if isinstance(st, Pass))
        if self.kind == "elements" and self.rank == 1:
            self.base = self.pointer
            self.row = "0"
            self._row_pass(self.stages[0], "%begin", "%end")                     # type: ignore[arg-type]
            w.do("ret void")
            return self.module.add(self.kernel("elements", cost), w.lines)
        outer = self.sizes[:-1]
        first = "%begin"
        ready, done = w.label("ready"), w.label("done")
        w.branch_if(w.op("icmp slt i64 %begin, %end"), ready, done)
        w.start(ready)
        if self.kind == "elements":
            first = w.op(f"sdiv i64 %begin, {self.inner}")
        index, rest = [], first
        for size in reversed(outer[1:]):
            index.append(w.op(f"srem i64 {rest}, {size}"))
            rest = w.op(f"sdiv i64 {rest}, {size}")
        index.append(rest)
        index.reverse()
        if not outer:
            index = []
        before = w.block
        head = w.label("row")
        w.branch(head)
        w.start(head)
        position = w.phi("i64", "%begin", before)
        row = w.phi("i64", first, before)
        counters = [w.phi("i64", v, before) for v in index]
        self.row = row.value
        for b in self.order:
            offset = None
            for c, s in zip(counters, self.strides[b.name], strict=False):
                if s != "0":
                    term = c.value if s == "1" else w.op(f"mul nsw i64 {c.value}, {s}")
                    offset = term if offset is None else w.op(f"add nsw i64 {offset}, {term}")
            self.base[b.name] = self.pointer[b.name] if offset is None else self.at(self.pointer[b.name], b, offset)
        if self.kind == "elements":
            skip = w.op(f"sub nsw i64 {position.value}, {w.op(f'mul nsw i64 {row.value}, {self.inner}')}")
            room = w.op(f"add nsw i64 {skip}, {w.op(f'sub nsw i64 %end, {position.value}')}")
            stop = w.call("llvm.smin.i64", "i64", [("i64", room), ("i64", self.inner)])
            self._row_pass(self.stages[0], skip, stop)                           # type: ignore[arg-type]
            step = w.op(f"sub nsw i64 {stop}, {skip}")
        else:
            for st in self.stages:
                self._stage(st)
            step = "1"
        position.close(w.op(f"add nsw i64 {position.value}, {step}"), w.block)
        row.close(w.op(f"add nsw i64 {row.value}, 1"), w.block)
        carry = "true"
        for c, size in zip(reversed(counters), reversed(outer), strict=True):
            up = w.op(f"add nsw i64 {c.value}, 1")
            full = w.op(f"icmp eq i64 {up}, {size}")
            moved = w.op(f"select i1 {full}, i64 0, i64 {up}") if c is not counters[0] else up
            c.close(moved if carry == "true" else w.op(f"select i1 {carry}, i64 {moved}, i64 {c.value}"), w.block)
            carry = full if carry == "true" else w.op(f"and i1 {carry}, {full}")
        more = w.op(f"icmp slt i64 {w.op(f'add nsw i64 {position.value}, {step}')}, %end")
        w.branch_if(more, head, done)
        w.start(done)
        w.do("ret void")
        return self.module.add(self.kernel(self.kind, cost), w.lines)

    # --- stages
    def _stage(self, st: Stage) -> None:
        w = self.w
        if isinstance(st, Pass):
            self._row_pass(st, "0", self.inner)
            return
        ev = Evaluator(w, 1, self._row_leaf, self.compute)
        if isinstance(st, Compute):
            for name, e in st.values.items():
                self.values[name] = ev(const(e))
        elif isinstance(st, Put):
            for name, e in st.stores.items():
                b = self.buffers[name]
                scalar.store(w, ev(const(e)), self.base[name], b.dtype, 1)
        elif isinstance(st, Take):
            b = self.buffers[st.buffer]
            j = ev.to(ev(st.index), "int64").text
            if b.inner == "s":
                j = w.op(f"mul nsw i64 {j}, {self.strides[b.name][-1]}")
            self.values[st.name] = scalar.load(w, self.at(self.base[b.name], b, j), b.dtype, 1)
        else:
            condition = ev.to(ev(st.condition), "bool").text
            yes, after = w.label("flag"), w.label("flagged")
            w.branch_if(condition, yes, after)
            w.start(yes)
            w.do(f"store i64 {w.op(f'add i64 {self.row}, 1')}, ptr {self.pointer[st.buffer]}, align 8")
            w.branch(after)
            w.start(after)

    def _row_leaf(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self.scalar_values:
            return self.scalar_values[name]
        if name == "$row":
            return Value(self.row, "int64")
        if name == "$n":
            return Value(self.inner, "int64")
        b = self.buffers.get(name)
        if b is None or b.inner != "0":
            raise ValueError(f"kernel {self.symbol!r}: {name!r} has no value for the whole row")
        return scalar.load(self.w, self.base[name], b.dtype, 1)

    # --- one sweep
    def _lanes(self, st: Pass) -> int:
        names = names_read([st])
        dtypes = [self.buffers[n].dtype for n in (*names, *st.stores) if n in self.buffers]
        dtypes += [self.values[n].dtype for n in names if n in self.values]
        dtypes += [d for n, d in self.scalars if n in names] + [r.dtype for r in st.reduces]
        floats = [d for d in dtypes if scalar.register_dtype(d) in ("float32", "float64")]
        widest = max((ITEMSIZE[scalar.register_dtype(d)] for d in floats or dtypes), default=4)
        return max(2, self.module.vector_bytes // widest)

    def _row_pass(self, st: Pass, start: str, stop: str) -> None:
        w = self.w
        lanes = self._lanes(st)
        roots = [*map(const, st.stores.values()), *(r.expr for r in st.reduces)]
        cost = scalar.weight(roots)
        names = names_read([st])
        strided = any(self.buffers[n].inner == "s" for n in (*names, *st.stores) if n in self.buffers)
        copies = 1 if strided or cost >= HEAVY // 2 else 2 if cost > 4 or len(names) > 3 else 4
        masked_only = self.module.masks_are_cheap and not strided and cost >= HEAVY
        accs = [Accumulator(w, r, lanes, copies) for r in st.reduces]
        # what the row gives to every element is read before the sweep
        fixed: dict[str, Value] = {}
        for n in names:
            if n != "$i" and not (n in self.buffers and self.buffers[n].inner != "0") and n not in fixed:
                fixed[n] = self.splat(self._row_leaf(n), lanes)

        def elements(i: str, mask: str | None) -> list[str]:
            """Stores of one vector; returns the operands of the reductions."""
            self.stop = stop

            def leaf(name: str) -> Value:
                v = fixed.get(name)
                if v is not None:
                    return v
                if name == "$i":
                    N = Lanes(w, "i64", lanes)
                    return Value(N.add(N.splat(i), iota(lanes, "i64")), "int64")
                b = self.buffers[name]
                return self.read(self.base[name], b, i, lanes, mask, self.strides[name][-1])

            ev = Evaluator(w, lanes, leaf, self.compute)
            results = [(self.buffers[n], ev(const(e))) for n, e in st.stores.items()]
            parts = [acc.masked(ev.to(ev(acc.r.expr), acc.dtype).text, mask) for acc in accs]
            for b, v in results:
                self.write(v, self.base[b.name], b, i, lanes, mask, self.strides[b.name][-1])
            return parts

        def sweep(start: str, stop: str) -> tuple[list[str]]:
            """Main and masked loops from start to stop; the merged vector of each reduction."""
            current = [[acc.start] * copies for acc in accs]
            at = start
            if not masked_only:
                def main(i: str, carried: list[str]) -> list[str]:
                    grouped = [carried[k * copies:(k + 1) * copies] for k in range(len(accs))]
                    out: list[list[str]] = [[] for _ in accs]
                    for c in range(copies):
                        j = w.op(f"add nsw i64 {i}, {c * lanes}") if c else i
                        for acc, part, was, new in zip(accs, elements(j, None), grouped, out, strict=True):
                            new.append(acc.combine(was[c], part))
                    return [v for group in out for v in group]

                flat = [(acc.L.type, v) for acc, group in zip(accs, current, strict=True) for v in group]
                at, values = loop(w, start, stop, lanes * copies, flat, main, whole=True, hint="main")
                current = [values[k * copies:(k + 1) * copies] for k in range(len(accs))]

            def rest(i: str, carried: list[str]) -> list[str]:
                parts = elements(i, tail_mask(w, i, stop, lanes))
                return [acc.combine(was, part) for acc, was, part in zip(accs, carried, parts, strict=True)]

            first = [(acc.L.type, group[0]) for acc, group in zip(accs, current, strict=True)]
            _, values = loop(w, at, stop, lanes, first, rest, hint="rest")
            return [acc.merge([v, *group[1:]]) for acc, v, group in zip(accs, values, current, strict=True)],

        if not any(acc.blocked for acc in accs):
            parts, = sweep(start, stop)
            for acc, part in zip(accs, parts, strict=True):
                self.values[acc.r.name] = acc.result([], part)
            return

        step = BLOCK * lanes * copies
        carried: list[tuple[str, str]] = []
        for acc in accs:
            carried += acc.carried() if acc.blocked else [(acc.L.type, acc.start)]

        def block(i: str, sums: list[str]) -> list[str]:
            far = w.op(f"add nsw i64 {i}, {step}")
            parts, = sweep(i, w.call("llvm.smin.i64", "i64", [("i64", far), ("i64", stop)]))
            out: list[str] = []
            for acc, part in zip(accs, parts, strict=True):
                mine = sums[len(out):len(out) + (2 if acc.blocked else 1)]
                out += acc.fold(mine, part) if acc.blocked else [acc.combine(mine[0], part)]
            return out

        _, sums = loop(w, start, stop, step, carried, block, hint="block")
        for acc in accs:
            mine, sums = sums[:2 if acc.blocked else 1], sums[2 if acc.blocked else 1:]
            self.values[acc.r.name] = acc.result(mine, None) if acc.blocked else acc.result([], mine[0])


class Columns(Frame):
    """Reductions down the columns of a matrix: tiles of columns, `BLOCK // 2` rows at a time, sums folded in a
    scratch row."""

    TILE = 128                      # columns of a tile: its scratch stays in the first-level cache

    def __init__(self, module: Module, symbol: str, buffers: Sequence[Buffer], reduces: Sequence[Reduce],
                 outputs: Mapping[str, Expr], rank: int, scalars: Sequence[tuple[str, str]], compute: str,
                 sizes: Sequence[int | None] | None, strides: Mapping[str, Sequence[int | None]] | None) -> None:
        super().__init__(module, symbol, buffers, rank, scalars, compute, sizes, strides)
        if rank < 2:
            raise ValueError(f"kernel {symbol!r}: columns need rank 2 or more, got {rank}")
        self.reduces, self.outputs = list(reduces), dict(outputs)

    def emit(self) -> Kernel:
        w = self.w
        rows, cols, outer = self.sizes[-2], self.sizes[-1], self.sizes[:-2]
        names = names_read([Pass({}, tuple(self.reduces))])
        finish = names_read([Put(self.outputs)])
        dtypes = [self.buffers[n].dtype for n in (*names, *finish, *self.outputs) if n in self.buffers]
        dtypes += [r.dtype for r in self.reduces]
        wide = any(scalar.register_dtype(d) == "float64" for d in dtypes)
        lanes = max(2, self.module.vector_bytes // (8 if wide else 4))
        accs = [Accumulator(w, r, lanes, 1) for r in self.reduces]
        cost = scalar.weight([r.expr for r in self.reduces]) + 1
        # scratch: for each reduction a row of folded sums (doubles; two for float64) or of combined values
        scratch = []
        for acc in accs:
            elem = "double" if acc.blocked else "i8" if acc.elem == "i1" else acc.elem
            count = 2 if acc.blocked and acc.dtype == "float64" else 1
            scratch.append([w.effect_value(f"alloca [{self.TILE} x {elem}], align 64") for _ in range(count)])
        tiles = w.op(f"sdiv i64 {w.op(f'add i64 {cols}, {self.TILE - 1}')}, {self.TILE}")

        def tile(g: str, _: list[str]) -> list[str]:
            t = w.op(f"srem i64 {g}, {tiles}")
            rest = w.op(f"sdiv i64 {g}, {tiles}")
            index = []
            for size in reversed(outer[1:]):
                index.append(w.op(f"srem i64 {rest}, {size}"))
                rest = w.op(f"sdiv i64 {rest}, {size}")
            index = [*reversed([*index, rest])] if outer else []
            c0 = w.op(f"mul nsw i64 {t}, {self.TILE}")
            width = w.call("llvm.smin.i64", "i64", [("i64", w.op(f"sub nsw i64 {cols}, {c0}")),
                                                    ("i64", str(self.TILE))])
            base = {}
            for b in self.order:
                st = self.strides[b.name]
                terms = [w.op(f"mul nsw i64 {i}, {s}") for i, s in zip(index, st, strict=False) if s != "0"]
                if st[-1] != "0":
                    terms.append(c0 if st[-1] == "1" else w.op(f"mul nsw i64 {c0}, {st[-1]}"))
                offset = None
                for x in terms:
                    offset = x if offset is None else w.op(f"add nsw i64 {offset}, {x}")
                base[b.name] = self.pointer[b.name] if offset is None else self.at(self.pointer[b.name], b, offset)
            self.stop = width

            def clear(i: str, _: list[str]) -> list[str]:
                for acc, places in zip(accs, scratch, strict=True):
                    for p in places:
                        self._scratch_store(acc, p, i, [acc.F.const(0.0)] * 2 if acc.blocked else [acc.start])
                return []
            loop(w, "0", width, lanes, [], clear, hint="clear")

            def rows_block(r0: str, _: list[str]) -> list[str]:
                far = w.op(f"add nsw i64 {r0}, {BLOCK // 2}")
                r1 = w.call("llvm.smin.i64", "i64", [("i64", far), ("i64", rows)])

                def several(i: str, mask: str | None, copies: int) -> None:
                    """Down the rows of the block, `copies` vectors side by side: whole stretches of each row are read,
                    because rows a power of two apart share their places in the cache."""
                    at = [w.op(f"add nsw i64 {i}, {k * lanes}") if k else i for k in range(copies)]

                    def down(r: str, carried: list[str]) -> list[str]:
                        def leaf_at(c: str) -> Callable[[str], Value]:
                            return lambda n: self._leaf(n, base, r, c, lanes, mask, c0)
                        new = []
                        for k, c in enumerate(at):
                            ev = Evaluator(w, lanes, leaf_at(c), self.compute)
                            new += [acc.combine(carried[k * len(accs) + a], ev.to(ev(acc.r.expr), acc.dtype).text)
                                    for a, acc in enumerate(accs)]
                        return new
                    start = [(acc.L.type, acc.start) for acc in accs] * copies
                    _, parts = loop(w, r0, r1, 1, start, down, hint="down")
                    for k, c in enumerate(at):
                        add(c, parts[k * len(accs):(k + 1) * len(accs)])

                def add(i: str, parts: list[str]) -> None:
                    for acc, places, part in zip(accs, scratch, parts, strict=True):
                        was = self._scratch_load(acc, places, i)
                        new = acc.fold(was, part) if acc.blocked else [acc.combine(was[0], part)]
                        if acc.blocked and acc.dtype == "float64":
                            for p, v in zip(places, new, strict=True):
                                self._scratch_store(acc, p, i, [v])
                        else:
                            self._scratch_store(acc, places[0], i, new)
                wide = 1 if cost >= HEAVY else 4
                self._span(width, lanes, several, wide)
                return []
            loop(w, "0", rows, BLOCK // 2, [], rows_block, hint="rows")

            def finish_vector(i: str, mask: str | None, _: int) -> None:
                values = {}
                for acc, places in zip(accs, scratch, strict=True):
                    values[acc.r.name] = self._column_result(acc, self._scratch_load(acc, places, i), lanes)

                def leaf(n: str) -> Value:
                    return values[n] if n in values else self._leaf(n, base, "0", i, lanes, mask, c0)
                ev = Evaluator(w, lanes, leaf, self.compute)
                for name, v in [(n, ev(const(e))) for n, e in self.outputs.items()]:
                    self.write(v, base[name], self.buffers[name], i, lanes, mask, self.strides[name][-1])
            self._span(width, lanes, finish_vector)
            return []

        loop(w, "%begin", "%end", 1, [], tile, hint="tile")
        w.do("ret void")
        return self.module.add(self.kernel("columns", cost, self.TILE), w.lines)

    def _span(self, width: str, lanes: int, body: Callable[[str, str | None, int], None], copies: int = 1) -> None:
        """body(i, None, copies) over whole groups of `copies` vectors of [0, width), body(i, mask, 1) over the rest."""
        w = self.w

        def main(i: str, _: list[str]) -> list[str]:
            body(i, None, copies)
            return []

        def rest(i: str, _: list[str]) -> list[str]:
            body(i, tail_mask(w, i, width, lanes), 1)
            return []
        at, _ = loop(w, "0", width, lanes * copies, [], main, whole=True, hint="main")
        loop(w, at, width, lanes, [], rest, hint="rest")

    def _leaf(self, name: str, base: Mapping[str, str], r: str, i: str, lanes: int, mask: str | None, c0: str) -> Value:
        w = self.w
        if name in self.scalar_values:
            return self.splat(self.scalar_values[name], lanes)
        if name == "$n":
            return self.splat(Value(self.sizes[-2], "int64"), lanes)
        if name == "$row":
            return self.splat(Value(r, "int64"), lanes)
        if name == "$i":
            N = Lanes(w, "i64", lanes)
            return Value(N.add(N.splat(w.op(f"add nsw i64 {c0}, {i}")), iota(lanes, "i64")), "int64")
        b = self.buffers.get(name)
        if b is None:
            raise ValueError(f"kernel {self.symbol!r} reads {name!r}, which is no buffer, scalar or reduction")
        s = self.strides[name][-2]
        at = base[name] if s == "0" or r == "0" else self.at(base[name], b, w.op(f"mul nsw i64 {r}, {s}"))
        if b.inner == "0":
            return self.splat(scalar.load(w, at, b.dtype, 1), lanes)
        return self.read(at, b, i, lanes, mask, self.strides[name][-1])

    def _column_result(self, acc: Accumulator, v: list[str], lanes: int) -> Value:
        w = self.w
        if not acc.blocked:
            return scalar.convert(w, Value(v[0], acc.dtype), acc.r.result or acc.r.dtype, lanes)
        F = Lanes(w, "double", lanes)
        if acc.dtype == "float64":
            finite = F.cmp("olt", F.abs(v[0]), F.const(float("inf")))
            total = F.select(finite, F.add(*v), v[0])
        else:
            index = ", ".join(f"i32 {k}" for k in range(lanes))
            t = acc.F.type
            total = w.op(f"shufflevector {t} {v[0]}, {t} {v[1]}, <{lanes} x i32> <{index}>")
        return scalar.convert(w, Value(total, "float64"), acc.r.result or acc.r.dtype, lanes)

    def _scratch_load(self, acc: Accumulator, places: list[str], i: str) -> list[str]:
        w = self.w
        if not acc.blocked:
            dtype = acc.dtype
            return [scalar.load(w, w.op(f"getelementptr {MEMORY[dtype]}, ptr {places[0]}, i64 {i}"), dtype,
                                acc.lanes).text]
        t = acc.F.type
        out = [w.effect_value(f"load {t}, ptr {w.op(f'getelementptr double, ptr {p}, i64 {i}')}, align 8")
               for p in places]
        if acc.dtype == "float32":
            j = w.op(f"add nsw i64 {i}, {acc.F.lanes}")
            p = w.op(f"getelementptr double, ptr {places[0]}, i64 {j}")
            out.append(w.effect_value(f"load {t}, ptr {p}, align 8"))
        return out

    def _scratch_store(self, acc: Accumulator, place: str, i: str, values: list[str]) -> None:
        w = self.w
        if not acc.blocked:
            p = w.op(f"getelementptr {MEMORY[acc.dtype]}, ptr {place}, i64 {i}")
            scalar.store(w, Value(values[0], acc.dtype), p, acc.dtype, acc.lanes)
            return
        for k, v in enumerate(values[:1] if acc.dtype == "float64" else values):
            j = w.op(f"add nsw i64 {i}, {k * acc.F.lanes}") if k else i
            w.do(f"store {acc.F.type} {v}, ptr {w.op(f'getelementptr double, ptr {place}, i64 {j}')}, align 8")

