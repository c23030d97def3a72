"""The native thread pool as LLVM IR: `source()` gives the text, the constants say where its state lies.

One 64-bit word holds the number of the current job (upper half) and the next chunk to be claimed (lower half).
A worker reads the job's description and claims a chunk with a compare-and-swap of the whole word:
when that succeeds the job was current throughout, because a job ends only when all of its chunks are done. So nobody
waits for a worker that has not claimed anything: asleep or descheduled workers cost nothing, the caller does the work.
Idle workers spin as long as the gaps between recent jobs suggest (at most `RUSHLIGHT_SPIN_US`, 1000), then park on the
word (futex; elsewhere they poll every 0.1 ms).

On a busy machine two threads can be slower than one: a claimed chunk sits for milliseconds on a core that runs
something else, or the woken worker is put on the caller's own core. So a spinning worker that notices that it was
descheduled stops spinning for a while; one that wakes on the caller's core moves itself to another, or takes nothing
and tells where it cannot; and the caller then works alone, for 1 to 64 ms in the latter case, and after a wait much
longer than a chunk takes for 1 to 16 times that wait, the more the oftener that happens. Jobs that last longer than
5 ms wake everybody then: the scheduler will have spread the threads, and a job that is long enough gains from its
larger share of the machine.

Exports: `rl_parallel(fn, ctx, n, grain)`, `rl_pool_worker(id)` (a worker's whole life), `rl_pool_resize(helpers)`,
`rl_pool_acquire()`, `rl_pool_release()` (the lock that makes nested and concurrent calls serial), `rl_pool_state()`.
"""

from __future__ import annotations

import sys

# Words of the shared state; groups that different threads write lie on cache lines of their own.
TICKET, FN, CTX, N, GRAIN, CHUNKS, DONE, WAITING = 0, 16, 17, 18, 19, 20, 32, 33
BUSY, SLEEPERS, LIMIT, SPIN, QUIET, JOBS, ALONE, STALLS = 48, 64, 80, 81, 82, 96, 97, 98
WAITED, HELPED, WAKES, CPU, CROWDED, BACKOFF, WARY, LONG = 99, 100, 101, 21, 22, 83, 84, 23
LONG_NS = 5_000_000         # a job that lasts longer than the scheduler's slices wakes everybody, busy machine or not
WORDS = 112

FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}
PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "amd64": "call void @llvm.x86.sse2.pause()",
         "aarch64": "call void @llvm.aarch64.hint(i32 1)", "arm64": "call void @llvm.aarch64.hint(i32 1)"}

_AFFINITY = """declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)"""
# Leave the processor %there: the scheduler must move a thread whose affinity excludes where it runs, and lets it stay
# where it is when the affinity is put back.
_MOVE = """
define internal void @move(i64 %there) noinline {
entry:
  %mask = alloca [16 x i64], align 8
  %rest = alloca [16 x i64], align 8
  %low = icmp ult i64 %there, 1024
  br i1 %low, label %ask, label %end
ask:
  %got = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %asked = icmp sge i32 %got, 0
  br i1 %asked, label %without, label %end
without:
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %mask, i64 128, i1 false)
  %word = lshr i64 %there, 6
  %at = getelementptr i64, ptr %rest, i64 %word
  %old = load i64, ptr %at
  %bit = and i64 %there, 63
  %one = shl i64 1, %bit
  %keep = xor i64 %one, -1
  %new = and i64 %old, %keep
  store i64 %new, ptr %at
  %done = call i32 @sched_setaffinity(i32 0, i64 128, ptr %rest)      ; fails if no processor is left: nothing to do
  %moved = icmp eq i32 %done, 0
  br i1 %moved, label %restore, label %end
restore:
  %back = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %end
end:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"""


def source() -> str:
    """LLVM IR of the pool for this platform."""
    import platform

    machine = platform.machine().lower()
    number = FUTEX.get(machine) if sys.platform == "linux" else None
    if number is not None:
        park = f"call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 128, i32 %value, ptr null)"    # FUTEX_WAIT
        wake = f"call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 129, i32 %count)"              # FUTEX_WAKE
        cpu, declare = "call i32 @sched_getcpu()", "declare i64 @syscall(i64, ...)\ndeclare i32 @sched_getcpu()"
        move, declare = _MOVE, declare + "\n" + _AFFINITY
    else:
        move = "define internal void @move(i64 %there) {\n  ret void\n}"
        cpu = "add i32 0, -1"
        park, wake, declare = "call i32 @usleep(i32 100)", "add i32 0, 0", "declare i32 @usleep(i32)"
    pause = PAUSE.get(machine, "fence syncscope(\"singlethread\") seq_cst")
    if "@llvm" in pause:
        declare += "\ndeclare void " + pause.split("void ")[1].replace("i32 1", "i32")

    def at(word: int, byte: int = 0) -> str:
        return f"getelementptr (i8, ptr @state, i64 {word * 8 + byte})"

    monotonic = 6 if sys.platform == "darwin" else 1
    return f"""
@state = internal global [{WORDS} x i64] zeroinitializer, align 128
declare i32 @clock_gettime(i32, ptr)
{declare}

define ptr @rl_pool_state() {{
  ret ptr @state
}}

define internal i64 @now() noinline {{
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 {monotonic}, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %v = add i64 %sn, %n
  ret i64 %v
}}

define internal void @park(ptr %word, i32 %value) noinline {{
  %r = {park}
  ret void
}}

define internal void @wake(ptr %word, i32 %count) noinline {{
  %r = {wake}
  ret void
}}

{move}

define internal void @run_chunk(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %i) alwaysinline {{
  %b = mul i64 %i, %grain
  %left = sub i64 %n, %b
  %short = icmp slt i64 %left, %grain
  %len = select i1 %short, i64 %left, i64 %grain
  %e = add i64 %b, %len
  call void %fn(ptr %ctx, i64 %b, i64 %e)
  ret void
}}

; The pool's lock. Whoever does not get it works alone.
define i32 @rl_pool_acquire() {{
  %x = cmpxchg ptr {at(BUSY)}, i64 0, i64 1 acquire monotonic
  %ok = extractvalue {{i64, i1}} %x, 1
  %r = zext i1 %ok to i32
  ret i32 %r
}}

define void @rl_pool_release() {{
  store atomic i64 0, ptr {at(BUSY)} release, align 8
  ret void
}}

; Wake at most %most sleepers.
define internal void @rouse(i64 %most) {{
  %asleep = load atomic i64, ptr {at(SLEEPERS)} seq_cst, align 8
  %fewer = icmp slt i64 %asleep, %most
  %count = select i1 %fewer, i64 %asleep, i64 %most
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %rouse, label %end
rouse:
  %c32 = trunc i64 %count to i32
  %w = load atomic i64, ptr {at(WAKES)} monotonic, align 8
  %w1 = add i64 %w, 1
  store atomic i64 %w1, ptr {at(WAKES)} monotonic, align 8
  call void @wake(ptr {at(TICKET, 4)}, i32 %c32)
  br label %end
end:
  ret void
}}

; Make chunks %start to %chunks of a job current and wake at most %most sleepers. Called with the lock held.
define internal void @publish(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %chunks, i64 %most,
    i64 %start, i64 %long) {{
  ; Close the old job before its description changes: nothing is claimed from an index of all ones.
  %prior = load atomic i64, ptr {at(TICKET)} monotonic, align 8
  %closed = or i64 %prior, 4294967295
  %old = atomicrmw xchg ptr {at(TICKET)}, i64 %closed seq_cst
  %cpu = {cpu}
  %cpu64 = sext i32 %cpu to i64
  store atomic i64 %cpu64, ptr {at(CPU)} monotonic, align 8
  store atomic ptr %fn, ptr {at(FN)} monotonic, align 8
  store atomic ptr %ctx, ptr {at(CTX)} monotonic, align 8
  store atomic i64 %n, ptr {at(N)} monotonic, align 8
  store atomic i64 %grain, ptr {at(GRAIN)} monotonic, align 8
  store atomic i64 %chunks, ptr {at(CHUNKS)} monotonic, align 8
  store atomic i64 %start, ptr {at(DONE)} monotonic, align 8
  store atomic i64 %long, ptr {at(LONG)} monotonic, align 8
  store atomic i64 0, ptr {at(WAITING)} monotonic, align 8
  %high = and i64 %old, -4294967296
  %next = add i64 %high, 4294967296
  %new = or i64 %next, %start
  store atomic i64 %new, ptr {at(TICKET)} seq_cst, align 8
  fence seq_cst
  call void @rouse(i64 %most)
  ret void
}}

define void @rl_parallel(ptr %fn, ptr %ctx, i64 %n, i64 %grain0) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %size, label %return
size:
  %gpos = icmp sgt i64 %grain0, 1
  %grain = select i1 %gpos, i64 %grain0, i64 1
  %n1 = sub i64 %n, 1
  %c1 = udiv i64 %n1, %grain
  %chunks = add i64 %c1, 1
  %limit = load atomic i64, ptr {at(LIMIT)} monotonic, align 8
  %none = icmp eq i64 %limit, 0
  %one = icmp eq i64 %c1, 0
  %many = icmp ugt i64 %c1, 2147483000
  %a1 = or i1 %none, %one
  %a2 = or i1 %a1, %many
  br i1 %a2, label %alone, label %calm
calm:
  %quiet = load atomic i64, ptr {at(QUIET)} monotonic, align 8
  %disturbed = icmp ne i64 %quiet, 0
  br i1 %disturbed, label %check, label %lock
check:
  %tc = call i64 @now()
  %still = icmp slt i64 %tc, %quiet
  br i1 %still, label %prefix, label %again
prefix:                                               ; alone, unless it turns out to last
  %pi = phi i64 [0, %check], [%pi1, %ptime]
  call void @run_chunk(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %pi)
  %pi1 = add i64 %pi, 1
  %pmore = icmp ult i64 %pi1, %chunks
  br i1 %pmore, label %ptime, label %avoid
ptime:
  %tp = call i64 @now()
  %pel = sub i64 %tp, %tc
  %plong = icmp sgt i64 %pel, {LONG_NS}
  br i1 %plong, label %plock, label %prefix
plock:
  %pgot = call i32 @rl_pool_acquire()
  %pmine = icmp ne i32 %pgot, 0
  br i1 %pmine, label %begin, label %serial
avoid:
  %av = load atomic i64, ptr {at(ALONE)} monotonic, align 8
  %av1 = add i64 %av, 1
  store atomic i64 %av1, ptr {at(ALONE)} monotonic, align 8
  ret void
again:
  store atomic i64 0, ptr {at(QUIET)} monotonic, align 8
  br label %lock
lock:
  %got = call i32 @rl_pool_acquire()
  %mine = icmp ne i32 %got, 0
  br i1 %mine, label %begin, label %alone

alone:
  br label %serial
serial:
  %si = phi i64 [0, %alone], [%pi1, %plock], [%si1, %serial]
  call void @run_chunk(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %si)
  %si1 = add i64 %si, 1
  %more = icmp ult i64 %si1, %chunks
  br i1 %more, label %serial, label %return

begin:
  %start = phi i64 [0, %lock], [%pi1, %plock]
  %long0 = phi i64 [0, %lock], [1, %plock]
  %t0 = call i64 @now()
  %todo = sub i64 %chunks, %start
  %help = sub i64 %todo, 1
  %cl = icmp slt i64 %help, %limit
  %most = select i1 %cl, i64 %help, i64 %limit
  call void @publish(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %chunks, i64 %most, i64 %start, i64 %long0)
  br label %claim
claim:
  %count = phi i64 [0, %begin], [%count1, %work], [%count1, %time], [%count1, %renew], [%count1, %renewed]
  %long = phi i64 [%long0, %begin], [%long, %work], [0, %time], [1, %renew], [1, %renewed]
  %t = atomicrmw add ptr {at(TICKET)}, i64 1 acq_rel
  %idx = and i64 %t, 4294967295
  %left = icmp ult i64 %idx, %chunks
  br i1 %left, label %work, label %own
work:
  call void @run_chunk(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %idx)
  %count1 = add i64 %count, 1
  %islong = icmp ne i64 %long, 0
  br i1 %islong, label %claim, label %time
time:
  %tl = call i64 @now()
  %el = sub i64 %tl, %t0
  %lasts = icmp sgt i64 %el, {LONG_NS}
  br i1 %lasts, label %prolong, label %claim
prolong:                                              ; give the job a new number: who declined it looks again
  store atomic i64 1, ptr {at(LONG)} monotonic, align 8
  %tk0 = load atomic i64, ptr {at(TICKET)} monotonic, align 8
  br label %renew
renew:
  %tk = phi i64 [%tk0, %prolong], [%tk1, %swap]
  %tki = and i64 %tk, 4294967295
  %tkleft = icmp ult i64 %tki, %chunks
  br i1 %tkleft, label %swap, label %claim
swap:
  %tkn = add i64 %tk, 4294967296
  %x = cmpxchg ptr {at(TICKET)}, i64 %tk, i64 %tkn seq_cst monotonic
  %tk1 = extractvalue {{i64, i1}} %x, 0
  %won = extractvalue {{i64, i1}} %x, 1
  br i1 %won, label %renewed, label %renew
renewed:
  fence seq_cst
  call void @rouse(i64 %limit)
  br label %claim
own:
  %before = atomicrmw add ptr {at(DONE)}, i64 %count seq_cst
  %after = add i64 %before, %count
  %all = icmp eq i64 %after, %chunks
  br i1 %all, label %finish, label %wait
wait:
  %t1 = call i64 @now()
  br label %spin
spin:
  %k = phi i64 [0, %wait], [%k1, %relax], [%k1, %tick]
  %d = load atomic i64, ptr {at(DONE)} acquire, align 8
  %ready = icmp eq i64 %d, %chunks
  br i1 %ready, label %waited, label %spin2
spin2:
  {pause}
  %k1 = add i64 %k, 1
  %km = and i64 %k1, 31
  %look = icmp eq i64 %km, 0
  br i1 %look, label %tick, label %relax
relax:
  br label %spin
tick:
  %ts = call i64 @now()
  %spent = sub i64 %ts, %t1
  %impatient = icmp sgt i64 %spent, 30000
  br i1 %impatient, label %sleep, label %spin
sleep:
  store atomic i64 1, ptr {at(WAITING)} seq_cst, align 8
  fence seq_cst
  br label %sleeping
sleeping:
  %ds = load atomic i64, ptr {at(DONE)} seq_cst, align 8
  %rs = icmp eq i64 %ds, %chunks
  br i1 %rs, label %waited, label %parking
parking:
  %d32 = trunc i64 %ds to i32
  call void @park(ptr {at(DONE)}, i32 %d32)
  br label %sleeping
waited:
  %t2 = call i64 @now()
  %stall = sub i64 %t2, %t1
  %wns = load atomic i64, ptr {at(WAITED)} monotonic, align 8
  %wns1 = add i64 %wns, %stall
  store atomic i64 %wns1, ptr {at(WAITED)} monotonic, align 8
  %busytime = sub i64 %t1, %t0
  %cpos = icmp ugt i64 %count, 0
  %cdiv = select i1 %cpos, i64 %count, i64 1
  %each = sdiv i64 %busytime, %cdiv
  %twice = mul i64 %each, 2
  %e100 = icmp sgt i64 %twice, 100000
  %bound = select i1 %e100, i64 %twice, i64 100000
  %stalled = icmp sgt i64 %stall, %bound
  br i1 %stalled, label %back, label %finish
back:
  %wary = load atomic i64, ptr {at(WARY)} monotonic, align 8
  %wary2 = mul i64 %wary, 2
  %warylow = icmp slt i64 %wary2, 256
  %wary3 = select i1 %warylow, i64 256, i64 %wary2
  %waryhigh = icmp sgt i64 %wary3, 4096
  %wary4 = select i1 %waryhigh, i64 4096, i64 %wary3
  store atomic i64 %wary4, ptr {at(WARY)} monotonic, align 8
  %pen256 = mul i64 %stall, %wary4
  %pen0 = lshr i64 %pen256, 8
  %big = icmp sgt i64 %pen0, 1000000000
  %pen = select i1 %big, i64 1000000000, i64 %pen0
  %until = add i64 %t2, %pen
  store atomic i64 %until, ptr {at(QUIET)} monotonic, align 8
  %st = load atomic i64, ptr {at(STALLS)} monotonic, align 8
  %st1 = add i64 %st, 1
  store atomic i64 %st1, ptr {at(STALLS)} monotonic, align 8
  br label %finish
finish:
  %crowd = load atomic i64, ptr {at(CROWDED)} monotonic, align 8
  %iscrowd = icmp ne i64 %crowd, 0
  %bo = load atomic i64, ptr {at(BACKOFF)} monotonic, align 8
  br i1 %iscrowd, label %retreat, label %fine
retreat:
  store atomic i64 0, ptr {at(CROWDED)} monotonic, align 8
  %bo2 = mul i64 %bo, 2
  %bolow = icmp slt i64 %bo2, 1000000
  %bo3 = select i1 %bolow, i64 1000000, i64 %bo2
  %bohigh = icmp sgt i64 %bo3, 64000000
  %bo4 = select i1 %bohigh, i64 64000000, i64 %bo3
  store atomic i64 %bo4, ptr {at(BACKOFF)} monotonic, align 8
  %tr = call i64 @now()
  %upto = add i64 %tr, %bo4
  store atomic i64 %upto, ptr {at(QUIET)} monotonic, align 8
  br label %tally
fine:
  %whole = icmp eq i64 %count, %todo
  br i1 %whole, label %tally, label %relent
relent:
  %bohalf = lshr i64 %bo, 1
  store atomic i64 %bohalf, ptr {at(BACKOFF)} monotonic, align 8
  %wa = load atomic i64, ptr {at(WARY)} monotonic, align 8
  %wa64 = lshr i64 %wa, 6
  %calmer = sub i64 %wa, %wa64
  store atomic i64 %calmer, ptr {at(WARY)} monotonic, align 8
  br label %tally
tally:
  %jobs = load atomic i64, ptr {at(JOBS)} monotonic, align 8
  %jobs1 = add i64 %jobs, 1
  %others = sub i64 %todo, %count
  %hp = load atomic i64, ptr {at(HELPED)} monotonic, align 8
  %hp1 = add i64 %hp, %others
  store atomic i64 %hp1, ptr {at(HELPED)} monotonic, align 8
  store atomic i64 %jobs1, ptr {at(JOBS)} monotonic, align 8
  call void @rl_pool_release()
  br label %return
return:
  ret void
}}

; The number of helpers that may stay; those above it return. 0 when the pool does not become free within about 1 ms.
define i32 @rl_pool_resize(i64 %helpers) {{
entry:
  br label %try
try:
  %i = phi i64 [0, %entry], [%i1, %rest]
  %got = call i32 @rl_pool_acquire()
  %ok = icmp ne i32 %got, 0
  br i1 %ok, label %set, label %rest
rest:
  {pause}
  %i1 = add i64 %i, 1
  %over = icmp sgt i64 %i1, 30000
  br i1 %over, label %fail, label %try
fail:
  ret i32 0
set:
  store atomic i64 %helpers, ptr {at(LIMIT)} seq_cst, align 8
  store atomic i64 0, ptr {at(QUIET)} monotonic, align 8
  call void @publish(ptr null, ptr null, i64 0, i64 1, i64 0, i64 1000000, i64 0, i64 0)
  call void @rl_pool_release()
  ret i32 1
}}

; Helper number %id (from 1) works until the limit falls below it.
define void @rl_pool_worker(i64 %id) {{
entry:
  %first = load atomic i64, ptr {at(TICKET)} acquire, align 8
  %seen0 = lshr i64 %first, 32
  br label %idle
idle:
  %seen = phi i64 [%seen0, %entry], [%gen, %learned], [%gen, %decline]
  %budget = phi i64 [20000, %entry], [%budget1, %learned], [0, %decline]
  %cool = phi i64 [0, %entry], [%cool1, %learned], [16, %decline]
  %lim = load atomic i64, ptr {at(LIMIT)} acquire, align 8
  %over = icmp sgt i64 %id, %lim
  br i1 %over, label %leave, label %watch
leave:
  ret void
watch:
  %ti = call i64 @now()
  br label %poll
poll:
  %i = phi i64 [0, %watch], [%i1, %near], [%i1, %steady]
  %last = phi i64 [%ti, %watch], [%last, %near], [%tp, %steady]
  %tk = load atomic i64, ptr {at(TICKET)} acquire, align 8
  %g = lshr i64 %tk, 32
  %news = icmp ne i64 %g, %seen
  br i1 %news, label %arrived, label %hold
hold:
  {pause}
  %i1 = add i64 %i, 1
  %im = and i64 %i1, 15
  %clock = icmp eq i64 %im, 0
  br i1 %clock, label %time, label %near
near:
  br label %poll
time:
  %tp = call i64 @now()
  %step = sub i64 %tp, %last
  %off = icmp sgt i64 %step, 50000
  br i1 %off, label %descheduled, label %time2
time2:
  %idled = sub i64 %tp, %ti
  %enough = icmp sgt i64 %idled, %budget
  br i1 %enough, label %bed, label %steady
steady:
  br label %poll
descheduled:
  br label %bed
bed:
  %cool0 = phi i64 [%cool, %time2], [64, %descheduled]
  %asleep = atomicrmw add ptr {at(SLEEPERS)}, i64 1 seq_cst
  br label %doze
doze:
  %tz = load atomic i64, ptr {at(TICKET)} seq_cst, align 8
  %gz = lshr i64 %tz, 32
  %nz = icmp ne i64 %gz, %seen
  br i1 %nz, label %up, label %zzz
zzz:
  %s32 = trunc i64 %seen to i32
  call void @park(ptr {at(TICKET, 4)}, i32 %s32)
  br label %doze
up:
  %awake = atomicrmw sub ptr {at(SLEEPERS)}, i64 1 seq_cst
  br label %arrived

arrived:
  %gen = phi i64 [%g, %poll], [%gz, %up]
  %coolA = phi i64 [%cool, %poll], [%cool0, %up]
  %cpu = {cpu}
  %here = sext i32 %cpu to i64
  %there = load atomic i64, ptr {at(CPU)} monotonic, align 8
  %shared = icmp eq i64 %here, %there
  %valid = icmp sge i64 %here, 0
  %lasting = load atomic i64, ptr {at(LONG)} monotonic, align 8
  %short = icmp eq i64 %lasting, 0
  %beside = and i1 %shared, %valid
  %crowded = and i1 %beside, %short
  br i1 %crowded, label %elsewhere, label %join
elsewhere:
  call void @move(i64 %there)
  %cpu2 = {cpu}
  %now2 = sext i32 %cpu2 to i64
  %stuck = icmp eq i64 %now2, %there
  br i1 %stuck, label %decline, label %join
decline:
  store atomic i64 1, ptr {at(CROWDED)} monotonic, align 8
  br label %idle
join:
  %ta = call i64 @now()
  %gap = sub i64 %ta, %ti
  %fn = load atomic ptr, ptr {at(FN)} monotonic, align 8
  %ctx = load atomic ptr, ptr {at(CTX)} monotonic, align 8
  %n = load atomic i64, ptr {at(N)} monotonic, align 8
  %grain = load atomic i64, ptr {at(GRAIN)} monotonic, align 8
  %chunks = load atomic i64, ptr {at(CHUNKS)} monotonic, align 8
  br label %next
next:
  %count = phi i64 [0, %join], [%count1, %work]
  %t0 = load atomic i64, ptr {at(TICKET)} acquire, align 8
  br label %attempt
attempt:
  %t = phi i64 [%t0, %next], [%tn, %swap]
  %tg = lshr i64 %t, 32
  %same = icmp eq i64 %tg, %gen
  %idx = and i64 %t, 4294967295
  %left = icmp ult i64 %idx, %chunks
  %go = and i1 %same, %left
  br i1 %go, label %swap, label %out
swap:
  %tplus = add i64 %t, 1
  %x = cmpxchg ptr {at(TICKET)}, i64 %t, i64 %tplus acq_rel acquire
  %tn = extractvalue {{i64, i1}} %x, 0
  %won = extractvalue {{i64, i1}} %x, 1
  br i1 %won, label %work, label %attempt
work:
  call void @run_chunk(ptr %fn, ptr %ctx, i64 %n, i64 %grain, i64 %idx)
  %count1 = add i64 %count, 1
  br label %next
out:
  %did = icmp ne i64 %count, 0
  br i1 %did, label %report, label %learn
report:
  %before = atomicrmw add ptr {at(DONE)}, i64 %count seq_cst
  %after = add i64 %before, %count
  %all = icmp eq i64 %after, %chunks
  br i1 %all, label %last_one, label %learn
last_one:
  %w = load atomic i64, ptr {at(WAITING)} seq_cst, align 8
  %wt = icmp ne i64 %w, 0
  br i1 %wt, label %tell, label %learn
tell:
  call void @wake(ptr {at(DONE)}, i32 1)
  br label %learn
learn:                                                ; how long to spin next time
  %max = load atomic i64, ptr {at(SPIN)} monotonic, align 8
  %hot = icmp eq i64 %coolA, 0
  %soon = icmp slt i64 %gap, %max
  %up1 = and i1 %hot, %soon
  %gap2 = mul i64 %gap, 2
  %larger = icmp sgt i64 %gap2, %budget
  %grown = select i1 %larger, i64 %gap2, i64 %budget
  %half = lshr i64 %budget, 1
  %b1 = select i1 %up1, i64 %grown, i64 %half
  %low = icmp slt i64 %b1, 2000
  %b2 = select i1 %low, i64 2000, i64 %b1
  %high = icmp sgt i64 %b2, %max
  %b3 = select i1 %high, i64 %max, i64 %b2
  %budget1 = select i1 %hot, i64 %b3, i64 0
  %cm = sub i64 %coolA, 1
  %cool1 = select i1 %hot, i64 0, i64 %cm
  br label %learned
learned:
  br label %idle
}}
"""
