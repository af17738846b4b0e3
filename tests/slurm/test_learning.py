"""A site's own exception on a real Slurm: what retries of two users prove decides a third's job, also after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = [pytest.mark.slurm, pytest.mark.slow]  # a minute on a busy machine

SEALED = """
if [ -z "$SLURM_RESTART_COUNT" ]; then
  printf 'Traceback (most recent call last):\\n  File "train.py", line 7, in <module>\\n' >&2
  echo "acme.VaultSealed: vault $SLURM_JOB_ID on $SLURMD_NODENAME is sealed" >&2
  exit 3
fi
echo done
"""


def verdict_of(site: Site, job_id: str) -> Any:
    """The verdict on a job's first attempt, once there is one."""

    def found() -> Any:
        if all(record["job_id"] != job_id for record in site.ask("/jobs")):
            return None
        attempts = site.service.ask("GET", f"/jobs/{job_id}")["attempts"]
        return next((attempt["verdict"] for attempt in attempts if attempt["verdict"]), None)

    return await_(f"a verdict on job {job_id}", found, 60, lambda: site.told(job_id))


def test_a_sites_own_exception_is_learnt_told_and_set_aside(quiet_cluster: SlurmCluster, tmp_path: Path) -> None:
    site = Site(quiet_cluster, tmp_path).start()
    try:
        first = [quiet_cluster.submit(SEALED, user=user) for user in ("nobody", "daemon", "nobody")]
        for job_id in first:
            site.await_outcome(job_id, "recovered")
        assert {verdict_of(site, job_id)["label"] for job_id in first} == {"unsure"}
        site.kill()
        site.start()
        fourth = verdict_of(site, quiet_cluster.submit(SEALED, user="games"))
        assert fourth["label"] == "transient"
        assert fourth["summary"].endswith("learnt from 3 outcomes here")
        (message,) = site.service.ask("GET", "/learning")["messages"]
        assert message["message"] == "acme.VaultSealed: vault <n> on <node> is sealed"
        assert (message["passed"], message["users"]) == (3, ["daemon", "nobody"])
        assert [(one["says"], one["jobs"]) for one in message["changed"]] == [("probe -> retry", 1)]
        site.service.ask("POST", "/learning/aside", {"kind": "user", "value": "nobody"})
        assert verdict_of(site, quiet_cluster.submit(SEALED, user="games"))["label"] == "unsure"
    finally:
        site.stop()
