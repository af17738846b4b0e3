"""The jobs of chains as squeue and sbatch tell of them."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.backends.slurm import links
from perdure.backends.slurm.links import (
    LimitReached,
    SubmitOrder,
    cancel,
    ended_job,
    environment_for_links,
    read_links,
    submit,
    submitted_id,
    walltime_of,
)
from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy, ClusterError, InputError, PerdureError
from perdure.waits.queue import QueuedPartition


def test_a_look_tells_keys_and_instants_and_of_a_torn_line_nothing() -> None:
    text = (
        "7|1000|RUNNING|None|10|20|140|mine perdure-keep=train-1.ab/2.1\n"
        "8|1000|PENDING|Priority|30|N/A|N/A|(null)\n"
        "9|1001|RUNNING|None|10|20|140|perdure-keep=train-1.ab/3.1\n"
        "a comment of two\nlines\n"
    )
    first, second = read_links(text, 1000)
    assert (first.chain, first.key, first.start_s, first.end_s, first.reason) == ("train-1.ab", "2.1", 20.0, 140.0, "")
    assert (second.chain, second.reason, second.start_s) == ("", "Priority", 0.0)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("", ClusterBusy),
        ("sbatch: error: Unable to contact slurm controller (connect failure)\n", ClusterBusy),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", ClusterBusy),
        ("sbatch: error: Invalid account or account/partition combination\n", ClusterError),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates"
            " accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
            LimitReached,
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_told_from_a_silence_and_from_a_limit(said: str, error: type[PerdureError]) -> None:
    with pytest.raises(error) as told:
        submitted_id(said)
    assert type(told.value) is error


def test_a_limit_is_named() -> None:
    said = "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates\n"
    with pytest.raises(LimitReached, match="QOSMaxSubmitJobPerUserLimit"):
        submitted_id(said)


def test_sbatch_gets_the_users_environment_and_its_answer_needs_no_room(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ncat >script\necho "warning: something" >&2\necho "$USERS" >seen\necho "4711;cluster"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "USERS": "own"}
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        order = SubmitOrder("#!/bin/sh\ntrue\n", (), str(tmp_path), environment, lock)
        assert submit(order, Tools(environment=environment)) == "4711"
    finally:
        os.close(lock)
    assert (tmp_path / "seen").read_text() == "own\n"


def test_links_do_not_inherit_what_an_allocation_around_has_set() -> None:
    kept = environment_for_links({"SLURM_CONF": "c", "SLURM_JOB_ID": "7", "PERDURE_FENCE_TOKEN": "1", "HOME": "/h"})
    assert kept == {"SLURM_CONF": "c", "HOME": "/h"}


@pytest.mark.parametrize(("complaint", "is_done"), [("Invalid job id specified", True), ("Unable to contact", False)])
def test_a_cancellation_that_nobody_heard_is_told_from_one_of_a_job_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, is_done: bool
) -> None:
    tool = tmp_path / "scancel"
    tool.write_text(f"#!/bin/sh\necho 'scancel: error: {complaint}' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with nullcontext() if is_done else pytest.raises(ClusterBusy):
        cancel(Tools(), "7")


@pytest.mark.parametrize(("submit_s", "uid"), [(100, 1000), (20_000, 1001)])
def test_a_record_of_an_earlier_job_or_of_anothers_is_not_the_links(
    monkeypatch: pytest.MonkeyPatch, submit_s: int, uid: int
) -> None:
    monkeypatch.setattr(links, "job_record", lambda *_: SimpleNamespace(submit_s=submit_s, uid=uid))
    monkeypatch.setattr(links, "accounted_job", lambda *_: None)
    tools = SimpleNamespace(dialog=nullcontext)
    assert ended_job(tools, "7", 1000, since_s=10_000.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "asked_s", "gets"),
    [
        ((), None, 7_200.0),  # Slurm gives the most that there is where a partition has no DefaultTime
        (("endless", "short"), 9_000.0, 9_000.0),
        (("short",), 9_000.0, "short allows 0.5 h"),
        (("short", "main"), 9_000.0, "main allows 2 h"),
        (("endless",), None, "no walltime"),
    ],
)
def test_the_walltime_of_links_is_what_slurm_gives_their_jobs(
    names: tuple[str, ...], asked_s: float | None, gets: float | str
) -> None:
    partitions = (
        QueuedPartition("main", is_default=True, max_time_s=7_200.0),
        QueuedPartition("short", max_time_s=1_800.0, default_time_s=600.0),
        QueuedPartition("endless"),
    )
    if isinstance(gets, str):
        with pytest.raises(InputError, match=gets):
            walltime_of(partitions, names, asked_s, "train.sh")
    else:
        assert walltime_of(partitions, names, asked_s, "train.sh") == gets
