"""What is learned of a job's speed: when a model is fitted anew, and what it says of GPUs that the job never had."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.throughput import learned as module
from perdure.throughput.fit import SpeedFit, StepTimes, fit
from perdure.throughput.learned import LearnedJob, LearnedSpeed, expected_goodput, goodput_on, learning


def job(**steps: float) -> LearnedJob:
    """Two GPU types, the second twice as fast on one GPU; `steps` are seen on the first."""
    found = learning("net", 16, 64, {"slow": (1, 64), "fast": (1, 64)}, np.array([10.0, 20.0]), {})
    for gpus, step_s in steps.items():
        found.speed[0].see((1, int(gpus[1:]), 16), step_s, step_s / 2)
        found.gradients = 1.0, 50.0
    return found


def test_a_job_that_never_ran_has_no_model_and_no_forecast() -> None:
    new = job()
    assert new.speed[0].model() is None
    assert new.most_gpus() == 0
    one = np.ones(1, np.int64)
    assert np.isnan(expected_goodput([new], one, np.zeros(1, np.int64), np.array([4, 4]))).all()
    assert np.isnan(goodput_on([new], [64], 0, one, one)).all()


def test_the_first_step_on_other_gpus_fits_the_model_again_though_it_was_foretold() -> None:
    speed = LearnedSpeed("net on t4", {})
    speed.see((1, 1, 16), 0.2, 0.2)
    model = speed.model()
    assert model is not None
    speed.see((1, 2, 16), float(model.step_s(1, 2, 16)), 0.2)
    assert speed.stale


def test_a_step_that_was_foretold_fits_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def counted(steps: StepTimes) -> SpeedFit:
        fitted.append(len(steps.step_s))
        return fit(steps)

    monkeypatch.setattr(module, "fit", counted)
    speed = LearnedSpeed("net on t4", {})
    speed.see((1, 1, 16), 0.2, 0.2)
    foretold = float(speed.model().step_s(1, 1, 24))
    speed.see((1, 1, 24), foretold * 1.04, foretold)
    speed.model()
    assert fitted == [1]
    speed.see((1, 1, 32), 5.0, 5.0)
    speed.model()
    assert fitted == [1, 3]
    speed.see((1, 2, 16), 0.3, 0.2)  # other GPUs: always
    speed.model()
    assert fitted == [1, 3, 4]


def test_jobs_that_saw_the_same_share_a_fit() -> None:
    fits = {}
    one, two = (LearnedSpeed("net on t4", fits) for _ in range(2))
    for speed in (one, two):
        speed.see((1, 1, 16), 0.2, 0.2)
    assert one.model() is two.model()
    assert len(fits) == 1


def test_a_type_never_seen_is_as_much_faster_as_on_one_gpu() -> None:
    seen = job(g1=0.2, g2=0.25)
    gpus, kind = np.array([1, 2, 1, 2]), np.array([0, 0, 1, 1])
    slow, fast = expected_goodput([seen], gpus, kind, np.array([4, 4]))[0].reshape(2, 2)
    assert fast == pytest.approx(2 * slow)
    assert seen.most_gpus() == 2


def test_larger_batches_are_worth_more_where_they_may_be_used() -> None:
    seen = job(g1=0.2, g2=0.25)
    nodes, gpus = np.ones(2, np.int64), np.array([1, 2])
    small, large = (goodput_on([seen], [largest], 0, nodes, gpus)[0] for largest in (32, 1024))
    assert (large >= small - 1e-9).all()
    assert large[1] > small[1]


def test_jobs_that_are_alike_are_not_confused_with_those_that_are_not() -> None:
    """Of eight jobs with one model some differ in gradients, batch or memory, and so in what is expected of them."""
    fits, jobs = {}, []
    for row in range(8):
        found = learning("net", 16, 64 if row % 3 else 512, {"slow": (1, 64 if row % 4 else 32)}, np.ones(1), fits)
        found.speed[0].see((1, 1, 16), 0.2, 0.1)
        found.gradients = 1.0, 50.0 + row // 4
        jobs.append(found)
    gpus, kind, size = np.array([1, 2, 4, 8]), np.zeros(4, np.int64), np.array([4])
    together = expected_goodput(jobs, gpus, kind, size)
    alone = np.concatenate([expected_goodput([each], gpus, kind, size) for each in jobs])
    assert (together == alone).all()
    assert len(np.unique(together, axis=0)) > 4
