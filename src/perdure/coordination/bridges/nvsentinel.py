"""NVSentinel: the HealthEvents of its monitors.

One event, ``{"events": [...]}``, or the document around it in which NVSentinel stores and exports it. An event that
says ``isHealthy`` is a record of severity 7 that clears: it has the same type and names the same condition.

Source: data-models/protobufs/health_event.proto of NVIDIA/NVSentinel; numbers of recommended actions as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import re2
from msgspec.structs import replace

from perdure.coordination.bridges import fields
from perdure.coordination.bridges.bridged import BridgeContext, Meaning, ReportedFailure, clearing, record_of
from perdure.coordination.bridges.documents import MAX_DOCUMENTS, documents
from perdure.coordination.record import CLEARS, FATAL, ExceptionRecord, Transient

ACTIONS: Mapping[int, str] = {
    0: "NONE",
    2: "COMPONENT_RESET",
    5: "CONTACT_SUPPORT",
    6: "RUN_FIELDDIAG",
    15: "RESTART_VM",
    24: "RESTART_BM",
    25: "REPLACE_VM",
    26: "RUN_DCGMEUD",
    39: "RESTART_APP",
    99: "UNKNOWN",
}
_TRANSIENT = {
    "NONE": Transient.YES,
    "RESTART_APP": Transient.YES,
    "CONTACT_SUPPORT": Transient.NO,
    "RUN_FIELDDIAG": Transient.NO,
    "REPLACE_VM": Transient.NO,
}
WARNING, OBSERVED = 4, 6  # severities of what is not fatal, and of what is only to be kept
_CODE = re2.compile(r"(?i)(?:s?xid[ _:-]*)?(\d{1,5})")
_SXID = re2.compile(r"SX[Ii][Dd]|(?:^|_)sxid")  # of a switch; SysLogsXIDError is of a GPU
_AROUND = ("fulldocument", "data", "healthevent")
_GPU = frozenset({"gpu", "gpu_uuid"})


def read(text: str, context: BridgeContext) -> Iterator[ExceptionRecord | None]:
    """Read HealthEvents. What names neither a check nor a node cannot be read."""
    for document in documents(text, context.format):
        said = _inner(document)
        for event in fields.objects(said.get("events"), MAX_DOCUMENTS) if "events" in said else (said,):
            yield _record(_inner(event), context)


def _inner(value: Any) -> Mapping[str, Any]:
    """The event within what is around it, its keys in small letters: MongoDB keeps them so."""
    said = {str(key).lower(): item for key, item in fields.mapping(value).items()}
    around = next((key for key in _AROUND if isinstance(said.get(key), Mapping)), "")
    return _inner(said[around]) if around else said


def _record(said: Mapping[str, Any], context: BridgeContext) -> ExceptionRecord | None:
    check, node = fields.line(said.get("checkname")), fields.node(said.get("nodename"))
    if not check or not node:
        return None
    agent, stamp = fields.line(said.get("agent")), _stamp(said.get("generatedtimestamp"))
    entities = sorted(_entity(item) for item in fields.objects(said.get("entitiesimpacted")))
    codes = sorted(code for item in fields.items(said.get("errorcode")) if (code := fields.line(item, 64)))
    action, is_over = _action(said.get("recommendedaction")), _is(said, "ishealthy")
    meaning = _meaning(said, check, codes)
    impacted = [f"{kind}={value}" for kind, value in entities]
    condition = "/".join((agent, f"{check}@{node}", *impacted))
    told = ReportedFailure(
        meaning=clearing(meaning) if is_over else replace(meaning, transient=_transient(action)),
        facts=(agent, check, node, entities, codes, stamp, is_over, action),
        time_s=fields.instant(stamp, context.now),
        note=fields.line(said.get("message"), 1024) or check,
        nodes=(node,),
        gpus=[_gpu(node, value) for kind, value in entities if kind.lower() in _GPU],
        host=node,
        component=agent,
        known={
            "recommended_action": action,
            "check": check,
            "error_code": " ".join(codes),
            "entities": " ".join(impacted),
            "condition": condition,
            CLEARS: condition if is_over else "",
        },
    )
    return record_of(told, context)


def _entity(item: Mapping[str, Any]) -> tuple[str, str]:
    said = {key.lower(): value for key, value in item.items()}
    return fields.line(said.get("entitytype")), fields.line(said.get("entityvalue"))


def _transient(action: str) -> Transient:
    return _TRANSIENT.get(action, Transient.UNKNOWN)


def _meaning(said: Mapping[str, Any], check: str, codes: list[str]) -> Meaning:
    stored_only = said.get("processingstrategy") in (2, "STORE_ONLY")
    severity = OBSERVED if stored_only else FATAL if _is(said, "isfatal") else WARNING
    return Meaning(_type(fields.line(said.get("componentclass")).lower(), check, codes), severity)


def _type(component: str, check: str, codes: list[str]) -> str:
    plain = check.lower()
    if "xid" in plain:
        kind = "sxid" if _SXID.search(check) else "xid"
        number = next((found[1] for code in codes if (found := _CODE.fullmatch(code))), "")
        return f"node.gpu.{kind}{int(number) if number else ''}"
    if component in ("nic", "network", "infiniband"):
        return "network.degraded"
    if "power" in plain:
        return "node.power"
    name = fields.dotted_part(check) or "unhealthy"
    return f"node.gpu.{name.removeprefix('gpu-')}" if component in ("gpu", "nvswitch") else f"node.{name}"


def _is(said: Mapping[str, Any], key: str) -> bool:
    value = said.get(key)
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _action(value: Any) -> str:
    if fields.is_whole(value):
        return ACTIONS.get(value, "UNKNOWN")
    return fields.line(value, 64).upper() or "NONE"


def _gpu(node: str, value: str) -> str:
    return f"{node}:{value}" if value.isdecimal() else value


def _stamp(value: Any) -> Any:
    """The instant as text or number; MongoDB and protobuf have objects of their own for it."""
    said = fields.mapping(value)
    stamp = said.get("seconds", said.get("$date")) if said else value
    return stamp if isinstance(stamp, (str, int, float)) else ""
