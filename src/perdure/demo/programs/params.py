"""A parameter server: it loads its table first, and only then listens; it ends once a client is done with it."""

import argparse
import socket
import time

from mini import PACE, hello, pause, port, say

options = argparse.ArgumentParser()
options.add_argument("name")
options.add_argument("--load-s", type=float, default=12)
options.add_argument("--idle-s", type=float, default=120)
args = options.parse_args()

hello("parameter server")
say("loading the embedding table")
pause(args.load_s)
with socket.create_server(("127.0.0.1", port(args.name, "any"))) as server:
    say(f"listening on port {port(args.name, 'any')}")
    server.settimeout(0.5)
    end = time.monotonic() + args.idle_s * max(PACE, 0.25)
    done = False
    while not done and time.monotonic() < end:
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        client.settimeout(30)
        with client, client.makefile("rw") as lines:
            for line in lines:
                done = line.strip() == "bye"
                lines.write("0.125\n")
                lines.flush()
say("finished: clients served" if done else "finished: nobody called")
