"""Slurm's accounting text: what users wrote into it, steps, requeues, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import TableEnding
from perdure.simulation.sweep import as_it_was
from perdure.traces.read import read
from perdure.traces.sacct_records import Layout, RecordJoiner

HEADER = "JobID|User|Account|JobName|Submit|Start|ElapsedRaw|TimelimitRaw|State|NNodes|AllocTRES|ReqTRES\n"

PLAIN = st.text("a5", max_size=3)  # a field without separators


def record(
    job: str = "7",
    name: str = "train",
    submit: str = "2026-01-01T00:00:00",
    start: str = "2026-01-01T00:01:00",
    elapsed: int = 60,
    state: str = "COMPLETED",
    gpus: int = 8,
    nodes: int = 1,
) -> str:
    tres = f"billing=9,cpu=4,gres/gpu={gpus},gres/gpu:a100={gpus},node={nodes}" if gpus else "cpu=4,node=1"
    return f"{job}|ann|lab|{name}|{submit}|{start}|{elapsed}|10|{state}|{nodes}|{tres}|{tres}\n"


def test_a_job_is_read_column_by_column(file: Callable[..., Path]) -> None:
    trace = read(file("jobs.txt.gz", HEADER + record()))
    jobs = trace.table
    assert trace.format == "sacct"
    assert (jobs.job_id[0], jobs.user[0], jobs.vc[0], jobs.gpu_type[0]) == ("7", "ann", "lab", "a100")
    assert (jobs.gpus[0], jobs.nodes[0], jobs.duration_s[0], jobs.walltime_s[0]) == (8, 1, 60, 600)
    assert (jobs.start_s[0], jobs.end_s[0], jobs.ending[0]) == (60, 120, TableEnding.PASSED)
    assert jobs.began_s == 1767225600


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("COMPLETED", TableEnding.PASSED),
        ("CANCELLED by 1000", TableEnding.KILLED),
        ("TIMEOUT", TableEnding.KILLED),
        ("OUT_OF_ME+", TableEnding.FAILED),
        ("NODE_FAIL", TableEnding.FAILED),
    ],
)
def test_slurms_states_are_endings(file: Callable[..., Path], state: str, ending: TableEnding) -> None:
    assert read(file("jobs.txt", HEADER + record(state=state))).table.ending.tolist() == [ending]


def test_what_is_no_ended_gpu_job_is_left_out_and_counted(file: Callable[..., Path]) -> None:
    rows = [
        record(),
        record("7.batch"),
        record("7.0"),
        record("8", gpus=0),
        record("9", state="RUNNING"),
        record("10", state="PENDING", start="Unknown", elapsed=0),
        record("11_[1-4]", state="PENDING", start="Unknown", elapsed=0),
        record("12", state="CANCELLED by 5", start="None", elapsed=0),
        record("13", state="NODE_FAIL", elapsed=0),  # put back before its launch
    ]
    trace = read(file("jobs.txt", HEADER + "".join(rows)))
    assert trace.left_out == {"steps of jobs": 2, "no GPUs": 1, "not ended yet": 1, "never started": 4}
    assert len(trace.table) == 1


def test_records_of_one_id_are_attempts_of_one_job(file: Callable[..., Path]) -> None:
    rows = [
        record(elapsed=30, state="NODE_FAIL"),
        record("8"),
        record(submit="2026-01-01T00:02:00", start="2026-01-01T00:05:00", elapsed=90),
    ]
    jobs = read(file("jobs.txt", HEADER + "".join(rows))).table
    assert jobs.job_id.tolist() == ["7", "8"]
    assert jobs.duration_s.tolist() == [120, 60]
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.PASSED]
    assert (jobs.submit_s[0], jobs.start_s[0], jobs.end_s[0]) == (0, 60, 390)
    assert jobs.attempts is not None
    assert jobs.attempts.first.tolist() == [0, 2, 3]
    assert jobs.attempts.duration_s.tolist() == [30, 90, 60]
    assert jobs.attempts.passed.tolist() == [False, True, True]


def test_a_preemption_is_counted_and_no_failed_attempt(file: Callable[..., Path]) -> None:
    """Job 7 fails, is preempted twice, and passes. Job 8 is preempted and does not come back: that is its end."""
    rows = [
        record(elapsed=30, state="NODE_FAIL"),
        record("8", elapsed=50, state="PREEMPTED"),
        record(start="2026-01-01T00:05:00", elapsed=100, state="PREEMPTED"),
        record(start="2026-01-01T00:10:00", elapsed=7, state="PREEMPT+"),
        record(start="2026-01-01T00:20:00", elapsed=90),
        record("9"),
    ]
    trace = read(file("jobs.txt", HEADER + "".join(rows)))
    jobs = trace.table
    assert jobs.preempted.tolist() == [2, 0, 0]
    assert jobs.duration_s.tolist() == [227, 50, 60]
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.KILLED, TableEnding.PASSED]
    assert jobs.attempts is not None
    assert jobs.attempts.first.tolist() == [0, 2, 3, 4]
    assert jobs.attempts.duration_s.tolist() == [30, 197, 50, 60]
    assert jobs.attempts.passed.tolist() == [False, True, False, True]
    assert trace.notes[1:] == (
        "1 records are further attempts of jobs that were put back",
        "2 records end with a preemption: what ran in them counts as work, not as failed",
    )
    assert [run.metrics.preemptions for run in as_it_was([jobs], Cluster.parse("1x8"))] == [2]
    assert [run.metrics.wasted_gpu_h for run in as_it_was([jobs], Cluster.parse("1x8"))] == [8 * 30 / 3600]


@pytest.mark.parametrize(
    ("again", "left_out"),
    [
        (record(state="RUNNING", start="2026-01-01T00:05:00"), {"not ended yet": 2}),
        (record(state="PENDING", start="Unknown", elapsed=0), {"never started": 1, "not ended yet": 1}),
    ],
)
def test_a_job_that_was_put_back_and_waits_or_runs_again_is_no_failure(
    file: Callable[..., Path], again: str, left_out: dict[str, int]
) -> None:
    trace = read(file("jobs.txt", HEADER + record(state="NODE_FAIL") + record("8") + again))
    assert trace.table.job_id.tolist() == ["8"]
    assert trace.left_out == left_out


def test_the_same_record_twice_is_refused(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"jobs.txt:4: the record was there before \(7\)"):
        read(file("jobs.txt", HEADER + record() + record("8") + record()))


@pytest.mark.parametrize("name", ["a|b", "a|b|c|", "two\nlines", "three\n\nli|nes", "COMPLETED|8"])
def test_what_a_user_wrote_does_not_break_a_record(file: Callable[..., Path], name: str) -> None:
    jobs = read(file("jobs.txt", HEADER + record("6") + record(name=name) + record("8"))).table
    assert jobs.job_id.tolist() == ["6", "7", "8"]
    assert jobs.gpus.tolist() == [8, 8, 8]


@given(
    st.sampled_from(["JobName", "WorkDir", "Comment"]),
    st.text("a|5", max_size=6),
    st.lists(PLAIN, min_size=5, max_size=5),
)
def test_what_a_user_wrote_is_never_taken_for_slurms_columns(column: str, wrote: str, others: list[str]) -> None:
    """Read as it was, or broken: never another user, account or time."""
    names = ("JobID", "JobName", "User", "ElapsedRaw", "WorkDir", "Account", "Comment", "State")
    name, user, directory, account, comment = others
    told = dict(zip(names, ("7", name, user, "5", directory, account, comment, "FAILED"), strict=True)) | {
        column: wrote
    }
    ((_, found),) = RecordJoiner(Layout("|", names)).records([(2, "|".join(told.values()))])
    if found is not None:
        kept = dict(zip(names, found, strict=True))
        assert all(kept[each] == told[each] for each in ("JobID", "User", "ElapsedRaw", "Account", "State"))


def test_a_record_that_can_be_read_in_two_ways_stops_the_trace_with_its_line(file: Callable[..., Path]) -> None:
    """The job's name has a separator, or else its directory: then the user is another."""
    header = HEADER.replace("User|Account|JobName", "JobName|User|Account|WorkDir")
    row = record().replace("ann|lab|train", "train|ann|lab|/home")
    assert read(file("one.txt", header + row)).table.user.tolist() == ["ann"]
    path = file("two.txt", header + row + row.replace("7|", "8|", 1).replace("|ann|", "|x|ann|"))
    with pytest.raises(InputError, match=r"two\.txt:3: "):
        read(path)
    assert read(path, skip_bad=True).table.job_id.tolist() == ["7"]


def test_bytes_that_are_no_text_do_not_break_a_record(file: Callable[..., Path]) -> None:
    raw = (HEADER + record()).encode().replace(b"train", b"\xff\xfe")
    assert len(read(file("jobs.txt", raw)).table) == 1


def test_a_record_that_is_cut_off_is_named_or_skipped(file: Callable[..., Path]) -> None:
    path = file("jobs.txt", HEADER + record() + record("8")[:40])
    with pytest.raises(InputError, match=r"jobs.txt:3: the record has not as many columns"):
        read(path)
    trace = read(path, skip_bad=True)
    assert trace.left_out == {"the record has not as many columns as the header": 1}


def test_a_whole_record_after_a_torn_one_is_not_lost(file: Callable[..., Path]) -> None:
    trace = read(file("jobs.txt", HEADER + "7|torn\n" + record("8")), skip_bad=True)
    assert trace.table.job_id.tolist() == ["8"]


def test_elapsed_in_words_and_seconds_since_the_epoch_are_read(file: Callable[..., Path]) -> None:
    header = HEADER.replace("ElapsedRaw|TimelimitRaw", "Elapsed|Timelimit")
    row = "7|ann|lab|x|1767225600|1767225660|1-00:00:30|UNLIMITED|COMPLETED|1|gres/gpu=1|gres/gpu=1\n"
    jobs = read(file("jobs.txt", header + row)).table
    assert (jobs.duration_s[0], jobs.start_s[0]) == (86430, 60)


def test_a_missing_column_is_named_with_the_command_that_exports_it(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"jobs.txt:1: no column Submit, AllocTRES. Export with TZ=UTC sacct"):
        read(file("jobs.txt", "JobID|Start|ElapsedRaw|State\n7|2026-01-01T00:01:00|5|COMPLETED\n"))


def test_a_separator_of_two_signs_and_a_line_break_in_a_record(public: Callable[[str], Path]) -> None:
    jobs = read(public("traces/slurm_samples/gcm_sample-sacct-one-multiline.txt.gz")).table
    assert jobs.job_id.tolist() == ["201729", "201844"]
    assert jobs.gpus.tolist() == [1024, 256]


def test_steps_alone_leave_no_job(public: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match=r"no job is left of this trace \(sacct: 5040 left out: steps of jobs\)\. "):
        read(public("traces/slurm_samples/gcm_sacct_running_large.txt.gz"))


def test_what_slurm_schedules_by_is_read_where_it_was_exported(file: Callable[..., Path]) -> None:
    header = HEADER.strip() + "|Partition|QOS|ReqCPUS|Eligible\n"
    told = record().strip() + "|gpu|high|32|2026-01-01T00:00:30\n"
    jobs = read(file("jobs.txt", header + told)).table
    assert (jobs.partition[0], jobs.account[0], jobs.qos[0], jobs.cpus[0], jobs.eligible_s[0]) == (
        "gpu",
        "lab",
        "high",
        32,
        30,
    )
    bare = read(file("bare.txt", HEADER + record())).table
    assert (bare.partition[0], bare.account[0], bare.cpus[0]) == ("", "lab", 4)  # of the TRES
    memory = read(file("memory.txt", HEADER + record().replace("cpu=4,", "cpu=4,mem=1.50G,"))).table
    assert (bare.mem_mib[0], memory.mem_mib[0]) == (0, 1536)


@pytest.mark.parametrize(
    ("submit", "start"),
    [
        ("2026-01-01T01:00:00+01:00", "2026-01-01T01:01:00+01:00"),
        ("2025-12-31T19:00:00-0500", "2025-12-31T19:01:00-0500"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00"),
    ],
)
def test_times_with_an_offset_are_the_instants_that_they_name(
    file: Callable[..., Path], submit: str, start: str
) -> None:
    jobs = read(file("jobs.txt", HEADER + record(submit=submit, start=start))).table
    assert (jobs.began_s, jobs.start_s[0]) == (1767225600, 60)


def test_jobs_in_a_state_that_is_not_known_are_left_out_and_named(file: Callable[..., Path]) -> None:
    trace = read(file("jobs.txt", HEADER + record() + record("8", state="VANISHED") + record("9", state="VANISHED")))
    assert trace.left_out == {"their state is not an ending that Slurm knows (VANISHED)": 2}
    assert trace.table.job_id.tolist() == ["7"]


def test_what_slurm_put_back_or_resized_was_killed(file: Callable[..., Path]) -> None:
    rows = record(state="REQUEUED") + record(start="2026-01-01T02:00:00") + record("8", state="RESIZING")
    jobs = read(file("jobs.txt", HEADER + rows)).table
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.KILLED]
    assert jobs.attempts is not None
    assert jobs.attempts.passed.tolist() == [False, True, False]
