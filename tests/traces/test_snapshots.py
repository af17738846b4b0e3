"""Looks at waiting jobs from files: DRAC's noon snapshots, coded and as published."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.queue_looks import FAIR, STATE
from perdure.traces.snapshots import read_looks
from tests.conftest import require

CODED = (
    "job,submit_s,start_s,poll_s,time_limit_s,partition,account,cpus,mem_mb,nodes,gpus,priority_poll,q_p_cores_above"
)
ROW = "7,100,50000,43200,3600,17,3,4,8000,1,2,0.00035,640"
PUBLISHED = (
    "job_unique_id,submit_time,start_time,poll_time,time_limit_sec,partition_id_x,account_id,req_cpus,req_mem_total,"
    "alloc_nodes,req_tres,priority_y,q_p_cores_above,level_fs_poll"
)
PUBLISHED_ROW = (
    "58054923,2021-05-02 02:28:46,2021-05-03 21:36:13,2021-05-02 12:00:00,36000,24,18648,32,8192,1,"
    '"billing=32,cpu=32,gres/gpu=2,mem=8192M,node=1",0.0003,18896,0.256'
)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: Any) -> Path:
        path = tmp_path / "looks.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def given(data_dir: Path | None) -> Path:
    return require("data", data_dir, "no snapshots here")


def test_a_coded_look(file: Callable[..., Path]) -> None:
    looks = read_looks(file(CODED, ROW))
    assert looks.job.tolist() == ["7"]
    assert (looks.start_s - looks.poll_s).tolist() == [6_800]
    assert (looks.partition.tolist(), looks.account.tolist(), looks.gpus.tolist()) == ([17], [3], [2])
    assert looks.day_zero == date(2021, 5, 1)
    assert {name: values.tolist() for name, values in looks.state.items()} == {"pending_cpus_partition": [640]}


def test_a_published_look(file: Callable[..., Path]) -> None:
    looks = read_looks(file(PUBLISHED, PUBLISHED_ROW))
    assert looks.day_zero == date(2021, 5, 2)
    assert looks.poll_s.tolist() == [43_200]
    assert (looks.start_s - looks.poll_s).tolist() == [120_973]
    assert (looks.gpus.tolist(), looks.mem_mib.tolist(), looks.priority.tolist()) == ([2], [8192], [0.0003])
    assert looks.state["level_fs"].tolist() == [0.256]


def test_a_job_that_has_not_started_is_kept_as_it_was_seen(file: Callable[..., Path]) -> None:
    looks = read_looks(file(CODED, ROW.replace("50000", "")))
    assert np.isnan(looks.start_s).all()
    assert looks.seen_until_s.tolist() == [43_200]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((CODED.replace(",poll_s", ""), ROW), "no column poll_s"),
        ((CODED, ROW.replace("50000", "40000")), "the job started before it was looked at"),
        ((CODED, ROW.replace("7,100", "7,99999")), "the job was submitted after it was looked at"),
        ((CODED, ROW.replace("43200", "")), "the time of the look is missing"),
        ((CODED,), "no look at a waiting job is in it"),
    ],
)
def test_bad_input_is_told_in_one_line(file: Callable[..., Path], lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_looks(file(*lines))
    assert "\n" not in str(caught.value)


def test_the_given_snapshots(given: Path) -> None:
    looks = read_looks(given / "queues/drac_graham_2021_submitday_snapshots.parquet")
    assert len(looks) == 133_025
    assert set(looks.state) == {*STATE, *FAIR}
    full = read_looks(given / "queues/drac_graham_2021_full_queue_snapshots.parquet")
    assert len(full) == 153_523
    assert "pending_jobs" not in full.state


def test_both_forms_of_one_day_say_the_same(given: Path) -> None:
    published = read_looks(given / "traces/drac_slurm/jobs_graham_2021-05-02.csv.gz")
    coded = read_looks(given / "queues/drac_graham_2021_submitday_snapshots.parquet")
    rows = coded.poll_s // 86_400 == 1
    names = ("start_s", "submit_s", "cpus", "nodes", "gpus", "mem_mib", "limit_s")
    one, two = (np.column_stack([getattr(looks, name) for name in names]) for looks in (coded, published))
    one = one[rows] - np.array([86_400.0] * 2 + [0.0] * 5)
    assert sorted(one.tolist()) == sorted(two.tolist())
