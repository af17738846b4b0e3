"""Label and field selectors."""

from __future__ import annotations

import re
from typing import Any

_SET = re.compile(r"\s*([\w./-]+)\s+(in|notin)\s*\(([^)]*)\)\s*")


def matches(document: dict[str, Any], labels: str, fields: str) -> bool:
    """Whether an object is selected."""
    own = document["metadata"].get("labels") or {}
    return all(_label(own, each) for each in _split(labels)) and all(_field(document, each) for each in _split(fields))


def _split(selector: str) -> list[str]:
    return [each.strip() for each in re.split(r",(?![^()]*\))", selector) if each.strip()]


def _label(labels: dict[str, str], rule: str) -> bool:
    if found := _SET.fullmatch(rule):
        values = {value.strip() for value in found[3].split(",")}
        return (labels.get(found[1]) in values) is (found[2] == "in")
    for sign in ("!=", "==", "="):
        key, found_sign, value = rule.partition(sign)
        if found_sign:
            return (labels.get(key.strip()) == value.strip()) is (sign != "!=")
    return rule.lstrip("!") not in labels if rule.startswith("!") else rule in labels


def _field(document: dict[str, Any], rule: str) -> bool:
    sign = "!=" if "!=" in rule else "="
    path, _, value = rule.replace("==", "=").partition(sign)
    found: Any = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return (str(found or "") == value) is (sign == "=")
