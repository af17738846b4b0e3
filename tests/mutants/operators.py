"""Mutants of the kinds that tests miss most: the other end of several, whose, which unit, one condition less.

Each kind is a function that finds its sites in a syntax tree, and says what stands there instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

Change = tuple[ast.expr | ast.stmt, str]  # what is replaced, and by what
Operator = Callable[[ast.AST, Callable[[ast.AST], str]], Iterator[Change]]

ENDS = {"min": "max", "nsmallest": "nlargest", "popleft": "pop", "desc": "asc", "argmin": "argmax"}
TEXTS = {"rsplit": "split", "rpartition": "partition", "rfind": "find", "rindex": "index"}
CUTS = ("partition", "split", "fetchone")
OTHER_END = ENDS | {there: here for here, there in ENDS.items() if here != "popleft"}
OTHER_SIDE = TEXTS | {there: here for here, there in TEXTS.items()}
WHOSE = ("user", "owner", "by", "node", "cluster", "job", "attempt", "incarnation", "uid", "handler", "rank", "host",
         "name", "source", "identity", "partition", "account", "id", "key", "fingerprint", "resource")  # fmt: skip
UNITS = (24.0, 60.0, 100.0, 1000.0, 1024.0, 3600.0, 86400.0, 1e6, 1e9)


@dataclass(frozen=True, slots=True)
class Site:
    """A text from `start` to `end` that is replaced by `now`."""

    kind: str
    line: int
    start: int
    end: int
    now: str

    def put_into(self, text: str) -> str:
        return text[: self.start] + self.now + text[self.end :]


def sites(text: str, kind: str) -> list[Site]:
    """Those of one kind, in their order. What types are made of is left alone."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def at(line: int, column: int) -> int:
        return len(data[: starts[line - 1] + column].decode())

    def source(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    found = []
    for node in _code(tree):
        for replaced, now in OPERATORS[kind](node, source):
            assert replaced.end_lineno is not None
            assert replaced.end_col_offset is not None
            start, end = at(replaced.lineno, replaced.col_offset), at(replaced.end_lineno, replaced.end_col_offset)
            found.append(Site(kind, replaced.lineno, start, end, now))
    return sorted(set(found), key=lambda site: (site.start, site.now))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)


def _ends(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """The last of several for the first, the latest for the earliest."""
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=0), ctx=ast.Load()) if not _is_text(value):
            yield node, f"{source(value)}[-1]"
        case ast.Subscript(value=value, slice=ast.UnaryOp(ast.USub(), ast.Constant(value=1)), ctx=ast.Load()):
            yield node, f"{source(value)}[0]"
        case ast.Subscript(value=value, slice=ast.Slice(None, ast.Constant(value=1), None), ctx=ast.Load()):
            yield node, f"{source(value)}[-1:]"
        case ast.Subscript(value=value, slice=ast.Slice(ast.UnaryOp(ast.USub(), ast.Constant(value=1)), None, None)):
            yield node, f"{source(value)}[:1]"
        case ast.Call(func=ast.Name(id="next"), args=[seen, *default]):
            rest = "".join(f", {source(one)}" for one in default)
            inner = f"({source(seen)})" if isinstance(seen, ast.GeneratorExp) else source(seen)
            yield node, f"next(reversed([*{inner}]){rest})"
        case ast.Call(func=ast.Name(id="reversed"), args=[seen]):
            yield node, f"iter({source(seen)})"
        case ast.keyword(arg="reverse", value=ast.Constant(value=bool(is_on)) as flag):
            yield flag, str(not is_on)
        case ast.Call(func=ast.Name(id=name) as called) if name in OTHER_END:
            yield called, OTHER_END[name]
        case ast.Call(func=ast.Attribute(value=of, attr=name) as called) if name in OTHER_END:
            yield called, f"{source(of)}.{OTHER_END[name]}"


def _is_text(node: ast.expr) -> bool:
    """What is cut out of a text: the other part of it is hardly ever the same."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith(CUTS)


def _orders(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """The other way round; a text is cut at its other side."""
    match node:
        case ast.Call(func=ast.Name(id="sorted"), args=[seen, *_], keywords=given):
            if all(one.arg != "reverse" for one in given):
                inner = f"({source(seen)})" if isinstance(seen, ast.GeneratorExp) else source(seen)
                rest = "".join(f", {source(one)}" for one in given)
                yield node, f"sorted({inner}{rest}, reverse=True)"
        case ast.Call(func=ast.Attribute(value=of, attr=name) as called) if name in OTHER_SIDE:
            yield called, f"{source(of)}.{OTHER_SIDE[name]}"


def _whose(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """Whose it is is not asked."""
    match node:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as op], comparators=[right]):
            if any(_is_whose(each) for each in (left, right)) and not isinstance(right, ast.Constant):
                yield node, "True" if isinstance(op, ast.Eq | ast.In) else "False"


def _is_whose(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.rpartition("_")[2] in WHOSE


def _conditions(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """One condition of several is left out, or the only one of a comprehension."""
    match node:
        case ast.BoolOp(op=op, values=values):
            word = " and " if isinstance(op, ast.And) else " or "
            for left_out in values:
                kept = word.join(f"({source(one)})" for one in values if one is not left_out)
                yield node, f"({kept})"
            turned = " or " if isinstance(op, ast.And) else " and "
            yield node, f"({turned.join(f'({source(one)})' for one in values)})"
        case ast.comprehension(ifs=[*asked]):
            for each in asked:
                yield each, "True"


def _units(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """Seconds for minutes, KiB for bytes."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() | ast.FloorDiv(), right=right):
            for one, other in ((left, right), (right, left)):
                is_unit = isinstance(one, ast.Constant) and one.value in UNITS
                if is_unit or source(one).rpartition(".")[2] in (
                    "HOUR_S",
                    "DAY_S",
                    "MINUTE_S",
                    "MINUTE",
                    "HOUR",
                    "DAY",
                ):
                    yield node, f"({source(other)})"


def _jumps(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """The next one for no other, and the other way round."""
    match node:
        case ast.Continue():
            yield node, "break"
        case ast.Break():
            yield node, "continue"
        case ast.If(body=[ast.Return(value=None) as jump]):
            yield jump, "pass"


def _counts(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """One more or less than a limit."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield node, f"({source(left)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in EDGES:
            yield node, f"({source(left)}) {EDGES[type(op)]} ({source(right)})"


EDGES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


def _fallbacks(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[Change]:
    """What stands in for what is missing."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=values) if isinstance(values[-1], ast.Constant | ast.Name | ast.Attribute):
            for first, second in pairwise(values):
                yield node, f"({source(first)})"
                yield node, f"({source(second)})"
        case ast.Call(func=ast.Attribute(attr="get") as called, args=[key, default]):
            yield node, f"{source(called)}({source(key)}, not {source(default)})"
        case ast.IfExp(body=body, orelse=orelse):
            yield node, f"({source(body)})"
            yield node, f"({source(orelse)})"


OPERATORS: dict[str, Operator] = {
    "ends": _ends, "orders": _orders, "whose": _whose, "conditions": _conditions, "units": _units, "jumps": _jumps,
    "counts": _counts, "fallbacks": _fallbacks,
}  # fmt: skip
