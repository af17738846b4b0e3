"""``perdure token``: a token for a person or a program."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import AsJson, StateDir, service
from perdure.cli.output import print_json, print_line


def token(
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose; a viewer sees the logs of this user's jobs.")],
    role: Annotated[str, typer.Option(metavar="viewer|operator", help="viewer: look; operator: act.")] = "viewer",
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Mint a token. It is shown this once; the service keeps only its hash.

    Exit codes: 0 minted, 2 refused.
    """
    answer = service(state).post("/tokens", {"user": user, "role": role})
    if as_json:
        print_json("token", 1, **answer)
    else:
        print_line(answer["token"])
    return 0
