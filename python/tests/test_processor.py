import os
import signal
import threading
import unittest

import grpc
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from servetrace.processor import MOST_SPANS, RelayProcessor
from support import PATIENCE, FakeRelay, Logs, provider, relay_at, socket_path

Code = grpc.StatusCode


class Processor(unittest.TestCase):
    def setUp(self):
        self.path, self.log = socket_path(self), Logs()

    def relay(self, *answers):
        fake = FakeRelay(self.path, answers)
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
        self.assertEqual({m["servetrace-wait"] for m in fake.metadata}, {"delivered"})
        self.assertEqual((self.processor.lost, self.processor.waiting), ({}, 0))

    def test_one_line_at_start(self):
        self.relay()
        previous = trace._TRACER_PROVIDER
        self.addCleanup(setattr, trace, "_TRACER_PROVIDER", previous)
        trace._TRACER_PROVIDER = TracerProvider(ParentBasedTraceIdRatio(0.25), shutdown_on_exit=False)
        self.tracer()
        self.log.wait("INFO: servetrace: plugins=console ratio=0.25 relay=unix://%s (listens) form=otlp" % self.path)
        self.assertEqual(len(self.log.lines), 1)

    def test_unsampled_spans_are_not_taken(self):
        self.relay()
        processor = RelayProcessor(relay_at(self.path), self.log)
        p = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
        p.add_span_processor(processor)
        self.addCleanup(p.shutdown)
        p.get_tracer("test").start_span("x").end()
        self.assertEqual(processor.waiting, 0)

    def test_retryable_answers_send_the_batch_again(self):
        for answer in [Code.UNAVAILABLE, (Code.RESOURCE_EXHAUSTED, "full", 0.01), Code.CANCELLED, Code.ABORTED, Code.DEADLINE_EXCEEDED, Code.OUT_OF_RANGE, Code.DATA_LOSS]:
            with self.subTest(answer):
                self.setUp()
                fake, tracer = self.relay(answer, answer), self.tracer()
                self.end(tracer, "a")
                self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
                self.assertEqual((fake.names, fake.calls, self.processor.lost), (["a"], 3, {}))

    def test_span_that_the_relay_refuses(self):
        """Harms no other span of its batch."""
        fake, tracer = self.relay(Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT), self.tracer(age=PATIENCE)
        self.end(tracer, "a", "b", "c")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["b", "c"], {"invalid_argument": 1}))

    def test_final_answer_loses_the_batch_and_counts_it(self):
        fake, tracer = self.relay(Code.INVALID_ARGUMENT), self.tracer()
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.end(tracer, "b")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["b"], {"invalid_argument": 1}))
        self.log.wait("ERROR: servetrace: the relay refused 1 spans: INVALID_ARGUMENT: told to")
        self.log.wait("WARNING: servetrace: 1 spans are lost: invalid_argument=1")

    def test_batch_that_is_too_large_is_split(self):
        """RESOURCE_EXHAUSTED without RetryInfo is final for a single span."""
        fake, tracer = self.relay(*[Code.RESOURCE_EXHAUSTED] * 3), self.tracer(age=PATIENCE)
        self.end(tracer, "a", "b", "c", "d")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost, self.processor.waiting), (["b", "c", "d"], {"resource_exhausted": 1}, 0))

    def test_partial_success_is_logged(self):
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans, answer.partial_success.error_message = 2, "too large"
        self.relay(answer)
        self.end(self.tracer(), "a")
        self.log.wait("WARNING: servetrace: 2 spans were not delivered: too large")

    def test_waits_as_long_as_the_relay_asks(self):
        fake, tracer = self.relay((Code.RESOURCE_EXHAUSTED, "full", 0.25)), self.tracer()
        pauses = []
        self.processor._wait = pauses.append
        self.end(tracer, "a")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, pauses), (["a"], [0.25]))

    def test_relay_that_dies_with_a_batch(self):
        """The batch goes to the next relay."""
        dead = threading.Event()

        def die(context):
            threading.Thread(target=lambda: (self.first.server.stop(0).wait(), dead.set())).start()
            dead.wait(PATIENCE)
            return ExportTraceServiceResponse()

        self.first = self.relay(die)
        tracer = self.tracer()
        self.end(tracer, "a", "b")
        self.assertTrue(dead.wait(PATIENCE))
        second = self.relay()
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((second.names, self.processor.lost), (["a", "b"], {}))

    def test_relay_is_started_again_at_once(self):
        fake, starts = self.relay(Code.UNAVAILABLE), []
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
        self.addCleanup(release.set)
        fake, tracer = self.relay(lambda context: release.wait(PATIENCE) and ExportTraceServiceResponse()), self.tracer()
        self.end(tracer, "a")
        fake.wait(lambda: fake.calls == 1)
        self.end(tracer, "b", "c")
        self.processor.shutdown(0.2)
        self.assertEqual(self.processor.lost, {"shutdown": 3})
        self.log.wait("WARNING: servetrace: 3 spans are lost: shutdown=3")
        self.assertFalse(self.processor._thread.is_alive())

    def test_batches_are_bounded(self):
        fake = self.relay(Code.UNAVAILABLE)
        tracer = self.tracer(queue_spans=1 << 20)
        self.end(tracer, *["x"] * (2 * MOST_SPANS + 1))
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(len(fake.names), 2 * MOST_SPANS + 1)

    def test_span_that_cannot_be_encoded(self):
        """Harms no other span of its batch."""
        fake, tracer = self.relay(), self.tracer(age=PATIENCE)
        self.end(tracer, "a")
        broken = tracer.start_span("broken")
        broken._start_time = "not a time"
        broken.end()
        self.end(tracer, "lone \ud800", "b")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual((fake.names, self.processor.lost), (["a", "lone ?", "b"], {"encode": 1}))

    def test_never_raises(self):
        self.relay()
        self.tracer()
        for not_a_span in (None, object()):
            self.processor.on_start(not_a_span)
            self.processor.on_end(not_a_span)
        self.log.wait("ERROR: servetrace: span not taken")

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_fork(self):
        """The child sends its own spans, and the parent what waited before."""
        fake, tracer = self.relay(), self.tracer(age=0.2)
        self.end(tracer, "before")
        pid = os.fork()
        if pid == 0:
            signal.alarm(PATIENCE)
            self.end(tracer, "child")
            os._exit(0 if self.processor.force_flush(PATIENCE * 1000) and not self.processor.lost else 1)
        self.end(tracer, "parent")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(sorted(fake.names), ["before", "child", "parent"])

    def test_fork_after_a_call(self):
        fake, tracer = self.relay(), self.tracer()
        self.end(tracer, "before")
        self.assertTrue(self.provider.force_flush(PATIENCE * 1000))
        pid = os.fork()
        if pid == 0:
            signal.alarm(PATIENCE)
            self.end(tracer, "child")
            os._exit(0 if self.processor.force_flush(PATIENCE * 1000) and not self.processor.lost else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(sorted(fake.names), ["before", "child"])


if __name__ == "__main__":
    unittest.main()
