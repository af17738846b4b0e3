"""Steps of a batch script that goes on whatever becomes of them (``srun ... || true``)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.triage.evidence.launchers import LauncherReport
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.evidence.scheduler import Fact
from perdure.triage.verdict import Bound, CauseRole, Label, Verdict

GUESS_P = 0.4
_WENT_ON = "but its script went on after that step (`srun ... || true`), and may have ended for another cause"


def after_steps(hits: Sequence[Hit], report: LauncherReport | None) -> tuple[Sequence[Hit], LauncherReport | None]:
    """What the script itself says after its last failed step, where that names a cause; else all as it is."""
    if report is None or report.launcher != "srun":
        return hits, report
    after = [hit for hit in hits if hit.block.window is report.window and hit.line > report.last_line]
    tells = any(hit.cause.role is CauseRole.ROOT and hit.cause.force is not Force.FAINT for hit in after)
    return (after, None) if tells else (hits, report)


def is_of_step(primary: Hit | Fact | LauncherReport, report: LauncherReport | None) -> bool:
    """Whether the cause is what srun reports of a step, or is before that."""
    if report is None or report.launcher != "srun":
        return False
    return primary is report or (isinstance(primary, Hit) and report.is_before(primary))


def as_guess(verdict: Verdict) -> Verdict:
    """The verdict on a step's failure: whether that is why the script failed later is not known."""
    return replace(
        verdict.remarked(_WENT_ON),
        label=Label.UNSURE,
        p_transient=GUESS_P,
        bound=Bound.NOTHING,
        infrastructure=False,
        hardware="",
        hearsay=False,
    )
