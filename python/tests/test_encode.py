import unittest

import msgpack
from opentelemetry import trace
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


def unpacked(*spans):
    """Returns the members of each span."""
    return [msgpack.unpackb(encode.item(s)[2]) for s in spans]


class Compact(unittest.TestCase):
    """test_real_relay compares each field with OpenTelemetry's encoder."""

    def test_groups(self):
        spans = sample_spans()
        version, groups = msgpack.unpackb(encode.compact([encode.item(s) for s in spans]))
        got = [([scope[0] for scope in scopes], sum(len(scope[4]) for scope in scopes)) for _, _, scopes in groups]
        each = len(SpanKind) + 2
        self.assertEqual((version, got), (1, [(["scope"], each), (["scope", "other"], 2 * each)]))

    def test_added_attributes(self):
        span = msgpack.unpackb(encode.item(sample_spans()[1], {"n": 1})[2])
        self.assertEqual(span[9], {"n": 1})

    def test_values_that_otlp_cannot_hold(self):
        """They become text, and lone surrogates question marks."""
        kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        with provider.get_tracer("x").start_as_current_span("lone \ud800") as span:
            span.set_attributes({"text": "\ud800", "int": 1 << 64, "list": ["\ud800", "a"]})
            span.add_event("\ud800", {"i": -(1 << 64)})
            span.set_status(StatusCode.ERROR, "\ud800")
        span = unpacked(*kept.get_finished_spans())[0]
        self.assertEqual((span[5], span[11], span[12][0][1:3]), ("lone ?", "?", ["?", {"i": str(-(1 << 64))}]))
        self.assertEqual(span[9], {"text": "?", "int": str(1 << 64), "list": ["?", "a"]})


if __name__ == "__main__":
    unittest.main()
