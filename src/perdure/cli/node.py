"""``perdure nodes`` and ``perdure node ...``: how nodes stand, and what may be done to one."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import AsJson, StateDir, service
from perdure.cli.output import instant, print_json, print_line, print_table

app = typer.Typer()
Node = Annotated[str, typer.Argument(metavar="NODE")]
Reason = Annotated[str, typer.Option(help="Why; the resource manager shows it.")]


def nodes(as_json: AsJson = False, state: StateDir = None) -> int:
    """List nodes, how they stand and why. Asks the service.

    Exit codes: 0 listed, 2 usage, or no service.
    """
    found = list(service(state).pages("/nodes", 1_000_000))
    if as_json:
        print_json("nodes", 1, nodes=found)
        return 0
    rows = (
        [node["name"], node["state"], f"{node['gpus_used']}/{node['gpus']}", instant(node["since_s"]), node["reason"]]
        for node in found
    )
    print_table(("NODE", "STATE", "GPUS", "SINCE", "REASON"), rows, whole=("NODE", "STATE", "GPUS", "SINCE"))
    return 0


@app.callback()
def node() -> None:
    """Drain a node, or break one of the embedded cluster.

    Exit codes: 0 done, 2 refused.
    """


@app.command("fail")
def fail(node: Node, state: StateDir = None) -> int:
    """Let a node of the embedded cluster die: its processes are killed."""
    return _fault(node, "fail", state)


@app.command("freeze")
def freeze(node: Node, state: StateDir = None) -> int:
    """Let a node of the embedded cluster hang: it stops answering, its processes stand still."""
    return _fault(node, "freeze", state)


@app.command("thaw")
def thaw(node: Node, state: StateDir = None) -> int:
    """Let a frozen node go on."""
    return _fault(node, "thaw", state)


@app.command("return")
def return_(node: Node, state: StateDir = None) -> int:
    """Bring a node that died back."""
    return _fault(node, "return", state)


@app.command("drain")
def drain(node: Node, reason: Reason = "drained by hand", state: StateDir = None) -> int:
    """Give a node no new work; what runs there ends by itself."""
    return _order(node, "drain", reason, state)


@app.command("undrain")
def undrain(node: Node, reason: Reason = "returned by hand", state: StateDir = None) -> int:
    """Give a drained node work again."""
    return _order(node, "undrain", reason, state)


def _fault(name: str, kind: str, state: StateDir) -> int:
    from perdure.service.client import segment

    service(state).post(f"/nodes/{segment(name)}/faults", {"kind": kind})
    print_line(f"{name}: {kind} done")
    return 0


def _order(name: str, kind: str, reason: str, state: StateDir) -> int:
    from perdure.service.client import segment

    answer = service(state).post(f"/nodes/{segment(name)}/{kind}", {"reason": reason})
    print_line(f"{name}: planned as {answer['key']}")
    return 0
