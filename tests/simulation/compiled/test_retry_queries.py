"""The questions to a retry policy: each has the nodes of its own job."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.simulation.compiled.gpu_places import COUNT, FIRST_FIT, empty_places
from perdure.simulation.compiled.retry_queries import OVER, no_questions
from tests.simulation.compiled.in_python import in_python

queries, places_kernels = in_python("retry_queries"), in_python("gpu_places")
CLUSTER = Cluster.parse("6x2")


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.booleans()), max_size=5))
def test_each_question_has_the_nodes_of_its_job_and_no_others(ended: list[tuple[set[int], bool]]) -> None:
    """Jobs that end well are noted and not asked about: the next one writes over their nodes."""
    places, found = empty_places(CLUSTER, FIRST_FIT, 0, len(ended)), no_questions(CLUSTER.total_gpus * 5)
    for row, (nodes, failed) in enumerate(ended):
        for node in nodes:
            places_kernels.hold(places, row, node, 1)
        until = queries.note_nodes(found, places, row)
        places_kernels.release(places, row, len(nodes))
        if failed:
            queries.ask(found, row, row + 1, row + 2, row + 3, -1, until)
    wanted = [(row, nodes) for row, (nodes, failed) in enumerate(ended) if failed]
    assert found.tally[0].many == len(wanted)
    begin = 0
    for about, (row, nodes) in zip(found.about, wanted, strict=False):
        assert (about.row, about.number, about.record, about.ran, about.bad) == (row, row + 1, row + 2, row + 3, -1)
        assert about.back == OVER  # until it is answered
        assert set(found.nodes[begin : about.until].tolist()) == nodes
        assert about.until - begin == len(nodes)
        begin = int(about.until)


def test_where_gpus_are_counted_a_question_has_no_nodes() -> None:
    places, found = empty_places(CLUSTER, COUNT, 0, 1), no_questions(4)
    assert queries.note_nodes(found, places, 0) == 0
