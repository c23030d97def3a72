"""Datasets, samplers, collating and the loader: orders recorded from PyTorch 2.13, structure, laws, errors."""

from __future__ import annotations

import json
import sys
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight.utils import data as D

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import optim_cases as cases  # noqa: E402

GOLDEN = json.loads((Path(__file__).parent / "golden" / "optim.json").read_text())["orders"]
Point = namedtuple("Point", "x y")


class Squares(D.Dataset):
    """Counts how its samples are asked for."""

    def __init__(self, n):
        self.n, self.asked = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.asked.append(i)
        return i * i


class Stream(D.IterableDataset):
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Sized(Stream):
    def __len__(self):
        return 3


def lists(batches):
    return [b.tolist() for b in batches]


# --- order ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", cases.orders())
def test_orders_are_pytorchs(name):
    """Also the draw that follows: the global stream has moved as far as PyTorch's."""
    assert json.loads(json.dumps(cases.order(torch, cases.orders()[name]))) == GOLDEN[name]


def test_an_iterator_takes_one_draw_and_a_shuffling_one_two():
    def draws(loader):
        torch.manual_seed(1)
        list(loader)
        return torch.randint(1 << 40, ()).item()
    data = Squares(6)
    wanted = []
    for n in (1, 2):
        torch.manual_seed(1)
        for _ in range(n):
            torch.empty((), dtype=torch.int64).random_()
        wanted.append(torch.randint(1 << 40, ()).item())
    assert [draws(D.DataLoader(data)), draws(D.DataLoader(data, shuffle=True))] == wanted


# --- datasets ---------------------------------------------------------------------------------------------------------
def test_dataset_base_class():
    with pytest.raises(NotImplementedError, match="Subclasses of Dataset should implement __getitem__"):
        D.Dataset()[0]
    assert not hasattr(D.Dataset(), "__len__")
    both = Squares(3) + Squares(2)
    assert isinstance(both, D.ConcatDataset) and [both[i] for i in range(5)] == [0, 1, 4, 0, 1]
    assert isinstance(D.Dataset[int], type(list[int])) or D.Dataset[int].__origin__ is D.Dataset


def test_tensor_dataset():
    x, y = torch.arange(6.0).reshape(3, 2), torch.arange(3)
    data = D.TensorDataset(x, y)
    assert len(data) == 3
    assert data[1][0].tolist() == [2.0, 3.0] and data[-1][1].item() == 2
    assert [t.tolist() for t in data[1:]] == [[[2.0, 3.0], [4.0, 5.0]], [1, 2]]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        D.TensorDataset(x, torch.arange(4))


def test_stack_dataset():
    pairs = D.StackDataset(Squares(3), Squares(3))
    named = D.StackDataset(a=Squares(3), b=D.Subset(Squares(9), [8, 7, 6]))
    assert pairs[2] == (4, 4) and len(pairs) == 3
    assert named[1] == {"a": 1, "b": 49}
    assert named.__getitems__([0, 2]) == [{"a": 0, "b": 64}, {"a": 4, "b": 36}]
    assert pairs.__getitems__([2, 1]) == [(4, 4), (1, 1)]
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        D.StackDataset(Squares(3), Squares(2))
    with pytest.raises(ValueError, match="At least one dataset should be passed"):
        D.StackDataset()
    with pytest.raises(ValueError, match="both types are given"):
        D.StackDataset(Squares(3), b=Squares(3))

    class Short(Squares):
        def __getitems__(self, indices):
            return [0]
    with pytest.raises(ValueError, match="Nested dataset's output size mismatch. Expected 2, got 1"):
        D.StackDataset(Short(3)).__getitems__([0, 1])


def test_concat_dataset():
    data = D.ConcatDataset([Squares(2), Squares(0), Squares(3)])
    assert data.cumulative_sizes == [2, 2, 5] and len(data) == 5
    assert [data[i] for i in range(-5, 5)] == [0, 1, 0, 1, 4] * 2
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        data[-6]
    with pytest.raises(AssertionError, match="datasets should not be an empty iterable"):
        D.ConcatDataset([])
    with pytest.raises(AssertionError, match="ConcatDataset does not support IterableDataset"):
        D.ConcatDataset([Stream(1)])
    with pytest.warns(FutureWarning, match="renamed to `cumulative_sizes`"):
        assert data.cummulative_sizes == [2, 2, 5]


def test_chain_dataset():
    chain = Sized(1, 2, 3) + Sized(4, 5, 6)
    assert list(chain) == [1, 2, 3, 4, 5, 6] and len(chain) == 6
    with pytest.raises(AssertionError, match="ChainDataset only supports IterableDataset"):
        list(D.ChainDataset([Squares(2)]))


def test_subset():
    data = Squares(10)
    part = D.Subset(D.Subset(data, [9, 8, 7, 6]), [0, 3])
    assert [part[0], part[1], len(part)] == [81, 36, 2]
    assert part.__getitems__([1, 0]) == [36, 81]
    tensors = D.Subset(D.TensorDataset(torch.arange(5) * 10), [4, 2, 0])
    assert tensors[[0, 1]][0].tolist() == [40, 20]

    class Half(D.Subset):
        def __getitem__(self, i):
            return super().__getitem__(i) / 2
    with pytest.raises(NotImplementedError, match="Half overrides __getitem__ but not __getitems__"):
        Half(data, [1])


def test_random_split_covers_everything_once():
    parts = D.random_split(Squares(10), [0.55, 0.25, 0.2])
    assert [len(p) for p in parts] == [6, 2, 2]      # rounded down, the one left over goes to the first
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    with pytest.raises(ValueError, match="Sum of input lengths does not equal the length of the input dataset"):
        D.random_split(Squares(10), [3, 3])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        D.random_split(Squares(10), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        D.random_split(Squares(1), [0.5, 0.5])


# --- samplers ---------------------------------------------------------------------------------------------------------
def test_batch_sampler():
    assert list(D.BatchSampler(range(7), 3, False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(D.BatchSampler(range(7), 3, True)) == [[0, 1, 2], [3, 4, 5]]
    assert [len(D.BatchSampler(range(7), 3, d)) for d in (False, True)] == [3, 2]
    assert list(D.BatchSampler(iter([]), 3, False)) == []


def test_random_samplers_give_what_they_say():
    assert sorted(D.RandomSampler(range(9))) == list(range(9))
    repeated = list(D.RandomSampler(range(9), num_samples=21))
    assert sorted(repeated[:9]) == sorted(repeated[9:18]) == list(range(9)) and len(repeated) == 21
    assert set(D.RandomSampler(range(3), replacement=True, num_samples=200)) == {0, 1, 2}
    assert sorted(D.SubsetRandomSampler([5, 3, 8])) == [3, 5, 8]
    assert set(D.WeightedRandomSampler([0.0, 1.0, 0.0, 2.0], 50)) == {1, 3}
    assert sorted(D.WeightedRandomSampler([1, 2, 3], 3, replacement=False)) == [0, 1, 2]
    assert len(D.SequentialSampler(range(4))) == 4 and list(D.SequentialSampler("abcd")) == [0, 1, 2, 3]
    with pytest.raises(NotImplementedError):
        iter(D.Sampler())


@pytest.mark.parametrize("n, replicas, drop",
                         [(10, 4, False), (10, 4, True), (3, 8, False), (3, 4, True), (8, 4, True)])
def test_distributed_sampler_shares_everything(n, replicas, drop):
    for shuffle in (False, True):
        parts = [D.DistributedSampler(range(n), replicas, r, shuffle=shuffle, drop_last=drop) for r in range(replicas)]
        for p in parts:
            p.set_epoch(5)
        keys = [list(p) for p in parts]
        assert all(len(k) == len(p) == parts[0].num_samples for k, p in zip(keys, parts, strict=True))
        flat = [i for column in zip(*keys, strict=True) for i in column]
        assert len(flat) == (n // replicas * replicas if drop else -(-n // replicas) * replicas)
        assert set(flat) <= set(range(n)) and (drop or set(flat) == set(range(n)))
    with pytest.raises(ValueError, match="Invalid rank 4, rank should be in the interval \\[0, 3\\]"):
        D.DistributedSampler(range(n), 4, 4)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: D.RandomSampler(range(3), replacement=1), TypeError, "replacement should be a boolean value"),
    (lambda: D.RandomSampler([]), ValueError, "num_samples should be a positive integer value, but got num_samples=0"),
    (lambda: D.RandomSampler(range(3), num_samples=1.5), ValueError, "num_samples should be a positive integer"),
    (lambda: D.WeightedRandomSampler([1.0], True), ValueError, "num_samples should be a positive integer value"),
    (lambda: D.WeightedRandomSampler([1.0], 1, replacement=0), ValueError, "replacement should be a boolean value"),
    (lambda: D.WeightedRandomSampler([[1.0]], 1), ValueError, r"given weights have shape \(1, 1\)"),
    (lambda: D.BatchSampler([], 0, False), ValueError, "batch_size should be a positive integer value"),
    (lambda: D.BatchSampler([], True, False), ValueError, "batch_size should be a positive integer value"),
    (lambda: D.BatchSampler([], 2, 1), ValueError, "drop_last should be a boolean value, but got drop_last=1"),
])
def test_sampler_arguments(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


# --- collating --------------------------------------------------------------------------------------------------------
def test_collate_numbers_text_and_arrays():
    ints, floats = D.default_collate([1, 2]), D.default_collate([1.5, 2.5])
    assert ints.dtype == torch.int64 and floats.dtype == torch.float64 and floats.tolist() == [1.5, 2.5]
    assert D.default_collate([True, False]).dtype == torch.bool
    assert D.default_collate(["a", "b"]) == ["a", "b"] and D.default_collate([b"a"]) == [b"a"]
    assert D.default_collate([np.float32(1), np.float32(2)]).dtype == torch.float32
    stacked = D.default_collate([np.arange(3), np.arange(3) + 1])
    assert stacked.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert D.default_collate([torch.zeros(2, 0), torch.zeros(2, 0)]).shape == (2, 2, 0)


def test_collate_structures():
    out = D.default_collate([{"a": (1, [2.0, "x"]), "p": Point(1, 2)}, {"a": (3, [4.0, "y"]), "p": Point(3, 4)}])
    assert out["a"][0].tolist() == [1, 3] and out["a"][1][0].tolist() == [2.0, 4.0] and out["a"][1][1] == ("x", "y")
    assert isinstance(out["a"], list) and isinstance(out["p"], Point) and out["p"].y.tolist() == [2, 4]
    ordered = D.default_collate([OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)])
    assert type(ordered) is OrderedDict and list(ordered) == ["b", "a"]


def test_collate_keeps_containers_that_can_be_rebuilt():
    class Frozen(Mapping):
        def __init__(self, items):
            self._items = dict(items)

        def __getitem__(self, k):
            return self._items[k]

        def __iter__(self):
            return iter(self._items)

        def __len__(self):
            return len(self._items)

    class Fixed(Sequence):
        def __init__(self, *items):
            self.items = items

        def __getitem__(self, i):
            return self.items[i]

        def __len__(self):
            return len(self.items)
    assert type(D.default_collate([Frozen({"a": 1}), Frozen({"a": 2})])) is Frozen
    got = D.default_collate([Fixed(1, 2), Fixed(3, 4)])
    assert type(got) is Fixed and type(D.default_convert(Fixed(np.arange(2)))) is Fixed


def test_collate_refuses():
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers, dicts or lists; found"):
        D.default_collate([object()])
    with pytest.raises(TypeError, match="found <U1"):
        D.default_collate([np.array(["a"])])
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        D.default_collate([[1, 2], [3]])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        D.default_collate([torch.ones(2), torch.ones(3)])


def test_collate_with_an_own_table():
    from rushlight.utils.data._utils.collate import collate, default_collate_fn_map
    own = {(int, str): lambda batch, *, collate_fn_map=None: "seen", **default_collate_fn_map}
    assert collate([[1, "a"], [2, "b"]], collate_fn_map=own)[1] == ("a", "b")      # the exact type comes first
    own = {(int, str): lambda batch, *, collate_fn_map=None: "seen"}
    assert collate([(1, "a"), (2, "b")], collate_fn_map=own) == ["seen", "seen"]
    with pytest.raises(TypeError, match="found <class 'int'>"):
        collate([1, 2])


def test_default_convert():
    got = D.default_convert({"a": (np.arange(2), "s"), "b": [np.float64(3)], "c": Point(np.arange(1), 2), "d": None})
    assert isinstance(got["a"], list) and got["a"][0].tolist() == [0, 1] and got["a"][1] == "s"
    assert got["b"][0].item() == 3.0 and isinstance(got["c"], Point) and got["c"].y == 2 and got["d"] is None
    text = np.array(["x"])
    assert D.default_convert(text) is text and D.default_convert(7) == 7


# --- loader -----------------------------------------------------------------------------------------------------------
def test_batches_of_a_map():
    loader = D.DataLoader(Squares(7), batch_size=3)
    assert lists(loader) == [[0, 1, 4], [9, 16, 25], [36]] == lists(loader)
    assert len(loader) == 3 and len(iter(loader)) == 3
    assert lists(D.DataLoader(Squares(7), 3, drop_last=True)) == [[0, 1, 4], [9, 16, 25]]
    assert list(D.DataLoader(Squares(4), batch_size=None)) == [0, 1, 4, 9]
    assert list(D.DataLoader(Squares(4), 2, collate_fn=tuple)) == [(0, 1), (4, 9)]
    assert lists(D.DataLoader(Squares(9), 2, sampler=[8, 1, 5])) == [[64, 1], [25]]
    assert lists(D.DataLoader(Squares(9), batch_sampler=[[8], [1, 5]])) == [[64], [1, 25]]
    assert lists(D.DataLoader([3, 1, 2])) == [[3], [1], [2]]


def test_batches_are_made_when_they_are_asked_for():
    data = Squares(6)
    it = iter(D.DataLoader(data, 2))
    assert data.asked == []
    next(it)
    assert data.asked == [0, 1]


def test_fetching_many_at_once():
    class Batched(Squares):
        def __getitems__(self, keys):
            self.asked.append(list(keys))
            return [k * 10 for k in keys]
    data = Batched(5)
    assert lists(D.DataLoader(data, 3)) == [[0, 10, 20], [30, 40]]
    assert data.asked == [[0, 1, 2], [3, 4]]
    assert lists(D.DataLoader(D.Subset(data, [4, 2]), 2)) == [[40, 20]]


def test_batches_of_a_stream():
    assert lists(D.DataLoader(Stream(1, 2, 3, 4, 5), 2)) == [[1, 2], [3, 4], [5]]
    assert lists(D.DataLoader(Stream(1, 2, 3, 4, 5), 2, drop_last=True)) == [[1, 2], [3, 4]]
    assert list(D.DataLoader(Stream(1, 2), batch_size=None)) == [1, 2]
    with pytest.raises(TypeError, match="has no len"):
        len(D.DataLoader(Stream(1, 2)))


def test_streams_longer_than_promised_are_warned_about():
    loader = D.DataLoader(Sized(1, 2, 3, 4), batch_size=1)
    assert len(list(loader)) == 4      # nobody asked for the length
    assert [len(D.DataLoader(Sized(), 2)), len(D.DataLoader(Sized(), 2, drop_last=True)), len(loader)] == [2, 1, 3]
    with pytest.warns(UserWarning, match=r"was reported to be 3\(when accessing len\(dataloader\)\), but 4 samples"):
        list(loader)


@pytest.mark.parametrize("options, message", [
    ({"num_workers": -1}, "num_workers option should be non-negative"),
    ({"timeout": -1}, "timeout option should be non-negative"),
    ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
    ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
    ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler option is mutually exclusive with batch_size, shuffle"),
    ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler option is mutually exclusive"),
    ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching"),
    ({"batch_size": 0}, "batch_size should be a positive integer value, but got batch_size=0"),
    ({"multiprocessing_context": "fork"}, "multiprocessing_context can only be used with multi-process loading"),
])
def test_loader_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        D.DataLoader(Squares(3), **options)


@pytest.mark.parametrize("options, message", [
    ({"shuffle": True}, "expected unspecified shuffle option, but got shuffle=True"),
    ({"sampler": [0]}, r"expected unspecified sampler option, but got sampler=\[0\]"),
    ({"batch_sampler": [[0]]}, "expected unspecified batch_sampler option"),
])
def test_streams_have_their_own_order(options, message):
    with pytest.raises(ValueError, match="DataLoader with IterableDataset: " + message):
        D.DataLoader(Stream(1), **options)
    assert lists(D.DataLoader(Stream(1), shuffle=False)) == [[1]]


@pytest.fixture
def warned_of_workers(monkeypatch):
    """The warning about worker processes is given once a process: these tests want theirs."""
    from rushlight.core import errors
    monkeypatch.setattr(errors, "_warned", set())
    monkeypatch.setattr(errors, "warn_always", [False])


def test_workers_are_this_process_with_one_warning(warned_of_workers):
    with pytest.warns(UserWarning, match="num_workers=4.*loaded in the program's own process; their order and content are the same"):
        loader = D.DataLoader(Squares(5), 2, num_workers=4, timeout=3, worker_init_fn=print, multiprocessing_context="spawn", pin_memory=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = D.DataLoader(Squares(5), 2, num_workers=1, prefetch_factor=3, persistent_workers=True)
    assert lists(loader) == lists(D.DataLoader(Squares(5), 2)) == lists(again) == lists(again)
    assert (loader.num_workers, loader.prefetch_factor, loader.timeout, loader.worker_init_fn) == (4, 2, 3, print)
    assert loader.multiprocessing_context.get_start_method() == "spawn" and not loader.persistent_workers
    assert again.prefetch_factor == 3 and again.persistent_workers and iter(again) is iter(again)
    assert D.get_worker_info() is None


@pytest.mark.filterwarnings("ignore:DataLoader got num_workers")
@pytest.mark.parametrize("persistent, orders", [(False, [[[2, 0], [1, 3]], [[1, 2], [0, 3]]]), (True, [[[2, 0], [1, 3]], [[2, 1], [3, 0]]])])
def test_orders_with_workers_are_pytorchs(persistent, orders):
    """Recorded from PyTorch 2.13: keys are drawn when the iterator is made, and iterators that persist draw no new seed."""
    torch.manual_seed(3)
    loader = D.DataLoader(range(4), 2, shuffle=True, num_workers=2, persistent_workers=persistent)
    seen = []
    for _ in range(2):
        batches = iter(loader)
        torch.rand(1)
        seen.append(lists(batches))
    assert seen == orders


@pytest.mark.filterwarnings("ignore:DataLoader got num_workers")
@pytest.mark.parametrize("options, error, message", [
    ({"prefetch_factor": -1}, ValueError, "prefetch_factor option should be non-negative"),
    ({"multiprocessing_context": "thread"}, ValueError, "should specify a valid start method in .* but got multiprocessing_context='thread'"),
    ({"multiprocessing_context": 5}, TypeError, "should be a valid context object or a string"),
    ({"timeout": -1}, ValueError, "timeout option should be non-negative")])
def test_arguments_for_workers_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        D.DataLoader(Squares(3), num_workers=2, **options)
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(D.DataLoader(Squares(3), num_workers=2, prefetch_factor=0))


@pytest.mark.filterwarnings("ignore:DataLoader got num_workers")
def test_streams_have_one_worker_at_most():
    with pytest.raises(NotImplementedError, match="num_workers=2 for an IterableDataset.*pass num_workers=0"):
        D.DataLoader(Stream(4), num_workers=2)
    assert lists(D.DataLoader(Stream(1), num_workers=1)) == lists(D.DataLoader(Stream(1)))


def test_loaders_are_not_changed_later_nor_iterators_pickled():
    loader = D.DataLoader(Squares(3))
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, 1)
    loader.collate_fn = list
    assert list(loader) == [[0], [1], [4]]
    import pickle
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iter(loader))
    with pytest.raises(AssertionError, match="requires timeout == 0"):
        iter(D.DataLoader(Squares(3), timeout=1))


def test_pinning_without_a_device_warns():
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found"):
        assert lists(D.DataLoader(Squares(2), 2, pin_memory=True)) == [[0, 1]]


# --- whole batches by one index operation -----------------------------------------------------------------------------
class Slow(D.TensorDataset):
    """The same samples, fetched one by one: subclasses are not taken for plain."""


LAYOUTS = {
    "contiguous": lambda: torch.arange(24.0).reshape(6, 4),
    "transposed": lambda: torch.arange(24.0).reshape(4, 6).t(),
    "strided": lambda: torch.arange(96.0).reshape(12, 8)[::2, ::2],
    "expanded": lambda: torch.arange(6.0).reshape(6, 1).expand(6, 4),
    "one-dimensional": lambda: torch.arange(6),
    "empty rows": lambda: torch.zeros(6, 0, dtype=torch.int16),
    "bool": lambda: torch.arange(6) > 2,
}


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fast_batches_equal_collated_samples(layout, subset):
    x = LAYOUTS[layout]()
    y = torch.arange(6)
    fast, slow = D.TensorDataset(x, y), Slow(x, y)
    if subset:
        fast, slow = D.Subset(fast, [5, 0, -2, 3]), D.Subset(slow, [5, 0, -2, 3])
    a, b = (list(D.DataLoader(d, 3)) for d in (fast, slow))
    assert len(a) == len(b)
    for p, q in zip(a, b, strict=True):
        assert type(p) is type(q) is list
        for s, t in zip(p, q, strict=True):
            assert s.dtype == t.dtype and s.shape == t.shape and s.stride() == t.stride()
            assert np.array_equal(s.numpy(), t.numpy())
    batch = a[0][1]
    batch += 1      # batches are copies
    assert y.tolist() == list(range(6))


def test_fast_batches_only_where_nothing_can_differ():
    x = torch.arange(6.0).reshape(3, 2)
    data = D.TensorDataset(x)
    w = x.clone().requires_grad_()
    batch = next(iter(D.DataLoader(D.TensorDataset(w), 2)))[0]
    batch.sum().backward()
    assert w.grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(IndexError):
        list(D.DataLoader(data, 2, sampler=[0, 3]))
    data.__getitems__ = lambda keys: [(torch.tensor(7.0),) for _ in keys]
    assert next(iter(D.DataLoader(data, 2)))[0].tolist() == [7.0, 7.0]


def test_fast_batches_respect_a_changed_table():
    from rushlight.utils.data._utils import collate
    data = D.TensorDataset(torch.arange(4.0))
    original = collate.default_collate_fn_map[torch.Tensor]
    collate.default_collate_fn_map[torch.Tensor] = lambda batch, *, collate_fn_map=None: "mine"
    try:
        assert next(iter(D.DataLoader(data, 2))) == ["mine"]
    finally:
        collate.default_collate_fn_map[torch.Tensor] = original
    assert next(iter(D.DataLoader(data, 2)))[0].tolist() == [0.0, 1.0]
