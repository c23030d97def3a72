"""The compiler: whole calls captured and run as one program; native kernels made from scalar expressions.

    capture.py   one call, run for real while every operator is noted
    observe.py   the call run under the capture, with everything patched that must be seen
    walk.py      what Python data a function can reach: the nodes of its guards
    watch.py     code and C functions that run in the call: what a capture must not contain
    guards.py    what a capture depended on in Python, and whether it still holds
    graph.py     buffers, views, steps: the captured call
    compiled.py  `compile`: capture at the first call, replay at the later ones
    program.py   a graph made runnable: the interpreter, and `build`
    rewrite.py schedule.py memory.py native.py   fusion, arena, one LLVM module a graph

    jit.py       IR text -> machine code -> addresses (LLJIT); freed with the `Library` that holds it
    cache.py     object code on disk, keyed by text, CPU and versions
    builder.py   a writer of IR text: values, vectors, blocks, constants
    vecmath.py   elementary functions on vectors, branch-free, with stated errors
    scalar.py    `Expr` graphs -> vector instructions: dtypes, casts, integers, logic
    llvm.py      `Module`: loops over arrays (pointwise, reduce, row) around those instructions
    kernels.py   ready-made kernels for eager execution

The lower half knows `ops/expr.py` and NumPy dtypes by name, and nothing of Tensor. llvmlite is imported only when code is
compiled or loaded; `jit.available()` tells whether it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import _missing

__all__ = ["compile", "explain", "reset", "is_compiling", "is_dynamo_compiling", "is_exporting", "disable", "allow_in_graph", "assume_constant_result",
           "list_backends", "cudagraph_mark_step_begin", "set_stance", "config"]

BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs")


def compile(model: Callable | None = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None, mode: str | None = None,
            options: dict | None = None, disable: bool = False, **kw: Any) -> Any:
    """`model` (a function, a whole training step, or a module) compiled.

    The first call runs eagerly and is captured; later calls whose guards hold run as one program of native code. What cannot be captured
    runs eagerly, and `explain` says why; with `fullgraph` that is a RuntimeError, unless it is only that backward runs outside. A result whose
    graph backward used up inside the call says so if backward is called on it. Also a decorator: `@compile` or `@compile(...)`.
    `dynamic`, `backend`, `mode` and `options` are accepted and change nothing: shapes are guarded, there is one backend.

    TypeError for what is not callable; RuntimeError for an unknown mode or backend, and for both mode and options.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode not in (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs")
    if backend is not None and not callable(backend) and backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, should be callable or one of: {', '.join(BACKENDS)}")
    if model is None:
        return lambda f: compile(f, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, **kw)
    if kw:
        raise TypeError(f"compile() got an unexpected keyword argument '{next(iter(kw))}'")
    if not callable(model):
        raise TypeError(f"compile() takes a function or a module, not {type(model).__name__}")
    if disable:
        return model
    from ..nn.modules.module import Module
    from .compiled import Compiled
    if isinstance(model, Module):
        from .module import OptimizedModule
        if isinstance(model, OptimizedModule):
            return model
        return OptimizedModule(model, fullgraph)
    if isinstance(model, Compiled):
        return model
    return Compiled(model, fullgraph)


def explain(fn: Any) -> Any:
    """What became of a compiled function, method or module: for each capture the steps as they run, what was fused into each, what was not
    and why; and the reasons for calls that ran eagerly. An object whose `str()` is a table."""
    from .explanation import Explanation
    return Explanation(fn)


def reset() -> None:
    """Forget the captures of all compiled functions: their next calls are captured anew. `rushlight cache clear` empties the disk."""
    from .compiled import every
    for c in list(every):
        c._reset()


def is_compiling() -> bool:
    """Whether a capture is running."""
    from ..ops import execute
    return execute.capture[0] is not None


def is_dynamo_compiling() -> bool:
    """`is_compiling`."""
    return is_compiling()


def is_exporting() -> bool:
    """False: nothing is exported."""
    return False


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """What `compile` takes as `backend`; all mean the one that there is."""
    return list(BACKENDS[:1])


def cudagraph_mark_step_begin() -> None:
    """Accepted: results that the caller holds are never overwritten."""


def assume_constant_result(fn: Callable) -> Callable:
    """Accepted: what a function reads is guarded."""
    return fn


class set_stance:
    """How compiled functions are called from now on: "default", or "force_eager" (they run eagerly). "eager_on_recompile" and
    "fail_on_recompile" are for calls that no capture fits: eager, or a RuntimeError. Also a context manager and a decorator."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        from .compiled import settings
        if stance not in ("default", "force_eager", "eager_on_recompile", "fail_on_recompile"):
            raise RuntimeError(f"invalid torch.compile stance {stance!r}")
        self.stance, self.before = stance, settings["stance"]
        settings["stance"] = stance

    def __enter__(self) -> None:
        from .compiled import settings
        settings["stance"] = self.stance

    def __exit__(self, *exc: object) -> None:
        from .compiled import settings
        settings["stance"] = self.before

    def __call__(self, fn: Callable) -> Callable:
        import functools
        self.__exit__()

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)
        return wrapped


def disable(fn: Callable | None = None, recursive: bool = True) -> Any:
    """Marks a function that must not be captured: a call of it inside a compiled function makes that run eagerly."""
    import functools
    if fn is None:
        return lambda f: disable(f, recursive)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from ..ops import execute
        if execute.capture[0] is not None:
            execute.capture[0].fail(f"{fn.__qualname__} is marked with compiler.disable")
        return fn(*args, **kwargs)
    return wrapped


def allow_in_graph(fn: Callable) -> Callable:
    """Accepted: everything that can be captured is."""
    return fn


class _Config:
    """`strict`: a call that cannot be compiled raises. `verify`: check every captured graph."""

    def __getattr__(self, name: str) -> Any:
        from .compiled import settings
        if name in settings:
            return settings[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        from .compiled import settings
        if name not in settings:
            raise AttributeError(f"the compiler has no setting {name!r}: {', '.join(settings)}")
        settings[name] = value


config = _Config()


_missing.hint(__name__)
