"""A group of commands in which one is meant where none is named, and in which older spellings by options still work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from typer.core import TyperGroup


class OldValue(Enum):
    """What becomes of the value of an option that is a command now."""

    NONE = "the option was a flag"
    FIRST = "it is the first argument"
    LAST = "it is the last argument"
    NAMES = "it is the name of the command"


class DefaultCommand(TyperGroup):
    """``why train.log`` means ``why explain train.log``, and ``why --batch FILE`` still means ``why batch FILE``."""

    default: ClassVar[str]
    older: ClassVar[Mapping[str, tuple[str, OldValue]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = (args[:1] or [""])[0]
        is_file = len(args) == 1 and os.path.exists(first)  # `perdure why ranks`, where a folder has that name
        if is_file or first not in {*self.commands, "-h", "--help"}:
            args = self._of_option(args) or [self.default_of(args), *args]
        return super().parse_args(ctx, args)

    def default_of(self, args: Sequence[str]) -> str:  # noqa: ARG002
        """The command that is meant by these words."""
        return self.default

    def _of_option(self, args: list[str]) -> list[str]:
        """The words as they are written today, where an option among them names a command; else none."""
        for place, word in enumerate(args):
            if word == "--":
                return []
            option, has_value, value = word.partition("=")
            if option not in self.older:
                continue
            command, kind = self.older[option]
            if kind is OldValue.NONE:
                return [command, *args[:place], *args[place + 1 :]]
            given = [value] if has_value else args[place + 1 : place + 2]
            rest = [*args[:place], *args[place + (1 if has_value else 2) :]]
            if kind is OldValue.NAMES:
                return [*given, *rest]
            return [command, *given, *rest] if kind is OldValue.FIRST else [command, *rest, "--", *given]
        return []
