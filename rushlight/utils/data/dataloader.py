"""DataLoader: batches of a dataset, one after another."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from rushlight import _missing

from ...core.errors import warn_once
from . import _utils
from ._utils.collate import default_collate, default_convert
from ._utils.pin_memory import accelerator_available, pin_memory
from ._utils.worker import get_worker_info
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        cls = _utils.fetch._MapDatasetFetcher if kind == _DatasetKind.Map else _utils.fetch._IterableDatasetFetcher
        return cls(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler[None]):
    """The keys of a stream, which needs none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[_T_co]):
    """An iterable of batches of `dataset`.

    Args:
        dataset: map-style (`__getitem__`, `__len__`) or an IterableDataset.
        batch_size: samples a batch (default 1); None: samples as they come, one by one.
        shuffle: new random order in each epoch (default False).
        sampler: gives the keys instead; excludes shuffle. batch_sampler: gives lists of keys; excludes the four others.
        num_workers: loading is done in this process so far, whatever is asked for (with a warning); the batches and their
            order are those that workers would give. More than one worker for an IterableDataset is a NotImplementedError.
        collate_fn: list of samples -> batch (default `default_collate`, or `default_convert` without batching).
        pin_memory: copy batches to page-locked memory; without an accelerator it warns and does nothing.
        drop_last: leave out a last, incomplete batch (default False).
        timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers, in_order: for workers; they
            are checked and kept, and without processes only the last but one matters (it keeps the iterator).
        generator: random numbers of the shuffling; default: the global stream, which every iterator takes one draw from
            in any case, and a shuffling one another.
    """

    __initialized = False

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable | None = None, multiprocessing_context: Any = None, generator: Any = None, *,
                 prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True) -> None:
        _check_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        self.dataset, self.num_workers, self.prefetch_factor = dataset, num_workers, prefetch_factor
        self.pin_memory, self.pin_memory_device, self.timeout = pin_memory, pin_memory_device, timeout
        self.worker_init_fn, self.in_order = worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                                     f"{name}={value}")
        else:
            self._dataset_kind = _DatasetKind.Map
            shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                                 "drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._IterableDataset_len_called: int | None = None
        self._iterator: _BaseDataLoaderIter | None = None
        if num_workers > 0:
            if num_workers > 1 and self._dataset_kind == _DatasetKind.Iterable:
                raise NotImplementedError(
                    f"DataLoader got num_workers={num_workers} for an IterableDataset, whose samples depend on the worker "
                    "processes, which Rushlight does not have yet: pass num_workers=0 (the default)")
            warn_once("DataLoader workers", f"DataLoader got num_workers={num_workers}: Rushlight has no worker processes yet, "
                      "batches are loaded in the program's own process; their order and content are the same (random numbers "
                      "that the dataset draws come from the program's own generators)", 2)

    @property
    def multiprocessing_context(self) -> Any:
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            import multiprocessing
            if not self.num_workers > 0:
                raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                                 f"but got num_workers={self.num_workers}")
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(f"multiprocessing_context option should specify a valid start method in {methods!r}, but "
                                     f"got multiprocessing_context={context!r}")
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the "
                                f"start method, but got multiprocessing_context={context}")
        self.__multiprocessing_context = context

    def __setattr__(self, attr: str, val: Any) -> None:
        if self.__initialized and attr in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset",
                                           "persistent_workers"):
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, val)

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _InsteadOfWorkersIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        """Number of batches. Of an IterableDataset it is what its `__len__` promises; iterating warns when that is
        exceeded."""
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """Nothing to warn about while all loading is done in this process."""


def _check_worker_options(num_workers: int, timeout: float, prefetch_factor: int | None,
                          persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to "
                         "enable "
                         "multiprocessing, otherwise set prefetch_factor to None.")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


class _BaseDataLoaderIter:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        available = accelerator_available()
        if loader.pin_memory and not available:
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
                          "won't "
                          "be used.", stacklevel=4)
        self._pin_memory = loader.pin_memory and available
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = draw_seed(loader.generator)      # the workers' seed: drawn without workers too
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        promised = self._IterableDataset_len_called
        if promised is not None and self._dataset_kind == _DatasetKind.Iterable and self._num_yielded > promised:
            warnings.warn(f"Length of IterableDataset {self._dataset} was reported to be {promised}(when accessing "
                          f"len(dataloader)), but {self._num_yielded} samples have been fetched. ", stacklevel=2)
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Loading in the calling process."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if self._timeout != 0 and self._num_workers == 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._dataset_fetcher = _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation,
                                                            self._collate_fn, self._drop_last)

    def _next_data(self) -> Any:
        data = self._dataset_fetcher.fetch(self._next_index())
        return pin_memory(data) if self._pin_memory else data


class _InsteadOfWorkersIter(_SingleProcessDataLoaderIter):
    """Loading in the calling process where workers were asked for. Keys are taken from the sampler as early as for workers,
    so that random numbers which the program draws between two batches are the same, too."""

    def __init__(self, loader: DataLoader) -> None:
        if loader.prefetch_factor is None or loader.prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        super().__init__(loader)
        self._ahead: deque[Any] = deque()
        self._take(loader)

    def _take(self, loader: DataLoader) -> None:
        assert loader.prefetch_factor is not None
        self._ahead.clear()
        for _ in range(loader.prefetch_factor * self._num_workers):
            self._take_one()

    def _take_one(self) -> None:
        try:
            self._ahead.append(next(self._sampler_iter))
        except StopIteration:
            pass

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        self._dataset_fetcher = _DatasetKind.create_fetcher(self._dataset_kind, self._dataset, self._auto_collation,
                                                            self._collate_fn, self._drop_last)
        self._take(loader)

    def _next_index(self) -> Any:
        if not self._ahead:
            raise StopIteration
        self._take_one()
        return self._ahead.popleft()


_missing.hint(__name__)
