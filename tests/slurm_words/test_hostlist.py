"""Node lists written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.slurm_words.hostlist import expand, is_node_name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3,7],gpu-a[01-02]b", ["node1", "node2", "node3", "node7", "gpu-a01b", "gpu-a02b"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("a,b,a", ["a", "b"]),
        ("n[098-102]", ["n098", "n099", "n100", "n101", "n102"]),
        ("", []),
        ("(null)", []),
        ("None assigned", []),
    ],
)
def test_a_list_is_written_out_in_order(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1[", "n[1-3", "n[[1]]", "n[3-1]", "n[a-b]", "n 1", "n;rm", "n[1-2]x y", ",", "-n", "n[1][2][3][4][5]"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        expand(text)


@pytest.mark.parametrize("text", ["n[1-999999999]", "a[1-99999]b[1-99999]c[1-99999]"])
def test_a_list_of_too_many_is_refused_at_once(text: str) -> None:
    with pytest.raises(InputError, match="more than"):
        expand(text, limit=1000)


@given(st.text(alphabet="n1-9[],. a\n(", max_size=30))
def test_any_text_gives_node_names_or_an_error(text: str) -> None:
    try:
        names = expand(text)
    except InputError:
        return
    assert all(is_node_name(name) for name in names)
    assert len(set(names)) == len(names)


def test_doubles_count() -> None:
    assert expand("n1,n1", limit=2) == ("n1",)
    with pytest.raises(InputError, match="more than 2 nodes"):
        expand("n1,n1,n1", limit=2)
