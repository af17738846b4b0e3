"""Trains against a parameter server, which may not be there yet."""

import argparse
import socket

from mini import hello, pause, port, say

options = argparse.ArgumentParser()
options.add_argument("name")
args = options.parse_args()


def connect(address):
    for tries_left in (2, 1, 0):
        try:
            return socket.create_connection(address, timeout=20)
        except ConnectionRefusedError as err:
            say(f"parameter server at {address[0]}:{address[1]}: {err.strerror}, {tries_left} tries left")
            if not tries_left:
                raise
            pause(1)


hello("recommender")
with connect(("127.0.0.1", port(args.name, "any"))) as server, server.makefile("rw") as lines:
    for step in range(1, 13):
        lines.write("pull\n" if step < 12 else "bye\n")
        lines.flush()
        if not (gradient := lines.readline()):
            raise ConnectionResetError("the parameter server closed the connection")
        pause(0.5)
        if step % 3 == 0:
            say(f"step {step} loss {0.9 - float(gradient) * step / 4:.3f}")
say("finished")
