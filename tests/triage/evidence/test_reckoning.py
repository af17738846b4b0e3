"""Figures of disks, quotas and times: a limit that was reached, and one that was not."""

import pytest
from msgspec.structs import replace

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.disk_space import disk_of, disk_space, mounted_disks
from perdure.triage.evidence.quota_tables import QuotaRow, QuotaUse, row_of
from perdure.triage.evidence.time_used import time_used
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label, Verdict

TRACEBACK = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\n    main()\n'
DF = "Filesystem      Size  Used Avail Use% Mounted on\nnas:/scratch    100T  {}  {} {}% /scratch\n"
FULL = "OSError: [Errno 28] No space left on device: '/scratch/a/ck.pt'\n"


def verdict(log: str) -> Verdict:
    return judge((TRACEBACK + log).encode())


def test_a_disk_that_is_said_to_be_full_and_has_room_is_unsure() -> None:
    assert verdict(FULL).label is Label.DETERMINISTIC
    assert verdict("OSError: [Errno 28] No space left on device: need 4 GB, 12 GB available\n").label is Label.UNSURE
    found = verdict(FULL + DF.format("40T", "60T", 40))
    assert found.label is Label.UNSURE
    assert "/scratch at 40 %" in found.summary


def test_figures_that_explain_the_failure_are_told() -> None:
    told = verdict("OSError: not enough free disk space: 150 GB required, 80 GB available\n")
    assert (told.label, "139.7 GiB needed, 74.5 GiB free" in told.summary) == (Label.DETERMINISTIC, True)
    assert "/scratch is at 100 %" in verdict(FULL + DF.format("100T", "0", 100)).summary


def test_room_by_df_says_nothing_of_a_quota_nor_of_another_disk() -> None:
    assert verdict(
        "OSError: [Errno 122] Disk quota exceeded: '/scratch/a/x'\n" + DF.format("40T", "60T", 40)
    ).label is (Label.DETERMINISTIC)
    assert verdict(FULL.replace("/scratch", "/proj") + DF.format("40T", "60T", 40)).label is Label.DETERMINISTIC


def test_files_that_ran_out_are_told_from_bytes() -> None:
    table = "Filesystem      Inodes   IUsed  IFree IUse% Mounted on\nnas:/scratch   1000000 1000000 0 100% /scratch\n"
    assert "no more files" in verdict(FULL + table).summary


def test_what_is_larger_than_the_whole_quota_fits_on_no_node() -> None:
    """The local disk of another node is as large: without the figures the job is sent there."""
    line = "OSError: [Errno 28] No space left on device: '/tmp/x'{}\n"
    assert verdict(line.format("")).category == "node_disk"
    larger = verdict(line.format(" (900 GB needed, limit 850 GB)"))
    assert (larger.category, larger.label) == ("disk_quota", Label.DETERMINISTIC)


def test_a_time_limit_that_is_far_away_is_unsure() -> None:
    line = "ERROR: wall clock time limit exceeded: elapsed={} s, limit=86400 s\n"
    assert judge(line.format(86399).encode()).label is Label.DETERMINISTIC
    assert judge(line.format(3600).encode()).label is Label.UNSURE


def test_a_death_at_the_end_of_the_walltime_is_that_of_the_walltime() -> None:
    ended = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1",), 0.0, end_s=3599.0, signal=9)
    early = replace(ended, end_s=1200.0)
    late, before = (judge(b"", each, Context(each.elapsed_s, walltime_s=3600.0)).p_transient for each in (ended, early))
    assert late < 0.12 < before


@pytest.mark.parametrize(
    ("line", "elapsed_s", "limit_s"),
    [
        (b"=>> PBS: job killed: walltime 3612 exceeded limit 3600", 3612, 3600),
        (b"Elapsed time: 1-00:00:05 reached limit 24:00:00", 86405, 86400),
        (b"time limit is 3600 s, ran for 3599 s", 3599, 3600),
        (b"time limit reached after 30m, limit 24h", 1800, 86400),
    ],
)
def test_both_times_are_read(line: bytes, elapsed_s: float, limit_s: float) -> None:
    used = time_used(line)
    assert used is not None
    assert (used.elapsed_s, used.limit_s) == (elapsed_s, limit_s)


@pytest.mark.parametrize("line", [b"the time limit is 2 hours", b"step 100 of 2000 took 3 s", b"12 GiB of space left"])
def test_a_single_figure_tells_nothing(line: bytes) -> None:
    assert time_used(line) is None
    assert disk_space(line) is None


def test_hdfs_and_quotas_are_read() -> None:
    hdfs = disk_space(b"The DiskSpace quota of /user/a is exceeded: quota = 1073741824 B but diskspace consumed = 2 GB")
    used = disk_space(b"quota exceeded: used 512.0 GB of 500 GB")
    assert hdfs is not None
    assert hdfs.never_fits
    assert used is not None
    assert used.room == 0


def test_the_disk_of_a_path_is_the_nearest_mount_above_it() -> None:
    disks = list(mounted_disks(b"/dev/a 10G 1G 9G 10% /\n/dev/b 1G 1G 0 100% /scratch\n"))
    assert [disk.path for disk in disks] == ["/", "/scratch"]
    found = [disk_of(path, disks) for path in ("/scratch/a", "/scratchy/a")]
    assert [disk.path for disk in found if disk] == ["/scratch", "/"]


def test_the_disk_and_the_quota_of_a_path_are_the_deepest_above_it() -> None:
    disks = list(mounted_disks(b"/dev/a 10G 1G 9G 10% /proj\n/dev/b 1G 1G 0 100% /proj/lab\n/dev/c 9G 1G 8G 11% /\n"))
    assert [disk_of(path, disks).path for path in ("/proj/lab/a", "/proj/a")] == ["/proj/lab", "/proj"]
    use = QuotaUse(1.0, 2.0, 3.0, False, "")
    rows = [QuotaRow(path, use, use) for path in ("/proj", "/proj/lab", "/")]
    assert [row_of(path, rows).path for path in ("/proj/lab/a", "/proj/a")] == ["/proj/lab", "/proj"]


def test_sizes_of_df_are_read_with_units_of_one_letter_and_of_three() -> None:
    (short,) = mounted_disks(b"/dev/b 10G 8G 2G 80% /scratch\n")
    (long,) = mounted_disks(b"/dev/b 10GiB 8GiB 2GiB 80% /scratch\n")
    assert short == long
    assert short.total == 10 * 2**30


LFS = """Disk quotas for usr ines (uid 5001):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/lustre/scratch {}
"""
QUOTA = """Disk quotas for user ines (uid 5001):
     Filesystem   space   quota   limit   grace   files   quota   limit   grace
nas1.cluster.example.org:/export/home
                {}
"""
REFUSED = "OSError: [Errno 122] Disk quota exceeded: '/lustre/scratch/ines/ck.pt'\n"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (LFS.format("104857600* 104857600 104857600 none 991 0 0 -"), "100.0 of 100.0 GiB on /lustre/scratch"),
        (LFS.format("[104857590] 0 104857600 - 991 0 0 -"), "100.0 of 100.0 GiB on /lustre/scratch"),
        (LFS.format("52428800 104857600 115343360 - 1000000* 900000 1000000 6d23h"), "1000000 of 1000000 files"),
        (LFS.replace("kbytes", "used").format("1.1T* 1T 1.2T expired 991 0 0 -"), "1126.4 of 1228.8 GiB"),
        (QUOTA.format("20480M*  20480M  20480M   none   12345       0       0"), "20.0 of 20.0 GiB on nas1"),
        (QUOTA.format("20000M   20480M  22528M          100k*    100k    100k   6days"), "100000 of 100000 files"),
    ],
)
def test_a_table_of_quotas_tells_which_one_is_full(table: str, told: str) -> None:
    found = verdict(REFUSED + table)
    assert (found.label, told in found.summary) == (Label.DETERMINISTIC, True), found.summary
    assert told not in verdict(REFUSED).summary


def test_a_quota_that_is_said_to_be_full_and_has_room_is_unsure() -> None:
    room = LFS.format("52428800 104857600 115343360 - 1000 900000 1000000 -")
    found = verdict(REFUSED + room)
    assert found.label is Label.UNSURE
    assert "50.0 of 110.0 GiB on /lustre/scratch" in found.summary
    assert verdict(REFUSED.replace("/lustre/scratch", "/home") + room).label is Label.DETERMINISTIC


@pytest.mark.parametrize("row", ["no figures here", "1 2", "- - - -", "12x 3 4 - 5 6 7 -", ""])
def test_what_is_no_row_of_quotas_is_passed_over(row: str) -> None:
    assert verdict(REFUSED + LFS.format(row)).summary == verdict(REFUSED).summary


WRITTEN = "OSError: 200000 requested and 185840 written\n"


@pytest.mark.parametrize(("path", "category"), [("/tmp/feat_a/3.npy", "node_disk"), ("/proj/a/3.npy", "disk_quota")])
def test_a_short_write_that_names_no_file_is_told_by_the_file_before_it(path: str, category: str) -> None:
    found = judge(f"cached {path}\n{TRACEBACK}{WRITTEN}".encode())
    assert found.category == category
    assert (found.label is Label.DETERMINISTIC) == (category == "disk_quota")


@pytest.mark.parametrize("last", ["/tmp/b/3.npy", "/proj/b/3.npy"])
def test_of_several_files_before_a_short_write_the_last_is_the_one_that_was_written(last: str) -> None:
    first = "/proj/a/1.npy" if last.startswith("/tmp") else "/tmp/a/1.npy"
    found = judge(f"cached {first}\ncached {last}\n{TRACEBACK}{WRITTEN}".encode())
    assert found.category == ("node_disk" if last.startswith("/tmp") else "disk_quota")


def test_the_one_disk_that_was_full_before_is_meant_where_no_file_is_named() -> None:
    df = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/nvme0n1p3  880G  {}  {} {}% {}\n"
    full, unnamed = df.format("879G", "1.1G", 100, "/tmp"), "OSError: [Errno 28] No space left on device\n"
    found = judge((full + TRACEBACK + unnamed).encode())
    assert (found.label, found.category) == (Label.UNSURE, "node_disk")
    room, shared = df.format("2.1G", "878G", 1, "/tmp"), df.format("879G", "1.1G", 100, "/scratch")
    for log in (room + TRACEBACK + unnamed, shared + TRACEBACK + unnamed, TRACEBACK + unnamed + full):
        assert judge(log.encode()).category == "disk_quota"


def test_more_than_a_quota_allows_is_no_fault_of_a_node() -> None:
    consumed = "quota = 1073741824 B = 1 GB but diskspace consumed = 2147483648 B = 2 GB"
    found = verdict(f"OSError: [Errno 122] Disk quota exceeded: the quota of /user/a is exceeded: {consumed}\n")
    assert "more is needed" in found.summary
    assert (found.bound, found.infrastructure) == (Bound.NOTHING, False)
