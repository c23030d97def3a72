"""Capture: one call of a Python function, run for real while every operator is noted.

While a capture is active the operators' fast paths are closed (`generate.G["ND"]`), so each call reaches `Capture.call`. The
operator is executed eagerly (the first call's results are eager results) and a `Step` is noted on views of the memory that it
read and wrote. Views themselves leave no step: a view is a geometry on a buffer. Composite operators are noted as what their
bodies call. The backward pass and the optimizer's update run within the call and are noted like everything else.

What cannot be replayed makes the capture fail, with a reason: reading a value into Python (`item()`, `bool()`, `numpy()`), results
that still need a graph, tensors kept in places that a replay would not know of, side effects on modules, calls whose result
differs from one time to the next.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import Node, next_seq
from ..core import dtype as D
from ..core.tensor import Tensor
from ..ops import execute, generate
from ..ops import expr as E
from ..ops.declare import Operator
from ..ops.inplace import run_inplace, run_inplace_plain
from .graph import Buffer, Graph, Scalar, Step, View

__all__ = ["Capture", "CaptureError"]

ndarray = np.ndarray


class CaptureError(Exception):
    """The call cannot be replayed; the text says why."""


def root_of(a: ndarray) -> ndarray:
    from ..core.storage import root_of as f
    return f(a)


def address(a: ndarray) -> int:
    return a.__array_interface__["data"][0]


class Capture:
    """The notes of one call."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.buffers: dict[int, Buffer] = {}        # id of the root array -> buffer
        self.keep: list[Any] = []                   # everything that must stay alive, so that ids stay unique
        self.made: list[tuple[Any, ndarray]] = []   # weak references to the tensors that operators made, and their arrays
        self.reason: str | None = None
        self.leaves: list[Any] = []                 # weak references to the leaves whose .grad was set afresh
        self.ids: set[int] = set()                  # ids of the tensors that the call made
        self.views: list[Any] = []                  # weak references to the views that the call made
        self.constants: dict[int, tuple[int, View, ndarray]] = {}    # buffer -> where it was made, as what, and what it held then
        self.copied: list[tuple[int, Step]] = []    # copies of constants that are written to or handed out
        self.fresh: set[int] = set()                # ids of the buffers of constants that the call is known to have made
        self.known: set[int] = set()                # ids of root arrays that the guards reach
        self.census: set[int] | None = None         # ids of the root arrays of all tensors of before the call
        self.thread = threading.get_ident()
        self.last: tuple[Any, Any] | None = None    # the operator that ran last, and what it gave
        self.kept: dict[str, Any] = {}              # by name, the arrays that the operators within a composite's body gave

    # --- buffers ----------------------------------------------------------------------------------------------------
    def buffer(self, a: ndarray, kind: str, tensor: Any = None) -> Buffer:
        root = root_of(a)
        b = self.buffers.get(id(root))
        if b is None:
            b = Buffer(len(self.graph.buffers), root.nbytes, kind, root)
            self.graph.buffers.append(b)
            self.buffers[id(root)] = b
            self.keep.append(root)
            if kind == "external" and id(root) not in self.known and not (self.census and id(root) in self.census):
                values = root.copy(order="K")
                self.constants[b.id] = (len(self.graph.steps), View(b, root.dtype, root.shape, root.strides), values)
                return b
        if tensor is not None and b.tensor is None and b.kind == "external":
            b.tensor = tensor
        return b

    def view(self, t: Any, kind: str = "external") -> View:
        """The view that a tensor or array is; memory not seen before is external."""
        a, tensor = (t._a, t) if isinstance(t, Tensor) else (t, None)
        b = self.buffer(a, kind, tensor)
        return View(b, a.dtype, a.shape, a.strides, address(a) - address(b.array) if a.size else 0)  # type: ignore[arg-type]

    def new(self, t: Tensor) -> View:
        """The view of a fresh result. An operator that hands back memory it did not make gives a view, not a result."""
        self.adopt(t)
        return self.view(t, "temp")

    def adopt(self, t: Tensor) -> None:
        self.made.append((weakref.ref(t), t._a))
        self.ids.add(id(t))

    # --- constants --------------------------------------------------------------------------------------------------
    def constant_of(self, t: Tensor) -> None:
        """`t` was made from Python values: it holds the same at every call, unless the call writes to it."""
        self.adopt(t)
        a = t._a
        if a.__class__ is ndarray and id(root_of(a)) not in self.buffers and id(root_of(a)) not in self.known:
            self.fresh.add(self.view(t).buffer.id)

    def constant(self, b: Buffer) -> bool:
        """Whether a buffer holds the same at every call."""
        return b.id in self.constants and (b.id in self.fresh or self.census is not None) \
            or any(v.buffer is b for _, s in self.copied for v in s.inputs.values())

    def release(self, b: Buffer) -> None:
        """A constant that is written to, or handed out, becomes a copy that is made anew at every call."""
        if not self.constant(b) or b.id not in self.constants:
            return
        found = self.constants.pop(b.id)
        at, v, values = found
        source = Buffer(len(self.graph.buffers), values.nbytes, "external", values)
        self.graph.buffers.append(source)
        b.kind, b.tensor = "temp", None
        self.copied.append((at, Step("copy", "constant", {"input": View(source, values.dtype, values.shape, values.strides)}, [v])))

    def settle(self) -> None:
        """After the call: put the copies of constants, and the checks of arguments, where they belong."""
        for s in self.graph.steps:
            for v in s.outputs:
                self.release(v.buffer)
        steps = self.graph.steps
        for at, s in sorted(self.copied, key=lambda x: -x[0]):
            steps.insert(at, s)
            s.outputs[0].buffer.writes += 1
        written: set[int] = set()
        first = []
        for s in steps:
            if s.name == "check_target" and s.kind == "host" and all(v.buffer.kind == "external" and v.buffer.id not in written for v in s.reads):
                first.append(s)         # fails before anything is done
            written.update(v.buffer.id for v in s.outputs)
        if first:
            steps[:] = [*first, *[s for s in steps if not any(s is f for f in first)]]
        for i, s in enumerate(steps):
            s.index = i

    def fail(self, reason: str) -> None:
        """The call cannot be replayed. What other threads do meanwhile is no part of it."""
        if self.reason is None and self.thread == threading.get_ident():
            self.reason = reason

    # --- calls ------------------------------------------------------------------------------------------------------
    def call(self, op: Operator, values: tuple, inplace: bool = False) -> Any:
        """Run an operator and note it."""
        if self.thread != threading.get_ident():      # another thread's call is its own affair
            return run_inplace_plain(op, values) if inplace else execute._RUN[op.kind](op, values)
        if self.reason is not None:
            r = self._plain(op, values, inplace)
            if op.kind == "structural" and op.returns:
                self.kept.update((n, x._a) for n, x in zip(op.returns, r, strict=True) if x is not None)
            return r
        self.last = None
        try:
            if inplace:
                return self._inplace(op, values)
            return getattr(self, "_" + op.kind)(op, values)
        except CaptureError as e:
            self.fail(str(e))
        except Exception as e:
            if self.last is None or self.last[0] is not op:
                raise               # the operator's own
            self.fail(f"{op.name} could not be noted: {type(e).__name__}: {e}")
        if self.last is not None and self.last[0] is op:
            return self.last[1]
        return self._plain(op, values, inplace)

    def _plain(self, op: Operator, values: tuple, inplace: bool) -> Any:
        """The operator alone, unnoted."""
        execute.capture[0] = None
        try:
            r = run_inplace(op, values) if inplace else execute.run(op, values)
        finally:
            execute.capture[0] = self
        self.last = (op, r)
        return r

    def _composite(self, op: Operator, values: tuple) -> Any:
        if op.data_source:
            if any(True for _ in _tensors_in(values)):
                self.fail(f"{op.name} makes a tensor from the values of others")
            r = self._plain(op, values, False)
            self.keep.append(r)
            if isinstance(r, Tensor) and not any(r is v for v in values):
                self.constant_of(r)
            return r
        if op.array is not None and any(t._a.__class__ is ndarray and not t._a.size for t in _tensors_in(values)):
            r = self._plain(op, values, False)      # the body may fold over nothing, which the fast form has rules for
            if any(t._a.size for t in _tensors_in((r,))) or op.mutates:
                raise CaptureError(f"{op.name} of an empty tensor")
            for t in _tensors_in((r,)):
                self.new(t)
            return r
        if not (op.gradients or op.joint):
            return self._body(op, values)
        before, modes.grad = modes.grad, False
        outer, self.kept = self.kept, {}
        try:
            r = self._body(op, values)
        finally:
            modes.grad = before
            kept, self.kept = self.kept, outer
        if modes.grad and any(execute.rg(v) for v in values):
            r = tuple(r) if isinstance(r, tuple) else r
            if any(k not in kept for k in op.keeps):      # backward may run when the capture is over, and then by the fast form
                kept = {**execute.fast_form(op, values)[1], **kept}
            op.derived("record")(r, *values, *[kept[k] for k in op.keeps])
        return r

    @staticmethod
    def _body(op: Operator, values: tuple) -> Any:
        """The body of a composite. In half precision it is computed in float32 and rounded once, as the fast form does it."""
        if op.array is None or not any(t.dtype.name in execute.HALF for t in _tensors_in(values)) \
                or modes.grad and any(execute.rg(v) for v in values):
            return op.body(*values)
        dtypes, _ = execute.fast_form(op, values)
        if not dtypes:              # meta tensors
            return op.body(*values)
        r = op.body(*[v.to(getattr(D, execute.HALF[v.dtype.name])) if isinstance(v, Tensor) and v.dtype.name in execute.HALF
                      and p.name not in op.mutates else v for p, v in zip(op.params, values, strict=True)])
        if isinstance(r, tuple):
            return tuple([x if x is None or d is None else x.to(d) for x, d in zip(r, dtypes, strict=True)])
        return r.to(dtypes[0])

    def _view(self, op: Operator, values: tuple) -> Any:
        self.view(values[0])
        r = self._plain(op, values, False)
        self._views(r, values)
        return r

    def _views(self, r: Any, values: tuple) -> None:
        for t in r if isinstance(r, (tuple, list)) else (r,):
            if isinstance(t, Tensor) and not any(t is v for v in values):
                self.views.append(weakref.ref(t))
                self.ids.add(id(t))

    def _creation(self, op: Operator, values: tuple) -> Any:
        t = self._plain(op, values, False)
        if op.random and any(True for _ in _tensors_in(values)) and not op.name.endswith("_like"):
            raise CaptureError(f"{op.name} draws by values of tensors")
        if not isinstance(t, Tensor):
            raise CaptureError(f"{op.name} gives several tensors")
        if t._a.__class__ is not ndarray:
            raise CaptureError(f"{op.name} makes a tensor that is not dense or not on the CPU")
        v = self.new(t)
        if op.random:      # drawn anew at every run, from the same stream
            self.graph.add(Step("host", op.name, {}, [v], op=op, args=[], writes=False, call=lambda: execute.run(op, values)._a))
            return t
        a = t._a
        if op.name.startswith("empty"):
            return t
        if op.name.split("_")[0] in ("zeros", "ones", "full") and a.size:
            self.graph.add(Step("fill", op.name, {}, [v], value=a.reshape(-1)[0].item()))
        else:
            self.made.pop()
            del self.buffers[id(v.buffer.array)]
            v.buffer.kind = "gone"
            self.graph.buffers.pop()
            self.keep.append(t)
            self.constant_of(t)
        return t

    def _pointwise(self, op: Operator, values: tuple) -> Any:
        form = execute.form_of(op, values)
        if form is not None:
            return self.call(form, values)
        t = self._plain(op, values, False)
        inputs, expr, compute = self.expression(op, values)
        v = self.new(t)
        self.graph.add(Step("pointwise", op.name, inputs, [v], exprs={"out": expr}, shape=t._a.shape, compute=compute))
        return t

    def expression(self, op: Operator, values: tuple) -> tuple[dict[str, Any], E.Expr, str]:
        """(inputs, expression, computing dtype) of a call of a pointwise record."""
        arrays, _ = execute.arrays_of(op, values)
        if op.check is not None:
            r = op.check(*arrays)
            if r is not None:
                if any(isinstance(x, ndarray) and x is not y for x, y in zip(r, arrays, strict=True)):
                    raise CaptureError(f"{op.name} prepares its operands outside of its expression")
                arrays = list(r)
        compute, result = execute.compute_dtypes(op, arrays)
        cname = execute.HALF.get(compute.name, compute.name) if not op.exact else compute.name
        static, absent, inputs = [], [], {}
        names: dict[str, E.Expr] = {}
        for p, a, v in zip(op.params, arrays, values, strict=True):
            if p.kind == "plain":
                static.append(a)
            elif a is None:
                absent.append(p.name)
            elif isinstance(a, ndarray):
                inputs[p.name] = self.view(v)
                want = "bool" if p.kind == "mask" else cname
                if D.of(a.dtype).name != want:
                    names[p.name] = E.cast(E.arg(p.name), want)
            else:
                names[p.name] = E.const(int(a) if isinstance(a, float) and compute.category == D.INTEGER else a)
        expr = generate.trace(op, tuple(static), tuple(absent))
        if names:
            expr = E.substitute(expr, names)
        for n in E.postorder(expr):
            if n.op == "cast" and n.args[1] == "compute" or cname == "bool" and n.op in _LOGIC:
                expr = _resolve_cast(expr, cname)
                break
        if D.of(result.np).name != cname and op.result != "bool":
            expr = E.cast(expr, result.name)
        return inputs, expr, cname

    def _reduction(self, op: Operator, values: tuple) -> Any:
        t = self._plain(op, values, False)
        bound = dict(zip([p.name for p in op.params], values, strict=True))
        x = bound["input"]
        a = x._a
        if op.array is not None:
            return self._host(op, values, t)
        dims = execute.normalize_dims(bound.get("dim"), a.ndim)
        traced = tuple(E.arg("input") if isinstance(v, Tensor) and p.kind == "tensor" else v for p, v in zip(op.params, values, strict=True))
        fold = op.body(*traced)
        compute, result = execute.fold_dtypes(op, a, bound.get("dtype"))
        cname = execute.HALF.get(compute.name, compute.name)
        n = 1
        for d in dims:
            n *= a.shape[d]
        if n == 0 or fold.combine in ("or", "and"):
            return self._host(op, values, t)
        m = E.const(fold.map)
        if D.of(a.dtype).name != cname:
            m = E.substitute(m, {"input": E.cast(E.arg("input"), cname)})
        finish = None if fold.finish is None else E.const(fold.finish(E.arg("s"), n))
        self.graph.add(Step("fold", op.name, {"input": self.view(x)}, [self.new(t)], combine=fold.combine, map=m, finish=finish, dims=dims,
                            keepdim=bool(bound.get("keepdim", False)), n=n, compute=cname, result=result.name))
        return t

    def _structural(self, op: Operator, values: tuple) -> Any:
        t = self._plain(op, values, False)
        if any(t is v for v in values):
            return t
        if op.name in ("clone", "to") and isinstance(t, Tensor) and id(root_of(t._a)) not in self.buffers:
            self.graph.add(Step("copy", op.name, {"input": self.view(values[0])}, [self.new(t)]))
            return t
        if op.name in ("mm", "bmm", "linear") and t._a.dtype in (np.float32, np.float64):
            return self._gemm(op, values, t)
        return self._host(op, values, t)

    def _gemm(self, op: Operator, values: tuple, t: Tensor) -> Any:
        a, b = self.view(values[0]), self.view(values[1])
        inputs: dict[str, Any] = {"a": a, "b": b}
        if op.name == "linear":
            n = a.shape[-1]
            rows = t._a.size // t._a.shape[-1] if t._a.size else 0
            if not a.contiguous or b.shape[-1] != n or len(b.shape) != 2 or not rows:
                return self._host(op, values, t)
            inputs["a"] = View(a.buffer, a.dtype, (rows, n), (n * a.dtype.itemsize, a.dtype.itemsize), a.offset)
            inputs["b"] = View(b.buffer, b.dtype, b.shape[::-1], b.strides[::-1], b.offset)
            out = self.new(t)
            out = View(out.buffer, out.dtype, (rows, b.shape[0]), (b.shape[0] * out.dtype.itemsize, out.dtype.itemsize), out.offset)
            if values[2] is not None:
                inputs["bias"] = self.view(values[2])
        else:
            out = self.new(t)
        self.graph.add(Step("gemm", op.name, inputs, [out]))
        return t

    def _writes(self, op: Operator, values: tuple) -> Any:
        """The functional form of a record that writes: a copy, then the write."""
        t = self._plain(op, values, False)
        v = self.new(t)
        self.graph.add(Step("copy", op.name, {"input": self.view(values[0])}, [v]))
        self._host_write(op, (t, *values[1:]), v)
        return t

    def _args(self, values: Any) -> Any:
        out: list[Any] = []
        for x in values:
            if isinstance(x, Tensor):
                out.append(self.view(x))
            elif isinstance(x, (list, tuple)) and any(isinstance(y, Tensor) for y in x):
                out.append(type(x)(self._args(x)) if type(x) in (list, tuple) else self._args(x))
            else:
                out.append(x)
        return out

    def _host(self, op: Operator, values: tuple, t: Any) -> Any:
        args = self._args(values)
        if isinstance(t, Tensor) and not op.mutates and id(root_of(t._a)) in self.buffers:
            self._views(t, values)      # memory of an operand
            return t
        outs = [x for x in (t if isinstance(t, tuple) else (t,)) if x is not None]
        if op.keeps:
            raise CaptureError(f"{op.name} hands extra values to its gradient and has no body to capture")
        if op.returns:
            self.kept.update((n, x._a) for n, x in zip(op.returns, t, strict=True) if x is not None)
        if len(outs) != len(t if isinstance(t, tuple) else (t,)):
            raise CaptureError(f"{op.name} gives None among its results")
        if op.kind == "structural" and (op.shape_rule is None or op.name == "index" and any(x.dtype.name in ("bool", "uint8") for x in _tensors_in(values[1:]))):
            raise CaptureError(f"the size of what {op.name} gives depends on values")
        self.graph.add(Step("host", op.name, {}, [self.new(x) for x in outs], op=op, args=args, writes=False))
        for p, v in zip(op.params, values, strict=True):
            if p.name in op.mutates and v is not None:
                self.graph.steps[-1].outputs.append(self.view(v))
                self.graph.steps[-1].data["mutated"] = self.graph.steps[-1].data.get("mutated", 0) + 1
        return t

    def _host_write(self, op: Operator, values: tuple, target: View) -> None:
        self.graph.add(Step("host", op.name + "_", {}, [target], op=op, args=self._args(values), writes=True))

    def _inplace(self, op: Operator, values: tuple) -> Any:
        t = values[0]
        target = self.view(t)
        inputs: Any = None
        if op.kind == "pointwise":
            form = execute.form_of(op, values)
            if form is not None and form.kind != "pointwise":
                raise CaptureError(f"the in-place form of {op.name} is not captured for these dtypes")
            inputs, expr, compute = self.expression(form or op, values)
        elif op.kind == "view":
            return self._plain(op, values, True)
        elif op.kind == "composite":
            raise CaptureError(f"the in-place form of {op.name} is not captured")
        args = self._args(values)
        r = self._plain(op, values, True)
        if op.kind == "pointwise":
            if D.of(t._a.dtype).name != (compute if op.result != "bool" else "bool"):
                expr = E.cast(expr, D.of(t._a.dtype).name)
            self.graph.add(Step("pointwise", op.name + "_", inputs, [target], exprs={"out": expr}, shape=target.shape, compute=compute))
        elif op.kind == "writes" and op.name == "copy" and isinstance(args[1], View):
            self.graph.add(Step("copy", "copy_", {"input": _broadcast(args[1], target.shape)}, [target]))
        elif op.kind == "writes" and op.name in ("fill", "zero") and (op.name == "zero" or not isinstance(args[1], View)):
            self.graph.add(Step("fill", op.name + "_", {}, [target], value=0 if op.name == "zero" else args[1]))
        elif op.kind == "writes":
            self.graph.add(Step("host", op.name + "_", {}, [target], op=op, args=args, writes=True))
        else:
            raise CaptureError(f"the in-place form of {op.name} is not captured")
        return r

    # --- what is not an operator ----------------------------------------------------------------------------------------
    def draw(self, name: str, stream: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        """A use of a random stream outside of an operator: drawn anew at every call where it needs no values of tensors."""
        if self.reason is None and not (name in _DRAWS or name == "randperm") or any(isinstance(x, np.ndarray) for x in args[1:]):
            self.fail(f"the call uses a random stream itself ({name})")
        execute.capture[0] = None
        try:
            r = original(stream, *args, **kwargs)
        finally:
            execute.capture[0] = self
        if self.reason is not None:
            return r
        a = r if name == "randperm" else args[0]
        if name != "randperm" and (id(root_of(a)) not in self.buffers or self.buffers[id(root_of(a))].kind != "temp"):
            self.fail(f"the call uses a random stream itself ({name})")
            return r
        shape, dtype = a.shape, a.dtype

        def again() -> ndarray:
            if name == "randperm":
                return original(stream, *args, **kwargs)
            x = np.empty(shape, dtype)
            original(stream, x, *args[1:], **kwargs)
            return x
        v = View(self.buffer(a, "temp"), dtype, shape, a.strides, address(a) - address(root_of(a)) if a.size else 0)
        self.graph.add(Step("host", name, {}, [v], op=_DRAW, args=[], writes=False, call=again))
        return r

    def update(self, variant: Any, tensors: Any, numbers: Callable[[], Any], count: int) -> None:
        """An optimizer's update of lists of tensors; `numbers()` gives its scalars at run time."""
        columns = {n: [self.view(t) for t in tensors[n]] for n in variant.reads}
        outputs = [v for n in variant.outputs for v in columns[n]]
        self.graph.add(Step("update", variant.name, {}, outputs, variant=variant, columns=columns, numbers=Scalar(numbers),
                            tensors=[t for n in variant.outputs for t in tensors[n]]))


class _Draw:
    """What a step that draws outside of an operator has as its operator."""

    name, kind, random, exact = "draw", "creation", True, True


_DRAW = _Draw()
_DRAWS = ("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_")


def _tensors_in(x: Any) -> Any:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _tensors_in(y)


def _broadcast(v: View, shape: tuple[int, ...]) -> View:
    lead = len(shape) - len(v.shape)
    if lead < 0:
        v = View(v.buffer, v.dtype, v.shape[-lead:], v.strides[-lead:], v.offset)
        lead = 0
    strides = (0,) * lead + tuple(0 if n == 1 and m != 1 else s for n, m, s in zip(v.shape, shape[lead:], v.strides, strict=True))
    return View(v.buffer, v.dtype, shape, strides, v.offset)


_LOGIC = {"add": "or", "mul": "and"}        # what these are of truth values; fused with others, their operands would be numbers


def _resolve_cast(e: E.Expr, name: str) -> E.Expr:
    """The expression with the computing dtype, `name`, in it."""
    new: dict[int, E.Expr] = {}
    for n in E.postorder(e):
        if n.op in ("arg", "const"):
            new[id(n)] = n
        elif n.op == "cast":
            new[id(n)] = E.Expr("cast", new[id(n.args[0])], name if n.args[1] == "compute" else n.args[1])
        else:
            op = _LOGIC.get(n.op, n.op) if name == "bool" else n.op
            new[id(n)] = E.Expr(op, *[new[id(a)] if isinstance(a, E.Expr) else a for a in n.args])
    return new[id(e)]


class Spent(Node):
    """The node of a result whose graph was freed within the compiled call. It has the name of eager's node, whose graph was freed too."""

    __slots__ = ("of",)

    def __init__(self, of: str) -> None:
        self.of = of
        self.seq, self.next, self.saved, self.where = next_seq(), (), None, None

    def name(self) -> str:
        return self.of

    def backward(self, grad: Any, next: tuple) -> tuple:
        from ..autograd.node import freed
        raise RuntimeError(f"{freed()} The graph of this result ({self.of}) was used up inside the compiled call that returned it.")


