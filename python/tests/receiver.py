"""An HTTP server that takes spans, for tests and measurements."""

import contextlib
import http.server
import json
import socket
import socketserver
import threading
from pathlib import Path

PATIENCE = 60  # seconds that a test waits for an event
LOST = "servetrace-lost"


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = False
    allow_reuse_address = True


class Receiver:
    """An HTTP server that takes spans, at the path of a Unix socket or at (host, port).
    ``answers`` are given one after the other, then 200: a status, (status, headers, text),
    None for an end of the connection, or a function that returns one of them."""

    def __init__(self, address, answers=()):
        self.address, self.answers = address, list(answers)
        self.names, self.requests, self.headers, self.lost, self.calls = [], [], [], [], 0
        self._changed = threading.Condition()
        self.start()

    def start(self):
        receiver, connections = self, self._connections = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                receiver.answer(self)

            def log_message(self, *args):
                pass

        class Server(_Server):
            address_family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET

            def process_request(self, request, client_address):
                connections.append(request)
                super().process_request(request, client_address)

            def handle_error(self, request, client_address):
                pass  # stop has cut the connection

        if isinstance(self.address, str):
            Path(self.address).unlink(missing_ok=True)
        self._server = Server(self.address, Handler)
        self.address = self._server.server_address
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self):
        """Closes the listener and the connections, and waits for the threads."""
        self._server.shutdown()
        self._thread.join()
        self._server.socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def answer(self, call):
        body = call.rfile.read(int(call.headers["Content-Length"]))
        answer = 200
        if body:  # an empty request connects
            with self._changed:
                self.calls += 1
                self.headers.append(call.headers)
                answer = self.answers.pop(0) if self.answers else 200
                self._changed.notify_all()
        if callable(answer):
            answer = answer()
        if answer is None:
            call.close_connection = True
            return
        status, headers, text = answer if isinstance(answer, tuple) else (answer, {}, "" if answer == 200 else "told to")
        if status == 200 and LOST in call.headers:
            self.lost.append(call.headers[LOST])
        if status == 200 and body:
            with self._changed:
                self.take(body)
                self._changed.notify_all()
        told = {"partialSuccess": {"errorMessage": text}} if status == 200 else {"message": text}
        data = json.dumps(told).encode() if text else b""
        call.send_response(status)
        for key, value in {**headers, "Content-Length": len(data)}.items():
            call.send_header(key, value)
        call.end_headers()
        call.wfile.write(data)

    def wait(self, condition):
        """Waits until the condition of the receiver holds."""
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise AssertionError(f"not within {PATIENCE} s; got {self.names} in {self.calls} calls")
