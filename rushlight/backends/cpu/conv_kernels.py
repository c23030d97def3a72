"""LLVM text of the convolution kernels.

The method is an implicit GEMM without im2col. One image (or a slab of its rows) is copied once into a zero-padded
buffer in which the element that tap k of the filter reads for output position p lies at `offset[k] + p`, for one flat
index p over the (padded) raster of the output. So the matrix that im2col would build is a set of shifted views of that
buffer, and the register-blocked product needs no further packing. Three things make this general:

* strides: the buffer is split into its stride x stride phases, so that each tap again reads consecutive elements;
* the zero gap between two rows of the raster serves as right padding of one and left padding of the next;
* the gradient of the input is the same product on the output's gradient, with one table of taps per phase of the
  stride; the gradient of the weight is the inner product of the raster of `gy` with the shifted views.

The kernels read everything from a table of 64-bit words (`RUN`, `GRAD`: name -> position); `conv.py` fills it. Both
entry points are `void f(int64* table, int64 begin, int64 end)` over independent tasks, so any pool may call them.
"""

from __future__ import annotations

import platform

from rushlight.backends.cpu.emit import SCALAR, Fn, Value, lanes_of, module

__all__ = ["GEOMETRY", "RUN", "GRAD", "PHASE", "AHEAD", "tiles", "source"]

AHEAD = 6                # how many taps ahead the product prefetches; tables of offsets are longer by as many entries

_geometry = """x scratch busy slot_bytes n_slots groups channels x_image x_group x_channel xd xh xw pd ph pw sd sh sw
    ud uh uw qh qw phase channel rows slab limit_h limit_w packed clear dense chunks out_rows""".split()
GEOMETRY = {name: i for i, name in enumerate(_geometry)}
RUN = GEOMETRY | {name: len(GEOMETRY) + i for i, name in enumerate(
    """w bias y y_image y_group y_row y_d y_h y_w w_group w_row phases phase_table buffer pitch
    by_rows""".split())}
GRAD = GEOMETRY | {name: len(GEOMETRY) + i for i, name in enumerate(
    """gy gy_image gy_group gy_row od oh ow out part taps offsets units per_task block y_offset y_block y_pitch
    steps x_step y_step by_rows""".split())}
PHASE = {name: i for i, name in enumerate("taps x_offsets w_offsets od oh ow base".split())}


_INTRINSICS = "declare i64 @llvm.cttz.i64(i64, i1)\ndeclare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"


def tiles(registers: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Register tiles: [(rows, vectors)] of the product, widest first, and (rows, taps) of the weight gradient."""
    if registers < 32:
        return [(4, 3), (2, 5), (1, 8)], (4, 2)
    return [(8, 3), (4, 6), (2, 8), (1, 8)], (4, 6)


def source(kind: str, dtype: str, vector_bytes: int, registers: int) -> str:
    """The module for "float32" or "float64" with vectors of `vector_bytes`. `kind` is "run" (the product), "run_paired"
    (the same by rows, with half a vector of each of two rows in a vector) or "weight_grad"."""
    s = SCALAR[dtype]
    lanes = lanes_of(s, vector_bytes)
    rows, (mo, mk) = tiles(registers)
    pack = _pack(s, lanes)
    if kind == "weight_grad":
        # a single row (depthwise) takes a 3 x 3 filter at once
        shapes = [(mo, k) for k in {mk, (mk + 1) // 2, 1}] + [(1, k) for k in (9, 3, 1)]
        dots = {(o, k): _dot(s, lanes, o, k) for o, k in shapes}
        functions = [pack, *dots.values(), _weight_grad(s, lanes, dots, pack)]
    else:
        paired = kind == "run_paired"
        kernels = {(m, v): _tile(s, lanes, m, v, paired) for m, full in rows for v in _parts(m, full)}
        functions = [pack, *kernels.values(), _run(s, lanes, rows, kernels, pack, paired)]
    return module(functions, [s], [lanes]) + _INTRINSICS


def _size(s: str) -> int:
    return 4 if s == "float" else 8


def _parts(rows: int, vectors: int) -> tuple[int, ...]:
    """The numbers of vectors that a tile of `rows` rows exists for: what remains of a line goes to the smaller ones."""
    return (vectors, 2, 1) if rows >= 8 else (vectors, 1)


def copy_row(f: Fn, s: str, lanes: int, src: str, dst: str, count: Value) -> None:
    """dst[:count] = src[:count]"""
    v = f"<{lanes} x {s}>"
    full = f.mul(f.sdiv(count, lanes), lanes)
    with f.range(0, full, lanes) as i:
        value = f.load(v, f.gep(s, src, i), _size(s))
        f.store(v, value, f.gep(s, dst, i), _size(s))
    with f.when(f.icmp("slt", full, count)):
        mask = f.tail_mask(lanes, f.sub(count, full))
        value = f.masked_load(v, s, f.gep(s, src, full), mask, lanes)
        f.masked_store(v, s, value, f.gep(s, dst, full), mask, lanes)


def _pack(s: str, lanes: int) -> Fn:
    """Copy the channels of one group of one image, rows of one slab, into the phase-split zero-padded buffer."""
    f = Fn("pack", [("ptr", "t"), ("ptr", "src"), ("ptr", "dst"), ("i64", "chunk")], internal=True)
    g = {k: f.word("%t", i) for k, i in GEOMETRY.items() if k not in ("x", "scratch", "busy")}
    f.line(f"call void @llvm.memset.p0.i64(ptr %dst, i8 0, i64 {f.mul(g['clear'], _size(s))}, i1 false)")
    d0 = f.sub(f.mul(f.mul("%chunk", g["rows"]), g["sd"]), g["pd"])
    dlo = f.smax(0, d0)
    dhi = f.smin(g["xd"], f.add(d0, f.mul(g["slab"], g["sd"])))
    hlo, hhi = f.smax(0, f.sub(0, g["ph"])), f.smin(g["xh"], f.sub(g["limit_h"], g["ph"]))
    wlo, whi = f.smax(0, f.sub(0, g["pw"])), f.smin(g["xw"], f.sub(g["limit_w"], g["pw"]))
    unit, half = f.icmp("eq", g["sw"], 1), f.icmp("eq", g["sw"], 2)
    more = f.icmp("sgt", g["sw"], 2)
    with f.range(0, g["channels"]) as c:
        src_c = f.gep(s, "%src", f.mul(c, g["x_channel"]))
        dst_c = f.gep(s, "%dst", f.mul(c, g["channel"]))
        with f.when(f.icmp("ne", g["dense"], 0)):              # no gaps: the slab is one run
            plane = f.mul(g["xh"], g["xw"])
            copy_row(f, s, lanes, f.gep(s, src_c, f.mul(dlo, plane)), dst_c, f.mul(f.sub(dhi, dlo), plane))
        with f.range(f.select(f.icmp("ne", g["dense"], 0), "i64", dhi, dlo), dhi) as d:
            qd, fd = _divmod(f, f.sub(d, d0), g["sd"])
            with f.when(f.icmp("slt", fd, g["ud"])), f.range(hlo, hhi) as h:
                qh, fh = _divmod(f, f.add(h, g["ph"]), g["sh"])
                at = f.add(f.mul(f.mul(f.add(f.mul(fd, g["uh"]), fh), g["uw"]), g["phase"]),
                           f.mul(f.add(f.mul(qd, g["qh"]), qh), g["qw"]))
                row = f.gep(s, src_c, f.mul(f.add(f.mul(d, g["xh"]), h), g["xw"]))
                to = f.gep(s, dst_c, at)
                with f.when(f.icmp("slt", fh, g["uh"])):
                    with f.when(unit):
                        copy_row(f, s, lanes, f.gep(s, row, wlo), f.gep(s, to, f.add(wlo, g["pw"])), f.sub(whi, wlo))
                    with f.when(half), f.range(0, g["uw"]) as fw:
                        src, out = _phase_ends(f, s, g, row, to, fw, wlo)
                        _copy_even(f, s, lanes, f.gep(s, row, src), out, f.sub(whi, src))
                    with f.when(more), f.range(0, g["uw"]) as fw:
                        src, out = _phase_ends(f, s, g, row, to, fw, wlo)
                        slot = f.var("i64", 0)
                        with f.range(src, whi, g["sw"]) as w:
                            k = f.load("i64", slot)
                            f.store(s, f.load(s, f.gep(s, row, w)), f.gep(s, out, k))
                            f.store("i64", f.add(k, 1), slot)
    return f


def _divmod(f: Fn, a: Value, b: Value) -> tuple[str, str]:
    """(a / b, a % b), without a division where b is 1."""
    q, r = f.var("i64", a), f.var("i64", 0)
    with f.when(f.icmp("ne", b, 1)):
        f.store("i64", f.udiv(a, b), q)
        f.store("i64", f.urem(a, b), r)
    return f.load("i64", q), f.load("i64", r)


def _phase_ends(f: Fn, s: str, g: dict[str, str], row: str, to: str, fw: str, wlo: Value) -> tuple[Value, str]:
    """The first column w >= wlo of phase fw, and where it goes."""
    first = f.urem(f.sub(f.add(fw, g["sw"]), f.urem(f.add(wlo, g["pw"]), g["sw"])), g["sw"])
    w0 = f.add(wlo, first)
    return w0, f.gep(s, f.gep(s, to, f.mul(fw, g["phase"])), f.udiv(f.add(w0, g["pw"]), g["sw"]))


def _copy_even(f: Fn, s: str, lanes: int, src: str, dst: str, m: Value) -> None:
    """dst[j] = src[2 j] for 2 j < m, reading nothing past src[m - 1]."""
    v = f"<{lanes} x {s}>"
    even = ", ".join(f"i32 {2 * i}" for i in range(lanes))
    count = f.sdiv(f.add(m, 1), 2)
    with f.range(0, count, lanes) as j:
        at = f.mul(j, 2)
        left = f.sub(m, at)
        p = f.gep(s, src, at)
        a = f.masked_load(v, s, p, f.tail_mask(lanes, left), lanes)
        b = f.masked_load(v, s, f.gep(s, p, lanes), f.tail_mask(lanes, f.sub(left, lanes)), lanes)
        value = f.op(f"shufflevector {v} {a}, {v} {b}, <{lanes} x i32> <{even}>")
        f.masked_store(v, s, value, f.gep(s, dst, j), f.tail_mask(lanes, f.sub(count, j)), lanes)


def _tile(s: str, lanes: int, rows: int, vectors: int, paired: bool = False) -> Fn:
    """out[r * pitch + j * out_step + p] = bias[r] + sum over k of w[r * w_row + w_offsets[k]] *
    x[x_offsets[k] + j * x_step + p] for p < lanes, j < vectors; paired: for p < lanes / 2, j < 2 vectors."""
    f = Fn(f"tile_{rows}_{vectors}", [("ptr", "x"), ("i64", "x_step"), ("ptr", "w"), ("i64", "w_row"),
                                      ("ptr", "x_offsets"), ("ptr", "w_offsets"), ("i64", "taps"), ("ptr", "bias"),
                                      ("ptr", "out"), ("i64", "out_step"), ("i64", "pitch")], internal=True)
    v = f"<{lanes} x {s}>"
    start = [f.splat(s, lanes, f.load(s, f.gep(s, "%bias", r))) for r in range(rows)]
    acc = [[f.var(v, start[r]) for _ in range(vectors)] for r in range(rows)]
    base = [f.gep(s, "%w", f.mul("%w_row", r)) for r in range(rows)]
    steps = [f.mul("%x_step", j) for j in range(vectors * (1 + paired))]
    half = f"<{lanes // 2} x {s}>"
    low, high = (", ".join(f"i32 {h * lanes // 2 + i}" for i in range(lanes // 2)) for h in (0, 1))
    with f.range(0, "%taps") as k:
        ahead = f.gep(s, "%x", f.load("i64", f.gep("i64", f.gep("i64", "%x_offsets", k), AHEAD)))
        for j in range(0, vectors * lanes, 64 // _size(s)):
            f.line(f"call void @llvm.prefetch.p0(ptr {f.gep(s, ahead, j)}, i32 0, i32 3, i32 1)")
        xp = f.gep(s, "%x", f.load("i64", f.gep("i64", "%x_offsets", k)))
        wo = f.load("i64", f.gep("i64", "%w_offsets", k))
        xs = [f.load(half if paired else v, f.gep(s, xp, step), _size(s)) for step in steps]
        if paired:
            both = ", ".join(f"i32 {i}" for i in range(lanes))
            xs = [f.op(f"shufflevector {half} {a}, {half} {b}, <{lanes} x i32> <{both}>")
                  for a, b in zip(xs[::2], xs[1::2], strict=True)]
        for r in range(rows):
            w = f.splat(s, lanes, f.load(s, f.gep(s, base[r], wo)))
            for j in range(vectors):
                f.store(v, f.fmuladd(v, w, xs[j], f.load(v, acc[r][j])), acc[r][j])
            _pin(f, v, acc[r])
    for r in range(rows):
        for j in range(vectors):
            value, row = f.load(v, acc[r][j]), f.mul("%pitch", r)
            if not paired:
                f.store(v, value, f.gep(s, "%out", f.add(row, f.mul("%out_step", j))), _size(s))
                continue
            for h, lane in enumerate((low, high)):
                part = f.op(f"shufflevector {v} {value}, {v} poison, <{lanes // 2} x i32> <{lane}>")
                f.store(half, part, f.gep(s, "%out", f.add(row, f.mul("%out_step", 2 * j + h))), _size(s))
    return f


def _pin(f: Fn, v: str, slots: list[str]) -> None:
    """An empty assembly statement through which the accumulators pass, and which loads do not cross: without it LLVM's
    scheduler loads the weights of all rows first, runs out of registers and spills the accumulators."""
    letter = {"x86_64": "v", "AMD64": "v", "aarch64": "w", "arm64": "w"}.get(platform.machine())
    if letter is None:
        return
    n = len(slots)
    kind = f"{{{', '.join([v] * n)}}}" if n > 1 else v
    constraints = ",".join([f"={letter}"] * n + [str(i) for i in range(n)] + ["~{memory}"])
    values = ", ".join(f"{v} {f.load(v, a)}" for a in slots)
    out = f.op(f'call {kind} asm sideeffect "", "{constraints}"({values})')
    for i, a in enumerate(slots):
        f.store(v, f.op(f"extractvalue {kind} {out}, {i}") if n > 1 else out, a)


def _sums(f: Fn, s: str, lanes: int, vectors: list[str]) -> list[str]:
    """The sum of the lanes of each vector. Vectors go together in groups that fill 16 bytes: the partial sums of a
    group are interleaved first, so that one halving serves them all."""
    g = min(16 // _size(s), lanes)
    v = f"<{lanes} x {s}>"
    if len(vectors) % g or g == 1:
        short = "f32" if s == "float" else "f64"
        return [f.op(f"call reassoc {s} @llvm.vector.reduce.fadd.v{lanes}{short}({s} 0.0, {v} {a})") for a in vectors]

    def mix(a: str, b: str, unit: int) -> str:
        """Per 16 bytes: the lower halves of a and b interleaved by `unit` elements, plus their upper halves."""
        idx: list[list[int]] = [[], []]
        for base in range(0, lanes, g):
            for side in (0, 1):
                for at in range(base + side * g // 2, base + side * g // 2 + g // 2, unit):
                    idx[side] += [*range(at, at + unit), *range(lanes + at, lanes + at + unit)]
        lo, hi = (f.op(f"shufflevector {v} {a}, {v} {b}, <{lanes} x i32> <{', '.join(f'i32 {i}' for i in side)}>")
                  for side in idx)
        return f.op(f"fadd {v} {lo}, {hi}")
    out = []
    for i in range(0, len(vectors), g):
        group, unit = vectors[i:i + g], 1
        while len(group) > 1:
            group = [mix(a, b, unit) for a, b in zip(group[::2], group[1::2], strict=True)]
            unit *= 2
        total, n = group[0], lanes
        while n > g:
            n //= 2
            parts = [f.op(f"shufflevector <{2 * n} x {s}> {total}, <{2 * n} x {s}> poison, "
                          f"<{n} x i32> <{', '.join(f'i32 {j + h * n}' for j in range(n))}>") for h in (0, 1)]
            total = f.op(f"fadd <{n} x {s}> {parts[0]}, {parts[1]}")
        out += [f.op(f"extractelement <{g} x {s}> {total}, i64 {j}") for j in range(g)]
    return out


def _dot(s: str, lanes: int, rows: int, taps: int) -> Fn:
    """out[r * out_row + k] += the sum over blocks b, steps i and lanes p of
    gy[b * y_block + r * y_pitch + i * y_step + p] * x[b * x_block + offsets[k] + i * x_step + p]."""
    f = Fn(f"dot_{rows}_{taps}", [("ptr", "x"), ("i64", "x_block"), ("i64", "x_step"), ("ptr", "offsets"),
                                  ("ptr", "gy"), ("i64", "y_block"), ("i64", "y_pitch"), ("i64", "y_step"),
                                  ("i64", "blocks"),
                                  ("i64", "steps"), ("ptr", "out"), ("i64", "out_row")], internal=True)
    v = f"<{lanes} x {s}>"
    acc = [[f.var(v, "zeroinitializer") for _ in range(taps)] for _ in range(rows)]
    offs = [f.load("i64", f.gep("i64", "%offsets", k)) for k in range(taps)]
    with f.range(0, "%blocks") as b:
        xb = f.gep(s, "%x", f.mul(b, "%x_block"))
        yb = f.gep(s, "%gy", f.mul(b, "%y_block"))
        xr = [f.gep(s, xb, o) for o in offs]
        yr = [f.gep(s, yb, f.mul("%y_pitch", r)) for r in range(rows)]
        xat, yat = f.var("i64", 0), f.var("i64", 0)
        with f.range(0, "%steps"):
            xi, yi = f.load("i64", xat), f.load("i64", yat)
            ys = [f.load(v, f.gep(s, q, yi), _size(s)) for q in yr]
            for k in range(taps):
                x = f.load(v, f.gep(s, xr[k], xi), _size(s))
                for r in range(rows):
                    f.store(v, f.fmuladd(v, ys[r], x, f.load(v, acc[r][k])), acc[r][k])
            f.store("i64", f.add(xi, "%x_step"), xat)
            f.store("i64", f.add(yi, "%y_step"), yat)
    for k in range(taps):
        for r, total in enumerate(_sums(f, s, lanes, [f.load(v, acc[r][k]) for r in range(rows)])):
            at = f.gep(s, f.gep(s, "%out", f.mul("%out_row", r)), k)
            f.store(s, f.op(f"fadd {s} {f.load(s, at)}, {total}"), at)
    return f


def _acquire(f: Fn, n_slots: Value) -> str:
    """Take one of the scratch slots: an atomic bit mask in the table, so that memory stays with few, warm slots."""
    busy = f.gep("i64", "%t", GEOMETRY["busy"])
    bit = f.var("i64", 0)
    with f.repeat_while() as cond:
        old = f.op(f"load atomic i64, ptr {busy} monotonic, align 8")
        free = f.op(f"call i64 @llvm.cttz.i64(i64 {f.op(f'xor i64 {old}, -1')}, i1 false)")
        ok = f.icmp("slt", free, n_slots)
        one = f.op(f"shl i64 1, {f.select(ok, 'i64', free, 0)}")
        new = f.select(ok, "i64", f.op(f"or i64 {old}, {one}"), old)
        pair = f.op(f"cmpxchg ptr {busy}, i64 {old}, i64 {new} acquire monotonic, align 8")
        done = f.op(f"and i1 {ok}, {f.op(f'extractvalue {{i64, i1}} {pair}, 1')}")
        f.store("i64", free, bit)
        cond.append(f.op(f"xor i1 {done}, true"))
    return f.load("i64", bit)


def _release(f: Fn, slot: str) -> None:
    busy = f.gep("i64", "%t", GEOMETRY["busy"])
    mask = f.op(f"xor i64 {f.op(f'shl i64 1, {slot}')}, -1")
    f.op(f"atomicrmw and ptr {busy}, i64 {mask} release")


def _run(s: str, lanes: int, rows: list[tuple[int, int]], kernels: dict[tuple[int, int], Fn], pack: Fn,
         paired: bool) -> Fn:
    """Tasks (image, group, slab): pack the slab, then all output rows of the group, phase by phase."""
    f = Fn("run", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    g = {k: f.word("%t", i) for k, i in RUN.items() if k not in ("busy",)}
    p = {k: f.pointer("%t", RUN[k]) for k in ("x", "w", "y", "scratch", "bias", "phase_table")}
    slot = _acquire(f, g["n_slots"])
    xbuf = f.gep("i8", p["scratch"], f.mul(slot, g["slot_bytes"]))
    ybuf = f.gep(s, xbuf, g["buffer"])
    unit, scatter = f.icmp("eq", g["y_w"], 1), f.icmp("ne", g["y_w"], 1)
    by_rows, by_raster = f.icmp("ne", g["by_rows"], 0), f.icmp("eq", g["by_rows"], 0)
    biased = f.icmp("ne", g["bias"], 0)
    most = max(m for m, _ in rows)
    zeros = f.var(f"[{most} x {s}]", "zeroinitializer")
    with f.range("%begin", "%end") as task:
        chunk, ng = f.urem(task, g["chunks"]), f.udiv(task, g["chunks"])
        group, image = f.urem(ng, g["groups"]), f.udiv(ng, g["groups"])
        x = f.gep(s, p["x"], f.add(f.mul(image, g["x_image"]), f.mul(group, g["x_group"])))
        f.call(pack, "%t", x, xbuf, chunk)
        d0 = f.mul(chunk, g["rows"])
        y0 = f.gep(s, p["y"], f.add(f.add(f.mul(image, g["y_image"]), f.mul(group, g["y_group"])), f.mul(d0, g["y_d"])))
        w0 = f.gep(s, p["w"], f.mul(group, g["w_group"]))
        bias0 = f.gep(s, p["bias"], f.mul(group, g["out_rows"]))
        plane = f.mul(g["qh"], g["qw"])
        with f.range(0, g["phases"]) as phase:
            q = f.gep("i64", p["phase_table"], f.mul(phase, len(PHASE)))
            h = {k: f.word(q, i) for k, i in PHASE.items()}
            xo, wo = f.pointer(q, PHASE["x_offsets"]), f.pointer(q, PHASE["w_offsets"])
            nd = f.smin(g["rows"], f.sub(h["od"], d0))
            span = f.add(f.mul(f.add(f.mul(f.sub(nd, 1), g["qh"]), f.sub(h["oh"], 1)), g["qw"]), h["ow"])
            y1 = f.gep(s, y0, h["base"])
            # by rows: where the middle dimension is 1, the rows lie along the first
            flat = f.icmp("eq", h["oh"], 1)
            outer, inner = f.select(flat, "i64", 1, nd), f.select(flat, "i64", nd, h["oh"])
            x_line, y_line = f.select(flat, "i64", plane, g["qw"]), f.select(flat, "i64", g["y_d"], g["y_h"])
            done: Value = 0
            with f.when(f.icmp("sgt", nd, 0)):
                for m, vectors in rows:
                    upto = f.mul(f.sdiv(g["out_rows"], m), m)
                    with f.range(done, upto, m) as r:
                        w = f.gep(s, w0, f.mul(r, g["w_row"]))
                        b = f.select(biased, "ptr", f.gep(s, bias0, r), zeros)
                        y2 = f.gep(s, y1, f.mul(r, g["y_row"]))
                        together = 1 + paired
                        with (f.when(by_rows), f.range(0, outer) as d,
                              f.range(0, h["ow"], lanes // together) as c):
                            xd = f.gep(s, xbuf, f.add(f.mul(d, plane), c))
                            yd = f.gep(s, y2, f.add(f.mul(d, g["y_d"]), c))
                            at: Value = 0
                            for n in _parts(m, vectors):
                                lines = n * together
                                lo, at = at, f.add(at, f.mul(f.sdiv(f.sub(inner, at), lines), lines))
                                with f.range(lo, at, lines) as i:
                                    f.call(kernels[m, n], f.gep(s, xd, f.mul(i, x_line)), x_line, w, g["w_row"], xo, wo,
                                           h["taps"], b, f.gep(s, yd, f.mul(i, y_line)), y_line, g["y_row"])
                        with f.when("false" if paired else by_raster):
                            whole = f.mul(f.sdiv(f.add(span, lanes - 1), lanes), lanes)
                            at = 0
                            for n in _parts(m, vectors):
                                lo, at = at, f.add(at, f.mul(f.sdiv(f.sub(whole, at), n * lanes), n * lanes))
                                with f.range(lo, at, n * lanes) as i:
                                    f.call(kernels[m, n], f.gep(s, xbuf, i), lanes, w, g["w_row"], xo, wo, h["taps"], b,
                                           f.gep(s, ybuf, i), lanes, g["pitch"])
                            with f.range(0, m) as j, f.range(0, nd) as d, f.range(0, h["oh"]) as i:
                                line = f.mul(f.add(f.mul(d, g["qh"]), i), g["qw"])
                                src = f.gep(s, ybuf, f.add(f.mul(j, g["pitch"]), line))
                                to = f.add(f.mul(d, g["y_d"]), f.mul(i, g["y_h"]))
                                dst = f.gep(s, y2, f.add(f.mul(j, g["y_row"]), to))
                                with f.when(unit):
                                    copy_row(f, s, lanes, src, dst, h["ow"])
                                with f.when(scatter), f.range(0, h["ow"]) as c:
                                    f.store(s, f.load(s, f.gep(s, src, c)), f.gep(s, dst, f.mul(c, g["y_w"])))
                    done = upto
    _release(f, slot)
    return f


def _weight_grad(s: str, lanes: int, dots: dict[tuple[int, int], Fn], pack: Fn) -> Fn:
    """Tasks (range of units, group), a unit being a slab of an image: each adds up its own partial gradient."""
    f = Fn("weight_grad", [("ptr", "t"), ("i64", "begin"), ("i64", "end")])
    g = {k: f.word("%t", i) for k, i in GRAD.items() if k != "busy"}
    p = {k: f.pointer("%t", GRAD[k]) for k in ("x", "gy", "out", "scratch", "offsets")}
    slot = _acquire(f, g["n_slots"])
    xbuf = f.gep("i8", p["scratch"], f.mul(slot, g["slot_bytes"]))
    ybuf = f.gep(s, xbuf, g["y_offset"])
    by_rows, by_raster = f.icmp("ne", g["by_rows"], 0), f.icmp("eq", g["by_rows"], 0)
    with f.range("%begin", "%end") as task:
        group, part = f.urem(task, g["groups"]), f.udiv(task, g["groups"])
        rows_taps = f.mul(g["out_rows"], g["taps"])
        out = f.gep(s, p["out"], f.add(f.mul(part, g["part"]), f.mul(group, rows_taps)))
        f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {f.mul(rows_taps, _size(s))}, i1 false)")
        first = f.mul(part, g["per_task"])
        last = f.smin(f.add(first, g["per_task"]), g["units"])
        with f.range(first, last, g["block"]) as u:
            blocks = f.smin(g["block"], f.sub(last, u))
            with f.when(by_raster):
                ybytes = f.mul(f.mul(blocks, g["y_block"]), _size(s))
                f.line(f"call void @llvm.memset.p0.i64(ptr {ybuf}, i8 0, i64 {ybytes}, i1 false)")
            direct = f.gep(s, p["gy"], f.add(f.mul(u, g["gy_image"]), f.mul(group, g["gy_group"])))
            rasters = f.select(by_rows, "ptr", direct, ybuf)       # by rows gy is read in place
            with f.range(0, blocks) as b:
                image, chunk = f.udiv(f.add(u, b), g["chunks"]), f.urem(f.add(u, b), g["chunks"])
                x = f.gep(s, p["x"], f.add(f.mul(image, g["x_image"]), f.mul(group, g["x_group"])))
                f.call(pack, "%t", x, f.gep(s, xbuf, f.mul(b, g["packed"])), chunk)
                d0 = f.mul(chunk, g["rows"])
                nd = f.smin(g["rows"], f.sub(g["od"], d0))
                gy = f.gep(s, p["gy"], f.add(f.mul(image, g["gy_image"]), f.mul(group, g["gy_group"])))
                yb = f.gep(s, ybuf, f.mul(b, g["y_block"]))
                with (f.when(by_raster), f.range(0, g["out_rows"]) as o, f.range(0, nd) as d,
                      f.range(0, g["oh"]) as i):
                    line = f.add(f.mul(f.add(d0, d), g["oh"]), i)
                    src = f.gep(s, gy, f.add(f.mul(o, g["gy_row"]), f.mul(line, g["ow"])))
                    at = f.add(f.mul(o, g["y_pitch"]), f.mul(f.add(f.mul(d, g["qh"]), i), g["qw"]))
                    copy_row(f, s, lanes, src, f.gep(s, yb, at), g["ow"])
            sizes_o = sorted({o for o, _ in dots}, reverse=True)
            done: Value = 0
            for mo in sizes_o:
                sizes_k = sorted((k for o, k in dots if o == mo), reverse=True)
                upto = f.mul(f.sdiv(g["out_rows"], mo), mo)
                with f.range(done, upto, mo) as o:
                    gy_o = f.gep(s, rasters, f.mul(o, g["y_pitch"]))
                    k0: Value = 0
                    for mk in sizes_k:
                        k1 = f.add(k0, f.mul(f.sdiv(f.sub(g["taps"], k0), mk), mk))
                        with f.range(k0, k1, mk) as k:
                            f.call(dots[mo, mk], xbuf, g["packed"], g["x_step"], f.gep("i64", p["offsets"], k), gy_o,
                                   g["y_block"], g["y_pitch"], g["y_step"], blocks, g["steps"],
                                   f.gep(s, out, f.add(f.mul(o, g["taps"]), k)), g["taps"])
                        k0 = k1
                done = upto
    _release(f, slot)
    return f
