"""Guards: what a captured call depended on in the Python world, and whether it still holds.

`Watch` observes a call: which user functions ran (their globals, closures and `self`), which attributes of modules were read or
written, which builtins with effects were called. `Watch.finish` turns that into `Guards`, whose `check()` is one generated
expression plus a comparison of the modules' mutation epoch; only when the epoch moved are the attributes compared one by one.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..core.tensor import Tensor

__all__ = ["Watch", "Guards", "token"]

PLAIN = (int, float, complex, bool, str, bytes, type(None), slice, range)
_EFFECTS = {"print": "prints", "input": "reads input", "open": "opens a file", "next": "advances an iterator"}
_EFFECT_MODULES = {"time": "reads the clock", "random": "draws from Python's random module", "_random": "draws from Python's random module"}


def token(x: Any, depth: int = 2) -> Any:
    """Something that compares equal as long as `x` means the same to a captured call: the value of plain things, the identity of
    others, the tokens of what containers and plain objects hold."""
    if isinstance(x, PLAIN):
        return (type(x), x)
    if depth:
        if isinstance(x, (list, tuple, set, frozenset)) and len(x) <= 64:
            return (id(x) if not isinstance(x, tuple) else tuple, tuple([token(y, depth - 1) for y in x]))
        if isinstance(x, dict) and len(x) <= 64:
            return (id(x), tuple([(k if isinstance(k, PLAIN) else id(k), token(y, depth - 1)) for k, y in x.items()]))
        if not isinstance(x, (Tensor, ModuleType, type, FunctionType, BuiltinFunctionType)) and hasattr(x, "__dict__") \
                and not type(x).__module__.startswith(("rushlight", "torch")) and not _is_module(x):
            return (id(x), tuple([(k, token(y, depth - 1)) for k, y in vars(x).items()]))
    return id(x)


_LIBRARY = os.path.dirname(os.__file__)


def _of_python(filename: str) -> bool:
    """Whether code belongs to Python's own library, or was generated here."""
    return filename.startswith((_LIBRARY, "<frozen", "<rushlight", "<update rule")) and "site-packages" not in filename


def _is_module(x: Any) -> bool:
    from ..nn.modules.module import Module
    return isinstance(x, Module)


class Guards:
    """`check()` says whether everything is as it was."""

    def __init__(self, quick: Callable[[], bool], attributes: list[tuple[Any, str, Any]], deep: list[tuple[Callable[[], Any], Any]],
                 keep: list[Any]) -> None:
        from ..nn.modules.module import mutation_epoch
        self.quick, self.attributes, self.deep, self.keep = quick, attributes, deep, keep
        self.epochs = mutation_epoch
        self.epoch = mutation_epoch[0]

    def check(self) -> bool:
        if not self.quick():
            return False
        for get, want in self.deep:
            try:
                if get() != want:
                    return False
            except Exception:
                return False
        if self.epoch != self.epochs[0]:
            now = self.epochs[0]
            for obj, name, want in self.attributes:
                try:
                    if token(getattr(obj, name), 2) != want:
                        return False
                except AttributeError:
                    return False
            self.epoch = now
        return True

    def why(self) -> str:
        """The first guard that fails, in words."""
        for obj, name, want in self.attributes:
            if token(getattr(obj, name, None), 2) != want:
                return f"{type(obj).__name__}.{name} changed"
        for get, want in self.deep:
            if get() != want:
                return f"a value that the function reads changed ({getattr(get, '__doc__', None) or 'global or closure'})"
        return "a global, a closure variable or a tensor that the function reads was replaced"


class Watch:
    """Observes one call of `fn`."""

    def __init__(self, fn: Callable) -> None:
        self.fn = fn
        self.codes: dict[Any, tuple[dict, Any]] = {}        # code -> (globals, first argument)
        self.attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self.written: list[str] = []
        self.reason: str | None = None
        self.importing = 0
        self.keep: list[Any] = []
        self.objects: list[Any] = []

    # --- observing ------------------------------------------------------------------------------------------------
    def __enter__(self) -> Watch:
        from ..nn.modules.module import Module
        watch = self
        plain_get = object.__getattribute__
        before_set = Module.__setattr__

        def getattribute(module: Any, name: str) -> Any:
            value = plain_get(module, name)
            if name[:2] != "__" and not callable(value) or name in ("_modules", "_parameters", "_buffers"):
                key = (id(module), name)
                if key not in watch.attributes and not name.endswith("_hooks"):
                    watch.attributes[key] = (module, name, token(value, 2))
            return value

        def setattribute(module: Any, name: str, value: Any) -> None:
            if name not in ("_compiled_call_impl",):
                watch.written.append(f"{type(module).__name__}.{name}")
            before_set(module, name, value)

        self.before_set, self.Module = before_set, Module
        Module.__getattribute__ = getattribute  # type: ignore[method-assign, assignment]
        Module.__setattr__ = setattribute  # type: ignore[method-assign, assignment]
        self.before_profile = sys.getprofile()
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self.before_profile)
        del self.Module.__getattribute__
        self.Module.__setattr__ = self.before_set  # type: ignore[method-assign]

    def profile(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>" and event in ("call", "return"):
            self.importing += 1 if event == "call" else -1          # what runs when a module is imported is no part of the call
        elif self.importing:
            return
        elif event == "call":
            g = frame.f_globals
            name = g.get("__name__", "")
            if name.startswith("rushlight") or name in ("threading", "weakref", "contextlib", "functools", "warnings", "numpy", "ctypes") \
                    or name.startswith(("numpy.", "importlib", "scipy", "llvmlite")):
                return
            if _of_python(code.co_filename):
                return
            if code not in self.codes:
                first = None
                if code.co_argcount and code.co_varnames[0] == "self":
                    first = frame.f_locals.get("self")
                self.codes[code] = (g, first)
        elif event == "c_call" and self.reason is None:
            module = getattr(arg, "__module__", None)
            name = getattr(arg, "__name__", "")
            caller = frame.f_globals.get("__name__", "")
            if caller.startswith(("rushlight", "numpy", "importlib", "ctypes", "weakref", "contextlib")) \
                    or caller != "random" and _of_python(frame.f_code.co_filename):
                return
            if module in ("builtins", None) and name in _EFFECTS and getattr(arg, "__self__", None).__class__ is ModuleType:
                self.reason = f"the function {_EFFECTS[name]} ({name}) at {frame.f_code.co_filename}:{frame.f_lineno}"
            elif module in _EFFECT_MODULES or type(getattr(arg, "__self__", None)).__module__ in _EFFECT_MODULES:
                self.reason = f"the function {_EFFECT_MODULES.get(module or '', 'draws from the random module')} at " \
                              f"{frame.f_code.co_filename}:{frame.f_lineno}"

    # --- the result -------------------------------------------------------------------------------------------------
    def finish(self, tensors: list[Tensor]) -> Guards:
        """Guards over what was observed, and over the arrays and flags of the external `tensors`."""
        env: dict[str, Any] = {}
        terms: list[str] = []
        deep: list[tuple[Callable[[], Any], Any]] = []
        self.keep.append(self.fn)

        def add(obj: Any, expr: str, value: Any, get: Callable[[], Any]) -> None:
            k = len(env)
            if isinstance(value, PLAIN) or isinstance(value, (list, dict, set, tuple)) or type(token(value, 1)) is tuple:
                if isinstance(value, (bool, type(None))):
                    env[f"o{k}"] = obj
                    terms.append(f"{expr.format(f'o{k}')} is {value}")
                    return
                deep.append((lambda: token(get(), 2), token(value, 2)))
                self.keep.append(value)
                return
            env[f"o{k}"], env[f"v{k}"] = obj, value
            terms.append(f"{expr.format(f'o{k}')} is v{k}")

        for code, (g, first) in self.codes.items():
            for name in dict.fromkeys(_names(code)):
                if name in g and not name.startswith("__"):
                    add(g, "{0}.get(" + repr(name) + ")", g[name], lambda g=g, n=name: g.get(n))  # type: ignore[misc]
            for cell, name in self._cells(code):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                if name != "__class__":
                    add(cell, "{0}.cell_contents", value, lambda c=cell: c.cell_contents)  # type: ignore[misc]
            if first is not None and not _is_module(first) and not type(first).__module__.startswith(("rushlight", "torch")):
                deep.append((lambda o=first: token(o, 2), token(first, 2)))  # type: ignore[misc]
        for t in tensors:
            k = len(env)
            env[f"o{k}"], env[f"v{k}"] = t, t._a
            terms.append(f"o{k}._a is v{k}")
            if t._base is None:
                terms.append(f"o{k}._rg is {t._rg!r}")
        body = " and ".join(terms) or "True"
        exec(compile(f"def quick():\n    return {body}", "<rushlight guards>", "exec"), env)
        return Guards(env["quick"], list(self.attributes.values()), deep, self.keep)

    def _cells(self, code: Any) -> list[tuple[Any, str]]:
        if not code.co_freevars:
            return []
        fn = self.fn if getattr(self.fn, "__code__", None) is code else next(
            (f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code), None)
        if fn is None or fn.__closure__ is None:
            return []
        return list(zip(fn.__closure__, code.co_freevars, strict=True))


def _names(code: Any) -> list[str]:
    out = list(code.co_names)
    for c in code.co_consts:
        if isinstance(c, type(code)):
            out += _names(c)
    return out
