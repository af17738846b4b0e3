"""``perdure help``: what ``--help`` says of a command, on the terminal or as manual pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.output import print_line
from perdure.errors import InputError


def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Such as why, or node drain.", show_default=False)
    ] = None,
    man: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Instead: write a manual page for each command into DIR/man1.")
    ] = None,
) -> int:
    """Show the help of a command, as COMMAND --help does; without one, list the commands.

    With --man ~/.local/share/man the pages are where man looks: man perdure-why.

    Exit codes: 0 shown or written, 2 there is no such command.
    """
    root: Any = context.find_root()
    if man is not None:
        from perdure.cli.manual import write_pages

        print_line(f"{write_pages(root, man)}: a page for each command")
        return 0
    typer.echo(found(root, words or []).get_help())
    return 0


def found(root: Any, words: list[str]) -> Any:
    """The context of the command that `words` name. Raises `InputError` where there is none."""
    context: Any = root
    for word in words:
        below = getattr(context.command, "commands", {})
        if word not in below:
            known = f"Use one of: {', '.join(below)}" if below else "It has no commands below it"
            raise InputError(f"help {' '.join(words)[:80]}", f"there is no command {word[:80]!r}", known)
        context = below[word].make_context(word, [], parent=context, resilient_parsing=True)
    return context


def every(context: Any) -> Iterator[Any]:
    """The context of a command and those of all below it."""
    yield context
    for name, below in getattr(context.command, "commands", {}).items():
        yield from every(below.make_context(name, [], parent=context, resilient_parsing=True))
