"""The first lines of generated wrappers: the ways for plain CPU arrays, which skip everything that is decided for other
operands.

Each function gives source lines that either return the result or fall through to the general path. Meaning never
depends on them:
what they accept, they treat as `execute` does. They test the class of arrays against `ND`, which a capture replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.cpu import loops
from . import expr as E
from .declare import Operator, Param

if TYPE_CHECKING:
    from .generate import Plain

__all__ = [
    "creation_path",
    "default_name",
    "direct_path",
    "floats_pass",
    "has_gradient",
    "inplace_path",
    "list_path",
    "operands_path",
    "pointwise_path",
    "reduction_path",
]

# primitives for which int64 operands need no thought: no division, no power
INTEGER_PRIMITIVES = frozenset(
    ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
)


EXACT = frozenset(("neg", "abs", "maximum", "minimum", "where", "eq", "ne", "lt", "le", "gt", "ge"))
SAMPLE = np.ones(1, np.float32)      # stands for any operand of floats


def default_name(p: Param) -> str:
    return f"D_{p.name}"


def floats_pass(op: Operator) -> bool:
    """Whether float operands of one dtype need no check."""
    return op.check is None or getattr(op.check, "integers_only", False)


def has_gradient(op: Operator) -> bool:
    return op.can_differentiate and (
        bool(op.gradients)
        or op.joint is not None
        or op.kind == "reduction"
        or op.kind == "pointwise"
        and op.result not in ("bool", "int64")
    )


def operands_path(op: Operator) -> tuple[list[str], dict[str, Any]]:
    """The way of a pointwise record with three operands or more, with masks, with operands that may be None or with plain
    arguments: floats of one dtype and numbers. A function is made for each choice of what is there and of the plain values."""
    operands = [p for p in op.params if p.kind in ("tensor", "operand", "mask")]
    first = next((p for p in operands if p.kind != "mask"), None)
    plain = [p for p in op.params if p.kind == "plain"]
    known = ("tensor", "operand", "mask", "number", "plain")
    if first is None or op.result not in ("same", "float") or any(p.kind not in known for p in op.params):
        return [], {}
    if not floats_pass(op):
        return [], {}
    from ..backends.cpu.evaluate import numpy_function

    names = [p.name for p in op.params if p.kind != "plain"]
    numbers = [p.name for p in op.params if p.kind == "number"]
    chosen = [p for p in operands if p.kind == "operand" and p is not first]
    made: dict[Any, Callable] = {}

    def evaluator(*key: Any) -> Callable:
        """The function for one choice of numbers ("n"), tensors ("t") and operands that are not there ("-"), then the plain values."""
        from .generate import trace

        is_a = dict(zip([p.name for p in chosen], key, strict=False))
        static = key[len(chosen) :]
        if plain and op.check is not None:
            given = dict(zip([p.name for p in plain], static, strict=True))
            op.check(*[given[p.name] if p in plain else 1.0 if p.kind == "number" else SAMPLE for p in op.params])
        root = trace(op, static, tuple(n for n, k in is_a.items() if k == "-"))
        if root.op in ("arg", "const") or any(n.op == "polygamma" for n in E.postorder(root)):
            raise TypeError("this is for the general path")
        given = numbers + [n for n, k in is_a.items() if k == "n"]
        f = numpy_function(names, [root], numbers=given)
        if set(names) - set(given) == {first.name} == {names[0]} and op.result in ("same", "float") and loops.least(root) < loops.BIG:
            f = _looped(f, loops.Direct(root, names[:1], names[1:], False))
        made[key] = f
        return f

    lines = ["    try:", f"        a = {first.name}._a; d = a.dtype; rg = {first.name}._rg"]
    lines.append("        ok = a.__class__ is ND and (d is F32 or d is F64) and a.size < BIG")
    values = {first.name: "a"}
    for i, p in enumerate(operands):
        if p is first:
            continue
        values[p.name] = f"b{i}"
        tensor = f"b{i} = {p.name}._a; ok = ok and b{i}.dtype is d and b{i}.__class__ is ND; rg = rg or {p.name}._rg"
        if p.kind == "mask":
            lines.append(f"        b{i} = {p.name}._a; ok = ok and b{i}.dtype is BOOL and b{i}.__class__ is ND")
        elif p.kind == "tensor":
            lines.append("        " + tensor)
        else:
            k = chosen.index(p)
            lines.append(f"        c{k} = {p.name}.__class__")
            lines.append(f"        if c{k} is float or c{k} is int: b{i} = {p.name}; c{k} = 'n'")
            if p.default is None:
                lines.append(f"        elif {p.name} is None: b{i} = None; c{k} = '-'")
            lines.append(f"        else: {tensor}; c{k} = 't'")
    lines += [f"        ok = ok and ({n}.__class__ is float or {n}.__class__ is int)" for n in numbers]
    if op.has_out:
        lines.append("        ok = ok and out is None")
    key = "".join(f"c{k}, " for k in range(len(chosen))) + "".join(p.name + ", " for p in plain)
    args = ", ".join(values.get(n, n) for n in names)
    lines += [
        "        if ok:",
        f"            r = quiet(MADE.get(({key})) or EVALUATOR({key}), {args}, d.type)",
        "            t = new(Tensor); t._a = r if r.__class__ is ND else asarray(r); t._rg = False",
        "            t._node = t._grad = t._v = t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if rg: RECORD[0](t, {', '.join(p.name for p in op.params)})")
    return [*lines, "            return t", "    except FAST_ERRORS: pass"], {"MADE": made, "EVALUATOR": evaluator}


def _looped(f: Callable, loop: loops.Direct) -> Callable:
    """`f`, or the loop for operands that are not few."""

    def evaluate(a: Any, *rest: Any) -> Any:
        r = loop(a, *rest[:-1]) if a.size >= loops.FEW else None
        return f(a, *rest) if r is None else r

    return evaluate


def integers_pass(op: Operator, plain: Plain) -> bool:
    """Whether int64 operands need no check and give int64, or bool."""
    return (
        plain.primitive in INTEGER_PRIMITIVES
        and op.result in ("same", "bool", "real")
        and (op.check is None or getattr(op.check, "integers_pass", False))
    )


def exact(root: E.Expr) -> bool:
    """Whether a loop and NumPy give the same bits for certain: choices and signs, nothing that rounds."""
    return all(n.op in EXACT or n.op in ("arg", "const") for n in E.postorder(root))


def pointwise_path(op: Operator, self_name: str, indent: str, plain: Plain, dunder: bool = False, big: bool = False) -> list[str]:
    """The fast path of a pointwise operator with one or two tensor operands. Falls through when it does not apply. With `big`
    large arrays go to `LOOP`."""
    t = [p.name for p in plain.tensors]
    use = plain.ufunc is not None
    numbers = "".join(", " + p.name for p in plain.numbers)
    lines = ["try:"]
    lines.append(f"    a = {t[0]}._a; d = a.dtype")
    floats = "(d is F32 or d is F64)"
    whole = (
        floats[:-1]
        + (
            " or d is I64 and oc is not float)"
            if len(t) == 2 and plain.tensors[1].kind == "operand"
            else " or d is I64)"
        )
        if use and integers_pass(op, plain)
        else floats
    )
    if len(t) == 2:
        if plain.tensors[1].kind == "operand":
            lines.append(f"    oc = {t[1]}.__class__")
            lines.append("    if oc is float or oc is int:")
            lines.append(f"        b = {t[1]}; ok = {whole if use else 'False'}; rg = {t[0]}._rg")
            lines.append("    else:")
            lines.append(
                f"        b = {t[1]}._a; ok = d is b.dtype and b.__class__ is ND and {whole}; rg = {t[0]}._rg or "
                f"{t[1]}._rg"
            )
        else:
            lines.append(
                f"    b = {t[1]}._a; ok = d is b.dtype and b.__class__ is ND and {whole}; rg = {t[0]}._rg or {t[1]}._rg"
            )
        call = "quiet(UF, a, b)" if use else f"quiet(EV, a, b{numbers}, d.type)"
    else:
        lines.append(f"    ok = {whole}; rg = {t[0]}._rg")
        call = "quiet(UF, a)" if use else f"quiet(EV, a{numbers}, d.type)"
    lines.append("    if ok and a.__class__ is ND:")
    least = 0 if len(t) == 1 and exact(plain.root) else loops.least(plain.root)
    if big and not use and least < loops.BIG:
        from_ = f" if a.size >= {least} else None" if least else ""
        lines.append(f"        r = LOOP(a{', b' if len(t) == 2 else ''}{numbers}){from_}")
        lines.append(f"        if r is None and a.size < BIG: r = {call}")
    elif big:
        lines.append(f"        r = {call} if a.size < BIG else LOOP(a{', b' if len(t) == 2 else ''}{numbers if not use else ''})")
    else:
        lines.append(f"        r = {call} if a.size < BIG else None")
    lines.append("    else: r = None")
    lines.append("    if r is not None:")
    lines.append("        t = new(Tensor); t._a = r if r.__class__ is ND else asarray(r); t._rg = False")
    lines.append("        t._node = t._grad = t._v = t._base = None")
    if has_gradient(op):
        values = (
            ", ".join(p.name for p in op.params)
            if not dunder
            else ", ".join(p.name if p in plain.tensors else default_name(p) for p in op.params)
        )
        lines.append(f"        if rg: RECORD[0](t, {values})")
    lines.append("        return t")
    lines.append("except FAST_ERRORS: pass")
    return [indent + x for x in lines]


def direct_path(op: Operator) -> list[str]:
    """The fast path of a record with an array function: tensors on plain CPU arrays of float32, float64 or int64
    (of any dtype where
    the record is exact) go straight to it. Nothing where the record needs more than that."""
    tensors = [p for p in op.params if p.kind in ("tensor", "optional")]
    several = op.multi and op.kind == "composite" and not op.gradients and op.joint is None
    named = op.returns and op.kind == "structural" and not op.multi and not op.keeps
    if (
        not tensors
        or op.returns
        and not named
        or op.multi
        and not several
        or op.params[0].kind != "tensor"
        or any(p.kind in ("operand", "list", "mask") for p in op.params)
    ):
        return []
    lines = ["    try:"]
    oks, rgs = [], []
    for i, p in enumerate(tensors):
        read = f"a{i} = {p.name}._a; d{i} = a{i}.dtype"
        ok = f"a{i}.__class__ is ND" + ("" if op.exact else f" and (d{i} is F32 or d{i} is F64 or d{i} is I64)")
        if p.kind == "tensor":
            lines.append(f"        {read}")
            oks.append(ok)
            rgs.append(f"{p.name}._rg")
        else:
            lines.append(f"        if {p.name} is None: a{i} = None; ok{i} = True; rg{i} = False")
            lines.append(f"        else: {read}; ok{i} = {ok}; rg{i} = {p.name}._rg")
            oks.append(f"ok{i}")
            rgs.append(f"rg{i}")
    oks += [f"({p.name}.__class__ is float or {p.name}.__class__ is int)" for p in op.params if p.kind == "number"]
    oks += [f"{p.name}.__class__ is int" for p in op.params if p.annotation == "int"]
    lines.append(f"        ok = {' and '.join(oks)}; rg = {' or '.join(rgs)}")
    lines.append("    except AttributeError: ok = False")
    cond = "ok and out is None" if op.has_out else "ok"
    if op.kind == "composite" and not op.gradients and op.joint is None:
        cond += " and not (rg and modes.grad)"
    lines.append(f"    if {cond}:")
    at = {p.name: f"a{i}" for i, p in enumerate(tensors)}
    args = ", ".join(at.get(p.name, p.name) for p in op.params)
    values = ", ".join(p.name for p in op.params)
    if op.check is not None:
        lines.append(f"        c = CHECK({args})")
        lines.append(f"        if c is not None: {args}, = c")
    lines.append("        try: q = QUIETS.pop()")
    lines.append("        except IndexError: q = fresh_quiet()")
    if op.keeps:
        lines.append(f"        try: r, {', '.join('k_' + k for k in op.keeps)} = q(ARRAY, {args}, rg and modes.grad)")
    else:
        lines.append(f"        try: r = q(ARRAY, {args})")
    lines.append("        finally: QUIETS.append(q)")
    for m in op.mutates:
        lines.append(f"        if {m} is not None: bump({m})")
    if several:
        return [
            *lines,
            "        return tuple([None if x is None else wrap(x if x.__class__ is ND else asarray(x)) for x in r])",
        ]
    if named:
        lines.append("        t = tuple([None if x is None else wrap(x if x.__class__ is ND else asarray(x)) for x in r])")
        if has_gradient(op):
            lines.append(f"        if rg and modes.grad: RECORD[0](t, {values})")
        return [*lines, "        return NAMED(OP)(t)"]
    lines.append("        t = new(Tensor); t._a = r if r.__class__ is ND else asarray(r); t._rg = False")
    lines.append("        t._node = t._grad = t._v = t._base = None")
    if has_gradient(op):
        lines.append(f"        if rg: RECORD[0](t, {values}{''.join(', k_' + k for k in op.keeps)})")
    lines.append("        return t")
    return lines


def writes_path(op: Operator, inplace: Callable | None = None) -> tuple[list[str], dict[str, Any]]:
    """The way of a record that writes, on plain CPU arrays: straight to its body, on a copy or (where nothing is recorded) in place
    (`inplace` is what refuses operands that overlap). Nothing where the record needs more than that."""
    tensors = [p for p in op.params if p.kind in ("tensor", "operand")]
    if (
        op.kind != "writes"
        or not op.exact
        or op.random
        or op.expanded
        or op.mutates
        or op.forms
        or len(tensors) < 2
        or any(p.kind not in ("tensor", "operand", "number", "plain") or p.annotation == "Any" for p in op.params)
        or op.params[0].kind != "tensor"
    ):
        return [], {}
    env: dict[str, Any] = {"BODY": op.body, "CHECK": op.check, "OVERLAP": inplace}
    lines, oks, rgs = ["    try:"], [], []
    for i, p in enumerate(tensors):
        read = f"a{i} = {p.name}._a; rg{i} = {p.name}._rg; ok{i} = a{i}.__class__ is ND"
        if inplace:
            read += f" and a{i}.ndim and a{i} is not a0" if i else f" and {p.name}._base is None"
        if p.kind == "operand":
            lines.append(f"        if {p.name}.__class__ is float or {p.name}.__class__ is int: a{i} = {p.name}; ok{i} = True; rg{i} = False")
            lines.append(f"        else: {read}")
        else:
            lines.append(f"        {read}")
        oks.append(f"ok{i}")
        rgs.append(f"rg{i}")
    oks += [f"({p.name}.__class__ is float or {p.name}.__class__ is int)" for p in op.params if p.kind == "number"]
    oks += [f"{p.name}.__class__ is int" for p in op.params if p.annotation == "int"]
    if inplace:
        oks += [f"(PLAIN or not {op.params[0].name}.is_inference())", f"not (modes.grad and ({' or '.join(rgs)}))", "a0.flags.carray"]
    lines.append(f"        ok = {' and '.join(oks)}")
    lines.append("    except AttributeError: ok = False")
    lines.append("    if ok and out is None:" if op.has_out and not inplace else "    if ok:")
    at = {p.name: f"a{i}" for i, p in enumerate(tensors)}
    args = ", ".join(at.get(p.name, p.name) for p in op.params)
    if op.check is not None:
        lines.append(f"        c = CHECK({args})")
        lines.append(f"        if c is not None: {args}, = c")
    if inplace:
        for i, p in enumerate(tensors[1:], 1):
            test = f"a{i}.__class__ is ND and " if p.kind == "operand" else ""
            lines.append(f"        if {test}OVERLAP(a0, a{i}, {op.name + '_'!r}): a{i} = a{i}.copy()")
    rest = args.split(", ", 1)[1]
    new = "a0" if inplace else "new_array"
    if not inplace:
        lines.append("        new_array = a0.copy()")
    lines.append("        try: q = QUIETS.pop()")
    lines.append("        except IndexError: q = fresh_quiet()")
    lines.append(f"        try: q(BODY, {new}, {rest})")
    lines.append("        finally: QUIETS.append(q)")
    if inplace:
        return [*lines, f"        bump({op.params[0].name})", f"        return {op.params[0].name}"], env
    lines.append("        t = new(Tensor); t._a = new_array; t._rg = False")
    lines.append("        t._node = t._grad = t._v = t._base = None")
    if has_gradient(op):
        lines.append(f"        if {' or '.join(rgs)}: RECORD[0](t, {', '.join(p.name for p in op.params)})")
    return [*lines, "        return t"], env


def inplace_path(plain: Plain, indent: str, big: bool = False) -> list[str]:
    t = [p.name for p in plain.tensors]
    lines = [
        "try:",
        f"    a = {t[0]}._a; d = a.dtype",
        f"    ok = a.__class__ is ND and (d is F32 or d is F64) and (a.base is None or a.size >= BIG) and (PLAIN or not {t[0]}.is_inference())",
    ]
    if len(t) == 2:
        lines.append(f"    oc = {t[1]}.__class__")
        lines.append("    if oc is float or oc is int:")
        lines.append(f"        b = {t[1]}; rg = {t[0]}._rg")
        lines.append("    else:")
        lines.append(
            f"        b = {t[1]}._a; ok = ok and d is b.dtype and b.__class__ is ND and (b.base is None or a.size >= BIG); rg = "
            f"{t[0]}._rg or {t[1]}._rg"
        )
        # NumPy takes the third operand of maximum and minimum by keyword only
        call = "quiet(UF, a, b, out=a)" if plain.primitive in ("maximum", "minimum") else "quiet(UF, a, b, a)"
    else:
        lines.append(f"    rg = {t[0]}._rg")
        call = "quiet(UF, a, a)"
    large = f"LOOP({'a, b' if len(t) == 2 else 'a'}, out=a) is not None" if big else "False"
    lines.append("    if ok and not (rg and modes.grad):")
    lines.append("        if a.size < BIG:")
    lines.append(f"            {call}")
    lines.append(f"        else: ok = {large}")
    lines.append("        if ok:")
    lines.append(f"            bump({t[0]})")
    lines.append(f"            return {t[0]}")
    lines.append("except FAST_ERRORS: pass")
    return [indent + x for x in lines]


def reduction_path(op: Operator) -> tuple[list[str], dict[str, Any]]:
    """The way of a reduction over all dimensions or one, where its body needs no numbers."""
    names = [p.name for p in op.params]
    if (
        op.array is not None
        or op.check is not None
        or set(names) - {"input", "dim", "keepdim", "dtype"}
        or op.result not in DTYPES
    ):
        return [], {}
    from ..backends.cpu.evaluate import numpy_function
    from .execute import _REDUCE
    from .geometry import row_major

    fold = op.fn(**{n: E.arg("input") if n == "input" else None for n in names})
    if fold.combine in ("or", "and") and fold.map.op != "arg" or any(n.op == "cast" for n in E.postorder(fold.map)):
        return [], {}
    env: dict[str, Any] = {"ROWS": row_major, "REDUCE": _REDUCE[fold.combine].reduce}
    whole = fold.map.op == "arg"
    if not whole:
        env["MAP"] = numpy_function(["input"], [fold.map])
    dtypes = DTYPES[op.result] if whole else "d is F32 or d is F64"
    cond = [f"a.__class__ is ND and ({dtypes}) and a.size > 0"]
    if "dtype" in names:
        cond.append("dtype is None")
    if op.has_out:
        cond.append("out is None")
    axis = "None"
    if "dim" in names:
        cond.append("(dim is None or dim == () or dim.__class__ is int and a.ndim)")
        axis = "dim if dim.__class__ is int else None"
    keep = "keepdim" if "keepdim" in names else "False"
    lines = ["    try:", "        a = input._a; d = a.dtype", f"        if {' and '.join(cond)}:"]
    reduced = f"quiet(REDUCE, {'a' if whole else 'quiet(MAP, a, d.type)'}, {axis}, None, None, {keep} is True)"
    if fold.combine == "add":
        env["SUM"] = loops.Sum(fold.map)
        reduced += f" if a.size < BIG else SUM(a, {axis}, {keep} is True)"
    else:
        reduced += " if a.size < BIG else None"
    lines += [f"            s = {reduced}", "            if s is None: raise TypeError('this is for the general path')"]
    if fold.finish is not None:
        count = "a.size // s.size" if "dim" in names else "a.size"
        lines += [
            f"            n = {count}",
            "            s = quiet(FINISH, s, n, d.type)",
        ]
        env["FINISH"] = numpy_function(["s", "n"], [E.const(fold.finish(E.arg("s"), E.arg("n")))], numbers=["n"])
    lines += [
        "            t = new(Tensor); t._a = asarray(s) if s.__class__ is not ND else s if s.ndim < 2 else ROWS(s); t._rg = False",
        "            t._node = t._grad = t._v = t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if input._rg: RECORD[0](t, {', '.join(names)})")
    lines += ["            return t", "    except FAST_ERRORS: pass"]
    return lines, env


DTYPES = {
    "sum": "d is F32 or d is F64 or d is I64 or d is BOOL",
    "floating": "d is F32 or d is F64",
    "float": "d is F32 or d is F64",
    "real": "d is F32 or d is F64",
    "same": "d is F32 or d is F64 or d is I64 or d is BOOL",
    "bool": "d is BOOL",
}


def creation_path(op: Operator) -> tuple[list[str], dict[str, Any]]:
    """The way of a constructor on the CPU: sizes that are ints, plain numbers, no gradient."""
    names = {p.name for p in op.params}
    if "dtype" not in names:
        return [], {}
    shared = ("dtype", "layout", "device", "pin_memory", "requires_grad")
    cond = ["device is None and CPU_DEFAULT[0] is CPU" if "device" in names else "CPU_DEFAULT[0] is CPU"]
    cond += [f"{n} is None" for n in ("layout",) if n in names]
    cond += [f"not {n}" for n in ("pin_memory", "requires_grad") if n in names]
    if op.has_out:
        cond.append("out is None")
    cond.append("(dtype is None or dtype.__class__ is DTYPE)")
    args, own = [], []
    for p in op.params:
        if p.name in shared:
            args.append(f"{p.name}={'dt' if p.name == 'dtype' else 'None'}")
            continue
        value = p.name
        if p.kind == "tensor":
            cond.insert(0, f"{p.name}.__class__.__name__ and {p.name}._a.__class__ is ND")
            value = f"{p.name}._a"
        elif p.kind == "sizes":
            cond.append(f"NONNEGATIVE({p.name})")
        elif p.annotation == "int":
            cond.append(f"{p.name}.__class__ is int")
        elif p.annotation in ("Number", "float", "Number | None", "int | None"):
            cond.append(f"({p.name}.__class__ in NUMBERS" + (f" or {p.name} is None)" if p.default is None else ")"))
        elif p.name == "size":
            cond.append(f"{p.name}.__class__ is tuple and NONNEGATIVE({p.name})")
        args.append(f"{p.name}={value}")
        own.append(f"{p.name}={p.name}")
    first = op.params[0]
    if first.kind == "tensor":
        default = f"{first.name}.dtype"
    else:
        default = f"RESULT({', '.join(own)})" if callable(op.result) else "DEFAULT[0]"
    lines = [
        "    try: ok = CAPTURE[0] is None and " + " and ".join(cond),
        "    except AttributeError: ok = False",
        "    if ok:",
        f"        dt = {default} if dtype is None else dtype",
        "        try: q = QUIETS.pop()",
        "        except IndexError: q = fresh_quiet()",
        f"        try: r = q(lambda: BODY({', '.join(args)}))",
        "        finally: QUIETS.append(q)",
        "        t = new(Tensor); t._a = r; t._rg = False",
        "        t._node = t._grad = t._v = t._base = None",
        "        return t",
    ]
    from ..core.device import CPU, default_device
    from ..core.dtype import default as default_dtype
    from ..core.dtype import dtype
    from .execute import capture

    return lines, {
        "CPU_DEFAULT": default_device,
        "CPU": CPU,
        "DTYPE": dtype,
        "DEFAULT": default_dtype,
        "RESULT": op.result,
        "BODY": op.fn,
        "NUMBERS": (int, float),
        "NONNEGATIVE": _nonnegative,
        "CAPTURE": capture,
    }


def _nonnegative(size: tuple) -> bool:
    for n in size:
        if n.__class__ is not int or n < 0:
            return False
    return True


def list_path(op: Operator) -> list[str]:
    """The way of a record with an array function of a list of tensors, all on plain CPU arrays of one dtype."""
    first = op.params[0]
    if (
        first.kind != "list"
        or op.kind != "structural"
        or op.returns
        or op.multi
        or op.mutates
        or op.keeps
        or any(p.kind not in ("plain",) for p in op.params[1:])
        or not op.exact
    ):
        return []
    n = first.name
    args = ", ".join(["arrays", *[p.name for p in op.params[1:]]])
    lines = [
        f"    if {n}.__class__ is list or {n}.__class__ is tuple:",
        "        try:",
        f"            arrays = [x._a for x in {n}]; rg = False; d = arrays[0].dtype",
        f"            for x in {n}:",
        "                if x._a.__class__ is not ND or x._a.dtype is not d: break",
        "                if x._rg is not False: rg = True",
        "            else: d = None",
        "        except (AttributeError, IndexError): d = False",
        f"        if d is None{' and out is None' if op.has_out else ''}:",
    ]
    if op.check is not None:
        lines.append(f"            CHECK({args})")
    lines += [
        f"            r = ARRAY({args})",
        "            t = new(Tensor); t._a = r; t._rg = False",
        "            t._node = t._grad = t._v = t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if rg: RECORD[0](t, {', '.join(p.name for p in op.params)})")
    return [*lines, "            return t"]
