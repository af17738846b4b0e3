"""The planners by name. What needs an extra is imported only when it is asked for."""

from __future__ import annotations

from importlib.util import find_spec

from perdure.model.lazy_registry import LazyRegistry
from perdure.succession.protocol import Planner

DEFAULT = "conformal"
_REGISTRY = LazyRegistry(
    "planner",
    "perdure.succession.planners",
    {
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
    },
)
NAMES = _REGISTRY.names
AGENTS = ("dqn", "dqn-transformer", "gradient", "gradient-transformer")
_NEEDS = {"forest": "sklearn", "boosted": "lightgbm", **dict.fromkeys(AGENTS, "stable_baselines3")}  # to be trained


def available() -> tuple[str, ...]:
    """The planners that can be trained, where they must be, with what is installed."""
    return tuple(name for name in NAMES if name not in _NEEDS or find_spec(_NEEDS[name]) is not None)


def planner_named(name: str) -> Planner:
    """The planner of a name, at its defaults; one that learns is not trained yet. Raises `ConfigError`."""
    found: Planner = _REGISTRY.named(name)()
    return found
