"""`torch.nn.functional`: the operators whose records name this namespace.

Nothing is defined here: a name is looked up in the operator registry when it is first used, then kept. Importing this
module therefore costs nothing, and an operator stays declared once (rushlight/ops).
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rushlight import ops

    try:
        function = ops.function(name, "nn.functional")
    except (KeyError, AttributeError):
        raise AttributeError(f"module 'torch.nn.functional' has no attribute {name!r}") from None
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    from rushlight import ops

    return sorted({*globals(), *ops.names("nn.functional")})
