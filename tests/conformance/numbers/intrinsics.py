"""Cases of intrinsics that are exact: arithmetic and conversions in four directions of rounding, and integers' bits."""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tests.conformance.numbers.formulas import Formulas, Inputs
from tests.conformance.numbers.functions import BIG, SIGN_OF_ZERO_IS_FREE, spread
from tests.conformance.numbers.rounding import FLOAT, WHOLE, added, rounded, to_integer, to_odd

formulas = Formulas("intrinsics.cu")
case = formulas.formula

INTEGERS: dict[str, tuple[str, Any]] = {
    "int": ("int", np.int32), "uint": ("unsigned", np.uint32), "ll": ("long long", np.int64),
    "ull": ("unsigned long long", np.uint64),
}  # fmt: skip
FEW = 400  # computed in fractions


# Arithmetic


def halved(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of 53 bits the upper 26 and the rest, whose products are exact."""
    upper = (x.view(np.uint64) & np.uint64(0xFFFFFFFFF8000000)).view(np.float64)
    return upper, x - upper


def odd(nearest: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """A float64 result, of whose error only the sign is known, rounded to odd."""
    inexact = np.isfinite(nearest) & ((lost < 0) | (lost > 0)) & ((nearest.view(np.int64) & 1) == 0)
    return np.where(inexact, np.nextafter(nearest, np.copysign(np.inf, lost)), nearest)


def quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y of float32 numbers in float64, rounded to odd."""
    nearest = x / y
    upper, lower = halved(nearest)
    return odd(nearest, np.where(y < 0, -1.0, 1.0) * ((x - upper * y) - lower * y))


def root(x: np.ndarray) -> np.ndarray:
    nearest = np.sqrt(x)
    upper, lower = halved(nearest)
    return odd(nearest, ((x - upper * upper) - 2 * upper * lower) - lower * lower)


def float_arithmetic() -> None:
    numbers, two, three = (spread(-BIG, BIG, count=count) for count in (1, 2, 3))
    near = spread(-4, 4, count=3)
    for name, code, function, inputs in (
        ("add", "(a, b)", added, two), ("sub", "(a, b)", lambda x, y: added(x, -y), two),
        ("add", "(a, b)", added, spread(-4, 4, count=2)), ("mul", "(a, b)", lambda x, y: x * y, two),
        ("div", "(a, b)", quotient, two), ("rcp", "(a)", lambda x: quotient(np.ones_like(x), x), numbers),
        ("sqrt", "(a)", root, spread(0, BIG)), ("maf", "(a, b, c)", lambda x, y, z: added(x * y, z), three),
        ("maf", "(a, b, c)", lambda x, y, z: added(x * y, z), near),
    ):  # fmt: skip
        for way in WHOLE:
            expected = functools.partial(
                lambda *given, function, way: rounded(function(*(x.astype(np.float64) for x in given)), FLOAT, way),
                function=function,
                way=way,
            )
            case(f"__f{name}_{way}{code}", "float", "float", inputs, expected, SIGN_OF_ZERO_IS_FREE)


def toward(way: str, nearest: float, exceeds: Callable[[Fraction], int]) -> float:
    """The float64 next to an exact value in a direction; `exceeds` compares a number with it: -1, 0 or 1."""
    if math.isinf(nearest):
        largest = math.copysign(math.nextafter(math.inf, 0), nearest)
        below, above = sorted((largest, nearest))
    else:
        side = exceeds(Fraction(nearest))
        below = math.nextafter(nearest, -math.inf) if side > 0 else nearest
        above = math.nextafter(nearest, math.inf) if side < 0 else nearest
    return {"ru": above, "rd": below, "rz": below if above > 0 else above}[way]


def sign(difference: Fraction) -> int:
    return (difference > 0) - (difference < 0)


def fused(x: float, y: float, z: float) -> float:
    """x * y + z in float64, rounded once."""
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, sign(exact))


EXACT: dict[str, tuple[str, Callable[..., Any], Callable[..., Callable[[Fraction], int]]]] = {
    "__dadd": ("(a, b)", np.add, lambda x, y: lambda r: sign(r - x - y)),
    "__dsub": ("(a, b)", np.subtract, lambda x, y: lambda r: sign(r - x + y)),
    "__dmul": ("(a, b)", np.multiply, lambda x, y: lambda r: sign(r - x * y)),
    "__ddiv": ("(a, b)", np.divide, lambda x, y: lambda r: sign(r - x / y)),
    "__drcp": ("(a)", lambda x: 1 / x, lambda x: lambda r: sign(r - 1 / x)),
    "__dsqrt": ("(a)", np.sqrt, lambda x: lambda r: sign(r * r - x)),
    "__fma": ("(a, b, c)", np.vectorize(fused, otypes=[np.float64]), lambda x, y, z: lambda r: sign(r - x * y - z)),
}
"""By name: arguments, the nearest result, and how a number compares with the exact one."""


def few(low: float, high: float, count: int) -> Inputs:
    """Numbers of all magnitudes, and some near each other, none of them zero, infinite or NaN."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        columns = spread(low, high, np.float64, count, specials=False)(rng)
        mixed = [np.where(np.arange(FEW) % 2, c[-FEW:], rng.uniform(1, 4, FEW)) for c in columns]
        return [np.where(values == 0, 1.0, values) for values in mixed]

    return draw


def double_arithmetic() -> None:
    for name, (code, function, compare) in EXACT.items():
        low, count = (5e-324 if "sqrt" in name else -8e307), code.count(",") + 1
        inputs = few(low, 8e307, count)
        case(f"{name}_rn{code}", "double", "double", inputs, function, SIGN_OF_ZERO_IS_FREE)
        for way in ("rz", "ru", "rd"):

            def expected(
                *given: np.ndarray, function: Any = function, compare: Any = compare, way: str = way
            ) -> np.ndarray:
                numbers = zip(function(*given).tolist(), *(x.tolist() for x in given), strict=True)
                return np.array([toward(way, n, compare(*map(Fraction, exact))) for n, *exact in numbers])

            case(f"{name}_{way}{code}", "double", "double", inputs, expected, SIGN_OF_ZERO_IS_FREE)


# Conversions


def integers(dtype: Any, count: int = 1) -> Inputs:
    """Drawn evenly, by their number of bits, and the ends."""
    limits = np.iinfo(dtype)

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        columns = []
        for _ in range(count):
            even = rng.integers(limits.min, limits.max, 1500, dtype, endpoint=True)
            short = rng.integers(limits.min, limits.max, 1500, dtype, endpoint=True)
            short >>= rng.integers(0, limits.bits, 1500).astype(dtype)
            ends = np.array([0, 1, limits.min, limits.min + 1, limits.max - 1, limits.max], dtype)
            columns.append(rng.permutation(np.concatenate([even, short, np.repeat(ends, 20)])))
        return columns

    return draw


def integers_to_double(x: np.ndarray, way: str) -> np.ndarray:
    nearest = [float(value) for value in x.tolist()]
    if way == "rn":
        return np.array(nearest)

    def compare(value: int) -> Callable[[Fraction], int]:
        return lambda number: sign(number - value)

    return np.array([toward(way, n, compare(value)) for n, value in zip(nearest, x.tolist(), strict=True)])


def conversions() -> None:
    ranges = (*(2.0**bits for bits in (8, 31, 32, 33, 63, 64, 65)),)

    def near_limits(dtype: Any) -> Inputs:
        def draw(rng: np.random.Generator) -> list[np.ndarray]:
            drawn = [rng.uniform(-limit, limit, 500) for limit in ranges]
            exact = np.array([*ranges, *(-limit for limit in ranges), 0.5, 1.5, -0.5, -1.5, 2147483646.5]).astype(dtype)
            near = [exact, np.nextafter(exact, dtype(np.inf)), np.nextafter(exact, dtype(-np.inf))]
            return [np.concatenate([*drawn, *near, *spread(-9, 9, dtype)(rng)]).astype(dtype)]

        return draw

    def from_double(x: np.ndarray, dtype: Any, way: str) -> np.ndarray:
        top = np.array([1 << np.iinfo(dtype).bits - 1], np.uint64).astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        return np.where(np.isnan(x), top, to_integer(x, dtype, way))

    for name, (c_type, dtype) in INTEGERS.items():
        exact: Any = to_odd if np.dtype(dtype).itemsize == 8 else lambda x: x.astype(np.float64)
        for way in WHOLE:
            of_float = functools.partial(
                lambda x, dtype, way: to_integer(x.astype(np.float64), dtype, way), dtype=dtype, way=way
            )
            case(f"__float2{name}_{way}(a)", c_type, "float", near_limits(np.float32), of_float)
            of_double = functools.partial(from_double, dtype=dtype, way=way)
            case(f"__double2{name}_{way}(a)", c_type, "double", near_limits(np.float64), of_double)
            to_float = functools.partial(lambda x, exact, way: rounded(exact(x), FLOAT, way), exact=exact, way=way)
            case(f"__{name}2float_{way}(a)", "float", c_type, integers(dtype), to_float)
            if name in ("ll", "ull"):
                to_double = functools.partial(integers_to_double, way=way)
                case(f"__{name}2double_{way}(a)", "double", c_type, integers(dtype), to_double)
        if name in ("int", "uint"):
            case(f"__{name}2double_rn(a)", "double", c_type, integers(dtype), lambda x: x.astype(np.float64))
    for way in WHOLE:
        narrow = functools.partial(rounded, form=FLOAT, direction=way)
        case(f"__double2float_{way}(a)", "float", "double", spread(-8e307, 8e307, np.float64), narrow)
        case(f"__double2float_{way}(a)", "float", "double", spread(-8, 8, np.float64), narrow)


# Integers and bits


def word(value: int, dtype: Any) -> int:
    """Modulo 2 to the number of bits, in the type's range."""
    limits = np.iinfo(dtype)
    return (value - limits.min) % (1 << limits.bits) + limits.min


def byte(value: int, i: int) -> int:
    return value >> (8 * i) & 0xFF


def signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def permuted(x: int, y: int, selector: int) -> int:
    return sum(byte(y << 32 | x, selector >> (4 * i) & 7) << (8 * i) for i in range(4))


def reversed_bits(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def dot(x: int, y: int, z: int) -> int:
    return z + sum(signed(byte(x, i), 8) * signed(byte(y, i), 8) for i in range(4))


U32, I32, U64, I64 = INTEGERS["uint"], INTEGERS["int"], INTEGERS["ull"], INTEGERS["ll"]
WORDS: Sequence[tuple[str, tuple[str, Any], Callable[..., int]]] = (
    ("__mulhi(a, b)", I32, lambda x, y: x * y >> 32), ("__umulhi(a, b)", U32, lambda x, y: x * y >> 32),
    ("__mul64hi(a, b)", I64, lambda x, y: x * y >> 64), ("__umul64hi(a, b)", U64, lambda x, y: x * y >> 64),
    ("__mul24(a, b)", I32, lambda x, y: signed(x, 24) * signed(y, 24)),
    ("__umul24(a, b)", U32, lambda x, y: x % (1 << 24) * (y % (1 << 24))),
    ("(int)__sad(a, b, (unsigned)c)", I32, lambda x, y, z: abs(x - y) + z),
    ("__usad(a, b, c)", U32, lambda x, y, z: abs(x - y) + z),
    ("__hadd(a, b)", I32, lambda x, y: x + y >> 1), ("__rhadd(a, b)", I32, lambda x, y: x + y + 1 >> 1),
    ("__uhadd(a, b)", U32, lambda x, y: x + y >> 1), ("__urhadd(a, b)", U32, lambda x, y: x + y + 1 >> 1),
    ("(unsigned)__popc(a)", U32, lambda x: x.bit_count()), ("__popcll(a)", U64, lambda x: x.bit_count()),
    ("__clz(a)", I32, lambda x: 32 - (x % (1 << 32)).bit_length()),
    ("__clzll(a)", I64, lambda x: 64 - (x % (1 << 64)).bit_length()),
    ("__ffs(a)", I32, lambda x: (x & -x).bit_length()), ("__ffsll(a)", I64, lambda x: (x & -x).bit_length()),
    ("__brev(a)", U32, lambda x: reversed_bits(x, 32)), ("__brevll(a)", U64, lambda x: reversed_bits(x, 64)),
    ("__byte_perm(a, b, c)", U32, permuted), ("__dp4a(a, b, c)", I32, dot),
    ("__dp4a(a, b, c)", U32, lambda x, y, z: z + sum(byte(x, i) * byte(y, i) for i in range(4))),
    ("__funnelshift_l(a, b, c)", U32, lambda x, y, z: (y << 32 | x) << z % 32 >> 32),
    ("__funnelshift_r(a, b, c)", U32, lambda x, y, z: (y << 32 | x) >> z % 32),
    ("__funnelshift_lc(a, b, c)", U32, lambda x, y, z: (y << 32 | x) << min(z, 32) >> 32),
    ("__funnelshift_rc(a, b, c)", U32, lambda x, y, z: (y << 32 | x) >> min(z, 32)),
    ("min(a, b)", I32, min), ("max(a, b)", U32, max), ("min(a, b)", I64, min), ("max(a, b)", U64, max),
    ("(unsigned)__float_as_int(__uint_as_float(a & 0x7f7fffff))", U32, lambda x: x & 0x7F7FFFFF),
    ("__double2hiint(__hiloint2double(a & 0x7fe00000, b))", I32, lambda x, y: x & 0x7FE00000 | y & 0),
    ("__double2loint(__hiloint2double(a & 0x7fe00000, b))", I32, lambda x, y: y),
)  # fmt: skip


def words() -> None:
    for code, (c_type, dtype), function in WORDS:
        wrapped = functools.partial(
            lambda *given, function, dtype: word(function(*given), dtype), function=function, dtype=dtype
        )
        of_arrays = functools.partial(
            lambda *given, wrapped, dtype: np.array(
                [wrapped(*numbers) for numbers in zip(*(x.tolist() for x in given), strict=True)], dtype
            ),
            wrapped=wrapped,
            dtype=dtype,
        )
        case(
            code,
            c_type,
            c_type,
            integers(dtype, function.__code__.co_argcount if hasattr(function, "__code__") else 2),
            of_arrays,
        )


float_arithmetic()
double_arithmetic()
conversions()
words()
