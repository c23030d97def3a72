"""What is said when a program asks for a name that Rushlight does not have: the same hint for `torch.nn.X`, `from torch.nn import X`
and `import torch.X`, under PyTorch's name of the module."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

__all__ = ["HINT", "Finder", "hint", "missing", "public"]

HINT = "if PyTorch has it, Rushlight does not have it yet"
_ROOT = "rushlight"


def public(module: str) -> str:
    """PyTorch's name of one of our modules."""
    return "torch" + module[len(_ROOT):] if module == _ROOT or module.startswith(_ROOT + ".") else module


def missing(module: str, name: str) -> Exception:
    """What the `__getattr__` of `module` raises for a name that it does not have: an AttributeError, or the ImportError that
    Python's `from module import name` would turn it into, which would lose the hint."""
    if name[:2] == "__":    # Python's own questions; there is nothing to say
        return AttributeError(f"module {public(module)!r} has no attribute {name!r}")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "__getattr__":      # helpers of the module's function
        frame = frame.f_back
    frame = frame and frame.f_back
    if frame is not None:
        from opcode import opmap
        code = frame.f_code.co_code
        if 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] == opmap["IMPORT_FROM"]:
            path = getattr(sys.modules.get(module), "__file__", None)
            return ImportError(f"cannot import name {name!r} from {public(module)!r}: {HINT}", name=module, path=path)
    return AttributeError(f"module {public(module)!r} has no attribute {name!r}: {HINT}")


def hint(module: str) -> None:
    """Give `module`, whose names are all there when it is loaded, a `__getattr__` that says the above for others."""
    def __getattr__(name: str) -> Any:
        raise missing(module, name)

    sys.modules[module].__dict__["__getattr__"] = __getattr__     # not as a definition: type checkers know the names


class Finder:
    """The last entry of `sys.meta_path`: a ModuleNotFoundError with the hint for modules of Rushlight's that nobody has found."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> None:
        if not fullname.startswith(_ROOT + "."):
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").startswith(("importlib._bootstrap", "_frozen_importlib")):
            frame = frame.f_back
        if frame is not None and frame.f_globals.get("__name__") == "importlib.util":
            return      # `importlib.util.find_spec` wants None
        raise ModuleNotFoundError(f"No module named {fullname!r}: {HINT}", name=fullname)
