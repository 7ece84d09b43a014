import logging
import unittest

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState, set_span_in_context

from servetrace.replay import Replay, decode

REMOTE = SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, True, TraceFlags(1), TraceState([("k", "v")]))


def setUpModule():
    logging.disable()
    unittest.addModuleCleanup(logging.disable, logging.NOTSET)


# OpenTelemetry's encoder leaves out the flags and the trace state of links.
LINKED = SpanContext(REMOTE.trace_id, REMOTE.span_id, True)


def made():
    """Returns finished spans of OpenTelemetry's SDK, with every field."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "hello", "parts": [1, 2]}, "https://opentelemetry.io/schemas/1.21.0"),
        span_limits=SpanLimits(max_span_attributes=4, max_events=2, max_links=1, max_event_attributes=1, max_link_attributes=1),
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("library", "1.2", "https://example.org/schema", {"scope": True})
    parent = set_span_in_context(NonRecordingSpan(REMOTE))
    links = [Link(LINKED, {"a": 1, "b": 2}), Link(LINKED, {"c": 3})]
    attributes = {"text": "t", "number": 7, "share": 0.5, "flag": False, "list": ["a", "b"]}
    with tracer.start_as_current_span("request", parent, SpanKind.SERVER, attributes, links) as span:
        span.add_event("first", {"x": 1, "y": 2}, 5)
        span.add_event("second", {"x": 1}, 6)
        span.add_event("third", {"x": 1}, 7)
        span.set_status(Status(StatusCode.ERROR, "no such model"))
        with tracer.start_as_current_span("step"):
            pass
    return exporter.get_finished_spans()


def replays(spans):
    return [Replay(*parts) for parts in decode(encode_spans(spans))]


def fields(span):
    """Returns all that an exporter can read of a span."""
    of_context = [] if span.context is None else list(span.context)
    return {
        "json": span.to_json(),
        "context": of_context,
        "parent": None if span.parent is None else (span.parent.span_id, span.parent.trace_id, span.parent.is_remote),
        "attributes": dict(span.attributes),
        "events": [(e.name, e.timestamp, dict(e.attributes), e.attributes.dropped if hasattr(e.attributes, "dropped") else 0) for e in span.events],
        "links": [(k.context, dict(k.attributes)) for k in span.links],
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
        "kind": span.kind,
        "status": (span.status.status_code, span.status.description),
        "times": (span.start_time, span.end_time),
        "resource": span.resource,
        "scope": span.instrumentation_scope,
    }


class TestReplay(unittest.TestCase):
    maxDiff = None

    def test_ended_span_equals_the_original(self):
        originals = made()
        for original, replay in zip(originals, replays(originals), strict=True):
            with self.subTest(original.name):
                self.assertEqual(fields(replay.ended()), fields(original))
                self.assertIs(type(replay.ended()), ReadableSpan)

    def test_ended_span_is_encoded_to_the_same_bytes(self):
        originals = made()
        again = encode_spans([replay.ended() for replay in replays(originals)])
        self.assertEqual(again, encode_spans(originals))

    def test_resource_is_one_object_for_all_batches(self):
        first, second = replays(made())[0], replays(made())[0]
        self.assertIs(first.ended().resource, second.ended().resource)
        self.assertIs(first.ended().instrumentation_scope, second.ended().instrumentation_scope)

    def test_changes_of_on_start_are_in_the_ended_span(self):
        replay = replays(made())[1]  # request, whose attributes are dropped beyond four
        starting = replay.starting()
        self.assertTrue(starting.is_recording())
        self.assertIsNone(starting.end_time)
        starting.set_attribute("ray.job_id", "01000000")
        starting.set_attributes({"text": "changed", "more": (1, 2)})
        starting.add_event("started")
        starting.update_name("renamed")
        starting.set_status(StatusCode.OK)
        self.assertEqual(starting.attributes["ray.job_id"], "01000000")
        ended = replay.ended()
        self.assertEqual(ended.name, "renamed")
        self.assertEqual(ended.status.status_code, StatusCode.OK)
        self.assertEqual({k: ended.attributes[k] for k in ("ray.job_id", "text", "more")}, {"ray.job_id": "01000000", "text": "changed", "more": (1, 2)})
        self.assertEqual([e.name for e in ended.events], ["second", "third", "started"])
        self.assertEqual(ended.dropped_attributes, 1)

    def test_span_of_a_sender_without_flags_is_sampled(self):
        request = encode_spans(made())
        for _, _, span in decode(request):
            span.flags = 0
        for parts in decode(request):
            self.assertTrue(Replay(*parts).ended().context.trace_flags.sampled)

    def test_values_that_only_otlp_has(self):
        request = encode_spans(made()[:1])
        _, _, span = next(decode(request))
        span.kind, span.status.code, span.trace_state = 99, 99, "=broken"
        span.attributes.add(key="empty")
        span.attributes.add(key="bytes").value.bytes_value = b"\xff"
        member = span.attributes.add(key="map").value.kvlist_value.values.add(key="k")
        member.value.int_value = 1
        ended = Replay(*next(decode(request))).ended()
        self.assertEqual(dict(ended.attributes), {"bytes": b"\xff", "map": {"k": 1}})
        self.assertEqual((ended.kind, ended.status.status_code), (SpanKind.INTERNAL, StatusCode.UNSET))


if __name__ == "__main__":
    unittest.main()
