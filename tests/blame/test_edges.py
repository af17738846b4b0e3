"""Who is blamed, at each limit: exactly there, and one step beside it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from perdure.blame import greedy
from perdure.blame.accuse import RECENTLY, accused_by
from perdure.blame.background import Background
from perdure.blame.failing_paths import FailingPaths
from perdure.blame.fit import HazardModel, Term
from perdure.blame.grid import MOST_ROWS, grid
from perdure.blame.score import Score
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Standing, SuspectPatience, follow
from perdure.blame.verdict import HARD, kind_of, suspect
from perdure.blame.window import Window
from perdure.blame.witnesses import attested
from perdure.errors import InputError
from tests.blame.test_live import HOUR, accusation, row
from tests.copying import replace

NODE = ("node", "n1")


def window(
    paths: Sequence[tuple[tuple[int, ...] | NDArray[np.signedinteger], int, int]], tiers: Sequence[str]
) -> Window:
    """Paths as (components, units, failures)."""
    incidence = np.zeros((len(paths), len(tiers)))
    for number, (crossed, _, _) in enumerate(paths):
        incidence[number, list(crossed)] = 1.0
    units, failures = (np.array([path[k] for path in paths], np.float64) for k in (1, 2))
    paths_there, components = np.arange(len(paths)), np.arange(len(tiers))
    return Window(sparse.csr_array(incidence), units, failures, paths_there, components, np.array(tiers))


# -- good and bad paths


@pytest.mark.parametrize(("bad", "blamed"), [(1, []), (2, [0])])
def test_one_bad_path_is_no_pattern(bad: int, blamed: list[int]) -> None:
    """All paths cross their own switch, and component 0 the bad ones."""
    paths = [((0, 1 + k) if k < bad else (1 + k,), 100, 50 if k < bad else 0) for k in range(4)]
    found = Score().solve(window(paths, ("spine", "leaf", "leaf", "leaf", "leaf")))
    assert [each.component for each in found] == blamed


def test_a_path_is_bad_above_its_share_and_a_component_blamed_from_its_own() -> None:
    """Component 0 is on ten paths; of these so many are bad, by five units in a hundred or one more."""

    def found(bad: int, failures: int) -> list[int]:
        paths = [((0,), 100, failures if k < bad else 0) for k in range(10)]
        return [each.component for each in Score().solve(window(paths, ("spine",)))]

    assert [found(3, 6), found(2, 6), found(3, 5)] == [[0], [], []]


# -- whose word counts


def seen(*failed: tuple[str, int, int], node: str = "n1", elsewhere: int = 200, bad: int = 0) -> list[Any]:
    """Attempts on the node, as (user, failures, passes), beside many elsewhere of which some failed."""
    here = [row(1.0, user, node, number < n, f"{user}{number}") for user, n, m in failed for number in range(n + m)]
    rest = [row(1.0, f"v{number % 9}", "n9", number < bad, f"r{number}") for number in range(elsewhere)]
    return [*here, *rest]


@pytest.mark.parametrize(
    ("failed", "bad", "counts"),
    [
        ([("ada", 9, 0)], 0, False),  # one user, whatever fails
        ([("ada", 9, 0), ("bob", 1, 0)], 0, True),
        ([("ada", 9, 0), ("bob", 0, 9)], 0, False),
        ([("ada", 9, 0), ("bob", 1, 9)], 2, False),  # one of ten, where one in a hundred fails anywhere
        ([("ada", 9, 0), ("bob", 2, 0)], 10, True),
        ([("ada", 9, 0), ("bob", 1, 0)], 10, False),  # one failure is what chance brings one time in twenty
        ([("ada", 1, 0), ("bob", 9, 0)], 0, True),  # the loudest is left out, whoever that is
        ([("ada", 9, 0), ("bob", 2, 0)], 100, False),  # half of all fail everywhere
    ],
)
def test_failures_of_others_count_where_chance_would_not_bring_them(
    failed: Sequence[tuple[str, int, int]], bad: int, counts: bool
) -> None:
    assert attested(NODE, seen(*failed, bad=bad)) is counts


def test_what_would_fail_anywhere_does_not_make_failing_usual() -> None:
    mistakes = [row(1.0, f"w{number % 9}", "n8", True, f"m{number}") for number in range(200)]
    failed = seen(("ada", 9, 0), ("bob", 2, 0))
    assert attested(NODE, [*failed, *(replace(each, deterministic=True) for each in mistakes)])
    assert not attested(NODE, [*failed, *mistakes])


def test_the_managers_own_word_on_a_node_is_enough_and_on_another_is_not() -> None:
    rows = [replace(row(1.0, failed=True), down=("n1",)), row(1.0, node="n2", failed=True)]
    assert attested(NODE, rows)
    assert not attested(("node", "n2"), rows)
    assert not attested(("storage", "n1"), rows)
    assert attested(("user", "ann"), rows)
    assert not attested(("node", "n7"), rows)


# -- from window to window


def names(standings: tuple[Standing, ...]) -> list[Any]:
    return [each.accusation.name for each in standings]


@pytest.mark.parametrize(("strength", "named"), [(39.9, []), (40.0, ["n1"])])
def test_overwhelming_evidence_names_at_once(strength: float, named: list[str]) -> None:
    assert names(follow((), [accusation("n1", strength)], 0.0).named) == named


def test_who_was_accused_missed_and_accused_again_counts_from_the_start_unless_named() -> None:
    weak = follow((), [accusation("n1")], 0.0)
    assert follow(weak.standing, [], 1.0).standing == ()
    named = follow(weak.standing, [accusation("n1")], 1.0).standing
    (missed,) = follow(named, [], 2.0).standing
    assert (missed.seen, missed.missed, missed.named, missed.last_s) == (0, 1, True, 1.0)
    (again,) = follow([missed], [accusation("n1")], 3.0).standing
    assert (again.seen, again.missed, again.named, again.since_s, again.last_s) == (1, 0, True, 0.0, 3.0)


@pytest.mark.parametrize(("release", "windows"), [(1, 1), (3, 3)])
def test_a_suspect_is_cleared_after_so_many_windows_without_it(release: int, windows: int) -> None:
    standing = follow((), [accusation("n1", 99.0)], 0.0).standing
    for number in range(1, windows + 1):
        turn = follow(standing, [], float(number), SuspectPatience(release=release))
        standing = turn.standing
        assert names(turn.cleared) == (["n1"] if number == windows else [])


def test_one_accusation_is_laid_to_one_suspect() -> None:
    standings = [Standing(NODE, accusation("n1"), 0.0, 0.0, named=True), Standing(NODE, accusation("n1"), 5.0, 5.0)]
    turn = follow(standings, [accusation("n1")], 9.0)
    assert [each.last_s for each in turn.standing] == [9.0]  # the other is forgotten: it was not named
    assert names(follow((), [accusation("n1"), accusation("n2")], 0.0).standing) == ["n1", "n2"]


# -- the window


@pytest.mark.parametrize(("end_s", "inside"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_what_ended_as_long_ago_as_the_window_is_long_is_out(end_s: float, inside: bool) -> None:
    sliding = Sliding(100.0)
    assert bool(sliding.slide([("a", row(end_s))], 100.0)) is inside


def test_what_is_told_of_again_counts_once_and_of_many_the_latest_are_kept() -> None:
    sliding = Sliding(HOUR, most=2)
    sliding.slide([("a", row(5.0)), ("b", row(6.0))], 10.0)
    assert [one.end_s for one in sliding.slide([("a", row(9.0))], 10.0)] == [5.0, 6.0]
    assert [one.end_s for one in sliding.slide([("c", row(7.0))], 10.0)] == [6.0, 7.0]
    assert [one.end_s for one in sliding.slide([], 6.0 + HOUR)] == [7.0]


def test_the_half_of_a_window_begins_after_its_middle() -> None:
    """What ended just then is in the whole window alone."""
    assert RECENTLY == 0.5
    asked = []

    class Solver:
        name = "asked"

        def solve(self, found: Window) -> tuple[()]:
            asked.append(int(found.units.sum()))
            return ()

    rows = [row(HOUR / 2, failed=True), row(HOUR / 2 + 1, failed=True), row(HOUR, failed=True)]
    accused_by(HOUR, HOUR, rows, Solver())
    assert asked == [3, 2]


# -- verdicts


@pytest.mark.parametrize(("rate", "kind"), [(HARD, "hard"), (0.149, "gray"), (1.0, "hard"), (0.0, "gray")])
def test_a_component_is_down_from_a_rate_on(rate: float, kind: str) -> None:
    assert kind_of(rate) == kind


def test_a_verdict_counts_units_and_names_the_paths_that_speak() -> None:
    paths = [((0,), 10, 1), ((0,), 10, 9), ((0,), 5, 0), ((0,), 50, 0), ((1,), 9, 9), ((0,), 0, 0)]
    found = suspect(window(paths, ["node", "node"]), 0, 7.0)
    assert (found.component, found.tier, found.equivalent, found.strength) == (0, "node", (), 7.0)
    assert (found.units, found.rate, found.kind) == (10, 10 / 75, "gray")
    assert found.paths_for == (1, 0)
    assert found.paths_against == (3, 2)
    assert 0 < found.rate_low < found.rate < found.rate_high < 1
    partly = suspect(window(paths, ["node", "node"]), 0, 7.0, hot=np.array([1]))
    assert (partly.kind, partly.rate, partly.units) == ("partial", 0.9, 9)
    given = suspect(window(paths, ["node", "node"]), 0, 7.0, rates=(0.5, 0.4, 0.6))
    assert (given.rate, given.rate_low, given.rate_high, given.kind) == (0.5, 0.4, 0.6, "hard")


def test_five_paths_of_each_kind_are_named_at_most() -> None:
    paths = [((0,), 10, k) for k in range(1, 8)] + [((0,), k, 0) for k in range(1, 8)]
    found = suspect(window(paths, ["node"]), 0, 1.0)
    assert (found.paths_for, found.paths_against) == ((6, 5, 4, 3, 2), (13, 12, 11, 10, 9))


def test_the_interval_is_clopper_pearsons() -> None:
    """By tables: 1 of 10 from 0.25 % to 44.5 %, none of 10 up to 30.85 %, all of 10 from 69.15 % on."""
    for failures, low, high in ((1, 0.0025, 0.4450), (0, 0.0, 0.3085), (10, 0.6915, 1.0)):
        found = suspect(window([((0,), 10, failures)], ["node"]), 0, 1.0)
        assert (found.rate_low, found.rate_high) == pytest.approx((low, high), abs=5e-5)


# -- the search's totals


def test_failing_paths_are_kept_and_all_others_are_totals() -> None:
    paths = [((0, 1), 10, 2), ((0,), 10, 0), ((1,), 4, 4), ((1,), 0, 0), ((0, 1), 10, 2)]
    failing = FailingPaths(window(paths, ["node", "user"]))
    assert failing.rows.tolist() == [0, 2, 4]
    assert (failing.n.tolist(), failing.e.tolist()) == ([10, 4, 10], [2, 4, 2])
    assert (failing.units.tolist(), failing.paths.tolist(), failing.failures.tolist()) == ([30, 24], [3, 3], [4, 8])
    assert (failing.sizes.tolist(), failing.counts.tolist()) == ([4, 10], [1, 3])
    assert (failing.pair.tolist()[0], failing.n_pairs) == (failing.pair.tolist()[2], 2)
    assert failing.overall == 8 / 34
    assert (failing.of(0).tolist(), failing.of(1).tolist()) == ([0, 2], [0, 1, 2])


# -- the picture


def crossed(nodes: int, others: int, tiers: tuple[str, str] = ("node", "user")) -> Window:
    pairs = [((n, nodes + o), 2, int(n == 0)) for n in range(nodes) for o in range(others)]
    return window(pairs, [tiers[0]] * nodes + [tiers[1]] * others)


def test_users_are_columns_and_the_largest_other_tier_is_rows() -> None:
    found = grid(crossed(3, 2))
    assert (found.row_tier, found.column_tier, found.left_out) == ("node", "user", 0)
    assert found.units.tolist() == [[2, 2]] * 3
    assert found.rate.tolist() == [[0.5, 0.5], [0, 0], [0, 0]]
    turned = grid(crossed(3, 2), row_tier="user")
    assert (turned.row_tier, turned.column_tier) == ("user", "node")
    assert grid(crossed(2, 3, ("b", "a"))).column_tier == "b"  # the smaller one
    assert grid(crossed(2, 2, ("b", "a"))).column_tier == "a"
    assert grid(crossed(2, 2, ("storage", "user"))).column_tier == "storage"


def test_what_finds_no_place_are_those_with_the_fewest_failures_unless_they_are_culprits() -> None:
    found = grid(crossed(4, 1), culprits=(3,), most=(2, 9))
    assert (found.rows.tolist(), found.left_out) == ([0, 3], 2)
    assert grid(crossed(4, 1), most=(2, 9)).rows.tolist() == [0, 1]
    assert grid(crossed(4, 1), most=(4, 1)).left_out == 0
    assert np.isnan(grid(window([((0, 1), 0, 0)], ["node", "user"])).rate).all()
    assert MOST_ROWS == 300


def test_a_tier_that_is_not_there_and_a_window_of_one_are_refused() -> None:
    named: list[dict[str, Any]] = [{"row_tier": "x"}, {"column_tier": "x"}]
    for wanted in named:
        with pytest.raises(InputError, match="Use two of: node, user"):
            grid(crossed(2, 2), **wanted)
    of_one: list[dict[str, Any]] = [{}, {"row_tier": "node"}, {"column_tier": "node"}]
    for wanted in of_one:
        with pytest.raises(InputError, match="one tier"):
            grid(window([((0,), 1, 0)], ["node"]), **wanted)


# -- what a model expects


@pytest.mark.parametrize("partial", [(), (0,), (1,), (0, 1)])
def test_failures_are_expected_on_all_paths_of_who_is_blamed_and_of_a_black_hole_on_the_hot_ones(
    partial: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(14)
    paths = [(rng.choice(5, 2, replace=False), int(rng.integers(1, 90)), int(rng.integers(2))) for _ in range(40)]
    seen = window(paths, ["leaf"] * 5)
    failing = FailingPaths(seen)
    background, hazards = Background(0.003, 0.01, 1.0), np.array([0.2, 0.05])
    terms = [Term(c, failing.of(c)[: 2 if c in partial else None], 0.0, 0.0, partial=c in partial) for c in (0, 1)]
    model = HazardModel(failing, tuple(terms), hazards, background, 0.0)
    plain = np.zeros(5)
    for number, (crossed, units, _) in enumerate(paths):
        hit = [number in failing.rows[t.rows] if t.partial else t.column in crossed for t in terms]
        plain[crossed] += 0.01 + units * -np.expm1(-0.003 - hazards[hit].sum())
    assert greedy._Search(greedy.Greedy(), seen, failing)._expected(model) == pytest.approx(plain)
