"""`perdure keep` without a Slurm: what it asks for, writes down, decides and shows."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from perdure.backends.slurm.submission import SbatchOption, options_in_force
from perdure.backends.slurm.tools import Tools
from perdure.cli import (
    chain_journal,
    completion_values,
    keep_outlook,
    keep_run,
    keep_shown,
    keep_start,
    keeper,
    link_order,
)
from perdure.cli.chain_journal import ChainJournal, refuse_second
from perdure.cli.keep_judge import judge_link
from perdure.cli.keep_outlook import Outlook, Outlooks
from perdure.cli.keep_plan import Deciding, view_of
from perdure.cli.keep_shown import list_chains, times_of
from perdure.cli.keep_start import KeepRequest, until_of
from perdure.cli.keeper import Keeper
from perdure.cli.lookout import LOOK_S, Look, Lookout
from perdure.cli.main import main
from perdure.cli.trained_planner import checked_planner
from perdure.durable import write_whole
from perdure.errors import ClusterBusy, ConfigError, InputError, NotFound, StateError
from perdure.job.link_marks import LinkBegun, LinkEnded, LinkMarks
from perdure.model.job_comment import chain_link_of
from perdure.model.jobs import JobState
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.slurm_words.link_job import LinkJob
from perdure.succession import messages
from perdure.succession.chain_state import ChainSpec, ChainStanding, JobChain, Link, Phase, Strategy
from perdure.succession.planners import stopping
from perdure.succession.planners.stopping import Stopping, StoppingWeights
from perdure.succession.protocol import Decision, Forecast, ForecastOutcome
from perdure.succession.queue_state import NAMES
from perdure.succession.trained import TrainedFor, packed
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition

NOW = 2_000_000_000.0
SPEC = ChainSpec("train-1", "train-1.ab", "train", "/w/train.sh", "/w", "a", NOW, 1000.0)
WAITS = replace(SPEC, planner="conformal")
RUNNING = Link(1, Phase.RUNNING, job_id="1", submitted_s=NOW, started_s=NOW + 10, ends_s=NOW + 1010)


@pytest.fixture
def journal(tmp_path: Path) -> ChainJournal:
    return ChainJournal.of({"PERDURE_KEEP_DIR": str(tmp_path)}, "a cluster")


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A squeue that counts how often it is called."""
    count = tmp_path / "count"
    tool = tmp_path / "bin" / "squeue"
    tool.parent.mkdir()
    tool.write_text(
        f"#!/bin/sh\necho >>{count}\necho '7|{os.getuid()}|RUNNING|None|1|2|3|perdure-keep=train-1.ab/1.1'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return count


def test_all_processes_of_a_user_ask_slurm_once_a_minute_together(squeue: Path) -> None:
    one, two = Lookout(Tools(), os.getuid()), Lookout(Tools(), os.getuid())
    now = time.time()
    for second in range(0, int(LOOK_S), 5):
        for lookout in (one, two):
            assert [job.key for job in lookout.look(now + second).jobs or ()] == ["1.1"]
    assert squeue.read_text() == "\n"


def test_a_look_of_another_process_is_taken_if_it_is_newer(squeue: Path) -> None:
    now = time.time()
    lookout = Lookout(Tools(), os.getuid())
    seen = lookout.look(now).jobs
    kept = next((squeue.parent / "cache").rglob("look.json"))
    for ago_s, jobs in ((1.0, seen), (-1.0, ())):
        squeue.write_text("")
        kept.write_bytes(msgspec.json.encode(((), now - ago_s)))
        assert lookout.look(now + LOOK_S).jobs == jobs
        assert squeue.read_text() == ("\n" if ago_s > 0 else "")
        lookout = Lookout(Tools(), os.getuid())
        lookout._look = Look(seen, now)


def test_a_controller_that_does_not_answer_is_not_asked_more_often(squeue: Path) -> None:
    tool = squeue.parent / "bin" / "squeue"
    tool.write_text(f"#!/bin/sh\necho >>{squeue}\necho 'error' >&2\nexit 1\n")
    lookout = Lookout(Tools(), os.getuid())
    now = time.time()
    assert [lookout.look(now + second).jobs for second in range(0, 55, 5)] == [None] * 11
    assert squeue.read_text() == "\n"


def test_chains_are_numbered_by_the_name_of_their_jobs(journal: ChainJournal) -> None:
    kept = [journal.make(name) for name in ("train", "train", "a/b c")]
    assert [each.id for each in kept] == ["train-1", "train-2", "a-b-c-1"]
    with pytest.raises(NotFound, match="no such chain"):
        journal.find("../../etc")


def test_a_second_chain_of_the_same_jobs_is_refused_while_the_first_runs(journal: ChainJournal) -> None:
    kept = journal.make("train")
    (kept.path / "plan.json").write_text("{}")
    kept.write(JobChain(SPEC))
    with pytest.raises(InputError, match="chain train-1 keeps jobs of this name already"):
        refuse_second(journal, "train", "/w")
    refuse_second(journal, "train", "/elsewhere")
    kept.write(JobChain(SPEC, standing=ChainStanding.DONE, why="done"))
    refuse_second(journal, "train", "/w")
    assert kept.folder.over.read_text() == "done"


def test_chains_of_one_name_in_other_directories_are_told_apart_by_chdir(journal: ChainJournal) -> None:
    kept = journal.make("train")
    plan = chain_journal.LinkPlan((("chdir", "run-1", ("--chdir", "run-1")),), 0, ("/bin/sh",))
    (kept.path / "plan.json").write_bytes(msgspec.json.encode(plan))
    kept.write(JobChain(SPEC))
    refuse_second(journal, "train", "/w/run-2")
    with pytest.raises(InputError, match="keeps jobs of this name already"):
        refuse_second(journal, "train", "/w/run-1")


def test_of_two_that_begin_the_same_chain_at_once_one_is_refused(
    journal: ChainJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n")
    told = []
    monkeypatch.setattr(keep_start, "_walltime_s", lambda *_: 1000.0)

    def slowly(*words: Any) -> None:
        time.sleep(0.3)
        refuse_second(*words)
        time.sleep(0.3)

    monkeypatch.setattr(keep_start, "refuse_second", slowly)

    def begin() -> None:
        try:
            keep_start.make_chain(KeepRequest([str(script)]), journal, Tools(), NOW)
        except InputError as err:
            told.append(err.what)

    both = [threading.Thread(target=begin) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert told == ["chain train-sh-1 keeps jobs of this name already"]
    assert [each.id for each in journal.chains()] == ["train-sh-1"]


def test_one_process_drives_a_chain(journal: ChainJournal) -> None:
    kept = journal.make("train")
    with kept.held() as mine, kept.held() as others:
        assert (mine, others) == (True, False)
    with kept.held() as again:
        assert again


def test_a_directory_that_others_may_write_to_is_refused(journal: ChainJournal) -> None:
    journal.make("train")
    journal.path.chmod(0o770)
    for ask in (journal.chains, lambda: journal.find("train-1"), lambda: journal.make("train")):
        with pytest.raises(StateError, match="another user may write there"):
            ask()


def keeper_of(journal: ChainJournal, told: list[Any]) -> Keeper:
    """One that decides nothing, on a Slurm that does not answer."""
    silent = SimpleNamespace(look=lambda now: Look())
    return Keeper(journal, silent, Tools(), None, None, lambda id_, text: told.append((id_, text)), lambda now: False)  # type: ignore[arg-type]


def kept_chain(journal: ChainJournal, name: str = "train") -> chain_journal.KeptChain:
    kept = journal.make(name)
    kept.write(JobChain(replace(SPEC, id=kept.id), links=(Link(1, Phase.WAITING, job_id="1", submitted_s=NOW),)))
    return kept


def test_a_chain_that_another_process_drives_costs_no_open_file(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, others = kept_chain(journal, "own"), kept_chain(journal, "others")
    counts = []

    def next_round(_: object) -> None:
        counts.append(len(os.listdir("/proc/self/fd")))
        if len(counts) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(keeper.time, "sleep", next_round)  # type: ignore[attr-defined]
    with others.held(), pytest.raises(KeyboardInterrupt):
        keeper_of(journal, []).keep(None)
    assert counts == counts[:1] * 5
    with own.held() as free:
        assert free


def test_a_chain_that_cannot_be_read_keeps_no_other_from_going_on(
    journal: ChainJournal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = kept_chain(journal, "broken"), kept_chain(journal, "good")
    (broken.path / "chain.json").write_text('{"edited": ')
    told = []
    watched = keeper_of(journal, told)
    for _ in range(2):
        watched.keep(None, once=True)
    refuse_second(journal, "train", "/elsewhere")
    monkeypatch.setattr(keep_shown, "_journal", lambda: journal)
    list_chains(False, wide=True)
    said = capsys.readouterr()
    assert good.id in said.out
    assert f"{broken.path}/chain.json: cannot be read" in said.err
    assert [id_ for id_, _ in told] == [broken.id]
    assert f"nobody keeps it: {broken.path}/chain.json: cannot be read" in told[0][1]


def test_a_full_disk_is_said_once_and_tried_again(journal: ChainJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    full, good = kept_chain(journal, "full"), kept_chain(journal, "good")
    rounds, driven = [], []

    def drive(keeper: Keeper, kept: chain_journal.KeptChain, chain: JobChain) -> bool:
        driven.append(kept.id)
        if kept.id == full.id:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return True

    def next_round(_: object) -> None:
        rounds.append(0)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "_driven", drive)
    monkeypatch.setattr(keeper.time, "sleep", next_round)  # type: ignore[attr-defined]
    told = []
    with pytest.raises(KeyboardInterrupt):
        keeper_of(journal, told).keep(None)
    assert sorted(driven) == [full.id] * 3 + [good.id] * 3
    assert told == [(full.id, "its directory cannot be used (No space left on device): this is tried again")]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Whether states of chains can be written: `disk.is_full`."""
    disk = SimpleNamespace(is_full=False)

    def write_if_there_is_room(path: Path, data: bytes, mode: int) -> None:
        if disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, data, mode)

    monkeypatch.setattr(chain_journal, "write_whole", write_if_there_is_room)
    return disk


@dataclass
class SmallSlurm:
    """It takes jobs and shows those of this user at once."""

    jobs: dict[str, LinkJob] = field(default_factory=dict)
    asked: int = 0

    def submit(self, order: Any, _: object) -> str:
        found = chain_link_of(next(each for each in order.options if each.startswith("--comment=")))
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = LinkJob(job_id, "PENDING", submit_s=time.time(), chain=found.chain, key=found.key)
        return job_id

    def look(self, now: float) -> Look:
        self.asked += 1
        return Look(tuple(self.jobs.values()), now)


def chain_on(
    slurm: SmallSlurm, journal: ChainJournal, monkeypatch: pytest.MonkeyPatch
) -> tuple[chain_journal.KeptChain, list[Any], Callable[[], Callable[[], None]]]:
    """A new chain of reactive links, and what keeps it, a new life each time it is called."""
    kept, told = journal.make("train"), []
    kept.write(JobChain(replace(SPEC, id=kept.id, walltime_s=1000.0, created_s=time.time())))
    plan = chain_journal.LinkPlan((), 0, ("/bin/sh", "script"))
    (kept.path / "plan.json").write_bytes(msgspec.json.encode(plan))
    (kept.path / "environment.json").write_text("{}")
    monkeypatch.setattr(keeper, "submit", slurm.submit)
    monkeypatch.setattr(keeper, "ended_job", lambda _, job_id, *__: slurm.jobs.get(job_id))

    def life() -> Callable[[], None]:
        tell = lambda id_, text: told.append(text)  # noqa: E731
        lookout: Any = slurm
        made = Keeper(journal, lookout, Tools(), Deciding(lambda *_: Outlook()), judge_link, tell, lambda now: False)
        return lambda: made.keep(None, once=True)

    return kept, told, life


def test_a_full_disk_stops_and_doubles_no_chain_and_it_is_written_once_there_is_room(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, disk: SimpleNamespace
) -> None:
    slurm = SmallSlurm()
    kept, told, life = chain_on(slurm, journal, monkeypatch)
    keep = life()
    keep()
    disk.is_full = True
    began_s = time.time() - 990
    slurm.jobs["1"] = replace(slurm.jobs["1"], state="TIMEOUT", submit_s=began_s, start_s=began_s, end_s=time.time())
    for _ in range(3):
        keep()
    assert [job.key for job in slurm.jobs.values()] == ["1.1", "2.1"]
    assert [text for text in told if "cannot be written" in text] == [
        "its state cannot be written (No space left on device): it goes on by what Slurm shows, until there is room"
    ]
    assert [link.phase for link in kept.read().links] == [Phase.WAITING]
    assert kept.is_behind()
    life()()  # it was killed: the next one asks Slurm first
    assert [job.key for job in slurm.jobs.values()] == ["1.1", "2.1"]
    disk.is_full = False
    keep = life()
    keep()
    assert [link.job_id for link in kept.read().links] == ["1", "2"]
    assert not kept.is_behind()
    assert "link 2, job 2, was not written down, and was found" in told


def test_after_a_full_disk_nothing_is_submitted_by_an_older_look(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, disk: SimpleNamespace
) -> None:
    slurm = SmallSlurm()
    kept, _, life = chain_on(slurm, journal, monkeypatch)
    kept.fall_behind()
    monkeypatch.setattr(SmallSlurm, "look", lambda _, now: Look((), now - 30.0))
    monkeypatch.setattr(keeper, "MOST_UNSURE_S", 0.0)
    life()()
    assert slurm.jobs == {}
    assert kept.is_behind()


def test_a_disk_that_takes_no_word_at_all_keeps_links_from_being_submitted(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, disk: SimpleNamespace
) -> None:
    """What is done could not be found again."""
    slurm = SmallSlurm()
    _, told, life = chain_on(slurm, journal, monkeypatch)
    disk.is_full = True
    monkeypatch.setattr(chain_journal, "sync_directory", lambda path: write_whole(path / "no" / "file", b""))
    life()()
    assert slurm.jobs == {}
    assert "this is tried again" in told[0]


def test_another_users_job_that_says_that_it_is_a_link_of_ours_is_none(
    journal: ChainJournal, squeue: Path, monkeypatch: pytest.MonkeyPatch, disk: SimpleNamespace
) -> None:
    """Nor is one that takes the number of a link of ours, where a controller has lost its state."""
    slurm = SmallSlurm()
    kept, _, life = chain_on(slurm, journal, monkeypatch)
    life()()
    forged = "|RUNNING|None|1|2|3|perdure-keep=train-1.ab/"
    lines = "".join(f"{100 + n}|{os.getuid() + 1}{forged}{n}.9\n" for n in (1, 2, 3))
    (squeue.parent / "lines").write_text(
        f"1|{os.getuid()}|PENDING|None|{time.time():.0f}|0|0|perdure-keep=train-1.ab/1.1\n{lines}"
    )
    (squeue.parent / "bin" / "squeue").write_text(f"#!/bin/sh\ncat {squeue.parent}/lines\n")
    look = Lookout(Tools(), os.getuid()).look(time.time() + 3600)
    monkeypatch.setattr(SmallSlurm, "look", lambda _, now: look)
    cancelled = []
    monkeypatch.setattr(keeper, "cancel", lambda _, job_id: cancelled.append(job_id))
    life()()
    assert [(link.number, link.tries, link.job_id) for link in kept.read().links] == [(1, 1, "1")]
    assert cancelled == []


def test_a_link_is_written_down_before_it_is_submitted(journal: ChainJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = journal.make("train")
    kept.write(JobChain(replace(SPEC, id=kept.id)))
    there = []
    monkeypatch.setattr(keeper, "order_of", lambda *_: None)
    monkeypatch.setattr(keeper, "submit", lambda *_: there.append(kept.read().links[0].phase) or "7")  # type: ignore[func-returns-value]
    keeper_of(journal, []).keep(None, once=True)
    assert there == [Phase.INTENDED]
    assert kept.read().links[0].job_id == "7"


def test_what_did_nothing_is_not_asked_of_slurm_each_second(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_chain(journal)
    kept.write(replace(kept.read(), standing=ChainStanding.STOPPED, why="its user has stopped it"))
    cancelled, rounds = [], []

    def next_round(_: object) -> None:
        rounds.append(0)
        if len(rounds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(keeper, "cancel", lambda _, job_id: cancelled.append(job_id))
    monkeypatch.setattr(keeper.time, "sleep", next_round)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        keeper_of(journal, []).keep(None)
    assert cancelled == ["1"]


def test_what_was_just_tried_for_one_chain_is_tried_for_another(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that have come equally far the links bear the same numbers."""
    tried = []
    for name in ("one", "two"):
        kept = kept_chain(journal, name)
        kept.write(replace(kept.read(), standing=ChainStanding.STOPPED, why="its user has stopped it"))
    monkeypatch.setattr(keeper, "cancel", lambda _, job_id: tried.append(job_id))
    keeper_of(journal, []).keep(None, once=True)
    assert tried == ["1", "1"]


def test_what_a_link_says_is_read_while_its_successors_wait(journal: ChainJournal) -> None:
    kept = kept_chain(journal)
    links = tuple(Link(number, Phase.WAITING, job_id=str(number)) for number in range(1, 6))
    seen = keeper_of(journal, [])._seen(kept, replace(kept.read(), links=links))
    assert sorted(seen.marks) == [3, 4, 5]


def test_to_stop_a_chain_says_what_was_asked_of_whom(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = kept_chain(journal)
    cancelled = []
    monkeypatch.setattr(keep_run.ChainJournal, "of", lambda *_: journal)  # type: ignore[attr-defined]
    monkeypatch.setattr(keep_run, "cluster_name", lambda _: "a-cluster")
    monkeypatch.setattr(keep_run, "_keeper", lambda *_, once: keeper_of(journal, []))
    monkeypatch.setattr(keeper, "cancel", lambda _, job_id: cancelled.append(job_id))
    with kept.held():
        keep_run.stop_chain(kept.id, at_once=True)
    assert (capsys.readouterr().out, cancelled) == (
        f"chain {kept.id}: another process keeps it, and stops it at its next look\n", [],
    )  # fmt: skip
    keep_run.stop_chain(kept.id, at_once=True)
    assert (capsys.readouterr().out, cancelled) == (
        f"chain {kept.id}: it is stopped; asked Slurm to cancel job 1\n", ["1"],
    )  # fmt: skip


@pytest.mark.parametrize("asked", [*product((False, True), repeat=3)])
@pytest.mark.parametrize("last", ["", "link 2, which waited, was cancelled by hand"])
def test_whatever_was_asked_before_now_is_now(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, asked: tuple[bool, ...], last: str
) -> None:
    """Each time another process asks, and whoever keeps the chain hears of it at its next look."""
    kept = kept_chain(journal)
    kept.write(replace(kept.read(), links=(RUNNING,), last=last))
    cancelled = []
    monkeypatch.setattr(keeper, "cancel", lambda _, job_id: cancelled.append(job_id))
    for number, at_once in enumerate(asked, 1):
        kept.ask_stop(at_once)
        keeper_of(journal, []).keep(None, once=True)
        is_now = any(asked[:number])
        assert set(cancelled) == ({"1"} if is_now else set())
        assert kept.read().standing is (ChainStanding.STOPPED if is_now else ChainStanding.RUNNING)
        assert kept.read().last or is_now


def test_what_cannot_be_written_is_said_in_a_line(journal: ChainJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_chain(journal)
    shutil.rmtree(kept.path)
    with pytest.raises(StateError, match="cannot be written"):
        kept.ask_stop(True)


def test_what_cannot_be_read_is_said(journal: ChainJournal) -> None:
    kept = journal.make("train")
    (kept.path / "chain.json").write_text('{"spec": 1}')
    with pytest.raises(StateError, match="cannot be read"):
        kept.read()


@pytest.mark.parametrize(("text", "wanted"), [("done", (None, None)), ("10", (10, None)), ("+1h", (None, NOW + 3600))])
def test_until_is_done_a_number_or_a_time(text: str, wanted: tuple[int | None, float | None]) -> None:
    assert until_of(text, NOW) == wanted


@pytest.mark.parametrize("text", ["0", "soon", "2001-01-01", "-1", "9999999", "100001", "9" * 5000])
def test_another_until_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(InputError, match="--until") as told:
        until_of(text, NOW)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 150


def test_a_walltime_of_the_environment_that_is_none_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "foo")
    options = options_in_force([SbatchOption("time", "10", ("--time=10",))], os.environ, ())
    with pytest.raises(InputError, match=r"^train\.sh: SBATCH_TIMELIMIT=foo is not a time"):
        keep_start._walltime_s(options, "train.sh", Tools())


def _partition(name: str, default_time_s: float) -> QueuedPartition:
    return QueuedPartition(name, is_default=name == "main", max_time_s=86_400.0, default_time_s=default_time_s)


PLACES = (_partition("main", 100.0), _partition("one", 101.0), _partition("two", 102.0), _partition("three", 103.0))
READ: dict[str, tuple[str, dict[str, Any]]] = {  # by option: its variable, and what a chain has by which value
    "time": ("SBATCH_TIMELIMIT", {"": 100.0, "1": 60.0, "2": 120.0, "3": 180.0}),
    "partition": ("SBATCH_PARTITION", {"": 100.0, "one": 101.0, "two": 102.0, "three": 103.0}),
    "job-name": ("SBATCH_JOB_NAME", {"": "train.sh", "one": "one", "two": "two", "three": "three"}),
    "signal": (
        "SBATCH_SIGNAL",
        {
            "": ("", False, 120.0),
            "B:USR1@10": ("USR1", False, 10.0),
            "35@20": ("35", True, 20.0),  # which has no name
            "B:USR2@30": ("USR2", False, 30.0),
        },
    ),
}
ORDERS = list(product((False, True), repeat=3))  # whether it is in the script, in the environment, on the command line


@pytest.mark.parametrize("given", ORDERS)
@pytest.mark.parametrize("option", READ)
def test_the_command_line_wins_over_the_environment_and_this_over_the_script(
    option: str, given: tuple[bool, ...], journal: ChainJournal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As sbatch takes them: tests/slurm/test_keep.py asks it."""
    monkeypatch.setattr(keep_start, "read_partitions", lambda _: PLACES)
    variable, read = READ[option]
    own, by_variable, on_line = (text if is_given else "" for text, is_given in zip([*read][1:], given, strict=True))
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/sh\n{f'#SBATCH --{option}={own}' if own else ''}\n")
    for other, _ in READ.values():
        monkeypatch.delenv(other, raising=False)
    if by_variable:
        monkeypatch.setenv(variable, by_variable)
    words = [f"--{option}={on_line}", str(script)] if on_line else [str(script)]
    kept = keep_start.make_chain(KeepRequest(words), journal, Tools(), NOW)
    spec, plan = kept.read().spec, kept.plan()
    found = {"job-name": spec.name, "signal": (plan.signal, plan.to_steps, plan.grace_s)}.get(option, spec.walltime_s)
    assert found == read[on_line or by_variable or own]
    submitted = [f"--{option}={text}" for text in (own, on_line) if text]
    assert [" ".join(words) for _, _, words in plan.options] == submitted  # sbatch itself takes the variable
    assert kept.environment().get(variable, "") == by_variable


@pytest.mark.parametrize("given", ORDERS)
def test_the_wait_of_a_successor_is_asked_for_what_sbatch_would_take(given: tuple[bool, ...]) -> None:
    in_script, in_environment, on_line = given
    script = b"#!/bin/sh\n#SBATCH -p one -t 1 --gres=gpu:1\n" if in_script else b"#!/bin/sh\n"
    kept = {"SBATCH_PARTITION": "two", "SBATCH_TIMELIMIT": "2", "SBATCH_GRES": "gpu:2"} if in_environment else {}
    spec = replace(SPEC, options=("-p", "three", "-t", "3", "--gres=gpu:3") if on_line else ())
    job = keep_outlook.successor_of(JobChain(spec), kept, Queue(NOW, (), (), PLACES), script, SiteLimits())
    wanted = max((at for at, is_given in enumerate(given, 1) if is_given), default=0)
    assert job.partitions == (PLACES[wanted].name,)
    assert (job.gpus, job.walltime_s) == (wanted, 60.0 * wanted or 100.0)


def test_slurm_is_asked_about_who_runs_this_whatever_the_environment_says(
    journal: ChainJournal, squeue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "another")
    monkeypatch.setenv("LOGNAME", "another")
    tool = squeue.parent / "bin" / "squeue"
    tool.write_text(f'#!/bin/sh\necho "$*" >>{squeue}\n')
    keep_run._keeper(journal, Tools(), once=False).lookout.look(time.time())
    assert f"-u {os.getuid()} " in squeue.read_text()


def test_a_decision_waits_for_no_forecast() -> None:
    decision, said = Deciding(lambda chain, now: None)(JobChain(WAITS, (RUNNING,)), RUNNING, NOW + 20)
    assert (decision.submit, decision.again_at, said) == (False, NOW + 22, None)


def test_the_default_planner_submits_by_the_forecast_and_the_reactive_one_asks_for_none() -> None:
    def long(chain: Any, now: float) -> Outlook:
        return Outlook(Forecast.of_samples([2000.0]))

    def none(chain: Any, now: float) -> None:
        raise AssertionError

    assert Deciding(long)(JobChain(WAITS, (RUNNING,)), RUNNING, NOW + 20)[0].submit
    assert not Deciding(none)(JobChain(SPEC, (RUNNING,)), RUNNING, NOW + 20)[0].submit
    assert Deciding(none)(JobChain(SPEC, (RUNNING,)), RUNNING, NOW + 1010)[0].submit


@pytest.mark.parametrize(
    "name", ["forest", "boosted", "stopping", "dqn", "dqn-transformer", "gradient", "gradient-transformer"]
)
def test_a_planner_that_has_no_training_is_refused_in_a_line(name: str) -> None:
    """It would submit each successor at the end."""
    with pytest.raises(ConfigError, match=f"study successors --planners {name} --save DIR") as told:
        checked_planner(name, None)
    assert "or use one of: reactive, average, quantile, rollout, conformal" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A file of optimal stopping for links of 1,000 s, which submits at once whatever it sees."""
    weight = np.full((len(stopping.PRICES), 5, len(stopping.AROUND_H) + 4), -1.0)
    planner = Stopping(StoppingWeights(200.0, weight))
    path = tmp_path / "stopping.planner"
    path.write_bytes(packed(planner, TrainedFor(4, 1000.0, 200.0, "a trace", 9)))
    return path


def test_a_trained_planner_decides_of_a_live_chain_and_is_copied_into_it(
    journal: ChainJournal, training: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keep_start, "_walltime_s", lambda *_: 1000.0)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    name, file = checked_planner(None, training)
    kept = keep_start.make_chain(KeepRequest([str(script)], planner=name, trained=file), journal, Tools(), NOW)
    training.unlink()
    outlook = Outlook(Forecast.of_samples([10.0]), state=(0.5,) * len(NAMES))
    chain = replace(kept.read(), links=(RUNNING,))
    decision, _ = Deciding(lambda *_: outlook, journal.path)(chain, RUNNING, NOW + 20)
    assert (chain.spec.planner, decision.submit) == ("stopping", True)
    (kept.path / "planner").write_bytes(b"damaged")
    decision, _ = Deciding(lambda *_: outlook, journal.path)(chain, RUNNING, NOW + 20)
    assert not decision.submit
    assert decision.reason.startswith(
        "its trained planner cannot be read (it is not a trained planner of this version, or"
    )


@pytest.mark.parametrize(
    ("name", "walltime_s", "says"),
    [
        ("forest", 1000.0, "it is the training of stopping, not of forest"),
        ("conformal", 1000.0, "it is the training of stopping, not of conformal"),
        ("stopping", 2001.0, "trained for links of 16.7 min, and these run for 33.4 min"),
        ("stopping", 499.0, "trained for links of 16.7 min"),
    ],
)
def test_training_for_something_else_is_refused_in_a_line(
    training: Path, name: str, walltime_s: float, says: str
) -> None:
    with pytest.raises(InputError, match=says) as told:
        checked_planner(name, training)[1].check(walltime_s)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("data", [None, b"", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_training_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None
) -> None:
    if data is not None:
        (tmp_path / "file").write_bytes(data)
    with pytest.raises(InputError, match="file: ") as told:
        checked_planner("forest", tmp_path / "file")
    assert "\n" not in str(told.value)


def test_planners_that_look_back_see_looks_an_hour_apart() -> None:
    seen = []
    deciding = Deciding(lambda chain, now: Outlook(state=(now,)))

    def decide(view: Any) -> Decision:
        seen.append(view.queue)
        return Decision(False, NOW, "wait")

    deciding._planners[SPEC.id] = SimpleNamespace(name="dqn", decide=decide)
    for minute in range(0, 150, 30):
        deciding(JobChain(SPEC, (RUNNING,)), RUNNING, NOW + 60 * minute)
    assert [[(at - NOW) / 60 for (at,) in looks] for looks in seen] == [[0], [30], [0, 60], [0, 90], [0, 60, 120]]


def test_a_look_at_the_live_queue_is_what_planners_have_learned() -> None:
    jobs = (
        QueuedJob("1", "a", JobState.RUNNING, ("gpu",), gpus=4, walltime_s=7e3, submit_s=NOW - 9e3, start_s=NOW - 3e3),
        QueuedJob("2", "b", JobState.PENDING, ("gpu", "cpu"), gpus=2, walltime_s=3600.0, submit_s=NOW - 1800, tasks=3),
        QueuedJob("3", "b", JobState.HELD, ("gpu",), gpus=8, walltime_s=3600.0, submit_s=NOW),
        QueuedJob("4", "b", JobState.PENDING, ("cpu",), gpus=8, walltime_s=3600.0, submit_s=NOW),
        QueuedJob("5", "b", JobState.PENDING, ("gpu",), walltime_s=3600.0, submit_s=NOW),
    )  # fmt: skip
    nodes = (QueuedNode("n1", ("gpu",), gpus=8), QueuedNode("n2", ("cpu",)))
    queue = Queue(NOW, jobs, nodes, (QueuedPartition("gpu"), QueuedPartition("cpu")))
    told = dict(zip(NAMES, keep_outlook.state_of(queue, jobs[0]), strict=True))
    assert np.expm1([told["waiting"], told["running"]]) == pytest.approx([3, 1])
    assert [told[name] for name in ("waiting_gpus", "running_gpus", "free_gpus", "waiting_age_h_max")] == [
        0.75, 0.5, 0.5, 0.5,
    ]  # fmt: skip
    assert keep_outlook.state_of(queue, replace(jobs[3], partitions=("cpu",))) == ()


@pytest.mark.parametrize("name", [None, "reactive", "average", "quantile", "rollout", "conformal"])
def test_a_planner_that_needs_no_training_is_taken(name: str | None) -> None:
    assert checked_planner(name, None) == (name or "conformal", None)


@pytest.mark.parametrize("name", ["rollout", "conformal"])
def test_without_a_forecast_the_waits_of_like_jobs_decide(name: str) -> None:
    chain = JobChain(replace(SPEC, planner=name), (RUNNING,))
    waits = Outlook(recent=(2000.0,) * 9)
    decision, said = Deciding(lambda chain, now: waits)(chain, RUNNING, NOW + 20)
    assert (decision.submit, said) == (True, None)
    assert decision.reason.startswith(
        "nobody can say how long the successor would wait: the 80% quantile of the last 10 w"
    )


def test_short_links_are_decided_about_often() -> None:
    def short(chain: Any, now: float) -> Outlook:
        return Outlook(Forecast.of_samples([1.0]))

    spec = replace(WAITS, walltime_s=120.0)
    link = Link(1, Phase.RUNNING, started_s=NOW, ends_s=NOW + 120)
    assert Deciding(short)(JobChain(spec, (link,)), link, NOW + 1)[0].again_at == NOW + 16


def test_a_planner_sees_what_was_said_of_others_jobs_and_of_earlier_links() -> None:
    before = Link(1, Phase.ENDED, submitted_s=NOW, started_s=NOW + 50, said=Forecast.of_samples([40.0]))
    others = ForecastOutcome(Forecast.of_samples([7.0]), 8.0, True)
    view = view_of(JobChain(SPEC, (before, RUNNING)), RUNNING, NOW + 100, Outlook(None, (7.0,), (others,)))
    assert view.recent == (7.0, 50.0, 10.0)
    told = [(each.said.mean_s, each.wait_s, each.started) for each in view.outcomes]
    assert told == [(7.0, 8.0, True), (40.0, 50.0, True)]


@pytest.mark.parametrize(("prints", "wanted"), [('{"recent":[1.0]}', (1.0,)), ("nothing", ())])
def test_an_outlook_is_made_beside_and_a_failed_one_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, wanted: tuple[float, ...]
) -> None:
    started = keep_outlook._started
    monkeypatch.setattr(keep_outlook, "_started", lambda argv: started((sys.executable, "-c", f"print({prints!r})")))
    outlooks, chain = Outlooks(tmp_path), JobChain(SPEC)
    assert outlooks(chain, NOW) is None
    end = time.monotonic() + 30
    while (found := outlooks(chain, NOW + 1)) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert found.recent == wanted


def found_out(
    monkeypatch: pytest.MonkeyPatch, ends: Callable[[], int | None] = lambda: 0, told: bytes = b"{}"
) -> list[str]:
    """Let outlooks be found out by processes that end when they are told to; returns those that were started."""
    started = []

    def start(argv: Any) -> SimpleNamespace:
        process = SimpleNamespace(stdout=io.BytesIO(told), poll=ends)
        started.append(Path(argv[-1]).name)
        return process

    monkeypatch.setattr(keep_outlook, "_started", start)
    return started


def test_few_outlooks_are_made_at_once_and_each_chain_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [None]
    started = found_out(monkeypatch, lambda: ends[0])
    outlooks, chains = Outlooks(tmp_path), [JobChain(replace(SPEC, id=f"c-{number}")) for number in range(6)]
    assert [outlooks(chain, NOW) for chain in chains] == [None] * 6
    assert started == ["c-0", "c-1"]
    ends[0] = 0  # type: ignore[call-overload]
    for second in range(2, 60, 2):
        for chain in chains:
            outlooks(chain, NOW + second)
    assert sorted(started) == [f"c-{number}" for number in range(6)]


def test_an_outlook_that_is_too_old_is_made_again_before_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_out(monkeypatch, told=b'{"recent":[1.0]}')
    outlooks, chain = Outlooks(tmp_path), JobChain(SPEC)
    assert outlooks(chain, NOW) is None
    assert outlooks(chain, NOW + 2).recent == (1.0,)
    assert outlooks(chain, NOW + 3 * 3600) is None
    assert outlooks(chain, NOW + 3 * 3600 + 2).recent == (1.0,)


def test_no_link_is_submitted_by_an_outlook_from_before_the_running_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = found_out(monkeypatch, told=b'{"recent":[1.0]}')
    outlooks, chain = Outlooks(tmp_path), JobChain(SPEC, (RUNNING,))
    assert outlooks(chain, NOW + 11) is None
    assert outlooks(chain, NOW + 13) is not None
    following = JobChain(SPEC, (RUNNING, replace(RUNNING, number=2, started_s=NOW + 20)))
    assert [outlooks(following, NOW + second) for second in range(21, 72, 2)] == [None] * 26
    assert len(started) == 2
    assert outlooks(following, NOW + 75) is not None


def test_a_forecast_that_could_not_be_made_is_tried_again_soon() -> None:
    decision, _ = Deciding(lambda chain, now: Outlook())(
        JobChain(replace(WAITS, walltime_s=86_400.0), (RUNNING,)), replace(RUNNING, ends_s=NOW + 86_400), NOW + 20
    )
    assert not decision.submit
    assert decision.again_at <= NOW + 620


def test_gaps_and_overlaps_are_told_link_by_link() -> None:
    first = Link(1, Phase.ENDED, submitted_s=NOW, started_s=NOW + 10, ended_s=NOW + 500,
                 marks=LinkMarks(LinkBegun("1", NOW + 10, NOW + 10)))  # fmt: skip
    over = Link(2, Phase.RUNNING, submitted_s=NOW + 300, started_s=NOW + 400,
                marks=LinkMarks(LinkBegun("2", NOW + 400, NOW + 503)))  # fmt: skip
    late = Link(2, Phase.RUNNING, submitted_s=NOW + 300, started_s=NOW + 560)
    told = times_of(JobChain(SPEC, (first, over)), over)
    assert (told.waited_s, told.gap_s, told.overlap_s) == (100.0, 3.0, 100.0)
    told = times_of(JobChain(SPEC, (first, late)), late)
    assert (told.gap_s, told.overlap_s) == (60.0, 0.0)


@pytest.mark.parametrize(
    ("code", "log", "passes", "says"),
    [
        (78, "", False, "never to be run again"),
        (75, "", True, "asks to be run again"),
        (1, "ModuleNotFoundError: No module named 'nope'\n", False, "No module named 'nope'"),
        (1, "ConnectionResetError: [Errno 104] Connection reset by peer\n", True, "Connection reset by peer"),
        (1, None, True, "its output cannot be found"),
    ],
)  # fmt: skip
def test_a_failure_is_judged_by_its_log(tmp_path: Path, code: int, log: str | None, passes: bool, says: str) -> None:
    path = tmp_path / "job.out"
    if log is not None:
        path.write_text(log)
    marks = LinkMarks(LinkBegun("1", NOW, NOW, stdout=str(path)), ended=LinkEnded("1", NOW + 9, code))
    link = Link(1, Phase.ENDED, job_id="1", why="it failed with exit code 1", marks=marks)
    found = judge_link(JobChain(SPEC, (link,)), link)
    assert found[0] is passes
    assert says in found[1]


def test_the_ids_of_chains_are_completed_without_asking_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_KEEP_DIR", str(tmp_path))
    assert completion_values.values("chain", None) == []
    for cluster, name in (("a", "train"), ("b", "serve")):
        kept = ChainJournal.of({"PERDURE_KEEP_DIR": str(tmp_path)}, cluster).make(name)
        (kept.path / "chain.json").write_text("{}")
        (kept.path / "plan.json").write_text("{}")
    assert completion_values.values("chain", None) == ["train-1", "serve-1"]


def test_a_round_goes_on_while_a_first_forecast_is_made_and_no_longer_than_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prints = '{"forecast": {"waits_s": [5.0]}, "recent": [7.0]}'
    started = keep_outlook._started
    monkeypatch.setattr(keep_outlook, "_started", lambda argv: started((sys.executable, "-c", f"print({prints!r})")))
    outlooks, chain = Outlooks(tmp_path), JobChain(SPEC)
    assert not outlooks.are_made(NOW)
    assert outlooks(chain, NOW) is None
    assert outlooks.are_made(NOW + 1)
    assert not outlooks.are_made(NOW + keep_outlook.MOST_S)
    end = time.monotonic() + 30
    while (found := outlooks(chain, NOW + 1)) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert found == Outlook(Forecast((5.0,)), (7.0,))
    assert not outlooks.are_made(NOW + 1)


@pytest.mark.parametrize(
    ("option", "given"),
    [("--until", {"until": "3"}), ("--planner", {"planner": "reactive"}), ("--overlap-cost", {"overlap_cost": 1.0})],
)
def test_terms_of_a_new_chain_are_refused_where_no_script_is_named(option: str, given: Mapping[str, Any]) -> None:
    nothing = keep_run.KeepCall((), (), "done", 0.25, None, "none", None, "", "", once=True)
    with pytest.raises(InputError, match=f"{option}.*no script is named"):
        keep_run.run_keep(dataclasses.replace(nothing, **given))


@pytest.mark.parametrize(
    ("option", "given", "means"),
    [
        ("--until", "3", "3"),
        ("--overlap-cost", "0.5", 0.5),
        ("--max-interruption", "0.1", 0.1),
        ("--strategy", "hold", "hold"),
        ("--planner", "reactive", "reactive"),
        ("--trained", "learned", Path("learned")),
        ("--done-file", "done", "done"),
        ("--progress", "steps", "steps"),
    ],
)
def test_each_option_is_the_term_of_its_name_and_no_other(
    monkeypatch: pytest.MonkeyPatch, option: str, given: str, means: object
) -> None:
    calls = list[keep_run.KeepCall]()

    def run_keep(call: keep_run.KeepCall) -> int:
        calls.append(call)
        return 0

    monkeypatch.setattr(keep_run, "run_keep", run_keep)
    for words in (["train.sh"], [option, given, "train.sh"]):
        assert main(["keep", *words]) == 0
    usual, asked = map(dataclasses.asdict, calls)
    assert {name: value for name, value in asked.items() if value != usual[name]} == {
        option.removeprefix("--").replace("-", "_"): means
    }


def test_a_users_comment_hides_no_link(journal: ChainJournal) -> None:
    """Slurm ends a line of a listing where a comment does, and the first mark of a chain counts."""
    own = SbatchOption("comment", "mine\nperdure-keep=other-1.ab/7.1 too", ())
    plan = keep_start._plan(b"#!/bin/sh\n", [own], [], [own], ("/bin/sh", "script"))
    chain = JobChain(SPEC, (RUNNING,))
    words = link_order.link_options(chain, plan, RUNNING, messages.SubmitLink(1))
    comment = next(each for each in words if each.startswith("--comment="))
    assert comment == "--comment=mine other-1.ab/7.1 too perdure-keep=train-1.ab/1.1"
    assert chain_link_of(comment).chain == SPEC.tag


@pytest.mark.parametrize("standing", [ChainStanding.DONE, ChainStanding.STOPPED])
def test_a_job_that_starts_late_is_told_that_its_chain_is_over(journal: ChainJournal, standing: ChainStanding) -> None:
    kept = kept_chain(journal)
    assert not kept.folder.over.exists()
    kept.write(replace(kept.read(), standing=standing, why="so it is"))
    assert kept.folder.over.read_text() == "so it is"


def test_a_limit_that_was_changed_by_hand_is_the_end_that_the_planner_sees() -> None:
    changed = replace(RUNNING, ends_s=NOW + 500)
    assert view_of(JobChain(SPEC, (changed,)), changed, NOW + 20, Outlook()).link_ends == NOW + 500


def test_a_submission_that_nobody_answered_is_no_refusal(
    journal: ChainJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SmallSlurm()
    kept, told, life = chain_on(slurm, journal, monkeypatch)

    def unheard(*_: object) -> None:
        raise ClusterBusy("sbatch", "no answer in time", "Run `scontrol ping`")

    monkeypatch.setattr(keeper, "submit", unheard)
    life()()
    chain = kept.read()
    assert (chain.standing, [link.phase for link in chain.links]) == (ChainStanding.RUNNING, [Phase.INTENDED])
    assert not [text for text in told if "refused" in text]


def test_what_is_the_first_links_alone_is_not_asked_for_the_next(journal: ChainJournal) -> None:
    kept = kept_chain(journal)
    once = (("dependency", "afterok:7", ("--dependency=afterok:7",)), ("hold", None, ("-H",)))
    always = ("partition", "gpu", ("-p", "gpu"))
    plan = chain_journal.LinkPlan((always, *once, always, *once), 3, ("/bin/sh", "script"))
    (kept.path / "plan.json").write_bytes(msgspec.json.encode(plan))
    (kept.path / "environment.json").write_text("{}")
    chain = JobChain(SPEC, (RUNNING,))
    first, second = (
        link_order.order_of(kept, chain, Link(number), messages.SubmitLink(number), 0) for number in (1, 2)
    )
    assert {"--dependency=afterok:7", "-H"} <= {*first.options}
    assert "afterok" in first.script
    assert second.options[:3] == ["-p", "gpu", "--job-name=train"]
    assert "afterok" not in second.script


@pytest.mark.parametrize(("strategy", "why"), [(Strategy.NONE, "it pays"), (Strategy.HOLD, "")])
def test_a_link_says_the_planners_reason_only_where_the_planner_has_submitted_it(strategy: Strategy, why: str) -> None:
    chain = JobChain(replace(SPEC, strategy=strategy), (RUNNING,), plan_says="it pays")
    plan = chain_journal.LinkPlan((), 0, ("/bin/sh",))
    comment = link_order.link_options(chain, plan, Link(2), messages.SubmitLink(2))[1]
    assert chain_link_of(comment).why == why
