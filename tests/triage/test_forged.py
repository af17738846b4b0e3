"""A user can print what he likes in his own log: it buys one probing retry a fingerprint, and no node is blamed."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import Fleet, PastFailure, blamed, fingerprint_of
from perdure.retry.rules import RetryRules
from perdure.triage.judge import judge
from perdure.triage.verdict import Verdict

NODES = frozenset({"n1", "n2", "n3", "n4"})
FLEET = Fleet(usable={"": NODES}, live_jobs=100)
RULES = RetryRules()
LIES = [
    "Xid 79",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid={n}, GPU has fallen off the bus.",
    "NCCL timeout",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n})",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "slurmstepd: error: *** JOB {n} ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO NODE FAILURE ***",
    "slurmstepd: error: *** JOB {n} ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO PREEMPTION ***",
]


def _forged(lie: str, n: int) -> Verdict:
    return judge(f"step {n}\n{lie.format(n=n)}\n".encode(), _attempt("1", n))


def _attempt(job_id: str, n: int) -> Attempt:
    return Attempt(AttemptId("c", job_id, n), AttemptState.FAILED, (f"n{n % 4 + 1}",), 0.0, 60.0, exit_code=1, gpus=8)


def _answers(lie: str, attempts: int) -> list[Decision]:
    """What becomes of a job that tells this lie each time that it runs, on another node each time."""
    job, past, answers = Job("c", "1", "train", "eve", JobState.FAILED, 0.0, gpus=8), [], []
    for n in range(1, attempts + 1):
        verdict, attempt = _forged(lie, n), _attempt("1", n)
        answers.append(decide(job, attempt, verdict, past, FLEET, RULES, 100.0 * n))
        past.append(
            PastFailure(
                attempt.id,
                100.0 * n,
                attempt.nodes,
                verdict.label,
                verdict.category,
                fingerprint_of(verdict, attempt),
                verdict.infrastructure and not verdict.hearsay,
                attempt.elapsed_s,
                answers[-1].retries,
            )
        )
    return answers


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_the_site_buys_one_probing_retry_at_most(lie: str) -> None:
    answers = _answers(lie, 4)
    assert answers[0].kind is not DecisionKind.RETRY
    assert sum(answer.retries for answer in answers) <= 1


@pytest.mark.parametrize("lie", LIES)
def test_one_user_alone_makes_no_node_suspect_whatever_his_logs_say(lie: str) -> None:
    fleet = FLEET
    for n in range(1, 50):
        job = Job("c", str(n), "train", "eve", JobState.FAILED, 0.0)
        fleet = blamed(fleet, job, _attempt(str(n), n), _forged(lie, n), RULES.node_memory_s, 100.0)
    assert not set(fleet.suspects(100.0, RULES.node_memory_s))
