"""Each key of a playbook does what it says, at the very instant and number named; a new one has to be put here."""

from typing import Any

import pytest
from msgspec.structs import fields

from perdure.coordination.messages import Closed, Failed, Ticked
from perdure.coordination.playbook import Allowance, PlanTable, ResourceTable, site_playbook
from perdure.coordination.record import CLOSED, Annotation, Scope
from perdure.model.jobs import Job, JobState
from tests.coordination.test_handlers import NOW, Site, raised, up
from tests.copying import replace

DRAIN = 'levels = { resource_manager = "drain" }\n'


def site(plan: str, resource: str = "") -> Site:
    text = f'[failures.mine]\n{plan}\n[failures.other]\nfall_back = "leave"\n[resources.store]\n{resource}\n'
    return Site(nodes=up("n1", "n2"), playbook=site_playbook(text, "site.toml"))


def raise_at(place: Site, at_s: float, name: str, **subject: Any) -> int:
    """How many actions follow at once."""
    about = subject or {"nodes": ("n1",)}
    one = raised("mine", name, **about)
    return len(place.take(replace(one, record=replace(one.record, time_s=at_s)), now=at_s))


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_budget_is_taken_to_the_full_and_not_by_one_more(limit: int) -> None:
    place = site(f'window_s = 1.0\n{DRAIN}budget = {{ limit = {limit}, window_s = 1000.0, per = "node" }}')
    done = [raise_at(place, NOW + 10.0 * n, f"x{n}") for n in range(5)]
    assert done == [1] * limit + [0] * (5 - limit)
    assert raise_at(place, NOW + 41.0, "of-another", nodes=("n2",)) == min(limit, 1)
    if limit:  # the first is free again once its time is over, and not before
        assert raise_at(place, NOW + 998.0, "early") == 0
        assert raise_at(place, NOW + 1000.0, "free") == 1


@pytest.mark.parametrize(("per", "by_job", "by_node"), [("job", 1, 0), ("node", 0, 1)])
def test_a_budget_is_that_of_what_it_says(per: str, by_job: int, by_node: int) -> None:
    """Of a second fault: of another job on the same node, and of the same job on another node."""
    plan = f'window_s = 1.0\noutlives_job = true\n{DRAIN}budget = {{ limit = 1, per = "{per}" }}'
    for (job_id, node), expected in ((("2", "n1"), by_job), (("1", "n2"), by_node)):
        place = site(plan)
        assert raise_at(place, NOW, "x", job_id="1", nodes=("n1",)) == 1
        assert raise_at(place, NOW + 10.0, "y", job_id=job_id, nodes=(node,)) == expected


@pytest.mark.parametrize("seconds", [1.0, 50.0])
def test_it_is_acted_on_once_it_has_lasted(seconds: float) -> None:
    place = site(f"{DRAIN}lasts_s = {seconds}")
    assert raise_at(place, NOW, "x") == 0
    assert place.take(Ticked(), now=NOW + seconds - 0.1) == []
    assert len(place.take(Ticked(), now=NOW + seconds)) == 1


@pytest.mark.parametrize("seconds", [5.0, 50.0])
def test_the_default_handler_acts_at_the_deadline(seconds: float) -> None:
    place = site(f'levels = {{ resource_manager = "drain" }}\nfall_back = "leave"\ndeadline_s = {seconds}')
    place.take(raised("mine", by="viewer:ada", nodes=("n1",)))  # a user's word waits for a second source
    place.take(Ticked(), now=NOW + seconds - 0.1)
    assert "x" in place.chain.open
    place.take(Ticked(), now=NOW + seconds)
    assert place.chain.ended["x"].owning.note == "written down; nothing is to be done"


@pytest.mark.parametrize("seconds", [5.0, 50.0])
def test_an_equal_fault_is_one_up_to_the_end_of_the_window(seconds: float) -> None:
    for later_s, expected in ((seconds, 0), (seconds + 0.1, 1)):
        place = site(f"{DRAIN}window_s = {seconds}")
        assert raise_at(place, NOW, "x") == 1
        assert raise_at(place, NOW + later_s, "y") == expected


@pytest.mark.parametrize("outlives", [True, False])
def test_a_fault_outlives_the_job_that_met_it_where_that_is_said(outlives: bool) -> None:
    place = site(f"{DRAIN}outlives_job = {str(outlives).lower()}")
    place.jobs["1"] = Job("c", "1", "one", "ada", JobState.FAILED, 0.0)
    assert raise_at(place, NOW, "x", job_id="1", nodes=("n1",)) == outlives


def test_what_is_not_said_is_as_in_the_entry_that_it_is_like() -> None:
    like = site('like = "other"').playbook.plan_for("mine")
    assert like is not None
    assert like.fall_back == "leave"
    for key, value in (("scope", Scope.GLOBAL), ("fall_back", "retry")):
        changed = site(f'like = "other"\n{key} = "{value}"').playbook.plan_for("mine")
        assert getattr(changed, key) == value


NEEDS: dict[str, tuple[str, dict[str, Any]]] = {
    "licence": ('licence = "pfs"', {"licences": ("pfs",)}),
    "partitions": ('partitions = ["gpu"]', {"partition": "gpu"}),
    "directory": ('directory = "/scratch"', {"work_dir": "/scratch/ada"}),
}


@pytest.mark.parametrize("key", NEEDS)
def test_jobs_that_need_a_resource_are_held_and_others_are_not(key: str) -> None:
    resource, traits = NEEDS[key]
    place = site('scope = "global"\nlevels = { resource_manager = "hold-waiting" }', resource)
    place.resources = dict(place.playbook.resources)
    place.wait("1", **traits)
    place.wait("2", partition="cpu", work_dir="/home/ada")
    (hold,) = place.take(raised("mine", scope=Scope.GLOBAL, resource="store"))
    assert hold.attempt.job_id == "1"


def test_no_key_is_left_out() -> None:
    shown = {"scope", "like", "levels", "fall_back", "deadline_s", "window_s", "outlives_job", "lasts_s", "budget"}
    assert {each.encode_name for each in fields(PlanTable)} == shown
    assert {each.name for each in fields(Allowance)} == {"limit", "window_s", "per"}
    assert {each.name for each in fields(ResourceTable)} == NEEDS.keys()


def test_nobody_closes_what_holds_jobs_back_while_it_does() -> None:
    """They would stay held: only the all-clear releases them."""
    place = Site(resources={})
    place.wait("1")
    (hold,) = place.take(raised("storage.down", scope=Scope.GLOBAL, resource="store"))
    place.take(Failed(hold.key, "refused: a person holds it"), now=NOW + 1)  # a person is to see to it
    assert place.chain.ended["x"].needs_a_person
    place.take(Closed("x", Annotation("operator:ada", NOW, CLOSED, "seen to")), now=NOW + 2)
    assert place.chain.ended["x"].is_in_force
