"""Watching a call: Python code that the walk did not know of, and calls into C that are not known to be free of effects and independent of
the world (clocks, files, random numbers). Either makes a capture fail."""

from __future__ import annotations

import collections
import gc
import os
import sys
import types
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .guards import alike
from .walk import Walk, _is_library, module_origin, origin

__all__ = ["Watch"]

# the part of Rushlight that opens files because the caller wants it
_FILES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "serialization") + os.sep

_PURE = {"importlib", "contextlib", "functools", "collections", "dataclasses", "typing", "abc", "_py_abc", "enum", "copy", "copyreg", "operator", "types", "re",
         "numbers", "inspect", "weakref", "_weakrefset", "_collections_abc", "string", "math", "statistics", "itertools", "threading", "keyword",
         "reprlib", "fractions", "decimal", "_pydecimal", "heapq", "bisect", "textwrap", "codecs", "locale", "sre_compile", "sre_parse", "genericpath",
         "posixpath", "ntpath", "fnmatch", "graphlib", "queue", "array", "struct", "sysconfig", "_strptime", "warnings", "dis", "opcode", "ast"}
_C_PURE = {"builtins", "math", "cmath", "_operator", "operator", "itertools", "_functools", "functools", "_collections", "_abc", "_weakref", "_thread",
           "_struct", "_bisect", "_heapq", "_sre", "_typing", "_contextvars", "_statistics", "_decimal", "unicodedata", "_string"}
_EFFECTS = {"print": "prints", "input": "reads input", "open": "opens a file", "exec": "runs code made at run time", "eval": "runs code made at run time",
            "compile": "makes code at run time", "__import__": "imports", "breakpoint": "stops in the debugger"}
_EVERYWHERE = {("io", "open"), ("_io", "open"), ("posix", "open"), ("posix", "fork")}
_OWNERS: tuple[Any, ...] = (list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, complex, range, slice, collections.deque, FunctionType, types.MethodType,
           types.GeneratorType, property, np.ndarray, np.generic, np.ufunc, np.dtype, type(type.__dict__), type({}.keys()), type({}.values()),
           type({}.items()), Tensor)
_WORDS = {"time": "reads the clock", "datetime": "reads the clock", "random": "draws from Python's random module",
          "_warnings": "warns", "_random": "draws from Python's random module", "posix": "calls the operating system", "os": "calls the operating system"}


_ours: set[CodeType] = set()


class Watch:
    """Observes one call. `reason`: why it cannot be replayed. `unknown`: code that the walk had not found, for the next walk."""

    def __init__(self, walk: Walk) -> None:
        self.codes = walk.codes
        self.reason: str | None = None
        self.unknown: dict[CodeType, dict] = {}
        self.importing = 0

    def __enter__(self) -> Watch:
        self.streams = _streams()
        self.before, self.collecting = sys.getprofile(), gc.isenabled()
        gc.disable()        # what a collection runs (finalizers, callbacks) is no part of the call
        sys.setprofile(self.profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self.before)
        if self.collecting:
            gc.enable()
        if self.reason is None and not all(map(alike, self.streams, _streams())):
            self.reason = "the function draws from Python's or NumPy's random module"

    def fail(self, reason: str, frame: Any) -> None:
        if self.reason is None:
            self.reason = f"the function {reason} at {frame.f_code.co_filename}:{frame.f_lineno}"

    def profile(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if code in _ours:
            return
        if event == "call" and origin(code.co_filename) == "own" and not code.co_filename.startswith(_FILES):
            _ours.add(code)             # nothing that it does by itself is refused, and it is most of what runs
            return
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>" and event in ("call", "return"):
            self.importing += 1 if event == "call" else -1          # what runs when a module is imported is no part of the call
        elif self.importing:
            return
        elif event == "call":
            if code in self.codes:
                return
            where = origin(code.co_filename)
            if where in ("user", "foreign"):
                home = frame.f_globals.get("__name__", "")
                if code.co_filename[:1] != "<" or not home.startswith("namedtuple_") and not _is_library(module_origin(home)):
                    self.unknown.setdefault(code, frame.f_globals)
            elif where == "python" and frame.f_back is not None and origin(frame.f_back.f_code.co_filename) in ("user", "foreign"):
                name = frame.f_globals.get("__name__", "")
                if name.partition(".")[0] not in _PURE and self.reason is None:
                    self.fail(_WORDS.get(name, f"calls {name}.{code.co_name}, which may have effects,"), frame.f_back)
        elif event == "c_call" and self.reason is None:
            owner, module, name = getattr(arg, "__self__", None), getattr(arg, "__module__", None), getattr(arg, "__name__", "?")
            where = origin(code.co_filename)
            if (module, name) in _EVERYWHERE and where != "python" and (where != "own" or code.co_filename.startswith(_FILES)):
                self.fail("opens a file" if name == "open" else "starts a thread", frame)
                return
            if name.startswith("start_") and module == "_thread":
                if frame.f_back is None or origin(frame.f_back.f_code.co_filename) != "own":      # the pool is ours
                    self.fail("starts a thread", frame.f_back or frame)
                return
            if where in ("user", "foreign"):
                problem = _problem(arg, owner, module, name)
                if problem is not None:
                    self.fail(problem, frame)

    def found(self) -> list[Any]:
        """The functions, or codes, that ran and were unknown: roots for the next walk."""
        out: list[Any] = []
        for code, g in self.unknown.items():
            fs = [f for f in gc.get_referrers(code) if isinstance(f, FunctionType) and f.__code__ is code]
            out += fs or [FunctionType(code, g, closure=tuple(types.CellType() for _ in code.co_freevars))]
        return out


def _problem(arg: Any, owner: Any, module: str | None, name: str) -> str | None:
    """What a C function does that a replay would not do; None if nothing."""
    if owner is None or isinstance(owner, ModuleType):
        home = str(module or getattr(owner, "__name__", ""))
        if home == "builtins":
            return f"{_EFFECTS[name]} ({name})" if name in _EFFECTS else None
        if home == "sys" and name in ("getrefcount", "getsizeof", "exc_info", "_getframe", "getrecursionlimit", "intern", "is_finalizing"):
            return None
        if home in _C_PURE or home.startswith(("numpy", "ml_dtypes", "rushlight")) and not home.startswith("numpy.random"):
            return None
        return f"{_WORDS[home]} ({name})" if home in _WORDS else f"calls {home}.{name}, which may have effects,"
    if isinstance(owner, type):
        home = owner.__module__
        return None if home in ("builtins", "collections") or home.startswith(("numpy", "rushlight")) or issubclass(owner, (dict, list, tuple)) \
            or module_origin(home) == "user" else _WORDS.get(home, f"calls {owner.__name__}.{name}, which may have effects,")
    home = type(owner).__module__
    if home == "_random" or home == "random":
        return _WORDS[home]
    if isinstance(owner, _OWNERS) or home in ("_thread", "builtins", "itertools", "re", "decimal", "fractions", "datetime", "weakref", "_contextvars"):
        return None
    if module_origin(home) == "user" and not hasattr(type(owner), "__next__"):
        return None          # a method that a user's class has from object
    return f"calls {type(owner).__name__}.{name}, which may have effects,"


def _state_of(r: Any) -> tuple:
    s = r.mtrand._rand._bit_generator.state["state"]
    return tuple([v.tobytes() if isinstance(v, np.ndarray) else v for v in s.values()])


def _streams() -> tuple:
    """The states of the process's other random streams."""
    out: list[Any] = []
    r = sys.modules.get("random")
    if r is not None:
        out.append(r.getstate())
    r = sys.modules.get("numpy.random")
    if r is not None:
        out.append(_state_of(r))
    return tuple(out)
