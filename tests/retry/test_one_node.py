"""What one node lacks and the others have: failures that read like a user's mistake."""

from collections.abc import Sequence

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.output import Absent, Output, Why
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import Fleet
from perdure.retry.one_node import MAX_ENDS, REMEMBERED_S, NodeEnd, is_of_place, of_one_node, with_end
from perdure.retry.rules import RetryRules
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict
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


def end(user: str, name: str, node: str, passed: bool, ago_s: float = 60.0, lacked: str = "missing_file") -> NodeEnd:
    return NodeEnd(NOW - ago_s, user, name, (node,), "" if passed else lacked)


def told(ends: Sequence[NodeEnd], log: str = LOGS[0], job: Job = JOB, attempt: Attempt = FAILED) -> Verdict:
    return of_one_node(judge(log.encode(), attempt), job, attempt, ends, NOW)


def decided(verdict: Verdict) -> Decision:
    return decide(JOB, FAILED, verdict, (), FLEET, RetryRules(), NOW)


@pytest.mark.parametrize("log", LOGS)
def test_a_job_whose_like_passed_elsewhere_is_probed_away_from_the_node(log: str) -> None:
    verdict = told([end("ada", "train", "n3", True), end("ada", "train", "n4", True)], log)
    assert is_of_place(verdict)
    assert verdict.label is Label.UNSURE  # so that blame counts it against the node
    assert verdict.summary.endswith("but jobs of this name passed on n3, n4, and none on n2 since")
    decision = decided(verdict)
    assert (decision.kind, decision.exclude) == (DecisionKind.PROBE, ("n2",))


def test_a_like_gang_that_passed_on_one_of_its_nodes_since_shows_that_nothing_is_lacking_there() -> None:
    gang, elsewhere = replace(FAILED, nodes=("n1", "n2")), end("ada", "train", "n3", True, 90.0)
    assert told([elsewhere], attempt=gang).label is Label.UNSURE
    assert told([elsewhere, end("ada", "train", "n2", True)], attempt=gang).label is Label.DETERMINISTIC


def test_a_failure_on_no_node_is_no_nodes() -> None:
    ends = [end("ada", "train", "n3", True)]
    assert told(ends, attempt=replace(FAILED, nodes=())) == told([])


@pytest.mark.parametrize(("before", "now"), [(0.1, 0.5), (0.6, 0.6)])
def test_what_others_find_elsewhere_makes_no_retry_less_hopeful(before: float, now: float) -> None:
    unsure = Verdict(Label.UNSURE, before, "missing_file", "a file is missing")
    assert of_one_node(unsure, JOB, FAILED, [end("ada", "train", "n3", True)], NOW).p_transient == now


@pytest.mark.parametrize("log", LOGS)
def test_jobs_of_several_users_that_fail_on_one_node_alone_are_retried_away_from_it(log: str) -> None:
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
        [end("ben", "w", "n2", True, 95.0), end("ada", "x", "n2", False, 90.0), end("ada", "y", "n2", False, 80.0),
         end("eli", "z", "n3", True)],  # of the two users here one has passed
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
def test_a_mistake_of_its_own_stays_one(ends: list[NodeEnd]) -> None:
    verdict = told(ends)
    assert verdict == judge(LOGS[0].encode(), FAILED)
    assert decided(verdict).kind is DecisionKind.STOP


def test_other_failures_and_names_that_say_nothing_are_left_alone() -> None:
    passed = [end("ada", "train", "n3", True), end("ada", "wrap", "n3", True)]
    assert told(passed, "ValueError: x\n").label is Label.DETERMINISTIC
    assert told(passed, job=replace(JOB, name="wrap")).label is Label.DETERMINISTIC


def test_what_is_remembered_is_bounded() -> None:
    ends: tuple[NodeEnd, ...] = ()
    for _ in range(MAX_ENDS + 5):
        ends = with_end(ends, JOB, FAILED, "", NOW)
    assert len(ends) == MAX_ENDS
    assert with_end(ends, None, FAILED, "import", NOW + REMEMBERED_S) == (
        NodeEnd(NOW + REMEMBERED_S, "ada", "", ("n2",), "import"),
    )


@pytest.mark.parametrize("why", [Why.NO_DIRECTORY, Why.NOT_WRITABLE])
def test_an_output_that_the_service_sees_missing_is_nowhere_else(why: Why) -> None:
    here = [end("ben", "tune", "n2", False, 200.0), end("cho", "dist", "n2", False, 100.0)]
    launch = replace(FAILED, state=AttemptState.LAUNCH_FAILED, exit_code=0)
    verdict = judge(Output(absent=(Absent("/home/ada/out/1.log", why, "it cannot be written"),)), launch)
    assert of_one_node(verdict, JOB, launch, [*here, end("eli", "bench", "n3", True)], NOW) is verdict
    assert not is_of_place(verdict)


def failed(user: str, ago_s: float, node: str = "n2") -> NodeEnd:
    return end(user, f"job of {user}", node, False, ago_s, judge(LOGS[0].encode(), FAILED).category)


def test_of_several_passes_on_the_node_the_last_counts() -> None:
    elsewhere = end("eli", "bench", "n3", True, 20.0)
    early = end("dan", "old", "n2", True, 900.0)
    late = end("dan", "new", "n2", True, 150.0)
    fails = [failed("ben", 200.0), failed("cho", 180.0), failed("fay", 100.0)]
    for passes in ([early], [early, late], [late, early]):
        assert (told([*passes, *fails, elsewhere]).label is Label.TRANSIENT) is (late not in passes)
    mine = [end("ada", "train", "n2", True, ago_s) for ago_s in (300.0, 50.0)]
    assert told([end("ada", "train", "n3", True, 100.0), *mine]).label is not Label.UNSURE
    assert told([end("ada", "train", "n3", True, 100.0), mine[0]]).label is Label.UNSURE


def test_what_passed_elsewhere_since_the_first_of_the_failures_counts() -> None:
    fails = [failed("ben", 200.0), failed("cho", 100.0)]
    for ago_s, is_of_node in ((150.0, True), (250.0, False)):
        verdict = told([*fails, end("eli", "bench", "n3", True, ago_s)])
        assert (verdict.label is Label.TRANSIENT) is is_of_node


def test_of_a_gangs_nodes_any_may_be_the_one() -> None:
    gang = replace(FAILED, nodes=("n1", "n2"))
    ends = [failed("ben", 200.0), failed("cho", 100.0), end("eli", "bench", "n3", True, 20.0)]
    assert "jobs on n2" in told(ends, attempt=gang).summary
