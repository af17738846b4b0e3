"""Whatever is sent to the API by the rules of its own description, it never falls over."""

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, given, settings
from schemathesis import Case
from schemathesis.specs.openapi.schemas import OpenApiSchema

from perdure.service.web.app import API, API_ROUTERS
from tests.service.web_world import Site, fill, routes_of, site

OPERATIONS = [
    (method, f"{API}{route.path.replace(':path', '')}")
    for router in API_ROUTERS
    for method, route in routes_of(router)
    if not route.path.endswith("/stream")  # which would never end
]


WITH_WORDS = [  # those that take anything: the others can be asked in one way only
    route
    for router in API_ROUTERS
    for _, route in routes_of(router)
    if route.dependant.path_params or route.dependant.query_params or route.dependant.body_params
]
WANTED = int(os.environ.get("PERDURE_FUZZ", "0"))
EXAMPLES = max(15, WANTED * 11 // 10 // len(WITH_WORDS))  # of each operation; a tenth more, for some run out of them


LONGEST_S = 120.0  # of an answer, on a busy machine


@dataclass
class Fuzzed(Site):
    sent: int = 0  # requests


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    place = Fuzzed(**vars(site(tmp_path_factory.mktemp("fuzz"))))
    fill(place.world)
    yield place
    sys.stdout.write(f"\n{place.sent} requests\n")


@pytest.fixture(scope="module")
def schema(place: Fuzzed) -> OpenApiSchema:
    return schemathesis.openapi.from_asgi(f"{API}/openapi.json", place.app, headers={"Host": "127.0.0.1"})


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nothing_that_is_sent_makes_it_fall_over(schema: OpenApiSchema, place: Fuzzed, method: str, path: str) -> None:
    headers = {"Authorization": f"Bearer {place.operator}", "Host": "127.0.0.1"}

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
    def check(case: Case[Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = case.call(headers=headers, timeout=LONGEST_S)
            place.sent += 1
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"][0].startswith("application/problem+json")

    check()
