"""`torch.backends.cudnn`: the settings that programs make; without a CUDA backend they have no effect."""

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: there is no cuDNN here."""
    return False


def version() -> None:
    return None
