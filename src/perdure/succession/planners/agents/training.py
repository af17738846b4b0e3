"""Trains an agent with Stable-Baselines3, and takes its network out as arrays. Needs the extra ``rl``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.succession.episode import Links
from perdure.succession.planners.agents.networks import Encoder, ServedNetwork
from perdure.succession.protocol import TrainingCase
from perdure.succession.queue_state import NAMES
from perdure.succession.sightings import Sightings, Terms
from perdure.succession.wait_table import SuccessorWaits

PRICES = (1.0, 0.5, 0.25, 0.1, 0.05)  # of overlap, drawn by episode
WIDTH = 64  # of hidden layers
REWARD_H = 10.0  # hours that are a reward of 1
MODEL_WIDTH, HEADS = 32, 2  # of the transformer
_EMPTY = (0.0,) * len(NAMES)


def trained_network(
    algorithm: str, looks: int, steps: int, lessons: Sequence[TrainingCase], rng: Generator
) -> ServedNetwork | None:
    """The network of an agent that has learned; None where lessons do not reach over one link."""
    if any(find_spec(each) is None for each in ("gymnasium", "stable_baselines3", "torch")):
        raise MissingExtra("planners that learn by reinforcement", "an extra is not installed", to_install("rl"))
    links, seen = _world(lessons)
    if not len(links.first):
        return None
    import gymnasium
    import stable_baselines3
    import torch

    from perdure.succession.planners.agents.environment import SuccessionEnv

    torch.set_num_threads(1)
    env = SuccessionEnv(links, seen, [Terms(price) for price in PRICES], looks, starts_anywhere=True)
    rewarded = gymnasium.wrappers.TransformReward(env, lambda reward: reward / REWARD_H)
    given: dict[str, Any] = {"net_arch": [WIDTH, WIDTH]}
    if looks > 1:
        given |= {"features_extractor_class": transformer(), "features_extractor_kwargs": {"width": MODEL_WIDTH}}
    how: dict[str, Any] = {"gamma": 1.0, "seed": int(rng.integers(2**31)), "device": "cpu", "policy_kwargs": given}
    if algorithm == "dqn":
        how |= {"learning_starts": 2_000, "buffer_size": steps, "exploration_fraction": 0.5, "learning_rate": 5e-4}
        how |= {"target_update_interval": 250}  # a cost at the end of a link must get to its begin, step by step
    else:
        how |= {"n_steps": 1_024, "batch_size": 128, "ent_coef": 0.01}
    model = getattr(stable_baselines3, algorithm.upper())("MlpPolicy", rewarded, **how)
    model.learn(steps)
    return exported(model)


def _world(lessons: Sequence[TrainingCase]) -> tuple[Links, Sightings]:
    """The links and what is seen in the first stretch of lessons without a hole."""
    now = np.array([each.view.now for each in lessons])
    step_s = float(np.median(np.diff(now))) if len(now) > 1 else 1.0
    holes = np.flatnonzero(np.diff(now) != step_s)
    lessons = lessons[: int(holes[0]) + 1] if len(holes) else lessons
    views, waits = [each.view for each in lessons], np.array([[each.wait_s] for each in lessons]).reshape(-1, 1)
    truth = SuccessorWaits(now[: len(lessons)], waits)
    length_s = views[0].link_ends - views[0].link_started if views else step_s
    seen = Sightings(
        truth.instants_s, [each.forecast for each in views], [each.recent for each in views],
        [each.outcomes for each in views], [each.queue[-1] if each.queue else _EMPTY for each in views],
    )  # fmt: skip
    if len(lessons) < 2:
        return Links(truth, 0, 1, np.empty(0, np.intp), np.empty(0, np.intp)), seen
    return Links.of(truth, 0, length_s, step_s), seen


def transformer() -> type:
    """The class of a feature extractor: one layer of a transformer over the looks, of which the last is read."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class LooksTransformer(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, observation_space: Any, width: int) -> None:
            super().__init__(observation_space, width)
            looks, numbers = observation_space.shape
            self.embed = torch.nn.Linear(numbers, width)
            self.place = torch.nn.Parameter(0.02 * torch.randn(looks, width))
            self.layer = torch.nn.TransformerEncoderLayer(width, HEADS, 2 * width, dropout=0.0, batch_first=True)

        def forward(self, looks: Any) -> Any:
            return self.layer(self.embed(looks) + self.place)[:, -1]

    return LooksTransformer


def exported(model: Any) -> ServedNetwork:
    """The network of a trained model of Stable-Baselines3, without what only training needs."""
    if hasattr(model, "q_net"):
        extractor, body, tanh = model.q_net.features_extractor, list(model.q_net.q_net), False
    else:
        policy = model.policy
        extractor, tanh = policy.features_extractor, True
        body = [*policy.mlp_extractor.policy_net, policy.action_net]
    layers = tuple((_array(each.weight), _array(each.bias)) for each in body if hasattr(each, "weight"))
    return ServedNetwork(_encoder(extractor), layers, tanh)


def _encoder(extractor: Any) -> Encoder | None:
    if not hasattr(extractor, "layer"):
        return None
    arrays = {name.removeprefix("layer."): _array(value) for name, value in extractor.named_parameters()}
    return Encoder(HEADS, arrays)


def _array(parameter: Any) -> NDArray[np.float64]:
    return np.asarray(parameter.detach().numpy(), np.float64)
