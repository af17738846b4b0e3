"""What a service knows of jobs' checkpoints: those that were published by a fenced job, and by nobody else."""

from __future__ import annotations

import getpass
import json
import time
from pathlib import Path

import pytest

from perdure.errors import Fenced
from perdure.job.checkpoint import checkpointed
from perdure.job.fence import claim
from perdure.job.saved import FILE, SCHEMA
from perdure.service.workers.checkpoints import checkpoints_of
from tests.copying import replace
from tests.live_policy.queues import running

JOB = replace(running("7", 100.0, ("n1",)), user=getpass.getuser())


def test_a_published_checkpoint_is_known(tmp_path: Path) -> None:
    before_s = time.time()
    with checkpointed(tmp_path / "model.pt", claim(tmp_path / "fences" / "7", "7", 1)) as draft:
        draft.write_text("weights")
    found = checkpoints_of([tmp_path / "elsewhere", tmp_path / "fences"], [JOB], time.time())
    assert before_s <= found["7"] <= time.time()


def test_one_that_was_fenced_is_not(tmp_path: Path) -> None:
    old = claim(tmp_path / "7", "7", 1)
    claim(tmp_path / "7", "7", 2)
    with pytest.raises(Fenced), checkpointed(tmp_path / "model.pt", old) as draft:
        draft.write_text("weights")
    assert checkpoints_of([tmp_path], [JOB], time.time()) == {}


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"schema": SCHEMA, "time_s": "now"})])
def test_what_makes_no_sense_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / FILE).write_text(text)
    assert checkpoints_of([tmp_path], [JOB], 5.0) == {}


def test_a_clock_that_is_ahead_counts_as_now(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / FILE).write_text(json.dumps({"schema": SCHEMA, "time_s": 1e12}))
    assert checkpoints_of([tmp_path], [JOB], 5.0) == {"7": 5.0}


def test_an_id_that_names_another_directory_is_not_followed(tmp_path: Path) -> None:
    assert checkpoints_of([tmp_path], [replace(JOB, job_id="../7")], 5.0) == {}
