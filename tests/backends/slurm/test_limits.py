"""The limits of QOS and associations, from what sacctmgr prints, whatever stands there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.backends.slurm.limits import enforces_limits, limits_of, limits_or_remark, tres_of
from perdure.backends.slurm.tools import Tools
from perdure.backends.tool_process import ToolAnswer
from perdure.scheduling.slurm.site_limits import AssociationLimits, QosLimits, SiteLimits, TresLimits

QOS = b"""normal|||||||
gold|DenyOnLimit,OverPartQOS|cpu=64,gres/gpu=8|12|gres/gpu=4|gres/gpu=4,mem=100G|2|1-00:00:00
"""
ASSOC = b"""here|root|||||||||
here|lab|||root||gres/gpu=3|5|gres/gpu=2|7|
here|lab|mira|||gold|||gres/gpu=2|7|
here|lab|mira|debug||gold|gres/gpu=1|||1|
there|lab|mira|||||||1|
"""
ENFORCED = {"accountingstorageenforce": "associations,limits,qos", "clustername": "here"}


class Answers(Tools):
    """Tools that print what they are told to."""

    def __init__(self, *answers: ToolAnswer) -> None:
        object.__setattr__(self, "answers", list(answers))

    def run(self, *argv: str, **_: object) -> ToolAnswer:
        assert argv[0] == "sacctmgr"
        return self.answers.pop(0)  # type: ignore[attr-defined]


def test_what_sacctmgr_prints() -> None:
    found = limits_of(QOS, ASSOC, "here")
    gold = TresLimits({"cpu": 64, "gres/gpu": 8}, 12, {"gres/gpu": 4}, {"gres/gpu": 4}, 2, 86400.0)
    assert found.qos == (QosLimits("normal"), QosLimits("gold", gold, over_partition=True))
    assert found.associations == (
        AssociationLimits("root"),
        AssociationLimits("lab", "", "root", "", TresLimits({"gres/gpu": 3}, 5)),  # its users have the rest
        AssociationLimits("lab", "mira", "", "gold", TresLimits({}, None, {"gres/gpu": 2}, {}, 7)),
    )
    assert found.remarks == ()


def test_lines_that_make_no_sense_are_counted_and_left_out() -> None:
    assert limits_of(b"a|b\n" + QOS + b"\n\xff|||||||\n", b"", "here").remarks == (
        "1 lines of sacctmgr's are not understood, and the limits on them not known",
    )
    assert tres_of("cpu=,=3,gres/gpu=-1,node=1e9,billing=99999999999999999999,,x") == {}


def test_accounts_in_a_circle_end() -> None:
    found = limits_of(b"", b"here|a|||b||||||\nhere|b|||a||gres/gpu=3||||\n", "here")
    assert [each.account for each in found.accounts_above("a")] == ["a", "b"]


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_are_read(qos: bytes, associations: bytes) -> None:
    found = limits_of(qos + b"\n" + QOS, associations + b"\n" + ASSOC)
    assert "gold" in {each.name for each in found.qos}
    found.counted("gres/gpu", ["mira"])


def test_limits_that_are_not_enforced_are_not_asked_for() -> None:
    for enforce, holds in (("associations,limits,qos", True), ("safe", True), ("associations", False), ("none", False)):
        assert enforces_limits({"accountingstorageenforce": enforce}) == holds
    assert limits_or_remark(Answers(), {"accountingstorageenforce": "none"}) == SiteLimits()


def test_accounting_that_answers_and_that_does_not() -> None:
    told = limits_or_remark(Answers(ToolAnswer(QOS, b"", 0), ToolAnswer(ASSOC, b"", 0)), ENFORCED)
    assert told == limits_of(QOS, ASSOC, "here")
    refused = limits_or_remark(Answers(ToolAnswer(b"", b"sacctmgr: error: no\nConnection refused\n", 1)), ENFORCED)
    assert refused.remarks == ("limits of QOS and accounts are not known: Connection refused",)
