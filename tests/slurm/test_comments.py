"""What a job's own record says of a decision: AdminComment and Comment, as users read them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.model.job_comment import mark_of
from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

LOST = """
[ -n "$SLURM_RESTART_COUNT" ] && exec sleep 600
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
SHAPE = """
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""


@pytest.fixture
def site(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    one = Site(quiet_cluster, tmp_path)
    try:
        yield one.start()
    finally:
        one.stop()


def comments(cluster: SlurmCluster, job_id: str) -> tuple[str, str]:
    """AdminComment and Comment of a job, as users read them: of one that is over in accounting."""
    shown = dict(
        line.strip().partition("=")[::2] for line in cluster.run("scontrol", "show", "job", job_id).splitlines()
    )
    if shown["JobState"].startswith(("FAILED", "COMPLETED")):
        admin, _, own = cluster.run("sacct", "-nPX", "-j", job_id, "-o", "AdminComment,Comment").strip().partition("|")
        return admin, own
    return shown.get("AdminComment", "").strip(), shown.get("Comment", "").strip()


def test_each_decision_is_said_in_the_job_s_record(site: Site, tmp_path: Path) -> None:
    cluster = site.cluster
    lost = cluster.submit(LOST, "--requeue")
    wishes = cluster.submit(LOST, "--requeue", "--comment=perdure:nodes=1-1")
    pinned = cluster.submit(LOST, "--requeue", "-w", "node2")
    gate = tmp_path / "gate"  # shut until an operator has written into their records
    noted, json = (cluster.submit(f"until [ -e {gate} ]; do sleep 0.2; done; {LOST}", "--requeue") for _ in "ab")
    shape = cluster.submit(SHAPE, "--requeue")
    cluster.run("scontrol", "update", f"jobid={noted}", "AdminComment=set by an operator")
    cluster.run("scontrol", "update", f"jobid={json}", 'AdminComment={"site": [1]}')
    gate.touch()
    for job_id in (lost, wishes, pinned, noted, json):
        site.await_done(job_id, "requeue")
    await_("the line of a job that is over", lambda: comments(cluster, shape)[0], words=lambda: site.told(shape))

    admin, own = comments(cluster, lost)
    assert admin == own
    assert admin.startswith('"perdure: ')
    assert "retry away from node" in admin
    assert f"perdure why {lost} #" in admin
    assert comments(cluster, wishes)[1] == "perdure:nodes=1-1"
    kept, own = comments(cluster, noted)
    assert kept == "set by an operator"
    assert own.endswith(f'. perdure why {noted} #{mark_of(admin)}"')
    assert comments(cluster, json)[0] == '{"site": [1]}'
    assert "on node2 as asked for by -w" in comments(cluster, pinned)[0]
    assert cluster.job(pinned)["ReqNodeList"] == "node2"
    stopped, untouched = comments(cluster, shape)
    assert "it would fail again" in stopped
    assert untouched == ""
    assert mark_of(stopped) == mark_of(admin) != ""


def test_a_job_that_fails_again_has_its_newest_failure_in_accounting(site: Site) -> None:
    """The controller takes no new line for a job that is over: the old one says which failure it is about."""
    cluster = site.cluster
    job_id = cluster.submit(LOST.replace("exec sleep 600", "{ " + SHAPE.strip() + "; }"), "--requeue")

    def newest() -> tuple[str, str] | None:
        found = comments(cluster, job_id)
        return found if "it would fail again" in found[0] else None

    admin, own = await_("the newest line", newest, 180, lambda: site.told(job_id))
    assert admin == own
    assert f"failed {cluster.job(job_id)['EndTime'].replace('T', ' ')}: " in admin
    shown = cluster.run("scontrol", "show", "job", job_id)
    assert "a peer closed the connection" in shown
    assert admin[: len("perdure: failed 2026-11-23 18:31:04")] not in shown


def test_accounting_gets_the_newest_line_again_once_slurmctld_has_sent_its_older_one(site: Site) -> None:
    """A slurmctld that starts anew sends accounting the jobs that it still knows, with the lines that it has."""
    cluster = site.cluster
    job_id = cluster.submit(LOST.replace("exec sleep 600", "{ " + SHAPE.strip() + "; }"), "--requeue")

    def line(words: str) -> tuple[str, str] | None:
        found = comments(cluster, job_id)
        return found if words in found[0] else None

    newest = await_("the newest line", lambda: line("it would fail again"), 180, lambda: site.told(job_id))
    looked_s = site.service.ask("GET", "/status")["last_look_s"]
    await_("a later look", lambda: site.service.ask("GET", "/status")["last_look_s"] > looked_s + 2, 60)
    cluster.stop_ctld()
    cluster.start_ctld()
    await_("the older line", lambda: line("a peer closed the connection"), 60)
    assert await_("the newest line again", lambda: line("it would fail again"), 90) == newest
