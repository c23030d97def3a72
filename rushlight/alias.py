"""Lets ``import torch`` mean Rushlight for this process and for the Python processes that it starts.

:func:`install` puts one finder in front of ``sys.meta_path``. From then on ``torch`` and every ``torch.x.y`` are the
very module objects ``rushlight`` and ``rushlight.x.y``, ``importlib.util.find_spec("torch")`` finds them, and
``importlib.metadata.version("torch")`` answers with the PyTorch release whose interface Rushlight follows. A real
PyTorch that is installed beside is hidden, never mixed in; one that is imported already makes :func:`install` refuse.

Child processes of the same interpreter (``subprocess``, ``multiprocessing`` with spawn or forkserver) inherit the
alias through two environment variables: ``RUSHLIGHT_ALIAS`` holds ``sys.prefix`` of the environment that it is for,
and ``PYTHONPATH`` gets the folder ``rushlight/_site``, whose ``sitecustomize.py`` installs the finder (and then runs
the ``sitecustomize`` that it hides). Interpreters of other environments, and Python's ``-I``, ``-E`` and ``-S``, do
not take part.

This file uses the standard library only and imports Rushlight when ``torch`` is first asked for: it is also executed
by itself, by path, when a child process starts.
"""
from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["TORCH_VERSION", "install", "installed", "uninstall"]

#: The PyTorch release whose interface Rushlight follows; what ``importlib.metadata.version("torch")`` says.
TORCH_VERSION = "2.13.0"

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_SITE = os.path.join(_PACKAGE, "_site")
_VARIABLE = "RUSHLIGHT_ALIAS"

# Rushlight's own modules, which have no counterpart of the same name under torch.
_HIDDEN = {"alias", "cli", "core", "legacy", "_absent", "_doctor", "_missing", "_pipe", "_site", "__main__"}

# Modules that PyTorch has elsewhere; used where Rushlight has no module of PyTorch's name.
_ELSEWHERE = {
    "storage": "core.storage",
    "_tensor": "core.tensor",
    "_utils": "serialization._rebuild",
}


def _rushlight() -> ModuleType:
    """The package ``rushlight``, from this file's own folder where ``sys.path`` does not lead to it."""
    try:
        return importlib.import_module("rushlight")
    except ModuleNotFoundError as error:
        if error.name != "rushlight":
            raise
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        "rushlight", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
    )
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'rushlight'", name="rushlight")
    module = module_from_spec(spec)
    sys.modules["rushlight"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop("rushlight", None)
        raise
    return module


def _import_target(name: str) -> ModuleType | None:
    """Rushlight's module for ``torch.<name>``, or None where it has none. Errors inside that module pass through."""
    if name.split(".", 1)[0] in _HIDDEN:
        return None
    for candidate in (name, _ELSEWHERE.get(name)):
        if candidate is None:
            continue
        full = "rushlight." + candidate
        try:
            return importlib.import_module(full)
        except ModuleNotFoundError as error:
            # Only the absence of the module itself, or of a package above it, means that there is none.
            if error.name is None or not (full == error.name or full.startswith(error.name + ".")):
                raise
    # A module that exists as an attribute only (made at run time, not a file of its own).
    value: Any = sys.modules["rushlight"]
    for part in name.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value if isinstance(value, ModuleType) else None


def _asked_by_find_spec() -> bool:
    """Whether the current look-up is ``importlib.util.find_spec`` (which wants None for an absent module), not an
    import."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("importlib._bootstrap", "_frozen_importlib")
    ):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "importlib.util"


class _Loader:
    """Hands out a module that exists already, and leaves that module as it was."""

    def __init__(self, module: ModuleType):
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just overwritten it, which would break relative imports

    # What runpy and inspect ask of a loader.
    def get_code(self, name: str) -> Any:
        return self._delegate("get_code")

    def get_source(self, name: str) -> Any:
        return self._delegate("get_source")

    def is_package(self, name: str) -> bool:
        return hasattr(self._module, "__path__")

    def _delegate(self, method: str) -> Any:
        function = getattr(getattr(self._spec, "loader", None), method, None)
        return None if function is None or self._spec is None else function(self._spec.name)


class _Finder:
    """The entry of ``sys.meta_path`` for ``torch`` and ``torch.*``, and for the metadata of a distribution
    ``torch``."""

    rushlight_alias = True  # how an instance made by another copy of this module is recognised

    def __init__(self) -> None:
        self.environment: dict[str, str | None] = {}  # what install() changed in os.environ: the old values

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        root = _rushlight()
        module = root if fullname == "torch" else _import_target(fullname[6:])
        if module is None:
            if fullname[6:].split(".", 1)[0] not in _HIDDEN and _asked_by_find_spec():
                return None
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: if PyTorch has it, Rushlight does not have it yet (torch is Rushlight "
                f"{getattr(root, '__version__', '')} here)",
                name=fullname,
            )
        spec = ModuleSpec(fullname, _Loader(module), origin=getattr(module, "__file__", None),  # type: ignore[arg-type]
                          is_package=hasattr(module, "__path__"))
        spec.has_location = spec.origin is not None
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.extend(getattr(module, "__path__", ()))
        return spec

    def find_distributions(self, context: Any = None) -> Any:
        name = getattr(context, "name", None)
        if name is None or name.lower() == "torch":
            yield _distribution()

    def invalidate_caches(self) -> None:
        """Nothing is cached here."""


def _distribution() -> Any:
    from importlib.metadata import Distribution

    class TorchDistribution(Distribution):
        """What ``importlib.metadata`` sees as the distribution ``torch``."""

        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n"
                "Summary: the interface of PyTorch, by Rushlight\n",
                "top_level.txt": "torch\n",
            }.get(filename)

        def locate_file(self, path: Any) -> Any:
            import pathlib
            return pathlib.Path(_PACKAGE).parent / path

    return TorchDistribution()


def _installed_finder() -> Any:
    for finder in sys.meta_path:
        if getattr(finder, "rushlight_alias", False):
            return finder
    return None


def installed() -> bool:
    """Whether ``import torch`` means Rushlight in this process."""
    return _installed_finder() is not None


def install(*, children: bool = True) -> None:
    """Make ``import torch`` mean Rushlight in this process; calling it again changes nothing.

    Args:
        children: also in child processes of this Python environment (see the module's description).

    Raises:
        RuntimeError: a real PyTorch is imported already, so that some modules would hold one and some the other.
    """
    finder = _installed_finder()
    if finder is None:
        present = sys.modules.get("torch")
        ours = sys.modules.get("rushlight")
        if present is not None and present is not ours:
            where = getattr(present, "__file__", None) or "an unknown place"
            raise RuntimeError(
                f"cannot make torch mean Rushlight: a real torch is imported already, from {where}. "
                "Call rushlight.alias.install() before anything imports torch, or use `rushlight run`."
            )
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        if ours is not None:
            sys.modules["torch"] = ours
    if children and _VARIABLE not in finder.environment:
        paths = os.environ.get("PYTHONPATH")
        entries = [p for p in (paths or "").split(os.pathsep) if p and p != _SITE]
        for key, value in ((_VARIABLE, sys.prefix), ("PYTHONPATH", os.pathsep.join([_SITE, *entries]))):
            finder.environment[key] = os.environ.get(key)
            os.environ[key] = value


def uninstall() -> None:
    """Undo :func:`install`: ``import torch`` means what it meant before. Modules imported meanwhile keep their
    references."""
    finder = _installed_finder()
    if finder is None:
        return
    sys.meta_path.remove(finder)
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    for key, value in finder.environment.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    finder.environment.clear()


def _install_in_child() -> None:
    """Called by ``_site/sitecustomize.py`` when an interpreter starts: only in the environment that the variable
    names."""
    if os.environ.get(_VARIABLE) == sys.prefix:
        install(children=False)
