"""The chain's laws, at every step of any story: one owner, no act without it, nothing taken back, everything ends."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.coordination.chain import (
    MAX_BUDGETS,
    MAX_ENDED,
    MAX_HANDLERS_OF_ONE_GUEST,
    MAX_OF_GUESTS,
    MAX_OF_ONE_GUEST,
    MAX_PASSED_ON,
    advance,
    restored,
)
from perdure.coordination.chain_state import Chain
from perdure.coordination.folding import FRESH_S, equal_of, is_nothing_new, open_equal
from perdure.coordination.messages import (
    Annotated,
    Answered,
    Changed,
    Closed,
    Effect,
    ExceptionRaised,
    Failed,
    HandlerEnlisted,
    Input,
    Left,
    ReadBack,
    Refused,
    Settled,
    Ticked,
    TurnBegun,
)
from perdure.coordination.record import (
    CLOSED,
    READ_BACK,
    START,
    Annotation,
    Answer,
    AnswerKind,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    ExceptionState,
    Scope,
    Subject,
)
from perdure.coordination.record_changes import MAX_ANNOTATIONS, MAX_ANNOTATIONS_OF_GUESTS, MAX_SOURCES, seen_again
from perdure.coordination.ruling import Registration, Ruling, declined, handled
from perdure.model.actions import Drain
from tests.copying import replace

DEADLINE_S, WINDOW_S = 100.0, 50.0


class Bench:
    """Handlers of its own that say what they are told to say."""

    def __init__(
        self, rulings: dict[Any, Any] | None = None, fall_back: Ruling | None = None, stale: tuple[int, ...] = ()
    ) -> None:
        self.rulings = rulings or {}
        self.last = fall_back or declined("nobody")
        self.stale = stale
        self.asked = []

    def levels(self, record: ExceptionRecord) -> tuple[Any, ...]:
        return tuple(Component)

    def rule(self, record: ExceptionRecord, component: str, chain: Chain) -> Any:
        self.asked.append(component)
        return self.rulings.get(component, declined("not mine"))

    def fall_back(self, record: ExceptionRecord, chain: Chain) -> Ruling:
        return self.last

    def deadline_s(self, record: ExceptionRecord) -> float:
        return DEADLINE_S

    def window_s(self, record: ExceptionRecord) -> float:
        return WINDOW_S

    def is_stale(self, record: ExceptionRecord) -> bool:
        return record.incarnation in self.stale

    is_past = is_stale

    def owner_of(self, record: ExceptionRecord) -> str:
        return "ada"


def record(
    name: str = "x",
    *,
    job: str = "1",
    incarnation: int = 1,
    scope: Scope = Scope.LOCAL,
    now: float = 0.0,
    kind: str = "process.exit",
    by: str = "ada",
) -> ExceptionRecord:
    subject = Subject("c", job)
    return ExceptionRecord(name, kind, 0, scope, subject, now, incarnation=incarnation, detected_by=by)


def drain(name: str = "x") -> Ruling:
    return handled("drained", Drain("n1", "broken", name))


def handler(
    name: str, component: Component = Component.JOB, types: tuple[str] = ("",), until_s: float = 1000.0, owner: str = ""
) -> Registration:
    return Registration(name, component, types, "root", until_s, owner)


def acts(effects: list[Effect]) -> list[Any]:
    return [action for effect in effects if isinstance(effect, Changed) for action in effect.actions]


def asked(effects: list[Effect]) -> list[Any]:
    return [effect.handler for effect in effects if isinstance(effect, TurnBegun)]


def refused(effects: list[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, Refused)]


@given(scope=st.sampled_from(Scope), kinds=st.dictionaries(st.sampled_from(Component), st.booleans()))
def test_the_first_in_order_that_handles_owns_it(scope: Scope, kinds: dict[Any, Any]) -> None:
    handlers = Bench({c: drain() if willing else declined("no") for c, willing in kinds.items()})
    chain, effects = advance(Chain(), [ExceptionRaised(record(scope=scope))], handlers, 0.0)
    willing = [c for c in scope.order if kinds.get(c)]
    (done,) = chain.ended.values()
    assert done.owner == (willing[0] if willing else None)
    assert done.state is (ExceptionState.HANDLED if willing else ExceptionState.ESCALATED)
    last = scope.order.index(willing[0]) if willing else len(scope.order) - 1
    assert handlers.asked == list(scope.order[: last + 1])
    assert len(acts(effects)) == bool(willing)


def test_a_second_owner_is_impossible() -> None:
    owned = record().with_answer(handled("mine").answer(Component.JOB, 0.0))
    with pytest.raises(ValueError, match="owned by job"):
        owned.with_answer(handled("mine too").answer(Component.SCHEDULER, 0.0))


def test_a_registered_handler_is_asked_before_our_own_at_its_level_and_may_own_it() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, effects = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    assert asked(effects) == ["app"]
    assert acts(effects) == []
    assert chain.open["x"].state is ExceptionState.IN_CHAIN
    chain, effects = advance(chain, [Answered("x", "app", handled("relaxed the mesh"))], handlers, 1.0)
    assert chain.ended["x"].owner is Component.JOB
    assert acts(effects) == []


def test_what_a_handler_notes_goes_with_the_exception() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    note = Annotation("job", 1.0, "checkpoint", "step 1200")
    ruling = Ruling(AnswerKind.ANNOTATED, "go back to 1200", annotations=(note,))
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    chain, effects = advance(chain, [Answered("x", "app", ruling)], handlers, 1.0)
    assert chain.ended["x"].annotations == (note,)
    assert chain.ended["x"].owner is Component.SCHEDULER
    assert len(acts(effects)) == 1


def test_a_silent_handler_is_passed_by_and_its_late_answer_is_refused() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    chain, effects = advance(chain, [Ticked()], handlers, 29.0)
    assert effects == []
    chain, effects = advance(chain, [Ticked()], handlers, 31.0)
    assert chain.ended["x"].owner is Component.SCHEDULER
    assert [a.note for a in chain.ended["x"].verdicts if a.handler] == ["app gave no answer in time"]
    chain, effects = advance(chain, [Answered("x", "app", handled("me"))], handlers, 32.0)
    assert "handled already" in refused(effects)[0].what


def test_a_handler_whose_lease_ran_out_gets_no_turn() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    dead = HandlerEnlisted(handler("app", until_s=5.0))
    chain, effects = advance(Chain(), [dead, ExceptionRaised(record())], handlers, 6.0)
    assert asked(effects) == []
    chain, _ = advance(chain, [Ticked()], handlers, 6.0)
    assert chain.handlers == {}


def test_a_handler_that_dies_in_its_turn_is_passed_by() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    chain, _effects = advance(chain, [Left("app")], handlers, 1.0)
    assert chain.ended["x"].owner is Component.SCHEDULER


def test_of_many_that_wait_for_a_handler_that_died_a_few_are_passed_on_at_a_time() -> None:
    handlers, many = Bench({Component.SCHEDULER: drain()}), MAX_PASSED_ON + 3
    raised = [ExceptionRaised(record(f"x{job}", job=str(job)), own=True) for job in range(many)]
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), *raised], handlers, 0.0)
    chain, _ = advance(chain, [Left("app")], handlers, 1.0)
    assert len(chain.open) == many - MAX_PASSED_ON
    assert not [turn for turn in chain.turns.values() if turn.handler]  # whoever takes its name is asked nothing of it
    chain, _ = advance(chain, [Ticked()], handlers, 1.5)
    assert not chain.open
    assert {r.owner for r in chain.ended.values()} == {Component.SCHEDULER}


def test_an_answer_is_given_once_and_in_turn() -> None:
    handlers = Bench()
    both: list[Input] = [HandlerEnlisted(handler("a")), HandlerEnlisted(handler("b")), ExceptionRaised(record())]
    chain, effects = advance(Chain(), both, handlers, 0.0)
    assert asked(effects) == ["a"]
    chain, effects = advance(chain, [Answered("x", "b", handled("me first"))], handlers, 1.0)
    assert "not the turn of b" in refused(effects)[0].what
    chain, effects = advance(chain, [Answered("x", "a", declined("no"))], handlers, 1.0)
    assert asked(effects) == ["b"]
    _, effects = advance(chain, [Answered("x", "a", handled("on second thoughts"))], handlers, 2.0)
    assert "not the turn of a" in refused(effects)[0].what


def test_who_puts_it_off_holds_the_chain_until_then_and_no_longer() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    later = Ruling(AnswerKind.DEFERRED, "rolling back", until_s=60.0)
    chain, effects = advance(chain, [Answered("x", "app", later)], handlers, 1.0)
    chain, effects = advance(chain, [Ticked()], handlers, 59.0)
    assert acts(effects) == []
    done, _ = advance(chain, [Answered("x", "app", handled("rolled back"))], handlers, 59.5)
    assert done.ended["x"].owner is Component.JOB
    late, effects = advance(chain, [Ticked()], handlers, 61.0)
    assert late.ended["x"].owner is Component.SCHEDULER


def test_at_the_deadline_the_default_handler_acts() -> None:
    handlers = Bench(fall_back=drain())
    slow = replace(handler("app"), answer_s=1e6, until_s=1e6)
    chain, _ = advance(Chain(), [HandlerEnlisted(slow), ExceptionRaised(record())], handlers, 0.0)
    chain, effects = advance(chain, [Ticked()], handlers, DEADLINE_S + 1)
    assert len(acts(effects)) == 1
    assert chain.ended["x"].owner is Component.SCHEDULER


@pytest.mark.parametrize(("wanted_s", "deadline_s"), [(None, DEADLINE_S), (10.0, 10.0), (1e6, DEADLINE_S), (-5.0, 0.0)])
def test_who_raises_it_may_want_an_earlier_deadline_and_no_later_one(wanted_s: float | None, deadline_s: float) -> None:
    both: list[Input] = [HandlerEnlisted(handler("app")), ExceptionRaised(replace(record(), deadline_s=wanted_s))]
    chain, _ = advance(Chain(), both, Bench(), 0.0)
    known = chain.find("x")
    assert known is not None
    assert known.deadline_s == deadline_s


def test_a_hundred_thousand_equal_faults_are_one_action() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    storm = [ExceptionRaised(record(f"x{i}")) for i in range(100_000)]
    chain, effects = advance(Chain(), storm, handlers, 0.0)
    assert len(acts(effects)) == 1
    assert chain.ended["x0"].repeats == 99_999
    assert len(effects) == 1


def test_equal_faults_after_the_window_are_new() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, _ = advance(Chain(), [ExceptionRaised(record("x"))], handlers, 0.0)
    chain, _effects = advance(chain, [ExceptionRaised(record("y", now=WINDOW_S + 1))], handlers, WINDOW_S + 1)
    assert set(chain.ended) == {"x", "y"}


def test_all_users_of_one_shared_resource_raise_one_exception() -> None:
    one = replace(record("x", scope=Scope.GLOBAL), subject=Subject("c", "1", resource="pfs"))
    other = replace(record("y", scope=Scope.GLOBAL), subject=Subject("c", "2", resource="pfs"))
    assert equal_of(one) == equal_of(other)
    assert equal_of(record(job="1")) != equal_of(record(job="2"))


@pytest.mark.parametrize("severity", range(4))
def test_what_is_worse_than_what_is_known_is_new(severity: int) -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, _ = advance(Chain(), [ExceptionRaised(replace(record("x"), severity=2))], handlers, 0.0)
    chain, _ = advance(chain, [ExceptionRaised(replace(record("y"), severity=severity))], handlers, 1.0)
    assert ("y" in chain.ended) is (severity < 2)


def test_what_the_site_says_again_is_one_with_the_worst_that_it_said_whatever_a_user_said_since() -> None:
    mild, worse, again = (
        replace(record(name, by="operator:root"), severity=n) for name, n in zip("abc", (6, 1, 1), strict=True)
    )
    guest = replace(record("bob+d", by="viewer:bob"), severity=0)
    for known in ((mild, worse), (worse, mild), (mild, guest, worse)):
        assert open_equal(replace(Chain(), open={each.id: each for each in known}), again) is worse


@pytest.mark.parametrize("is_over", [False, True])
def test_what_holds_jobs_is_what_the_site_says_again_until_its_all_clear(is_over: bool) -> None:
    """However long ago it was ruled on, and though a user's claim came since."""
    said = replace(record("a", by="operator:root"), subject=Subject("c", resource="pfs"), scope=Scope.GLOBAL)
    handlers = Bench({Component.SCHEDULER: replace(handled("nobody starts"), forbids=(START,))})
    chain, _ = advance(Chain(), [ExceptionRaised(said)], handlers, 0.0)
    if is_over:
        chain, _ = advance(chain, [Settled("a", ExceptionOutcome.RECOVERED)], handlers, 1.0)
    guest = replace(said, id="b", severity=-1, detected_by="viewer:bob")
    chain, _ = advance(chain, [ExceptionRaised(guest)], handlers, WINDOW_S + 2.0)
    assert "b" in chain.ended
    chain, _ = advance(chain, [ExceptionRaised(replace(said, id="c"))], handlers, WINDOW_S + 3.0)
    assert ("c" in chain.ended, chain.ended["a"].repeats) == ((True, 0) if is_over else (False, 1))


@pytest.mark.parametrize("scope", Scope)
def test_faults_of_a_job_a_node_and_a_resource_of_one_name_are_three(scope: Scope) -> None:
    subjects = Subject("c", "n1"), Subject("c", nodes=("n1",)), Subject("c", resource="n1")
    faults = [replace(record(scope=scope), subject=subject) for subject in subjects]
    if scope is Scope.GLOBAL:  # those of all jobs are one
        faults = faults[1:]
    assert len({equal_of(fault) for fault in faults}) == len(faults)


@pytest.mark.parametrize("outcome", [ExceptionOutcome.RECOVERED, ExceptionOutcome.WITHDRAWN])
def test_a_fault_that_comes_back_is_new(outcome: ExceptionOutcome) -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, _ = advance(
        Chain(), [ExceptionRaised(record("x")), Settled("x", outcome), ExceptionRaised(record("y"))], handlers, 0.0
    )
    assert set(chain.ended) == {"x", "y"}


def test_what_nobody_took_is_new_when_another_says_it_and_the_same_when_the_same_does() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record("x")), ExceptionRaised(record("y"))], Bench(), 0.0)
    assert set(chain.ended) == {"x"}
    chain, _ = advance(chain, [ExceptionRaised(record("z", by="bob"))], Bench(), 1.0)
    assert set(chain.ended) == {"x", "z"}


@pytest.mark.parametrize(("by", "is_one"), [("user:ada", True), ("user:bob", True), ("user:eve", False)])
def test_what_two_said_and_nobody_took_is_the_same_when_either_says_it_again(by: str, is_one: bool) -> None:
    handlers = Bench({Component.SCHEDULER: Ruling(AnswerKind.DEFERRED, "only one says so", until_s=1e6)})
    chain, _ = advance(Chain(), [ExceptionRaised(record("x", by="user:ada"))], handlers, 0.0)
    chain, _ = advance(chain, [ExceptionRaised(record("y", by="user:bob"))], handlers, 1.0)
    chain, _ = advance(chain, [Ticked()], handlers, DEADLINE_S)
    assert chain.ended["x"].needs_a_person
    chain, _ = advance(chain, [ExceptionRaised(record("z", by=by))], handlers, DEADLINE_S + 1)
    assert ("z" not in chain.open) is is_one


def test_a_clock_that_is_behind_starts_no_storm() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    storm = [ExceptionRaised(record(f"x{i}", now=-700.0)) for i in range(50)]
    chain, _ = advance(Chain(), storm, handlers, 0.0)
    assert chain.ended["x0"].repeats == 49


def test_an_id_that_is_taken_is_refused_and_what_bears_it_stays() -> None:
    handlers = Bench()
    chain, _ = advance(Chain(), [ExceptionRaised(record("x"))], handlers, 0.0)
    other = ExceptionRaised(record("x", kind="app.nan"))
    again, effects = advance(chain, [other], handlers, 1.0)
    assert again is chain
    assert [(e.given, "taken" in e.what) for e in effects] == [(other, True)]


def test_users_cannot_fill_the_chain() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: Ruling(AnswerKind.DEFERRED, "wait", until_s=50.0)})
    flood = [ExceptionRaised(record(f"x{i}", job=str(i)), guest=True) for i in range(MAX_OF_ONE_GUEST + 5)]
    chain, effects = advance(Chain(), flood, handlers, 0.0)
    assert len(chain.open) == MAX_OF_ONE_GUEST
    assert sum(isinstance(effect, Refused) for effect in effects) == 5
    others = [
        ExceptionRaised(record("b", job="b", by="bob"), guest=True),
        ExceptionRaised(record("s", job="s", by="site")),
    ]
    chain, _ = advance(chain, others, handlers, 1.0)
    assert {"b", "s"} <= chain.open.keys()


def test_all_users_together_leave_room_for_the_site() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: Ruling(AnswerKind.DEFERRED, "wait", until_s=50.0)})
    users = [f"user{i}" for i in range(MAX_OF_GUESTS // MAX_OF_ONE_GUEST + 1)]
    flood = [
        ExceptionRaised(record(f"{user}.{i}", job=f"{user}.{i}", by=user), guest=True)
        for user in users
        for i in range(MAX_OF_ONE_GUEST)
    ]
    chain, _ = advance(Chain(), flood, handlers, 0.0)
    assert len(chain.open) == MAX_OF_GUESTS
    chain, effects = advance(chain, [ExceptionRaised(record("s", job="s", by="perdure"))], handlers, 1.0)
    assert "s" in chain.open
    assert not any(isinstance(effect, Refused) for effect in effects)


def test_users_annotations_leave_room_for_the_site() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record())], Bench(), 0.0)
    flood = [Annotated("x", Annotation("viewer:ada", 1.0, f"k{i}", "v")) for i in range(MAX_ANNOTATIONS)]
    chain, effects = advance(chain, flood, Bench(), 1.0)
    assert sum(isinstance(effect, Refused) for effect in effects) == MAX_ANNOTATIONS - MAX_ANNOTATIONS_OF_GUESTS
    chain, effects = advance(chain, [Annotated("x", Annotation("operator:root", 2.0, "k", "v"))], Bench(), 2.0)
    assert not any(isinstance(effect, Refused) for effect in effects)
    assert chain.find("x").annotations[-1].component == "operator:root"


@pytest.mark.parametrize(
    ("by", "most"), [("viewer:eve", MAX_ANNOTATIONS_OF_GUESTS), ("operator:root", MAX_ANNOTATIONS)]
)
def test_what_a_second_source_brings_counts_like_its_other_annotations(by: str, most: int) -> None:
    notes = tuple(Annotation(by, 0.0, f"k{i}", "v") for i in range(MAX_ANNOTATIONS))
    seen = seen_again(record(by="viewer:ada"), replace(record(by=by), annotations=notes), 1.0)
    assert len(seen.annotations) == most


def test_what_ended_at_once_takes_no_share() -> None:
    flood = [ExceptionRaised(record(f"x{i}", job=str(i)), guest=True) for i in range(2 * MAX_OF_ONE_GUEST)]
    chain, _ = advance(Chain(), flood, Bench(fall_back=handled("noted")), 0.0)
    assert len(chain.ended) == 2 * MAX_OF_ONE_GUEST


def test_a_handler_whose_lease_has_run_out_owns_nothing() -> None:
    """Also where its answer comes before anybody has looked at the clock."""
    start: list[Input] = [HandlerEnlisted(handler("h", until_s=10.0)), ExceptionRaised(record())]
    chain, _ = advance(Chain(), start, Bench(), 0.0)
    assert chain.turns["x"].handler == "h"
    late, effects = advance(chain, [Answered("x", "h", drain())], Bench(), 10.0)
    assert [type(effect) for effect in effects] == [Refused]
    assert late.find("x").owner is None
    in_time, effects = advance(chain, [Answered("x", "h", drain())], Bench(), 9.9)
    assert in_time.find("x").owner is Component.JOB


def test_what_was_folded_before_a_restart_is_folded_after_it() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, first = advance(Chain(), [ExceptionRaised(record())], handlers, 0.0)
    assert len(acts(first)) == 1
    again = restored([*chain.ended.values(), *chain.open.values()], chain.handlers.values(), chain.spent)
    again, effects = advance(again, [ExceptionRaised(record("y"))], handlers, 10.0)
    assert (acts(effects), again.find("y"), again.find("x").repeats) == ([], None, 1)


def test_what_comes_after_a_restart_is_folded_into_the_latest_of_its_equals() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, later_s = Chain(), 2 * WINDOW_S
    for name, now in (("x", 0.0), ("y", later_s)):
        chain, _ = advance(chain, [ExceptionRaised(record(name))], handlers, now)
    again = restored(chain.ended.values(), (), chain.spent)
    again, effects = advance(again, [ExceptionRaised(record("z"))], handlers, later_s + 1.0)
    assert (acts(effects), again.find("z"), again.find("y").repeats) == ([], None, 1)


@pytest.mark.parametrize(("later_s", "is_one"), [(WINDOW_S, True), (WINDOW_S + 0.1, False)])
def test_an_equal_fault_is_one_up_to_the_end_of_the_window(later_s: float, is_one: bool) -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, _ = advance(Chain(), [ExceptionRaised(record())], handlers, 0.0)
    chain, _ = advance(chain, [ExceptionRaised(record("y"))], handlers, later_s)
    assert (chain.find("y") is None) is is_one


def test_of_too_many_budgets_the_one_that_was_charged_longest_ago_goes() -> None:
    spent: dict[str, tuple[float, ...]] = {f"node:n{i}": (float((i * 7919) % MAX_BUDGETS),) for i in range(MAX_BUDGETS)}
    (oldest,) = (key for key, times in spent.items() if times == (1234.0,))
    spent = {key: (0.0, *times) if times[0] > 1234 or key == oldest else (1.0, 99999.0) for key, times in spent.items()}
    handlers = Bench({Component.RESOURCE_MANAGER: replace(drain(), charges=("job:1",))})
    chain, _ = advance(Chain(spent=spent), [ExceptionRaised(record())], handlers, 100_000.0)
    assert set(spent) - set(chain.spent) == {oldest}
    assert chain.spent["job:1"] == (100_000.0,)


def test_users_register_few_handlers() -> None:
    many = [HandlerEnlisted(handler(f"h{i}", owner="ada")) for i in range(MAX_HANDLERS_OF_ONE_GUEST + 1)]
    chain, (refused,) = advance(Chain(), many, Bench(), 0.0)
    assert (len(chain.handlers), "of ada" in refused.what) == (MAX_HANDLERS_OF_ONE_GUEST, True)
    chain, effects = advance(chain, [many[0], HandlerEnlisted(handler("b", owner="bob"))], Bench(), 1.0)
    assert (effects, "b" in chain.handlers) == ([], True)


def test_operators_register_as_many_as_they_need() -> None:
    many = [HandlerEnlisted(handler(f"h{i}")) for i in range(2 * MAX_HANDLERS_OF_ONE_GUEST)]
    chain, effects = advance(Chain(), many, Bench(), 0.0)
    assert (len(chain.handlers), effects) == (len(many), [])


def test_an_operators_word_is_heard_after_however_many_users() -> None:
    known = record("x", by="viewer:u0")
    for n in range(1, 3 * MAX_SOURCES):
        known = seen_again(known, record("x", by=f"viewer:u{n}"), 1.0)
    assert len(known.sources) == MAX_SOURCES + 1
    assert seen_again(known, record("x", by="operator:root"), 2.0).is_of_the_site


def test_a_tick_that_changes_nothing_leaves_the_chain_as_it_is() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: Ruling(AnswerKind.DEFERRED, "wait", until_s=5.0)})
    chain, _ = advance(Chain(), [ExceptionRaised(record("x"))], handlers, 0.0)
    assert advance(chain, [Ticked()], handlers, 1.0) == (chain, [])
    assert advance(chain, [Ticked()], handlers, 1.0)[0] is chain


def test_a_second_source_is_remembered() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: Ruling(AnswerKind.DEFERRED, "wait", until_s=5.0)})
    both = [ExceptionRaised(record("x", by="user:ada")), ExceptionRaised(record("y", by="user:bob"))]
    chain, _ = advance(Chain(), both, handlers, 0.0)
    assert chain.open["x"].sources == {"user:ada", "user:bob"}


def test_a_second_source_gives_the_handler_whose_turn_it_is_no_second_turn() -> None:
    first: list[Input] = [HandlerEnlisted(handler("app")), ExceptionRaised(record("x", by="user:ada"))]
    before, effects = advance(Chain(), first, Bench(), 0.0)
    assert asked(effects) == ["app"]
    after, effects = advance(before, [ExceptionRaised(record("y", by="user:bob"))], Bench(), 1.0)
    assert after.open["x"].sources == {"user:ada", "user:bob"}
    assert asked(effects) == []
    assert after.turns == before.turns


def test_a_stale_incarnation_changes_nothing() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()}, stale=(1,))
    chain, effects = advance(Chain(), [ExceptionRaised(record(incarnation=1))], handlers, 0.0)
    assert acts(effects) == []
    assert chain.ended["x"].state is ExceptionState.EXPIRED


def test_an_incarnation_that_goes_stale_in_the_chain_ends_there() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, _ = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    handlers.stale = (1,)
    chain, effects = advance(chain, [Answered("x", "app", declined("no"))], handlers, 1.0)
    assert acts(effects) == []
    assert chain.ended["x"].state is ExceptionState.EXPIRED


def test_what_goes_stale_while_a_handler_is_asked_ends_without_its_answer() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    chain, effects = advance(Chain(), [HandlerEnlisted(handler("app")), ExceptionRaised(record())], handlers, 0.0)
    assert asked(effects) == ["app"]
    handlers.stale = (1,)
    chain, effects = advance(chain, [Ticked()], handlers, 1.0)  # it has 29 s left
    assert (acts(effects), chain.ended["x"].state) == ([], ExceptionState.EXPIRED)


def test_an_id_is_of_the_fault_that_bore_it_first_and_of_no_like_one() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record(job="1"))], Bench(), 0.0)
    same, effects = advance(chain, [ExceptionRaised(record(job="2", by="user:bob"))], Bench(), 1.0)
    assert [refusal.what for refusal in refused(effects)] == ["the id x is taken by another exception"]
    assert same.find("x").sources == {"ada"}


def test_a_refused_action_leaves_it_to_a_person_and_the_owner_the_owner() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, effects = advance(Chain(), [ExceptionRaised(record())], handlers, 0.0)
    (action,) = acts(effects)
    chain, _ = advance(chain, [Failed(action.key, "refused: no such node")], handlers, 1.0)
    assert (chain.ended["x"].state, chain.ended["x"].owner) == (ExceptionState.ESCALATED, Component.RESOURCE_MANAGER)
    again, effects = advance(chain, [Failed(action.key, "refused: no such node")], handlers, 2.0)
    assert (again, effects) == (chain, [])  # it waits for a person already


def seen_to(exception_id: str = "x") -> Closed:
    return Closed(exception_id, Annotation("operator:ada", 1.0, CLOSED, "rebooted"))


def test_what_waits_for_a_person_is_closed_by_one_once() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record(job=""))], Bench(), 0.0)
    assert chain.ended["x"].needs_a_person
    chain, _ = advance(chain, [seen_to()], Bench(), 1.0)
    assert (chain.ended["x"].outcome, chain.ended["x"].annotations[-1].value) == (
        ExceptionOutcome.CLOSED,
        "rebooted",
    )
    after, (refused,) = advance(chain, [seen_to()], Bench(), 2.0)
    assert (after, refused.what) == (chain, "it does not wait for a person")


@pytest.mark.parametrize("job", ["7", ""])
def test_nobody_closes_what_has_an_owner(job: str) -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    chain, _ = advance(Chain(), [ExceptionRaised(record(job=job))], handlers, 0.0)
    after, (refused,) = advance(chain, [seen_to()], handlers, 1.0)
    assert (after, refused.what) == (chain, "it does not wait for a person")


def test_what_nobody_took_of_a_job_is_closed_like_any_other() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record())], Bench(), 0.0)
    assert chain.ended["x"].is_unanswered
    chain, _ = advance(chain, [seen_to()], Bench(), 1.0)
    assert (chain.ended["x"].outcome, chain.ended["x"].is_unanswered) == (ExceptionOutcome.CLOSED, False)


def test_what_nobody_took_ends_with_what_it_is_about() -> None:
    chain, _ = advance(Chain(), [ExceptionRaised(record(incarnation=3))], Bench(), 0.0)
    same, effects = advance(chain, [Ticked()], Bench(), 1.0)
    assert (same, effects) == (chain, [])
    chain, _ = advance(chain, [Ticked()], Bench(stale=(3,)), 2.0)
    assert (chain.ended["x"].outcome, chain.ended["x"].needs_a_person) == (ExceptionOutcome.WITHDRAWN, False)
    same, effects = advance(chain, [Ticked()], Bench(stale=(3,)), 3.0)
    assert (same, effects) == (chain, [])


@pytest.mark.parametrize("by", ["ada", "perdure"])
def test_what_was_left_to_the_end_of_its_attempt_ends_with_that(by: str) -> None:
    """The service's own word of a failed attempt has an outcome of its own."""
    left = Bench({Component.SCHEDULER: handled("it is recovered as c/1#3:job.failed")}, stale=(3,))
    chain, _ = advance(Chain(), [ExceptionRaised(record(incarnation=2, by=by))], left, 0.0)
    same, effects = advance(chain, [Ticked()], left, 1.0)
    assert (same, effects) == (chain, [])
    chain, _ = advance(chain, [Ticked()], Bench(stale=(2,)), 2.0)
    assert chain.ended["x"].outcome is (ExceptionOutcome.OPEN if by == "perdure" else ExceptionOutcome.WITHDRAWN)


def test_what_somebody_recovers_does_not_end_with_its_job() -> None:
    for owner in (drain(), handled("starts are kept back", forbids=("requeue",))):
        chain, _ = advance(Chain(), [ExceptionRaised(record(incarnation=3))], Bench({Component.JOB: owner}), 0.0)
        same, effects = advance(chain, [Ticked()], Bench(stale=(3,)), 1.0)
        assert (same, effects) == (chain, [])


def test_what_needs_a_person_is_forgotten_last_and_not_left_open() -> None:
    many = [ExceptionRaised(record(f"x{n}", incarnation=n), own=True) for n in range(MAX_ENDED)]
    chain, _ = advance(Chain(), many[:1], Bench(), 0.0)  # nobody took it
    owned = Bench(fall_back=handled("done"))
    chain, _ = advance(chain, [*many[1:], ExceptionRaised(record("last"), own=True)], owned, 1.0)
    assert (len(chain.ended), "x0" in chain.ended, "x1" in chain.ended) == (MAX_ENDED, True, False)
    chain, effects = advance(restored(many_open(), [], {}), [ExceptionRaised(record("last"), own=True)], Bench(), 2.0)
    (forgotten,) = [e.record for e in effects if isinstance(e, Changed) and e.record.id == "y0"]
    assert ("y0" in chain.ended, forgotten.outcome) == (False, ExceptionOutcome.WITHDRAWN)


def many_open() -> list[Any]:
    """As many as are kept, of which each needs a person."""
    return [replace(record(f"y{n}", incarnation=n), state=ExceptionState.ESCALATED) for n in range(MAX_ENDED)]


def test_users_are_asked_about_their_own_jobs_alone() -> None:
    handlers = Bench()
    _chain, effects = advance(
        Chain(), [HandlerEnlisted(handler("b", owner="bob")), ExceptionRaised(record())], handlers, 0.0
    )
    assert asked(effects) == []


def test_a_restart_goes_on_where_it_stopped() -> None:
    handlers = Bench({Component.SCHEDULER: drain()})
    both: list[Input] = [HandlerEnlisted(handler("a")), HandlerEnlisted(handler("b")), ExceptionRaised(record())]
    chain, _ = advance(Chain(), both, handlers, 0.0)
    chain, _ = advance(chain, [Answered("x", "a", declined("no"))], handlers, 1.0)
    again = restored(chain.open.values(), chain.handlers.values(), chain.spent)
    again, effects = advance(again, [Ticked()], handlers, 2.0)
    assert asked(effects) == ["b"]
    again, effects = advance(again, [Answered("x", "b", declined("no"))], handlers, 3.0)
    assert len(acts(effects)) == 1


# -- any story

NAMES = st.sampled_from(["x", "y", "z"])
HANDLERS = st.sampled_from(["a", "b"])
RULINGS = st.one_of(
    st.just(declined("no")),
    st.just(handled("mine")),
    st.just(Ruling(AnswerKind.REJECTED, "not for me")),
    st.builds(lambda s: Ruling(AnswerKind.DEFERRED, "later", until_s=s), st.floats(0, 300)),
    st.builds(
        lambda t: Ruling(AnswerKind.ANNOTATED, "", annotations=(Annotation("job", t, "k", "v"),)), st.floats(0, 9)
    ),
)
OWN = st.one_of(RULINGS, st.builds(drain, NAMES))
INPUTS = st.one_of(
    st.builds(lambda n, j, i, s: ExceptionRaised(record(n, job=j, incarnation=i, scope=s)),
              NAMES, st.sampled_from("12"), st.integers(1, 2), st.sampled_from(Scope)),
    st.builds(Answered, NAMES, HANDLERS, RULINGS),
    st.builds(lambda n, t: Annotated(n, Annotation("job", t, "k", "v")), NAMES, st.floats(0, 9)),
    st.builds(
        lambda h, c, u: HandlerEnlisted(handler(h, c, until_s=u)),
        HANDLERS,
        st.sampled_from(Component),
        st.floats(0, 500),
    ),
    st.builds(Left, HANDLERS),
    st.builds(Failed, st.builds(lambda n: f"drain:n1:{n}", NAMES), st.just("refused")),
    st.builds(Settled, NAMES, st.sampled_from(ExceptionOutcome)),
    st.just(Ticked()),
)  # fmt: skip
STEPS = st.lists(st.tuples(st.floats(0, 40), st.lists(INPUTS, max_size=4), st.booleans()), max_size=25)


@given(
    steps=STEPS,
    own=st.dictionaries(st.sampled_from(Component), OWN),
    last=OWN,
    stale=st.sampled_from([(), (1,)]),
)
@settings(max_examples=150, deadline=None)
def test_in_any_story_the_laws_hold_at_every_step(
    steps: list[Any], own: dict[Any, Any], last: Ruling, stale: tuple[int, ...]
) -> None:
    handlers, chain, now = Bench(own, last, stale), Chain(), 0.0
    written, begun = {}, []
    for wait_s, inputs, restart in steps:
        now += wait_s
        if restart:
            chain = restored(written.values(), chain.handlers.values(), chain.spent)
        chain, effects = advance(chain, inputs, handlers, now)
        for effect in effects:
            if isinstance(effect, Changed):
                _check_change(written.get(effect.record.id), effect)
                written[effect.record.id] = effect.record
                begun += [(effect.record.id, action.key) for action in effect.actions]
    assert len(begun) == len(set(begun))
    chain, _ = advance(chain, [Ticked()], handlers, now + 2 * DEADLINE_S)
    chain, _ = advance(chain, [Ticked()], handlers, now + 3 * DEADLINE_S)
    assert chain.open == {}


def _check_change(before: ExceptionRecord | None, effect: Changed) -> None:
    after = effect.record
    assert sum(a.kind is AnswerKind.HANDLED for a in after.verdicts) <= 1
    for action in effect.actions:
        assert any(a.kind is AnswerKind.HANDLED and action.key in a.action_keys for a in after.verdicts)
    if before is not None:
        assert after.annotations[: len(before.annotations)] == before.annotations
        assert after.verdicts[: len(before.verdicts)] == before.verdicts
        if before.owner is not None:
            assert after.owner is before.owner


@pytest.mark.parametrize("goes_down", ["before", "since"])
def test_an_all_clear_is_new_where_its_resource_went_down_since_and_not_where_it_did_before(goes_down: str) -> None:
    def about(name: str, ended_s: float, *forbids: str) -> ExceptionRecord:
        answer = Answer(Component.SCHEDULER, AnswerKind.HANDLED, ended_s, "said", forbids=forbids)
        told = replace(record(name, job="", kind="storage.any"), subject=Subject("c", resource="pfs"))
        return replace(told, state=ExceptionState.HANDLED, verdicts=(answer,))

    clear, brake = about("clear", 2.0), about("down", 1.0 if goes_down == "before" else 3.0, START)
    ended = [brake, clear] if goes_down == "before" else [clear, brake]
    chain = replace(Chain(), ended={each.id: each for each in ended})
    assert is_nothing_new(clear, replace(clear, id="again"), chain, Bench(), 4.0) is (goes_down == "before")


@pytest.mark.parametrize(("age_s", "is_nothing"), [(FRESH_S, True), (FRESH_S + 0.5, False)])
def test_what_was_done_about_a_node_is_believed_as_long_as_it_is_fresh(age_s: float, is_nothing: bool) -> None:
    """Somebody may have returned it since."""
    done = record().with_answer(Answer(Component.RESOURCE_MANAGER, AnswerKind.HANDLED, 1.0, "drained"))
    known = replace(
        done, state=ExceptionState.HANDLED, annotations=(Annotation("scheduler", 2.0, READ_BACK, "drained"),)
    )
    assert is_nothing_new(known, record("again"), Chain(), Bench(), 2.0 + age_s) is is_nothing


def test_what_is_forgotten_takes_nothing_newer_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that recurs within the window of its like is one with that, however much has ended before."""
    monkeypatch.setattr("perdure.coordination.chain.MAX_ENDED", 3)
    handlers, chain = Bench({Component.RESOURCE_MANAGER: drain()}), Chain()
    others = [record(name, job=name) for name in "ab"]
    for now, told in ((0.0, record("x")), (60.0, record("y")), *((61.0, other) for other in others)):
        chain, _ = advance(chain, [ExceptionRaised(replace(told, time_s=now))], handlers, now)
    assert list(chain.ended) == ["y", "a", "b"]
    chain, _ = advance(chain, [ExceptionRaised(record("z"))], handlers, 62.0)
    assert (list(chain.ended), chain.ended["y"].repeats) == (["y", "a", "b"], 1)


def test_what_the_site_says_changes_nothing_of_a_users_claim_that_has_ended() -> None:
    handlers = Bench({Component.RESOURCE_MANAGER: drain()})
    about: dict[str, Any] = {"job": "", "kind": "storage.down", "scope": Scope.GLOBAL}
    claim, word = (replace(record(name, by=by, **about), subject=Subject("c", resource="pfs"))
                   for name, by in (("x", "viewer:ada"), ("y", "operator:root")))  # fmt: skip
    chain, _ = advance(Chain(), [ExceptionRaised(claim)], handlers, 0.0)
    before = chain.ended["x"]
    chain, _ = advance(chain, [ExceptionRaised(word)], handlers, 1.0)
    assert chain.ended["x"] == before
    assert "y" in chain.ended


def test_what_came_of_an_action_is_said_of_the_exception_that_owns_it_alone() -> None:
    chain, keys = Chain(), {}
    for name in ("x", "y", "z"):
        handlers = Bench({Component.RESOURCE_MANAGER: handled("drained", Drain("n1", "broken", name))})
        chain, effects = advance(chain, [ExceptionRaised(record(name, job=name))], handlers, 0.0)
        (keys[name],) = (action.key for action in acts(effects))
    handlers = Bench()
    for name in keys:
        after, _ = advance(chain, [Failed(keys[name], "refused")], handlers, 1.0)
        assert [each.id for each in after.ended.values() if each.state is ExceptionState.ESCALATED] == [name]
        after, _ = advance(chain, [ReadBack(keys[name], "drained")], handlers, 1.0)
        assert [each.id for each in after.ended.values() if each.read_back_s is not None] == [name]


def test_a_handler_that_leaves_takes_no_others_turn_along() -> None:
    mine = [handler(name, types=(kind,)) for name, kind in (("h1", "process"), ("h2", "app"))]
    chain, _ = advance(Chain(), [HandlerEnlisted(each) for each in mine], Bench(), 0.0)
    told = [record("x", job="1"), record("y", job="2", kind="app.nan")]
    chain, _ = advance(chain, [ExceptionRaised(each) for each in told], Bench(), 0.0)
    assert {name: turn.handler for name, turn in chain.turns.items()} == {"x": "h1", "y": "h2"}
    chain, _ = advance(chain, [Left("h1")], Bench(), 1.0)
    assert {name: turn.handler for name, turn in chain.turns.items()} == {"y": "h2"}


@pytest.mark.parametrize(
    "first",
    [
        handler("a", Component.WORKFLOW),  # of another level: its turn comes later
        handler("a", until_s=0.5),  # its lease has run out, and no tick has come since
        handler("a", owner="bob"),  # hears of bob's jobs alone
        handler("a", types=("gpu",)),
    ],
)
def test_who_is_not_to_be_asked_hides_nobody_who_is(first: Registration) -> None:
    enlisted = [HandlerEnlisted(each) for each in (first, handler("b"), handler("c"))]
    chain, _ = advance(Chain(), enlisted, Bench(), 0.0)
    chain, effects = advance(chain, [ExceptionRaised(record())], Bench(), 1.0)
    assert asked(effects) == ["b"]
    _, effects = advance(chain, [Answered("x", "b", declined("not mine"))], Bench(), 2.0)
    assert asked(effects) == ["c"]  # though b, who has answered, comes before it


def test_what_is_of_no_job_is_asked_of_no_user() -> None:
    """A node's fault that a user owned would drain nothing."""
    fault = record(job="")
    assert not handler("b", owner="bob").hears(fault, "")
    assert handler("b").hears(fault, "")
