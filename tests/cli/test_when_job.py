"""``perdure when JOB`` where there is little or nothing to say: each case is told in a line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.backends.slurm.past_jobs import remarks_on
from perdure.backends.slurm.tools import Tools
from perdure.cli import live_queue, when_answer
from perdure.cli.kept import KeptFolder
from perdure.cli.when_fit import fit_site
from perdure.errors import ClusterBusy
from perdure.model.jobs import JobState
from perdure.model.table import JobTable
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.alternatives import Alternative, Sooner
from perdure.waits.answer import AnswerBasis, WaitAnswer, _starts_before, answer, answers
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import Fit
from perdure.waits.holds import HeldBy, HoldKind
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook
from tests.cli.conftest import Ran
from tests.copying import replace

pytestmark = pytest.mark.usefixtures("says_nothing_of_compiling")

NOW_S = 1_790_000_000.0
RNG = np.random.default_rng(0)
PARTITIONS = (
    QueuedPartition("main", is_default=True, max_time_s=7200.0),
    QueuedPartition("down", is_up=False),
)
NODES = (QueuedNode("n1", ("main",), gpus=4, cpus=8), QueuedNode("n2", ("down",), gpus=4, cpus=8))


def job(job_id: str, state: JobState = JobState.PENDING, **more: Any) -> QueuedJob:
    given = {"partitions": ("main",), "gpus": 4, "cpus": 4, "walltime_s": 3600.0, "reason": "Resources", **more}
    times = {"submit_s": NOW_S - 900, "eligible_s": NOW_S - 900}
    return QueuedJob(job_id, "mira", state, priority=9, **{**times, **given})


def site_of(*, config: dict[str, str] | None = None, ended: str = "") -> AnswerBasis:
    past = Past()
    if ended:
        at = np.array([NOW_S - 7200.0])
        jobs = JobTable(
            np.array([ended]), at, np.array([4]), np.array([600.0]), start_s=at + 60, end_s=at + 660,
            user=np.array(["mira"]), partition=np.array(["main"]), walltime_s=np.array([3600.0]),
        )  # fmt: skip
        past = Past(jobs, NOW_S)
    return AnswerBasis(SchedulerSettings(), past, None, remarks_on(config or {}))


@pytest.fixture
def when(perdure: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Ask about a queue with a site behind it."""

    def ask(*words: str, jobs: tuple[QueuedJob, ...] = (), site: AnswerBasis | None = None) -> Ran:
        queue = Queue(NOW_S, jobs, NODES, PARTITIONS)
        monkeypatch.setattr(when_answer, "live_queue", lambda: (queue, site or site_of()))
        return perdure("when", *words)

    return ask


def line(ran: Ran, label: str) -> str:
    return next(each for each in ran.out.splitlines() if each.startswith(label))


def test_an_unknown_job(when: Callable[..., Ran]) -> None:
    ran = when("99")
    assert ran.code == 2
    assert ran.complaint.startswith("job 99: it is not in the queue: it has ended, or never was. ")


def test_a_job_without_an_option_is_asked_about_without_the_command_line_library(home: Path) -> None:
    """Which takes a tenth of the answer's time to load."""
    code = "import sys; from perdure.cli.main import main; main(['when', '99']); print(*sys.modules)"
    tool = home / "scontrol"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    kept = home / "perdure" / "when" / hashlib.sha256(b"").hexdigest()[:16]
    kept.mkdir(parents=True, mode=0o700)
    (kept / "queue.json").write_bytes(
        msgspec.json.encode(QueueLook(Queue(time.time(), (job("99"),), NODES, PARTITIONS), {}))
    )
    environment = {**os.environ, "PATH": str(home), "XDG_CACHE_HOME": str(home), "SLURM_CONF": ""}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("job 99: 4 GPUs")
    assert not {"typer", "click", "pydantic"} & set(ran.stdout.split())


def test_a_job_that_has_ended(when: Callable[..., Ran]) -> None:
    ran = when("42", site=site_of(ended="42"))
    assert ran.code == 2
    assert ran.complaint.startswith("job 42: it ended at ")
    assert ran.complaint.endswith(". See how it ended: perdure why 42.")


def test_a_job_that_runs(when: Callable[..., Ran]) -> None:
    ran = when("7", jobs=(job("7", JobState.RUNNING, start_s=NOW_S - 60, running_on=("n1",), reason=""),))
    assert ran.code == 0
    assert "it has: it runs since" in line(ran, "STARTS")
    assert "HELD BY" not in ran.out


def test_a_job_that_its_user_holds(when: Callable[..., Ran]) -> None:
    ran = when("7", jobs=(job("7", JobState.HELD, reason="JobHeldUser"),))
    assert ran.code == 1
    assert line(ran, "STARTS").endswith("not as it is")
    assert line(ran, "HELD BY").endswith("its owner holds it: `scontrol release 7`")


@pytest.mark.parametrize("reason", ["PartitionDown", "", "None"])
def test_a_partition_that_is_down(when: Callable[..., Ran], reason: str) -> None:
    ran = when("7", jobs=(job("7", partitions=("down",), reason=reason),))
    assert ran.code == 1
    assert line(ran, "HELD BY").endswith("its partition down is down: an operator must set it up")


def test_a_script_for_a_partition_that_is_down_or_that_allows_less(when: Callable[..., Ran], home: Path) -> None:
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=2 -t 60\n")
    assert when("job.sh").code == 0
    assert "its partition down is down" in line(when("job.sh", "--partition", "down"), "HELD BY")
    longer = when("job.sh", "--time", "3:00:00")
    assert longer.code == 1
    assert "it asks for more time than partition main allows" in line(longer, "HELD BY")


def test_what_sbatch_takes_from_its_environment_is_taken_over_the_script(
    when: Callable[..., Ran], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=2 -t 60\n")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "3:00:00")
    assert "it asks for more time than partition main allows" in line(when("job.sh"), "HELD BY")
    assert when("job.sh", "--time", "1:00:00").code == 0
    monkeypatch.setenv("SBATCH_PARTITION", "down")
    assert "its partition down is down" in line(when("job.sh"), "HELD BY")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("--begin=now+2hours -d afterok:7", "--begin, --dependency"),
        ("-H -a 0-99", "--hold, --array"),
        ("-C a100 --exclusive", "--exclusive, --constraint"),
    ],
)
def test_what_of_a_script_may_delay_it_and_is_not_reckoned_with_is_said(
    when: Callable[..., Ran], home: Path, lines: str, said: str
) -> None:
    (home / "job.sh").write_text(f"#!/bin/sh\n#SBATCH --gpus=2 -t 60 {lines}\n")
    assert f"NOTE     without regard to {said} of the script: it may take longer" in when("job.sh").out.splitlines()


def test_a_script_of_a_heterogeneous_job_is_refused(when: Callable[..., Ran], home: Path) -> None:
    (home / "job.sh").write_text("#!/bin/sh\n#SBATCH --gpus=2\n#SBATCH hetjob\n#SBATCH --gpus=1 -N2\n")
    ran = when("job.sh")
    assert ran.code == 2
    assert ran.complaint.startswith("job.sh: it is a heterogeneous job. ")


@pytest.mark.parametrize("words", [("--gpus", "4"), ("--by", "+1h")])
def test_an_option_about_a_job_needs_one(when: Callable[..., Ran], words: tuple[str, str]) -> None:
    ran = when(*words)
    assert ran.code == 2
    assert ran.complaint.startswith(f"{words[0]}: it is about one job, and no job is named. ")


def test_a_job_that_came_after_the_last_look_is_not_said_never_to_have_been(
    when: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.cli.when_answer.time.time", lambda: NOW_S + 20)
    assert when("99").complaint.startswith(
        "job 99: it was not in the queue 20 s ago, when Slurm was last asked. Ask again in 40 s"
    )


def test_one_of_two_partitions_is_enough(when: Callable[..., Ran]) -> None:
    assert when("7", jobs=(job("7", partitions=("down", "main"), reason=""),)).code == 0


def test_no_history_is_answered_by_the_simulator_alone_which_it_says(when: Callable[..., Ran]) -> None:
    ran = when("7", jobs=(job("7"),))
    assert ran.code == 0
    assert "NOTE     no history of who comes: by the jobs that are there alone, as if nobody else came" in ran.out


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "this Slurm keeps no accounting"),
        ({"accountingstoragetype": "accounting_storage/none"}, "this Slurm keeps no accounting"),
        ({"privatedata": "accounts,jobs"}, "this Slurm shows a user no jobs of others (PrivateData)"),
    ],
)
def test_what_cannot_be_known_is_said(when: Callable[..., Ran], config: dict[str, str], said: str) -> None:
    ran = when("7", jobs=(job("7"),), site=site_of(config=config))
    assert ran.code == 0
    assert any(said in each for each in ran.out.splitlines() if each.startswith("NOTE"))


def test_what_starts_only_if_it_is_changed(when: Callable[..., Ran]) -> None:
    """The gain over a start that never comes is no number."""
    told = when("7", "--json", jobs=(job("7", gpus=8, reason="Priority"),))
    assert "Infinity" not in told.out
    assert json.loads(told.out)["start"] is None
    found = Sooner(Alternative("4 GPUs", "--gpus=4", job("")), NOW_S + 86_400, np.inf)
    assert when_answer._gain(found, NOW_S) == "over 3d"
    answer = WaitAnswer(job("7"), HeldBy(HoldKind.RESOURCES, "it waits"), None, None, (found,))
    assert answer.to_json()["sooner"][0]["gain_s"] is None


UNAVAILABLE = "ReqNodeNotAvail,_UnavailableNodes:n1"


@pytest.mark.parametrize("reason", ["Reservation", "ReqNodeNotAvail,_Reserved_for_maintenance", UNAVAILABLE])
def test_no_start_is_told_where_it_is_not_simulated(when: Callable[..., Ran], reason: str) -> None:
    """Nobody asks when reservations begin, or nodes return."""
    jobs = (job("7", reason=reason),)
    assert line(when("7", jobs=jobs), "STARTS").startswith("STARTS   not forecast: when nodes return")
    told = json.loads(when("7", "--json", "--by", "+1h", jobs=jobs).out)
    assert (told["start"], told["chance_by"], told["held_by"]["can_start"]) == (None, None, True)
    assert when("7", jobs=jobs).code == 0
    assert [each.forecast for each in answers(Queue(NOW_S, jobs, NODES, PARTITIONS), site_of(), RNG)] == [None]


def test_what_does_not_fit_on_the_nodes_in_service(when: Callable[..., Ran]) -> None:
    ran = when("7", jobs=(job("7", gpus=8),))
    assert line(ran, "HELD BY") == "HELD BY  it does not fit on the nodes in service"
    assert ran.code == 1


def test_what_starts_in_no_future_is_not_said_never_to_start(when: Callable[..., Ran]) -> None:
    """It fits on the nodes in service, and waits for longer than is simulated."""
    busy = job("1", JobState.RUNNING, start_s=NOW_S - 60, running_on=("n1",), walltime_s=90 * 86_400.0, reason="")
    ran = when("7", jobs=(busy, job("7")))
    assert ran.code == 0
    assert line(ran, "STARTS").endswith("later than in 4d: that far nothing is simulated")
    assert "does not fit" not in ran.out


def test_at_once(when: Callable[..., Ran]) -> None:
    assert line(when("7", jobs=(job("7", reason=""),)), "STARTS") == "STARTS   at once"


# what is read


@pytest.fixture
def read(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AnswerBasis]:
    """Read a Slurm that answers with a queue, its clock being so many seconds ahead; sacct does not answer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(Tools, "check", lambda _: None)
    monkeypatch.setattr(Tools, "find", lambda *_: "scontrol")

    def busy(*_: object) -> None:
        raise ClusterBusy("sacct", "accounting does not answer", "Run `sacctmgr ping`")

    monkeypatch.setattr(live_queue, "read_past_jobs", busy)

    def ask(ahead_s: float = 0.0, **config: str) -> AnswerBasis:
        look = QueueLook(Queue(time.time() + ahead_s, (), NODES, PARTITIONS), config)
        monkeypatch.setattr(live_queue, "read_queue", lambda _: look)
        return live_queue.live_queue()[1]

    return ask


@pytest.mark.parametrize(
    ("ahead_s", "said"), [(620.0, "10m ahead of"), (-7230.0, "2h behind"), (30.0, ""), (-30.0, "")]
)
def test_clocks_that_differ(read: Callable[..., AnswerBasis], ahead_s: float, said: str) -> None:
    remarks = [each for each in read(ahead_s).remarks if "clock" in each]
    assert len(remarks) == bool(said)
    assert all(f"the clock of slurmctld is {said} this machine's" in each for each in remarks)


def test_a_picture_that_was_kept_is_no_clock_that_lags(
    read: Callable[..., AnswerBasis], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    (kept,) = (home / "perdure" / "when").glob("*/queue.json")
    look = msgspec.json.decode(kept.read_bytes(), type=QueueLook)
    assert look.queue.now_s <= time.time()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 55)
    monkeypatch.setattr(live_queue, "CLOCKS_S", 20.0)
    assert not [each for each in read().remarks if "clock" in each]


def test_accounting_that_does_not_answer_or_is_not_kept(read: Callable[..., AnswerBasis]) -> None:
    assert read(accountingstoragetype="accounting_storage/slurmdbd").remarks == (
        "no history: accounting does not answer",
    )


def test_no_accounting_and_private_jobs_are_both_said(read: Callable[..., AnswerBasis]) -> None:
    first, second = read(privatedata="jobs").remarks
    assert first == "this Slurm keeps no accounting"
    assert second.startswith("this Slurm shows a user no jobs of others")


def test_a_disk_that_is_full_is_said_in_words(
    read: Callable[..., AnswerBasis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_queue, "read_past_jobs", lambda *_: b"")
    monkeypatch.setattr(KeptFolder, "write", lambda *_: None)
    assert read(accountingstoragetype="accounting_storage/slurmdbd").remarks == (
        "nothing can be kept in this user's cache folder, so no history is read",
    )


def test_a_fit_learns_from_what_ended_since_the_last_answer(
    read: Callable[..., AnswerBasis], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's first answer keeps an empty history for an hour."""
    asked: list[float] = []
    accounts = {"accountingstoragetype": "accounting_storage/slurmdbd"}

    def ask(_: object, since_s: float) -> bytes:
        asked.append(since_s)
        return b"JobID|State|Submit|Start|End\n"

    monkeypatch.setattr(live_queue, "read_past_jobs", ask)
    read(**accounts)
    read(**accounts)
    assert len(asked) == 1
    (kept,) = (home / "perdure" / "when").glob("*/history.txt")
    os.utime(kept, (time.time() - 120, time.time() - 120))
    fit_site(4, as_json=True)
    assert len(asked) == 2


@pytest.mark.parametrize(("span_s", "asks"), [(600.0, 2), (90_000.0, 1)])
def test_a_young_past_is_asked_for_again_within_the_hour(
    read: Callable[..., AnswerBasis], home: Path, monkeypatch: pytest.MonkeyPatch, span_s: float, asks: int
) -> None:
    """And it is whole up to when it was asked for, not up to now."""
    asked: list[float] = []
    accounts = {"accountingstoragetype": "accounting_storage/slurmdbd"}

    def ask(_: object, since_s: float) -> bytes:
        asked.append(since_s)
        first = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - span_s))
        return (f"JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n1|COMPLETED|{first}|{first}|60|gres/gpu=1\n").encode()

    monkeypatch.setattr(live_queue, "read_past_jobs", ask)
    read(**accounts)
    (kept,) = (home / "perdure" / "when").glob("*/history.txt")
    os.utime(kept, (time.time() - 1800, time.time() - 1800))
    queue, site = live_queue.live_queue()
    assert len(asked) == asks
    assert len(site.past.jobs) == 1
    assert queue.now_s - site.past.until_s == pytest.approx(0 if asks == 2 else 1800, abs=60)


def test_what_was_learnt_is_forgotten_after_two_weeks(read: Callable[..., AnswerBasis], home: Path) -> None:
    live_queue.keep_fit(Fit(NOW_S, 99))
    (file,) = (home / "perdure" / "when").glob("*/fit.json")
    for days, is_known in ((13, True), (15, False)):
        os.utime(file, (time.time() - days * 86_400.0,) * 2)
        read()
        assert (live_queue.live_queue()[1].fit is not None) == is_known


def test_a_fit_of_another_version_counts_for_nothing(read: Callable[..., AnswerBasis], home: Path) -> None:
    live_queue.keep_fit(Fit(NOW_S, 99, shifts=(0.1, 0.2)))
    assert read().fit is None


def test_what_was_said_is_kept_and_its_start_corrects_later_answers(
    read: Callable[..., AnswerBasis], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one job one answer in ten minutes is kept."""
    read()
    queue, site = live_queue.live_queue()
    waiting = tuple(job(str(number)) for number in range(100, 160))
    then = replace(queue, jobs=waiting, now_s=queue.now_s - 7200)
    said = answer(waiting[0], replace(then, jobs=waiting[:2]), site, np.random.default_rng(0), with_alternatives=False)
    for each in (*waiting, *waiting):
        live_queue.keep_answer(replace(said, job=each), then, site.past)
    (file,) = (home / "perdure" / "when").glob("*/promises.json")
    assert len(msgspec.json.decode(file.read_bytes())) == len(waiting)
    assert live_queue.live_queue()[1].own.answers == 0  # neither there nor started: nothing is known of them
    started = tuple(
        job(each.job_id, JobState.RUNNING, start_s=then.now_s + 6000, reason="", running_on=("n1",)) for each in waiting
    )
    monkeypatch.setattr(live_queue, "_look", lambda *_: (QueueLook(replace(queue, jobs=started), {}), 0.0))
    own = live_queue.live_queue()[1].own
    assert (own.answers, own.is_known) == (len(waiting), True)
    corrected = own.corrected(said.forecast, waiting[0])  # type: ignore[arg-type]
    assert said.forecast.median_s < 60 < 600 < corrected.median_s  # of 6,000 s that it took each time
    again = answer(waiting[0], replace(then, jobs=waiting[:2]), replace(site, own=own), np.random.default_rng(0))
    assert (again.forecast.wait_s, again.forecast.raw_s) == (corrected.wait_s, said.forecast.wait_s)


@pytest.mark.parametrize("left", [b"", b"{}", b'[{"job_id":"1","asked_s":1.0,"wait_s":[1.0]}]'])
def test_answers_that_cannot_be_read_count_for_nothing(
    read: Callable[..., AnswerBasis], home: Path, left: bytes
) -> None:
    live_queue.kept_of_slurm().write("promises.json", left)
    assert read().own.answers == 0


def test_an_hour_that_is_over_today_is_that_of_tomorrow() -> None:
    now_s = when_answer.instant_of("18:00", NOW_S) + 60
    assert when_answer.instant_of("18:00", now_s) == now_s - 60 + 86_400
    assert when_answer.instant_of("18:02", now_s) == now_s + 60


def test_a_start_less_the_gain_of_a_change_is_the_start_that_is_told_of_the_change() -> None:
    """Both are corrected by how far such answers were off."""
    running = job("1", JobState.RUNNING, gpus=3, start_s=NOW_S - 60, reason="", running_on=("n1",))
    waiting = job("2", gpus=4, walltime_s=1800.0)
    queue = Queue(NOW_S, (running, waiting), NODES, PARTITIONS)
    site = replace(site_of(), fit=Fit(NOW_S, 99, shifts=(0.3,) * len(LEVELS)))
    told = answer(waiting, queue, site, np.random.default_rng(0))
    raw = answer(waiting, queue, site_of(), np.random.default_rng(0))
    assert told.sooner
    for each, uncorrected in zip(told.sooner, raw.sooner, strict=True):
        assert NOW_S + told.forecast.median_s - each.gain_s == pytest.approx(each.start_s)
        assert each.start_s > uncorrected.start_s


@dataclass
class FewFutures:
    """Stands for a scene: one change is sooner in each future, one in none, one in the first alone."""

    jobs: tuple[()] = ()
    asked: list[tuple[int, int]] = field(default_factory=list)  # jobs asked about, and up to which future

    def starts(self, jobs: Sequence[str], samples: range, about_s: float, before_s: float) -> NDArray[Any]:
        self.asked.append((len(jobs), samples.stop))
        sooner = {"always": range(11), "never": (), "once": (0,)}
        return np.array([[1.0 if at in sooner[each] else np.inf for at in samples] for each in jobs])


def test_a_change_that_is_sooner_in_few_futures_is_given_up_early() -> None:
    scene = FewFutures()
    changes: Any = ["always", "never", "once"]
    always, never, once = _starts_before(cast("Any", scene), changes, np.full(32, 2.0))
    assert always is not None
    assert len(always) == 11
    assert never is once is None
    assert scene.asked == [(3, 3), (2, 5), (1, 11)]


@pytest.mark.parametrize(
    ("words", "in_s"), [("14:13", 60.0), ("14:12", 86_400.0), ("14:11", 86_340.0), ("+1.5h", 5400.0)]
)
def test_an_hour_is_the_next_one_that_is_to_come(words: str, in_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        now_s = 20_000 * 86_400.0 + 14 * 3600 + 12 * 60
        assert when_answer.instant_of(words, now_s) == now_s + in_s
    time.tzset()


def test_what_is_submitted_now_begins_with_the_lowest_priority_of_its_user_else_of_all() -> None:
    jobs = tuple(
        replace(job(str(n)), user=user, priority=priority)
        for n, (user, priority) in enumerate([("mira", 50), ("ada", 2), ("mira", 5)])
    )
    queue = Queue(NOW_S, jobs, NODES, PARTITIONS)
    lowest = {user: when_answer._usual_priority(queue, user) for user in ("mira", "ada", "bob")}
    assert lowest == {"mira": 5, "ada": 2, "bob": 2}
    assert when_answer._usual_priority(replace(queue, jobs=()), "mira") == 1
