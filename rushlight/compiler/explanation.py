"""`explain`: what a compiled function was made into."""

from __future__ import annotations

from typing import Any

from .compiled import Compiled

__all__ = ["Explanation"]


class Explanation:
    """`captures`: for each captured call its steps as they run, as dicts (`kind`, `ops`, `why`); `reasons`: why calls ran eagerly, with
    counts; `calls`: how many were captured, replayed, eager. `str()` prints them as a table."""

    def __init__(self, fn: Any) -> None:
        # a function; a compiled module, one after its `compile()`, a compiled method of an object
        places = (fn, *[getattr(fn, name, None) for name in ("_compiled", "_compiled_call_impl", "func")])
        c = next((x for x in places if isinstance(x, Compiled)), None)
        if c is None:
            raise TypeError(f"explain() takes what compile() gave, not {type(fn).__name__}")
        self.name = getattr(c.fn, "__qualname__", repr(c.fn))
        self.calls, self.reasons = dict(c.calls), dict(c.reasons)
        self.captures = [entry.program.report() for _, entry in c.entries]
        self.captured_steps = [len(entry.capture.graph.steps) for _, entry in c.entries]

    def __str__(self) -> str:
        lines = [f"{self.name}: " + ", ".join(f"{n} {k}" for k, n in self.calls.items())]
        for reason, n in self.reasons.items():
            lines.append(f"  ran eagerly {n} times: {reason}")
        for k, (steps, n) in enumerate(zip(self.captures, self.captured_steps, strict=True)):
            lines.append(f"  capture {k}: {n} operations in {len(steps)} steps")
            for s in steps:
                ops = s.get("ops") or []
                lines.append(f"    {s.get('kind', '?'):10s} {', '.join(ops) if ops else ''}" + (f"   [{s['why']}]" if s.get("why") else ""))
        return "\n".join(lines)

    __repr__ = __str__
