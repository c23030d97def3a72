"""Products cut into tiles, as LLVM IR: `source(t, int_type)` gives the text for one of the types s, d, c, z.

A product is described by a block of 64-bit words (`WORDS`: name -> position; pointers are addresses, leading dimensions
count elements, batch strides bytes). For each type t the exports are

* `rl_tgemm_run(words)`: the product (it reads the first `GIVEN` words), cut by shape alone and spread over the pool;
* `rl_tgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)`: the same for one row-major product, as a C function.

A tile of type s or d runs in a kernel of ours (gemm_ir.py) where that is as fast as the library: k of at most
`_OWN_DEPTH`, and rows of A that do not compete for the same lines of the cache.

The cut. Tiles are at most 512 x 512; beyond that a side is halved, rather the shorter rows than the columns, while the
pieces are few and large enough to be worth a thread (`SPLIT_FLOPS`, `_FLOPS`). A product with one row or column is a matrix-vector product, bound by memory, and cut
by the elements it reads. Small products of a batch are taken several to a chunk.
"""

from __future__ import annotations

__all__ = ["CHUNK_FLOPS", "SPLIT_FLOPS", "WORDS", "source"]

SPLIT_FLOPS = 4_000_000         # a product with fewer is one tile
_FLOPS = 12_000_000             # beyond four tiles only those with more are cut again: each packs its part of B
CHUNK_FLOPS = 4_000_000         # what a chunk of small products should have
_VECTOR_ELEMENTS = 1 << 18      # elements of the matrix to a tile of a matrix-vector product
_OWN_DEPTH = 1024               # a product longer along k gains by packing A too: the library does that
_SETS = 4096                    # bytes after which addresses share a set of the first cache
_CALL = 20_000                  # a call of the library costs about as much time as this many operations

_NAMES = ("ta", "tb", "m", "n", "k", "a", "lda", "b", "ldb", "c", "ldc", "alpha", "beta", "batch", "inner",
          "a_outer", "a_inner", "b_outer", "b_inner", "c_outer", "c_inner", "bias", "mt", "nt", "across", "tiles")
GIVEN = 22                      # words that the caller gives; the plan adds the others
WORDS = {name: i for i, name in enumerate(_NAMES)}
_TYPES = {"s": ("float", 4), "d": ("double", 8), "c": ("[2 x float]", 8), "z": ("[2 x double]", 16)}


def _get(*names: str) -> str:
    return "\n".join(f"  %{n}.p = getelementptr i64, ptr %w, i64 {WORDS[n]}\n  %{n} = load i64, ptr %{n}.p"
                     for n in names)


def _pointers(*names: str) -> str:
    return "\n".join(f"  %{n}.q = inttoptr i64 %{n} to ptr" for n in names)


def source(t: str, int_type: str = "i64") -> str:
    """IR for type `t` and a library whose integers are `int_type` (i64 or i32). Externals: `rl_parallel`,
    `rl_blas_tgemm`, `rl_blas_tgemv`, and for s and d gemm_ir's `rl_ttile`."""
    return _PLAN + "declare void @rl_parallel(ptr, ptr, i64, i64)\n" + _COPY + _typed(t, int_type)


_COPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
_PLAN = f"""
; Tile sizes from the shape. Written once, read by all chunks.
define internal void @plan(ptr %w, i64 %cost) {{
entry:
{_get("m", "n", "k", "ta", "tb")}
  %m512 = icmp slt i64 %m, 512
  %mt0 = select i1 %m512, i64 %m, i64 512
  %n512 = icmp slt i64 %n, 512
  %nt0 = select i1 %n512, i64 %n, i64 512
  %m1 = icmp eq i64 %m, 1
  %n1 = icmp eq i64 %n, 1
  %vector = or i1 %m1, %n1
  %at = icmp eq i64 %ta, 112
  %bn = icmp eq i64 %tb, 111
  %ac = and i1 %n1, %at
  %br = and i1 %m1, %bn
  %along = or i1 %ac, %br                             ; the matrix is read in rows as wide as a tile: keep them wide
  %mt00 = select i1 %vector, i64 %m, i64 %mt0
  %nt00 = select i1 %vector, i64 %n, i64 %nt0
  br label %loop
loop:
  %mt = phi i64 [%mt00, %entry], [%mt, %wide], [%mh, %high]
  %nt = phi i64 [%nt00, %entry], [%nh, %wide], [%nt, %high]
  %mx = add i64 %m, %mt
  %mx1 = sub i64 %mx, 1
  %down = udiv i64 %mx1, %mt
  %nx = add i64 %n, %nt
  %nx1 = sub i64 %nx, 1
  %across = udiv i64 %nx1, %nt
  %tiles = mul i64 %down, %across
  %few = icmp slt i64 %tiles, 16
  %area = mul i64 %mt, %nt
  %work = mul i64 %area, %k
  %flops = mul i64 %work, %cost
  %four = icmp slt i64 %tiles, 4
  %least = select i1 %four, i64 {SPLIT_FLOPS}, i64 {_FLOPS}
  %mlimit = icmp sge i64 %flops, %least
  %vwork = icmp sge i64 %work, {2 * _VECTOR_ELEMENTS}
  %wideenough = icmp sge i64 %area, 2048
  %across_ok = xor i1 %along, true
  %fit = or i1 %wideenough, %across_ok
  %vlimit = and i1 %vwork, %fit
  %large = select i1 %vector, i1 %vlimit, i1 %mlimit
  %split = and i1 %few, %large
  br i1 %split, label %which, label %done
which:
  %mh0 = add i64 %mt, 15
  %mh1 = lshr i64 %mh0, 4
  %mh = shl i64 %mh1, 3                               ; half, a multiple of 8
  %nh0 = add i64 %nt, 127
  %nh1 = lshr i64 %nh0, 7
  %nh = shl i64 %nh1, 6                               ; half, a multiple of 64
  %nt4 = mul i64 %nt, 4                               ; a tile packs its part of B: rather high than wide
  %nfar = icmp sge i64 %nt4, %mt
  %nok = icmp slt i64 %nh, %nt
  %mok = icmp slt i64 %mh, %mt
  %either = or i1 %nok, %mok
  br i1 %either, label %side, label %done
side:
  %mno = xor i1 %mok, true
  %prefer = or i1 %nfar, %mno
  %takewide = and i1 %prefer, %nok
  br i1 %takewide, label %wide, label %high
wide:
  br label %loop
high:
  br label %loop
done:
  %mt.p = getelementptr i64, ptr %w, i64 {WORDS["mt"]}
  store i64 %mt, ptr %mt.p
  %nt.p = getelementptr i64, ptr %w, i64 {WORDS["nt"]}
  store i64 %nt, ptr %nt.p
  %across.p = getelementptr i64, ptr %w, i64 {WORDS["across"]}
  store i64 %across, ptr %across.p
  %tiles.p = getelementptr i64, ptr %w, i64 {WORDS["tiles"]}
  store i64 %tiles, ptr %tiles.p
  ret void
}}
"""


def _typed(t: str, i: str) -> str:
    scalar, size = _TYPES[t]
    by_value = t in "sd"
    cost = 2 if by_value else 8

    def integer(name: str) -> str:
        return f"i64 %{name}" if i == "i64" else f"i32 %{name}.n"

    def narrow(*names: str) -> str:
        return "" if i == "i64" else "\n".join(f"  %{n}.n = trunc i64 %{n} to i32" for n in names)

    def number(name: str) -> str:
        return f"{scalar} %{name}.v" if by_value else f"ptr %{name}.q"

    loads = "\n".join(f"  %{n}.v = load {scalar}, ptr %{n}.q" for n in ("alpha", "beta")) if by_value else ""
    num = scalar if by_value else "ptr"
    arguments = f"{scalar} %alpha" if by_value else "ptr %alpha"
    beta = f"{scalar} %beta" if by_value else "ptr %beta"
    tile = (f"declare void @rl_{t}tile(i64, i64, i64, ptr, i64, i64, ptr, i64, i64, ptr, i64, {scalar}, {scalar}, ptr)\n"
            if by_value else "")
    own = f"""  %arowb = mul i64 %arow, {size}
  %acolb = mul i64 %acol, {size}
  %browb = mul i64 %brow, {size}
  %bcolb = mul i64 %bcol, {size}
  %crowb = mul i64 %ldc, {size}
  %deep = icmp sgt i64 %k, {_OWN_DEPTH}
  %setmask = and i64 %arowb, {_SETS - 1}
  %aliased = icmp eq i64 %setmask, 0                  ; rows of A that compete for the same lines of the cache
  %notours = or i1 %deep, %aliased
  %biasb = mul i64 %col, {size}
  %biasp = getelementptr i8, ptr %bias.q, i64 %biasb
  %biast = select i1 %unbiased, ptr null, ptr %biasp
  br i1 %notours, label %theirs, label %ours
theirs:                                               ; the library adds to C: put the bias there
  br i1 %unbiased, label %library, label %spread
spread:
  %si = phi i64 [0, %theirs], [%si1, %spread]
  %so = mul i64 %si, %crowb
  %sp = getelementptr i8, ptr %ct, i64 %so
  %sn = mul i64 %nn, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %sp, ptr %biast, i64 %sn, i1 false)
  %si1 = add i64 %si, 1
  %smore = icmp ult i64 %si1, %mm
  br i1 %smore, label %spread, label %library
ours:
  call void @rl_{t}tile(i64 %mm, i64 %nn, i64 %k, ptr %at, i64 %arowb, i64 %acolb, ptr %bt, i64 %browb, i64 %bcolb,
    ptr %ct, i64 %crowb, {scalar} %alpha.v, {scalar} %beta.v, ptr %biast)
  br label %next""" if by_value else "  br label %library"
    beta_now = f"  %beta.now = phi {scalar} [%beta.v, %theirs], [1.0, %spread]" if by_value else ""
    beta_there = f"{scalar} %beta.now" if by_value else number("beta")
    keep = f"""
  %av = alloca {scalar}
  store {scalar} %alpha, ptr %av
  %bv = alloca {scalar}
  store {scalar} %beta, ptr %bv
  %ai = ptrtoint ptr %av to i64
  %bi = ptrtoint ptr %bv to i64""" if by_value else """
  %ai = ptrtoint ptr %alpha to i64
  %bi = ptrtoint ptr %beta to i64"""
    given = {"ta": "%ta", "tb": "%tb", "m": "%m", "n": "%n", "k": "%k", "a": "%a", "lda": "%lda", "b": "%b",
             "ldb": "%ldb", "c": "%c", "ldc": "%ldc", "alpha": "%ai", "beta": "%bi", "batch": "1", "inner": "1", "bias": "0",
             **{f"{x}_{y}": "0" for x in "abc" for y in ("outer", "inner")}}
    stores = "\n".join(f"  %{n}.p = getelementptr i64, ptr %w, i64 {WORDS[n]}\n  store i64 {v}, ptr %{n}.p"
                       for n, v in given.items())
    return f"""
{tile}declare void @rl_blas_{t}gemm(i32, i32, i32, {i}, {i}, {i}, {num}, ptr, {i}, ptr, {i}, {num}, ptr, {i})
declare void @rl_blas_{t}gemv(i32, i32, {i}, {i}, {num}, ptr, {i}, ptr, {i}, {num}, ptr, {i})

define internal void @{t}_tiles(ptr %w, i64 %begin, i64 %end) {{
entry:
{_get(*_NAMES)}
  %ta.i = trunc i64 %ta to i32
  %tb.i = trunc i64 %tb to i32
{_pointers("a", "b", "c", "alpha", "beta", "bias")}
  %unbiased = icmp eq i64 %bias, 0
{loads}
  %atrans = icmp eq i64 %ta, 112
  %btrans = icmp eq i64 %tb, 112
  %arow = select i1 %atrans, i64 1, i64 %lda           ; from one row of op(A) to the next, in elements
  %acol = select i1 %atrans, i64 %lda, i64 1
  %brow = select i1 %btrans, i64 1, i64 %ldb
  %bcol = select i1 %btrans, i64 %ldb, i64 1
  %n1 = icmp eq i64 %n, 1
  %m1 = icmp eq i64 %m, 1
  br label %loop
loop:
  %idx = phi i64 [%begin, %entry], [%idx1, %next]
  %which = udiv i64 %idx, %tiles
  %tile = urem i64 %idx, %tiles
  %o = udiv i64 %which, %inner
  %p = urem i64 %which, %inner
  %ti = udiv i64 %tile, %across
  %tj = urem i64 %tile, %across
  %row = mul i64 %ti, %mt
  %col = mul i64 %tj, %nt
  %mleft = sub i64 %m, %row
  %nleft = sub i64 %n, %col
  %mshort = icmp slt i64 %mleft, %mt
  %mm = select i1 %mshort, i64 %mleft, i64 %mt
  %nshort = icmp slt i64 %nleft, %nt
  %nn = select i1 %nshort, i64 %nleft, i64 %nt
  %ao = mul i64 %o, %a_outer
  %ap = mul i64 %p, %a_inner
  %ar = mul i64 %row, %arow
  %arb = mul i64 %ar, {size}
  %a1 = add i64 %ao, %ap
  %a2 = add i64 %a1, %arb
  %at = getelementptr i8, ptr %a.q, i64 %a2
  %bo = mul i64 %o, %b_outer
  %bp = mul i64 %p, %b_inner
  %bc = mul i64 %col, %bcol
  %bcb = mul i64 %bc, {size}
  %b1 = add i64 %bo, %bp
  %b2 = add i64 %b1, %bcb
  %bt = getelementptr i8, ptr %b.q, i64 %b2
  %co = mul i64 %o, %c_outer
  %cp = mul i64 %p, %c_inner
  %cr = mul i64 %row, %ldc
  %cc = add i64 %cr, %col
  %ccb = mul i64 %cc, {size}
  %c1 = add i64 %co, %cp
  %c2 = add i64 %c1, %ccb
  %ct = getelementptr i8, ptr %c.q, i64 %c2
{narrow("mm", "nn", "k", "lda", "ldb", "ldc", "arow", "acol", "brow", "bcol")}
  br i1 %n1, label %column, label %other
other:
  br i1 %m1, label %line, label %matrix
matrix:
{own}
library:
{beta_now}
  call void @rl_blas_{t}gemm(i32 101, i32 %ta.i, i32 %tb.i, {integer("mm")}, {integer("nn")}, {integer("k")},
    {number("alpha")}, ptr %at, {integer("lda")}, ptr %bt, {integer("ldb")}, {beta_there}, ptr %ct,
    {integer("ldc")})
  br label %next
column:                                               ; C[:, 0] = op(A) b
  %cm = select i1 %atrans, i64 %k, i64 %mm
  %cn = select i1 %atrans, i64 %mm, i64 %k
{narrow("cm", "cn")}
  call void @rl_blas_{t}gemv(i32 101, i32 %ta.i, {integer("cm")}, {integer("cn")}, {number("alpha")}, ptr %at,
    {integer("lda")}, ptr %bt, {integer("brow")}, {number("beta")}, ptr %ct, {integer("ldc")})
  br label %next
line:                                                 ; C[0, :] = op(B)^T a
  %flip = sub i32 223, %tb.i
  %lm = select i1 %btrans, i64 %nn, i64 %k
  %ln = select i1 %btrans, i64 %k, i64 %nn
{narrow("lm", "ln")}
  call void @rl_blas_{t}gemv(i32 101, i32 %flip, {integer("lm")}, {integer("ln")}, {number("alpha")}, ptr %bt,
    {integer("ldb")}, ptr %at, {integer("acol")}, {number("beta")}, ptr %ct, {i} 1)
  br label %next
next:
  %idx1 = add i64 %idx, 1
  %more = icmp slt i64 %idx1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}}

define void @rl_{t}gemm_run(ptr %given) {{
  %w = alloca [{len(_NAMES)} x i64]
  call void @llvm.memcpy.p0.p0.i64(ptr %w, ptr %given, i64 {8 * GIVEN}, i1 false)
  call void @plan(ptr %w, i64 {cost})
{_get("batch", "tiles", "m", "n", "k")}
  %all = mul i64 %batch, %tiles
  %mn = mul i64 %m, %n
  %mnk = mul i64 %mn, %k
  %whole = mul i64 %mnk, {cost}
  %each0 = udiv i64 %whole, %tiles
  %each = add i64 %each0, {_CALL}
  %several = udiv i64 {CHUNK_FLOPS}, %each
  %one = icmp slt i64 %several, 1
  %grain0 = select i1 %one, i64 1, i64 %several
  %cut = icmp ugt i64 %tiles, 1                       ; a matrix that was cut: a tile to a chunk
  %grain = select i1 %cut, i64 1, i64 %grain0
  call void @rl_parallel(ptr @{t}_tiles, ptr %w, i64 %all, i64 %grain)
  ret void
}}

define void @rl_{t}gemm(i64 %ta, i64 %tb, i64 %m, i64 %n, i64 %k, {arguments}, i64 %a, i64 %lda, i64 %b, i64 %ldb,
    {beta}, i64 %c, i64 %ldc) {{
entry:
  %some = icmp sgt i64 %m, 0
  %some2 = icmp sgt i64 %n, 0
  %both = and i1 %some, %some2
  br i1 %both, label %go, label %nothing
nothing:
  ret void
go:
  %w = alloca [{GIVEN} x i64]{keep}
{stores}
  call void @rl_{t}gemm_run(ptr %w)
  ret void
}}
"""
