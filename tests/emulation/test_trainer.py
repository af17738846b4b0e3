"""A training program of the demonstration: its log, and faults that stay with nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.emulation.trainer import faults_here


def test_faults_stay_with_their_node_and_begin_when_they_did(tmp_path: Path) -> None:
    plan = tmp_path / "faults.json"
    plan.write_text(json.dumps({"n3": [["ecc@0", 1000.0]], "n5": [["hang600@0", 1020.0]]}))
    assert [fault.at_s for fault in faults_here(plan, "n3", 1010.0, 0.5)] == [0.0]  # it was there before the program
    assert [fault.at_s for fault in faults_here(plan, "n5", 1010.0, 0.5)] == [10.5]
    assert faults_here(plan, "n1", 1010.0, 0.5) == faults_here(None, "n3", 0.0, 0.0) == ()


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_it_trains_or_ends_as_a_framework_would(tmp_path: Path, node: str) -> None:
    plan, kernel = tmp_path / "faults.json", tmp_path / "kernel.log"
    plan.write_text(json.dumps({"n3": [["ecc@0", time.time()]]}))
    environment = {**os.environ, "PERDURE_NODE": node, "CUDA_VISIBLE_DEVICES": "4,5"}
    words = ["--gpu", "h100", "--model", "resnet50", "--steps", "5", "--faults", str(plan), "--kernel-log", str(kernel)]
    found = subprocess.run(
        [sys.executable, "-m", "perdure.emulation.trainer", *words],
        capture_output=True, text=True, check=False, timeout=60, env=environment,
    )  # fmt: skip
    if node == "n1":
        assert (found.returncode, found.stdout.splitlines()[-1]) == (0, "finished: 5 steps")
    else:
        assert found.returncode == 1
        assert "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered" in found.stderr
        assert kernel.read_text().startswith("n3 kernel: NVRM: Xid (PCI:0000:1c:00): 48, pid=")
