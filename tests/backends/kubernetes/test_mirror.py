"""A watch that is cut, stale, doubled or expired: what is held is what the server has."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra k8s is not installed")

from perdure.backends.kubernetes.api import ClusterApi, VersionExpired, WatchLine
from perdure.backends.kubernetes.held import MirrorView
from perdure.backends.kubernetes.mirror import Mirror
from perdure.backends.kubernetes.objects import label, name_of
from perdure.backends.kubernetes.resources import PODS, ResourceKind
from perdure.backends.kubernetes.settings import KubernetesSettings
from tests.backends.kubernetes.standin.cluster import StandInCluster

PATIENCE_S = 20.0


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": {"job-name": "train", **labels}},
        "spec": {"containers": [{"name": "main", "image": "trainer"}], "schedulingGates": [{"name": "test/never"}]},
        "status": {"phase": "Pending"},
    }


@pytest.fixture
def mirror(cluster: StandInCluster) -> Iterator[Mirror]:
    api = ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig()))
    opened = Mirror(api, PODS, "team", "job-name")
    opened.start()
    assert opened.wait_listed(PATIENCE_S)
    yield opened
    opened.close()
    api.close()


def until(mirror: Mirror, holds: Callable[[MirrorView], bool]) -> MirrorView:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        view = mirror.view()
        if holds(view):
            return view
        time.sleep(0.02)
    raise AssertionError(f"not so after {PATIENCE_S} s: {mirror.view()}")


def names(view: MirrorView) -> list[str]:
    return sorted(name_of(held.document) for held in view.objects if held.gone_s is None)


def gone(view: MirrorView) -> list[str]:
    return sorted(name_of(held.document) for held in view.objects if held.gone_s is not None)


def lists(cluster: StandInCluster) -> int:
    return cluster.api.requests.count(("GET", "/api/v1/namespaces/team/pods"))


def change(cluster: StandInCluster, name: str, value: str) -> None:
    document = cluster.api.store.get("pods", "team", name)
    document["metadata"]["labels"]["round"] = value
    cluster.api.store.update("pods", document)


def rounds(view: MirrorView) -> list[str]:
    return [label(held.document, "round") for held in view.objects if held.gone_s is None]


def test_what_is_made_changed_and_deleted_is_seen(cluster: StandInCluster, mirror: Mirror) -> None:
    cluster.api.store.create("pods", pod("a"))
    until(mirror, lambda view: names(view) == ["a"])
    change(cluster, "a", "2")
    until(mirror, lambda view: rounds(view) == ["2"])
    cluster.api.store.delete("pods", "team", "a")
    view = until(mirror, lambda view: gone(view) == ["a"])
    assert label(view.objects[0].document, "round") == "2"  # as it was last


def test_a_watch_that_is_cut_off_in_an_event_loses_nothing(cluster: StandInCluster, mirror: Mirror) -> None:
    cluster.api.faults.dropped_watches = 2
    for number in range(5):
        cluster.api.store.create("pods", pod(f"p{number}"))
    until(mirror, lambda view: names(view) == [f"p{number}" for number in range(5)])
    assert cluster.api.faults.dropped_watches == 0


def test_events_that_come_twice_or_late_change_nothing(cluster: StandInCluster, mirror: Mirror) -> None:
    cluster.api.faults.doubled_events = cluster.api.faults.late_events = True
    cluster.api.store.create("pods", pod("a"))
    for number in range(20):
        change(cluster, "a", str(number))
    until(mirror, lambda view: rounds(view) == ["19"])
    cluster.api.store.create("pods", pod("last"))  # comes after the late one
    assert rounds(until(mirror, lambda view: "last" in names(view))) == ["19", ""]


def test_a_watch_that_has_expired_is_a_new_list(cluster: StandInCluster, mirror: Mirror) -> None:
    """What went in between is seen to be gone, as it was last."""
    for name in ("stays", "goes"):
        cluster.api.store.create("pods", pod(name))
    until(mirror, lambda view: names(view) == ["goes", "stays"])
    cluster.api.faults.longest_watch_s = 0.0
    time.sleep(0.3)
    with cluster.cut_off():
        cluster.api.store.delete("pods", "team", "goes")
        cluster.api.store.create("pods", pod("new"))
        cluster.api.store.compact()
        until(mirror, lambda view: bool(view.trouble))
    cluster.api.faults.longest_watch_s = 3600.0
    view = until(mirror, lambda view: names(view) == ["new", "stays"] and not view.trouble)
    assert gone(view) == ["goes"]


def test_bookmarks_keep_a_quiet_watch_from_expiring(cluster: StandInCluster, mirror: Mirror) -> None:
    """Others write, the log is compacted: a watch that heard bookmarks goes on without a new list."""
    cluster.api.faults.bookmark_s = 0.05
    cluster.api.store.create("pods", pod("a"))
    until(mirror, lambda view: names(view) == ["a"])
    for number in range(3):
        cluster.api.store.create("configmaps", config_map(f"noise-{number}"))
    assert mirror.reach(str(cluster.api.store.version), PATIENCE_S)
    before = lists(cluster)
    cluster.api.store.compact()
    cluster.api.faults.dropped_watches = 1
    cluster.api.store.create("pods", pod("b"))
    until(mirror, lambda view: names(view) == ["a", "b"])
    assert lists(cluster) - before == 1  # the watch that follows the one that was cut off


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"}}


def test_a_list_older_than_what_was_seen_is_not_believed(cluster: StandInCluster, mirror: Mirror) -> None:
    """An API server that lags behind the one before it would show what is gone, and hide what is new."""
    cluster.api.store.create("pods", pod("a"))
    until(mirror, lambda view: names(view) == ["a"])
    cluster.api.faults.stale_lists = 1  # the list of the beginning, in which nothing was
    with cluster.cut_off():
        cluster.api.store.create("pods", pod("b"))
        cluster.api.store.compact()
    view = until(mirror, lambda view: names(view) == ["a", "b"] and not view.trouble)
    assert gone(view) == []
    assert cluster.api.faults.stale_lists == 0


def test_silence_is_said(cluster: StandInCluster, mirror: Mirror) -> None:
    with cluster.cut_off():
        assert "no answer" in until(mirror, lambda view: bool(view.trouble)).trouble
    until(mirror, lambda view: not view.trouble)


def test_what_leaves_the_selection_is_gone(cluster: StandInCluster, mirror: Mirror) -> None:
    cluster.api.store.create("pods", pod("a"))
    until(mirror, lambda view: names(view) == ["a"])
    document = cluster.api.store.get("pods", "team", "a")
    del document["metadata"]["labels"]["job-name"]
    cluster.api.store.update("pods", document)
    until(mirror, lambda view: gone(view) == ["a"])


def test_a_list_of_many_pages_is_read_whole_and_begun_again_where_a_page_has_expired(cluster: StandInCluster) -> None:
    for number in range(1203):
        cluster.api.store.create("configmaps", config_map(f"m{number:04}"))
    kind = ResourceKind("", "v1", "ConfigMap", "configmaps")
    api = ClusterApi.of(KubernetesSettings(kubeconfig=cluster.kubeconfig()))
    try:
        assert len(api.list_all(kind)[1]) == 1203
        cluster.api.faults.expired_pages = 1
        with pytest.raises(VersionExpired):
            api.list_all(kind)
    finally:
        api.close()


@pytest.mark.parametrize("seed", range(40))
def test_what_is_held_is_the_newest_of_each_and_what_is_gone_stays_so(seed: int) -> None:
    """Held to the plain truth: lines of a watch that are late, doubled, or of objects that are gone change nothing."""
    rng = random.Random(seed)
    held: dict[str, int] = {}
    gone: set[str] = set()
    newest = 0
    mirror = Mirror(None, PODS, keep=lambda pod: None if pod["metadata"].get("labels") == {"x": "left"} else pod)  # type: ignore[arg-type]
    for _ in range(60):
        uid, kind = rng.choice("abc"), rng.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"))
        version = rng.randrange(newest + 3)
        leaves = kind == "MODIFIED" and rng.random() < 0.1
        metadata = {"uid": uid, "name": uid, "resourceVersion": str(version), "labels": {"x": "left"} if leaves else {}}
        mirror._take(WatchLine(type=kind, object={"metadata": metadata}), 100.0)
        if kind == "BOOKMARK":
            newest = max(newest, version)
        elif uid not in gone and version >= held.get(uid, 0):
            newest = max(newest, version)
            if kind == "DELETED" or leaves:
                gone |= {uid} & held.keys()
                held.pop(uid, None)
            elif kind in ("ADDED", "MODIFIED"):
                held[uid] = version
        found = [*mirror._held.values(), *mirror._gone.values()]
        assert {each.document["metadata"]["uid"]: each.gone_s is not None for each in found} == {
            **dict.fromkeys(held, False), **dict.fromkeys(gone, True)
        }  # fmt: skip
        assert all(
            int(each.document["metadata"]["resourceVersion"]) == held[each.document["metadata"]["uid"]]
            for each in found
            if each.gone_s is None
        )
        assert mirror._newest == newest
