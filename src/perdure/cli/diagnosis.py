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
from perdure.triage.verdict import Verdict

if TYPE_CHECKING:
    from perdure.service.settings import Settings
    from perdure.triage.logtext import LogText

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


def diagnoser(settings: Settings) -> Callable[[str | int, LogText | bytes], Diagnosis]:
    """What judges a log, under a name, by the site's rules."""
    from perdure.triage.judge import judge
    from perdure.triage.rules import own_rules, with_site_rules

    rules = with_site_rules(settings.triage.rules) if settings.triage.rules else own_rules()

    def diagnose(name: str | int, log: LogText | bytes) -> Diagnosis:
        verdict = judge(log, rules=rules)
        return Diagnosis(name, verdict, advise(verdict, settings.retry))

    return diagnose


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
        "evidence": [{"line": e.line, "text": e.text, "role": str(e.role), "rule": e.rule} for e in verdict.evidence],
        "advice": {
            "action": str(decision.kind),
            "reason": decision.reason,
            "exclude_node": bool(decision.exclude),
            "delay_s": decision.delay_s,
        },
    }
