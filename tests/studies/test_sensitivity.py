"""The tables of settings: what lies inside, how far the rest is, and that each row is the study at that setting."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from perdure.cli.study_sensitivity import DELAY_FIGURES, RETRY_FIGURES, show
from perdure.studies import delay as delays
from perdure.studies import retry as retries
from perdure.studies.estimate import Estimate
from perdure.studies.sensitivity import Sensitivity, SettingFigures, delay_sensitivity, retry_sensitivity


@pytest.fixture(scope="module")
def retry() -> Sensitivity:
    return retry_sensitivity(200, 1, 8, (0.1, 0.4), (0.5, 1.0), (0.9, 1.3))


@pytest.fixture(scope="module")
def delay() -> Sensitivity:
    return delay_sensitivity(600, 1, "40x2+30x8", (0.9,), (None, 1.0), (0.0, 1.5))


def of(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


def test_points_lie_inside_an_interval_and_bounds_above_its_low_end() -> None:
    figures = {"a": of(10.0, 1.0), "b": of(4.0, 1.0), "c": of(3.0, 0.5), "d": of(0.5, 0.1)}
    found = SettingFigures.of({}, figures, {"a": 11.0, "b": 2.0}, {"c": 2.0, "d": 1.0})
    assert found.inside == {"a": True, "b": False, "c": False, "d": True}
    assert found.distance == pytest.approx((1 / 11 + 1 + 0.5 + 0) / 4)


def test_the_nearest_has_most_inside_and_then_the_least_distance() -> None:
    published = {"a": 1.0, "b": 1.0}
    near_without = SettingFigures.of({"x": 1}, {"a": of(1.1, 0.0), "b": of(1.1, 0.0)}, published, {})
    far_with_one = SettingFigures.of({"x": 2}, {"a": of(1.0, 0.1), "b": of(9.0, 0.1)}, published, {})
    less_far_with_one = SettingFigures.of({"x": 3}, {"a": of(1.0, 0.1), "b": of(8.0, 0.1)}, published, {})
    rows = (near_without, far_with_one, less_far_with_one)
    found = Sensitivity("retry", 1, 1, published, {}, "published: them", rows)
    assert found.nearest is less_far_with_one
    assert found.ranges() == {"a": (1.0, 1.1), "b": (1.1, 9.0)}


def test_each_row_is_the_study_at_that_setting(retry: Sensitivity, delay: Sensitivity) -> None:
    row = next(each for each in retry.settings if tuple(each.setting.values()) == (0.4, 0.5, 1.3))
    study = retries.retry(200, (1.3,), 1, 8, 0.4, (0.5, 0.1), retries.POLICIES)
    predicted = {each.policy: each for each in study.figures if each.retry == retries.PREDICTED}
    assert {name: row.figures[name] for name in predicted} == {name: each.jct_saved for name, each in predicted.items()}
    assert row.figures["success_lost"].mean == max(each.success_lost.mean for each in predicted.values())
    capped = next(each for each in delay.settings if tuple(each.setting.values()) == (0.9, 1.0, 1.5))
    alone = delays.delay(600, 0.9, 1, "40x2+30x8", vc_days=1.5, borrowing=1.0)
    assert capped.figures["wait_s"] == alone.wait_s
    assert capped.figures["fragmentation 5-8"] == alone.figures[2].fragmentation_tries


def test_the_policy_that_exceeds_the_oracle_most_and_the_one_that_loses_most_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def study(*_: object, **__: object) -> SimpleNamespace:
        rows = [
            SimpleNamespace(
                load=0.9, retry=retries.PREDICTED, policy=policy, jct_saved=of(0.1, 0.0),
                jct_over_oracle=of(over, 0.0), success_lost=of(lost, 0.0),
            )
            for policy, over, lost in zip(retries.PUBLISHED["jct_saved"], (0.1, 0.3, 0.2), (0.2, 0.1, 0.4), strict=True)
        ]  # fmt: skip
        return SimpleNamespace(figures=rows, repeated=0.5)

    monkeypatch.setattr(retries, "retry", study)
    (row,) = retry_sensitivity(40, 1, 8, (0.1,), (0.9,), (0.9,)).settings
    assert (row.figures["jct_over_oracle"].mean, row.figures["success_lost"].mean) == (0.3, 0.4)


def test_all_settings_are_run(retry: Sensitivity, delay: Sensitivity) -> None:
    assert len({tuple(each.setting.values()) for each in retry.settings}) == 2 * 2 * 2
    assert len({tuple(each.setting.values()) for each in delay.settings}) == 1 * 2 * 2


def test_a_better_classifier_loses_less(retry: Sensitivity) -> None:
    lost = {tuple(each.setting.values()): each.figures["success_lost"].mean for each in retry.settings}
    for failing, load in ((0.1, 0.9), (0.1, 1.3), (0.4, 0.9), (0.4, 1.3)):
        assert lost[failing, 1.0, load] == 0 <= lost[failing, 0.5, load]
    assert sum(lost.values()) > 0


def test_who_may_not_borrow_waits_longer(delay: Sensitivity) -> None:
    wait = {tuple(each.setting.values())[1:]: each.figures["wait_s"].mean for each in delay.settings}
    assert wait[1.0, 0.0] > wait[None, 0.0]
    assert wait[1.0, 1.5] > wait[None, 1.5]


def test_the_table_names_settings_marks_and_what_none_gives(
    retry: Sensitivity, delay: Sensitivity, capsys: pytest.CaptureFixture[str]
) -> None:
    show(retry, RETRY_FIGURES, wide=True)
    show(delay, DELAY_FIGURES, wide=True)
    said = capsys.readouterr().out
    assert "TRUE POSITIVES" in said
    assert "no cap" in said
    assert "MEDIAN: 189 s lies in no setting's interval: from 0 s to" in said
    assert said.count("Nearest: ") == 2
    assert json.loads(json.dumps(retry.to_json()))["nearest"]["setting"]["failing"] in (0.1, 0.4)


def test_a_figure_that_one_setting_gives_is_not_said_to_lie_in_none(capsys: pytest.CaptureFixture[str]) -> None:
    published = {"a": 1.0, "b": 5.0}
    rows = [
        SettingFigures.of({"x": x}, {"a": of(mean, 0.1), "b": of(mean, 0.1)}, published, {})
        for x, mean in ((1, 1.0), (2, 3.0))
    ]
    show(Sensitivity("retry", 1, 1, published, {}, "published: them", tuple(rows)), {"a": "A", "b": "B"}, wide=True)
    said = capsys.readouterr().out
    assert "A: " not in said
    assert "B: 500.0% lies in no setting's interval: from 100.0% to 300.0% here." in said


def test_progress_counts_the_parts_as_one_whole() -> None:
    seen: list[tuple[int, int]] = []
    retry_sensitivity(40, 1, 8, (0.1, 0.2), (0.9,), (0.9,), progress=lambda *at: seen.append(at))
    assert seen[-1][0] == seen[-1][1] == 2 * 3 * 4
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
