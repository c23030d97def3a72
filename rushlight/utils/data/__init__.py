"""Datasets, samplers and loaders.

Batches are made in the calling process, in the order that PyTorch gives for the same seed: the same draws are taken
from the random stream, in the same order. Knows tensors, collections and NumPy; must not import nn, optim, autograd or
the compiler.
"""

from rushlight import _missing

from ._utils.worker import get_worker_info
from .dataloader import DataLoader, _DatasetKind, default_collate, default_convert
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
           "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
           "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "default_collate",
           "default_convert", "get_worker_info", "random_split"]


_missing.hint(__name__)
