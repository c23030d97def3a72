"""What a worker process knows of itself. Worker processes do not exist yet: this is always the main process."""

from __future__ import annotations

from typing import Any

__all__ = ["WorkerInfo", "get_worker_info"]


class WorkerInfo:
    """`id`, `num_workers`, `seed` and `dataset` of a worker; read-only."""

    _names: tuple[str, ...]

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.__dict__["_names"] = tuple(fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={getattr(self, k)}' for k in self._names)})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The WorkerInfo of this worker process; None in the main process."""
    return _worker_info
