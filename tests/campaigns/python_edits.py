"""Edits of Python text: the syntax tree names what changes and where; every character outside stays as it is."""

import ast
from collections.abc import Iterator

from tests.campaigns.edits import Edit

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}
NEGATION: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
STRICTNESS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
NARROWER = {
    "float64": "float32",
    "float32": "float16",
    "int64": "int32",
    "int32": "int16",
    "uint32": "uint16",
    "uint16": "uint8",
}
OPPOSITES = {"min": "max", "max": "min", "argmin": "argmax", "argmax": "argmin", "any": "all", "all": "any"}
CONVERSIONS = {"int", "float", "bool", "list", "tuple", "dict", "asarray", "ascontiguousarray", "int32", "index"}
UNTOUCHED = (ast.JoinedStr, ast.Import, ast.ImportFrom)  # messages: the places of their parts are not known either
TYPE_FIELDS = ("annotation", "returns", "decorator_list", "bases")
COMPOUND = (ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp, ast.IfExp)

Change = tuple[str, ast.AST, ast.AST]
"""Kind, the node that goes, the node that comes."""


def python_edits(source: str) -> list[Edit]:
    """All edits of a module's text that this file knows."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = []
    for node in _mutable(ast.parse(source)):
        for rule in RULES:
            for kind, old, new in rule(node):
                begin, end = _span(source.encode(), starts, old)
                edits.append(Edit(kind, begin, end, _text(new)))
    return edits


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may change: no type, import or text."""
    if isinstance(node, UNTOUCHED):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in TYPE_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _span(text: bytes, starts: list[int], node: ast.AST) -> tuple[int, int]:
    """Where the node begins and ends in the text, in characters; the tree counts bytes."""
    place = vars(node)
    begin = starts[place["lineno"] - 1] + place["col_offset"]
    end = starts[place["end_lineno"] - 1] + place["end_col_offset"]
    return len(text[:begin].decode()), len(text[:end].decode())


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, COMPOUND) else text


def _with_operation(node: ast.AST, operation: ast.AST) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), "op": operation})


def _compared(node: ast.Compare, position: int, operation: ast.cmpop) -> ast.Compare:
    operations = [*node.ops[:position], operation, *node.ops[position + 1 :]]
    return ast.Compare(node.left, operations, node.comparators)


def _operators(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        yield "operator", node, _with_operation(node, ARITHMETIC[type(node.op)]())
    if isinstance(node, ast.BoolOp):
        yield "operator", node, _with_operation(node, ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operator", node, node.operand
    if isinstance(node, ast.Compare):
        for position, operation in enumerate(node.ops):
            yield "operator", node, _compared(node, position, NEGATION[type(operation)]())


def _bounds(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for position, operation in enumerate(node.ops):
            if type(operation) in STRICTNESS:
                yield "bound", node, _compared(node, position, STRICTNESS[type(operation)]())
    ends: list[ast.expr] = []
    if isinstance(node, ast.Slice):
        ends = [end for end in (node.lower, node.upper) if end is not None]
    if isinstance(node, ast.Call) and _called(node) in ("range", "arange"):
        ends = node.args[:2]
    for end in ends:
        for step in (ast.Add(), ast.Sub()):
            yield "bound", end, ast.BinOp(end, step, ast.Constant(1))


def _constants(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, ast.Constant(not value)
    elif isinstance(value, int):
        for other in {value + 1, abs(value - 1), value // 2 or 2}:
            yield "constant", node, ast.Constant(other)
    elif isinstance(value, float):
        yield "constant", node, ast.Constant(1.0 - value if value in (0.0, 1.0) else 2 * value)


def _indices(node: ast.AST) -> Iterator[Change]:
    """Neighbours among positional arguments or in a tuple."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Call):
        parts = node.args
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        parts = node.elts
    for i in range(len(parts) - 1):
        pair = parts[i : i + 2]
        if any(isinstance(part, (ast.Starred, ast.JoinedStr)) for part in pair):
            continue
        swapped = [*parts[:i], pair[1], pair[0], *parts[i + 2 :]]
        if isinstance(node, ast.Call):
            yield "index", node, ast.Call(node.func, swapped, node.keywords)
        elif isinstance(node, ast.Tuple):
            yield "index", node, ast.Tuple(swapped, node.ctx)


def _types(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Attribute) and node.attr in NARROWER and isinstance(node.ctx, ast.Load):
        yield "type", node, ast.Attribute(node.value, NARROWER[node.attr], node.ctx)


def _statements(node: ast.AST) -> Iterator[Change]:
    """Statements after which the text still runs: no definition of a name, no text that only documents."""
    gone = isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break))
    gone |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    gone |= isinstance(node, ast.Assign) and all(
        not isinstance(target, ast.Name | ast.Tuple) for target in node.targets
    )
    if gone:
        yield "statement", node, ast.Pass()
    if isinstance(node, ast.If):
        for child in node.body:
            if isinstance(child, ast.Return):
                yield "statement", child, ast.Pass()


def _roundings(node: ast.AST) -> Iterator[Change]:
    """-(-a // b) is a quotient rounded up, and a // b is rounded down."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.BinOp):
        quotient = node.operand
        if isinstance(quotient.op, ast.FloorDiv) and isinstance(quotient.left, ast.UnaryOp):
            yield "rounding", node, ast.BinOp(quotient.left.operand, quotient.op, quotient.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and not isinstance(node.left, ast.UnaryOp):
        up = ast.BinOp(ast.UnaryOp(ast.USub(), node.left), node.op, node.right)
        yield "rounding", node, ast.UnaryOp(ast.USub(), up)


def _extrema(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Call) and _called(node) in OPPOSITES:
        name = OPPOSITES[_called(node)]
        function = node.func
        other = ast.Attribute(function.value, name) if isinstance(function, ast.Attribute) else ast.Name(name)
        yield "extremum", function, other


def _casts(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
        yield "cast", node, node.func.value
    if _called(node) in CONVERSIONS and node.args and not isinstance(node.args[0], ast.Starred):
        yield "cast", node, node.args[0]


def _called(node: ast.Call) -> str:
    """The last word of the function's name."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


RULES = (_operators, _bounds, _constants, _indices, _types, _statements, _roundings, _extrema, _casts)
