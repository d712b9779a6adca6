"""Writes op_values.h: what every elementwise operation gives, from definitions in exact or 60-digit arithmetic (mpmath).

    pip install mpmath && python tests/golden/make_golden.py

Nothing here is taken from the library: operations are written out anew, and results are rounded once.
"""

import math
import random
import struct
from fractions import Fraction
from pathlib import Path

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60
INF, NAN = math.inf, math.nan
FORMATS = {"f32": (24, -149, 127, "<f", "<I"), "f64": (53, -1074, 1023, "<d", "<Q")}


def rounded(x, kind):
    """x (mpf, int, Fraction or float) rounded once to nearest even, as a float."""
    if isinstance(x, float) and (math.isnan(x) or math.isinf(x) or x == 0):
        return x
    if isinstance(x, mpf):
        if mpmath.isnan(x) or mpmath.isinf(x):
            return float(x)
        sign, man, exp, length = x._mpf_
        if man and abs(exp + length) > 3000:  # far outside: too long to write out
            return math.copysign(INF if exp > 0 else 0.0, -1 if sign else 1)
        x = Fraction(int(man)) * (Fraction(2) ** int(exp)) * (-1 if sign else 1)
    x = Fraction(x)
    if x == 0:
        return 0.0
    digits, low, high, _, _ = FORMATS[kind]
    a = abs(x)
    e = a.numerator.bit_length() - a.denominator.bit_length()
    if Fraction(2) ** e > a:
        e -= 1
    step = Fraction(2) ** max(e - digits + 1, low)
    q, r = divmod(a, step)
    q += r * 2 > step or (r * 2 == step and q % 2 == 1)
    value = q * step
    sign = 1 if x > 0 else -1
    return sign * (INF if value >= Fraction(2) ** (high + 1) else float(value))


def bits(x, kind):
    fmt = FORMATS[kind]
    return struct.unpack(fmt[4], struct.pack(fmt[3], x))[0]


def as_kind(x, kind):
    return x if math.isnan(x) or math.isinf(x) or x == 0 else rounded(mpf(x), kind)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def gelu(x):
    u = mpmath.sqrt(2 / mpmath.pi) * (x + mpf("0.044715") * x**3)
    return x * sigmoid(2 * u)


def gelu_grad(x):
    if abs(x) > 1000:
        return mpf(1) if x > 0 else mpf(0)
    slope = 2 * mpmath.sqrt(2 / mpmath.pi) * (1 + 3 * mpf("0.044715") * x**2)
    s = sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpf("0.044715") * x**3))
    return s + x * s * (1 - s) * slope


def rint(x):
    down = mpmath.floor(x)
    gap = x - down
    return down + (1 if gap > mpf(1) / 2 or (gap == mpf(1) / 2 and int(down) % 2) else 0)


def cbrt(x):
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def when(condition, f):
    return lambda x: f(x) if condition(x) else NAN


ZERO, ODD, SAME = "zero", "odd", "same"
# name: (value at finite nonzero x, at +0, at -0, at +inf, at -inf)
UNARY = {
    "negative": (lambda x: -x, -0.0, 0.0, -INF, INF),
    "absolute": (abs, 0.0, 0.0, INF, INF),
    "sign": (lambda x: mpf(1 if x > 0 else -1), 0.0, 0.0, 1.0, -1.0),
    "square": (lambda x: x * x, 0.0, 0.0, INF, INF),
    "reciprocal": (lambda x: 1 / x, INF, -INF, 0.0, -0.0),
    "sqrt": (when(lambda x: x > 0, mpmath.sqrt), 0.0, -0.0, INF, NAN),
    "rsqrt": (when(lambda x: x > 0, lambda x: 1 / mpmath.sqrt(x)), INF, -INF, 0.0, NAN),
    "cbrt": (cbrt, 0.0, -0.0, INF, -INF),
    "exp": (mpmath.exp, 1.0, 1.0, INF, 0.0),
    "exp2": (lambda x: mpmath.power(2, x), 1.0, 1.0, INF, 0.0),
    "expm1": (mpmath.expm1, 0.0, -0.0, INF, -1.0),
    "log": (when(lambda x: x > 0, mpmath.log), -INF, -INF, INF, NAN),
    "log2": (when(lambda x: x > 0, lambda x: mpmath.log(x) / mpmath.log(2)), -INF, -INF, INF, NAN),
    "log10": (when(lambda x: x > 0, mpmath.log10), -INF, -INF, INF, NAN),
    "log1p": (lambda x: mpmath.log1p(x) if x > -1 else (-INF if x == -1 else NAN), 0.0, -0.0, INF, NAN),
    "sin": (mpmath.sin, 0.0, -0.0, NAN, NAN),
    "cos": (mpmath.cos, 1.0, 1.0, NAN, NAN),
    "tan": (mpmath.tan, 0.0, -0.0, NAN, NAN),
    "arcsin": (when(lambda x: abs(x) <= 1, mpmath.asin), 0.0, -0.0, NAN, NAN),
    "arccos": (when(lambda x: abs(x) <= 1, mpmath.acos), mpmath.pi / 2, mpmath.pi / 2, NAN, NAN),
    "arctan": (mpmath.atan, 0.0, -0.0, mpmath.pi / 2, -mpmath.pi / 2),
    "sinh": (mpmath.sinh, 0.0, -0.0, INF, -INF),
    "cosh": (mpmath.cosh, 1.0, 1.0, INF, INF),
    "tanh": (mpmath.tanh, 0.0, -0.0, 1.0, -1.0),
    "arcsinh": (mpmath.asinh, 0.0, -0.0, INF, -INF),
    "arccosh": (when(lambda x: x >= 1, mpmath.acosh), NAN, NAN, INF, NAN),
    "arctanh": (
        lambda x: mpmath.atanh(x) if abs(x) < 1 else (math.copysign(INF, x) if abs(x) == 1 else NAN),
        0.0,
        -0.0,
        NAN,
        NAN,
    ),
    "erf": (mpmath.erf, 0.0, -0.0, 1.0, -1.0),
    "relu": (lambda x: x if x > 0 else 0.0, 0.0, 0.0, INF, 0.0),
    "sigmoid": (sigmoid, 0.5, 0.5, 1.0, 0.0),
    "silu": (lambda x: x * sigmoid(x), 0.0, -0.0, INF, NAN),
    "gelu_grad": (gelu_grad, 0.5, 0.5, 1.0, -0.0),
    "gelu": (gelu, 0.0, -0.0, INF, NAN),
    "gelu_erf": (lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2 if abs(x) < 100 else max(x, mpf(0)), 0.0, -0.0, INF, NAN),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)) if x < 200 else x, mpmath.log(2), mpmath.log(2), INF, 0.0),
    "floor": (mpmath.floor, 0.0, -0.0, INF, -INF),
    "ceil": (mpmath.ceil, 0.0, -0.0, INF, -INF),
    "trunc": (lambda x: mpmath.floor(x) if x > 0 else mpmath.ceil(x), 0.0, -0.0, INF, -INF),
    "rint": (rint, 0.0, -0.0, INF, -INF),
    "conjugate": (lambda x: x, 0.0, -0.0, INF, -INF),
    "real": (lambda x: x, 0.0, -0.0, INF, -INF),
    "imag": (lambda x: 0.0, 0.0, 0.0, 0.0, 0.0),
}
KEEPS_SIGN = {"floor", "ceil", "trunc", "rint"}  # a zero result has the sign of x
TESTS = {  # bool of one real
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "logical_not": lambda x: x == 0,
}


def real_unary(name, x, kind):
    f, zero, minus_zero, inf, minus_inf = UNARY[name]
    if math.isnan(x):
        return 0.0 if name == "imag" else NAN
    if math.isinf(x):
        y = inf if x > 0 else minus_inf
    elif x == 0:
        y = minus_zero if math.copysign(1, x) < 0 else zero
    else:
        y = f(mpf(x))
        if isinstance(y, mpf) and name in KEEPS_SIGN and y == 0:
            return math.copysign(0.0, x)
        if isinstance(y, mpf) and y == 0 and x < 0:  # lost below mpmath's own range: tails of the activations
            return -0.0 if name in ("silu", "gelu", "gelu_erf", "gelu_grad") else 0.0
    return rounded(y, kind)


def wrap_nan(f):
    return lambda x, y: NAN if math.isnan(x) or math.isnan(y) else f(x, y)


def exact(f):
    """A binary operation on finite numbers as fractions; float arithmetic settles infinities, zeros and NaN."""
    float_rule = {"add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y}[f]

    def apply(x, y):
        if all(math.isfinite(v) and v != 0 for v in (x, y)):
            value = float_rule(Fraction(x), Fraction(y))
            return value if value else 0.0
        return float_rule(x, y)

    return apply


def divide(x, y):
    if math.isnan(x) or math.isnan(y):
        return NAN
    if y == 0:
        return NAN if x == 0 else math.copysign(INF, x) * math.copysign(1, y)
    if math.isinf(x) or math.isinf(y) or x == 0:
        return x / y
    return Fraction(x) / Fraction(y)


def floor_divide(x, y):
    if math.isnan(x) or math.isnan(y) or math.isinf(x):
        return NAN if not (math.isinf(x) and y == 0) else divide(x, y)
    if y == 0:
        return divide(x, y)
    if math.isinf(y):
        return -1.0 if x != 0 and (x < 0) != (y < 0) else math.copysign(0.0, math.copysign(1, x) * y)
    q = math.floor(Fraction(x) / Fraction(y))
    return Fraction(q) if q else math.copysign(0.0, math.copysign(1, x) * math.copysign(1, y))


def remainder(x, y):
    if math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0:
        return NAN
    if math.isinf(y):
        return math.copysign(0.0, y) if x == 0 else (x if (x < 0) == (y < 0) else y)
    r = Fraction(x) - math.floor(Fraction(x) / Fraction(y)) * Fraction(y)
    return r if r else math.copysign(0.0, y)


def power(x, y):
    if y == 0 or x == 1:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return NAN
    if x == 0 or math.isinf(x) or math.isinf(y):
        try:
            return math.pow(x, y)
        except ValueError:  # a zero to a negative power
            return math.copysign(INF, x) if y % 2 == 1 else INF
    if x < 0 and y != int(y):
        return NAN
    if abs(y * math.log(abs(x))) > 100000:
        large = (abs(x) > 1) == (y > 0)
        return (INF if large else 0.0) * (-1 if x < 0 and y % 2 == 1 else 1)
    value = mpmath.power(abs(mpf(x)), mpf(y))
    return -value if x < 0 and y % 2 == 1 else value


def arctan2(y, x):
    if math.isnan(x) or math.isnan(y):
        return NAN
    if y == 0 and math.copysign(1, x) > 0:
        return y
    a = mpmath.atan2(abs(mpf(y)), mpf(x)) if math.isfinite(x) and math.isfinite(y) and y != 0 else None
    if a is None:
        quarters = 1 if math.isfinite(x) else (0 if x > 0 else 2)
        if math.isinf(y):
            quarters = {1: 1, 0: 0.5, 2: 1.5}[quarters] if math.isinf(x) else 1
        elif y == 0:
            quarters = 2
        a = mpmath.pi / 2 * quarters
    return math.copysign(0.0, y) if a == 0 else (-a if math.copysign(1, y) < 0 else a)


def logaddexp(x, y):
    if math.isnan(x) or math.isnan(y):
        return NAN
    if math.isinf(x) or math.isinf(y):
        return max(x, y)
    return max(x, y) + mpmath.log1p(mpmath.exp(-abs(mpf(x) - mpf(y))))


def hypot(x, y):
    if math.isinf(x) or math.isinf(y):
        return INF
    if math.isnan(x) or math.isnan(y):
        return NAN
    return mpmath.sqrt(mpf(x) ** 2 + mpf(y) ** 2)


BINARY = {
    "add": exact("add"),
    "subtract": exact("subtract"),
    "multiply": exact("multiply"),
    "divide": divide,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "power": power,
    "maximum": wrap_nan(max),
    "minimum": wrap_nan(min),
    "fmax": lambda x, y: y if math.isnan(x) else x if math.isnan(y) else max(x, y),
    "fmin": lambda x, y: y if math.isnan(x) else x if math.isnan(y) else min(x, y),
    "hypot": hypot,
    "copysign": lambda x, y: math.copysign(x, y),
    "logaddexp": logaddexp,
    "arctan2": arctan2,
}
RELATIONS = {
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: x != 0 and y != 0,
    "logical_or": lambda x, y: x != 0 or y != 0,
    "logical_xor": lambda x, y: (x != 0) != (y != 0),
}


def fma(x, y, z):
    if all(math.isfinite(v) for v in (x, y, z)):
        value = Fraction(x) * Fraction(y) + Fraction(z)
        return value if value else x * y + z
    return x * y + z if not math.isinf(z) or math.isnan(x * y) else (z if math.isfinite(x * y) or x * y == z else NAN)


def clip(x, y, z):
    return NAN if any(math.isnan(v) for v in (x, y, z)) else min(max(x, y), z)


TERNARY = {"fma": fma, "clip": clip, "where": lambda x, y, z: y if x != 0 else z}


# ---- integers ----


def integer_ops(size):
    def wrap(v):
        return (v + (1 << (size - 1))) % (1 << size) - (1 << (size - 1))

    def ipow(x, y):
        if y >= 0:
            return wrap(pow(x, y, 1 << size))
        return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)

    def philox(x, y):
        """Philox4x32-10 by its definition: word 0, and word 1 above it for 64 bits."""
        mask = 0xFFFFFFFF
        c = [x & mask, (x >> 32) & mask if size == 64 else 0, 0, 0]
        k = [y & mask, (y >> 32) & mask if size == 64 else 0]
        for _ in range(10):
            first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [(second >> 32) ^ c[1] ^ k[0], second & mask, (first >> 32) ^ c[3] ^ k[1], first & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        return c[0] | c[1] << 32

    one = {
        "negative": lambda x: -x,
        "absolute": abs,
        "sign": lambda x: (x > 0) - (x < 0),
        "square": lambda x: x * x,
        "relu": lambda x: max(x, 0),
        "floor": lambda x: x,
        "ceil": lambda x: x,
        "trunc": lambda x: x,
        "rint": lambda x: x,
        "isnan": lambda x: 0,
        "isinf": lambda x: 0,
        "isfinite": lambda x: 1,
        "logical_not": lambda x: x == 0,
        "conjugate": lambda x: x,
        "real": lambda x: x,
        "imag": lambda x: 0,
    }
    two = {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "floor_divide": lambda x, y: x // y if y else 0,
        "remainder": lambda x, y: x % y if y else 0,
        "power": ipow,
        "maximum": max,
        "minimum": min,
        "fmax": max,
        "fmin": min,
        "bitwise_and": lambda x, y: x & y,
        "bitwise_or": lambda x, y: x | y,
        "bitwise_xor": lambda x, y: x ^ y,
        "philox": philox,
    }
    two.update(RELATIONS)
    three = {"fma": lambda x, y, z: x * y + z, "clip": lambda x, y, z: min(max(x, y), z), "where": TERNARY["where"]}
    return [{k: (lambda f: lambda *a: wrap(int(f(*a))))(f) for k, f in ops.items()} for ops in (one, two, three)]


# ---- inputs ----

MAGNITUDES = """1e-4 0.01 0.3 0.5 0.9 1 1.5707964 2 2.5 3 4.7 6.5 9 10 14 17 25 50 80 87.5 88.7 100 103.5 700 744 1000 1e4 1e6
1e7 1e10 1e20 3e38""".split()


def unary_pool(kind):
    tiny = [1e-40, 1e-20, 1e-9] if kind == "f32" else [1e-310, 1e-200, 1e-17, 1e-9]
    values = [0.0, INF] + tiny + [float(v) for v in MAGNITUDES] + ([1e155, 1.7e308] if kind == "f64" else [])
    rng = random.Random(7)
    values += [rng.uniform(0, 1), rng.uniform(0, 3), rng.uniform(0, 12), math.exp(rng.uniform(-30, 30))]
    return [NAN] + [as_kind(v * s, kind) for v in values for s in (1.0, -1.0)]


def binary_pool(kind):
    special = [0.0, -0.0, 1.0, -1.5, 3.0, INF, -INF, NAN]
    rng = random.Random(8)
    pairs = [(x, y) for x in special for y in special]
    top = 3e38 if kind == "f32" else 1.7e308
    pairs += [
        (top, top),
        (top, 0.5),
        (top, -2.0),
        (1e-40, 3.0),
        (-7.25, 2.5),
        (7.25, -2.5),
        (1e6, 0.1),
        (-2.0, 5.0),
        (-2.0, -3.0),
    ]
    pairs += [(10.0, 2.0), (0.1, 30.0), (100.0, -3.5), (-100.0, -102.0), (1e-20, -1e-20), (5.0, 1e-30), (1.0000001, 1e7)]
    pairs += [(rng.uniform(-9, 9), rng.uniform(-9, 9)) for _ in range(16)]
    pairs += [(math.exp(rng.uniform(-20, 20)), rng.uniform(-3, 3)) for _ in range(8)]
    return [(as_kind(x, kind), as_kind(y, kind)) for x, y in pairs]


def ternary_pool(kind):
    special = [-0.0, 1.5, -INF, NAN]
    rng = random.Random(9)
    triples = [(x, y, z) for x in special for y in special for z in special]
    triples += [tuple(rng.uniform(-5, 5) for _ in range(3)) for _ in range(16)]
    triples += [(3e38, 2.0, -3e38), (1.0000001, 1.0000001, -1.0000002), (0.0, 4.0, 5.0), (0.0, -1.0, 1.0)]
    return [tuple(as_kind(v, kind) for v in t) for t in triples]


def integer_pools(size):
    top = (1 << (size - 1)) - 1
    edge = [0, 1, -1, 2, -2, 7, -7, 46341, top, -top - 1]
    triples = [(x, y, z) for x in (0, 5, -9) for y in (-3, 4) for z in (-1, 6)] + [(top, 2, 1), (-top - 1, -1, top)]
    return edge, [(x, y) for x in edge for y in edge], triples


COMPLEX = [
    0j,
    1 + 0j,
    -1 + 0j,
    1j,
    -1j,
    3 - 4j,
    -0.5 + 0.25j,
    1e-3 + 2e-3j,
    -7 + 1e-3j,
    1e15 - 1e14j,
    1e-15 + 1e-16j,
    2.5 + 9j,
    -20 + 3j,
    40 - 40j,
    0.7 + 0.7j,
    -3 - 0.1j,
]


def complex_ops():
    mul = lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0])  # noqa: E731

    def mp(f):
        def apply(x):
            y = f(mpmath.mpc(*x))
            return (y.real, y.imag)

        return apply

    def div(x, y):
        n = y[0] ** 2 + y[1] ** 2
        p = mul(x, (y[0], -y[1]))
        return (p[0] / n, p[1] / n)

    nonzero = lambda x: x != (0, 0)  # noqa: E731
    one = {
        "negative": lambda x: (-x[0], -x[1]),
        "square": lambda x: mul(x, x),
        "conjugate": lambda x: (x[0], -x[1]),
        "reciprocal": lambda x: div((mpf(1), mpf(0)), x),
        "sqrt": mp(mpmath.sqrt),
        "exp": mp(mpmath.exp),
        "log": mp(mpmath.log),
        "absolute": lambda x: mpmath.sqrt(x[0] ** 2 + x[1] ** 2),
        "real": lambda x: x[0],
        "imag": lambda x: x[1],
        "isnan": lambda x: False,
        "isinf": lambda x: False,
        "isfinite": lambda x: True,
        "logical_not": lambda x: not nonzero(x),
    }
    two = {
        "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
        "subtract": lambda x, y: (x[0] - y[0], x[1] - y[1]),
        "multiply": mul,
        "divide": div,
        "equal": lambda x, y: x == y,
        "not_equal": lambda x, y: x != y,
        "logical_and": lambda x, y: nonzero(x) and nonzero(y),
        "logical_or": lambda x, y: nonzero(x) or nonzero(y),
        "logical_xor": lambda x, y: nonzero(x) != nonzero(y),
    }
    three = {"fma": lambda x, y, z: tuple(a + b for a, b in zip(mul(x, y), z)), "where": lambda x, y, z: y if nonzero(x) else z}
    return one, two, three


# ---- writing ----


class Writer:
    def __init__(self):
        self.arrays, self.rows, self.pools = [], [], []

    def array(self, name, values):
        text = ",".join(hex(v) if v > 9 else str(v) for v in values)
        self.arrays.append(f"static const uint64_t {name}[] = {{{text}}};")

    def row(self, op, kind, arity, boolean, values):
        self.array(f"out_{op}_{kind}", values)
        self.rows.append(
            f'    {{"{op}", MFI_{kind.upper()}, {arity}, {int(boolean)}, in_{kind}_{arity}, out_{op}_{kind}, {len(values)}}},'
        )


def write_real(w, kind):
    pools = [[(x,) for x in unary_pool(kind)], binary_pool(kind), ternary_pool(kind)]
    for arity, pool in enumerate(pools, 1):
        w.array(f"in_{kind}_{arity}", [bits(v, kind) for t in pool for v in t])
    for name in UNARY:
        w.row(name, kind, 1, False, [bits(real_unary(name, x, kind), kind) for (x,) in pools[0]])
    for name, f in TESTS.items():
        w.row(name, kind, 1, True, [int(f(x)) for (x,) in pools[0]])
    for name, f in BINARY.items():
        w.row(name, kind, 2, False, [bits(rounded(f(x, y), kind), kind) for x, y in pools[1]])
    for name, f in RELATIONS.items():
        w.row(name, kind, 2, True, [int(f(x, y)) for x, y in pools[1]])
    for name, f in TERNARY.items():
        w.row(name, kind, 3, False, [bits(rounded(f(*t), kind), kind) for t in pools[2]])


def write_integer(w, kind):
    size = int(kind[1:])
    edge, pairs, triples = integer_pools(size)
    pools = [[(x,) for x in edge], pairs, triples]
    boolean = set(TESTS) | set(RELATIONS)
    for arity, (pool, ops) in enumerate(zip(pools, integer_ops(size)), 1):
        w.array(f"in_{kind}_{arity}", [v % (1 << size) for t in pool for v in t])
        for name, f in ops.items():
            w.row(name, kind, arity, name in boolean, [f(*t) % (1 << (32 if name in boolean else size)) for t in pool])


def write_complex(w, kind):
    real = "f32" if kind == "c64" else "f64"
    parts = [(as_kind(z.real + 0.0, real), as_kind(z.imag + 0.0, real)) for z in COMPLEX]
    pairs = [(x, parts[(5 * i + 3) % len(parts)]) for i, x in enumerate(parts)] + [(x, x) for x in parts[:4]]
    pools = [[(x,) for x in parts], pairs, [(x, y, parts[(3 * i + 1) % len(parts)]) for i, (x, y) in enumerate(pairs)]]
    boolean = set(TESTS) | set(RELATIONS)
    for arity, (pool, ops) in enumerate(zip(pools, complex_ops()), 1):
        w.array(f"in_{kind}_{arity}", [bits(v, real) for t in pool for z in t for v in z])
        for name, f in ops.items():
            out = []
            for t in pool:
                skip = (name in ("reciprocal", "log") and t[0] == (0, 0)) or (name == "divide" and t[1] == (0, 0))
                y = (NAN, NAN) if skip else f(*[(mpf(a), mpf(b)) for a, b in t])
                if name in boolean:
                    out.append(int(bool(y)))
                else:
                    out += [bits(rounded(v, real), real) for v in (y if isinstance(y, tuple) else (y,))]
            w.row(name, kind, arity, name in boolean, out)


def main():
    w = Writer()
    for kind in FORMATS:
        write_real(w, kind)
    for kind in ("i32", "i64"):
        write_integer(w, kind)
    for kind in ("c64", "c128"):
        write_complex(w, kind)
    head = [
        "/* Written by make_golden.py: inputs and correctly rounded results of every operation, as bits. Complex values are",
        " * pairs; NaN in a complex result means not compared. */",
    ]
    tail = ["static const golden goldens[] = {"] + w.rows + ["};"]
    Path(__file__).with_name("op_values.h").write_text("\n".join(head + w.arrays + tail) + "\n")


if __name__ == "__main__":
    main()
