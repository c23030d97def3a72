"""A captured call as native code.

`NativeProgram(graph)`: the graph's loops are fused (schedule.py), the temps laid out in one arena (memory.py), and
everything is written as one module whose drivers call one kernel after the other (codegen.py, driver.py). Pointers
stand in one array of words: memory that stays where it is, is written there once; `bind` changes the words of one
buffer.

Steps without a native form run in Python between two drivers, as the interpreter runs them. A large array that such a
step hands back is taken as it is, in place of the temp that it was to fill."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.cpu import blas, threads
from ..backends.cpu.native import address
from . import jit, llvm
from .codegen import KernelPlan, kernel_of
from .driver import Layout, MultiPlan, product_of
from .graph import Buffer, Graph, Step, View
from .memory import plan
from .program import Interpreter, Program, array_of, bytes_of, host_results, store_results, writes_temps
from .rewrite import row_major
from .schedule import Group, schedule

__all__ = ["NativeProgram"]

ADOPT = 1 << 15  # results of host steps from this size on are not copied
_DRIVER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class _Host(Interpreter):
    """Runs single steps in Python on the program's memory."""

    def __init__(self, roots: dict[int, np.ndarray]) -> None:
        self.roots = roots


class NativeProgram(Program):
    """A graph compiled; see `Program` for what callers may do."""

    def __init__(self, graph: Graph, apart: bool = False) -> None:
        """`apart`: a driver for each item, so that they can be timed one by one."""
        self.graph, self.apart = graph, apart
        s = schedule(graph)
        self.notes: list[dict[str, Any]] = []
        items = self._plans(s.items, s.notes)
        self._build(items)

    # --- planning -----------------------------------------------------------------------------------------------------
    def _temp(self, dtype: np.dtype, shape: tuple[int, ...]) -> View:
        n = dtype.itemsize
        for d in shape:
            n *= d
        b = Buffer(len(self.graph.buffers), n, "temp")
        self.graph.buffers.append(b)
        return row_major(b, dtype, shape)

    def _plans(self, items: list[Any], notes: dict[int, list[str]]) -> list[tuple[Any, Any]]:
        """(item, how it runs: a KernelPlan, Product or MultiPlan; None: in Python)."""
        out: list[tuple[Any, Any]] = []
        for i, item in enumerate(items):
            how: Any = None
            why = list(notes.get(i, ()))
            if isinstance(item, Group):
                how = kernel_of(item, self._temp)
                self.notes.append(
                    {"kind": item.mode, "ops": list(item.ops), "shape": list(item.shape), "why": "; ".join(why)}
                )
            else:
                if item.kind == "gemm" and blas.info()["native"]:
                    how = product_of(item)
                elif item.kind == "update" and MultiPlan.fits(item):
                    how = MultiPlan(item)
                elif item.kind == "check":
                    how = item
                why += [] if how is not None else [f"{item.name} has no native form here: it runs in Python"]
                self.notes.append(
                    {
                        "kind": item.kind if how is not None else "host",
                        "ops": [item.name],
                        "why": "; ".join(why),
                        "shape": list(item.outputs[0].shape) if item.outputs else [],
                    }
                )
            out.append((item, how))
        return out

    # --- building -----------------------------------------------------------------------------------------------------
    def _build(self, items: list[tuple[Any, Any]]) -> None:
        g = self.graph
        adopted = self._adopted(items)
        uses = [[v.buffer for v in (*item.reads, *item.written)] for item, _ in items]
        merges = [
            m
            for i, (item, how) in enumerate(items)
            if isinstance(item, Group) and how.method == "pointwise"
            for m in _merges(i, item)
        ]
        size = plan(uses, [b for b in g.buffers if b.kind == "temp" and b.id not in adopted], merges)
        self.arena = np.zeros(size + 64, np.uint8)
        skip = -address(self.arena) % 64
        self.arena = self.arena[skip : skip + size]
        self.roots: dict[int, np.ndarray] = {}
        touched = {b.id for u in uses for b in u}
        for b in g.buffers:
            if b.kind == "external" and b.array is not None:
                self.roots[b.id] = bytes_of(b.array)
            elif b.id not in touched:
                continue
            elif b.kind == "temp" and b.offset is not None:
                self.roots[b.id] = self.arena[b.offset : b.offset + b.nbytes]
            else:
                self.roots[b.id] = np.empty(b.nbytes, np.uint8)
        pool = threads.native()
        self.layout = layout = Layout(blas.info()["integers"] or "i64", pool)
        self.host = _Host(self.roots)
        runs: list[Any] = []  # segment numbers and host steps, in order
        self.stale: dict[int, list[_HostStep]] = {}  # buffer -> host steps that look at it
        clean = True
        for item, how in items:
            before, clean = clean, clean and writes_temps(item)
            if how is None:
                h = _HostStep(self, item, adopted, before)
                runs.append(h)
                for v in (*item.reads, *item.written):
                    self.stale.setdefault(v.buffer.id, []).append(h)
                continue
            if self.apart or not runs or not isinstance(runs[-1], int):
                layout.begin()
                runs.append(len(layout.segments) - 1)
            if isinstance(how, KernelPlan):
                layout.kernel(how)
            elif isinstance(how, MultiPlan):
                layout.update(how)
            elif isinstance(how, Step):
                how.data["clean"] = before
                layout.check(how.inputs["flag"], how)
            else:
                layout.product(how)
        self._load(runs)

    def _adopted(self, items: list[tuple[Any, Any]]) -> set[int]:
        """Temps that are whole results of one host step and written by nothing else: the step's own array takes their
        place."""
        writers: dict[int, int] = {}
        for item, _ in items:
            for v in item.written:
                writers[v.buffer.id] = writers.get(v.buffer.id, 0) + 1
        out = set()
        for item, how in items:
            if how is None and item.kind == "host" and not item.data["writes"] and "call" not in item.data:
                for v in item.outputs:
                    b = v.buffer
                    if (
                        b.kind == "temp"
                        and writers[b.id] == 1
                        and b.nbytes >= ADOPT
                        and v.contiguous
                        and v.size * v.dtype.itemsize == b.nbytes
                    ):
                        out.add(b.id)
        return out

    def _load(self, runs: list[Any]) -> None:
        layout = self.layout
        self.library: jit.Library | None = None
        if layout.segments:
            if layout.pool:
                jit.import_symbol("rl_parallel", threads.entry_address())
            for name in layout.declared:
                if name.endswith("gemm_run"):
                    jit.import_symbol(name, blas.address(name[3:]))
                elif name.startswith("rl_blas_"):
                    jit.import_symbol(name, blas.address("cblas_" + name[8:]))
            key = hashlib.sha256(layout.key().encode()).hexdigest()
            self.library = jit.compile_ir(layout.text, f"step|{llvm.fingerprint()}|{_version()}|{key}", light=True)
        self.words = np.array(layout.words or [0], np.int64)
        self.floats = self.words.view(np.float64)
        for word, kind in layout.constants:
            self.words[word : word + 1].view(kind)[0] = 1
        base = address(self.words)
        for word, other in layout.own:
            self.words[word] = base + 8 * other
        self.places: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for b, pairs in layout.pointers.items():
            self.places[b] = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], np.int64)
        for b in self.places:
            self._point(b)
        self.calls: list[Callable[[], Any]] = []
        for r in runs:
            if isinstance(r, int):
                assert self.library is not None
                f = _DRIVER(self.library.address(f"segment{r}"))
                self.calls.append(self._segment(f, ctypes.c_void_p(base)))
            else:
                self.calls.append(r.run)
        self.seen: list[Any] = [None] * len(layout.updates)
        self.run = self._runner()  # type: ignore[method-assign]

    def _point(self, buffer: int) -> None:
        where, offsets = self.places[buffer]
        self.words[where] = offsets + address(self.roots[buffer])

    def _segment(self, f: Callable, words: Any) -> Callable[[], None]:
        failed = self._failed

        def call() -> None:
            r = f(words)
            if r:
                failed(r)

        return call

    def _failed(self, number: int) -> None:
        check = self.layout.flags[number - 1]
        error = check.data["error"](self.host.array(check.data["view"]))
        error.before_writes = check.data["clean"]
        raise error

    def _runner(self) -> Callable[[], None]:
        calls = tuple(self.calls)
        ensure = threads.ensure if self.layout.parallel else None
        numbers = self._numbers if self.layout.updates or self.layout.scalars else None
        if len(calls) == 1:
            only = calls[0]
            if ensure is None and numbers is None:
                return only

            def run_one() -> None:
                if ensure is not None:
                    ensure()
                if numbers is not None:
                    numbers()
                only()

            return run_one

        def run() -> None:
            if ensure is not None:
                ensure()
            if numbers is not None:
                numbers()
            for c in calls:
                c()

        return run

    def _numbers(self) -> None:
        """Put the call's numbers where the kernels read them."""
        seen, floats = self.seen, self.floats
        for k, (where, source) in enumerate(self.layout.updates):
            values = source.get()
            if values != seen[k]:
                floats[where] = values
                seen[k] = values
        for word, s in self.layout.scalars:
            floats[word] = s.get()

    # --- Program ------------------------------------------------------------------------------------------------------
    def bind(self, buffer: Buffer, root: np.ndarray) -> None:
        b = buffer.id
        self.roots[b] = root if root.dtype.num == 2 and root.ndim == 1 else bytes_of(root)
        place = self.places.get(b)
        if place is not None:
            self.words[place[0]] = place[1] + address(root)
        for h in self.stale.get(b, ()):
            h.ready = False

    def root(self, buffer: Buffer) -> np.ndarray:
        return self.roots[buffer.id]

    def report(self) -> list[dict[str, Any]]:
        return self.notes

    @property
    def segments(self) -> int:
        """The number of native calls that a run makes."""
        return len(self.layout.segments)


class _HostStep:
    """A step that runs in Python; its arrays are made when memory changed."""

    def __init__(self, program: NativeProgram, step: Step, adopted: set[int], clean: bool) -> None:
        self.program, self.step, self.clean = program, step, clean
        self.ready = False
        self.outs: list[Any] = []
        self.simple = step.kind != "host" or "call" in step.data
        self.adopt = [v.buffer if v.buffer.id in adopted else None for v in step.outputs]

    def run(self) -> None:
        try:
            self._run()
        except Exception as e:
            e.before_writes = self.clean  # type: ignore[attr-defined]
            raise

    def _run(self) -> None:
        p, s = self.program, self.step
        with np.errstate(all="ignore"):
            if self.simple:
                getattr(p.host, "_" + s.kind)(s)
                return
            if not self.ready:
                self.args = p.host.value(s.data["args"])
                self.outs = [
                    None if b is not None else p.host.array(v) for v, b in zip(s.outputs, self.adopt, strict=True)
                ]
                self.ready = True
            results = host_results(s, self.args)
        if results is None:
            return
        # operands that the operator changed in place come after the results, and need nothing
        for v, b, o, r in zip(s.outputs, self.adopt, self.outs, results):
            if b is None:
                store_results([o], [r])
            elif (
                type(r) is np.ndarray
                and r.flags.c_contiguous
                and r.dtype == v.dtype
                and r.shape == v.shape
                and _own(r, self.args)
            ):
                p.bind(b, np.ndarray((r.nbytes,), np.uint8, buffer=r))
            else:
                mine = np.empty(b.nbytes, np.uint8)
                store_results([array_of(mine, v)], [r])
                p.bind(b, mine)


def _own(r: np.ndarray, args: Any) -> bool:
    """Whether an array is memory of its own, not an argument's."""
    return not any(np.may_share_memory(r, a) for a in _arrays(args))


def _arrays(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _arrays(y)


def _merges(i: int, group: Group) -> list[tuple[int, Buffer, Buffer]]:
    """Results that may take an operand's place: the same elements of a buffer of the same size, and that buffer's only
    load."""
    out = []
    loads: dict[int, list[View]] = {}
    for v in group.reads:
        loads.setdefault(v.buffer.id, []).append(v)
    for w in group.written:
        if w.buffer.kind != "temp" or sum(x.buffer is w.buffer for x in group.written) > 1 or w.buffer.id in loads:
            continue
        for vs in loads.values():
            v = vs[0]
            if (
                len(vs) == 1
                and v.buffer.kind == "temp"
                and v.strides == w.strides
                and v.offset == w.offset
                and v.dtype.itemsize == w.dtype.itemsize
                and not any(x.buffer is v.buffer for x in group.written)
            ):
                out.append((i, v.buffer, w.buffer))
    return out


def _version() -> str:
    global _digest
    if _digest is None:
        import os

        h = hashlib.sha256()
        for name in ("codegen", "driver"):
            with open(os.path.join(os.path.dirname(__file__), name + ".py"), "rb") as f:
                h.update(f.read())
        _digest = h.hexdigest()[:16]
    return _digest


_digest: str | None = None
