"""Which attempts had a path lately."""

import math

import pytest

from perdure.backends import writers
from perdure.backends.writers import Writers
from tests.backends.test_ownership import NOW, attempt


def test_writers_are_told_apart_and_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Writers()
    known.note([attempt(job="1"), attempt(job="2", path="/o/y"), attempt(job="3", end=None)], NOW)
    known.note([attempt(job="3")], NOW)
    assert [(s.job_id, s.end_s) for s in known.others("/o/x", attempt(job="1"))] == [("3", NOW + 100.0)]
    assert known.others("/o/none", attempt()) == ()
    monkeypatch.setattr(writers, "MAX_STARTS", 2)
    known.note([attempt(job="4", path="/o/z")], NOW)
    assert known.others("/o/x", attempt(job="1")) == ()
    assert len(known.others("/o/z", attempt(job="1"))) == 1


def test_what_is_no_longer_seen_to_run_has_ended() -> None:
    known = Writers()
    known.note([attempt(job="1", end=None)], NOW + 50)
    assert known.others("/o/x", attempt(job="2"))[0].end_s == math.inf
    known.note([attempt(job="2")], NOW + 60)
    assert known.others("/o/x", attempt(job="2"))[0].end_s == NOW + 50


def test_parts_of_one_job_and_its_earlier_attempts_are_no_others() -> None:
    known = Writers()
    known.note([attempt(job="7+0"), attempt(job="7+1"), attempt(-200, None, job="8"), attempt(job="8")], NOW)
    assert {s.job_id for s in known.others("/o/x", attempt(job="7+0"))} == {"8"}
    assert {s.job_id for s in known.others("/o/x", attempt(job="8"))} == {"7+0", "7+1"}
    assert "8" in {s.job_id for s in known.others("/o/x", attempt(-200, job="8"))}


def test_one_file_has_one_name_from_whichever_directory_it_is_told() -> None:
    known = Writers()
    known.note([attempt(job="1", path="/o/a/../x"), attempt(job="2", path="/o/b/../x")], NOW)
    assert [span.job_id for span in known.others("/o/x", attempt(job="1"))] == ["2"]
    assert [span.job_id for span in known.others("/o/b/../x", attempt(job="2"))] == ["1"]
