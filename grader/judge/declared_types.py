"""Pointers that a kernel declares with another element type than its contract passes: the cause of what follows."""

import re

from given.contracts import CUDA_TYPES, Contract

SIZES = {
    "float": 4, "double": 8, "int": 4, "unsigned": 4, "unsigned int": 4, "long long": 8, "short": 2, "char": 1,
    "__nv_bfloat16": 2, "__half": 2,
}  # fmt: skip
"""Bytes of the types that are compared; a vector, a template's parameter or a struct may be meant."""

ALIASES = {"nv_bfloat16": "__nv_bfloat16", "half": "__half", "unsigned int": "unsigned"}
SAME = {"unsigned": "int"}

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict)\b")


def misdeclared(source: str, contract: Contract) -> str:
    """One sentence on the first pointer of another type than the contract's; empty where there is none."""
    found = re.search(rf"__global__[^;{{(]*\b{contract.name}\s*\(([^)]*)\)", _COMMENTS.sub(" ", source))
    parameters = found[1].split(",") if found else []
    for index, (array, parameter) in enumerate(zip(contract.arrays, parameters, strict=False)):
        declared, wanted = _pointed_at(parameter), CUDA_TYPES[array.dtype]
        if declared in SIZES and SAME.get(declared, declared) != wanted:
            return (
                f"{contract.name} declares {declared} * for {array.name} (parameter #{index}, from 0), but its "
                f"elements are {wanted}, of {SIZES[wanted]} bytes: declare it as {wanted} *."
            )
    return ""


def _pointed_at(parameter: str) -> str:
    """The type that a parameter points to, without qualifiers; empty when it is not a pointer."""
    kind, star, _ = _QUALIFIERS.sub(" ", parameter).partition("*")
    name = " ".join(kind.split())
    return ALIASES.get(name, name) if star else ""
