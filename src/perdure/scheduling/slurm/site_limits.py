"""The limits of a site's QOS and associations as its accounting database has them, of any TRES.

`SiteLimits.counted` makes of them what the scheduler's settings know: those on running jobs, on their limits of time,
and on the one TRES that is counted. The others are kept to tell what holds a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from perdure.scheduling.slurm.settings import Association, Qos, RunningLimits

GPUS, CPUS, NODES = "gres/gpu", "cpu", "node"


@dataclass(frozen=True, slots=True)
class TresLimits:
    """Limits of a QOS or an association. TRES by their names; one that is not named, or None, has no limit."""

    grp_tres: Mapping[str, int] = field(default_factory=dict)  # of all its running jobs together
    grp_jobs: int | None = None
    tres_per_job: Mapping[str, int] = field(default_factory=dict)
    tres_per_user: Mapping[str, int] = field(default_factory=dict)
    jobs_per_user: int | None = None
    wall_s: float | None = None

    def counted(self, tres: str) -> RunningLimits:
        return RunningLimits(
            grp_gpus=self.grp_tres.get(tres),
            grp_jobs=self.grp_jobs,
            max_gpus_per_job=self.tres_per_job.get(tres),
            max_gpus_per_user=self.tres_per_user.get(tres),
            max_jobs_per_user=self.jobs_per_user,
            max_wall_s=self.wall_s,
        )


@dataclass(frozen=True, slots=True)
class QosLimits:
    """A QOS."""

    name: str
    limits: TresLimits = field(default_factory=TresLimits)
    over_partition: bool = False  # its limits go before those of the partition's QOS


@dataclass(frozen=True, slots=True)
class AssociationLimits:
    """An account, or a user in one (`user` is not "")."""

    account: str
    user: str = ""
    parent: str = ""  # the account above an account
    default_qos: str = ""
    limits: TresLimits = field(default_factory=TresLimits)


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """All of them; nothing where there are none, or where they are not enforced."""

    qos: tuple[QosLimits, ...] = ()
    associations: tuple[AssociationLimits, ...] = ()
    remarks: tuple[str, ...] = ()  # what could not be had, one sentence each

    def counted(self, tres: str, users: Collection[str]) -> tuple[tuple[Qos, ...], tuple[Association, ...]]:
        """What holds for jobs of these users where `tres` is counted; those without such a limit are left out.

        >>> group = AssociationLimits("lab", limits=TresLimits({GPUS: 8}))
        >>> SiteLimits((), (group, AssociationLimits("lab", "ada"))).counted(GPUS, ["ada"])[1][0].limits.grp_gpus
        8
        """
        none = RunningLimits()
        qos = (Qos(each.name, limits=each.limits.counted(tres), over_partition=each.over_partition)
               for each in self.qos)  # fmt: skip
        above = {each.account: each for each in self.associations if not each.user}
        kept = {
            name for name, each in above.items()
            if any(up.limits.counted(tres) != none for up in _chain(each, above))
        }  # fmt: skip
        associations = (
            Association(each.account, each.user, each.parent or "root", limits=each.limits.counted(tres))
            for each in self.associations
            if (each.account in kept if not each.user else each.user in users and each.limits.counted(tres) != none)
        )
        return tuple(each for each in qos if each.limits != none), tuple(associations)

    def accounts_above(self, account: str) -> list[AssociationLimits]:
        """The account and those above it, the lowest first."""
        above = {each.account: each for each in self.associations if not each.user}
        return _chain(above[account], above) if account in above else []

    def knows(self, account: str) -> bool:
        """Whether accounting listed the account: a user may be shown their own alone."""
        return not account or any(each.account == account for each in self.associations)

    def of_user(self, account: str, user: str) -> AssociationLimits | None:
        """The user in that account; without an account the first that accounting names."""
        named = (each for each in self.associations if each.user == user and account in ("", each.account))
        return next(named, None)


def _chain(account: AssociationLimits, above: Mapping[str, AssociationLimits]) -> list[AssociationLimits]:
    """An account and those above it, whatever circles the text makes of them."""
    found = [account]
    while (parent := above.get(found[-1].parent)) is not None and parent not in found:
        found.append(parent)
    return found
