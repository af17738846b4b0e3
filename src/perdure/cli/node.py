"""``perdure nodes`` and ``perdure node ...``: the states of nodes, and what may be done to one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson, StateDir, Wide, service
from perdure.cli.output import print_json, print_line, print_table, since
from perdure.cli.picture import header, picture_of, warn
from perdure.cli.table import text, word
from perdure.errors import InputError
from perdure.installation import to_type

if TYPE_CHECKING:
    from perdure.cli.service_client import Client

ANSWER_WITHIN_S = 10.0  # that the resource manager has; then the command does not wait any longer
SEEN_WITHIN_S = 3.0  # a fault is seen by the next look, if it changes the node's state
STEP_S = 0.2
RECENT = 100  # actions of one kind among which the one asked for is looked for
COLUMNS = (word("NODE"), word("STATE"), word("GPUS", leave=2), word("SINCE", leave=1), text("REASON"))
_WORDS = {"superseded": "refused", "shadow": "not done"}

app = typer.Typer()
Node = Annotated[str, typer.Argument(metavar="NODE", help="Its name, as perdure nodes shows it.")]
Reason = Annotated[str, typer.Option(help="Why; the resource manager shows it.")]


def nodes(wide: Wide = False, as_json: AsJson = False, state: StateDir = None) -> int:
    """List nodes, their states and why. Asks the service.

    Exit codes: 0 listed, 2 usage, or no service.
    """
    asked = service(state)
    picture, found = picture_of(asked), list(asked.pages("/nodes", 1_000_000))
    warn(picture)
    if as_json:
        print_json("nodes", 1, **header(picture), nodes=found)
        return 0
    if not found:
        print_line("No nodes.")
        return 0
    rows = (
        [node["name"], node["state"], f"{node['gpus_used']}/{node['gpus']}", since(node["since_s"]), node["reason"]]
        for node in found
    )
    print_table(COLUMNS, rows, wide=wide)
    return 0


@app.callback()
def node() -> None:
    """Drain a node, or break one of the embedded cluster.

    Exit codes: 0 done or still planned, 1 the resource manager refused it, 2 usage, or no service.
    """


@app.command("fail")
def fail(node: Node, state: StateDir = None) -> int:
    """Fail a node of the embedded cluster: its processes are killed.

    Exit codes: 0 done, 2 refused, or no service.
    """
    return _fault(node, "fail", state)


@app.command("freeze")
def freeze(node: Node, state: StateDir = None) -> int:
    """Freeze a node of the embedded cluster: it stops answering, and its processes are stopped.

    Exit codes: 0 done, 2 refused, or no service.
    """
    return _fault(node, "freeze", state)


@app.command("thaw")
def thaw(node: Node, state: StateDir = None) -> int:
    """Resume a frozen node.

    Exit codes: 0 done, 2 refused, or no service.
    """
    return _fault(node, "thaw", state)


@app.command("return")
def return_(node: Node, state: StateDir = None) -> int:
    """Bring a node that died back.

    Exit codes: 0 done, 2 refused, or no service.
    """
    return _fault(node, "return", state)


@app.command("drain")
def drain(node: Node, reason: Reason = "drained by hand", state: StateDir = None) -> int:
    """Give a node no new work; what runs there ends by itself.

    Exit codes: 0 done or still planned, 1 the resource manager refused it, 2 usage, or no service.
    """
    return _order(node, "drain", reason, state)


@app.command("undrain")
def undrain(node: Node, reason: Reason = "returned by hand", state: StateDir = None) -> int:
    """Give a drained node work again.

    Exit codes: 0 done or still planned, 1 the resource manager refused it, 2 usage, or no service.
    """
    return _order(node, "undrain", reason, state)


def _path(name: str) -> str:
    """Where the API has a node. Raises `InputError` for what can be no name of one."""
    from perdure.cli.service_client import segment

    if not name or "/" in name:
        raise InputError(f"node {name!r}", "is not the name of a node: it is empty or holds a /", "See perdure nodes")
    return f"/nodes/{segment(name)}"


def _fault(name: str, kind: str, state: StateDir) -> int:
    path, asked = _path(name), service(state)
    before = _standing(asked, name)
    asked.post(f"{path}/faults", {"kind": kind})
    end = time.monotonic() + SEEN_WITHIN_S
    while (now := _standing(asked, name)) == before and time.monotonic() < end:
        time.sleep(STEP_S)
    print_line(f"{name}: {kind} done; {'still' if now == before else 'now'} {now}")
    return 0


def _standing(asked: Client, name: str) -> str:
    """How the service saw a node last; "unknown" where it has not."""
    return next((str(node["state"]) for node in asked.pages("/nodes", 1_000_000) if node["name"] == name), "unknown")


def _order(name: str, kind: str, reason: str, state: StateDir) -> int:
    path, asked = _path(name), service(state)
    key = asked.post(f"{path}/{kind}", {"reason": reason})["key"]
    end = time.monotonic() + ANSWER_WITHIN_S
    while True:
        found = next((a for a in asked.pages("/actions", RECENT, kind=kind) if a["key"] == key), None)
        if found is not None and found["state"] not in ("planned", "started"):
            came = _WORDS.get(found["state"], found["state"])
            print_line("; ".join([f"{name}: {': '.join(filter(None, (came, found['detail'])))}", f"key {key}"]))
            return 0 if found["state"] in ("done", "shadow") else 1
        if time.monotonic() > end:
            why = f" ({found['detail']})" if found and found["detail"] else ""
            print_line(f"{name}: planned as {key}{why}; see {to_type('perdure actions')}")
            return 0
        time.sleep(STEP_S)
