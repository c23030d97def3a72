"""What dtype every operation gives for every pair of operands, in torch or in Rushlight: `table(library)`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
NUMBERS = {"True": True, "2": 2, "1.5": 1.5, "1j": 1j}


def _name(f: Callable[..., Any], *args: Any) -> str:
    """The dtype of a result, or the type of the exception."""
    try:
        r = f(*args)
    except Exception as e:
        return type(e).__name__
    return str(getattr(r, "dtype", r)).removeprefix("torch.")


def table(T: Any) -> dict[str, dict[str, str]]:
    """{operation: {operands: dtype}}."""
    def vector(d: str) -> Any:
        return T.ones(2, dtype=getattr(T, d))

    def scalar(d: str) -> Any:
        return T.ones((), dtype=getattr(T, d))

    binary = {
        "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "floordiv": lambda a, b: a // b,
        "pow": lambda a, b: a ** b, "lt": lambda a, b: a < b, "and": lambda a, b: a & b, "maximum": lambda a, b: T.maximum(a, b),
        "where": lambda a, b: T.where(T.tensor([True, False]), a, b), "atan2": lambda a, b: T.atan2(a, b),
        "cat": lambda a, b: T.cat([a.reshape(-1), b.reshape(-1)]), "result_type": lambda a, b: T.result_type(a, b),
    }
    unary = {
        "neg": lambda a: -a, "abs": abs, "exp": T.exp, "sum": T.sum, "prod": T.prod, "mean": T.mean, "cumsum": lambda a: T.cumsum(a, 0), "sign": T.sign,
        "floor": T.floor, "sqrt": T.sqrt, "all": T.all, "max": T.max, "argmax": T.argmax, "std": T.std, "relu": T.relu, "sigmoid": T.sigmoid,
        "round": T.round, "square": T.square, "reciprocal": T.reciprocal, "isnan": T.isnan, "norm": T.linalg.vector_norm,
        "softmax": lambda a: T.softmax(a, 0), "angle": T.angle, "invert": lambda a: ~a, "logical_not": T.logical_not,
    }
    found: dict[str, dict[str, str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, f in binary.items():
            rows = found[name] = {}
            for d in DTYPES:
                for e in DTYPES:
                    rows[f"{d},{e}"] = _name(f, vector(d), vector(e))
                    rows[f"{d},{e}()"] = _name(f, vector(d), scalar(e))
                if name not in ("maximum", "atan2", "cat"):
                    for n, x in NUMBERS.items():
                        rows[f"{d},{n}"] = _name(f, vector(d), x)
                        if name != "result_type":
                            rows[f"{n},{d}"] = _name(f, x, vector(d))
        for name, g in unary.items():
            found[name] = {d: _name(g, vector(d)) for d in DTYPES}
        for name, h in {"add_": lambda a, b: a.add_(b), "div_": lambda a, b: a.div_(b), "copy_": lambda a, b: a.copy_(b),
                        "can_cast": lambda a, b: T.can_cast(b.dtype, a.dtype), "promote_types": lambda a, b: T.promote_types(a.dtype, b.dtype)}.items():
            found[name] = {f"{d},{e}": _name(h, vector(d), vector(e)) for d in DTYPES for e in DTYPES}
        before = T.get_default_dtype()
        try:
            T.set_default_dtype(T.float64)
            found["default float64"] = {d: _name(lambda x: x * 1.5, vector(d)) for d in DTYPES} | {d + " exp": _name(T.exp, vector(d)) for d in DTYPES}
        finally:
            T.set_default_dtype(before)
    return found
