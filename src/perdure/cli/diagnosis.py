"""What ``perdure why`` finds in one log: the verdict, and what the service would do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import Fleet
from perdure.retry.rules import RetryRules
from perdure.triage.verdict import Evidence, Verdict

if TYPE_CHECKING:
    from perdure.service.settings import Settings
    from perdure.triage.goodrun import GoodRun
    from perdure.triage.logtext import LogText
    from perdure.triage.matching import RuleBook

SAME_NODE = "the node that it ran on"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One log, judged; `id` is its path, or what its record called it."""

    id: str | int
    verdict: Verdict
    decision: Decision

    @property
    def is_finding(self) -> bool:
        """True where a plain retry is not the answer: stop, or one probing retry."""
        return self.decision.kind is not DecisionKind.RETRY


def diagnoser(settings: Settings, good: GoodRun | None = None) -> Callable[[str | int, LogText | bytes], Diagnosis]:
    """What judges a log, under a name, by the site's rules; `good` is the job's last good run."""
    from perdure.triage.judge import judge

    rules = rules_of(settings)

    def diagnose(name: str | int, log: LogText | bytes) -> Diagnosis:
        verdict = judge(log, rules=rules, good=good)
        return Diagnosis(name, verdict, advise(verdict, settings.retry))

    return diagnose


def rules_of(settings: Settings) -> RuleBook:
    """The rules that the settings name: the own ones, and the site's before them."""
    from perdure.triage.rules import own_rules, with_site_rules

    return with_site_rules(settings.triage.rules) if settings.triage.rules else own_rules()


def advise(verdict: Verdict, rules: RetryRules) -> Decision:
    """What the service would do with this verdict if the job had no history: the same decision, by the same rules."""
    attempt = Attempt(AttemptId("", "", 0), AttemptState.FAILED, (SAME_NODE,), 0.0, 0.0, exit_code=1)
    job = Job("", "", "", "", JobState.FAILED, 0.0)
    return decide(job, attempt, verdict, (), Fleet(), rules, 0.0)


def record(diagnosis: Diagnosis) -> dict[str, Any]:
    """The form in which a diagnosis is printed as JSON."""
    verdict, decision = diagnosis.verdict, diagnosis.decision
    return {
        "id": diagnosis.id,
        "verdict": str(verdict.label),
        "p_transient": round(verdict.p_transient, 4),
        "category": verdict.category,
        "summary": verdict.summary,
        "rank": verdict.rank,
        "node": verdict.node,
        "evidence": [_shown(evidence) for evidence in verdict.evidence],
        "advice": {
            "action": str(decision.kind),
            "reason": decision.reason,
            "exclude_node": bool(decision.exclude),
            "delay_s": decision.delay_s,
        },
    }


def _shown(evidence: Evidence) -> dict[str, Any]:
    """One line of evidence; `source` only where the log has several files or tasks."""
    told = {"line": evidence.line, "text": evidence.text, "role": str(evidence.role), "rule": evidence.rule}
    return {**told, "source": evidence.source} if evidence.source else told
