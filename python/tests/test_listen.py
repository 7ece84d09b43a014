import subprocess
import unittest
from pathlib import Path

import grpc
import servetrace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support import socket_path

CONSOLE = Path(servetrace.__file__).parent / "bin" / "plugins" / "console"


class StockExporter(unittest.TestCase):
    """OpenTelemetry's own exporter sends to a plugin that listens."""

    def test_compressed(self):
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with self.subTest(compression):
                path = socket_path(self)
                plugin = subprocess.Popen([CONSOLE, "--listen", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                self.addCleanup(plugin.wait)
                self.addCleanup(plugin.kill)
                plugin.stdout.readline()  # the plugin listens now
                provider = TracerProvider()
                provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"unix://{path}", insecure=True, compression=compression)))
                with provider.get_tracer("test").start_as_current_span("stock"):
                    pass
                provider.shutdown()
                plugin.terminate()
                self.assertIn('"name": "stock"', plugin.communicate()[0])
