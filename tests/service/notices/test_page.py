"""The page of notices: what was sent, what waits, what was refused and why; for operators alone."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from perdure.model.nodes import NodeState
from perdure.service.notices.channels.webhook import Webhook
from perdure.service.notices.notifier import Notifier
from perdure.service.notices.rules import NoticeLimits
from perdure.service.notices.secrets import Secret
from perdure.service.notices.settings import NoticesSettings, Targets
from tests.copying import replace
from tests.service.notices.three_targets import tell
from tests.service.web_world import CLUSTER, Site, World, site


@pytest.fixture
def place(tmp_path: Path) -> Site:
    """A drained node was told to one target, refused by another, and a third does not answer."""
    place = site(tmp_path)
    tell(place.world, tmp_path)
    return place


def page(place: Site, path: str = "/notices", token: str | None = None) -> Any:
    return place.client(token or place.operator).get(path)


def drain(world: World, node: str) -> None:
    world.nodes[node] = replace(world.nodes[node], state=NodeState.DRAINED, reason="fan")
    world.look()


def rows(place: Site, **asked: Any) -> list[Any]:
    query = "&".join(f"{name}={value}" for name, value in {**asked, "format": "csv"}.items())
    return list(csv.DictReader(io.StringIO(page(place, f"/notices?{query}").text)))


def test_it_says_what_was_sent_waits_and_was_refused(place: Site) -> None:
    text = page(place).text
    assert text.count("A node is drained") == 3
    assert "&lt;b&gt;fan&lt;/b&gt;" in text
    assert "refused it with 410" in text
    assert "not tried again" in text
    assert "answered 503" in text
    assert "tried once; again" in text
    assert 'href="/notices" aria-current="page"' in text


def test_it_says_what_a_message_waits_for(tmp_path: Path) -> None:
    place = site(tmp_path, notices=NoticeLimits(group_s=30.0, per_hour=1))
    settings = NoticesSettings(
        targets=Targets({"ops": Webhook(Secret(value="http://127.0.0.1:1/"))}), group_s=30.0, disk_low_mib=0
    )
    notifier = Notifier(place.world.journal.store, CLUSTER, settings, tmp_path, "", lambda: place.world.now)
    notifier.begin()
    drain(place.world, "gpu02")
    notifier.gather()
    assert "waits for more of its kind, until" in page(place).text
    (told,) = page(place, "/api/v1/notices").json()["items"]
    assert (told["state"], told["waits_for"]) == ("gathering", "waits for more of its kind")
    assert told["until_s"] == told["due_s"] == place.world.now + 30.0
    place.world.pass_time(31.0)
    assert notifier.send("ops")  # begun: nobody is there to take it
    drain(place.world, "gpu03")
    notifier.gather()
    place.world.pass_time(31.0)
    assert "waits until the message before it has arrived" in page(place).text
    (gathering,) = (row for row in notifier.outbox.waiting("ops") if row.begun_s is None)
    notifier.outbox.sent(next(row for row in notifier.outbox.waiting("ops") if row != gathering), place.world.now)
    assert "held: 1 warning messages in the last hour, and notices.per_hour is 1, until" in page(place).text
    place.world.pass_time(3600.0)
    assert "is next" in page(place).text


def test_the_api_says_what_each_message_waits_for(place: Site) -> None:
    told = {each["target"]: each for each in page(place, "/api/v1/notices").json()["items"]}
    assert (told["phone"]["waits_for"], told["phone"]["until_s"]) == ("waits to be tried again", told["phone"]["due_s"])
    assert (told["ops"]["waits_for"], told["ops"]["until_s"]) == ("", None)


@pytest.mark.parametrize(
    ("asked", "targets"),
    [
        ({}, {"ops", "tickets", "phone"}),
        ({"state": "sent"}, {"ops"}),
        ({"state": "given_up"}, {"tickets"}),
        ({"state": "on_its_way"}, {"phone"}),
        ({"target": "phone"}, {"phone"}),
        ({"target": "phone", "state": "sent"}, set()),
    ],
)
def test_it_is_narrowed_by_state_and_target(place: Site, asked: dict[str, Any], targets: set[str]) -> None:
    assert {row["target"] for row in rows(place, **asked)} == targets
    assert "refused it with 410" in rows(place, target="tickets")[0]["error"]


def test_a_state_that_there_is_not_is_refused(place: Site) -> None:
    assert page(place, "/notices?state=none+of+them").status_code == 422


def test_it_is_for_operators_alone(place: Site) -> None:
    assert page(place, token=place.mira).status_code == 403
    assert "/notices" not in page(place, "/jobs", place.mira).text
    assert "/notices" in page(place, "/jobs").text


def test_without_notices_it_says_how_to_begin(tmp_path: Path) -> None:
    assert "[notices.targets]" in page(site(tmp_path)).text
