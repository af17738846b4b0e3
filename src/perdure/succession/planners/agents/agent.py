"""Planners that learn by reinforcement from the exact wait table, with Stable-Baselines3, and are served without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perdure.succession.planners.agents.networks import Floats, ServedNetwork
from perdure.succession.planners.agents.observation import SUBMIT, WAIT, observe, width_of
from perdure.succession.planners.terms import at_the_end, later, until_the_end
from perdure.succession.protocol import Decision, TrainingCase, View

TRANSFORMER_LOOKS = 12


@dataclass(frozen=True, slots=True)
class SuccessionAgent:
    """One network for all prices of overlap: the price is part of what it observes."""

    name: str
    algorithm: str  # "dqn" or "ppo", as Stable-Baselines3 calls them
    looks: int = 1  # at the queue; with several, a small transformer reads them
    steps: int = 40_000  # of training
    network: ServedNetwork | None = None

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> SuccessionAgent:
        """Lessons are one instant of an even grid each. Raises `MissingExtra` where the extra ``rl`` is missing."""
        from perdure.succession.planners.agents.training import trained_network

        return replace(self, network=trained_network(self.algorithm, self.looks, self.steps, lessons, rng))

    def decide(self, view: View) -> Decision:
        if self.network is None:
            return until_the_end(view, "the agent has not been trained")
        if view.left <= 0:
            return at_the_end(view)
        worth = self.network(observe(view, self.looks).astype(np.float64))
        if worth[SUBMIT] > worth[WAIT]:
            return Decision(True, view.now, "the agent prefers to submit now")
        return later(view, "the agent prefers to wait")

    def arrays(self) -> dict[str, Floats]:
        return {} if self.network is None else self.network.arrays()

    def with_arrays(self, arrays: Mapping[str, Floats]) -> SuccessionAgent:
        return replace(self, network=ServedNetwork.of_arrays(arrays, self.looks, width_of()))


def dqn() -> SuccessionAgent:
    """Deep Q-learning (Mnih et al., Nature 518, 2015) with a multilayer perceptron."""
    return SuccessionAgent("dqn", "dqn")


def dqn_transformer() -> SuccessionAgent:
    """Deep Q-learning with a small transformer over the last looks at the queue."""
    return SuccessionAgent("dqn-transformer", "dqn", TRANSFORMER_LOOKS)


def policy_gradient() -> SuccessionAgent:
    """Proximal policy optimization (Schulman et al., 2017) with a multilayer perceptron."""
    return SuccessionAgent("gradient", "ppo")


def policy_gradient_transformer() -> SuccessionAgent:
    """Proximal policy optimization with a small transformer over the last looks at the queue."""
    return SuccessionAgent("gradient-transformer", "ppo", TRANSFORMER_LOOKS)
