"""Programs: a captured graph made runnable.

`Interpreter` runs the steps one by one through NumPy, on memory set aside once. It is the meaning of a graph (the generated
programs are held to it by tests) and what is used where there is no llvmlite. `build(graph)` gives the best there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import expr as E
from .graph import Buffer, Graph, Step, View

__all__ = ["Interpreter", "build"]


class Program:
    """What the caller of a program may rely on."""

    graph: Graph

    def bind(self, buffer: Buffer, root: np.ndarray) -> None:
        """From now on `buffer` is the memory of this root array (arguments and outputs change memory between calls)."""
        raise NotImplementedError

    def root(self, buffer: Buffer) -> np.ndarray:
        """The memory of an output buffer, as bytes."""
        raise NotImplementedError

    def run(self) -> None:
        """Run it. An exception that a step raises has `before_writes`: whether nothing outside of the program was written before."""
        raise NotImplementedError

    def report(self) -> list[dict[str, Any]]:
        """One entry a step as it is run: kind, what was fused, and why not more."""
        raise NotImplementedError


def array_of(root: np.ndarray, v: View) -> np.ndarray:
    """The ndarray of a view, given the root array of its buffer."""
    return np.ndarray(v.shape, v.dtype, buffer=root.data if root.flags.c_contiguous else root, offset=v.offset, strides=v.strides)


def bytes_of(a: np.ndarray) -> np.ndarray:
    """An array's memory as bytes; the array must be the root of its memory."""
    if a.dtype == np.uint8 and a.ndim == 1:
        return a
    return np.ndarray((a.nbytes,), np.uint8, buffer=a if a.flags.c_contiguous else a.T if a.T.flags.c_contiguous else _span(a))


def _span(a: np.ndarray) -> Any:
    raise ValueError("the memory of a strided array without a base cannot be addressed as a block")


_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class Interpreter(Program):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.roots: dict[int, np.ndarray] = {}
        for b in graph.buffers:
            self.roots[b.id] = bytes_of(b.array) if b.array is not None and b.kind == "external" else np.empty((b.nbytes,), np.uint8)

    def bind(self, buffer: Buffer, root: np.ndarray) -> None:
        self.roots[buffer.id] = bytes_of(root)

    def root(self, buffer: Buffer) -> np.ndarray:
        return self.roots[buffer.id]

    def array(self, v: View) -> np.ndarray:
        return array_of(self.roots[v.buffer.id], v)

    def value(self, x: Any) -> Any:
        if isinstance(x, View):
            return self.array(x)
        if isinstance(x, (list, tuple)):
            return type(x)(self.value(y) for y in x)
        return x

    def run(self) -> None:
        clean = True
        with np.errstate(all="ignore"):
            for s in self.graph.steps:
                try:
                    getattr(self, "_" + s.kind)(s)
                except Exception as e:
                    e.before_writes = clean  # type: ignore[attr-defined]
                    raise
                clean = clean and writes_temps(s)

    def report(self) -> list[dict[str, Any]]:
        from . import jit
        why = "interpreted" if jit.available() else "interpreted: there is no llvmlite to make native code with"
        return [{"kind": s.kind, "ops": [s.name], "why": why} for s in self.graph.steps]

    def _pointwise(self, s: Step) -> None:
        from ..backends.cpu.evaluate import numpy_function
        names = list(s.inputs)
        values = [self.value(x) for x in s.inputs.values()]
        f = numpy_function(names, list(s.data["exprs"].values()), numbers=[n for n, v in s.inputs.items() if not isinstance(v, View)])
        r = f(*values, np.dtype(s.data["compute"]).type)
        for v, x in zip(s.outputs, r if len(s.outputs) > 1 else (r,), strict=True):
            np.copyto(self.array(v), x, casting="unsafe")

    def _fold(self, s: Step) -> None:
        from ..backends.cpu.evaluate import numpy_function
        a = self.array(s.inputs["input"])
        c = np.dtype(s.data["compute"])
        x = a if s.data["map"].op == "arg" else numpy_function(["input"], [s.data["map"]])(a, c.type)
        x = np.asarray(x, c) if s.data["combine"] in ("add", "mul") else np.asarray(x)
        r = np.asarray(_REDUCE[s.data["combine"]].reduce(x, axis=s.data["dims"], keepdims=s.data["keepdim"]))
        if s.data["finish"] is not None:
            r = numpy_function(["s"], [E.const(s.data["finish"])])(r, r.dtype.type)
        np.copyto(self.array(s.outputs[0]), r, casting="unsafe")

    def _gemm(self, s: Step) -> None:
        from ..backends.cpu import blas
        a, b = self.array(s.inputs["a"]), self.array(s.inputs["b"])
        r = blas.gemm(a, b) if a.ndim == 2 else blas.bgemm(a, b)
        if "bias" in s.inputs:
            r += self.array(s.inputs["bias"])
        np.copyto(self.array(s.outputs[0]), r.reshape(s.outputs[0].shape))

    def _copy(self, s: Step) -> None:
        np.copyto(self.array(s.outputs[0]), self.array(s.inputs["input"]), casting="unsafe")

    def _fill(self, s: Step) -> None:
        self.array(s.outputs[0]).fill(s.data["value"])

    def _update(self, s: Step) -> None:
        v = s.data["variant"]
        columns = [[self.array(x) for x in s.data["columns"][n]] for n in v.reads]
        v.numpy(list(zip(*columns, strict=True)), s.data["numbers"].get())

    def _host(self, s: Step) -> None:
        run_host(s, self.value(s.data["args"]), [self.array(v) for v in s.outputs])


def run_host(s: Step, args: list[Any], outs: list[np.ndarray]) -> None:
    """A step that has no other form than its operator's own."""
    if "call" in s.data:
        np.copyto(outs[0], s.data["call"]())
        return
    results = host_results(s, args)
    if results is not None:
        store_results(outs[:len(outs) - s.data.get("mutated", 0)], results)


def host_results(s: Step, args: list[Any]) -> list[Any] | None:
    """What the operator of a host step gives for arrays, as a list; None if it writes into its arguments."""
    op = s.data["op"]
    if s.data["writes"]:
        op.body(*args)
        return None
    from ..ops import execute
    if op.kind == "reduction":
        b = dict(zip([p.name for p in op.params], args, strict=True))
        a = b["input"]
        compute, result = execute.fold_dtypes(op, a, b.get("dtype"))
        dims = execute.normalize_dims(b.get("dim"), a.ndim)
        values = tuple(E.arg("input") if p.kind == "tensor" else v for p, v in zip(op.params, args, strict=True))
        r: Any = op.array(a, dims, bool(b.get("keepdim", False)), compute, result,
                          *[x for k, x in b.items() if k not in ("input", "dim", "keepdim", "dtype")]) if op.array is not None else \
            execute.fold_arrays(op, op.body(*values), a, dims, bool(b.get("keepdim", False)), compute, result)
    else:
        if not op.exact:
            args, _ = execute._half_in(op, args)
        r = (op.array or op.body)(*args)
    return list(r) if isinstance(r, (tuple, list)) else [r]


def writes_temps(item: Any) -> bool:
    """Whether a step or group leaves everything alone that others may see before the program has ended."""
    return all(v.buffer.kind == "temp" or v.buffer.kind == "output" and v.buffer.tensor is None for v in item.written)


def store_results(outs: list[np.ndarray], results: list[Any]) -> None:
    for o, x in zip(outs, results, strict=True):
        if np.shape(x) != o.shape:
            raise ValueError(f"a result has shape {list(np.shape(x))} at this call, not {list(o.shape)}")
        np.copyto(o, x, casting="unsafe")


def build(graph: Graph) -> Program:
    """A program for a graph: generated code where that is possible, else the interpreter."""
    from . import jit
    if jit.available():
        from .codegen import Unsupported
        from .native import NativeProgram
        try:
            return NativeProgram(graph)
        except Unsupported:
            return Interpreter(graph)
    return Interpreter(graph)
