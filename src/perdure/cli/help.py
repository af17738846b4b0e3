"""``perdure help``: what ``--help`` says of a command, on the terminal or as manual pages."""

from __future__ import annotations

from collections.abc import Iterable
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


def _known_instead(word: str, below: Iterable[str]) -> str:
    from difflib import get_close_matches

    like = get_close_matches(word, below, 1)
    return f"Did you mean {like[0]}? Commands: {', '.join(below)}" if like else f"Use one of: {', '.join(below)}"


def found(root: Any, words: list[str]) -> Any:
    """The context of the command that `words` name. Raises `InputError` where there is none."""
    context: Any = root
    for word in words:
        below = getattr(context.command, "commands", {})
        if word not in below:
            known = _known_instead(word, below) if below else "It has no commands below it"
            raise InputError(f"help {' '.join(words)[:80]}", f"there is no command {word[:80]!r}", known)
        context = below[word].make_context(word, [], parent=context, resilient_parsing=True)
    return context
