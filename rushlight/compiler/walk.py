"""The walk: everything that a function's code can reach by the names in it, as nodes for the guards."""

from __future__ import annotations

import collections
import dis
import functools
import os
import sys
import types
import weakref
from collections.abc import Iterable
from itertools import chain
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.device import device as Device
from ..core.dtype import dtype as DType
from ..core.random import Generator
from ..core.tensor import Tensor
from .guards import ABSENT, PLAIN, Attributes, Cell, Contents, Hooks, Map, Memory, Node, Row, Set, Steps, Table

__all__ = ["Walk", "Unwalkable", "origin", "module_origin"]

_LIBRARY = os.path.dirname(os.__file__)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIMIT = 20000            # nodes of a walk, items of all containers in it
ARRAY_LIMIT = 1 << 16    # bytes of a NumPy array whose contents are compared


# --- code -------------------------------------------------------------------------------------------------------------
class Names:
    """What a code object and the functions nested in it may touch by name."""

    __slots__ = ("globals", "attributes", "imports", "dynamic", "codes")

    def __init__(self, code: CodeType) -> None:
        self.globals: dict[str, None] = {}
        self.attributes: set[str] = set()
        self.imports: set[str] = set()
        self.dynamic = False             # looks attributes up by names made at run time
        self.codes = [code]
        for c in self.codes:
            for i in dis.get_instructions(c):
                if i.opname == "IMPORT_NAME":
                    self.imports.add(i.argval)
                elif i.opname.endswith(("_GLOBAL", "_NAME")) and isinstance(i.argval, str):
                    self.globals[i.argval] = None
                elif i.opcode in dis.hasname and isinstance(i.argval, str):
                    self.attributes.add(i.argval)
            for k in c.co_consts:
                if isinstance(k, CodeType):
                    self.codes.append(k)
                elif isinstance(k, str) and k.isidentifier():
                    self.attributes.add(k)
        if not {"getattr", "setattr", "hasattr", "delattr", "vars", "dir", "eval", "exec", "globals"}.isdisjoint(self.globals) \
                or not {"__dict__", "__getattribute__"}.isdisjoint(self.attributes):
            self.dynamic = True


_names: weakref.WeakKeyDictionary[CodeType, Names] = weakref.WeakKeyDictionary()


def names_of(code: CodeType) -> Names:
    n = _names.get(code)
    if n is None:
        n = _names[code] = Names(code)
    return n


@functools.lru_cache(4096)
def origin(filename: str) -> str:
    """Whose code a file is: "own" (Rushlight's), "numpy" (NumPy's and its like), "python" (the standard library's), "foreign" (installed
    packages'), "user"."""
    if filename.startswith((_OWN, "<rushlight", "<update rule")):
        return "own"
    if filename.startswith("<__array_function__"):
        return "numpy"
    if "site-packages" in filename or "dist-packages" in filename:
        parts = filename.replace("\\", "/").split("-packages/", 1)[1].split("/")
        return "numpy" if parts[0] in ("numpy", "scipy", "ml_dtypes", "llvmlite") else "foreign"
    if filename.startswith((_LIBRARY, "<frozen")):
        return "python"
    return "user"


def module_origin(name: str | None) -> str:
    """Whose module it is, by its name."""
    m = sys.modules.get(name or "builtins")
    if m is None:
        return "user"
    f = getattr(m, "__file__", None)
    if f is None:
        return "user" if name == "__main__" or getattr(m, "__spec__", None) is None and name not in sys.builtin_module_names else "python"
    return origin(f)


def _is_library(where: str) -> bool:
    return where in ("own", "numpy", "python")


def _calls_back(cell: Any) -> bool:
    """Whether a library function's closure holds something that runs user code: a decorated function, a module."""
    from ..nn.modules.module import Module
    from .compiled import Compiled
    try:
        return isinstance(cell.cell_contents, (FunctionType, types.MethodType, functools.partial, Module, Compiled))
    except ValueError:
        return False


class Unwalkable(Exception):
    """Something that cannot be guarded; the text says what."""


# --- the walk ---------------------------------------------------------------------------------------------------------
_METHODS = ("forward", "backward", "setup_context", "jvp", "vjp", "vmap", "step", "apply")
_SPECIAL = (FunctionType, property, classmethod, staticmethod)
_LEAF_MODULES = ("numpy", "ml_dtypes", "re", "decimal", "fractions", "datetime", "pathlib", "uuid", "zoneinfo", "enum")


class Walk:
    """Everything that `fn`, its arguments and `extra` functions and codes can reach by the names in their code."""

    def __init__(self, fn: Any, args: tuple, kwargs: dict, extra: Iterable[Any] = (), arguments: Iterable[Tensor] = ()) -> None:
        self.roots: list[tuple[Any, str]] = [(fn, "the function"), *[(x, "what is called within") for x in extra]]
        self.arguments = (args, kwargs)
        self.argument_ids = {id(t) for t in arguments}
        self.names: set[str] = {"__call__", "__getattr__", *_METHODS}
        self.dynamic = False
        self.codes: set[CodeType] = set()
        before = -1
        while before != len(self.names) + self.dynamic:      # until what is reached brings no new names
            before = len(self.names) + self.dynamic
            self._pass()
        self._global_hooks()

    def _pass(self) -> None:
        self.nodes: list[Node] = []           # asked before each replay
        self.tables: list[Node] = []          # modules': asked when the mutation epoch moved
        self.hooked: list[Hooks] = []
        self.passing: list[Node] = []         # containers among the arguments: asked only after the call
        self.memo: dict[int, Any] = {}
        self.tensors: list[Tensor] = []
        self.optimizers: list[Any] = []
        self.containers: set[int] = set()
        self.arrays: set[int] = set()
        self.size = 0
        self.stack: list[tuple[Any, str, Any]] = []
        for x, label in self.roots:
            self._push(x, label, self.nodes)
        for i, x in enumerate(self.arguments[0]):
            self._argument(x, f"argument {i}")
        for k, x in self.arguments[1].items():
            self._argument(x, f"argument {k}")
        while self.stack:
            x, label, where = self.stack.pop()
            if id(x) in self.memo:
                continue
            self.memo[id(x)] = x
            self.size += 1
            if self.size > LIMIT:
                raise Unwalkable(f"the function reaches more Python data than a guard can watch ({label})")
            self._visit(x, label, where)

    def _push(self, x: Any, label: str, where: list[Node]) -> None:
        if not isinstance(x, PLAIN):
            self.stack.append((x, label, where))

    def _argument(self, x: Any, label: str) -> None:
        """Containers among the arguments are others at each call: what they hold is compared by the key."""
        if type(x) in (list, tuple) or isinstance(x, tuple):
            self.containers.add(id(x))
            if type(x) is list:
                self.passing.append(Row(x, label))
                self.memo[id(x)] = x
            for y in x:
                self._argument(y, label)
        elif type(x) is dict:
            self.containers.add(id(x))
            self.passing.append(Map(x, label))
            self.memo[id(x)] = x
            for y in x.values():
                self._argument(y, label)
        elif id(x) in self.argument_ids:
            self.passing.append(Memory(x, label))
            self.memo[id(x)] = x
        else:
            self._push(x, label, self.nodes)

    # --- one thing ------------------------------------------------------------------------------------------------------
    def _visit(self, x: Any, label: str, where: list[Node]) -> None:
        from ..nn.modules.module import Module
        from ..optim.optimizer import Optimizer
        from .compiled import Compiled
        if isinstance(x, Tensor):
            self._tensor(x, label)
        elif isinstance(x, FunctionType):
            self._function(x, label)
        elif isinstance(x, CodeType):
            self._code(x)
        elif isinstance(x, types.MethodType):
            self._push(x.__func__, label, where)
            self._push(x.__self__, label, where)
        elif isinstance(x, (staticmethod, classmethod)):
            self._push(x.__func__, label, where)
        elif isinstance(x, property):
            for f in (x.fget, x.fset, x.fdel):
                self._push(f, label, where)
        elif isinstance(x, functools.partial):
            self._push(x.func, label, where)
            self._push(x.args, label, where)
            self._push(x.keywords, label, where)
        elif isinstance(x, functools.cached_property):
            self._push(x.func, label, where)
        elif isinstance(x, ModuleType):
            self._module(x, label)
        elif isinstance(x, Generator):
            return           # draws from it are steps of the program
        elif isinstance(x, type):
            self._class(x, label)
        elif isinstance(x, Module):
            self._nn_module(x, label)
        elif isinstance(x, Compiled):
            self._push(x.fn, label, where)
        elif isinstance(x, Optimizer):
            self._optimizer(x, label)
        elif isinstance(x, (tuple, frozenset)):
            self.containers.add(id(x))
            self._count(x, label)
            for y in x:
                self._push(y, label, where)
            if type(x) not in (tuple, frozenset):
                self._object(x, label, where)
        elif isinstance(x, (list, collections.deque, dict, set)):
            self._container(x, label, where)
        elif isinstance(x, np.ndarray):
            self._array(x, label, where)
        elif hasattr(type(x), "__next__"):
            raise Unwalkable(f"the function reaches an iterator or generator that lives outside of it ({label})")
        elif isinstance(x, (BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType,
                            types.GetSetDescriptorType, types.MemberDescriptorType, DType, Device, np.dtype, np.generic, np.ufunc, range, slice)):
            return
        elif hasattr(x, "__wrapped__") and not hasattr(x, "__dict__"):
            self._push(x.__wrapped__, label, where)
        elif isinstance(x, types.CellType):
            node = Cell(x, label)
            self.nodes.append(node)
            self._push(node.value, label, self.nodes)
        else:
            self._object(x, label, where)

    def _count(self, x: Any, label: str) -> None:
        self.size += len(x)
        if self.size > LIMIT:
            raise Unwalkable(f"the function reaches more Python data than a guard can watch ({label})")

    def _tensor(self, t: Tensor, label: str) -> None:
        self.tensors.append(t)
        if id(t) not in self.argument_ids:
            self.nodes.append(Memory(t, label))
        h = Hooks(t, f"a hook of {label}")
        self.hooked.append(h)
        for f in h.functions:
            self._push(f[1] if type(f) is tuple else f, h.label, self.nodes)
        if t.__dict__:
            self._attributes(t.__dict__, label, self.nodes, False)

    def _function(self, f: FunctionType, label: str) -> None:
        where = origin(f.__code__.co_filename)
        for k, cell in enumerate(f.__closure__ or ()):
            name = f.__code__.co_freevars[k]
            if id(cell) in self.memo or name == "__class__" or _is_library(where) and not _calls_back(cell):
                continue
            self.memo[id(cell)] = cell
            node = Cell(cell, f"the closure variable {name}")
            self.nodes.append(node)
            self._push(node.value, name, self.nodes)
        if hasattr(f, "__wrapped__"):
            self._push(f.__wrapped__, label, self.nodes)
        if where in ("own", "numpy", "python"):
            return
        if where == "foreign" and not any(f is r or f.__code__ is r for r, _ in self.roots):
            return           # what runs of it is found while it runs
        self.nodes.append(Attributes(f, ("__code__", "__defaults__", "__kwdefaults__"), f"{f.__qualname__}."))
        self._push(f.__defaults__, f"a default of {f.__qualname__}", self.nodes)
        self._push(f.__kwdefaults__, f"a default of {f.__qualname__}", self.nodes)
        self._code(f.__code__)
        self._globals(f.__code__, f.__globals__)
        if f.__dict__:
            self._attributes(f.__dict__, f"{f.__qualname__}.", self.nodes, False)

    def _code(self, code: CodeType) -> None:
        n = names_of(code)
        self.names |= n.attributes
        self.dynamic = self.dynamic or n.dynamic
        self.codes.update(n.codes)

    def _globals(self, code: CodeType, g: dict) -> None:
        n = names_of(code)
        items = []
        for name in n.globals:
            value = g.get(name, ABSENT)
            items.append((name, value))
            if value is not ABSENT:
                self._refuse_random(value, n, name)
                self._push(value, name, self.nodes)
        self.nodes.append(Table(g, items, "the global "))
        for name in n.imports:
            m = sys.modules.get(name)
            if m is not None:
                self._push(m, name, self.nodes)

    @staticmethod
    def _refuse_random(value: Any, n: Names, name: str) -> None:
        if value is np and "random" in n.attributes or getattr(value, "__name__", None) == "numpy.random" \
                or type(value).__module__.startswith("numpy.random") or getattr(value, "__module__", None) == "numpy.random.mtrand":
            raise Unwalkable(f"the function can draw from NumPy's random module ({name})")

    def _module(self, m: ModuleType, label: str) -> None:
        where = module_origin(m.__name__)
        if _is_library(where):
            if m is os and "environ" in self.names:
                self._push(os.environ, "os.environ", self.nodes)
            return
        d = vars(m)
        items = [(k, d[k]) for k in d if k in self.names]
        self.nodes.append(Table(d, items, f"{m.__name__}."))
        for k, v in items:
            self._push(v, f"{m.__name__}.{k}", self.nodes)

    def _class(self, cls: type, label: str) -> None:
        mine = [c for c in cls.__mro__ if not _is_library(module_origin(c.__module__))]
        used = {k for c in mine for k, v in c.__dict__.items() if k in self.names or k[:2] == "__" and isinstance(v, _SPECIAL)}
        for c in mine:
            d = c.__dict__
            # names that only a base has may come to this class later
            items = [(k, d.get(k, ABSENT)) for k in used]
            self.nodes.append(Table(d, items, f"{c.__name__}."))
            if id(c) in self.memo and c is not cls:
                continue
            self.memo[id(c)] = c
            for k, v in items:
                if v is not ABSENT:
                    self._push(v, f"{c.__name__}.{k}", self.nodes)
        if type(cls) is not type:
            self._push(type(cls), label, self.nodes)

    def _nn_module(self, m: Any, label: str) -> None:
        from ..nn.modules.module import Module
        cls = type(m)
        self._class(cls, cls.__name__)
        d = m.__dict__
        library = _is_library(module_origin(cls.__module__))
        label = f"{cls.__name__}."
        skip = ("_non_persistent_buffers_set",)
        items = [(k, v) for k, v in d.items() if k not in skip and (library or self.dynamic or k in self.names or k[0] == "_" or k == "training")]
        self.tables.append(Table(d, items, label, length=True))
        if not library:         # `m.__dict__[...] = ...` moves no epoch
            self.nodes.append(Table(d, [(k, v) for k, v in items if k[0] != "_" and not isinstance(v, (Tensor, Module))], label))
        for k, v in items:
            if isinstance(v, dict) and (k in ("_modules", "_parameters", "_buffers") or k.endswith("_hooks")):
                self.tables.append(Map(v, f"{label}{k}"))
                self.memo[id(v)] = v
                for key, y in v.items():
                    self._push(y, f"{label}{key}", self.nodes)
            else:
                self._push(v, f"{label}{k}", self.tables if library and isinstance(v, (list, tuple, set)) else self.nodes)

    def _optimizer(self, o: Any, label: str) -> None:
        from ..optim.optimizer import ElementwiseOptimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks
        cls = type(o)
        if _is_library(module_origin(cls.__module__)):
            if not isinstance(o, ElementwiseOptimizer):
                raise Unwalkable(f"a step of {cls.__name__} is not captured: it computes in Python")
        else:
            self._class(cls, cls.__name__)
        self.optimizers.append(o)
        self.nodes.append(Steps(o, f"the parameters, groups or state of {cls.__name__}"))
        for g in o.param_groups:
            for p in g["params"]:
                self._push(p, f"a parameter of {cls.__name__}", self.nodes)
            if "param_groups" in self.names or not _is_library(module_origin(cls.__module__)):
                rest = {k: v for k, v in g.items() if k != "params"}
                self.nodes.append(Table(g, list(rest.items()), f"{cls.__name__}.param_groups: "))
                self._push(list(rest.values()), label, [])
        for hooks in (_global_optimizer_pre_hooks, _global_optimizer_post_hooks, o._optimizer_step_pre_hooks, o._optimizer_step_post_hooks):
            self._container(hooks, "hooks of optimizers", self.nodes)
        known = ("defaults", "state", "param_groups")
        self._attributes({k: v for k, v in o.__dict__.items() if k not in known and not k.endswith("_hooks")}, f"{cls.__name__}.", [], False)

    def _container(self, x: Any, label: str, where: list[Node]) -> None:
        self.containers.add(id(x))
        self._count(x, label)
        if isinstance(x, dict):
            where.append(Map(x, label))
            for k, v in x.items():
                self._push(k, label, where)
                self._push(v, f"{label}[{k!r}]" if isinstance(k, PLAIN) else label, where)
        else:
            where.append(Set(x, label) if isinstance(x, set) else Row(x, label))
            for y in x:
                self._push(y, label, where)
        if type(x) not in (list, dict, set, collections.deque):
            if not _is_library(module_origin(type(x).__module__)):
                self._class(type(x), label)
            d = getattr(x, "__dict__", None)
            if d:
                self._attributes(d, label, where, True)

    def _array(self, a: np.ndarray, label: str, where: list[Node]) -> None:
        if a.nbytes > ARRAY_LIMIT or a.dtype.hasobject:
            raise Unwalkable(f"the function reads a NumPy array of {a.nbytes} bytes, which a guard does not compare ({label})")
        from ..core.storage import root_of
        self.arrays.add(id(root_of(a)))
        where.append(Contents(a, label))

    def _object(self, x: Any, label: str, where: list[Node]) -> None:
        cls = type(x)
        home = cls.__module__
        if home.startswith("numpy.random"):
            raise Unwalkable(f"the function can draw from NumPy's random module ({label})")
        library = _is_library(module_origin(home))
        if not library:
            self._class(cls, cls.__name__)
        elif home.partition(".")[0] in _LEAF_MODULES or home in ("builtins", "_thread", "typing", "types", "weakref", "abc") \
                and cls.__name__ not in ("SimpleNamespace", "_local"):
            return
        label = f"{label}." if library else f"{cls.__name__}."
        d = getattr(x, "__dict__", None)
        if isinstance(d, dict):
            self._attributes(d, label, where, library)
        slots: list[str] = []
        for c in cls.__mro__:
            s = c.__dict__.get("__slots__", ())
            slots += [n for n in ((s,) if isinstance(s, str) else s) if n not in ("__dict__", "__weakref__")
                      and (library or self.dynamic or n in self.names)]
        slots = [f"_{cls.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n for n in slots]
        if slots:
            node = Attributes(x, slots, label)
            where.append(node)
            for n, v in node.items:
                if v is not ABSENT:
                    self._push(v, f"{label}{n}", where)

    def _attributes(self, d: dict, label: str, where: list[Node], library: bool) -> None:
        everything = library or self.dynamic
        items = [(k, v) for k, v in d.items() if everything or k in self.names]
        where.append(Table(d, items, label, length=True))
        for k, v in items:
            self._push(v, f"{label}{k}", where)

    def _global_hooks(self) -> None:
        """Hooks of all modules: user functions in the library's tables."""
        from ..nn.modules import _call
        for name in ("global_forward_pre_hooks", "global_forward_hooks", "global_backward_hooks", "global_backward_pre_hooks"):
            self.tables.append(Map(getattr(_call, name), "hooks of all modules"))

    def release(self) -> None:
        """Let go of the call's own arguments; what the nodes compare by identity they hold."""
        self.memo.clear()
        self.arguments, self.passing, self.stack, self.tensors = ((), {}), [], [], []
        self.roots = self.roots[:1]

    # --- afterwards -------------------------------------------------------------------------------------------------------
    def changed(self) -> str | None:
        """What is not as it was when the walk was made."""
        for n in chain(self.nodes, self.tables, self.passing, self.hooked):
            if not (n.after() if isinstance(n, Memory) else n.same()):
                return n.what()
        return None
