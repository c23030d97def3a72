"""Sequences of unequal lengths: padded and packed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import rushlight
from rushlight import _missing
from rushlight.core.tensor import Tensor

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence",
           "unpad_sequence", "pack_sequence", "unpack_sequence"]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """`data`: the elements step by step; `batch_sizes`: how many sequences still run at each step (int64, CPU)."""

    def __new__(cls, data: Any, batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> Any:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:  # PackedSequence((data, batch_sizes))
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                             "manually. They should be instantiated by functions like pack_sequence and "
                             "pack_padded_sequences in nn.utils.rnn. "
                             "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor, convert: Any) -> PackedSequence:
        indices = [None if t is None else convert(t) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def pin_memory(self) -> PackedSequence:
        """In page-locked memory."""
        return self._with(self.data.pin_memory(), lambda t: t.pin_memory())

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Moves and/or casts the data; see Tensor.to."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with(data, lambda t: t.to(data.device))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a CUDA device."""
        return self.to(*args, **kwargs) if args or "device" in kwargs else self.to("cuda", **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu", *args, **kwargs)

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(dtype=rushlight.float64)

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(dtype=rushlight.float32)

    def half(self) -> PackedSequence:
        """As float16."""
        return self.to(dtype=rushlight.float16)

    def long(self) -> PackedSequence:
        """As int64."""
        return self.to(dtype=rushlight.int64)

    def int(self) -> PackedSequence:
        """As int32."""
        return self.to(dtype=rushlight.int32)

    def short(self) -> PackedSequence:
        """As int16."""
        return self.to(dtype=rushlight.int16)

    def char(self) -> PackedSequence:
        """As int8."""
        return self.to(dtype=rushlight.int8)

    def byte(self) -> PackedSequence:
        """As uint8."""
        return self.to(dtype=rushlight.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`."""
    return None if permutation is None else rushlight.argsort(permutation)


def _check_lengths(lengths: list[int], steps: int, batch: int, enforce_sorted: bool) -> None:
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} "
                           f"(batch_size={batch})")
    if any(n <= 0 for n in lengths):
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is "
                           "<= 0")
    if enforce_sorted and any(a < b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
                           "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep "
                           "this requirement if you do not need ONNX exportability.")
    if lengths[0] > steps:
        raise RuntimeError(f"Expected every length to be at most the padded length {steps}, but got {lengths[0]}")


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs padded sequences (T, B, *), or (B, T, *) with batch_first, of the given lengths.

    Without `enforce_sorted` the sequences may come in any order.
    """
    lengths = lengths.to(dtype=rushlight.int64) if isinstance(lengths, Tensor) \
        else rushlight.as_tensor(lengths, dtype=rushlight.int64, device="cpu")
    order = None
    if not enforce_sorted:
        lengths, order = rushlight.sort(lengths, descending=True)
        order = order.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[0], input.shape[1]
    sizes = lengths.tolist()
    _check_lengths(sizes, steps, batch, enforce_sorted)
    running = [sum(n > t for n in sizes) for t in range(sizes[0])]
    rows = rushlight.tensor([t * batch + b for t, n in enumerate(running) for b in range(n)], dtype=rushlight.int64,
                            device=input.device)
    data = input.reshape(steps * batch, *input.shape[2:]).index_select(0, rows)
    return PackedSequence(data, rushlight.tensor(running, dtype=rushlight.int64), order, None)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """(padded sequences (T, B, *) or (B, T, *), lengths): the inverse of `pack_padded_sequence`."""
    running = sequence.batch_sizes.tolist()
    steps, batch = len(running), running[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but "
                             f"got total_length={total_length} and max sequence length being {steps}")
        steps = total_length
    data = sequence.data
    elements = data.shape[0]  # one more row, of padding, follows them
    starts = [sum(running[:t]) for t in range(len(running))]
    running_at = running + [0] * (steps - len(running))
    rows = [starts[t] + b if b < running_at[t] else elements for t in range(steps) for b in range(batch)]
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    index = rushlight.tensor(rows, dtype=rushlight.int64, device=data.device)
    padded = rushlight.cat([data, padding]).index_select(0, index).reshape(steps, batch, *data.shape[1:])
    if batch_first:
        padded = padded.transpose(0, 1)
    lengths = rushlight.tensor([sum(n > b for n in running) for b in range(batch)], dtype=rushlight.int64)
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    return padded, lengths


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Stacks sequences (L_i, *) into (T, B, *), or (B, T, *) with batch_first, padded at the right or left."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError("pad_sequence: Expected iterable for input sequences, but got arg of type: "
                           f"{type(sequences)}")
    given = list(sequences)
    if not given:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    steps = max(s.size(0) for s in given)
    padded = []
    for s in given:
        if s.shape[1:] != given[0].shape[1:]:
            raise RuntimeError("pad_sequence: sequences must have equal sizes after the first dimension, but got "
                               f"{tuple(given[0].shape)} and {tuple(s.shape)}")
        missing = steps - s.size(0)
        if missing:
            filler = s.new_full((missing, *s.shape[1:]), padding_value)
            s = rushlight.cat([s, filler] if padding_side == "right" else [filler, s])
        padded.append(s)
    return rushlight.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, each at its own length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[:n] for s, n in zip(padded_sequences.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences (L_i, *)."""
    lengths = rushlight.as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of sequences of a PackedSequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


_missing.hint(__name__)
