"""A relay in Python, and spans, for the tests."""

import concurrent.futures
import logging
import tempfile
import threading
from pathlib import Path

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from servetrace.relay import Relay

PATIENCE = 60  # seconds that a test waits for an event


class FakeRelay:
    """An OTLP receiver on a Unix socket. ``answers`` are given one after the other, then
    OK: an ExportTraceServiceResponse, a status code, (code, details, RetryInfo in
    seconds), or a function of the context."""

    def __init__(self, path, answers=()):
        self.path, self.answers = str(path), list(answers)
        self.names, self.requests, self.metadata, self.calls = [], [], [], 0
        self._changed = threading.Condition()
        self.start()

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(self._export, ExportTraceServiceRequest.FromString, lambda m: m.SerializeToString())
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("opentelemetry.proto.collector.trace.v1.TraceService", {"Export": handler}),))
        self.server.add_insecure_port(f"unix://{self.path}")
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()

    def _export(self, request, context):
        if not request.resource_spans:  # connects
            return ExportTraceServiceResponse()
        with self._changed:
            self.calls += 1
            self.metadata.append(dict(context.invocation_metadata()))
            answer = self.answers.pop(0) if self.answers else ExportTraceServiceResponse()
            self._changed.notify_all()
        if callable(answer):
            answer = answer(context)
        if isinstance(answer, grpc.StatusCode):
            answer = (answer, "told to", None)
        if isinstance(answer, tuple):
            code, details, delay = answer
            if delay is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", retry_info(delay)),))
            context.abort(code, details)
        with self._changed:
            self.requests.append(request)
            self.names += [s.name for r in request.resource_spans for x in r.scope_spans for s in x.spans]
            self._changed.notify_all()
        return answer

    def wait(self, condition):
        """Waits until the condition of the relay holds."""
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise AssertionError(f"not within {PATIENCE} s; got {self.names} in {self.calls} calls")


def retry_info(delay):
    """Returns a google.rpc.Status with RetryInfo, by hand: field 3 has an Any."""
    d = Duration()
    d.FromMilliseconds(int(delay * 1000))
    d = d.SerializeToString()
    packed = Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\x0a" + bytes([len(d)]) + d).SerializeToString()
    return b"\x1a" + bytes([len(packed)]) + packed


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
