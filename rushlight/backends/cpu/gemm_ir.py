"""A real matrix product of one tile as LLVM IR: kernels in registers, for sizes at which a library's own packing costs.

`source(t, width)` gives the text for one type and vector length. It defines

    void @rl_ttile(m, n, k, a, ars, acs, b, brs, bcs, c, crs, alpha, beta, bias)

C = alpha A B + beta C for any m and n, with strides in bytes, where one stride of A and one of B is the element's size
and C's rows are contiguous. C is not read when beta is 0. `bias` (n numbers, or null) is added to every row. Blocks of `DEPTH` of k come one after another, and every element
adds up its products in the order of k: how C is cut into tiles has no effect on its bits.

The form is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34, 2008), without
the packing of A, which pays only for larger products: a panel of B as wide as two registers is packed (transposed if
need be) on the stack, and for each few rows of A one kernel holds that part of C in registers while it walks along k, with
one broadcast of an element of A for each row and step.
"""

from __future__ import annotations

from rushlight.backends.cpu.emit import transpose

__all__ = ["DEPTH", "source"]

DEPTH = 512
_ROWS = {32: (12, 8, 4, 2, 1), 16: (6, 4, 2, 1)}        # rows of a kernel by the number of vector registers
_TYPES = {"s": ("float", 4), "d": ("double", 8)}


def source(t: str, vector_bytes: int, registers: int) -> str:
    """IR for type `t` ("s" or "d") on registers of `vector_bytes` bytes, of which there are 32 or 16."""
    return _Tile(t, vector_bytes, registers).text()


class _Tile:
    def __init__(self, t: str, vector_bytes: int, registers: int) -> None:
        self.t = t
        self.scalar, self.size = _TYPES[t]
        self.lanes = vector_bytes // self.size
        self.vector = f"<{self.lanes} x {self.scalar}>"
        self.suffix = f"v{self.lanes}f{8 * self.size}"
        self.rows = _ROWS[registers]
        self.panel = 2 * self.lanes

    def text(self) -> str:
        kernels = "".join(self.kernel(rows, vectors, across) for rows in self.rows for vectors in (2, 1)
                          for across in (True, False))
        return f"""
declare {self.vector} @llvm.fma.{self.suffix}({self.vector}, {self.vector}, {self.vector})
declare {self.scalar} @llvm.fma.f{8 * self.size}({self.scalar}, {self.scalar}, {self.scalar})
""" + kernels + self.finish() + self.pack() + self.tile()

    def splat(self, name: str, value: str) -> str:
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return (f"  %{name}.1 = insertelement {self.vector} poison, {self.scalar} {value}, i32 0\n"
                f"  %{name} = shufflevector {self.vector} %{name}.1, {self.vector} poison, {zeros}\n")

    def kernel(self, rows: int, vectors: int, across: bool) -> str:
        """`rows` x `vectors` registers of C. `across`: a row of A is contiguous, else a column is. %as is the other
        stride. %c gets alpha times the sums, plus the bias if there is one."""
        v, s, size = self.vector, self.scalar, self.size
        accs = [(i, j) for i in range(rows) for j in range(vectors)]
        out = [f"\ndefine internal void @{self.t}_k{rows}_{vectors}_{'r' if across else 'c'}(ptr noalias %a, i64 %as, "
               f"ptr noalias %b, i64 %k, ptr noalias %c, i64 %crs, {s} %alpha, ptr noalias %bias) noinline {{\nentry:"]
        for i in range(rows):
            if across:
                out.append(f"  %o{i} = mul i64 %as, {i}\n  %r{i} = getelementptr i8, ptr %a, i64 %o{i}")
        out.append(f"  %bytes = mul i64 %k, {size}\n  br label %loop\nloop:")
        out.append("  %p = phi i64 [0, %entry], [%p1, %loop]\n  %bq = phi ptr [%b, %entry], [%bn, %loop]")
        if not across:
            out.append("  %aq = phi ptr [%a, %entry], [%an, %loop]")
        for i, j in accs:
            out.append(f"  %s{i}_{j} = phi {v} [zeroinitializer, %entry], [%t{i}_{j}, %loop]")
        for j in range(vectors):
            out.append(f"  %bj{j} = getelementptr i8, ptr %bq, i64 {j * self.lanes * size}\n"
                       f"  %v{j} = load {v}, ptr %bj{j}, align {self.lanes * size}")
        for i in range(rows):
            where = f"ptr %r{i}, i64 %p" if across else f"ptr %aq, i64 {i * size}"
            out.append(f"  %e{i} = getelementptr i8, {where}\n  %x{i} = load {s}, ptr %e{i}, align {size}")
            out.append(self.splat(f"y{i}", f"%x{i}").rstrip())
            for j in range(vectors):
                out.append(f"  %t{i}_{j} = call {v} @llvm.fma.{self.suffix}({v} %y{i}, {v} %v{j}, {v} %s{i}_{j})")
        out.append(f"  %bn = getelementptr i8, ptr %bq, i64 {self.panel * size}")
        if not across:
            out.append("  %an = getelementptr i8, ptr %aq, i64 %as")
        out.append(f"  %p1 = add i64 %p, {size}\n  %more = icmp ult i64 %p1, %bytes\n"
                   "  br i1 %more, label %loop, label %done\ndone:\n  %none = icmp eq ptr %bias, null\n"
                   "  br i1 %none, label %store, label %offset\noffset:")
        for j in range(vectors):
            out.append(f"  %biasp{j} = getelementptr i8, ptr %bias, i64 {j * self.lanes * size}\n"
                       f"  %biasv{j} = load {v}, ptr %biasp{j}, align {size}")
        out.append("  br label %store\nstore:")
        for j in range(vectors):
            out.append(f"  %bias{j} = phi {v} [zeroinitializer, %done], [%biasv{j}, %offset]")
        out.append(self.splat("al", "%alpha").rstrip())
        for i in range(rows):
            out.append(f"  %co{i} = mul i64 %crs, {i}\n  %cr{i} = getelementptr i8, ptr %c, i64 %co{i}")
            for j in range(vectors):
                out.append(f"  %w{i}_{j} = call {v} @llvm.fma.{self.suffix}({v} %t{i}_{j}, {v} %al, {v} %bias{j})\n"
                           f"  %cp{i}_{j} = getelementptr i8, ptr %cr{i}, i64 {j * self.lanes * size}\n"
                           f"  store {v} %w{i}_{j}, ptr %cp{i}_{j}, align {size}")
        return "\n".join(out) + "\n  ret void\n}\n"

    def finish(self) -> str:
        """C = buffer + beta C + bias for a part of %m rows and %n columns; buffer rows are a panel wide."""
        s, size = self.scalar, self.size
        return f"""
define internal void @{self.t}_finish(ptr noalias %buf, i64 %m, i64 %n, ptr noalias %c, i64 %crs, {s} %beta,
    ptr noalias %bias) noinline {{
entry:
  %plain = icmp eq ptr %bias, null
  %fresh = fcmp oeq {s} %beta, 0.0
  br label %row
row:
  %i = phi i64 [0, %entry], [%i1, %rowend]
  %bo = mul i64 %i, {self.panel * size}
  %bp = getelementptr i8, ptr %buf, i64 %bo
  %co = mul i64 %i, %crs
  %cp = getelementptr i8, ptr %c, i64 %co
  br label %col
col:
  %j = phi i64 [0, %row], [%j1, %colout]
  %sp = getelementptr {s}, ptr %bp, i64 %j
  %sum = load {s}, ptr %sp
  %dp = getelementptr {s}, ptr %cp, i64 %j
  br i1 %fresh, label %colend, label %old
old:
  %was = load {s}, ptr %dp, align {size}
  %both = call {s} @llvm.fma.f{8 * size}({s} %was, {s} %beta, {s} %sum)
  br label %colend
colend:
  %value = phi {s} [%sum, %col], [%both, %old]
  br i1 %plain, label %colout, label %add
add:
  %biasp = getelementptr {s}, ptr %bias, i64 %j
  %biasv = load {s}, ptr %biasp, align {size}
  %more = fadd {s} %value, %biasv
  br label %colout
colout:
  %out = phi {s} [%value, %colend], [%more, %add]
  store {s} %out, ptr %dp, align {size}
  %j1 = add i64 %j, 1
  %jm = icmp ult i64 %j1, %n
  br i1 %jm, label %col, label %rowend
rowend:
  %i1 = add i64 %i, 1
  %im = icmp ult i64 %i1, %m
  br i1 %im, label %row, label %end
end:
  ret void
}}
"""

    def pack(self) -> str:
        """Panel of B to %to, row after row of k, each filled up with zeros to the panel's width."""
        v, s, size, lanes, panel = self.vector, self.scalar, self.size, self.lanes, self.panel
        copy = "\n".join(f"  %f{j} = getelementptr i8, ptr %src, i64 {j * lanes * size}\n  %g{j} = load {v}, ptr %f{j}, align {size}\n"
                         f"  %h{j} = getelementptr i8, ptr %dst, i64 {j * lanes * size}\n  store {v} %g{j}, ptr %h{j}, align {lanes * size}"
                         for j in range(2))
        turn = []
        for half in range(2):
            names = []
            for i in range(lanes):
                x = f"u{half}_{i}"
                turn.append(f"  %{x}.o = mul i64 %bcs, {half * lanes + i}\n  %{x}.p = getelementptr i8, ptr %block, i64 %{x}.o\n"
                            f"  %{x} = load {v}, ptr %{x}.p, align {size}")
                names.append(x)
            lines, names = transpose(names, v)
            turn += lines
            for i, x in enumerate(names):
                turn.append(f"  %{x}.q = getelementptr i8, ptr %rows, i64 {(i * panel + half * lanes) * size}\n"
                            f"  store {v} %{x}, ptr %{x}.q, align {lanes * size}")
        turned = "\n".join(turn)
        return f"""
define internal void @{self.t}_pack(ptr noalias %b, i64 %brs, i64 %bcs, i64 %k, i64 %n, ptr noalias %to) noinline {{
entry:
  %full = icmp eq i64 %n, {panel}
  %straight = icmp eq i64 %bcs, {size}
  %quick = and i1 %full, %straight
  br i1 %quick, label %copy, label %other
copy:
  %p = phi i64 [0, %entry], [%p1, %copy]
  %so = mul i64 %p, %brs
  %src = getelementptr i8, ptr %b, i64 %so
  %do = mul i64 %p, {panel * size}
  %dst = getelementptr i8, ptr %to, i64 %do
{copy}
  %p1 = add i64 %p, 1
  %pm = icmp ult i64 %p1, %k
  br i1 %pm, label %copy, label %end
other:
  %deep = icmp uge i64 %k, {lanes}
  %along = icmp eq i64 %brs, {size}
  %t1 = and i1 %full, %deep
  %turns = and i1 %t1, %along
  br i1 %turns, label %turn, label %slow
turn:
  %q = phi i64 [0, %other], [%q1, %turn]
  %qo = mul i64 %q, {size}
  %block = getelementptr i8, ptr %b, i64 %qo
  %ro = mul i64 %q, {panel * size}
  %rows = getelementptr i8, ptr %to, i64 %ro
{turned}
  %q1 = add i64 %q, {lanes}
  %q2 = add i64 %q1, {lanes}
  %qm = icmp ule i64 %q2, %k
  br i1 %qm, label %turn, label %rest
rest:
  %left = icmp ult i64 %q1, %k
  br i1 %left, label %slow, label %end
slow:                                                 ; one by one, from row %from
  %from = phi i64 [0, %other], [%q1, %rest]
  br label %line
line:
  %i = phi i64 [%from, %slow], [%i1, %lineend]
  %io = mul i64 %i, %brs
  %ip = getelementptr i8, ptr %b, i64 %io
  %to0 = mul i64 %i, {panel * size}
  %tp = getelementptr i8, ptr %to, i64 %to0
  br label %item
item:
  %j = phi i64 [0, %line], [%j1, %set]
  %in = icmp ult i64 %j, %n
  br i1 %in, label %get, label %set
get:
  %jo = mul i64 %j, %bcs
  %jp = getelementptr i8, ptr %ip, i64 %jo
  %val = load {s}, ptr %jp, align {size}
  br label %set
set:
  %x = phi {s} [0.0, %item], [%val, %get]
  %xp = getelementptr {s}, ptr %tp, i64 %j
  store {s} %x, ptr %xp
  %j1 = add i64 %j, 1
  %jm = icmp ult i64 %j1, {panel}
  br i1 %jm, label %item, label %lineend
lineend:
  %i1 = add i64 %i, 1
  %im = icmp ult i64 %i1, %k
  br i1 %im, label %line, label %end
end:
  ret void
}}
"""

    def tile(self) -> str:
        t, s, size, panel = self.t, self.scalar, self.size, self.panel
        most = self.rows[0]
        steps = []
        for r in self.rows:
            calls = []
            for vectors in (2, 1):
                for across in (True, False):
                    name = f"go{r}_{vectors}_{'r' if across else 'c'}"
                    calls.append(f"{name}:\n  call void @{t}_k{r}_{vectors}_{'r' if across else 'c'}(ptr %ai, i64 %as, ptr %packed, i64 %kk, "
                                 f"ptr %dest, i64 %drs, {s} %alpha, ptr %biask)\n  br label %ran")
            steps.append(f"""try{r}:
  %enough{r} = icmp uge i64 %mleft, {r}
  br i1 %enough{r}, label %pick{r}, label %try{self.rows[self.rows.index(r) + 1] if r != 1 else 'none'}
pick{r}:
  switch i64 %form, label %go{r}_2_r [i64 1, label %go{r}_2_c i64 2, label %go{r}_1_r i64 3, label %go{r}_1_c]
""" + "\n".join(calls))
        count = "\n".join(f"  %is{r} = icmp uge i64 %mleft, {r}\n  %rows{r} = select i1 %is{r}, i64 {r}, i64 %rows{self.rows[self.rows.index(r) + 1]}"
                          for r in reversed(self.rows[:-1]))
        return f"""
define void @rl_{t}tile(i64 %m, i64 %n, i64 %k, ptr %a, i64 %ars, i64 %acs, ptr %b, i64 %brs, i64 %bcs, ptr %c, i64 %crs,
    {s} %alpha, {s} %beta0, ptr %bias0) noinline {{
entry:
  %packed = alloca [{panel * DEPTH} x {s}], align 64
  %buffer = alloca [{panel * most} x {s}], align 64
  %isacross = icmp eq i64 %acs, {size}
  %as = select i1 %isacross, i64 %ars, i64 %acs
  %side = select i1 %isacross, i64 0, i64 1
  br label %depth
depth:
  %p = phi i64 [0, %entry], [%pnext, %depthend]
  %beta = phi {s} [%beta0, %entry], [1.0, %depthend]
  %bias = phi ptr [%bias0, %entry], [null, %depthend]
  %unbiased = icmp eq ptr %bias, null
  %kleft = sub i64 %k, %p
  %kshort = icmp ult i64 %kleft, {DEPTH}
  %kk = select i1 %kshort, i64 %kleft, i64 {DEPTH}
  %fresh = fcmp oeq {s} %beta, 0.0
  %apo = mul i64 %p, %acs
  %ap = getelementptr i8, ptr %a, i64 %apo
  %bpo = mul i64 %p, %brs
  %bp = getelementptr i8, ptr %b, i64 %bpo
  br label %cols
cols:
  %j = phi i64 [0, %depth], [%jnext, %colsend]
  %nleft = sub i64 %n, %j
  %nshort = icmp ult i64 %nleft, {panel}
  %nn = select i1 %nshort, i64 %nleft, i64 {panel}
  %bjo = mul i64 %j, %bcs
  %bj = getelementptr i8, ptr %bp, i64 %bjo
  call void @{t}_pack(ptr %bj, i64 %brs, i64 %bcs, i64 %kk, i64 %nn, ptr %packed)
  %narrow = icmp ule i64 %nn, {self.lanes}
  %narrow2 = select i1 %narrow, i64 2, i64 0
  %form = or i64 %narrow2, %side
  %wide = icmp eq i64 %nn, {panel}
  %half = icmp eq i64 %nn, {self.lanes}
  %fit = or i1 %wide, %half
  %whole = and i1 %fit, %fresh
  %cjo = mul i64 %j, {size}
  %cj = getelementptr i8, ptr %c, i64 %cjo
  %biasat = getelementptr i8, ptr %bias, i64 %cjo
  %biasj = select i1 %unbiased, ptr null, ptr %biasat
  %biask = select i1 %whole, ptr %biasj, ptr null
  br label %rows
rows:
  %i = phi i64 [0, %cols], [%inext, %rowsend]
  %mleft = sub i64 %m, %i
  %aio = mul i64 %i, %ars
  %ai = getelementptr i8, ptr %ap, i64 %aio
  %cio = mul i64 %i, %crs
  %ci = getelementptr i8, ptr %cj, i64 %cio
  %dest = select i1 %whole, ptr %ci, ptr %buffer
  %drs = select i1 %whole, i64 %crs, i64 {panel * size}
  %rows1 = add i64 0, 1
{count}
  br label %try{most}
{chr(10).join(steps)}
trynone:
  br label %ran
ran:
  br i1 %whole, label %rowsend, label %partly
partly:
  call void @{t}_finish(ptr %buffer, i64 %rows{most}, i64 %nn, ptr %ci, i64 %crs, {s} %beta,
    ptr %biasj)
  br label %rowsend
rowsend:
  %inext = add i64 %i, %rows{most}
  %imore = icmp ult i64 %inext, %m
  br i1 %imore, label %rows, label %colsend
colsend:
  %jnext = add i64 %j, {panel}
  %jmore = icmp ult i64 %jnext, %n
  br i1 %jmore, label %cols, label %depthend
depthend:
  %pnext = add i64 %p, {DEPTH}
  %pmore = icmp ult i64 %pnext, %k
  br i1 %pmore, label %depth, label %end
end:
  ret void
}}
"""
