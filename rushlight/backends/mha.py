"""`torch.backends.mha`: whether attention modules may take a fast path; there is none, so it has no effect."""

from rushlight import _missing

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_enabled = True


def get_fastpath_enabled() -> bool:
    """What `set_fastpath_enabled` was given last; True at start."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Accepted."""
    global _enabled
    _enabled = value


_missing.hint(__name__)
