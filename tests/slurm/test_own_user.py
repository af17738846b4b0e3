"""A job's own user asks without a token: by the kernel's word on the service's Unix socket."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

SHAPE = """
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""


# Another user, who may nevertheless read this Python and this source wherever they are.
AS_NOBODY = (
    "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip


def test_why_and_jobs_answer_a_job_s_own_user(quiet_cluster: SlurmCluster, tmp_path: Path) -> None:
    path = quiet_cluster.directory / "run" / "perdure.sock"
    site = Site(quiet_cluster, tmp_path, {"PERDURE_SERVICE_SOCKET": str(path)})

    def perdure(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**quiet_cluster.env, "HOME": "/nonexistent", "PERDURE_SOCKET": str(path)}
        argv = (*AS_NOBODY, sys.executable, "-m", "perdure", *words)
        return subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, timeout=180, check=False)

    try:
        site.start()
        own = quiet_cluster.submit(SHAPE, user="nobody")
        other = quiet_cluster.submit(SHAPE)
        for job_id in (own, other):
            await_("a decision", lambda: [r for r in site.records(job_id) if r["verdicts"]])  # noqa: B023
        await_("the end", lambda: "is failed" in perdure("why", own).stdout)  # it is cleaned up after still
        told = perdure("why", own)
        assert told.returncode == 1, told
        assert "mat1 and mat2 shapes cannot be multiplied" in told.stdout
        assert perdure("why", f"{own}.batch").stdout == told.stdout
        ran = perdure("jobs", "--json")
        assert ran.returncode == 0, ran
        listed = json.loads(ran.stdout)
        assert own in {job["job_id"] for job in listed["jobs"]}
        assert {job["user"] for job in listed["jobs"]} == {"nobody"}  # and none of those of other tests' users
        for words in (("why", other), ("jobs", "--user", "root"), ("actions",), ("events",), ("nodes",)):
            refused = perdure(*words)
            assert refused.returncode == 2, (words, refused)
            assert "without a token" in refused.stderr, (words, refused)
    finally:
        site.stop()
