"""Manual pages in the macros of man(7), made from the same text as ``--help``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure import __version__
from perdure.errors import StateError


def write_pages(root: Any, folder: Path) -> Path:
    """Write a page for each command below `folder`; returns the directory they are in. Raises `StateError`."""
    place = folder / "man1"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for context in every(root):
            (place / f"{page_name(context)}.1").write_text(page(context), "utf-8")
    except OSError as err:
        raise StateError(str(place), f"cannot be written ({err.strerror})", "Name a folder that you may write") from err
    return place


def every(context: Any) -> Iterator[Any]:
    """The context of a command and those of all below it."""
    yield context
    for name, below in getattr(context.command, "commands", {}).items():
        if below.hidden:  # an older spelling
            continue
        yield from every(below.make_context(name, [], parent=context, resilient_parsing=True))


def page_name(context: Any) -> str:
    """``perdure-node-drain`` for ``perdure node drain``."""
    return str(context.command_path).replace(" ", "-")


def page(context: Any) -> str:
    """One manual page."""
    return "\n".join(_lines(context)) + "\n"


def _lines(context: Any) -> Iterator[str]:
    command, name = context.command, page_name(context)
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    says = (command.short_help or text.partition("\n")[0]).rstrip(".")
    yield f'.TH "{_roff(name.upper())}" "1" "" "perdure {_roff(__version__)}" "Perdure"'
    yield ".SH NAME"
    yield f"{_roff(name)} \\- {_roff(says)}"
    yield ".SH SYNOPSIS"
    yield f"\\fB{_roff(context.command_path)}\\fR {_roff(' '.join(command.collect_usage_pieces(context)))}"
    yield ".SH DESCRIPTION"
    for paragraph in text.split("\n\n"):
        yield from _paragraph(paragraph)
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        records = [
            record
            for parameter in command.get_params(context)
            if parameter.param_type_name == kind and (record := parameter.get_help_record(context))
        ]
        if records:
            yield f".SH {title}"
        for names, meaning in records:
            yield from (".TP", f"\\fB{_roff(names)}\\fR", _roff(meaning) or "\\ ")
    below = getattr(command, "commands", {})
    if below:
        yield ".SH COMMANDS"
    for each, command_below in below.items():
        yield from (".TP", f"\\fB{_roff(each)}\\fR", _roff(command_below.get_short_help_str(1000)))
    if command.epilog:
        yield ".SH ENVIRONMENT"
        yield _roff(command.epilog.removeprefix("Environment: "))
    yield ".SH SEE ALSO"
    related = [f"{name}-{each}" for each in below] or ([page_name(context.parent)] if context.parent else [])
    yield ",\n".join(f"\\fB{_roff(each)}\\fR(1)" for each in related)


def _paragraph(text: str) -> Iterator[str]:
    """A paragraph; one that begins with a backspace keeps its lines as they are."""
    yield ".PP"
    if text.startswith("\b\n"):
        yield from (".nf", *map(_roff, text.splitlines()[1:]), ".fi")
    else:
        yield _roff(" ".join(text.split()))


def _roff(text: str) -> str:
    """A text without anything that man(7) would read as a command."""
    safe = " ".join(text.split("\n")).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
