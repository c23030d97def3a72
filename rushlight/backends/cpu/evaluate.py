"""Scalar expressions on NumPy arrays.

`numpy_function(names, roots)` writes the source of a function of the named arrays and numbers. A temporary that is dead is
written over when all arrays have one shape (`reuse=True`); with broadcasting every step allocates. Its own names begin with an
underscore, as no operand's does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...ops.expr import PRIMITIVES, Expr, postorder

__all__ = ["numpy_function", "ufunc_of", "special"]


def special(name: str) -> Callable:
    """A function of scipy.special, imported when first needed."""
    import scipy.special
    return getattr(scipy.special, name)


def _rint(x: Any, out: Any = None) -> Any:
    """numpy.rint, which would make floats of integers."""
    return (np.positive if getattr(x, "dtype", np.dtype(float)).kind in "iu" else np.rint)(x, out)


def ufunc_of(op: str) -> Callable | None:
    """NumPy's ufunc for a primitive, None if it is not NumPy's."""
    name = PRIMITIVES[op].ufunc
    return None if name.startswith("scipy:") or name == "where" else getattr(np, name)


def _literal(v: Any) -> str:
    if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
        return f"float('{v}')"
    return repr(v)


@cache
def _compiled(names: tuple[str, ...], roots: tuple[Expr, ...], reuse: bool, numbers: frozenset[str]) -> Callable:
    nodes = postorder(*roots)
    last: dict[int, int] = {}
    for i, n in enumerate(nodes):
        for a in n.args:
            if isinstance(a, Expr):
                last[id(a)] = i
    for r in roots:
        last[id(r)] = len(nodes)
    where: dict[int, str] = {}
    kinds: dict[int, str] = {}
    free: dict[str, list[str]] = {"same": [], "bool": []}
    env: dict[str, Any] = {"_np": np, "_rint": _rint}
    lines: list[str] = []
    count = 0
    for i, n in enumerate(nodes):
        if n.op == "arg":
            where[id(n)], kinds[id(n)] = n.args[0], "number" if n.args[0] in numbers else "arg"
            continue
        if n.op == "const":
            where[id(n)], kinds[id(n)] = _literal(n.args[0]), "const"
            continue
        if n.op == "cast":
            x, to = n.args
            lines.append(f"    _t{count} = _np.asarray({where[id(x)]}).astype({'_ct' if to == 'compute' else '_np.' + to})")
            where[id(n)], kinds[id(n)], count = f"_t{count}", "cast", count + 1
            continue
        p = PRIMITIVES[n.op]
        ops = [where[id(a)] for a in n.args]
        kind = "bool" if p.result == "bool" else "same"
        if p.ufunc.startswith("scipy:"):
            env[f"_F_{n.op}"] = special(p.ufunc[6:])
            f = f"_F_{n.op}"
        else:
            f = f"_np.{p.ufunc}" if p.ufunc != "rint" else "_rint"
        if all(kinds[id(a)] in ("number", "const") for a in n.args):
            # numbers among themselves: NumPy would make a float64 scalar of them, which would promote the arrays
            if p.ufunc == "where":
                ops = [ops[0], f"_ct({ops[1]})", f"_ct({ops[2]})"]
            call = f"{f}({', '.join(ops)})"
            lines.append(f"    _t{count} = {call if kind == 'bool' else f'_ct({call})'}")
            where[id(n)], kinds[id(n)], count = f"_t{count}", "number", count + 1
            continue
        dst = None
        if p.ufunc == "where":
            ops[1:] = [f"_ct({o})" if kinds[id(a)] in ("const", "number") else o for o, a in zip(ops[1:], n.args[1:], strict=True)]
        elif reuse:
            for a in {id(a): a for a in n.args}.values():
                k = kinds[id(a)]
                if last[id(a)] == i and k in free:
                    free[k].append(where[id(a)])
            dst = free[kind].pop() if free[kind] else None
        if dst is None:
            dst, count = f"_t{count}", count + 1
            lines.append(f"    {dst} = {f}({', '.join(ops)})")
        else:
            lines.append(f"    {f}({', '.join(ops)}, {'out=' if n.op in ('maximum', 'minimum') else ''}{dst})")
        where[id(n)], kinds[id(n)] = dst, kind
        if p.ufunc == "where" and reuse:
            kinds[id(n)] = "fresh"
    result = ", ".join(where[id(r)] for r in roots)
    src = f"def kernel({', '.join([*names, '_ct'])}):\n" + "\n".join(lines) + f"\n    return {result}\n"
    exec(compile(src, "<rushlight expression>", "exec"), env)
    env["kernel"].source = src
    return env["kernel"]


def numpy_function(names: Sequence[str], roots: Sequence[Expr], reuse: bool = False, numbers: Sequence[str] = ()) -> Callable:
    """A function `f(*values, ct)` of the arrays and numbers called `names`, in that order, and the computing dtype's scalar type. It
    gives the value of the only root, or a tuple. `reuse` needs all arrays to have one shape and dtype; `numbers` are the names whose values are Python numbers."""
    return _compiled(tuple(names), tuple(roots), reuse, frozenset(numbers))
