"""``perdure rules``: what the rules of triage look for, what each means, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson, ConfigFile, StateDir, Wide, load_settings
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import NotFound

if TYPE_CHECKING:
    from perdure.triage.evidence.matching import RuleBook
    from perdure.triage.evidence.rule import TriageRule

COLUMNS = (word("RULE"), word("CAUSE", leave=2), word("P", leave=1), text("WHAT IT MEANS"))
MOST_NAMED = 5  # of the rules whose names are like one that is not known


def rules(
    names: Annotated[list[str] | None, typer.Argument(metavar="RULE", help="Names, as perdure why gives them.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
    config: ConfigFile = None,
) -> int:
    """Tell what rules look for, what each means and what to do; without a name, list them all. The site's come first.

    Exit codes: 0 shown, 2 no such rule.
    """
    from perdure.cli.diagnosis import rules_of

    book = rules_of(load_settings(config, {"service.state": state}).settings)
    chosen = [_named(book, name) for name in names] if names else list(book.rules)
    if as_json:
        print_json("rules", 1, rules=[_record(rule) for rule in chosen])
    elif names:
        for line in (line for rule in chosen for line in _described(rule)):
            print_line(line)
    else:
        rows = ((r.cause.name, r.cause.category, f"{r.cause.p_transient:.2f}", r.cause.says) for r in chosen)
        print_table(COLUMNS, rows, wide=wide)
    return 0


def _named(book: RuleBook, name: str) -> TriageRule:
    rule = book.named(name)
    if rule is None:
        from difflib import get_close_matches

        known = [rule.cause.name for rule in book.rules]
        like = ", ".join(get_close_matches(name, known, MOST_NAMED))
        fix = f"Use one of: {like}" if like else "List all of them: perdure rules"
        raise NotFound(f"rule {name[:80]!r}", "no rule has that name", fix)
    return rule


def _described(rule: TriageRule) -> Iterator[str]:
    from perdure.triage.remedies import REMEDIES

    cause = rule.cause
    yield f"{cause.name}   {cause.category}, {cause.role}, p = {cause.p_transient:.2f}"
    yield f"{cause.says[:1].upper()}{cause.says[1:]}." if cause.says else "Something failed."
    if cause.advice:
        yield f"Do: {cause.advice}"
    yield from (f"Run: {each.command}" for each in REMEDIES if each.rule == cause.name)
    if rule.yes:
        yield "Lines like:"
        yield from (f"    {line}" for line in rule.yes)
    if rule.see:
        yield f"See {rule.see}"


def _record(rule: TriageRule) -> dict[str, object]:
    cause = rule.cause
    return {
        "name": cause.name,
        "category": cause.category,
        "role": str(cause.role),
        "p_transient": cause.p_transient,
        "says": cause.says,
        "advice": cause.advice,
        "lines": list(rule.yes),
        "see": rule.see,
    }
