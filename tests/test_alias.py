"""`import torch` meaning Rushlight: in this process, beside another torch, and in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def python(code, *args, cwd=None, path=(), **env):
    """What a fresh interpreter prints that executes `code`; its errors fail the test."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RUSHLIGHT_ALIAS")}
    clean.update({"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), **env})
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=cwd, env=clean, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def other_torch(tmp_path):
    """A folder with another package `torch`, installed as far as importlib.metadata can see."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("REAL = True\n")
    (tmp_path / "torch" / "only_there.py").write_text("")
    info = tmp_path / "torch-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    return tmp_path


def test_modules_are_the_very_same_objects():
    python("""
import rushlight, rushlight.nn
from rushlight import alias
alias.install(); alias.install()
assert alias.installed()
import sys
assert sys.modules["torch"] is rushlight
import torch, torch.nn as nn, torch.nn.functional as F, torch.utils.data, torch.optim.lr_scheduler, torch.nn.parameter
from torch.utils.data import DataLoader
from torch import nn as again
assert torch is rushlight and nn is rushlight.nn is again and F is rushlight.nn.functional
assert DataLoader is rushlight.utils.data.DataLoader
assert sys.modules["torch.nn.parameter"] is sys.modules["rushlight.nn.parameter"]
assert nn.__name__ == "rushlight.nn" and nn.__spec__.name == "rushlight.nn"      # the modules are left as they were
import torch.storage, torch._utils                                               # PyTorch has these elsewhere
assert torch.storage.UntypedStorage and torch._utils._rebuild_tensor_v2
import rushlight.nn.modules                                                      # relative imports go on working
import importlib
assert importlib.reload(torch) is rushlight
""")


def test_specification_and_metadata():
    python("""
from rushlight import alias
alias.install()
import importlib.metadata as metadata, importlib.util as util
import rushlight
assert metadata.version("torch") == alias.TORCH_VERSION == rushlight.__version__.partition("+")[0]
assert metadata.distribution("Torch").metadata["Name"] == "torch"
assert [d.version for d in metadata.distributions(name="torch")] [0] == alias.TORCH_VERSION
assert util.find_spec("torch") is not None and util.find_spec("torch.nn") is not None
spec = util.find_spec("torch.nn.functional")
assert spec.origin == rushlight.nn.functional.__file__
assert util.find_spec("torch.utils.no_such") is None and util.find_spec("torch.no_such") is None
""")


@pytest.mark.parametrize("name", ["torch.no_such", "torch.nn.no_such", "torch.cli", "torch.core", "torch.alias"])
def test_a_module_that_is_missing_is_named(name):
    text = python(f"""
from rushlight import alias
alias.install()
try:
    import {name}
except ModuleNotFoundError as error:
    assert error.name == {name!r}
    print(error)
""")
    assert f"No module named {name!r}" in text and "Rushlight" in text


def test_an_error_inside_a_module_is_not_hidden():
    python("""
import sys
from rushlight import alias
alias.install()
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "rushlight.broken":
            raise ModuleNotFoundError("No module named 'needed'", name="needed")
sys.meta_path.insert(1, Broken())
try:
    import torch.broken
except ModuleNotFoundError as error:
    assert error.name == "needed", error
else:
    raise SystemExit("imported")
""")


def test_another_torch_is_hidden_and_comes_back(other_torch):
    python("""
from rushlight import alias
alias.install()
import torch, importlib.metadata as metadata, importlib.util as util
assert torch.__name__ == "rushlight" and metadata.version("torch") == alias.TORCH_VERSION
assert util.find_spec("torch.only_there") is None
try:
    import torch.only_there
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("a module of the other torch was imported")
alias.uninstall(); alias.uninstall()
assert not alias.installed()
import torch
assert torch.REAL and metadata.version("torch") == "1.0"
import torch.only_there, rushlight
assert rushlight.__name__ == "rushlight"
""", path=[other_torch])


def test_refuses_beside_a_torch_that_is_imported(other_torch):
    text = python("""
import torch
from rushlight import alias
try:
    alias.install()
except RuntimeError as error:
    print(error)
assert not alias.installed() and torch.REAL
""", path=[other_torch])
    assert str(other_torch) in text and "rushlight run" in text


def test_environment_is_restored():
    python("""
import os
before = dict(os.environ)
from rushlight import alias
alias.install()
assert os.environ["RUSHLIGHT_ALIAS"] and os.environ["PYTHONPATH"].endswith(before["PYTHONPATH"])
alias.uninstall()
assert dict(os.environ) == before
alias.install(children=False)
assert dict(os.environ) == before
""")


CHILD = "import torch, sys, importlib.metadata as m; print(torch.__name__, m.version('torch'), 'numpy' in sys.modules)"


def test_subprocesses_inherit_it(tmp_path):
    out = python(
        f"""
import subprocess, sys, os
sys.path.insert(0, os.environ.pop("PYTHONPATH"))     # children would not find rushlight by themselves
from rushlight import alias
alias.install()
print(subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True, check=True).stdout.strip())
print(subprocess.run([sys.executable, "-I", "-c", "import sys; print(any(p.endswith('_site') for p in sys.path))"],
                     capture_output=True, text=True, check=True).stdout.strip())
nothing = "import sys; print('rushlight' in sys.modules, 'numpy' in sys.modules)"
print(subprocess.run([sys.executable, "-c", nothing], capture_output=True, text=True, check=True).stdout.strip())
other = dict(os.environ, RUSHLIGHT_ALIAS="/another/environment")
probe = "import sys; print(any(getattr(f, 'rushlight_alias', False) for f in sys.meta_path))"
done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=other)
print(done.stdout.strip())
""",
        cwd=tmp_path,
    )
    assert out.splitlines() == ["rushlight 2.13.0 True", "False", "False False", "False"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_inherits_it(method, tmp_path):
    (tmp_path / "work.py").write_text("def name(_):\n    import torch, torch.nn\n    return torch.nn.__name__\n")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import work
if __name__ == "__main__":
    from rushlight import alias
    alias.install()
    import multiprocessing
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        print(pool.map(work.name, [0]))
"""
    assert python(script) == "['rushlight.nn']"


def test_plain_pickles_of_pytorch_are_read():
    file = ROOT / "tests" / "golden" / "checkpoints" / "plain.pickle"
    out = python(f"""
from rushlight import alias
alias.install()
import pickle, torch
with open({str(file)!r}, "rb") as f:
    t = pickle.load(f)["t"]
print(type(t) is torch.Tensor, t.tolist(), t.stride())
""")
    assert out == "True [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] (3, 1)"


def test_the_hidden_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = __name__\n")
    out = python("""
import subprocess, sys
from rushlight import alias
alias.install()
code = "import torch; print(customized, torch.__name__)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
""", path=[tmp_path])
    assert out == "sitecustomize rushlight"


def test_scripts_may_ask_for_devices_that_are_not_here():
    """The first lines of most programs."""
    script = """
from rushlight import alias
alias.install()
import torch
import torch.backends.cudnn as cudnn
device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
torch.cuda.manual_seed_all(0)
cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
print(device, torch.cuda.device_count(), torch.ones(1, device=device).item())
try:
    torch.cuda.current_device()
except RuntimeError as e:
    print("CUDA" in str(e))
"""
    assert python(script).splitlines() == ["cpu 0 1.0", "True"]
