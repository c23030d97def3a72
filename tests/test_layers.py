"""Imports go downwards only (docs/architecture.md), files stay small, and Rushlight never imports PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rushlight"

# From the bottom up; the longest prefix decides. A module may import its own layer and those below it.
LAYERS = [
    ("hints", ["rushlight._missing", "rushlight._pipe"]),
    ("expressions", ["rushlight.ops.expr"]),
    (
        "code generation",
        [f"rushlight.compiler.{m}" for m in "builder cache jit llvm nest scalar target vecmath".split()],
    ),
    ("backends", ["rushlight.backends"]),
    ("kernels", [f"rushlight.compiler.{m}" for m in "entry folds gather kernels row_kernels".split()]),
    ("core", ["rushlight.core"]),
    ("autograd", ["rushlight.autograd"]),
    ("operators", ["rushlight.ops"]),
    ("compiler", ["rushlight.compiler"]),
    # nn, optim, utils, linalg, serialization, ...: what nothing else names; and the nn.Module that compile returns
    ("library", ["rushlight.", "rushlight.compiler.module"]),
    ("public", ["rushlight", "rushlight.alias", "rushlight.cli", "rushlight.__main__", "rushlight._doctor"]),
]
RANK = {name: rank for rank, (name, _) in enumerate(LAYERS)}

# Upward imports that are allowed inside functions, and why.
LATE = {
    ("backends", "kernels"): "array functions use a generated kernel where one pays",
    ("core", "autograd"): "Tensor.backward and grad_fn start the engine",
    ("core", "operators"): "methods of Tensor that are written in operators",
    ("core", "library"): "storages pickle and unpickle themselves through serialization",
    ("autograd", "operators"): "gradcheck and the accumulation of gradients compute with tensors",
    ("autograd", "compiler"): "the engine hands compiled nodes to their runtime",
    ("operators", "compiler"): "composites with a fused kernel compile their own body",
    ("compiler", "library"): "whole steps contain modules and optimizers",
}
# These layers call operators through the public namespace (`rushlight.relu`), at any place: it is lazy.
NAMESPACE_USERS = {"library", "compiler"}
# Downward, but only inside functions, because the target loads llvmlite or is not wanted at start.
LATE_ONLY = {("backends", "code generation"), ("core", "code generation"), ("core", "kernels")}


def layer(module: str) -> str:
    best = ("", "")
    for name, prefixes in LAYERS:
        for prefix in prefixes:
            exact = module == prefix
            below = module.startswith(prefix if prefix.endswith(".") else prefix + ".") and prefix != "rushlight"
            if (exact or below) and len(prefix) > len(best[1]):
                best = (name, prefix)
    return best[0]


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    late: bool


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: str, module: str, is_package: bool, known: set[str]) -> Iterator[Import]:
    """What `module` imports, as absolute names; under TYPE_CHECKING nothing is imported."""
    package = module.split(".") if is_package else module.split(".")[:-1]

    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, late)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(package[: len(package) - child.level + 1]) if child.level else ""
                base = ".".join(filter(None, [base, child.module]))
                for alias in child.names:
                    inner = f"{base}.{alias.name}"
                    yield Import(inner if inner in known else base, child.lineno, late)
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from visit(child, late or is_function)

    yield from visit(ast.parse(source), False)


def problem(module: str, found: Import) -> str | None:
    """Why `module` may not import this, or None."""
    target = found.target
    if target.split(".")[0] == "torch":
        return "imports PyTorch"
    if target.split(".")[0] != "rushlight":
        return None
    here, there = layer(module), layer(target)
    if target == "rushlight":
        return None if here in NAMESPACE_USERS | {"public"} or found.late else "uses the public namespace from below it"
    if (here, there) in LATE_ONLY and not found.late:
        return f"{here} may import {there} inside functions only"
    if RANK[there] <= RANK[here]:
        return None
    if found.late and (here, there) in LATE:
        return None
    return f"{here} must not import {there}" + (", which is above it" if found.late else " (at module level)")


MODULES = modules()


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards(module):
    path = MODULES[module]
    source = path.read_text(encoding="utf-8")
    found = imports(source, module, path.name == "__init__.py", set(MODULES))
    wrong = [f"{path.name}:{i.line}: {i.target}: {p}" for i in found if (p := problem(module, i))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_files_stay_small_and_packages_say_what_they_own(module):
    path = MODULES[module]
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 800, f"{module} has more than 800 lines"
    assert ast.get_docstring(ast.parse(source)), f"{module} has no docstring"


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("rushlight.core.tensor", "from rushlight.backends.cpu import allocator", False),
        ("rushlight.backends.cpu.blas", "from rushlight.core.tensor import Tensor", True),
        ("rushlight.backends.cpu.blas", "def f():\n    from rushlight.core.tensor import Tensor", True),
        ("rushlight.backends.cpu.blas", "from rushlight.compiler.jit import compile_ir", True),
        ("rushlight.backends.cpu.blas", "def f():\n    from rushlight.compiler.jit import compile_ir", False),
        ("rushlight.backends.cpu.blas", "def f():\n    from rushlight.compiler import capture", True),
        ("rushlight.core.tensor", "from ..ops import declare", True),
        ("rushlight.core.tensor", "class T:\n    def f(self):\n        from ..ops import declare", False),
        ("rushlight.core.tensor", "import rushlight", True),
        ("rushlight.nn.functional", "import rushlight", False),
        ("rushlight.nn.functional", "from rushlight.cli import main", True),
        ("rushlight.ops.reduce", "from .declare import reduction", False),
        ("rushlight.ops.reduce", "from rushlight.nn import functional", True),
        ("rushlight.cli", "import torch", True),
        ("rushlight.core.tensor", "if TYPE_CHECKING:\n    from rushlight.nn import Module", False),
    ],
)
def test_the_check_itself(module, source, wrong):
    known = set(MODULES) | {"rushlight.compiler.capture", "rushlight.ops.declare", "rushlight.nn.functional"}
    assert any(problem(module, i) for i in imports(source, module, False, known)) is wrong
