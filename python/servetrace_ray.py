"""Exporter plugins of servetrace for Ray Serve.

    RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=servetrace_ray:span_processors
    SERVE_TRACING_EXPORTER_PLUGIN=console

Ray Serve calls ``span_processors`` once in each proxy and each replica. An exception in
it, or in ``on_start``, would fail the replica or the request: nothing here raises.
"""

import logging

import servetrace


def span_processors():
    """Returns a list with the span processor for Ray Serve, or an empty list if
    SERVE_TRACING_EXPORTER_PLUGIN is unset or something fails. Does not block and never
    raises."""
    # Ray Serve writes the lines of this logger's parent to the component's log.
    return servetrace.processors_or_none(logging.getLogger("ray.serve.servetrace"), _make)


def _make(relay, log):
    from servetrace.ray_serve import RayProcessor

    return RayProcessor(relay, log)
