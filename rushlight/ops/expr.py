"""Scalar expressions: what the body of a pointwise operator means.

A pointwise record is an ordinary Python function of scalars. Traced once, it becomes a small graph of `Expr` nodes over
the primitives of `PRIMITIVES`. Everything else is read off that graph: the NumPy evaluation (backends/cpu/evaluate.py),
the LLVM loop (compiler/llvm.py) and the derivative (`derivative` below), which is again an expression, so that
derivatives of any order exist. Nothing here touches arrays.

Rules of the algebra: `0 * x` is not 0 and `x - x` is not 0 (nan, inf); only `x * 1`, `x + 0` built by `derivative` itself
and constants are folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

__all__ = [
    "Expr", "Primitive", "COMPLEX", "PRIMITIVES", "arg", "const", "cast", "derivative", "evaluate", "inputs_of", "postorder", "prim",
    "substitute",
]


class Expr:
    """One node: a primitive applied to nodes, an argument (`op == "arg"`, its name in `args[0]`) or a constant
    (`op == "const"`, its Python number in `args[0]`). `cast` nodes carry a dtype name in `args[1]`. Hash-consed: equal
    expressions are the same object."""

    __slots__ = ("op", "args", "__weakref__")
    op: str
    args: tuple
    _seen: dict = {}

    def __new__(cls, op: str, *args: Any) -> Expr:
        key = (op, *[(type(a), str(a)) if not isinstance(a, Expr) else id(a) for a in args])
        node = cls._seen.get(key)
        if node is None:
            node = object.__new__(cls)
            node.op, node.args = op, args
            cls._seen[key] = node
        return node

    def __repr__(self) -> str:
        return str(self.args[0]) if self.op in ("arg", "const") else f"{self.op}({', '.join(map(repr, self.args))})"

    def __bool__(self) -> bool:
        raise TypeError("a scalar expression has no truth value while it is traced: use where(condition, a, b)")

    __hash__ = object.__hash__

    def __add__(self, o): return prim("add", self, o)
    def __radd__(self, o): return prim("add", o, self)
    def __sub__(self, o): return prim("sub", self, o)
    def __rsub__(self, o): return prim("sub", o, self)
    def __mul__(self, o): return prim("mul", self, o)
    def __rmul__(self, o): return prim("mul", o, self)
    def __truediv__(self, o): return prim("div", self, o)
    def __rtruediv__(self, o): return prim("div", o, self)
    def __pow__(self, o): return prim("pow", self, o)
    def __rpow__(self, o): return prim("pow", o, self)
    def __neg__(self): return prim("neg", self)
    def __abs__(self): return prim("abs", self)
    def __lt__(self, o): return prim("lt", self, o)
    def __le__(self, o): return prim("le", self, o)
    def __gt__(self, o): return prim("gt", self, o)
    def __ge__(self, o): return prim("ge", self, o)
    def __eq__(self, o): return prim("eq", self, o)  # type: ignore[override]
    def __ne__(self, o): return prim("ne", self, o)  # type: ignore[override]
    def __and__(self, o): return prim("and", self, o)
    def __or__(self, o): return prim("or", self, o)
    def __invert__(self): return prim("not", self)


def arg(name: str) -> Expr:
    return Expr("arg", name)


def const(v: Any) -> Expr:
    return v if isinstance(v, Expr) else Expr("const", v)


def cast(x: Any, dtype: str) -> Expr:
    """`x` converted to the dtype of that name ("float32", ...); "compute" is the operator's own computing dtype."""
    return Expr("cast", const(x), dtype)


def prim(op: str, *args: Any) -> Expr:
    """The primitive `op` of `args`; constants are folded."""
    a = [const(x) for x in args]
    fold = PRIMITIVES[op].fold
    if fold is not None and all(x.op == "const" for x in a):
        try:
            return const(fold(*[x.args[0] for x in a]))
        except (ArithmeticError, ValueError):
            pass
    return Expr(op, *a)


class Primitive:
    """A scalar function. `derivative[i](*args, result)` is d result / d args[i] (None: zero almost everywhere);
    `ufunc` is its name in the array module (NumPy's ufunc names; "scipy:NAME" for scipy.special); `result` is "same"
    (as the operands) or "bool"; `fold` evaluates it on Python numbers."""

    __slots__ = ("name", "arity", "derivative", "ufunc", "result", "fold")

    def __init__(self, name: str, ufunc: str, derivative: tuple = (), result: str = "same",
                 arity: int | None = None, fold: Callable | None = None) -> None:
        self.name, self.ufunc, self.derivative, self.result, self.fold = name, ufunc, derivative, result, fold
        self.arity = arity if arity is not None else max(1, len(derivative))


PRIMITIVES: dict[str, Primitive] = {}
# what has a meaning for complex numbers; the rest orders, rounds or is defined for reals
COMPLEX = frozenset((
    "arg", "const", "cast", "add", "sub", "mul", "div", "neg", "pow", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "eq", "ne", "and", "or", "xor", "not", "where", "isnan", "isinf", "isfinite",
))


def _p(name: str, ufunc: str, *derivative: Callable | None, **kw: Any) -> Callable[..., Expr]:
    PRIMITIVES[name] = Primitive(name, ufunc, derivative, **kw)
    return lambda *a: prim(name, *a)


def _square_of_radius(x: Any, y: Any) -> Any:
    s = x * x + y * y
    return where(s == 0, 1, s)


# --- arithmetic. x, y: arguments, r: result -------------------------------------------------------------------------
_p("add", "add", lambda x, y, r: 1, lambda x, y, r: 1, fold=lambda a, b: a + b)
_p("sub", "subtract", lambda x, y, r: 1, lambda x, y, r: -1, fold=lambda a, b: a - b)
_p("mul", "multiply", lambda x, y, r: y, lambda x, y, r: x, fold=lambda a, b: a * b)
_p("div", "true_divide", lambda x, y, r: 1 / y, lambda x, y, r: -r / y, fold=lambda a, b: a / b)
_p("neg", "negative", lambda x, r: -1, fold=lambda a: -a)
_p("abs", "absolute", lambda x, r: sign(x), fold=abs)
floor_divide = _p("floordiv", "floor_divide", None, None)
remainder = _p("remainder", "remainder", lambda x, y, r: 1, lambda x, y, r: -floor(x / y))
fmod = _p("fmod", "fmod", lambda x, y, r: 1, lambda x, y, r: -trunc(x / y))
pow = _p("pow", "power", lambda x, y, r: where(y == 0, 0, y * pow(x, y - 1)),
         lambda x, y, r: where((x == 0) & (y >= 0), 0, r * log(x)))
maximum = _p("maximum", "maximum", lambda x, y, r: where(x == y, 0.5, where(x > y, 1, 0)),
             lambda x, y, r: where(x == y, 0.5, where(y > x, 1, 0)))
minimum = _p("minimum", "minimum", lambda x, y, r: where(x == y, 0.5, where(x < y, 1, 0)),
             lambda x, y, r: where(x == y, 0.5, where(y < x, 1, 0)))
fmax = _p("fmax", "fmax", lambda x, y, r: where((x >= y) | isnan(y), 1, 0), lambda x, y, r: where((x >= y) | isnan(y), 0, 1))
fmin = _p("fmin", "fmin", lambda x, y, r: where((x <= y) | isnan(y), 1, 0), lambda x, y, r: where((x <= y) | isnan(y), 0, 1))
copysign = _p("copysign", "copysign", lambda x, y, r: where(x == 0, 0, r / x), None)
hypot = _p("hypot", "hypot", lambda x, y, r: x / r, lambda x, y, r: y / r)
# at the origin, where there is no angle, the gradient is 0
atan2 = _p("atan2", "arctan2", lambda x, y, r: y / _square_of_radius(x, y), lambda x, y, r: -x / _square_of_radius(x, y))
nextafter = _p("nextafter", "nextafter", None, None)
logaddexp = _p("logaddexp", "logaddexp", lambda x, y, r: exp(x - r), lambda x, y, r: exp(y - r))
logaddexp2 = _p("logaddexp2", "logaddexp2", lambda x, y, r: exp2(x - r), lambda x, y, r: exp2(y - r))

# --- functions of one argument --------------------------------------------------------------------------------------
exp = _p("exp", "exp", lambda x, r: r, fold=math.exp)
exp2 = _p("exp2", "exp2", lambda x, r: r * math.log(2))
expm1 = _p("expm1", "expm1", lambda x, r: r + 1)
log = _p("log", "log", lambda x, r: 1 / x)
log2 = _p("log2", "log2", lambda x, r: 1 / (x * math.log(2)))
log10 = _p("log10", "log10", lambda x, r: 1 / (x * math.log(10)))
log1p = _p("log1p", "log1p", lambda x, r: 1 / (1 + x))
sqrt = _p("sqrt", "sqrt", lambda x, r: 0.5 / r, fold=math.sqrt)
sin = _p("sin", "sin", lambda x, r: cos(x))
cos = _p("cos", "cos", lambda x, r: -sin(x))
tan = _p("tan", "tan", lambda x, r: 1 + r * r)
asin = _p("asin", "arcsin", lambda x, r: 1 / sqrt(1 - x * x))
acos = _p("acos", "arccos", lambda x, r: -1 / sqrt(1 - x * x))
atan = _p("atan", "arctan", lambda x, r: 1 / (1 + x * x))
sinh = _p("sinh", "sinh", lambda x, r: cosh(x))
cosh = _p("cosh", "cosh", lambda x, r: sinh(x))
tanh = _p("tanh", "tanh", lambda x, r: 1 - r * r)
asinh = _p("asinh", "arcsinh", lambda x, r: 1 / sqrt(x * x + 1))
acosh = _p("acosh", "arccosh", lambda x, r: 1 / sqrt(x * x - 1))
atanh = _p("atanh", "arctanh", lambda x, r: 1 / (1 - x * x))
erf = _p("erf", "scipy:erf", lambda x, r: (2 / math.sqrt(math.pi)) * exp(-(x * x)))
erfc = _p("erfc", "scipy:erfc", lambda x, r: (-2 / math.sqrt(math.pi)) * exp(-(x * x)))
erfinv = _p("erfinv", "scipy:erfinv", lambda x, r: (math.sqrt(math.pi) / 2) * exp(r * r))
lgamma = _p("lgamma", "scipy:gammaln", lambda x, r: digamma(x))
digamma = _p("digamma", "scipy:psi", lambda x, r: polygamma(1, x))
polygamma = _p("polygamma", "scipy:polygamma", None, lambda n, x, r: polygamma(n + 1, x))
zeta = _p("zeta", "scipy:zeta", None, lambda x, q, r: -x * zeta(x + 1, q))
i0 = _p("i0", "scipy:i0", lambda x, r: i1(x))
i0e = _p("i0e", "scipy:i0e", lambda x, r: i1e(x) - sign(x) * r)
i1 = _p("i1", "scipy:i1", lambda x, r: where(x == 0, 0.5, i0(x) - r / where(x == 0, 1, x)))
i1e = _p("i1e", "scipy:i1e", lambda x, r: where(x == 0, 0.5, i0e(x) - r * (sign(x) + 1 / where(x == 0, 1, x))))
ndtri = _p("ndtri", "scipy:ndtri", lambda x, r: math.sqrt(2 * math.pi) * exp(r * r / 2))
log_ndtr = _p("log_ndtr", "scipy:log_ndtr", lambda x, r: math.sqrt(2 / math.pi) / erfcx(-x / math.sqrt(2)))
erfcx = _p("erfcx", "scipy:erfcx", lambda x, r: 2 * x * r - 2 / math.sqrt(math.pi))
gammainc = _p("gammainc", "scipy:gammainc", None, lambda a, x, r: exp((a - 1) * log(x) - x - lgamma(a)))
gammaincc = _p("gammaincc", "scipy:gammaincc", None, lambda a, x, r: -exp((a - 1) * log(x) - x - lgamma(a)))
bessel_j0 = _p("bessel_j0", "scipy:j0", lambda x, r: -bessel_j1(x))
bessel_j1 = _p("bessel_j1", "scipy:j1", lambda x, r: bessel_j0(x) - r / x)
bessel_y0 = _p("bessel_y0", "scipy:y0", lambda x, r: -bessel_y1(x))
bessel_y1 = _p("bessel_y1", "scipy:y1", lambda x, r: bessel_y0(x) - r / x)
bessel_k0 = _p("bessel_k0", "scipy:k0", lambda x, r: -bessel_k1(x))
bessel_k1 = _p("bessel_k1", "scipy:k1", lambda x, r: -bessel_k0(x) - r / x)
bessel_k0e = _p("bessel_k0e", "scipy:k0e", lambda x, r: r - bessel_k1e(x))
bessel_k1e = _p("bessel_k1e", "scipy:k1e", lambda x, r: r - bessel_k0e(x) - r / x)
gcd = _p("gcd", "gcd", None, None)
lcm = _p("lcm", "lcm", None, None)
heaviside = _p("heaviside", "heaviside", None, None)
sign = _p("sign", "sign", None)
floor = _p("floor", "floor", None, fold=math.floor)
ceil = _p("ceil", "ceil", None)
trunc = _p("trunc", "trunc", None)
round = _p("round", "rint", None)

# --- predicates and logic -------------------------------------------------------------------------------------------
for _n, _u in (("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"),
               ("ge", "greater_equal")):
    _p(_n, _u, None, None, result="bool")
isnan = _p("isnan", "isnan", None, result="bool")
isinf = _p("isinf", "isinf", None, result="bool")
isfinite = _p("isfinite", "isfinite", None, result="bool")
signbit = _p("signbit", "signbit", None, result="bool")
_p("and", "logical_and", None, None, result="bool")
_p("or", "logical_or", None, None, result="bool")
_p("xor", "logical_xor", None, None, result="bool")
_p("not", "logical_not", None, result="bool")
logical_xor = lambda a, b: prim("xor", a, b)  # noqa: E731
bitwise_and = _p("bitand", "bitwise_and", None, None)
bitwise_or = _p("bitor", "bitwise_or", None, None)
bitwise_xor = _p("bitxor", "bitwise_xor", None, None)
bitwise_not = _p("bitnot", "invert", None)
left_shift = _p("shl", "left_shift", None, None)
right_shift = _p("shr", "right_shift", None, None)
where = _p("where", "where", None, lambda c, x, y, r: where(c, 1, 0), lambda c, x, y, r: where(c, 0, 1))


# --- reading an expression ------------------------------------------------------------------------------------------
def postorder(*roots: Expr) -> list[Expr]:
    """Every node once, operands before the nodes that use them."""
    seen: set[int] = set()
    out: list[Expr] = []
    todo = [(r, False) for r in reversed(roots)]        # a stack of our own: fused expressions can be deep
    while todo:
        n, operands_done = todo.pop()
        if operands_done:
            out.append(n)
        elif id(n) not in seen:
            seen.add(id(n))
            todo.append((n, True))
            todo += [(a, False) for a in reversed(n.args) if isinstance(a, Expr)]
    return out


def inputs_of(*roots: Expr) -> list[str]:
    """The names of the arguments that the expressions read, in order of first use."""
    return [n.args[0] for n in postorder(*roots) if n.op == "arg"]


def substitute(root: Expr, values: dict[str, Expr]) -> Expr:
    """`root` with arguments replaced: this is how operators are fused."""
    new: dict[int, Expr] = {}
    for n in postorder(root):
        if n.op == "arg":
            new[id(n)] = values.get(n.args[0], n)
        elif n.op == "const":
            new[id(n)] = n
        else:
            new[id(n)] = Expr(n.op, *[new[id(a)] if isinstance(a, Expr) else a for a in n.args])
    return new[id(root)]


def derivative(root: Expr, name: str, seed: Expr | None = None) -> Expr:
    """d root / d argument `name`, times `seed`, in reverse mode over the expression."""
    grad: dict[int, Expr] = {id(root): const(1) if seed is None else seed}
    for n in reversed(postorder(root)):
        g = grad.get(id(n))
        if g is None or n.op in ("arg", "const"):
            continue
        if n.op == "cast":
            pairs: Iterable = ((n.args[0], lambda *_: 1),)
        else:
            pairs = zip(n.args, PRIMITIVES[n.op].derivative, strict=False)
        for a, d in pairs:
            if d is None or a.op == "const":
                continue
            part = _times(g, const(d(*n.args, n)))
            grad[id(a)] = part if id(a) not in grad else prim("add", grad[id(a)], part)
    return grad.get(id(arg(name)), const(0))


def _times(g: Expr, d: Expr) -> Expr:
    """g * d without the products by one and minus one that the chain rule is full of; `where` factors select `g`."""
    if d.op == "const":
        if d.args[0] == 1:
            return g
        if d.args[0] == -1:
            return prim("neg", g)
    if d.op == "where" and all(x.op == "const" and x.args[0] in (0, 1) for x in d.args[1:]):
        return where(d.args[0], *[g if x.args[0] == 1 else x for x in d.args[1:]])
    return g if g.op == "const" and g.args[0] == 1 and d.op == "arg" else prim("mul", g, d)


def evaluate(root: Expr, values: dict[str, Any], apply: Callable[..., Any]) -> Any:
    """Interpret `root`: `apply(op, *operands)` for each node, arguments taken from `values`. The slow reference."""
    out: dict[int, Any] = {}
    for n in postorder(root):
        if n.op == "arg":
            out[id(n)] = values[n.args[0]]
        elif n.op == "const":
            out[id(n)] = n.args[0]
        else:
            out[id(n)] = apply(n.op, *[out[id(a)] if isinstance(a, Expr) else a for a in n.args])
    return out[id(root)]
