"""``perdure actions``: the journal of what was done, and a person's hand on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, Limit, StateDir, Wide, load_settings, service
from perdure.cli.output import clock, print_json, print_line, print_table
from perdure.cli.picture import header, picture_of, warn
from perdure.cli.table import text, word
from perdure.errors import ClusterBusy, InputError, NotFound, StateError
from perdure.installation import to_type, user_name

COLUMNS = (word("KEY"), word("STATE"), word("BY", leave=2), word("DECIDED", leave=1), text("REASON"))


def actions(
    undo: Annotated[str | None, typer.Option(metavar="KEY", help="Take a finished action back.")] = None,
    withhold: Annotated[str | None, typer.Option(metavar="KEY", help="Keep a planned action from being begun.")] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Turn the kill switch on: no further action is begun.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Turn the kill switch off again.")] = False,
    limit: Limit = 50,
    wide: Wide = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """List actions, the latest first, or hold, undo and stop them. Asks the service.

    Exit codes: 0 listed or done, 2 refused.
    """
    if sum((undo is not None, withhold is not None, stop, resume)) > 1:
        raise InputError("actions", "give one of --undo, --withhold, --stop, --resume", "Run them one after another")
    if undo is not None or withhold is not None:
        return _one(undo or withhold or "", "undo" if undo is not None else "withhold", state)
    if stop or resume:
        return _switch(stop, state)
    asked = service(state)
    picture, found = picture_of(asked), list(asked.pages("/actions", limit))
    warn(picture)
    if as_json:
        print_json("actions", 1, **header(picture), actions=found)
        return 0
    if not found:
        print_line("No actions.")
        return 0
    rows = ([a["key"], a["state"], a["by"], clock(a["created_s"]), _why(a)] for a in found)
    print_table(COLUMNS, rows, wide=wide)
    return 0


def _one(key: str, verb: str, state: StateDir) -> int:
    from perdure.cli.service_client import segment

    answer = service(state).post(f"/actions/{segment(key)}/{verb}")
    print_line(f"{key}: withheld" if verb == "withhold" else f"{key}: to be undone by {answer['key']}")
    return 0


def _switch(on: bool, state: StateDir) -> int:
    """Through the service where it answers, else by the stop file: the kill switch works without a service."""
    note = ""
    try:
        note = service(state).post("/kill-switch", {"on": on}).get("note", "")
    except (ClusterBusy, NotFound) as err:
        where = load_settings(flags={"service.state": state}).settings.service.state
        if not finds_files_of(where):
            raise
        note = "; ".join(filter(None, ("no service answers: it counts for the next one", _switch_file(where, on, err))))
    if note:
        print_line(note)
    print_line(to_type("stopped: no action is begun until perdure actions --resume") if on else "resumed")
    return 0


def finds_files_of(directory: Path) -> bool:
    """Whether the service that was asked reads switches in this directory, where one has run: others stop nothing."""
    from perdure.service.workers.kill_switch import RESERVE_FILE, STOP_FILE

    if os.environ.get("PERDURE_URL") or os.environ.get("PERDURE_SOCKET"):
        return False
    return any((directory / name).exists() for name in ("service.json", "tokens.json", RESERVE_FILE, STOP_FILE))


def _switch_file(state: Path, on: bool, cause: Exception) -> str:
    from perdure.service.workers.kill_switch import KillSwitch

    try:
        return KillSwitch(state).turn(user_name(), on=on)
    except StateError as err:
        what = f"the service does not answer, and this {err.what}"
        raise StateError(err.where, what, "Do it as the user who runs the service") from cause


def _why(action: dict[str, Any]) -> str:
    """Why it was decided, and the result beyond its state."""
    return f"{action['reason']} ({action['detail']})" if action["detail"] else str(action["reason"])
