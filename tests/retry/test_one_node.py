"""What one node lacks and the others have: failures that read like a user's mistake."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.output import Absent, Output, Why
from perdure.retry.decide import DecisionKind, decide
from perdure.retry.history import Fleet
from perdure.retry.one_node import MAX_ENDS, REMEMBERED_S, NodeEnd, is_of_place, of_one_node, with_end
from perdure.retry.rules import RetryRules
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label
from tests.copying import replace

NOW = 10_000.0
JOB = Job("c", "1", "train", "ada", JobState.FAILED, 0.0, gpus=1)
FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n2",), NOW - 5, NOW, exit_code=1, gpus=1, user="ada")
LOGS = [
    'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nFileNotFoundError: [Errno 2] No such'
    " file or directory: '/datasets/coco/annotations.json'\n",
    "slurm_script: line 3: /sw/lmod/lmod/init/bash: No such file or directory\nslurm_script: line 4: module: command"
    " not found\nslurm_script: line 6: python: command not found\n",
    "ModuleNotFoundError: No module named 'torch'\n",
    "slurm_script: line 3: /sw/envs/pt/bin/activate: No such file or directory\n",
    'Lmod has detected the following error: The following module(s) are unknown: "cuda/12.9"\n',
]
FLEET = Fleet(usable={"": frozenset({"n1", "n2", "n3", "n4"})}, live_jobs=10)


def end(user, name, node, passed, ago_s=60.0, lacked="missing_file"):
    return NodeEnd(NOW - ago_s, user, name, (node,), "" if passed else lacked)


def told(ends, log=LOGS[0], job=JOB, attempt=FAILED):
    return of_one_node(judge(log.encode(), attempt), job, attempt, ends, NOW)


def decided(verdict):
    return decide(JOB, FAILED, verdict, (), FLEET, RetryRules(), NOW)


@pytest.mark.parametrize("log", LOGS)
def test_a_job_whose_like_passed_elsewhere_is_probed_away_from_the_node(log):
    verdict = told([end("ada", "train", "n3", True), end("ada", "train", "n4", True)], log)
    assert is_of_place(verdict)
    assert verdict.label is Label.UNSURE  # so that blame counts it against the node
    assert verdict.summary.endswith("but jobs of this name passed on n3, n4, and none on n2 since")
    decision = decided(verdict)
    assert (decision.kind, decision.exclude) == (DecisionKind.PROBE, ("n2",))


@pytest.mark.parametrize("log", LOGS)
def test_jobs_of_several_users_that_fail_on_one_node_alone_are_retried_away_from_it(log):
    kind = judge(log.encode(), FAILED).category
    here = [end("ben", "tune", "n2", False, 200.0, kind), end("cho", "dist", "n2", False, 100.0, "fs")]
    verdict = told([*here, end("eli", "bench", "n3", True)], log)
    assert (verdict.label, verdict.bound, verdict.infrastructure) == (Label.TRANSIENT, Bound.NODE, True)
    assert "the last 3 jobs on n2, of 3 users, all lacked something there, and jobs pass on n3" in verdict.summary
    decision = decided(verdict)
    assert (decision.kind, decision.exclude) == (DecisionKind.RETRY, ("n2",))


@pytest.mark.parametrize(
    "ends",
    [
        [],
        [end("ada", "train", "n2", True)],
        [end("ada", "train", "n3", True, 90.0), end("ada", "train", "n2", True)],  # it passed here since
        [end("ada", "other", "n3", True), end("ben", "train", "n3", True)],
        [end("ada", "train", "n3", True, REMEMBERED_S)],
        [end("ada", "x", "n2", False), end("ada", "y", "n2", False), end("eli", "z", "n3", True)],  # one user
        [end("ben", "x", "n2", False), end("eli", "z", "n3", True)],
        [end("ben", "x", "n2", False), end("cho", "x", "n2", False), end("dan", "y", "n2", True),
         end("eli", "z", "n3", True)],  # in one look
        [end("ben", "x", "n2", False, 90.0), end("cho", "x", "n2", False, 80.0), end("cho", "y", "n2", True),
         end("eli", "z", "n3", True)],
        [end("ben", "x", "n2", False, 90.0, "import"), end("cho", "x", "n2", False), end("eli", "z", "n3", True)],
        [end("ben", "x", "n2", False), end("cho", "x", "n2", False)],  # nobody passes anywhere
        [end("ben", "x", "n2", False), end("cho", "x", "n2", False), end("eli", "z", "n3", True, 90.0)],
    ],
)  # fmt: skip
def test_a_mistake_of_its_own_stays_one(ends):
    verdict = told(ends)
    assert verdict == judge(LOGS[0].encode(), FAILED)
    assert decided(verdict).kind is DecisionKind.STOP


def test_other_failures_and_names_that_say_nothing_are_left_alone():
    passed = [end("ada", "train", "n3", True), end("ada", "wrap", "n3", True)]
    assert told(passed, "ValueError: x\n").label is Label.DETERMINISTIC
    assert told(passed, job=replace(JOB, name="wrap")).label is Label.DETERMINISTIC


def test_what_is_remembered_is_bounded():
    ends: tuple[NodeEnd, ...] = ()
    for _ in range(MAX_ENDS + 5):
        ends = with_end(ends, JOB, FAILED, "", NOW)
    assert len(ends) == MAX_ENDS
    assert with_end(ends, None, FAILED, "import", NOW + REMEMBERED_S) == (
        NodeEnd(NOW + REMEMBERED_S, "ada", "", ("n2",), "import"),
    )


@pytest.mark.parametrize("why", [Why.NO_DIRECTORY, Why.NOT_WRITABLE])
def test_an_output_that_the_service_sees_missing_is_nowhere_else(why):
    here = [end("ben", "tune", "n2", False, 200.0), end("cho", "dist", "n2", False, 100.0)]
    launch = replace(FAILED, state=AttemptState.LAUNCH_FAILED, exit_code=0)
    verdict = judge(Output(absent=(Absent("/home/ada/out/1.log", why, "it cannot be written"),)), launch)
    assert of_one_node(verdict, JOB, launch, [*here, end("eli", "bench", "n3", True)], NOW) is verdict
    assert not is_of_place(verdict)
