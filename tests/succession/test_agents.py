"""Agents that learn by reinforcement: the environment, and that a network of arrays says what torch says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from perdure.errors import MissingExtra
from perdure.succession.episode import Links
from perdure.succession.planners import checks
from perdure.succession.planners.agents.networks import Encoder, ServedNetwork
from perdure.succession.planners.agents.observation import SUBMIT, WAIT, observe, width_of
from perdure.succession.planners.registry import planner_named
from perdure.succession.protocol import Trainable
from perdure.succession.queue_state import NAMES
from perdure.succession.sightings import Sightings, Terms
from perdure.succession.wait_table import SuccessorWaits

if TYPE_CHECKING:  # it needs Gymnasium
    from perdure.succession.planners.agents.environment import SuccessionEnv

HOUR_S = 3600.0


def test_an_observation_is_finite_and_of_its_shape() -> None:
    for view in checks.made_up_views():
        for looks in (1, 12):
            seen = observe(view, looks)
            assert seen.shape == (looks, width_of())
            assert np.isfinite(seen).all()


def test_layers_are_applied_one_after_the_other() -> None:
    """|1 - 2| by two layers of which the first keeps what is above 0."""
    layers = (np.array([[1.0, -1.0], [-1.0, 1.0]]), np.zeros(2)), (np.ones((1, 2)), np.zeros(1))
    assert ServedNetwork(None, layers, tanh=False)(np.array([[1.0, 2.0]])) == [1.0]


def test_without_the_extra_training_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.succession.planners.agents.training.find_spec", lambda name: None)
    planner = planner_named("dqn")
    assert isinstance(planner, Trainable)
    with pytest.raises(MissingExtra, match="rl"):
        planner.train(checks.made_up_lessons(), np.random.default_rng(0))


def test_an_encoder_says_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    embed, place = torch.nn.Linear(5, 8), torch.randn(6, 8)
    looks = torch.randn(6, 5)
    with torch.no_grad():
        wanted = layer((embed(looks) + place)[None])[0, -1].numpy()
    arrays = {name: value.detach().numpy().astype(np.float64) for name, value in layer.named_parameters()}
    arrays |= {f"embed.{name}": value.detach().numpy().astype(np.float64) for name, value in embed.named_parameters()}
    arrays["place"] = place.numpy().astype(np.float64)
    assert np.allclose(Encoder(2, arrays)(looks.numpy().astype(np.float64)), wanted, atol=1e-5)


@pytest.fixture
def env() -> SuccessionEnv:
    pytest.importorskip("gymnasium")
    from perdure.succession.planners.agents.environment import SuccessionEnv

    instants = np.arange(1e9, 1e9 + 30 * HOUR_S, HOUR_S, dtype=np.float64)
    truth = SuccessorWaits(instants, np.full((30, 1), 3 * HOUR_S))
    nothing: list[tuple[()]] = [()] * 30
    seen = Sightings(instants, [None] * 30, nothing, nothing, [(0.0,) * len(NAMES)] * 30)
    return SuccessionEnv(Links.of(truth, 0, 10 * HOUR_S, HOUR_S), seen, [Terms(0.25)])


@pytest.mark.parametrize(("waits", "reward"), [(0, -0.25 * 7), (7, 0.0), (9, -2.0), (10, -3.0)])
def test_the_reward_is_what_the_handover_costs(env: SuccessionEnv, waits: int, reward: float) -> None:
    """All successors wait for 3 h and links run for 10: submitted after 7 h there is no gap and no overlap."""
    env.reset(options={"episode": 4})
    for _ in range(min(waits, 9)):
        assert env.step(WAIT)[1:4] == (0.0, False, False)
    _, got, over, cut_off, info = env.step(SUBMIT if waits < 10 else WAIT)
    assert got == pytest.approx(reward)
    assert (over, cut_off) == (True, False)
    assert info["oracle_h"] == 0.0


def test_episodes_of_training_start_anywhere_in_their_links(env: SuccessionEnv) -> None:
    env.starts_anywhere = True
    rows = {env.reset(seed=seed, options={"episode": 4}) and env.row for seed in range(200)}
    assert rows == set(range(4, 14))


def test_it_keeps_to_the_api_of_gymnasium(env: SuccessionEnv) -> None:
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checker.check_env(env, skip_render_check=True)


@pytest.mark.parametrize("name", ["dqn", "gradient", "dqn-transformer", "gradient-transformer"])
def test_a_trained_agent_decides_without_torch_as_with_it(name: str) -> None:
    pytest.importorskip("stable_baselines3")
    from dataclasses import replace

    from perdure.succession.planners.agents.agent import SuccessionAgent

    planner = planner_named(name)
    assert isinstance(planner, SuccessionAgent)
    trained = replace(planner, steps=2_100).train(checks.made_up_lessons(), np.random.default_rng(0))
    for fact in checks.FACTS:
        fact(trained, checks.made_up_views())
