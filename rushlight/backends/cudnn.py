"""`torch.backends.cudnn`: the settings that programs make; without a CUDA backend they have no effect."""

from rushlight import _missing

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: there is no cuDNN here."""
    return False


def version() -> None:
    return None


_missing.hint(__name__)
