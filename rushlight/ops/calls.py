"""Calls of other ages: what a generated wrapper does not read itself.

Sizes in one sequence, keywords that have other names today, memory for results by their names, orders of arguments that the record's
`legacy` signatures tell of, and the error where an argument is missing. A wrapper comes here only after it found that a call is not plain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import warn_once
from ..core.tensor import Tensor
from .declare import OLD_NAMES, REQUIRED, Operator

__all__ = ["absent", "legacy", "old_names", "sizes"]


def sizes(x: Any, name: str = "", arg: str = "size") -> tuple[int, ...]:
    """Sizes given as one sequence. TypeError for what is no list or tuple of ints."""
    if not isinstance(x, (tuple, list)):
        if isinstance(x, (int, np.integer)) and not isinstance(x, bool) or isinstance(x, Tensor) and x.dim() == 0 and x.dtype.category == 1:
            return (int(x),)
        raise TypeError(f"{name}(): argument '{arg}' (position 1) must be tuple of ints, not {type(x).__name__}")
    for n, i in enumerate(x):
        if isinstance(i, bool) or not isinstance(i, (int, np.integer)) and not (isinstance(i, Tensor) and i.numel() == 1 and i.dtype.category == 1):
            raise TypeError(f"{name}(): argument '{arg}' (position 1) must be tuple of ints, but found element of type {type(i).__name__} at pos {n}")
    return tuple([int(i) for i in x])


def old_names(op: Operator, values: tuple, kw: dict, out: Any, inplace: bool) -> Any:
    """A call with keywords that the operator does not have today: translate them, or say which is unknown."""
    params = {p.name: p for p in op.params}
    bound = dict(zip(params, values, strict=True))
    given: dict[str, Any] = {}
    if op.out_view and not inplace:
        out = kw.pop("out", None)
    outs: dict[int, Any] = {}
    for k, v in kw.items():
        name = op.old.get(k) or (k if k in params else OLD_NAMES.get(k))
        if name is not None and name.startswith("out."):     # one of several results
            if v is not None:
                outs[int(name[4:])] = v
            continue
        if name is not None and ">" in name:        # "a>b": stands for a, and what came as a is meant for b
            name, _, moved = name.partition(">")
            if bound[name] is not REQUIRED:
                given[moved] = bound[name]
        elif name is not None and name in params and bound[name] is not params[name].default \
                and not (params[name].kind == "sizes" and bound[name] == ()):
            name = op.old.get(k + "+")               # where the parameter was given under its own name, the old one may mean another
            name = name if name is None or bound[name] is params[name].default else None
        if name is None or name not in params or name in given:
            raise TypeError(f"{op.name}() got an unexpected keyword argument '{k}'")
        given[name] = v
    bound.update(given)
    if any(v is REQUIRED for v in bound.values()):
        raise absent(op, tuple(bound.values()))
    if outs:
        if out is not None:
            raise TypeError(f"{op.name}() takes out= or its results by name, not both")
        out = _named_outs(op, bound["input"], outs)
    return _again(op, bound, out, inplace)


def _named_outs(op: Operator, input: Any, outs: dict[int, Any]) -> tuple:
    """The tensors that (values, indices) are to be written to; what was not named is a new one."""
    from ..core import dtype as D
    from . import execute, function
    execute.require_tensors(op, input)
    return tuple(outs[i] if i in outs else function("empty")((0,), dtype=d) for i, d in enumerate((input.dtype, D.int64)))


def absent(op: Operator, values: tuple) -> TypeError:
    """The error that says which required arguments are missing."""
    names = [p.name for p, v in zip(op.params, values, strict=True) if v is REQUIRED]
    return TypeError(f"{op.name}() missing {len(names)} required positional arguments: {', '.join(chr(34) + n + chr(34) for n in names)}")


def _again(op: Operator, bound: dict, out: Any, inplace: bool) -> Any:
    """The call with today's arguments."""
    from . import execute
    from .inplace import run_inplace, run_out
    vals = []
    for p in op.params:
        v = bound[p.name]
        if p.kind == "sizes" and not isinstance(v, tuple):
            v = sizes(v, op.name, p.name)
        vals.append(v)
    if inplace:
        return run_inplace(op, tuple(vals))
    return execute.run(op, tuple(vals)) if out is None else run_out(op, tuple(vals), out)


def legacy(op: Operator, values: tuple, old: tuple, out: Any, inplace: bool, method: bool) -> Any:
    """A call with more positional arguments than today's signature: the record's `legacy` signatures say what they were."""
    names = [p.name for p in op.params]
    today = [v for p, v in zip(op.params, values, strict=True) if not p.keyword]
    given = [*today, *old]
    tensors = {p.name for p in op.params if p.kind in ("tensor", "operand")}

    def fits(n: str, v: Any) -> bool:       # a tensor without dimensions may be a number
        return isinstance(v, Tensor) and (n in tensors or v.dim() == 0) or n not in tensors and isinstance(v, (int, float, complex))

    for signature in (method and op.legacy_method) or op.legacy:  # type: ignore[union-attr]
        order = [n.strip() for n in signature.split(",")]
        if len(given) == len(order) and all(map(fits, order, given)):
            break
    else:
        raise TypeError(f"{op.name}() takes {len(today)} positional arguments but {len(given)} were given: ({', '.join(type(v).__name__ for v in given)})")
    warn_once(f"order of {op.name}", f"this overload of {op.name} is deprecated: {op.name}({', '.join(order)}); pass "
              f"{', '.join(p.name for p in op.params if p.keyword)} by keyword", 3)
    bound = dict(zip(names, values, strict=True))
    bound.update(zip(order, given, strict=True))
    return _again(op, bound, out, inplace)
