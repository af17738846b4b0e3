"""Which nodes are silent: two sources must agree, and none may contradict."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.job.heartbeat import Heartbeat, HeartbeatSource
from perdure.job.liveness import Judgement, LivenessRules, SeenHeartbeat, SilentNode, Watchlog, observe, silent
from tests.copying import replace

RULES = LivenessRules(factor=3.0, floor_s=10.0, away_s=30.0)
AGENT = Heartbeat(HeartbeatSource.AGENT, "n1", "n1", 1, 0, 0.0, 3.0)
JOB = Heartbeat(HeartbeatSource.JOB, "n1", "n1", 2, 0, 0.0, 5.0, job_id="12")
RUNNING = {"12": ("n1", "n2")}


def log(**changed: Any) -> Watchlog:
    """Heartbeats by name, with when they changed last; the first letter says whose they are."""
    seen = {}
    for name, changed_s in changed.items():
        kind, _, node = name.partition("_")
        beat = AGENT if kind.startswith("agent") else JOB
        seen[name] = SeenHeartbeat(replace(beat, node=node), changed_s)
    return Watchlog(seen, 100.0)


def judged(
    seen: Watchlog,
    running: Mapping[str, tuple[str, ...]] = RUNNING,
    not_answering: set[Any] | tuple[()] = (),
    now: float = 100.0,
) -> Judgement:
    return silent(seen, now, RULES, running, not_answering)


def test_the_agent_and_a_job_on_its_node_agree() -> None:
    found = judged(log(agent_n1=80.0, job_n1=84.0, agent_n2=99.0))
    assert found.nodes == (SilentNode("n1", 84.0, ("agent", "job 12")),)


def test_one_source_alone_sets_nothing_down() -> None:
    assert judged(log(agent_n1=0.0)).nodes == ()
    assert judged(log(job_n1=0.0, job2_n1=0.0)).nodes == ()
    two_jobs = {name: SeenHeartbeat(replace(JOB, job_id=name), 0.0) for name in ("12", "13")}  # they may be one user's
    assert judged(Watchlog(two_jobs, 100.0), running={"12": ("n1",), "13": ("n1",)}).nodes == ()


def test_the_resource_managers_word_is_a_source_of_its_own() -> None:
    (found,) = judged(log(agent_n1=0.0), not_answering={"n1"}).nodes
    assert found.sources == ("agent", "resource manager")
    (found,) = judged(log(job_n1=0.0), not_answering={"n1"}).nodes
    assert found.sources == ("job 12", "resource manager")
    assert judged(Watchlog(), not_answering={"n1"}).nodes == ()  # Slurm's own word alone is Slurm's own business


def test_any_sign_of_life_contradicts() -> None:
    assert judged(log(agent_n1=0.0, job_n1=95.0), not_answering={"n1"}).nodes == ()
    assert judged(log(agent_n1=95.0, job_n1=0.0), not_answering={"n1"}).nodes == ()


def test_a_job_speaks_only_for_the_nodes_that_it_runs_on() -> None:
    """It can neither help to set another node down nor keep it up."""
    assert judged(log(agent_n3=0.0, job_n3=0.0)).nodes == ()
    kept_up = judged(log(agent_n3=0.0, job_n3=99.0), not_answering={"n3"})
    assert [found.node for found in kept_up.nodes] == ["n3"]
    assert judged(log(agent_n1=0.0, job_n1=0.0), running={}).nodes == ()


def test_a_job_cannot_claim_to_beat_once_a_year() -> None:
    seen = Watchlog({"agent": SeenHeartbeat(AGENT, 0.0), "job": SeenHeartbeat(replace(JOB, every_s=1e9), 0.0)})
    assert [found.node for found in judged(seen, now=RULES.cap_s + 1).nodes] == ["n1"]


def test_an_observer_to_whom_all_fall_silent_at_once_is_blind() -> None:
    names = {f"{kind}_n{node}": 0.0 for node in (1, 2) for kind in ("agent", "job")}
    found = judged(log(**names, agent_n3=99.0))
    assert found.nodes == ()
    assert "2 of 3 nodes fell silent at once" in found.blind
    assert len(judged(log(**names, agent_n3=99.0), not_answering={"n1", "n2"}).nodes) == 2


def looks(
    beats: Callable[[Any], dict[str, Heartbeat]],
    instants: Sequence[float],
    start: Watchlog = Watchlog(),  # noqa: B008
) -> Watchlog:
    """Observe at these instants; `beats` maps an instant to what is found."""
    seen = start
    for now in instants:
        seen = observe(seen, beats(now), now, RULES)
    return seen


def test_a_heartbeat_is_fresh_while_its_count_grows_whatever_its_clock_says() -> None:
    wrong_clock = looks(lambda now: {"a": replace(AGENT, count=int(now), time_s=-1e9)}, range(50))
    assert wrong_clock.seen["a"].changed_s == 49
    stuck = looks(lambda now: {"a": replace(AGENT, count=min(7, int(now)), time_s=now)}, range(50))
    assert stuck.seen["a"].changed_s == 7


def test_one_that_ended_in_order_and_one_that_is_gone_are_forgotten() -> None:
    seen = looks(lambda now: {"a": AGENT, "j": JOB}, [0.0])
    assert looks(lambda now: {"a": replace(AGENT, is_over=True)}, [1.0], seen).seen == {}


def test_an_observer_that_was_away_blames_nobody_for_it() -> None:
    """Frozen for an hour, it finds the heartbeats of a moment ago as old as they were then."""
    seen = looks(lambda now: {"a": AGENT, "j": JOB}, [0.0, 5.0])
    later = looks(lambda now: {"a": AGENT, "j": JOB}, [3605.0], seen)
    assert judged(later, now=3606.0).nodes == ()
    assert [
        found.node
        for found in judged(looks(lambda now: {"a": AGENT, "j": JOB}, range(3606, 3625), later), now=3625.0).nodes
    ]


@given(
    ages=st.lists(st.tuples(st.sampled_from(["agent", "job"]), st.integers(1, 4), st.floats(0, 60)), max_size=12),
    down=st.sets(st.sampled_from(["n1", "n2", "n3", "n4"])),
)
def test_whoever_is_named_has_two_sources_and_no_sign_of_life(ages: list[Any], down: set[Any]) -> None:
    seen = Watchlog(
        {
            str(i): SeenHeartbeat(replace(AGENT if kind == "agent" else JOB, node=f"n{node}"), 100.0 - age)
            for i, (kind, node, age) in enumerate(ages)
        }
    )
    running = {"12": ("n1", "n2", "n3", "n4")}
    for found in judged(seen, running, down).nodes:
        ours = [(kind, age) for kind, node, age in ages if f"n{node}" == found.node]
        assert len({kind for kind, _ in ours}) + (found.node in down) >= 2
        assert all(age > (10.0 if kind == "agent" else 15.0) for kind, age in ours)


def named_at(
    beats_at: Mapping[str, tuple[Heartbeat, Sequence[float]]],
    instants: Sequence[float],
    rules: LivenessRules = LivenessRules(),  # noqa: B008
) -> float | None:
    """When the node is first named, looking at these instants; None where it never is."""
    seen = Watchlog()
    for now in instants:
        found = {name: replace(beat, count=sum(t <= now for t in times)) for name, (beat, times) in beats_at.items()}
        seen = observe(seen, found, now, rules)
        if silent(seen, now, rules, RUNNING).nodes:
            return now
    return None


def test_at_the_usual_intervals_a_dead_node_is_named_within_sixteen_seconds() -> None:
    """Agents beat every 3 s, launchers every 5 s; looked at once a second. Slurm takes 26 s at its fastest timers."""
    died = 100
    beats_at = {"a": (AGENT, range(0, died, 3)), "j": (JOB, range(0, died, 5))}
    named_s = named_at(beats_at, range(200))
    assert named_s is not None
    assert died < named_s <= died + 16


@given(
    agent=st.lists(st.floats(0.1, 9.9), min_size=10, max_size=30), job=st.lists(st.floats(0.1, 14.9), min_size=10)
)  # fmt: skip
def test_a_node_whose_agent_is_never_later_than_three_intervals_is_never_named(
    agent: list[Any], job: list[Any]
) -> None:
    def instants(gaps: list[Any]) -> list[Any]:
        return [sum(gaps[:i]) for i in range(len(gaps) + 1)]

    beats_at = {"a": (AGENT, instants(agent)), "j": (JOB, instants(job[:3]))}  # the job alone may fall silent
    looks_at = sorted({*instants(agent), *(t + 0.05 for t in instants(agent))})
    assert named_at(beats_at, looks_at) is None


def test_another_writer_in_the_same_file_has_beaten_whatever_its_count() -> None:
    before = observe(Watchlog(), {"a": AGENT}, 0.0, RULES)
    for now in (replace(AGENT, pid=9), replace(AGENT, host="n9"), replace(AGENT, count=1)):
        assert observe(before, {"a": now}, 10.0, RULES).seen["a"].changed_s == 10.0
    assert observe(before, {"a": AGENT}, 10.0, RULES).seen["a"].changed_s == 0.0
