"""Kernels as Python built-in functions.

A ctypes call costs about half a microsecond and reading an array's address another; a small operator cannot afford
that. So an `Entry` is machine code with the signature of a built-in (METH_FASTCALL) that takes the ndarrays
themselves: it checks type, dtype, layout and shapes, fills the words of the kernel's ABI (llvm.py) on its stack and
calls the kernel, or the thread pool when the work is large. It returns True when it has done the work and False when
the arrays are not what it is made for (other dtype, not contiguous, shapes that differ): the caller then takes the
general path. It never raises for arrays.

This rests on two binary interfaces: CPython's object header and `PyCFunction_NewEx`, and the fields of ndarray that
NumPy's own headers inline into every extension. `usable()` checks both against a live array; where they do not hold
(another interpreter, a build without the interpreter lock), everything goes the general way.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight.compiler import jit, scalar
from rushlight.compiler.llvm import Kernel, Module

__all__ = ["ROLES", "builtin", "emit_entry", "emit_list_entry", "grain_of", "prepare", "usable"]

ROLES = ("full", "row", "column", "one")
"""How a buffer lies to the kernel's (rows, n): an element each, a value a row, a value a column, a single value."""

_DATA, _ND, _DIMS, _DESCR, _FLAGS, _TYPE_NUM, _BYTE_ORDER = 16, 24, 32, 56, 64, 28, 26
_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_METH_FASTCALL = 0x80

_usable: bool | None = None
_kept: list[Any] = []              # what imported symbols point to


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


def usable() -> bool:
    """Whether the interpreter and NumPy have the layouts that entries read."""
    global _usable
    if _usable is None:
        _usable = _check()
    return _usable


def _check() -> bool:
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or object.__basicsize__ != 16 or hasattr(sys, "getobjects"):
        return False
    a = np.zeros((2, 3), np.float32)

    def at(offset: int, kind: Any, base: int = id(a)) -> int:
        return kind.from_address(base + offset).value

    p, i = ctypes.c_void_p, ctypes.c_int
    descr = at(_DESCR, p)
    return (at(8, p) == id(np.ndarray) and at(_DATA, p) == a.__array_interface__["data"][0] and at(_ND, i) == 2
            and at(0, ctypes.c_int64, at(_DIMS, p)) == 2 and at(8, ctypes.c_int64, at(_DIMS, p)) == 3
            and descr == id(a.dtype) and at(_TYPE_NUM, i, descr) == a.dtype.num
            and at(_BYTE_ORDER, ctypes.c_char, id(np.dtype(">f4"))) == b">"
            and at(_FLAGS, i) & 0x501 == 0x501 and not at(_FLAGS, i, id(a.T)) & 1)


def grain_of(cost: int) -> int:
    """Elements of one piece of parallel work: some 10 microseconds of it."""
    return min(max(400_000 // (cost + 4), 4096), 32768) // 1024 * 1024


def _symbols() -> None:
    """Bind what entries call."""
    api = ctypes.pythonapi
    for name in ("PyType_IsSubtype", "PyFloat_AsDouble", "PyLong_AsLongLong", "PyErr_Occurred", "Py_IncRef",
                 "PyEval_SaveThread",
                 "PyEval_RestoreThread", "PyMem_RawMalloc", "PyMem_RawFree"):
        jit.import_symbol(name, ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0)
    try:
        import ml_dtypes
        number = ctypes.c_int(np.dtype(ml_dtypes.bfloat16).num)
    except ImportError:
        number = ctypes.c_int(-1)
    _kept.append(number)
    jit.import_symbol("rushlight_bfloat16", ctypes.addressof(number))
    jit.import_symbol("rushlight_list", id(list))
    jit.import_symbol("rushlight_ndarray", id(np.ndarray))
    jit.import_symbol("rushlight_true", id(True))
    jit.import_symbol("rushlight_false", id(False))


_SERIAL = """
define void @rushlight_serial(ptr %f, ptr %ctx, i64 %n, i64 %grain) {
  call void %f(ptr %ctx, i64 0, i64 %n)
  ret void
}
"""


def _bind_pool() -> None:
    """`rushlight_parallel` is the thread pool's entry, or a plain call where there is none."""
    try:
        from rushlight.backends.cpu import threads
        address = threads.entry_address()
    except (ImportError, RuntimeError):
        library = jit.compile_ir(_SERIAL)
        _kept.append(library)
        address = library.address("rushlight_serial")
    jit.import_symbol("rushlight_parallel", address)


_bound = False


def prepare() -> None:
    """Bind the external symbols of entries; called before such a module is compiled or loaded."""
    global _bound
    if not _bound:
        _symbols()
        _bind_pool()
        _bound = True


_DECLARATIONS = {
    "PyType_IsSubtype": "declare i32 @PyType_IsSubtype(ptr, ptr)",
    "PyFloat_AsDouble": "declare double @PyFloat_AsDouble(ptr)",
    "PyLong_AsLongLong": "declare i64 @PyLong_AsLongLong(ptr)",
    "PyErr_Occurred": "declare ptr @PyErr_Occurred()",
    "Py_IncRef": "declare void @Py_IncRef(ptr)",
    "PyEval_SaveThread": "declare ptr @PyEval_SaveThread()",
    "PyEval_RestoreThread": "declare void @PyEval_RestoreThread(ptr)",
    "rushlight_parallel": "declare void @rushlight_parallel(ptr, ptr, i64, i64)",
    "rushlight_ndarray": "@rushlight_ndarray = external global i8",
    "rushlight_list": "@rushlight_list = external global i8",
    "rushlight_true": "@rushlight_true = external global i8",
    "rushlight_false": "@rushlight_false = external global i8",
}

_HELPERS = {
    # 1 when the object is an ndarray with that type number and all of those flags
    "entry.fits": f"""
define internal i1 @entry.fits(ptr %a, i32 %num, i32 %flags) noinline {{
  %tp = getelementptr i8, ptr %a, i64 8
  %t = load ptr, ptr %tp
  %exact = icmp eq ptr %t, @rushlight_ndarray
  br i1 %exact, label %array, label %other
other:
  %sub = call i32 @PyType_IsSubtype(ptr %t, ptr @rushlight_ndarray)
  %is = icmp ne i32 %sub, 0
  br i1 %is, label %array, label %no
array:
  %dp = getelementptr i8, ptr %a, i64 {_DESCR}
  %d = load ptr, ptr %dp
  %np = getelementptr i8, ptr %d, i64 {_TYPE_NUM}
  %n = load i32, ptr %np
  %fp = getelementptr i8, ptr %a, i64 {_FLAGS}
  %f = load i32, ptr %fp
  %g = and i32 %f, %flags
  %bp = getelementptr i8, ptr %d, i64 {_BYTE_ORDER}
  %b = load i8, ptr %bp
  %c1 = icmp eq i32 %n, %num
  %c2 = icmp eq i32 %g, %flags
  %c3 = icmp ne i8 %b, {ord(">")}
  %c4 = and i1 %c1, %c2
  %c = and i1 %c3, %c4
  ret i1 %c
no:
  ret i1 false
}}""",
    "entry.size": f"""
define internal i64 @entry.size(ptr %a) noinline {{
entry:
  %np = getelementptr i8, ptr %a, i64 {_ND}
  %n = load i32, ptr %np
  %dp = getelementptr i8, ptr %a, i64 {_DIMS}
  %d = load ptr, ptr %dp
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %j, %body ]
  %s = phi i64 [ 1, %entry ], [ %t, %body ]
  %go = icmp slt i32 %i, %n
  br i1 %go, label %body, label %done
body:
  %p = getelementptr i64, ptr %d, i32 %i
  %v = load i64, ptr %p
  %t = mul i64 %s, %v
  %j = add i32 %i, 1
  br label %head
done:
  ret i64 %s
}}""",
    "entry.last": f"""
define internal i64 @entry.last(ptr %a) noinline {{
  %np = getelementptr i8, ptr %a, i64 {_ND}
  %n = load i32, ptr %np
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %yes, label %no
yes:
  %dp = getelementptr i8, ptr %a, i64 {_DIMS}
  %d = load ptr, ptr %dp
  %m = sub i32 %n, 1
  %p = getelementptr i64, ptr %d, i32 %m
  %v = load i64, ptr %p
  ret i64 %v
no:
  ret i64 1
}}""",
    "entry.same": f"""
define internal i1 @entry.same(ptr %a, ptr %b) noinline {{
entry:
  %np = getelementptr i8, ptr %a, i64 {_ND}
  %n = load i32, ptr %np
  %mp = getelementptr i8, ptr %b, i64 {_ND}
  %m = load i32, ptr %mp
  %dp = getelementptr i8, ptr %a, i64 {_DIMS}
  %d = load ptr, ptr %dp
  %ep = getelementptr i8, ptr %b, i64 {_DIMS}
  %e = load ptr, ptr %ep
  %eq = icmp eq i32 %n, %m
  br i1 %eq, label %head, label %no
head:
  %i = phi i32 [ 0, %entry ], [ %j, %body ]
  %go = icmp slt i32 %i, %n
  br i1 %go, label %body, label %yes
body:
  %p = getelementptr i64, ptr %d, i32 %i
  %q = getelementptr i64, ptr %e, i32 %i
  %v = load i64, ptr %p
  %w = load i64, ptr %q
  %j = add i32 %i, 1
  %c = icmp eq i64 %v, %w
  br i1 %c, label %head, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}""",
}


def _type_number(m: Module, dtype: str, say: Callable[[str], None], name: str) -> str:
    """NumPy's number of a dtype; bfloat16's is given out when ml_dtypes is imported, so it is read from a variable."""
    if dtype != "bfloat16":
        return str(np.dtype(dtype).num)
    m.declarations.setdefault("rushlight_bfloat16", "@rushlight_bfloat16 = external global i32")
    say(f"  {name} = load i32, ptr @rushlight_bfloat16")
    return name


def _read_number(say: Callable[[str], None], k: int, dtype: str, obj: str) -> tuple[str, str]:
    """Code that turns a Python number into a word: (type, value); block %failed is where errors go."""
    floating = scalar.register_dtype(dtype).startswith("float")
    t, call = ("double", "PyFloat_AsDouble") if floating else ("i64", "PyLong_AsLongLong")
    say(f"  %v{k} = call {t} @{call}(ptr {obj})")
    test = "fcmp oeq double %v{0}, -1.0" if floating else "icmp eq i64 %v{0}, -1"
    say(f"  %vt{k} = {test.format(k)}\n  br i1 %vt{k}, label %vc{k}, label %vo{k}\nvc{k}:")
    say(f"  %e{k} = call ptr @PyErr_Occurred()\n  %en{k} = icmp eq ptr %e{k}, null")
    say(f"  br i1 %en{k}, label %vo{k}, label %failed\nvo{k}:")
    return t, f"%v{k}"


def emit_entry(m: Module, kernel: Kernel, written: Sequence[str], roles: Sequence[str] | None = None) -> str:
    """Add the built-in for `kernel` (rank 1 for pointwise, 2 for row and column kernels) to the module; its symbol.

    `written` names the buffers that need to be writable; `roles` has one of ROLES for each buffer (default all "full").
    The built-in takes the arrays in the order of the kernel's buffers, then the scalars.
    """
    roles = tuple(roles or ["full"] * len(kernel.buffers))
    if roles[0] != "full" and kernel.kind != "elements":
        raise ValueError("the first buffer of a row or column entry must be a full one: it gives rows and n")
    for name, d in _DECLARATIONS.items():
        m.declarations.setdefault(name, d)
    for name, h in _HELPERS.items():
        m.helpers.setdefault(name, h)
    nb, rank = len(kernel.buffers), kernel.rank
    total = nb + len(kernel.scalars)
    out: list[str] = []
    say = out.append
    say(f"  %words = alloca [{kernel.word_count} x i64], align 16")
    say(f"  %count = icmp eq i64 %nargs, {total}")
    say("  br i1 %count, label %arrays, label %decline\narrays:")
    for k in range(total):
        say(f"  %ap{k} = getelementptr ptr, ptr %args, i64 {k}\n  %a{k} = load ptr, ptr %ap{k}")
    for k, b in enumerate(kernel.buffers):
        flags = _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if b.name in written else 0)
        num = _type_number(m, b.dtype, say, f"%bf{k}")
        say(f"  %f{k} = call i1 @entry.fits(ptr %a{k}, i32 {num}, i32 {flags})")
        say(f"  br i1 %f{k}, label %n{k}, label %decline\nn{k}:")
    say("  %size = call i64 @entry.size(ptr %a0)")
    if kernel.kind == "elements":
        say("  %n = add i64 %size, 0\n  %rows = add i64 1, 0\n  %any = icmp sgt i64 %size, 0")
    else:
        say("  %n = call i64 @entry.last(ptr %a0)\n  %any = icmp sgt i64 %size, 0")
        say("  %safe = select i1 %any, i64 %n, i64 1\n  %rows = udiv i64 %size, %safe")
    say("  br i1 %any, label %shapes, label %decline\nshapes:")
    for k in range(1, nb):
        role = roles[k]
        if role == "full" and kernel.kind == "elements":
            say(f"  %s{k} = call i1 @entry.same(ptr %a0, ptr %a{k})")
        elif role == "full":
            say(f"  %z{k} = call i64 @entry.size(ptr %a{k})\n  %l{k} = call i64 @entry.last(ptr %a{k})")
            say(f"  %x{k} = icmp eq i64 %z{k}, %size\n  %y{k} = icmp eq i64 %l{k}, %n\n  %s{k} = and i1 %x{k}, %y{k}")
        else:
            want = {"row": "%rows", "column": "%n", "one": "1"}[role]
            say(f"  %z{k} = call i64 @entry.size(ptr %a{k})\n  %s{k} = icmp eq i64 %z{k}, {want}")
        say(f"  br i1 %s{k}, label %m{k}, label %decline\nm{k}:")
    def put(index: int, type: str, value: str) -> None:
        say(f"  %w{index} = getelementptr i64, ptr %words, i64 {index}\n  store {type} {value}, ptr %w{index}")

    for k in range(nb):
        say(f"  %dp{k} = getelementptr i8, ptr %a{k}, i64 {_DATA}\n  %d{k} = load ptr, ptr %dp{k}")
        put(k, "ptr", f"%d{k}")
    if rank == 1:
        put(nb, "i64", "%n")
    else:
        put(nb, "i64", "%rows")
        put(nb + 1, "i64", "%n")
        for k in range(nb):
            put(nb + rank + k * rank, "i64", {"full": "%n", "row": "1", "column": "0", "one": "0"}[roles[k]])
    for k, (_, dtype) in enumerate(kernel.scalars):
        put(nb * (1 + rank) + rank + k, *_read_number(say, k, dtype, f"%a{nb + k}"))
    grain = grain_of(kernel.cost)
    if kernel.kind == "elements":
        say(f"  %grid = add i64 %n, 0\n  %grain = add i64 {grain}, 0")
    elif kernel.kind == "rows":
        say(f"  %grid = add i64 %rows, 0\n  %share = udiv i64 {grain}, %n\n  %zero = icmp eq i64 %share, 0")
        say("  %grain = select i1 %zero, i64 1, i64 %share")
    else:
        say(f"  %up = add i64 %n, {kernel.tile - 1}\n  %grid = udiv i64 %up, {kernel.tile}\n  %grain = add i64 1, 0")
    say(f"  %large = icmp ugt i64 %size, {2 * grain}\n  %several = icmp ugt i64 %grid, 1")
    say("  %pool = and i1 %large, %several\n  br i1 %pool, label %parallel, label %alone")
    say(f"alone:\n  call void @{kernel.symbol}(ptr %words, i64 0, i64 %grid)\n  br label %done")
    say("parallel:\n  %thread = call ptr @PyEval_SaveThread()")
    say(f"  call void @rushlight_parallel(ptr @{kernel.symbol}, ptr %words, i64 %grid, i64 %grain)")
    say("  call void @PyEval_RestoreThread(ptr %thread)\n  br label %done")
    say("done:\n  call void @Py_IncRef(ptr @rushlight_true)\n  ret ptr @rushlight_true")
    say("decline:\n  call void @Py_IncRef(ptr @rushlight_false)\n  ret ptr @rushlight_false")
    if kernel.scalars:
        say("failed:\n  ret ptr null")
    symbol = f"{kernel.symbol}.entry"
    body = "\n".join(out)
    m.functions[symbol] = f"define ptr @{symbol}(ptr %self, ptr %args, i64 %nargs) {{\nentry:\n{body}\n}}"
    return symbol


def emit_list_entry(m: Module, kernel: Kernel, written: Sequence[str]) -> str:
    """The built-in that runs a pointwise kernel of rank 1 on lists of arrays: one list for each buffer, then the
    scalars.

    All tensors are one piece of parallel work, cut into chunks of `grain_of(cost)` elements of one tensor each.
    Nothing is written unless every array fits (contiguous, of the dtype, equal sizes across the lists), else it
    returns False.
    """
    for name, d in _DECLARATIONS.items():
        m.declarations.setdefault(name, d)
    for name, h in _HELPERS.items():
        m.helpers.setdefault(name, h)
    m.declarations.setdefault("PyMem_RawMalloc", "declare ptr @PyMem_RawMalloc(i64)")
    m.declarations.setdefault("PyMem_RawFree", "declare void @PyMem_RawFree(ptr)")
    nb, total, words = len(kernel.buffers), len(kernel.buffers) + len(kernel.scalars), kernel.word_count
    record = words + 1                                   # a tensor's words, and the number of its first chunk
    grain = grain_of(kernel.cost)
    out: list[str] = []
    say = out.append
    say(f"  %count = icmp eq i64 %nargs, {total}\n  br i1 %count, label %lists, label %decline\nlists:")
    for k in range(total):
        say(f"  %ap{k} = getelementptr ptr, ptr %args, i64 {k}\n  %a{k} = load ptr, ptr %ap{k}")
    for k in range(nb):
        say(f"  %tp{k} = getelementptr i8, ptr %a{k}, i64 8\n  %t{k} = load ptr, ptr %tp{k}")
        say(f"  %is{k} = icmp eq ptr %t{k}, @rushlight_list\n  br i1 %is{k}, label %l{k}, label %decline\nl{k}:")
        say(f"  %lp{k} = getelementptr i8, ptr %a{k}, i64 16\n  %len{k} = load i64, ptr %lp{k}")
        say(f"  %ip{k} = getelementptr i8, ptr %a{k}, i64 24\n  %items{k} = load ptr, ptr %ip{k}")
        if k:
            say(f"  %eq{k} = icmp eq i64 %len{k}, %len0\n  br i1 %eq{k}, label %k{k}, label %decline\nk{k}:")
    numbers = [_read_number(say, k, dtype, f"%a{nb + k}") for k, (_, dtype) in enumerate(kernel.scalars)]
    say(f"  %bytes = mul i64 %len0, {8 * record}\n  %room = add i64 %bytes, 8")
    say("  %table = call ptr @PyMem_RawMalloc(i64 %room)")
    say("  %null = icmp eq ptr %table, null\n  br i1 %null, label %decline, label %start\nstart:\n  br label %head")
    say("head:\n  %i = phi i64 [ 0, %start ], [ %i1, %next ]\n  %chunks = phi i64 [ 0, %start ], [ %chunks1, %next ]")
    say("  %elements = phi i64 [ 0, %start ], [ %elements1, %next ]")
    say("  %go = icmp slt i64 %i, %len0\n  br i1 %go, label %body, label %work\nbody:")
    say(f"  %at = mul i64 %i, {record}\n  %rec = getelementptr i64, ptr %table, i64 %at")
    for k, b in enumerate(kernel.buffers):
        say(f"  %op{k} = getelementptr ptr, ptr %items{k}, i64 %i\n  %o{k} = load ptr, ptr %op{k}")
        flags = _C_CONTIGUOUS | _ALIGNED | (_WRITEABLE if b.name in written else 0)
        num = _type_number(m, b.dtype, say, f"%bf{k}")
        say(f"  %f{k} = call i1 @entry.fits(ptr %o{k}, i32 {num}, i32 {flags})")
        say(f"  br i1 %f{k}, label %g{k}, label %free\ng{k}:")
        say(f"  %s{k} = call i64 @entry.size(ptr %o{k})")
        if k:
            say(f"  %q{k} = icmp eq i64 %s{k}, %s0\n  br i1 %q{k}, label %h{k}, label %free\nh{k}:")
        say(f"  %dp{k} = getelementptr i8, ptr %o{k}, i64 {_DATA}\n  %d{k} = load ptr, ptr %dp{k}")
        say(f"  %r{k} = getelementptr i64, ptr %rec, i64 {k}\n  store ptr %d{k}, ptr %r{k}")
    say(f"  %rn = getelementptr i64, ptr %rec, i64 {nb}\n  store i64 %s0, ptr %rn")
    for k, (t, v) in enumerate(numbers):
        say(f"  %rs{k} = getelementptr i64, ptr %rec, i64 {2 * nb + 1 + k}\n  store {t} {v}, ptr %rs{k}")
    say(f"  %rc = getelementptr i64, ptr %rec, i64 {words}\n  store i64 %chunks, ptr %rc\n  br label %next\nnext:")
    say(f"  %up = add i64 %s0, {grain - 1}\n  %mine = udiv i64 %up, {grain}\n  %chunks1 = add i64 %chunks, %mine")
    say("  %elements1 = add i64 %elements, %s0\n  %i1 = add i64 %i, 1\n  br label %head\nwork:")
    say(f"  %last = mul i64 %len0, {record}\n  %lastp = getelementptr i64, ptr %table, i64 %last")
    say("  store i64 %len0, ptr %lastp")
    # the tasks find the table's end through a context of two words
    say("  store ptr %table, ptr %ctx\n  %ctx1 = getelementptr ptr, ptr %ctx, i64 1\n  store i64 %len0, ptr %ctx1")
    say(f"  %large = icmp ugt i64 %elements, {2 * grain}\n  br i1 %large, label %parallel, label %alone")
    say(f"alone:\n  call void @{kernel.symbol}.tasks(ptr %ctx, i64 0, i64 %chunks)\n  br label %done")
    say("parallel:\n  %thread = call ptr @PyEval_SaveThread()")
    say(f"  call void @rushlight_parallel(ptr @{kernel.symbol}.tasks, ptr %ctx, i64 %chunks, i64 1)")
    say("  call void @PyEval_RestoreThread(ptr %thread)\n  br label %done")
    say("done:\n  call void @PyMem_RawFree(ptr %table)")
    say("  call void @Py_IncRef(ptr @rushlight_true)\n  ret ptr @rushlight_true")
    say("free:\n  call void @PyMem_RawFree(ptr %table)\n  br label %decline")
    say("decline:\n  call void @Py_IncRef(ptr @rushlight_false)\n  ret ptr @rushlight_false")
    if numbers:
        say("failed:\n  ret ptr null")
    tasks = f"""define void @{kernel.symbol}.tasks(ptr %ctx, i64 %begin, i64 %end) {{
entry:
  %table = load ptr, ptr %ctx
  %np = getelementptr i64, ptr %ctx, i64 1
  %n = load i64, ptr %np
  br label %find
find:
  %lo = phi i64 [ 0, %entry ], [ %lo1, %split ]
  %hi = phi i64 [ %n, %entry ], [ %hi1, %split ]
  %gap = sub i64 %hi, %lo
  %wide = icmp sgt i64 %gap, 1
  br i1 %wide, label %split, label %found
split:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %ma = mul i64 %mid, {record}
  %mb = add i64 %ma, {words}
  %mp = getelementptr i64, ptr %table, i64 %mb
  %mv = load i64, ptr %mp
  %left = icmp sgt i64 %mv, %begin
  %lo1 = select i1 %left, i64 %lo, i64 %mid
  %hi1 = select i1 %left, i64 %mid, i64 %hi
  br label %find
found:
  br label %head
head:
  %t = phi i64 [ %lo, %found ], [ %t1, %after ]
  %c = phi i64 [ %begin, %found ], [ %c1, %after ]
  %inside = icmp slt i64 %c, %end
  %exists = icmp slt i64 %t, %n
  %go = and i1 %inside, %exists
  br i1 %go, label %body, label %done
body:
  %at = mul i64 %t, {record}
  %rec = getelementptr i64, ptr %table, i64 %at
  %fp = getelementptr i64, ptr %rec, i64 {words}
  %first = load i64, ptr %fp
  %sp = getelementptr i64, ptr %rec, i64 {nb}
  %size = load i64, ptr %sp
  %k = sub i64 %c, %first
  %from = mul i64 %k, {grain}
  %ends = sub i64 %end, %first
  %far = mul i64 %ends, {grain}
  %less = icmp slt i64 %far, %size
  %to = select i1 %less, i64 %far, i64 %size
  %some = icmp slt i64 %from, %to
  br i1 %some, label %run, label %after
run:
  call void @{kernel.symbol}(ptr %rec, i64 %from, i64 %to)
  br label %after
after:
  %up = add i64 %size, {grain - 1}
  %mine = udiv i64 %up, {grain}
  %nextfirst = add i64 %first, %mine
  %c1 = add i64 %nextfirst, 0
  %t1 = add i64 %t, 1
  br label %head
done:
  ret void
}}"""
    m.functions[f"{kernel.symbol}.tasks"] = tasks
    symbol = f"{kernel.symbol}.list"
    m.functions[symbol] = (f"define ptr @{symbol}(ptr %self, ptr %args, i64 %nargs) {{\nentry:\n"
                           "  %ctx = alloca [2 x i64], align 16\n" + "\n".join(out) + "\n}")
    return symbol


def builtin(library: jit.Library, symbol: str, name: str) -> Any:
    """The built-in function at `symbol`; it keeps the library alive."""
    d = _MethodDef(name.encode(), library.address(symbol), _METH_FASTCALL, None)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    owner = (library, d)                                 # the built-in's __self__: code and definition live as long
    return new(ctypes.addressof(d), owner, None)
