"""The kill switch: a file that stops all actions, with a reserve on the disk that makes room for it."""

from __future__ import annotations

from pathlib import Path

from perdure.durable import sync_directory, sync_file
from perdure.errors import StateError

STOP_FILE = "STOP"
RESERVE_FILE = "reserve"
RESERVE_BYTES = 256 * 1024


class KillSwitch:
    """Works without the service, too, and while the disk is full."""

    def __init__(self, state: Path) -> None:
        self.file = state / STOP_FILE
        self._reserve = state / RESERVE_FILE

    def turn(self, by: str, *, on: bool) -> str:
        """Turn it; what could not be written next to it, "" mostly. Raises `StateError` where it is not turned."""
        try:
            if not on:
                self.file.unlink(missing_ok=True)
            said = self._stop(by) if on else ""
            sync_directory(self.file.parent)  # what stopped, or goes on, does so after a power cut, too
            return said
        except OSError as err:
            raise StateError(str(self.file), f"cannot be changed: {err.strerror}", "Fix its permissions") from err

    def _stop(self, by: str) -> str:
        """The file alone counts; a full disk may have no room for who made it."""
        try:
            self._write(by)
            return ""
        except OSError:
            self._reserve.unlink(missing_ok=True)
        try:
            self._write(by)
            return "the disk is full: room was made by giving up the reserve"
        except OSError as err:
            if not self.file.exists():
                raise
            return f"it is on, and by whom cannot be written: {err.strerror}"

    def _write(self, by: str) -> None:
        self.file.write_text(f"stopped by {by}\n")
        sync_file(self.file)

    def keep_reserve(self) -> None:
        """Set some room aside, where it is not yet and there is any."""
        if self._reserve.exists():
            return
        draft = self._reserve.with_name(f".{RESERVE_FILE}.new")
        try:
            draft.write_bytes(bytes(RESERVE_BYTES))
            draft.rename(self._reserve)
        except OSError:
            draft.unlink(missing_ok=True)
