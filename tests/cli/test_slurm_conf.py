"""`perdure whatif --slurm-conf`: what is wrong with a file is one line, and nothing of it is passed over in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

pytestmark = pytest.mark.usefixtures("says_nothing_of_compiling")

SITE = "NodeName=n[1-2] Gres=gpu:4\nPartitionName=main Nodes=ALL Default=YES MaxTime=60\n"
ROWS = "job_id,submit_s,gpus,duration_s,walltime_s,partition\na,0,8,100,200,main\nb,1,1,5,60,main\n"


@pytest.fixture
def whatif(perdure: Callable[..., Ran], home: Path) -> Callable[..., Ran]:
    """Replay two jobs on a site of two nodes; `more` stands below its slurm.conf."""

    def run(more: str = "", *words: str, rows: str = ROWS, site: str = SITE) -> Ran:
        (home / "jobs.csv").write_text(rows)
        (home / "slurm.conf").write_text(site + more)
        return perdure("whatif", "jobs.csv", "--slurm-conf", "slurm.conf", "--policy", "slurm", *words)

    return run


def test_a_file_without_anything_strange_says_nothing(whatif: Callable[..., Ran]) -> None:
    ran = whatif()
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("Include none.conf\n", "slurm.conf:3: none.conf: No such file or directory. Name a slurm.conf that "),
        ("Include .\n", "slurm.conf:3: .: Is a directory. Name a slurm.conf that you may read."),
        ("Include slurm.conf\n", "slurm.conf:3: more than 100 files are included. Does a file include itself?"),
        ("words\n", "slurm.conf:3: 'words' is not KEY=VALUE. Fix the line, or comment it out."),
        ("PriorityWeightAge=much\n", "slurm.conf:3: PriorityWeightAge: 'much' is not a whole number. Fix the value, "),
        ("PriorityMaxAge=1:2:3:4\n", "slurm.conf:3: PriorityMaxAge: '1:2:3:4' is not a time such as 1-12:00:00. "),
        ("PriorityWeightTRES=cpu=x\n", "slurm.conf:3: PriorityWeightTRES=cpu: 'x' is not a whole number. "),
        ("PriorityType=priority/mine\n", "slurm.conf:3: PriorityType: 'priority/mine' is not one of "),
        ("SchedulerType=sched/wiki\n", "slurm.conf:3: SchedulerType: 'sched/wiki' is not one of sched/backfill, "),
        ("SchedulerParameters=bf_window=1h\n", "slurm.conf:3: SchedulerParameters=bf_window: '1h' is not a whole "),
        ("PartitionName=p MaxTime=soon\n", "slurm.conf:3: PartitionName=p maxtime: 'soon' is not a time such as "),
        ("PartitionName=p State=AWAY\n", "slurm.conf:3: PartitionName=p state: 'AWAY' is not one of UP, DOWN, "),
        ("PartitionName=p PriorityTier=high\n", "slurm.conf:3: PartitionName=p prioritytier: 'high' is not a whole "),
        ("PartitionName=p Nodes=n[1\n", "slurm.conf:3: brackets of 'n[1' do not match. Write node[1-3,7]."),
        ("NodeName=n[1-999999999]\n", "slurm.conf:3: 'n[1-999999999]' names more than 65536 nodes. Name fewer nodes."),
        ("NodeName=n2 Gres=gpu:8\n", "slurm.conf:3: node n2 is named twice. Name each node in one line."),
    ],
)  # fmt: skip
def test_what_slurmctld_would_not_take_is_one_line_with_its_place(
    whatif: Callable[..., Ran], more: str, complaint: str
) -> None:
    ran = whatif(more)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("none.conf", "none.conf: No such file or directory. Name a slurm.conf that you may read."),
        (".", ".: Is a directory. Name a slurm.conf that you may read."),
        ("noise", "noise:1: "),
    ],
)
def test_what_is_no_slurm_conf_is_one_line(perdure: Callable[..., Ran], home: Path, name: str, complaint: str) -> None:
    (home / "jobs.csv").write_text(ROWS)
    (home / "noise").write_bytes(bytes(range(1, 256)) * 9)
    ran = perdure("whatif", "jobs.csv", "--slurm-conf", name, "--policy", "slurm")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("CompleteWait=9\n", "CompleteWait"),
        ("SchedulerParameters=bf_yield_interval=5,bf_busy_nodes\n",
         "SchedulerParameters.bf_busy_nodes, SchedulerParameters.bf_yield_interval"),
        ("PartitionName=p Nodes=n1,n7 AllowQos=a\n", "PartitionName.allowqos, PartitionName=p Nodes=n7 (no such node)"),
        ("PartitionName=p Nodes=ALL QOS=quick\n", "PartitionName=p QOS=quick"),
        ("NodeName=n3 Gres=gpu:4 State=DOWN Weight=5\n", "NodeName.state=DOWN, NodeName.weight"),
        ("DownNodes=n2 State=DOWN\n", "DownNodes"),
    ],
)  # fmt: skip
def test_what_may_change_starts_and_is_not_modelled_is_told(whatif: Callable[..., Ran], more: str, told: str) -> None:
    words = ("--placement", "first-fit") if "PartitionName" in more or "NodeName" in more else ()
    ran = whatif(more, *words)
    assert ran.code == 0
    assert ran.err.splitlines()[0] == f"slurm.conf: not modelled, though they may change starts: {told}"


def test_what_is_left_out_is_in_the_json_and_on_the_page_too(whatif: Callable[..., Ran], home: Path) -> None:
    ran = whatif("PreemptType=preempt/qos\nNewKey=1\n", "--json", "--out", "page")
    found = json.loads(ran.out)["slurm_conf"]
    assert found == {"not_modelled": ["PreemptType"], "ignored": ["NewKey"]}
    page = (home / "page" / "index.html").read_text()
    assert "PreemptType" in page
    assert "NewKey" in page


def test_jobs_of_unknown_partitions_are_counted_and_told(whatif: Callable[..., Ran]) -> None:
    rows = ROWS + 'c,2,1,5,60,gone\nd,3,1,5,60,gone\ne,4,1,5,60,\nf,5,1,5,60,"gone,main"\n'
    ran = whatif(rows=rows)
    told = "jobs.csv: 2 jobs are of partitions that slurm.conf does not have (gone): they are taken for jobs of main"
    assert (ran.code, ran.err.splitlines()) == (0, [told])


def test_what_a_trace_names_cannot_write_on_a_terminal(
    whatif: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    strange = "\x1b]0;mine\x07\x1b[31m"
    ran = whatif(rows=ROWS.replace("60,main", f"60,{strange}b"))
    assert "1 jobs are of partitions" in ran.err
    assert "\x1b" not in ran.err


def test_a_partition_that_is_down_starts_nobody(whatif: Callable[..., Ran]) -> None:
    site = SITE.replace("Default=YES", "Default=YES State=DOWN")
    ran = whatif(site=site)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith("jobs.csv: job a: Slurm never starts it (PartitionDown). Change that limit, or ")
    both = whatif("PartitionName=up Nodes=ALL\n", "--skip-bad", site=site, rows=ROWS.replace("60,main", "60,up"))
    assert both.code == 0
    assert "jobs.csv: 1 left out: never started by Slurm (PartitionDown)" in both.err


def test_a_file_without_gpus_needs_a_cluster(whatif: Callable[..., Ran]) -> None:
    ran = whatif(site="NodeName=n1 CPUs=4\nPartitionName=main Nodes=ALL\n")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith("slurm.conf: it has no node with GPUs (Gres=gpu:N). Name the nodes with --cluster")


def test_with_a_placement_reservations_know_nodes(whatif: Callable[..., Ran], home: Path) -> None:
    """The third job fits on no node before 100 s. The last one delays it nowhere where nodes are known: it starts on
    the other node. In the pool two GPUs are free, which are reserved for the third.
    """
    rows = "job_id,submit_s,gpus,duration_s,walltime_s\na,0,3,100,100\nb,0,3,100,100\nc,1,2,9,60\nd,2,1,900,900\n"
    ran = whatif("", "--placement", "consolidate", "--jobs-out", "out.csv", rows=rows)
    assert (ran.code, ran.err) == (0, "")
    starts = [line.split(",")[2] for line in (home / "out.csv").read_text().splitlines()[1:]]
    assert starts == ["0", "0", "100", "30"]
