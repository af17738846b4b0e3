"""The API's own description (OpenAPI), as it is served and as a page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from perdure.service.web.problems import MEDIA_TYPE, Problem

Schema = Mapping[str, Any]
_REF = "#/components/schemas/"
_PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
_BOUNDS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("minItems", "at least {} of them"),
    ("maxItems", "at most {} of them"),
    ("pattern", "of the form {}"),
)


@dataclass(frozen=True, slots=True)
class DescribedField:
    """A parameter, or a field of a body: its form in words, and the model that it is made of ("" without one)."""

    name: str
    form: str
    model: str
    needed: bool
    about: str = ""
    place: str = ""  # of a parameter: path, query or header


@dataclass(frozen=True, slots=True)
class DescribedAnswer:
    """What comes back: a status, what of, and in which model."""

    status: str
    about: str
    media_type: str = ""
    form: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    id: str  # of its place in the page
    method: str
    path: str
    about: str
    parameters: tuple[DescribedField, ...]
    body: DescribedAnswer | None  # `status` is "" there
    body_fields: tuple[DescribedField, ...]
    answers: tuple[DescribedAnswer, ...]  # without the problems


@dataclass(frozen=True, slots=True)
class Group:
    """Operations about one thing."""

    name: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A named form of bodies."""

    name: str
    title: str
    about: str
    form: str  # of one without fields
    fields: tuple[DescribedField, ...]


def described(app: FastAPI) -> dict[str, Any]:
    """The description, with what every route may answer besides."""
    document = app.openapi()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.setdefault("Problem", Problem.model_json_schema())
    return document


def groups(document: Schema) -> tuple[Group, ...]:
    """All operations, by what they are about, in the order of the description."""
    found: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            found.setdefault(told.get("tags", ["other"])[0], []).append(_operation(path, method, told))
    return tuple(Group(name, tuple(operations)) for name, operations in found.items())


def models(document: Schema) -> tuple[DescribedModel, ...]:
    """The forms of bodies, by name; those that only describe FastAPI's own errors left out."""
    schemas = document["components"]["schemas"]
    left_out = {"HTTPValidationError", "ValidationError"}
    return tuple(
        DescribedModel(name, _title(name), _line(schema), _form(schema)[0], tuple(_fields(schema)))
        for name, schema in sorted(schemas.items())
        if name not in left_out
    )


def _operation(path: str, method: str, told: Schema) -> Operation:
    parameters = tuple(
        DescribedField(
            one["name"], *_form(one.get("schema", {})), bool(one.get("required")),
            one.get("description", "") or _line(one.get("schema", {})), one["in"],
        )
        for one in told.get("parameters", ())
    )  # fmt: skip
    content = told.get("requestBody", {}).get("content", {})
    body = next((DescribedAnswer("", "", kind, *_form(each.get("schema", {}))) for kind, each in content.items()), None)
    schema: Schema = next((each.get("schema", {}) for each in content.values()), {})
    return Operation(
        f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}", method.upper(), path,
        _line(told), parameters, body, tuple(_fields(schema)), tuple(_answers(told)),
    )  # fmt: skip


def _answers(told: Schema) -> Iterator[DescribedAnswer]:
    for status, one in told.get("responses", {}).items():
        content = one.get("content", {})
        if MEDIA_TYPE in content or status == "422":
            continue
        about = HTTPStatus(int(status)).phrase if status.isdecimal() else status
        if not content:
            yield DescribedAnswer(status, about)
        for kind, each in content.items():
            yield DescribedAnswer(status, about, kind, *_form(each.get("schema", {})))


def _fields(schema: Schema) -> Iterator[DescribedField]:
    needed = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        yield DescribedField(name, *_form(field), name in needed, _line(field))


def _form(schema: Schema) -> tuple[str, str]:
    """A schema in words, and the model that it is made of; "" where it is of none."""
    if ref := schema.get("$ref"):
        name = ref.removeprefix(_REF)
        return _title(name), name
    if "anyOf" in schema or "oneOf" in schema:
        forms = [_form(each) for each in schema.get("anyOf") or schema["oneOf"]]
        words = list(dict.fromkeys(word for word, _ in forms))
        words[0] = "; ".join([words[0], *_bounds(schema)])
        return " or ".join(words), next((model for _, model in forms if model), "")
    if "enum" in schema or "const" in schema:
        return " or ".join(str(value) or '""' for value in schema.get("enum", [schema.get("const")])), ""
    kind = schema.get("type")
    if kind == "array":
        word, model = _form(schema.get("items", {}))
        return "; ".join([f"list of {word}", *_bounds(schema)]), model
    if kind == "object":
        within = schema.get("additionalProperties")
        word, model = _form(within) if isinstance(within, dict) and within else ("", "")
        return (f"object of {word}" if word else "object"), model
    return "; ".join([_PLAIN.get(str(kind), "anything"), *_bounds(schema)]), ""


def _bounds(schema: Schema) -> list[str]:
    found = [words.format(schema[key]) for key, words in _BOUNDS if key in schema]
    found = ["not empty" if words == _BOUNDS[0][1].format(1) else words for words in found]
    return [*found, *([f"else {schema['default']}"] if schema.get("default") not in (None, "", [], {}) else [])]


def _title(name: str) -> str:
    """The name of a model; of a generic one with what it is of.

    >>> _title("Listing_JobItem_"), _title("JobItem")
    ('Listing of JobItem', 'JobItem')
    """
    outer, _, inner = name.rstrip("_").partition("_")
    return f"{outer} of {inner}" if inner and name.endswith("_") else name


def _line(told: Schema) -> str:
    return " ".join(str(told.get("description", "")).split())
