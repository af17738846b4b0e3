"""Where a job's ranks write to, by its batch script, which may hold anything."""

import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.rank_files import with_ranks
from perdure.backends.script import MAX_BYTES, RANK, pattern_of, read_script
from perdure.backends.slurm.outputs import (
    JobOutputs,
    has_failed,
    may_have_been_warned,
    may_hold_others_lines,
    outputs_of,
    request_of,
)
from perdure.backends.slurm.paths import MAX_NAMES, Names, expand_patterns
from perdure.backends.slurm.records import JobRecord, read_jobs
from perdure.backends.slurm.sbatch import appends, asked_by
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import OutputFile, OutputKind
from tests.backends.slurm.text import MARK, job
from tests.copying import replace


@pytest.fixture
def record() -> JobRecord:
    (found,) = read_jobs(job(4711).encode(), MARK).whole
    return replace(found, work_dir="/w", stdout="/w/slurm-4711.out", stderr="/w/slurm-4711.out", nodes=("n7",))


def found(record: JobRecord, script: str) -> JobOutputs:
    return outputs_of(record, script.encode(), {}, home="/home/mira")


def matches(outputs: JobOutputs, path: str) -> Any:
    for search in outputs.files.searches:
        if not path.startswith(search.root + "/"):
            continue
        parts = path.removeprefix(search.root + "/").split("/")
        if len(parts) != len(search.parts):
            continue
        tried = [re.fullmatch(pattern, part) for pattern, part in zip(search.parts, parts, strict=True)]
        hits = [hit for hit in tried if hit]
        if len(hits) == len(tried):
            return next((h["rank"] for h in hits if "rank" in h.groupdict()), "")
    return None


@pytest.mark.parametrize(
    ("line", "path", "rank"),
    [
        ("srun -o rank.%j.%t.log python t.py", "/w/rank.4711.3.log", "3"),
        ("srun -orank.%t.log python t.py", "/w/rank.3.log", "3"),
        ("srun -n 4 --output=/l/%j/%4t.out a", "/l/4711/0003.out", "0003"),
        ("time srun -u -n4 --error /l/%N.%s.%t.err a", "/l/n7.0.3.err", "3"),
        ('D=/l/$SLURM_JOB_ID\nsrun -o "$D/%t.log" a', "/l/4711/3.log", "3"),
        ("export D=${SLURM_SUBMIT_DIR}/x; true\nsrun -o logs-%j/%t.log a", "/w/logs-4711/3.log", "3"),
        ("srun \\\n  -o r%t.log \\\n  a", "/w/r3.log", "3"),
        ("srun -o r%t.log sh -c '\nmore\n'", "/w/r3.log", "3"),
        ("python t.py > r$SLURM_PROCID.log", "/w/r3.log", "3"),
        ("cd /scratch/run && true\nsrun -o r%t.log a", "/scratch/run/r3.log", "3"),
        ('cd "$SLURM_SUBMIT_DIR/x y"; cd z\nsrun -o r%t.log a', "/w/x y/z/r3.log", "3"),
        ("cd /l\ncd $SLURM_JOB_ID\nsrun -o r%t.log a", "/l/4711/r3.log", "3"),
        ("D=logs/$(date +%s)\nsrun -o $D/r%t a", "/w/logs/1700000000/r3", "3"),
        ("for s in a b; do\nsrun -o $HOME/l/%j-$s.log a", "/home/mira/l/4711-b.log", ""),
    ],
)
def test_srun_tells_where_ranks_write_to(record: JobRecord, line: str, path: str, rank: str) -> None:
    assert matches(found(record, line), path) == rank


@pytest.mark.parametrize(
    ("line", "files", "appended"),
    [
        ("python t.py > t.log 2>&1", ["/w/t.log"], []),
        ("python t.py >>logs/t.log 2> ./t.err &", ["/w/logs/t.log", "/w/t.err"], ["/w/logs/t.log"]),
        ("python t.py &> $SLURM_JOB_NAME.log", ["/w/job.log"], []),
        ("exec > >(tee -a ~/t.log) 2>&1", ["/home/mira/t.log"], ["/home/mira/t.log"]),
        ("L=~/logs\npython t.py > $L/t.log 2>&1", ["/home/mira/logs/t.log"], []),
        ("python t.py 2>&1 | tee -a t.log | grep loss", ["/w/t.log"], ["/w/t.log"]),
        ("srun -o none python t.py > /l/t.log", ["/l/t.log"], []),
        ("cat > config.yaml <<EOF", [], []),
        ("python t.py > /dev/null 2>&1", [], []),
        ("exec >t.log 2>&1", ["/w/t.log"], []),
        ("[ -z $X ] || python a.py -x 3 >& t.log", ["/w/t.log"], []),
        ("echo start; python t.py > t.log 2>&1", ["/w/t.log"], []),
        ("set -e; echo a > a.txt && python t.py >>t.log || true", ["/w/t.log"], ["/w/t.log"]),
        ("echo a; ( cd r; python t.py &>t.log ); python u.py >u.log", ["/w/r/t.log", "/w/u.log"], []),
        ("(cd r && python t.py)>t.log;date", ["/w/t.log"], []),
        ("{ echo a; python t.py; } > t.log 2>&1", ["/w/t.log"], []),
        ("echo a;\\\n  D=/l; python t.py \\\n  > $D/t.log 2>&1", ["/l/t.log"], []),
        ("date; python t.py 2>&1 |& tee t.log", ["/w/t.log"], []),
        ("echo a | tee a.txt; cat x | python t.py 2> t.err | grep -v b > t.log", ["/w/t.err", "/w/t.log"], []),
        ("date; exec > t.log 2>&1", ["/w/t.log"], []),
        ("date; exec &> >(tee -a t.log)", ["/w/t.log"], ["/w/t.log"]),
        ("if A=1 python t.py > t.log; then echo b > b.txt; fi", ["/w/t.log"], []),
        (
            "for i in 1 2; do echo $i > i.txt; done; cd $(a $(b)); cd -; cd /l; (( $i > 3 )) || a > $((i + 1)).log",
            [],
            [],
        ),
        ("date; bash -lc 'cd /l; python t.py > t.log; echo a > a.txt'", ["/l/t.log"], []),
        ("srun sh -c 'echo a; python t.py > t.log 2>&1;\ndate > d.txt'", ["/w/t.log"], []),
        ("[[ $a > b ]] && test c > d; python t.py >&2 2>&-", [], []),
    ],
)
def test_what_is_sent_to_a_file_is_read_there(
    record: JobRecord, line: str, files: list[str], appended: list[str]
) -> None:
    outputs = found(record, line)
    assert (list(outputs.files.plain), list(outputs.files.appended)) == (files, appended)


@pytest.mark.parametrize(
    "line",
    [
        "# srun -o r%t.log a",
        "srun python t.py -o r%t.log",
        "srun -n 2 ./a --output r%t.log",
        "srun --exclusive ./a -o r%t.log",
        "echo srun; true -o r%t.log",
        "srun -o none a",
        "python t.py --log-dir r%t.log",
    ],
)
def test_what_is_no_option_of_srun_is_none(record: JobRecord, line: str) -> None:
    outputs = found(record, line)
    assert matches(outputs, "/w/r3.log") is None
    assert outputs.files.plain == ()


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node=8 --log-dir /l/run --redirects 3 t.py",
        "python -m torch.distributed.run --log_dir=/l/run t.py",
    ],
)
def test_a_launchers_directory_is_searched(record: JobRecord, line: str) -> None:
    search = found(record, line).files.searches[0]
    assert (search.root, search.depth) == ("/l/run", 4)
    assert all(re.fullmatch(search.parts[0], name) for name in ("stdout.log", "stderr.log", "stderr", "rank.0.err"))
    assert not any(re.fullmatch(search.parts[0], name) for name in ("model.pt", "t.py", "error.json"))


def test_mpiruns_option_is_a_directory_or_a_prefix(record: JobRecord) -> None:
    outputs = found(record, "mpirun -np 2 --output-filename /l/mpi ./a")
    assert [search.root for search in outputs.files.searches[:2]] == ["/l/mpi", "/l"]
    assert matches(outputs, "/l/mpi.1.0") == ""


def test_what_cannot_be_resolved_is_named(record: JobRecord) -> None:
    outputs = found(record, "srun -o $SCRATCH/r%t.log a")
    assert outputs.files.unknown
    assert matches(outputs, "/w/r3.log") is None
    assert found(record, "srun -o link/../../etc/%t a").files.unknown == ("link/../../etc/?",)


def test_a_path_may_lead_upward_from_the_working_directory(record: JobRecord) -> None:
    below = replace(record, work_dir="/w/runs/a")
    assert matches(found(below, "srun -o ../logs/r%t.log a"), "/w/runs/logs/r3.log") == "3"
    assert found(below, "python t.py > ./../../t.out 2>&1").files.plain == ("/w/t.out",)
    assert found(below, "python t.py > ../../../../t.out").files.plain == ("/t.out",)


def test_an_id_that_is_given_out_again_is_another_job(record: JobRecord) -> None:
    """A slurmctld that lost its state counts its ids from where it last saved it."""
    known = outputs_of(record, b"", {})
    assert known.are_of(replace(record, restarts=record.restarts + 1, state="FAILED"))
    assert not known.are_of(replace(record, uid=record.uid + 1))
    assert not known.are_of(replace(record, stdout="/o/another.out"))


def test_a_file_named_by_the_job_counts_as_whole_number_alone(record: JobRecord) -> None:
    def named(record: JobRecord, *names: str) -> list[Any]:
        (search,) = outputs_of(record, b"", {}).files.searches
        return [name for name in names if re.fullmatch(search.parts[0], name)]

    assert named(record, "t-4711.log", "4711", "14711.log", "47110.log", "a.log") == ["t-4711.log", "4711"]
    small = replace(record, raw_id=7, job_id="7")
    assert named(small, "epoch-7.log", "job-7.log", "slurm-7.err", "job_id=7", "job17.log") == [
        "job-7.log",
        "slurm-7.err",
        "job_id=7",
    ]


def test_files_named_by_the_job_are_looked_for_beside_each_of_its_own_two(record: JobRecord) -> None:
    outputs = found(replace(record, stdout="/o/slurm-4711.out", stderr="/e/slurm-4711.err"), "")
    assert [search.root for search in outputs.files.searches] == ["/w", "/o", "/e"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("#SBATCH --open-mode=append", True),
        ("#SBATCH -J a --open-mode append", True),
        ("#SBATCH --open-mode=truncate", False),
    ],
)
def test_the_open_mode_is_read(record: JobRecord, script: str, expected: bool) -> None:
    assert outputs_of(record, script.encode(), {}).appends is expected
    assert appends("sbatch " + script.partition(" ")[2] + " a.sh") is expected


def test_what_a_remark_says_of_the_open_mode_is_no_option() -> None:
    assert not asked_by(b"#!/bin/sh\n# not --open-mode=append\n").appends


def test_one_file_is_wanted_once_where_both_streams_go_there(record: JobRecord) -> None:
    assert found(record, "").stderr == ()
    assert found(replace(record, stderr="/w/e"), "").stderr == ("/w/e",)


def test_a_task_of_an_array_names_files_by_the_arrays_number_and_its_own(record: JobRecord) -> None:
    (search,) = found(replace(record, job_id="4700_3"), "").files.searches
    names = ["t-4700_3.log", "t-4711.log", "t-4700_31.log", "t-4700.log"]
    assert [name for name in names if re.fullmatch(search.parts[0], name)] == ["t-4700_3.log", "t-4711.log"]


ATTEMPT = Attempt(AttemptId("c", "4711", 1000), AttemptState.FAILED, ("n7",), 1000.0, 1100.0, user="mira")


def test_clocks_of_file_servers_may_be_a_moment_behind(record: JobRecord) -> None:
    request = request_of(ATTEMPT, found(record, "srun -o r%t.log a"), 7, 100, ())
    assert {search.since_s for search in request.searches} == {998.0}
    files = tuple(OutputFile(f"/w/r{s}", b"x", kind=OutputKind.RANK, written_s=s) for s in (990.0, 999.0, 1050.0))
    assert [file.written_s for file in with_ranks(files, ATTEMPT.start_s)] == [999.0, 1050.0]


@pytest.mark.parametrize(("line", "asked"), [("python t.py >> t.log", True), ("python t.py > t.log", False)])
def test_when_a_file_came_into_being_is_asked_where_it_is_appended_to(
    record: JobRecord, line: str, asked: bool
) -> None:
    assert request_of(ATTEMPT, found(record, line), 7, 100, ()).births is asked


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [("PENDING", "", False), ("RUNNING", "", False), ("COMPLETED", "", False), ("COMPLETING", "", False),
     ("COMPLETING", "NonZeroExitCode", True), ("COMPLETING", "RaisedSignal:9(Killed)", True),
     ("FAILED", "NonZeroExitCode", True), ("NODE_FAIL", "", True), ("CANCELLED", "", False)],
)  # fmt: skip
def test_only_of_what_failed_the_script_is_asked_for(
    record: JobRecord, state: str, reason: str, expected: bool
) -> None:
    assert has_failed(replace(record, state=state, reason=reason)) is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({}, True), ({"signal": 0, "exit_code": 138}, True), ({"walltime_s": None}, False), ({"signal": 9}, False),
     ({"state": "COMPLETED", "signal": 0}, False), ({"signal": 0, "exit_code": 10}, False)],
)  # fmt: skip
def test_only_what_a_signal_of_persons_ended_before_a_walltime_may_have_been_warned(
    record: JobRecord, changed: Mapping[str, Any], expected: bool
) -> None:
    ended = replace(record, state="FAILED", reason="RaisedSignal:10(User_defined_signal_1)", signal=10, walltime_s=600)
    assert may_have_been_warned(replace(ended, **changed)) is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({}, False), ({"stdout": "/w/train.log"}, True), ({"stderr": "/w/train.err"}, True), ({"restarts": 1}, True),
     ({"stdout": "/w/47110.out"}, True), ({"stderr": ""}, False), ({"job_id": "4711_2"}, True),
     ({"job_id": "4711_2", "stdout": "/w/4711_2.out", "stderr": "/w/e-4711_2"}, False),
     ({"stdout": "/runs/4711/out"}, False), ({"raw_id": 2, "stdout": "/w2/run-2/o", "stderr": ""}, True)],
)  # fmt: skip
def test_a_file_may_hold_lines_of_others_unless_its_name_and_its_age_say_no(
    record: JobRecord, changed: Mapping[str, Any], expected: bool
) -> None:
    assert may_hold_others_lines(replace(record, **changed)) is expected


hostile = st.text(st.sampled_from("sruno -%tj$({})`'\"\\\n/.=D;|&\x00\x01\x02\x03é0"), max_size=400)


@given(hostile)
def test_no_script_breaks_the_reading(text: str) -> None:
    said = read_script(b"srun " + text.encode(), {"D": "/x"}, {"t": RANK, "j": "1"})
    for path in (*said.files, *said.directories):
        for part in path.split("/"):
            re.compile(pattern_of(part)).fullmatch("x" * 255)


@pytest.mark.parametrize(
    "text",
    [
        b"srun -o " + b"%t" * 100_000,
        b"srun " + b"-o %t " * 60_000,
        b"D=$D$D$D$D\n" * 20_000 + b"srun -o $D a",
        b"srun '" + b"\\\n" * 100_000,
        b"$(" * 200_000,
        b"srun -o a\n" * 50_000,
        b"a > b;" * 50_000,
        (b"((a > b" * 1000 + b"\n") * 40,
        b"D=a cd b;" * 50_000,
        (b"bash -c 'bash -c a > b;" * 300 + b"\n") * 40,
    ],
    ids=range(10),
)
def test_no_script_takes_long(text: bytes) -> None:
    begun = time.thread_time()
    said = read_script(text + b"\n" * MAX_BYTES, {"D": "ab"}, {"t": RANK})
    assert time.thread_time() - begun < 5.0
    assert len(said.files) <= 2 * 5000


@given(st.text(st.sampled_from("%0123tjNxAabnsu/\\"), max_size=60))
def test_a_path_has_few_names_and_keeps_its_other_text(text: str) -> None:
    names = Names(dict.fromkeys("%AaJjNnstuxb", ("v",))).names(text)
    assert 1 <= len(names) <= MAX_NAMES
    assert len(set(names)) == len(names)
    if "%" not in text and "\\" not in text:
        assert names == (text,)


def test_the_likeliest_names_come_first(record: JobRecord) -> None:
    names = Names.for_job(replace(record, name="50%job"), {"n7": "host7.site"})
    found = names.names("/o/50%job-%N-%4t-%b.log")
    assert found[0] == "/o/504711ob-host7-0000-0.log"
    assert "/o/50%job-host7-0000-%b.log" in found
    assert "/o/504711ob-n7-0000-0.log" in found


@pytest.mark.parametrize(
    ("printed", "written"),  # as seen on 22.05, where `run\\%j.out` was asked for, and so on
    [
        ("/o/run\\4711.out", "/o/run%j.out"),
        ("/o/a\\b4711.out", "/o/ab%j.out"),
        ("/o/q\\\\4711.out", "/o/q\\%j.out"),
        ("/o/y4711\\.out", "/o/y%j.out"),
        ("/o/4711/\\a-%N.out", "/o/4711/a-%N.out"),
        ("/o/ada/\\ada-14711.out", "/o/ada/ada-14711.out"),
    ],
)
def test_a_backslash_switches_patterns_off(record: JobRecord, printed: str, written: str) -> None:
    assert Names.for_job(record, {}).names(printed)[0] == written
    assert expand_patterns(replace(record, stdout=printed), {}).stdout == written


def test_what_a_backslash_leaves_open_is_tried_too(record: JobRecord) -> None:
    names = Names.for_job(record, {}).names("/o/4711/job\\-4711.out")
    assert {"/o/4711/job-%A.out", "/o/4711/job-4711.out", "/o/%j/%x-%j.out"} <= set(names)
    assert len(names) <= MAX_NAMES


def test_patterns_of_an_array_tell_its_number_and_the_tasks(record: JobRecord) -> None:
    path = "/o/%A_%a-%j-%b.log"
    assert Names.for_job(replace(record, job_id="4700_13"), {}).names(path)[0] == "/o/4700_13-4711-3.log"
    assert Names.for_job(record, {}).names(path)[0] == "/o/4711_4294967294-4711-0.log"
