"""Define-by-run differentiation: the tape's nodes, the engine that walks it, modes, custom functions, gradcheck.

`modes`, `node` and `engine` know tensors and nothing of operators (the engine adds gradients through a late import); the
operators' wrappers record through them. The rest (`function`, `gradcheck`, `anomaly_mode`, ...) is the public face,
resolved lazily.
"""

from __future__ import annotations

from typing import Any

from rushlight import _missing

_WHERE = {
    "no_grad": "modes", "enable_grad": "modes", "set_grad_enabled": "modes", "inference_mode": "modes",
    "set_multithreading_enabled": "modes", "is_grad_enabled": "modes", "detect_anomaly": "modes", "set_detect_anomaly": "modes",
    "backward": "engine", "grad": "engine", "Function": "function", "NestedIOFunction": "function", "Variable": "function",
    "gradcheck": "gradcheck", "gradgradcheck": "gradcheck",
}
_MODULES = ("modes", "node", "engine", "function", "gradcheck", "graph", "grad_mode", "anomaly_mode", "variable", "functional")
__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    from importlib import import_module
    if name in _WHERE:
        m = import_module("." + _WHERE[name], __name__)
        value = m if name == "gradcheck" and not hasattr(m, name) else getattr(m, name)
        globals()[name] = value
        return value
    if name in _MODULES:
        try:
            return import_module("." + name, __name__)
        except ModuleNotFoundError:
            pass
    raise _missing.missing(__name__, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
