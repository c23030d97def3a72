"""`torch.return_types`: the classes of operators' several results, by the operators' names."""

from __future__ import annotations

from typing import Any

from rushlight import _missing


def __getattr__(name: str) -> Any:
    from .ops import declare, execute, load

    load()
    if name not in declare.RESULTS:
        raise _missing.missing(__name__, name)
    return execute.named_type(declare.RESULTS[name])


def __dir__() -> list[str]:
    from .ops import declare

    return sorted({*globals(), *declare.RESULTS})
