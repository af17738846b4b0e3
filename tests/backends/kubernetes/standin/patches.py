"""Patches as the API server applies them: JSON merge patch, JSON patch, strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

from tests.backends.kubernetes.standin.schemas import PublishedSchema


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Any, steps: list[dict[str, Any]]) -> Any:
    """RFC 6902: add, remove, replace, test. Raises `ValueError`."""
    result = copy.deepcopy(target)
    for step in steps:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = result
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        match step["op"]:
            case "test":
                found = place[int(last)] if isinstance(place, list) else place.get(last)
                if found != step.get("value"):
                    raise ValueError(f"test of {step['path']} failed")
            case "add" if isinstance(place, list):
                place.insert(len(place) if last == "-" else int(last), step["value"])
            case "add" | "replace":
                place[int(last) if isinstance(place, list) else last] = step["value"]
            case "remove":
                del place[int(last) if isinstance(place, list) else last]
    return result


def strategic(target: Any, patch: Any, schema: dict[str, Any], published: PublishedSchema) -> Any:
    """A strategic merge patch, by the merge keys that the published OpenAPI has."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {k: copy.deepcopy(v) for k, v in patch.items() if k != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    properties = published.resolved(schema).get("properties", {})
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [each for each in result.get(name, ()) if each not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _list(result.get(key) or [], value, properties.get(key, {}), published)
        else:
            result[key] = strategic(result.get(key), value, properties.get(key, {}), published)
    return result


def _list(target: list[Any], patch: list[Any], schema: dict[str, Any], published: PublishedSchema) -> list[Any]:
    if "merge" not in schema.get("x-kubernetes-patch-strategy", ""):
        return copy.deepcopy(patch)
    key = schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        return list(dict.fromkeys([*target, *patch]))
    result = copy.deepcopy(target)
    for change in patch:
        place = next((at for at, each in enumerate(result) if each.get(key) == change.get(key)), None)
        if change.get("$patch") == "delete":
            result = [each for each in result if each.get(key) != change.get(key)]
        elif place is None:
            result.append(copy.deepcopy(change))
        else:
            result[place] = strategic(result[place], change, schema.get("items", {}), published)
    return result
