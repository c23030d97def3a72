"""Compiled modules: a module whose forward is a compiled function."""

from __future__ import annotations

from typing import Any

from ..nn.modules.module import Module
from .compiled import Compiled

__all__ = ["OptimizedModule"]


class OptimizedModule(Module):
    """What `compile(module)` gives: `_orig_mod` with its call compiled. Attributes are the original's."""

    _orig_mod: Module

    def __init__(self, module: Module, fullgraph: bool = False) -> None:
        super().__init__()
        self._modules["_orig_mod"] = module
        object.__setattr__(self, "_compiled", Compiled(module.__call__, fullgraph))
        self.__dict__.pop("training", None)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The original's."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):      # there is none yet while Module's own __init__ runs
            self._orig_mod.training = mode

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self.__dict__["_modules"]["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_modules", "_parameters", "_buffers") or "_modules" not in self.__dict__ or "_orig_mod" not in self._modules:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def train(self, mode: bool = True) -> OptimizedModule:
        self._orig_mod.train(mode)
        return self

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore
