"""Every version of Slurm tells the story of tests/golden/slurm in its own words; all read the same."""

from pathlib import Path

import pytest

from perdure.backends.slurm import accounting, picture
from perdure.backends.slurm.node_records import read_nodes
from perdure.backends.slurm.paths import expand_patterns
from perdure.backends.slurm.records import OwnerClaim, read_jobs, repair
from perdure.model.jobs import AttemptState, JobState, RetryPreference
from perdure.model.nodes import NodeState
from tests.golden.slurm.record import DELIMITER, HOSTILE, MARK

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
VERSIONS = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "jobs").exists())
WITH_SUBMIT_LINE = ("26.05",)
NOW = 2_000_000_000.0  # long after the story: no end lies ahead

A, J = AttemptState, JobState


@pytest.fixture(params=VERSIONS)
def sources(request: pytest.FixtureRequest) -> picture.Sources:
    folder = GOLDEN / request.param
    fields = accounting.FIELDS + (accounting.LATER_FIELDS if request.param >= "24.11" else ())
    rows, lost = accounting.read_rows((folder / "accounting").read_bytes(), fields, DELIMITER)
    records = read_jobs((folder / "jobs").read_bytes(), MARK)
    claims = {row.raw_id: {OwnerClaim(row.uid, row.submit_s)} for row in rows}
    repaired = repair(records.torn, {job.raw_id for job in records.whole}, claims, MARK)
    assert (lost, records.unreadable, repaired.unreadable) == (0, 0, 0)
    # Where the owner's line is printed, the forged name stands in the text between two records as well.
    assert {job.raw_id for job in repaired.whole} == ({7, 8} if request.param in WITH_SUBMIT_LINE else {7})
    jobs = [expand_patterns(job, {}) for job in (*records.whole, *repaired.whole)]
    return picture.Sources(jobs, read_nodes((folder / "nodes").read_bytes(), MARK), rows)


def test_jobs(sources: picture.Sources) -> None:
    facts = {
        job.job_id: (job.name, job.user, job.state, job.gpus, job.node_count, job.may_requeue, job.wish, job.restarts)
        for job in picture.jobs("c", sources, NOW)
    }
    assert facts == {
        "1": ("train", "root", J.RUNNING, 4, 2, True, RetryPreference.NEVER, 0),
        "2_3": ("sweep", "nobody", J.FAILED, 1, 1, True, RetryPreference.AUTO, 0),
        "3": ("later", "root", J.PENDING, 0, 1, False, RetryPreference.AUTO, 0),
        "4+0": ("pair", "root", J.HELD, 0, 1, True, RetryPreference.AUTO, 0),
        "4+1": ("pair", "root", J.HELD, 0, 1, True, RetryPreference.AUTO, 0),
        "6": ("put back", "root", J.PENDING, 0, 1, True, RetryPreference.AUTO, 1),
        "7": (HOSTILE, "nobody", J.FAILED, 0, 1, True, RetryPreference.AUTO, 0),
        "8": ("no output", "root", J.FAILED, 0, 1, True, RetryPreference.AUTO, 0),
        "9": ("lost", "root", J.FAILED, 0, 1, False, RetryPreference.AUTO, 0),
    }


def test_attempts(sources: picture.Sources, request: pytest.FixtureRequest) -> None:
    # The forged name in the line of submission hides what Slurm prints behind it.
    hidden = "" if f"[{WITH_SUBMIT_LINE[0]}]" in request.node.name else "/cluster/out/7.out"
    facts = {
        a.id.job_id: (a.state, a.exit_code, a.signal, a.nodes, a.failed_nodes, a.gpus, a.stdout)
        for a in picture.attempts("c", sources, NOW)
    }
    n3 = ("node3",)
    assert facts == {
        "1": (A.RUNNING, 0, 0, ("node1", "node2"), (), 4, "/cluster/out/1.out"),
        "2_3": (A.FAILED, 3, 0, n3, (), 1, "/cluster/out/2_3.out"),
        "6": (A.FAILED, 75, 0, n3, (), 0, "/cluster/out/6.out"),
        "7": (A.FAILED, 4, 0, n3, (), 0, hidden),
        "8": (A.LAUNCH_FAILED, 0, 53, n3, (), 0, "/nowhere/8.out"),
        "9": (A.NODE_FAIL, 0, 0, n3, n3, 0, "/cluster/out/9.out"),
    }


def test_places_and_times(sources: picture.Sources) -> None:
    train = next(job for job in picture.jobs("c", sources, NOW) if job.job_id == "1")
    assert (train.excluded, train.required, train.walltime_s) == (("node4",), ("node1", "node2"), 3600.0)
    later = next(job for job in picture.jobs("c", sources, NOW) if job.job_id == "3")
    assert later.eligible_s is not None
    assert later.eligible_s - later.submit_s >= 3599
    ran = next(a for a in picture.attempts("c", sources, NOW) if a.id.job_id == "1")
    assert ran.id.incarnation == ran.start_s
    assert ran.end_s is None


def test_nodes(sources: picture.Sources) -> None:
    nodes = {n.node.name: n.node for n in sources.nodes}
    assert [(n.state, n.reason, n.gpus, n.gpus_used) for n in nodes.values()] == [
        (NodeState.UP, "", 4, 2),
        (NodeState.UP, "", 4, 2),
        (NodeState.DOWN, "the PSU died [really]", 4, 0),
        (NodeState.DRAINED, "Xid 79", 4, 0),
    ]
    assert nodes["node3"].since_s is not None
    assert nodes["node1"].partitions[0] == "main"


def test_accounting_alone_knows_the_attempts_too(sources: picture.Sources) -> None:
    alone = picture.Sources(None, (), sources.rows)
    states = {a.id.job_id: a.state for a in picture.attempts("c", alone, NOW)}
    assert states == {
        "1": A.RUNNING,
        "2_3": A.FAILED,
        "6": A.FAILED,
        "7": A.FAILED,
        "8": A.LAUNCH_FAILED,
        "9": A.NODE_FAIL,
    }
