"""Derivatives of functions of tensors: `vjp`, `jvp`, `jacobian`, `hessian`, `vhp`, `hvp`.

Everything here is reverse mode; `jvp` and `hvp` differentiate a vector-Jacobian product by its vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import _missing

from ..core.tensor import Tensor, hooks
from .engine import grad
from .modes import enable_grad

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _tuple(x: Any, what: str, fn: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether x was a tuple, and x as one. TypeError unless all are tensors."""
    many = isinstance(x, (tuple, list))
    xs = tuple(x) if many else (x,)
    for i, t in enumerate(xs):
        if not isinstance(t, Tensor):
            raise TypeError(f"The {what} given to {fn} must be either a Tensor or a tuple of Tensors but the value at index {i} has type {type(t)}.")
    return many, xs


def _leaves(xs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Copies to differentiate by; with create_graph they hang on the caller's tensors."""
    return tuple(x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in xs)


def _vectors(v: Any, like: tuple[Tensor, ...], what: str, fn: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} of the user-provided function is a single Tensor with a single element.")
        return (hooks.function("ones_like")(like[0]),)
    _, vs = _tuple(v, "v", fn)
    if len(vs) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}.")
    for i, (a, b) in enumerate(zip(vs, like, strict=True)):
        if a.shape != b.shape:
            raise RuntimeError(f"Entry {i} in v has invalid size: should be {b.shape} but got {a.shape}.")
    return vs


def _grad(outs: tuple[Tensor, ...], xs: tuple[Tensor, ...], vs: tuple[Tensor, ...] | None, create_graph: bool, strict: bool,
          retain: bool = True) -> tuple[Tensor, ...]:
    """Gradients, zeros where there is no path; with strict that is a RuntimeError."""
    pairs = [(o, None if vs is None else v) for o, v in zip(outs, vs or outs, strict=True) if o.requires_grad]
    got: Any = (None,) * len(xs)
    if pairs:
        got = grad([o for o, _ in pairs], xs, [v for _, v in pairs], retain_graph=retain or create_graph, create_graph=create_graph, allow_unused=True)
    if strict:
        for i, g in enumerate(got):
            if g is None:
                raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.")
    return tuple(hooks.function("zeros_like")(x) if g is None else g for g, x in zip(got, xs, strict=True))


def _give(many: bool, xs: tuple[Tensor, ...], create_graph: bool) -> Any:
    xs = xs if create_graph else tuple(x.detach() for x in xs)
    return xs if many else xs[0]


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, v^T J): v has the outputs' structure, and may be None for one output of one element."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "vjp")
        xs = _leaves(given, create_graph)
        many_out, outs = _tuple(func(*xs), "outputs of the user-provided function", "vjp")
        vs = _vectors(v, outs, "the output", "vjp")
        g = _grad(outs, xs, vs, create_graph, strict)
    return _give(many_out, outs, create_graph), _give(many, g, create_graph)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, J v): v has the inputs' structure, and may be None for one input of one element."""
    with enable_grad():
        _, given = _tuple(inputs, "inputs", "jvp")
        vs = _vectors(v, given, "the input", "jvp")
        xs = _leaves(given, create_graph)
        many_out, outs = _tuple(func(*xs), "outputs of the user-provided function", "jvp")
        # J^T u is linear in u; its derivative by u, weighted with v, is J v
        us = tuple(hooks.function("zeros_like")(o).requires_grad_() for o in outs)
        g = _grad(outs, xs, us, True, strict)
        j = _grad(g, us, vs, create_graph, False)
    return _give(many_out, outs, create_graph), _give(many_out, j, create_graph)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The derivative of each output by each input, of shape output.shape + input.shape; tuples of them as func's are.

    `vectorize` and `strategy` ask for a way of computing, not for another result: rows are computed one by one.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f'Expected strategy to be either "forward-mode" or "reverse-mode", but got: {strategy!r}')
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "jacobian")
        xs = _leaves(given, create_graph)
        many_out, outs = _tuple(func(*xs), "outputs of the user-provided function", "jacobian")
        rows = []
        for o in outs:
            flat = o.reshape(-1)
            per = [_grad((flat[i],), xs, None, create_graph, strict) for i in range(flat.numel())]
            made = tuple(hooks.function("stack")([p[k] for p in per]).reshape((*o.shape, *x.shape)) if per
                         else hooks.function("zeros")((*o.shape, *x.shape), dtype=x.dtype) for k, x in enumerate(xs))
            rows.append(_give(many, made, create_graph))
    return tuple(rows) if many_out else rows[0]


def _scalar(func: Callable, fn: str) -> Callable:
    def checked(*xs: Tensor) -> Tensor:
        out = func(*xs)
        if not isinstance(out, Tensor):
            raise RuntimeError(f"The function given to {fn} should return a single Tensor, but returned {type(out).__name__}")
        if out.numel() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {fn} should contain a single element, but has shape {list(out.shape)}")
        return out.reshape(())
    return checked


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a scalar function: hessian[i][j] has shape inputs[i].shape + inputs[j].shape."""
    many, _ = _tuple(inputs, "inputs", "hessian")
    f = _scalar(func, "hessian")

    def first(*xs: Tensor) -> Any:
        xs = tuple(x.view_as(x) for x in xs)
        g = _grad((f(*xs),), xs, None, True, strict)
        return g if many else g[0]

    return jacobian(first, inputs, create_graph, strict)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, v^T H) of a scalar function."""
    with enable_grad():
        many, given = _tuple(inputs, "inputs", "vhp")
        vs = _vectors(v, given, "the input", "vhp")
        xs = _leaves(given, create_graph)
        out = _scalar(func, "vhp")(*xs)
        g = _grad((out,), xs, None, True, strict)
        h = _grad(g, xs, vs, create_graph, strict)
    return _give(False, (out,), create_graph), _give(many, h, create_graph)


def hvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, H v) of a scalar function; H is symmetric, so this is `vhp`, which is the cheaper of the two."""
    return vhp(func, inputs, v, create_graph, strict)


_missing.hint(__name__)
