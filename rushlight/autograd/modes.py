"""Per-thread switches of the tape: recording, inference, anomaly detection."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ..core.tensor import inference

__all__ = ["modes", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled",
           "detect_anomaly", "set_detect_anomaly", "is_anomaly_enabled", "is_anomaly_check_nan_enabled", "set_multithreading_enabled"]


class _Modes(threading.local):
    grad = True
    inference = False
    anomaly = False
    check_nan = True
    multithreading = True
    task: Any = None                  # the engine's pass that is under way in this thread
    no_hooks: str | None = None       # why hooks on saved tensors are off


modes = _Modes()
anomaly_watchers: list[Callable[[], None]] = []     # told when a thread first asks for anomaly detection


def _anomalous(mode: bool) -> bool:
    while mode and anomaly_watchers:
        anomaly_watchers.pop()()
    return mode


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return modes.grad


def is_inference_mode_enabled() -> bool:
    return modes.inference


def is_anomaly_enabled() -> bool:
    return modes.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    return modes.anomaly and modes.check_nan


class _Switch:
    """A context manager and decorator (of functions, generators and classes' methods) that sets attributes of `modes`."""

    def _values(self) -> dict[str, Any]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        values = self._values()
        self.__dict__.setdefault("_before", []).append({k: getattr(modes, k) for k in values})
        for k, v in values.items():
            setattr(modes, k, v)
        return None

    def __exit__(self, *exc: object) -> None:
        for k, v in self.__dict__["_before"].pop().items():
            setattr(modes, k, v)

    def clone(self) -> Any:
        return self.__class__()

    def __call__(self, fn: Callable) -> Callable:
        if isinstance(fn, type):
            import warnings
            warnings.warn("Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods. "
                          "To preserve the current behavior of class decoration, you can directly decorate the `__init__` method and nothing else.",
                          FutureWarning, stacklevel=2)
            cls = fn
            fn = lambda *args, **kw: cls(*args, **kw)  # noqa: E731
        if _is_generator(fn):
            @functools.wraps(fn)
            def generator(*args: Any, **kw: Any) -> Any:
                gen = fn(*args, **kw)
                step, value = gen.send, None   # what the caller wants next: send, or throw
                try:
                    while True:
                        with self.clone():
                            try:
                                item = step(value)
                            except StopIteration as stop:
                                return stop.value
                        try:
                            step, value = gen.send, (yield item)
                        except GeneratorExit:
                            raise
                        except BaseException as e:
                            step, value = gen.throw, e
                finally:
                    with self.clone():
                        gen.close()
            return generator

        @functools.wraps(fn)
        def wrapped(*args: Any, **kw: Any) -> Any:
            with self.clone():
                return fn(*args, **kw)
        return wrapped


def _is_generator(fn: Callable) -> bool:
    code = getattr(fn, "__code__", None)
    return bool(code and code.co_flags & 0x20)


class no_grad(_Switch):
    """Operations inside are not recorded: their results do not require grad. Also a decorator, with or without call brackets."""

    def __new__(cls, fn: Callable | None = None) -> Any:
        self = object.__new__(cls)
        return self if fn is None else self(fn)

    def _values(self) -> dict[str, Any]:
        return {"grad": False}


class enable_grad(no_grad):
    """Operations inside are recorded, also within `no_grad` (not within `inference_mode`)."""

    def _values(self) -> dict[str, Any]:
        return {"grad": not modes.inference}


class set_grad_enabled(_Switch):
    """Sets recording to `mode` at once; as a context manager it restores the earlier mode at the end."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        self.mode, self.prev = mode, modes.grad
        modes.grad = mode

    def __call__(self, fn: Callable) -> Callable:
        modes.grad = self.prev
        return super().__call__(fn)

    def clone(self) -> set_grad_enabled:
        prev = modes.grad
        c = self.__class__(self.mode)
        modes.grad = prev
        return c

    def __enter__(self) -> None:
        modes.grad = self.mode

    def __exit__(self, *exc: object) -> None:
        modes.grad = self.prev

    def __str__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"


_entering = threading.Lock()
_inside: list[int] = [0]      # how many times threads have entered inference mode without leaving it


def _marked(cls: type) -> Any:
    """A tensor, marked if this thread is in inference mode. Takes the place of `object.__new__` while any thread is."""
    t: Any = object.__new__(cls)
    if modes.inference:
        t._inf = True
    return t


inference.inside = lambda: modes.inference


class inference_mode(_Switch):
    """As `no_grad`, and what is made inside is an inference tensor: outside it cannot be written to in place nor be saved for
    backward (RuntimeError; `clone()` gives a normal one). `mode=False` leaves the mode for the block."""

    mode: Any

    def __enter__(self) -> Any:
        self._count(1)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._count(-1)

    def _count(self, step: int) -> None:
        if self.mode:
            with _entering:
                _inside[0] += step
                if _inside[0] == (step > 0):
                    inference.make_with(_marked if step > 0 else object.__new__)

    def __new__(cls, mode: bool | Callable = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self.mode = True
            return self(mode)
        self.mode = mode
        return self

    def _values(self) -> dict[str, Any]:
        return {"grad": False, "inference": True} if self.mode else {"inference": False, "grad": True}

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)


class detect_anomaly(_Switch):
    """Backward raises at the first operation whose gradient has a nan, and prints where its forward ran."""

    def __init__(self, check_nan: bool = True) -> None:
        import warnings
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
                      stacklevel=2)

    def _values(self) -> dict[str, Any]:
        return {"anomaly": _anomalous(True), "check_nan": self.check_nan}


class set_detect_anomaly(_Switch):
    """Anomaly detection as a call or a context manager."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev = (modes.anomaly, modes.check_nan)
        self.mode, self.check_nan = mode, check_nan
        modes.anomaly, modes.check_nan = _anomalous(mode), check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        modes.anomaly, modes.check_nan = self.prev


class set_multithreading_enabled(_Switch):
    """Accepted; the engine runs backward in the calling thread."""

    def __init__(self, mode: bool) -> None:
        self.prev, modes.multithreading = modes.multithreading, bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        modes.multithreading = self.prev
