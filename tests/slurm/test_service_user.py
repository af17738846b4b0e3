"""The service as a user of its own, with the rights that its unit file gives it and no others."""

import configparser
import functools
import json
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.service.access.service_file import ServiceFile
from tests.slurm.any_user import OF_PYTHON, python
from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import QUICK

pytestmark = pytest.mark.slurm

SHAPE = """
umask 077
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""
LOST = """
[ -n "$SLURM_RESTART_COUNT" ] && exec sleep 600
echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
exit 1
"""
USER, OWNER = "daemon", "nobody"  # users that every machine knows
UNIT = Path(perdure.__file__).parent / "service" / "systemd" / "perdure.service"


def unit() -> dict[Any, Any]:
    """The unit's section on the service, as systemd reads it."""

    class Unit(configparser.RawConfigParser):
        def optionxform(self, optionstr: str) -> str:
            return optionstr

    found = Unit(strict=False)
    found.read(UNIT)
    return dict(found["Service"])


def as_service(argv: tuple[str, ...]) -> tuple[Any, ...]:
    """With the capabilities of the unit file, and nothing else of root's."""
    words = unit()["AmbientCapabilities"].split()
    caps = ",".join(f"+{word.removeprefix('CAP_').lower()}" for word in words)
    bounds = f"-all,{caps}"
    rights = (f"--inh-caps={caps}", f"--ambient-caps={caps}", f"--bounding-set={bounds}", "--no-new-privs")
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *rights, *argv)


@pytest.fixture
def service(
    quiet_cluster: SlurmCluster, tmp_path: Path
) -> Iterator[tuple[Callable[[str], Any], Callable[..., str], ServiceFile, subprocess.Popen[str]]]:
    run = python()
    state = Path(tempfile.mkdtemp(prefix="service-", dir=quiet_cluster.directory))
    os.chown(state, pwd.getpwnam(USER).pw_uid, pwd.getpwnam(USER).pw_gid)
    quiet_cluster.run("sacctmgr", "-i", "add", "account", "site", check=False)  # they may be there from a test before
    quiet_cluster.run("sacctmgr", "-i", "add", "user", USER, "account=site", "adminlevel=operator", check=False)
    known = functools.partial(quiet_cluster.run, "scontrol", "show", "assoc_mgr", f"users={USER}", "flags=users")
    await_("slurmctld to know the operator", lambda: "AdminLevel=Operator" in known(), words=known)
    environment = {
        **quiet_cluster.env,
        **QUICK,
        "HOME": str(state),
        **OF_PYTHON,
        "PERDURE_SERVICE_CLUSTER_NAME": "north",
    }
    argv = (run, "-m", "perdure", "up", "--cluster", "slurm", "--act", "--port", "0", "--state", str(state))
    log = (tmp_path / "up.log").open("w")
    up = subprocess.Popen(as_service(argv), env=environment, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/")
    assert "http://127.0.0.1:" in up.stdout.readline(), (tmp_path / "up.log").read_text()

    def why(job_id: str) -> Any:
        argv = (run, "-m", "perdure", "why", job_id, "--json", "--state", str(state))
        ran = subprocess.run(
            as_service(argv), env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        return json.loads(ran.stdout) if ran.returncode in (0, 1) and ran.stdout else {}

    yield why, (tmp_path / "up.log").read_text, ServiceFile.read(state), up
    up.send_signal(signal.SIGINT)
    up.wait(60)
    up.stdout.close()
    log.close()


def test_logs_of_other_users_are_read_with_their_owners_rights(
    quiet_cluster: SlurmCluster,
    service: tuple[Callable[[str], Any], Callable[..., str], ServiceFile, subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    why, log, _, up = service
    home = quiet_cluster.directory / "home"
    home.mkdir(mode=0o700)
    os.chown(home, pwd.getpwnam(OWNER).pw_uid, -1)
    own = quiet_cluster.submit(SHAPE, "-o", f"{home}/%j.out", user=OWNER)
    other = quiet_cluster.submit("exit 1", "-o", "/etc/shadow.%j", user=OWNER)
    status = Path(f"/proc/{up.pid}/status").read_text()
    await_(
        "a decision that shows its log", lambda: "mat1 and mat2" in json.dumps(why(own)), 180, lambda: log() + status
    )
    assert other


def test_an_operator_that_is_no_administrator_tells_decisions_in_comments(
    quiet_cluster: SlurmCluster,
    service: tuple[Callable[[str], Any], Callable[..., str], ServiceFile, subprocess.Popen[str]],
) -> None:
    """Slurm lets an operator write Comment, and AdminComment not."""
    _, log, _, _ = service
    lost = quiet_cluster.submit(LOST, "--requeue", user=OWNER)
    noted = quiet_cluster.submit(LOST, "--requeue", "--comment=mine", user=OWNER)

    def runs_again(job_id: str) -> dict[str, str] | None:
        found = quiet_cluster.job(job_id)
        return found if found["Restarts"] != "0" and found["JobState"] in ("PENDING", "RUNNING") else None

    await_("its retry", lambda: runs_again(lost), 60, log)
    shown = functools.partial(quiet_cluster.run, "scontrol", "show", "job", lost)
    await_("its comment", lambda: ' Comment="perdure: ' in shown(), 60, lambda: shown() + log())
    assert f"perdure why {lost} #" in shown()
    found = await_("the other", lambda: runs_again(noted), 60, log)
    assert found["Comment"] == "mine"
    quiet_cluster.wait(noted, lambda fields: fields["ExcNodeList"] != "(null)" and fields["JobState"] == "RUNNING")
    await_("a line in the log", lambda: "administrators alone write AdminComment" in log(), 60, log)
    assert log().count("administrators alone write AdminComment") == 1
    quiet_cluster.run("scancel", lost, noted)


def test_the_unit_gives_no_more_than_it_needs() -> None:
    given = unit()
    assert given["AmbientCapabilities"] == given["CapabilityBoundingSet"] == "CAP_SETUID CAP_SETGID"
    assert given["User"] not in ("", "root")
    for name in ("NoNewPrivileges", "ProtectKernelTunables", "PrivateDevices", "RestrictSUIDSGID"):
        assert given[name] == "yes"
    assert (given["ProtectSystem"], given["StateDirectoryMode"], given["UMask"]) == ("strict", "0700", "0077")
    assert given["ExecStart"].endswith("--state /var/lib/perdure")
