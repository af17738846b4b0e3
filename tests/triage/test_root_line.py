"""The root line without what changes from run to run: no two causes become one, and one stays one on any node."""

from __future__ import annotations

import pytest

from perdure.triage.root_line import normalised


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("lost shard37 on node17", "lost shard<n> on node<n>"),
        ("OSError: too many open files: 'shard155.bin'", "OSError: too many open files: 'shard<n>.bin'"),
        ("JOB 7 ON gnode04 CANCELLED", "JOB <n> ON gnode<n> CANCELLED"),
        ("srun: error: nid005041: task 3: Killed", "srun: error: nid<n>: task <n>: Killed"),
        ("[rank12]: boom, GPU4 of worker_3", "[rank<n>]: boom, GPU<n> of worker_<n>"),
        ("no such accession srr1448794", "no such accession srr<n>"),
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
