"""The operators: one record each, in one place.

`declare` turns a record into functions, methods, in-place forms, `out=`, operator overloads, old names, tape nodes and tests;
`expr` is the language of pointwise bodies. The family files (`arithmetic`, `reduce`, `view`, ...) hold nothing but records.
`load()` imports them all; `function(name)` finds an operator's public function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import _missing

FAMILIES = ("arithmetic", "math", "compare", "reduce", "view", "slices", "create", "copy", "index", "gather",
            "masks", "scatter_views", "join", "sort", "sets", "statistics", "matmul", "einsum", "random",
            "activation", "linear", "attention", "loss", "loss_class", "loss_ctc", "norm", "conv", "pool",
            "resample", "embedding", "linalg", "matrices", "decompositions", "lapack", "fft", "special", "windows", "copies", "masked_ops",
            "internal", "sparse", "sparse_rules", "sparse_functions")
_loaded: list[bool] = []


def load() -> None:
    """Import every family file (once)."""
    if _loaded:
        return
    _loaded.append(True)
    from importlib import import_module
    import_module("rushlight.autograd.engine")
    for f in FAMILIES:
        import_module("." + f, __name__)
    from .declare import install
    install()


_found: dict[str, Callable[..., Any]] = {}


def function(name: str) -> Callable[..., Any]:
    """The public function of an operator: "add", "nn.functional.relu", "linalg.inv", "resize_" (a method). KeyError if there is none."""
    fn = _found.get(name)
    if fn is None:
        fn = _found[name] = record(name).function
    return fn


def record(name: str) -> Any:
    """The record behind such a name."""
    from .declare import NAMESPACES
    load()
    ns, _, short = name.rpartition(".")
    for space in (ns,) if ns else ("torch", "Tensor", "nn.functional"):
        op = NAMESPACES.get(space, {}).get(short)
        if op is not None:
            return op
    raise KeyError(f"no operator {name!r}")


def names(namespace: str = "torch") -> list[str]:
    """The operator names of a namespace."""
    from .declare import NAMESPACES
    load()
    return sorted(NAMESPACES.get(namespace, ()))


def __getattr__(name: str) -> Any:
    if name != "aten":
        raise _missing.missing(__name__, name)
    from importlib import import_module
    return import_module(".aten", __name__)


def attribute(namespace: str, name: str) -> Callable[..., Any]:
    """What `torch.<namespace>.<name>` is: an operator's function, or its in-place form. AttributeError if there is none."""
    from .declare import NAMESPACES
    load()
    table = NAMESPACES.get(namespace, {})
    if name in table:
        return table[name].function
    op = table.get(name[:-1]) if name.endswith("_") else None
    if op is None or not op.inplace:
        raise _missing.missing(f"rushlight.{namespace}", name)
    return op.inplace_function
