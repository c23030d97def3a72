"""The end of commands whose output nobody reads to its end (`... | head`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

__all__ = ["quiet"]


def quiet(command: Callable[[], int]) -> int:
    """`command()`, its output flushed. When the reader has closed the pipe: 141, the status of a process that the signal for it
    ended, and silence, also when Python flushes at its end."""
    try:
        try:
            return command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return 141
