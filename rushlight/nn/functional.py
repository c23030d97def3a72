"""`torch.nn.functional`: the operators whose records name this namespace.

Nothing is defined here: a name is looked up in the operator registry when it is first used, then kept. Importing this
module therefore costs nothing, and an operator stays declared once (rushlight/ops).
"""

from __future__ import annotations

from typing import Any

from rushlight import _missing

# Operators of the main namespace that PyTorch shows here too.
_SHARED = frozenset({
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "hardshrink",
    "native_channel_shuffle", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_",
    "rrelu_", "selu_", "sigmoid", "tanh", "threshold_",
})
# In-place functions by PyTorch's names.
_INPLACE = ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_")


def _find(name: str) -> Any:
    from rushlight import ops
    from rushlight.ops.declare import NAMESPACES

    ops.load()
    for namespace in ("nn.functional", "torch") if name in _SHARED else ("nn.functional",):
        table = NAMESPACES.get(namespace, {})
        if name in table:
            return table[name].function
        plain = table.get(name[:-1]) if name.endswith("_") else None
        if plain is not None and plain.inplace:
            return plain.inplace_function
    return None


def __getattr__(name: str) -> Any:
    if name == "__all__":  # what `import *` asks for
        return [n for n in (*__dir__(), *_INPLACE) if n[0] != "_" and n not in ("Any", "annotations")]
    function = None if name.startswith("__") else _find(name)
    if function is None:
        raise _missing.missing(__name__, name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    from rushlight import ops

    return sorted({*globals(), *ops.names("nn.functional"), *_SHARED.intersection(ops.names())})
