"""Receivers of spans, and spans, for the tests."""

import logging
import tempfile
import threading
from pathlib import Path

import msgpack
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from receiver import PATIENCE, Receiver
from servetrace.relay import Relay


class FakeRelay(Receiver):
    """A relay. Each of its requests is a list of (attributes of the resource, span)."""

    def take(self, body):
        unpacker = msgpack.Unpacker()
        unpacker.feed(body)
        spans = [(r[0], span) for _, groups in unpacker for r in groups for scope in r[2] for span in scope[4]]
        self.requests.append(spans)
        self.names += [span[5] for _, span in spans]


class BackEnd(Receiver):
    """An OTLP receiver at a free port."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0))

    def take(self, body):
        request = ExportTraceServiceRequest.FromString(body)
        self.requests.append(request)
        self.names += [s.name for r in request.resource_spans for x in r.scope_spans for s in x.spans]


class Logs(logging.Logger):
    """A logger that keeps its lines."""

    def __init__(self):
        super().__init__("test")
        self.lines, self._changed = [], threading.Condition()

    def handle(self, record):
        with self._changed:
            self.lines.append(f"{record.levelname}: {record.getMessage()}")
            self._changed.notify_all()

    def wait(self, text):
        with self._changed:
            if not self._changed.wait_for(lambda: any(text in line for line in self.lines), PATIENCE):
                raise AssertionError(f"no line with {text!r} within {PATIENCE} s: {self.lines}")


def socket_path(test):
    """Returns the path of a socket in a folder that the test's end removes."""
    folder = tempfile.TemporaryDirectory(prefix="servetrace")
    test.addCleanup(folder.cleanup)
    return Path(folder.name) / "relay.sock"


def provider(test, processor):
    p = TracerProvider(shutdown_on_exit=False)
    p.add_span_processor(processor)
    test.addCleanup(p.shutdown)
    return p


def relay_at(path, plugins="console"):
    return Relay(plugins, f"unix://{path}")
