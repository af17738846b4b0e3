"""The page of the API: made from the API's own description, served by the service alone."""

import re
from typing import Any

import pytest

from perdure.service.web.app import API
from perdure.service.web.description import groups, models
from tests.service.web_world import Site, fill, site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = site(tmp_path_factory.mktemp("reference"))
    fill(place.world)
    return place


@pytest.fixture(scope="module")
def document(place: Site) -> Any:
    return place.client().get(f"{API}/openapi.json").json()


@pytest.fixture(scope="module")
def page(place: Site) -> Any:
    answer = place.client(place.mira, Accept="text/html").get("/docs/api")
    assert answer.status_code == 200
    return answer.text


def test_it_is_for_who_is_logged_in(place: Site) -> None:
    answer = place.client(Accept="text/html").get("/docs/api")
    assert answer.status_code in (303, 401)
    assert "/api/v1/jobs" not in answer.text


def test_it_is_not_fetched_again_while_it_is_read(page: str) -> None:
    """A part that lives is replaced by an answer without the rest; this page is answered whole, and stood in itself."""
    assert page.count("<main") == 1
    assert 'id="live"' not in page


def test_every_operation_is_on_it(page: str, document: Any) -> None:
    shown = set(re.findall(r'api-method api-\w+">(\w+)</span> <code class="api-path">([^<]+)</code>', page))
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == told
    assert len(told) > 40


def test_every_form_that_is_linked_is_on_it_once(page: str) -> None:
    links, ids = set(re.findall(r'href="#([^"]+)"', page)), re.findall(r' id="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    assert links <= set(ids)
    assert sum(link.startswith("model-") for link in links) > 20


def test_marks_of_the_description_are_shown_as_code(page: str) -> None:
    assert "`" not in page
    assert "<code>/?code=CODE</code>" in page


def test_every_parameter_says_what_it_means(document: Any) -> None:
    operations = [operation for group in groups(document) for operation in group.operations]
    assert [(o.path, p.name) for o in operations for p in o.parameters if not p.about] == []


def test_a_table_without_meanings_has_no_column_of_them(page: str) -> None:
    (table,) = re.findall(r'id="model-Submitted">(.*?)</table>', page, re.DOTALL)
    assert "Meaning" not in table


def test_nothing_comes_from_elsewhere(page: str) -> None:
    assert all(link.startswith(("/", "#")) for link in re.findall(r'(?:href|src|action)="([^"]*)"', page))


def test_forms_are_told_in_words() -> None:
    text = {"type": "string", "minLength": 1, "maxLength": 9}
    listing = {"$ref": "#/components/schemas/Listing_Job_"}
    query = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
    document = {
        "paths": {
            "/a/{b}": {
                "get": {
                    "tags": ["things"],
                    "description": "Looks  up\na thing.",
                    "parameters": [
                        {"name": "b", "in": "path", "required": True, "schema": text},
                        {"name": "q", "in": "query", "schema": query},
                    ],
                    "responses": {
                        "200": {"content": {"application/json": {"schema": listing}}},
                        "404": {"content": {"application/problem+json": {}}},
                    },
                }
            }
        },
        "components": {"schemas": {"Kind": {"enum": ["x", "y"]}, "HTTPValidationError": {}}},
    }
    (group,) = groups(document)
    (operation,) = group.operations
    assert (group.name, operation.id, operation.about) == ("things", "get-a-b", "Looks up a thing.")
    b, q = operation.parameters
    assert (b.form, b.needed, b.place) == ("text; not empty; at most 9 characters", True, "path")
    assert (q.form, q.needed) == ("list of whole number or null", False)
    (answer,) = operation.answers
    assert (answer.status, answer.form, answer.model) == ("200", "Listing of Job", "Listing_Job_")
    (model,) = models(document)
    assert (model.name, model.form) == ("Kind", "x or y")
