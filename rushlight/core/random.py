"""Random streams as PyTorch shows them: `Generator`, the default generator, seeding, and the state.

The CPU stream is PyTorch's own: the same seed gives the same numbers, and states can be exchanged with PyTorch
(5056 bytes). The samples themselves are made in `rushlight.backends.cpu.sampling`; an operator gets at them with
`stream(generator)`. After a fork a child continues from the parent's state, as in PyTorch: seed the children apart.
"""

from __future__ import annotations

import contextlib
import operator
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rushlight.core.device import CPU
from rushlight.core.device import device as Device

if TYPE_CHECKING:
    from rushlight.backends.cpu.sampling import CPUStream
    from rushlight.core.tensor import Tensor

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state", "stream", "thread_safe_generator",
]  # fmt: skip

_making = threading.Lock()
DEFAULT_SEED = 67280421310721  # PyTorch's c10::default_rng_seed_val


class Generator:
    """A source of random numbers: `Generator(device="cpu")`, seeded with 67280421310721 until `manual_seed`.

    Pass it as `generator=` to the random functions. RuntimeError for a device that has no generator here.
    """

    __slots__ = ("_made", "_seed", "__weakref__")
    _made: CPUStream | None  # made by the first draw: what draws is not loaded by `import rushlight`
    _seed: int  # counts until then

    def __init__(self, device: Device | str | None = "cpu") -> None:
        kind = "cpu" if device is None else Device(device).type
        if kind != "cpu":
            raise RuntimeError(f"Generator: expected device 'cpu', got '{device}', which has no random stream here")
        self._made, self._seed = None, DEFAULT_SEED

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"

    @property
    def _stream(self) -> CPUStream:
        made = self._made
        if made is None:
            from rushlight.backends.cpu.sampling import CPUStream

            with _making:
                made = self._made
                if made is None:
                    made = self._made = CPUStream(self._seed)
        return made

    @property
    def device(self) -> Device:
        """The device whose samples this generator makes."""
        return CPU

    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed`, in [-2**63, 2**64); a negative one counts from 2**64. Returns self.

        RuntimeError if it is not an int, ValueError if it is out of range.
        """
        if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = operator.index(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(
                "Overflow when unpacking long long: expected a seed in [-0x8000_0000_0000_0000, 0xffff_ffff_ffff_ffff]"
                f", got {seed}"
            )
        seed &= 0xFFFFFFFFFFFFFFFF
        with _making:
            self._seed = seed
            if self._made is None:
                return self
        with self._made.lock:
            self._made.seed(seed)
        return self

    def seed(self) -> int:
        """Restart from a seed that the operating system draws, and return it."""
        fresh = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(fresh)
        return fresh

    def initial_seed(self) -> int:
        """The seed that this stream started from."""
        return self._seed if self._made is None else self._made.initial_seed

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor of 5056 elements, PyTorch's layout."""
        from rushlight.core.tensor import wrap

        with self._stream.lock:
            return wrap(self._stream.get_state())

    def set_state(self, new_state: Tensor | np.ndarray) -> None:
        """Continue from a state that `get_state` returned, here or in PyTorch.

        TypeError if it is not a uint8 tensor (a uint8 ndarray will do), RuntimeError if it is no generator's state.
        """
        array = new_state if isinstance(new_state, np.ndarray) else getattr(new_state, "_a", None)
        if array is None:
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, but got a tensor of {array.dtype}")
        if not array.flags.c_contiguous:
            raise RuntimeError(f"RNG state must be contiguous, but has strides {array.strides}")
        with self._stream.lock:
            self._stream.set_state(array)

    def clone_state(self) -> Generator:
        """A new generator at the same place of the same stream."""
        other = type(self)()
        with self._stream.lock:
            other._stream.copy_from(self._stream)
        return other

    def get_offset(self) -> int:
        """RuntimeError: only streams of accelerators have offsets."""
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> None:
        """RuntimeError: only streams of accelerators have offsets."""
        raise RuntimeError(f"CPU Generator does not use offset, got {offset}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.device,), (self.initial_seed(), None, self.get_state())

    def __setstate__(self, state: tuple[int, None, Any]) -> None:
        start, _, words = state
        self.manual_seed(start)
        self.set_state(words)


default_generator = Generator()
default_generator.seed()


def stream(generator: Generator | None = None) -> CPUStream:
    """The stream behind `generator`, the default one for None. TypeError for anything else.

    Its methods (`uniform_`, `normal_`, `bernoulli_`, `random_`, `randperm`, `multinomial`, ...) work on ndarrays.
    """
    if generator is None:
        generator = default_generator
    elif not isinstance(generator, Generator):
        given = type(generator).__name__
        raise TypeError(f"argument 'generator' must be a torch.Generator or None, not {given}")
    return generator._made or generator._stream


def manual_seed(seed: int) -> Generator:
    """Seed the default generator with `int(seed)` and return it. ValueError outside [-2**63, 2**64)."""
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state: a uint8 tensor of 5056 elements."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor | np.ndarray) -> None:
    """Put the default generator where `get_rng_state` found it."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """A context that restores the default generator at its end. `enabled=False` does nothing.

    The CPU stream is always forked. RuntimeError where `devices` names others: they have no stream here.
    """
    if not enabled or device_type == "meta":
        yield
        return
    listed = [] if devices is None else list(devices)
    if listed:
        raise RuntimeError(f"{_caller}: expected {_devices_kw} to be empty on a CPU-only build, got {listed}")
    own = default_generator._stream
    with own.lock:
        state = own.get_state()
    try:
        yield
    finally:
        with own.lock:
            own.set_state(state)


def thread_safe_generator() -> Generator | None:
    """The generator of this DataLoader worker thread; None in processes, which have the default one to themselves."""
    return None
