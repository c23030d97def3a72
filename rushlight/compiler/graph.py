"""The graph of one captured call: buffers, views on them, and steps in program order.

    Buffer   a block of memory: `kind` "external" (owned by a tensor that lived before the call or is an argument), "temp" (made
             and dead within the call) or "output" (made in the call and alive after it)
    View     dtype, shape and byte strides on a buffer, from a byte offset. Two views conflict if their buffers are the same and their
             byte spans meet
    Step     one operation: reads views, writes views. Program order is a valid order; a scheduler may reorder steps that do not
             conflict, and drop temps that nothing reads

Step kinds and their data:

    "pointwise"  `exprs` {output name: Expr} over the names in `inputs` (name -> View, int/float/bool, or Scalar); all outputs have
                 the shape `shape`, inputs broadcast to it; `compute` is the dtype name that the expression computes in
    "fold"       `combine`, `map` (Expr of "input"), `finish` (Expr of "s", or None), `dims`, `keepdim`, `n`, `compute`; inputs
                 {"input": View}, one output
    "gemm"       inputs {"a": View (..., m, k), "b": View (..., k, n)}, one output (..., m, n), leading dimensions equal or broadcast;
                 optional input "bias" added to each row
    "copy"       inputs {"input": View}, one output of the same shape: a (strided, casting) copy
    "fill"       `value` (number) written to one output
    "update"     `variant` (optim.update.Variant) with columns of views and a function that gives its numbers at run time
    "host"       anything else: `op.body` (or its fast form) is called on arrays at run time; `args` holds Views, nested lists of
                 them, and plain values; results go to `outputs`, or the first argument is written (`writes`). The last
                 `mutated` outputs are arguments that the operator writes to by itself (running statistics). `call`, if there,
                 gives the array instead (random constructors)

`verify` checks what every pass must keep true; it runs in tests and with RUSHLIGHT_VERIFY=1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import expr as E

__all__ = ["Buffer", "View", "Scalar", "Step", "Graph", "verify"]


class Buffer:
    """A block of `nbytes` bytes. `tensor` is an external's (any tensor whose memory it is), `array` the root array seen at capture."""

    __slots__ = ("id", "nbytes", "kind", "tensor", "array", "offset", "writes", "argument")

    def __init__(self, id: int, nbytes: int, kind: str, array: np.ndarray | None = None, tensor: Any = None) -> None:
        self.id, self.nbytes, self.kind, self.array, self.tensor = id, nbytes, kind, array, tensor
        self.offset: int | None = None          # place in the arena, set by memory.plan
        self.writes = 0
        self.argument: int | None = None        # position among the call's tensor arguments, whose memory differs from call to call

    def __repr__(self) -> str:
        return f"{self.kind[0]}{self.id}"


class View:
    """A strided view on a buffer; strides and offset in bytes."""

    __slots__ = ("buffer", "dtype", "shape", "strides", "offset")

    def __init__(self, buffer: Buffer, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> None:
        self.buffer, self.dtype, self.shape, self.strides, self.offset = buffer, dtype, shape, strides, offset

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def contiguous(self) -> bool:
        step = self.dtype.itemsize
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return True

    @property
    def span(self) -> tuple[int, int]:
        """[first byte, last byte + 1) in the buffer."""
        lo = hi = self.offset
        for n, s in zip(self.shape, self.strides, strict=True):
            if n == 0:
                return self.offset, self.offset
            lo, hi = (lo, hi + (n - 1) * s) if s >= 0 else (lo + (n - 1) * s, hi)
        return lo, hi + self.dtype.itemsize

    def conflicts(self, other: View) -> bool:
        if self.buffer is not other.buffer:
            return False
        (a, b), (c, d) = self.span, other.span
        return a < d and c < b

    def same(self, other: View) -> bool:
        return (self.buffer is other.buffer and self.offset == other.offset and self.shape == other.shape and self.strides == other.strides
                and self.dtype == other.dtype)

    def __repr__(self) -> str:
        return f"{self.buffer!r}:{self.dtype.name}{list(self.shape)}" + ("" if self.contiguous else f"/{list(self.strides)}") + (
            f"+{self.offset}" if self.offset else "")


class Scalar:
    """A number that is read at every call: `get()` gives it."""

    __slots__ = ("get",)

    def __init__(self, get: Any) -> None:
        self.get = get


class Step:
    """One operation. See the module's text for what each kind carries in `data`."""

    __slots__ = ("kind", "name", "inputs", "outputs", "data", "index")

    def __init__(self, kind: str, name: str, inputs: dict[str, Any], outputs: list[View], **data: Any) -> None:
        self.kind, self.name, self.inputs, self.outputs, self.data = kind, name, inputs, outputs, data
        self.index = -1

    @property
    def reads(self) -> list[View]:
        out = [v for v in self.inputs.values() if isinstance(v, View)]
        if self.kind == "host":
            out += list(_views(self.data["args"]))
        elif self.kind == "update":
            out += [v for column in self.data["columns"].values() for v in column]
        return out

    @property
    def written(self) -> list[View]:
        return self.outputs

    def __repr__(self) -> str:
        ins = ", ".join(f"{k}={v!r}" for k, v in self.inputs.items())
        return f"{', '.join(map(repr, self.outputs))} = {self.kind} {self.name}({ins})"


def _views(x: Any) -> Any:
    if isinstance(x, View):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _views(y)


class Graph:
    """Steps in order, and every buffer they touch."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []

    def add(self, step: Step) -> Step:
        step.index = len(self.steps)
        self.steps.append(step)
        for v in step.outputs:
            v.buffer.writes += 1
        return step

    def __repr__(self) -> str:
        return "\n".join(f"{i:4d}  {s!r}" for i, s in enumerate(self.steps))


def verify(g: Graph) -> None:
    """AssertionError if the graph breaks its rules: a temp read before it is written, a view outside its buffer, an expression that
    reads a name without an input, outputs of another shape."""
    written: set[int] = set()
    for s in g.steps:
        for v in (*s.reads, *s.outputs):
            lo, hi = v.span
            assert lo >= 0 and hi <= v.buffer.nbytes, f"{v!r} leaves its buffer of {v.buffer.nbytes} bytes in {s!r}"
        for v in s.reads:
            if v.buffer.kind != "external" and v.size and not (s.kind == "host" and s.data.get("writes")):
                assert v.buffer.id in written, f"{v!r} is read before it is written in {s!r}"
        if s.kind == "pointwise":
            for e in s.data["exprs"].values():
                for n in E.inputs_of(e):
                    assert n in s.inputs, f"{s!r} has no input {n!r}"
            for v in s.outputs:
                assert v.shape == s.data["shape"], f"{s!r} writes {v.shape}, not {s.data['shape']}"
        written.update(v.buffer.id for v in s.outputs)
