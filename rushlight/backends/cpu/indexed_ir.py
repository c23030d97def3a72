"""The kernels of indexed.py and scans.py as LLVM IR.

A kernel is `void run(t, begin, end)` over tasks; t holds the plan (the words below, fixed by shapes and strides), three
pointers and a word for what went wrong. `one(plan, a, b, c)` runs all tasks in the calling thread and returns that word.
"""

from __future__ import annotations

from rushlight.backends.cpu.emit import Fn, Value

__all__ = ["PLAN", "indexed_source", "entry"]

# The plan of an indexed copy: a box of four dimensions with the strides (in elements) of table, index and other operand;
# the dimension that is cut into tasks (4: the indexed one, by the values of the index) and how wide a task is; the table's size and stride along the indexed dimension; the
# number of tasks; the number of indices
PLAN = ("n0 n1 n2 n3 a0 a1 a2 a3 i0 i1 i2 i3 b0 b1 b2 b3 cut piece size step tasks count").split()
_AT = {name: i for i, name in enumerate(PLAN)}
_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "float": 4, "double": 8}


def entry(tasks: int, bounds: bool = False) -> str:
    """`one`: all tasks of a plan, whose word `tasks` says how many; with `bounds` only if the indices are in range."""
    check = ["  call void @bounds(ptr %t, i64 0, i64 %n)", "  %bad = load i64, ptr %flag", "  %ok = icmp eq i64 %bad, 0",
             "  br i1 %ok, label %go, label %out"] if bounds else ["  br label %go"]
    store = [f"  %p{k} = getelementptr i64, ptr %t, i64 {k}\n  store ptr %{x}, ptr %p{k}" for k, x in enumerate(("plan", "a", "b", "c"))]
    return "\n".join(["define i64 @one(ptr %plan, ptr %a, ptr %b, ptr %c) nounwind {", "  %t = alloca [5 x i64]", *store,
                      "  %flag = getelementptr i64, ptr %t, i64 4", "  store i64 0, ptr %flag",
                      f"  %pn = getelementptr i64, ptr %plan, i64 {tasks}", "  %n = load i64, ptr %pn", *check,
                      "go:", "  call void @run(ptr %t, i64 0, i64 %n)", "  br label %out",
                      "out:", "  %r = load i64, ptr %flag", "  ret i64 %r", "}"]) + "\n"


def indexed_source(kind: str, element: str, index: str, unit: bool, walk: str, vector_bytes: int) -> str:
    """`kind`: "take" (b = a[index]), "put" (a[index] = b), or what b is combined by with a[index]: "add", "mul", "max" or "min" (with
    "u" before it for unsigned integers). `index`: "i64" or "i32". With `unit` index and b have stride 1 in the last dimension. `walk`: "along"
    where the indexed dimension is the last one and the table's stride is 1, "across" where it is another one; "row N" for short rows of N bytes
    that lie together and have one index each; else "any"."""
    f = _run(kind, element, index, unit, walk, vector_bytes)
    functions = [f.text()]
    if kind != "take":
        functions.append(_bounds(index, vector_bytes).text())
    text = "\n".join(functions) + "\n" + entry(_AT["tasks"], kind != "take")
    lanes = vector_bytes // _BYTES[index]
    return text + ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
                   f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)\n")


def _run(kind: str, s: str, index: str, unit: bool, walk: str, vector_bytes: int) -> Fn:
    f = Fn("run", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    plan, a, i, b = (f.pointer("%t", k) for k in range(4))
    g = {name: f.word(plan, k) for name, k in _AT.items()}
    flag = f.gep("i64", "%t", 4)
    i3: Value = 1 if unit else g["i3"]
    b3: Value = 1 if unit else g["b3"]

    def at_cut(name: str) -> str:
        return f.load("i64", f.gep("i64", plan, f.add(g["cut"], _AT[name])))

    known: dict[str, Value] = {"along": {"step": 1, "a3": 0}, "across": {"a3": 1}}.get(walk, {})    # type: ignore[assignment]
    by_value = f.icmp("eq", g["cut"], 4)        # a task has the slices of a range of the table
    others: list[Value] = [g["size"], 0, 0, 0]
    cut = [f.select(by_value, "i64", other, at_cut(x)) for x, other in zip(("n0", "a0", "i0", "b0"), others, strict=True)]
    is_cut = [f.icmp("eq", g["cut"], k) for k in range(4)]
    with f.range("%begin", "%end") as task:
        lo = f.mul(task, g["piece"])
        wide = f.sub(f.smin(f.add(lo, g["piece"]), cut[0]), lo)
        mine = (f.select(by_value, "i64", lo, 0), f.select(by_value, "i64", f.add(lo, wide), g["size"]))
        n = [f.select(is_cut[k], "i64", wide, g[f"n{k}"]) for k in range(4)]
        start = [f.mul(lo, c) for c in cut[1:]]
        with f.range(0, n[0]) as x0, f.range(0, n[1]) as x1, f.range(0, n[2]) as x2:
            rows = []
            for at, base, type, first in zip("aib", (a, i, b), (s, index, s), start, strict=True):
                o: Value = first
                for k, x in enumerate((x0, x1, x2)):
                    o = f.add(o, f.mul(x, g[f"{at}{k}"]))
                rows.append(f.gep(type, base, o))
            if walk.startswith("row"):
                _whole_row(f, kind, s, index, int(walk[3:]), g, rows, mine, flag)
            else:
                _row(f, kind, s, index, n[3], {**g, **known}, rows, i3, b3, mine, flag, vector_bytes)
    return f


def _index(f: Fn, index: str, ptr: str) -> str:
    k = f.load(index, ptr)
    return k if index == "i64" else f.op(f"sext i32 {k} to i64")


def _row(f: Fn, kind: str, s: str, index: str, n: Value, g: dict[str, Value], rows: list[str], i3: Value, b3: Value, mine: tuple[str, str],
         flag: str, vector_bytes: int) -> None:
    a, i, b = rows
    takes = kind == "take"
    align = min(_BYTES[s], 8)

    def move(k: str, j: Value) -> None:
        """The element j of the row; k is its index."""
        p = f.gep(s, a, f.add(f.mul(k, g["step"]), 0 if g["a3"] == 0 else f.mul(j, g["a3"])))
        q = f.gep(s, b, f.mul(j, b3))
        if takes:
            f.store(s, f.load(s, p, align), q, align)
        else:
            f.store(s, _combined(f, kind, s, lambda: f.load(s, p, align), f.load(s, q, align)), p, align)

    def each(j0: Value, count: int) -> None:
        js = [f.add(j0, d) for d in range(count)]
        ks = [_index(f, index, f.gep(index, i, f.mul(j, i3))) for j in js]
        if not takes:
            for k, j in zip(ks, js, strict=True):
                move(k, j)
            return
        oks = [f.icmp("ult", k, g["size"]) for k in ks]
        ok = oks[0]
        for x in oks[1:]:
            ok = f.op(f"and i1 {ok}, {x}")
        with f.when(ok):
            for k, j in zip(ks, js, strict=True):
                move(k, j)
        with f.when(f.op(f"xor i1 {ok}, true")):
            f.store("i64", 1, flag)

    fixed = f.icmp("eq", g["i3"], 0) if i3 != 1 else "false"
    with f.when(f.op(f"xor i1 {fixed}, true")):
        whole = f.op(f"and i64 {n}, -4")
        with f.range(0, whole, 4) as j:
            each(j, 4)
        with f.range(whole, n) as j:
            each(j, 1)
    if i3 == 1:
        return
    with f.when(fixed):
        k = _index(f, index, i)
        ok = f.icmp("ult", k, g["size"]) if takes else f.op(f"and i1 {f.icmp('sge', k, mine[0])}, {f.icmp('slt', k, mine[1])}")
        if takes:
            with f.when(f.op(f"xor i1 {ok}, true")):
                f.store("i64", 1, flag)
        with f.when(ok):
            dense = f.op(f"and i1 {f.icmp('eq', g['a3'], 1)}, {f.icmp('eq', g['b3'], 1)}")
            with f.when(dense):
                p = f.gep(s, a, f.mul(k, g["step"]))
                if kind in ("take", "put"):
                    to, of = (b, p) if takes else (p, b)
                    f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {f.mul(n, _BYTES[s])}, i1 false)")
                else:
                    lanes = vector_bytes // _BYTES[s]
                    v = f"<{lanes} x {s}>"
                    whole = f.op(f"and i64 {n}, {-lanes}")
                    with f.range(0, whole, lanes) as j:
                        to, of = f.gep(s, p, j), f.gep(s, b, j)
                        old = f.load(v, to, _BYTES[s])
                        f.store(v, _combined(f, kind, v, lambda: old, f.load(v, of, _BYTES[s])), to, _BYTES[s])
                    with f.range(whole, n) as j:
                        move(k, j)
            with f.when(f.op(f"xor i1 {dense}, true")), f.range(0, n) as j:
                move(k, j)


def _whole_row(f: Fn, kind: str, s: str, index: str, size: int, g: dict[str, str], rows: list[str], mine: tuple[str, str], flag: str) -> None:
    """One index, and a row of a size that the code knows."""
    a, i, b = rows
    k = _index(f, index, i)
    takes = kind == "take"
    ok = f.icmp("ult", k, g["size"]) if takes else f.op(f"and i1 {f.icmp('sge', k, mine[0])}, {f.icmp('slt', k, mine[1])}")
    with f.when(ok):
        p = f.gep(s, a, f.mul(k, g["step"]))
        to, of = (b, p) if takes else (p, b)
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)")
    if takes:
        with f.when(f.op(f"xor i1 {ok}, true")):
            f.store("i64", 1, flag)


def _combined(f: Fn, kind: str, type: str, old: object, new: str) -> str:
    if kind == "put":
        return new
    x = old()  # type: ignore[operator]
    real = "float" in type or "double" in type
    if kind in ("add", "mul"):
        return f.op(f"{'f' if real else ''}{kind} {type} {x}, {new}")
    mask = "i1" if type[0] != "<" else f"<{type[1:].split()[0]} x i1>"
    if real:    # nan stays, as numpy.maximum has it
        keep = f.op(f"fcmp {'oge' if kind == 'max' else 'ole'} {type} {x}, {new}")
        keep = f.op(f"or {mask} {keep}, {f.op(f'fcmp uno {type} {x}, {x}')}")
    else:
        keep = f.op(f"icmp {'u' if kind[0] == 'u' else 's'}{'ge' if kind.endswith('max') else 'le'} {type} {x}, {new}")
    return f.op(f"select {mask} {keep}, {type} {x}, {type} {new}")


def _bounds(index: str, vector_bytes: int) -> Fn:
    """Sets the flag if one of `count` contiguous indices is outside [0, size). Tasks are those of `run`."""
    f = Fn("bounds", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    plan, i = f.pointer("%t", 0), f.pointer("%t", 2)
    size, tasks, count = (f.word(plan, _AT[x]) for x in ("size", "tasks", "count"))
    each = f.udiv(f.add(count, f.sub(tasks, 1)), tasks)
    lanes = vector_bytes // _BYTES[index]
    v, m = f"<{lanes} x {index}>", f"<{lanes} x i1>"
    limit = size if index == "i64" else f.op(f"trunc i64 {f.smin(size, 2**31 - 1)} to i32")
    wide = f.splat(index, lanes, limit)
    bad, worst = f.var(m, "zeroinitializer"), f.var("i1", "false")
    lo, hi = f.smin(f.mul("%begin", each), count), f.smin(f.mul("%end", each), count)
    whole = f.add(lo, f.op(f"and i64 {f.sub(hi, lo)}, {-lanes}"))
    with f.range(lo, whole, lanes) as j:
        k = f.load(v, f.gep(index, i, j), _BYTES[index])
        f.store(m, f.op(f"or {m} {f.load(m, bad)}, {f.op(f'icmp uge {v} {k}, {wide}')}"), bad)
    with f.range(whole, hi) as j:
        k = f.load(index, f.gep(index, i, j))
        f.store("i1", f.op(f"or i1 {f.load('i1', worst)}, {f.op(f'icmp uge {index} {k}, {limit}')}"), worst)
    any_of = f.op(f"call i1 @llvm.vector.reduce.or.v{lanes}i1({m} {f.load(m, bad)})")
    with f.when(f.op(f"or i1 {any_of}, {f.load('i1', worst)}")):
        f.store("i64", 1, f.gep("i64", "%t", 4))
    return f
