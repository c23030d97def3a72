"""From the steps of a graph to loops: the form that the scheduler fuses.

`loops_of(graph)` gives nodes in program order. A `Loop` is an iteration space (dimensions of extent 1 dropped) with
loads and stores that all have its shape: broadcasting is a stride of 0, and so is the result of a fold along the
dimensions that it reduces. Loads are named by what they read (`view_name`), so equal reads are one read and expressions
can be exchanged between loops. Everything else (products, updates, operators without a native form) stays a `Step`.

What is rewritten on the way: constants and small casts are taken into the expressions that read them; a copy into a
result is left out where its source can be made in the result's place; the bias of a product becomes a loop of its own;
folds over dimensions that do not lie together, and long folds with few results, are made in two."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import expr as E
from . import scalar
from .graph import Buffer, Graph, Scalar, Step, View

__all__ = ["Loop", "loops_of", "reshaped", "view_name", "walked"]

COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
LONG = 1 << 16  # a fold over more elements than these should occupy several threads


class Loop:
    """`stores`: (view, expression) pairs; `loads`: name -> View, or Scalar; `fold`: None, or (combine, axes, finish):
    the only store's expression is then what is folded, along `axes`, in which that view has stride 0."""

    __slots__ = ("shape", "stores", "loads", "fold", "compute", "ops")

    def __init__(
        self,
        shape: tuple[int, ...],
        stores: list[tuple[View, E.Expr]],
        loads: dict[str, Any],
        compute: str,
        ops: list[str],
        fold: tuple[str, tuple[int, ...], E.Expr | None] | None = None,
    ) -> None:
        self.shape, self.stores, self.loads, self.compute, self.ops, self.fold = (
            shape,
            stores,
            loads,
            compute,
            ops,
            fold,
        )

    @property
    def reads(self) -> list[View]:
        return [v for v in self.loads.values() if isinstance(v, View)]

    @property
    def written(self) -> list[View]:
        return [v for v, _ in self.stores]

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    def mapped(self, shape: tuple[int, ...], views: dict[str, View], targets: list[View]) -> Loop:
        """The same loop over another description of its iteration space: `views` by the loads' old names."""
        names: dict[str, E.Expr] = {}
        loads: dict[str, Any] = {}
        for n, v in self.loads.items():
            if n in views:
                new = view_name(views[n])
                loads[new] = views[n]
                if new != n:
                    names[n] = E.arg(new)
            else:
                loads[n] = v
        stores = [(t, E.substitute(e, names) if names else e) for t, (_, e) in zip(targets, self.stores, strict=True)]
        return Loop(shape, stores, loads, self.compute, self.ops, self.fold)

    def in_shape(self, shape: tuple[int, ...]) -> Loop | None:
        """The loop (without a fold) over `shape`, None where a view cannot be walked so."""
        if shape == self.shape:
            return self
        views = {}
        for n, v in self.loads.items():
            if isinstance(v, View):
                r = reshaped(v, shape)
                if r is None:
                    return None
                views[n] = r
        targets = []
        for v, _ in self.stores:
            r = reshaped(v, shape)
            if r is None:
                return None
            targets.append(r)
        return self.mapped(shape, views, targets)

    def __repr__(self) -> str:
        return f"{'+'.join(self.ops)}{list(self.shape)}"


# --- views ------------------------------------------------------------------------------------------------------------
def view_name(v: View) -> str:
    """A name that is equal for equal views of one iteration space."""
    return f"b{v.buffer.id}.{v.offset}.{'.'.join(map(str, v.strides))}.{v.dtype.name}"


def reshaped(v: View, shape: tuple[int, ...]) -> View | None:
    """The view with other dimensions over the same elements in the same order, None if strides cannot say it."""
    if v.shape == shape:
        return v
    strides: list[int] = []
    i = j = 0
    old, steps = v.shape, v.strides
    while i < len(old) and j < len(shape):
        a, b, i1, j1 = old[i], shape[j], i + 1, j + 1
        while a != b:
            if a < b:
                if i1 == len(old):
                    return None
                a, i1 = a * old[i1], i1 + 1
            else:
                if j1 == len(shape):
                    return None
                b, j1 = b * shape[j1], j1 + 1
        for k in range(i, i1 - 1):
            if steps[k] != steps[k + 1] * old[k + 1]:
                return None
        s, part = steps[i1 - 1], []
        for k in range(j1 - 1, j - 1, -1):
            part.append(s)
            s *= shape[k]
        strides += reversed(part)
        i, j = i1, j1
    if i != len(old) or j != len(shape):
        return None
    return View(v.buffer, v.dtype, shape, tuple(strides), v.offset)


def spread(v: View, shape: tuple[int, ...]) -> View:
    """Broadcast to `shape`, without the dimensions in which `shape` has extent 1."""
    lead = len(shape) - len(v.shape)
    strides = [0] * lead + [0 if n == 1 else s for n, s in zip(v.shape, v.strides, strict=True)]
    keep = [d for d, n in enumerate(shape) if n != 1]
    return View(v.buffer, v.dtype, tuple([shape[d] for d in keep]), tuple([strides[d] for d in keep]), v.offset)


def row_major(buffer: Buffer, dtype: np.dtype, shape: tuple[int, ...]) -> View:
    strides, s = [], dtype.itemsize
    for n in reversed(shape):
        strides.append(s)
        s *= n
    return View(buffer, dtype, shape, tuple(reversed(strides)), 0)


# --- steps to loops ---------------------------------------------------------------------------------------------------
def native_dtypes(views: list[View]) -> bool:
    return all(
        v.dtype.name in scalar.MEMORY and v.dtype.isnative and all(s % v.dtype.itemsize == 0 for s in v.strides)
        for v in views
    )


def native_expr(root: E.Expr, compute: str) -> bool:
    for n in E.postorder(root):
        if n.op == "cast":
            if n.args[1] not in scalar.MEMORY and n.args[1] != "compute":
                return False
        elif n.op == "const":
            if isinstance(n.args[0], complex):
                return False
        elif n.op != "arg" and not scalar.has_native(n.op, compute) and n.op not in scalar._BITS:
            return False
    return True


class Rewriter:
    """Turns steps into nodes; `graph` gets the buffers that are made on the way."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Any] = []

    def temp(self, dtype: np.dtype, shape: tuple[int, ...]) -> View:
        n = dtype.itemsize
        for s in shape:
            n *= s
        b = Buffer(len(self.graph.buffers), n, "temp")
        self.graph.buffers.append(b)
        return row_major(b, dtype, shape)

    def run(self) -> list[Any]:
        for s in self.graph.steps:
            if any(v.size == 0 for v in s.outputs) and s.kind in ("pointwise", "copy", "fill"):
                continue
            f = getattr(self, "_" + s.kind, None)
            node = f(s) if f is not None else None
            if node is None:
                self.nodes.append(s)
            else:
                self.nodes += node
        nodes = _common(_inline_cheap(_inline_constants(self.nodes)))
        split: list[Any] = []
        for n in nodes:
            split += self._split(n) if isinstance(n, Loop) and n.fold is not None else [n]
        return _forward_copies(split)

    def _pointwise(self, s: Step) -> list[Loop] | None:
        shape, compute = s.data["shape"], s.data["compute"]
        views = [v for v in s.inputs.values() if isinstance(v, View)]
        if compute not in scalar.MEMORY or not native_dtypes([*views, *s.outputs]):
            return None
        if not all(native_expr(e, compute) for e in s.data["exprs"].values()):
            return None
        loads: dict[str, Any] = {}
        names: dict[str, E.Expr] = {}
        for n, v in s.inputs.items():
            if isinstance(v, View):
                w = spread(v, shape)
                name = view_name(w)
                loads[name], names[n] = w, E.arg(name)
            elif isinstance(v, Scalar):
                name = f"s{s.index}.{n}"
                loads[name], names[n] = v, E.arg(name)
            else:
                names[n] = E.const(v)
        stores = [
            (spread(v, shape), E.substitute(e, names)) for v, e in zip(s.outputs, s.data["exprs"].values(), strict=True)
        ]
        for v, _ in stores:
            if 0 in v.strides or any(
                v.conflicts(r) and view_name(r) != view_name(v) for r in loads.values() if isinstance(r, View)
            ):
                return None
        return [Loop(stores[0][0].shape, stores, loads, compute, [s.name])]

    def _copy(self, s: Step) -> list[Loop] | None:
        source, to = s.inputs["input"], s.outputs[0]
        if not native_dtypes([source, to]) or source.conflicts(to) and not source.same(to):
            return None
        a, b = spread(source, to.shape), spread(to, to.shape)
        if 0 in b.strides:
            return None
        e = E.arg(view_name(a))
        if source.dtype != to.dtype:
            e = E.cast(e, to.dtype.name)
        return [Loop(b.shape, [(b, e)], {view_name(a): a}, to.dtype.name, [s.name])]

    def _fill(self, s: Step) -> list[Loop] | None:
        to = s.outputs[0]
        if not native_dtypes([to]) or isinstance(s.data["value"], complex):
            return None
        b = spread(to, to.shape)
        if 0 in b.strides:
            return None
        return [Loop(b.shape, [(b, E.cast(s.data["value"], to.dtype.name))], {}, to.dtype.name, [s.name])]

    def _gemm(self, s: Step) -> list[Any] | None:
        """A product; its bias becomes a loop, operands that BLAS cannot step over are copied first."""
        from ..backends.cpu.blas import _layout

        out: list[Any] = []
        inputs = dict(s.inputs)
        bias = inputs.pop("bias", None)
        for k in ("a", "b"):
            v = inputs[k]
            if not _layout(v.shape[-2], v.shape[-1], v.strides[-2], v.strides[-1], v.dtype.itemsize)[
                0
            ] and native_dtypes([v]):
                t = self.temp(v.dtype, v.shape)
                out += self._copy(Step("copy", "contiguous", {"input": v}, [t])) or []
                inputs[k] = t
        product = Step("gemm", s.name, inputs, s.outputs)
        product.index = s.index
        out.append(product)
        if bias is not None:
            to = s.outputs[0]
            e = E.prim("add", E.arg("input"), E.arg("bias"))
            out += (
                self._pointwise(
                    Step(
                        "pointwise",
                        "bias",
                        {"input": to, "bias": bias},
                        [to],
                        exprs={"out": e},
                        shape=to.shape,
                        compute=to.dtype.name,
                    )
                )
                or []
            )
        return out

    def _host(self, s: Step) -> list[Any] | None:
        """Operators that move elements, as loops."""
        args, name = s.data.get("args", ()), s.name.rstrip("_")
        if (
            name == "masked_fill"
            and len(args) == 3
            and all(isinstance(a, View) for a in args[:2])
            and args[1].dtype == np.bool_
        ):
            x, mask, value = args
            to = s.outputs[0]
            inputs: dict[str, Any] = {"x": x, "mask": mask}
            if isinstance(value, View) and value.size == 1:
                inputs["value"] = value
                new = E.cast(E.arg("value"), to.dtype.name)
            elif isinstance(value, (bool, int, float)):
                new = E.cast(value, to.dtype.name)
            else:
                return None
            e = E.prim("where", E.arg("mask"), new, E.arg("x"))
            return self._pointwise(
                Step("pointwise", name, inputs, [to], exprs={"out": e}, shape=to.shape, compute=to.dtype.name)
            )
        if name == "check_target" and len(args) == 3 and isinstance(args[0], View) and native_dtypes([args[0]]):
            return self._check_target(s, *args)
        if name == "cat" and len(args) >= 2 and isinstance(args[1], int) and isinstance(args[0], (list, tuple)):
            to, parts = s.outputs[0], [v for v in args[0] if isinstance(v, View) and v.size]
            dim = args[1] % max(len(to.shape), 1)
            if len(parts) != len(args[0]) or any(v.dtype != to.dtype or len(v.shape) != len(to.shape) for v in parts):
                return None
            out: list[Loop] = []
            at = to.offset
            for v in parts:
                piece = View(to.buffer, to.dtype, v.shape, to.strides, at)
                made = self._copy(Step("copy", name, {"input": v}, [piece]))
                if made is None:
                    return None
                out += made
                at += v.shape[dim] * to.strides[dim]
            return out
        return None

    def _check_target(self, s: Step, target: View, classes: int, ignore: int) -> list[Any] | None:
        """A copy (which is left out where it can), and a flag that stops the run when a target is no class."""
        t, flag = E.arg("input"), self.temp(np.dtype(np.int64), ())
        bad = E.prim("and", E.prim("or", E.prim("lt", t, 0), E.prim("ge", t, classes)), E.prim("ne", t, ignore))
        copied = self._copy(Step("copy", s.name, {"input": target}, s.outputs))
        one = E.cast(bad, "int64")
        tested = self._fold(
            Step(
                "fold",
                s.name,
                {"input": target},
                [flag],
                combine="max",
                map=one,
                finish=None,
                dims=tuple(range(len(target.shape))),
                keepdim=False,
                n=target.size,
                compute="int64",
            )
        )
        if copied is None or tested is None:
            return None

        def error(a: np.ndarray) -> Exception:
            from ..ops.loss_class import out_of_bounds

            return out_of_bounds(a, classes, ignore) or RuntimeError("a target was out of bounds while it was read")

        check = Step("check", s.name, {"flag": flag}, [], error=error, view=target)
        check.index = s.index
        return [*copied, *tested, check]

    def _fold(self, s: Step) -> list[Loop] | None:
        source, to, compute = s.inputs["input"], s.outputs[0], s.data["compute"]
        finish, m = s.data["finish"], s.data["map"]
        if compute not in scalar.MEMORY or not native_dtypes([source, to]) or not native_expr(m, compute):
            return None
        if finish is not None and not native_expr(finish, compute) or source.size == 0:
            return None
        a = spread(source, source.shape)
        strides, given = [0] * len(source.shape), iter(to.strides)
        for d in range(len(source.shape)):
            if d not in s.data["dims"]:
                strides[d] = next(given)
            elif s.data["keepdim"]:
                next(given)
        keep = [d for d, n in enumerate(source.shape) if n != 1]
        b = View(to.buffer, to.dtype, a.shape, tuple([strides[d] for d in keep]), to.offset)
        axes = tuple([i for i, d in enumerate(keep) if d in s.data["dims"]])
        name = view_name(a)
        e = E.substitute(m, {"input": E.arg(name)})
        if source.dtype.name != compute and m.op == "arg":
            e = E.cast(e, compute)
        if finish is not None:
            finish = E.substitute(finish, {"s": E.arg("$s")})
        if not axes:  # nothing is folded: every element is a result
            e = e if finish is None else E.substitute(finish, {"$s": e})
            return [Loop(a.shape, [(b, e)], {name: a}, compute, [s.name])]
        return [Loop(a.shape, [(b, e)], {name: a}, compute, [s.name], (COMBINE[s.data["combine"]], axes, finish))]

    def _split(self, loop: Loop) -> list[Loop]:
        """In two where the axes do not lie together, or where one fold would keep one thread busy."""
        assert loop.fold is not None
        combine, axes, finish = loop.fold
        shape = loop.shape
        results = 1
        for d, n in enumerate(shape):
            results *= 1 if d in axes else n
        ((to, e),) = loop.stores
        first: tuple[int, ...] = ()
        if axes[-1] - axes[0] != len(axes) - 1:
            k = len(axes) - 1
            while axes[k - 1] == axes[k] - 1:
                k -= 1
            first = axes[k:]
        elif not all(walked(v, axes) for v in loop.reads):
            first = axes[-1:]
        elif axes[-1] == len(shape) - 1 and results < 16 and loop.size // results > LONG and len(axes) == 1:
            n = shape[-1]
            parts = next((p for p in range(min(64, n), 7, -1) if n % p == 0), 0)
            if parts:
                shape = (*shape[:-1], parts, n // parts)
                views = {x: reshaped(v, shape) for x, v in loop.loads.items() if isinstance(v, View)}
                to = View(to.buffer, to.dtype, shape, (*to.strides, 0), to.offset)
                loop = loop.mapped(shape, views, [to])  # type: ignore[arg-type]
                ((_, e),) = loop.stores
                axes, first = (len(shape) - 2, len(shape) - 1), (len(shape) - 1,)
        if not first:
            return [loop]
        wide = np.dtype(np.float64) if loop.compute == "float32" and combine == "add" else np.dtype(loop.compute)
        middle = self.temp(wide, tuple([n for d, n in enumerate(shape) if d not in first]))
        strides = iter(middle.strides)
        part = View(
            middle.buffer, wide, shape, tuple([0 if d in first else next(strides) for d in range(len(shape))]), 0
        )
        one = Loop(shape, [(part, e)], loop.loads, loop.compute, loop.ops, (combine, first, None))
        left = tuple([d for d in range(len(shape)) if d not in first])
        places = {d: i for i, d in enumerate(left)}
        target = View(to.buffer, to.dtype, middle.shape, tuple([to.strides[d] for d in left]), to.offset)
        two = Loop(
            middle.shape,
            [(target, E.arg(view_name(middle)))],
            {view_name(middle): middle},
            wide.name,
            loop.ops,
            (combine, tuple([places[d] for d in axes if d not in first]), finish),
        )
        return [one, *self._split(two)]


def walked(v: View, axes: tuple[int, ...]) -> bool:
    """Whether the dimensions `axes`, neighbours, are walked as one."""
    return all(v.strides[d] == v.strides[d + 1] * v.shape[d + 1] for d in axes[:-1])


def loops_of(graph: Graph) -> list[Any]:
    """The nodes of a graph: `Loop`s, and the steps that are none."""
    return Rewriter(graph).run()


# --- exchanges between nodes ------------------------------------------------------------------------------------------
def _inline_constants(nodes: list[Any]) -> list[Any]:
    """Loads of what a fill wrote become the constant. A fill that nothing else needs is dropped later, as a dead
    store."""
    filled: dict[int, tuple[View, E.Expr]] = {}
    out = []
    for n in nodes:
        if isinstance(n, Loop):
            values = {}
            for name, v in n.loads.items():
                if isinstance(v, View):
                    f = filled.get(v.buffer.id)
                    if f is not None and f[0].dtype == v.dtype:
                        a, b = f[0].span
                        c, d = v.span
                        if a <= c and d <= b:
                            values[name] = f[1]
            if values:
                n = Loop(
                    n.shape,
                    [(v, E.substitute(e, values)) for v, e in n.stores],
                    {k: v for k, v in n.loads.items() if k not in values},
                    n.compute,
                    n.ops,
                    n.fold,
                )
            for v, e in n.stores:
                filled.pop(v.buffer.id, None)
                if (
                    n.fold is None
                    and len(n.stores) == 1
                    and e.op == "cast"
                    and e.args[0].op == "const"
                    and not n.loads
                    and _dense(v)
                ):
                    filled[v.buffer.id] = (v, e)
        else:
            for v in n.written:
                filled.pop(v.buffer.id, None)
        out.append(n)
    return out


def _inline_cheap(nodes: list[Any]) -> list[Any]:
    """A temp whose elements are quickly made of much smaller operands is made again by every loop that reads it."""
    writers: dict[int, list[int]] = {}
    for i, n in enumerate(nodes):
        for v in n.written:
            writers.setdefault(v.buffer.id, []).append(i)
    cheap: dict[int, Loop] = {}
    for i, n in enumerate(nodes):
        if not isinstance(n, Loop):
            continue
        for name, v in list(n.loads.items()):
            p = cheap.get(v.buffer.id) if isinstance(v, View) else None
            if (
                p is None
                or p.compute in ("float32", "float64")
                and n.compute in ("float32", "float64")
                and p.compute != n.compute
            ):
                continue
            first = writers[v.buffer.id][0]
            if any(
                first < j < i and any(w.conflicts(r) for w in nodes[j].written)
                for r in p.reads
                for j in writers.get(r.buffer.id, ())
            ):
                continue
            made = p if p.shape == n.shape else p.in_shape(n.shape)
            if made is None or view_name(made.stores[0][0]) != name:
                continue
            loads = {k: x for k, x in n.loads.items() if k != name} | made.loads
            n = nodes[i] = Loop(
                n.shape,
                [(t, E.substitute(e, {name: made.stores[0][1]})) for t, e in n.stores],
                loads,
                n.compute,
                n.ops,
                n.fold,
            )
        if n.fold is None and len(n.stores) == 1 and n.loads:
            to, e = n.stores[0]
            operands = sum(_extent(v) for v in n.loads.values() if isinstance(v, View))
            if (
                to.buffer.kind == "temp"
                and len(writers[to.buffer.id]) == 1
                and scalar.weight([e]) <= 4
                and (2 * operands <= to.size or to.size <= 4096)
                and to.dtype.name not in ("float16", "bfloat16")
                and all(isinstance(v, View) for v in n.loads.values())
            ):
                cheap[to.buffer.id] = n
    return nodes


def _common(nodes: list[Any]) -> list[Any]:
    """What was computed before, of memory that has not changed since, is not computed again."""
    writers: dict[int, int] = {}
    for n in nodes:
        for v in n.written:
            writers[v.buffer.id] = writers.get(v.buffer.id, 0) + 1
    version: dict[int, int] = {}
    known: dict[Any, Buffer] = {}
    moved: dict[int, Buffer] = {}
    out: list[Any] = []
    for n in nodes:
        n = _rebased(n, moved) if moved else n
        key = _value_key(n, version)
        if key is not None:
            b = n.stores[0][0].buffer if isinstance(n, Loop) else n.inputs["flag"].buffer
            if isinstance(n, Loop):
                if (
                    b.kind == "temp"
                    and writers[b.id] == 1
                    and _dense(n.stores[0][0])
                    and n.stores[0][0].size * n.stores[0][0].dtype.itemsize == b.nbytes
                ):
                    if key in known:
                        moved[b.id] = known[key]
                        continue
                    known[key] = b
            elif key in known:
                continue
            else:
                known[key] = b
        for v in n.written:
            version[v.buffer.id] = version.get(v.buffer.id, 0) + 1
        out.append(n)
    return out


def _value_key(n: Any, version: dict[int, int]) -> Any:
    """Equal for nodes that give the same; None where that cannot be told."""
    if isinstance(n, Step):
        return ("check", n.inputs["flag"].buffer.id) if n.kind == "check" else None
    if len(n.stores) != 1 or not n.loads or any(not isinstance(v, View) for v in n.loads.values()):
        return None
    to, e = n.stores[0]
    fold = None
    if n.fold is not None:  # the result's strides along what is folded are zero by nature
        fold = (n.fold[0], n.fold[1], None if n.fold[2] is None else id(n.fold[2]))
    reads = tuple([(v.buffer.id, version.get(v.buffer.id, 0)) for v in n.loads.values()])
    return (n.shape, id(e), fold, to.dtype, to.strides, to.offset, to.buffer.nbytes, n.compute, reads)


def _extent(v: View) -> int:
    """How many different elements a view has."""
    n = 1
    for d, s in zip(v.shape, v.strides, strict=True):
        n *= d if s else 1
    return n


def _dense(v: View) -> bool:
    """Whether the view covers its span without gaps."""
    lo, hi = v.span
    return hi - lo == v.size * v.dtype.itemsize


def _forward_copies(nodes: list[Any]) -> list[Any]:
    """Where a temp is only made to be copied, as a whole, into memory that nothing touches meanwhile, it is made
    there."""
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    for i, n in enumerate(nodes):
        for v in n.written:
            writers.setdefault(v.buffer.id, []).append(i)
        for v in n.reads:
            readers.setdefault(v.buffer.id, []).append(i)
    moved: dict[int, Buffer] = {}
    drop: set[int] = set()
    for i, n in enumerate(nodes):
        if not isinstance(n, Loop) or n.fold is not None or len(n.stores) != 1:
            continue
        to, e = n.stores[0]
        if e.op != "arg" or len(n.loads) != 1:
            continue
        source = n.loads[e.args[0]]
        if (
            not isinstance(source, View)
            or source.buffer.kind != "temp"
            or to.buffer.kind == "temp"
            and to.buffer.id in moved
        ):
            continue
        a, b = source.buffer, to.buffer
        if (
            a.nbytes != b.nbytes
            or source.offset
            or to.offset
            or source.strides != to.strides
            or source.dtype != to.dtype
        ):
            continue
        if source.size * source.dtype.itemsize != a.nbytes or not _dense(source) or a.id in moved or b.id in moved:
            continue
        first = min(writers.get(a.id, [i]))
        last = max([*writers.get(a.id, []), *readers.get(a.id, [])])
        if first >= i or max(writers.get(a.id, [])) >= i:
            continue
        others = [j for j in (*writers.get(b.id, []), *readers.get(b.id, [])) if j != i]
        if any(first <= j < i for j in others) or any(j in writers.get(b.id, []) and i < j <= last for j in others):
            continue
        moved[a.id] = b
        drop.add(i)
        for table in (writers, readers):
            table.setdefault(b.id, []).extend(j for j in table.get(a.id, []) if j != i)
    if not moved:
        return nodes
    return [_rebased(n, moved) for i, n in enumerate(nodes) if i not in drop]


def _target(b: Buffer, moved: dict[int, Buffer]) -> Buffer:
    while b.id in moved:
        b = moved[b.id]
    return b


def _rebased(n: Any, moved: dict[int, Buffer]) -> Any:
    """The node with every view on a buffer of `moved` put on its new one."""
    if not any(v.buffer.id in moved for v in (*n.reads, *n.written)):
        return n

    def one(x: Any) -> Any:
        if isinstance(x, View):
            return View(_target(x.buffer, moved), x.dtype, x.shape, x.strides, x.offset)
        if isinstance(x, (list, tuple)):
            return type(x)([one(y) for y in x]) if type(x) in (list, tuple) else x
        return x

    if isinstance(n, Loop):
        return n.mapped(
            n.shape, {k: one(v) for k, v in n.loads.items() if isinstance(v, View)}, [one(v) for v, _ in n.stores]
        )
    data = dict(n.data)
    if "args" in data:
        data["args"] = one(data["args"])
    if "columns" in data:
        data["columns"] = {k: one(v) for k, v in data["columns"].items()}
    s = Step(n.kind, n.name, {k: one(v) for k, v in n.inputs.items()}, [one(v) for v in n.outputs], **data)
    s.index = n.index
    return s
