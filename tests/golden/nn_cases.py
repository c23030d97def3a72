"""What tests/golden/make_nn.py records of PyTorch and tests/test_nn_layers.py asks of Rushlight.

`LAYERS`: (constructor, inputs of the forward). An input is a shape (values of a fixed sine), ("int", shape, high) for
indices, ("unit", shape) for values in (0, 1), ("sign", shape) for -1 and 1. `INIT`: (function, shape), each drawn after
manual_seed(0).
"""

from __future__ import annotations

import numpy as np

LAYERS: list[tuple[str, list]] = [
    ("Linear(5, 3)", [(4, 5)]),
    ("Linear(5, 3, bias=False)", [(2, 4, 5)]),
    ("Bilinear(3, 4, 2)", [(5, 3), (5, 4)]),
    ("Identity(3, unused=4)", [(2, 3)]),
    ("Conv1d(4, 6, 3, padding=1)", [(2, 4, 7)]),
    ("Conv2d(3, 4, 3)", [(2, 3, 6, 6)]),
    ("Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False)", [(2, 4, 7, 6)]),
    ("Conv2d(2, 3, 3, padding='same', padding_mode='reflect')", [(1, 2, 5, 5)]),
    ("Conv2d(2, 3, (2, 3), padding='same', padding_mode='circular')", [(1, 2, 5, 5)]),
    ("Conv2d(2, 3, 3, padding=(1, 2), padding_mode='replicate')", [(1, 2, 5, 5)]),
    ("Conv3d(2, 3, 2)", [(1, 2, 3, 3, 3)]),
    ("ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)", [(1, 3, 4, 4)]),
    ("MaxPool1d(2)", [(2, 3, 7)]),
    ("MaxPool2d(3, stride=2, padding=1)", [(2, 3, 7, 6)]),
    ("MaxPool2d(2, ceil_mode=True)", [(1, 2, 5, 5)]),
    ("AvgPool1d(3, stride=2)", [(2, 3, 7)]),
    ("AvgPool2d(2, padding=1, count_include_pad=False)", [(1, 2, 5, 5)]),
    ("AdaptiveAvgPool1d(3)", [(2, 3, 7)]),
    ("AdaptiveAvgPool2d((2, None))", [(1, 2, 5, 4)]),
    ("AdaptiveMaxPool2d(2)", [(1, 2, 5, 4)]),
    ("BatchNorm1d(5)", [(4, 5)]),
    ("BatchNorm2d(3, momentum=None)", [(2, 3, 4, 4)]),
    ("BatchNorm2d(3, affine=False, track_running_stats=False)", [(2, 3, 4, 4)]),
    ("LayerNorm(5)", [(4, 5)]),
    ("LayerNorm((3, 5), elementwise_affine=False)", [(4, 3, 5)]),
    ("GroupNorm(2, 4)", [(2, 4, 3)]),
    ("RMSNorm(5)", [(4, 5)]),
    ("Dropout(0.4)", [(64,)]),
    ("Embedding(10, 3, padding_idx=2)", [("int", (2, 4), 10)]),
    ("Embedding(10, 3, padding_idx=-1, max_norm=1.0)", [("int", (6,), 10)]),
    ("Flatten()", [(2, 3, 4)]),
    ("Unflatten(1, (2, 3))", [(2, 6)]),
    *[(name, [(3, 8)]) for name in (
        "ReLU()", "ReLU(inplace=True)", "ReLU6()", "LeakyReLU(0.2)", "PReLU()", "ELU(1.5)", "SELU()", "CELU(0.5)",
        "GELU()",
        "GELU(approximate='tanh')", "SiLU()", "Mish()", "Sigmoid()", "Tanh()", "Softplus(beta=2)", "Softmax(dim=1)",
        "LogSoftmax(dim=0)", "Softmin(dim=1)", "Hardtanh(-0.5, 0.25)", "Hardswish()", "Hardsigmoid()", "Hardshrink()",
        "LogSigmoid()", "Softsign()", "Softshrink()", "Tanhshrink()", "Threshold(0.1, 20.0)", "GLU()")],
    ("CrossEntropyLoss()", [(4, 5), ("int", (4,), 5)]),
    ("CrossEntropyLoss(reduction='sum', label_smoothing=0.1, ignore_index=2)", [(6, 5), ("int", (6,), 5)]),
    ("NLLLoss()", [(4, 5), ("int", (4,), 5)]),
    ("MSELoss()", [(3, 4), ("unit", (3, 4))]),
    ("L1Loss(reduction='none')", [(3, 4), ("unit", (3, 4))]),
    ("SmoothL1Loss(beta=0.5)", [(3, 4), ("unit", (3, 4))]),
    ("HuberLoss(delta=0.5)", [(3, 4), ("unit", (3, 4))]),
    ("BCELoss()", [("unit", (3, 4)), ("unit", (3, 4))]),
    ("BCEWithLogitsLoss()", [(3, 4), ("unit", (3, 4))]),
    ("KLDivLoss(reduction='batchmean')", [(3, 4), ("unit", (3, 4))]),
    ("Sequential(Linear(4, 5), ReLU(), Linear(5, 2))", [(3, 4)]),
    ("Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU(), MaxPool2d(2), Flatten(), Linear(8, 3))", [(2, 1, 6, 6)]),
    ("ModuleList([Linear(2, 3), Linear(2, 3), ReLU()])", []),
    ("ModuleDict({'a': Linear(2, 3), 'b': PReLU(4)})", []),
    ("ModuleList([Sequential(Linear(2, 2), ReLU())] * 3)", []),
    ("AvgPool3d(2)", []),
    ("MaxPool3d(2, dilation=2)", []),
    ("InstanceNorm2d(4, affine=True)", []),
    ("ConvTranspose1d(4, 2, 3)", []),
    ("EmbeddingBag(6, 2, mode='sum')", []),
    ("Upsample(scale_factor=2, mode='bilinear')", []),
    ("PixelShuffle(2)", []),
    ("ZeroPad2d((1, 2, 3, 4))", []),
    ("ConstantPad1d(2, 3.5)", []),
    ("Fold((4, 5), (2, 2))", []),
    ("LPPool2d(2, 3)", []),
    ("AdaptiveMaxPool3d((1, None, 2))", []),
    ("LocalResponseNorm(2)", []),
    ("FractionalMaxPool2d(3, output_size=2)", []),
    ("RReLU()", []),
    ("Softmax2d()", []),
    ("AlphaDropout()", []),
]

INIT: list[tuple[str, tuple[int, ...]]] = [
    ("uniform_(t, -2, 3)", (5, 7)),
    ("normal_(t, 1, 2)", (5, 7)),
    ("trunc_normal_(t)", (5, 7)),
    ("trunc_normal_(t, 0.5, 0.3, 0.4, 0.6)", (5, 7)),
    ("trunc_normal_(t, 0.0, 1.0, 1.5, 2.5)", (5, 7)),
    ("constant_(t, 0.3)", (2, 3)),
    ("ones_(t)", (2, 3)),
    ("zeros_(t)", (2, 3)),
    ("eye_(t)", (3, 4)),
    ("dirac_(t)", (4, 3, 3)),
    ("dirac_(t, 2)", (4, 2, 3, 3)),
    ("dirac_(t)", (2, 2, 2, 3, 3)),
    ("xavier_uniform_(t)", (4, 5)),
    ("xavier_normal_(t, gain=2.0)", (4, 5, 2)),
    ("kaiming_uniform_(t)", (4, 5)),
    ("kaiming_uniform_(t, a=0.3, mode='fan_out')", (4, 5, 2)),
    ("kaiming_normal_(t, nonlinearity='relu')", (4, 5)),
    ("kaiming_normal_(t, mode='fan_out', nonlinearity='tanh')", (3, 2, 3, 3)),
    ("orthogonal_(t)", (3, 5)),
    ("orthogonal_(t, 2.0)", (5, 3)),
    ("orthogonal_(t)", (4, 2, 2)),
    ("sparse_(t, 0.4)", (5, 3)),
]


def make_input(spec) -> np.ndarray:
    """The array that `spec` describes."""
    kind, shape = ("float", spec) if not spec or isinstance(spec[0], int) else spec[:2]
    n = int(np.prod(shape))
    wave = np.sin(np.arange(n) * 1.7 + 0.3).reshape(shape)
    if kind == "int":
        return (np.arange(n) * 7 % spec[2]).astype(np.int64).reshape(shape)
    if kind == "unit":
        return (0.5 + 0.45 * wave).astype(np.float32)
    if kind == "sign":
        return np.sign(wave).astype(np.float32)
    return (1.5 * wave).astype(np.float32)


def parameters_of(module):
    """Sines of different phase for the parameters, so that a forward depends on every one of them."""
    for i, (_, p) in enumerate(module.named_parameters()):
        yield p, (0.8 * np.sin(np.arange(p.numel()) * 0.9 + i)).astype(np.float32).reshape(tuple(p.shape))
