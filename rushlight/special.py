"""`torch.special`: the operators whose records name this namespace, looked up when first used."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from rushlight import ops
    if name == "__all__":  # what `import *` asks for
        return ops.names("special")
    if name.startswith("__"):
        raise AttributeError(name)
    value = ops.attribute("special", name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from rushlight import ops
    return sorted({*globals(), *ops.names("special")})
