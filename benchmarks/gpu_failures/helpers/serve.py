"""A small HTTP server on 127.0.0.1, to be the store, the tracker or the hub: serve.py PORT MODE [COUNT]."""

import http.server
import os
import socket
import socketserver
import struct
import sys
import time

PORT, MODE, COUNT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
seen = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def answer(self, code, body=b"x" * 65536, declared=None):
        self.send_response(code)
        self.send_header("Content-Length", str(declared or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        global seen
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen += 1
        if seen <= COUNT:
            self.answer(200)
            return
        if MODE == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            os._exit(0)
        if MODE == "cut":
            self.answer(200, b"x" * 65536, 10 * 65536)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            os._exit(0)
        if MODE == "stall":
            time.sleep(600)
        if MODE == "flaky":
            self.answer(503 if seen % 7 == 0 else 200, b"busy" if seen % 7 == 0 else b"x" * 65536)
            return
        self.answer(
            int(MODE), b'{"error": "' + http.server.BaseHTTPRequestHandler.responses[int(MODE)][0].encode() + b'"}'
        )

    do_POST = do_HEAD = do_PUT = do_GET


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, allow_reuse_address = True, True


Server(("127.0.0.1", PORT), Handler).serve_forever()
