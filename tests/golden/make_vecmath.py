"""Fits the polynomials of rushlight/compiler/vecmath.py and prints them as Python tuples (needs mpmath).

Each is a Chebyshev interpolation (mpmath.chebyfit), within a small factor of the minimax polynomial, of a smooth
function that is left when the leading terms, which must be exact, are taken away. Coefficients are from the highest
power down.
"""
import struct
import sys

from mpmath import mp, mpf

mp.dps = 60


def f32(v):
    return struct.unpack("f", struct.pack("f", float(v)))[0]


def fit(f, lo, hi, degree):
    eps = mpf(10) ** -20
    return mp.chebyfit(lambda x: f(x if abs(x) > eps else eps), [mpf(lo), mpf(hi)], degree + 1, error=True)


def fit_weighted(f, weight, lo, hi, degree, iterations=40):
    """Lawson's iteration: the polynomial whose largest weighted error is least, by reweighted least squares."""
    lo, hi, count = mpf(lo), mpf(hi), 10 * degree + 60
    xs = [lo + (hi - lo) * (1 - mp.cos(mp.pi * (2 * k + 1) / (2 * count))) / 2 for k in range(count)]
    fs, ws, lam = [f(x) for x in xs], [weight(x) for x in xs], [mpf(1) / count] * count
    powers = [[(2 * x - lo - hi) ** k / (hi - lo) ** k for k in range(degree + 1)] for x in xs]
    for _ in range(iterations):
        a, b = mp.matrix(degree + 1, degree + 1), mp.matrix(degree + 1, 1)
        for row, y, w, share in zip(powers, fs, ws, lam, strict=True):
            for k in range(degree + 1):
                b[k] += share * w**2 * row[k] * y
                for j in range(degree + 1):
                    a[k, j] += share * w**2 * row[k] * row[j]
        c = mp.lu_solve(a, b)
        errors = [abs(sum(c[k] * row[k] for k in range(degree + 1)) - y) * w
                  for row, y, w in zip(powers, fs, ws, strict=True)]
        mean = sum(share * e for share, e in zip(lam, errors, strict=True))
        lam = [share * e / mean for share, e in zip(lam, errors, strict=True)]
    poly = [mpf(0)]                   # from powers of (2 x - lo - hi) / (hi - lo) to powers of x
    for k in range(degree, -1, -1):
        low = [v * (-(lo + hi) / (hi - lo)) for v in poly] + [mpf(0)]
        poly = [p + q for p, q in zip(low, [mpf(0), *[v * 2 / (hi - lo) for v in poly]], strict=True)]
        poly[0] += c[k]
    return poly[degree::-1], max(errors)


def q_exp(r):                     # e^r = 1 + r + r^2 Q(r)
    return (mp.expm1(r) - r) / r**2


def q_log(f):                     # log(1 + f) = f - f^2/2 + f^3 Q(f)
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def q_atanh(z):                   # log((1 + s)/(1 - s)) = 2 s + s z Q(z), z = s^2
    s = mp.sqrt(abs(z)) if z > 0 else mp.sqrt(z)
    return mp.re((2 * mp.atanh(s) - 2 * s) / (s * z))


def even(g):                      # a function of z = x^2
    def h(z):
        x = mp.sqrt(z)
        return mp.re(g(x))
    return h


q_sin = even(lambda x: (mp.sin(x) - x) / x**3)
q_cos = even(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4)
q_erf = even(lambda x: (mp.erf(x) - x) / x)
q_tanh = even(lambda x: (mp.tanh(x) - x) / x**3)
q_asin = even(lambda x: (mp.asin(x) - x) / x**3)
q_atan = even(lambda x: (mp.atan(x) - x) / x**3)


def erfcx_t(t):                   # erfc(a) = exp(-a^2) / (1 + 2 a) * P(t), t = (a - 2) / (a + 2)
    a = 2 * (1 + t) / (1 - t)
    if a > 60:
        s = mp.nsum(lambda k: (-1) ** int(k) * mp.fac2(2 * int(k) - 1) / (2 * a * a) ** int(k), [0, 20])
        e = s / (a * mp.sqrt(mp.pi))
    else:
        e = mp.exp(a * a) * mp.erfc(a)
    return e * (1 + 2 * a)


def log2_erfc(a):                 # erf(a) = 1 - 2^P(a) on [0.9, 4]
    return mp.log(mp.erfc(a), 2)


def q_erf2(a):                    # erf(a) = 1 - 2^(a Q(a))
    return mp.log(mp.erfc(a), 2) / a


def q_exp2(r):                    # 2^r = 1 + r Q(r)
    return (mp.mpf(2) ** r - 1) / r


JOBS = [
    ("EXP32", q_exp, -0.3466, 0.3466, 4), ("EXP64", q_exp, -0.3466, 0.3466, 9),
    ("LOG32", q_log, -0.3334, 0.3334, 8), ("LOG64", q_atanh, -1e-4, 0.0401, 7),
    ("SIN32", q_sin, 0, 0.6169, 2), ("COS32", q_cos, 0, 0.6169, 2),
    ("SIN64", q_sin, 0, 0.6169, 5), ("COS64", q_cos, 0, 0.6169, 5),
    ("ERF32", q_erf, 0, 0.81, 5), ("LOG2ERFC32", log2_erfc, 0.9, 4.0, 8), ("EXP2_32", q_exp2, -0.5, 0.5, 4),
    ("EXP2_32_LONG", q_exp2, -0.5, 0.5, 5),
    ("ERF64", q_erf, 0, 1.0, 12), ("ERFCX64", erfcx_t, -0.61, 0.87, 23),
    ("ERFQ32", q_erf2, 1e-6, 3.95, 7), ("TANH32", q_tanh, 0, 0.37, 4),
    ("ASIN64", q_asin, 0, 0.25, 12), ("ATAN64", q_atan, 0, 0.1716, 11),
]

WEIGHTS = {                           # errors that count relative to erf(a)
    "ERFQ32": lambda a: a * mp.log(2) * mp.erfc(a) / mp.erf(a),
}

for name, f, lo, hi, degree in JOBS:
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    poly, error = fit_weighted(f, WEIGHTS[name], lo, hi, degree) if name in WEIGHTS else fit(f, lo, hi, degree)
    single = "32" in name
    values = [f32(c) if single else float(c) for c in poly]
    print(f"# fitted on [{lo}, {hi}], error {float(error):.1e}")
    print(f"{name} = ({', '.join(map(repr, values))})")
