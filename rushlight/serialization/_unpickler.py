"""Reading pickles: an interpreter that builds data and runs nothing else, and Python's own unpickler for trusted files.

The restricted interpreter (`weights_only=True`) knows the opcodes that data needs. It calls only functions of a
fixed table and what the user has allowed; it appends only to lists, sets items only of dicts and their kin, sets
state only of tensors, Parameters, OrderedDicts and allowed types. Memory is bounded by the size of the pickle:
lengths are checked against it, the table's functions that could allocate by a number do not take one, and keys are
hashed only if they are small (a tuple can be exponentially larger than the pickle that makes it).
"""

from __future__ import annotations

import collections
import pickle
import struct
from collections.abc import Callable
from functools import cache
from pickle import UnpicklingError
from typing import Any

from ..core.device import device
from ..core.tensor import Size, Tensor
from . import _rebuild
from ._names import _fixed, of_file, to_file
from ._rebuild import brief

__all__ = ["Reader", "RestrictedUnpickler", "TrustedUnpickler", "global_name", "scan_globals", "user_globals"]

_BLOCKED = ("sys", "os", "posix", "nt")
_MAX_KEY_NODES = 256
_MAX_KEY_DEPTH = 32

#: What the user has allowed: full name in files -> object.
user_globals: dict[str, Any] = {}


def global_name(obj: Any) -> str:
    """The name under which files hold `obj`: "torch.nn.modules.linear.Linear"."""
    where = to_file(obj)
    if where is not None:
        return ".".join(where)
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    module = getattr(obj, "__module__", None)
    if not name or not module:
        raise TypeError(f"expected a class or a function, or a pair of it and its full name, got {obj!r}")
    return f"{module}.{name}"


# ---------------------------------------------------------------- what may be called

def _size(values: Any = ()) -> Size:
    return Size(_rebuild._ints(values, "size"))


def _device(*args: Any) -> device:
    return device(*args)


def _complex(real: Any, imag: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise TypeError(f"complex takes numbers here, got {type(real).__name__} and {type(imag).__name__}")
    return complex(real, imag)


def _bytearray(data: Any = b"", encoding: Any = "latin-1") -> bytearray:
    # With an int this would allocate that many bytes.
    if type(data) in (bytes, bytearray):
        return bytearray(data)
    return bytearray(_encode(data, encoding))


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        raise TypeError(
            f"bytes are made of a text in latin1 or utf-8 here, got {type(text).__name__} in {brief(encoding)}"
        )
    return text.encode(encoding)


def _items(items: Any) -> list:
    if type(items) not in (list, tuple):
        raise TypeError(f"expected a list of items, got {type(items).__name__}")
    return list(items)


def _set(items: Any = ()) -> set:
    items = _items(items)
    for item in items:
        check_key(item)
    return set(items)


def _counter(counts: Any = None) -> collections.Counter:
    if counts is not None and type(counts) is not dict:
        raise TypeError(f"a Counter is made of a dict here, got {type(counts).__name__}")
    return collections.Counter(counts)


def _ordered_dict(items: Any = ()) -> collections.OrderedDict:
    if type(items) is dict:
        return collections.OrderedDict(items)
    pairs = [_items(pair) for pair in _items(items)]
    for pair in pairs:
        if len(pair) != 2:
            raise TypeError(f"an OrderedDict is made of pairs, got {len(pair)} items")
        check_key(pair[0])
    return collections.OrderedDict(pairs)


def _from_type(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    if not _may_call(func):
        raise UnpicklingError(f"Trying to call reduce for unrecognized function {brief(func)}")
    if type(args) is not tuple:
        raise TypeError(f"arguments must be a tuple, got {type(args).__name__}")
    return _rebuild._rebuild_from_type_v2(func, new_type, args, state)


@cache
def _allowed() -> dict[str, Any]:
    """The fixed table: full name in files -> what stands for it while reading."""
    table: dict[str, Any] = {".".join(name): value for name, value in _fixed().items()}
    table.pop("torch._C.Generator", None)
    table.update({
        "collections.OrderedDict": _ordered_dict, "collections.Counter": _counter, "builtins.set": _set,
        "builtins.complex": _complex, "builtins.bytearray": _bytearray, "_codecs.encode": _encode,
        "torch.Size": _size, "torch.device": _device, "torch._tensor._rebuild_from_type_v2": _from_type,
        "torch.tensor._rebuild_from_type_v2": _from_type,
    })
    return table


@cache
def _callables() -> frozenset[int]:
    from types import FunctionType
    return frozenset(id(f) for f in _allowed().values() if isinstance(f, FunctionType))


def _may_call(func: Any) -> bool:
    return id(func) in _callables() or any(func is f for f in user_globals.values())


def check_key(key: Any) -> None:
    """Raises UnpicklingError for a key whose hash would cost more than its pickle, or run foreign code."""
    todo, nodes = [(key, 0)], 0
    while todo:
        item, depth = todo.pop()
        nodes += 1
        if nodes > _MAX_KEY_NODES or depth > _MAX_KEY_DEPTH:
            raise UnpicklingError("a dict key or set element is too large or nested too deeply")
        if isinstance(item, tuple):
            if len(item) + len(todo) > _MAX_KEY_NODES:
                raise UnpicklingError("a dict key or set element is too large or nested too deeply")
            todo += [(i, depth + 1) for i in item]


def resolve(module: str, name: str, protocol: int) -> Any:
    """The object that a pickle means by a global. UnpicklingError for what is not allowed."""
    if protocol <= 2:
        import _compat_pickle
        module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
        module = _compat_pickle.IMPORT_MAPPING.get(module, module)
    full = f"{module}.{name}"
    if module.split(".", 1)[0] in _BLOCKED:
        raise UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
    if full in user_globals:
        return user_globals[full]
    found = _allowed().get(full)
    if found is None:
        shown = name if module == "builtins" else full
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {shown} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{shown}])` or the `torch.serialization.safe_globals([{shown}])` "
            "context manager to allowlist this global if you trust this class/function.")
    return found


# ---------------------------------------------------------------- the interpreter

class Reader:
    """Reads bytes from memory, forwards only, never beyond the end."""

    def __init__(self, data: Any, position: int = 0) -> None:
        self.data: Any = data if type(data) is bytes else memoryview(data).cast("B")
        self.position, self.end = position, len(self.data)

    @property
    def left(self) -> int:
        return self.end - self.position

    def read(self, n: int = -1) -> bytes:
        """As a file's: at most `n` bytes."""
        end = self.end if n is None or n < 0 else min(self.position + n, self.end)
        part = bytes(self.data[self.position:end])
        self.position = end
        return part

    def readinto(self, target: Any) -> int:
        """As a file's."""
        part = self.read(len(target))
        target[:len(part)] = part
        return len(part)

    def readline(self) -> bytes:
        """As a file's."""
        start = self.position
        size = 256
        while True:  # lines are short: look at a little at a time
            part = bytes(self.data[start:start + size])
            end = part.find(b"\n")
            if end >= 0:
                self.position = start + end + 1
                return part[:end + 1]
            if len(part) < size:
                self.position = self.end
                return part
            size *= 4

    def exactly(self, n: int) -> bytes:
        """`n` bytes; UnpicklingError if fewer are left."""
        start = self.position
        stop = start + n
        if stop > self.end:
            raise UnpicklingError(f"pickle data was truncated: {n} bytes expected at {start}, {self.left} are left")
        self.position = stop
        return bytes(self.data[start:stop])

    def line(self) -> str:
        """A line without its end; UnpicklingError if the data ends before."""
        text = self.readline()
        if not text.endswith(b"\n"):
            raise UnpicklingError("pickle data was truncated: a line does not end")
        return text[:-1].decode("utf-8")


class _Mark:
    def __repr__(self) -> str:
        return "MARK"


_MARK = _Mark()
_BUILDABLE_DICTS = (dict, collections.OrderedDict, collections.Counter)
# What a damaged pickle makes the interpreter trip over; reported as UnpicklingError.
_FAULTS = (
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    struct.error,
    EOFError,
    MemoryError,
)


class RestrictedUnpickler:
    """Interprets one pickle from `reader`. `persistent_load` makes a storage of a persistent id."""

    def __init__(self, reader: Reader, persistent_load: Callable[[tuple], Any], encoding: str = "utf-8") -> None:
        self.reader, self.persistent_load, self.encoding = reader, persistent_load, encoding
        self.memo: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.protocol = 0
        self._called_back: list[BaseException] = []

    def load(self) -> Any:
        """The object. UnpicklingError for what is not allowed, not understood or damaged."""
        if not self.reader.left:
            raise EOFError("Ran out of input")
        reader, handlers = self.reader, _HANDLERS
        data, end = reader.data, reader.end
        try:
            while True:
                position = reader.position
                if position >= end:
                    raise UnpicklingError(f"pickle data was truncated: it ends at {end} without a STOP")
                reader.position = position + 1
                op = data[position]
                handler = handlers.get(op)
                if handler is None:
                    if op == 0x2E:  # STOP
                        if len(self.stack) != 1:
                            raise UnpicklingError(f"pickle data was damaged: {len(self.stack)} objects left at its end")
                        return self._checked(self.stack[0])
                    raise UnpicklingError(f"Unsupported operand {op}")
                handler(self)
        except _FAULTS as error:
            if error in self._called_back:
                raise
            raise UnpicklingError(f"pickle data was damaged at byte {self.reader.position}: "
                                  f"{type(error).__name__}: {error}") from error

    def _checked(self, obj: Any) -> Any:
        if obj is _MARK:
            raise UnpicklingError("pickle data was damaged: a mark where an object was expected")
        return obj

    def pop(self) -> Any:
        return self._checked(self.stack.pop())

    def top(self) -> Any:
        return self._checked(self.stack[-1])

    def pop_mark(self) -> list:
        stack = self.stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = stack[i + 1:]
                del stack[i:]
                return items
        raise UnpicklingError("pickle data was damaged: there is no mark on the stack")

    # --- globals and calls

    def _global(self) -> None:
        module, name = self.reader.line(), self.reader.line()
        self.stack.append(resolve(module, name, self.protocol))

    def _stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("STACK_GLOBAL requires str")
        self.stack.append(resolve(module, name, self.protocol))

    def _newobj(self) -> None:
        args, cls = self.pop(), self.pop()
        if type(args) is not tuple:
            raise UnpicklingError(f"arguments must be a tuple, got {type(args).__name__}")
        if cls is _rebuild._parameter_type():
            if args:
                args = (args[0], bool(args[1]) if len(args) > 1 else True)
                self.stack.append(_rebuild._rebuild_parameter(*args, None))
            else:
                self.stack.append(cls())
        elif cls is _ordered_dict or cls is _counter:
            self.stack.append(cls(*args))
        elif any(cls is c for c in user_globals.values()) and isinstance(cls, type):
            self.stack.append(cls.__new__(cls, *args))
        else:
            raise UnpicklingError("Can only create new object for nn.Parameter or classes allowlisted via "
                                  f"`add_safe_globals` but got {brief(cls)}")

    def _reduce(self) -> None:
        args, func = self.pop(), self.top()
        if type(args) is not tuple:
            raise UnpicklingError(f"arguments must be a tuple, got {type(args).__name__}")
        if func is _rebuild._parameter_type():
            func = lambda data=None, requires_grad=True: _rebuild._rebuild_parameter(data, requires_grad, None)
        elif not _may_call(func):
            raise UnpicklingError(f"Trying to call reduce for unrecognized function {brief(func)}")
        self.stack[-1] = func(*args)

    def _build(self) -> None:
        state, obj = self.pop(), self.top()
        if isinstance(obj, Tensor):
            if isinstance(state, tuple) and type(obj) in (Tensor, _rebuild._parameter_type()):
                _rebuild.set_tensor_state(obj, state)
            elif type(obj) in (Tensor, _rebuild._parameter_type()):
                _rebuild.set_state(obj, state)
            else:
                self._build_allowed(obj, state)
        elif type(obj) is collections.OrderedDict:
            if type(state) is not dict or not all(type(k) is str for k in state):
                raise UnpicklingError(
                    f"the state of an OrderedDict must be a dict with names, got {type(state).__name__}"
                )
            obj.__dict__.update(state)
        else:
            self._build_allowed(obj, state)

    def _build_allowed(self, obj: Any, state: Any) -> None:
        if not any(type(obj) is c for c in user_globals.values()):
            raise UnpicklingError("Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                                  f"`add_safe_globals`, but got {type(obj)}")
        if hasattr(obj, "__setstate__"):
            obj.__setstate__(state)
            return
        slots = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        if state:
            obj.__dict__.update(state)
        for name, value in (slots or {}).items():
            setattr(obj, name, value)

    def _persistent(self) -> None:
        pid = self.pop()
        if type(pid) is not tuple or not pid:
            raise UnpicklingError(f"persistent_load id must be a tuple, but got {type(pid)}")
        if pid[0] not in ("storage", b"storage"):
            raise UnpicklingError(f"Only persistent_load of storage is allowed, but got {brief(pid[0])}")
        try:
            self.stack.append(self.persistent_load(pid))
        except _FAULTS as error:
            self._called_back.append(error)
            raise

    # --- containers

    def _append(self) -> None:
        item, target = self.pop(), self.top()
        if type(target) is not list:
            raise UnpicklingError(f"Can only append to lists, but got {type(target)}")
        target.append(item)

    def _appends(self) -> None:
        items, target = self.pop_mark(), self.top()
        if type(target) is not list:
            raise UnpicklingError(f"Can only extend lists, but got {type(target)}")
        target.extend(items)

    def _set_items(self, items: list, opcode: str) -> None:
        target = self.top()
        if type(target) not in _BUILDABLE_DICTS:
            raise UnpicklingError(f"Can only {opcode} for dict, collections.OrderedDict, collections.Counter, "
                                  f"but got {type(target)}")
        if len(items) % 2:
            raise UnpicklingError("odd number of items for SETITEMS")
        for i in range(0, len(items), 2):
            key = items[i]
            if key.__class__ is not str:
                check_key(key)
            target[key] = items[i + 1]

    def _setitem(self) -> None:
        value, key = self.pop(), self.pop()
        self._set_items([key, value], "SETITEM")

    def _additems(self) -> None:
        items, target = self.pop_mark(), self.top()
        if type(target) is not set:
            raise UnpicklingError(f"Can only add items to sets, but got {type(target)}")
        for item in items:
            check_key(item)
            target.add(item)

    def _tuple(self, n: int) -> None:
        items = tuple([self.pop() for _ in range(n)][::-1])
        self.stack.append(items)

    # --- memo and literals

    def _put(self, index: int) -> None:
        self.memo[index] = self.top()

    def _unsigned(self, n: int) -> int:
        return int.from_bytes(self.reader.exactly(n), "little")

    def _text(self, width: int) -> None:
        self.stack.append(str(self.reader.exactly(self._unsigned(width)), "utf-8", "surrogatepass"))

    def _old_string(self, width: int) -> None:
        raw = self.reader.exactly(self._unsigned(width))
        self.stack.append(raw if self.encoding == "bytes" else raw.decode(self.encoding))

    def _bytes(self, width: int) -> None:
        self.stack.append(self.reader.exactly(self._unsigned(width)))

    def _signed(self, n: int) -> None:
        self.stack.append(int.from_bytes(self.reader.exactly(n), "little", signed=True))

    def _proto(self) -> None:
        self.protocol = self.reader.exactly(1)[0]
        if self.protocol > 5:
            raise UnpicklingError(f"Unsupported protocol {self.protocol}: expected at most 5")


Handler = Callable[[Any], Any]


def _handlers() -> dict[int, Handler]:
    U: Any = RestrictedUnpickler
    p = pickle

    def push(value: Any) -> Handler:
        return lambda u: u.stack.append(value)

    def width(method: Callable, n: int) -> Handler:
        return lambda u: method(u, n)

    table: dict[bytes, Handler] = {
        p.PROTO: U._proto,
        p.FRAME: lambda u: u.reader.exactly(8) and None,
        p.GLOBAL: U._global,
        p.STACK_GLOBAL: U._stack_global,
        p.NEWOBJ: U._newobj,
        p.REDUCE: U._reduce,
        p.BUILD: U._build,
        p.BINPERSID: U._persistent,
        p.APPEND: U._append,
        p.APPENDS: U._appends,
        p.SETITEM: U._setitem,
        p.ADDITEMS: U._additems,
        p.SETITEMS: lambda u: u._set_items(u.pop_mark(), "SETITEMS"),
        p.MARK: push(_MARK),
        p.POP: lambda u: u.stack.pop() and None,
        p.POP_MARK: lambda u: u.pop_mark() and None,
        p.DUP: lambda u: u.stack.append(u.top()),
        p.EMPTY_TUPLE: push(()),
        p.NONE: push(None),
        p.NEWFALSE: push(False),
        p.NEWTRUE: push(True),
        p.EMPTY_LIST: lambda u: u.stack.append([]),
        p.EMPTY_DICT: lambda u: u.stack.append({}),
        p.EMPTY_SET: lambda u: u.stack.append(set()),
        p.TUPLE: lambda u: u.stack.append(tuple(u.pop_mark())),
        p.TUPLE1: width(U._tuple, 1),
        p.TUPLE2: width(U._tuple, 2),
        p.TUPLE3: width(U._tuple, 3),
        p.BININT: width(U._signed, 4),
        p.BININT1: lambda u: u.stack.append(u.reader.exactly(1)[0]),
        p.BININT2: lambda u: u.stack.append(u._unsigned(2)),
        p.LONG1: lambda u: u._signed(u._unsigned(1)),
        p.BINFLOAT: lambda u: u.stack.append(struct.unpack(">d", u.reader.exactly(8))[0]),
        p.BINUNICODE: width(U._text, 4),
        p.SHORT_BINUNICODE: width(U._text, 1),
        p.BINUNICODE8: width(U._text, 8),
        p.BINBYTES: width(U._bytes, 4),
        p.SHORT_BINBYTES: width(U._bytes, 1),
        p.BINBYTES8: width(U._bytes, 8),
        p.BYTEARRAY8: lambda u: u.stack.append(bytearray(u.reader.exactly(u._unsigned(8)))),
        p.BINSTRING: width(U._old_string, 4),
        p.SHORT_BINSTRING: width(U._old_string, 1),
        p.BINGET: lambda u: u.stack.append(u.memo[u.reader.exactly(1)[0]]),
        p.LONG_BINGET: lambda u: u.stack.append(u.memo[u._unsigned(4)]),
        p.BINPUT: lambda u: u._put(u.reader.exactly(1)[0]),
        p.LONG_BINPUT: lambda u: u._put(u._unsigned(4)),
        p.MEMOIZE: lambda u: u._put(len(u.memo)),
    }
    return {op[0]: handler for op, handler in table.items()}


_HANDLERS = _handlers()


# ---------------------------------------------------------------- trusted files

class TrustedUnpickler(pickle.Unpickler):
    """Python's unpickler, with PyTorch's names read as ours."""

    def __init__(self, file: Any, persistent_load: Callable[[tuple], Any], **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self._load_storage = persistent_load

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" or module.startswith("torch."):
            return of_file(module, name)
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return self._load_storage(pid)


def other_unpickler(module: Any, file: Any, persistent_load: Callable[[tuple], Any], **kwargs: Any) -> Any:
    """An unpickler of the user's pickle module, with storages and PyTorch's names as above."""

    class OtherUnpickler(module.Unpickler):  # type: ignore[misc]
        def find_class(self, mod: str, name: str) -> Any:
            if mod == "torch" or mod.startswith("torch."):
                return of_file(mod, name)
            return super().find_class(mod, name)

        def persistent_load(self, pid: Any) -> Any:
            return persistent_load(pid)

    return OtherUnpickler(file, **kwargs)


def scan_globals(data: bytes) -> set[str]:
    """The full names of all globals that a pickle mentions; nothing is built. UnpicklingError for damaged data."""
    import pickletools
    names: set[str] = set()
    strings: list[str] = []
    protocol = 0
    try:
        for op, arg, _ in pickletools.genops(data):
            argument: Any = arg
            if op.name == "PROTO":
                protocol = argument
            elif op.name in ("GLOBAL", "INST"):
                module, _, name = argument.partition(" ")
                if protocol <= 2:
                    import _compat_pickle
                    module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
                    module = _compat_pickle.IMPORT_MAPPING.get(module, module)
                names.add(f"{module}.{name}")
            elif op.name == "STACK_GLOBAL" and len(strings) >= 2:
                names.add(f"{strings[-2]}.{strings[-1]}")
            if isinstance(arg, str) and "UNICODE" in op.name:
                strings.append(arg)
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise UnpicklingError(f"pickle data was damaged: {error}") from None
    return names


def is_allowed(full: str) -> bool:
    """Whether `weights_only=True` accepts the global called `full`."""
    return full in _allowed() or full in user_globals
