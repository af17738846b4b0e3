"""``perdure whatif elastic``: what is read, what is refused, and the form of the answer."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.cli.main import main
from perdure.scheduling import sia, sia_policy
from perdure.simulation.elastic import PreparedReplay

JOBS = "name,time,application,num_replicas,batch_size\nnet-0,0,net,1,64\nnet-1,30,net,4,64\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    laid = ["app,cluster,local_bsz,placement,step_time,sync_time"]
    laid += [
        f"net,{kind},{batch},{digits},{batch * each + 0.001},0.0001"
        for kind, each in (("aws", 0.01), ("rtx", 0.005))
        for digits in ("1", "2", "4")
        for batch in (1, 16, 64)
    ]
    learnt = ["app,global_batch,progress,grad_sqr,grad_var"]
    learnt += [f"net,{batch},{epoch * 1000},1.0,100.0" for batch in (16, 64) for epoch in range(1, 6)]
    wide = ["app,cluster,local_bsz,step_time,sync_time,num_nodes,num_replicas", "net,aws,16,0.2,0.0001,1,4"]
    for name, lines in (("placements", laid), ("scalability", wide), ("validation_stat_efficiency", learnt)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def asked(
    folder: Path, *further: str, trace: str = "jobs.csv", cluster: str = "1x4:t4 + 1x4:rtx", policy: str = "sia"
) -> int:
    given = ["whatif", str(folder / trace), "--profiles", str(folder), "--cluster", cluster, "--policy", policy]
    return main([*given, *further])


def test_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    (run,) = said["runs"]
    assert said["schema"] == "perdure.whatif-elastic/1"
    assert (run["policy"], run["jobs"]) == ("sia", 2)
    assert run["jct_mean_s"] > 60
    assert said["assumed_restarts"] == ["net"]
    assert asked(folder) == 0
    shown = capsys.readouterr().out
    assert "RESTARTS" in shown
    assert "A restart of net is taken to last 30 s." in shown


def test_what_a_solver_writes_does_not_spoil_the_answer(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def talkative(*given: Any) -> sia.Choice:
        os.write(1, b"a remark\n")
        return sia.choose(*given)

    monkeypatch.setattr(sia_policy, "choose", talkative)
    assert asked(folder, "--json") == 0
    json.loads(capfd.readouterr().out)


def test_rounds_in_which_the_solver_ran_out_of_time_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sia, "_solve", lambda program, _: (program.greedy(np.argsort(program.cost)), np.inf))
    assert asked(folder, "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["rounds_cut"] > 0
    assert run["worst_gap"] is None
    assert asked(folder) == 0
    sentence = f"sia: in {run['rounds_cut']} rounds the solver ran out of time, an unknown part from the best plan."
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert asked(folder, "--out", str(folder / "page")) == 0
    page = (folder / "page" / "index.html").read_text()
    assert sentence in page
    assert "A restart of net is taken to last 30 s." in page


@pytest.mark.parametrize(
    ("table", "was", "now", "said"),
    [
        ("placements", "net,aws,1,1,", "net,aws,,1,", "placements.csv:2: local_bsz is not a number from 1 on"),
        ("placements", "net,aws,1,1,0.011,", "net,aws,1,1,,", "a measured step has no time"),
        ("scalability", ",1,4", ",,4", "scalability.csv:2: num_nodes is not a number from 1 on"),
        ("scalability", ",1,4", ",1,0", "scalability.csv:2: num_replicas is not a number from 1 on"),
        ("validation_stat_efficiency", "net,16,1000,", "net,,1000,", "global_batch is not a number from 1 on"),
        ("validation_stat_efficiency", "net,16,1000,", "net,16,,", "a value that is not a number"),
        ("validation_stat_efficiency", "1000,1.0,100.0", "1000,0,0", "square or variance is below 0, or both are 0"),
        ("validation_stat_efficiency", "1000,1.0,100.0", "1000,1,-1", "square or variance is below 0, or both are 0"),
        ("validation_stat_efficiency", "net,16,2000,", "net,16,1000,", "its epochs do not go on"),
        ("placements", "net,aws,1,1,", "net,aws,1,10,", "'10' is not a placement"),
    ],
)
def test_a_profile_with_a_hole_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], table: str, was: str, now: str, said: str
) -> None:
    path = folder / f"{table}.csv"
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, now, 1))
    assert asked(folder) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_one_workload_of_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = JOBS.splitlines()
    lines = [f"workload,{header}", *(f"{number},{row}" for number, row in enumerate(rows, 1))]
    (folder / "many.csv").write_text("\n".join(lines) + "\n")
    assert asked(folder, "--json", trace="many.csv:2") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["jobs"] == 1
    assert asked(folder, trace="many.csv") == 2
    assert "it holds the workloads 1, 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("further", "changed", "said"),
    [
        ((), {"policy": "quincy"}, "no policy of that name plans jobs with profiles"),
        ((), {"cluster": "1x4:tpu"}, "no steps on GPU type 'tpu' were measured, only on rtx, t4"),
        ((), {"cluster": "1x4:rtx+1x8:rtx"}, "its nodes differ in their GPUs"),
        ((), {"cluster": "1x4:t4+1x4:aws"}, "t4 and aws are the same GPU type in the profiles"),
        (("--load", "1"), {}, "No such option: --load"),
        (("--retry", "oracle"), {}, "such traces do not record"),
    ],
)
def test_refusals(
    folder: Path, capsys: pytest.CaptureFixture[str], further: tuple[str, ...], changed: dict[str, Any], said: str
) -> None:
    assert asked(folder, *further, **changed) == 2
    err = capsys.readouterr().err
    assert said in " ".join(err.split())
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1e300,net,1,64,1", "time is not a valid number (1e+300)"),
        ("0,net,1.5,64,1", "num_replicas is not a valid number (1.5)"),
        ("0,net,1e30,64,1", "num_replicas is not a valid number (1e+30)"),
        ("0,net,1,99999999999999999999,1", "batch_size is not a valid number (1e+20)"),
        ("0,net,1,64,", "workload is not a valid number"),
    ],
)
def test_a_job_that_cannot_be_is_named_by_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], row: str, said: str
) -> None:
    (folder / "bad.csv").write_text(f"name,time,application,num_replicas,batch_size,workload\na,{row}\n")
    assert asked(folder, trace="bad.csv") == 2
    err = capsys.readouterr().err
    assert f"bad.csv:2: {said}" in err
    assert "--skip-bad" not in err  # which there is not
    assert err.count("\n") == 1


def test_who_asks_for_such_a_policy_without_profiles_is_told_how(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(folder / "jobs.csv"), "--cluster", "1x4", "--policy", "fifo,sia"]) == 2
    assert "whatif elastic, with a folder of measured profiles" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("retry", "passed"), [("recorded", 1.0), ("never", 0.5), ("always:1", 0.5), ("always:2", 1.0)])
def test_failed_attempts_come_back_as_the_retry_policy_says(
    folder: Path, capsys: pytest.CaptureFixture[str], retry: str, passed: float
) -> None:
    header, first, second = JOBS.splitlines()
    (folder / "failing.csv").write_text(f"{header},fails\n{first},0.5;0.1\n{second},\n")
    assert asked(folder, "--json", "--retry", retry, trace="failing.csv") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["success_rate"] == passed


def test_a_failure_beyond_the_work_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "failing.csv").write_text(JOBS.replace("batch_size", "batch_size,fails").replace(",64", ",64,1.5"))
    assert asked(folder, trace="failing.csv") == 2
    assert "not a list of shares" in " ".join(capsys.readouterr().err.split())


def test_a_folder_without_profiles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "scalability.csv").unlink()
    assert asked(folder) == 2
    assert "it has no scalability.parquet or .csv" in " ".join(capsys.readouterr().err.split())


STEPS = "ResNet-18 (batch size 64)\tpython3 main.py\tcifar10\t--num_steps\t1\t{steps}\t1\t1\t-1\t{arrival}\n"


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    (tmp_path / "isolated.csv").write_text(
        "gpu,job,scale_factor,steps_per_s\nfast,ResNet-18 (batch size 64),1,4\nslow,ResNet-18 (batch size 64),1,1\n"
    )
    lines = [STEPS.format(steps=7200, arrival=arrival) for arrival in (0, 100)]
    (tmp_path / "jobs.trace").write_text("".join(lines))
    return tmp_path


def test_a_trace_in_steps_with_rates(rated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(rated, "--json", trace="jobs.trace", cluster="1x1:fast + 1x1:slow", policy="gavel-las") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"][0]["jobs"], said["assumed_restarts"]) == (2, [])
    assert 1800 < said["runs"][0]["jct_mean_s"] < 7200


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ("fast,ResNet-18 (batch size 64),1,nan\nslow,ResNet-18 (batch size 64),1,1\n", "not steps a second"),
        ("fast,ResNet-50 (batch size 64),1,4\nslow,ResNet-50 (batch size 64),1,1\n", "have no rates for it"),
        ("fast,ResNet-18 (batch size 64),1,4\n", "no steps on GPU type 'slow' were measured, only on fast"),
    ],
)
def test_rates_that_are_none(rated: Path, capsys: pytest.CaptureFixture[str], rates: str, said: str) -> None:
    (rated / "isolated.csv").write_text("gpu,job,scale_factor,steps_per_s\n" + rates)
    assert asked(rated, trace="jobs.trace", cluster="1x1:fast + 1x1:slow", policy="gavel-las") == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "said"), [("# vc\n", "it holds no jobs"), (STEPS.format(steps="inf", arrival=0), "a job without steps")]
)
def test_a_trace_in_steps_without_jobs_or_steps_is_refused(
    rated: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (rated / "jobs.trace").write_text(text)
    assert asked(rated, trace="jobs.trace", cluster="1x1:fast + 1x1:slow", policy="gavel-las") == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_trace_in_steps_needs_rates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "jobs.trace").write_text(STEPS.format(steps=100, arrival=0))
    assert asked(folder, trace="jobs.trace") == 2
    assert "a trace in steps needs rates" in " ".join(capsys.readouterr().err.split())


PAIRS = "gpu,job,scale_factor,co_job,co_scale,steps_per_s\n"


@pytest.mark.parametrize(("kept", "faster"), [(3.6, True), (0.4, False)])
def test_pairs_are_read_from_the_table_beside_the_rates(
    rated: Path, capsys: pytest.CaptureFixture[str], kept: float, faster: bool
) -> None:
    name = "ResNet-18 (batch size 64)"
    told = "".join(f"{kind},{name},1,{name},1,{rate}\n" for kind, rate in (("fast", kept), ("slow", kept / 4)))
    (rated / "throughputs.csv").write_text(PAIRS + told)
    assert asked(rated, "--json", trace="jobs.trace", cluster="1x1:fast", policy="gandiva") == 0
    shared_s = json.loads(capsys.readouterr().out)["runs"][0]["makespan_s"]
    (rated / "throughputs.csv").unlink()
    assert asked(rated, "--json", trace="jobs.trace", cluster="1x1:fast", policy="gandiva") == 0
    said = json.loads(capsys.readouterr().out)
    assert (shared_s < 0.7 * said["runs"][0]["makespan_s"]) is faster
    assert said["assumed_turns"] == ["gandiva"]
    assert asked(rated, trace="jobs.trace", cluster="1x1:fast", policy="gandiva,gavel-las") == 0
    assert "has no *throughputs of pairs, so two jobs that share" in " ".join(capsys.readouterr().out.split())


def test_a_pair_with_no_rate_is_refused(rated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "ResNet-18 (batch size 64)"
    (rated / "throughputs.csv").write_text(f"{PAIRS}fast,{name},1,{name},1,nan\n")
    assert asked(rated, trace="jobs.trace", cluster="1x1:fast", policy="gandiva") == 2
    assert "its rate is not steps a second" in " ".join(capsys.readouterr().err.split())


def test_a_page_with_pictures(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page"
    assert asked(folder, "--json", "--out", str(out), policy="sia,gavel-las") == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in out.iterdir()) == ["allocation.png", "figures.json", "index.html", "rho.png"]
    assert json.loads((out / "figures.json").read_text()) == said
    page = (out / "index.html").read_text()
    for words in ("GPUs given, over time", "How fair it was", "gavel-las", "envy", "1x4:t4 + 1x4:rtx"):
        assert words in page
    assert page.count("data:image/png;base64,") == 4
    assert said["runs"][0]["envy"] >= 0
    assert asked(folder, "--out", str(out)) == 0
    assert "A page with pictures:" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(folder, "--out", str(folder / "jobs.csv")) == 2
    assert "Name a folder that you may write" in " ".join(capsys.readouterr().err.split())


def test_gpu_types_are_called_as_the_cluster_calls_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(folder, "--out", str(folder / "page")) == 0
    page = re.sub(r'"data:[^"]*"', "", (folder / "page" / "index.html").read_text())
    assert "t4" in page
    assert re.search(r"\baws\b", page + capsys.readouterr().out) is None


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("gavel-las,allox", "job net-1: it asks for 4 GPUs, and AlloX knows jobs of one"),
        ("sia,allox", "job net-1: it asks for 4 GPUs, and AlloX knows jobs of one"),
    ],
)
def test_nothing_is_replayed_where_one_of_the_policies_cannot(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, policy: str, said: str
) -> None:
    run: list[str] = []
    monkeypatch.setattr(PreparedReplay, "run", lambda each: run.append(each.replay.policy.name))
    assert asked(folder, policy=policy) == 2
    assert said in capsys.readouterr().err
    assert run == []


def test_optimus_wants_the_steps_of_epochs_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreparedReplay, "run", lambda _: pytest.fail("it ran"))
    assert asked(folder, policy="tiresias,optimus", cluster="1x4:t4") == 2
    assert "the profiles do not tell the steps of its epochs" in capsys.readouterr().err


def with_a_pipeline(folder: Path) -> Path:
    """The folder, in which "net" is a pipeline of 2 GPUs on T4s, and runs nowhere else."""
    laid = ["app,cluster,local_bsz,placement,step_time,sync_time"]
    laid += [f"net,aws,{batch},{digits},{batch * 0.1},0.1" for digits in ("2", "4") for batch in (1, 2)]
    (folder / "placements.csv").write_text("\n".join(laid) + "\n")
    (folder / "pipelines.csv").write_text("app,cluster,stages,microbatches\nnet,aws,2,16\n")
    return folder


def test_a_table_tells_which_applications_are_pipelines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(with_a_pipeline(folder)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "net is a pipeline: a replica takes 2 GPUs of t4. It never runs on rtx." in said
    assert "formula" not in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("net,aws,0,16", "pipelines.csv:2: stages is not a number from 1 on"),
        ("net,aws,2,", "pipelines.csv:2: microbatches is not a number from 1 on"),
        ("net,aws,2,100", "a replica has 100 examples, and the profiles tell of batches up to 64"),
        ("net,aws,3,16", "application 'net' on t4: no step on 3 GPUs of a node is told"),
    ],
)
def test_a_pipeline_that_cannot_be_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (with_a_pipeline(folder) / "pipelines.csv").write_text(f"app,cluster,stages,microbatches\n{line}\n")
    assert asked(folder, cluster="1x4:t4") == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_policies_of_one_gpu_type_keep_types_apart_and_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = "sia,pollux,gavel-las,themis,gandiva,las-2d"
    assert asked(folder, "--json", policy=policies) == 0
    said = json.loads(capsys.readouterr().out)
    assert [run["policy"] for run in said["runs"]] == policies.split(",")
    assert said["pools_by_type"] == ["pollux", "themis", "las-2d"]
    assert asked(folder, policy="themis,sia") == 0
    assert "themis: each knows one GPU type, so that each type is a pool" in capsys.readouterr().out
    assert asked(folder, "--json", policy="themis", cluster="1x4:t4") == 0
    assert json.loads(capsys.readouterr().out)["pools_by_type"] == []


def test_a_trace_without_applications_is_replayed_as_it_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,2,600\nb,0,4,300\nc,10,0,50\nd,1000,1,0\ne,5,16,60\n")
    command = ["whatif", "elastic", str(trace), "--cluster", "1x4:t4", "--policy", "mesos,sia,themis,las-2d"]
    assert main(command) == 2
    assert "jobs.csv:4: the job has 0 GPUs" in capsys.readouterr().err
    assert main([*command, "--skip-bad", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["as_recorded"], sum(said["left_out"].values()), said["assumed_restarts"]) == (True, 3, [])
    mesos = said["runs"][0]
    # From the first round on, at 60 s, one after the other, each after its 30 s of starting.
    assert (mesos["jobs"], mesos["jct_max_s"]) == (2, 720.0 + 330.0)
    assert mesos["gpu_h"] * 3600 == 2 * 630 + 4 * 330
    assert all(run["jobs"] == 2 and run["success_rate"] == 1.0 for run in said["runs"])
    assert main([*command, "--skip-bad"]) == 0
    shown = capsys.readouterr().out
    assert "The trace names no applications: each job keeps the GPUs that it had" in shown
    assert "Jobs left out: 1: no GPU type has so many GPUs, or none was measured on them." in shown


def test_paths_of_a_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["whatif", "elastic", "--cluster", "1x4:t4", "--policy", "sia"]
    assert main([*command, str(folder), str(folder / "jobs.csv"), "third"]) == 2
    assert "3 paths are given. Give a folder of profiles and one trace." in capsys.readouterr().err
    (folder / "empty.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,1,0\n")
    assert main([*command, str(folder / "empty.csv")]) == 2
    assert "no job of it ran on GPUs" in capsys.readouterr().err
    (folder / "wide.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\n")
    assert main([*command, "--skip-bad", str(folder / "wide.csv")]) == 2
    assert "no job of it fits. Name more nodes in --cluster." in capsys.readouterr().err
