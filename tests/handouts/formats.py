"""Numbers as the handouts write them: commas for thousands, a minus sign that is not a hyphen."""

from collections.abc import Iterable


def num(value: float, digits: int = 0) -> str:
    """A number with this many digits behind the point; no minus before a zero."""
    text = f"{value:,.{digits}f}"
    return (text.removeprefix("-") if float(text.replace(",", "")) == 0 else text).replace("-", "−")


def many(values: Iterable[float], digits: int = 0, between: str = ", ") -> str:
    return between.join(num(value, digits) for value in values)


def sized(bits: int, width: int = 4) -> str:
    """Bits as 0x and hexadecimal digits."""
    return f"0x{bits:0{width}X}"
