"""The driver hands each step to the cluster when it is due, survives refusals, and fixes what it broke."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.local.spec import JobSpec
from perdure.demo.driver import LATE_S, Site, drive, due, job_spec
from perdure.demo.workload import LONG_RUN, ROUND_S, SCENARIOS, Arrival, PlannedFault, Timed, a_round, round_start_s
from perdure.demo.workspace import KEEP_RUNS_S, Workspace, prepare
from perdure.errors import ClusterError, StateError
from tests.demo.stage import ARRIVALS, GPUS, NODES, open_stage

SITE = Site(NODES, GPUS)
FIRST_ROUND = a_round(0, np.random.default_rng(0))


class Clock(threading.Event):
    """A stop event whose waits move a clock of its own; `end_s` sets it."""

    def __init__(self, end_s: float) -> None:
        super().__init__()
        self.now_s, self.end_s = 1000.0, 1000.0 + end_s

    def __call__(self) -> float:
        return self.now_s

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += max(timeout or 0.0, 1e-3)
        if self.now_s > self.end_s:
            self.set()
        return self.is_set()


def played(
    tmp_path: Path, clock: Clock, site: Site = SITE, refuse: Callable[[str], bool] = lambda _: False
) -> list[tuple[float, str]]:
    """Run `drive` to the clock's end; the (seconds, what) that reached the cluster."""
    seen: list[tuple[float, str]] = []

    def hand_over(what: str) -> str:
        seen.append((clock() - 1000.0, what))
        if refuse(what):
            raise ClusterError("cluster", "it said no", "Ask for less")
        return "1"

    def submit(spec: JobSpec) -> str:
        return hand_over(spec.name)

    def fault(node: str, what: str) -> None:
        hand_over(f"{what} {node}")

    drive(submit, fault, site, Workspace(tmp_path), np.random.default_rng(0), clock, clock)
    return seen


def words(timed: Timed) -> str:
    step = timed.step
    return step.name if isinstance(step, Arrival) else f"{step.what} {NODES[step.node]}"


@given(st.lists(st.floats(0, 100), max_size=20).map(sorted), st.floats(-1, 101))
def test_due_splits_by_time(instants: list[float], now_s: float) -> None:
    ahead = [Timed(at_s, PlannedFault(0, 0, "fail"), "") for at_s in instants]
    ready, later = due(ahead, now_s)
    assert [*ready, *later] == ahead
    assert all(t.at_s <= now_s for t in ready)
    assert all(t.at_s > now_s for t in later)


def test_every_step_arrives_at_its_time(tmp_path: Path) -> None:
    seen = played(tmp_path, Clock(ROUND_S - 1))
    assert [what for _, what in seen] == [words(t) for t in FIRST_ROUND]
    assert all(abs(s - t.at_s) < 0.1 for (s, _), t in zip(seen, FIRST_ROUND, strict=True))


def test_round_follows_round(tmp_path: Path) -> None:
    seen = played(tmp_path, Clock(round_start_s(3) - 1))
    assert sum(what != LONG_RUN.name for _, what in seen) == 3 * len(FIRST_ROUND)


def test_half_the_pace_takes_half_the_time(tmp_path: Path) -> None:
    seen = played(tmp_path, Clock(ROUND_S / 2 - 1), Site(NODES, GPUS, pace=0.5))
    assert len(seen) == len(FIRST_ROUND)


def test_a_long_pause_puts_all_off_instead_of_a_rush(tmp_path: Path) -> None:
    clock = Clock(10_000.0)
    arrivals: list[float] = []

    def submit(spec: JobSpec) -> str:
        arrivals.append(clock())
        if spec.name == "lr-sweep" and len(arrivals) < 10:
            clock.now_s += 1000 * LATE_S
        if len(arrivals) > 30:
            clock.set()
        return "1"

    drive(submit, lambda node, what: None, SITE, Workspace(tmp_path), np.random.default_rng(0), clock, clock)
    assert max(sum(t <= u < t + 10 for u in arrivals) for t in arrivals) <= 9


@pytest.mark.parametrize("pace", [0.5, 1.0, 2.0])
def test_after_a_long_pause_steps_keep_their_distances(tmp_path: Path, pace: float) -> None:
    clock, site = Clock(ROUND_S * pace + 999), Site(NODES, GPUS, pace)
    usual = [at_s for at_s, _ in played(tmp_path, Clock(ROUND_S * pace - 1), site)]
    arrivals: list[float] = []

    def come(*_: Any) -> Any:
        arrivals.append(clock() - 1000.0)
        if len(arrivals) == 5:
            clock.now_s += 500.0
        return "1"

    drive(come, come, site, Workspace(tmp_path), np.random.default_rng(0), clock, clock)
    passed_s = usual[5] - arrivals[5] + 500.0  # until the next one, in which the pause began
    assert arrivals[5] >= arrivals[4] + 500.0
    assert np.diff(arrivals[5 : len(usual)]) == pytest.approx(np.diff(usual[5:]), abs=0.1)
    assert 0.0 <= passed_s <= usual[5] - usual[4] + 0.1


def test_what_the_cluster_refuses_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        seen = played(tmp_path, Clock(ROUND_S - 1), refuse=lambda what: what == "unet-w48")
    assert len(seen) == len(FIRST_ROUND)
    assert "it said no" in caplog.text


def test_a_node_that_somebody_else_broke_is_not_fixed(tmp_path: Path) -> None:
    seen = played(tmp_path, Clock(ROUND_S - 1), refuse=lambda what: what == "fail n2")
    assert "return n2" not in {what for _, what in seen}


@pytest.mark.parametrize(("until_s", "fixed"), [(80, ["return n2"]), (215, ["return n2", "thaw n3"]), (20, [])])
def test_stopping_mends_what_is_broken(tmp_path: Path, until_s: float, fixed: list[str]) -> None:
    seen = played(tmp_path, Clock(until_s))
    assert [what for _, what in seen if what.startswith(("return", "thaw"))] == fixed


@given(st.sampled_from(sorted(ARRIVALS)), st.integers(1, 8), st.integers(1, 64), st.sampled_from([0.1, 1.0]))
def test_a_job_fits_the_site_or_is_left_out(name: str, nodes: int, gpus: int, pace: float) -> None:
    site = Site(tuple(f"gpu{i}" for i in range(nodes)), gpus, pace)
    arrival = ARRIVALS[name]
    spec = job_spec(arrival, "key", site, Workspace(Path("/demo")))
    if spec is None:
        assert arrival.node_count > nodes
        return
    assert spec.node_count <= nodes
    assert spec.gpus_per_node <= gpus
    assert (spec.gpus_per_node == 0) == (arrival.gpu_quarters == 0)
    assert set(spec.require) <= set(site.nodes)
    assert "{key}" not in " ".join(spec.argv)


@given(st.integers(1, 64))
def test_the_urgent_job_never_fits_beside_the_one_it_pushes_aside(gpus: int) -> None:
    site = Site(NODES, gpus)
    specs = [job_spec(ARRIVALS[name], "", site, Workspace(Path("/demo"))) for name in ("resnet-low", "eval-urgent")]
    assert sum(spec.gpus_per_node for spec in specs if spec) > gpus
    assert {spec.require for spec in specs if spec} == {("n4",)}


def test_the_workspace_can_be_made_again(tmp_path: Path) -> None:
    prepare(tmp_path)
    workspace = prepare(tmp_path)
    assert (workspace.programs / "ablation.py").exists()
    assert not list(workspace.programs.glob("*.txt"))


def test_a_workspace_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file is in the way")
    with pytest.raises(StateError, match="cannot write there"):
        prepare(tmp_path / "demo")


def test_old_runs_are_let_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    run = workspace.home("mira") / "runs" / "job-1"
    run.mkdir(parents=True)
    written_s = run.stat().st_mtime
    workspace.tidy(written_s + KEEP_RUNS_S - 1)
    assert run.exists()
    workspace.tidy(written_s + KEEP_RUNS_S + 1)
    assert not run.exists()


def test_a_whole_round_reaches_a_real_cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sixty times as fast: every job and fault is accepted, and no node stays broken."""
    stop = threading.Event()
    submitted: list[str] = []
    with open_stage(tmp_path) as stage, caplog.at_level(logging.WARNING):

        def submit(spec: JobSpec) -> str:
            job_id = stage.backend.submit(spec)
            submitted.append(spec.name)
            if ARRIVALS.keys() <= set(submitted):
                stop.set()
            return job_id

        fast = Site(NODES, GPUS, pace=1 / 60)
        drive(submit, stage.backend.fault, fast, stage.workspace, np.random.default_rng(0), stop)
        assert len(submitted) == sum(len(scenario.jobs) for scenario in SCENARIOS)
        stage.until(lambda: all(n.state == "up" for n in stage.backend.observe(0.0).nodes), "all nodes are up")
    assert not [record for record in caplog.records if record.name == "perdure"]
