"""Whose lines a job's files hold, where accounting has yet to tell how it was submitted."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.config import Config
from perdure.backends.slurm.plans import Todo, done
from perdure.backends.slurm.records import JobRecord, read_jobs
from perdure.backends.slurm.tools import Tools
from perdure.backends.tool_process import ToolAnswer
from perdure.model.actions import Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import OutputFile, OutputKind
from tests.backends.slurm.text import MARK, job
from tests.copying import replace


@pytest.fixture
def backend(tmp_path: Path) -> SlurmBackend:
    """One whose tools say nothing, on a site whose accounting tells how jobs were submitted."""
    for tool in ("scontrol", "sacct", "scancel"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    found = SlurmBackend("sim", Tools(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    found._accounts.tells_submit_line = True
    found._site.known = Config({"AccountingStorageType": "accounting_storage/slurmdbd"})
    return found


def failed(path: str) -> JobRecord:
    (found,) = read_jobs(job(17, state="FAILED", exit_code="1:0").encode(), MARK).whole
    return replace(found, stdout=path, stderr="")


@pytest.mark.parametrize(("path", "in_doubt"), [("/w/run.log", True), ("/w/slurm-17.out", False)])
def test_a_file_that_may_be_older_is_in_doubt_while_nobody_tells_whether_it_was_cut(
    backend: SlurmBackend, path: str, in_doubt: bool
) -> None:
    record = failed(path)
    backend._outputs.note([record], {"17": b"#!/bin/sh\npython train.py\n"}, ())
    assert backend._outputs.known["17"].appends is in_doubt


def test_the_file_that_slurm_writes_another_jobs_output_to_is_no_ranks(backend: SlurmBackend) -> None:
    mine = Attempt(AttemptId("sim", "17", 100), AttemptState.FAILED, ("n1",), 100.0, 200.0, user="ada")
    other = replace(mine, id=AttemptId("sim", "18", 150), stdout="/w/18.log")
    backend._writers.note([other])
    own = OutputFile("/w/18.log", b"x")
    rank = replace(own, kind=OutputKind.RANK)
    assert backend._is_anothers(rank, mine)
    assert not backend._is_anothers(own, mine)
    assert not backend._is_anothers(replace(rank, path="/w/19.log"), mine)


def test_a_job_that_started_since_the_last_look_may_have_written_over_the_log(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Attempt(
        AttemptId("sim", "17", 100), AttemptState.FAILED, ("n1",), 100.0, 200.0, user="ada", stdout="/w/run.log"
    )
    (waits,) = read_jobs(job(18, state="PENDING", start="Unknown", nodes="").encode(), MARK).whole
    waits = replace(waits, stdout="/w/run.log", stderr="/w/run.log")
    backend._look.records = {"18": waits, "19": replace(waits, job_id="19", stdout="/w/b", stderr="/w/b")}
    asked = []
    runs = replace(waits, state="RUNNING", start_s=200, nodes=("n1",))

    def record_of(scontrol: Any, job_id: str) -> JobRecord:
        asked.append(job_id)
        return runs

    monkeypatch.setattr("perdure.backends.slurm.backend.job_record", record_of)
    monkeypatch.setattr(Tools, "dialog", lambda self: nullcontext())
    backend._note_newcomers(mine)
    assert asked == ["18"]
    assert [span.job_id for span in backend._writers.others("/w/run.log", mine)] == ["18"]


def test_the_paths_of_the_job_that_had_the_id_before_are_not_read(backend: SlurmBackend) -> None:
    """A slurmctld that lost its state gives ids out again."""
    theirs = failed("/home/chen/slurm-17.out")
    backend._outputs.note([theirs], {"17": b"#!/bin/sh\n"}, ())
    backend._uids = {"chen": theirs.uid, "anna": theirs.uid + 1}
    attempt = Attempt(AttemptId("sim", "17", 900), AttemptState.COMPLETED, ("n1",), 900.0, 950.0, user="anna")
    assert backend._outputs_of(attempt) is None
    assert backend._outputs_of(replace(attempt, user="chen")) is not None
    backend._look.records = {"17": replace(theirs, start_s=900, stdout="/home/chen/other.out")}
    assert backend._outputs_of(replace(attempt, user="chen")) is None


def test_a_user_without_a_name_lends_its_number_to_nobody(backend: SlurmBackend) -> None:
    """Slurm says "nobody" of each: a log is read with the rights of the attempt's own user."""
    backend._remember([replace(failed("/w/a"), user="nobody", uid=4242)], (), 1000.0)
    assert backend._uids == {"4242": 4242}


def test_a_retry_that_slurm_ended_is_not_in_the_queue(backend: SlurmBackend) -> None:
    """Its partition went away while it waited: NODE_FAIL, and what was done before has not lasted."""
    action = Requeue(AttemptId("sim", "17", 100))
    backend._actor._done[action.key] = done("in the queue")
    lost = replace(failed("/w/a"), state="NODE_FAIL", reason="NodeDown", start_s=None, nodes=())
    backend._look.records = {"17": lost}
    assert backend._actor._known(action) is None
    backend._look.records = {"17": replace(failed("/w/a"), start_s=500)}  # a newer attempt failed
    assert backend._actor._known(action) is not None


class Deaf:
    """A scontrol that denies what administrators alone may write."""

    def __init__(self) -> None:
        self.asked = []

    def ask(self, command: str) -> ToolAnswer:
        self.asked.append(command)
        return ToolAnswer(b"", b"Access/permission denied for job 17\n" if "AdminComment" in command else b"")


def test_a_comment_is_written_where_only_administrators_may_write_both(
    backend: SlurmBackend, caplog: pytest.LogCaptureFixture
) -> None:
    scontrol: Any = Deaf()
    both = 'update jobid=17 ExcNodeList=n1 AdminComment="perdure: x" Comment="perdure: x"'
    for _ in range(2):
        assert backend._actor._carry_out(scontrol, Todo((both, "release 17"))) == ""
    assert scontrol.asked[1:3] == ['update jobid=17 ExcNodeList=n1 Comment="perdure: x"', "release 17"]
    assert caplog.text.count("administrators alone write AdminComment") == 1


def test_what_was_not_taken_back_is_not_said_to_be(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm refused the command, and the exclusion stands."""
    stuck = replace(failed("/w/a"), state="PENDING", reason="BadConstraints", priority=0, excluded=("n1",), end_s=None)
    monkeypatch.setattr("perdure.backends.slurm.actor._job", lambda scontrol, action: stuck)
    monkeypatch.setattr(backend._actor, "_last_start", lambda job, wanted: 100)
    monkeypatch.setattr(
        backend._actor, "_carry_out", lambda scontrol, step: "Requested operation is presently disabled"
    )
    outcome = backend.perform(Requeue(AttemptId("sim", "17", 100), exclude=("n1",)))
    assert "not away from" not in outcome.detail


@pytest.mark.parametrize("rule", ["RequeueExit", "RequeueExitHold"])
def test_a_failure_is_left_to_either_rule_of_the_site_for_its_exit_code(backend: SlurmBackend, rule: str) -> None:
    backend._site.known = Config({rule: "1-3"})
    ends = replace(failed("/w/a"), state="COMPLETING", reason="NonZeroExitCode", end_s=200)
    left = {code: backend._is_left_to_slurm(replace(ends, exit_code=code), 300.0) for code in (1, 3, 4)}
    assert left == {1: True, 3: True, 4: False}
    assert not backend._is_left_to_slurm(replace(ends, state="FAILED"), 300.0)


@pytest.mark.parametrize(("start_s", "nodes"), [(100, ("n1", "n2")), (90, ("n2",))])
def test_the_nodes_of_a_job_that_completes_are_those_of_this_start(
    backend: SlurmBackend, start_s: int, nodes: tuple[str, ...]
) -> None:
    """Some of them are free already; a look before may have seen another start on more."""
    backend._look.records = {"17": replace(failed("/w/a"), state="RUNNING", start_s=start_s, nodes=("n1", "n2"))}
    ends = replace(failed("/w/a"), state="COMPLETING", start_s=100, nodes=("n2",))
    assert backend._finished(ends).nodes == nodes


@pytest.mark.parametrize(("latest", "is_first"), [((100, 0), True), ((100, 1), False), ((90, 0), False), (None, False)])
def test_a_job_is_known_to_run_for_the_first_time_where_its_start_and_its_restarts_say_so(
    backend: SlurmBackend, latest: tuple[int, int] | None, is_first: bool
) -> None:
    backend._look.latest = {"17": latest} if latest else {}
    attempt = Attempt(AttemptId("sim", "17", 100), AttemptState.FAILED, ("n1",), 100.0, 200.0, user="ada")
    assert backend._is_first(attempt) is is_first
