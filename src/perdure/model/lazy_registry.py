"""Things by name, each imported when it is first asked for: what one of them needs may not be installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from perdure.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LazyRegistry:
    """`homes` says where each name is, as ``module:member`` below `package`; `what` is what an error calls them."""

    what: str
    package: str
    homes: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.homes)

    def named(self, name: str) -> Any:
        """The member of that name. Raises `ConfigError`, and what importing its module does."""
        if name not in self.homes:
            known = ", ".join(self.homes)
            raise ConfigError(f"{self.what} {name!r}", f"no {self.what} has that name", f"Use one of: {known}")
        module, _, member = self.homes[name].partition(":")
        return getattr(import_module(f"{self.package}.{module}"), member)
