"""What accounting knows of the jobs of past weeks, as a trace's reader takes it: no text in it is a user's."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.backends.slurm.accounting import ran_since
from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy

PAST_FORM = "sacct"  # as `perdure.traces.read` calls it
FIELDS = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "ElapsedRaw", "TimelimitRaw",
    "State", "NNodes", "ReqCPUS", "AllocTRES", "ReqTRES",
)  # fmt: skip


def read_past_jobs(tools: Tools, since_s: float) -> bytes:
    """The text of one ``sacct`` for all jobs that ran since an instant, as far as this user may see them.

    Raises `ClusterBusy` where accounting does not answer, and `ConfigError` without sacct.
    """
    answer = tools.run("sacct", "-a", "-X", "-D", "-P", "-o", ",".join(FIELDS), *ran_since(since_s))
    if answer.code:
        raise ClusterBusy("sacct", answer.complaint or "accounting does not answer", "Run `sacctmgr ping`")
    return answer.out


def keeps_past_jobs(config: Mapping[str, str]) -> bool:
    """Whether there is accounting to ask; `config` by names in lower case."""
    return config.get("accountingstoragetype", "") not in ("", "accounting_storage/none")


def remarks_on(config: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be said of what can be known of jobs: there is no accounting, or others' jobs may be missing."""
    found = []
    if not keeps_past_jobs(config):
        found.append("this Slurm keeps no accounting")
    if "jobs" in config.get("privatedata", "").lower().split(","):
        found.append("this Slurm shows a user no jobs of others (PrivateData): what they hold is not known")
    return tuple(found)
