"""``perdure token``: tokens for persons and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import AsJson, StateDir, load_settings
from perdure.cli.output import instant, print_json, print_line, print_table
from perdure.cli.table import word
from perdure.errors import InputError, NotFound
from perdure.installation import to_type

if TYPE_CHECKING:
    from perdure.service.access.auth import TokenBook

COLUMNS = (word("ID"), word("USER"), word("ROLE"), word("MADE", leave=1))


def token(
    user: Annotated[str | None, typer.Argument(metavar="USER", help="A viewer may read this user's logs.")] = None,
    role: Annotated[str, typer.Option(metavar="viewer|operator", help="viewer: look; operator: act.")] = "viewer",
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="Revoke the token with this ID.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the tokens by ID, never the secrets themselves.")] = False,
    as_json: AsJson = False,
    state: StateDir = None,
) -> int:
    """Mint a token. It is shown this once: the service keeps only its hash, in tokens.json.

    The token alone goes to standard output; the id that revokes it goes to standard error.

    Exit codes: 0 minted, listed or revoked, 2 refused.
    """
    from perdure.service.access.auth import Role, TokenBook, id_of

    if sum((user is not None, revoke is not None, show)) != 1:
        raise InputError("token", "give a user, --revoke ID or --list", "See perdure token --help")
    if role not in list(Role):
        raise InputError("--role", f"{role!r} is not a role", "Give viewer or operator")
    where = load_settings(flags={"service.state": state}).settings.service.state
    if not where.is_dir():
        raise NotFound(str(where), "no service has used this state directory", "Start one: perdure up")
    book = TokenBook(where)
    if show:
        return _list(book, as_json=as_json)
    if user is None:
        book.revoke(revoke or "")
        print_line(f"{revoke}: revoked")
        return 0
    minted = book.mint(user, Role(role))
    token_id = id_of(book, minted)
    if as_json:
        print_json("token", 1, id=token_id, user=user, role=role, token=minted)
    else:
        print_line(minted)
        revoke = to_type(f"perdure token --revoke {token_id}")
        typer.echo(f"perdure: its id is {token_id}. Revoke it with: {revoke}", err=True)
    return 0


def _list(book: TokenBook, *, as_json: bool) -> int:
    kept = book.entries()
    if as_json:
        told = [{"id": each.id, "user": each.user, "role": each.role, "created_s": each.created_s} for each in kept]
        print_json("tokens", 1, tokens=told)
    elif kept:
        print_table(COLUMNS, [(each.id, each.user, each.role, instant(each.created_s)) for each in kept], wide=False)
    else:
        print_line("No tokens.")
    return 0
