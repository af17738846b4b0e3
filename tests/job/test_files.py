"""The tracks of a job's tasks, as whoever looks at them finds them."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.job.files import JobFiles, tasks
from perdure.job.identity import Task


@given(st.lists(st.integers(1, 2000), unique=True, max_size=6))
def test_the_newest_attempts_tracks_come_first_whatever_its_number(tokens: list[Any]) -> None:
    """Whoever reads a few alone must not read those of attempts that are over."""
    with TemporaryDirectory() as fence:
        for token in tokens:
            JobFiles.of(Path(fence), token, Task("n1", "n1", 7)).directory.mkdir(parents=True)
        assert [int(found.directory.parent.name) for found in tasks(Path(fence))] == sorted(tokens, reverse=True)
