"""Who may say what to the chain of exceptions, at the limits of each right."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.playbook import own_playbook, site_playbook
from perdure.coordination.record import OF_THE_CHAIN, SEEN_BY, AnswerKind, Component, Scope
from perdure.coordination.ruling import Registration
from perdure.errors import Fenced, InputError, NotFound, NotPermitted, PerdureError
from perdure.model.jobs import AttemptState, JobState
from perdure.service.access.auth import Identity, Role
from perdure.service.core.view import SiteView
from perdure.service.exceptions.coordinator import _check_visible
from perdure.service.exceptions.permissions import (
    AHEAD_S,
    BEHIND_S,
    MAX_LEASE_S,
    NOT_YOURS,
    annotated,
    answered,
    enlisted,
    handler_id,
    may_see,
    may_speak_for,
    raised,
)
from tests.copying import replace
from tests.service.web_world import CLUSTER, World

ROOT, MIRA, JONAS = Identity("root", Role.OPERATOR), Identity("mira", Role.VIEWER), Identity("jonas", Role.VIEWER)
RESOURCES = '[resources."pfs:/scratch"]\npartitions = ["gpu"]\n'


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> SiteView:
    """Job 1 of mira runs its second attempt on gpu01 and gpu02, job 2 of jonas waits."""
    world = World(tmp_path_factory.mktemp("raising"), 1_790_000_000.0)
    world.submit("1", "train", "mira", 4)
    world.start("1", "gpu01")
    world.end("1", b"", AttemptState.REQUEUED, to=JobState.PENDING)
    world.pass_time(60)
    world.start("1", "gpu01", "gpu02")
    world.submit("2", "waits", "jonas", 2)
    return world.view()


def said(view: SiteView, who: Identity = MIRA, kind: str = "process.exit", **more: Any) -> ExceptionRaised:
    subject = {"job": "1", **more.pop("subject", {})}
    given = {"type": kind, "severity": 1, "subject": {k: v for k, v in subject.items() if v is not None}, **more}
    return raised(given, who, view)


# -- when


@pytest.mark.parametrize(
    ("off_s", "is_taken"), [(AHEAD_S, True), (-BEHIND_S, True), (AHEAD_S + 1, False), (-BEHIND_S - 1, False)]
)
def test_a_clock_may_be_a_minute_ahead_and_a_week_behind(view: SiteView, off_s: float, is_taken: bool) -> None:
    assert (AHEAD_S, BEHIND_S) == (60.0, 7 * 86400.0)
    if is_taken:
        assert said(view, time=view.now + off_s).record.time_s == view.now + off_s
    else:
        with pytest.raises(InputError, match=r"in the future|days back"):
            said(view, time=view.now + off_s)
    assert said(view).record.time_s == view.now


# -- of which job, and of which start of it


def test_it_is_about_the_latest_start_whether_that_is_named_or_not(view: SiteView) -> None:
    assert view.latest("1") == 2
    assert said(view).record.incarnation == said(view, incarnation=2).record.incarnation == 2
    with pytest.raises(Fenced, match="replaced by 2"):
        said(view, incarnation=1)
    with pytest.raises(InputError, match="never started"):
        said(view, incarnation=3)


@pytest.mark.parametrize(
    ("who", "subject", "error"),
    [
        (JONAS, {}, NotPermitted),
        (MIRA, {"job": None}, NotPermitted),
        (MIRA, {"job": "9"}, NotFound),
        (ROOT, {"job": "9"}, NotFound),
        (MIRA, {"cluster": "borealis"}, InputError),
        (MIRA, {"node": ["gpu03"]}, NotPermitted),
        (JONAS, {"job": "2", "node": ["gpu01"]}, NotPermitted),  # it does not run
    ],
)
def test_a_user_speaks_of_own_jobs_and_of_nodes_on_which_they_run(
    view: SiteView, who: Identity, subject: Mapping[str, Sequence[str] | None], error: type[PerdureError]
) -> None:
    with pytest.raises(error):
        said(view, who, subject=subject)


def test_an_operator_speaks_of_every_job_and_of_none(view: SiteView) -> None:
    assert said(view, ROOT).record.incarnation == 2
    assert said(view, ROOT, subject={"job": None}, incarnation=7).record.incarnation == 7
    assert said(view, MIRA, subject={"node": ["gpu01", "gpu02"]}).record.subject.nodes == ("gpu01", "gpu02")
    assert said(view, MIRA, subject={"cluster": CLUSTER}).record.subject.cluster == CLUSTER


def test_a_fault_of_a_node_is_of_one_that_there_is(view: SiteView) -> None:
    assert said(view, ROOT, "gpu.ecc", subject={"job": None, "node": ["gpu06"]}).record.subject.nodes == ("gpu06",)
    with pytest.raises(NotFound, match="gpu77"):
        said(view, ROOT, "gpu.ecc", subject={"job": None, "node": ["gpu77"]})


# -- of what kind


@pytest.mark.parametrize("kind", ["job", "job.shape", "node.failure", "node.failure.x", "resource.needed"])
@pytest.mark.parametrize("who", [MIRA, ROOT])
def test_what_the_service_itself_tells_nobody_else_does(view: SiteView, who: Identity, kind: str) -> None:
    with pytest.raises(InputError, match="told by the service itself"):
        said(view, who, kind)


def test_suspects_are_not_a_user_s_to_name(view: SiteView) -> None:
    with pytest.raises(InputError, match="told by the service itself"):
        said(view, MIRA, "suspect.node")
    assert said(view, ROOT, "suspect.node").record.type == "suspect.node"
    with pytest.raises(InputError, match="is not known"):
        said(view, MIRA, "jobless.x")


def test_how_far_it_reaches_is_the_playbook_s_to_say(view: SiteView) -> None:
    assert said(view, ROOT, "storage.down", scope="local", subject={"resource": "pfs:/x"}).record.scope is Scope.GLOBAL
    assert said(view, ROOT, "process.exit", scope="global").record.scope is Scope.LOCAL


def test_a_user_speaks_of_what_a_job_that_runs_is_known_to_use(view: SiteView) -> None:
    used = {"resource": "pfs:/scratch"}
    with pytest.raises(NotPermitted, match="not known to use"):
        said(view, MIRA, "storage.down", subject=used)
    known = replace(view, playbook=site_playbook(RESOURCES, "playbook.toml"))
    assert said(known, MIRA, "storage.down", subject=used).guest
    with pytest.raises(NotPermitted, match="does not run"):
        said(known, JONAS, "storage.down", subject={"job": "2", **used})
    with pytest.raises(NotPermitted, match="not known to use"):
        said(known, MIRA, "storage.down", subject={"resource": "pfs:/home"})
    assert not said(known, ROOT, "storage.down", subject={"job": None, "resource": "pfs:/home"}).guest


# -- in whose name


@pytest.mark.parametrize("name", NOT_YOURS)
def test_what_the_service_says_is_refused(view: SiteView, name: str) -> None:
    more: dict[str, Any] = {name: 3}
    with pytest.raises(InputError, match="is set by the service"):
        said(view, **more)


@pytest.mark.parametrize(
    ("who", "given", "name"),
    [(MIRA, "a.b_c-9", "mira+a.b_c-9"), (MIRA, "mira+a", "mira+a"), (ROOT, "a", "a")],
)
def test_a_user_s_ids_bear_the_user_s_name(view: SiteView, who: Identity, given: str, name: str) -> None:
    found = said(view, who, id=given)
    assert (found.record.id, found.is_named) == (name, True)
    assert (found.guest, found.record.detected_by) == (who is MIRA, f"{who.role}:{who.user}")


@pytest.mark.parametrize("given", ["jonas+a", "mira+mira+a", "", ".", "mira+", "a/b", "a b", "ä", 7])
def test_no_other_name_is_taken(view: SiteView, given: str | int) -> None:
    with pytest.raises(InputError):
        said(view, id=given)


def test_without_an_id_each_gets_one_of_its_own(view: SiteView) -> None:
    one, two = said(view), said(view)
    assert one.record.id != two.record.id
    assert not one.is_named


def test_whoever_annotates_is_named_by_the_service(view: SiteView) -> None:
    def noted(who: Identity, component: str, key: str = "k") -> str:
        note = {"component": component, "time": view.now, "key": key, "value": "v"}
        (found,) = said(view, who, annotations=[note]).record.annotations
        return found.component

    assert noted(MIRA, "resource_manager") == "viewer:mira"
    assert noted(ROOT, "prometheus") == "operator:root/prometheus"
    assert noted(ROOT, "") == "operator:root"
    with pytest.raises(InputError, match="is set by the service"):
        noted(ROOT, "x", SEEN_BY)


@pytest.mark.parametrize("key", sorted(OF_THE_CHAIN))
def test_what_decides_is_not_annotated_afterwards(key: str) -> None:
    registration = enlisted("h", "job", [""], 9.0, 9.0, MIRA, 0.0).registration
    with pytest.raises(InputError, match="kept for the service"):
        annotated("x", key, "v", ROOT, 0.0)
    with pytest.raises(InputError, match="kept for the service"):
        answered("x", registration, "annotated", "", {key: "v"}, (), None, 0.0)


def test_an_annotation_is_text_and_bounded() -> None:
    note = annotated("x", "k", {"a": 1}, MIRA, 5.0).annotation
    assert (note.component, note.time_s, note.value) == ("viewer:mira", 5.0, '{"a": 1}')
    assert annotated("x", "k", "v" * 4096, MIRA, 5.0)
    with pytest.raises(InputError, match="has 4097 characters"):
        annotated("x", "k", "v" * 4097, MIRA, 5.0)


# -- handlers


@pytest.mark.parametrize("level", Component)
def test_a_user_registers_at_the_levels_of_jobs_and_workflows_alone(level: Component) -> None:
    if level in (Component.JOB, Component.WORKFLOW):
        assert enlisted("h", level, ["app"], 60.0, 30.0, MIRA, 0.0).registration.owner == "mira"
    else:
        with pytest.raises(NotPermitted, match="is the site's"):
            enlisted("h", level, ["app"], 60.0, 30.0, MIRA, 0.0)
    assert enlisted("h", level, ["app"], 60.0, 30.0, ROOT, 0.0).registration.owner == ""


@pytest.mark.parametrize(("lease_s", "until_s"), [(60.0, 160.0), (MAX_LEASE_S, 3700.0), (MAX_LEASE_S + 1, 3700.0)])
def test_a_lease_is_an_hour_at_most(lease_s: float, until_s: float) -> None:
    found = enlisted("h", "job", ["app"], lease_s, 30.0, MIRA, 100.0).registration
    assert found == Registration("h", Component.JOB, ("app",), "mira", until_s, "mira", 30.0)
    with pytest.raises(InputError):
        enlisted("h", "job", ["App"], 60.0, 30.0, MIRA, 100.0)


def test_names_of_handlers_are_each_user_s_own() -> None:
    assert handler_id("h", MIRA) == handler_id("mira+h", MIRA) == "mira+h"
    assert handler_id("jonas+h", MIRA) == "mira+jonas+h"
    assert handler_id("mira+h", ROOT) == "mira+h"


@pytest.mark.parametrize(
    ("by", "who", "may"),
    [
        (MIRA, MIRA, True), (MIRA, JONAS, False), (MIRA, ROOT, True), (ROOT, ROOT, True), (ROOT, MIRA, False),
        (ROOT, Identity("root", Role.VIEWER), False), (ROOT, Identity("other", Role.OPERATOR), False),
        (Identity("root", Role.VIEWER), ROOT, True),
    ],
)  # fmt: skip
def test_who_may_speak_for_a_handler(by: Identity, who: Identity, may: bool) -> None:
    registration = enlisted("h", "job", ["app"], 60.0, 30.0, by, 0.0).registration
    if may:
        assert may_speak_for(registration, "h", who) is registration
    else:
        with pytest.raises(NotPermitted):
            may_speak_for(registration, "h", who)
    with pytest.raises(NotFound):
        may_speak_for(None, "h", who)


def test_a_deferred_answer_says_until_when_and_notes_bear_the_level() -> None:
    registration = enlisted("h", "workflow", ["app"], 60.0, 30.0, MIRA, 0.0).registration
    with pytest.raises(InputError, match="until"):
        answered("x", registration, "deferred", "", {}, (), None, 0.0)
    found = answered("x", registration, "deferred", "later", {"k" * 300: "v" * 5000}, ("requeue",), 9.0, 7.0)
    (note,) = found.ruling.annotations
    assert (note.component, note.time_s, len(note.key), len(note.value)) == ("workflow", 7.0, 256, 4096)
    assert (found.handler, found.ruling.kind, found.ruling.note) == ("h", AnswerKind.DEFERRED, "later")
    assert (found.ruling.forbids, found.ruling.until_s) == (("requeue",), 9.0)


def test_who_may_see_what(view: SiteView) -> None:
    of_mira, of_nobody = said(view).record, said(view, ROOT, subject={"job": None}).record
    assert [may_see(of_mira, who, view) for who in (MIRA, JONAS, ROOT)] == [True, False, True]
    assert [may_see(of_nobody, who, view) for who in (MIRA, JONAS, ROOT)] == [True] * 3
    known = replace(view, state=replace(view.state, chain=Chain(open={of_mira.id: of_mira})))
    _check_visible(of_mira.id, MIRA, known)
    for exception_id, who in ((of_mira.id, JONAS), ("another", MIRA)):
        with pytest.raises(NotFound):
            _check_visible(exception_id, who, known)
    earlier = replace(of_mira, subject=replace(of_mira.subject, job_id="2"), time_s=view.state.known.jobs["2"].submit_s)
    assert may_see(earlier, JONAS, view)  # two clocks may lie a second apart
    assert may_see(replace(earlier, time_s=earlier.time_s - 1.0), JONAS, view)
    earlier = replace(earlier, time_s=earlier.time_s - 1.001)  # of a job that had the id before
    assert [may_see(earlier, who, view) for who in (JONAS, ROOT)] == [False, True]
    gone = replace(of_mira, subject=replace(of_mira.subject, job_id="99"))
    assert [may_see(gone, who, view) for who in (MIRA, ROOT)] == [False, True]
    assert own_playbook().plan_for("process.exit") is not None
