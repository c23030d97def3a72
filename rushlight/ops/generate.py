"""Code made from records: public wrappers, recording on the tape, nodes.

Everything generated shares the globals `G`. The wrappers of pointwise operators begin with a fast path (plain CPU arrays of one
dtype, below `BIG` elements): one NumPy call, one tensor, one node if needed; whatever is not plain falls through to
`execute.run`, which decides everything. Meaning never depends on the fast path. `G["ND"]` is the array class that the fast
paths accept; a capture replaces it, which closes them all.

Parameters keep their names in what is generated, so everything else there has names that no parameter can have
(`declare.reserved`): locals begin with an underscore, the rest is in `G`, in capitals or Python's.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.modes import anomaly_watchers, modes
from ..autograd.node import (
    Node,
    TensorMeta,
    attach_many,
    edge,
    freed,
    next_seq,
    save,
    save_checked,
    save_result,
    unpack,
)
from ..backends.cpu import loops
from ..core.errors import place
from ..core.tensor import MAYBE, Tensor, bump, inference, wrap
from . import calls, paths
from . import expr as E
from .declare import REQUIRED, Gradient, Operator, Param

__all__ = ["derive", "G", "quiet", "trace"]

BIG = 65536


def _quiet_context() -> contextvars.Context:
    """A context in which NumPy does not report overflow, division by zero or invalid values. Running a ufunc in it costs 70 ns,
    np.errstate 900."""
    ctx = contextvars.copy_context()
    ctx.run(lambda: np.seterr(all="ignore"))
    return ctx


def _fresh_quiet() -> Callable:
    return _quiet_context().run


quiet = _fresh_quiet()
quiets: list[Callable] = []     # contexts for the calls that must not find theirs in use: by another thread, or further up


def quietly(f: Callable, *args: Any) -> Any:
    """`f(*args)`, where NumPy does not report what is out of range."""
    q = quiets.pop() if quiets else _fresh_quiet()
    try:
        return q(f, *args)
    finally:
        quiets.append(q)


G: dict[str, Any] = {
    "ND": np.ndarray, "F32": np.dtype("float32"), "F64": np.dtype("float64"), "I64": np.dtype("int64"), "BOOL": np.dtype("bool"),
    "quiet": quiet, "QUIETS": quiets, "fresh_quiet": _fresh_quiet, "asarray": np.asarray,
    "Tensor": Tensor, "new": object.__new__, "modes": modes, "edge": edge, "save": save, "save_result": save_result,
    "unpack": unpack, "freed": freed, "seq": next_seq, "place": place, "WRAP": wrap, "bump": bump,
    "attach_many": attach_many, "TensorMeta": TensorMeta, "BIG": BIG, "MAYBE": MAYBE, "PLAIN": True, "ANOMALY": False, "__name__": "rushlight.ops.generated",
    "FAST_ERRORS": (AttributeError, TypeError, ValueError, RuntimeError, OverflowError, ArithmeticError, RuntimeWarning),
}


def _inference(maker: Callable) -> None:
    """After a thread entered inference mode, or the last one left it: `PLAIN` says that there was no inference tensor yet."""
    G["new"], G["save"], G["PLAIN"] = maker, save_checked, False


inference.listen(_inference)
anomaly_watchers.append(lambda: G.__setitem__("ANOMALY", True))      # until then no record need ask the thread


def make(source: str, name: str, **extra: Any) -> Callable:
    """Compile generated source; `extra` become closure-like globals under names that the source mentions."""
    outer = f"def make({', '.join(extra)}):\n" + "\n".join("    " + line for line in source.splitlines()) + f"\n    return {name}\n"
    env: dict[str, Any] = {}
    exec(compile(outer, f"<rushlight operator {name}>", "exec"), G, env)
    return env["make"](**extra)


def derive(op: Operator, key: str) -> Any:
    if key == "function":
        return _finish(_function(op), op, op.name)
    if key == "method":
        f = _finish(_function(op, method=True), op, op.name)
        f.__qualname__ = "Tensor." + op.name        # the function of this name is another
        return f
    if key == "inplace":
        return _finish(_inplace(op), op, op.name + "_")
    if key == "dunder":
        return _dunder(op)
    if key == "rdunder":
        return _rdunder(op)
    if key == "idunder":
        return _idunder(op)
    if key == "record":
        return _record(op, inplace=False)
    if key == "record_inplace":
        return _record(op, inplace=True)
    if key == "node":
        return _node(op)
    if key == "formulas":
        return _formulas(op)
    if key == "plain":
        return Plain(op) if op.kind == "pointwise" else None
    raise KeyError(key)


def _finish(f: Callable, op: Operator, name: str) -> Callable:
    where = op.ns[0]
    f.__name__, f.__qualname__ = name, f"Tensor.{name}" if where == "Tensor" else name
    f.__doc__ = op.__doc__
    f.__module__ = "rushlight" if where in ("torch", "Tensor") else "rushlight." + where  # where pickle finds it again
    return f


# --- pointwise: expressions -----------------------------------------------------------------------------------------
def trace(op: Operator, static: tuple = (), absent: tuple[str, ...] = ()) -> E.Expr:
    """The expression of a pointwise record; `static` are the values of its plain parameters, `absent` the operands that are None."""
    cache = op._derived.setdefault("traces", {})
    r = cache.get((static, absent))
    if r is None:
        it = iter(static)
        args = {p.name: next(it) if p.kind == "plain" else None if p.name in absent else E.arg(p.name) for p in op.params}
        r = cache[static, absent] = E.const(op.fn(**args))
    return r


class Plain:
    """What the fast paths need of a pointwise record: `ufunc` when the expression is one primitive of the operands in order (with the
    numbers at their defaults), `names` of arrays and numbers, `evaluate` otherwise."""

    def __init__(self, op: Operator) -> None:
        self.tensors = [p for p in op.params if p.kind in ("tensor", "operand", "mask")]
        self.numbers = [p for p in op.params if p.kind == "number"]
        self.statics = [p for p in op.params if p.kind == "plain"]
        self.ufunc = None
        self.primitive = ""
        self._loop: Any = None
        self.names = [p.name for p in op.params if p.kind != "plain"]
        self.ok = all(p.kind in ("tensor", "operand", "number", "plain") for p in op.params)
        self.static = tuple(None if p.default is REQUIRED else p.default for p in self.statics)
        if any(p.default is REQUIRED for p in self.statics):
            self.ok = False
            return
        root = trace(op, self.static, tuple(p.name for p in self.tensors + self.numbers if p.default is None))
        self.root = root
        simple = root
        if self.numbers and all(p.default is not REQUIRED for p in self.numbers):
            simple = _fold_ones(E.substitute(root, {p.name: E.const(p.default) for p in self.numbers}))
        if simple.op in E.PRIMITIVES and [getattr(a, "op", None) for a in simple.args] == ["arg"] * len(self.tensors) \
                and [a.args[0] for a in simple.args] == [p.name for p in self.tensors]:
            from ..backends.cpu.evaluate import ufunc_of
            self.ufunc = ufunc_of(simple.op)
            self.primitive = simple.op
            self.root = simple

    def loop(self, op: Operator) -> loops.Direct | None:
        """The way of big arrays, one for all wrappers of the operator; None where the result's dtype is not said by the operands'."""
        if self._loop is None and op.result in ("same", "float", "bool") and all(p.kind in ("tensor", "operand") for p in self.tensors):
            numbers = [] if self.ufunc is not None else [p.name for p in self.numbers]
            self._loop = loops.Direct(self.root, [p.name for p in self.tensors], numbers, op.result == "bool")
        return self._loop


def without_ones(op: Operator, root: E.Expr, names: tuple[str, ...]) -> E.Expr:
    """The expression `root` of a record, the numbers `names` being 1."""
    cache = op._derived.setdefault("without_ones", {})
    r = cache.get((root, names))
    if r is None:
        r = cache[root, names] = _fold_ones(E.substitute(root, {n: E.const(1) for n in names}))
    return r


def _fold_ones(root: E.Expr) -> E.Expr:
    """`1 * x` is x, exactly."""
    new: dict[int, E.Expr] = {}
    for n in E.postorder(root):
        if n.op in ("arg", "const"):
            new[id(n)] = n
            continue
        args = [new[id(a)] if isinstance(a, E.Expr) else a for a in n.args]
        if n.op == "mul" and args[0].op == "const" and args[0].args[0] == 1:
            new[id(n)] = args[1]
        else:
            new[id(n)] = E.Expr(n.op, *args)
    return new[id(root)]


# --- wrappers -------------------------------------------------------------------------------------------------------
def _signature(op: Operator, first: str | None = None, out: bool = True, flag: bool = True) -> tuple[str, str, dict[str, Any]]:
    """(parameter list, tuple of the values, defaults) of a wrapper."""
    parts, values, env = [], [], {}
    star = False
    for p in op.params:
        values.append(p.name)
        if p.kind == "sizes":
            parts.append("*" + p.name)
            star = True
            continue
        if p.keyword and not star:
            if op.legacy:
                parts.append("*_old")
            else:
                parts.append("*")
            star = True
        # what is required may come under an old name: the wrapper itself finds out what is missing
        env[paths.default_name(p)] = p.default
        parts.append(f"{p.name}={paths.default_name(p)}")
    if flag and op.inplace_argument:
        parts.append("inplace=False")
    if op.legacy and not star:
        parts.append("*_old")
        star = True
    if out and op.has_out:
        if not star:
            parts.append("*")
        parts.append("out=None")
    parts.append("**_kw")
    return ", ".join(parts), "(" + "".join(v + ", " for v in values) + ")", env


def _prelude(op: Operator, inplace: bool, method: bool = False) -> list[str]:
    """Old names, old signatures, sizes as separate arguments."""
    values = "(" + "".join(p.name + ", " for p in op.params) + ")"
    lines = []
    flag = "inplace" if op.inplace_argument and not inplace else str(inplace)
    # an unknown keyword, or a required parameter given by an old name
    lines.append("    if _kw:")
    lines.append(f"        return OLD(OP, {values}, _kw, {'out' if op.has_out and not inplace else 'None'}, {flag})")
    if op.legacy:
        lines.append("    if _old:")
        lines.append(f"        return LEGACY(OP, {values}, _old, {'out' if op.has_out and not inplace else 'None'}, {flag}, {method or inplace})")
    required = [p for p in op.params if p.default is REQUIRED and p.kind != "sizes"]
    # a tensor that is missing in front of one that was given is found by whatever reads it
    absent = [p.name for p in required if p is required[-1] or p.kind not in ("tensor", "operand", "list", "mask")]
    if absent:
        lines.append(f"    if {' or '.join(n + ' is MISSING' for n in absent)}: raise ABSENT(OP, {values})")
    for p in op.params:
        if p.kind == "sizes":
            lines.append(f"    if {p.name}.__len__() == 1 and {p.name}[0].__class__ is not int: {p.name} = SIZES({p.name}[0], '{op.name}', '{p.name}')")
            lines.append(f"    elif not {p.name}.__class__ is tuple: {p.name} = SIZES({p.name}, '{op.name}', '{p.name}')")
    if op.inplace_argument and not inplace:
        lines.append(f"    if inplace: return INPLACE(OP, {values})")
    return lines


def _late(op: Operator, key: str) -> list[Callable]:
    """A cell with a derived function that is made at the first call."""
    def late(*args: Any) -> Any:
        cell[0] = op.derived(key)
        return cell[0](*args)
    cell: list[Callable] = [late]
    return cell


def _function(op: Operator, method: bool = False) -> Callable:
    from . import execute
    from .inplace import run_inplace, run_out
    if op.kind == "composite" and not op.has_out and not op.array and not op.old:
        return _composite(op)
    sig, values, env = _signature(op)
    lines = [f"def {op.name}({sig}):"]
    lines += _prelude(op, False, method)
    plain = op.derived("plain")
    if plain is not None and plain.ok and len(plain.tensors) in (1, 2) and (callable(op.result) or op.result in ("same", "float", "bool", "real")) \
            and paths.floats_pass(op) and (plain.ufunc is not None or _evaluable(plain) and not plain.statics):
        cond = ["out is None"] if op.has_out else []
        cond += [f"{p.name} is {paths.default_name(p)}" if plain.ufunc is not None else f"({p.name}.__class__ is float or {p.name}.__class__ is int)" for p in plain.numbers]
        cond += [f"{p.name} == {paths.default_name(p)}" for p in plain.statics]
        lines.append(f"    if {' and '.join(cond) or 'True'}:")
        loop = env["LOOP"] = plain.loop(op)
        lines += paths.pointwise_path(op, "input", "        ", plain, big=loop is not None)
        env["UF"] = plain.ufunc
        env["EV"] = _evaluator(plain)
    elif op.kind == "structural" or op.kind == "composite" and op.array is not None:
        lines += paths.list_path(op) or paths.direct_path(op)
        env["ARRAY"], env["CHECK"], env["NAMED"] = op.array or op.body, op.check, execute._named
    elif op.kind == "pointwise":
        more, more_env = paths.operands_path(op)
        lines += more
        env.update(more_env)
    elif op.kind in ("reduction", "creation", "writes"):
        more, more_env = {"reduction": paths.reduction_path, "creation": paths.creation_path, "writes": paths.writes_path}[op.kind](op)
        lines += more
        env.update(more_env)
    elif op.kind == "composite":
        lines += [f"    if {'out is None and ' if op.has_out else ''}CAPTURE[0] is None:", *_body_lines(op, values)]
        env["CAPTURE"], env["FN"], env["TENSORS"] = execute.capture, op.fn, execute.require_tensors
    if op.has_out:
        lines.append("    if out is None: return RUN(OP, " + values + ")")
        lines.append("    return OUT(OP, " + values + ", out)")
    else:
        lines.append("    return RUN(OP, " + values + ")")
    record = _late(op, "record")
    f = make("\n".join(lines), op.name, OP=op, RUN=execute.run, OUT=run_out, OLD=calls.old_names, LEGACY=calls.legacy, SIZES=calls.sizes, ABSENT=calls.absent,
             MISSING=REQUIRED, RECORD=record, INPLACE=run_inplace, **env) \
        if op.name.isidentifier() else None
    assert f is not None, op.name
    return f


def _evaluable(plain: Plain) -> bool:
    return all(not E.PRIMITIVES[n.op].ufunc.startswith("scipy:") for n in E.postorder(plain.root) if n.op in E.PRIMITIVES) and plain.root.op in E.PRIMITIVES


def _evaluator(plain: Plain) -> Callable | None:
    if plain.ufunc is not None or not plain.ok:
        return None
    from ..backends.cpu.evaluate import numpy_function
    order = [p.name for p in plain.tensors] + [p.name for p in plain.numbers]
    return numpy_function(order, [plain.root], numbers=[p.name for p in plain.numbers])


def _call(op: Operator) -> str:
    return ", ".join(f"{p.name}={p.name}" if p.keyword else p.name for p in op.params)


def _body_lines(op: Operator, values: str) -> list[str]:
    """The call of a composite's body. What is no tensor has none of a tensor's attributes: then the error says which argument it is."""
    return [f"        try: return FN({_call(op)})", "        except AttributeError:", f"            TENSORS(OP, *{values})", "            raise"]


def _composite(op: Operator) -> Callable:
    """A composite is its own body; keywords of other ages and capture still pass through a wrapper."""
    from . import execute
    from .inplace import run_inplace
    sig, values, env = _signature(op, out=False)
    lines = [f"def {op.name}({sig}):", *_prelude(op, False), "    if CAPTURE[0] is None:", *_body_lines(op, values), f"    return RUN(OP, {values})"]
    return make("\n".join(lines), op.name, OP=op, CAPTURE=execute.capture, FN=op.fn, TENSORS=execute.require_tensors, RUN=execute.run, OLD=calls.old_names,
                LEGACY=calls.legacy, SIZES=calls.sizes, ABSENT=calls.absent, MISSING=REQUIRED, INPLACE=run_inplace, **env)


def _inplace(op: Operator) -> Callable:
    from .inplace import check_partial_overlap, run_inplace
    sig, values, env = _signature(op, out=False, flag=False)
    lines = [f"def {op.name}_({sig}):", *_prelude(op, True)]
    plain = op.derived("plain")
    if plain is not None and plain.ok and plain.ufunc is not None and len(plain.tensors) in (1, 2) \
            and (callable(op.result) or op.result in ("same", "float")) and paths.floats_pass(op):
        cond = [f"{p.name} is {paths.default_name(p)}" for p in plain.numbers] + [f"{p.name} == {paths.default_name(p)}" for p in plain.statics]
        lines.append(f"    if {' and '.join(cond) or 'True'}:")
        loop = env["LOOP"] = plain.loop(op)
        lines += paths.inplace_path(plain, "        ", big=loop is not None)
        env["UF"] = plain.ufunc
    more, more_env = paths.writes_path(op, check_partial_overlap)
    lines += more
    env.update(more_env)
    lines.append(f"    return RUN(OP, {values})")
    return make("\n".join(lines), op.name + "_", OP=op, RUN=run_inplace, OLD=calls.old_names, LEGACY=calls.legacy, SIZES=calls.sizes,
                ABSENT=calls.absent, MISSING=REQUIRED, **env)


def _dunder_name(op: Operator, form: str = "") -> str:
    return f"__{form}{(op.operator or op.name).split()[0]}__"


def _dunder(op: Operator, record: list[str] | None = None) -> Callable:
    """`a + b`: the function with the defaults, or NotImplemented for foreign operands. The first call that records puts a form in its
    place that has the recording in it (`record`): a call less."""
    from . import execute
    plain = op.derived("plain")
    t = [p.name for p in op.params if p.kind in ("tensor", "operand")][:2]
    env = {paths.default_name(p): p.default for p in op.params if p.name not in t}
    name = _dunder_name(op)
    lines = [f"def {name}({t[0]}, {t[1]}):"]
    if plain is not None and plain.ok and plain.ufunc is not None and len(plain.tensors) == 2 and paths.floats_pass(op):
        loop = env["LOOP"] = plain.loop(op)
        path = paths.pointwise_path(op, t[0], "    ", plain, dunder=True, big=loop is not None)
        call = next((i for i, line in enumerate(path) if "RECORD[0](_t, " in line), None)
        if call is not None and record is not None:
            indent = path[call][:len(path[call]) - len(path[call].lstrip())]
            others = [f"{indent}    {p.name} = {paths.default_name(p)}" for p in op.params if p.name not in t]
            path[call:call + 1] = [f"{indent}while _rg:     # once", *others,
                                   *[indent + line.replace(": return", ": break").replace("place()", "place(2)") for line in record], f"{indent}    break"]
        lines += path
        env["UF"] = plain.ufunc
        env["EV"] = None
    lines.append(f"    return BIN(OP, {t[0]}, {t[1]})")

    def late(*args: Any) -> Any:
        cell[0] = op.derived("record")
        new = _dunder(op, _record_lines(op, False))
        new.__module__, new.__qualname__ = made.__module__, made.__qualname__
        op._derived["dunder"] = new
        for name in [f"__{o}__" for o in (op.operator or "").split()]:
            if Tensor.__dict__.get(name) is made:
                setattr(Tensor, name, new)
        return cell[0](*args)
    cell: list[Callable] = [op.derived("record") if record is not None else late]
    made = make("\n".join(lines), name, OP=op, BIN=execute.binary, RECORD=cell, NODE=op.derived("node") if record is not None else None, **env)
    return made


def _rdunder(op: Operator) -> Callable:
    from . import execute
    name = _dunder_name(op, "r")
    lines = [f"def {name}(self, other):", "    if not isinstance(self, Tensor): raise TypeError(f\"this method is a Tensor's, not one of '{type(self).__name__}'\")",
             "    return BIN(OP, other, self)"]
    return make("\n".join(lines), name, OP=op, BIN=execute.binary)


def _idunder(op: Operator) -> Callable:
    plain = op.derived("plain")
    t = [p.name for p in op.params if p.kind in ("tensor", "operand")][:2]
    env: dict[str, Any] = {}
    name = _dunder_name(op, "i")
    lines = [f"def {name}({t[0]}, {t[1]}):"]
    if plain is not None and plain.ok and plain.ufunc is not None and len(plain.tensors) == 2 and paths.floats_pass(op) and (callable(op.result) or op.result in ("same", "float")):
        loop = env["LOOP"] = plain.loop(op)
        lines += paths.inplace_path(plain, "    ", big=loop is not None)
        env["UF"] = plain.ufunc
    lines.append(f"    return FN({t[0]}, {t[1]})")
    return make("\n".join(lines), name, FN=op.inplace_function, **env)


# --- the tape -------------------------------------------------------------------------------------------------------
def _formulas(op: Operator) -> dict[str, Gradient]:
    """The gradient formulas of an operator; those of pointwise records become pointwise operators themselves."""
    from .folds import fold_gradient
    if op.joint is not None:
        return {}
    if op.kind == "reduction" and not op.gradients:
        return {"input": fold_gradient(op)}
    if op.kind != "pointwise":
        return dict(op.gradients)
    out = {}
    for p in op.params:
        if p.kind not in ("tensor", "operand"):
            continue
        g = op.gradients.get(p.name)
        out[p.name] = _scalar_gradient(op, p, g)
    return {k: v for k, v in out.items() if v is not None}


def _zeros(grad: Tensor) -> Tensor:
    from . import function
    return function("zeros_like")(grad)


def _scalar_gradient(op: Operator, p: Param, formula: Gradient | None) -> Gradient | None:
    """The gradient of a pointwise operator by one operand, as a pointwise operator of the arriving gradient and what it reads. Its
    parameters for the gradient and the result have names of their own (`grad1`, `result1`), so that it has gradients in turn."""
    plain = [q for q in op.params if q.kind == "plain"]
    optional = [q for q in op.params if q.default is None and q.kind != "plain"]
    taken = {q.name for q in op.params}
    own = {n: next(m for m in (f"{n}{k}" for k in range(1, 99)) if m not in taken) for n in ("grad", "result")}

    def body_for(static: tuple, absent: tuple[str, ...] = ()) -> E.Expr:
        if formula is None:
            return E.derivative(trace(op, static, absent), p.name, E.arg(own["grad"]))
        it = iter(static)
        args: dict[str, Any] = {q.name: next(it) for q in plain}
        args.update({q.name: None if q.name in absent else E.arg(q.name) for q in op.params if q.kind != "plain"})
        args.update(grad=E.arg(own["grad"]), result=E.arg(own["result"]))
        return E.const(formula.fn(**{n: args[n] for n in formula.reads}))

    if plain or optional:  # which operands are read may depend on them: save what any formula names
        reads = [q.name for q in op.params] if formula is None else [n for n in formula.reads if n != "grad"]
    else:
        e = body_for(())
        if e.op == "const" and e.args[0] == 0:
            # a gradient that is piecewise constant still depends on its operands, as PyTorch's: its own gradient is 0
            return Gradient(_zeros, ("grad",)) if hasattr(op, "gradient_of") else None
        if e.op == "arg" and e.args[0] == own["grad"]:
            return Gradient(lambda grad: grad, ("grad",))
        reads = ["result" if n == own["result"] else n for n in E.inputs_of(e) if n != own["grad"]]
    reads = ["grad", *reads]
    kinds = {q.name: q for q in op.params}
    notes = ["Tensor | Number" if (q := kinds.get(n)) is not None and q.kind in ("operand",) else
             "Mask" if q is not None and q.kind == "mask" else
             "Number" if q is not None and q.kind == "number" else "Any" if q is not None and q.kind == "plain" else "Tensor" for n in reads]
    names = [own.get(n, n) if n not in taken else n for n in reads]
    params = [n + ("=None" if n in {q.name for q in optional} else "") for n in names]
    first = next((i for i, t in enumerate(params) if "=None" in t), len(params))
    params = [t + "=None" if i > first and "=None" not in t else t for i, t in enumerate(params)]
    source = f"def g({', '.join(params)}): return BODY(({''.join(n + ', ' for n in names if n in {q.name for q in plain})}), locals())"

    def body(static: tuple, given: dict[str, Any]) -> E.Expr:
        return body_for(_complete(plain, reads, static), tuple(q.name for q in optional if given.get(q.name) is None))

    env: dict[str, Any] = {"BODY": body}
    exec(source, env)
    env["g"].__annotations__ = dict(zip(names, notes, strict=True))
    g = Operator("pointwise", env["g"], name=f"{op.name}_grad_{p.name}", public=False, method=False, result="same", domain=op.domain)
    g.gradient_of = (op, p.name)  # type: ignore[attr-defined]
    state: list[Callable] = []

    def call(*args: Any) -> Any:
        if not state:
            state.append(g.function)
        if args[0]._a.dtype.kind == "c":
            from . import function
            conj = function("conj_physical")
            return conj(state[0](conj(args[0]), *args[1:]))
        return state[0](*args)
    return Gradient(call, tuple(reads))


def _complete(plain: list, reads: list[str], static: tuple) -> tuple:
    it = iter(static)
    return tuple(next(it) if q.name in reads else q.default for q in plain)


def _plan(op: Operator) -> tuple[dict[str, Gradient], list[str], list[Param]]:
    formulas = op.derived("formulas")
    tensors = [p for p in op.params if p.differentiable]
    names: list[str] = []
    for g in ([op.joint] if op.joint else formulas.values()):
        for n in g.reads:
            if n not in ("grad", "grads", "needs") and n not in names:
                names.append(n)
    return formulas, names, tensors


def fit(g: Tensor, meta: TensorMeta) -> Tensor:
    """A gradient brought to the shape and dtype of its operand: summed over broadcast dimensions, the real part taken."""
    from . import function
    a = g._a
    if a.shape != meta.shape:
        g = sum_to(g, meta.shape)
    if g._a.dtype != meta.array_dtype:
        if g._a.dtype.kind == "c" and meta.array_dtype.kind != "c":
            g = function("real")(g)
        g = g.to(meta.dtype)
    return g


def sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`g` summed over the dimensions that broadcasting added or stretched."""
    from . import function
    have = g._a.shape
    lead = len(have) - len(shape)
    dims = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and have[i + lead] != 1)
    if dims:
        g = function("sum")(g, dims, True)
    return function("view")(g, shape) if g._a.shape != shape and g.is_contiguous() else function("reshape")(g, shape) if g._a.shape != shape else g


def _record(op: Operator, inplace: bool) -> Callable:
    from .inplace import set_history
    source = [f"def record(_t, {', '.join([*[p.name for p in op.params], *op.keeps])}):", *_record_lines(op, inplace)]
    return make("\n".join(source), "record", NODE=op.derived("node"), HISTORY=set_history)


def _record_lines(op: Operator, inplace: bool) -> list[str]:
    """The body of `record`: a node for the result _t, if one is wanted."""
    formulas, names, tensors = _plan(op)
    wanted = {p.name for p in tensors} if op.joint else set(formulas)
    multi = op.returns is not None or op.multi
    pnames = [p.name for p in op.params]
    lines = ["    if not modes.grad: return"]
    edges = []
    for i, p in enumerate(tensors):
        e = f"_e{i}"
        if p.name not in wanted:
            edges.append("None")
            continue
        if p.kind == "list":
            lines.append(f"    {e} = [edge(_x) if _x._rg else None for _x in {p.name}]")
            edges.append("*" + e)
        elif p.kind == "tensor":
            lines.append(f"    {e} = ({p.name}._node if {p.name}._base is None else edge({p.name})) if {p.name}._rg else None")
            edges.append(e)
        else:
            number = f"({p.name}.__class__ is float or {p.name}.__class__ is int or not getattr({p.name}, '_rg', False))" if i else \
                f"not getattr({p.name}, '_rg', False)"
            lines.append(f"    {e} = None if {number} else {p.name}._node if {p.name}._base is None else edge({p.name})")
            edges.append(e)
    tests = [f"_e{i} is None" if p.kind != "list" else f"not any(_e{i})" for i, p in enumerate(tensors) if p.name in wanted]
    lines.append(f"    if {' and '.join(tests) or 'True'}: return")
    if not multi and not (op.kind == "pointwise" and op.result in ("same", "float", "real")):  # these cannot lead to integers
        lines.append("    if _t._a.dtype.kind in 'biu': return")
    lines.append("    _n = new(NODE); _n.seq = seq()")
    if op.kind == "pointwise":
        lines.append("    _a = _t._a; _s = _a.shape; _d = _a.dtype")
    nxt = ", ".join(edges)
    lines.append(f"    _n.next = ({nxt}{',' if nxt else ''})")
    saves = []
    tnames = {p.name: (i, p) for i, p in enumerate(tensors)}
    anysave = False
    for nm in names:
        users = [a for a, g in formulas.items() if nm in g.reads]
        cond = "" if op.joint else " or ".join(
            (f"_e{tnames[a][0]} is not None" if tnames[a][1].kind != "list" else f"any(_e{tnames[a][0]})") for a in users)
        every = op.joint or set(users) == wanted
        if nm in ("result", "results") or op.returns and nm in op.returns:
            v = "save_result(_t)" if nm == "result" and not multi else "save_result(_t[0])" if nm == "result" else \
                "tuple(save_result(_x, _i) if _x is not None else None for _i, _x in enumerate(_t))" if nm == "results" else \
                f"save_result(_t[{op.returns.index(nm)}], {op.returns.index(nm)})"  # type: ignore[union-attr]
            anysave = True
        elif nm in op.keeps:
            v, every = f"None if {nm} is None else WRAP({nm})", True
        elif nm.endswith("_meta") and nm not in pnames:
            base = nm[:-5]
            kind = tnames[base][1].kind if base in tnames else "tensor"
            v = f"[TensorMeta(_x) for _x in {base}]" if kind == "list" else f"TensorMeta({base})" if kind == "tensor" else \
                f"TensorMeta({base}) if isinstance({base}, Tensor) else None"
            every = True
        elif nm in tnames or any(p.name == nm and p.kind in ("mask",) for p in op.params):
            v = f"save({nm})"
            anysave = True
        elif nm in pnames and next(p for p in op.params if p.name == nm).annotation in ("Index", "Any"):
            v = f"save({nm})"
            anysave = True
        elif nm in pnames:
            v, every = nm, True
        else:
            raise TypeError(f"the gradient of {op.name} reads {nm!r}, which is neither an argument nor a result")
        saves.append(v if every or not cond else f"({v} if {cond} else None)")
    if op.kind == "pointwise":
        for i, p in enumerate(tensors):
            if p.name in wanted:
                saves.append(f"None if _e{i} is None or (_a := {p.name}._a).shape == _s and _a.dtype is _d else TensorMeta({p.name})")
    lines.append(f"    _n.saved = ({', '.join(saves)}{',' if saves else ''})")
    lines.append("    _n.where = place()" if anysave else "    _n.where = place() if ANOMALY and modes.anomaly else None")
    if inplace:
        lines.append("    HISTORY(_t, _n)")
    elif multi:
        lines.append("    _n.outputs = len(_t)")
        lines.append("    attach_many(_t, _n)")
    else:
        lines.append("    _t._node = _n; _t._rg = True")
    return lines


def _node(op: Operator) -> type:
    formulas, names, tensors = _plan(op)
    multi = op.returns is not None or op.multi
    lines = ["def backward(self, grad, next):", "    s = self.saved", "    if s is None: raise freed()"]
    if multi:
        lines.append("    grads = grad; grad = grads[0]")
        if not op.joint and all("grads" not in g.reads for g in formulas.values()):
            lines.append("    if grad is None: return (None,) * len(next)")
    at = {n: i for i, n in enumerate(names)}

    def value(n: str) -> str:
        if n in ("grad", "grads"):
            return n
        if n == "results":
            return f"tuple(unpack(x, self) for x in s[{at[n]}])"
        return f"unpack(s[{at[n]}], self)"

    has_list = any(p.kind == "list" for p in tensors)
    env: dict[str, Any] = {}
    results = []
    if op.joint:
        lines.append("    needs = tuple([m is not None for m in next])")
        args = ", ".join("needs" if n == "needs" else value(n) for n in op.joint.reads)
        env["JOINT"] = op.joint.fn
        lines.append(f"    r = JOINT({args})")
        if has_list:
            lines.append("    out = []\n    for x in r: out.extend(x) if x.__class__ in (list, tuple) else out.append(x)\n    return tuple(out)")
        else:
            lines.append("    return r")
    else:
        count = len(names)
        k = 0
        if has_list:
            lines.append("    out = []; k = 0")
        for i, p in enumerate(tensors):
            g = formulas.get(p.name)
            if g is None:
                results.append("None")
                if has_list:
                    lines.append("    out.append(None); k += 1")
                continue
            env[f"G{i}"] = g.fn
            call = f"G{i}({', '.join(value(n) for n in g.reads)})"
            if p.kind == "list":
                lines.append(f"    r = {call}\n    out.extend(r); k += len(r)")
                continue
            if has_list:
                lines.append(f"    out.append({call} if next[k] is not None else None); k += 1")
                continue
            lines.append(f"    g{i} = None")
            lines.append(f"    if next[{i}] is not None:")
            lines.append(f"        g{i} = {call}")
            if op.kind == "pointwise":
                lines.append(f"        m = s[{count + k}]")
                lines.append(f"        if m is not None: g{i} = fit(g{i}, m)")
                k += 1
            results.append(f"g{i}")
        lines.append("    return tuple(out)" if has_list else f"    return ({', '.join(results)}{',' if results else ''})")
    backward = make("\n".join(lines), "backward", fit=fit, **env)
    body = {"__slots__": (), "backward": backward, "operator": op, "saved_names": tuple(names), "frees": any(_is_saved(op, n) for n in names),
            "__module__": "torch.autograd.graph"}
    if op.node_rule is not None:
        rule, places = op.node_rule, [at[n] for n in op.node_rule.__code__.co_varnames[:op.node_rule.__code__.co_argcount]]
        body["name"] = lambda self: op.node_name if self.saved is None else rule(*[self.saved[i] for i in places])
    return type(op.node_name, (Node,), body)


def _is_saved(op: Operator, name: str) -> bool:
    """Whether what a formula reads by this name is memory, which is freed after backward (sizes and settings are kept)."""
    if name in ("result", "results", *op.keeps) or op.returns and name in op.returns:
        return True
    return any(p.name == name and (p.differentiable or p.kind == "mask" or p.annotation in ("Index", "Any")) for p in op.params)
