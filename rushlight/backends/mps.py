"""`torch.backends.mps`: there is no such backend."""

from rushlight import _missing


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False


_missing.hint(__name__)
