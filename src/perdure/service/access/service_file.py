"""Where a service keeps its state unless told otherwise, and the small file there by which commands find it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.durable import write_whole
from perdure.errors import NotFound, PerdureError, StateError
from perdure.trust import check_secret

FILE_NAME = "service.json"
MAX_FILE_BYTES = 64 * 1024


def default_state_dir(env: Mapping[str, str]) -> Path:
    """Where the journal lives unless told otherwise: ``$XDG_STATE_HOME/perdure``."""
    return base_directory(env, "XDG_STATE_HOME", ".local/state") / "perdure"


def base_directory(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    """A base directory of the XDG rules; a relative one there is to be ignored."""
    named = Path(env.get(variable, ""))
    return named if named.is_absolute() else Path(env.get("HOME") or os.path.expanduser("~")) / below_home


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """What a running service leaves for the commands of its own user. Holds a token: nobody else may read it."""

    url: str  # "http://127.0.0.1:8470"
    pid: int
    token: str  # of role operator

    def write(self, state: Path) -> Path:
        """Put the file in place at once, readable for its owner alone. Raises `StateError`."""
        path = state / FILE_NAME
        try:
            write_whole(path, json.dumps(asdict(self)).encode(), 0o600)
        except OSError as err:
            raise StateError(str(path), f"cannot be written: {err.strerror}", "Make the directory writable") from err
        return path

    @classmethod
    def read(cls, state: Path) -> ServiceFile:
        """Raises `NotFound` where no service has left one, `StateError` where it cannot be used."""
        path = state / FILE_NAME
        try:
            with path.open("rb") as file:
                check_secret(path, os.fstat(file.fileno()))
                found = json.loads(file.read(MAX_FILE_BYTES))
            return cls(str(found["url"]), int(found["pid"]), str(found["token"]))
        except FileNotFoundError as err:
            raise NotFound(str(state), "no service runs with this state directory", how_to_start(state)) from err
        except OSError as err:
            raise StateError(str(path), f"cannot be read: {err.strerror}", "Ask as the user who runs it") from err
        except (ValueError, KeyError, TypeError) as err:
            raise StateError(str(path), "is not a service's file", f"Remove it. {how_to_start(state)}") from err

    def remove(self, state: Path) -> None:
        """Take the file away, unless another service has put its own there since."""
        try:
            if ServiceFile.read(state) == self:
                (state / FILE_NAME).unlink()
        except (PerdureError, OSError):
            return


def how_to_start(state: Path) -> str:
    """What starts the service of that directory. Nobody may have named the default one: another may be meant."""
    if state == default_state_dir(os.environ):
        return "Start it: perdure up. Where it runs with another state directory, name that: --state DIR"
    return f"Start it: perdure up --state {state}"
