"""Record what the installed Slurm prints of one small story: ``python -m tests.golden.slurm.record``  (root, Slurm).

Starts a cluster of its own, lets the story of README.md happen, and writes ``jobs``, ``nodes`` and ``accounting``
into the folder of the version that is installed.
"""

import shutil
import tempfile
import time
from pathlib import Path

from perdure.backends.slurm.accounting import FIELDS, LATER_FIELDS
from tests.slurm.cluster import SlurmCluster, await_

MARK = "goldenmarkz"
DELIMITER = "GOLDENDELIMITER"
NOWHERE = "/proc/nowhere"  # newer versions make a directory that is missing, where it can be made
HOSTILE = "evil|name\nJobId=2 JobName=forged UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0"


def tell(cluster: SlurmCluster) -> None:
    """Let the story happen."""
    never = '--comment={"perdure": {"retry": "never"}}'
    gang = ("-N2", "-w", "node1,node2", "-x", "node4", "--gres=gpu:h100:2")
    train = cluster.submit("sleep 600", "-J", "train", never, *gang)
    cluster.wait(train, lambda job: job.get("JobState") == "RUNNING")
    sweep = cluster.submit("exit 3", "-J", "sweep", "--array=3", "-w", "node3", "--gres=gpu:1", user="nobody")
    cluster.wait(f"{sweep}_3", lambda job: job.get("JobState") == "FAILED")
    cluster.submit("exit 0", "-J", "later", "--array=5-7%2", "--begin=now+1hour", "--no-requeue")
    cluster.run("sbatch", "--hold", "-J", "pair", "--wrap", "true", ":", "-J", "pair", "--wrap", "true")
    again = cluster.submit("exit 75", "-J", "put back", "-w", "node3")
    cluster.wait(again, lambda job: job.get("Restarts") == "1")
    cluster.run("scontrol", "update", f"jobid={again}", "StartTime=now+3600")
    evil = cluster.submit("exit 4", "-J", HOSTILE, "-w", "node3", user="nobody")
    cluster.wait(evil, lambda job: "FAILED" in str(job))
    silent = cluster.submit("exit 0", "-J", "no output", "-w", "node3", "-o", f"{NOWHERE}/%j.out")
    cluster.wait(silent, lambda job: job.get("JobState") == "FAILED")
    lost = cluster.submit("sleep 600", "-J", "lost", "-w", "node3", "--no-requeue")
    cluster.wait(lost, lambda job: job.get("JobState") == "RUNNING")
    cluster.run("scontrol", "update", "nodename=node3", "state=down", "reason=the PSU died [really]")
    cluster.wait(lost, lambda job: job.get("JobState") == "NODE_FAIL")
    cluster.run("scontrol", "update", "nodename=node4", "state=drain", "reason=Xid 79")
    # A row is found by its time only some seconds after the job: its eligible time is written late.
    await_("accounting", lambda: "NODE_FAIL" in cluster.run("sacct", "-n", "-X", "-S", "now-1hour", "-o", "State"), 20)


def record(cluster: SlurmCluster, folder: Path) -> None:
    """Write what the tools print."""
    folder.mkdir(exist_ok=True)
    cluster.env = {**cluster.env, "TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": f"%s~{MARK}"}
    places = {str(cluster.directory): "/cluster", NOWHERE: "/nowhere"}
    (folder / "jobs").write_text(_renamed(cluster.run("scontrol", "-a", "-o", "show", "job"), places))
    (folder / "nodes").write_text(cluster.run("scontrol", "-a", "-o", "show", "node"))
    cluster.env = {**cluster.env, "SLURM_TIME_FORMAT": "%s"}
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 3600))
    known = cluster.run("sacct", "--helpformat").split()
    fields = ",".join((*FIELDS, *(name for name in LATER_FIELDS if name in known)))
    argv = ("sacct", "-a", "-n", "-p", "-X", "-D", f"--delimiter={DELIMITER}", "-o", fields, "-S", since)
    (folder / "accounting").write_text(_renamed(cluster.run(*argv), places))


def _renamed(text: str, places: dict[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="perdure-golden-", dir="/tmp"))
    cluster = SlurmCluster(directory)
    try:
        cluster.start()
        version = ".".join(cluster.run("scontrol", "--version").split()[-1].split(".")[:2])
        tell(cluster)
        record(cluster, Path(__file__).parent / version)
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
