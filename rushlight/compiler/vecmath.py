"""Elementary functions on vectors, written as branch-free instructions.

Every function takes a `Lanes` of "float" or "double" and returns the value's text. nan, infinities and signed zeros
come out as IEEE 754 and C's Annex F say; denormals are handled; no fast-math flag is used, and a multiply-add is
fused only where it is written as one, so a lane's result does not depend on its neighbours or on the width.

Methods: reduction of the argument by exact or compensated steps (Cody and Waite; fdlibm's forms for log and expm1),
then a polynomial fitted by tests/golden/make_vecmath.py. sin, cos and tan leave arguments beyond the range of their
reduction to the C library. float32 functions that are rarely used are computed in float64 and rounded (at most 0.51
ulp).

Errors measured by tests/test_vecmath.py against NumPy/SciPy in the next wider format are in `ULP`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rushlight.compiler.builder import Lanes, vector_type

__all__ = ["FUNCTIONS", "LIBM", "ULP", "libm"]

EXP32 = (
    0.0013926181709393859, 0.008363177999854088, 0.041666556149721146, 0.16666576266288757, 0.5,
)
EXP64 = (
    2.510038319586702e-08, 2.7620085455018414e-07, 2.7557268464831627e-06, 2.4801521302241082e-05,
    0.00019841269863050506, 0.001388888891720967, 0.008333333333330063, 0.041666666666624136, 0.16666666666666669,
    0.5000000000000001,
)
LOG32 = (
    0.11331657320261002, -0.12423323839902878, 0.10915482044219971, -0.12288535386323929, 0.14291875064373016,
    -0.1667332500219345, 0.19999948143959045, -0.24999943375587463, 0.3333333432674408,
)
LOG64 = (
    0.1360410764749039, 0.13210447222689523, 0.15388823450796213, 0.18181738981201567, 0.22222223026209678,
    0.28571428567461343, 0.4000000000000726, 0.6666666666666666,
)
SIN32 = (
    -0.00019587870338000357, 0.008332747966051102, -0.166666641831398,
)
COS32 = (
    2.454792229400482e-05, -0.001388830249197781, 0.0416666641831398,
)
SIN64 = (
    1.5918117983848815e-10, -2.5051131688000297e-08, 2.755731610179909e-06, -0.0001984126983675712,
    0.008333333333330948, -0.16666666666666666,
)
COS64 = (
    -1.1382625349447592e-11, 2.0876146170183976e-09, -2.7557317271258515e-07, 2.4801587298764778e-05,
    -0.0013888888888887398, 0.041666666666666664,
)
ERF32 = (
    -0.0006102686747908592, 0.005014484282582998, -0.026780718937516212, 0.11282194405794144, -0.3761252760887146,
    0.12837915122509003,
)
LOG2ERFC32 = (
    2.370439688093029e-06, -6.660036888206378e-05, 0.0008621340384706855, -0.006871016696095467, 0.03812702000141144,
    -0.1588222086429596, -0.9115292429924011, -1.6305787563323975, 0.0004595555947162211,
)
EXP2_32 = (
    0.0013381302123889327, 0.00966636836528778, 0.055503811687231064, 0.2402234971523285, 0.6931471824645996,
)
EXP2_32_LONG = (
    0.00015453163359779865, 0.0013390863314270973, 0.009618083015084267, 0.055503569543361664, 0.24022650718688965,
    0.6931471824645996,
)
ERFQ32 = (
    -5.872152905794792e-05, 0.0005496094818226993, -0.0018057222478091717, -0.00029700546292588115,
    0.02787547931075096, -0.14832986891269684, -0.9184434413909912, -1.6279070377349854,
)
ERF64 = (
    5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08, -1.6350312701054695e-07,
    1.6461000484121368e-06, -1.4925595266831182e-05, 0.0001205533111164271, -0.000854832698083379,
    0.0052239776248180145, -0.026866170645076792, 0.11283791670954879, -0.3761263890318375, 0.1283791670955126,
)
ERFCX64 = (
    -1.0496823259279366e-07, 1.9355463390302183e-07, 3.3926719763635626e-07, -3.981182966220301e-07,
    -9.624386438954658e-07, -5.586518362857358e-07, 1.5382868308313491e-06, 5.15284750882111e-06,
    3.711973012589153e-06, -1.3470767963742447e-05, -3.6426866230131536e-05, -1.5142035845275962e-06,
    0.00015104023179723287, 0.00020636776017617193, -0.0004543409884603725, -0.0014568139902054241,
    0.0012713389788644928, 0.008722653877714147, -0.00803401508298309, -0.05422000099208567, 0.16405128003345293,
    -0.1660303976152889, -0.09276382658574607, 1.2769783815525286,
)
TANH32 = (
    -0.006212138570845127, 0.021074384450912476, -0.05386674776673317, 0.13332870602607727, -0.3333333134651184,
)
ASIN64 = (
    0.028757851367421566, -0.014851887071247204, 0.01740087944269402, 0.005457506718640358, 0.01032281435018578,
    0.011479177415184906, 0.013971212973552933, 0.017352392720869973, 0.02237217294214989, 0.030381944138531247,
    0.04464285714635543, 0.07499999999998433, 0.16666666666666669,
)
ATAN64 = (
    0.01628357235648259, -0.0345685906686069, 0.045515165635903104, -0.052304374642516874, 0.05878926715756726,
    -0.066664246872465, 0.07692296363979952, -0.09090908753118594, 0.11111111105147764, -0.14285714285659748,
    0.19999999999999804, -0.3333333333333333,
)

_LN2 = {"float": (0.693359375, -2.1219444005469057e-4), "double": (6.93147180369123816490e-01,
                                                                   1.90821492927058770002e-10)}
_MAGIC = {"float": 1.5 * 2.0**23,
          "double": 1.5 * 2.0**52}          # added, it leaves the nearest integer in the low bits
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}


def _wide(f: Callable[..., str]) -> Callable[..., str]:
    """float32 by way of float64."""
    def g(F: Lanes, *args: str) -> str:
        if F.elem == "double":
            return f(F, *args)
        D = F.of("double")
        return F.convert("fptrunc", f(D, *[D.convert("fpext", a, F) for a in args]), D)
    g.__name__, g.__doc__ = f.__name__, f.__doc__
    return g


# --- pieces -----------------------------------------------------------------------------------------------------------
def _at_most(F: Lanes, x: str, hi: float) -> str:
    """min(x, hi) that keeps nan."""
    return F.select(F.cmp("ogt", x, F.const(hi)), F.const(hi), x)


def _at_least(F: Lanes, x: str, lo: float) -> str:
    return F.select(F.cmp("olt", x, F.const(lo)), F.const(lo), x)


def _nearest(F: Lanes, x: str, factor: float) -> tuple[str, str]:
    """n = the integer nearest to x * factor, as a float and as the bits of n + magic."""
    magic = F.const(_MAGIC[F.elem])
    t = F.fma(x, F.const(factor), magic)
    return F.sub(t, magic), F.to_bits(t)


def _scale(F: Lanes, p: str, n: str, n_bits: str | None = None) -> str:
    """p * 2^n for an integral float n, rounded once even where the result is denormal."""
    if F.w.scalef and F.bits * F.lanes == 512:
        t, m = ("ps", f"i{F.lanes}") if F.elem == "float" else ("pd", f"i{F.lanes}")
        return F.w.call(f"llvm.x86.avx512.mask.scalef.{t}.512", F.type,
                        [(F.type, p), (F.type, n), (F.type, "zeroinitializer"), (m, "-1"), ("i32", "4")])
    N, mant = F.ints, 23 if F.elem == "float" else 52
    bias = 127 if F.elem == "float" else 1023
    magic = F.const(_MAGIC[F.elem])
    k = N.sub(n_bits or F.to_bits(F.add(n, magic)), F.to_bits(magic))
    half = N.ashr(k, N.const(1))
    for part in (half, N.sub(k, half)):
        p = F.mul(p, F.from_bits(N.shl(N.add(part, N.const(bias)), N.const(mant))))
    return p


def _power_of_two(F: Lanes, n_bits: str, less: int = 0) -> str:
    """2^(n - less) from the bits of n + magic; the result must be a normal number."""
    N, mant, bias = F.ints, 23 if F.elem == "float" else 52, 127 if F.elem == "float" else 1023
    k = N.sub(n_bits, F.to_bits(F.const(_MAGIC[F.elem])))
    return F.from_bits(N.shl(N.add(k, N.const(bias - less)), N.const(mant)))


def _exp_reduced(F: Lanes, x: str, low: str | None = None) -> tuple[str, str, str]:
    """(e^r - 1, n, bits of n + magic) with x + low = n log 2 + r."""
    n, bits = _nearest(F, x, math.log2(math.e))
    hi, lo = _LN2[F.elem]
    r = F.fma(n, F.const(-lo), F.fma(n, F.const(-hi), x))
    if low is not None:
        r = F.add(r, low)
    q = F.poly(r, EXP32 if F.elem == "float" else EXP64)
    return F.fma(q, F.mul(r, r), r), n, bits


def _exp(F: Lanes, x: str, low: str | None = None, halved: bool = False) -> str:
    lo, hi = _EXP_RANGE[F.elem]
    x = _at_least(F, _at_most(F, x, hi + halved), lo)
    p, n, bits = _exp_reduced(F, x, low)
    if halved:
        n, bits = F.sub(n, F.const(1.0)), F.ints.sub(bits, F.ints.const(1))
    return _scale(F, F.add(p, F.const(1.0)), n, bits)


def _split(F: Lanes, x: str) -> tuple[str, str]:
    """x = m * 2^e with m in [2/3, 4/3), for positive finite x: (m - 1, e as a float)."""
    N = F.ints
    mant, base = (23, 0x3F2AAAAB) if F.elem == "float" else (52, 0x3FE5555555555555)
    tiny, up = (2.0**-126, 24) if F.elem == "float" else (2.0**-1022, 54)
    small = F.cmp("olt", x, F.const(tiny))
    b = F.to_bits(F.select(small, F.mul(x, F.const(2.0**up)), x))
    e = N.ashr(N.sub(b, N.const(base)), N.const(mant))
    m = F.from_bits(N.sub(b, N.shl(e, N.const(mant))))
    ef = F.convert("sitofp", e, N)
    return F.sub(m, F.const(1.0)), F.select(small, F.sub(ef, F.const(float(up))), ef)


def _log_tail(F: Lanes, f: str) -> str:
    """log(1 + f) - f for f in [-1/3, 1/3)."""
    half = F.mul(F.mul(f, f), F.const(0.5))
    if F.elem == "float":
        return F.sub(F.mul(F.mul(F.mul(f, f), f), F.poly(f, LOG32)), half)
    s = F.div(f, F.add(f, F.const(2.0)))
    z = F.mul(s, s)
    r = F.mul(z, F.poly(z, LOG64))
    return F.sub(F.mul(s, F.add(half, r)), half)


def _log_specials(F: Lanes, x: str, y: str) -> str:
    inf = F.const(math.inf)
    y = F.select(F.cmp("oeq", x, inf), inf, y)
    y = F.select(F.cmp("oge", x, F.const(0.0)), y, F.const(math.nan))
    return F.select(F.cmp("oeq", x, F.const(0.0)), F.const(-math.inf), y)


def _signed(F: Lanes, magnitude: str, sign_of: str) -> str:
    return F.copysign(magnitude, sign_of)


# --- exponentials -----------------------------------------------------------------------------------------------------
def exp(F: Lanes, x: str) -> str:
    return _exp(F, x)


def exp2(F: Lanes, x: str) -> str:
    lo, hi = (-151.0, 129.0) if F.elem == "float" else (-1076.0, 1025.0)
    x = _at_least(F, _at_most(F, x, hi), lo)
    n, bits = _nearest(F, x, 1.0)
    r = F.mul(F.sub(x, n), F.const(math.log(2)))
    q = F.poly(r, EXP32 if F.elem == "float" else EXP64)
    return _scale(F, F.add(F.fma(q, F.mul(r, r), r), F.const(1.0)), n, bits)


def expm1(F: Lanes, x: str) -> str:
    lo, tiny = (-18.0, 2.0**-26) if F.elem == "float" else (-38.0, 2.0**-55)
    c = _at_least(F, _at_most(F, x, _EXP_RANGE[F.elem][1]), lo)
    p, _, bits = _exp_reduced(F, c)
    h = _power_of_two(F, bits, 1)                               # 2^(n-1): n = 128 must not overflow
    y = F.mul(F.fma(h, p, F.sub(h, F.const(0.5))), F.const(2.0))
    return F.select(F.cmp("olt", F.abs(x), F.const(tiny)), x, y)


def log(F: Lanes, x: str) -> str:
    f, e = _split(F, x)
    hi, lo = _LN2[F.elem]
    tail = F.fma(e, F.const(lo), _log_tail(F, f))
    return _log_specials(F, x, F.fma(e, F.const(hi), F.add(f, tail)))


def _log_base(F: Lanes, x: str, per_e: float, whole: float) -> str:
    """e * whole + log(m) * per_e, the products in two parts."""
    f, e = _split(F, x)
    keep = 12 if F.elem == "float" else 32
    hi = _short(whole, keep)
    tail = _log_tail(F, f)
    m = F.add(f, tail)
    m_low = F.add(F.sub(f, m), tail)
    c = _rounded(F, per_e)
    low = F.fma(m, F.const(_residue(F, per_e)), F.fma(m_low, F.const(c), F.mul(e, F.const(whole - hi))))
    ehi = F.mul(e, F.const(hi))
    p = F.mul(m, F.const(c))
    p_low = F.fma(m, F.const(c), F.neg(p))
    s = F.add(ehi, p)
    s_low = F.add(F.sub(ehi, s), p)                             # |ehi| >= |p| or ehi = 0
    return _log_specials(F, x, F.add(s, F.add(s_low, F.add(p_low, low))))


def _short(value: float, bits: int) -> float:
    m, e = math.frexp(value)
    return math.ldexp(round(m * 2**bits), e - bits)


_EXACT = {math.log2(math.e): 2.0355273740931033e-17, math.log10(math.e): 1.098319650216765e-17}


def _rounded(F: Lanes, value: float) -> float:
    return _short(value, 24) if F.elem == "float" else value


def _residue(F: Lanes, value: float) -> float:
    return value - _short(value, 24) if F.elem == "float" else _EXACT[value]


def log2(F: Lanes, x: str) -> str:
    return _log_base(F, x, math.log2(math.e), 1.0)


def log10(F: Lanes, x: str) -> str:
    return _log_base(F, x, math.log10(math.e), math.log10(2))


def log1p(F: Lanes, x: str) -> str:
    u = F.add(x, F.const(1.0))
    lost = F.div(F.sub(x, F.sub(u, F.const(1.0))), u)
    plain = log(F, u)
    edge = F.mask_or(F.cmp("oeq", u, F.const(0.0)), F.cmp("oeq", u, F.const(math.inf)))
    y = F.select(edge, plain, F.add(plain, lost))
    return F.select(F.cmp("oeq", x, F.const(0.0)), x, y)


# --- hyperbolic -------------------------------------------------------------------------------------------------------
def tanh(F: Lanes, x: str) -> str:
    a = F.abs(x)
    if F.elem == "double":
        t = expm1(F, F.add(*[_at_most(F, a, 22.0)] * 2))
        return _signed(F, F.div(t, F.add(t, F.const(2.0))), x)
    z = F.mul(a, a)
    near = F.fma(F.mul(a, z), F.poly(z, TANH32), a)
    c = _at_most(F, a, 10.0)
    p, _, bits = _exp_reduced(F, F.add(c, c))
    scale = _power_of_two(F, bits)
    far = F.sub(F.const(1.0), F.div(F.const(2.0), F.add(F.fma(scale, p, scale), F.const(1.0))))
    return _signed(F, F.select(F.cmp("olt", a, F.const(0.6)), near, far), x)


@_wide
def sinh(F: Lanes, x: str) -> str:
    a = F.abs(x)
    t = expm1(F, a)
    small = F.mul(F.add(t, F.div(t, F.add(t, F.const(1.0)))), F.const(0.5))
    return _signed(F, F.select(F.cmp("olt", a, F.const(22.0)), small, _exp(F, a, halved=True)), x)


@_wide
def cosh(F: Lanes, x: str) -> str:
    w = _exp(F, F.abs(x), halved=True)
    return F.add(w, F.div(F.const(0.25), w))


@_wide
def asinh(F: Lanes, x: str) -> str:
    a = F.abs(x)
    big = F.cmp("ogt", a, F.const(2.0**60))
    b = F.select(big, F.const(1.0), a)
    z = F.mul(b, b)
    inner = F.add(b, F.div(z, F.add(F.sqrt(F.add(z, F.const(1.0))), F.const(1.0))))
    y = log1p(F, F.select(big, a, inner))
    return _signed(F, F.select(big, F.add(y, F.const(math.log(2))), y), x)


@_wide
def acosh(F: Lanes, x: str) -> str:
    big = F.cmp("ogt", x, F.const(2.0**60))
    t = F.sub(x, F.const(1.0))
    inner = F.add(t, F.sqrt(F.fma(t, t, F.add(t, t))))
    y = log1p(F, F.select(big, x, inner))
    y = F.select(big, F.add(y, F.const(math.log(2))), y)
    return F.select(F.cmp("oge", x, F.const(1.0)), y, F.const(math.nan))


@_wide
def atanh(F: Lanes, x: str) -> str:
    a = F.abs(x)
    y = log1p(F, F.div(F.add(a, a), F.sub(F.const(1.0), a)))
    return _signed(F, F.mul(y, F.const(0.5)), x)


# --- trigonometric ----------------------------------------------------------------------------------------------------
_PIO2 = {"float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
         "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)}
_TRIG_LIMIT = {"float": 30000.0, "double": 2.0**30}


def _octant(F: Lanes, a: str) -> tuple[str, str, str]:
    """(sin r, cos r, bits whose low two are the quadrant) for a >= 0, a = n pi/2 + r."""
    n, bits = _nearest(F, a, 2 / math.pi)
    r = a
    for part in _PIO2[F.elem]:
        r = F.fma(n, F.const(-part), r)
    z = F.mul(r, r)
    s, c = (SIN32, COS32) if F.elem == "float" else (SIN64, COS64)
    sine = F.fma(F.mul(r, z), F.poly(z, s), r)
    half = F.mul(z, F.const(0.5))
    w = F.sub(F.const(1.0), half)                               # the rounding error of 1 - z/2 is put back
    low = F.sub(F.sub(F.const(1.0), w), half)
    return sine, F.add(w, F.fma(F.mul(z, z), F.poly(z, c), low)), bits


def _huge(F: Lanes, x: str, a: str, y: str, name: str) -> str:
    """y, with lanes beyond the reduction's range replaced by the C library's result."""
    w = F.w
    mask = F.cmp("ogt", a, F.const(_TRIG_LIMIT[F.elem]))
    slow, done = w.label("huge"), w.label("near")
    before = w.block
    w.branch_if(F.any(mask), slow, done)
    w.start(slow)
    z = F.select(mask, libm(F, name, x), y)
    after = w.block
    w.branch(done)
    w.start(done)
    return w.effect_value(f"phi {F.type} [ {y}, %{before} ], [ {z}, %{after} ]")


def _sign_from(F: Lanes, y: str, bits: str, which: int) -> str:
    """y, negated where bit `which` of `bits` is set."""
    N = F.ints
    return F.from_bits(N.xor(F.to_bits(y), N.shl(N.and_(bits, N.const(1 << which)), N.const(F.bits - 1 - which))))


def _is_odd(F: Lanes, bits: str) -> str:
    N = F.ints
    return N.cmp("ne", N.and_(bits, N.const(1)), N.const(0))


def sin(F: Lanes, x: str) -> str:
    a = F.abs(x)
    s, c, bits = _octant(F, a)
    y = _sign_from(F, F.select(_is_odd(F, bits), c, s), bits, 1)
    sign = F.ints.and_(F.to_bits(x), F.ints.const(1 << (F.bits - 1)))
    return _huge(F, x, a, F.from_bits(F.ints.xor(F.to_bits(y), sign)), "sin")


def cos(F: Lanes, x: str) -> str:
    a = F.abs(x)
    s, c, bits = _octant(F, a)
    bits = F.ints.add(bits, F.ints.const(1))
    return _huge(F, x, a, _sign_from(F, F.select(_is_odd(F, bits), c, s), bits, 1), "cos")


@_wide
def tan(F: Lanes, x: str) -> str:
    a = F.abs(x)
    s, c, bits = _octant(F, a)
    odd = _is_odd(F, bits)
    y = F.div(F.select(odd, F.neg(c), s), F.select(odd, s, c))
    sign = F.ints.and_(F.to_bits(x), F.ints.const(1 << 63))
    return _huge(F, x, a, F.from_bits(F.ints.xor(F.to_bits(y), sign)), "tan")


_HALF_PI, _HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17


def _asin_core(F: Lanes, x: str) -> tuple[str, str]:
    """(mask of |x| > 1/2, asin(|x|) or asin(sqrt((1 - |x|) / 2)))"""
    a = F.abs(x)
    big = F.cmp("ogt", a, F.const(0.5))
    z = F.select(big, F.mul(F.sub(F.const(1.0), a), F.const(0.5)), F.mul(a, a))
    s = F.select(big, F.sqrt(z), a)
    return big, F.fma(F.mul(s, z), F.poly(z, ASIN64), s)


@_wide
def asin(F: Lanes, x: str) -> str:
    big, p = _asin_core(F, x)
    far = F.sub(F.const(_HALF_PI), F.sub(F.add(p, p), F.const(_HALF_PI_LOW)))
    return _signed(F, F.select(big, far, p), x)


@_wide
def acos(F: Lanes, x: str) -> str:
    big, p = _asin_core(F, x)
    twice = F.add(p, p)
    negative = F.cmp("olt", x, F.const(0.0))
    far = F.select(negative, F.sub(F.const(2 * _HALF_PI), F.sub(twice, F.const(2 * _HALF_PI_LOW))), twice)
    near = F.sub(F.const(_HALF_PI), F.sub(_signed(F, p, x), F.const(_HALF_PI_LOW)))
    return F.select(big, far, near)


def _atan_quotient(F: Lanes, num: str, den: str) -> tuple[str, str]:
    """atan(num / den) for 0 <= num <= den, as base + rest (both carry nothing of the sign)."""
    mid = F.cmp("ogt", num, F.mul(den, F.const(math.tan(math.pi / 8))))
    w = F.div(F.select(mid, F.sub(num, den), num), F.select(mid, F.add(num, den), den))
    z = F.mul(w, w)
    rest = F.fma(F.mul(w, z), F.poly(z, ATAN64), F.select(mid, F.const(_HALF_PI_LOW / 2), F.const(0.0)))
    base = F.select(mid, F.const(_HALF_PI / 2), F.const(0.0))
    return base, F.add(rest, w)


@_wide
def atan(F: Lanes, x: str) -> str:
    a, one = F.abs(x), F.const(1.0)
    big = F.cmp("ogt", a, one)
    infinite = F.cmp("oeq", a, F.const(math.inf))
    num, den = F.select(big, one, a), F.select(big, a, one)
    base, rest = _atan_quotient(F, F.select(infinite, F.const(0.0), num), F.select(infinite, one, den))
    near = F.add(base, rest)
    far = F.add(F.sub(F.const(_HALF_PI), base), F.sub(F.const(_HALF_PI_LOW), rest))
    return _signed(F, F.select(big, far, near), x)


@_wide
def atan2(F: Lanes, y: str, x: str) -> str:
    N, zero, one, inf = F.ints, F.const(0.0), F.const(1.0), F.const(math.inf)
    ax, ay = F.abs(x), F.abs(y)
    swap = F.cmp("ogt", ay, ax)
    num, den = F.select(swap, ax, ay), F.select(swap, ay, ax)
    both = F.cmp("oeq", num, inf)
    num = F.select(both, one, num)
    den = F.select(both, one, F.select(F.cmp("oeq", den, zero), one, den))
    base, rest = _atan_quotient(F, num, den)
    # a result far below 1 keeps the precision of num / den even when that is denormal
    near = F.add(base, rest)
    base2 = F.select(swap, F.sub(F.const(_HALF_PI), base), base)
    rest2 = F.select(swap, F.sub(F.const(_HALF_PI_LOW), rest), rest)
    negative = N.cmp("slt", F.to_bits(x), N.const(0))
    far = F.add(F.sub(F.const(2 * _HALF_PI), base2), F.sub(F.const(2 * _HALF_PI_LOW), rest2))
    r = F.select(negative, far, F.select(swap, F.add(base2, rest2), near))
    r = _signed(F, r, y)
    return F.select(F.cmp("uno", x, y), F.add(x, y), r)


# --- error function ---------------------------------------------------------------------------------------------------
def erf(F: Lanes, x: str) -> str:
    a = F.abs(x)
    z = F.mul(x, x)
    if F.elem == "float":
        near = F.fma(x, F.poly(z, ERF32), x)
        g = F.poly(_at_most(F, a, 4.0), LOG2ERFC32)
        n, bits = _nearest(F, g, 1.0)
        r = F.sub(g, n)
        scale = _power_of_two(F, bits)
        far = F.sub(F.sub(F.const(1.0), scale), F.mul(F.mul(scale, r), F.poly(r, EXP2_32)))
        edge = 0.9
    else:
        near = F.fma(x, F.poly(z, ERF64), x)
        far = F.sub(F.const(1.0), _erfc_tail(F, _at_least(F, _at_most(F, a, 7.0), 0.5)))
        edge = 1.0
    return F.select(F.cmp("olt", a, F.const(edge)), near, _signed(F, far, x))


def one_plus_erf(F: Lanes, x: str) -> str:
    """1 + erf(x), to the precision of the sum (1e-7 in float32): two thirds of the instructions of erf, which must be
    precise near zero."""
    if F.elem == "double":
        return F.add(F.const(1.0), erf(F, x))
    a = _at_most(F, F.abs(x), 3.95)
    g = F.mul(a, F.poly(a, ERFQ32))
    n, bits = _nearest(F, g, 1.0)
    r = F.sub(g, n)
    p = F.mul(r, F.poly(r, EXP2_32_LONG))
    scale = _power_of_two(F, bits)
    y = F.fma(F.neg(scale), p, F.sub(F.const(1.0), scale))
    return F.add(F.const(1.0), _signed(F, y, x))


def _erfc_tail(F: Lanes, a: str) -> str:
    """erfc(a) for 1/2 <= a <= 28: exp(-a^2) P((a - 2)/(a + 2)) / (1 + 2 a)."""
    p = F.poly(F.div(F.sub(a, F.const(2.0)), F.add(a, F.const(2.0))), ERFCX64)
    h = F.mul(a, a)
    low = F.fma(a, a, F.neg(h))
    den = F.fma(a, F.const(2.0), F.const(1.0))
    q = F.div(p, den)
    q = F.add(q, F.div(F.fma(F.neg(q), den, p), den))
    lo, hi = _EXP_RANGE["double"]
    m, n, bits = _exp_reduced(F, _at_least(F, F.neg(h), -800.0), F.neg(low))
    return _scale(F, F.fma(q, m, q), n, bits)


@_wide
def erfc(F: Lanes, x: str) -> str:
    a = F.abs(x)
    tail = _erfc_tail(F, _at_least(F, _at_most(F, a, 28.0), 0.5))
    far = F.select(F.cmp("olt", x, F.const(0.0)), F.sub(F.const(2.0), tail), tail)
    z = F.mul(x, x)
    near = F.sub(F.const(1.0), F.fma(x, F.poly(z, ERF64), x))
    return F.select(F.cmp("olt", a, F.const(0.5)), near, F.select(F.isnan(x), x, far))


# --- powers -----------------------------------------------------------------------------------------------------------
def _log_pair(F: Lanes, x: str) -> tuple[str, str]:
    """log x as a sum of two doubles, to about 2^-66, for positive finite x."""
    f, e = _split(F, x)
    den = F.add(f, F.const(2.0))
    den_low = F.sub(f, F.sub(den, F.const(2.0)))
    s = F.div(f, den)
    s_low = F.div(F.fma(F.neg(s), den_low, F.fma(F.neg(s), den, f)), den)
    z = F.mul(s, s)
    z_low = F.fma(F.add(s, s), s_low, F.fma(s, s, F.neg(z)))
    cube = F.mul(s, z)
    cube_low = F.fma(s_low, z, F.fma(s, z_low, F.fma(s, z, F.neg(cube))))
    third, third_low = 2 / 3, 3.700743415417188e-17
    t = F.mul(cube, F.const(third))
    t_low = F.fma(cube, F.const(third_low), F.fma(cube_low, F.const(third), F.fma(cube, F.const(third), F.neg(t))))
    # the fitted leading coefficient differs a little from 2/3: the difference goes with the higher terms
    q = F.poly(z, (*LOG64[:-1], LOG64[-1] - third))
    t_low = F.fma(cube, q, t_low)
    hi, lo = _LN2["double"]
    big = F.mul(e, F.const(hi))                                 # exact
    two = F.add(s, s)
    sums = [(big, two)]
    total, low = "", F.fma(e, F.const(lo), F.fma(e, F.const(_LN2_LOWEST), F.add(F.add(s_low, s_low), t_low)))
    for a, b in (*sums, ("", t)):
        a = a or total
        total = F.add(a, b)
        bb = F.sub(total, a)
        low = F.add(low, F.add(F.sub(a, F.sub(total, bb)), F.sub(b, bb)))
    return total, low


_LN2_LOWEST = 1.1612227229362532e-26


@_wide
def pow(F: Lanes, x: str, y: str) -> str:
    zero, one, inf, nan = F.const(0.0), F.const(1.0), F.const(math.inf), F.const(math.nan)
    a = F.abs(x)
    edge_x = F.mask_or(F.cmp("oeq", a, zero), F.cmp("oeq", a, inf))
    edge = F.mask_or(edge_x, F.cmp("oeq", F.abs(y), inf))
    safe = F.select(edge_x, one, a)
    y_safe = _at_least(F, _at_most(F, y, 2.0**80), -(2.0**80))
    h, low = _log_pair(F, safe)
    p = F.mul(y_safe, h)
    p_low = F.fma(y_safe, low, F.fma(y_safe, h, F.neg(p)))
    p_low = F.select(F.cmp("olt", F.abs(p), F.const(800.0)), p_low, zero)
    r = _exp(F, p, p_low)
    grows = F.mask_xor(F.cmp("olt", a, one), F.cmp("ogt", y, zero))
    limit = F.select(F.cmp("oeq", a, one), one, F.select(grows, inf, zero))
    r = F.select(edge, limit, r)
    whole = F.cmp("oeq", F.unary("rint", y), y)
    half = F.mul(y, F.const(0.5))
    odd = F.mask_and(whole, F.cmp("one", F.unary("rint", half), half))
    negative = F.ints.cmp("slt", F.to_bits(x), F.ints.const(0))
    r = F.select(F.mask_and(negative, odd), F.neg(r), r)
    r = F.select(F.mask_and(F.mask_and(negative, F.mask_not(whole)), F.mask_not(edge)), nan, r)
    r = F.select(F.cmp("uno", x, y), nan, r)
    return F.select(F.mask_or(F.cmp("oeq", y, zero), F.cmp("oeq", x, one)), one, r)


@_wide
def hypot(F: Lanes, x: str, y: str) -> str:
    ax, ay, inf = F.abs(x), F.abs(y), F.const(math.inf)
    swap = F.cmp("ogt", ay, ax)
    big, small = F.select(swap, ay, ax), F.select(swap, ax, ay)
    up = F.cmp("olt", big, F.const(2.0**-500))
    down = F.cmp("ogt", big, F.const(2.0**500))
    by = F.select(up, F.const(2.0**600), F.select(down, F.const(2.0**-600), F.const(1.0)))
    back = F.select(up, F.const(2.0**-600), F.select(down, F.const(2.0**600), F.const(1.0)))
    b, s = F.mul(big, by), F.mul(small, by)
    bb = F.mul(b, b)
    r = F.sqrt(F.add(bb, F.fma(s, s, F.fma(b, b, F.neg(bb)))))
    r = F.select(F.cmp("uno", x, y), F.add(x, y), F.mul(r, back))
    return F.select(F.mask_or(F.cmp("oeq", ax, inf), F.cmp("oeq", ay, inf)), inf, r)


@_wide
def logaddexp(F: Lanes, x: str, y: str) -> str:
    return _logadd(F, x, y, lambda d: log1p(F, exp(F, d)))


@_wide
def logaddexp2(F: Lanes, x: str, y: str) -> str:
    return _logadd(F, x, y, lambda d: F.mul(log1p(F, exp2(F, d)), F.const(math.log2(math.e))))


def _logadd(F: Lanes, x: str, y: str, correction: Callable[[str], str]) -> str:
    more = F.cmp("ogt", x, y)
    hi = F.select(more, x, y)
    equal = F.cmp("oeq", x, y)                                  # inf - inf
    d = F.select(equal, F.const(0.0), F.neg(F.abs(F.sub(x, y))))
    r = F.add(hi, correction(d))
    return F.select(F.cmp("uno", x, y), F.add(x, y), r)


# --- the C library ----------------------------------------------------------------------------------------------------
LIBM = {"lgamma": "lgamma", "sin": "sin", "cos": "cos", "tan": "tan"}


def libm(F: Lanes, name: str, x: str) -> str:
    """The C library's function of every lane, one after another, in float64."""
    w, n = F.w, F.lanes
    c = LIBM[name]
    w.declarations.setdefault(c, f"declare double @{c}(double)")
    helper = f"lanes.{c}.{F.suffix}"
    if helper not in w.helpers:
        t, e = F.type, F.elem
        ext = ("%d = fpext float %s to double", "%q = fptrunc double %r to float") if e == "float" else (
            "%d = fadd double %s, -0.0", "%q = fadd double %r, -0.0")
        w.helpers[helper] = f"""
define internal {t} @{helper}({t} %x) noinline #0 {{
entry:
  %a = alloca {vector_type(e, n)}, align 64
  store {t} %x, ptr %a
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %p = getelementptr {e}, ptr %a, i64 %i
  %s = load {e}, ptr %p
  {ext[0]}
  %r = call double @{c}(double %d)
  {ext[1]}
  store {e} %q, ptr %p
  %j = add i64 %i, 1
  %m = icmp ult i64 %j, {n}
  br i1 %m, label %loop, label %done
done:
  %y = load {t}, ptr %a
  ret {t} %y
}}"""
    return w.effect_value(f"call {F.type} @{helper}({F.type} {x})")


def lgamma(F: Lanes, x: str) -> str:
    return libm(F, "lgamma", x)


FUNCTIONS: dict[str, Callable[..., str]] = {
    f.__name__: f for f in (exp, exp2, expm1, log, log2, log10, log1p, sin, cos, tan, asin, acos, atan, sinh, cosh,
                            tanh,
                            asinh, acosh, atanh, erf, erfc, pow, hypot, atan2, logaddexp, logaddexp2, lgamma)}
"""The functions by their names in ops/expr.py."""

ULP: dict[str, tuple[float, float]] = {
    "exp": (1.1, 1.2), "exp2": (1.1, 1.2), "expm1": (1.7, 2.3), "log": (1.0, 1.0), "log2": (1.0, 1.0),
    "log10": (1.0, 1.0), "log1p": (1.6, 1.6), "sin": (1.5, 1.6), "cos": (1.5, 1.6), "tan": (0.51, 2.8),
    "asin": (0.51, 2.3), "acos": (0.51, 1.4), "atan": (0.51, 1.5), "sinh": (0.51, 2.4), "cosh": (0.51, 1.4),
    "tanh": (1.5, 2.6), "asinh": (0.51, 2.2), "acosh": (0.51, 2.4), "atanh": (0.51, 2.2), "erf": (1.5, 1.3),
    "erfc": (0.51, 3.2), "pow": (0.51, 2.8), "hypot": (0.51, 1.2), "atan2": (0.51, 2.0),
}
"""Largest errors in units in the last place, for float32 and float64; held by tests/test_vecmath.py."""
