"""NVSentinel's HealthEvents."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from perdure.coordination.bridges.registry import read
from perdure.coordination.record import LEAST, ExceptionRecord, Transient
from tests.coordination.bridges.samples import HEALTH, NOW


def one(said: Mapping[str, object]) -> ExceptionRecord:
    (record,) = read("nvsentinel", json.dumps(said), "c", NOW).records
    return record


def known(record: ExceptionRecord) -> dict[Any, Any]:
    return {annotation.key: annotation.value for annotation in record.annotations}


def test_a_fatal_xid_names_node_gpu_and_what_is_recommended() -> None:
    record = one(HEALTH)
    assert (record.type, record.severity, record.time_s) == ("node.gpu.xid79", 0, 1763712000.0)
    assert (record.subject.nodes, record.subject.gpus) == (("n7",), ("n7:3",))
    assert (record.origin.component, record.note) == ("syslog-health-monitor", HEALTH["message"])
    assert known(record)["recommended_action"] == "RESTART_BM"
    assert "clears" not in known(record)


def test_a_healthy_event_clears_the_condition_that_the_other_raised() -> None:
    raised = one(HEALTH)
    cleared = one({**HEALTH, "isHealthy": True, "isFatal": False, "generatedTimestamp": "2025-11-21T09:00:00Z"})
    assert (cleared.type, cleared.severity) == (raised.type, LEAST)
    assert known(cleared)["clears"] == known(raised)["condition"]
    assert cleared.id != raised.id


@pytest.mark.parametrize(
    ("changes", "kind", "severity"),
    [
        ({"errorCode": ["XID-48"], "checkName": "XID_ERROR_48"}, "node.gpu.xid48", 0),
        ({"errorCode": []}, "node.gpu.xid", 0),
        ({"checkName": "SysLogsSXIDError", "errorCode": ["12028"]}, "node.gpu.sxid12028", 0),
        ({"checkName": "SXID_ERROR_2028", "errorCode": ["SXID-2028"]}, "node.gpu.sxid2028", 0),
        ({"checkName": "GpuThermalWatch", "isFatal": False}, "node.gpu.thermal-watch", 4),
        ({"checkName": "GpuPowerWatch", "isFatal": False}, "node.power", 4),
        ({"checkName": "InfiniBandStateCheck", "componentClass": "NIC"}, "network.degraded", 0),
        ({"checkName": "ScheduledMaintenance", "componentClass": "CSP"}, "node.scheduled-maintenance", 0),
        ({"processingStrategy": "STORE_ONLY"}, "node.gpu.xid79", 6),
        ({"processingStrategy": 2}, "node.gpu.xid79", 6),
    ],
)
def test_types_and_severities(changes: Mapping[str, object], kind: str, severity: int) -> None:
    record = one({**HEALTH, **changes})
    assert (record.type, record.severity) == (kind, severity)


@pytest.mark.parametrize(
    ("action", "name", "transient"),
    [
        (24, "RESTART_BM", Transient.UNKNOWN),
        (25, "REPLACE_VM", Transient.NO),
        ("CONTACT_SUPPORT", "CONTACT_SUPPORT", Transient.NO),
        (39, "RESTART_APP", Transient.YES),
        (0, "NONE", Transient.YES),
        (7, "UNKNOWN", Transient.UNKNOWN),
        (None, "NONE", Transient.YES),
    ],
)
def test_recommended_actions_go_by_name_and_by_number(
    action: int | str | None, name: str, transient: Transient
) -> None:
    record = one({**HEALTH, "recommendedAction": action})
    assert (known(record)["recommended_action"], record.transient) == (name, transient)


def test_what_is_around_an_event_makes_no_other_event_of_it() -> None:
    stored = {"_id": "x", "healthevent": {key.lower(): value for key, value in HEALTH.items()}, "healtheventstatus": {}}
    exported = {"specversion": "1.0", "data": {"metadata": {}, "healthEvent": HEALTH}}
    changed = {"operationType": "insert", "fullDocument": stored}
    sent = {"version": 1, "events": [HEALTH]}
    assert {one(said).id for said in (HEALTH, stored, exported, changed, sent)} == {one(HEALTH).id}


def test_a_stamp_of_mongodb_is_one() -> None:
    assert one({**HEALTH, "generatedTimestamp": {"seconds": 1763712000, "nanos": 5}}).time_s == 1763712000.0
    assert one({**HEALTH, "generatedTimestamp": {"$date": "2025-11-21T08:00:00Z"}}).time_s == 1763712000.0


def test_a_stamp_that_makes_no_sense_is_none() -> None:
    unstamped = {key: value for key, value in HEALTH.items() if key != "generatedTimestamp"}
    for stamp in (["2025"], {"seconds": {}}, None):
        record = one({**HEALTH, "generatedTimestamp": stamp})
        assert (record.id, record.time_s) == (one(unstamped).id, NOW)


@pytest.mark.parametrize("missing", ["checkName", "nodeName"])
def test_without_a_check_or_a_node_it_is_left_out(missing: str) -> None:
    bridged = read(
        "nvsentinel", json.dumps({**HEALTH, missing: "$(reboot)" if missing == "nodeName" else ""}), "c", NOW
    )
    assert (bridged.records, bridged.skipped) == ((), 1)
