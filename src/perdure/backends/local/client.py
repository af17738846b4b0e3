"""The embedded cluster as a `Backend`: a client of its daemon."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure import errors
from perdure.backends.local import paths
from perdure.backends.local.outputs import LocalRuns, read_output
from perdure.backends.local.spec import JobSpec
from perdure.backends.local.wire import decode, encode
from perdure.backends.protocol import TAIL_BYTES
from perdure.errors import ClusterBusy, ClusterError, InputError, NotFound, PerdureError
from perdure.installation import user_name
from perdure.model.actions import Action, Outcome
from perdure.model.jobs import Attempt
from perdure.model.observation import Observation
from perdure.model.output import LogMark, Output
from perdure.waits.queue import QueueLook

T = TypeVar("T", bound=Struct)

TIMEOUT_S = 10.0
FAULTS = ("fail", "freeze", "thaw", "return")
MAX_ANSWER = 256 * 1024 * 1024


class LocalBackend:
    """One embedded cluster, by its state directory. Its daemon is started with `start_daemon`.

    Nothing is kept between calls, so a daemon may come and go. Every method but `observe` raises `ClusterBusy`
    while no daemon answers.
    """

    def __init__(self, state_dir: Path | str, cluster: str = "local", timeout_s: float = TIMEOUT_S) -> None:
        self.cluster = cluster
        self._state_dir = Path(state_dir)
        self._timeout_s = timeout_s

    def observe(self, since_s: float) -> Observation:
        """See `Backend.observe`. Jobs that are over are reported for 300 s, or since `since_s` where that is longer."""
        try:
            seen = self._read(Observation, self._ask({"op": "observe", "since_s": since_s}))
        except ClusterBusy as err:
            return Observation(self.cluster, time.time(), unseen={"controller": err.what})
        if seen.cluster != self.cluster:
            raise ClusterError(str(self._state_dir), f"its cluster is called {seen.cluster!r}", "Use that name")
        return seen

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        """See `Backend.output`. Where no daemon knows the job, the attempt's log alone is read."""
        try:
            of = {"job_id": attempt.id.job_id, "incarnation": attempt.id.incarnation}
            runs = self._read(LocalRuns, self._ask({"op": "runs", **of}))
        except (ClusterBusy, InputError, NotFound):  # a daemon of an earlier version refuses the question
            runs = None
        return read_output(attempt, runs, max_bytes, known)

    def perform(self, action: Action) -> Outcome:
        """See `Backend.perform`. The daemon remembers every key that it has answered."""
        wanted: dict[str, Any] = {"op": "perform", "action": encode(action)}
        try:
            answer = self._ask(wanted)
        except InputError:
            if wanted["action"].pop("user", None) is None:
                raise
            answer = self._ask(wanted)  # a daemon of before an upgrade does not know for whom an action can be meant
        return self._read(Outcome, answer)

    def lookup(self, action: Action) -> Outcome | None:
        """See `Backend.lookup`. Exact: an earlier `perform` of this client has been read before."""
        answer = self._ask({"op": "lookup", "key": action.key})
        return None if answer is None else self._read(Outcome, answer)

    def queue(self) -> QueueLook:
        """See `Reorderable.queue`."""
        return self._read(QueueLook, self._ask({"op": "queue"}))

    def set_nice(self, nice: Mapping[str, int]) -> dict[str, str]:
        """See `Reorderable.set_nice`."""
        self._ask({"op": "set_nice", "nice": dict(nice)})
        return {}

    def close(self) -> None:
        """See `Backend.close`: nothing is held."""

    def submit(self, spec: JobSpec | dict[str, Any]) -> str:
        """Queue a job, or the fields of one; returns its id.

        Raises `InputError`, and `ClusterError` where the cluster can never run it.
        """
        if isinstance(spec, dict):
            spec = decode(JobSpec, spec, "job")
        _must_be_utf8(spec.user)
        spec = replace(
            spec,
            name=spec.name or Path(spec.argv[0]).name,
            user=spec.user or user_name(),
            workdir=os.path.abspath(spec.workdir or os.getcwd()),
        )
        return str(self._ask({"op": "submit", "spec": encode(spec)})["job_id"])

    def fault(self, node: str, what: str) -> None:
        """Do something to a node, one of `FAULTS`.

        Raises `InputError`, `NotFound`, or `ClusterError` where its state does not allow it.
        """
        if what not in FAULTS:
            raise InputError(f"node {node}", f"no fault is called {what!r}", f"Use one of: {', '.join(FAULTS)}")
        self._ask({"op": "fault", "node": node, "what": what})

    def ping(self) -> int:
        """The process number of the daemon that answers."""
        return int(self._ask({"op": "ping"})["pid"])

    def stop(self) -> None:
        """Ask the daemon to end all jobs' processes and itself; what ran is queued again when it comes back."""
        self._ask({"op": "stop"})

    def _read(self, cls: type[T], answer: object) -> T:
        try:
            return decode(cls, answer)
        except ValueError as err:
            what = f"its cluster daemon is of another version: {err}"
            raise ClusterError(str(self._state_dir), what, "Stop it and start it again") from err

    def _ask(self, request: dict[str, Any]) -> Any:
        answer = json.loads(self._exchange(json.dumps(request).encode() + b"\n"))
        if "error" not in answer:
            return answer["ok"]
        error = answer["error"]
        kind = getattr(errors, error["kind"], ClusterError)
        kind = kind if isinstance(kind, type) and issubclass(kind, PerdureError) else ClusterError
        raise kind(error["where"], error["what"], error["fix"])

    def _exchange(self, request: bytes) -> bytes:
        address = paths.socket_path(self._state_dir)
        if address is None:
            raise self._busy("no cluster daemon runs there")
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._timeout_s)
                connection.connect(str(address))
                connection.sendall(request)
                return _read_line(connection)
        except (FileNotFoundError, ConnectionRefusedError) as err:
            raise self._busy("no cluster daemon runs there") from err
        except OSError as err:
            raise self._busy(f"the cluster daemon does not answer: {err}") from err

    def _busy(self, what: str) -> ClusterBusy:
        return ClusterBusy(str(self._state_dir), what, "Start it with: perdure up")


def _read_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(1 << 20)
        if not chunk or len(received) > MAX_ANSWER:
            raise ConnectionError("the answer broke off")
        received += chunk
    return bytes(received)


def _must_be_utf8(user: str) -> None:
    """What was kept of such a name would be another one: see `OnJob.user`."""
    try:
        user.encode()
    except UnicodeEncodeError as err:
        what = f"user {user!a:.80} is not UTF-8"
        raise InputError("job", what, "Give it in UTF-8, and submit the job again") from err
