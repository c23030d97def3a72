"""`python -m rushlight.ops`: the registered operators, one a line. `--names` prints names only; `--regex` one regular expression
that matches `name|variant` for each of them."""

from __future__ import annotations

import re
import sys

from . import load
from .declare import NAMESPACES


def main(argv: list[str]) -> int:
    load()
    rows: dict[str, str] = {}
    for space, table in NAMESPACES.items():
        for name, op in table.items():
            rows[name if space in ("torch", "Tensor") else f"{space}.{name}"] = op.kind
    if "--regex" in argv:
        print("^(" + "|".join(map(re.escape, sorted(rows))) + r")\|")
    elif "--names" in argv:
        print("\n".join(sorted(rows)))
    else:
        width = max(map(len, rows))
        for name in sorted(rows):
            print(f"{name:{width}s}  {rows[name]}")
        print(f"{len(rows)} names")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
