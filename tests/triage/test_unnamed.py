"""What no rule names: read by the catalogue or the grammar, or new and so unsure; what rules name stays as it is."""

from __future__ import annotations

import pytest

import perdure.triage.judge as judging
from perdure.triage.classifiers.protocol import Reading
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import Weights, judge
from perdure.triage.text.logtext import LogText
from perdure.triage.unnamed import NEW, is_open
from perdure.triage.verdict import CauseRole, Label, Verdict

RAISED = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    run()\n'
STEPS = "".join(f"step {step} loss 0.{step}\n" for step in range(30))
LINES = [line for rule in own_rules().rules for line in rule.yes]


def said(text: str) -> Verdict:
    return judge(text.encode())


def test_what_a_rule_decides_is_never_read_anew() -> None:
    decided = [hit for line in LINES for hit in own_rules().hits(LogText.of(line.encode()))]
    sharp = [hit for hit in decided if hit.cause.rank in (0, 1, 3)]
    assert len(sharp) > 500
    assert not any(is_open(hit) for hit in sharp)


@pytest.mark.parametrize("line", LINES[::7])
def test_no_verdict_of_a_sharp_rule_changes(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rule leaves the cause open it may; nowhere else."""
    opened: list[bool] = []
    monkeypatch.setattr(judging, "is_open", lambda primary: opened.append(is_open(primary)))
    ruled = said(f"{STEPS}{line}\n")
    monkeypatch.undo()
    if not any(opened):
        assert said(f"{STEPS}{line}\n") == ruled


@pytest.mark.parametrize(
    ("message", "label", "category"),
    [
        (
            "RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0",
            Label.DETERMINISTIC,
            "shape",
        ),
        (
            "ValueError: Found input variables with inconsistent numbers of samples: [3, 4]",
            Label.DETERMINISTIC,
            "shape",
        ),
        ("mylib.LeaseLost: the catalogue server stopped responding", Label.UNSURE, "net"),
        ("ray.exceptions.ObjectFetchTimedOutError: object 3", Label.TRANSIENT, "ray_node"),
        ("pydantic_core.ValidationError: 2 validation errors for Settings", Label.DETERMINISTIC, "config"),
    ],
)
def test_the_message_of_an_exception_is_read(message: str, label: Label, category: str) -> None:
    verdict = said(f"{STEPS}{RAISED}{message}\n")
    assert (verdict.label, verdict.category) == (label, category)
    assert [line.text for line in verdict.evidence if line.role is CauseRole.ROOT] == [message]


def test_what_nobody_has_seen_is_unsure_and_says_so() -> None:
    verdict = said(f"{STEPS}{RAISED}BadShard: shard 7 has odd parts\n")
    assert (verdict.label, verdict.category) == (Label.UNSURE, "unknown")
    assert "not seen before" in verdict.summary
    assert NEW in [line.rule for line in verdict.evidence]


@pytest.mark.parametrize(
    "line",
    [
        "node12 SEL: Power Supply 2 failure detected, asserted",
        "mmfs: Disk lease period expired in cluster x. Attempting to reacquire the lease. Disk lease overdue.",
        "JobId=7 JobState=NODE_FAIL Reason=NodeDown",
        "Warning  FailedCreatePodSandBox  3s  kubelet  Failed to create pod sandbox",
        "fatal: early EOF",
    ],
)
def test_terse_words_at_the_end_of_a_log_stop_nothing(line: str) -> None:
    verdict = said(f"{STEPS}{line}\n")
    assert verdict.label is not Label.DETERMINISTIC
    assert verdict.category != "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "usage: train.py [-h] [--timeout TIMEOUT] [--fail-on-error]",
        "  --timeout SECONDS     seconds until a request failed for lack of an answer",
        "DEBUG: connection refused by 10.0.0.2, error 111",
        "INFO:jax._src.xla_bridge: Unable to initialize backend 'rocm': module has no attribute 'GpuAllocatorConfig'",
        "fail_on_timeout: false",
        "error_threshold = 0.5",
        "/home/ada/.bashrc: line 3: error: cannot open the file of colours",
        "WARNING: could not find the library libfoo.so, going on without",
        "no uncorrectable ECC errors",
        "found 0 errors",
    ],
)
def test_chatter_at_the_end_of_a_log_is_no_cause(line: str) -> None:
    assert said(f"{STEPS}{line}\n").label is Label.UNSURE


@pytest.mark.parametrize(
    "message",
    [
        "OSError: Unable to open file (unable to lock file, another process holds it, errno = 35)",
        "ERROR: unsupported state: the metadata server stopped responding",
    ],
)
def test_words_of_passing_trouble_are_not_stopped_by_a_word_that_any_program_uses(message: str) -> None:
    assert said(f"{STEPS}{RAISED}{message}\n").label is not Label.DETERMINISTIC


@pytest.mark.parametrize(
    "line",
    [
        "reductor: fatal: the account of this project is not valid",
        "SolverError: the table of units is forbidden",
        "mesher: error: no token available for this user",
    ],
)
def test_a_program_that_nobody_knows_gets_one_probing_retry(line: str) -> None:
    """Of such stops one in five was wrong on lines read as if nobody had seen them."""
    verdict = said(f"{STEPS}{RAISED}{line}\n" if "Error:" in line else f"{STEPS}{line}\n")
    assert verdict.label is Label.UNSURE
    assert verdict.category != "unknown"


def test_what_work_follows_is_not_read() -> None:
    assert said(f"error: the quota server could not be reached\n{STEPS}").category == "unknown"


@pytest.mark.parametrize("garbage", [b"", b"\x00\xff" * 99, b"Error:", b"Error: \n" * 40, b"FATAL:" + b"a" * 9000])
def test_nothing_makes_it_fail(garbage: bytes) -> None:
    assert judge(garbage).label in Label


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("scp: Connection closed", "net"),
        ("gpg: decryption failed: No secret key", "auth"),
        ("tar: run/metrics.bin: file changed as we read it", "fs"),
        ("bzip2: a.bz2 is not a bzip2 file.", "data"),
        ("sed: -e expression #1, char 5: unterminated `s' command", "syntax"),
        ("jq: error (at r.json:1): Cannot iterate over null (null)", "data"),
        ("error: f: patch does not apply", "config"),
    ],
)
def test_the_last_line_of_a_log_is_read_where_a_program_reports_in_it(line: str, category: str) -> None:
    """By the conventions of POSIX: its name, a colon, what is wrong. No word of failure need be there."""
    assert said(f"staging data\n{line}\n").category == category
    assert said(f"staging data\n{line}\n").p_transient >= 0.15


def test_a_calm_last_line_of_a_program_says_nothing() -> None:
    assert said("staging data\nwandb: Synced 5 files to the cloud\n").category == "unknown"


NOTICE = "Job 7 has exceeded memory allocation on node n1\n"
KILL = "job.sh: line 3:  4711 Killed                  python train.py\n"


def test_what_the_manager_says_of_memory_before_a_kill_is_the_cause() -> None:
    assert said(KILL).category == "killed"
    assert said(NOTICE + KILL).category == "host_oom"


def test_of_a_tool_that_prints_help_behind_its_name_the_first_lines_are_read() -> None:
    help_text = "".join(f"npm error   --option{n}  if this is not set, a file is missing\n" for n in range(60))
    verdict = said(f"npm error code EUSAGE\nnpm error\nnpm error see below\n{help_text}")
    assert verdict.evidence[0].text == "npm error code EUSAGE"


def test_an_exception_that_nobody_knows_is_told_by_the_one_raised_from_it() -> None:
    unknown = f"{RAISED}mylib.SomethingOdd\n"
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    assert NEW in {line.rule for line in said(unknown).evidence}
    assert said(f"{unknown}{chain}{RAISED}TimeoutError\n").category == "net"


def test_a_large_allocation_before_a_kill_is_lack_of_memory() -> None:
    warning = (
        "2025-10-20 22:56:00.03: W cpu_allocator_impl.cc:84] Allocation of {} exceeds 10% of free system memory.\n"
    )
    killed = "/var/lib/slurm/job1/slurm_script: line 12:  9442 Killed                  python centroids.py\n"
    assert judge((warning.format(15302833288) + killed).encode()).category == "host_oom"
    assert judge((warning.format(53999200) + killed).encode()).category == "killed"
    assert judge(warning.format(15302833288).encode()).category != "host_oom"  # nobody was killed


def test_nextflow_names_the_error_in_the_line_after_it() -> None:
    head = "Apr-29 11:01:06.814 [main] ERROR nextflow.cli.Launcher - @unknown\n"
    used = "nextflow.dag.MultipleOutputChannelException: Channel `x` has been used twice as an output by process `a`\n"
    assert judge((head + used).encode()).category == "api"


class Leaning:
    """A model that is sure."""

    def __init__(self, z: float) -> None:
        self.z = z

    def log_odds(self, reading: Reading) -> float:
        return self.z


@pytest.mark.parametrize("z", [-9.0, 9.0])
def test_what_was_not_seen_before_is_unsure_however_sure_a_model_is(z: float) -> None:
    sure = Weights(cap=9.0, pulls=(1.0,) * 7)
    found = judge(f"{STEPS}{RAISED}mylib.Zweig: qwx 7 brl\n".encode(), model=Leaning(z), weights=sure)
    assert NEW in {line.rule for line in found.evidence}
    assert found.label is Label.UNSURE


def test_an_unknown_exception_is_told_by_the_known_one_that_was_raised_from_it() -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    unknown = f"{STEPS}{RAISED}mylib.Zweig: qwx 7 brl\n"
    assert said(unknown).category == "unknown"
    known = said(f"{unknown}{chain}{RAISED}FileNotFoundError: [Errno 2] No such file or directory: '/d/x.csv'\n")
    assert (known.category, known.label) == ("missing_file", Label.DETERMINISTIC)
