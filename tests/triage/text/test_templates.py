"""Templates: drain3 is the oracle, and what it does not bound is bounded here."""

import json

import pytest
from drain3.drain import Drain
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.triage.labelled import read_logs
from perdure.triage.text.masking import mask
from perdure.triage.text.templates import WILDCARD, Shape, TemplateTree
from tests.triage.recorded import RECORDED

UNBOUNDED = {"max_words": 10**6, "max_templates": 10**6, "max_in_leaf": 10**6}
words = st.sampled_from(["load", "save", "step", "a1", "17", "of", "to", "x", "y", "z"])
lines = st.lists(st.lists(words, max_size=5).map(" ".join), max_size=40)


@pytest.fixture(scope="module")
def recorded() -> list[str]:
    """The masked lines of recorded logs."""
    return [mask(line.encode()).decode() for log in read_logs(RECORDED) for line in log.text.splitlines()]


def same_as_drain3(given: list[str], shape: Shape) -> None:
    oracle = Drain(depth=3 + shape.prefix_words, sim_th=shape.similar_from, max_children=shape.max_children)
    tree = TemplateTree(shape)
    for line in given:
        assert tree.learn(line).id == oracle.add_log_message(line)[0].cluster_id
    assert [str(template) for template in tree] == [cluster.get_template() for cluster in oracle.clusters]
    assert [template.lines for template in tree] == [cluster.size for cluster in oracle.clusters]


@pytest.mark.parametrize("prefix_words", [0, 1, 2, 3])
def test_recorded_logs_fall_into_the_clusters_of_drain3(recorded: list[str], prefix_words: int) -> None:
    same_as_drain3(recorded, Shape(prefix_words=prefix_words, **UNBOUNDED))


@given(lines, st.sampled_from([0.3, 0.4, 0.5, 1.0]), st.integers(0, 2), st.integers(2, 5))
def test_any_lines_fall_into_the_clusters_of_drain3(
    given: list[str], similar_from: float, prefix_words: int, max_children: int
) -> None:
    same_as_drain3(given, Shape(similar_from, prefix_words, max_children, **UNBOUNDED))


@given(lines, st.integers(0, 2), st.integers(2, 5))
def test_what_was_learnt_is_matched(given: list[str], prefix_words: int, max_children: int) -> None:
    tree = TemplateTree(Shape(prefix_words=prefix_words, max_children=max_children))
    for line in given:
        tree.learn(line)
    assert all(tree.match(line) for line in given)


def test_what_drain3_matches_is_matched(recorded: list[str]) -> None:
    oracle, tree = Drain(), TemplateTree(Shape(**UNBOUNDED))
    for line in recorded[::2]:
        oracle.add_log_message(line)
        tree.learn(line)
    assert all(tree.match(line) for line in recorded if oracle.match(line))
    assert tree.match("a line that was never learnt anywhere") is None


def test_words_that_differ_become_wildcards() -> None:
    tree = TemplateTree()
    for name in ("train", "test", "validation"):
        template = tree.learn(f"Loading {name} is finished")
    assert str(template) == f"Loading {WILDCARD} is finished"
    assert (len(tree), template.lines) == (1, 3)


@given(lines, st.integers(1, 4), st.integers(1, 3), st.integers(2, 3))
def test_it_never_holds_more_than_it_may(given: list[str], most: int, in_leaf: int, max_children: int) -> None:
    tree = TemplateTree(Shape(0.9, 1, max_children, in_leaf, most))
    for line in given:
        learnt = tree.learn(line)
        assert len(tree) <= most
        assert tree.match(line) is not None
        assert learnt in list(tree)
    branches = json.dumps(tree.state()["tree"]).count("[{")
    assert branches <= 1 + 2 * most  # the root, and for each template the nodes of its length and its first word


def test_the_least_recently_used_is_forgotten() -> None:
    tree = TemplateTree(Shape(max_templates=2))
    for line in ("a b", "c d e", "a b", "f g h i"):
        tree.learn(line)
    assert [str(template) for template in tree] == ["a b", "f g h i"]


@given(lines, lines)
def test_a_tree_saved_and_read_goes_on_where_it_stood(before: list[str], after: list[str]) -> None:
    tree = TemplateTree(Shape(max_templates=6, max_in_leaf=2, max_children=3))
    for line in before:
        tree.learn(line)
    copy = TemplateTree.of_state(json.loads(json.dumps(tree.state())))
    for line in after:
        assert tree.learn(line).id == copy.learn(line).id
    assert copy.state() == tree.state()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"founded": None},
        {"shape": {"width": 3}},
        {"templates": [[1, 1]]},
        {"templates": [[1e999, 1, ["a"]]]},
        {"founded": 1e999},
        {"templates": []},
        {"tree": [{}, []]},
        {"tree": [{"3": [{}, [1]]}, []]},
        {"tree": 7},
    ],
)
def test_what_is_no_state_is_told_in_one_line(change: dict[str, object]) -> None:
    tree = TemplateTree()
    tree.learn("a b")
    with pytest.raises(InputError, match=r"^good\.json: "):
        TemplateTree.of_state({**tree.state(), **change}, "good.json")
    with pytest.raises(InputError):
        TemplateTree.of_state([], "x")  # type: ignore[arg-type]
