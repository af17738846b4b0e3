"""Helios, Acme, openb, SuperCloud, Eagle and DRAC: their words and quirks, and what is left out of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.table import TableEnding
from perdure.traces.read import read

HELIOS = "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc\n"
SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
EAGLE = (
    "job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,submit_time,start_time,"
    "end_time,run_time,state\n"
)
SUPERCLOUD = (
    "id_job,id_user,nodes_alloc,partition,state,timelimit,time_submit,time_start,time_end,tres_alloc,tres_req,x_norm\n"
)
DRAC = (
    ",job_unique_id,submit_time,account_id,req_tres,alloc_nodes,state,start_time,end_time,elapsed_time,time_limit_sec\n"
)


def test_helios_keeps_gpu_jobs_that_started(file: Callable[..., Path]) -> None:
    times = "2020-04-01 00:00:00,2020-04-01 00:10:00,2020-04-01 01:10:00,3600,600,vcA\n"
    never = "2020-04-01 00:00:00,,2020-04-01 01:10:00,0,600,vcA\n"
    rows = f"1,ann,16,4,2,TIMEOUT,{times}2,ann,0,4,1,COMPLETED,{times}3,ann,8,4,1,CANCELLED,{never}"
    trace = read(file("cluster_log.csv", HELIOS + rows))
    jobs = trace.table
    assert (trace.format, trace.left_out) == ("helios", {"no GPUs": 1, "never started": 1})
    assert (jobs.gpus[0], jobs.nodes[0], jobs.duration_s[0], jobs.start_s[0], jobs.end_s[0]) == (16, 2, 3600, 600, 4200)
    assert (jobs.vc[0], jobs.ending[0]) == ("vcA", TableEnding.KILLED)
    assert jobs.cpus[0] == 4
    assert jobs.began_s == np.datetime64("2020-03-31T16:00:00", "s").astype(int)  # Shanghai is 8 hours ahead


def test_acme_of_seren_says_the_offset_of_its_times(file: Callable[..., Path]) -> None:
    times = "2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0\n"
    rows = f"1,u5,1,8,128,Other,FAILED,{times}2,u5,1,0,4,Eval,COMPLETED,{times}"
    trace = read(file("trace_seren.csv", SEREN + rows))
    jobs = trace.table
    assert (trace.format, trace.left_out) == ("acme", {"no GPUs": 1})
    assert (jobs.gpus[0], jobs.cpus[0], jobs.nodes[0], jobs.vc[0]) == (8, 128, 1, "Other")
    assert (jobs.start_s[0], jobs.duration_s[0], jobs.ending[0]) == (32, 117, TableEnding.FAILED)
    assert jobs.began_s == np.datetime64("2023-02-28T16:18:22", "s").astype(int)


def test_acme_of_kalos_counts_no_wait_as_running(file: Callable[..., Path]) -> None:
    """Its duration says 18 s for a job that ran for 8 s and had waited for 10 s."""
    submit, start, end = "2023-05-17 11:00:58+00:00", "2023-05-17 11:01:08+00:00", "2023-05-17 11:01:16+00:00"
    rest = "18,10.0,1152.0\n"
    asked = "u7,8,64,960,1000,100.0,Pretrain"
    rows = (
        f"dlc1,{asked},FAILED,{submit},{start},{end},{end},,{rest}"
        f"dlc2,{asked},RUNNING,{submit},{start},,,,{rest}"
        f"dlc3,{asked},CANCELLED,{submit},,{end},,{end},{rest}"
    )
    trace = read(file("trace_kalos.csv", KALOS + rows))
    assert (trace.format, trace.left_out) == ("acme", {"never started": 1, "not ended yet": 1})
    assert (trace.table.duration_s.tolist(), trace.table.start_s.tolist()) == ([8.0], [10.0])
    assert trace.table.began_s == np.datetime64("2023-05-17T11:00:58", "s").astype(int)


def test_openb_pods_that_were_never_scheduled_or_have_no_gpus_are_left_out(file: Callable[..., Path]) -> None:
    rows = (
        "p0,1,1,1,460,V100M16|V100M32,LS,Running,0,900,100\n"
        "p1,1,1,0,0,,LS,Succeeded,0,900,100\n"
        "p2,1,1,8,1000,,BE,Pending,0,900,\n"
        "p3,2500,4096,8,1000,,BE,Succeeded,50,900,100\n"
        "p4,1,1,2,1000,,BE,Failed,60,900,100\n"
    )
    trace = read(file("openb_pod_list_default.csv", OPENB + rows))
    jobs = trace.table
    assert trace.left_out == {"no GPUs": 1, "never started": 1}
    assert jobs.ending.tolist() == [
        TableEnding.KILLED,
        TableEnding.PASSED,
        TableEnding.FAILED,
    ]  # Running: when it was deleted
    assert jobs.duration_s.tolist() == [800, 800, 800]
    assert jobs.gpu_type[0] == "V100M16|V100M32"
    assert (jobs.cpus.tolist(), jobs.mem_mib.tolist()) == ([1, 3, 1], [1, 4096, 1])
    assert trace.notes[0] == "1 pods share a GPU; each counts as one whole GPU"


def test_that_a_few_old_pods_stretch_a_trace_is_told_where_they_do(file: Callable[..., Path]) -> None:
    day_s = 86_400
    late = [f"p{at},1,1,1,1000,,LS,Succeeded,{98 * day_s + at * 800},{99 * day_s},{99 * day_s}\n" for at in range(199)]
    (note,) = read(file("pods.csv", OPENB + "old,1,1,1,1000,,LS,Succeeded,0,900,100\n" + "".join(late))).notes
    assert "99% of the pods were created in the last 2 of 100 days" in note
    assert read(file("pods.csv", OPENB + "".join(late))).notes == ()


def test_openbs_old_pods_are_told(public: Callable[[str], Path]) -> None:
    trace = read(public("traces/alibaba/openb_pod_list_default.csv.gz"))
    assert len(trace.table) + sum(trace.left_out.values()) == 8_152
    assert any("99% of the pods were created in the last 33 of 149 days" in note for note in trace.notes)


def test_a_pod_list_without_times_is_no_trace(file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="no column gpu_spec, qos, pod_phase, creation_time"):
        read(file("pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nopenb-pod-0000,1,1,1,1000\n"))


def test_supercloud_ids_that_were_rounded_do_not_name_jobs(file: Callable[..., Path]) -> None:
    row = '16051200000000.0,42,1,normal,{state},{limit},100,200,{end},"1=20,1002=2","1=20,1002=2",0.5\n'
    text = "".join(
        row.format(state=state, limit=limit, end=end)
        for state, limit, end in ((3, 4294967295, 260), (7, 10, 230), (6, 10, 800), (3, 10, 0))
    )
    cpu = '7,42,1,normal,3,10,100,200,260,"1=20,2=170000","1=20,2=170000",0.5\n'
    trace = read(file("slurm-log.csv", SUPERCLOUD + text + cpu))
    jobs = trace.table
    assert trace.left_out == {"no GPUs": 1, "not ended yet": 1}
    assert jobs.job_id.tolist() == ["1", "2", "3"]
    assert jobs.ending.tolist() == [TableEnding.PASSED, TableEnding.FAILED, TableEnding.KILLED]
    assert np.isnan(jobs.walltime_s[0])
    assert jobs.walltime_s[1] == 600
    assert jobs.gpus.tolist() == [2, 2, 2]


def test_eagles_few_gpu_jobs_are_read(file: Callable[..., Path]) -> None:
    row = "{n},u,acc,p,q,600.0,1,36,{g},0.0,2019-01-01 08:00:00,2019-01-01 08:00:01,2019-01-01 08:01:01,60.0,{s}\n"
    text = row.format(n=1, g=2, s="COMPLETED") + row.format(n=2, g=0, s="FAILED")
    cancelled = "3,u,acc,p,q,600.0,1,36,2,0.0,2019-01-01 08:00:00,,2019-01-01 08:01:01,0.0,CANCELLED\n"
    trace = read(file("eagle.csv", EAGLE + text + cancelled))
    assert (trace.format, trace.left_out) == ("eagle", {"no GPUs": 1, "never started": 1})
    assert (trace.table.gpus[0], trace.table.walltime_s[0], trace.table.duration_s[0]) == (2, 600, 60)


def test_a_drac_job_that_waits_for_days_is_one_job(file: Callable[..., Path]) -> None:
    row = (
        '{n},{job},2021-05-02 02:28:46,18648,"billing=32,cpu=32,gres/gpu={g},mem=8192M,node=1",1,FAILED,'
        "2021-05-03 21:36:13,2021-05-03 21:36:21,8,36000\n"
    )
    rows = [row.format(n=n, job=job, g=g) for n, (job, g) in enumerate([(7, 2), (8, 4), (7, 2)])]
    cpu = row.format(n=3, job=9, g=0).replace("gres/gpu=0,", "")
    trace = read(file("jobs.csv", DRAC + "".join(rows) + cpu))
    assert trace.format == "drac"
    assert trace.left_out == {"no GPUs": 1, "a job seen again at a later noon": 1}
    assert trace.table.gpus.tolist() == [2, 4]
    assert trace.table.ending.tolist() == [TableEnding.FAILED, TableEnding.FAILED]
    assert "too long" in trace.notes[0]


@pytest.mark.parametrize(
    ("name", "form", "rows"),
    [
        ("traces/drac_slurm/jobs_graham_2021-05-02.csv.gz", "drac", 2_440),
        ("traces/drac_slurm/snapshot_graham_2021-05-01_to_18_13days.parquet", "drac", 54_925),
        ("queues/drac_graham_2021_submitday_snapshots.parquet", "drac-coded", 133_025),
        ("traces/slurm_samples/nrel_eagle_sample.csv.gz", "eagle", 1_000),
        ("traces/mit_supercloud/slurm-log_submit_until_2021-02-24.csv.gz", "supercloud", 6_831),
    ],
)
def test_no_row_of_a_public_log_is_dropped_silently(
    public: Callable[[str], Path], name: str, form: str, rows: int
) -> None:
    trace = read(public(name))
    assert trace.format == form
    assert len(trace.table) + sum(trace.left_out.values()) == rows
