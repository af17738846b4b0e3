"""Whatever happens to a trace on its way, it is read or refused in one line, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from perdure.errors import InputError
from perdure.traces.read import FORMATS, read

SAMPLES = {
    "perdure": "job_id,submit_s,gpus,duration_s,ending,attempts\na,0,1,5,passed,2- 3+\nb,1,8,60.5,killed,-\n",
    "philly-json": '[{"status": "Pass", "vc": "a", "jobid": "x", "user": "u", "submitted_time": "2017-10-07 01:00:00", '
    '"attempts": [{"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00", "detail": '
    '[{"ip": "m1", "gpus": ["gpu0"]}]}]}]',
    "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,a\n",
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n",
    "swf": "; UnixStartTime: 835823160\n1 0 5 10 4 -1 -1 4 60 -1 1 7 1 -1 3 -1 -1 -1\n",
    "sacct": "JobID|User|Account|JobName|Submit|Start|ElapsedRaw|State|AllocTRES\n"
    "7|ann|lab|x|2026-01-01T00:00:00|2026-01-01T00:01:00|60|COMPLETED|cpu=4,gres/gpu=8,node=1\n",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,ann,v,16,4,2,TIMEOUT,2020-04-01 00:00:00,2020-04-01 00:10:00,2020-04-01 01:10:00,3600,600\n",
    "acme": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    "1,u5,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,9,2,9\n",
    "openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\np0,1,1,1,460,T4,LS,Running,0,900,100\n",
    "pai": "a1,i1,ann,Terminated,1000.0,1500.0\n",
    "gavel": "A (batch size 8)\tpython3 main.py\t-step\t1\t1000\t0.5\t1\n",
}


@pytest.mark.parametrize("form", SAMPLES)
@given(data=st.data())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_damaged_file_is_read_or_refused(form: str, data: DataObject, tmp_path: Path) -> None:
    raw = bytearray(SAMPLES[form].encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        patch = data.draw(st.binary(max_size=3) | st.sampled_from([b"-", b"9e99", b"nan", b",", b"\n", b'"']))
        raw[place : place + data.draw(st.integers(0, 3))] = patch
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
    path = tmp_path / "jobs"
    path.write_bytes(raw)
    (tmp_path / "jobs.rates.csv").write_text("job,scale_factor,steps_per_s\nA (batch size 8),1,4.0\n")
    (tmp_path / "tasks").write_text("a1,worker,2.0,Terminated,1010.0,1490.0,400.0,29.3,50.0,T4\n")
    named, skip_bad = data.draw(st.sampled_from([None, form])), data.draw(st.booleans())
    with suppress(InputError):
        read(path, named, skip_bad=skip_bad)


@pytest.mark.parametrize("form", SAMPLES)
def test_the_samples_are_whole(form: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.rates.csv").write_text("job,scale_factor,steps_per_s\nA (batch size 8),1,4.0\n")
    (tmp_path / "tasks").write_text("a1,worker,2.0,Terminated,1010.0,1490.0,400.0,29.3,50.0,T4\n")
    (tmp_path / "jobs").write_text(SAMPLES[form])
    assert read(tmp_path / "jobs").format == form
    assert form in FORMATS
