"""A log that was written to since the last look is read again once it is known who runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.simulated import Script, SimulatedBackend, SimulatedCluster
from perdure.model.jobs import Attempt
from perdure.model.observation import Observation
from perdure.model.output import Output, OutputKind
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

ENDS_S = 5.0


class Watched(SimulatedBackend):
    """Tells when a log was written, and counts the looks that came before each reading."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.looks, self.readings, self.written = 0, [], {}

    def observe(self, since_s: float) -> Observation:
        self.looks += 1
        return super().observe(since_s)

    def output(self, attempt: Attempt, *limits: Any) -> Output:
        self.readings.append(self.looks)
        read = super().output(attempt, *limits)
        return replace(read, files=tuple(replace(file, **self.written) for file in read.files))


@pytest.mark.parametrize(
    ("after_end_s", "more", "looks"),
    [
        (0.0, {}, [1]),
        (0.9, {}, [1]),  # Slurm tells an end in whole seconds
        (3.0, {}, [1, 2]),
        (9.0, {}, [1]),  # a file server's clock is ahead
        (3.0, {"kind": OutputKind.RANK}, [1]),
        (3.0, {"tail": b""}, [1]),
    ],
)
def test_who_wrote_after_the_end_and_since_the_last_look_is_asked_for(
    tmp_path: Path, after_end_s: float, more: Mapping[str, OutputKind | bytes], looks: list[int]
) -> None:
    cluster = SimulatedCluster(0, nodes=1)
    backend, journal = Watched(cluster), Journal.open(tmp_path, "sim")
    executor = Executor(journal, backend, ExecutorSettings(False, tmp_path / "STOP"))
    engine = Engine(backend, journal, executor, judge, ControllerSettings(), lambda: cluster.now)
    cluster.submit(Script(run_s=ENDS_S, failures=1, error="RuntimeError: shapes"))
    cluster.advance(ENDS_S + 1.0)
    backend.written = {"written_s": cluster.now - 1.0 + after_end_s, **more}
    try:
        engine.look()
        cluster.advance(5.0)
        assert engine.judge_next(30.0)
    finally:
        engine.close()
    assert backend.readings == looks


def judge(output: Output, attempt: Attempt, context: Any) -> Verdict:
    return Verdict(Label.TRANSIENT, 0.9, "network", "it passes", fingerprint="passing")
