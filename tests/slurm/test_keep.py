"""Chains of jobs on a real Slurm: no link is lost or doubled, and its program never loses or repeats a step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.keeping import AGE, Work, competing_load, fill, gaps_s, jobs_of, kill, small_disk, violations

pytestmark = pytest.mark.slurm

BAR = 10  # links of the long test


@pytest.fixture
def work(quiet_cluster: SlurmCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Work]]:
    made: list[Work] = []

    def make(name: str, steps: int, **more: Any) -> Work:
        made.append(Work(quiet_cluster, f"{name}-{time.time_ns()}", steps, **more))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.timeout(420)
def test_a_chain_goes_on_through_its_walltime_and_kills_of_who_keeps_it(work: Callable[..., Work]) -> None:
    one = work("train", 260, gpus=1)
    keeper = one.keep("train.sh", "--progress", "progress", "--planner", "quantile")
    await_("its first step", one.log)
    kill(keeper)
    one.keep()
    await_("a second link", lambda: len(jobs_of(one.log())) > 1, 180, lambda: one.account())
    chain = one.ask("list")["chains"][0]
    await_("its end", lambda: one.ask("list")["chains"][0]["state"] == "done", 240, lambda: one.account())
    log = one.log()
    assert violations(log) == [], one.account()
    assert log[-1].step == 260
    shown = one.ask("show", chain["id"])
    ran = [link["job"] for link in shown["all_links"] if link["ran_s"]]
    assert ran == jobs_of(log)
    assert len(ran) == len(set(ran)) >= 3


@pytest.mark.timeout(300)
def test_a_successor_takes_over_from_a_running_link(work: Callable[..., Work]) -> None:
    """The handover ends the first link: its walltime, the environment's over the script's, is far away."""
    one = work("over", 10_000, minutes=20, gpus=1, variables={"SBATCH_TIMELIMIT": "10"})
    keeper = one.keep("train.sh", "--strategy", "hold")
    await_("its first step", one.log)
    await_("a held successor", lambda: len(one.ask("list")["chains"]) and one.ask("list")["chains"][0]["links"] == 2)
    second = await_("its id", lambda: one.ask("list")["chains"][0]["job"])
    assert one.cluster.run("squeue", "-h", "-O", "TimeLimit", "-j", second).strip() == "10:00"
    assert one.ask("show", one.ask("list")["chains"][0]["id"])["walltime_s"] == 600.0
    one.cluster.run("scontrol", "release", second)
    await_("the handover", lambda: jobs_of(one.log())[1:], 120, lambda: one.account())
    assert violations(one.log()) == [], one.account()
    assert jobs_of(one.log())[1] == second
    done = one.run("stop", one.ask("list")["chains"][0]["id"], "--now")
    assert done.returncode == 0, done
    assert keeper.wait(60) == 1


@pytest.mark.timeout(300)
def test_people_are_followed_and_never_fought(work: Callable[..., Work]) -> None:
    one = work("hand", 10_000, minutes=10, gpus=1)
    keeper = one.keep("train.sh")
    first = await_("its first step", one.log)[0].job_id
    second = one.run("train.sh")
    assert second.returncode == 2
    assert "keeps jobs of this name already" in second.stderr
    one.cluster.run("scancel", first)
    assert keeper.wait(120) == 1, one.account()
    chain = one.ask("list")["chains"][0]
    assert (chain["state"], chain["links"], chain["why"]) == ("stopped", 1, "link 1 was cancelled by hand")


@pytest.mark.timeout(300)
def test_a_failure_that_would_come_back_stops_the_chain_and_says_why(work: Callable[..., Work]) -> None:
    one = work("wrong", 5, gpus=1)
    (one.folder / "program.py").write_text("import no_such_module\n")
    assert one.keep("train.sh").wait(180) == 1, one.account()
    chain = one.ask("list")["chains"][0]
    assert (chain["state"], chain["links"]) == ("stopped", 1)
    assert "no_such_module" in chain["why"]


@pytest.mark.timeout(300)
def test_bad_input_is_answered_in_a_line(work: Callable[..., Work]) -> None:
    one = work("bad", 5, gpus=1)
    (one.folder / "endless.sh").write_text("#!/bin/sh\n#SBATCH --time=0\ntrue\n")
    for words, says in (
        (("nothing.sh",), "No such file"),
        (("endless.sh",), "not a limit"),
        (("train.sh", "--partition=nowhere"), "no such partition"),
        (("train.sh", "--partition=urgent", "--time=2-0"), "urgent allows 24 h"),
        (("train.sh", "--until", "soon"), "neither done, nor a number, nor a time"),
        (("train.sh", "--planner", "oracle-of-delphi"), "no planner has that name"),
        (("train.sh", "--array=1-3"), "a chain is one job at a time"),
        (("show", "nobody"), "no such chain"),
    ):
        done = one.run(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (words, done)
        assert says in done.stderr, (words, done)
    refused = one.run("train.sh", "--gres=gpu:99")
    assert refused.returncode == 1, refused
    assert one.ask("list")["chains"][-1]["links"] == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_state_disk_stops_and_doubles_no_chain(work: Callable[..., Work], tmp_path: Path) -> None:
    """Two links begin and end while nothing can be written; the keeper is killed in that time."""
    with small_disk(tmp_path / "disk") as disk:
        one = work("full", 100_000, gpus=1, state=disk)
        keeper = one.keep("train.sh", "--planner", "quantile", "--until", "5")
        await_("its first step", one.log)
        taken = fill(disk)
        await_("a second link", lambda: len(jobs_of(one.log())) > 1, 240, lambda: one.account())
        kill(keeper)
        keeper = one.keep()
        await_("a third link", lambda: len(jobs_of(one.log())) > 2, 300, lambda: one.account())
        assert "cannot be written (No space left on device)" in one.account()
        taken.unlink()
        await_("its end", lambda: one.ask("list")["chains"][0]["state"] == "done", 300, lambda: one.account())
        ran = [
            link["job"] for link in one.ask("show", one.ask("list")["chains"][0]["id"])["all_links"] if link["ran_s"]
        ]
    if where := os.environ.get("PERDURE_KEEP_FULL"):
        Path(where).write_text(one.account())
    assert violations(one.log()) == [], one.account()
    assert ran == jobs_of(one.log())
    assert len(ran) == len(set(ran)) == 5


@pytest.mark.slow
@pytest.mark.timeout(4200)
def test_ten_links_under_load_beside_afterany(quiet_cluster: SlurmCluster, work: Callable[..., Work]) -> None:
    """slurmctld and a node are killed once, the keeper five times; interruption is held against `--dependency`."""
    cluster = quiet_cluster
    with cluster.configured(AGE):
        load = competing_load(cluster, 3600, seed=1)
        try:
            await_("a load", lambda: len(cluster.run("squeue", "-h", "-t", "pending").split("\n")) > 3)
            kept = work("kept", 100_000, minutes=2)
            plain = work("plain", 100_000, minutes=2)
            keeper = kept.keep("train.sh", "--progress", "progress", "--until", str(BAR))
            last = ""
            for _ in range(BAR):
                options = (f"--dependency=afterany:{last}",) if last else ()
                argv = ("sbatch", "--parsable", f"--chdir={plain.folder}", *options, str(plain.folder / "train.sh"))
                last = cluster.run(*argv).strip()
            faults = {2: "keep", 3: "ctld", 4: "keep", 5: "node", 6: "keep", 7: "keep", 8: "keep"}
            end = time.monotonic() + 3600
            while time.monotonic() < end:
                links = len(jobs_of(kept.log()))
                if fault := faults.pop(links, ""):
                    time.sleep(20)
                    if fault == "keep":
                        kill(keeper)
                        keeper = kept.keep()
                    elif fault == "ctld":
                        cluster.crash_ctld()
                    else:
                        node = cluster.job(kept.log()[-1].job_id).get("NodeList", "")
                        cluster.fail_node(node)
                        time.sleep(20)
                        cluster.return_node(node)
                if keeper.poll() is not None and not cluster.run("squeue", "-h", "-n", plain.name).strip():
                    break
                time.sleep(2)
        finally:
            load.kill()
            load.wait()
    told: dict[str, Any] = {
        "keep": {"gaps_s": gaps_s(kept.log()), "links": len(jobs_of(kept.log()))},
        "afterany": {"gaps_s": gaps_s(plain.log()), "links": len(jobs_of(plain.log()))},
        "chain": kept.ask("list")["chains"],
        "left": faults,
    }
    if where := os.environ.get("PERDURE_KEEP_FIGURES"):
        told["links"] = kept.ask("show", told["chain"][0]["id"])["all_links"]
        Path(where).write_text(json.dumps(told, indent=1))
    assert violations(kept.log()) == [], kept.account()
    assert not faults
    assert sum(told["keep"]["gaps_s"]) < sum(told["afterany"]["gaps_s"]), told
