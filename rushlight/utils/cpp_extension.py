"""Building and loading extensions in C and C++.

`load` compiles sources and imports the result at once; `CppExtension` and `BuildExtension` are for a `setup.py`. The
sources include `<rushlight.h>`, whose few functions say where a tensor's elements are (docs/extending.md has an example);
Python.h and ctypes do as well. Sources that use PyTorch's C++ classes (`torch/extension.h`) do not build here.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rushlight import _missing

try:
    from setuptools.command.build_ext import build_ext as _build_ext
except ImportError:  # only BuildExtension and CppExtension need it
    _build_ext = object

__all__ = ["BuildExtension", "CppExtension", "CUDAExtension", "include_paths", "library_paths", "load", "load_inline",
           "get_default_build_root", "is_ninja_available", "verify_ninja_availability"]

CUDA_HOME = None
_C_SUFFIXES = (".c",)
_loaded: dict[str, list[str]] = {}     # for each name the contents that were loaded under it, in order


def include_paths(device_type: str = "cpu") -> list[str]:
    """The directories with the headers that extensions include."""
    return [str(Path(__file__).resolve().parent.parent / "include")]


def library_paths(device_type: str = "cpu") -> list[str]:
    """The directories with libraries to link with: none, the C interface is a header."""
    return []


def is_ninja_available() -> bool:
    """Whether the program ninja is there. It is not needed."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError if the program ninja is not there."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_default_build_root() -> str:
    """Where `load` builds if it is not told: `$TORCH_EXTENSIONS_DIR`, or a directory among the user's caches."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(base, "rushlight", "extensions", sys.implementation.cache_tag or "py")


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """A `setuptools.Extension` in C or C++ that finds `rushlight.h`; the arguments are setuptools'. For `ext_modules` of a setup.py
    with `cmdclass={"build_ext": BuildExtension}`."""
    import setuptools

    kwargs["include_dirs"] = [*(kwargs.get("include_dirs") or []), *include_paths()]
    kwargs.setdefault("language", "c" if all(str(s).endswith(_C_SUFFIXES) for s in sources) else "c++")
    return setuptools.Extension(name, list(sources), *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no CUDA here."""
    raise RuntimeError("CUDAExtension needs the CUDA toolkit, and Rushlight has no CUDA extensions: use CppExtension")


class BuildExtension(_build_ext):  # type: ignore[misc, valid-type]
    """setuptools' `build_ext` for extensions of `CppExtension`: `TORCH_EXTENSION_NAME` is the module's name, and `extra_compile_args` may be
    a dict with the compiler's flags under "cxx"."""

    @classmethod
    def with_options(cls, **options: Any) -> type:
        """The class with options fixed: `no_python_abi_suffix`, `use_ninja` (accepted; setuptools compiles)."""
        class WithOptions(cls):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **{**kwargs, **options})
        WithOptions.__name__ = WithOptions.__qualname__ = cls.__name__
        return WithOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _build_ext is object:
            raise ModuleNotFoundError("BuildExtension needs setuptools (pip install setuptools)", name="setuptools")
        self.no_python_abi_suffix = kwargs.pop("no_python_abi_suffix", False)
        self.use_ninja = kwargs.pop("use_ninja", True)
        super().__init__(*args, **kwargs)

    def build_extension(self, ext: Any) -> None:
        """Compile one extension."""
        if isinstance(ext.extra_compile_args, dict):
            ext.extra_compile_args = list(ext.extra_compile_args.get("cxx", []))
        ext.define_macros = [*(ext.define_macros or []), ("TORCH_EXTENSION_NAME", ext.name.rpartition(".")[2])]
        super().build_extension(ext)

    def get_ext_filename(self, ext_name: str) -> str:
        """The file of a module, without the interpreter's tag with `no_python_abi_suffix`."""
        name = super().get_ext_filename(ext_name)
        if self.no_python_abi_suffix:
            name = name.removesuffix(str(sysconfig.get_config_var("EXT_SUFFIX"))) + os.path.splitext(name)[1]
        return name


def load(name: str, sources: str | Sequence[str], extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Sequence[str] | None = None,
         extra_sycl_cflags: Sequence[str] | None = None, extra_ldflags: Sequence[str] | None = None,
         extra_include_paths: Sequence[str] | None = None, build_directory: str | None = None, verbose: bool = False,
         with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True, is_standalone: bool = False,
         keep_intermediates: bool = True) -> Any:
    """Compile `sources` (C by the suffix .c, C++ else) and load the result: the Python module `name`, whose init function is
    `PyInit_` and the macro `TORCH_EXTENSION_NAME`. With `is_python_module=False` a plain library, whose path is returned (for ctypes);
    with `is_standalone=True` a program, whose path is returned.

    It is compiled again only if sources or flags changed. RuntimeError with the compiler's words if they do not compile.
    """
    if with_cuda or extra_cuda_cflags or with_sycl:
        raise RuntimeError(f"load({name!r}): there is no CUDA or SYCL here, only C and C++ are compiled")
    files = [os.path.abspath(s) for s in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    for f in files:
        if not os.path.isfile(f):
            raise FileNotFoundError(f"load({name!r}): there is no source {f}")
    root = build_directory or os.path.join(get_default_build_root(), name)
    os.makedirs(root, exist_ok=True)
    flags = [*(extra_cflags or [])]
    includes = [*(extra_include_paths or []), *include_paths(), sysconfig.get_paths()["include"]]
    links = [*(extra_ldflags or [])]
    content = hashlib.sha256(repr((flags, includes, links, is_standalone, sys.version, [Path(f).read_bytes() for f in files],
                                   [Path(i, "rushlight.h").read_bytes() for i in include_paths()])).encode()).hexdigest()
    versions = _loaded.setdefault(name, [])
    if content not in versions:
        versions.append(content)
    k = versions.index(content)
    module = f"{name}_v{k}" if k else name      # one process cannot load another module under a name that is taken
    target = os.path.join(root, module + ("" if is_standalone else ".so"))
    stamp = Path(root, module + ".sha256")
    if not (os.path.exists(target) and stamp.exists() and stamp.read_text() == content):
        _compile(module, files, flags, includes, links, root, target, is_standalone, verbose, keep_intermediates)
        stamp.write_text(content)
    if is_standalone or not is_python_module:
        return target
    loader = importlib.machinery.ExtensionFileLoader(module, target)
    spec = importlib.util.spec_from_file_location(module, target, loader=loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made


def _compile(module: str, files: list[str], flags: list[str], includes: list[str], links: list[str], root: str, target: str,
             program: bool, verbose: bool, keep: bool) -> None:
    cxx, cc = os.environ.get("CXX") or "c++", os.environ.get("CC") or "cc"
    objects = []
    shared = ["-dynamiclib", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    for i, f in enumerate(files):
        o = os.path.join(root, f"{module}_{i}.o")
        is_c = f.endswith(_C_SUFFIXES)
        _call([*(cc if is_c else cxx).split(), *([] if is_c else ["-std=c++17"]), "-O2", "-fPIC", f"-DTORCH_EXTENSION_NAME={module}",
               *[f"-I{d}" for d in includes], *flags, "-c", f, "-o", o], verbose)
        objects.append(o)
    only_c = all(f.endswith(_C_SUFFIXES) for f in files)
    made = f"{target}.{os.getpid()}"      # moved to its place when it is whole: others may be loading the old one
    _call([*(cc if only_c else cxx).split(), *([] if program else shared), *objects, *links, "-o", made], verbose)
    os.replace(made, target)
    if not keep:
        for o in objects:
            os.remove(o)


def _call(command: list[str], verbose: bool) -> None:
    if verbose:
        print(" ".join(command))
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError(f"Error building extension: there is no compiler {command[0]!r} (the environment variables CC and CXX name it)") from None
    if verbose and done.stderr:
        print(done.stderr)
    if done.returncode:
        raise RuntimeError(f"Error building extension: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def load_inline(name: str, cpp_sources: str | Sequence[str], cuda_sources: Any = None, sycl_sources: Any = None, functions: Any = None,
                extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Any = None, extra_sycl_cflags: Any = None,
                extra_ldflags: Sequence[str] | None = None, extra_include_paths: Sequence[str] | None = None, build_directory: str | None = None,
                verbose: bool = False, with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True,
                with_pytorch_error_handling: bool = True, keep_intermediates: bool = True, use_pch: bool = False,
                no_implicit_headers: bool = False) -> Any:
    """`load` of C++ text. The text defines the module's init function itself: RuntimeError for `functions`, which would need pybind11."""
    if cuda_sources or sycl_sources or functions:
        raise RuntimeError(f"load_inline({name!r}): functions=, cuda_sources= and sycl_sources= are not supported; define PyInit_ in the source")
    root = build_directory or os.path.join(get_default_build_root(), name)
    os.makedirs(root, exist_ok=True)
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    path = Path(root, "main.cpp")
    path.write_text("\n".join([*([] if no_implicit_headers else ["#include <rushlight.h>"]), *texts]))
    return load(name, [str(path)], extra_cflags, None, None, extra_ldflags, extra_include_paths, root, verbose, with_cuda, with_sycl,
                is_python_module, False, keep_intermediates)


_missing.hint(__name__)
