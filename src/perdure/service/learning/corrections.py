"""A person's word on a failure, applied to the verdicts on failures that look alike."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from perdure.service.learning.training_store import Correction
from perdure.triage.verdict import CORRECTED, CauseRole, Evidence, Label, Verdict

SURE = 0.97
"""The probability that a person's word stands for."""


def corrected(verdict: Verdict, corrections: Iterable[Correction], user: str) -> Verdict:
    """The verdict on a failure of `user`'s job, after the correction that holds for it, if there is one.

    Of several an operator's holds, of those the newest.
    """
    held = [each for each in corrections if each.holds_for(verdict.fingerprint, user)]
    if not held:
        return verdict
    said = max(held, key=lambda each: (each.is_of_operator, each.time_s))
    label = Label.TRANSIENT if said.transient else Label.DETERMINISTIC
    with_whom = f" (and {said.confirmed_by} confirmed)" if said.confirmed_by else ""
    told = f"{said.by}{with_whom} said of job {said.attempt.job_id}, which failed alike: {label}"
    return replace(
        verdict.remarked(f"corrected by a person: {label}"),
        label=label,
        p_transient=SURE if said.transient else round(1.0 - SURE, 4),
        evidence=(Evidence(0, told, CauseRole.CONFIRMATION, CORRECTED), *verdict.evidence),
        hearsay=False,
    )
