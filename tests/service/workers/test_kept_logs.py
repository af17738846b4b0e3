"""The log of a failed attempt outlives the file that Slurm cuts, within bounds, and holds up nothing."""

import os
import stat
from pathlib import Path

import pytest

from perdure.model.identity import AttemptId
from perdure.model.output import Output, OutputFile, OutputKind
from perdure.service.settings import TriageSettings
from perdure.service.workers.kept_logs import KeptLogs, Retention

FIRST, SECOND = AttemptId("c", "17_3", 100), AttemptId("c", "17_3", 200)


@pytest.fixture
def kept(tmp_path: Path) -> KeptLogs:
    return KeptLogs(tmp_path)


def test_what_was_read_is_kept_for_its_attempt_alone(kept: KeptLogs) -> None:
    kept.keep(FIRST, Output.of(b"step 1\nno luck\n"))
    assert kept.read(FIRST, 1 << 20) == b"step 1\nno luck\n"
    assert kept.read(FIRST, 8) == b"no luck\n"
    assert kept.read(SECOND, 100) is None
    assert (kept.has(FIRST), kept.has(SECOND)) == (True, False)


def test_as_much_is_kept_as_a_site_that_sets_nothing_is_told() -> None:
    site = TriageSettings()
    assert Retention() == Retention(site.keep_logs_mib << 20, site.keep_logs_days * 86400.0)


def test_nobody_else_may_read_it(kept: KeptLogs) -> None:
    kept.keep(FIRST, Output.of(b"secret"))
    path = kept.path(FIRST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_first_reading_stands(kept: KeptLogs) -> None:
    """Judged again after a restart of the service, the file may have been cut."""
    kept.keep(FIRST, Output.of(b"the truth"))
    kept.keep(FIRST, Output.of(b"of the next attempt"))
    assert kept.read(FIRST, 100) == b"the truth"


def test_several_files_stand_under_their_names_the_jobs_own_last(kept: KeptLogs) -> None:
    files = (
        OutputFile("/o/out", b"step 1"),
        OutputFile("/o/err", b"Traceback", kind=OutputKind.STDERR),
        OutputFile("/o/r0", b"bye", kind=OutputKind.RANK, rank="0"),
        OutputFile("/o/empty", b"", kind=OutputKind.RANK, rank="1"),
    )
    kept.keep(FIRST, Output(files))
    assert kept.read(FIRST, 1000) == b"==> /o/r0 <==\nbye\n==> /o/err <==\nTraceback\n==> /o/out <==\nstep 1"


@pytest.mark.parametrize("job_id", ["../../etc/passwd", "a/b", "", "\udcff", "x" * 300])
def test_no_id_leaves_the_directory(kept: KeptLogs, tmp_path: Path, job_id: str) -> None:
    attempt = AttemptId("c", job_id, 1)
    kept.keep(attempt, Output.of(b"x"))
    assert kept.path(attempt).parent == tmp_path / "logs"
    assert kept.read(attempt, 10) == b"x"


def test_the_oldest_go_where_there_is_too_much_and_all_that_are_too_old(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path, Retention(max_bytes=3 * 4096, max_age_s=1000.0))
    ids = [AttemptId("c", str(number), 1) for number in range(5)]
    for number, attempt in enumerate(ids):
        kept.keep(attempt, Output.of(b"x"))
        os.utime(kept.path(attempt), (number * 100, number * 100))
    assert kept.prune(500.0) == 2
    assert [kept.has(attempt) for attempt in ids] == [False, False, True, True, True]
    assert kept.prune(1350.0) == 2
    assert [kept.has(attempt) for attempt in ids] == [False] * 4 + [True]
    assert KeptLogs(tmp_path / "none").prune(0.0) == 0


def test_nothing_is_kept_where_no_room_is_given(tmp_path: Path) -> None:
    kept = KeptLogs(tmp_path, Retention(max_bytes=0))
    kept.keep(FIRST, Output.of(b"x"))
    assert not (tmp_path / "logs").exists()


def test_a_full_disk_is_logged_and_leaves_no_draft(
    kept: KeptLogs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept.keep(FIRST, Output.of(b"x"))
    assert "No space left on device" in caplog.text
    assert list(kept.path(FIRST).parent.iterdir()) == []
    assert kept.read(FIRST, 10) is None


def test_a_damaged_file_is_as_none(kept: KeptLogs) -> None:
    kept.keep(FIRST, Output.of(b"x" * 1000))
    kept.path(FIRST).write_bytes(kept.path(FIRST).read_bytes()[:20])
    assert kept.read(FIRST, 10) is None
