"""Where temporaries lie: one arena for a step.

`plan(uses, buffers, merges)` gives every temp an offset. Temps that are alive at the same time do not overlap; a result
may take the place of an operand that dies where it is made (`merges`: the pairs for which the kernel reads each element
before it writes it). Offsets are multiples of 64 bytes. Larger temps are placed first, each in the smallest gap that
the ones alive with it leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .graph import Buffer

__all__ = ["lifetimes", "plan"]

ALIGNMENT = 64


def lifetimes(uses: Sequence[Iterable[Buffer]]) -> dict[int, tuple[int, int]]:
    """buffer id -> (first, last) item that touches it."""
    out: dict[int, tuple[int, int]] = {}
    for i, touched in enumerate(uses):
        for b in touched:
            out[b.id] = (out[b.id][0] if b.id in out else i, i)
    return out


def plan(
    uses: Sequence[Iterable[Buffer]], buffers: Iterable[Buffer], merges: Iterable[tuple[int, Buffer, Buffer]] = ()
) -> int:
    """Set `offset` of the `buffers` that are used, and return the arena's size. `uses[i]`: what item i touches;
    `merges`: (item, operand, result) where result may lie where operand lies."""
    life = lifetimes(uses)
    mine = {b.id: b for b in buffers if b.id in life}
    leader: dict[int, int] = {k: k for k in mine}

    def find(k: int) -> int:
        while leader[k] != k:
            leader[k] = leader[leader[k]]
            k = leader[k]
        return k

    span = dict(life)
    for i, operand, result in merges:
        if operand.id not in mine or result.id not in mine or operand.nbytes != result.nbytes:
            continue
        a, r = find(operand.id), find(result.id)
        if a != r and span[a][1] == i and span[r][0] == i and life[operand.id][1] == i:
            leader[r] = a
            span[a] = (span[a][0], span[r][1])
    groups = sorted({find(k) for k in mine}, key=lambda k: (-mine[k].nbytes, span[k][0], k))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    total = 0
    where: dict[int, int] = {}
    for k in groups:
        size = max(mine[k].nbytes, 1) + ALIGNMENT - 1 & -ALIGNMENT
        first, last = span[k]
        at, best, offset = 0, None, None
        for o, end, f, e in sorted(placed):
            if e < first or last < f:
                continue
            if o - at >= size and (best is None or o - at < best):
                best, offset = o - at, at
            at = max(at, end)
        if offset is None:
            offset = at
        placed.append((offset, offset + size, first, last))
        where[k] = offset
        total = max(total, offset + size)
    for k, b in mine.items():
        b.offset = where[find(k)]
    return total
