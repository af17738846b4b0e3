"""Rows of three kinds become windows, and the culprit of each is named by its name."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.blame import localise
from perdure.blame.builders.attempts import AttemptRow, attempt_window, path_of
from perdure.blame.builders.named import Named, named, together
from perdure.blame.builders.probes import ProbeRow, probe_window
from perdure.blame.builders.vms import VmRow, folded, vm_window
from perdure.blame.witnesses import attested
from perdure.errors import InputError

UPLINKS = {
    **{f"t{c}{i}": [f"a{c}1", f"a{c}2"] for c in range(3) for i in range(4)},
    **{f"a{c}{k}": [f"s{k}", f"s{k + 2}"] for c in range(3) for k in (1, 2)},
    **{f"st{i}": ["b1", "b2"] for i in range(3)},
    **{f"b{k}": [f"s{k}", f"s{k + 2}"] for k in (1, 2)},
}


def names(found: Named) -> set[Any]:
    return {found.components[suspect.component] for suspect in localise(found.window)}


def vms(fails: Callable[[Any, Any, Any], Any], failing: int = 20) -> list[Any]:
    return [
        VmRow(f"c{c}", f"t{c}{i}", f"st{s}", 40, failing * fails(c, i, s))
        for c in range(3) for i in range(4) for s in range(3)
    ]  # fmt: skip


def test_a_clos_is_folded_to_a_tree() -> None:
    assert folded("t11", "st0", UPLINKS) == (("tier 1", "a11+a12"), ("tier 1", "b1+b2"), ("tier 2", "s1+s2+s3+s4"))


def test_ends_below_one_switch_meet_there() -> None:
    assert folded("t11", "t12", UPLINKS) == (("tier 1", "a11+a12"),)


def test_ends_that_never_meet_are_refused() -> None:
    with pytest.raises(InputError, match="t11 and elsewhere: no device is above both"):
        folded("t11", "elsewhere", UPLINKS)


@pytest.mark.parametrize(
    ("fails", "culprit"),
    [
        (lambda c, i, s: (c, i) == (1, 2), ("tor", "t12")),
        (lambda c, i, s: s == 2, ("storage", "st2")),
        (lambda c, i, s: c == 0, ("tier 1", "a01+a02")),
    ],
)
def test_vm_failures_name_what_they_share(fails: Callable[[Any, Any, Any], Any], culprit: tuple[str, str]) -> None:
    assert names(vm_window(vms(fails), UPLINKS)) == {culprit}


def test_the_cluster_view_has_no_tors() -> None:
    found = vm_window(vms(lambda c, i, s: s == 1), UPLINKS, view="cluster")
    assert {tier for tier, _ in found.components} == {"compute", "tier 1", "tier 2", "storage"}
    assert found.window.n_paths == 9
    assert names(found) == {("storage", "st1")}


def test_a_lossy_link_is_told_from_its_devices() -> None:
    rows = [
        ProbeRow((f"l{i}", f"c{k}", f"l{j}"), 500, 25 * ((i, k) == (2, 1) or (j, k) == (2, 1)))
        for i in range(5) for j in range(5) for k in range(3) if i != j
    ]  # fmt: skip
    assert names(probe_window(rows)) == {("link", "c1--l2")}


def attempt(user: str, node: str, failed: bool, job: str = "train", **more: Any) -> AttemptRow:
    return AttemptRow(0.0, user, job, (node,), failed, **more)


def fleet_of_attempts(fails: Callable[[Any, Any], Any]) -> list[Any]:
    return [attempt(f"u{u}", f"n{n}", fails(u, n), f"j{u}") for u in range(6) for n in range(8) for _ in range(3)]


def test_a_node_that_fails_everybody_is_blamed() -> None:
    assert names(attempt_window(fleet_of_attempts(lambda u, n: n == 3))) == {("node", "n3")}


def test_code_that_fails_everywhere_is_blamed_instead_of_its_nodes() -> None:
    found = attempt_window(fleet_of_attempts(lambda u, n: u == 2))
    (suspect,) = localise(found.window)
    assert {found.components[one] for one in (suspect.component, *suspect.equivalent)} == {
        ("code", "u2/j2"), ("user", "u2"),
    }  # fmt: skip


def test_of_a_users_codes_the_broken_one_is_named() -> None:
    rows = fleet_of_attempts(lambda u, n: u == 2)
    rows += [attempt("u2", f"n{n}", False, "other") for n in range(8) for _ in range(3)]
    assert names(attempt_window(rows)) == {("code", "u2/j2")}


def test_deterministic_failures_speak_of_the_code_alone() -> None:
    row = attempt("ann", "n1", True, deterministic=True, storage=("pfs",), image="i", gpus=("n1:0",))
    assert path_of(row) == {("code", "ann/train"), ("user", "ann")}
    assert ("node", "n1") in path_of(attempt("ann", "n1", False, deterministic=True))
    rows = fleet_of_attempts(lambda u, n: False) + [attempt("ann", "n1", True, deterministic=True)] * 20
    found = attempt_window(rows)
    assert names(found) == {("code", "ann/train")}


def test_all_that_an_attempt_used_is_on_its_path() -> None:
    row = attempt("ann", "n1", True, storage=("pfs",), image="torch:2", gpus=("n1:0",), switches=(("leaf", "l1"),))
    assert path_of(row) == {
        ("code", "ann/train"), ("user", "ann"), ("node", "n1"), ("gpu", "n1:0"), ("leaf", "l1"), ("storage", "pfs"),
        ("image", "torch:2"),
    }  # fmt: skip


def test_no_rows_are_no_window() -> None:
    for build in (attempt_window, probe_window, lambda rows: vm_window(rows, {})):
        with pytest.raises(InputError, match="there is no path in it"):
            build([])


def test_more_failures_than_units_are_refused_with_their_row() -> None:
    with pytest.raises(InputError, match="<probes>, row 2: e is larger than n"):
        probe_window([ProbeRow(("a", "b"), 3, 0), ProbeRow(("a", "c"), 3, 4)])


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.integers(0, 9)), min_size=1))
def test_putting_paths_together_keeps_all_units(rows: list[Any]) -> None:
    paths = [(frozenset(("t", one) for one in path), n, n // 2) for path, n in rows]
    apart, one = named(paths).window, named(together(paths)).window
    assert apart.units.sum() == one.units.sum()
    assert apart.failures.sum() == one.failures.sum()
    assert one.n_paths == len({path for path, _, _ in paths})


# -- whose word


NODE = ("node", "n3")


def test_one_user_failing_a_thousand_times_moves_no_node() -> None:
    calm = fleet_of_attempts(lambda u, n: False)
    forged = [attempt("eve", "n3", True, f"j{k % 50}") for k in range(1000)]
    assert not attested(NODE, calm + forged)


def test_nor_with_one_unlucky_failure_of_another_among_many_good_runs() -> None:
    rows = [*fleet_of_attempts(lambda u, n: False), attempt("bob", "n3", True)]
    rows += [attempt(f"u{u}", f"n{n}", True) for u in range(4) for n in range(4, 8)]  # such things happen
    assert not attested(NODE, rows + [attempt("eve", "n3", True)] * 1000)


def test_failures_of_two_users_do() -> None:
    assert attested(NODE, fleet_of_attempts(lambda u, n: n == 3 and u < 2))


def test_and_so_does_the_resource_managers_own_word() -> None:
    rows = [*fleet_of_attempts(lambda u, n: False), attempt("eve", "n3", True, down=("n3",))]
    assert attested(NODE, rows)
    assert not attested(("node", "n4"), rows)


def test_a_users_own_attempts_suffice_against_his_code() -> None:
    assert attested(("code", "eve/x"), [attempt("eve", "n1", True, "x")])


def test_deterministic_failures_are_no_word_against_a_node() -> None:
    rows = [attempt(user, "n3", True, deterministic=True) for user in ("ann", "bob", "eve") for _ in range(9)]
    assert not attested(NODE, rows + fleet_of_attempts(lambda u, n: False))
