"""Run by Python at start-up in child processes of a program that uses Rushlight as torch (see ``rushlight/alias.py``).

It must be cheap and must not fail: it adds a finder, imports nothing of Rushlight, and then runs the ``sitecustomize``
that it hides, if there is one.
"""
import os
import sys


def _install() -> None:
    if os.environ.get("RUSHLIGHT_ALIAS") != sys.prefix:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location("_rushlight_alias", os.path.join(package, "alias.py"))
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module._install_in_child()


def _run_hidden() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p or os.curdir) != here])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _install()
    _run_hidden()
