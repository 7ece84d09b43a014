"""The processor with the commands that python-wheel puts into the package."""

import contextlib
import glob
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path
from unittest import mock

import servetrace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from servetrace import processor
from servetrace.relay import relay_from_env
from support import PATIENCE, BackEnd, Logs, provider, socket_path
from test_encode import sample_spans

BIN = Path(servetrace.__file__).parent / "bin"
LINGER = 1  # second


def listener(path):
    """Returns the process that listens at the socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def children(pid):
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as f:
                if int(f.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(stat.split("/")[2]))
        except OSError:
            pass
    return found


def wait_until(condition):
    """Waits until the condition, of which no event tells, holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s")
        time.sleep(0.01)


def ended(pid):
    """Waits until the process has ended."""

    def is_gone():
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_until(is_gone)


@unittest.skipUnless((BIN / "servetrace").exists() and sys.platform == "linux", "make python-binaries")
class Environment(unittest.TestCase):
    """The variables of a program that uses the package's own commands."""

    def setUp(self):
        self.path = socket_path(self)
        self.back_end = BackEnd()
        self.addCleanup(self.back_end.stop)
        environ = {
            "SERVE_TRACING_EXPORTER_PLUGIN": "otlp",
            "SERVE_RELAY_LINGER": f"{LINGER}s",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://%s:%d" % self.back_end.address,
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.path.parent),
        }
        for patch in (mock.patch.dict(os.environ, environ, clear=True), mock.patch.object(tempfile, "tempdir", None)):
            patch.start()
            self.addCleanup(patch.stop)
        self.log, self.relay = Logs(), relay_from_env()

    def console(self):
        return mock.patch.dict(os.environ, {"SERVE_TRACING_EXPORTER_PLUGIN": "console"})


class RealRelay(Environment):
    def tracer(self, **options):
        self.processor = processor.RelayProcessor(self.relay, self.log, **options)
        return provider(self, self.processor).get_tracer("test")

    def last_relay(self):
        """Returns the relay that was started last, which may have ended."""
        return int(Path(self.relay.path + ".lock").read_text())

    def flush(self):
        self.assertTrue(self.processor.force_flush(PATIENCE * 1000), self.log.lines)

    def test_delivers_and_ends(self):
        """The relay is started, delivers, and ends by itself when the sender has ended."""
        self.tracer().start_span("a").end()
        self.flush()
        self.assertEqual(self.back_end.names, ["a"])
        self.log.wait(f"relay=unix://{self.relay.path} (started) log={self.relay.log}")
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)

    def test_fields_of_spans(self):
        """The relay makes the OTLP that OpenTelemetry's encoder makes."""
        spans = sample_spans()
        want = encode_spans(spans)
        own_flags = {s.context.span_id.to_bytes(8, "big"): s.context.trace_flags for s in spans}
        for r in want.resource_spans:  # which leaves out both
            for s in (s for x in r.scope_spans for s in x.spans):
                s.flags |= own_flags[s.span_id]
                for link in s.links:
                    link.flags |= 1
                    link.trace_state = "a=1,b=2"
        self.tracer(age=PATIENCE)
        for span in spans:
            self.processor.on_end(span)
        self.flush()
        self.processor.shutdown()
        got = ExportTraceServiceRequest()
        for request in self.back_end.requests:
            got.MergeFrom(request)
        self.assertEqual(str(got), str(want))
        ended(listener(self.relay.path))

    def test_values_that_otlp_cannot_hold(self):
        tracer = self.tracer()
        span = tracer.start_span("lone \ud800")
        span.set_attributes({"big": (1 << 64) - 1, "bigger": 1 << 64, "text": "\ud800"})
        span.end()
        self.flush()
        got = self.back_end.requests[0].resource_spans[0].scope_spans[0].spans[0]
        values = {a.key: a.value.string_value for a in got.attributes}
        self.assertEqual((got.name, values), ("lone ?", {"big": str((1 << 64) - 1), "bigger": str(1 << 64), "text": "?"}))
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)

    def test_relay_counts_lost_spans(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        with mock.patch.dict(os.environ, {"SERVE_ADMIN_PORT": str(port)}):
            self.relay = relay_from_env()
        tracer = self.tracer(queue_spans=1, age=PATIENCE)
        for name in "abc":
            tracer.start_span(name).end()
        self.flush()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            self.assertIn('servetrace_relay_sender_lost_spans_total{reason="queue_full"} 2\n', answer.read().decode())
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)

    def test_spans_that_are_too_large(self):
        """A span beyond the size of a request is lost alone. The relay answers before it has
        read all of it."""
        tracer = self.tracer(age=PATIENCE)
        for name, size in [("a", 1), ("huge", 20 << 20), ("b", 900_000), *[(str(n), 900_000) for n in range(20)]]:
            tracer.start_span(name, attributes={"text": "x" * size}).end()
        self.flush()
        self.assertEqual(sorted(self.back_end.names), sorted(["a", "b", *map(str, range(20))]))
        self.assertEqual(self.processor.lost, {"refused": 1})
        self.log.wait("ERROR: servetrace: the relay refused 1 spans: 413: the request is larger than 16777216 bytes (SERVE_RELAY_MAX_REQUEST_BYTES)")
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)

    def test_connection_that_the_relay_closes(self):
        """The next batch makes a new one, and a relay that has ended is started again."""
        with mock.patch.dict(os.environ, {"SERVE_RELAY_IDLE_TIMEOUT": "100ms", "SERVE_RELAY_LINGER": "100ms"}):
            self.relay = relay_from_env()
        tracer = self.tracer()
        tracer.start_span("a").end()
        self.flush()
        ended(self.last_relay())
        tracer.start_span("b").end()
        self.flush()
        self.assertEqual((self.back_end.names, self.processor.lost), (["a", "b"], {}))
        self.processor.shutdown()
        ended(self.last_relay())

    def test_kill_of_plugin_and_relay(self):
        """No span is missing; only the batch in flight may arrive twice."""
        tracer = self.tracer(age=0.005)
        for number in range(60):
            tracer.start_span(str(number)).end()
            if number % 20 == 10:
                self.flush()
                relay_pid = listener(self.relay.path)
                for pid in children(relay_pid):
                    os.kill(pid, signal.SIGKILL)
                tracer.start_span(f"{number} between").end()
                os.kill(relay_pid, signal.SIGKILL)
                ended(relay_pid)
        self.flush()
        want = [str(n) for n in range(60)] + [f"{n} between" for n in (10, 30, 50)]
        self.assertEqual(sorted(set(self.back_end.names)), sorted(want))
        self.assertEqual(self.processor.lost, {})
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)

    def test_processes_that_start_at_once_share_a_relay(self):
        code = """if True:
            import sys, servetrace
            from opentelemetry.sdk.trace import TracerProvider
            provider = TracerProvider()
            for p in servetrace.span_processors():
                provider.add_span_processor(p)
            provider.get_tracer("x").start_span(sys.argv[1]).end()
            assert provider.force_flush()
            sys.stdout.write(".")
            sys.stdout.flush()
            sys.stdin.read()
        """
        programs = [subprocess.Popen([sys.executable, "-B", "-c", code, str(n)], cwd=BIN.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for n in range(5)]
        try:
            self.assertEqual([p.stdout.read(1) for p in programs], [b"."] * 5)
            pid = listener(self.relay.path)
        finally:
            for p in programs:
                p.communicate()
        self.assertEqual([p.returncode for p in programs], [0] * 5)
        self.assertEqual(sorted(self.back_end.names), list("01234"))
        started = Path(self.relay.log).read_text().count('msg="relay listens"')
        self.assertEqual(started, 1)
        ended(pid)

    def test_back_end_that_is_away(self):
        """A back end that is away costs nothing; the sender keeps the spans."""
        self.back_end.stop()
        tracer = self.tracer()
        tracer.start_span("a").end()
        self.assertFalse(self.processor.force_flush(100))
        self.back_end.start()
        self.flush()
        self.assertEqual(self.back_end.names, ["a"])
        pid = listener(self.relay.path)
        self.processor.shutdown()
        ended(pid)


if __name__ == "__main__":
    unittest.main()
