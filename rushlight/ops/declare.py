"""How an operator is declared.

A decorator turns a Python function into an `Operator` record. The function's name, parameters, annotations, defaults and
docstring are the operator's; what its body means depends on the kind:

    pointwise   a scalar expression over ops.expr; traced once
    reduction   returns `fold(...)`: what is folded over the reduced dimensions, how, and how it is finished
    view        from a `Geometry` to a `Geometry`
    structural  from arrays to arrays (`xp` is the array module); `.shape` gives the rule for meta tensors
    writes      like structural, but writes into its first array: gives `name` (on a copy) and `name_`
    creation    makes an array from sizes and values
    composite   a body in tensor operators

Annotations: `Tensor`, `Tensor | None`, `Tensor | Number`, `Tensors` (a list), `Mask` (a tensor read as bool), `Number` (a Python
number, or a 0-dim tensor read as one), `Sizes` (ints, also as separate arguments), `Dims` (None, an int or ints); anything else is
passed as it is.

Gradients are formulas in tensor operators (pointwise records: in scalars), one per operand: `op.gradient(input=lambda grad,
other: grad * other)`. A formula's parameter names say what it reads: `grad`, `grads` (all results'), `result`, `results`,
operands, other arguments, and `NAME_meta` for shape and dtype only. Only what the formulas in use read is saved. Where
gradients share work, `op.backward(f)` with `f(grad, needs, ...)` returns them all. A pointwise operator without formulas is
differentiated by rule.

What older programs call: `aliases` are further names; `old` maps keywords to today's ("mat": "input"; "base": "input>exponent": it is `input`,
and what came as `input` is meant for `exponent`; "value+": what `value` means where its own parameter is given too; "values": "out.0": memory
for one of (values, indices)); `legacy` are signatures with more positional arguments than today's, numbers before the tensors that they
multiply ("beta, input, alpha, mat1, mat2"), and `legacy_method` those of the method where they are others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["Operator", "Param", "Fold", "Gradient", "NAMESPACES", "OPERATORS", "pointwise", "reduction", "view", "structural", "writes",
           "creation", "composite", "fold", "install"]

OPERATORS: dict[str, Operator] = {}
RESULTS: dict[str, Operator] = {}        # by the name of the class of its several results, a record that gives them
NAMESPACES: dict[str, dict[str, Operator]] = {}
KINDS = ("pointwise", "reduction", "view", "structural", "writes", "creation", "composite")
TENSOR_KINDS = {"Tensor": "tensor", "Tensor | None": "optional", "Tensor | Number": "operand", "Tensors": "list", "Mask": "mask",
                "Number | Tensor": "operand", "Tensor | Number | None": "operand", "list[Tensor]": "list"}
# names that other libraries and older versions use, accepted by every operator that has the parameter on the right
OLD_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other", "a": "input", "dimension": "dim",
             "dims": "dim", "tensor": "input", "self": "input"}

# Generated code keeps the names of parameters and calls its own things by these: locals, then globals, then what formulas read.
_LOCALS = re.compile(r"_[a-z]{1,4}\d*|_[A-Z]_.*")
_GLOBALS = frozenset("""ABSENT ANOMALY ARRAY BIG BIN BODY BOOL CAPTURE CHECK CPU CPU_DEFAULT DEFAULT DTYPE EV EVALUATOR F32 F64 FAST_ERRORS FINISH FN
    HISTORY I64 INPLACE LEGACY LOOP MADE MAP MAYBE MISSING NAMED ND NODE NONNEGATIVE NUMBERS OLD OP OUT OVERLAP PLAIN QUIETS RECORD REDUCE RESULT
    ROWS RUN SIZES SUM TENSORS Tensor TensorMeta UF asarray attach_many bump edge freed fresh_quiet modes new place quiet save save_result seq
    unpack WRAP any enumerate float getattr int isinstance len list locals tuple AttributeError IndexError TypeError""".split())
_READ = ("grad", "grads", "result", "results", "needs")


def reserved(op: Operator, name: str) -> str | None:
    """Why an operator cannot have a parameter of this name; None if it can."""
    if _LOCALS.fullmatch(name) or name in _GLOBALS:
        return "generated code calls something of its own so"
    if name == "out" and op.has_out or name == "inplace" and op.inplace_argument:
        return "every function of this kind has that argument"
    if name in _READ and op.kind in ("pointwise", "reduction"):     # of whose formulas some are derived
        return "gradient formulas read something else by that name"
    return None


class Param:
    """One parameter of an operator: its kind is tensor, optional, operand (tensor or number), list, mask, number, sizes, dims or
    plain."""

    __slots__ = ("name", "kind", "default", "keyword", "annotation")

    def __init__(self, name: str, annotation: str, default: Any, keyword: bool) -> None:
        self.name, self.annotation, self.default, self.keyword = name, annotation, default, keyword
        self.kind = TENSOR_KINDS.get(annotation) or {"Number": "number", "Sizes": "sizes", "Dims": "dims"}.get(annotation, "plain")

    @property
    def differentiable(self) -> bool:
        return self.kind in ("tensor", "optional", "operand", "list")


class _Required:
    """Stands for the value of a parameter that was not given and has no default."""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


def params_of(fn: Callable) -> list[Param]:
    """The parameters of a function, from its code object (inspect is slow to import)."""
    code = fn.__code__
    notes = fn.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = fn.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    kwd = fn.__kwdefaults__ or {}
    return [Param(n, notes.get(n, "Any"), defaults[i - first] if first <= i < code.co_argcount else kwd.get(n, REQUIRED), i >= code.co_argcount)
            for i, n in enumerate(names)]


def _positional(fn: Callable, params: list[Param]) -> Callable:
    """`fn` taking all of its parameters by position."""
    names = tuple(p.name for p in params if p.keyword)
    if not names:
        return fn
    k = len(params) - len(names)
    if len(names) == 1:
        last = names[0]
        return lambda *v: fn(*v[:k], **{last: v[k]})
    return lambda *v: fn(*v[:k], **dict(zip(names, v[k:], strict=True)))


class Gradient:
    """A formula: the function and the names it reads."""

    __slots__ = ("fn", "reads")

    def __init__(self, fn: Callable, reads: tuple[str, ...] | None = None) -> None:
        self.fn = fn
        self.reads = fn.__code__.co_varnames[: fn.__code__.co_argcount + fn.__code__.co_kwonlyargcount] if reads is None else reads


class Fold:
    """What a reduction does: `map` (scalar expression) of each element is combined ("add", "mul", "max", "min", "or", "and") and
    `finish(value, n)` makes the result from the combination of n elements. `empty`: the value over no elements, None if there is
    none."""

    __slots__ = ("combine", "map", "finish", "empty")

    def __init__(self, combine: str, map: Any, finish: Callable | None, empty: Any) -> None:
        self.combine, self.map, self.finish, self.empty = combine, map, finish, empty


def fold(combine: str, map: Any, finish: Callable | None = None, empty: Any = "identity") -> Fold:
    identity = {"add": 0, "mul": 1, "or": False, "and": True}
    return Fold(combine, map, finish, identity.get(combine) if empty == "identity" else empty)


class Operator:
    """The record of one operator. Everything that is derived from it is made when first asked for."""

    def __init__(self, kind: str, fn: Callable, *, name: str | None = None, ns: str | tuple[str, ...] = "torch", method: bool | str = False,
                 inplace: bool | str = False, operator: str | None = None, aliases: tuple[str, ...] = (),
                 legacy: str | tuple[str, ...] | None = None, legacy_method: tuple[str, ...] | None = None,
                 old: dict[str, str] | None = None, result: Any = "same", prop: bool = False, returns: tuple[str, ...] | None = None,
                 half: bool = True, check: Callable | None = None, exact: bool = False, out: bool | str | None = None,
                 random: bool = False, domain: tuple[float, float] = (-3.0, 3.0), numbers: bool = False, samples: Callable | None = None,
                 differentiable: bool = True, node: str | None = None, multi: bool = False, method_only: bool = False,
                 public: bool = True, ints: bool = True, accumulate: bool = True, mutates: tuple[str, ...] = (), data_source: str | None = None) -> None:
        self.kind, self.fn = kind, fn
        self.name = name or fn.__name__
        self.ns = (ns,) if isinstance(ns, str) else ns
        self.method, self.inplace, self.operator, self.aliases = method, bool(inplace) or kind == "writes", operator, aliases
        # old signatures with more positional arguments ("beta, input, alpha, mat1, mat2"); those of the method where they are others
        self.legacy = (legacy,) if isinstance(legacy, str) else legacy
        self.legacy_method = legacy_method
        self.inplace_argument = inplace == "argument"     # the function takes `inplace=False` after its other parameters
        self.inplace_view = inplace == "view"             # `name_` makes the tensor itself the view
        self.numbers = numbers                            # all operands may be numbers
        # by category of dtype (core.dtype.BOOL, COMPLEX): the operator to use where the scalar expression does not hold
        self.forms: dict[int, Operator] = {}
        self.mutates = mutates                            # operands that the array function writes to
        self.keeps: tuple[str, ...] = ()
        self.expanded = False                             # `name_` may write to an expanded tensor: all elements get one value
        self.old, self.result, self.prop, self.returns, self.half, self.check = old or {}, result, prop, returns, half, check
        self.exact, self.random, self.domain, self.sample_inputs, self.multi = exact, random, domain, samples, multi
        self.can_differentiate, self.method_only, self.public, self.ints = differentiable, method_only, public, ints
        self.accumulate, self.data_source = accumulate, data_source
        self.params = params_of(fn)
        self.body = _positional(fn, self.params)
        self.out_view = out == "view"
        self.has_out = False if self.out_view else (kind in ("pointwise", "reduction", "structural", "creation", "writes") and not method_only and ns != "Tensor") \
            if out is None else bool(out)
        # "cast": out= may be of another dtype that can hold the result; "same": it may not; "apart": nor may it share memory with operands;
        # "moved": it may be of another dtype but not share memory; "dtype": its dtype is what `dtype=` would be; "one": one result
        # may be cast, several may not
        # "view": `out` becomes the view (as in 0.3)
        self.out_dtype = out if isinstance(out, str) else "same" if kind in ("structural", "writes") else \
            "dtype" if kind in ("reduction", "creation") and any(p.name == "dtype" for p in self.params) else "cast"
        for p in self.params:
            if not isinstance(p.annotation, str):
                raise TypeError(f"{self.name}(): the annotation of {p.name!r} must be text: begin the file with `from __future__ import annotations`")
            why = reserved(self, p.name)
            if why is not None:
                raise TypeError(f"{self.name}() cannot have a parameter named {p.name!r}: {why}")
        if kind == "reduction" and (not self.params or self.params[0].name != "input" or self.params[0].kind != "tensor"):
            raise TypeError(f"{self.name}(): the first parameter of a reduction is `input: Tensor`")
        self.gradients: dict[str, Gradient] = {}
        self.joint: Gradient | None = None
        self.shape_rule: Callable | None = None
        self.array: Callable | None = None
        self.sparse_rule: Callable | None = None
        self.node_rule: Callable | None = None
        self.node_name = node or "".join(p[:1].upper() + p[1:] for p in self.name.strip("_").split("_")) + "Backward0"
        self.__doc__ = fn.__doc__
        self._derived: dict[Any, Any] = {}
        if returns:
            RESULTS.setdefault(self.result_name, self)
        if public:
            OPERATORS[self.qualified] = self
            for n in self.ns:
                table = NAMESPACES.setdefault(n, {})
                for a in (self.name, *aliases):
                    table[a] = self

    @property
    def result_name(self) -> str:
        """The name under torch.return_types of the class of its several results."""
        return "linalg_" + self.name if self.ns[0] == "linalg" else self.name

    @property
    def qualified(self) -> str:
        """The name with its namespace, as the parity tool writes it: "add", "nn.functional.relu", "linalg.inv"."""
        return self.name if self.ns[0] == "torch" else f"{self.ns[0]}.{self.name}"

    # --- what may follow the decorator ------------------------------------------------------------------------------
    def gradient(self, *fns: Callable, **named: Callable) -> Any:
        """Formulas for operands: `op.gradient(input=lambda grad, ...: ...)`, or `@op.gradient` on a function of the operand's name."""
        for f in fns:
            named[f.__name__] = f
        for k, f in named.items():
            if k not in {p.name for p in self.params}:
                raise TypeError(f"{self.name} has no operand {k!r}")
            self.gradients[k] = self._formula(f)
        return self

    def _formula(self, fn: Callable) -> Gradient:
        """TypeError for a formula that reads what is both a parameter and a result."""
        g = Gradient(fn)
        both = {"results", "result", "grads", "needs", *(self.returns or ())} & {p.name for p in self.params} & set(g.reads)
        if both:
            raise TypeError(f"a gradient of {self.name} reads {min(both)!r}, which is a parameter and a result: rename the parameter")
        return g

    def backward(self, fn: Callable) -> Operator:
        """One formula `fn(grad, needs, ...)` for all operands; `needs` says which are wanted; returns a tuple, one entry an operand."""
        self.joint = self._formula(fn)
        return self

    def named(self, fn: Callable) -> Operator:
        """The rule for the name of a node, where PyTorch has several for one record: from settings that formulas read to a name. It
        is asked when somebody looks at the node."""
        self.node_rule = fn
        return self

    def shape(self, fn: Callable) -> Operator:
        """The rule for meta tensors: from MetaArrays (and the other arguments) to a shape, a (shape, dtype) or a tuple of these."""
        self.shape_rule = fn
        return self

    def fast(self, fn: Callable, keeps: tuple[str, ...] = ()) -> Operator:
        """A way on arrays that is quicker than the body and gives the same (a generated test holds the two equal).

        With `keeps`, `fn` takes one more argument, whether the call is recorded, and returns the result followed by the arrays
        that the gradient's formulas read by these names (None where not recorded)."""
        self.keeps = keeps
        self.array = _positional(fn, params_of(fn)) if self.kind != "reduction" else fn
        return self

    def sparse(self, fn: Callable) -> Operator:
        """What a call with a sparse operand does: `fn` takes the operator's arguments, tensors as they are, in order."""
        self.sparse_rule = fn
        return self

    def samples(self, fn: Callable) -> Operator:
        """Inputs for the generated tests: `fn()` yields `(args, kwargs)` whose `Spec`s become tensors."""
        self.sample_inputs = fn
        return self

    # --- what is derived --------------------------------------------------------------------------------------------
    def derived(self, key: str) -> Any:
        v = self._derived.get(key)
        if v is None:
            from . import generate
            v = self._derived[key] = generate.derive(self, key)
        return v

    @property
    def function(self) -> Callable:
        """The public function; also the Tensor method."""
        return self.derived("function")

    @property
    def method_function(self) -> Callable:
        """What the Tensor method is: the function, unless old signatures of the two differ."""
        return self.derived("function" if self.legacy_method is None else "method")

    @property
    def inplace_function(self) -> Callable:
        return self.derived("inplace")

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.function(*args, **kw)

    def __repr__(self) -> str:
        return f"<operator {self.qualified} ({self.kind})>"


def _kind(kind: str, **fixed: Any) -> Callable:
    def decorator(fn: Callable | None = None, **kw: Any) -> Any:
        make = lambda f: Operator(kind, f, **{**fixed, **kw})  # noqa: E731
        return make if fn is None else make(fn)
    decorator.__name__ = kind
    return decorator


pointwise = _kind("pointwise")
reduction = _kind("reduction")
view = _kind("view")
structural = _kind("structural")
writes = _kind("writes")
creation = _kind("creation")
composite = _kind("composite")

DUNDERS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod", "pow": "pow", "matmul": "matmul",
           "and": "and", "or": "or", "xor": "xor", "lshift": "lshift", "rshift": "rshift"}


class Late:
    """A method that is made when somebody first looks at it, and then takes this one's place."""

    __slots__ = ("owner", "attr", "make")

    def __init__(self, owner: type, attr: str, make: Callable[[], Callable]) -> None:
        self.owner, self.attr, self.make = owner, attr, make

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        f: Any = self.make()
        if "<locals>" in f.__qualname__ or f.__name__ not in self.owner.__dict__:         # pickle is to find it again
            f.__module__, f.__name__, f.__qualname__ = "rushlight", self.attr, f"Tensor.{self.attr}"
        if self.owner.__dict__.get(self.attr) is self:
            setattr(self.owner, self.attr, f)
        return f.__get__(instance, owner)

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.__get__(None, self.owner)(*args, **kw)


def install() -> None:
    """Put the operators on Tensor, each made when it is first looked at."""
    from ..core.tensor import Tensor, hooks

    def put(attr: str, make: Callable[[], Callable]) -> None:
        setattr(Tensor, attr, Late(Tensor, attr, make))

    for op in list(OPERATORS.values()):
        if op.prop:
            setattr(Tensor, op.name, property(lambda t, op=op: op.function(t)))
        elif op.method:
            for n in (op.name if op.method is True else op.method, *op.aliases):
                put(n, lambda op=op: op.method_function)
        if op.inplace:
            for n in (op.name, *op.aliases):
                put(n + "_", lambda op=op: op.inplace_function)
        if op.operator:
            for o in op.operator.split():
                if o in DUNDERS:
                    for n in (o, "div") if o == "truediv" else (o,):        # Tensor.__div__ is older than Python 3
                        put(f"__{n}__", lambda op=op: op.derived("dunder"))
                        put(f"__r{n}__", lambda op=op: op.derived("rdunder"))
                        if op.inplace:
                            put(f"__i{n}__", lambda op=op: op.derived("idunder"))
                elif o in ("neg", "invert", "abs", "pos"):
                    put(f"__{o}__", lambda op=op: op.function)
                else:
                    put(f"__{o}__", lambda op=op: op.derived("dunder"))
    from . import function
    hooks.function = function
