"""What `make setup` compiles in the background is all that replays run."""

import pytest

pytest.importorskip("numba")


def test_every_compiled_loop_is_warmed(monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.scheduling.policies import policy_named
    from perdure.simulation import warm
    from perdure.simulation.compiled.registry import COMPILED

    warmed = []
    monkeypatch.setattr(warm, "simulate", lambda table, cluster, policy, engine: warmed.append((policy, engine)))
    warm.main()
    assert {COMPILED[type(policy_named(policy))] for policy, _ in warmed} == set(COMPILED.values())
    assert {engine for _, engine in warmed} == {"compiled"}
