"""Cases of bf16 and half: exhaustive where there is one input, and at every boundary of rounding.

Results come from rounding.py and float64. Functions of one number may be one step from the correctly rounded result: a
GPU computes them from an approximation in float. Everything else is exact.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.numbers.formulas import Formulas, Inputs
from tests.conformance.numbers.rounding import BFLOAT16, HALF, WHOLE, Format, added, rounded, to_integer, to_odd

FORMATS = {"bfloat16": BFLOAT16, "half": HALF}
TYPES = {"bfloat16": "__nv_bfloat16", "half": "__half"}
INTEGERS: dict[str, tuple[str, Any]] = {
    "short": ("short", np.int16), "ushort": ("unsigned short", np.uint16), "int": ("int", np.int32),
    "uint": ("unsigned", np.uint32), "ll": ("long long", np.int64), "ull": ("unsigned long long", np.uint64),
}  # fmt: skip
DRAWN = 100_000
SPECIAL_BITS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0x3FF,
    0x400,
    0x3C00,
    0x3F80,
    0x4000,
    0x7BFF,
    0x7C00,
    0x7C01,
    0x7F7F,
    0x7F80,
    0x7FFF,
)
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10.0**x, "log": np.log, "log2": np.log2, "log10": np.log10,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "tanh_approx": np.tanh, "sqrt": np.sqrt, "rcp": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
STEPS = {"tanh_approx": 2}  # relative errors of a GPU's instructions: 2^-10.987 (half) and 2^-8 (bf16)

SIGN_OF_ZERO_IS_FREE = 0.5  # CUDA does not say what becomes of -0 where results are clipped

formulas = Formulas("small_floats.cu", "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n")
case = formulas.formula


# Inputs


def every(form: Format) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(form.dtype)


def boundaries(form: Format) -> np.ndarray:
    """In float64, from 0 up: all numbers of a format, the middles between them, and where infinity begins."""
    infinity = int(np.array(np.inf, form.dtype).view(np.uint16))
    numbers = np.arange(infinity, dtype=np.uint16).view(form.dtype).astype(np.float64)
    numbers = np.append(numbers, 2 * form.largest - numbers[-2])
    return np.sort(np.append(numbers, (numbers[1:] + numbers[:-1]) / 2))


@functools.cache
def around_boundaries(form: Format, dtype: Any) -> np.ndarray:
    """The boundaries and their neighbours in float32 or float64, both signs, infinities and kinds of NaN."""
    with np.errstate(over="ignore"):
        exact = boundaries(form).astype(dtype)
    positive = np.concatenate(
        [exact, np.nextafter(exact, dtype(np.inf)), np.nextafter(exact, dtype(-1)), [dtype(np.inf)]]
    )
    word, shift = (np.uint32, 0) if dtype is np.float32 else (np.uint64, 32)
    nans = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x7FFFFFFF], np.uint64) << np.uint64(shift)
    nans |= np.uint64(0x7FF0000000000001) if shift else np.uint64(0)
    return np.concatenate([positive, -positive, nans.astype(word).view(dtype)])


@functools.cache
def integers_around_boundaries(form: Format, dtype: Any) -> np.ndarray:
    limits = np.iinfo(dtype)
    below = boundaries(form)
    exact = below[(below >= 1) & (below < float(limits.max))].astype(dtype)
    near = np.concatenate([exact - dtype(1), exact, exact + dtype(1)])
    ends = np.array([0, limits.min, limits.min + 1, limits.max - 1, limits.max], dtype)
    drawn = np.random.default_rng(1).integers(limits.min, limits.max, 1000, dtype, endpoint=True)
    return np.unique(np.concatenate([near, ends, drawn, *([-near] if limits.min else [])]))


def combinations(form: Format, count: int) -> Inputs:
    """Drawn patterns of bits, half of them with exponents near each other, and all combinations of special ones."""
    special = np.array([*SPECIAL_BITS, *(bits | 0x8000 for bits in SPECIAL_BITS)], np.uint16)

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        first = rng.integers(0, 1 << 16, DRAWN, np.uint16)
        spread = 8 << (form.digits - 1)
        near = [first + rng.integers(-spread, spread, DRAWN).astype(np.uint16) for _ in range(count - 1)]
        far = [rng.integers(0, 1 << 16, DRAWN, np.uint16) for _ in range(count - 1)]
        halves = [np.where(np.arange(DRAWN) % 4 < 2, *both) for both in zip(near, far, strict=True)]
        crossed = [values.reshape(-1) for values in np.meshgrid(*([special] * count), indexing="ij")]
        columns = zip([first, *halves], crossed, strict=True)
        return [np.concatenate(column).astype(np.uint16).view(form.dtype) for column in columns]

    return draw


def divisions(form: Format) -> Inputs:
    """Without subnormal divisors of bf16, whose reciprocal has no float: there CUDA promises nothing."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        a, b = combinations(form, 2)(rng)
        tiny = (b != 0) & (np.abs(b.astype(np.float32)) < 2.0**form.least) & (form is BFLOAT16)
        return [a, np.where(tiny, form.dtype(1), b)]

    return draw


def ordinary(form: Format) -> Inputs:
    return lambda rng: [rng.uniform(0.5, 20, DRAWN).astype(form.dtype) for _ in range(2)]


def fixed(*arrays: np.ndarray) -> Inputs:
    return lambda rng: list(arrays)


# What is expected


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def bits(values: np.ndarray) -> np.ndarray:
    """Of results of a conversion, in which every NaN is the same one."""
    return np.where(np.isnan(values), np.uint16(0x7FFF), values.view(np.uint16))


def saturated(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, np.minimum(x, 1), 0)


def extreme(choose: Any, sign_of_zero: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The larger or smaller number, where -0 is less than +0."""

    def chosen(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        zero = np.where(sign_of_zero(np.signbit(x), np.signbit(y)), -0.0, 0.0)
        return np.where((x == 0) & (y == 0), zero, choose(x, y))

    return chosen


BINARY: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "hadd": ("+", added), "hsub": ("-", lambda x, y: added(x, -y)), "hmul": ("*", lambda x, y: x * y),
    "hdiv": ("/", lambda x, y: x / y), "hadd_rn": ("", added), "hsub_rn": ("", lambda x, y: added(x, -y)),
    "hmul_rn": ("", lambda x, y: x * y),
    "hmax": ("", extreme(np.fmax, np.logical_and)), "hmin": ("", extreme(np.fmin, np.logical_or)),
    "hmax_nan": ("", extreme(np.maximum, np.logical_and)), "hmin_nan": ("", extreme(np.minimum, np.logical_or)),
}  # fmt: skip
"""By name, the operator if there is one, and the result in float64."""


def comparisons(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A bit each: eq ne lt le gt ge, of numbers; then the same, true for NaN."""
    ordered = ~(np.isnan(x) | np.isnan(y))
    results = [x == y, x != y, x < y, x <= y, x > y, x >= y]
    words = [r & ordered for r in results] + [r | ~ordered for r in results]
    return np.array([word.astype(np.int32) << i for i, word in enumerate(words)]).sum(0, np.int32)


def by_operators(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    word = comparisons(x, y)
    return word & 0b111101 | (word >> 6 & 0b10)  # only != is true for NaN


def classes(x: np.ndarray) -> np.ndarray:
    infinite = np.where(np.isinf(x), np.where(x > 0, 1, 3), 0)
    return (np.isnan(x) | infinite << 1 | (x != 0) << 3).astype(np.int32)


def lanes(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return word[0::2], word[1::2]


def interleaved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([first, second], 1).reshape(-1)


# The cases


def conversions(one: str, T: str, form: Format) -> None:
    numbers, floats = fixed(every(form)), fixed(around_boundaries(form, np.float32))
    doubles = fixed(around_boundaries(form, np.float64))
    for name, (c_type, dtype) in INTEGERS.items():
        exact: Any = to_odd if np.dtype(dtype).itemsize == 8 else wide
        given = fixed(integers_around_boundaries(form, dtype))
        for way in WHOLE:
            whole = functools.partial(to_integer, dtype=dtype, direction=way)
            narrow = functools.partial(rounded, form=form, direction=way)
            case(f"__{one}2{name}_{way}(a)", c_type, T, numbers, lambda x, whole=whole: whole(wide(x)))
            case(f"__{name}2{one}_{way}(a)", T, c_type, given, lambda x, f=narrow, exact=exact: f(exact(x)))
        case(f"({c_type})a", c_type, T, numbers, lambda x, dtype=dtype: to_integer(wide(x), dtype, "rz"))
        case(f"{T}(a)", T, c_type, given, lambda x, exact=exact: rounded(exact(x), form))
    for name, c_type, dtype in (("char", "signed char", np.int8), ("uchar", "unsigned char", np.uint8)):
        case(f"__{one}2{name}_rz(a)", c_type, T, numbers, lambda x, dtype=dtype: to_integer(wide(x), dtype, "rz"))
    for code in (f"__{one}2float(a)", "(float)a"):
        case(code, "float", T, numbers, lambda x: x.astype(np.float32))
    case(f"__{one}22float2(a)", "float2", f"{T}2", numbers, lambda x: x.astype(np.float32))
    for other, target in FORMATS.items():
        case(f"{TYPES[other]}(a)", TYPES[other], T, numbers, lambda x, target=target: rounded(wide(x), target))
    ways = {f"__float2{one}_{way}(a)": way for way in WHOLE}
    for code in (f"__float2{one}(a)", f"{T}(a)", f"__low2{one}(__float2{one}2_rn(a))"):
        ways[code] = "rn"
    for code, way in ways.items():
        expected = functools.partial(rounded, form=form, direction=way)
        case(f"__{one}_as_ushort({code})", "unsigned short", "float", floats, lambda x, f=expected: bits(f(wide(x))))
    for code in (f"__double2{one}(a)", f"{T}(a)"):  # whose NaNs have any bits: an H200 keeps those of the double
        case(code, T, "double", doubles, lambda x: rounded(x, form))
    for code in (f"__float22{one}2_rn(a)", f"__floats2{one}2_rn(a.x, a.y)"):
        case(code, f"{T}2", "float2", floats, lambda x: rounded(wide(x), form))
    case(
        f"__ushort_as_{one}(a)",
        T,
        "unsigned short",
        fixed(np.arange(1 << 16, dtype=np.uint16)),
        lambda x: x.view(form.dtype),
    )


def parts_of_pairs(one: str, T: str, form: Format) -> None:
    numbers, both = fixed(every(form)), combinations(form, 2)
    crossed = f"make_{one}2(__high2{one}(a), __low2{one}(b))"
    case(crossed, f"{T}2", f"{T}2", both, lambda a, b: interleaved(a[1::2], b[0::2]))
    case(f"__lows2{one}2(a, b)", f"{T}2", f"{T}2", both, lambda a, b: interleaved(a[0::2], b[0::2]))
    case(f"__highs2{one}2(a, b)", f"{T}2", f"{T}2", both, lambda a, b: interleaved(a[1::2], b[1::2]))
    case(f"__halves2{one}2(a, b)", f"{T}2", T, both, interleaved)
    case(f"__{one}2{one}2(a)", f"{T}2", T, numbers, lambda a: np.repeat(a, 2))
    case(f"__low2{one}2(a)", f"{T}2", f"{T}2", numbers, lambda a: np.repeat(a[0::2], 2))
    case(f"__high2{one}2(a)", f"{T}2", f"{T}2", numbers, lambda a: np.repeat(a[1::2], 2))
    case("__lowhigh2highlow(a)", f"{T}2", f"{T}2", numbers, lambda a: interleaved(a[1::2], a[0::2]))
    case("__low2float(a)", "float", f"{T}2", numbers, lambda a: a[0::2].astype(np.float32))
    case("__high2float(a)", "float", f"{T}2", numbers, lambda a: a[1::2].astype(np.float32))


def with_pairs(code: str, code2: str, T: str, inputs: Inputs, expected: Any, steps: float = 0) -> None:
    """A function of numbers, and the one that does the same with both numbers of a pair."""
    case(code, T, T, inputs, expected, steps)
    case(code2, f"{T}2", f"{T}2", inputs, expected, steps)


def functions(one: str, T: str, form: Format) -> None:
    numbers = fixed(every(form))
    with_pairs("__hneg(a)", "__hneg2(a)", T, numbers, lambda x: -x)
    with_pairs("__habs(a)", "__habs2(a)", T, numbers, np.abs)
    for name, way in (("floor", "rd"), ("ceil", "ru"), ("trunc", "rz"), ("rint", "rn")):
        whole = WHOLE[way]
        with_pairs(f"h{name}(a)", f"h2{name}(a)", T, numbers, lambda x, f=whole: f(wide(x)).astype(form.dtype))
    for name, function in FUNCTIONS.items():
        steps = STEPS.get(name, 1)
        with_pairs(f"h{name}(a)", f"h2{name}(a)", T, numbers, lambda x, f=function: rounded(f(wide(x)), form), steps)


def arithmetic(one: str, T: str, form: Format) -> None:
    both, three, quotients = combinations(form, 2), combinations(form, 3), divisions(form)

    def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return rounded(added(wide(x) * wide(y), wide(z)), form)

    def relu(*given: np.ndarray) -> np.ndarray:
        return np.where(fma(*given) <= 0, form.dtype(0), fma(*given))

    def complex_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        real = fma(-a[1::2], b[1::2], fma(a[0::2], b[0::2], c[0::2]))
        return interleaved(real, fma(a[1::2], b[0::2], fma(a[0::2], b[1::2], c[1::2])))

    def changed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        a, b = wide(x), wide(y)
        a = wide(rounded(a + b, form))
        a = wide(rounded(a + 1, form))
        a = wide(rounded(a * b, form))
        a = wide(rounded(a / b, form))
        a = wide(rounded(a - 1, form))
        return -rounded(a - b, form)

    for name, (symbol, operation) in BINARY.items():
        result = functools.partial(lambda x, y, f: rounded(f(wide(x), wide(y)), form), f=operation)
        inputs = quotients if symbol == "/" else both
        base, _, suffix = name.partition("_")
        pair = "__h2div(a, b)" if symbol == "/" else f"__{base}2{'_' * bool(suffix)}{suffix}(a, b)"
        with_pairs(f"__{name}(a, b)", pair, T, inputs, result)
        if symbol:
            with_pairs(f"a {symbol} b", f"a {symbol} b", T, inputs, result)
        if symbol and symbol != "/":
            clipped = functools.partial(lambda x, y, f: saturated(f(x, y)).astype(form.dtype), f=result)
            with_pairs(f"__{name}_sat(a, b)", f"__{name}2_sat(a, b)", T, inputs, clipped, SIGN_OF_ZERO_IS_FREE)
    with_pairs("__hfma(a, b, c)", "__hfma2(a, b, c)", T, three, fma)
    clipped_fma = lambda *given: saturated(fma(*given)).astype(form.dtype)  # noqa: E731
    with_pairs("__hfma_sat(a, b, c)", "__hfma2_sat(a, b, c)", T, three, clipped_fma, SIGN_OF_ZERO_IS_FREE)
    with_pairs("__hfma_relu(a, b, c)", "__hfma2_relu(a, b, c)", T, three, relu, SIGN_OF_ZERO_IS_FREE)
    case("__hcmadd(a, b, c)", f"{T}2", f"{T}2", three, complex_fma)
    # No product before a sum: nvcc would make one fma of them.
    steps = "v += b, ++v, v *= b, v /= b, v--, v -= b"
    code = "[&] { %s v = a; %s; return -v; }()"
    with_pairs(code % (T, steps), code % (f"{T}2", steps), T, ordinary(form), changed)


def compared(one: str, T: str, form: Format) -> None:
    both, pair = combinations(form, 2), f"{T}2"
    names = [f"{name}{u}" for u in ("", "u") for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    operators = ("==", "!=", "<", "<=", ">", ">=")

    def word(parts: list[str]) -> str:
        return " | ".join(f"({part} ? 1u << {i} : 0u)" for i, part in enumerate(parts))

    def joined(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        low, high = lanes(comparisons(x, y))
        return low | high << 12

    def of_both(words: np.ndarray) -> np.ndarray:
        return np.bitwise_and(*lanes(words))

    masks = [f"(__h{name}2_mask(a, b) & {mask})" for mask in ("0xffff", "0xffff0000") for name in names]
    ones = [f"__{lane}2float(__h{name}2(a, b)) == 1.0f" for lane in ("low", "high") for name in names]
    case(word([f"__h{name}(a, b)" for name in names]), "int", T, both, comparisons)
    case(word([f"__hb{name}2(a, b)" for name in names]), "int", pair, both, lambda x, y: of_both(comparisons(x, y)))
    case(word(masks), "int", pair, both, joined)
    case(word(ones), "int", pair, both, joined)
    case(word([f"a {operator} b" for operator in operators]), "int", T, both, by_operators)
    case(
        word([f"a {operator} b" for operator in operators]), "int", pair, both, lambda x, y: of_both(by_operators(x, y))
    )
    case("__hisnan(a) | (__hisinf(a) & 3) << 1 | bool(a) << 3", "int", T, fixed(every(form)), classes)
    ones_for_nan = lambda x: np.isnan(x).astype(form.dtype)  # noqa: E731
    case("__hisnan2(a)", pair, pair, fixed(every(form)), ones_for_nan)


for type_name, type_format in FORMATS.items():
    for group in (conversions, parts_of_pairs, functions, arithmetic, compared):
        group(type_name, TYPES[type_name], type_format)
