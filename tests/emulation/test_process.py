"""What one process of an emulated program tells at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.emulation.clocks import RealClock
from perdure.emulation.node import make_node
from perdure.emulation.process import _tell
from perdure.emulation.settings import EmulationSettings


def test_what_is_told_of_several_gpus_is_their_sum_and_memory_the_most_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = EmulationSettings("v100", "alexnet", gpus=3, report=str(tmp_path / "r.json"), numbers=(4, 6, 7))
    node = make_node(settings, RealClock())
    for gpu, (steps, busy_s, peak_mib) in zip(
        node.gpus, [(2, 3.0, 9000.0), (4, 5.0, 12_000.0), (0, 0.0, 0.0)], strict=True
    ):
        gpu.steps, gpu.busy_s, gpu.peak_mib = steps, busy_s, peak_mib
    _tell(node, 10.0, 0)
    _tell(node, 10.0, 2)
    told = json.loads((tmp_path / "r.json").read_text())
    assert (told["gpus"], told["numbers"], told["steps"], told["busy_s"]) == (3, [4, 6, 7], 6, 8.0)
    assert (told["busy_share"], told["peak_mib"]) == (0.4, 12_000.0)  # of the two that were used
    assert told["peak_mib"] <= told["capacity_mib"]
    assert json.loads((tmp_path / "r.2.json").read_text()) == {**told, "rank": 2}
    assert "6 steps of alexnet" in (said := capsys.readouterr().err)
    assert f"GPU busy 40%, 12,000 of {told['capacity_mib']:,.0f} MiB at most" in said
