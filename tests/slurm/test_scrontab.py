"""Jobs of a scrontab: Slurm starts them at their times, and neither takes changes nor a release of one that is held."""

import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("scrontab") is None, reason="no scrontab: Debian has it from Slurm 23.11 on"),
]

EVERY_MINUTE = """#SCRON -o {out}/cron.%j.out
* * * * * sh -c 'echo >>{runs}; echo "ConnectionResetError: [Errno 104] Connection reset by peer"; exit 1'
"""


def test_a_job_of_a_scrontab_that_fails_runs_again_at_its_next_time(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> None:
    runs = quiet_cluster.output / "cron-runs"
    table = tmp_path / "table"
    table.write_text(EVERY_MINUTE.format(out=quiet_cluster.output, runs=runs))
    site = Site(quiet_cluster, tmp_path / "home")
    with quiet_cluster.configured("ScronParameters=enable"):
        try:
            site.start()
            quiet_cluster.run("scrontab", str(table))
            job = quiet_cluster.run("squeue", "-h", "-o", "%i").split()[0]
            record = site.await_outcome(job, "stopped", 150)
            assert "its scrontab starts it again" in site.service.ask("GET", f"/jobs/{job}")["exceptions"][0]["reason"]
            assert record["type"] == "job.net"
            await_("its next run", lambda: runs.read_text().count("\n") >= 2, 150, lambda: site.told(job))
            assert site.actions(job) == [], site.told(job)
        finally:
            quiet_cluster.run("scrontab", "-r", check=False)
            site.stop()
