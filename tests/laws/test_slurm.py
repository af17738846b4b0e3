"""Laws of the picture that is made of what Slurm says, tried on what each of its versions has said."""

import random

import pytest
from msgspec.structs import replace

from perdure.backends.slurm import picture
from perdure.backends.slurm.het import merge_records, merge_rows
from perdure.model.jobs import Attempt, Job
from tests.backends.slurm.test_versions import NOW, VERSIONS, sources  # noqa: F401  # the fixture
from tests.laws.difference import must_equal
from tests.laws.moved import Moved

SHIFT_S = 7 * 24 * 3600


def seen(found: picture.Sources, now: float = NOW) -> tuple[list[Job], list[Attempt]]:
    """All that a picture holds, in an order of its own."""
    jobs = sorted(picture.jobs("c", found, now), key=lambda job: job.job_id)
    return jobs, list(picture.attempts("c", found, now))


def of_job(pictured: tuple[list[Job], list[Attempt]], job_id: str) -> tuple[list[Job], list[Attempt]]:
    jobs, attempts = pictured
    return [job for job in jobs if job.job_id == job_id], [a for a in attempts if a.id.job_id == job_id]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_lines_changes_nothing(sources: picture.Sources, seed: int) -> None:  # noqa: F811
    rng = random.Random(seed)
    lines = {name: list(getattr(sources, name)) for name in ("jobs", "nodes", "rows")}
    mixed = {name: rng.sample(each, len(each)) for name, each in lines.items()}
    must_equal(seen(replace(sources, **mixed)), seen(sources))


def test_a_row_that_is_told_twice_is_one(sources: picture.Sources) -> None:  # noqa: F811
    must_equal(seen(replace(sources, rows=[*sources.rows, *sources.rows])), seen(sources))


def test_each_job_looks_as_if_it_were_alone(sources: picture.Sources) -> None:  # noqa: F811
    whole = seen(sources)
    assert sources.jobs is not None
    assert sources.rows is not None
    ids = {job.job_id for job in sources.jobs} | {row.job_id for row in sources.rows}
    assert len(ids) > 8
    for job_id in ids:
        jobs = [job for job in sources.jobs if job.job_id == job_id]
        rows = [row for row in sources.rows if row.job_id == job_id]
        must_equal(seen(replace(sources, jobs=jobs, rows=rows)), of_job(whole, job_id))


def test_jobs_of_like_numbers_beside_it_change_nothing(sources: picture.Sources) -> None:  # noqa: F811
    """1 beside 11, 1_1 and 1+1; put together of parts or not."""
    assert sources.jobs is not None
    assert sources.rows is not None
    for like in ("{}1", "1{}", "{}_1"):
        others = [replace(job, job_id=like.format(job.job_id), raw_id=f"77{job.raw_id}") for job in sources.jobs]
        rows = [replace(row, job_id=like.format(row.job_id), raw_id=f"77{row.raw_id}") for row in sources.rows]
        both = replace(sources, jobs=[*others, *sources.jobs], rows=[*rows, *sources.rows])
        assert both.jobs is not None
        assert both.rows is not None
        merged = replace(both, jobs=merge_records(both.jobs), rows=merge_rows(both.rows))
        alone = replace(sources, jobs=merge_records(sources.jobs), rows=merge_rows(sources.rows))
        for job_id in {job.job_id for job in sources.jobs} - {job.job_id for job in others}:
            must_equal(of_job(seen(both), job_id), of_job(seen(sources), job_id))
            must_equal(of_job(seen(merged), job_id), of_job(seen(alone), job_id))


@pytest.mark.parametrize("shift_s", [-SHIFT_S, SHIFT_S])
def test_the_same_a_week_later_is_seen_the_same(sources: picture.Sources, shift_s: int) -> None:  # noqa: F811
    moved = Moved(shift_s=shift_s, more=("incarnation",))
    must_equal(seen(moved(sources), NOW + shift_s), moved(seen(sources)))
