"""Which form a file has is told by its content; what no form fits is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import InputError
from perdure.traces.read import FORMATS, read


def test_an_unknown_form_lists_the_known_ones(file: Callable[..., Path]) -> None:
    path = file("x.csv", "when,what\n1,2\n")
    with pytest.raises(InputError, match=r"not known\. Name it by --format, one of: acme, chronus"):
        read(path)
    with pytest.raises(InputError, match=r"no such form of trace\. Use one of: acme, chronus"):
        read(path, "excel")


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"\x00\x01\x02", b"\xff\xfe\x00", b"PAR1nothing", b"\x1f\x8b\x08junk"])
@pytest.mark.parametrize("form", [None, *FORMATS])
def test_bytes_that_are_no_trace_are_refused_in_one_line(
    file: Callable[..., Path], raw: bytes, form: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(file("x.csv", raw), form)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_another_form_is_refused_in_one_line(file: Callable[..., Path], form: str) -> None:
    with pytest.raises(InputError) as caught:
        read(file("x.csv", "when,what\n1,2\n"), form)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: No such file or directory"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize("head", ["", "workload,"])
def test_workloads_without_durations_are_refused_with_the_reason(file: Callable[..., Path], head: str) -> None:
    path = file("workload.csv", f"{head}name,time,application,num_replicas,batch_size\ncifar10-0,53,cifar10,6,2048\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}: a workload of Sia or Pollux has no durations: they depend on the GPUs that a job is given. "
        "Use perdure whatif elastic; or decide on them, and write a CSV of job_id,submit_s,gpus,duration_s."
    )


PUBLIC = [
    ("traces/philly/philly_jobs_until_2017-11-12.csv.gz", "philly-csv"),
    ("traces/philly/cluster_job_log.sample.json", "philly-json"),
    ("traces/philly/chronus_trace_job_Philly_MIX1.csv.gz", "chronus"),
    ("traces/philly/muri_trace1.csv.gz", "muri"),
    ("traces/philly/gavel_msr_seed0.tsv.gz", "gavel"),
    ("golden-schedulers/tiresias/60_job.csv.gz", "tiresias"),
    ("golden-schedulers/gavel/g200.trace.gz", "gavel"),
    ("traces/alibaba/openb_pod_list_gpuspec33.csv.gz", "openb"),
    ("traces/swf/wagap-2013.swf.gz", "swf"),
    ("traces/swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf"),
    ("traces/slurm_samples/ubhpc_sacct_dump2101.log.gz", "sacct"),
    ("traces/drac_slurm/submit_day_graham_until_2021-06-16_excl.parquet", "drac"),
    ("traces/mit_supercloud/slurm-log_submit_until_2021-02-24.csv.gz", "supercloud"),
    ("queues/nrel_eagle_sample_1000_jobs_2019.csv", "eagle"),
]


@pytest.mark.parametrize(("name", "form"), PUBLIC)
def test_each_public_file_fits_one_form_only(public: Callable[[str], Path], name: str, form: str) -> None:
    from perdure.traces.columns import look

    source = look(public(name))
    fitting = [known.name for known in FORMATS.values() if known.sniff(source.head, source.path.name)]
    assert fitting == [form]


@pytest.mark.parametrize("name", ["traces/philly/philly_runtime.csv.gz", "traces/helios/venus_vc_config.csv"])
def test_tables_that_are_no_job_lists_fit_none(public: Callable[[str], Path], name: str) -> None:
    with pytest.raises(InputError, match="the form of this trace is not known"):
        read(public(name))


def test_importing_the_readers_imports_no_optional_part() -> None:
    code = "import sys, perdure.traces.read; sys.exit(bool({'duckdb', 'numba', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
