"""The connection to a relay: HTTP/1.1 of the standard library, in the caller's thread.

The process has no thread and no state of a library that a fork would break. A forked
child makes a connection of its own.
"""

import contextlib
import http.client
import json
import os
import socket
from typing import NamedTuple

PATH = "/v1/traces"
# The compact form, whose definition is in internal/pywire; its answers are in JSON. The
# relay must answer for the spans that a plugin has delivered, so that none is lost with it.
LOST = "servetrace-lost"  # spans that this process lost since its last answer with status 200
_HEADERS = {"Content-Type": "application/vnd.servetrace.spans", "servetrace-wait": "delivered"}
_RETRYABLE = {0, 408, 429, 502, 503, 504}


class Answer(NamedTuple):
    """The answer to a request."""

    status: int  # of HTTP, or 0 if there is none
    text: str = ""  # the reason for which spans were not taken, or the fault of the relay
    pause: float = 0.0  # seconds that the relay asks for

    @property
    def is_retryable(self):
        """The request may be sent again as it is."""
        return self.status in _RETRYABLE

    @property
    def is_divisible(self):
        """A part of the request may be taken."""
        return self.status in (400, 413)


class Client(http.client.HTTPConnection):
    """A connection that is made when it is needed. ``post`` is for one thread at a time;
    ``cut`` may be called from another."""

    def __init__(self, relay):
        super().__init__("localhost" if relay.path else relay.address)
        self._relay = relay

    def connect(self):
        if not self._relay.path:
            return super().connect()
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._relay.path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock

    def post(self, body, timeout, lost=None):
        """Sends a request, with the spans that were lost by reason, and returns the Answer.
        Blocks for some ``timeout`` seconds."""
        headers = _HEADERS | ({LOST: counts(lost)} if lost else {})
        try:
            self.timeout = timeout
            if self.sock is None:
                self.connect()
            self.sock.settimeout(timeout)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # The relay may answer, and close, before it has read the whole body.
                self.request("POST", PATH, body, headers)
            response = self.getresponse()
            return _answer(response, response.read())
        except (OSError, http.client.HTTPException) as e:
            self.close()
            if isinstance(e, OSError):  # there is no relay, or not any more
                return Answer(0)
            return Answer(0, f"{self._relay.address} does not speak HTTP/1.1; start the relay with --http and this address")

    def cut(self):
        """Ends the call under way, which returns at once."""
        if sock := self.sock:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def forget(self):
        """Closes the connection in a forked child. Its parent keeps it."""
        if (sock := self.sock) and (fd := sock.detach()) >= 0:
            os.close(fd)


def counts(by_reason):
    """Returns "a=1,b=2"."""
    return ",".join(f"{reason}={n}" for reason, n in sorted(by_reason.items()))


def _answer(response, body):
    """Returns the Answer of a response: an ExportTraceServiceResponse or a google.rpc.Status
    in JSON, or text."""
    try:
        told = json.loads(body or b"{}")
        text = told.get("message") or told.get("partialSuccess", {}).get("errorMessage", "")
    except ValueError:
        text = body[:200].decode(errors="replace").strip()
    if response.status != 200:
        text = text or response.reason
    pause = response.headers.get("Retry-After", "")
    return Answer(response.status, text, float(pause) if pause.isdigit() else 0.0)
