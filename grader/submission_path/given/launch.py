"""Reads launch.toml: block, grid and shared bytes of each kernel, as arithmetic over its contract's dimension names.

    [rmsnorm]
    block = [256]
    grid = ["T"]
    shared = "4 * block"

Each entry is an integer or an expression of names, integers, + - * //, parentheses, cdiv(a, b) (a / b rounded up),
min(a, b) and max(a, b). `block` (threads a block) is known in `shared` only.
"""

import ast
import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

MAX_EXPRESSION = 200  # characters; bounds the nesting and the size of the numbers too
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024


class LaunchConfigError(ValueError):
    """launch.toml has no usable entry for a kernel; the message names the file, the entry and what is wrong."""


class Geometry(NamedTuple):
    """Arguments of one launch: threads per block, blocks per grid, bytes of dynamic shared memory per block."""

    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared: int


class LaunchFile:
    """The entries of one launch.toml; an entry is judged when its kernel is launched, so one mistake costs one kernel.

    Raises LaunchConfigError when the file is missing or is not TOML.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            text = path.read_text(encoding="utf-8-sig")
            self.entries = tomllib.loads(text)
        except OSError as error:
            raise LaunchConfigError(f"{self.name}: cannot be read ({error.strerror})") from None
        except tomllib.TOMLDecodeError as error:
            number = re.search(r"at line (\d+)", str(error))
            line = f": {text.splitlines()[int(number[1]) - 1].strip():.80}" if number else ""
            hint = "; expressions need quotes" if "Invalid value" in str(error) else ""
            raise LaunchConfigError(f"{self.name}: is not valid TOML ({error}{hint}){line}") from None
        except (ValueError, RecursionError) as error:
            raise LaunchConfigError(f"{self.name}: is not valid TOML ({error})") from None

    def geometry(self, kernel: str, dims: Mapping[str, int]) -> Geometry:
        """The launch of `kernel` for one set of dimensions.

        Raises LaunchConfigError, or NotImplementedError("s03.1") where the entry still says "TODO s03.1".
        """
        entry = self.entries.get(kernel)
        if not isinstance(entry, dict):
            raise LaunchConfigError(f"{self.name} has no table [{kernel}]: add one with block = […] and grid = […]")
        if unknown := sorted(set(entry) - {"block", "grid", "shared"}):
            raise LaunchConfigError(f"{self.name} [{kernel}]: unknown key {unknown[0]}, known are block, grid, shared")
        block = self._extent(kernel, "block", MAX_BLOCK, dims)
        threads = math.prod(block)
        if threads > MAX_THREADS:
            raise LaunchConfigError(
                f"{self.name} [{kernel}] block: {threads:,} threads; a block holds at most {MAX_THREADS:,}"
            )
        grid = self._extent(kernel, "grid", MAX_GRID, dims)
        return Geometry(block, grid, self._shared(kernel, {**dims, "block": threads}))

    def _extent(
        self, kernel: str, key: str, limits: tuple[int, int, int], dims: Mapping[str, int]
    ) -> tuple[int, int, int]:
        where = f"{self.name} [{kernel}] {key}"
        value = self.entries[kernel].get(key)
        _refuse_stub(value)
        if not isinstance(value, list) or not 1 <= len(value) <= 3:
            raise LaunchConfigError(f'{where}: wanted a list of 1 to 3 entries, such as [256] or ["cdiv(T, 256)"]')
        extent = [_evaluate(entry, dims, where) for entry in value]
        for entry, size, limit in zip(value, extent, limits, strict=False):
            if not 1 <= size <= limit:
                raise LaunchConfigError(f"{where}: {_shown(entry, dims)} is {size}; it must be 1 to {limit:,}")
        x, y, z = (*extent, 1, 1)[:3]
        return x, y, z

    def _shared(self, kernel: str, names: Mapping[str, int]) -> int:
        where = f"{self.name} [{kernel}] shared"
        entry = self.entries[kernel].get("shared", 0)
        _refuse_stub(entry)
        size = _evaluate(entry, names, where)
        if not 0 <= size < 2**31:
            raise LaunchConfigError(f"{where}: {_shown(entry, names)} is {size:,} bytes; it must be 0 or more")
        return size


def _refuse_stub(value: object) -> None:
    if isinstance(value, str) and (stub := re.match(r"TODO (s\d\d\.\d+)", value)):
        raise NotImplementedError(stub[1])


def _shown(entry: object, names: Mapping[str, int]) -> str:
    """An entry as the student wrote it, with the dimensions it was evaluated for."""
    used = [f"{name} = {size}" for name, size in names.items() if re.search(rf"\b{name}\b", str(entry))]
    return f'"{entry}"' + (f" with {', '.join(used)}" if used else "")


def _evaluate(entry: object, names: Mapping[str, int], where: str) -> int:
    if type(entry) is int:
        if entry.bit_length() > 64:
            raise LaunchConfigError(f"{where}: the integer is too large")
        return entry
    if not isinstance(entry, str):
        shown = f"a {type(entry).__name__}" if isinstance(entry, list | dict) else repr(entry)
        raise LaunchConfigError(f"{where}: {shown} is neither an integer nor an expression in quotes")
    if len(entry) > MAX_EXPRESSION:
        raise LaunchConfigError(f"{where}: the expression is longer than {MAX_EXPRESSION} characters")
    try:
        return _value(ast.parse(entry.strip(), mode="eval").body, names)
    except (SyntaxError, RecursionError, MemoryError):
        problem = "cannot be parsed"
    except ZeroDivisionError:
        problem = "divides by zero"
    except ValueError as error:
        problem = str(error)
    raise LaunchConfigError(f"{where}: {_shown(entry, names)} {problem}")


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number) if type(number) is int:
            return number
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"uses the unknown name {name}; known here: {', '.join(names)}")
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=[first, second], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(first, names), _value(second, names))
    raise ValueError(
        f"uses {ast.unparse(node)!r}; allowed are names, integers, + - * // ( ), cdiv(a, b), min(a, b) and max(a, b)"
    )
