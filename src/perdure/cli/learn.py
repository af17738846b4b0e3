"""``perdure learn``: what the service has learnt, and a person's hand on it."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, StateDir, Wide, service
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.service_client import Client, segment
from perdure.cli.table import names, text, word
from perdure.errors import InputError, NotFound

ROUNDS = (
    word("TRAINING"), word("WHEN", leave=2), word("EXAMPLES", leave=3), word("REFERENCE SET"),
    word("OWN EXAMPLES", leave=1), text("RESULT"),
)  # fmt: skip
CORRECTIONS = (
    word("CORRECTED"), word("IT WAS"), text("MESSAGE"), word("BY", leave=1), word("HOLDS FOR", leave=2),
    word("WHEN", leave=3), word("WORD", leave=4),
)  # fmt: skip


MESSAGES = (
    text("MESSAGE"),
    word("LEARNT FROM", leave=1),
    names("USERS", leave=2),
    text("NEXT JOB"),
    text("VERDICTS CHANGED", leave=1),
    word("ID", leave=3),
)
ASIDE = (word("SET ASIDE"), text("WHICH"), word("BY", leave=2), word("WHEN", leave=3), text("WHY", leave=1))
KINDS = ("user", "message", "day")

SetAside = Annotated[
    str | None,
    typer.Option("--set-aside", metavar="KIND=VALUE", help="Learn nothing from it: user=NAME, message=ID or day=DATE."),
]
Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="KIND=VALUE", help="Let it count again; word=ID: a user's word, for all users."),
]


def learn(
    now: Annotated[bool, typer.Option("--now", help="Train the model now.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Go back to the model that was used before.")] = False,
    set_aside: SetAside = None,
    approve: Approve = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Show what was learnt from retries and corrections, of which messages and whom. Asks the service.

    Correct a verdict with perdure why correct JOBID transient. What somebody taught is undone with
    --set-aside user=NAME, and counts again with --approve user=NAME.

    Exit codes: 0 shown or done, 2 refused.
    """
    if sum(map(bool, (now, rollback, set_aside, approve))) > 1:
        what = "give one of --now, --rollback, --set-aside and --approve"
        raise InputError("learn", what, "Run them one after another")
    client = service(state)
    if set_aside or approve:
        _choose(client, set_aside or approve or "", "aside" if set_aside else "approve")
        return 0
    if rollback:
        _roll_back(client)
        return 0
    found = client.post("/learning/rounds") if now else client.get("/learning")
    if as_json:
        print_json("learning", 1, **found)
    else:
        _print(found, wide=wide)
    return 0


def _roll_back(client: Client) -> None:
    """Take the model in use back, and no other: the order names it."""
    model = client.get("/learning")["model"]
    done = client.post("/learning/rollback", {"model": model})["rolled_back"]
    back = f"rolled back from the model of training {model}: the model before is in use again"
    print_line(back if done else "the model that came with Perdure is in use")


def _choose(client: Client, asked: str, deed: str) -> None:
    """Set something aside, or approve it. Raises `InputError`, `NotFound`."""
    kind, equals, value = asked.partition("=")
    if not equals or not value or kind not in (*KINDS, *(["word", "job"] if deed == "approve" else [])):
        word = (", a user's word", ", word=ID") if deed == "approve" else ("", "")
        fix = f"Write user=NAME, message=ID, day=2026-01-31{word[1]}; perdure learn has the ids"
        raise InputError(f"learn {asked!r}", f"not a user, a message, a day{word[0]}", fix)
    if kind == "day" and not _is_day(value):
        raise InputError(f"learn {asked!r}", "not a day", "Write it like day=2026-01-31")
    if kind in {"word", "job"}:
        _confirm(client, kind, value)
        return
    found = client.post(f"/learning/{deed}", {"kind": kind, "value": value})
    said = "what it taught counts again"
    if deed == "aside":
        known = f"what it taught is set aside (outcomes and words: {found['taught']})"
        said = f"{known if found['taught'] else 'it taught nothing up to now'}: nothing is learnt from it"
    print_line(f"{kind} {value}: {said}")


def _is_day(value: str) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _confirm(client: Client, kind: str, value: str) -> None:
    """Let a word hold for all. Raises `NotFound`, and `InputError` where only its job is named: it may have changed."""
    every = client.get("/learning")["corrections"]
    said = next((c for c in every if c["word" if kind == "word" else "job_id"] == value), None)
    if said is None:
        what = "nobody said that, or it has changed since" if kind == "word" else "nobody corrected its verdict"
        raise NotFound(f"{kind} {value}", what, "See perdure learn for corrected jobs")
    if kind == "job":
        what = f"name the word that you saw: {said['by']} says {said['label']} now"
        raise InputError(f"job {value}", what, f"Run perdure learn --approve word={said['word']}")
    path = f"/jobs/{segment(said['job_id'])}/attempts/{said['incarnation']}/correction/confirm"
    client.post(path, {"word": value})
    undo = f"to take it back: perdure why correct {said['job_id']} none"
    print_line(f"job {said['job_id']}: {said['by']}'s word, {said['label']}, holds for all users; {undo}")
    print_line(f"It is about the message: {said['message'] or 'no line of the log was read'}")


def _print(found: dict[str, Any], *, wide: bool) -> None:
    if promise := found.get("promise"):
        print_line(f"PROMISE  {promise['says']}")
    _print_messages(found, wide=wide)
    if not found["rounds"]:
        print_line("No training yet: too few retries and corrections have proved what a failure was.")
    else:
        rows = (_round(row) for row in found["rounds"])
        print_table(ROUNDS, rows, wide=wide)
    if found["corrections"]:
        said = (
            (c["job_id"], c["label"], c["message"] or "?", c["by"], _holds_for(c), clock(c["time_s"]), c["word"])
            for c in found["corrections"]
        )
        print_table(CORRECTIONS, said, wide=wide)


def _print_messages(found: dict[str, Any], *, wide: bool) -> None:
    """What was learnt of which message, and what is set aside."""
    if found["messages"]:
        rows = (
            (m["message"] or "?", _from(m), " ".join(m["users"]), m["says"], _changed(m), m["fingerprint"])
            for m in found["messages"]
        )
        print_table(MESSAGES, rows, wide=wide)
    if found["set_aside"]:
        held = ((a["kind"], a["value"], a["by"], clock(a["time_s"]), a["reason"]) for a in found["set_aside"])
        print_table(ASIDE, held, wide=wide)
    if found["held"]:
        print_line("A model was taken back: none is trained until perdure learn --now.")


def _from(message: dict[str, Any]) -> str:
    aside = f" ({message['set_aside']} set aside)" if message["set_aside"] else ""
    return f"{message['passed']} passed, {message['failed']} failed{aside}"


def _changed(message: dict[str, Any]) -> str:
    """The verdicts with and without what was learnt of a message, and of how many jobs."""
    told = []
    for each in message["changed"]:
        jobs = f"{each['jobs']} job{'s' if each['jobs'] != 1 else ''}"
        through = " by a person's word" if each["by"] == "person" else ""
        told.append(f"{each['says']}: {jobs}{through} since {date.fromtimestamp(each['since_s'])}")
    return "; ".join(told) or "none yet"


def _holds_for(correction: dict[str, Any]) -> str:
    if correction["for_all"]:
        return "all"
    return f"all, by {correction['confirmed_by']}" if correction["confirmed_by"] else "own jobs"


def _round(row: dict[str, Any]) -> tuple[object, ...]:
    term = row["term"]
    became = (
        "in use"
        if row["in_use"]
        else "adopted, not in use now"
        if term["adopted"]
        else f"not adopted: {term['reason']}"
    )
    fixed = _change(term["fixed_before"], term["fixed_after"])
    own = _change(term["site_before"], term["site_after"]) if term["site_after"]["examples"] else "none held back"
    return (str(row["number"]), clock(row["time_s"]), f"{term['lessons']} of {term['offered']}", fixed, own, became)


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{100 * before['balanced_accuracy']:.1f} -> {100 * after['balanced_accuracy']:.1f} %"
