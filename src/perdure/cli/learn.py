"""``perdure learn``: what the service has learnt, and a person's hand on it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, StateDir, Wide, service
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.table import text, word
from perdure.errors import InputError

ROUNDS = (
    word("TRAINING"), word("WHEN", leave=2), word("EXAMPLES", leave=3), word("REFERENCE SET"),
    word("OWN EXAMPLES", leave=1), text("RESULT"),
)  # fmt: skip
CORRECTIONS = (
    word("CORRECTED"), word("IT WAS"), word("BY", leave=1), word("HOLDS FOR", leave=2), word("WHEN", leave=3),
)  # fmt: skip


def learn(
    now: Annotated[bool, typer.Option("--now", help="Train the model now.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Go back to the model that was used before.")] = False,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Show what the model learnt from retries and corrections, and whether it became better. Asks the service.

    Correct a verdict with perdure why correct JOBID transient.

    Exit codes: 0 shown or done, 2 refused.
    """
    if now and rollback:
        raise InputError("learn", "give one of --now and --rollback", "Run them one after another")
    client = service(state)
    if rollback:
        done = client.post("/learning/rollback")["rolled_back"]
        print_line("the model before is in use again" if done else "the model that came with Perdure is in use")
        return 0
    found = client.post("/learning/rounds") if now else client.get("/learning")
    if as_json:
        print_json("learning", 1, **found)
    else:
        _print(found, wide=wide)
    return 0


def _print(found: dict[str, Any], *, wide: bool) -> None:
    if promise := found.get("promise"):
        print_line(f"PROMISE  {promise['says']}")
    if not found["rounds"]:
        print_line("No training yet: too few retries and corrections have proved what a failure was.")
    else:
        rows = (_round(row) for row in found["rounds"])
        print_table(ROUNDS, rows, wide=wide)
    if found["corrections"]:
        said = (
            (c["job_id"], c["label"], c["by"], "all" if c["for_all"] else "own jobs", clock(c["time_s"]))
            for c in found["corrections"]
        )
        print_table(CORRECTIONS, said, wide=wide)


def _round(row: dict[str, Any]) -> tuple[object, ...]:
    term = row["term"]
    became = (
        "in use"
        if row["in_use"]
        else "adopted, replaced since"
        if term["adopted"]
        else f"not adopted: {term['reason']}"
    )
    fixed = _change(term["fixed_before"], term["fixed_after"])
    own = _change(term["site_before"], term["site_after"]) if term["site_after"]["examples"] else "none held back"
    return (str(row["number"]), clock(row["time_s"]), f"{term['lessons']} of {term['offered']}", fixed, own, became)


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{100 * before['balanced_accuracy']:.1f} -> {100 * after['balanced_accuracy']:.1f} %"
