"""Chains are kept by the service while it may act, and at no other time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.errors import ClusterBusy
from perdure.service.workers import chain_keeper
from perdure.service.workers.chain_keeper import ChainKeeper, keep_once
from perdure.service.workers.kill_switch import KillSwitch


def test_nothing_is_kept_in_shadow_mode_or_while_the_kill_switch_is_on(tmp_path: Path) -> None:
    rounds = []
    keeper = ChainKeeper(tmp_path, armed=True, run=lambda: rounds.append(1))
    ChainKeeper(tmp_path, armed=False, run=lambda: rounds.append(1)).turn()
    assert rounds == []
    keeper.turn()
    KillSwitch(tmp_path).turn("mira", on=True)
    keeper.turn()
    assert rounds == [1]
    KillSwitch(tmp_path).turn("mira", on=False)
    keeper.turn()
    assert rounds == [1, 1]


@pytest.mark.parametrize(
    ("code", "told"),
    [("import sys; sys.exit('keep: it says why')", "it says why"), ("import time; time.sleep(9)", "took")],
)
def test_a_round_that_fails_or_takes_too_long_is_told_of(monkeypatch: pytest.MonkeyPatch, code: str, told: str) -> None:
    monkeypatch.setattr(chain_keeper, "_COMMAND", (sys.executable, "-c", code))
    monkeypatch.setattr(chain_keeper, "LIMIT_S", 1.0)
    with pytest.raises(ClusterBusy, match=told):
        keep_once()


def test_without_chains_a_round_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_keeper, "_COMMAND", (sys.executable, "-c", "pass"))
    keep_once()
