"""`torch.linalg`: the operators whose records name this namespace, looked up when first used."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from rushlight import ops
    if name == "__all__":  # what `import *` asks for
        return ["LinAlgError", *ops.names("linalg")]
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "LinAlgError":
        from rushlight.core.errors import LinAlgError as value
    else:
        value = ops.attribute("linalg", name)  # type: ignore[misc, assignment]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from rushlight import ops
    return sorted({*globals(), "LinAlgError", *ops.names("linalg")})
