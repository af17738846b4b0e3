"""The service on a real HTCondor: a job that fails is judged by its log, and put back by a real decision."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.check_harness import Program
from perdure.service.runtime import one_cluster
from perdure.service.settings import load
from tests.backends.condor.harness import CondorHarness

BROKEN_GPU = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def test_a_failed_job_is_put_back_off_its_node(
    condor: CondorHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`perdure up --cluster condor --act`, real but for the page; a job whose owner said never is left alone."""
    never = condor.pool.submit(f"echo {BROKEN_GPU!r}; exit 1", "on_exit_hold = ExitCode != 0", '+Perdure = "never"')

    def serve(_: object, engine: Any, *__: object) -> int:
        condor.pool.until("the service has looked", lambda: engine.state.known.nodes)
        job_id = condor.submit(Program(says=BROKEN_GPU, exit_code=1, run_s=1.0))
        told = ("condor_q", "-allusers", job_id, "-af:t", "NumShadowStarts", "PerdureComment", "Requirements")
        condor.pool.until("the job runs again", lambda: condor.pool.run(*told).startswith("2\t"))
        assert f"perdure why {job_id}" in condor.pool.run(*told)
        time.sleep(2.0)
        return 0

    monkeypatch.setattr(one_cluster, "serve", serve)
    for name, value in condor.pool.env.items():
        monkeypatch.setenv(name, value)
    flags = {"service.cluster": "condor", "service.port": 0, "service.poll_s": 0.5, "retry.back_off_s": 0.1}
    settings = load({"HOME": str(tmp_path)}, flags={**flags, "service.act": True}).settings
    settings = replace(settings, service=replace(settings.service, state=tmp_path / "state"))
    assert one_cluster.run(settings) == 0
    runs = ("condor_history", "-epochs", "-af:t", "ClusterId", "NumShadowStarts", "RemoteHost")
    hosts = {line.split("\t")[0]: set() for line in condor.pool.run(*runs).splitlines()}
    for line in condor.pool.run(*runs).splitlines():
        cluster, _, host = line.split("\t")
        hosts[cluster].add(host)
    assert len(hosts[never.partition(".")[0]]) == 1
    assert max(len(each) for each in hosts.values()) == 2  # the second run was on another node
    assert condor.pool.run("condor_q", "-allusers", never, "-af", "JobStatus").strip() == "5"
