"""The gradient of a reduction that adds, from its record: the chain rule through `finish`, the sum and `map`.

With s the sum of map(x), the derivative of finish(s, n) by x is finish'(s, n) * map'(x). Both factors are expressions, made by rule and
evaluated by pointwise operators; where finish' reads s it is added up again, by an operator too. So derivatives of any order exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as D
from ..core.tensor import Tensor, hooks
from . import expr as E
from .declare import Gradient, Operator
from .execute import HALF, expand_reduced, fold_dtypes, normalize_dims, trace_fold

__all__ = ["fold_gradient"]

SETTINGS = ("dim", "keepdim", "dtype")


def fold_gradient(op: Operator) -> Gradient:
    """The gradient formula of a reduction without one of its own. TypeError where the record does not add: it must give one."""
    names = [p.name for p in op.params]
    others = [n for n in names if n != "input" and n not in SETTINGS]

    def chain(bound: dict[str, Any]) -> tuple[Any, E.Expr, E.Expr]:
        """The fold, and what makes of `grad` the derivative by the sum, and of that the derivative by an element."""
        fold = trace_fold(op, tuple(bound.get(n) for n in names))[0]
        outer = grad = E.arg("grad")
        if fold.finish is not None:
            outer = E.derivative(E.const(fold.finish(E.arg("s"), E.arg("n"))), "s", grad)
        return fold, outer, E.derivative(fold.map, "input", grad)

    def formula(*args: Any) -> Any:
        bound = dict(zip(reads, args, strict=True))
        grad, meta, dim, keepdim = bound["grad"], bound["input_meta"], bound.get("dim"), bound.get("keepdim", False)
        fold, outer, inner = known or chain(bound)
        f = hooks.function
        x, dims = bound.get("input"), normalize_dims(dim, len(meta.shape))
        n = 1
        for d in dims:
            n *= meta.shape[d]
        s = None
        if x is not None:       # in the dtype that the forward computed in
            compute = fold_dtypes(op, x._a, bound.get("dtype"))[0]
            compute = D.ALL[HALF[compute.name]] if compute.name in HALF else compute
            x = x if x.dtype is compute else x.to(compute)
            if "s" in E.inputs_of(outer):
                s = f("sum")(_pointwise(fold.map, {"input": x}), dims, keepdim)
        values = {"n": n, "s": s, "input": x}
        g = _gradient(inner, expand_reduced(_gradient(outer, grad, values), meta.shape, dim, keepdim), values)
        return g if g._a.dtype == meta.array_dtype else g.to(meta.dtype)

    def plain(grad: Any, input_meta: Any, dim: Any = None, keepdim: bool = False) -> Any:
        gd = expand_reduced(grad, input_meta.shape, dim, keepdim)
        return gd if gd._a.dtype == input_meta.array_dtype else gd.to(input_meta.dtype)

    known = None if others else chain({})
    if known is not None:
        fold, outer, inner = known
        if fold.combine in ("mul", "max", "min"):
            raise TypeError(f"the reduction {op.name} does not add (it folds with {fold.combine!r}): its record must give a gradient")
        if outer.op == inner.op == "arg":        # a plain sum: its gradient is the gradient, expanded
            return Gradient(plain, ("grad", "input_meta", *[n for n in names if n in ("dim", "keepdim")]))
    # what other arguments make of the fold shows when it is called
    reads_input = known is None or "s" in E.inputs_of(outer) or "input" in E.inputs_of(inner)
    reads = ("grad", "input_meta", *(["input"] if reads_input else []), *[n for n in names if n != "input"])
    return Gradient(formula, reads)


_made: dict[E.Expr, Callable] = {}


def _gradient(e: E.Expr, grad: Tensor, values: dict[str, Any]) -> Tensor:
    """The expression of `grad` and what else it reads of `values`; for complex numbers, as PyTorch has it, the conjugate's."""
    if e.op == "arg":
        return grad
    if "grad" not in E.inputs_of(e):        # constant almost everywhere
        return hooks.function("zeros_like")(grad)
    if grad._a.dtype.kind == "c":
        conj = hooks.function("conj_physical")
        return conj(_pointwise(e, {**values, "grad": conj(grad)}))
    return _pointwise(e, {**values, "grad": grad})


def _pointwise(e: E.Expr, values: dict[str, Any]) -> Tensor:
    """The expression of `values` by a pointwise operator that has no public name. "n" is a number."""
    if e.op == "arg":
        return values[e.args[0]]
    names = E.inputs_of(e)
    f = _made.get(e)
    if f is None:
        own = [n + "1" for n in names]       # `grad` is what arrives at a formula
        body = E.substitute(e, dict(zip(names, map(E.arg, own), strict=True)))
        env: dict[str, Any] = {"BODY": lambda: body}
        exec(f"def g({', '.join(own)}): return BODY()", env)
        env["g"].__annotations__ = {m: "Number" if n == "n" else "Tensor" for n, m in zip(names, own, strict=True)}
        f = _made[e] = Operator("pointwise", env["g"], name="chain", public=False).function
    return f(*[values[n] for n in names])
