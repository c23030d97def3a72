"""`torch.backends.cuda`: settings of a backend that is not there; they have no effect."""


class _Matmul:
    allow_tf32 = False


matmul = _Matmul()


def is_built() -> bool:
    return False
