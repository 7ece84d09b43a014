"""Makes bytes of a batch of ended spans: OTLP, or the compact form of a relay, whose
definition is in internal/pywire."""

import functools

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
_pack = functools.partial(msgpack.packb, default=dict) if msgpack else None


def item(span, added=None, pack=True):
    """Returns the item of a batch: resource, scope, and the span with the attributes that
    it gets in addition. A packed item spares the garbage collector the objects of a span
    that waits."""
    body = (span, added)
    if pack and _pack is not None:
        try:
            body = _pack(record(span, added))
        except Exception:
            pass  # otlp and compact raise, and cleaned helps
    return span.resource, span.instrumentation_scope, body


def grouped(items):
    """Returns {resource: {scope: [body]}} in the order of the items."""
    groups, at = {}, (None, None)
    for resource, scope, body in items:
        if resource is not at[0] or scope is not at[1]:  # hashing a resource is slow
            inside = groups.setdefault(resource, {}).setdefault(scope, [])
            at = (resource, scope)
        inside.append(body)
    return groups


def otlp(items):
    """Returns the bytes of an ExportTraceServiceRequest. Requests merge by concatenation.

    Raises ValueError, TypeError or UnicodeError for a span with a value that OTLP
    cannot hold; see ``cleaned``.
    """
    request = ExportTraceServiceRequest()
    for resource, scopes in grouped(items).items():
        group = ResourceSpans(schema_url=resource.schema_url)
        group.resource.attributes.extend(_attributes(resource.attributes))
        for scope, inside in scopes.items():
            records = (msgpack.unpackb(x) if isinstance(x, bytes) else record(*x) for x in inside)
            group.scope_spans.append(_scope_spans(scope, [_span(*r) for r in records]))
        request.resource_spans.append(group)
    return request.SerializeToString()


def compact(items):
    """Returns the bytes of a batch in the compact form, as ``otlp`` does."""
    groups = grouped(items)
    parts = [_pack_head(2), _pack(1), _pack_head(len(groups))]
    for resource, scopes in groups.items():
        parts += [_pack_head(3), _pack(copied(resource.attributes)), _pack(resource.schema_url), _pack_head(len(scopes))]
        for scope, inside in scopes.items():
            parts.append(_pack_head(5))
            parts += map(_pack, (scope.name, scope.version, scope.schema_url, copied(scope.attributes)) if scope else (None,) * 4)
            parts.append(_pack_head(len(inside)))
            parts += (x if isinstance(x, bytes) else _pack(record(*x)) for x in inside)
    return b"".join(parts)


def _pack_head(members):
    return msgpack.Packer().pack_array_header(members)


def record(span, added):
    """Returns the members of a span in the compact form."""
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
        [_link_record(link) for link in span.links],
        span.dropped_attributes,
        span.dropped_events,
        span.dropped_links,
    )


def _link_record(link):
    context = link.context
    return (
        context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), context.trace_state.to_header(),
        int(context.trace_flags) | flags(context), copied(link.attributes), link.dropped_attributes,
    )


def _scope_spans(scope, spans):
    if scope is None:
        return ScopeSpans(spans=spans)
    message = InstrumentationScope(name=scope.name, version=scope.version, attributes=_attributes(scope.attributes))
    return ScopeSpans(scope=message, spans=spans, schema_url=scope.schema_url)


def _span(trace, span, parent, flags, state, name, kind, start, end, attributes, code, message, events, links, *dropped):
    return Span(
        trace_id=trace, span_id=span, parent_span_id=parent, flags=flags, trace_state=state, name=name, kind=kind,
        start_time_unix_nano=start, end_time_unix_nano=end, attributes=_attributes(attributes), status=Status(code=code, message=message),
        events=[Span.Event(time_unix_nano=t, name=n, attributes=_attributes(a), dropped_attributes_count=d) for t, n, a, d in events],
        links=[
            Span.Link(trace_id=t, span_id=s, trace_state=state, flags=f, attributes=_attributes(a), dropped_attributes_count=d)
            for t, s, state, f, a, d in links
        ],
        dropped_attributes_count=dropped[0], dropped_events_count=dropped[1], dropped_links_count=dropped[2],
    )


def flags(parent):
    """Returns OTLP's flags for a remote or local parent."""
    return _HAS_IS_REMOTE | _IS_REMOTE if parent and parent.is_remote else _HAS_IS_REMOTE


def copied(attributes):
    """Returns attributes as a dict. The copy of the SDK's own type takes its lock once."""
    return attributes.copy() if attributes else {}


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
