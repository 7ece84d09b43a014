"""A plugin in Python: each span becomes one line of JSON on the service's own
standard output, with attributes that the operator adds to every span.

    SERVE_TRACING_EXPORTER_PLUGIN=examples/python-plugin/plugin my-service

It reads SPAN_LINES_TEAM, which becomes the attribute "team", and a document in
JSON, every key of which may be left out:

    {"attributes": {"region": "eu"}, "drop": ["GET /health"]}

"drop" names spans that are dropped; the host counts them as filtered. A line that
cannot be written makes the host send the batch again, so a span may come twice.

`plugin` beside this file starts it. The docstring of servetrace.plugin.main lists the
answers of the two functions.
"""

import base64
import json
import math

from servetrace import plugin

TEAM = "SPAN_LINES_TEAM"


class Lines:
    """What configure has made of the settings, for export."""

    def configure(self, setup):
        self.out = setup.stdout
        self.added, self.dropped = {}, frozenset()
        if setup.config:
            self._read(setup, setup.config)
        if TEAM in setup.env:
            self.added["team"] = setup.env[TEAM]
        setup.log.info("configured", extra={"attributes": sorted(self.added), "drop": sorted(self.dropped)})

    def _read(self, setup, document):
        try:
            settings = json.loads(document)
        except ValueError as error:  # bytes that are no UTF-8 too
            text = f"the document is not JSON, which this plugin reads: {error}"
            raise plugin.ConfigError("", text) from None
        if not isinstance(settings, dict):
            raise plugin.ConfigError("", f"the document is {settings!r}: want an object")
        attributes, dropped = settings.pop("attributes", {}), settings.pop("drop", [])
        for key in settings:
            setup.error(key, "is not known: attributes and drop are")
        if isinstance(attributes, dict) and all(isinstance(v, (str, bool, int, float)) for v in attributes.values()):
            self.added = attributes
        else:
            setup.error("attributes", f"{attributes!r}: want an object whose values are texts, numbers or booleans")
        if isinstance(dropped, list) and all(isinstance(name, str) for name in dropped):
            self.dropped = frozenset(dropped)
        else:
            setup.error("drop", f"{dropped!r}: want a list of names of spans")

    def export(self, batch):
        if self.dropped:
            batch.filter("drop", lambda span: span.name not in self.dropped)
        for resource, _, span in batch.spans():
            for key, value in self.added.items():
                plugin.set_attribute(span, key, value)
            self.out.write(json.dumps(plain(line(resource, span)), allow_nan=False) + "\n")


def line(resource, span):
    """A span as it is printed. Ids are hexadecimal, times in nanoseconds since 1970."""
    return {
        "name": span.name,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": span.status.code,
        "attributes": plugin.attributes(span),
        "events": [event.name for event in span.events],
        "service": plugin.attributes(resource).get("service.name"),
    }


def plain(value):
    """value with what JSON has not as text: bytes in base64, and "nan" and "inf"."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


if __name__ == "__main__":
    lines = Lines()
    plugin.main(
        "python-lines",
        "1.0.0",
        env=[TEAM],
        configure=lines.configure,
        export=lines.export,
        description="prints each span as a line of JSON on the service's standard output",
        # It prints some ten thousand spans a second: small batches keep answers quick.
        limits=plugin.Limits(max_batch_spans=512, max_concurrency=2),
    )
