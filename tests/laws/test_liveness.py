"""Laws of silent nodes: each is judged by itself, whoever's clock is wrong, and in whatever order files are read."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.job.heartbeat import Heartbeat, HeartbeatSource
from perdure.job.liveness import LivenessRules, SilentNode, Watchlog, observe, silent
from tests.copying import replace

RULES = LivenessRules(factor=3.0, floor_s=10.0, away_s=30.0, max_share=1.0)
NODES, JOBS = ("n1", "n11", "n2"), ("1", "11", "2")
RUNNING = {"1": ("n1", "n11"), "11": ("n11",), "2": ("n2", "n1")}
NOT_ANSWERING = ("n11", "n2")
FILES = [f"{node}.{kind}" for node in NODES for kind in ("agent", "job", "job2")]
beats = st.builds(
    Heartbeat,
    source=st.sampled_from(list(HeartbeatSource)),
    host=st.just("h"),
    node=st.just(""),
    pid=st.integers(1, 2),
    count=st.integers(0, 2),
    time_s=st.integers(0, 10**6).map(float),
    every_s=st.sampled_from((1.0, 5.0, 60.0)),
    job_id=st.sampled_from(JOBS),
)
files = st.dictionaries(st.sampled_from(FILES), beats, max_size=6).map(
    lambda found: {name: replace(beat, node=name.partition(".")[0]) for name, beat in found.items()}
)
looks = st.lists(st.tuples(st.integers(1, 40).map(float), files), min_size=1, max_size=5)
quick = settings(max_examples=60, deadline=None)


def judged(looks: list[tuple[float, dict[str, Heartbeat]]], start_s: float = 0.0) -> list[tuple[SilentNode, ...]]:
    """What an observer says after each look; each comes some seconds after the one before."""
    log, now, found = Watchlog(), start_s, []
    for passed_s, files in looks:
        now += passed_s
        log = observe(log, files, now, RULES)
        found.append(silent(log, now, RULES, RUNNING, NOT_ANSWERING).nodes)
    return found


def of_files(looks: list[tuple[float, dict[str, Heartbeat]]], change: Callable[[Any], Any]) -> list[Any]:
    return [(passed_s, {name: change(beat) for name, beat in files.items()}) for passed_s, files in looks]


@quick
@given(looks)
def test_a_node_is_judged_as_if_it_were_alone(looks: list[tuple[float, dict[str, Heartbeat]]]) -> None:
    found = judged(looks)
    for node in NODES:
        alone = [(passed_s, {n: beat for n, beat in files.items() if beat.node == node}) for passed_s, files in looks]
        assert [tuple(each for each in nodes if each.node == node) for nodes in found] == judged(alone)


@quick
@given(looks, st.integers(-(10**6), 10**6))
def test_no_clock_of_those_who_beat_decides(looks: list[tuple[float, dict[str, Heartbeat]]], off_s: int) -> None:
    assert judged(of_files(looks, lambda beat: replace(beat, time_s=beat.time_s + off_s))) == judged(looks)


@quick
@given(looks, st.sampled_from((-1000.0, 1e6)))
def test_the_observers_hour_does_not_decide(looks: list[tuple[float, dict[str, Heartbeat]]], start_s: float) -> None:
    assert judged(looks, start_s) == [
        tuple(replace(each, since_s=each.since_s + start_s) for each in found) for found in judged(looks)
    ]


@quick
@given(looks, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_decide_who_is_silent_or_since_when(
    looks: list[tuple[float, dict[str, Heartbeat]]], rng: Random
) -> None:
    mixed = [(passed_s, dict(rng.sample(list(files.items()), len(files)))) for passed_s, files in looks]
    assert [[(each.node, each.since_s) for each in found] for found in judged(mixed)] == [
        [(each.node, each.since_s) for each in found] for found in judged(looks)
    ]
