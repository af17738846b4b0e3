"""``perdure learn``: what the service has learnt, and a person's hand on it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, StateDir, service
from perdure.cli.output import instant, print_json, print_line, print_table
from perdure.errors import InputError


def learn(
    now: Annotated[bool, typer.Option("--now", help="Hold a round of teaching now.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Use the model before the one in use.")] = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Show what retries and persons taught the model, and whether it became better. Asks the service.

    Correct a verdict with perdure why JOBID --correct transient.

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
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    if not found["rounds"]:
        print_line("nothing taught yet: retries and persons have proved too little")
    else:
        rows = (_round(row) for row in found["rounds"])
        print_table(
            ("ROUND", "WHEN", "LESSONS", "FIXED SET", "OWN LESSONS", "BECAME OF IT"), rows, whole=("ROUND", "WHEN")
        )
    if found["corrections"]:
        said = (
            (c["job_id"], c["label"], c["by"], "all" if c["for_all"] else "own jobs", instant(c["time_s"]))
            for c in found["corrections"]
        )
        print_table(("CORRECTED", "IT WAS", "BY", "HOLDS FOR", "WHEN"), said, whole=("CORRECTED",))


def _round(row: dict[str, Any]) -> tuple[str, ...]:
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
    return (str(row["number"]), instant(row["time_s"]), f"{term['lessons']} of {term['offered']}", fixed, own, became)


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{100 * before['balanced_accuracy']:.1f} -> {100 * after['balanced_accuracy']:.1f} %"
