"""What the cases of the tape share: the library they run on, and how results and errors are put down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[[], Any]] = {}


class Library:
    """Stands for torch or for Rushlight: `use(library)` says which."""

    chosen: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chosen, name)


LIBRARY: Any = Library()


def case(f: Callable[[], Any]) -> Callable[[], Any]:
    assert f.__name__ not in CASES
    CASES[f.__name__] = f
    return f


def leaf(*values: float) -> Any:
    return LIBRARY.tensor(values, dtype=LIBRARY.float64, requires_grad=True)


def L(t: Any) -> Any:
    """A tensor, or tensors in tuples, as lists of numbers."""
    if isinstance(t, (tuple, list)):
        return [L(x) for x in t]
    return t.detach().tolist() if isinstance(t, LIBRARY.Tensor) else t


def err(f: Callable[[], Any]) -> Any:
    """What a call gives, or the type of its exception and how the message begins."""
    try:
        r = f()
    except Exception as e:
        return type(e).__name__, str(e)[:60]
    return "ok", L(r)


def errt(f: Callable[[], Any]) -> Any:
    """What a call gives, or the type of its exception."""
    try:
        r = f()
    except Exception as e:
        return type(e).__name__
    return "ok", L(r)


def run(name: str, library: Any) -> Any:
    """What a case gives, as JSON would have it."""
    import warnings
    Library.chosen = library
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(CASES[name](), default=str))
