"""The applications that record.py has Ray Serve run. service_test.go has the same for ours."""

import asyncio

import grpc
from fastapi import FastAPI, HTTPException, WebSocket, WebSocketDisconnect
from google.protobuf.wrappers_pb2 import StringValue
from opentelemetry import trace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ray import serve

FOR_EVER = 60  # seconds: longer than any request may last


def own_span(name):
    return trace.get_tracer("user").start_as_current_span(name, context=serve.get_trace_context())


@serve.deployment(max_ongoing_requests=100)
class Plain:
    async def __call__(self, request: Request):
        return await getattr(self, request.url.path.rsplit("/", 1)[-1] or "ok")()

    async def ok(self):
        return Response("ok")

    plain = ok  # the prefix itself

    async def created(self):
        return Response("ok", status_code=201)

    async def redirected(self):
        return Response(status_code=302, headers={"location": "/"})

    async def missing(self):
        return Response("no", status_code=404)

    async def unready(self):
        return Response("no", status_code=503)

    async def raises(self):
        raise RuntimeError("boom")

    async def spans(self):
        with own_span("outer"):
            with own_span("inner"):
                return Response("ok")

    async def stream(self):
        async def parts():
            for i in range(3):
                yield f"{i}\n"

        return StreamingResponse(parts(), media_type="text/plain")

    async def breaks(self):
        async def parts():
            yield "begin"
            await asyncio.sleep(0.3)
            raise RuntimeError("boom")

        return StreamingResponse(parts(), media_type="text/plain")

    async def waits(self):
        await asyncio.sleep(FOR_EVER)

    async def lingers(self):
        async def parts():
            yield "begin"
            await asyncio.sleep(FOR_EVER)

        return StreamingResponse(parts(), media_type="text/plain")


@serve.deployment
class Root:
    async def __call__(self, request: Request):
        return Response("ok")


@serve.deployment(max_ongoing_requests=1, max_queued_requests=1)
class Narrow:
    """Has room for one request, and for one that waits."""

    async def __call__(self, request):
        await asyncio.sleep(FOR_EVER)


@serve.deployment
class C:
    async def __call__(self, x):
        return x + " C"

    async def fails(self, x):
        raise RuntimeError("boom")


@serve.deployment
class B:
    def __init__(self, c):
        self.c = c

    async def predict(self, x):
        return await self.c.remote(x + " B")

    async def forward(self, x):
        return await self.c.fails.remote(x)

    async def count(self, n):
        for i in range(n):
            yield i


@serve.deployment(max_ongoing_requests=100)
class A:
    def __init__(self, b, c, narrow):
        self.b, self.c, self.narrow = b, c, narrow

    async def __call__(self, request: Request):
        return await getattr(self, request.url.path.rsplit("/", 1)[-1])()

    async def chain(self):
        return Response(await self.b.predict.remote("A"))

    async def spans(self):
        with own_span("think"):
            return Response(await self.b.predict.remote("A"))

    async def parallel(self):
        return Response("".join(await asyncio.gather(self.b.predict.remote("A"), self.c.remote("A"), self.c.remote("A"))))

    async def twice(self):
        return Response(await self.c.remote("A") + await self.c.remote("A"))

    async def count(self):
        return Response(str([i async for i in self.b.options(stream=True).count.remote(3)]))

    async def fails(self):
        return Response(await self.b.forward.remote("A"))

    async def catches(self):
        try:
            await self.c.fails.remote("A")
        except RuntimeError:
            return Response("ok")

    async def full(self):
        return Response(await self.narrow.remote(None))

    async def model(self):
        return Response(await self.c.options(multiplexed_model_id="m1").remote("A"))

    async def hold(self):
        await self.narrow.remote(None)


@serve.deployment(max_ongoing_requests=100)
class Batched:
    @serve.batch(max_batch_size=3, batch_wait_timeout_s=1.0, max_concurrent_batches=2)
    async def together(self, items):
        with own_span("batched"):
            await asyncio.sleep(0.3)
            return items

    @serve.batch(max_batch_size=1)
    async def failing(self, items):
        raise RuntimeError("boom")

    async def __call__(self, request: Request):
        if request.url.path.endswith("fails"):
            return Response(await self.failing("x"))
        return Response(await self.together("x"))


@serve.deployment
class Models:
    @serve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id):
        return model_id

    async def __call__(self, request: Request):
        return Response(await self.model(serve.get_multiplexed_model_id()))


api = FastAPI()


@serve.deployment(max_ongoing_requests=100)
@serve.ingress(api)
class Api:
    @api.get("/users/{user}")
    async def user(self, user: str):
        return user

    @api.get("/missing/{user}")
    async def missing(self, user: str):
        raise HTTPException(status_code=404)

    @api.get("/raises")
    async def raises(self):
        raise RuntimeError("boom")

    @api.websocket("/chat")
    async def chat(self, socket: WebSocket):
        """Answers one message, then does what it was told."""
        await socket.accept()
        told = await socket.receive_text()
        await socket.send_text(told)
        if told.startswith("close "):
            await socket.close(int(told.split()[1]))
        elif told == "raise":
            raise RuntimeError("boom")
        elif told == "wait":
            try:
                await socket.receive_text()
            except WebSocketDisconnect:
                pass


@serve.deployment(max_ongoing_requests=100)
class Rpc:
    async def Unary(self, message):
        return StringValue(value=message.value)

    async def Stream(self, message):
        for i in range(3):
            yield StringValue(value=str(i))

    async def Collect(self, stream):
        values = [m.value async for m in stream]
        return StringValue(value="".join(values))

    async def Chat(self, stream):
        async for m in stream:
            yield StringValue(value=m.value)

    async def Raises(self, message):
        raise RuntimeError("boom")

    async def Breaks(self, message):
        yield StringValue(value="begin")
        await asyncio.sleep(0.3)
        raise RuntimeError("boom")

    async def SetsCode(self, message, grpc_context):
        grpc_context.set_code(getattr(grpc.StatusCode, message.value))
        grpc_context.set_details("set")
        return StringValue(value="ok")

    async def RaisesCode(self, message, grpc_context):
        grpc_context.set_code(getattr(grpc.StatusCode, message.value))
        grpc_context.set_details("set")
        raise RuntimeError("boom")

    async def Waits(self, message):
        await asyncio.sleep(FOR_EVER)


@serve.deployment(max_ongoing_requests=1, max_queued_requests=1)
class NarrowRpc:
    async def Waits(self, message):
        await asyncio.sleep(FOR_EVER)


SERVICE = "spans.v1.Plain"
UNARY = ["Unary", "Raises", "SetsCode", "RaisesCode", "Waits"]
STREAMS = ["Stream", "Breaks"]


def add_service(servicer, server):
    """Registers the service without generated code: all messages are a StringValue."""

    def handler(make, name):
        return make(getattr(servicer, name), request_deserializer=StringValue.FromString, response_serializer=StringValue.SerializeToString)

    handlers = {n: handler(grpc.unary_unary_rpc_method_handler, n) for n in UNARY}
    handlers |= {n: handler(grpc.unary_stream_rpc_method_handler, n) for n in STREAMS}
    handlers["Collect"] = handler(grpc.stream_unary_rpc_method_handler, "Collect")
    handlers["Chat"] = handler(grpc.stream_stream_rpc_method_handler, "Chat")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def applications():
    """Gives each application with its name and route prefix."""
    c = C.bind()
    return [
        (Root.bind(), "root", "/"),
        (Plain.bind(), "plain", "/plain"),
        (Narrow.options(name="Queue").bind(), "queue", "/queue"),
        (A.bind(B.bind(c), c, Narrow.bind()), "chain", "/chain"),
        (Batched.bind(), "batch", "/batch"),
        (Models.bind(), "models", "/models"),
        (Api.bind(), "api", "/api"),
        (Rpc.bind(), "rpc", "/rpc"),
        (NarrowRpc.bind(), "narrow", "/narrow"),
    ]
