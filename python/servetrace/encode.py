"""Makes bytes of ended spans: the compact form of a relay, whose definition is in
internal/pywire."""

import msgpack

_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200


def item(span, added=None):
    """Returns the item of a batch: resource, scope, and the packed span with the attributes
    that it gets in addition. It spares the garbage collector the objects of a span that
    waits."""
    return span.resource, span.instrumentation_scope, _pack(_record(span, added))


def compact(items):
    """Returns the bytes of a batch. Batches merge by concatenation."""
    groups = _grouped(items)
    parts = [_pack_head(2), _pack(1), _pack_head(len(groups))]
    for resource, scopes in groups.items():
        parts += [_pack_head(3), _pack(_copied(resource.attributes)), _pack(resource.schema_url), _pack_head(len(scopes))]
        for scope, inside in scopes.items():
            parts.append(_pack_head(5))
            parts += map(_pack, (scope.name, scope.version, scope.schema_url, _copied(scope.attributes)) if scope else (None,) * 4)
            parts.append(_pack_head(len(inside)))
            parts += inside
    return b"".join(parts)


def _grouped(items):
    """Returns {resource: {scope: [span]}} in the order of the items."""
    groups, at = {}, (None, None)
    for resource, scope, span in items:
        if resource is not at[0] or scope is not at[1]:  # hashing a resource is slow
            inside = groups.setdefault(resource, {}).setdefault(scope, [])
            at = (resource, scope)
        inside.append(span)
    return groups


def _pack_head(members):
    return msgpack.Packer().pack_array_header(members)


def _pack(value):
    """Returns the bytes of a value. Lone surrogates become question marks."""
    try:
        return msgpack.packb(value, default=_plain)
    except UnicodeEncodeError:  # without an argument for errors, msgpack copies no text
        return msgpack.packb(value, default=_plain, unicode_errors="replace")


def _plain(value):
    """Returns a value that msgpack lacks in a type that it has: a mapping as a dict, and an
    integer beyond 64 bits or an unknown type as text."""
    return dict(value) if hasattr(value, "items") else str(value)


def _record(span, added):
    """Returns the members of a span."""
    context, parent, status, attributes = span.context, span.parent, span.status, _copied(span.attributes)
    if added:
        attributes.update(added)
    return (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        parent.span_id.to_bytes(8, "big") if parent else b"",
        int(context.trace_flags) | _flags(parent),
        context.trace_state.to_header() if context.trace_state else "",
        span.name,
        span.kind.value + 1,
        span.start_time,
        span.end_time,
        attributes,
        status.status_code.value,
        status.description,
        [(e.timestamp, e.name, _copied(e.attributes), e.dropped_attributes) for e in span.events],
        [_link_record(link) for link in span.links],
        span.dropped_attributes,
        span.dropped_events,
        span.dropped_links,
    )


def _link_record(link):
    context = link.context
    return (
        context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), context.trace_state.to_header(),
        int(context.trace_flags) | _flags(context), _copied(link.attributes), link.dropped_attributes,
    )


def _flags(parent):
    """Returns OTLP's flags for a remote or local parent."""
    return _HAS_IS_REMOTE | _IS_REMOTE if parent and parent.is_remote else _HAS_IS_REMOTE


def _copied(attributes):
    """Returns attributes as a dict. The copy of the SDK's own type takes its lock once."""
    return attributes.copy() if attributes else {}
