"""The root line without what changes from run to run: no two causes become one, and one stays one on any node."""

from __future__ import annotations

import pytest

from perdure.triage.text.numbered import normalised


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("lost shard37 on node17", "lost shard<n> on node<n>"),
        ("OSError: too many open files: 'shard155.bin'", "OSError: too many open files: 'shard<n>.bin'"),
        ("JOB 7 ON gnode04 CANCELLED", "JOB <n> ON gnode<n> CANCELLED"),
        ("srun: error: nid005041: task 3: Killed", "srun: error: nid<n>: task <n>: Killed"),
        ("[rank12]: boom, GPU4 of worker_3", "[rank<n>]: boom, GPU<n> of worker_<n>"),
        ("no such accession srr1448794", "no such accession srr<n>"),
        ("StoreError: vault5 is unreachable", "StoreError: vault<n> is unreachable"),
        ("StoreError: vault12 refused the token", "StoreError: vault<n> refused the token"),
        ("LeaseError: cannot reach vault5:6379", "LeaseError: cannot reach vault<n>:<n>"),
        ("lattice torn on vault5", "lattice torn on vault<n>"),
        ("no answer from vault5.hpc.example.org", "no answer from vault<n>.hpc.example.org"),
        ("[mpiexec@west1] write error", "[mpiexec@west<n>] write error"),
        ("slurmstepd: error: *** JOB 7 ON c38 CANCELLED", "slurmstepd: error: *** JOB <n> ON c<n> CANCELLED"),
        ("srun: error: c5: task 3: Aborted", "srun: error: c<n>: task <n>: Aborted"),
    ],
)
def test_what_is_numbered_is_one_with_its_like(line: str, told: str) -> None:
    assert normalised(line.encode(), ()).decode() == told


OF_THEIR_OWN = """sm_90 sm_80 E1101 E1126 CUDA12 cu121 float32 float64 bf16 fp8 int64 complex128 uint8 conv2d avg_pool2d
    mat1 mat2 sha256 md5 utf8 IPv4 ipv6 http2 TLSv1 sqlite3 urllib3 python3 jinja2 H100 A100 V100 gfx906 gfx1030 HDF5
    libcudart12 log10 exp2 atan2 v2 s3 k8s x86_64 Xid79 HTTP503 EC2 GPT4 cp1252 h264 win32 c10d O3"""


@pytest.mark.parametrize("name", OF_THEIR_OWN.split())
def test_names_with_a_number_of_their_own_stay(name: str) -> None:
    line = f"cannot load {name}: not known"
    assert normalised(line.encode(), ()).decode() == line


PLACES_OF_HOSTS = (
    "cannot run on {}",
    "host {} gave up",
    "{} is unavailable",
    "StoreError: {} refused it",
    "cannot reach {}:6379",
    "no {}.example.org",
    "as {} timed out",
)


@pytest.mark.parametrize(
    "name", [*OF_THEIR_OWN.split(), "ENOSPC28", "cuda11", "resnet50", "layer3", "ext4", "flash-attn2"]
)
def test_no_such_name_is_taken_for_a_host(name: str) -> None:
    told = [normalised(place.format(name).encode(), ()).decode() for place in PLACES_OF_HOSTS]
    assert all(name in line for line in told)


def test_hosts_are_one_in_each_place_of_a_host() -> None:
    for place in PLACES_OF_HOSTS:
        assert normalised(place.format("vault5").encode(), ()) == normalised(place.format("vault19").encode(), ())


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): {}, pid=7",
        "Xid {}",
        "fetch failed: HTTP {}",
        "HTTP/1.1 {} from the store",
        "HTTP error {}: no",
        "<Response [{}]> of the status code {}.",
        "exit code {}",
        "returned non-zero exit status {}.",
        "Exited with {}",
        "killed by signal {}",
        "OSError: [Errno {}] odd",
        "curl: ({}) odd",
    ],
)
def test_codes_stay_apart(line: str) -> None:
    told = {normalised(line.format(code, code).encode(), ()) for code in (31, 79, 137, 404)}
    assert len(told) == 4


def test_what_is_next_to_a_code_is_masked_still() -> None:
    line = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, ERROR 2025-11-02 10:00:01 exit 7 of 9"
    assert b"79, pid=<n>, ERROR  <time>  exit 7 of <n>" in normalised(line, ())


def test_a_node_of_the_job_is_told_as_such_before_a_host() -> None:
    assert normalised(b"lost vault5 on tyr7", ("tyr3",)) == b"lost vault5 on <node>"
