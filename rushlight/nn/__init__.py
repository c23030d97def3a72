"""Neural networks: Module and the layers, functional operators, initialisation, utilities.

Everything is imported when first asked for. Operators are not defined here: `functional` shows those of rushlight/ops.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rushlight import _missing

from . import modules

_SUBMODULES = ("functional", "init", "modules", "parallel", "parameter", "utils")
_PARAMETER = ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter")

__all__ = [*modules.__all__, *_PARAMETER, "DataParallel", "factory_kwargs"]


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The keyword arguments for factory functions (device, dtype, memory_format) among a module's `kwargs`.

    They may also come as a dictionary under "factory_kwargs". TypeError for anything else, and for what is given twice.
    """
    if kwargs is None:
        return {}
    simple = ("device", "dtype", "memory_format")
    unexpected = kwargs.keys() - {*simple, "factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in simple:
        if key in kwargs:
            if key in result:
                raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
            result[key] = kwargs[key]
    return result


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        value: Any = import_module(f"{__name__}.{name}")
    elif name in _PARAMETER:
        value = getattr(import_module(f"{__name__}.parameter"), name)
    elif name == "DataParallel":
        value = import_module(f"{__name__}.parallel").DataParallel
    elif name in modules.__all__:
        value = getattr(modules, name)
    else:
        raise _missing.missing(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
