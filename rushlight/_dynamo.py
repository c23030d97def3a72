"""`torch._dynamo`: the names of it that programs use, as faces of `rushlight.compiler`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rushlight import _missing

from .compiler import (
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    explain,
    is_compiling,
    list_backends,
    reset,
)
from .compiler.module import OptimizedModule

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "explain", "graph_break",
           "is_compiling", "list_backends", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "reset"]

# Options that programs set; none of them changes anything here.
config = SimpleNamespace(suppress_errors=True, verbose=False, cache_size_limit=8, recompile_limit=8, capture_scalar_outputs=False,
                         capture_dynamic_output_shape_ops=False, dynamic_shapes=True, automatic_dynamic_shapes=True, optimize_ddp=False,
                         inline_inbuilt_nn_modules=True, assume_static_by_default=True)


def optimize(backend: Any = "inductor", *, nopython: bool = False, **options: Any) -> Callable:
    """The decorator that `compile(backend=..., fullgraph=nopython)` is."""
    return compile(backend=backend, fullgraph=nopython)


def disallow_in_graph(fn: Callable) -> Callable:
    """`disable`."""
    return disable(fn)


def graph_break(msg: str = "") -> None:
    """A call that runs this is not captured."""
    from .ops import execute
    if execute.capture[0] is not None:
        execute.capture[0].fail("the call asks for a graph break" + (f": {msg}" if msg else ""))


def mark_dynamic(t: Any, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Accepted: every shape has a capture of its own."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Accepted, as `mark_dynamic`."""


def mark_static(t: Any, index: Any = None) -> None:
    """Accepted: every shape has a capture of its own."""


_missing.hint(__name__)
