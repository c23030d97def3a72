"""Which loops become one kernel.

`schedule(graph)` puts the loops of a graph (rewrite.py) into groups, in an order in which they can run; products,
updates and operators without a native form keep their places between them. A loop joins an earlier group if everything
it touches of that group's memory is touched at the same element, and if it may be moved there past what lies between
(or the group moved down to it): two nodes may change places when the memory that one writes is not touched by the
other. What a group's loop reads of an earlier loop's result is the expression itself; a temp that nothing else reads is
never written.

A group is one of

    elements    loops over the same elements
    rows        folds along the last dimensions, loops over the rows' elements, and loops over the rows' results: a row
    program columns     folds along leading dimensions

`Group.log` and `Schedule.notes` say what was fused and, where a shared buffer suggested it but it was not done, why.
"""

from __future__ import annotations

from typing import Any

from ..ops import expr as E
from . import scalar
from .graph import Graph, View
from .rewrite import LONG, Loop, loops_of, reshaped, view_name, walked

__all__ = ["Group", "Schedule", "schedule"]

MOST_BUFFERS, MOST_WORK = 24, 600
FLOATS = ("float32", "float64", "float16", "bfloat16")


def _walkable(v: View, start: int) -> bool:
    """Whether the dimensions from `start` on are walked as one."""
    return all(v.strides[d] == v.strides[d + 1] * v.shape[d + 1] for d in range(start, len(v.shape) - 1))


class Group:
    """Loops that are one kernel. `stores`: name -> (view, expression over loads and folds); `folds`: (name, combine,
    expression, dtype), whose names the expressions may read; `split`: how many dimensions of `shape` are the rows'."""

    def __init__(self, loop: Loop) -> None:
        self.mode, self.shape, self.split = "elements", loop.shape, len(loop.shape)
        self.stores: dict[str, tuple[View, E.Expr]] = {}
        self.loads: dict[str, Any] = {}
        self.folds: list[tuple[str, str, E.Expr, str]] = []
        self.axes: tuple[int, ...] = ()
        self.compute = ""
        self.ops: list[str] = []
        if loop.fold is not None:
            axes = loop.fold[1]
            self.axes = axes
            if axes[-1] == len(loop.shape) - 1:
                self.mode, self.split = "rows", axes[0]
            else:
                self.mode = "columns"
        self._take(loop)

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def rows(self) -> int:
        n = 1
        for s in self.shape[: self.split]:
            n *= s
        return n

    @property
    def reads(self) -> list[View]:
        return [v for v in self.loads.values() if isinstance(v, View)]

    @property
    def written(self) -> list[View]:
        return [v for v, _ in self.stores.values()]

    def __repr__(self) -> str:
        return f"{self.mode}{list(self.shape)}: {'+'.join(self.ops)}"

    # --- joining ----------------------------------------------------------------------------------------------------
    def join(self, loop: Loop) -> str | None:
        """Take a loop in. The reason if that cannot be."""
        if loop.compute in FLOATS and self.compute in FLOATS and loop.compute != self.compute:
            return f"computes in {loop.compute}, not {self.compute}"
        if self.mode == "columns":
            if loop.fold is None or loop.fold[1] != self.axes or loop.shape != self.shape:
                return "a fold of columns takes only its like"
            if any(r.conflicts(v) for r in loop.reads for v in self.written):
                return "a fold of columns that reads what another one makes"
            new: Loop | str = loop
        else:
            new = self._fit(loop)
        if isinstance(new, str):
            return new
        for r in new.reads:
            for v, _ in self.stores.values():
                if r.buffer is v.buffer and r.conflicts(v) and view_name(r) != view_name(v):
                    return "reads other elements than were written"
        for w, _ in new.stores:
            name = view_name(w)
            for v in (*self.written, *self.reads):
                if w.buffer is v.buffer and w.conflicts(v) and name != view_name(v):
                    return "writes other elements than are touched"
        if len({*self.loads, *self.stores, *new.loads, *map(view_name, new.written)}) > MOST_BUFFERS:
            return f"more than {MOST_BUFFERS} buffers"
        if (
            scalar.weight(
                [*(e for _, e in self.stores.values()), *(f[2] for f in self.folds), *(e for _, e in new.stores)]
            )
            > MOST_WORK
        ):
            return "too much work for one kernel"
        if new.fold is not None and self.mode == "elements":
            self.mode, self.split, self.axes = "rows", new.fold[1][0], new.fold[1]
        self._take(new)
        return None

    def _fit(self, loop: Loop) -> Loop | str:
        """The loop in this group's space."""
        if loop.fold is None:
            if self.mode == "elements":
                new = loop.in_shape(self.shape)
                if new is None and loop.size == self.size and self._reshape(loop.shape):
                    new = loop
                return new or f"another shape: {list(loop.shape)}"
            new = loop.in_shape(self.shape)
            if new is not None:
                if not all(_walkable(v, self.split) for v in (*new.reads, *new.written)):
                    return "rows that are not walked in one step"
                return new
            row = loop.in_shape(self.shape[: self.split])
            if row is None:
                return f"another shape: {list(loop.shape)}"
            tail = (0,) * (len(self.shape) - self.split)

            def wide(v: View) -> View:
                return View(v.buffer, v.dtype, self.shape, v.strides + tail, v.offset)

            return row.mapped(
                self.shape,
                {k: wide(v) for k, v in row.loads.items() if isinstance(v, View)},
                [wide(v) for v in row.written],
            )
        axes = loop.fold[1]
        if axes[-1] != len(loop.shape) - 1:
            return "folds columns"
        if self.mode == "rows":
            return loop if loop.shape == self.shape and axes == self.axes else "folds other rows"
        if loop.size != self.size:
            return f"another shape: {list(loop.shape)}"
        rows = 1
        for n in loop.shape[: axes[0]]:
            rows *= n
        if rows < 16 and loop.size > LONG:
            return "a long fold with few results keeps to itself"
        if loop.shape != self.shape and not self._reshape(loop.shape):
            return f"another shape: {list(loop.shape)}"
        if not all(_walkable(v, axes[0]) for v in (*self.reads, *self.written, *loop.reads)):
            return "rows that are not walked in one step"
        return loop

    def _reshape(self, shape: tuple[int, ...]) -> bool:
        names: dict[str, E.Expr] = {}
        loads: dict[str, Any] = {}
        for n, v in self.loads.items():
            if isinstance(v, View):
                r = reshaped(v, shape)
                if r is None:
                    return False
                names[n] = E.arg(view_name(r))
                loads[view_name(r)] = r
            else:
                loads[n] = v
        stores = {}
        for v, e in self.stores.values():
            r = reshaped(v, shape)
            if r is None:
                return False
            stores[view_name(r)] = (r, E.substitute(e, names))
        self.shape, self.split, self.loads, self.stores = shape, len(shape), loads, stores
        return True

    def _take(self, loop: Loop) -> None:
        values = {n: self.stores[n][1] for n in loop.loads if n in self.stores}
        stores = []
        for v, e in loop.stores:
            e = E.substitute(e, values) if values else e
            if loop.fold is not None:
                combine, _, finish = loop.fold
                name = f"$r{len(self.folds)}"
                self.folds.append((name, combine, e, loop.compute))
                e = E.arg(name) if finish is None else E.substitute(finish, {"$s": E.arg(name)})
                if v.dtype.name != loop.compute:
                    e = E.cast(e, v.dtype.name)
            elif v.dtype.name in ("float16", "bfloat16"):
                e = E.cast(e, v.dtype.name)
            stores.append((view_name(v), v, e))
        for name, v, e in stores:
            self.stores[name] = (v, e)
        for n, v in loop.loads.items():
            if n not in values:
                self.loads[n] = v
        if loop.compute in FLOATS or not self.compute:
            self.compute = loop.compute
        self.ops += loop.ops

    def roots(self) -> list[E.Expr]:
        return [*(e for _, e in self.stores.values()), *(f[2] for f in self.folds)]

    def prune(self, needed: set[str]) -> None:
        """Keep only the stores named, and what they read."""
        self.stores = {k: v for k, v in self.stores.items() if k in needed}
        keep: set[str] = set()
        todo = [e for _, e in self.stores.values()]
        folds = {f[0]: f for f in self.folds}
        used: set[str] = set()
        while todo:
            for n in E.inputs_of(*todo):
                (used if n in folds else keep).add(n)
            todo = [folds[n][2] for n in used if n in folds]
            for n in list(used):
                folds.pop(n, None)
        self.folds = [f for f in self.folds if f[0] in used]
        self.loads = {k: v for k, v in self.loads.items() if k in keep}


class Schedule:
    """`items`: groups and steps, in order; `notes`: index of an item -> why it was not fused with what came before."""

    def __init__(self, items: list[Any], notes: dict[int, list[str]]) -> None:
        self.items, self.notes = items, notes


class _Places:
    """Which buffers an item reads and writes, to see quickly whether two may change places."""

    __slots__ = ("item", "reads", "writes")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.refresh()

    def refresh(self) -> None:
        self.reads: dict[int, list[View]] = {}
        self.writes: dict[int, list[View]] = {}
        for v in self.item.reads:
            self.reads.setdefault(v.buffer.id, []).append(v)
        for v in self.item.written:
            self.writes.setdefault(v.buffer.id, []).append(v)

    def blocks(self, other: _Places) -> bool:
        return _meet(self.writes, other.reads) or _meet(self.writes, other.writes) or _meet(self.reads, other.writes)


def _meet(a: dict[int, list[View]], b: dict[int, list[View]]) -> bool:
    if len(b) < len(a):
        a, b = b, a
    return any(k in b and any(x.conflicts(y) for x in vs for y in b[k]) for k, vs in a.items())


def schedule(graph: Graph) -> Schedule:
    """Loops fused greedily, in program order; temps that nothing reads afterwards are not written."""
    items: list[_Places] = []
    reasons: dict[int, list[str]] = {}
    for node in _inlined(loops_of(graph)):
        if not isinstance(node, Loop):
            items.append(_Places(node))
            continue
        mine = _Places(node)
        touched = {*mine.reads, *mine.writes}
        why: list[str] = []
        joined = False
        clear = True  # the loop may move up past everything seen so far
        for k in range(len(items) - 1, -1, -1):
            at = items[k]
            g = at.item
            if isinstance(g, Group) and (not touched.isdisjoint(at.reads) or not touched.isdisjoint(at.writes)):
                if clear or not any(at.blocks(x) for x in items[k + 1 :]):
                    no = g.join(node)
                    if no is None:
                        at.refresh()
                        if not clear:
                            items.append(items.pop(k))
                        joined = True
                        break
                    if at.blocks(mine):
                        why.append(f"not with {'+'.join(g.ops[-2:])}: {no}")
                elif at.blocks(mine):
                    why.append(f"not with {'+'.join(g.ops[-2:])}: something between needs it, or is needed")
            if clear and at.blocks(mine):
                clear = False
        if not joined:
            new = _Places(Group(node))
            reasons[id(new.item)] = why
            items.append(new)
    out = _drop_dead([x.item for x in items])
    return Schedule(out, {i: reasons[id(x)] for i, x in enumerate(out) if id(x) in reasons and reasons[id(x)]})


def _inlined(nodes: list[Any]) -> list[Any]:
    """A loop whose only result is only read, element by element, by one fold of columns becomes part of that fold."""
    readers: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for i, n in enumerate(nodes):
        for v in n.reads:
            readers.setdefault(v.buffer.id, []).append(i)
        for v in n.written:
            writers.setdefault(v.buffer.id, []).append(i)
    gone: set[int] = set()
    for i, n in enumerate(nodes):
        if not isinstance(n, Loop) or n.fold is None or n.fold[1][-1] == len(n.shape) - 1:
            continue
        again = True
        while again:
            again = False
            for name, v in list(n.loads.items()):
                if (
                    not isinstance(v, View)
                    or v.buffer.kind != "temp"
                    or len(writers.get(v.buffer.id, [])) != 1
                    or readers[v.buffer.id] != [i]
                ):
                    continue
                j = writers[v.buffer.id][0]
                p = nodes[j]
                if (
                    not isinstance(p, Loop)
                    or p.fold is not None
                    or len(p.stores) != 1
                    or j in gone
                    or p.compute != n.compute
                ):
                    continue
                assert n.fold is not None
                p = p.in_shape(n.shape)
                if p is None or view_name(p.stores[0][0]) != name or not all(walked(v, n.fold[1]) for v in p.reads):
                    continue
                if any(
                    j < k < i and any(r.conflicts(w) for w in nodes[k].written for r in p.reads)
                    for k in range(j + 1, i)
                ):
                    continue
                ((to, e),) = n.stores
                if len({*p.loads, *n.loads}) > 12:
                    continue
                loads = {k: x for k, x in n.loads.items() if k != name} | p.loads
                n = nodes[i] = Loop(
                    n.shape, [(to, E.substitute(e, {name: p.stores[0][1]}))], loads, n.compute, [*p.ops, *n.ops], n.fold
                )
                for x in p.reads:
                    readers[x.buffer.id] = [i if k == j else k for k in readers[x.buffer.id]]
                gone.add(j)
                again = True
                break
    return [n for i, n in enumerate(nodes) if i not in gone]


def _drop_dead(items: list[Any]) -> list[Any]:
    """Backwards: a store on a temp is kept if something later reads that memory."""
    live: dict[int, list[View]] = {}
    out: list[Any] = []
    for item in reversed(items):
        if isinstance(item, Group):
            needed = {
                n
                for n, (v, _) in item.stores.items()
                if v.buffer.kind != "temp" or any(v.conflicts(r) for r in live.get(v.buffer.id, ()))
            }
            if not needed:
                continue
            if len(needed) < len(item.stores):
                item.prune(needed)
        out.append(item)
        for v in item.reads:
            live.setdefault(v.buffer.id, []).append(v)
    out.reverse()
    return out
