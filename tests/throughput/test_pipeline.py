"""Pipelines: how long a step of their replicas takes, how many replicas GPUs hold, and what is foretold of others."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.profiles import EpochProfile, PipelineProfile, StepProfile
from perdure.throughput.application import Application, applications
from perdure.throughput.learned import LearnedJob, expected_goodput, learning, whole_replicas
from perdure.throughput.pipeline import PUBLISHED, Pipeline, pipelines

CUT = Pipeline({"big": 2, "small": 4}, 10)


def application(pipeline: Pipeline = CUT, layouts: tuple[tuple[int, ...], ...] = ((2,), (4,), (4, 4))) -> Application:
    """A stage's forward pass takes .1 s on "big", twice that on "small"; synchronising .5 s, and 1 s across nodes."""
    rows = [
        (kind, layout, batch, batch * each_s, 0.5 * len(layout))
        for kind, each_s in (("big", 0.1), ("small", 0.2))
        for layout in layouts
        for batch in (1, 2)
    ]
    kind, layout, batch, step_s, sync_s = (list(column) for column in zip(*rows, strict=True))
    steps = StepProfile(
        np.full(len(rows), "gpt"),
        np.array(kind),
        np.array([",".join(map(str, each)) for each in layout]),
        np.array([len(each) for each in layout]),
        np.array([sum(each) for each in layout]),
        np.array(batch, float),
        np.array(step_s),
        np.array(sync_s),
    )
    epochs = EpochProfile(
        np.full(4, "gpt"), np.array([5, 5, 40, 40]), np.array([10.0, 20.0] * 2), np.ones(4), np.full(4, 1e9)
    )
    return applications(steps, epochs, ["gpt"], {"gpt": pipeline})["gpt"]


def test_a_step_is_the_pipelines_formula_and_its_synchronising() -> None:
    speed = application().speed
    assert speed["big"].step_s((2,), 10) == pytest.approx((3 * (1 + 10) * 0.1 + 0.5, 0.5))
    assert speed["small"].step_s((4, 4), 10) == pytest.approx((3 * (3 + 10) * 0.2 + 1.0, 1.0))
    assert speed["small"].single == pytest.approx(10 / (3 * 13 * 0.2 + 0.5))
    assert (speed["big"].smallest_local, speed["big"].largest_local_on((4,))) == (10, 10)


def test_a_micro_batch_of_two_examples_has_its_own_forward_pass() -> None:
    speed = application(Pipeline({"big": 2}, 10, microbatch=2)).speed["big"]
    assert speed.largest_local == 20
    assert speed.step_s((2,), 20)[0] == pytest.approx(3 * 11 * 0.2 + 0.5)


def test_gpus_that_are_no_whole_replicas_make_no_step() -> None:
    assert np.isnan(application().speed["small"].step_s((2,), 10)).all()


def test_a_type_without_a_pipeline_is_never_run_on() -> None:
    found = application(Pipeline({"big": 2}, 10)).on(["big", "small"])
    assert (found.stages("big"), found.stages("small")) == (2, 0)
    assert np.isnan(found.speed["small"].step_s((4,), 10)).all()
    assert found.reach(["big", "small"]) == [8, 0]


def test_replicas_end_where_batches_were_not_measured() -> None:
    assert application().reach(["big", "small"]) == [8, 8]  # of 40 examples: 4 replicas
    assert application(Pipeline({"big": 2}, 20)).reach(["big"]) == [4]
    with pytest.raises(InputError, match="a replica has 48 examples, and the profiles tell of batches up to 40"):
        application(Pipeline({"big": 2}, 48))


def test_measured_gpus_beyond_the_last_whole_replica_do_not_count() -> None:
    speed = application(layouts=((2,), (4,), (4, 4, 2))).speed
    assert (speed["big"].most_gpus, speed["small"].most_gpus) == (10, 8)


def test_a_single_replica_must_be_measured() -> None:
    with pytest.raises(InputError, match=r"application 'gpt' on big: no step on 2 GPUs of a node is told"):
        application(layouts=((4,), (4, 4)))


def test_a_table_of_pipelines_names_one_number_of_micro_batches() -> None:
    names, kinds = np.array(["gpt", "gpt"]), np.array(["big", "small"])
    told = PipelineProfile(names, kinds, np.array([2, 4]), np.array([10, 10]))
    assert pipelines(told)["gpt"] == CUT
    assert CUT.named({"big": "a100"}).stages == {"a100": 2, "small": 4}
    with pytest.raises(InputError, match="10 micro-batches on one GPU type, and 12 on another"):
        pipelines(PipelineProfile(names, kinds, np.array([2, 4]), np.array([10, 12])))


def test_the_published_pipeline_is_said_to_be_made_up() -> None:
    assert PUBLISHED["gpt_pmp"].by_formula
    assert not CUT.by_formula


def seen(*steps: tuple[int, int, float]) -> LearnedJob:
    """A pipeline seen on "big" with so many nodes, replicas, and seconds of a step, a fifth of which synchronise."""
    speed = application().speed
    single = np.array([speed["big"].single, speed["small"].single])
    found = learning("gpt", 5, 40, {"big": (10, 10), "small": (10, 10)}, single, {}, [2, 4], 10)
    for nodes, replicas, step_s in steps:
        found.speed[0].see((nodes, replicas, 10), step_s, 0.8 * step_s)
        found.gradients = 1.0, 1e9
    return found


def test_as_many_replicas_on_another_type_are_faster_by_the_ratio_of_one() -> None:
    job = seen((1, 1, 4.0), (1, 2, 5.0))
    gpus, kind = np.array([2, 4, 3, 4, 8, 2]), np.array([0, 0, 0, 1, 1, 1])
    one, two, part, *other, few = expected_goodput([job], gpus, kind, np.array([8, 8]))[0].tolist()
    assert np.isnan([part, few]).all()
    assert one == pytest.approx(10 / 4.0, rel=0.05)
    assert two == pytest.approx(20 / 5.0, rel=0.05)
    ratio = float(job.single[1] / job.single[0])
    assert other == pytest.approx([one * ratio, two * ratio])


def test_nodes_are_counted_on_the_type_that_was_seen() -> None:
    # Two replicas are 4 GPUs of "big": there on two nodes of 2, though on "small" both are on a node of 8.
    job = seen((1, 1, 4.0), (2, 2, 8.0))
    (across,) = expected_goodput([job], np.array([8]), np.array([1]), np.array([2, 8]))[0]
    assert across == pytest.approx(20 / 8.0 * float(job.single[1] / job.single[0]), rel=0.05)


def test_a_pipelines_batch_is_never_chosen() -> None:
    # Noise is so large that a batch of 40 would be worth its size, and far better than the 10 of a replica.
    job = seen((1, 1, 4.0))
    (one,) = expected_goodput([job], np.array([2]), np.array([0]), np.array([8, 8]))[0]
    assert one == pytest.approx(2.5, rel=0.05)


def test_whole_replicas_of_jobs_with_and_without_a_pipeline() -> None:
    gpus, kind = np.array([1, 4, 6, 4, 8]), np.array([0, 0, 0, 1, 1])
    found = whole_replicas(gpus, kind, np.array([[1, 1], [2, 4], [4, 0]]))
    assert found.tolist() == [[1, 4, 6, 4, 8], [0, 2, 3, 1, 2], [0, 1, 0, 0, 0]]
