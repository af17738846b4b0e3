"""What Prometheus is told."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.service.metrics import Metrics
from tests.service.web_world import RESET, Site, fill, site

ALLOWED_LABELS = {"kind", "category", "state", "part", "fate", "le"}


@pytest.fixture
def place(tmp_path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    return place


def samples(place):
    text = place.client().get("/metrics").text
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def value(place, name, **labels):
    (found,) = [s.value for s in samples(place) if s.name == name and s.labels == labels]
    return found


def test_decisions_failures_and_actions_are_counted(place):
    assert value(place, "perdure_decisions_total", kind="stop", category="shape") == 1
    assert value(place, "perdure_failures_total", category="net") == 2
    assert value(place, "perdure_failures_total", category="node_loss") == 1
    assert value(place, "perdure_actions", kind="requeue", state="done") == 1
    assert value(place, "perdure_jobs", state="running") == 1
    assert 0.95 * 4 * 1800 < value(place, "perdure_gpu_seconds_total", fate="saved") < 4 * 1800
    assert value(place, "perdure_gpu_seconds_total", fate="lost_to_limits") == 0
    assert value(place, "perdure_limited_total") == 0


def test_a_spent_budget_is_a_metric(place):
    assert value(place, "perdure_retry_budgets_spent") == 0
    place.world.spend(150, "bob")
    assert (value(place, "perdure_retry_budget_used"), value(place, "perdure_retry_budget")) == (100, 100)
    assert value(place, "perdure_retry_budgets_spent") == 3  # the cluster's, bob's share of it, and the node's


def test_no_label_names_a_job_a_user_or_a_text(place):
    place.world.submit("999", "<script>", "eve\nx")
    place.world.start("999", "gpu01")
    place.world.end("999", RESET)
    assert {label for s in samples(place) for label in s.labels} <= ALLOWED_LABELS
    text = place.client().get("/metrics").text
    assert not any(word in text for word in ("999", "eve", "script", "mira", "unet"))


def test_the_services_own_standing_is_told(place):
    place.desk.stopped = True
    place.world.unseen = {"accounting": "down"}
    assert value(place, "perdure_stopped") == 1
    assert value(place, "perdure_armed") == 1
    assert value(place, "perdure_unseen", part="accounting") == 1
    assert value(place, "perdure_last_look_age_seconds") == 0
    assert value(place, "perdure_journal_up") == 1


def test_the_latency_of_decisions_comes_from_whoever_decides(place):
    place.app.state.metrics.decided(0.02)
    place.app.state.metrics.decided(-1.0)
    assert value(place, "perdure_decision_seconds_count") == 2
    assert value(place, "perdure_decision_seconds_bucket", le="0.025") == 2


def test_totals_are_counted_anew_only_every_few_seconds(place):
    before = value(place, "perdure_failures_total", category="net")
    place.world.start("107", "gpu01")
    place.world.end("107", RESET)
    assert value(place, "perdure_failures_total", category="net") == before
    place.world.pass_time(6)
    assert value(place, "perdure_failures_total", category="net") == before + 1


def test_two_services_in_one_process_do_not_share_a_registry():
    one, other = Metrics(), Metrics()
    one.decided(1.0)
    assert b"perdure_decision_seconds_count 0.0" in other.render()
