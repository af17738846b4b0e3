"""The policies that give jobs shares round by round, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from perdure.errors import ConfigError
from perdure.scheduling.elastic import ElasticPolicy
from perdure.scheduling.sia_policy import Sia

ELASTIC: Mapping[str, Callable[[], ElasticPolicy]] = MappingProxyType({"sia": Sia})


def elastic_named(name: str) -> ElasticPolicy:
    """Raises `ConfigError` for an unknown name."""
    if name not in ELASTIC:
        known = ", ".join(ELASTIC)
        raise ConfigError(f"--policy {name}", "no policy of that name plans jobs with profiles", f"Use one of: {known}")
    return ELASTIC[name]()
