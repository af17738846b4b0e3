"""The published OpenAPI of one release of Kubernetes: what an object may hold, and how lists in it are merged.

Beside it the kinds that other projects define, whose schemas no release has.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.backends.kubernetes.standin.custom_schemas import CUSTOM_SCHEMAS

FOLDER = Path(__file__).resolve().parents[1] / "openapi"
VERSIONS = tuple(sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("v*.json.gz")))
NEWEST = VERSIONS[-1]


class PublishedSchema:
    """The definitions of one version, as ``v1.34``."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.definitions: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{version}.json.gz").read_bytes()))
        self._by_kind = {
            (each["group"], each["version"], each["kind"]): name
            for name, definition in self.definitions.items()
            for each in definition.get("x-kubernetes-group-version-kind", ())
        }
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}

    def definition_of(self, document: dict[str, Any]) -> str | None:
        """The name of the definition of an object's kind; None where there is none."""
        group, _, version = str(document.get("apiVersion")).rpartition("/")
        return self._by_kind.get((group, version, str(document.get("kind"))))

    def problems(self, document: dict[str, Any]) -> list[str]:
        """What is wrong with an object; of a kind that the release does not have, that."""
        name = self.definition_of(document)
        custom = (str(document.get("apiVersion")), str(document.get("kind")))
        if name is None and custom not in CUSTOM_SCHEMAS:
            return [f"{' '.join(custom)} is not in the OpenAPI of {self.version}"]
        key = name or "/".join(custom)
        if key not in self._validators:
            schema = {"$ref": f"#/$defs/{name}"} if name else CUSTOM_SCHEMAS[custom]
            self._validators[key] = jsonschema_rs.Draft202012Validator({**schema, "$defs": self.definitions})
        return [
            f"{'.'.join(map(str, error.instance_path))}: {error.message[:300]}"
            for error in self._validators[key].iter_errors(document)
        ]

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema with its reference followed."""
        reference = schema.get("$ref")
        return {**self.definitions[reference.rpartition("/")[2]], **schema} if reference else schema


@cache
def published(version: str = NEWEST) -> PublishedSchema:
    return PublishedSchema(version)
