"""The switch of the policy in force: a file, so that it works without the service, and holds after a restart."""

from __future__ import annotations

from pathlib import Path

from perdure.durable import sync_directory
from perdure.errors import StateError

OFF_FILE = "POLICY-OFF"


class PolicySwitch:
    """Off while the file exists. Any doubt about it is off."""

    def __init__(self, state: Path) -> None:
        self.file = state / OFF_FILE

    @property
    def is_off(self) -> bool:
        try:
            self.file.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def turn(self, *, on: bool, by: str) -> None:
        """Raises `StateError` where it is not turned."""
        try:
            if on:
                self.file.unlink(missing_ok=True)
            else:
                self._turn_off(by)
            sync_directory(self.file.parent)
        except OSError as err:
            fix = "Make room there, or fix its permissions"
            raise StateError(str(self.file), f"cannot be changed: {err.strerror}", fix) from err

    def _turn_off(self, by: str) -> None:
        """The file alone counts; a full disk may have no room for who made it."""
        try:
            self.file.write_text(f"turned off by {by}\n")
        except OSError:
            if not self.file.exists():
                raise
