"""What ``perdure why`` finds in one log: the verdict, and what the service would do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import Fleet
from perdure.retry.rules import RetryRules
from perdure.triage.reading_order import in_order_of_reading
from perdure.triage.verdict import Evidence, Label, Verdict

if TYPE_CHECKING:
    from perdure.service.settings import Settings
    from perdure.triage.evidence.goodrun import GoodRun
    from perdure.triage.evidence.matching import RuleBook
    from perdure.triage.text.logtext import LogText

SAME_NODE = "the node that it ran on"
NOTHING_FAILED = "nothing in this log looks like a failure"
SURVIVED = "what looks like a failure in this log came before its work was done"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One log, judged; `id` is its path, or what its record called it."""

    id: str | int
    verdict: Verdict
    decision: Decision

    job_id: str = ""
    """The job that it is about, where the service knows it."""

    elsewhere: str = ""
    """A command that starts the job on other nodes; the service writes it, since it knows job and nodes."""

    has_failed: bool = True
    """False where the log ends with its work done, and shows no failure after that or of its own code."""

    decided_s: float | None = None
    """When the service decided, in seconds since the epoch; what it said of times counts from then."""

    by_service: DecisionKind | None = None
    """What the service would do by this log alone, where that is another thing than is advised to the log's owner."""

    @property
    def why_done(self) -> str:
        """What is said of a log that shows no failure."""
        return SURVIVED if self.verdict.evidence else NOTHING_FAILED


def diagnoser(settings: Settings, good: GoodRun | None = None) -> Callable[[str | int, LogText | bytes], Diagnosis]:
    """What judges a log, under a name, by the site's rules; `good` is the job's last good run."""
    from perdure.triage.evidence.ending import DONE_AFTER, WORK_DONE, with_ending
    from perdure.triage.judge import judge
    from perdure.triage.text.logtext import LogText

    rules = rules_of(settings)

    def diagnose(name: str | int, log: LogText | bytes) -> Diagnosis:
        text = LogText.of(log) if isinstance(log, bytes) else log
        verdict = with_ending(judge(text, rules=rules, good=good), text)
        has_failed = not verdict.ending.startswith(DONE_AFTER if verdict.evidence else WORK_DONE)
        return dataclasses.replace(diagnosis_of(name, verdict, settings.retry), has_failed=has_failed)

    return diagnose


def rules_of(settings: Settings) -> RuleBook:
    """The rules that the settings name: the own ones, and the site's before them."""
    from perdure.triage.evidence.rules import own_rules, with_site_rules

    return with_site_rules(settings.triage.rules) if settings.triage.rules else own_rules()


def diagnosis_of(name: str | int, verdict: Verdict, rules: RetryRules) -> Diagnosis:
    """The diagnosis of a log of which nothing else is known.

    Its owner may believe what it says of the site; the service gives one probing retry on that. Costs are not shown:
    how long the job ran, and on how many GPUs, is not in a log.
    """
    by_service, advised = advise(verdict, rules), advise(replace(verdict, hearsay=False), rules)
    advised = replace(advised, reason=advised.told)
    differs = by_service.kind is not advised.kind
    return Diagnosis(name, verdict, advised, by_service=by_service.kind if differs else None)


def advise(verdict: Verdict, rules: RetryRules) -> Decision:
    """What the service would do with this verdict if the job had no history: the same decision, by the same rules."""
    state = AttemptState.PREEMPTED if _names_preemption(verdict) else AttemptState.FAILED
    attempt = Attempt(AttemptId("", "", 0), state, (SAME_NODE,), 0.0, 0.0, exit_code=1)
    job = Job("", "", "", "", JobState.FAILED, 0.0)
    return decide(job, attempt, verdict, (), Fleet(), rules, 0.0)


def _names_preemption(verdict: Verdict) -> bool:
    """Whether the resource manager's own line says so, and is believed: the node did nothing wrong then."""
    return verdict.category == "preempt" and verdict.label is Label.TRANSIENT and not verdict.hearsay


def record(diagnosis: Diagnosis) -> dict[str, Any]:
    """The form in which a diagnosis is printed as JSON."""
    verdict, decision = diagnosis.verdict, diagnosis.decision
    if not diagnosis.has_failed:
        decision = replace(decision, reason=diagnosis.why_done, exclude=(), delay_s=0.0)
    ending = {"ending": verdict.ending} if verdict.ending else {}
    return {
        "id": diagnosis.id,
        "verdict": str(verdict.label),
        "p_transient": round(verdict.p_transient, 4),
        "category": verdict.category,
        "summary": verdict.quoted or verdict.summary,
        **ending,
        "rank": verdict.rank,
        "node": verdict.node,
        "evidence": [_shown(evidence) for evidence in in_order_of_reading(verdict)],
        "advice": {
            "action": str(decision.kind) if diagnosis.has_failed else "none",
            "reason": decision.reason,
            "exclude_node": bool(decision.exclude),
            "delay_s": decision.delay_s,
        },
    }


def _shown(evidence: Evidence) -> dict[str, Any]:
    """One line of evidence; `source` only where the log has several files or tasks."""
    told = {"line": evidence.line, "text": evidence.text, "role": str(evidence.role), "rule": evidence.rule}
    return {**told, "source": evidence.source} if evidence.source else told
