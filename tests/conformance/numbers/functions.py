"""Cases of CUDA's functions of float and double: how far each may be from the correctly rounded result.

The allowed errors are those of the CUDA programming guide, in units in the last place; so are the intervals on which
they hold for the fast variants (__expf …), whose absolute errors are stated here in units of the results' smallest ulp.
"""

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from tests.conformance.numbers.formulas import Formulas, Inputs
from tests.conformance.numbers.rounding import FLOAT, added, rounded

Function = Callable[..., np.ndarray]
DRAWN = 3000
SIGN_OF_ZERO_IS_FREE = 0.5

formulas = Formulas("functions.cu")
case = formulas.formula


# Inputs


def special(dtype: Any) -> np.ndarray:
    info = np.finfo(dtype)
    positive = [0.0, info.smallest_subnormal, info.tiny, 1e-10, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, info.max, np.inf]
    return np.array([*positive, *(-value for value in positive), np.nan], dtype)


def spread(low: float, high: float, dtype: Any = np.float32, count: int = 1, specials: bool = True) -> Inputs:
    """Numbers of an interval, drawn evenly and by their bits; special ones too, in all combinations."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        columns = []
        for _ in range(count):
            patterns = rng.integers(0, 1 << 63, DRAWN, np.uint64) << np.uint64(1) | rng.integers(0, 2, DRAWN, np.uint64)
            by_bits = patterns.view(np.float64)[:DRAWN] if dtype is np.float64 else patterns.view(np.float32)
            inside = by_bits[(by_bits >= low) & (by_bits <= high)]
            columns.append(np.concatenate([rng.uniform(low, high, DRAWN).astype(dtype), inside]))
        size = min(column.size for column in columns)
        if not specials:
            return [rng.permutation(column)[:size] for column in columns]
        crossed = np.meshgrid(*([special(dtype)] * count), indexing="ij")
        return [
            np.concatenate([rng.permutation(column)[:size], values.reshape(-1)])
            for column, values in zip(columns, crossed, strict=True)
        ]

    return draw


# What is expected


def each(function: Callable[..., float]) -> Function:
    """Of Python's function of numbers one of arrays: NaN and infinity where Python raises."""

    def of_numbers(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return np.vectorize(of_numbers, otypes=[np.float64])


def quantile(p: float) -> float:
    """Of the normal distribution."""
    return NormalDist().inv_cdf(p) if 0 < p < 1 else {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)


def inverse_erf(x: float) -> float:
    if abs(x) < 1e-4:
        return x * math.sqrt(math.pi) / 2 * (1 + math.pi * x * x / 12)
    return math.copysign(quantile((1 - abs(x)) / 2), x) / math.sqrt(2) if abs(x) <= 1 else math.nan


def sine_of_pi(x: np.ndarray) -> np.ndarray:
    rest = np.fmod(x, 2.0)
    folded = np.where(np.abs(rest) > 0.5, np.copysign(1, rest) - rest, rest)
    folded = np.where(np.abs(rest) > 1.5, rest - np.copysign(2, rest), folded)
    return np.sin(4 * np.arctan(np.ones(1, x.dtype)) * folded)


def gamma(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else math.gamma(x)


def log_gamma(x: float) -> float:
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def round_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


BIG = float(np.finfo(np.float32).max)
UNARY: dict[str, tuple[Function, float, float, float]] = {
    "expf": (np.exp, 2, -110, 95), "exp2f": (np.exp2, 2, -155, 130), "exp10f": (lambda x: 10.0**x, 2, -46, 39),
    "expm1f": (np.expm1, 1, -20, 90), "logf": (np.log, 1, 0, BIG), "log2f": (np.log2, 1, 0, BIG),
    "log10f": (np.log10, 2, 0, BIG), "log1pf": (np.log1p, 1, -1, BIG), "sqrtf": (np.sqrt, 0, 0, BIG),
    "rsqrtf": (lambda x: 1 / np.sqrt(x), 2, 0, BIG), "cbrtf": (np.cbrt, 1, -BIG, BIG),
    "rcbrtf": (lambda x: 1 / np.cbrt(x), 1, -BIG, BIG), "sinf": (np.sin, 2, -1e5, 1e5), "cosf": (np.cos, 2, -1e5, 1e5),
    "tanf": (np.tan, 4, -1e5, 1e5), "sinpif": (sine_of_pi, 1, -1000, 1000),
    "cospif": (lambda x: sine_of_pi(np.fmod(np.abs(x), 2.0) + 0.5), 1, -1000, 1000), "asinf": (np.arcsin, 2, -1, 1),
    "acosf": (np.arccos, 2, -1, 1), "atanf": (np.arctan, 2, -BIG, BIG), "sinhf": (np.sinh, 3, -90, 90),
    "coshf": (np.cosh, 2, -90, 90), "tanhf": (np.tanh, 2, -10, 10), "asinhf": (np.arcsinh, 3, -BIG, BIG),
    "acoshf": (np.arccosh, 4, 1, BIG), "atanhf": (np.arctanh, 3, -1, 1), "erff": (each(math.erf), 2, -4, 4),
    "erfcf": (each(math.erfc), 4, -5, 11), "erfinvf": (each(inverse_erf), 2, -1, 1),
    "erfcinvf": (each(lambda x: -quantile(x / 2) / math.sqrt(2)), 4, 0, 2),
    "normcdff": (each(lambda x: math.erfc(-x / math.sqrt(2)) / 2), 5, -15, 6),
    "normcdfinvf": (each(quantile), 5, 0, 1), "tgammaf": (each(gamma), 5, -10, 37),
    "fabsf": (np.abs, 0, -BIG, BIG), "floorf": (np.floor, 0, -1e7, 1e7),
    "ceilf": (np.ceil, 0, -1e7, 1e7), "truncf": (np.trunc, 0, -1e7, 1e7), "rintf": (np.rint, 0, -1e7, 1e7),
    "nearbyintf": (np.rint, 0, -1e7, 1e7), "roundf": (round_away, 0, -1e7, 1e7),
    "__saturatef": (lambda x: np.where(x > 0, np.minimum(x, 1), 0), SIGN_OF_ZERO_IS_FREE, -2, 2),
    "__frsqrt_rn": (lambda x: 1 / np.sqrt(x), 0, 0, BIG),
}  # fmt: skip
FAST: dict[str, tuple[Function, float, float, float]] = {
    "__expf": (np.exp, 2 + 11, -10, 10), "__exp10f": (lambda x: 10.0**x, 2 + 8, -3, 3),
    "__logf": (np.log, 3, 2.5, 1e30), "__log2f": (np.log2, 2, 2.5, 1e30), "__log10f": (np.log10, 3, 2.5, 1e30),
    "__sinf": (np.sin, 13, 0.5, 2.6),
    "__cosf": (np.cos, 8, -1, 1), "__tanf": (np.tan, 32, 0.5, 1), "__tanhf": (np.tanh, 8300, -10, 10),
}  # fmt: skip
BINARY: dict[str, tuple[Function, float, float, float]] = {
    "powf(a, b)": (np.power, 4, -30, 30), "atan2f(a, b)": (np.arctan2, 3, -BIG, BIG),
    "hypotf(a, b)": (np.hypot, 3, -BIG, BIG), "rhypotf(a, b)": (lambda x, y: 1 / np.hypot(x, y), 2, -BIG, BIG),
    "fmodf(a, b)": (np.fmod, 0, -1000, 1000), "remainderf(a, b)": (each(math.remainder), 0, -1000, 1000),
    "fmaxf(a, b)": (np.fmax, SIGN_OF_ZERO_IS_FREE, -BIG, BIG),
    "fminf(a, b)": (np.fmin, SIGN_OF_ZERO_IS_FREE, -BIG, BIG),
    "max(a, b)": (np.fmax, SIGN_OF_ZERO_IS_FREE, -BIG, BIG), "min(a, b)": (np.fmin, SIGN_OF_ZERO_IS_FREE, -BIG, BIG),
    "fdimf(a, b)": (lambda x, y: np.where(x <= y, 0, x - y), 0, -1000, 1000),
    "copysignf(a, b)": (np.copysign, 0, -BIG, BIG), "a / b": (lambda x, y: x / y, 0, -BIG, BIG),
    "a + b": (np.add, 0, -BIG, BIG), "a * b": (np.multiply, 0, -BIG, BIG), "a - b": (np.subtract, 0, -BIG, BIG),
}  # fmt: skip


def of_float(function: Function) -> Function:
    """A function of float64 for float32: its results are so much finer that they are rounded as if exact."""
    return lambda *given: rounded(function(*(x.astype(np.float64) for x in given)), FLOAT)


def norm(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.hypot(np.hypot(x, y), z)


def float_functions() -> None:
    for name, (function, ulps, low, high) in UNARY.items():
        case(f"{name}(a)", "float", "float", spread(low, high), of_float(function), ulps)
    for name, (function, ulps, low, high) in FAST.items():
        case(f"{name}(a)", "float", "float", spread(low, high, specials=False), of_float(function), ulps)
    for code, (function, ulps, low, high) in BINARY.items():
        case(code, "float", "float", spread(low, high, count=2), of_float(function), ulps)
    powers, divisors = spread(1, 4, count=2, specials=False), spread(1e-30, 1e30, count=2, specials=False)
    case("__powf(a, b)", "float", "float", powers, of_float(np.power), 32)
    case("__fdividef(a, b)", "float", "float", divisors, of_float(np.divide), 2)
    case("nextafterf(a, b)", "float", "float", spread(-2, 2, count=2), np.nextafter, SIGN_OF_ZERO_IS_FREE)
    three = spread(-BIG, BIG, count=3)
    case("fmaf(a, b, c)", "float", "float", three, of_float(lambda x, y, z: added(x * y, z)), SIGN_OF_ZERO_IS_FREE)
    case("norm3df(a, b, c)", "float", "float", three, of_float(norm), 3)
    case("rnorm3df(a, b, c)", "float", "float", three, of_float(lambda *given: 1 / norm(*given)), 2)
    case("norm4df(a, b, c, 1.5f)", "float", "float", three, of_float(lambda *given: np.hypot(norm(*given), 1.5)), 3)
    # Of negative numbers the guide promises nothing for some.
    positive = lambda rng: [np.abs(spread(0, BIG)(rng)[0])]  # noqa: E731
    case("lgammaf(a)", "float", "float", positive, of_float(each(log_gamma)), 6)
    # Fused by nvcc, in two steps here: one rounding more, where nothing cancels.
    fused = of_float(lambda x, y, z: added(x * y, z))
    case("a * b + c", "float", "float", spread(1, 4, count=3, specials=False), fused, 1)
    apart = "__fadd_rn(__fmul_rn(a, b), c)"  # never one fma
    case(apart, "float", "float", spread(-9, 9, count=3), lambda x, y, z: x * y + z)
    sine_and_cosine = "[&] { float2 both; %s(a, &both.x, &both.y); return both; }()"
    for name, parts, ulps in (("sincosf", (np.sin, np.cos), 2), ("sincospif", (sine_of_pi, None), 1)):
        cosine = parts[1] or UNARY["cospif"][0]
        both = functools.partial(lambda x, s, c: np.stack([s(x), c(x)], 1).reshape(-1), s=parts[0], c=cosine)
        case(sine_and_cosine % name, "float2", "float", spread(-1000, 1000), of_float(both), ulps)


def parts_of_floats() -> None:
    finite = spread(-BIG, BIG, specials=False)
    classes = "(isnan(a) ? 1 : 0) | (isinf(a) ? 2 : 0) | (signbit(a) ? 4 : 0) | (isfinite(a) ? 8 : 0)"

    def classified(x: np.ndarray) -> np.ndarray:
        tests = (np.isnan(x), np.isinf(x), np.signbit(x), np.isfinite(x))
        return np.array([test << np.int32(i) for i, test in enumerate(tests)]).sum(0, np.int32)

    case(classes, "int", "float", spread(-9, 9), classified)
    case(classes, "int", "double", spread(-9, 9, np.float64), classified)
    case("[&] { int e; return frexpf(a, &e); }()", "float", "float", finite, lambda x: np.frexp(x)[0])
    case("[&] { int e; frexpf(a, &e); return e; }()", "int", "float", finite, lambda x: np.frexp(x)[1])
    case("[&] { float w; return modff(a, &w); }()", "float", "float", spread(-1e5, 1e5), lambda x: np.modf(x)[0])
    case("[&] { float w; modff(a, &w); return w; }()", "float", "float", spread(-1e5, 1e5), lambda x: np.modf(x)[1])
    for code, shift in (("ldexpf(a, -30)", -30), ("scalbnf(a, 30)", 30)):
        case(code, "float", "float", spread(-BIG, BIG), of_float(lambda x, shift=shift: np.ldexp(x, shift)))
    whole = spread(-1e9, 1e9, specials=False)
    for name, function, c_type, dtype in (
        ("lroundf", round_away, "long", np.int64), ("llroundf", round_away, "long long", np.int64),
        ("lrintf", np.rint, "long", np.int64), ("llrintf", np.rint, "long long", np.int64),
    ):  # fmt: skip
        exact = functools.partial(lambda x, f, dtype: f(x.astype(np.float64)).astype(dtype), f=function, dtype=dtype)
        case(f"{name}(a)", c_type, "float", whole, exact)


# Of double, by the longer type that NumPy has on most machines. The programming guide promises one ulp for cbrt, exp10
# and tanh, but glibc errs by more: its manual says 4, 2 and 2.
DOUBLE: dict[str, tuple[Function, float, float, float]] = {
    "exp": (np.exp, 1, -750, 710), "exp2": (np.exp2, 1, -1080, 1025), "exp10": (lambda x: 10**x, 2, -325, 309),
    "expm1": (np.expm1, 1, -40, 700), "log": (np.log, 1, 0, 1e308), "log2": (np.log2, 1, 0, 1e308),
    "log10": (np.log10, 1, 0, 1e308), "log1p": (np.log1p, 1, -1, 1e308),
    "sqrt": (lambda x: np.sqrt(x.astype(np.float64)), 0, 0, 1e308), "rsqrt": (lambda x: 1 / np.sqrt(x), 1, 0, 1e308),
    "cbrt": (np.cbrt, 4, -8e307, 8e307), "sin": (np.sin, 2, -1e5, 1e5), "cos": (np.cos, 2, -1e5, 1e5),
    "tan": (np.tan, 2, -1e5, 1e5), "asin": (np.arcsin, 2, -1, 1), "acos": (np.arccos, 2, -1, 1),
    "atan": (np.arctan, 2, -8e307, 8e307), "sinh": (np.sinh, 2, -710, 710), "cosh": (np.cosh, 1, -710, 710),
    "tanh": (np.tanh, 2, -20, 20), "asinh": (np.arcsinh, 3, -8e307, 8e307), "acosh": (np.arccosh, 3, 1, 1e308),
    "atanh": (np.arctanh, 2, -1, 1),
}  # fmt: skip


def double_functions() -> None:
    def of_double(function: Function) -> Function:
        return lambda *given: function(*(x.astype(np.longdouble) for x in given)).astype(np.float64)

    for name, (function, ulps, low, high) in DOUBLE.items():
        case(f"{name}(a)", "double", "double", spread(low, high, np.float64), of_double(function), ulps)
    two = spread(-1e300, 1e300, np.float64, 2)
    for code, function, ulps, inputs in (
        ("pow(a, b)", np.power, 2, spread(-30, 30, np.float64, 2)), ("atan2(a, b)", np.arctan2, 2, two),
        ("hypot(a, b)", np.hypot, 2, two), ("norm3d(a, b, 2.0)", lambda x, y: np.hypot(np.hypot(x, y), 2), 3, two),
        ("fmod(a, b)", np.fmod, 0, spread(-1000, 1000, np.float64, 2)),
    ):  # fmt: skip
        case(code, "double", "double", inputs, of_double(function), ulps)
    for name, python, ulps, low, high in (("erf", math.erf, 2, -6, 6), ("erfc", math.erfc, 5, -6, 27)):
        case(f"{name}(a)", "double", "double", spread(low, high, np.float64), each(python), ulps)
    for name, function in (("sinpi", sine_of_pi), ("cospi", UNARY["cospif"][0])):
        case(f"{name}(a)", "double", "double", spread(-1000, 1000, np.float64), of_double(function), 2)


float_functions()
parts_of_floats()
double_functions()
