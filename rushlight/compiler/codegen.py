"""From groups of loops to kernels: what `llvm.Module` is asked to write, and how a call of it looks.

`kernel_of(group, temp)` plans one kernel: its buffers, sizes and strides, and for a row program its stages. Everything
that the caller needs (words, grid, pieces of parallel work) is known without writing a line of code, so that a step
whose object code is cached is laid out without the emitter. `KernelPlan.key` is equal for kernels that may share their
code: only pointers and numbers are not built in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ops import expr as E
from . import scalar
from .entry import grain_of
from .graph import Buffer, Scalar, View
from .kernels import describe
from .llvm import Buffer as KBuffer
from .llvm import Compute, Flag, Kernel, Module, Pass, Put, Reduce, Take, collapse
from .nest import Columns
from .schedule import Group

__all__ = ["KernelPlan", "Unsupported", "kernel_of"]

# from this weight on a value is kept for a later sweep of the row, not computed again
HEAVY = 12


class Unsupported(Exception):
    """No kernel can be made of this group as it is."""


class KernelPlan:
    """One kernel and one call of it.

    `pointers`: (buffer, byte offset) for each of the kernel's buffers; `values`: what its scalars are at run time."""

    def __init__(
        self,
        method: str,
        buffers: Sequence[KBuffer],
        pointers: Sequence[tuple[Buffer, int]],
        sizes: Sequence[int],
        strides: Mapping[str, Sequence[int]],
        body: Any,
        scalars: Sequence[tuple[str, str]] = (),
        values: Sequence[Scalar] = (),
        compute: str = "float32",
    ) -> None:
        self.method, self.buffers, self.pointers = method, tuple(buffers), list(pointers)
        self.sizes, self.strides, self.body = list(sizes), {k: list(v) for k, v in strides.items()}, body
        self.scalars, self.values, self.compute = tuple(scalars), list(values), compute
        self.key = "|".join(
            (
                method,
                ",".join(
                    f"{b.name}:{b.dtype}:{b.inner}:{'.'.join(map(str, self.strides[b.name]))}" for b in self.buffers
                ),
                ".".join(map(str, self.sizes)),
                ",".join(f"{n}:{d}" for n, d in self.scalars),
                compute,
                _text(method, body),
            )
        )
        self.symbol = ""

    # --- what the words of a call are, as `llvm.Kernel` lays them out
    @property
    def rank(self) -> int:
        return len(self.sizes)

    def kernel(self) -> Kernel:
        kind = {"pointwise": "elements", "row": "rows", "columns": "columns"}[self.method]
        return Kernel(
            self.symbol,
            kind,
            self.buffers,
            self.rank,
            self.scalars,
            self.cost,
            Columns.TILE if kind == "columns" else 0,
        )

    @property
    def cost(self) -> int:
        if self.method == "pointwise":
            return scalar.weight(map(E.const, self.body.values())) + 1
        if self.method == "columns":
            return scalar.weight([r.expr for r in self.body[1]]) + 1
        return sum(
            scalar.weight([*map(E.const, st.stores.values()), *(r.expr for r in st.reduces)]) + 1
            for st in self.body
            if isinstance(st, Pass)
        )

    @property
    def elements(self) -> int:
        n = 1
        for s in self.sizes:
            n *= s
        return n

    def grid(self) -> tuple[int, int]:
        """(extent of the grid, grain of parallel work; 0: not worth a thread)."""
        k = self.kernel()
        grid, grain, elements = k.grid(self.sizes), grain_of(k.cost), self.elements
        if elements <= 2 * grain or grid <= 1:
            return grid, 0
        if self.method == "row":
            grain = max(1, grain * grid // elements)
        elif self.method == "columns":
            grain = 1
        return grid, grain

    def words(self) -> list[int]:
        """The words of a call, pointers and scalars zero."""
        flat = [x for b in self.buffers for x in self.strides[b.name]]
        return [0] * len(self.buffers) + self.sizes + flat + [0] * len(self.scalars)

    def emit(self, m: Module) -> Kernel:
        args: dict[str, Any] = {
            "rank": self.rank,
            "scalars": self.scalars,
            "compute": self.compute,
            "sizes": self.sizes,
            "strides": self.strides,
        }
        if self.method == "pointwise":
            return m.pointwise(self.symbol, self.body, self.buffers, **args)
        if self.method == "row":
            return m.row(self.symbol, self.buffers, self.body, **args)
        return m.columns(self.symbol, self.body[0], self.body[1], self.buffers, **args)


def _text(method: str, body: Any) -> str:
    if method == "pointwise":
        return describe(body)
    if method == "columns":
        return (
            describe(body[0])
            + "/"
            + describe({r.name: r.expr for r in body[1]})
            + "/"
            + ",".join(f"{r.name}:{r.op}:{r.dtype}:{r.result}" for r in body[1])
        )
    out = []
    for st in body:
        if isinstance(st, Pass):
            roots = {**{f"={k}": E.const(e) for k, e in st.stores.items()}, **{r.name: r.expr for r in st.reduces}}
            out.append(f"P{describe(roots)}/" + ",".join(f"{r.name}:{r.op}:{r.dtype}:{r.result}" for r in st.reduces))
        elif isinstance(st, Compute):
            out.append("C" + describe(st.values))
        elif isinstance(st, Put):
            out.append("O" + describe(st.stores))
        elif isinstance(st, Take):
            out.append(f"T{st.name}:{st.buffer}" + describe({"i": st.index}))
        elif isinstance(st, Flag):
            out.append(f"F{st.buffer}" + describe({"c": st.condition}))
    return ";".join(out)


# --- groups -----------------------------------------------------------------------------------------------------------
def kernel_of(group: Group, temp: Callable[[np.dtype, tuple[int, ...]], View]) -> KernelPlan:
    """The kernel of a group; `temp(dtype, shape)` makes memory for values that wait between sweeps. `Unsupported` if
    there is none."""
    if group.mode == "elements":
        return _elements(group)
    return _rows(group, temp) if group.mode == "rows" else _columns(group)


class _Names:
    """Buffers and scalars of a kernel by position, so that equal kernels read equal."""

    def __init__(self, group: Group) -> None:
        self.views: dict[str, View] = {}
        self.scalars: dict[str, Scalar] = {}
        self.new: dict[str, E.Expr] = {}
        for n in E.inputs_of(*group.roots()):
            self.load(n, group.loads.get(n))
        for n, (v, _) in group.stores.items():
            self.load(n, v)

    def load(self, n: str, v: Any) -> None:
        if n in self.new or v is None:
            return
        if isinstance(v, View):
            self.views[n] = v
            self.new[n] = E.arg(f"b{len(self.views) - 1}")
        else:
            self.scalars[n] = v
            self.new[n] = E.arg(f"s{len(self.scalars) - 1}")

    def __getitem__(self, n: str) -> str:
        return self.new[n].args[0]


def _float(compute: str) -> str:
    return compute if compute in ("float32", "float64") else "float32"


def _elements(g: Group) -> KernelPlan:
    names = _Names(g)
    views = list(names.views.values())
    lead = next(iter(g.stores.values()))[0]
    order = sorted(range(len(g.shape)), key=lambda d: -abs(lead.strides[d]))
    sizes, strides = collapse(
        [g.shape[d] for d in order], [[v.strides[d] // v.dtype.itemsize for d in order] for v in views]
    )
    buffers = []
    for (n, v), s in zip(names.views.items(), strides, strict=True):
        buffers.append(
            KBuffer(names[n], v.dtype.name, "1" if s[-1] == 1 else "0" if s[-1] == 0 and n not in g.stores else "s")
        )
    compute = g.compute
    body = {names[n]: E.substitute(e, names.new) for n, (_, e) in g.stores.items()}
    return KernelPlan(
        "pointwise",
        buffers,
        [(v.buffer, v.offset) for v in views],
        sizes,
        {b.name: s for b, s in zip(buffers, strides, strict=True)},
        body,
        [(names[n], _float(compute)) for n in names.scalars],
        list(names.scalars.values()),
        compute,
    )


def _columns(g: Group) -> KernelPlan:
    names = _Names(g)
    views = list(names.views.values())
    a, b = g.axes[0], g.axes[-1] + 1
    nd = len(g.shape)
    first = b  # the kept dimensions that are walked as one, at the end
    for k in range(nd - 2, b - 1, -1):
        if not all(v.strides[k] == v.strides[k + 1] * g.shape[k + 1] for v in views):
            first = k + 1
            break
    if not all(v.strides[d] == v.strides[d + 1] * g.shape[d + 1] for v in views for d in range(a, b - 1)):
        raise Unsupported("columns that are not walked in one step")
    outer = [*range(a), *range(b, first)]
    sizes = [g.shape[d] for d in outer] + [_product(g.shape[a:b]), _product(g.shape[first:])]
    strides, buffers = {}, []
    for n, v in names.views.items():
        item = v.dtype.itemsize
        s = [v.strides[d] // item for d in (*outer, b - 1, nd - 1)]
        name = names[n]
        strides[name] = s
        buffers.append(
            KBuffer(
                name,
                v.dtype.name,
                "1" if s[-1] == 1 or sizes[-1] == 1 else "0" if s[-1] == 0 and n not in g.stores else "s",
            )
        )
    new = {**names.new, **{f[0]: E.arg(f"r{i}") for i, f in enumerate(g.folds)}}
    reduces = [Reduce(f"r{i}", op, E.substitute(e, new), d) for i, (_, op, e, d) in enumerate(g.folds)]
    outputs = {names[n]: E.substitute(e, new) for n, (_, e) in g.stores.items()}
    return KernelPlan(
        "columns",
        buffers,
        [(v.buffer, v.offset) for v in views],
        sizes,
        strides,
        (outputs, reduces),
        [(names[n], _float(g.compute)) for n in names.scalars],
        list(names.scalars.values()),
        g.compute,
    )


def _product(sizes: Sequence[int]) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


class _Levels:
    """For the nodes of a row program: in which sweep of the row they can be computed, and whether they have one value a
    row."""

    def __init__(self, g: Group) -> None:
        self.g = g
        self.level: dict[int, int] = {}
        self.one: dict[int, bool] = {}
        self.folds: dict[str, int] = {}
        for name, _, e, _ in g.folds:
            self.folds[name] = self.of(e)

    def of(self, root: E.Expr) -> int:
        for n in E.postorder(root):
            if id(n) in self.level:
                continue
            if n.op == "arg":
                name = n.args[0]
                v = self.g.loads.get(name)
                self.level[id(n)] = self.folds[name] + 1 if name in self.folds else 0
                self.one[id(n)] = not isinstance(v, View) or not any(v.strides[self.g.split :])
            else:
                args = [a for a in n.args if isinstance(a, E.Expr)]
                self.level[id(n)] = max([self.level[id(a)] for a in args], default=0)
                self.one[id(n)] = all(self.one[id(a)] for a in args)
        return self.level[id(root)]


def _rebuild(root: E.Expr, change: Callable[[E.Expr], E.Expr | None]) -> E.Expr:
    """`root` with nodes replaced where `change` gives something, from the root down."""
    done: dict[int, E.Expr] = {}
    todo = [root]
    while todo:
        n = todo[-1]
        if id(n) in done:
            todo.pop()
            continue
        c = change(n)
        if c is not None or n.op in ("arg", "const"):
            done[id(n)] = n if c is None else c
            todo.pop()
            continue
        wait = [a for a in n.args if isinstance(a, E.Expr) and id(a) not in done]
        if wait:
            todo += wait
            continue
        done[id(n)] = E.Expr(n.op, *[done[id(a)] if isinstance(a, E.Expr) else a for a in n.args])
        todo.pop()
    return done[id(root)]


def _rows(g: Group, temp: Callable[[np.dtype, tuple[int, ...]], View]) -> KernelPlan:
    lv = _Levels(g)
    full: list[tuple[str, E.Expr, int]] = []  # stores of elements: name, expression, sweep
    single: list[tuple[str, E.Expr]] = []  # stores of one value a row
    read = set(E.inputs_of(*g.roots()))
    last = max([*lv.folds.values(), *(lv.of(e) for v, e in g.stores.values() if any(v.strides[g.split :]))], default=0)
    for n, (v, e) in g.stores.items():
        if any(v.strides[g.split :]):
            full.append((n, e, last if n in read else lv.of(e)))
        else:
            lv.of(e)
            if not lv.one[id(e)]:
                raise Unsupported("a value of the elements stored once a row")
            single.append((n, e))
    # values that are dear and wanted by a later sweep wait in memory
    made: dict[int, int] = {}
    waits: dict[int, str] = {}
    extra: dict[int, list[tuple[str, E.Expr]]] = {}
    # in order: the text of a kernel, and so its key in the cache, must not depend on the process
    free = dict.fromkeys(n for n, _, p in full if n not in read and p == last and g.stores[n][0].dtype.name == g.compute)
    users: dict[int, list[tuple[str, E.Expr, int]]] = {}
    for n, e, p in full:
        users.setdefault(p, []).append((n, e, p))
    folds = {f[0]: f for f in g.folds}
    maps: dict[str, E.Expr] = {}
    weights: dict[int, int] = {}

    def keep(root: E.Expr, sweep: int) -> E.Expr:
        def change(n: E.Expr) -> E.Expr | None:
            if n.op in ("arg", "const") or lv.one[id(n)] or made.get(id(n), sweep) >= sweep:
                return None
            if id(n) not in weights:
                weights[id(n)] = scalar.weight([n])
            if (
                weights[id(n)] < HEAVY
                or g.compute not in ("float32", "float64")
                or n.op == "cast"
                or E.PRIMITIVES[n.op].result == "bool"
            ):
                return None
            if id(n) not in waits:
                place = next(iter(free), None) if sweep == last else None
                if place is None:
                    v = temp(np.dtype(g.compute), g.shape)
                    place = f"$w{len(waits)}"
                    g.stores[place] = (v, n)
                else:
                    del free[place]
                waits[id(n)] = place
                extra.setdefault(made[id(n)], []).append((place, n))
            return E.arg(waits[id(n)])

        lv.of(root)
        return _rebuild(root, change)

    stores: dict[int, list[tuple[str, E.Expr]]] = {}
    for p in range(last + 1):
        roots = []
        for n, e, _ in users.get(p, []):
            roots.append(e)
            stores.setdefault(p, []).append((n, keep(e, p)))
        for name, q in lv.folds.items():
            if q == p:
                roots.append(folds[name][2])
                maps[name] = keep(folds[name][2], p)
        for r in roots:
            for x in E.postorder(r):
                made.setdefault(id(x), p)
    for p, more in extra.items():
        stores[p] = [*more, *stores.get(p, [])]
    # waiting values are written again by a sweep before the last if their place is a result's: the last store wins
    names = _Names(g)
    for n, (v, _) in g.stores.items():
        names.load(n, v)
    new = {**names.new, **{f[0]: E.arg(f"r{i}") for i, f in enumerate(g.folds)}}
    computed: dict[int, str] = {}
    computes: dict[int, dict[str, E.Expr]] = {}
    # what has one value a row is computed once a row
    lv2 = _Levels.__new__(_Levels)
    lv2.g, lv2.level, lv2.one, lv2.folds = g, dict(lv.level), dict(lv.one), lv.folds
    for place in waits.values():
        a = E.arg(place)
        lv2.level[id(a)], lv2.one[id(a)] = 0, False

    def lifted(root: E.Expr) -> E.Expr:
        def change(n: E.Expr) -> E.Expr | None:
            if n.op in ("arg", "const") or not lv2.one[id(n)] or not E.inputs_of(n):
                return None
            name = computed.get(id(n))
            if name is None:
                name = computed[id(n)] = f"c{len(computed)}"
                computes.setdefault(lv2.level[id(n)], {})[name] = E.substitute(n, new)
            return E.arg(name)

        lv2.of(root)
        return E.substitute(_rebuild(root, change), new)

    passes: list[Pass] = []
    for p in range(last + 1):
        reduces = [
            Reduce(new[n].args[0], folds[n][1], lifted(maps[n]), folds[n][3]) for n, q in lv.folds.items() if q == p
        ]
        passes.append(Pass({names[n]: lifted(e) for n, e in stores.get(p, [])}, tuple(reduces)))
    puts = {names[n]: lifted(e) for n, e in single}
    stages: list[Any] = []
    for p in range(max([last, *computes]) + 1):
        if p in computes:
            stages.append(Compute(computes[p]))
        if p <= last:
            stages.append(passes[p])
    if puts:
        stages.append(Put(puts))
    return _row_plan(g, names, stages)


def _row_plan(g: Group, names: _Names, stages: list[Any]) -> KernelPlan:
    views = list(names.views.values())
    rows = g.shape[: g.split]
    n = _product(g.shape[g.split :])
    sizes, strides = collapse(rows, [[s // v.dtype.itemsize for s in v.strides[: g.split]] for v in views])
    buffers, all_strides = [], {}
    for (name, v), s in zip(names.views.items(), strides, strict=True):
        inner = v.strides[-1] // v.dtype.itemsize if g.split < len(g.shape) else 0
        flat = not any(v.strides[g.split :])
        buffers.append(KBuffer(names[name], v.dtype.name, "0" if flat else "1" if inner == 1 else "s"))
        # a single row has no stride of its own
        all_strides[names[name]] = [*(s if rows and _product(rows) > 1 else [0]), 0 if flat else inner]
    return KernelPlan(
        "row",
        buffers,
        [(v.buffer, v.offset) for v in views],
        [*sizes, n],
        all_strides,
        stages,
        [(names[n], _float(g.compute)) for n in names.scalars],
        list(names.scalars.values()),
        g.compute,
    )
