"""A cluster to test against: the API on a port of this machine, its controllers in a thread, nodes that may fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.backends.kubernetes.standin.access import ADMIN
from tests.backends.kubernetes.standin.controllers import GPU, ControlPlane
from tests.backends.kubernetes.standin.kinds import BUILT_IN, custom_kinds
from tests.backends.kubernetes.standin.schemas import NEWEST, published
from tests.backends.kubernetes.standin.server import StandInApi, serve
from tests.backends.kubernetes.standin.store import Document, ObjectStore

STEP_S = 0.02


class StandInCluster:
    """The whole. Nodes are called node1 and so on, each with GPUs; `kueue` adds kinds of other projects."""

    def __init__(self, folder: Path, nodes: int = 4, gpus: int = 4, version: str = NEWEST, kueue: str = "") -> None:
        self.folder = folder
        store = ObjectStore()
        self.api = StandInApi(store, published(version), (*BUILT_IN, *(custom_kinds(kueue) if kueue else ())))
        store.validate = self.api.validate
        self.control = ControlPlane(self.api)
        self.nodes = tuple(f"node{number}" for number in range(1, nodes + 1))
        for name in ("default", "kube-system", "perdure", "team"):
            store.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in self.nodes:
            store.create("nodes", node(name, gpus))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.server = serve(self.api)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def kubeconfig(self, token: str = ADMIN) -> Path:
        """A kubeconfig of whoever has the token."""
        path = self.folder / f"{token}.kubeconfig"
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stand-in",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.url}}],
            "users": [{"name": token, "user": {"token": token}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": token, "namespace": "team"}}],
        }
        path.write_text(yaml.safe_dump(told))
        return path

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.api.faults.silent = True
        self.api.cut()
        self.server.shutdown()
        self.server.server_close()

    def fail_node(self, name: str) -> None:
        with self.api.store.lock:
            self.control.dead[name] = time.monotonic()

    def return_node(self, name: str) -> None:
        with self.api.store.lock:
            del self.control.dead[name]

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nobody gets an answer inside the block."""
        self.api.faults.silent = True
        self.api.cut()
        try:
            yield
        finally:
            self.api.faults.silent = False

    def _run(self) -> None:
        while not self._stop.wait(STEP_S):
            self.control.step()


def node(name: str, gpus: int) -> Document:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"{name}.site"}},
        "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": []},
    }


@contextmanager
def open_cluster(folder: Path, **options: int | str | bool) -> Iterator[StandInCluster]:
    """A cluster for the time of a block."""
    cluster = StandInCluster(folder, **options)  # type: ignore[arg-type]
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
