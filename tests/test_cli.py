"""The command line: `rushlight run` behaves as `python`, the other commands say what they should."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def python(*args, cwd=None, stdin=None, timeout=120, **env):
    """Run this interpreter; Rushlight is importable wherever it runs."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RUSHLIGHT_ALIAS", "PYTHONSAFEPATH")}
    clean.update({"PYTHONPATH": str(ROOT), **env})
    return subprocess.run([sys.executable, *map(str, args)], capture_output=True, text=True, cwd=cwd, input=stdin,
                          timeout=timeout, env=clean)


def rushlight(*args, **kwargs):
    return python("-m", "rushlight", *args, **kwargs)


SCRIPTS = {
    "facts": "import sys\nimport neighbour_module\nprint(neighbour_module.VALUE, sys.argv, __name__, __file__)\n"
    "print(sys.path[0], __spec__, __package__, __doc__, __builtins__.__name__)\n"
    "print(sys.modules['__main__'].__dict__ is globals(), sorted(k for k in globals() if k[0] == '_'))\n"
    "def f(x: int): pass\nprint(f.__annotations__)\n",
    "raises": "def f():\n    return 1 / 0\n\n\ntry:\n    {}['a']\nexcept KeyError:\n    f()\n",
    "syntax": "x = 1\nfor (\n",
    "exit_code": "import sys\nsys.exit(7)\n",
    "exit_text": "import sys\nsys.exit('over')\n",
    "hook": "import sys\n"
    "sys.excepthook = lambda t, e, tb: print('hook', t.__name__, tb.tb_lineno)\nraise ValueError(1)\n",
    "future": "from __future__ import annotations\ndef f(x: undefined): pass\nprint(f.__annotations__)\n",
    "at_exit": "import atexit\natexit.register(lambda: print('bye', __name__))\nraise SystemExit(2)\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_under_python(name, tmp_path):
    (tmp_path / "s.py").write_text(SCRIPTS[name])
    (tmp_path / "neighbour_module.py").write_text("VALUE = 5\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    expected = python("../s.py", "--flag", "a b", "-m", cwd=elsewhere)
    got = rushlight("run", "../s.py", "--flag", "a b", "-m", cwd=elsewhere)
    assert (got.stdout, got.stderr, got.returncode) == (expected.stdout, expected.stderr, expected.returncode)


def test_a_linked_script_finds_the_neighbours_of_its_target(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "s.py").write_text("import helper\nprint(helper.V)\n")
    (tmp_path / "real" / "helper.py").write_text("V = 3\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "s.py")
    assert rushlight("run", tmp_path / "link.py").stdout == "3\n"


@pytest.mark.parametrize("target", ["folder", "app.zip"])
def test_a_folder_and_a_zip_file_run_their_main(target, tmp_path):
    source = "import sys, other\nprint(other.V, sys.argv[1:], __name__)\n"
    if target == "folder":
        (tmp_path / target).mkdir()
        (tmp_path / target / "__main__.py").write_text(source)
        (tmp_path / target / "other.py").write_text("V = 4\n")
    else:
        with zipfile.ZipFile(tmp_path / target, "w") as z:
            z.writestr("__main__.py", source)
            z.writestr("other.py", "V = 4\n")
    got = rushlight("run", tmp_path / target, "x")
    assert (got.stdout, got.returncode) == ("4 ['x'] __main__\n", 0), got.stderr


def test_a_module_runs_as_under_python(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import part\nprint(sys.argv, __name__, __package__, __spec__.name)\n"
    )
    (package / "part.py").write_text(
        "import sys\nif __name__ == '__main__':\n    print(sys.argv, __package__, sys.path[0])\n"
    )
    for what in ("pack", "pack.part"):
        expected = python("-m", what, "--x", cwd=tmp_path)
        got = rushlight("run", "-m", what, "--x", cwd=tmp_path)
        assert (got.stdout, got.returncode) == (expected.stdout, 0), got.stderr
    assert rushlight("run", "-mpack.part", cwd=tmp_path).returncode == 0


def test_code_and_standard_input():
    code = "import sys, torch; print(sys.argv, repr(sys.path[0]), __name__, torch.__name__)"
    assert rushlight("run", "-c", code, "1", "-m").stdout == "['-c', '1', '-m'] '' __main__ rushlight\n"
    assert rushlight("run", "-c" + code).stdout == "['-c'] '' __main__ rushlight\n"
    assert rushlight("run", "-", "1", stdin=code).stdout == "['-', '1'] '' __main__ rushlight\n"


def test_safe_path_is_kept(tmp_path):
    (tmp_path / "s.py").write_text("import sys\nprint(sys.path[0])\n")
    got = rushlight("run", tmp_path / "s.py", PYTHONSAFEPATH="1")
    assert got.stdout != f"{tmp_path}\n"
    assert got.stdout == python(tmp_path / "s.py", PYTHONSAFEPATH="1").stdout


@pytest.mark.skipif(os.name != "posix", reason="signals as exit status are POSIX's")
def test_an_interrupt_ends_by_the_signal(tmp_path):
    (tmp_path / "s.py").write_text("import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt\n")
    got = rushlight("run", tmp_path / "s.py")
    expected = python(tmp_path / "s.py")
    assert got.returncode == expected.returncode == -signal.SIGINT
    assert (got.stdout, got.stderr) == (expected.stdout, expected.stderr)


def test_a_program_that_pickles_its_own_classes(tmp_path):
    (tmp_path / "s.py").write_text(
        "import multiprocessing, pickle\n"
        "class C:\n    pass\n"
        "def work(x):\n    import torch\n    return torch.__name__, x + 1\n"
        "if __name__ == '__main__':\n"
        "    assert type(pickle.loads(pickle.dumps(C()))) is C\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(work, [1, 2]))\n")
    got = rushlight("run", tmp_path / "s.py")
    assert got.stdout == "[('rushlight', 2), ('rushlight', 3)]\n", got.stderr


@pytest.mark.parametrize(("args", "status", "text"), [
    (["run"], 2, "nothing to run"),
    (["run", "--legacy", "x.py"], 2, "later release"),
    (["run", "--legacy=0.1", "x.py"], 2, "later release"),
    (["run", "--fast", "x.py"], 2, "unknown option '--fast'"),
    (["run", "-x"], 2, "unknown option '-x'"),
    (["run", "-m"], 2, "expected an argument"),
    (["run", "no_such_script.py"], 2, "[Errno 2]"),
    (["run", "-m", "no_such_module"], 1, "No module named no_such_module"),
    (["run", "-m", "json.no_such"], 1, "No module named"),
    (["run", "-m", "xml"], 1, "cannot be directly executed"),
    (["dance"], 2, "unknown command 'dance'"),
    (["doctor", "--xml"], 2, "--xml"),
    (["cache", "fill"], 2, "expected info or clear"),
])
def test_wrong_command_lines_say_what_was_expected(args, status, text):
    got = rushlight(*args)
    assert got.returncode == status and text in got.stderr and "Traceback" not in got.stderr
    assert got.stdout == ""


def test_version_and_help():
    import rushlight as package

    assert (
        rushlight("--version").stdout
        == f"rushlight {package.version.rushlight} (torch.__version__ {package.__version__})\n"
    )
    for args in ([], ["--help"], ["run", "--help"], ["run", "-h"]):
        got = rushlight(*args)
        assert got.returncode == 0 and got.stdout.startswith("usage: rushlight run")


def test_doctor_reports_what_is_there_and_what_is_missing(tmp_path):
    (tmp_path / "tqdm.py").write_text("raise ImportError('broken on purpose')\n")
    got = rushlight(
        "doctor",
        "--json",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
        RUSHLIGHT_CACHE="off",
        OPENBLAS_CORETYPE="Haswell",
    )
    facts = json.loads(got.stdout)
    assert got.returncode == 0 and facts["ok"] is True
    import numpy
    packages = {p["name"]: p for p in facts["packages"]}
    assert packages["numpy"]["version"] == numpy.__version__ and packages["numpy"]["works"]
    assert not packages["tqdm"]["works"] and packages["tqdm"]["cost"]
    problems = "\n".join(facts["problems"])
    assert "broken on purpose" in problems and "RUSHLIGHT_CACHE" in problems
    assert facts["blas"]["environment"] == {"OPENBLAS_CORETYPE": "Haswell"}
    assert facts["threads"]["affinity"] == len(os.sched_getaffinity(0))
    text = rushlight("doctor").stdout
    assert numpy.__version__ in text and "threads" in text


def test_cache_is_shown_and_cleared(tmp_path):
    environment = {"RUSHLIGHT_CACHE": str(tmp_path / "c")}
    assert "0 files" in rushlight("cache", **environment).stdout
    (tmp_path / "c" / "objects" / "ab.rlo").write_bytes(b"x" * 100)
    assert "1 files" in rushlight("cache", "info", **environment).stdout
    assert "removed 1 files" in rushlight("cache", "clear", **environment).stdout
    assert not list((tmp_path / "c" / "objects").iterdir())
    assert "not kept" in rushlight("cache", RUSHLIGHT_CACHE="off").stdout
