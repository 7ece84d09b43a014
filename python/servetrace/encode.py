"""Makes bytes of a batch of ended spans: OTLP, or the compact form of a relay, whose
definition is in internal/pywire."""

try:
    import msgpack
except ImportError:
    msgpack = None  # OTLP alone

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link
from opentelemetry.trace import Status as APIStatus

_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200


def grouped(items):
    """Returns {resource: {scope: [item]}} in the order of the items."""
    groups, at = {}, (None, None)
    for item in items:
        span = item[0]
        key = (span.resource, span.instrumentation_scope)
        if key[0] is not at[0] or key[1] is not at[1]:  # hashing a resource is slow
            inside = groups.setdefault(key[0], {}).setdefault(key[1], [])
            at = key
        inside.append(item)
    return groups


def otlp(items):
    """Returns the bytes of an ExportTraceServiceRequest. An item is a span, and a dict of
    attributes that it gets in addition, or None. Requests merge by concatenation.

    Raises ValueError, TypeError or UnicodeError for a span with a value that OTLP
    cannot hold; see ``cleaned``.
    """
    request = ExportTraceServiceRequest()
    for resource, scopes in grouped(items).items():
        group = ResourceSpans(schema_url=resource.schema_url)
        group.resource.attributes.extend(_attributes(resource.attributes))
        for scope, inside in scopes.items():
            group.scope_spans.append(_scope_spans(scope, [_span(*item) for item in inside]))
        request.resource_spans.append(group)
    return request.SerializeToString()


def _scope_spans(scope, spans):
    if scope is None:
        return ScopeSpans(spans=spans)
    message = InstrumentationScope(name=scope.name, version=scope.version, attributes=_attributes(scope.attributes))
    return ScopeSpans(scope=message, spans=spans, schema_url=scope.schema_url)


def _span(span, added):
    context, parent, status = span.context, span.parent, span.status
    attributes = copied(span.attributes)
    if added:
        attributes.update(added)
    return Span(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        trace_state=context.trace_state.to_header(),
        parent_span_id=parent.span_id.to_bytes(8, "big") if parent else None,
        name=span.name,
        kind=span.kind.value + 1,
        start_time_unix_nano=span.start_time,
        end_time_unix_nano=span.end_time,
        attributes=_attributes(attributes),
        events=[_event(e) for e in span.events],
        links=[_link(link) for link in span.links],
        status=Status(code=status.status_code.value, message=status.description),
        dropped_attributes_count=span.dropped_attributes,
        dropped_events_count=span.dropped_events,
        dropped_links_count=span.dropped_links,
        flags=int(context.trace_flags) | flags(parent),
    )


def flags(parent):
    """Returns OTLP's flags for a remote or local parent."""
    return _HAS_IS_REMOTE | _IS_REMOTE if parent and parent.is_remote else _HAS_IS_REMOTE


def compact(items):
    """Returns the bytes of a batch in the compact form, as ``otlp`` does."""
    groups = [
        [copied(r.attributes), r.schema_url, [_packed_scope(scope, [_packed(*item) for item in inside]) for scope, inside in scopes.items()]]
        for r, scopes in grouped(items).items()
    ]
    return msgpack.packb([1, groups], default=dict)


def _packed_scope(scope, spans):
    if scope is None:
        return ["", "", "", None, spans]
    return [scope.name, scope.version, scope.schema_url, copied(scope.attributes), spans]


def _packed(span, added):
    context, parent, status, attributes = span.context, span.parent, span.status, copied(span.attributes)
    if added:
        attributes.update(added)
    return (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        parent.span_id.to_bytes(8, "big") if parent else b"",
        int(context.trace_flags) | flags(parent),
        context.trace_state.to_header() if context.trace_state else "",
        span.name,
        span.kind.value + 1,
        span.start_time,
        span.end_time,
        attributes,
        status.status_code.value,
        status.description,
        [(e.timestamp, e.name, copied(e.attributes), e.dropped_attributes) for e in span.events],
        [_packed_link(link) for link in span.links],
        span.dropped_attributes,
        span.dropped_events,
        span.dropped_links,
    )


def _packed_link(link):
    context = link.context
    return (
        context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), context.trace_state.to_header(),
        int(context.trace_flags) | flags(context), copied(link.attributes), link.dropped_attributes,
    )


def copied(attributes):
    """Returns attributes as a dict. The copy of the SDK's own type takes its lock once."""
    return attributes.copy() if attributes else {}


def _event(event):
    return Span.Event(
        name=event.name,
        time_unix_nano=event.timestamp,
        attributes=_attributes(event.attributes),
        dropped_attributes_count=event.dropped_attributes,
    )


def _link(link):
    return Span.Link(
        trace_id=link.context.trace_id.to_bytes(16, "big"),
        span_id=link.context.span_id.to_bytes(8, "big"),
        trace_state=link.context.trace_state.to_header(),
        attributes=_attributes(link.attributes),
        dropped_attributes_count=link.dropped_attributes,
        flags=int(link.context.trace_flags) | flags(link.context),
    )


def _attributes(attributes):
    return [KeyValue(key=k, value=_value(v)) for k, v in copied(attributes).items()]


def _value(value):
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if value is None:
        return AnyValue()
    if isinstance(value, dict) or hasattr(value, "items"):
        return AnyValue(kvlist_value=KeyValueList(values=_attributes(value)))
    return AnyValue(array_value=ArrayValue(values=[_value(v) for v in value]))


def cleaned(span):
    """Returns a copy of the span with values that OTLP can hold: lone surrogates become
    question marks, and integers beyond 64 bits and unknown types become text."""
    return ReadableSpan(
        name=_clean(str(span.name)), context=span.context, parent=span.parent, resource=span.resource,
        attributes=_clean(span.attributes or {}),
        events=[Event(_clean(str(e.name)), _clean(e.attributes or {}), e.timestamp) for e in span.events],
        links=[Link(x.context, _clean(x.attributes or {})) for x in span.links],
        kind=span.kind, start_time=span.start_time, end_time=span.end_time, instrumentation_scope=span.instrumentation_scope,
        status=_clean_status(span.status),
    )


def _clean_status(status):
    description = status.description
    return APIStatus(status.status_code, _clean(str(description)) if description else None)


def _clean(value):
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if hasattr(value, "items"):
        return {_clean(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    return _clean(str(value))
