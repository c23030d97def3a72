"""The command line: ``rushlight run | doctor | cache | bench | --version``, also as ``python -m rushlight``.

``run`` executes a program as ``python`` itself would (``sys.argv``, ``sys.path[0]``, ``__main__``, exit codes,
tracebacks), with ``import torch`` meaning Rushlight. It is on the way of every program's start, so nothing is
imported here that it does not need.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any, NoReturn

__all__ = ["main"]

_USAGE = """\
usage: rushlight run [--legacy[=ERA]] (SCRIPT | -m MODULE | -c CODE | -) [ARGS ...]
       rushlight doctor [--json]          versions, BLAS, threads, CPU; what is missing and what it costs
       rushlight cache [info | clear]     the compiled code kept on disk
       rushlight bench [ARGS ...]         the benchmarks of a source checkout
       rushlight --version

Runs PyTorch programs with `import torch` meaning Rushlight, in this process and in the Python processes that it starts.
"""


class _Usage(Exception):
    """A wrong command line; the message says what was expected."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: ``sys.argv[1:]``) and return the exit status.

    A program started by ``run`` that ends by ``sys.exit`` lets SystemExit through, so that Python itself applies its
    rules.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    command = args.pop(0) if args else "--help"
    try:
        if command == "run":
            return _run(args)       # the program's own output is its own affair
        from rushlight import _pipe
        return _pipe.quiet(lambda: _other(command, args))
    except _Usage as error:
        print(f"rushlight: {error}\n(rushlight --help shows what there is)", file=sys.stderr)
        return 2


def _other(command: str, args: list[str]) -> int:
    if command == "doctor":
        return _doctor(args)
    if command == "cache":
        return _cache(args)
    if command == "bench":
        return _bench(args)
    if command in ("-V", "--version", "version"):
        print(_version())
        return 0
    if command in ("-h", "--help", "help"):
        print(_USAGE, end="")
        return 0
    raise _Usage(f"unknown command {command!r}: expected run, doctor, cache, bench, --version or --help")


# ---------------------------------------------------------------- run

def _run(args: list[str]) -> int:
    while args and args[0].startswith("--"):
        option = args.pop(0)
        if option in ("-h", "--help"):
            print(_USAGE, end="")
            return 0
        if option == "--legacy" or option.startswith("--legacy="):
            raise _Usage("run --legacy (the names and rules of PyTorch 0.1 to 0.3) comes in a later release; "
                         "run the script without it for the rules of PyTorch 2")
        if option == "--":
            break
        raise _Usage(f"run: unknown option {option!r}: expected --legacy, or a script, -m MODULE, -c CODE or -")
    if not args:
        raise _Usage("run: nothing to run: expected a script, -m MODULE, -c CODE or -")

    from rushlight import alias
    alias.install()

    first = args[0]
    if first == "-h":
        print(_USAGE, end="")
        return 0
    if first.startswith(("-m", "-c")):
        flag, attached = first[:2], first[2:]
        if not attached and len(args) < 2:
            raise _Usage(f"run {flag}: expected an argument")
        what, rest = (attached, args[1:]) if attached else (args[1], args[2:])
        return _run_module(what, rest) if flag == "-m" else _run_code(what, rest)
    if first == "-":
        return _run_stdin(args[1:])
    if first.startswith("-"):
        raise _Usage(f"run: unknown option {first!r}: expected a script, -m MODULE, -c CODE or -")
    return _run_script(first, args[1:])


def _set_path0(entry: str) -> None:
    """Put `entry` where Python puts the script's folder; under ``python -P`` Python puts nothing there."""
    if getattr(sys.flags, "safe_path", False):
        return
    own = _own_path0()
    if sys.path and own is not None and os.path.abspath(sys.path[0] or os.curdir) == own:
        sys.path[0] = entry
    else:
        sys.path.insert(0, entry)


def _own_path0() -> str | None:
    """What Python itself has put at ``sys.path[0]`` for us: the current folder for ``-m``, the folder of the console
    script otherwise."""
    main_module = sys.modules.get("__main__")
    if getattr(main_module, "__spec__", None) is not None:
        return os.getcwd()
    file = getattr(main_module, "__file__", None)
    return None if file is None else os.path.dirname(os.path.realpath(file))


def _new_main(**attributes: Any) -> ModuleType:
    import builtins
    module = ModuleType("__main__")
    module.__dict__.update({"__builtins__": builtins, "__spec__": None, "__package__": None, **attributes})
    if sys.version_info < (3, 14):
        module.__dict__.setdefault("__annotations__", {})
    sys.modules["__main__"] = module
    return module


def _run_script(path: str, args: list[str]) -> int:
    full = os.path.join(os.getcwd(), path)  # Python does not normalise it either
    if os.path.isdir(path) or _is_zip(path):
        # Python runs the __main__ of a folder or a zip file with that at the head of sys.path.
        _set_path0(full)
        return _run_module("__main__", args, argv0=path, shown=full)
    try:
        import io
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        print(f"rushlight: can't open file {full!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 2
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    _set_path0(os.path.dirname(os.path.realpath(full)))
    sys.argv = [path, *args]
    if path.endswith(".pyc"):
        loader: Any = SourcelessFileLoader("__main__", full)
        make = lambda: loader.get_code("__main__")
    else:
        loader = SourceFileLoader("__main__", full)
        make = lambda: compile(source, full, "exec", dont_inherit=True)
    module = _new_main(__file__=full, __cached__=None, __loader__=loader)
    return _execute(make, module)


def _is_zip(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            if file.read(2) not in (b"PK", b"#!"):
                return False
    except OSError:
        return False
    import zipfile
    return zipfile.is_zipfile(path)


def _run_code(code: str, args: list[str]) -> int:
    _set_path0("")
    sys.argv = ["-c", *args]
    return _execute(
        lambda: compile(code, "<string>", "exec", dont_inherit=True), _new_main(__loader__=_builtin_importer())
    )


def _run_stdin(args: list[str]) -> int:
    _set_path0("")
    sys.argv = ["-", *args]
    source = sys.stdin.read()
    return _execute(
        lambda: compile(source, "<stdin>", "exec", dont_inherit=True), _new_main(__loader__=_builtin_importer())
    )


def _builtin_importer() -> Any:
    from importlib.machinery import BuiltinImporter
    return BuiltinImporter


def _run_module(name: str, args: list[str], *, argv0: str | None = None, shown: str | None = None) -> int:
    if argv0 is None:
        _set_path0(os.getcwd())
    sys.argv = ["-m" if argv0 is None else argv0, *args]
    try:
        spec, code = _find_module(name, shown)
    except _NoModule as error:
        print(f"rushlight: {error}", file=sys.stderr)
        return 1
    except BaseException as error:  # raised by a package's own code, on the way to the module
        return _report(error, None)
    if argv0 is None:
        sys.argv[0] = spec.origin or name
    module = _new_main(__file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader, __spec__=spec,
                       __package__=spec.parent)
    return _execute(lambda: code, module)


class _NoModule(Exception):
    """There is no such module to run; the message is the whole report."""


def _find_module(name: str, shown: str | None) -> tuple[Any, CodeType]:
    from importlib.util import find_spec
    if name == "__main__":  # of a folder or zip file: the one at sys.path[0], not the running one
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec("__main__", [shown or sys.path[0]])
        if spec is None:
            raise _NoModule(f"can't find '__main__' module in {shown!r}")
    else:
        try:
            spec = find_spec(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise
            raise _NoModule(str(error)) from None
        except ValueError:  # relative names, or a module without a spec
            spec = None
        if spec is None:
            raise _NoModule(f"No module named {name}")
        if spec.submodule_search_locations is not None:
            try:
                return _find_module(name + ".__main__", shown)
            except _NoModule as error:
                raise _NoModule(f"{error}; {name!r} is a package and cannot be directly executed") from None
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else get_code(spec.name)
    if code is None:
        raise _NoModule(f"No code object available for {name}")
    return spec, code


def _execute(make: Callable[[], CodeType], module: ModuleType) -> int:
    """Execute the code that `make` compiles as `module`, and report what it raises as Python does, without our
    frames."""
    code = None
    try:
        code = make()
        exec(code, module.__dict__)
    except SystemExit as error:
        error.__traceback__ = _trimmed(error, code)
        raise
    except BaseException as error:
        return _report(error, code)
    return 0


def _trimmed(error: BaseException, code: CodeType | None) -> Any:
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code is not code and tb.tb_frame.f_globals is globals():
        tb = tb.tb_next
    while code is None and tb is not None and tb.tb_frame.f_globals.get("__name__", "").startswith("importlib"):
        tb = tb.tb_next
    return tb


def _report(error: BaseException, code: CodeType | None) -> int:
    error.__traceback__ = _trimmed(error, code)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        _interrupt(error)
    return 1


def _interrupt(error: KeyboardInterrupt) -> NoReturn:
    """End as Python does after an interrupt: by the signal itself, so that a calling shell stops too. Reported
    already."""
    sys.excepthook = lambda *_: None
    raise error


# ---------------------------------------------------------------- the other commands

def _version() -> str:
    from rushlight import version
    return f"rushlight {version.rushlight} (torch.__version__ {version.__version__})"


def _doctor(args: list[str]) -> int:
    if any(a != "--json" for a in args):
        raise _Usage(f"doctor: unknown argument {next(a for a in args if a != '--json')!r}: expected nothing or --json")
    from rushlight import _doctor
    facts = _doctor.examine()
    if args:
        import json
        print(json.dumps(facts, indent=2))
    else:
        print(_doctor.describe(facts))
    return 0 if facts["ok"] else 1


def _cache(args: list[str]) -> int:
    action = args[0] if args else "info"
    if action not in ("info", "clear") or len(args) > 1:
        raise _Usage(f"cache: got {' '.join(args)!r}, expected info or clear")
    from rushlight.compiler import cache
    info = cache.info()
    if info.directory is None:
        print("compiled code is not kept on disk: RUSHLIGHT_CACHE is off, or its folder cannot be used safely")
    elif action == "info":
        print(
            f"{info.directory}: {info.files} files, {info.bytes / 2**20:.1f} MiB of at most "
            f"{info.limit / 2**20:.0f} MiB"
        )
    else:
        cache.clear()
        print(f"{info.directory}: removed {info.files} files, {info.bytes / 2**20:.1f} MiB")
    return 0


def _bench(args: list[str]) -> int:
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench", "run.py")
    if not os.path.isfile(script):
        print(
            "rushlight: the benchmarks are part of the source repository (bench/), not of the installed package; "
            "in a checkout: make bench",
            file=sys.stderr,
        )
        return 2
    import subprocess
    return subprocess.call([sys.executable, script, *args])
