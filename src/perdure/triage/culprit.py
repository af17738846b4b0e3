"""Which task failed first, by the sign that is believed."""

from __future__ import annotations

from perdure.triage.evidence.launchers import LauncherReport
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.ranks import Merged
from perdure.triage.evidence.scheduler import Fact, lost_nodes
from perdure.triage.verdict import CauseRole

Sign = Hit | Fact | LauncherReport


def culprit(primary: Sign, report: LauncherReport | None, merged: Merged, ruled: Sign | None) -> tuple[str, str, str]:
    """Rank and node of the task that failed first, and half a sentence about it; each "" where it is not known.

    `ruled` is what the rules believe, before its line was read again.
    """
    if isinstance(primary, Fact) and primary.cause.role is CauseRole.ROOT:
        return "", "", ""
    if isinstance(primary, Hit) and (lost := lost_nodes(primary.text)):
        return "", lost, ""
    if report is not None and not (isinstance(primary, Hit) and report.is_of_another(primary)):
        who = f"{report.who} {report.how} first, as {report.launcher} tells" if report.is_known else ""
        return report.rank or report.local_rank, report.named_node, who
    if isinstance(primary, Hit) and primary.cause.role is not CauseRole.CASCADE:
        first = ruled if isinstance(ruled, Hit) else primary
        return primary.rank, "", merged.told(first)
    return "", "", ""  # who complains of another's end did not fail first
