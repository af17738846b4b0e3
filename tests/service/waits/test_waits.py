"""Starts of waiting jobs in the service: forecast, promised, held against what came, and shown."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.protocol import PastJobs, Queued
from perdure.errors import ClusterBusy, ForecastFailed
from perdure.model.jobs import AttemptState
from perdure.service.store.queries.reader import Reader
from perdure.service.waits import process, promise_store
from perdure.service.waits.order import ForecastOrder
from perdure.service.waits.process import forecasts_of
from perdure.service.waits.promise_store import PromiseStore
from perdure.service.waits.watch import FIRST_S, PROMISE_EVERY_S, WaitsWatch
from perdure.service.waits.worker import forecasts
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.web.pages.labels import percent
from perdure.waits.calibration import Calibration, Promise
from perdure.waits.forecast import LEVELS
from perdure.waits.queue import QueuedJob, QueueLook
from tests.copying import replace
from tests.service.waits_world import CONFIG, QueueCluster, failing, queue_at, waiting, watch_of, watched
from tests.service.web_world import CLUSTER, HOUR, Site, site

NOW_S = 1_790_000_000.0
FIRST_DAYS = (
    b"JobID|User|Account|Partition|QOS|Submit|Eligible|Start|ElapsedRaw|TimelimitRaw|State|NNodes|ReqCPUS"
    b"|AllocTRES|ReqTRES\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Site:
    return site(tmp_path)


def order(*jobs: QueuedJob, **more: Any) -> ForecastOrder:
    return ForecastOrder(QueueLook(queue_at(NOW_S, *jobs), CONFIG), **more)


# the process


def test_each_job_that_waits_has_an_answer_and_a_held_one_no_start() -> None:
    told = forecasts(order(remarks=("no history",)))
    assert [each.job.job_id for each in told.answers] == ["11", "12", "13", "14"]
    assert [each.forecast is not None for each in told.answers] == [True, True, True, False]
    first, second, both = (each.forecast.median_s for each in told.answers[:3])
    assert both >= max(first, second)
    assert told.answers[3].hold.kind == "held"
    assert (told.waiting, told.left_out, told.remarks) == (4, 0, ("no history",))
    assert [(row.partition, row.gpus_free, row.waiting) for row in told.board] == [("gpu", 0, 3), ("old", 0, 0)]
    assert "perdure when fit" not in str(told)


def test_those_that_came_last_are_left_out_and_it_is_said() -> None:
    late = replace(waiting("15", NOW_S), submit_s=NOW_S - 10)
    told = forecasts(order(late, most=4))
    assert "15" not in [each.job.job_id for each in told.answers]
    assert told.left_out == 1


def test_a_past_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    told = forecasts(order(past=str(tmp_path / "none"), past_form="sacct"))
    assert told.remarks[0].startswith("no history: ")
    assert told.of("11").forecast is not None


def test_a_process_of_its_own_says_the_same() -> None:
    told = forecasts_of(order())
    here = forecasts(order())
    assert told.answers == here.answers
    assert told.board == here.board


def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(ForecastFailed, match="longer than 0 seconds"):
        forecasts_of(order(), limit_s=0.01)


@pytest.mark.parametrize(
    ("program", "said"), [("exit('went wrong')", "failed: went wrong"), ("print(1)", "failed: Exp")]
)
def test_a_process_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, program: str, said: str) -> None:
    monkeypatch.setattr(process, "_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(ForecastFailed, match=said):
        forecasts_of(order())


# the watch


def test_until_the_queue_is_known_it_is_looked_for_often(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path)
    cluster.queue_now = None
    watch.turn()
    assert (watch.latest, watch.pause_s(300.0)) == (None, FIRST_S)
    cluster.queue_now = queue_at(place.world.now)
    watch.turn()
    assert watch.latest is not None
    assert watch.pause_s(300.0) == 300.0
    assert isinstance(cluster, Queued)


def test_a_job_is_promised_something_once_an_hour(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path, replace(waiting("30", NOW_S), tasks=5))
    store = PromiseStore(place.world.journal.store, CLUSTER)
    jobs = ["11", "12", "13"]  # neither what is held, nor the tasks of an array
    for passed_s, rows in ((0.0, 1), (PROMISE_EVERY_S / 2, 1), (PROMISE_EVERY_S / 2 + 1, 2)):
        place.world.pass_time(passed_s)
        cluster.queue_now = replace(cluster.queue_now, now_s=place.world.now)
        watch.turn()
        assert sorted(one.job_id for one in store.open_of({*jobs, "14", "30"})) == sorted(jobs * rows)


def test_the_start_that_came_is_held_against_what_was_said(place: Site, tmp_path: Path) -> None:
    world = place.world
    world.submit("11")
    watch, cluster = watch_of(world, tmp_path)
    watch.turn()
    (said,) = watch._store.open_of({"11"})
    world.pass_time(said.wait_s[LEVELS.index(0.5)])
    world.start("11", "gpu01")
    cluster.queue_now = replace(queue_at(world.now), jobs=())
    watch.turn()
    (kept,) = watch._store.kept()
    assert (kept.job_id, kept.start_s) == ("11", world.now)
    assert (watch.calibration.answers, watch.calibration.within, watch.calibration.is_known) == (1, 1.0, False)


def test_what_was_said_of_a_job_is_not_said_of_a_later_one_of_its_number(place: Site, tmp_path: Path) -> None:
    """As where a manager lost its state: the later job has an answer of its own, and no start but its own."""
    world = place.world
    world.submit("11")
    watch, cluster = watch_of(world, tmp_path)
    watch.turn()
    world.pass_time(60)
    world.submit("11", user="jonas")
    store = PromiseStore(world.journal.store, CLUSTER)
    assert "11" not in store.promised_since(0.0)
    assert store.open_of({"11"}) == []
    cluster.queue_now = queue_at(world.now)
    watch.turn()
    assert [one.asked_s for one in store.open_of({"11"})] == [world.now]
    world.pass_time(60)
    world.start("11", "gpu01")
    cluster.queue_now = replace(queue_at(world.now), jobs=())
    watch.turn()
    assert [(one.asked_s, one.start_s) for one in store.kept()] == [(world.now - 60, world.now)]


def test_the_first_of_several_starts_is_held_against_what_was_said_and_nobody_elses(
    place: Site, tmp_path: Path
) -> None:
    """The job is put back and starts again before the next turn; another one starts in between."""
    world = place.world
    for job_id in ("11", "12"):
        world.submit(job_id)
    watch, cluster = watch_of(world, tmp_path)
    watch.turn()
    starts = {}
    for job_id, node in (("11", "gpu01"), ("12", "gpu02"), ("11", "gpu03")):
        world.pass_time(100.0)
        starts.setdefault(job_id, world.now)
        world.start(job_id, node)
        world.end(job_id, b"", AttemptState.FAILED)
    cluster.queue_now = replace(queue_at(world.now), jobs=())
    watch.turn()
    assert {kept.job_id: kept.start_s for kept in watch._store.kept()} == starts


def test_what_came_of_promises_corrects_later_forecasts(place: Site, tmp_path: Path) -> None:
    """Thirty jobs like those that wait took ten hours, where an hour was said."""
    world = place.world
    watch, cluster = watch_of(world, tmp_path)
    watch.turn()
    before = watch.latest.of("11").forecast
    assert before.raw_s == before.wait_s
    said = tuple(HOUR * (0.5 + level) for level in LEVELS)
    jobs = [str(number) for number in range(200, 230)]
    for each in jobs:
        world.submit(each)
    told = [Promise(each, world.now, said, raw_s=said, kind="gpu 8") for each in jobs]
    watch._store.note([*told, Promise("231", world.now, said)], world.now)
    world.pass_time(10 * HOUR)
    for each in jobs:
        world.start(each, "gpu01")
    watch._store.note([], world.now)
    assert sorted(watch._store.kept(), key=lambda one: one.job_id)[0] == replace(told[0], start_s=world.now)
    cluster.queue_now = queue_at(world.now)
    watch.turn()
    after = watch.latest.of("11").forecast
    assert after.raw_s == pytest.approx(before.raw_s, rel=0.3)
    assert after.median_s > 2 * before.median_s
    assert after.remarks[-1].startswith("the intervals of the last week held 0% of the starts, not 80%")


def test_a_start_told_in_whole_seconds_may_seem_to_come_before_the_answer(place: Site, tmp_path: Path) -> None:
    world = place.world
    world.submit("11")
    watch, cluster = watch_of(world, tmp_path)
    cluster.queue_now = replace(cluster.queue_now, now_s=world.now + 0.5)
    watch.turn()
    world.start("11", "gpu01")
    watch.turn()
    assert [one.job_id for one in watch._store.kept()] == ["11"]


def test_a_start_before_the_answer_is_none_that_came_of_it(place: Site, tmp_path: Path) -> None:
    world = place.world
    world.submit("11")
    world.start("11", "gpu01")
    world.pass_time(60)
    watch, _ = watch_of(world, tmp_path)  # it was put back, and waits again
    watch.turn()
    watch.turn()
    assert watch._store.kept() == []


def test_a_job_that_waits_past_its_interval_is_counted(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path)
    watch.turn()
    assert watch.calibration.overdue == 0
    place.world.pass_time(30 * 24 * HOUR - 60)
    cluster.queue_now = replace(cluster.queue_now, now_s=place.world.now)
    watch.turn()
    assert watch.calibration.overdue == 3
    left = tuple(job for job in cluster.queue_now.jobs if job.job_id != "13")  # its user has cancelled it
    cluster.queue_now = replace(cluster.queue_now, jobs=left)
    watch.turn()
    assert watch.calibration.overdue == 2


def test_the_past_is_asked_for_once_an_hour_and_its_absence_said(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path)
    cluster.past = PastJobs(FIRST_DAYS, "sacct", ("a remark",))
    for _ in range(2):
        watch.turn()
    assert cluster.asked == 1
    assert (tmp_path / "waits" / "past.txt").read_bytes() == FIRST_DAYS
    assert "a remark" in watch.latest.remarks
    cluster.past = ClusterBusy("sacct", "does not answer", "Wait")
    place.world.pass_time(HOUR)
    watch.turn()
    assert cluster.asked == 2
    assert watch.latest.remarks == ("no history: does not answer",)


def test_a_clock_that_was_ahead_does_not_keep_the_past_of_then(place: Site, tmp_path: Path) -> None:
    watch, cluster = watch_of(place.world, tmp_path)
    cluster.past = PastJobs(FIRST_DAYS, "sacct", ())
    for passed_s, asked in ((0.0, 1), (-1.0, 2), (PROMISE_EVERY_S - 1, 2), (1.0, 3)):
        place.world.pass_time(passed_s)
        watch.turn()
        assert cluster.asked == asked


def test_what_was_said_stays_where_a_forecast_fails(place: Site, tmp_path: Path) -> None:
    watch = watched(place, tmp_path)
    before = watch.latest
    watch._forecast = failing
    with pytest.raises(ForecastFailed):
        watch.turn()
    assert watch.latest is before
    text = place.client(place.mira).get("/waits").text
    assert "The last forecast failed." in text
    assert "took too long for 6 jobs" in text


# what is kept


def test_what_is_old_or_too_much_is_forgotten(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PromiseStore(place.world.journal.store, CLUSTER)
    other = PromiseStore(place.world.journal.store, "other")
    waits = tuple(float(level) for level in LEVELS)
    other.note([Promise("1", 5.0, waits)], 5.0)
    store.note([Promise("1", 5.0, waits), Promise("2", NOW_S, waits)], NOW_S)
    assert [one.job_id for one in store.open_of({"1", "2"})] == ["2"]
    assert len(other.open_of({"1"})) == 1
    monkeypatch.setattr(promise_store, "MOST", 2)
    store.note([Promise(str(number), NOW_S, waits) for number in (3, 4, 5)], NOW_S)
    assert [one.job_id for one in store.open_of({"1", "2", "3", "4", "5"})] == ["4", "5"]
    assert store.open_of({"5"}) == [Promise("5", NOW_S, waits)]


# page and API


def test_the_page_shows_each_job_with_its_start_and_what_holds_it(place: Site, tmp_path: Path) -> None:
    watched(place, tmp_path)
    text = place.client(place.mira).get("/waits").text
    assert text.count('class="fan"') == 3
    assert 'href="/jobs/13"' in text
    assert "not as it is" in text
    assert "<code>scontrol release 14</code>" in text
    assert "are considered before it in gpu" in text
    assert "This Slurm keeps no accounting." in text
    assert "Not enough answers yet" in text


def test_waits_are_a_file_and_sorted(place: Site, tmp_path: Path) -> None:
    watched(place, tmp_path)
    client = place.client(place.operator)
    rows = list(csv.DictReader(io.StringIO(client.get("/waits?format=csv&sort=-starts").text)))
    assert [row["job_id"] for row in rows][:2] == ["14", "13"]
    assert rows[0]["starts"] == ""
    assert rows[1]["starts_p10"] <= rows[1]["starts"] <= rows[1]["starts_p90"]


def test_without_a_watch_the_page_says_why(place: Site) -> None:
    client = place.client(place.mira)
    assert "Starts are forecast on Slurm alone" in client.get("/waits").text
    assert client.get("/api/v1/waits").json()["asked_s"] is None
    assert client.get("/api/v1/waits/11").status_code == 404


def test_before_the_first_forecast_the_page_says_so(place: Site, tmp_path: Path) -> None:
    store = PromiseStore(place.world.journal.store, CLUSTER)
    watch = WaitsWatch(QueueCluster(None), store, tmp_path, lambda: NOW_S, failing)
    place.app.state.web = replace(place.app.state.web, waits=watch)
    assert "No forecast yet" in place.client(place.mira).get("/waits").text


def test_the_api_says_what_the_page_shows(place: Site, tmp_path: Path) -> None:
    watch = watched(place, tmp_path, replace(waiting("30", NOW_S), tasks=5))
    client = place.client(place.mira)
    told = client.get("/api/v1/waits").json()
    assert [each["job"] for each in told["jobs"]] == ["11", "12", "13", "14", "30"]
    assert told["partitions"][0]["gpus_free"] == 0
    assert told["calibration"] == {"answers": 0, "within": None, "overdue": 0, "levels": []}
    one = client.get("/api/v1/waits/11").json()
    assert one["held_by"]["kind"] in ("priority", "resources")
    assert one["start"]["median_s"] == pytest.approx(NOW_S + watch.latest.of("11").forecast.median_s)
    assert client.get("/api/v1/waits/99").status_code == 404


def test_how_often_promises_were_kept_is_drawn_once_there_are_enough(place: Site, tmp_path: Path) -> None:
    watch = watched(place, tmp_path)
    waits = tuple(1000.0 * level for level in LEVELS)
    world = place.world
    jobs = [str(number) for number in range(100, 120)]
    for job_id in jobs:
        world.submit(job_id, look=False)
    watch._store.note([Promise(job_id, world.now, waits) for job_id in jobs], world.now)
    world.pass_time(500)
    for job_id in jobs:
        world.start(job_id, "gpu01")
    world.look()
    watch.turn()
    assert (watch.calibration.answers, watch.calibration.within) == (20, 1.0)
    text = place.client(place.mira).get("/waits").text
    assert f"<strong>{percent(1.0)}</strong> of 20 answers held" in text
    assert text.count('class="kept-point"') == len(LEVELS)
    levels = place.client(place.mira).get("/api/v1/waits").json()["calibration"]["levels"]
    assert {each["promised"]: each["kept"] for each in levels} == {
        level: 1.0 if level >= 0.5 else 0.0 for level in LEVELS
    }


def test_the_page_of_a_waiting_job_says_when_it_starts(place: Site, tmp_path: Path) -> None:
    place.world.submit("11")
    watched(place, tmp_path)
    text = place.client(place.mira).get("/jobs/11").text
    assert "four times of five between" in text
    place.world.start("11", "gpu01")
    assert "four times of five between" not in place.client(place.mira).get("/jobs/11").text


def test_what_users_named_is_text_alone(place: Site, tmp_path: Path) -> None:
    watched(place, tmp_path, waiting("30", NOW_S, user="<b>mira</b>", reason="<i>x</i>`<u>"))
    text = place.client(place.operator).get("/waits").text
    assert "<b>mira" not in text
    assert "<i>x" not in text
    assert "<u>" not in text


def test_metrics_tell_how_often_promises_were_kept_once_there_are_enough(place: Site, tmp_path: Path) -> None:
    def told(kept: Calibration) -> str:
        metrics = ServiceMetrics()
        metrics.watch(Reader(place.world.journal.engine, CLUSTER), place.commands, kept=lambda: kept)
        return metrics.render().decode()

    assert "\nperdure_waits_answers 19.0\n" in told(Calibration(19, 0.75))
    assert "\nperdure_waits_coverage_ratio 0" not in told(Calibration(19, 0.75))
    assert "\nperdure_waits_coverage_ratio 0.75\n" in told(Calibration(20, 0.75))
    assert "\nperdure_waits_answers 0.0\n" in place.client(place.operator).get("/metrics").text
