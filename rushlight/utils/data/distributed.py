"""Sampling for several processes that share one dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import rushlight as torch
from rushlight import _missing

from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th key, beginning with `rank`.

    Args:
        dataset: only its length is read.
        num_replicas, rank: number of processes and own number; default: those of the process group.
        shuffle: permute by a generator seeded with seed + epoch (default True); call `set_epoch` before each epoch.
        seed: the same in all processes (default 0).
        drop_last: leave out keys that don't divide evenly, instead of repeating the first ones (default False).
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        if num_replicas is None or rank is None:
            dist = getattr(torch, "distributed", None)
            if dist is None or not dist.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            keys = torch.randperm(n, generator=generator).tolist()
        else:
            keys = list(range(n))
        if len(keys) < self.total_size:
            keys *= math.ceil(self.total_size / n)
        return iter(keys[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of that epoch."""
        self.epoch = epoch


_missing.hint(__name__)
