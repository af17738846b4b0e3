"""Clusters are shared out evenly, whoever comes and goes, and nobody wants what another one has."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.service.runtime.share import share_change, share_of


@given(st.integers(0, 300), st.integers(1, 20))
def test_shares_sum_to_all_and_differ_by_one_at_most(clusters: int, controllers: int) -> None:
    shares = [share_of(clusters, controllers, rank) for rank in range(controllers)]
    assert sum(shares) == clusters
    assert max(shares) - min(shares) <= 1


@given(st.integers(0, 12), st.lists(st.integers(1, 5), min_size=1, max_size=6), st.randoms())
def test_all_clusters_are_served_by_one_each_whatever_controllers_come_and_go(
    clusters: int, phases: list[int], random: object
) -> None:
    """In each phase other controllers live; each acts on what it sees, one after the other in any order."""
    names = [f"c{number}" for number in range(clusters)]
    serving: list[list[str]] = []
    for alive in phases:
        serving = (serving + [[] for _ in range(alive)])[-alive:]  # the oldest die, new ones come last
        for _ in range(3):
            order = list(range(alive))
            random.shuffle(order)  # type: ignore[attr-defined]
            for rank in order:
                held = {name for mine in serving for name in mine}
                change = share_change(names, serving[rank], held, alive, rank)
                assert not set(change.start) & held
                serving[rank] = [*(name for name in serving[rank] if name not in change.stop), *change.start]
        assert sorted(name for mine in serving for name in mine) == sorted(names)
        assert max(map(len, serving)) - min(map(len, serving)) <= 1


@given(st.integers(1, 5), st.integers(1, 6))
def test_controllers_that_begin_together_want_different_clusters(each: int, controllers: int) -> None:
    names = [f"c{number}" for number in range(each * controllers)]
    wanted = [share_change(names, (), (), controllers, rank).start for rank in range(controllers)]
    assert sorted(name for some in wanted for name in some) == sorted(names)


def test_a_cluster_without_a_settings_file_is_let_go() -> None:
    assert share_change(("a", "b"), ("gone", "a"), {"gone", "a"}, 1, 0) == (("b",), ("gone",))


def test_what_is_too_much_is_let_go_the_latest_first() -> None:
    names = ("a", "b", "c", "d")
    assert share_change(names, ("c", "a", "d"), set(names), 2, 0) == ((), ("d",))
