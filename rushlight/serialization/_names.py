"""What PyTorch calls things in its files, and what they are here.

Checkpoints name classes and functions by module and name. Ours are written under PyTorch's names, and PyTorch's
names are read as ours, so that files pass both ways, also beside an imported PyTorch.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

__all__ = ["of_file", "to_file"]

# Classes that a public namespace shows and another module defines: (namespace, PyTorch's defining module) -> names.
_DEFINED = {
    ("nn", "nn.parameter"): "Buffer Parameter UninitializedBuffer UninitializedParameter",
    ("nn", "nn.modules.module"): "Module",
    ("nn", "nn.modules.container"): "Container ModuleDict ModuleList ParameterDict ParameterList Sequential",
    ("nn", "nn.modules.linear"): "Bilinear Identity LazyLinear Linear",
    (
        "nn",
        "nn.modules.activation",
    ): "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
    "MultiheadAttention PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
    "Softsign Tanh Tanhshrink Threshold",
    ("nn", "nn.modules.adaptive"): "AdaptiveLogSoftmaxWithLoss",
    (
        "nn",
        "nn.modules.batchnorm",
    ): "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm",
    ("nn", "nn.modules.channelshuffle"): "ChannelShuffle",
    (
        "nn",
        "nn.modules.conv",
    ): "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
    "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    ("nn", "nn.modules.distance"): "CosineSimilarity PairwiseDistance",
    ("nn", "nn.modules.dropout"): "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    ("nn", "nn.modules.flatten"): "Flatten Unflatten",
    ("nn", "nn.modules.fold"): "Fold Unfold",
    (
        "nn",
        "nn.modules.instancenorm",
    ): "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
    (
        "nn",
        "nn.modules.loss",
    ): "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss "
    "HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss MSELoss MarginRankingLoss MultiLabelMarginLoss "
    "MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss "
    "TripletMarginLoss TripletMarginWithDistanceLoss",
    ("nn", "nn.modules.normalization"): "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    (
        "nn",
        "nn.modules.padding",
    ): "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
    "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d ZeroPad3d",
    ("nn", "nn.modules.pixelshuffle"): "PixelShuffle PixelUnshuffle",
    (
        "nn",
        "nn.modules.pooling",
    ): "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d "
    "AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d "
    "MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d",
    ("nn", "nn.modules.rnn"): "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    ("nn", "nn.modules.sparse"): "Embedding EmbeddingBag",
    (
        "nn",
        "nn.modules.transformer",
    ): "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer",
    ("nn", "nn.modules.upsampling"): "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
    ("nn", "nn.parallel.data_parallel"): "DataParallel",
    ("optim", "optim.optimizer"): "Optimizer",
    ("optim", "optim.adadelta"): "Adadelta",
    ("optim", "optim.adagrad"): "Adagrad",
    ("optim", "optim.adam"): "Adam",
    ("optim", "optim.adamax"): "Adamax",
    ("optim", "optim.adamw"): "AdamW",
    ("optim", "optim.asgd"): "ASGD",
    ("optim", "optim.lbfgs"): "LBFGS",
    ("optim", "optim.nadam"): "NAdam",
    ("optim", "optim.radam"): "RAdam",
    ("optim", "optim.rmsprop"): "RMSprop",
    ("optim", "optim.rprop"): "Rprop",
    ("optim", "optim.sgd"): "SGD",
    ("optim", "optim.sparse_adam"): "SparseAdam",
    ("utils.data", "utils.data._utils.collate"): "default_collate default_convert",
    ("utils.data", "utils.data.dataloader"): "DataLoader",
    (
        "utils.data",
        "utils.data.dataset",
    ): "ChainDataset ConcatDataset Dataset IterableDataset StackDataset Subset TensorDataset random_split",
    ("utils.data", "utils.data.distributed"): "DistributedSampler",
    (
        "utils.data",
        "utils.data.sampler",
    ): "BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler WeightedRandomSampler",
}
_BY_NAME = {(face, name): module for (face, module), names in _DEFINED.items() for name in names.split()}

# Namespaces whose public names are looked up here when a file names a defining module that does not exist under that
# name.
_FACES = ("nn.functional", "nn.init", "nn.utils", "nn", "optim.lr_scheduler", "optim.swa_utils", "optim", "utils.data",
          "distributions", "autograd", "jit", "linalg", "fft", "special", "return_types")


def _attribute(module: str, name: str) -> Any:
    """`name` (with dots) of Rushlight's module `module`, or None where either does not exist."""
    full = "rushlight." + module if module else "rushlight"
    try:
        value: Any = importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name is None or not (full == error.name or full.startswith(error.name + ".")):
            raise
        return None
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return None
    return value


@cache
def _fixed() -> dict[tuple[str, str], Any]:
    """Names that are not found by their place: the file format's own functions, dtypes, storages."""
    from ..core import device, storage, tensor
    from ..core import dtype as dtypes
    from ..torch_version import TorchVersion
    from . import _rebuild

    table: dict[tuple[str, str], Any] = {
        ("torch._utils", n): f for n, f in vars(_rebuild).items() if n.startswith("_rebuild_")
    }
    table["torch._tensor", "_rebuild_from_type_v2"] = table.pop(("torch._utils", "_rebuild_from_type_v2"))
    table["torch.serialization", "_get_layout"] = _rebuild._get_layout
    table.update({("torch", d.name): d for d in dtypes.ALL.values()})
    table.update({("torch", n): c for n, c in storage.LEGACY_CLASSES.items()})
    table["torch.storage", "UntypedStorage"] = storage.UntypedStorage
    table["torch.storage", "TypedStorage"] = storage.TypedStorage
    table["torch", "Tensor"] = tensor.Tensor
    table["torch", "Size"] = tensor.Size
    table["torch", "device"] = device.device
    table["torch.torch_version", "TorchVersion"] = TorchVersion
    from ..nn.parameter import Parameter
    table["torch.nn.parameter", "Parameter"] = Parameter
    generator = _attribute("", "Generator")
    if generator is not None:
        table["torch._C", "Generator"] = generator
    return table


@cache
def _fixed_back() -> dict[int, tuple[str, str]]:
    return {id(value): name for name, value in _fixed().items()}


def of_file(module: str, name: str) -> Any:
    """Rushlight's object for PyTorch's `module`, `name`. AttributeError where there is none."""
    found = _fixed().get((module, name))
    if found is None and (module, name) in _OLD_NAMES:
        found = _fixed()[_OLD_NAMES[module, name]]
    if found is None:
        inner = module[6:]  # after "torch."
        inner = {"storage": "core.storage", "_tensor": "core.tensor"}.get(inner, inner)
        found = _attribute(inner, name)
        if found is None:
            for face in _FACES:
                if inner.startswith(face + "."):
                    found = _attribute(face, name)
                    break
    if found is None and (module, name) == ("torch._C", "_VariableFunctionsClass"):
        found = sys.modules["rushlight"]  # PyTorch writes its built-in functions as attributes of this class
    if found is None and module in ("torch._C._nn", "torch._C._VariableFunctions"):
        found = _attribute("", name)
        if found is None:
            found = _attribute("nn.functional", name)
    if found is None:
        raise AttributeError(f"Can't get attribute {name!r} on module {module!r}: Rushlight does not have it")
    return found


_OLD_NAMES = {
    ("torch.tensor", "_rebuild_from_type_v2"): ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch._tensor", "Tensor"): ("torch", "Tensor"),
    ("torch._C", "_TensorBase"): ("torch", "Tensor"),
    ("torch.autograd.variable", "Variable"): ("torch", "Tensor"),
    ("torch.storage", "_UntypedStorage"): ("torch.storage", "UntypedStorage"),
    ("torch", "UntypedStorage"): ("torch.storage", "UntypedStorage"),
    ("torch.nn", "Parameter"): ("torch.nn.parameter", "Parameter"),
}


def to_file(obj: Any, name: str | None = None) -> tuple[str, str] | None:
    """PyTorch's module and name for an object of Rushlight's; None for everything else."""
    fixed = _fixed_back().get(id(obj))
    if fixed is not None:
        return fixed
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not module.startswith("rushlight"):
        return None
    name = str(name or getattr(obj, "__qualname__", None) or getattr(obj, "__name__", ""))
    if module == "rushlight":
        return ("torch", name) if _attribute("", name) is obj else None
    inner = module[10:]
    for face in _FACES:
        if (inner == face or inner.startswith(face + ".")) and _attribute(face, name) is obj:
            return "torch." + _BY_NAME.get((face, name), inner), name
    return None


def loaded_torch() -> Any:
    """The module that `import torch` gives in this process, if any."""
    return sys.modules.get("torch")
