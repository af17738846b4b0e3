"""Chains as the service sees them: by the comments of their jobs, on pages and in the API."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from perdure.model.job_comment import ChainLink, chain_link_of
from perdure.model.jobs import AttemptState, Job, JobState
from perdure.service.store.queries import chains
from perdure.service.store.queries.chains import SeenChain, SeenLink, chain_of
from perdure.service.web.pages import chains as pages
from perdure.service.web.pages.chain_timeline import MOST_LINKS, WIDTH, chain_timeline
from perdure.succession.spans import LinkSpan, LinkTimes, all_times, sums_of
from perdure.waits.forecast import LEVELS, WaitForecast
from tests.copying import replace
from tests.service.web_world import CLUSTER, HOUR, Site, World, site

TAG = "unet-1.5f00ba11"
WHY = "the 80% quantile of the wait is 1.0 h, and 1.0 h are left"


def chain(world: World) -> None:
    """Three links of mira's: the second overlaps the first by ten minutes, the third waits 20 minutes after its end."""
    link(world, "301", 1)
    world.start("301", "gpu01")
    world.pass_time(2 * HOUR)
    link(world, "302", 2, said_s=(600.0, 3600.0, 7200.0), why=WHY)
    world.pass_time(HOUR)
    world.start("302", "gpu02")
    world.pass_time(600)
    world.end("301", b"saved\n", AttemptState.COMPLETED)
    world.pass_time(HOUR)
    link(world, "303", 3, why="the link ends")
    world.pass_time(600)
    world.end("302", b"saved\n", AttemptState.COMPLETED)
    world.pass_time(1200)
    world.start("303", "gpu03")
    world.pass_time(60)
    link(world, "304", 4, why="it pays")
    world.pass_time(60)
    world.look()


def link(world: World, job_id: str, number: int, user: str = "mira", **more: Any) -> None:
    world.submit(job_id, "unet", user, link=ChainLink(TAG, number, **more))


@pytest.fixture
def place(tmp_path: Path) -> Site:
    place = site(tmp_path)
    chain(place.world)
    return place


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("", None),
        ("perdure-keep=nothing", None),
        ("perdure: retry=never perdure-keep=a.1/12.3", ChainLink("a.1", 12, 3)),
        ("perdure-keep=a/2.1 (60-120-600 s) because it pays", ChainLink("a", 2, 1, (60.0, 120.0, 600.0), "it pays")),
        ("perdure-keep=a/2.1 because of that", ChainLink("a", 2, 1, (), "of that")),
    ],
)
def test_a_comment_says_which_link_a_job_is(comment: str, found: ChainLink | None) -> None:
    assert chain_link_of(comment) == found


def test_a_reason_breaks_no_line_or_field_of_slurms() -> None:
    words = ChainLink("a", 2, why="50 %|x\n\"y\" 'z' \\ `id` $HOME é" + 200 * "w").in_words()
    assert not set(words) & set("|\n\"'\\`$é")
    assert chain_link_of(words).number == 2
    assert len(words) < 220


def test_any_forecast_is_read_back_from_the_comment() -> None:
    """A comment whose waits had more digits would be read without its reason, or be taken for another's."""
    link = chain_link_of(ChainLink("a", 2, said_s=(-1.0, 60.0, 1e12), why="it pays").in_words())
    assert link == ChainLink("a", 2, 1, (0.0, 60.0, 999_999_999.0), "it pays")


def test_gaps_and_overlaps_are_those_between_links_and_reactive_gaps_are_their_waits() -> None:
    spans = [LinkSpan(1, 5, 10, 100), LinkSpan(2, 50, 80, 200), LinkSpan(3, 190, 230, 300), LinkSpan(4, 290)]
    first, second, third, fourth = all_times(spans)
    assert (first.gap_s, first.waited_s) == (None, 5)
    assert (second.gap_s, second.overlap_s, second.reactive_gap_s) == (0, 20, 30)
    assert (third.gap_s, third.overlap_s, third.reactive_gap_s) == (30, 0, 40)
    assert fourth.gap_s is None
    sums = sums_of([first, second, third, fourth])
    assert (sums.gap_s, sums.overlap_s, sums.reactive_gap_s) == (30, 20, 70)


def test_a_submission_at_the_end_or_later_goes_as_it_would_reactively() -> None:
    told = all_times([LinkSpan(1, 0, 1, 100), LinkSpan(2, 120, 150, 200)])[1]
    assert told.gap_s == told.reactive_gap_s == 50


def test_the_api_tells_of_chains_and_their_links(place: Site) -> None:
    client = place.client(place.mira)
    (row,) = client.get("/api/v1/chains").json()["items"]
    assert (row["chain"], row["user"], row["links"], row["job"], row["state"]) == (TAG, "mira", 4, "304", "running")
    assert (row["interrupted_s"], row["overlap_s"]) == (1200, 600)
    assert row["interrupted_reactively_s"] == HOUR + 1800
    links = client.get(f"/api/v1/chains/mira/{TAG}").json()["all_links"]
    assert [each["gap_s"] for each in links] == [None, 0, 1200, None]
    assert links[1]["said_wait_s"] == [600, 3600, 7200]
    assert links[1]["why"] == WHY
    assert client.get(f"/api/v1/chains/jonas/{TAG}").status_code == 404
    assert client.get("/api/v1/chains?user=jonas").json()["items"] == []


def test_a_restart_forgets_no_chain(place: Site) -> None:
    before = place.client(place.mira).get(f"/api/v1/chains/mira/{TAG}").json()
    place.world.restart()
    place.world.look()
    assert place.client(place.mira).get(f"/api/v1/chains/mira/{TAG}").json() == before


def test_another_users_job_that_says_the_same_is_no_link_of_it(place: Site) -> None:
    link(place.world, "400", 4, user="jonas")
    found = chain_of(place.app.state.web.reader, "mira", TAG)
    assert [each.job.job_id for each in found.links] == ["301", "302", "303", "304"]
    assert len(place.client(place.mira).get("/api/v1/chains").json()["items"]) == 2


def test_many_jobs_of_another_user_hide_no_link(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MAX_LINKS", 5)
    for number in range(9):
        link(place.world, str(600 + number), number, user="jonas")
    found = chain_of(place.app.state.web.reader, "mira", TAG)
    assert [each.job.job_id for each in found.links] == ["301", "302", "303", "304"]
    items = place.client(place.operator).get("/api/v1/chains?user=mira").json()["items"]
    assert [(item["user"], item["links"], item["job"]) for item in items] == [("mira", 4, "304")]


def test_of_two_submissions_of_a_link_the_one_that_ran_counts(place: Site) -> None:
    link(place.world, "299", 3, tries=2)
    links = place.client(place.mira).get(f"/api/v1/chains/mira/{TAG}").json()["all_links"]
    assert [each["job"] for each in links] == ["301", "302", "303", "304"]


def test_chains_come_page_by_page(place: Site) -> None:
    for number in range(5):
        place.world.submit(str(500 + number), link=ChainLink(f"c-{number}", 1))
    client = place.client(place.mira)
    first = client.get("/api/v1/chains?limit=4").json()
    second = client.get(f"/api/v1/chains?limit=4&cursor={first['next_cursor']}").json()
    assert [each["chain"] for each in first["items"]] == ["c-4", "c-3", "c-2", "c-1"]
    assert [each["chain"] for each in second["items"]] == ["c-0", TAG]
    assert second["next_cursor"] is None


def test_the_page_shows_the_time_line_and_what_was_decided(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = place.world.now
    told = WaitForecast(now_s, tuple(3600.0 * level for level in LEVELS))
    monkeypatch.setattr(pages, "forecast_of", lambda web, chain: told)
    client = place.client(place.operator)
    assert f'href="/chains/mira/{TAG}"' in client.get("/chains").text
    text = client.get(f"/chains/mira/{TAG}").text
    assert text.count('class="stripe-bar chain-bar"') == 4
    assert text.count('class="chain-gap" x=') == 1
    assert text.count('class="chain-overlap" x=') == 1
    assert text.count('class="fan-band fan-1"') == 1
    assert "The 80% quantile of the wait is 1.0 h" in text
    rows = list(csv.DictReader(io.StringIO(client.get("/chains?format=csv").text)))
    assert rows[0]["interrupted_s"] == "1200.0"


def test_without_chains_the_page_says_how_one_is_begun(tmp_path: Path) -> None:
    place = site(tmp_path)
    assert "perdure keep" in place.client(place.mira).get("/chains").text
    assert place.client(place.mira).get("/chains/mira/none").status_code == 404


def test_nothing_is_drawn_outside_of_the_axis_and_a_long_forecast_leaves_room(place: Site) -> None:
    found = chain_of(place.app.state.web.reader, "mira", TAG)
    now = place.world.now
    laid = chain_timeline(found, now, WaitForecast(now, tuple(10 * 86_400.0 * level for level in LEVELS)))
    parts = [part for lane in laid.lanes for part in (lane.wait, lane.run, lane.gap, lane.overlap, *lane.fan) if part]
    assert all(x >= 0 and x + width <= WIDTH + 0.1 for x, width in parts)
    assert laid.now is not None
    assert laid.now >= 500
    assert laid.is_cut
    short = chain_timeline(found, now, WaitForecast(now, tuple(3600.0 * level for level in LEVELS)))
    assert not short.is_cut
    assert short.end_s == pytest.approx(now + 0.95 * 3600)
    assert len(laid.lanes[-1].fan) == 3


def test_a_chain_that_is_over_ends_where_its_last_link_did() -> None:
    job = Job(CLUSTER, "1", "unet", "mira", JobState.COMPLETED, 100.0, link=ChainLink(TAG, 1))
    one = SeenChain(TAG, "mira", (SeenLink(1, job, LinkSpan(1, 100.0, 200.0, 300.0)),))
    laid = chain_timeline(one, 9_999.0)
    assert (laid.start_s, laid.end_s, laid.now) == (100.0, 300.0, None)
    assert laid.lanes[0].run == (500.0, 500.0)


def seen_links(*spans: LinkSpan) -> SeenChain:
    jobs = [Job(CLUSTER, str(at), "unet", "mira", JobState.COMPLETED, span.submit_s) for at, span in enumerate(spans)]
    parts = zip(spans, jobs, all_times(spans), strict=True)
    return SeenChain(TAG, "mira", tuple(SeenLink(span.number, job, span, times) for span, job, times in parts))


def test_of_a_long_chain_the_first_link_that_is_drawn_has_its_gap_too() -> None:
    spans = [LinkSpan(at, 100.0 * at, 100.0 * at + 20.0, 100.0 * at + 90.0) for at in range(MOST_LINKS + 2)]
    lanes = chain_timeline(seen_links(*spans), 1e6).lanes
    assert len(lanes) == MOST_LINKS
    assert all(lane.gap is not None for lane in lanes)


def test_a_gap_is_drawn_from_the_end_of_the_last_link_that_has_one() -> None:
    """One whose end is not known leads nowhere."""
    spans = (LinkSpan(1, 0.0, 10.0, 100.0), LinkSpan(2, 0.0, 200.0), LinkSpan(3, 0.0, 300.0, 400.0))
    found = seen_links(*spans)
    links = [replace(link, times=LinkTimes(gap_s=1.0)) for link in found.links]
    lanes = chain_timeline(replace(found, links=tuple(links)), 400.0).lanes
    assert lanes[1].gap == (WIDTH / 4, WIDTH / 4)
    assert lanes[2].gap == (WIDTH / 4, WIDTH / 2)
