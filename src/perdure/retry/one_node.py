"""Failures that read like a user's mistake and are one node's: it lost a mount, or software that the others have.

A missing file, command or module is the job's own fault, unless like jobs find it on the other nodes. Two things show
that: the same user's job of the same name passed elsewhere since it last passed here, which is worth one probing
retry; or jobs of two users failed in such a way on this node, and none passed between them, while others passed
elsewhere, which is worth a retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perdure.model.jobs import Attempt, Job
from perdure.retry.history import HOUR_S
from perdure.triage.verdict import Bound, CauseRole, Evidence, Label, Verdict

REMEMBERED_S = HOUR_S / 2
MAX_ENDS = 2000  # remembered of all jobs
LEAST_FAILURES, LEAST_USERS = 3, 2
PASSED_P, MANY_P = 0.5, 0.85
"""The chance that a retry elsewhere passes: where a like job passed there, and where many failed here alone."""

_OF_PLACE = frozenset({"missing_file", "import", "version", "env", "permission"})
"""Categories of what a node may lack."""
_SOFTWARE_GONE = frozenset({"environment-missing", "module-load"})
"""Rules of other categories that name software which a node may lack."""
_FILE_SYSTEM, _CONFIG = "fs", "config"

_SEEN_BY_THE_SERVICE = frozenset({"output-directory-missing", "output-not-writable", "output-directory-gone"})
"""Facts that the service finds out on its own machine: no other node has what its job's owner named wrongly."""

_COMMON_NAMES = frozenset({"", "wrap", "sbatch", "interactive", "bash", "sh"})
"""Names that say nothing of what the job runs."""

MOST_NAMED = 4  # nodes in a sentence


class NodeEnd(Struct, frozen=True):
    """How an attempt ended, as far as that bears on its nodes."""

    time_s: float
    user: str
    name: str  # of its job
    nodes: tuple[str, ...]
    lacked: str  # category of what it failed for lack of; "" where it passed

    @property
    def passed(self) -> bool:
        return not self.lacked


def is_of_place(verdict: Verdict) -> bool:
    """Whether it failed for lack of what another node may have."""
    return _may_be_elsewhere(verdict) or (verdict.category == _FILE_SYSTEM and verdict.bound is not Bound.CALLER)


def _may_be_elsewhere(verdict: Verdict) -> bool:
    """Whether what it lacks reads like its owner's mistake, and may be there on other nodes."""
    rules = {each.rule for each in verdict.evidence}
    names_software = verdict.category == _CONFIG and not rules.isdisjoint(_SOFTWARE_GONE)
    return (verdict.category in _OF_PLACE or names_software) and rules.isdisjoint(_SEEN_BY_THE_SERVICE)


def with_end(
    ends: Sequence[NodeEnd], job: Job | None, attempt: Attempt, lacked: str, now: float
) -> tuple[NodeEnd, ...]:
    """The ends that are remembered, with one more."""
    recent = [end for end in ends if end.time_s > now - REMEMBERED_S][1 - MAX_ENDS :]
    return (*recent, NodeEnd(now, attempt.user, job.name if job else "", attempt.nodes, lacked))


def of_one_node(verdict: Verdict, job: Job, attempt: Attempt, ends: Sequence[NodeEnd], now: float) -> Verdict:
    """The verdict; that on what the node lacks and others have, as the node's."""
    if not _may_be_elsewhere(verdict) or verdict.label is Label.TRANSIENT or not attempt.nodes:
        return verdict
    recent = [end for end in ends if end.time_s > now - REMEMBERED_S]
    if why := _many_fail_here(verdict, attempt, recent):
        label, p, infrastructure = Label.TRANSIENT, MANY_P, True
    elif why := _passes_elsewhere(job, attempt, recent):
        label, p, infrastructure = Label.UNSURE, PASSED_P, False
    else:
        return verdict
    return replace(
        verdict,
        label=label,
        p_transient=max(p, verdict.p_transient),
        summary=f"{verdict.summary}; but {why}",
        evidence=(*verdict.evidence, Evidence(0, why, CauseRole.CONFIRMATION, "of-one-node")),
        bound=Bound.NODE,
        infrastructure=infrastructure,
        hearsay=False,
        advice=f"Operators: see whether {', '.join(attempt.nodes)} has the mounts and the software of the other nodes.",
    )


def _many_fail_here(verdict: Verdict, attempt: Attempt, ends: Sequence[NodeEnd]) -> str:
    """What shows that jobs of several users lack the same kind of thing on one of its nodes alone; "" if nothing does.

    A file system that fails there counts with whatever is missing.
    """
    kinds = (verdict.category, _FILE_SYSTEM)
    for node in attempt.nodes:
        here = [end for end in ends if node in end.nodes]
        last_pass_s = max((end.time_s for end in here if end.passed), default=0.0)
        failed = [end for end in here if end.lacked in kinds and end.time_s > last_pass_s]
        users = {attempt.user, *(end.user for end in failed)}
        if len(failed) + 1 < LEAST_FAILURES or len(users) < LEAST_USERS:
            continue
        began_s = min(end.time_s for end in failed)
        if passed := _places(end for end in ends if end.passed and end.time_s >= began_s and node not in end.nodes):
            return (
                f"the last {len(failed) + 1} jobs on {node}, of {len(users)} users, all lacked something there, and"
                f" jobs pass on {passed}"
            )
    return ""


def _passes_elsewhere(job: Job, attempt: Attempt, ends: Sequence[NodeEnd]) -> str:
    """What shows that the same user's jobs of this name find elsewhere what they lack here; "" if nothing does."""
    if job.name in _COMMON_NAMES:
        return ""
    alike = [end for end in ends if end.passed and (end.user, end.name) == (attempt.user, job.name)]
    last_pass_s = max((end.time_s for end in alike if set(end.nodes) & set(attempt.nodes)), default=0.0)
    passed = _places(end for end in alike if end.time_s > last_pass_s)
    return f"jobs of this name passed on {passed}, and none on {', '.join(attempt.nodes)} since" if passed else ""


def _places(ends: Iterable[NodeEnd]) -> str:
    """The nodes of some attempts, in words."""
    nodes = sorted({node for end in ends for node in end.nodes})
    more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
    return ", ".join(nodes[:MOST_NAMED]) + more
