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
    return f"_D_{p.name}"


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

    lines = ["    try:", f"        _a = {first.name}._a; _d = _a.dtype; _rg = {first.name}._rg"]
    lines.append("        _ok = _a.__class__ is ND and (_d is F32 or _d is F64) and _a.size < BIG")
    values = {first.name: "_a"}
    for i, p in enumerate(operands):
        if p is first:
            continue
        values[p.name] = f"_b{i}"
        tensor = f"_b{i} = {p.name}._a; _ok = _ok and _b{i}.dtype is _d and _b{i}.__class__ is ND; _rg = _rg or {p.name}._rg"
        if p.kind == "mask":
            lines.append(f"        _b{i} = {p.name}._a; _ok = _ok and _b{i}.dtype is BOOL and _b{i}.__class__ is ND")
        elif p.kind == "tensor":
            lines.append("        " + tensor)
        else:
            k = chosen.index(p)
            lines.append(f"        _c{k} = {p.name}.__class__")
            lines.append(f"        if _c{k} is float or _c{k} is int: _b{i} = {p.name}; _c{k} = 'n'")
            if p.default is None:
                lines.append(f"        elif {p.name} is None: _b{i} = None; _c{k} = '-'")
            lines.append(f"        else: {tensor}; _c{k} = 't'")
    lines += [f"        _ok = _ok and ({n}.__class__ is float or {n}.__class__ is int)" for n in numbers]
    if op.has_out:
        lines.append("        _ok = _ok and out is None")
    key = "".join(f"_c{k}, " for k in range(len(chosen))) + "".join(p.name + ", " for p in plain)
    args = ", ".join(values.get(n, n) for n in names)
    lines += [
        "        if _ok:",
        f"            _r = quiet(MADE.get(({key})) or EVALUATOR({key}), {args}, _d.type)",
        "            _t = new(Tensor); _t._a = _r if _r.__class__ is ND else asarray(_r); _t._rg = False",
        "            _t._node = _t._grad = _t._v = _t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if _rg: RECORD[0](_t, {', '.join(p.name for p in op.params)})")
    return [*lines, "            return _t", "    except FAST_ERRORS: pass"], {"MADE": made, "EVALUATOR": evaluator}


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
    lines.append(f"    _a = {t[0]}._a; _d = _a.dtype")
    floats = "(_d is F32 or _d is F64)"
    whole = (
        floats[:-1]
        + (
            " or _d is I64 and _oc is not float)"
            if len(t) == 2 and plain.tensors[1].kind == "operand"
            else " or _d is I64)"
        )
        if use and integers_pass(op, plain)
        else floats
    )
    if len(t) == 2:
        if plain.tensors[1].kind == "operand":
            lines.append(f"    _oc = {t[1]}.__class__")
            lines.append("    if _oc is float or _oc is int:")
            lines.append(f"        _b = {t[1]}; _ok = {whole if use else 'False'}; _rg = {t[0]}._rg")
            lines.append("    else:")
            lines.append(
                f"        _b = {t[1]}._a; _ok = _d is _b.dtype and _b.__class__ is ND and {whole}; _rg = {t[0]}._rg or "
                f"{t[1]}._rg"
            )
        else:
            lines.append(
                f"    _b = {t[1]}._a; _ok = _d is _b.dtype and _b.__class__ is ND and {whole}; _rg = {t[0]}._rg or {t[1]}._rg"
            )
        call = "quiet(UF, _a, _b)" if use else f"quiet(EV, _a, _b{numbers}, _d.type)"
    else:
        lines.append(f"    _ok = {whole}; _rg = {t[0]}._rg")
        call = "quiet(UF, _a)" if use else f"quiet(EV, _a{numbers}, _d.type)"
    lines.append("    if _ok and _a.__class__ is ND:")
    least = 0 if len(t) == 1 and exact(plain.root) else loops.least(plain.root)
    if big and not use and least < loops.BIG:
        from_ = f" if _a.size >= {least} else None" if least else ""
        lines.append(f"        _r = LOOP(_a{', _b' if len(t) == 2 else ''}{numbers}){from_}")
        lines.append(f"        if _r is None and _a.size < BIG: _r = {call}")
    elif big:
        lines.append(f"        _r = {call} if _a.size < BIG else LOOP(_a{', _b' if len(t) == 2 else ''}{numbers if not use else ''})")
    else:
        lines.append(f"        _r = {call} if _a.size < BIG else None")
    lines.append("    else: _r = None")
    lines.append("    if _r is not None:")
    lines.append("        _t = new(Tensor); _t._a = _r if _r.__class__ is ND else asarray(_r); _t._rg = False")
    lines.append("        _t._node = _t._grad = _t._v = _t._base = None")
    if has_gradient(op):
        values = (
            ", ".join(p.name for p in op.params)
            if not dunder
            else ", ".join(p.name if p in plain.tensors else default_name(p) for p in op.params)
        )
        lines.append(f"        if _rg: RECORD[0](_t, {values})")
    lines.append("        return _t")
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
        read = f"_a{i} = {p.name}._a; _d{i} = _a{i}.dtype"
        ok = f"_a{i}.__class__ is ND" + ("" if op.exact else f" and (_d{i} is F32 or _d{i} is F64 or _d{i} is I64)")
        if p.kind == "tensor":
            lines.append(f"        {read}")
            oks.append(ok)
            rgs.append(f"{p.name}._rg")
        else:
            lines.append(f"        if {p.name} is None: _a{i} = None; _ok{i} = True; _rg{i} = False")
            lines.append(f"        else: {read}; _ok{i} = {ok}; _rg{i} = {p.name}._rg")
            oks.append(f"_ok{i}")
            rgs.append(f"_rg{i}")
    oks += [f"({p.name}.__class__ is float or {p.name}.__class__ is int)" for p in op.params if p.kind == "number"]
    oks += [f"{p.name}.__class__ is int" for p in op.params if p.annotation == "int"]
    lines.append(f"        _ok = {' and '.join(oks)}; _rg = {' or '.join(rgs)}")
    lines.append("    except AttributeError: _ok = False")
    cond = "_ok and out is None" if op.has_out else "_ok"
    if op.kind == "composite" and not op.gradients and op.joint is None:
        cond += " and not (_rg and modes.grad)"
    lines.append(f"    if {cond}:")
    at = {p.name: f"_a{i}" for i, p in enumerate(tensors)}
    args = ", ".join(at.get(p.name, p.name) for p in op.params)
    values = ", ".join(p.name for p in op.params)
    if op.check is not None:
        lines.append(f"        _c = CHECK({args})")
        lines.append(f"        if _c is not None: {args}, = _c")
    lines.append("        try: _q = QUIETS.pop()")
    lines.append("        except IndexError: _q = fresh_quiet()")
    if op.keeps:
        lines.append(f"        try: _r, {', '.join('_K_' + k for k in op.keeps)} = _q(ARRAY, {args}, _rg and modes.grad)")
    else:
        lines.append(f"        try: _r = _q(ARRAY, {args})")
    lines.append("        finally: QUIETS.append(_q)")
    for m in op.mutates:
        lines.append(f"        if {m} is not None: bump({m})")
    if several:
        return [
            *lines,
            "        return tuple([None if _x is None else WRAP(_x if _x.__class__ is ND else asarray(_x)) for _x in _r])",
        ]
    if named:
        lines.append("        _t = tuple([None if _x is None else WRAP(_x if _x.__class__ is ND else asarray(_x)) for _x in _r])")
        if has_gradient(op):
            lines.append(f"        if _rg and modes.grad: RECORD[0](_t, {values})")
        return [*lines, "        return NAMED(OP)(_t)"]
    lines.append("        _t = new(Tensor); _t._a = _r if _r.__class__ is ND else asarray(_r); _t._rg = False")
    lines.append("        _t._node = _t._grad = _t._v = _t._base = None")
    if has_gradient(op):
        lines.append(f"        if _rg: RECORD[0](_t, {values}{''.join(', _K_' + k for k in op.keeps)})")
    lines.append("        return _t")
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
        read = f"_a{i} = {p.name}._a; _rg{i} = {p.name}._rg; _ok{i} = _a{i}.__class__ is ND"
        if inplace:
            read += f" and _a{i}.ndim and _a{i} is not _a0" if i else f" and {p.name}._base is None"
        if p.kind == "operand":
            lines.append(f"        if {p.name}.__class__ is float or {p.name}.__class__ is int: _a{i} = {p.name}; _ok{i} = True; _rg{i} = False")
            lines.append(f"        else: {read}")
        else:
            lines.append(f"        {read}")
        oks.append(f"_ok{i}")
        rgs.append(f"_rg{i}")
    oks += [f"({p.name}.__class__ is float or {p.name}.__class__ is int)" for p in op.params if p.kind == "number"]
    oks += [f"{p.name}.__class__ is int" for p in op.params if p.annotation == "int"]
    if inplace:
        oks += [f"(PLAIN or not {op.params[0].name}.is_inference())", f"not (modes.grad and ({' or '.join(rgs)}))", "_a0.flags.carray"]
    lines.append(f"        _ok = {' and '.join(oks)}")
    lines.append("    except AttributeError: _ok = False")
    lines.append("    if _ok and out is None:" if op.has_out and not inplace else "    if _ok:")
    at = {p.name: f"_a{i}" for i, p in enumerate(tensors)}
    args = ", ".join(at.get(p.name, p.name) for p in op.params)
    if op.check is not None:
        lines.append(f"        _c = CHECK({args})")
        lines.append(f"        if _c is not None: {args}, = _c")
    if inplace:
        for i, p in enumerate(tensors[1:], 1):
            test = f"_a{i}.__class__ is ND and " if p.kind == "operand" else ""
            lines.append(f"        if {test}OVERLAP(_a0, _a{i}, {op.name + '_'!r}): _a{i} = _a{i}.copy()")
    rest = args.split(", ", 1)[1]
    new = "_a0" if inplace else "_new"
    if not inplace:
        lines.append("        _new = _a0.copy()")
    lines.append("        try: _q = QUIETS.pop()")
    lines.append("        except IndexError: _q = fresh_quiet()")
    lines.append(f"        try: _q(BODY, {new}, {rest})")
    lines.append("        finally: QUIETS.append(_q)")
    if inplace:
        return [*lines, f"        bump({op.params[0].name})", f"        return {op.params[0].name}"], env
    lines.append("        _t = new(Tensor); _t._a = _new; _t._rg = False")
    lines.append("        _t._node = _t._grad = _t._v = _t._base = None")
    if has_gradient(op):
        lines.append(f"        if {' or '.join(rgs)}: RECORD[0](_t, {', '.join(p.name for p in op.params)})")
    return [*lines, "        return _t"], env


def inplace_path(plain: Plain, indent: str, big: bool = False) -> list[str]:
    t = [p.name for p in plain.tensors]
    lines = [
        "try:",
        f"    _a = {t[0]}._a; _d = _a.dtype",
        f"    _ok = _a.__class__ is ND and (_d is F32 or _d is F64) and (_a.base is None or _a.size >= BIG) and (PLAIN or not {t[0]}.is_inference())",
    ]
    if len(t) == 2:
        lines.append(f"    _oc = {t[1]}.__class__")
        lines.append("    if _oc is float or _oc is int:")
        lines.append(f"        _b = {t[1]}; _rg = {t[0]}._rg")
        lines.append("    else:")
        lines.append(
            f"        _b = {t[1]}._a; _ok = _ok and _d is _b.dtype and _b.__class__ is ND and (_b.base is None or _a.size >= BIG); _rg = "
            f"{t[0]}._rg or {t[1]}._rg"
        )
        # NumPy takes the third operand of maximum and minimum by keyword only
        call = "quiet(UF, _a, _b, out=_a)" if plain.primitive in ("maximum", "minimum") else "quiet(UF, _a, _b, _a)"
    else:
        lines.append(f"    _rg = {t[0]}._rg")
        call = "quiet(UF, _a, _a)"
    large = f"LOOP({'_a, _b' if len(t) == 2 else '_a'}, out=_a) is not None" if big else "False"
    lines.append("    if _ok and not (_rg and modes.grad):")
    lines.append("        if _a.size < BIG:")
    lines.append(f"            {call}")
    lines.append(f"        else: _ok = {large}")
    lines.append("        if _ok:")
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
    dtypes = DTYPES[op.result] if whole else "_d is F32 or _d is F64"
    cond = [f"_a.__class__ is ND and ({dtypes}) and _a.size > 0"]
    if "dtype" in names:
        cond.append("dtype is None")
    if op.has_out:
        cond.append("out is None")
    axis = "None"
    if "dim" in names:
        cond.append("(dim is None or dim == () or dim.__class__ is int and _a.ndim)")
        axis = "dim if dim.__class__ is int else None"
    keep = "keepdim" if "keepdim" in names else "False"
    lines = ["    try:", "        _a = input._a; _d = _a.dtype", f"        if {' and '.join(cond)}:"]
    reduced = f"quiet(REDUCE, {'_a' if whole else 'quiet(MAP, _a, _d.type)'}, {axis}, None, None, {keep} is True)"
    if fold.combine == "add":
        env["SUM"] = loops.Sum(fold.map)
        reduced += f" if _a.size < BIG else SUM(_a, {axis}, {keep} is True)"
    else:
        reduced += " if _a.size < BIG else None"
    lines += [f"            _s = {reduced}", "            if _s is None: raise TypeError('this is for the general path')"]
    if fold.finish is not None:
        count = "_a.size // _s.size" if "dim" in names else "_a.size"
        lines += [
            f"            _n = {count}",
            "            _s = quiet(FINISH, _s, _n, _d.type)",
        ]
        env["FINISH"] = numpy_function(["s", "n"], [E.const(fold.finish(E.arg("s"), E.arg("n")))], numbers=["n"])
    lines += [
        "            _t = new(Tensor); _t._a = asarray(_s) if _s.__class__ is not ND else _s if _s.ndim < 2 else ROWS(_s); _t._rg = False",
        "            _t._node = _t._grad = _t._v = _t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if input._rg: RECORD[0](_t, {', '.join(names)})")
    lines += ["            return _t", "    except FAST_ERRORS: pass"]
    return lines, env


DTYPES = {
    "sum": "_d is F32 or _d is F64 or _d is I64 or _d is BOOL",
    "floating": "_d is F32 or _d is F64",
    "float": "_d is F32 or _d is F64",
    "real": "_d is F32 or _d is F64",
    "same": "_d is F32 or _d is F64 or _d is I64 or _d is BOOL",
    "bool": "_d is BOOL",
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
            args.append(f"{p.name}={'_dt' if p.name == 'dtype' else 'None'}")
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
        "    try: _ok = CAPTURE[0] is None and " + " and ".join(cond),
        "    except AttributeError: _ok = False",
        "    if _ok:",
        f"        _dt = {default} if dtype is None else dtype",
        "        try: _q = QUIETS.pop()",
        "        except IndexError: _q = fresh_quiet()",
        f"        try: _r = _q(lambda: BODY({', '.join(args)}))",
        "        finally: QUIETS.append(_q)",
        "        _t = new(Tensor); _t._a = _r; _t._rg = False",
        "        _t._node = _t._grad = _t._v = _t._base = None",
        "        return _t",
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
    args = ", ".join(["_as", *[p.name for p in op.params[1:]]])
    lines = [
        f"    if {n}.__class__ is list or {n}.__class__ is tuple:",
        "        try:",
        f"            _as = [_x._a for _x in {n}]; _rg = False; _d = _as[0].dtype",
        f"            for _x in {n}:",
        "                if _x._a.__class__ is not ND or _x._a.dtype is not _d: break",
        "                if _x._rg is not False: _rg = True",
        "            else: _d = None",
        "        except (AttributeError, IndexError): _d = False",
        f"        if _d is None{' and out is None' if op.has_out else ''}:",
    ]
    if op.check is not None:
        lines.append(f"            CHECK({args})")
    lines += [
        f"            _r = ARRAY({args})",
        "            _t = new(Tensor); _t._a = _r; _t._rg = False",
        "            _t._node = _t._grad = _t._v = _t._base = None",
    ]
    if has_gradient(op):
        lines.append(f"            if _rg: RECORD[0](_t, {', '.join(p.name for p in op.params)})")
    return [*lines, "            return _t"]
