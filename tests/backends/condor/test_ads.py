"""What HTCondor's tools print of jobs is read whatever their owners wrote into them."""

from __future__ import annotations

import msgspec
import pytest

from perdure.backends.condor.ads import number, read_ads, text, whole
from perdure.backends.condor.picture import ended_attempt, job_of

THEIRS = b'{\n  "ClusterId": 2,\n  "JobBatchName": "train",\n  "ProcId": 0\n}\n'


@pytest.mark.parametrize(
    "mine",
    [
        b'"JobBatchName": "\xff\xfe"',
        b'"JobBatchName": "a\x01\x7f"',
        b'"JobBatchName": "\\ud800"',
        b'"JobBatchName": "\xed\xa0\x80 }"',
        b'"Perdure": ' + b"[" * 5000 + b"]" * 5000,
        b'"Perdure": {\n    "a": "}\xff",\n    "b": [\n      1\n    ]\n  }',
    ],
)
def test_no_job_hides_the_others(mine: bytes) -> None:
    """As 23.9 prints them: bytes of strings as they are. A name that is not UTF-8 hid the whole queue."""
    first = b'{\n  "ClusterId": 1,\n  ' + mine + b',\n  "ProcId": 0\n}\n'
    for told in (b"[\n" + first + b",\n" + THEIRS + b"]\n", b"[\n" + THEIRS + b",\n" + first + b"]\n"):
        found = {whole(ad, "ClusterId"): ad for ad in read_ads(told)}
        assert text(found[2], "JobBatchName") == "train"
        for ad in found.values():
            job_of("c", ad, in_queue=True).name.encode()
        assert set(found) <= {1, 2}


@pytest.mark.parametrize("told", [b"[\n" + THEIRS, b"\xff", b"[\xff]", b"[\n" + THEIRS + b"], {}\xff", b"{}", b"[1]"])
def test_an_answer_that_broke_off_is_none(told: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_ads(told)


def test_numbers_are_those_that_a_journal_holds() -> None:
    ad = {"clusterid": 1, "procid": 0, "requestgpus": 1e300, "numshadowstarts": 2**63, "qdate": -1e300, "maxhosts": 2}
    assert [number(ad, name) for name in ("RequestGPUs", "NumShadowStarts", "QDate", "MaxHosts")] == [
        None,
        None,
        None,
        2,
    ]
    found = job_of("c", ad, in_queue=True)
    assert (found.gpus, found.restarts, found.submit_s) == (0, 0, 0.0)


@pytest.mark.parametrize("ago_s", [9e15, -1.0, 2.0**37 + 1])
def test_no_instant_is_of_a_year_that_no_calendar_has(ago_s: float) -> None:
    """An owner can edit these: one in the year 285,616,414 would be no date on a page or in a job's record."""
    names = ("QDate", "JobCurrentStartDate", "ShadowBday", "EpochWriteDate", "CompletionDate", "EnteredCurrentStatus")
    ad = {"clusterid": 1, "procid": 0, "numshadowstarts": 1, "exitcode": 1, **{name.lower(): ago_s for name in names}}
    ended = ended_attempt("c", ad, ad, frozenset())
    assert (job_of("c", ad, in_queue=True).submit_s, ended.start_s, ended.end_s) == (0.0, 0.0, 0.0)


def test_a_start_that_is_put_off_for_ever_is_its_owners_own() -> None:
    told = '(Cpus > 1) && !stringListIMember(TARGET.Machine,"a") && time() >= 999999999999'
    found = job_of("c", {"requirements": f"/Expr({told})/"}, in_queue=True)
    assert (found.eligible_s, found.excluded) == (None, ())
