"""Whoever reads a user's log has that user's rights, and none of the service's."""

import os
import pwd
import site
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be other users")

SERVICE, OWNER = "daemon", "nobody"  # users that every machine knows
READ = """
import sys
sys.path.insert(0, sys.argv[1])
from perdure.backends.owner_reader import OwnerReader
from perdure.backends.reader import ReadRequest, WantedText
from perdure.model.output import OutputKind
reader = OwnerReader(20)
output = reader.read(ReadRequest(int(sys.argv[2]), (WantedText((sys.argv[3],), OutputKind.STDOUT),)))
print([file.tail for file in output.files], [absent.says for absent in output.absent])
reader.close()
"""


def anyones_python() -> str:
    """One that other users may run."""
    return next(
        (
            str(real)
            for real in map(Path.resolve, (Path(sys.executable), Path("/usr/bin/python3.11"), Path("/usr/bin/python3")))
            if real.exists() and all(each.stat().st_mode & stat.S_IXOTH for each in (real, *real.parents))
        ),
        None,
    ) or pytest.skip("no Python that other users may run")


def read(path: Path, *capabilities: str, user: str = SERVICE) -> str:
    """What the service's reader makes of a log of `OWNER`, with these capabilities."""
    interpreter = anyones_python()
    caps = ",".join(f"+{name}" for name in capabilities)
    rights = (f"--inh-caps={caps}", f"--ambient-caps={caps}") if caps else ()
    argv = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *rights, interpreter, "-c", READ)
    owner, source = pwd.getpwnam(OWNER).pw_uid, Path(perdure.__file__).parents[1]
    done = subprocess.run(
        (*argv, str(source), str(owner), str(path)), capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def place() -> Iterator[Path]:
    """Where everybody gets, so that what is refused is refused for its own rights."""
    import shutil
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="perdure-rights-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def log_in(directory: Path, owner: str = OWNER) -> Path:
    path = directory / "job.log"
    path.write_text("RuntimeError: shapes\n")
    path.chmod(0o600)
    os.chown(path, pwd.getpwnam(owner).pw_uid, -1)
    return path


def test_a_log_of_another_user_is_read_with_two_capabilities(place: Path) -> None:
    assert "RuntimeError" in read(log_in(place), "setuid", "setgid")
    assert "RuntimeError" not in read(log_in(place))  # and not without


def test_no_capability_of_the_service_is_left_to_who_reads(place: Path) -> None:
    """Its owner cannot reach this one: a job's path would else lead wherever the service may look."""
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    said = read(log_in(hidden), "setuid", "setgid", "dac_read_search")
    assert "Permission denied" in said
    assert "RuntimeError" not in said


@pytest.mark.slow
def test_the_service_runs_as_a_user_without_a_name(place: Path) -> None:
    """As in a container that is given a number alone: its own token and its code are that number's."""
    home, nobody = place / "home", 54321
    home.mkdir(mode=0o700)
    os.chown(home, nobody, nobody)
    sources = (Path(perdure.__file__).parents[1], *map(Path, site.getsitepackages()))
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, sources))}
    up = ("-m", "perdure", "up", "--no-demo", "--port", "0", "--nodes", "1", "--state", str(home / "state"))
    argv = ("setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups", anyones_python(), *up)
    with subprocess.Popen(argv, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as service:
        assert service.stdout is not None
        said = next((line for line in service.stdout if line.startswith((b"Perdure watches", b"perdure:"))), b"")
        service.terminate()
        service.stdout.read()
    assert said.startswith(b"Perdure watches"), said
