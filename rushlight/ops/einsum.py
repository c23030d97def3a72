"""Sums of products by Einstein's convention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.promotion import result_of
from ..core.tensor import Tensor as T
from ..core.tensor import hooks
from .declare import composite
from .matmul import _batched, mm

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Tensors = list[Tensor]


def f(name: str) -> Any:
    return hooks.function(name)


def _parse(equation: str, operands: list[Any]) -> tuple[list[list[Any]], list[Any]]:
    """Labels of each operand's dimensions and of the result's; the dimensions of an ellipsis are labelled 0, 1, ...
    from the left."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(
            f"einsum(): {'fewer' if len(operands) < len(terms) else 'more'} operands were provided than specified in "
            "the equation "
            f"({len(operands)} operands, {len(terms)} terms in '{equation}')"
        )
    for c in text:
        if not (c.isalpha() or c in ".,->"):
            raise RuntimeError(
                f"einsum(): invalid subscript given in the equation '{equation}': '{c}' is not in [a-zA-Z]"
            )
    labels: list[list[Any]] = []
    wide = 0
    for i, (term, t) in enumerate(zip(terms, operands, strict=True)):
        n = len(term.replace("...", ""))
        if "." in term:
            if term.count("...") != 1 or term.replace("...", "").count("."):
                raise RuntimeError(f"einsum(): found '.' for operand {i} that is not part of any ellipsis")
            if n > t.dim():
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({n}) is more than the number of dimensions "
                    f"({t.dim()}) for operand {i}"
                )
            wide = max(wide, t.dim() - n)
        elif n != t.dim():
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({n}) does not match the number of dimensions "
                f"({t.dim()}) for operand {i} and no "
                "ellipsis was given"
            )
    for term, t in zip(terms, operands, strict=True):
        n = len(term.replace("...", ""))
        k = t.dim() - n
        a, dots, b = term.partition("...")
        labels.append([*a, *(range(wide - k, wide) if dots else ()), *b])
    flat = [x for ls in labels for x in ls]
    if arrow:
        if "..." in right:
            a, _, b = right.partition("...")
            out: list[Any] = [*a, *range(wide), *b]
        else:
            out = [*right]
        for x in out:
            if isinstance(x, str) and (x not in flat or out.count(x) > 1):
                raise RuntimeError(
                    f"einsum(): output subscript {x} "
                    + (
                        "appears more than once in the output"
                        if out.count(x) > 1
                        else "does not appear in the equation for any input operand"
                    )
                )
    else:
        out = [*range(wide), *sorted(x for x in set(flat) if isinstance(x, str) and flat.count(x) == 1)]
    return labels, out


def _diagonals(t: Any, ls: list[Any]) -> tuple[Any, list[Any]]:
    """Repeated labels of one operand: their diagonal."""
    i = 0
    while i < len(ls):
        j = next((j for j in range(i + 1, len(ls)) if ls[j] == ls[i]), None)
        if j is None:
            i += 1
            continue
        if t.shape[i] != t.shape[j]:
            raise RuntimeError(
                f"einsum(): subscript {ls[i]} is repeated for operand but the sizes don't match, {t.shape[j]} != "
                f"{t.shape[i]}"
            )
        t = t.diagonal(0, i, j)
        x = ls[i]
        ls = [y for k, y in enumerate(ls) if k not in (i, j)] + [x]
    return t, ls


def _pair(a: Any, la: list[Any], b: Any, lb: list[Any], keep: set) -> tuple[Any, list[Any]]:
    """Two operands contracted over the labels that nothing after needs, by one batched product."""
    for x in [x for x in la if x not in lb and x not in keep]:
        i = la.index(x)
        a, la = a.sum(i), la[:i] + la[i + 1 :]
    for x in [x for x in lb if x not in la and x not in keep]:
        i = lb.index(x)
        b, lb = b.sum(i), lb[:i] + lb[i + 1 :]
    both = [x for x in la if x in lb]
    # a label of size one on one side only is broadcast
    batch = [x for x in both if x in keep]
    inner_ = [x for x in both if x not in keep]
    for x in list(inner_):
        n, m = a.shape[la.index(x)], b.shape[lb.index(x)]
        if n != m:
            i, j = la.index(x), lb.index(x)
            if n == 1:
                b, lb = b.sum(j), lb[:j] + lb[j + 1 :]
                a, la = a.squeeze(i), la[:i] + la[i + 1 :]
            else:
                a, la = a.sum(i), la[:i] + la[i + 1 :]
                b, lb = b.squeeze(j), lb[:j] + lb[j + 1 :]
            inner_.remove(x)
    ra, rb = (
        [x for x in la if x not in batch and x not in inner_],
        [x for x in lb if x not in batch and x not in inner_],
    )
    sa, sb = dict(zip(la, a.shape, strict=True)), dict(zip(lb, b.shape, strict=True))
    if not inner_:
        x = a.permute([la.index(k) for k in [*batch, *ra]]).reshape(
            [sa[k] for k in batch] + [sa[k] for k in ra] + [1] * len(rb)
        )
        y = b.permute([lb.index(k) for k in [*batch, *rb]]).reshape(
            [sb[k] for k in batch] + [1] * len(ra) + [sb[k] for k in rb]
        )
        return x * y, [*batch, *ra, *rb]

    def count(ks: list[Any], s: dict) -> int:
        n = 1
        for k in ks:
            n *= s[k]
        return n

    x = a.permute([la.index(k) for k in [*batch, *ra, *inner_]]).reshape(
        [sa[k] for k in batch] + [count(ra, sa), count(inner_, sa)]
    )
    y = b.permute([lb.index(k) for k in [*batch, *inner_, *rb]]).reshape(
        [sb[k] for k in batch] + [count(inner_, sb), count(rb, sb)]
    )
    r = mm(x, y) if not batch else _batched(x, y)
    return r.reshape(
        [max(sa[k], sb[k]) if 1 in (sa[k], sb[k]) else sa[k] for k in batch] + [sa[k] for k in ra] + [sb[k] for k in rb]
    ), [*batch, *ra, *rb]


@composite()
def einsum(equation: str, operands: Tensors):
    """Sums of products of elements, by Einstein's summation convention: labels that are not in the result are
    summed over. Operands are
    contracted from the left, each pair as one (batched) matrix product."""
    ops = list(operands)
    if not ops:
        raise RuntimeError("einsum(): must provide at least one operand")
    d = result_of(tuple(t._a for t in ops))
    labels, out = _parse(equation, ops)
    sizes: dict[Any, int] = {}
    for ls, t in zip(labels, ops, strict=True):
        for x, n in zip(ls, t.shape, strict=True):
            if sizes.get(x, 1) not in (1, n) and n != 1:
                raise RuntimeError(
                    f"einsum(): operands do not broadcast with remapped shapes [original->remapped]: label {x} has "
                    f"size {n}, elsewhere {sizes[x]}"
                )
            sizes[x] = max(sizes.get(x, 1), n) if n != 0 else 0
    cur, ls = _diagonals(ops[0].to(d) if ops[0].dtype is not d else ops[0], labels[0])
    for k in range(1, len(ops)):
        b, lb = _diagonals(ops[k].to(d) if ops[k].dtype is not d else ops[k], labels[k])
        keep = set(out) | {x for rest in labels[k + 1 :] for x in rest}
        cur, ls = _pair(cur, ls, b, lb, keep)
    for x in [x for x in ls if x not in out]:
        i = ls.index(x)
        cur, ls = cur.sum(i), ls[:i] + ls[i + 1 :]
    r = cur.permute([ls.index(x) for x in out]) if ls else cur
    return r


def _einsum(*args: Any) -> Any:
    if not args:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    if isinstance(args[0], T):

        def label(i: int) -> str:
            if not 0 <= i < 52:
                raise ValueError("einsum(): subscript indices must be in [0, 52)")
            return chr(65 + i) if i < 26 else chr(71 + i)

        def sub(s: Any) -> str:
            return "".join("..." if x is Ellipsis else label(x) for x in s)

        n = len(args) // 2
        eq = ",".join(sub(args[2 * k + 1]) for k in range(n))
        if len(args) % 2:
            eq += "->" + sub(args[-1])
        return einsum.fn(eq, [args[2 * k] for k in range(n)])
    ops = args[1:]
    if len(ops) == 1 and isinstance(ops[0], (list, tuple)):
        ops = tuple(ops[0])
    return einsum.fn(args[0], ops)


einsum._derived["function"] = _einsum


# --- Inputs for the generated tests (ops.samples) ---
einsum.samples(lambda s: [s.call('ij,jk->ik', s((2, 3)), s((3, 4))), s.call('bij,bjk', s((2, 2, 3)), s((2, 3, 2))), s.call('ii->i', s((3, 3))),
                          s.call('i,j,k->jki', s((2,)), s((3,)), s((2,))), s.call('...i,i->...', s((2, 3, 2)), s((2,))), s.call('ij->', s((2, 3)))])
