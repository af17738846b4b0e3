"""``perdure token``: tokens for persons and programs."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import AsJson, StateDir, load_settings
from perdure.cli.output import print_json, print_line
from perdure.errors import InputError, NotFound


def token(
    user: Annotated[str | None, typer.Argument(metavar="USER", help="Whose; a viewer reads this user's logs.")] = None,
    role: Annotated[str, typer.Option(metavar="viewer|operator", help="viewer: look; operator: act.")] = "viewer",
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="Instead: revoke the token of this id.")] = None,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Mint a token. It is shown this once: the service keeps only its hash, in tokens.json.

    Exit codes: 0 minted or revoked, 2 refused.
    """
    from perdure.service.access.auth import Role, TokenBook

    if (user is None) == (revoke is None):
        raise InputError("token", "give a user, or --revoke ID", "See perdure token --help")
    if role not in list(Role):
        raise InputError("--role", f"{role!r} is not a role", "Give viewer or operator")
    where = load_settings(flags={"service.state": state}).settings.service.state
    if not where.is_dir():
        raise NotFound(str(where), "no service has used this state directory", "Start one: perdure up")
    book = TokenBook(where)
    if user is None:
        book.revoke(revoke or "")
        print_line(f"{revoke}: revoked")
        return 0
    minted = book.mint(user, Role(role))
    if as_json:
        print_json("token", 1, user=user, role=role, token=minted)
    else:
        print_line(minted)
    return 0
