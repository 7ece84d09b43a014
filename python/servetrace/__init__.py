"""Exporter plugins of servetrace for Python programs.

``span_processors()`` returns the span processor that sends spans to the relay of this
machine, which runs the plugins of SERVE_TRACING_EXPORTER_PLUGIN. The module
``servetrace_ray`` has the same function for Ray Serve.

1. ``relay.py`` reads the environment, and finds or starts the relay.
2. ``processor.py`` queues ended spans and keeps each batch until it is answered.
3. ``encode.py`` makes bytes of a span and of a batch, and ``client.py`` sends them.

This module imports OpenTelemetry only when ``span_processors`` is called.
"""

import logging


def span_processors():
    """Returns a list with one span processor, or an empty list if
    SERVE_TRACING_EXPORTER_PLUGIN is unset or something fails. Does not block and
    never raises: a failure is logged to the logger "servetrace"."""
    return processors_or_none(logging.getLogger("servetrace"), _make)


def _make(relay, log):
    from servetrace.processor import RelayProcessor

    return RelayProcessor(relay, log)


def processors_or_none(log, make):
    """Returns [make(relay, log)] for the relay of the environment, or an empty list if
    there is none or something fails, with the reason in the log."""
    try:
        from servetrace.relay import EXPORTER_PLUGIN, misspelt, relay_from_env

        relay = relay_from_env()
        if not relay and (name := misspelt()):
            log.warning("servetrace: no spans are sent: %s is set; did you mean %s?", name, EXPORTER_PLUGIN)
        return [make(relay, log)] if relay else []
    except Exception:
        log.exception("servetrace: no spans are sent")
        return []
