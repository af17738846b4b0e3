"""Real PyTorch programs fail for real: cause, rank and verdict are right, with and without files of each rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec import to_builtins

from perdure.cli.diagnosis import Diagnosis, diagnoser
from perdure.cli.logs import read_log
from perdure.retry.decide import DecisionKind
from perdure.service.settings import Settings
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import FRAME
from perdure.triage.verdict import CauseRole
from tests.conftest import require
from tests.programs.program import ACCELERATE, TORCHRUN, WITH_FILES, Program, is_installed, programs

PATIENCE_S = 120.0
ALL = programs()


def fail(program: Program, work: Path, launch: str = "") -> Path:
    """Run a program to its end; the file that holds what it and its launcher wrote."""
    require("torch", is_installed("torch"), "torch is not installed")
    if why := program.missing():
        pytest.skip(why)
    work.mkdir()
    log = work / "job.out"
    with log.open("wb") as out:
        ended = subprocess.run(
            ["sh", "-c", program.script(work, launch)],
            stdout=out, stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert ended.returncode, log.read_text()
    return log


def diagnosis(target: Path) -> Diagnosis:
    return diagnoser(Settings())(str(target), read_log(str(target), own_rules().matcher()).text)


def wrong(program: Program, verdict: dict, decision: str) -> str:
    """What of a verdict, as JSON has it, is not what the program's head says; "" where all is."""
    shown = verdict["evidence"]
    roots = [line["text"] for line in shown if line["role"] == CauseRole.ROOT]
    frames = [line["text"] for line in shown if line["rule"] == FRAME]
    alone = verdict["rank"] == "0"  # the embedded cluster numbers a task that is the only one, too
    facts = {
        f"cause {verdict['category']}": verdict["category"] in program.cause,
        f"rank {verdict['rank']}": program.rank in (verdict["rank"], "any") or (not program.rank and alone),
        f"decision {decision}": decision == program.verdict,
        f"roots {roots}": not program.message or any(program.message in text for text in roots),
        f"frames {frames}": not program.frame or any(program.frame in text for text in frames),
        "its words": program.says_also in str(verdict),
    }
    return ", ".join(what for what, holds in facts.items() if not holds)


def assert_right(program: Program, found: Diagnosis) -> None:
    """Cause, rank, verdict, and the words shown are those that the program's head gives.

    A log alone may be worth a retry to its owner where the service, on hearsay, would only probe.
    """
    decided = found.decision.kind
    if program.verdict == DecisionKind.PROBE and found.by_service is not None:
        decided = found.by_service
    assert not wrong(program, to_builtins(found.verdict), decided), found


@pytest.mark.parametrize(
    "program", [pytest.param(p, id=p.name, marks=() if p.lands else pytest.mark.slow) for p in ALL]
)
def test_what_a_program_prints_tells_why_it_failed(program, tmp_path):
    assert_right(program, diagnosis(fail(program, tmp_path / "work")))


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(p, id=p.name) for p in ALL if p.launch == TORCHRUN])
def test_so_do_the_files_of_its_ranks_beside_what_torchrun_prints(program, tmp_path):
    log = fail(program, tmp_path / "work", WITH_FILES)
    assert_right(program, diagnosis(log.parent))


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(p, id=p.name) for p in ALL if p.anywhere])
def test_so_does_what_it_prints_under_accelerate(program, tmp_path):
    if not is_installed("accelerate"):
        pytest.skip("accelerate is not installed")
    assert_right(program, diagnosis(fail(program, tmp_path / "work", ACCELERATE)))
