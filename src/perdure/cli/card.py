"""A diagnosis as a card for a person."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perdure.cli.diagnosis import Diagnosis
from perdure.cli.output import STYLES, show, styled
from perdure.cli.text import plain
from perdure.retry.decide import DecisionKind
from perdure.triage.verdict import Evidence, Label, Role, Verdict

WOULD = {
    Label.DETERMINISTIC: "it would fail again",
    Label.TRANSIENT: "a retry would help",
    Label.UNSURE: "nobody can tell yet",
}
ROLE_STYLES = {Role.ROOT: "bold red", Role.CASCADE: "yellow", Role.CONFIRMATION: "dim"}
MAX_SHOWN = 400  # characters of a line of evidence


def print_card(diagnosis: Diagnosis) -> None:
    """Print the verdict, the lines that show it, and the advice."""
    show(card(diagnosis))


def card(diagnosis: Diagnosis) -> Group:
    """The card itself: a headline, what happened, the lines, what to do."""
    verdict, decision = diagnosis.verdict, diagnosis.decision
    word, says = str(verdict.label), WOULD[verdict.label]
    if verdict.label is Label.TRANSIENT and decision.kind is DecisionKind.STOP:
        word, says = str(decision.kind), "by its log alone a retry would help, but not for this job"
    colour = STYLES[word]
    headline = Text.assemble(
        (plain(str(diagnosis.id)), "bold"),
        "  ",
        (f" {word.upper()} ", f"bold reverse {colour}"),
        f"  {says} (p = {decision.p_transient or verdict.p_transient:.2f})",
    )
    cause = Text.assemble((plain(verdict.category), colour), f"  {plain(verdict.summary)}")
    parts: list[RenderableType] = [headline, cause]
    if verdict.evidence:
        parts.append(Padding(_evidence(verdict.evidence), (1, 0, 1, 0)))
    parts.append(_what_to_do(diagnosis))
    return Group(*parts, Text())


def _what_to_do(diagnosis: Diagnosis) -> Table:
    verdict, decision = diagnosis.verdict, diagnosis.decision
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(styled(decision.kind.upper(), f"bold {STYLES[decision.kind]}"), styled(decision.reason, ""))
    if verdict.advice:
        table.add_row(styled("MEND", "bold"), styled(verdict.advice, ""))
    if pages := _pages(verdict):
        table.add_row(styled("SEE", "bold"), styled(pages, ""))
    return table


def _pages(verdict: Verdict) -> str:
    """Where the rule that named the cause is described; "" where no own rule did."""
    from perdure.triage.rules import own_rules

    telling = (evidence for evidence in verdict.evidence if evidence.role is not Role.CONFIRMATION)
    found = [rule for evidence in telling if (rule := own_rules().named(evidence.rule)) is not None]
    named = next((rule for rule in found if rule.cause.category == verdict.category), None)
    return " ".join(filter(None, (named.page, named.see))) if named else ""


def _evidence(lines: tuple[Evidence, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        number = ":".join(filter(None, (plain(line.source), str(line.line)))) if line.line else "fact"
        text = Text(plain(line.text, MAX_SHOWN), style="bold" if line.role is Role.ROOT else "")
        table.add_row(number, Text(str(line.role), style=ROLE_STYLES[line.role]), text)
    return table
