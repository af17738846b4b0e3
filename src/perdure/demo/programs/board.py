"""Trains with a live metrics board, which wants the dashboard port of whatever node the job is on."""

import socket

from mini import hello, pause, port, say

hello("segmenter with metrics board")
say(f"starting the metrics board on port {port('board')}")
with socket.create_server(("127.0.0.1", port("board"))):
    for epoch in range(1, 9):
        pause(1)
        say(f"epoch {epoch} iou {0.4 + 0.05 * epoch:.2f}")
say("finished")
