"""Failures that another node or another hour fixes, beside those of the same words that stay."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Bound, Label
from tests.copying import replace

FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, exit_code=1)
FULL = "[Errno 28] No space left on device"
OWN = [
    "/tmp/ckpt.pt", "/tmp/torch_compile_cache/x", "/local_scratch/job42/x", "/var/tmp/x", "/lscratch/7/x",
    "/scratch/local/x", "/localscratch/x", "/mnt/nvme0/x", "/scratch/slurm_tmpdir/7/x",
]  # fmt: skip
SHARED = ["/home/a/x", "/scratch/project/x", "/data/tmp/x", "/lustre/local/x", "/project/a/nvme/x"]


FORMS = [
    f"OSError: {FULL}: '{{}}'",
    'rsync: write failed on "{}": No space left on device (28)',
    "cp: error writing '{}': No space left on device",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_of_the_node_itself_is_left_for_another_node(form: str) -> None:
    for path in OWN:
        verdict = judge(f"step 7\n{form.format(path)}\n".encode(), FAILED)
        assert (verdict.label, verdict.category, verdict.bound) == (Label.TRANSIENT, "node_disk", Bound.NODE), path
        assert not verdict.hardware
    for path in SHARED:
        verdict = judge(f"step 7\n{form.format(path)}\n".encode(), FAILED)
        assert (verdict.label, verdict.category) == (Label.DETERMINISTIC, "disk_quota"), path


def test_shared_memory_that_is_full_is_the_nodes() -> None:
    assert judge(f"OSError: {FULL}: '/dev/shm/psm_1a2b'".encode(), FAILED).category == "node_disk"


def test_a_quota_is_no_full_disk_of_a_node() -> None:
    for line in ("OSError: [Errno 122] Disk quota exceeded: '/tmp/x'", f"OSError: {FULL}: '/tmp/x' -> '/home/a/x'"):
        assert judge(line.encode(), FAILED).label is Label.DETERMINISTIC


PYXIS = """pyxis: importing docker image: nvcr.io#nvidia/pytorch:24.01-py3
slurmstepd: error: pyxis: child 12345 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [ERROR] {}
slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
"""


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("URL https://nvcr.io/proxy_auth returned error code: 503 Service Unavailable", Label.TRANSIENT),
        ("URL https://nvcr.io/v2/x returned error code: 502 Bad Gateway", Label.TRANSIENT),
        ("URL https://registry-1.docker.io/v2/x returned error code: 429 Too Many Requests", Label.TRANSIENT),
        ("Could not download layers: curl: (28) Operation timed out after 30001 milliseconds with 0 bytes received",
         Label.TRANSIENT),
        ("URL https://nvcr.io/v2/x/manifests/9 returned error code: 401 Unauthorized", Label.DETERMINISTIC),
        ("URL https://nvcr.io/v2/x/manifests/9 returned error code: 404 Not Found", Label.DETERMINISTIC),
        ("registry: manifest unknown", Label.DETERMINISTIC),
    ],
)  # fmt: skip
def test_a_registry_that_is_down_is_not_one_that_refuses(said: str, label: Label) -> None:
    assert judge(PYXIS.format(said).encode(), FAILED).label is label


PIP = """WARNING: Retrying (Retry(total=1, connect=None, read=None, redirect=None)) after {}: /simple/einops/
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None)) after {}: /simple/einops/
ERROR: Could not find a version that satisfies the requirement einops (from versions: none)
ERROR: No matching distribution found for einops
"""
BROKEN = [
    "connection broken by 'NewConnectionError('<x>: Failed to establish a new connection: [Errno 101] Network is"
    " unreachable')'",
    "connection broken by 'NameResolutionError(\"x: Failed to resolve 'pypi.org' ([Errno -3] Temporary failure in name"
    " resolution)\")'",
    "connection broken by 'ConnectTimeoutError(<x>, 'Connection to pypi.org timed out. (connect timeout=15)')'",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_package_index_that_cannot_be_reached_is_the_networks_fault(broken: str) -> None:
    verdict = judge(PIP.format(broken, broken).encode(), FAILED)
    assert verdict.category == "net"
    assert verdict.label is not Label.DETERMINISTIC
    later = judge((PIP.format(broken, broken) + "KeyError: 'lr'\n").encode(), FAILED)
    assert later.category == "index", "scripts go on after pip"


def test_a_package_that_does_not_exist_stays_missing() -> None:
    alone = "".join(PIP.splitlines(keepends=True)[2:]).encode()
    assert judge(alone, replace(FAILED, exit_code=1)).label is Label.DETERMINISTIC
