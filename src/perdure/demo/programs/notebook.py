"""A notebook server somebody left running: it listens on its node's dashboard port for a while."""

import argparse
import socket
import time

from mini import PACE, hello, port, say

options = argparse.ArgumentParser()
options.add_argument("--for-s", type=float, default=25)
args = options.parse_args()

hello("notebook")
with socket.create_server(("127.0.0.1", port("board"))) as server:
    say(f"listening on port {port('board')}")
    server.settimeout(0.5)
    end = time.monotonic() + args.for_s * PACE
    while time.monotonic() < end:
        try:
            visitor, _ = server.accept()
        except TimeoutError:
            continue
        visitor.close()
say("finished: idle, shutting down")
