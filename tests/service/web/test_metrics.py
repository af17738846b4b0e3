"""What Prometheus is told."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import perdure
from perdure.blame.accuse import Accusation
from perdure.blame.standing import Standing, WindowChange
from perdure.coordination.playbook import own_playbook
from perdure.service.blame.suspect_store import SuspectStore
from perdure.service.web.metrics import ServiceMetrics
from perdure.triage.verdict import Label
from tests.conftest import require, require_program
from tests.service.web_world import RESET, Site, fill, site

ALLOWED_LABELS = {"kind", "category", "state", "part", "fate", "le", "label", "of", "type", "tier", "version", "python"}
LINUX = sys.platform == "linux"


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    fill(place.world)
    return place


def samples(place: Site) -> list[Any]:
    text = place.client().get("/metrics").text
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def value(place: Site, name: str, **labels: Any) -> Any:
    (found,) = [s.value for s in samples(place) if s.name == name and s.labels == labels]
    return found


def test_decisions_failures_and_actions_are_counted(place: Site) -> None:
    assert value(place, "perdure_decisions_total", kind="stop", category="shape") == 1
    assert value(place, "perdure_failures_total", category="net") == 2
    assert value(place, "perdure_failures_total", category="node_loss") == 1
    assert value(place, "perdure_actions", kind="requeue", state="done") == 1
    assert value(place, "perdure_jobs", state="running") == 1
    assert 0.95 * 4 * 1800 < value(place, "perdure_gpu_seconds_total", fate="saved") < 4 * 1800
    assert value(place, "perdure_gpu_seconds_total", fate="lost_to_limits") == 0
    assert value(place, "perdure_limited_total") == 0


def test_a_spent_budget_is_a_metric(place: Site) -> None:
    assert value(place, "perdure_retry_budgets_spent") == 0
    place.world.spend(150, "bob")
    assert (value(place, "perdure_retry_budget_used"), value(place, "perdure_retry_budget")) == (100, 100)
    assert value(place, "perdure_retry_budgets_spent") == 3  # the cluster's, bob's share of it, and the node's
    assert [value(place, "perdure_retry_budget_left", of=of) for of in ("cluster", "user", "node")] == [0, 0, 0]


def test_what_budgets_have_left_is_a_metric(place: Site) -> None:
    used, limit = value(place, "perdure_retry_budget_used"), value(place, "perdure_retry_budget")
    assert value(place, "perdure_retry_budget_left", of="cluster") == limit - used
    of_users = value(place, "perdure_retry_budget_left", of="user")
    place.world.spend(3, "bob")
    assert value(place, "perdure_retry_budget_left", of="user") < of_users


def test_the_process_and_the_build_are_told(place: Site) -> None:
    (build,) = [s for s in samples(place) if s.name == "perdure_build_info"]
    assert build.value == 1
    assert build.labels["version"] == perdure.__version__
    assert value(place, "perdure_journal_bytes") > 4096
    require("linux", LINUX, "processes are read from /proc")
    assert value(place, "process_start_time_seconds") > 1e9
    assert value(place, "process_resident_memory_bytes") > 1e6
    assert value(place, "process_cpu_seconds_total") > 0
    assert 0 < value(place, "process_open_fds") < value(place, "process_max_fds")


def test_open_exceptions_are_counted_by_the_entry_of_the_playbook_that_they_fall_under(place: Site) -> None:
    for kind in ("node.unreachable.bmc", "node.unreachable.ping"):
        raise_one(place, kind)
    assert value(place, "perdure_open_exceptions", type="node.unreachable", state="escalated") == 2
    assert "node.unreachable" in own_playbook().plans


def raise_one(place: Site, kind: str) -> None:
    record = {"type": kind, "severity": 3, "subject": {"cluster": "aurora", "resource": "pfs:/scratch"}}
    answer = place.client(place.operator).post("/api/v1/exceptions", json=record)
    assert answer.status_code == 201, answer.text


def test_suspects_are_counted_by_tier(place: Site) -> None:
    assert value(place, "perdure_suspects", tier="node") == 0
    ledger = SuspectStore(place.world.journal.store, "aurora")
    ledger.note(WindowChange(standing=(suspect("gpu01"), suspect("gpu02"))), place.world.now)
    place.world.pass_time(6)
    assert value(place, "perdure_suspects", tier="node") == 2
    assert "gpu01" not in place.client().get("/metrics").text


def suspect(node: str) -> Standing:
    accusation = Accusation((("node", node),), "gray", 0.5, 0.3, 0.7, 5, 5, 2, 12.0)
    return Standing(("node", node), accusation, 0.0, 0.0, named=True)


def test_no_label_names_a_job_a_user_or_a_text(place: Site) -> None:
    place.world.submit("999", "<script>", "eve\nx")
    place.world.start("999", "gpu01")
    place.world.end("999", RESET)
    assert {label for s in samples(place) for label in s.labels} <= ALLOWED_LABELS
    told = {text for s in samples(place) for text in (s.name, *s.labels.values())}
    assert not any(word in text for text in told for word in ("999", "eve", "script", "mira", "unet"))


def test_the_services_own_standing_is_told(place: Site) -> None:
    place.commands.stopped = True
    place.world.unseen = {"accounting": "down"}
    assert value(place, "perdure_stopped") == 1
    assert value(place, "perdure_armed") == 1
    assert value(place, "perdure_unseen", part="accounting") == 1
    assert value(place, "perdure_last_look_age_seconds") == 0
    assert value(place, "perdure_journal_up") == 1


def test_the_latency_of_decisions_comes_from_whoever_decides(place: Site) -> None:
    place.app.state.metrics.decided(0.02, Label.TRANSIENT)
    place.app.state.metrics.decided(-1.0, Label.UNSURE)
    assert value(place, "perdure_decision_seconds_count") == 2
    assert value(place, "perdure_decision_seconds_bucket", le="0.025") == 2


def test_how_often_triage_is_unsure_can_be_had_as_a_rate(place: Site) -> None:
    assert [value(place, "perdure_verdicts_total", label=label.value) for label in Label] == [0, 0, 0]
    place.app.state.metrics.decided(0.02, Label.UNSURE)
    assert value(place, "perdure_verdicts_total", label="unsure") == 1


def test_promtool_finds_nothing_to_say(place: Site) -> None:
    promtool = require_program("promtool")
    raise_one(place, "storage.quota")
    place.app.state.metrics.decided(0.02, Label.UNSURE)
    place.app.state.metrics.tried_notice("ops", "sent")
    text = place.client().get("/metrics").content
    ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")


def test_totals_are_counted_anew_only_every_few_seconds(place: Site) -> None:
    before = value(place, "perdure_failures_total", category="net")
    place.world.start("107", "gpu01")
    place.world.end("107", RESET)
    assert value(place, "perdure_failures_total", category="net") == before
    place.world.pass_time(6)
    assert value(place, "perdure_failures_total", category="net") == before + 1


def test_counters_never_fall_though_the_journal_forgets(place: Site) -> None:
    place.client().get("/metrics")
    place.world.pass_time(60 * 86400)
    gone = place.world.journal.prune(place.world.now)
    assert gone > 0
    place.world.submit("201", "late", "mira")
    place.world.start("201", "gpu01")
    place.world.end("201", RESET)
    assert value(place, "perdure_failures_total", category="net") >= 2
    assert value(place, "perdure_gpu_seconds_total", fate="wasted") == 69600


def test_counters_begin_with_the_service(place: Site, tmp_path: Path) -> None:
    """What an older service counted is in Prometheus already."""
    place.world.journal.close()
    again = site(tmp_path, place.world.now)
    assert value(again, "perdure_failures_total", category="net") == 0
    again.world.submit("201", "late", "mira")
    again.world.start("201", "gpu01")
    again.world.end("201", RESET)
    again.world.pass_time(6)
    assert value(again, "perdure_failures_total", category="net") == 1


def test_two_services_in_one_process_do_not_share_a_registry() -> None:
    one, other = ServiceMetrics(), ServiceMetrics()
    one.decided(1.0, Label.UNSURE)
    assert b"perdure_decision_seconds_count 0.0" in other.render()
