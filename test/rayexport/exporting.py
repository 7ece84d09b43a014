"""What the proxies and replicas of run.py import."""

import os

import apps
from opentelemetry import trace
from ray import serve
from ray.serve._private.tracing_utils import default_tracing_exporter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

import servetrace_ray

SERVICE = apps.SERVICE


def add_service(servicer, server):
    """Registers the gRPC service of test/ray."""
    apps.add_service(servicer, server)


def span_processors():
    """Returns servetrace's processors, and Ray Serve's own default, whose file is the
    record of the spans that were made."""
    return [*servetrace_ray.span_processors(), *default_tracing_exporter(f"spans-{os.getpid()}.json")]


def own_span(name):
    return trace.get_tracer("user").start_as_current_span(name, context=serve.get_trace_context())


@serve.deployment(max_ongoing_requests=100)
class Model:
    async def __call__(self, text):
        with own_span("predict") as span:
            span.set_attributes({"length": len(text), "ratio": 0.5, "tags": ["a", "b"], "ok": True})
            span.add_event("token", {"n": 1})
            return text.upper()

    async def tokens(self, text):
        for token in text.split("-"):
            yield token


@serve.deployment(max_ongoing_requests=100)
class Ingress:
    def __init__(self, model):
        self.model = model

    async def __call__(self, request: Request):
        text = request.query_params["text"]
        if request.url.path.endswith("/stream"):
            return StreamingResponse(self.model.options(stream=True).tokens.remote(text), media_type="text/plain")
        if request.url.path.endswith("/raise"):
            raise RuntimeError("boom")
        return PlainTextResponse(await self.model.remote(text))


def applications():
    """Returns each application with its name and route prefix."""
    return [(Ingress.bind(Model.bind()), "http", "/http"), (apps.Rpc.bind(), "rpc", "/rpc")]
