"""The class of `torch.__version__`: a str that compares as versions do (`"2.13.0" > "2.4"`, `>= (1, 10)`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["TorchVersion"]

# PEP 440, which PyTorch's versions follow.
_FORM = re.compile(
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_n>\d*))?"
    r"(?:-(?P<post_only>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*", re.IGNORECASE)
_LETTERS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def _key(version: Any) -> tuple | None:
    """What orders versions, from a str, the parts of one, or an object of `packaging`; None for anything else."""
    if isinstance(version, str) or hasattr(version, "release"):
        text = str(version)
    elif isinstance(version, Iterable):
        text = ".".join(map(str, version))
    else:
        return None
    m = _FORM.fullmatch(text)
    if m is None:
        return None
    release = tuple(map(int, m["release"].split(".")))
    while release and release[-1] == 0:
        release = release[:-1]
    post = m["post_only"] or m["post"] and (m["post_n"] or "0")
    pre: tuple = (1,)
    if m["pre"]:
        letter = m["pre"].lower()
        pre = (0, _LETTERS.get(letter, letter), int(m["pre_n"] or 0))
    elif m["dev"] and not post:
        pre = (-1,)
    local: tuple = (-1,)
    if m["local"]:
        local = (0, *((1, int(p), "") if p.isdigit() else (0, 0, p.lower()) for p in re.split(r"[-_.]", m["local"])))
    return (int(m["epoch"] or 0), release, pre, (0, int(post)) if post else (-1,),
            (0, int(m["dev_n"] or 0)) if m["dev"] else (1,), local)


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(str, name)

    def compare(self: Any, other: Any) -> Any:
        a, b = _key(str(self)), _key(other)
        if a is None or b is None:
            return plain(self, other)
        return getattr(a, name)(b)

    compare.__name__ = name
    return compare


class TorchVersion(str):
    """A version that compares with other versions by their numbers: with str, tuples of numbers, and the Version of
    `packaging`. What is no version is compared as text. `!=` and hash are those of the text, as in PyTorch."""

    __slots__ = ()
    __gt__, __lt__, __ge__, __le__, __eq__ = map(  # type: ignore[assignment]
        _comparison, ("__gt__", "__lt__", "__ge__", "__le__", "__eq__"))
    __hash__ = str.__hash__
