"""How old the picture is that a command shows, and what is missing from it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from perdure.cli.output import instant
from perdure.cli.text import plain

if TYPE_CHECKING:
    from perdure.cli.service_client import Client

LOOKS = 2  # a picture older than this many looks is old
LEAST_S = 5.0  # and older than this


@dataclass(frozen=True, slots=True)
class LookAge:
    """When the service last looked at the cluster, and the parts that it could not ask."""

    last_look_s: float | None
    look_every_s: float
    unseen: dict[str, str] = field(default_factory=dict)
    stopped: bool = False  # by the kill switch

    def doubts(self, now: float) -> list[str]:
        """What a reader must know of it; nothing where it is whole and fresh."""
        said = ["the kill switch is on: no action is begun (perdure actions --resume)"] if self.stopped else []
        said += [f"{part} cannot be asked: {why}" for part, why in sorted(self.unseen.items())]
        is_fresh = self.last_look_s is not None and now - self.last_look_s <= max(LEAST_S, LOOKS * self.look_every_s)
        return said if is_fresh else [self.age(now), *said]

    def age(self, now: float) -> str:
        """How old it is: what came since, it does not show."""
        if self.last_look_s is None:
            return "the service has not seen the cluster yet"
        old_s = now - self.last_look_s
        ago = f"{old_s:.0f} s ago" if old_s >= 1.0 else "just now"
        return f"this is how it was {ago}, at {instant(self.last_look_s)}"


def picture_of(client: Client) -> LookAge:
    """Ask the service."""
    found: dict[str, Any] = client.get("/status")
    return LookAge(found["last_look_s"], found.get("look_every_s") or 0.0, found["unseen"], bool(found.get("stopped")))


def warn(picture: LookAge) -> None:
    """Say on stderr what is doubtful about what is shown."""
    for doubt in picture.doubts(time.time()):
        typer.echo(plain(f"perdure: {doubt}"), err=True)


def header(picture: LookAge) -> dict[str, object]:
    """The same for JSON, next to the data."""
    return {"picture": {"last_look_s": picture.last_look_s, "unseen": picture.unseen}}
