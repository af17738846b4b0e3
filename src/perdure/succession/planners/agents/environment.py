"""A link and its successor as an environment of Gymnasium: wait a step, or submit.

Needs the extra ``rl``. It is made of the exact wait table, so a step costs next to nothing and no queue is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from perdure.succession.episode import Links
from perdure.succession.planners.agents.observation import SUBMIT, WAIT, observe, width_of
from perdure.succession.sightings import Sightings, Terms

__all__ = ["SUBMIT", "WAIT", "SuccessionEnv"]
HOUR_S = 3600.0


class SuccessionEnv(gymnasium.Env):  # type: ignore[misc]
    """An episode is one link, from its start to the submission of its successor, which comes at its end at the latest.

    Observations are `observation.observe` of what a planner sees; actions are `WAIT` and `SUBMIT`. There is one reward,
    upon submission: minus the hours of interruption, or minus those of overlap at their price. `info` then has the
    two, and what the oracle would have paid. Each episode has one of `terms`, drawn where there are several. In
    training an episode may start anywhere in its link: who submits at random never comes near its end.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, links: Links, seen: Sightings, terms: Sequence[Terms], looks: int = 1, *, starts_anywhere: bool = False
    ) -> None:
        self.links, self.seen, self.all_terms, self.looks = links, seen, tuple(terms), looks
        self.starts_anywhere = starts_anywhere
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (looks, width_of()), np.float32)
        self.oracle_s = [links.oracle(each.overlap_cost).cost_s(each.overlap_cost) for each in self.all_terms]
        self.episode, self.row, self.chosen = 0, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the episode `options["episode"]`, or a random one."""
        super().reset(seed=seed)
        n = len(self.links.first)
        self.episode = int(options["episode"]) if options else int(self.np_random.integers(n))
        self.row = int(self.links.first[self.episode])
        self.row += int(self.np_random.integers(self.links.length)) if self.starts_anywhere else 0
        self.chosen = int(self.np_random.integers(len(self.all_terms)))
        return self._observation(), {"episode": self.episode}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        last = int(self.links.first[self.episode]) + self.links.length
        if action == WAIT:
            self.row += 1
            if self.row < last:
                return self._observation(), 0.0, False, False, {}
        late_s = self.links.late_s(self.episode, self.row)
        interruption_h, overlap_h = max(late_s, 0.0) / HOUR_S, max(-late_s, 0.0) / HOUR_S
        reward = -(interruption_h + self.terms.overlap_cost * overlap_h)
        info = {
            "interruption_h": interruption_h,
            "overlap_h": overlap_h,
            "oracle_h": float(self.oracle_s[self.chosen][self.episode]) / HOUR_S,
        }
        return self._observation(), reward, True, False, info

    @property
    def terms(self) -> Terms:
        """Those of the current episode."""
        return self.all_terms[self.chosen]

    def _observation(self) -> NDArray[np.float32]:
        first = int(self.links.first[self.episode])
        began_s, ends_s = self.seen.instants_s[first], self.seen.instants_s[first + self.links.length]
        return observe(self.seen.view(self.row, float(began_s), float(ends_s), self.terms), self.looks)
