"""Makes OpenTelemetry's finished spans of OTLP's messages, for the runner.

A Replay is one span. starting returns it for on_start of the processors, and ended returns
it for on_end and for exporters, with the changes that on_start made.

A span differs in these points from the span in its own process: on_start sees the finished
span, without the parent's context. The parent has no trace state. Every span is sampled,
because a host sends no others.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from servetrace import plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOTE = 0x200  # of the flags: the parent, or the link, is in another process
_CODES = dict(enumerate((StatusCode.UNSET, StatusCode.OK, StatusCode.ERROR)))
_KINDS = {kind.value + 1: kind for kind in SpanKind}
_MORE_EVENTS = 128  # that on_start may add


def decode(request: Any) -> Iterator[tuple[Resource, InstrumentationScope, Any]]:
    """Yields (resource, scope, span) for each span of a request. Equal resources are one object."""
    for r in request.resource_spans:
        resource = _resource(r.resource.SerializeToString(deterministic=True), r.schema_url)
        for s in r.scope_spans:
            scope = _scope(s.scope.SerializeToString(deterministic=True), s.schema_url)
            for span in s.spans:
                yield resource, scope, span


@functools.lru_cache(maxsize=64)
def _resource(data: bytes, schema_url: str) -> Resource:
    return Resource(_attributes(resource_pb2.Resource.FromString(data)), schema_url or None)


@functools.lru_cache(maxsize=256)
def _scope(data: bytes, schema_url: str) -> InstrumentationScope:
    scope = common_pb2.InstrumentationScope.FromString(data)
    return InstrumentationScope(scope.name, scope.version or None, schema_url or None, _attributes(scope))


class Replay:
    """One span: the arguments of a ReadableSpan, which on_start may change."""

    def __init__(self, resource: Resource, scope: InstrumentationScope, span: Any):
        trace_id = int.from_bytes(span.trace_id, "big")
        flags = TraceFlags(span.flags & 0xFF | TraceFlags.SAMPLED)
        parent = None
        if span.parent_span_id:
            parent = SpanContext(trace_id, int.from_bytes(span.parent_span_id, "big"), bool(span.flags & _REMOTE), flags)
        code = _CODES.get(span.status.code, StatusCode.UNSET)
        self.arguments: dict[str, Any] = {
            "name": span.name,
            "context": SpanContext(trace_id, int.from_bytes(span.span_id, "big"), False, flags, _state(span.trace_state)),
            "parent": parent,
            "resource": resource,
            "attributes": _attributes(span),
            "events": _bounded(
                [Event(e.name, _attributes(e), e.time_unix_nano) for e in span.events],
                span.dropped_events_count,
                _MORE_EVENTS,
            ),
            "links": _bounded([_link(k) for k in span.links], span.dropped_links_count),
            "kind": _KINDS.get(span.kind, SpanKind.INTERNAL),
            "status": Status(code, span.status.message or None) if code is StatusCode.ERROR else Status(code),
            "start_time": span.start_time_unix_nano,
            "end_time": span.end_time_unix_nano,
            "instrumentation_scope": scope,
        }

    def starting(self) -> Starting:
        """Returns the span for on_start."""
        return Starting(self.arguments)

    def ended(self) -> ReadableSpan:
        """Returns the finished span."""
        return ReadableSpan(**self.arguments)


class Starting(ReadableSpan):
    """A span for on_start: without its end, and with the methods of a span that records."""

    def __init__(self, arguments: dict[str, Any]):
        super().__init__(**{**arguments, "end_time": None})
        self._arguments = arguments

    def is_recording(self) -> bool:
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        self._arguments["attributes"][key] = value

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self._arguments["attributes"].update(attributes)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        event = Event(name, attributes, self.start_time if timestamp is None else timestamp)
        self._arguments["events"].append(event)

    def update_name(self, name: str) -> None:
        self._arguments["name"] = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self._arguments["status"] = status if isinstance(status, Status) else Status(status, description)


def _attributes(owner: Any) -> Any:
    """Returns attributes as a mapping that on_start may change. It has the number of dropped attributes."""
    values = {a.key: _plain(plugin.value(a.value)) for a in owner.attributes if a.value.WhichOneof("value")}
    if not owner.dropped_attributes_count:
        return values
    bounded = BoundedAttributes(attributes=values, immutable=False)
    bounded.dropped = owner.dropped_attributes_count
    return bounded


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _bounded(items: list[Any], dropped: int, more: int = 1) -> BoundedList:
    bounded = BoundedList.from_seq(len(items) + more, items)
    bounded.dropped = dropped
    return bounded


def _link(link: Any) -> Link:
    ids = int.from_bytes(link.trace_id, "big"), int.from_bytes(link.span_id, "big")
    context = SpanContext(*ids, bool(link.flags & _REMOTE), TraceFlags(link.flags & 0xFF), _state(link.trace_state))
    return Link(context, _attributes(link))


def _state(text: str) -> TraceState:
    return TraceState.from_header([text]) if text else TraceState()
