"""``perdure policy``: what the scheduling policy in force decides, and its switch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, StateDir, Wide, load_settings, service
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.table import age, instant, text, word
from perdure.errors import ClusterBusy, InputError, NotFound
from perdure.installation import user_name

ORDER = (word("PLACE"), word("NOW"), word("JOB"), word("USER", leave=1), word("GPUS"), word("RAN", leave=2))
ROOM = (word("JOB"), word("FOR"), text("WHY"))
OUTCOME = (text("MEANS"), text("WAIT"), text("COMPLETION"), word("JOBS"))
STATES = {
    "none": "no policy is in force",
    "off": "switched off",
    "shadow": "shadow: nothing of it is done",
    "acting": "in force",
}


def policy(
    turn: Annotated[str | None, typer.Argument(metavar="on|off", help="Turn it; left out: show it.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Show the order of waiting jobs by the policy and who makes room, or turn the policy on or off. Asks the service.

    Off: it does nothing, and jobs get the places back that they had without it. Exit codes: 0 shown or done, 2 refused.
    """
    if turn not in (None, "on", "off"):
        raise InputError("policy", f"{turn!r} is neither on nor off", "Give one of these, or nothing")
    if turn is not None:
        return _turned(turn == "on", state)
    found = service(state).get("/policy")
    if as_json:
        print_json("policy", 1, **found)
        return 0
    print_line(f"{found['name'] or 'policy'}: {STATES[found['state']]}" if found["name"] else STATES["none"])
    if found["trouble"]:
        print_line(f"the last decision failed: {found['trouble']}")
    for remark in found["remarks"]:
        print_line(remark)
    _print(found, wide=wide)
    if found.get("term"):
        _print_term(found["term"])
    return 0


def _print(found: dict[str, Any], *, wide: bool) -> None:
    if found["order"]:
        print_table(ORDER, map(_row, found["order"]), wide=wide)
    elif found["decided_s"] is not None:
        print_line("No job waits that takes part.")
    if found["preemptions"]:
        print_table(ROOM, ([each["job"], each["starts"], each["why"]] for each in found["preemptions"]), wide=wide)


def _print_term(term: dict[str, Any]) -> None:
    """What was promised, and what came of it."""
    since, until = (instant(term[key]) if term[key] else "" for key in ("since_s", "until_s"))
    print_line(f"{term['policy']} in force {f'from {since} to {until}' if until else f'since {since}'}:")
    rows = []
    if promised := term["promised"]:
        rows.append(["own way, simulated", age(promised["own_wait_s"]), age(promised["own_jct_s"]), promised["jobs"]])
        rows.append(["promised", age(promised["wait_s"]), age(promised["jct_s"]), promised["jobs"]])
    if term["over"]:
        rows.append(["achieved", *(_mean(term[key]) for key in ("wait_s", "jct_s")), term["over"]])
    if rows:
        print_table(OUTCOME, ([*row[:3], str(row[3])] for row in rows))
    said = f"{term['over']} of {term['came']} jobs that came then and took part are over"
    print_line(said if term["enough"] else f"{said}: too few for an interval")


def _mean(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return age(found["mean"])
    return f"{age(found['mean'])} ({age(found['low'])} to {age(found['high'])})"


def _row(job: dict[str, Any]) -> list[str]:
    places = [str(job[key]) for key in ("place", "place_seen")]
    return [*places, job["job"], job["user"], str(job["gpus"]), age(job["attained_s"])]


def _turned(on: bool, state: StateDir) -> int:
    """Through the service where it answers, else by the file that the next one finds."""
    try:
        service(state).post("/policy", {"on": on})
    except (ClusterBusy, NotFound):
        from perdure.cli.actions import finds_files_of
        from perdure.service.live_policy.switch import PolicySwitch

        where = load_settings(flags={"service.state": state}).settings.service.state
        if not finds_files_of(where):
            raise
        PolicySwitch(where).turn(on=on, by=user_name())
        print_line("no service answers: it counts for the next one")
    print_line(
        "the policy is on" if on else "the policy is off: jobs get their own places back unless the kill switch is on"
    )
    return 0
