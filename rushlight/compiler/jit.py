"""From LLVM IR text to callable machine code.

`compile_ir(text)` optimises the text for this CPU, keeps the object code on disk (cache.py) and loads it with LLJIT.
On a hit nothing is parsed or optimised: the object is loaded, which costs a third of a millisecond. The code lives as
long as its `Library`.

External functions are declared in the text; they are bound, in this order, to addresses given with `import_symbol`,
then to the C mathematics library, then to what the process has loaded.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from rushlight.compiler import cache

__all__ = ["Library", "available", "compile_ir", "host", "import_symbol", "optimize_ir", "assembly"]

_lock = threading.RLock()
_imports: dict[str, int] = {}
_loaded: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
_session: _Session | None = None
_DEFINE = re.compile(r"^\s*define\s+(?!internal\b|private\b)[^@\n]*@\"?([\w.$]+)\"?\s*\(", re.M)
_DECLARE = re.compile(r"^\s*declare\s[^@\n]*@\"?([\w.$]+)\"?\s*\(|^@([\w.$]+)\s*=\s*external\s", re.M)


class _Session:
    """The LLJIT instance of the process, its target machines and what identifies the host."""

    def __init__(self) -> None:
        try:
            import llvmlite
            import llvmlite.binding as llvm
        except ImportError as e:
            raise ImportError(
                "native code generation needs llvmlite, which could not be imported "
                f"({e}); install it with: pip install llvmlite. Without it Rushlight runs on NumPy alone") from e
        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.target = llvm.Target.from_default_triple()
        self.cpu = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        self.machines: dict[int, Any] = {}
        self.lljit = llvm.create_lljit_compiler(self.machine(3), use_jit_link=sys.platform != "win32")
        self.serial = 0
        self.identity = "|".join((self.target.triple, self.cpu, self.features, llvmlite.__version__,
                                  ".".join(map(str, llvm.llvm_version_info)), str(cache.VERSION)))

    def machine(self, opt: int) -> Any:
        tm = self.machines.get(opt)
        if tm is None:
            tm = self.machines[opt] = self.target.create_target_machine(
                cpu=self.cpu, features=self.features, opt=opt, reloc="pic", codemodel="small", jit=True)
        return tm

    def optimized(self, text: str, opt: int, light: bool = False) -> Any:
        llvm = self.llvm
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as e:
            raise ValueError(f"invalid LLVM IR: {e}") from None
        if light:
            builder = llvm.create_pass_builder(self.machine(opt), llvm.create_pipeline_tuning_options(speed_level=2))
            passes = llvm.create_new_module_pass_manager()
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
            passes.add_loop_rotate_pass()
            passes.run(module, builder)
        elif opt:
            tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
            tuning.loop_vectorization = tuning.slp_vectorization = False      # emitters write vectors themselves
            tuning.loop_interleaving = False
            tuning.loop_unrolling = opt > 2
            builder = llvm.create_pass_builder(self.machine(opt), tuning)
            builder.getModulePassManager().run(module, builder)
        return module


def _get_session() -> _Session:
    global _session
    if _session is None:
        with _lock:
            if _session is None:
                _session = _Session()
    return _session


def available() -> bool:
    """Whether native code can be generated here (llvmlite is installed and supports this machine)."""
    try:
        _get_session()
    except (ImportError, RuntimeError, OSError):
        return False
    return True


def host() -> dict[str, Any]:
    """The CPU that code is made for: `triple`, `cpu`, `features` (a set of names), `vector_bytes` (the widest registers
    that pay: 64 with AVX-512, 32 with AVX2, else 16)."""
    s = _get_session()
    features = frozenset(f[1:] for f in s.features.split(",") if f.startswith("+"))
    wide = 64 if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features else 32 if "avx2" in features else 16
    return {"triple": s.target.triple, "cpu": s.cpu, "features": features, "vector_bytes": wide}


def import_symbol(name: str, address: int) -> None:
    """Bind the external function or variable `name` to a C address, for every library linked from now on."""
    if not address:
        raise ValueError(f"import_symbol: the address of {name!r} is null")
    _imports[name] = int(address)


def _resolve(name: str) -> int:
    address = _imports.get(name)
    if address is None:
        for lib in _process_libraries():
            try:
                address = ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
                break
            except AttributeError:
                continue
        if address is None:
            raise RuntimeError(f"external symbol {name!r} was not found: bind it with "
                               "rushlight.compiler.jit.import_symbol")
        _imports[name] = address
    return address


_libraries: list[ctypes.CDLL] = []


def _process_libraries() -> list[ctypes.CDLL]:
    if not _libraries:
        names: list[str | None] = ["ucrtbase"] if sys.platform == "win32" else ["libm.so.6", None]
        if sys.platform == "darwin":
            names = ["libSystem.dylib", None]
        for n in names:
            try:
                _libraries.append(ctypes.CDLL(n))
            except OSError:
                continue
        if sys.platform != "win32" and len(_libraries) < len(names):      # a C library under another name (musl)
            found = ctypes.util.find_library("m")
            if found:
                _libraries.insert(0, ctypes.CDLL(found))
    return _libraries


class Library:
    """Loaded machine code. Addresses taken from it are valid while it is alive; what `function` returns keeps it so."""

    __slots__ = ("key", "from_cache", "_tracker", "_symbols", "__weakref__")

    def __init__(self, key: str, tracker: Any, symbols: dict[str, int], from_cache: bool) -> None:
        self.key, self._tracker, self._symbols, self.from_cache = key, tracker, symbols, from_cache

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self._symbols)

    def address(self, name: str) -> int:
        """The address of the exported symbol `name`; KeyError names those that exist."""
        try:
            return self._symbols[name]
        except KeyError:
            raise KeyError(f"no symbol {name!r} in this library, which exports {sorted(self._symbols)}") from None

    def function(self, name: str, restype: Any = None, *argtypes: Any, gil: bool = False) -> Any:
        """A ctypes function; `gil=True` holds the interpreter lock during the call (cheaper for short ones)."""
        f = (ctypes.PYFUNCTYPE if gil else ctypes.CFUNCTYPE)(restype, *argtypes)(self.address(name))
        f.library = self  # type: ignore[attr-defined]
        return f

    def __repr__(self) -> str:
        return f"<Library {self.key[:12]} {', '.join(self._symbols)}>"


def compile_ir(ir_text: str | Callable[[], str], key: str | None = None, opt: int = 3,
               light: bool = False) -> Library:
    """Machine code for `ir_text`, whose external definitions become the symbols of the `Library`.

    `key` names the text: a caller that has a shorter unique name for its code (a graph's hash and the emitter's
    version) passes it, and `ir_text` may then be a function, called only when the code is neither loaded nor cached.
    Without a key the text itself is the key. `opt` is 0 to 3. `light` runs only the passes that code written as
    vectors in SSA form has use for (llvm.Module's): a tenth of the time of the usual pipeline. Raises ValueError for
    invalid IR, ImportError without llvmlite, RuntimeError for an external symbol that cannot be found.
    """
    if not 0 <= opt <= 3:
        raise ValueError(f"compile_ir: opt must be 0 to 3, got {opt}")
    s = _get_session()
    if key is None:
        ir_text = ir_text() if callable(ir_text) else ir_text
        key = "text:" + ir_text
    digest = hashlib.sha256(f"{s.identity}|{opt}|{light}|{key}".encode()).hexdigest()
    with _lock:
        lib = _loaded.get(digest)
        if lib is not None:
            return lib
        found = cache.load(digest)
        if found is not None:
            try:
                lib = _link(s, digest, found[0], found[1]["exports"], found[1]["imports"], True)
            except (KeyError, TypeError):
                lib = None
        if lib is None:
            text = ir_text() if callable(ir_text) else ir_text
            exports = _DEFINE.findall(text)
            imports = [a or b for a, b in _DECLARE.findall(text) if not (a or b).startswith("llvm.")]
            image = s.machine(opt).emit_object(s.optimized(text, opt, light))
            lib = _link(s, digest, image, exports, imports, False)
            cache.store(digest, image, {"exports": exports, "imports": imports})
        _loaded[digest] = lib
        return lib


def _link(s: _Session, digest: str, image: bytes, exports: list[str], imports: list[str], cached: bool) -> Library:
    builder = s.llvm.JITLibraryBuilder().add_object_img(image)
    for name in imports:
        builder.import_symbol(name, _resolve(name))
    for name in _RUNTIME:                  # what the code generator may call by itself
        if name not in imports:
            builder.import_symbol(name, _resolve(name))
    for name in exports:
        builder.export_symbol(name)
    s.serial += 1
    tracker = builder.link(s.lljit, f"rushlight{s.serial}")
    return Library(digest, tracker, {n: tracker[n] for n in exports}, cached)


_RUNTIME = ("memcpy", "memset", "memmove", "fmod", "fmodf")


def optimize_ir(ir_text: str, opt: int = 3, light: bool = False) -> str:
    """The text after optimisation, to look at."""
    return str(_get_session().optimized(ir_text, opt, light))


def assembly(ir_text: str, opt: int = 3, light: bool = False) -> str:
    """The machine code as assembly text, to look at."""
    s = _get_session()
    return s.machine(opt).emit_assembly(s.optimized(ir_text, opt, light))
