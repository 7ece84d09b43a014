import contextlib
import os
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

import servetrace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from servetrace.processor import MOST_BYTES, MOST_SPANS, RelayProcessor
from servetrace.relay import Relay
from support import PATIENCE, FakeRelay, Logs, provider, relay_at, socket_path
PYTHON = Path(servetrace.__file__).parents[1]
FORKS = 20
# Forks while another thread ends spans, and prints their number.
FORKING = """
import os, signal, sys, threading
from opentelemetry.sdk.trace import TracerProvider
from servetrace.processor import RelayProcessor
from servetrace.relay import Relay

forks, patience = map(int, sys.argv[2:])
processor = RelayProcessor(Relay("console", sys.argv[1]), age=0.0)
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(processor)
tracer = provider.get_tracer("forks")
ended, over = 0, threading.Event()

def load():
    global ended
    while not over.is_set():
        if processor.waiting < 1000:
            tracer.start_span(f"parent {ended}").end()
            ended += 1
        else:
            over.wait(0.001)

thread = threading.Thread(target=load)
thread.start()
for n in range(forks):
    child = os.fork()
    if child == 0:
        signal.alarm(patience)
        tracer.start_span(f"child {n}").end()
        os._exit(0 if processor.force_flush(patience * 1000) and not processor.lost else 1)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.stderr.write(f"child {n} ended with {status}\\n")
over.set()
thread.join()
if not processor.force_flush(patience * 1000) or processor.lost:
    sys.exit(f"lost {processor.lost}, waiting {processor.waiting}")
processor.shutdown()
print(ended)
"""


class Processor(unittest.TestCase):
    def setUp(self):
        self.path, self.log = socket_path(self), Logs()

    def relay(self, *answers):
        fake = FakeRelay(str(self.path), answers)
        self.addCleanup(fake.stop)
        return fake

    def tracer(self, **options):
        self.processor = RelayProcessor(relay_at(self.path), self.log, **{"age": 0.0, **options})
        self.provider = provider(self, self.processor)
        return self.provider.get_tracer("test")

    def end(self, tracer, *names):
        for name in names:
            tracer.start_span(name).end()

    def test_delivers_each_span_once_and_asks_for_delivery(self):
        fake, tracer = self.relay(), self.tracer()
        names = [f"span {i}" for i in range(5000)]
        self.end(tracer, *names)
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(fake.names, names)
        self.assertEqual({h["servetrace-wait"] for h in fake.headers}, {"delivered"})
        self.assertEqual((self.processor.lost, self.processor.waiting), ({}, 0))

    def test_one_line_at_start(self):
        self.relay()
        previous = trace._TRACER_PROVIDER
        self.addCleanup(setattr, trace, "_TRACER_PROVIDER", previous)
        trace._TRACER_PROVIDER = TracerProvider(ParentBasedTraceIdRatio(0.25), shutdown_on_exit=False)
        self.tracer()
        self.log.wait("INFO: servetrace: plugins=console ratio=0.25 relay=unix://%s (listens)" % self.path)
        self.assertEqual(len(self.log.lines), 1)

    def test_relay_at_an_address(self):
        fake = FakeRelay(("127.0.0.1", 0))
        self.addCleanup(fake.stop)
        processor = RelayProcessor(Relay("console", "%s:%d" % fake.address), self.log, age=0.0)
        p = provider(self, processor)
        p.get_tracer("test").start_span("a").end()
        self.assertTrue(p.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, processor.lost), (["a"], {}))

    def test_no_relay_at_an_address(self):
        """The cause is logged before the spans are lost."""
        server = socket.socket()
        self.addCleanup(server.close)
        server.bind(("127.0.0.1", 0))  # without a listener
        address = "127.0.0.1:%d" % server.getsockname()[1]
        processor = RelayProcessor(Relay("console", address), self.log, age=0.0)
        self.end(provider(self, processor).get_tracer("test"), "a")
        self.log.wait(f"ERROR: servetrace: no relay, so spans wait: no process listens at {address} (Connection refused)")
        processor.shutdown(0)
        self.log.wait("WARNING: servetrace: 1 span is lost: shutdown=1")

    def test_unsampled_spans_are_not_taken(self):
        self.relay()
        processor = RelayProcessor(relay_at(self.path), self.log)
        p = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
        p.add_span_processor(processor)
        self.addCleanup(p.shutdown)
        p.get_tracer("test").start_span("x").end()
        self.assertEqual(processor.waiting, 0)

    def test_retryable_answers_send_the_batch_again(self):
        for answer in [408, (429, {"Retry-After": "0"}, "full"), 502, 503, 504]:
            with self.subTest(answer):
                self.setUp()
                fake, tracer = self.relay(answer, answer), self.tracer()
                self.end(tracer, "a")
                self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
                self.assertEqual((fake.names, fake.calls, self.processor.lost), (["a"], 3, {}))

    def test_span_that_the_relay_refuses(self):
        """Harms no other span of its batch."""
        fake, tracer = self.relay(400, 400, 400), self.tracer(age=PATIENCE)
        self.end(tracer, "a", "b", "c")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["b", "c"], {"refused": 1}))

    def test_final_answer_loses_the_batch_and_counts_it(self):
        fake, tracer = self.relay(400), self.tracer()
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.end(tracer, "b")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["b"], {"refused": 1}))
        self.log.wait("ERROR: servetrace: the relay refused 1 spans: 400: told to")
        self.log.wait("WARNING: servetrace: 1 span is lost: refused=1; for the cause, see the log of the relay, or run python -m servetrace doctor")

    def test_batch_that_is_too_large_is_split(self):
        """The answer is final for a single span."""
        fake, tracer = self.relay(413, 413, 413), self.tracer(age=PATIENCE)
        self.end(tracer, "a", "b", "c", "d")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost, self.processor.waiting), (["b", "c", "d"], {"refused": 1}, 0))

    def test_partial_success_is_logged(self):
        self.relay((200, {}, "2 spans are too large"))
        self.end(self.tracer(), "a")
        self.log.wait("WARNING: servetrace: partial success: 2 spans are too large")

    def test_waits_as_long_as_the_relay_asks(self):
        fake, tracer = self.relay((429, {"Retry-After": "7"}, "full")), self.tracer()
        pauses = []
        self.processor._wait = pauses.append
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, pauses), (["a"], [7.0]))

    def test_relay_that_dies_with_a_batch(self):
        """The batch goes to the next relay."""
        dying = threading.Event()
        first = self.relay(*[lambda: dying.wait(PATIENCE) and None] * 100)
        tracer = self.tracer()
        self.end(tracer, "a", "b")
        first.wait(lambda: first.calls)
        dying.set()
        first.stop()
        second = self.relay()
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((second.names, self.processor.lost), (["a", "b"], {}))

    def test_relay_is_started_again_at_once(self):
        fake, starts = self.relay(None), []
        tracer = self.tracer()
        self.processor.relay.ensure = lambda: starts.append(1) or "started"
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(fake.names, ["a"])
        self.assertGreaterEqual(len(starts), 1)

    def test_no_relay(self):
        """Spans wait within the bound, and the rest is counted; the reason is logged once."""
        tracer = self.tracer(queue_spans=10)
        self.log.wait(f"ERROR: servetrace: no relay, so spans wait: no process listens at {self.path}")
        self.end(tracer, *map(str, range(30)))
        self.assertFalse(self.provider.force_flush(1))
        lost = self.processor.lost["queue_full"]
        self.assertGreaterEqual(lost, 10)
        fake = self.relay()
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(len(fake.names), 30 - lost)
        self.assertEqual(sum("no relay" in line for line in self.log.lines), 1)

    def test_shutdown_delivers(self):
        fake, tracer = self.relay(), self.tracer(age=PATIENCE)
        self.end(tracer, "a", "b")
        self.provider.shutdown()
        self.assertEqual((fake.names, self.processor.lost), (["a", "b"], {}))
        self.end(tracer, "late")
        self.assertEqual(self.processor.lost, {"shutdown": 1})

    def test_shutdown_is_bounded_and_counts_the_rest(self):
        release = threading.Event()
        fake, tracer = self.relay(lambda: release.wait(PATIENCE) and 200), self.tracer()
        self.addCleanup(release.set)
        self.end(tracer, "a")
        fake.wait(lambda: fake.calls == 1)
        self.end(tracer, "b", "c")
        self.processor.shutdown(0.2)
        self.assertEqual(self.processor.lost, {"shutdown": 3})
        self.log.wait("WARNING: servetrace: 3 spans are lost: shutdown=3")
        self.assertEqual(sum("lost" in line for line in self.log.lines), 1)
        self.assertFalse(self.processor._thread.is_alive())

    def test_batches_are_bounded(self):
        fake = self.relay(503)
        tracer = self.tracer(queue_spans=1 << 20)
        self.end(tracer, *["x"] * (2 * MOST_SPANS + 1))
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(len(fake.names), 2 * MOST_SPANS + 1)

    def test_span_that_cannot_be_encoded(self):
        """Harms no other span of its batch."""
        fake, tracer = self.relay(), self.tracer(age=PATIENCE)
        self.end(tracer, "a")
        broken = tracer.start_span("broken")
        broken._kind = None
        broken.end()
        self.end(tracer, "lone \ud800", "b")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["a", "lone ?", "b"], {"encode": 1}))
        self.log.wait("WARNING: servetrace: span cannot be encoded: AttributeError")

    def test_batch_that_cannot_be_encoded(self):
        """Harms no other batch."""
        fake, tracer = self.relay(), self.tracer(age=PATIENCE)
        with mock.patch("servetrace.encode.compact", side_effect=[RuntimeError("injected")]):
            self.end(tracer, "a", "b")
            self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.end(tracer, "c")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost, self.processor.waiting), (["c"], {"encode": 2}, 0))
        self.log.wait("ERROR: servetrace: 2 spans cannot be encoded: RuntimeError('injected')")

    def test_batch_of_many_bytes_is_divided(self):
        fake, tracer = self.relay(), self.tracer(age=PATIENCE)
        for name in "abc":
            tracer.start_span(name, attributes={"text": "x" * (MOST_BYTES // 2)}).end()
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, [len(r) for r in fake.requests], self.processor.lost), (["a", "b", "c"], [1, 1, 1], {}))

    def test_relay_is_told_of_lost_spans(self):
        """Each lost span is in one request that was answered with status 200."""
        fake = self.relay(503, 400, 400)
        tracer = self.tracer(queue_spans=3, age=PATIENCE)
        self.log.wait("plugins=console")
        self.end(tracer, *map(str, range(8)))
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.end(tracer, "b")
        self.provider.shutdown()
        self.assertEqual((fake.lost, self.processor.lost), (["queue_full=5,refused=1"], {"queue_full": 5, "refused": 1}))

    def test_relay_is_told_of_the_last_lost_span(self):
        fake, tracer = self.relay(400), self.tracer()
        self.end(tracer, "a")
        self.provider.shutdown()
        self.assertEqual(fake.lost, ["refused=1"])

    def test_server_of_another_protocol(self):
        """A server that does not speak HTTP gives one line, and spans wait."""
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(self.path))
        server.listen()
        tracer = self.tracer()

        def answer():
            for _ in range(6):
                connection = server.accept()[0]
                with connection, contextlib.suppress(BrokenPipeError):
                    connection.sendall(b"\x00\x00\x06\x04HTTP/2\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        self.end(tracer, "a")
        self.log.wait(f"ERROR: servetrace: unix://{self.path} does not speak HTTP/1.1; start the relay with --http and this address")
        answering.join()
        self.assertEqual((self.processor.lost, self.processor.waiting, len(self.log.lines)), ({}, 1, 2))
        self.processor.shutdown(0)

    def test_never_raises(self):
        self.relay()
        self.tracer()
        for not_a_span in (None, object()):
            self.processor.on_start(not_a_span)
            self.processor.on_end(not_a_span)
        self.log.wait("ERROR: servetrace: span not taken")

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_forks_under_load(self):
        """Each child sends its own spans, and the parent all of its own, once."""
        fake = self.relay()
        program = subprocess.run([sys.executable, "-c", FORKING, f"unix://{self.path}", str(FORKS), str(PATIENCE)], cwd=PYTHON, capture_output=True, text=True)
        self.assertEqual((program.returncode, program.stderr), (0, ""))
        names = [f"child {n}" for n in range(FORKS)] + [f"parent {n}" for n in range(int(program.stdout))]
        self.assertEqual(sorted(fake.names), sorted(names))


if __name__ == "__main__":
    unittest.main()
