"""`torch.backends.mps`: there is no such backend."""


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False
