"""Where a secret is kept: in a file that nobody else may read, or in the environment. Its value is never a setting."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from perdure.errors import ConfigError, StateError
from perdure.trust import read_secret_text

MAX_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that must not be shown. `value` is given where a setting holds it openly."""

    file: Path | None = None
    env: str = ""
    value: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.file or self.env or self.value)

    def read(self) -> str:
        """The text, read again each time: it can be replaced without a restart. Raises `ConfigError`."""
        if self.file is not None:
            return self._from_file(self.file)
        if self.env:
            if not (text := os.environ.get(self.env, "").strip()):
                raise ConfigError(self.env, "is not set in the environment of the service", "Set it there")
            return text
        return self.value

    def _from_file(self, path: Path) -> str:
        try:
            text = read_secret_text(path, MAX_BYTES).strip()
        except FileNotFoundError as err:
            raise ConfigError(str(path), "is not there", "Write the secret into it, and chmod 600") from err
        except (StateError, ValueError) as err:
            what = err.what if isinstance(err, StateError) else "is not UTF-8 text"
            raise ConfigError(str(path), what, "Give the file of the secret mode 600") from err
        if not text or not text.isprintable():
            raise ConfigError(str(path), "does not hold one line of text", "Write the secret into it")
        return text
