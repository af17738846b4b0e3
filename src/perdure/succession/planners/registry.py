"""The planners by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

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
    "dqn": "agents.agent:dqn",
    "dqn-transformer": "agents.agent:dqn_transformer",
    "gradient": "agents.agent:policy_gradient",
    "gradient-transformer": "agents.agent:policy_gradient_transformer",
}
NAMES = tuple(_HOMES)
AGENTS = ("dqn", "dqn-transformer", "gradient", "gradient-transformer")
_NEEDS = {"forest": "sklearn", "boosted": "lightgbm", **dict.fromkeys(AGENTS, "stable_baselines3")}  # to be trained


def available() -> tuple[str, ...]:
    """The planners that can be trained, where they must be, with what is installed."""
    return tuple(name for name in NAMES if name not in _NEEDS or find_spec(_NEEDS[name]) is not None)


def planner_named(name: str) -> Planner:
    """The planner of a name, at its defaults; one that learns is not trained yet. Raises `ConfigError`."""
    if name not in _HOMES:
        raise ConfigError(f"planner {name!r}", "no planner has that name", f"Use one of: {', '.join(NAMES)}")
    module, _, member = _HOMES[name].partition(":")
    found: Planner = getattr(import_module(f"perdure.succession.planners.{module}"), member)()
    return found
