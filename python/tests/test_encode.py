import unittest

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from servetrace import encode


def sample_spans():
    """Returns spans with every field, of two resources and three scopes."""
    kept = InMemorySpanExporter()
    for number, resource in enumerate([Resource({"service.name": "a", "n": 1}, "https://schema/1"), Resource({})]):
        provider = TracerProvider(resource=resource, span_limits=SpanLimits(max_span_attributes=9, max_events=2, max_links=2), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        caller = SpanContext(1 << 127 | 5, 1 << 63 | 7, True, TraceFlags(1), TraceState([("a", "1"), ("b", "2")]))
        for scope in ("scope", "other")[: number + 1]:
            tracer = provider.get_tracer(scope, "1.2", "https://schema/2", {"scope": True})
            context = trace.set_span_in_context(trace.NonRecordingSpan(caller))
            with tracer.start_as_current_span("remote", context, SpanKind.SERVER, links=[Link(caller, {"l": 1})] * 3) as span:
                span.set_attributes({"s": "text ä", "b": True, "i": -5, "big": (1 << 63) - 1, "f": 0.5, "ss": ["a", "b"], "ii": [1, 2], "bb": [True], "ff": [0.5], "dropped": 1})
                for i in range(3):
                    span.add_event("event", {"i": i}, 1_700_000_000_000_000_000)
                span.set_status(Status(StatusCode.ERROR, "broken"))
                for kind in SpanKind:
                    tracer.start_span("child", kind=kind).end()
            tracer.start_span("root").end()
    return kept.get_finished_spans()


def plain(spans):
    return [encode.item(s) for s in spans]


def decoded(data):
    return ExportTraceServiceRequest.FromString(data)


class OTLP(unittest.TestCase):
    maxDiff = None

    def test_equals_the_encoder_of_opentelemetry(self):
        spans = sample_spans()
        want = encode_spans(spans)
        own_flags = {s.context.span_id.to_bytes(8, "big"): s.context.trace_flags for s in spans}
        for r in want.resource_spans:  # which leaves out both
            for s in (s for x in r.scope_spans for s in x.spans):
                s.flags |= own_flags[s.span_id]
                for link in s.links:
                    link.flags |= 1
                    link.trace_state = "a=1,b=2"
        self.assertEqual(str(decoded(encode.otlp(plain(spans)))), str(want))

    def test_requests_merge_by_concatenation(self):
        spans = sample_spans()[:2]
        one, two = (decoded(encode.otlp(plain([s]))) for s in spans)
        one.MergeFrom(two)
        self.assertEqual(decoded(b"".join(encode.otlp(plain([s])) for s in spans)), one)

    def test_added_attributes(self):
        span = decoded(encode.otlp([encode.item(sample_spans()[1], {"n": 1})])).resource_spans[0].scope_spans[0].spans[0]
        self.assertEqual({a.key: a.value.int_value for a in span.attributes}, {"n": 1})

    def test_values_that_otlp_cannot_hold_are_cleaned(self):
        kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        with provider.get_tracer("x").start_as_current_span("lone \ud800") as span:
            span.set_attributes({"text": "\ud800", "int": 1 << 64, "list": ["\ud800", "a"]})
            span.add_event("\ud800", {"i": -(1 << 64)})
            span.set_status(StatusCode.ERROR, "\ud800")
        bad = kept.get_finished_spans()
        with self.assertRaises(Exception):
            encode.otlp(plain(bad))
        span = decoded(encode.otlp(plain([encode.cleaned(bad[0])]))).resource_spans[0].scope_spans[0].spans[0]
        self.assertEqual((span.name, span.status.message, span.events[0].name), ("lone ?", "?", "?"))
        values = {a.key: a.value for a in span.attributes}
        self.assertEqual((values["text"].string_value, values["int"].string_value), ("?", str(1 << 64)))
        self.assertEqual([v.string_value for v in values["list"].array_value.values], ["?", "a"])


if __name__ == "__main__":
    unittest.main()
