"""The pages docs/how-to/ray-serve.md and docs/how-to/python.md."""

import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import test_real_relay
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servetrace import processor, relay

PAGES = Path(__file__).parents[2] / "docs/how-to"


class Pages(unittest.TestCase):
    def test_variables(self):
        page = (PAGES / "ray-serve.md").read_text()
        variables = page[page.index("\n## Variables\n") : page.index("\n## How it works\n")]
        read = {relay.EXPORTER_PLUGIN, relay.RELAY, relay.AUTOSTART, relay.BINARY, relay.LINGER, processor.BATCH_AGE, processor.QUEUE_SIZE}
        self.assertEqual(set(re.findall(r"^- `(\w+)`", variables, re.M)), read)


def programs():
    """Returns the programs of the page."""
    return re.findall(r"```python [^\n]*\n(.*?)```", (PAGES / "python.md").read_text(), re.S)


class Program(test_real_relay.Environment):
    def test_program(self):
        """The program of the page prints its span with the console plugin."""
        program = programs()[0]
        log = Path(self.relay.log)
        with self.console():
            subprocess.run([sys.executable, "-B", "-c", program], cwd=PAGES.parents[1] / "python", check=True, timeout=60)
            log = next(log.parent.glob("relay-*.log"))
            test_real_relay.wait_until(lambda: '"hello"' in log.read_text())
            test_real_relay.wait_until(lambda: "msg=stopped" in log.read_text())

    def test_plain_program(self):
        """The program without the package ends its span with the provider that it is given."""
        exporter = InMemorySpanExporter()
        given = TracerProvider(shutdown_on_exit=False)
        given.add_span_processor(SimpleSpanProcessor(exporter))
        with mock.patch.object(trace, "_TRACER_PROVIDER", given):
            exec(programs()[1], {})
        self.assertEqual([span.name for span in exporter.get_finished_spans()], ["hello"])


if __name__ == "__main__":
    unittest.main()
