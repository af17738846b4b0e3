"""What these miniature programs share: who they are, where the site keeps things, a gang's wires, checkpoints.

They run for seconds and sleep where a real one would compute; PACE stretches or shortens every wait. A few use
NumPy, those with checkpoints use Perdure's fence, the rest is the standard library.
"""

import json
import os
import shutil
import socket
import struct
import time
import zlib
from pathlib import Path

JOB = os.environ.get("PERDURE_JOB_ID", "0")
INCARNATION = int(os.environ.get("PERDURE_INCARNATION", "1"))
NODE = os.environ.get("PERDURE_NODE", "localhost")
RANK = int(os.environ.get("PERDURE_RANK", "0"))
SHARED = Path(os.environ.get("SHARED", "shared"))
PACE = float(os.environ.get("PACE", "1"))


def say(text):
    """One line of the log, with the rank where there is more than one."""
    rank = f" [rank {RANK}]" if os.environ.get("PERDURE_WORLD_SIZE", "1") != "1" else ""
    print(f"{time.strftime('%H:%M:%S')}{rank} {text}", flush=True)


def hello(what):
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    say(f"{what}: job {JOB}, attempt {INCARNATION}, node {NODE}, gpus {gpus}")


def pause(seconds):
    time.sleep(seconds * PACE)


def port(service, node=NODE):
    """The port of a service on a node. All nodes are one machine, so each has ports of its own."""
    place = f"{os.environ.get('PERDURE_STATE', '')}:{node}:{service}"
    return 12_000 + zlib.crc32(place.encode()) % 8_000


def scratch():
    """The directory that stands for the node's own disk."""
    path = SHARED / "scratch" / NODE
    path.mkdir(parents=True, exist_ok=True)
    return path


class Checkpoint:
    """A run's saved state: never half, and under ``perdure exec`` only ever written by the newest attempt."""

    def __init__(self):
        self.directory = Path("runs") / f"job-{JOB}"
        self.path = self.directory / "checkpoint.json"

    def load(self):
        """The last saved state, or None on a fresh start."""
        if not self.path.exists():
            return None
        state = json.loads(self.path.read_text())
        say(f"resuming from step {state['step']}, saved by attempt {state['attempt']}")
        return state

    def save(self, step, **values):
        from perdure.job import checkpointed

        with checkpointed(self.path) as draft:
            draft.write_text(json.dumps({"step": step, "attempt": INCARNATION, **values}))
        say(f"checkpoint saved at step {step}")

    def discard(self):
        """A finished run needs it no more."""
        shutil.rmtree(self.directory, ignore_errors=True)


class Pair:
    """The wire between the two ranks of a gang; rank 0 listens, rank 1 calls."""

    def __init__(self):
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"]))
        self.wire = self._accept(address) if RANK == 0 else self._call(address)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say(f"rendezvous of 2 ranks at port {address[1]} done")

    @staticmethod
    def _accept(address):
        with socket.create_server(address) as server:
            server.settimeout(30)
            wire, _ = server.accept()
        wire.settimeout(None)
        return wire

    @staticmethod
    def _call(address):
        deadline = time.monotonic() + 30
        while True:
            try:
                wire = socket.create_connection(address, timeout=30)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                wire.settimeout(None)
                return wire

    def send(self, value):
        self.wire.sendall(struct.pack("!d", value))

    def receive(self):
        data = self.wire.recv(8, socket.MSG_WAITALL)
        if len(data) < 8:
            raise ConnectionResetError(f"rank {1 - RANK} closed the connection")
        return struct.unpack("!d", data)[0]
