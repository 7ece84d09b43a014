"""Stands for the parts of Anyscale's build of Ray that the guide's applications import.

Every Python process of Ray imports this module, because its folder is on PYTHONPATH.
"""

import builtins
import importlib.abc
import importlib.machinery
import sys

NAMES = ["ray.anyscale", "ray.anyscale.serve", "ray.anyscale.serve._private", "ray.anyscale.serve._private.tracing_utils"]
OTLP = [
    "opentelemetry.exporter",
    "opentelemetry.exporter.otlp",
    "opentelemetry.exporter.otlp.proto",
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
]


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ray.anyscale, whose get_trace_context is that of ray.serve, and an OTLP
    exporter that sends nothing, because the environment has none."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name in NAMES + OTLP else None

    def exec_module(self, module):
        if module.__name__ == NAMES[-1]:
            from ray import serve

            module.get_trace_context = serve.get_trace_context
        if module.__name__ == OTLP[-1]:
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

            module.OTLPSpanExporter = InMemorySpanExporter


class FastAPIInstrumentor:
    """Does nothing. The guide does not print its import of it."""

    def instrument_app(self, app):
        pass


class WithoutTLS(importlib.abc.MetaPathFinder):
    """Makes requests.get use HTTP, because the guide expects TLS before the service."""

    def find_spec(self, name, path, target=None):
        if name != "requests":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            get = module.get
            module.get = lambda url, **more: get(url.replace("https://", "http://"), **more)

        spec.loader.exec_module = exec_module
        return spec


builtins.FastAPIInstrumentor = FastAPIInstrumentor
sys.meta_path[:0] = [StandIns(), WithoutTLS()]
