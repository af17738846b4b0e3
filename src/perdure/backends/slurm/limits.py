"""The limits of QOS and associations, as ``sacctmgr`` tells them to anybody. Only administrators write there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perdure.backends.slurm.tools import Tools
from perdure.errors import ClusterBusy, PerdureError
from perdure.scheduling.slurm.site_limits import AssociationLimits, QosLimits, SiteLimits, TresLimits
from perdure.slurm_words.durations import duration_s

QOS_FIELDS = ("Name", "Flags", "GrpTRES", "GrpJobs", "MaxTRES", "MaxTRESPU", "MaxJobsPU", "MaxWall")
ASSOC_FIELDS = (
    "Cluster", "Account", "User", "Partition", "ParentName", "DefaultQOS", "GrpTRES", "GrpJobs", "MaxTRES", "MaxJobs",
    "MaxWall",
)  # fmt: skip
MOST_DIGITS = 15


def enforces_limits(config: Mapping[str, str]) -> bool:
    """Whether slurmctld looks at limits at all; `config` by names in lower case."""
    words = config.get("accountingstorageenforce", "").lower().split(",")
    return not {"limits", "safe", "all"}.isdisjoint(word.strip() for word in words)


def read_limits(tools: Tools, config: Mapping[str, str]) -> SiteLimits:
    """Ask accounting for them, where they are enforced.

    Raises `ClusterBusy` where it does not answer, and `ConfigError` without sacctmgr.
    """
    if not enforces_limits(config):
        return SiteLimits()
    qos = _ask(tools, "qos", QOS_FIELDS)
    return limits_of(qos, _ask(tools, "assoc", ASSOC_FIELDS), config.get("clustername", ""))


def limits_or_remark(tools: Tools, config: Mapping[str, str]) -> SiteLimits:
    """The same; where they cannot be had, a remark that says so."""
    try:
        return read_limits(tools, config)
    except PerdureError as err:
        return SiteLimits(remarks=(f"limits of QOS and accounts are not known: {err.args[1]}",))


def limits_of(qos: bytes, associations: bytes, cluster: str = "") -> SiteLimits:
    """Read what ``sacctmgr -n -P`` prints. Rows that make no sense are left out, and counted in a remark.

    Users of an account have its limits for each user by themselves: accounting tells them with both.
    An association for one partition alone is left out.
    """
    bad: list[str] = []
    found_qos = [
        QosLimits(
            row["Name"],
            TresLimits(
                tres_of(row["GrpTRES"]), _number(row["GrpJobs"]), tres_of(row["MaxTRES"]), tres_of(row["MaxTRESPU"]),
                _number(row["MaxJobsPU"]), duration_s(row["MaxWall"]),
            ),
            "overpartqos" in row["Flags"].lower().split(","),
        )
        for row in _rows(qos, QOS_FIELDS, "Name", bad)
    ]  # fmt: skip
    found = [
        _association(row)
        for row in _rows(associations, ASSOC_FIELDS, "Account", bad)
        if not row["Partition"] and cluster.lower() in ("", row["Cluster"].lower())
    ]
    said = (f"{len(bad)} lines of sacctmgr's are not understood, and the limits on them not known",) if bad else ()
    return SiteLimits(tuple(found_qos), tuple(found), said)


def tres_of(text: str) -> dict[str, int]:
    """Whole numbers by TRES; those in units (memory) are left out.

    >>> tres_of("cpu=64,gres/gpu=8,mem=100G")
    {'cpu': 64, 'gres/gpu': 8}
    """
    found = {}
    for word in text.split(","):
        name, _, count = word.strip().partition("=")
        if name and (number := _number(count)) is not None:
            found[name.lower()] = number
    return found


def _association(row: Mapping[str, str]) -> AssociationLimits:
    group = tres_of(row["GrpTRES"]), _number(row["GrpJobs"])
    if not row["User"]:
        return AssociationLimits(row["Account"], "", row["ParentName"], "", TresLimits(*group))
    limits = TresLimits(*group, tres_of(row["MaxTRES"]), {}, _number(row["MaxJobs"]), duration_s(row["MaxWall"]))
    return AssociationLimits(row["Account"], row["User"], "", row["DefaultQOS"], limits)


def _ask(tools: Tools, what: str, fields: Sequence[str]) -> bytes:
    answer = tools.run("sacctmgr", "-n", "-P", "show", what, f"format={','.join(fields)}")
    if answer.code:
        raise ClusterBusy("sacctmgr", answer.complaint or "accounting does not answer", "Run `sacctmgr ping`")
    return answer.out


def _rows(text: bytes, fields: Sequence[str], key: str, bad: list[str]) -> Iterator[dict[str, str]]:
    for line in text.decode("utf-8", "replace").split("\n"):
        cells = line.rstrip("\r").split("|")
        if len(cells) == len(fields) and (row := dict(zip(fields, cells, strict=True)))[key]:
            yield row
        elif line.strip():
            bad.append(line)


def _number(text: str) -> int | None:
    """A limit; None for none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None
