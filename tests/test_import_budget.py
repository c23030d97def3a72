"""`import rushlight` loads NumPy and little else: what is loaded is counted here, the time is measured by bench/."""

import json
import subprocess
import sys
from functools import cache

import pytest

HEAVY = "scipy llvmlite ml_dtypes multiprocessing cupy mpi4py torch matplotlib asyncio concurrent".split()
# Costly modules of the standard library, unless NumPy has loaded them anyway.
COSTLY = "inspect dataclasses ctypes typing logging email unittest pickle zipfile tempfile subprocess".split()
USE = "import rushlight; (rushlight.ones(2, requires_grad=True) * 2).sum().backward()"


@cache
def loaded_by(statement: str) -> frozenset[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import rushlight", USE], ids=["import", "use"])
@pytest.mark.parametrize("name", HEAVY)
def test_not_loaded(statement, name):
    assert not sorted(m for m in loaded_by(statement) if m.partition(".")[0] == name)


@pytest.mark.parametrize("name", COSTLY)
def test_no_more_of_the_standard_library_than_numpy(name):
    assert name not in loaded_by("import rushlight") - loaded_by("import numpy")


def test_modules_are_seen_at_all():
    assert {"numpy", "rushlight", "rushlight.core.tensor"} <= loaded_by(USE)


def test_command_line_loads_no_more_than_the_package():
    code = "import sys; print(*sorted(sys.modules))"
    command = [sys.executable, "-m", "rushlight", "run", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    roots = {m.partition(".")[0] for m in done.stdout.split()}
    assert "rushlight" in roots
    assert not roots & (set(HEAVY) - {"torch"})  # that is Rushlight's own alias
