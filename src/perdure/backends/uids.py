"""The number of a user: as the resource manager told it, or else as this machine knows the name."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from perdure.errors import LogRefused


def uid_of(user: str, told: Mapping[str, int]) -> int:
    """Raises `LogRefused` for a user who is unknown here."""
    if user in told:
        return told[user]
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as err:
        raise LogRefused(f"user {user[:80]!r}", "unknown here", "Run Perdure where users are known") from err
