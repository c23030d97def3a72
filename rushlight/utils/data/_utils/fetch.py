"""Fetching: the samples of a batch of keys, collated."""

from __future__ import annotations

from typing import Any

import numpy as np

import rushlight as torch

from ....core.tensor import wrap
from ..dataset import Subset, TensorDataset
from .collate import is_default

__all__ = ["_IterableDatasetFetcher", "_MapDatasetFetcher"]


class _BaseDatasetFetcher:
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        self.dataset, self.auto_collation = dataset, auto_collation
        self.collate_fn, self.drop_last = collate_fn, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of a list of keys, or without automatic batching the converted sample of one."""
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples: list[Any] = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or self.drop_last and len(samples) < len(possibly_batched_index):
            raise StopIteration
        return self.collate_fn(samples)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    def fetch(self, possibly_batched_index: Any) -> Any:
        dataset = self.dataset
        if not self.auto_collation:
            return self.collate_fn(dataset[possibly_batched_index])
        batch = self._rows(possibly_batched_index)
        if batch is not None:
            return batch
        if getattr(dataset, "__getitems__", None):
            return self.collate_fn(dataset.__getitems__(possibly_batched_index))
        return self.collate_fn([dataset[i] for i in possibly_batched_index])

    def _rows(self, keys: Any) -> list | None:
        """The batch of a plain TensorDataset (or a Subset of one) by one index operation a tensor: the same numbers in
        the same layout as stacking the samples. None where that can't be promised."""
        dataset = self.dataset
        subset = type(dataset) is Subset
        if not is_default(self.collate_fn):
            return None
        source = dataset.dataset if subset else dataset
        if type(source) is not TensorDataset or type(source).__getitem__ is not _plain_getitem:
            return None
        if hasattr(source, "__getitems__") or not isinstance(keys, list) or not keys:
            return None
        for t in source.tensors:
            if type(t) is not torch.Tensor or t.requires_grad or type(t._a) is not np.ndarray or not t._a.size:
                return None
        try:
            index = np.array([dataset.indices[k] for k in keys] if subset else keys)
            if index.dtype.kind != "i" or index.ndim != 1:
                return None
            arrays = [t._a.take(index, axis=0) for t in source.tensors]
        except (IndexError, TypeError, ValueError):
            return None      # the ordinary way raises the error that the sample itself raises
        return [wrap(a) for a in arrays]


_plain_getitem = TensorDataset.__getitem__
