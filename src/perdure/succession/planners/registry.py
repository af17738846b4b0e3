"""The planners by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module

from perdure.errors import ConfigError
from perdure.succession.protocol import Planner

DEFAULT = "conformal"
_HOMES = {
    "reactive": "reactive:Reactive",
    "average": "average:Average",
    "quantile": "quantile:Quantile",
    "forest": "forest:Forest",
    "boosted": "boosted:Boosted",
    "rollout": "rollout:Rollout",
    "conformal": "conformal:Conformal",
    "stopping": "stopping:Stopping",
}
NAMES = tuple(_HOMES)


def planner_named(name: str) -> Planner:
    """The planner of a name, at its defaults; one that learns is not trained yet. Raises `ConfigError`."""
    if name not in _HOMES:
        raise ConfigError(f"planner {name!r}", "no planner has that name", f"Use one of: {', '.join(NAMES)}")
    module, _, member = _HOMES[name].partition(":")
    found: Planner = getattr(import_module(f"perdure.succession.planners.{module}"), member)()
    return found
