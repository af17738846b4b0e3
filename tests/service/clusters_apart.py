"""Clusters may share a database: no statement may read, change or count the rows of another one.

Each table with a cluster that a statement goes through must be narrowed to a cluster, or to rows whose unique key is
given. A key or a cluster may be given as a value or as a column of another table.
"""

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from sqlalchemy import Delete, Select, Update
from sqlalchemy.sql import operators
from sqlalchemy.sql.elements import BinaryExpression, ClauseElement
from sqlalchemy.sql.schema import Column
from sqlalchemy.sql.selectable import CTE, Alias, ExecutableReturnsRows, Join, Subquery

from perdure.service.store.schema import metadata

EXACTLY = (operators.eq, operators.in_op)
NOTHING = frozenset()
SEEN = {}
"""What is wrong with statements of each form."""


def mixed_by(statement: object) -> str:
    """What is wrong with a statement of the product; "" where nothing is."""
    if not isinstance(statement, ClauseElement):
        return ""
    key = statement._generate_cache_key()  # of its form, without values: what SQLAlchemy keeps compiled statements by
    if key is None or key.key not in SEEN:
        found = next(_mixed(statement, NOTHING), "")
        if key is not None:
            SEEN[key.key] = found
    else:
        found = SEEN[key.key]
    return found if found and _is_asked_by_the_product() else ""


def _mixed(part: ClauseElement, outer: frozenset[Any]) -> Iterator[str]:
    """Go through a statement and those within; `outer` are the tables that a question inside may mean."""
    if isinstance(part, Subquery | CTE):
        outer = NOTHING
    if isinstance(part, Select | Update | Delete):
        is_select = isinstance(part, Select)
        froms = part.get_final_froms() if is_select else [part.table]
        given = [part.whereclause, *(join.onclause for join in _joins(froms))]
        all_of_it = frozenset(_tables(froms))
        yield from _not_narrowed(all_of_it - outer or all_of_it, given, part)
        outer |= all_of_it
    for child in part.get_children():
        yield from _mixed(child, outer)


def _not_narrowed(tables: frozenset[Any], given: list[Any], part: ExecutableReturnsRows) -> Iterator[str]:
    named = {(column.table, column.name) for each in _comparisons(given) for column in _columns(each)}
    for table in tables:
        name = getattr(table.element if isinstance(table, Alias) else table, "name", "")
        known = metadata.tables.get(name)
        if known is not None and "cluster" in known.c:
            keys = ("cluster", *(column.name for column in known.c if _is_unique(column)))
            if not any((table, key) in named for key in keys):
                yield f"means the {name} of all clusters: {part}"


def _is_unique(column: Column[Any]) -> bool:
    return bool(column.unique or (column.primary_key and len(column.table.primary_key.columns) == 1))


def _comparisons(given: list[Any]) -> Iterator[BinaryExpression[Any]]:
    """Those of one level: what stands in a question inside narrows that one alone."""
    waiting = [each for each in given if each is not None]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BinaryExpression) and each.operator in EXACTLY:
            yield each
        if not isinstance(each, Select):
            waiting.extend(each.get_children())


def _columns(comparison: BinaryExpression[Any]) -> Iterator[Any]:
    waiting: list[Any] = [comparison.left, comparison.right]
    while waiting:
        each = waiting.pop()
        if getattr(each, "table", None) is not None:
            yield each
        elif not isinstance(each, Select):
            waiting.extend(each.get_children())


def _joins(froms: Iterable[Any]) -> Iterator[Join]:
    for each in froms:
        if isinstance(each, Join):
            yield each
            yield from _joins((each.left, each.right))


def _tables(froms: Iterable[Any]) -> Iterator[Any]:
    for each in froms:
        if isinstance(each, Join):
            yield from _tables((each.left, each.right))
        elif hasattr(each, "name"):
            yield each


def _is_asked_by_the_product() -> bool:
    """Neither by a test nor by a migration, which are about all that is there."""
    frame: FrameType | None = sys._getframe()  # `inspect.stack` reads files, which takes longer than all else here
    while frame is not None:
        name = frame.f_code.co_filename
        if "/perdure/" in name and "/tests/" not in name:
            return "/migrations/" not in name
        if "/tests/" in name and not name.endswith(("clusters_apart.py", "conftest.py", "new_database.py")):
            return False
        frame = frame.f_back
    return False
