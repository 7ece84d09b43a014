"""Records the spans of real Ray Serve for the scenarios below: python record.py OUTPUT.json

The scenarios are part of the recording, so that the test in Go sends the same.
Everything is on 127.0.0.1; no process is left behind.
"""

import concurrent.futures
import glob
import http.client
import json
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import time

CALLER_TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER_SPAN = "b7ad6b7169203331"
SAMPLED = f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"
UNSAMPLED = f"00-{CALLER_TRACE}-{CALLER_SPAN}-00"
TIMEOUT = 3  # seconds: that of requests, but for those by HTTP that are not about it
PAUSE = 0.8  # seconds until a request has come to where it waits
REPEAT = 5  # times that a racy scenario is played


def get(name, path, **more):
    return {"name": name, "do": "get", "path": path, **more}


def sock(name, say, **more):
    return {"name": name, "do": "socket", "path": "/api/chat", "say": say, **more}


def rpc(name, method, say="hello", kind="unary", **more):
    return {"name": name, "do": "rpc", "app": "rpc", "method": method, "say": say, "kind": kind, **more}


# do: get, leave (before the response), leave-mid (with its first bytes), socket,
# rpc, rpc-leave. hold: so many requests to the path are there before. times: so
# many at once. close: the code that the client of a socket closes with, 0 for
# one that goes without a word. repeat: it is racy, so that it is played so many
# times, and the recording has each different outcome.
SCENARIOS = [
    get("2xx", "/plain/ok"),
    get("2xx POST", "/plain/created", verb="POST"),
    get("3xx", "/plain/redirected"),
    get("4xx", "/plain/missing"),
    get("5xx", "/plain/unready"),
    get("raise", "/plain/raises"),
    get("own spans", "/plain/spans"),
    get("stream", "/plain/stream"),
    get("failure mid-stream", "/plain/breaks"),
    get("timeout before the response", "/plain/waits", repeat=REPEAT),
    get("timeout mid-stream", "/plain/lingers", repeat=REPEAT),
    {"name": "client gone before the response", "do": "leave", "path": "/plain/waits", "repeat": REPEAT},
    {"name": "client gone mid-stream", "do": "leave-mid", "path": "/plain/lingers", "repeat": REPEAT},
    get("queue full", "/queue", hold=[{"path": "/queue"}, {"path": "/queue"}]),
    get("timeout in the queue", "/queue", hold=[{"path": "/queue"}], repeat=REPEAT),
    {"name": "client gone in the queue", "do": "leave", "path": "/queue", "hold": [{"path": "/queue"}], "repeat": REPEAT},
    get("caller sampled", "/plain/ok", headers={"traceparent": SAMPLED}),
    get("caller sampled, chain", "/chain/chain", headers={"traceparent": SAMPLED}),
    get("caller with tracestate", "/chain/chain", headers={"traceparent": SAMPLED, "tracestate": "a=1"}),
    get("caller unsampled", "/plain/ok", headers={"traceparent": UNSAMPLED}),
    get("caller unsampled, chain", "/chain/chain", headers={"traceparent": UNSAMPLED}),
    get("caller unsampled, raise", "/plain/raises", headers={"traceparent": UNSAMPLED}),
    get("caller malformed", "/plain/ok", headers={"traceparent": "00-zz-zz-01"}),
    get("prefix itself", "/plain"),
    get("prefix with more below", "/plain/a/b/ok"),
    get("prefix and query", "/plain/ok?a=1"),
    get("root", "/"),
    get("root, path", "/some/where"),
    get("no prefix matches within a word", "/plainer"),
    get("escaped path", "/plain/a%20b/ok"),
    get("health", "/-/healthz"),
    get("routes", "/-/routes"),
    get("chain", "/chain/chain"),
    get("chain with a span of the caller's own", "/chain/spans"),
    get("parallel calls", "/chain/parallel", repeat=REPEAT),
    get("two calls", "/chain/twice"),
    get("stream by handle", "/chain/count"),
    get("error of a handle escapes", "/chain/fails"),
    get("error of a handle is caught", "/chain/catches"),
    get("nested queue full", "/chain/full", hold=[{"path": "/chain/hold"}, {"path": "/chain/hold"}]),
    get("timeout in a nested queue", "/chain/full", hold=[{"path": "/chain/hold"}], repeat=REPEAT),
    get("model by handle", "/chain/model"),
    get("batches", "/batch/ok", times=6),
    get("batch fails", "/batch/fails"),
    get("model", "/models/ok", headers={"serve_multiplexed_model_id": "m1"}),
    get("model again", "/models/ok", headers={"serve_multiplexed_model_id": "m1"}, before=["/models/ok"]),
    get("route pattern", "/api/users/7"),
    get("route pattern, 4xx", "/api/missing/7"),
    get("route pattern, raise", "/api/raises"),
    get("no pattern matches", "/api/nowhere"),
    sock("socket closed by the client with 1000", "wait", close=1000),
    sock("socket closed by the client with 1001", "wait", close=1001),
    sock("socket closed by the client with 4000", "wait", close=4000),
    sock("socket closed by the server with 1000", "close 1000"),
    sock("socket closed by the server with 1001", "close 1001"),
    sock("socket closed by the server with 1011", "close 1011"),
    sock("socket whose handler fails", "raise"),
    sock("socket whose client is gone", "wait", close=0),
    rpc("gRPC unary", "Unary"),
    rpc("gRPC unary, sampled", "Unary", headers={"traceparent": SAMPLED}),
    rpc("gRPC unary, unsampled", "Unary", headers={"traceparent": UNSAMPLED}),
    rpc("gRPC server stream", "Stream", kind="stream"),
    rpc("gRPC client stream", "Collect", kind="collect"),
    rpc("gRPC both streams", "Chat", kind="chat"),
    rpc("gRPC raise", "Raises"),
    rpc("gRPC failure mid-stream", "Breaks", kind="stream"),
    rpc("gRPC client's code set", "SetsCode", say="NOT_FOUND"),
    rpc("gRPC server's code set", "SetsCode", say="UNAVAILABLE"),
    rpc("gRPC raise with a code", "RaisesCode", say="INVALID_ARGUMENT"),
    rpc("gRPC timeout", "Waits"),
    rpc("gRPC client gone", "Waits", do="rpc-leave"),
    rpc("gRPC queue full", "Waits", app="narrow", hold=[{"app": "narrow"}, {"app": "narrow"}]),
    rpc("gRPC unknown application", "Unary", app="nobody"),
    rpc("gRPC unknown method", "Nothing"),
]
for scenario in SCENARIOS:
    scenario["id"] = re.sub("[^a-z0-9]+", "-", scenario["name"].lower())  # that of its requests


def rounds(s):
    """Gives the scenario once for each time that it is played, with ids of their own."""
    return [{**s, "id": s["id"] + (f"-{n}" if n else "")} for n in range(s.get("repeat", 1))]


class Clients:
    """What sends the scenarios."""

    def __init__(self, http_port, grpc_port):
        import grpc
        from google.protobuf.wrappers_pb2 import StringValue

        self.port, self.message, self.grpc = http_port, StringValue, grpc
        self.channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self.pool = concurrent.futures.ThreadPoolExecutor(20)

    def play(self, s):
        """Plays a scenario, and gives what its client saw."""
        held = [self.hold(i, what) for i, what in enumerate(s.get("hold", []))]
        for path in s.get("before", []):
            self.get("before", {**s, "path": path})
        one = {"get": self.get, "leave": self.leave, "leave-mid": self.leave_mid, "socket": self.socket, "rpc": self.rpc, "rpc-leave": self.rpc_leave}[s["do"]]
        saw = list(self.pool.map(lambda _: one(s["id"], s), range(s.get("times", 1))))
        assert all(x == saw[0] for x in saw), saw
        for release in held:
            release()
        time.sleep(PAUSE)
        return saw[0]

    def hold(self, i, what):
        if "app" in what:
            call = self.stub("Waits", "unary").future(self.message(), metadata=(("application", what["app"]), ("request_id", f"held-{i}")))
            time.sleep(PAUSE)
            return call.cancel
        conn = self.send(f"held-{i}", what)
        time.sleep(PAUSE)
        return conn.close

    def send(self, request_id, s):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"x-request-id": request_id, **s.get("headers", {})}
        if "timeout" not in request_id:
            headers["x-request-timeout-seconds"] = "0"  # none: a slow machine shall not be part of the recording
        conn.request(s.get("verb", "GET"), s["path"], headers=headers)
        return conn

    def get(self, request_id, s):
        conn = self.send(request_id, s)
        response = conn.getresponse()
        cut = False
        try:
            response.read()
        except http.client.IncompleteRead:
            cut = True
        conn.close()
        return {"status": response.status, "cut": cut}

    def leave(self, request_id, s):
        conn = self.send(request_id, s)
        time.sleep(PAUSE)
        conn.close()
        return {"cut": True}

    def leave_mid(self, request_id, s):
        conn = self.send(request_id, s)
        response = conn.getresponse()
        assert response.read(5) == b"begin"
        conn.close()
        response.close()
        return {"status": response.status, "cut": True}

    def socket(self, request_id, s):
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        ws = connect(f"ws://127.0.0.1:{self.port}{s['path']}", additional_headers={"x-request-id": request_id, **s.get("headers", {})})
        ws.send(s["say"])
        assert ws.recv() == s["say"]
        if s.get("close") == 0:
            time.sleep(PAUSE)
            ws.socket.shutdown(socket.SHUT_RDWR)
            return {"cut": True}
        if "close" in s:
            time.sleep(PAUSE)
            ws.close(s["close"])
            return {"status": s["close"], "cut": False}
        try:
            ws.recv()
        except ConnectionClosed as e:
            return {"status": e.rcvd.code if e.rcvd else 1006, "cut": e.rcvd is None}

    def stub(self, method, kind):
        make = {"unary": self.channel.unary_unary, "stream": self.channel.unary_stream, "collect": self.channel.stream_unary, "chat": self.channel.stream_stream}[kind]
        return make(f"/spans.v1.Plain/{method}", request_serializer=self.message.SerializeToString, response_deserializer=self.message.FromString)

    def metadata(self, request_id, s):
        return [("application", s["app"]), ("request_id", request_id), *s.get("headers", {}).items()]

    def rpc(self, request_id, s):
        message = self.message(value=s["say"])
        streams = s["kind"] in ("collect", "chat")
        try:
            got = self.stub(s["method"], s["kind"])(iter([message] * 3) if streams else message, metadata=self.metadata(request_id, s), timeout=30)
            if s["kind"] in ("stream", "chat"):
                list(got)
            return {"code": "OK"}
        except self.grpc.RpcError as e:
            return {"code": e.code().name}

    def rpc_leave(self, request_id, s):
        call = self.stub(s["method"], s["kind"]).future(self.message(value=s["say"]), metadata=self.metadata(request_id, s))
        time.sleep(PAUSE)
        call.cancel()
        return {"code": "CANCELLED"}


def read_spans(folder):
    spans = []
    for name in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(name) as f:
            text = f.read()
        at, decoder = 0, json.JSONDecoder()
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            span, at = decoder.raw_decode(text, at)
            spans.append(span)
    return spans


def reduced_text(text):
    """Gives of Ray's task errors, which tell of processes, files and lines, the last line."""
    text = re.sub(r"\x1b\[\d+m", "", text)
    if "ray::" in text:
        return "(Ray's task error) " + text.strip().splitlines()[-1]
    return text


def reduced(span, children):
    attributes = dict(span["attributes"])
    if "replica_id" in attributes:
        assert re.fullmatch("[a-z0-9]{8}", attributes["replica_id"]), attributes
        attributes["replica_id"] = "(replica)"
    out = {"name": span["name"], "kind": span["kind"].removeprefix("SpanKind."), "status": span["status"]["status_code"]}
    if span["status"].get("description"):
        out["description"] = reduced_text(span["status"]["description"])
    if span["context"]["trace_state"] != "[]":
        out["trace_state"] = span["context"]["trace_state"]
    out["attributes"] = dict(sorted(attributes.items()))
    if span["links"]:
        out["links"] = len(span["links"])
    events = []
    for e in span["events"]:
        kept = dict(e["attributes"])
        kept["exception.message"] = reduced_text(kept["exception.message"])
        kept["exception.stacktrace"] = "(stack)"
        events.append({"name": e["name"], "attributes": dict(sorted(kept.items()))})
    if events:
        out["events"] = events
    below = [reduced(child, children) for child in children.get(span["context"]["span_id"], [])]
    if below:
        out["children"] = in_order(below)
    return out


def in_order(trees):
    return sorted(trees, key=lambda tree: json.dumps(tree, sort_keys=True))


def trees_of(request_id, spans):
    """Gives the trees of a scenario's requests: their roots, with all below."""
    ids = {s["context"]["span_id"]: s for s in spans}
    children = {}
    for s in spans:
        children.setdefault(s["parent_id"], []).append(s)
    trees = []
    for s in spans:
        if s["parent_id"] in ids or s["attributes"].get("request_id") != request_id:
            continue
        tree = reduced(s, children)
        # Of its parent is only known whether it is the caller's span.
        tree["parent"] = {None: "none", "0x" + CALLER_SPAN: "the caller"}[s["parent_id"]]
        tree["trace"] = "the caller's" if s["context"]["trace_id"] == "0x" + CALLER_TRACE else "its own"
        trees.append(tree)
    return in_order(trees)


def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def left_behind(place):
    """Gives the processes of the session: all name its folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/cmdline", "rb") as f:
                command = f.read()
            with open(path + "/environ", "rb") as f:
                environ = f.read()
        except OSError:
            continue
        if int(os.path.basename(path)) != os.getpid() and place.encode() in command + environ:
            found.append((path, command))
    return found


def record(place):
    http_port, grpc_port = free_ports(2)
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions, gRPCOptions

    import apps

    ray.init(address="local", num_cpus=20, include_dashboard=False, log_to_driver=False, _temp_dir=place, _node_ip_address="127.0.0.1")
    try:
        serve.start(
            http_options=HTTPOptions(host="127.0.0.1", port=http_port, request_timeout_s=TIMEOUT),
            grpc_options=gRPCOptions(port=grpc_port, grpc_servicer_functions=["apps.add_service"], request_timeout_s=TIMEOUT),
        )
        for app, name, prefix in apps.applications():
            serve.run(app, name=name, route_prefix=prefix)
        clients = Clients(http_port, grpc_port)
        saw = []
        for s in SCENARIOS:
            saw.append([clients.play(one) for one in rounds(s)])
            print(s["name"], saw[-1], flush=True)
        clients.channel.close()
        time.sleep(TIMEOUT)
        spans = read_spans(os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "serve", "spans"))
        serve.shutdown()
    finally:
        ray.shutdown()
    import opentelemetry.version

    return {
        "versions": {"ray": ray.__version__, "opentelemetry": opentelemetry.version.__version__, "python": platform.python_version()},
        "request_timeout_s": TIMEOUT,
        "scenarios": [{"send": s, "outcomes": outcomes(s, seen, spans)} for s, seen in zip(SCENARIOS, saw)],
    }


def outcomes(s, saw, spans):
    """Gives what came of a scenario, each different outcome once."""
    different = []
    for one, seen in zip(rounds(s), saw):
        traces = json.dumps(trees_of(one["id"], spans)).replace(f'"{one["id"]}"', f'"{s["id"]}"')
        outcome = {"saw": seen, "traces": json.loads(traces)}
        if outcome not in different:
            different.append(outcome)
    return in_order(different)


def main(output):
    place = tempfile.mkdtemp(prefix="ray")
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ |= {
        "HOME": place,  # Ray writes a token there
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": here,
        "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "ray.serve._private.tracing_utils:default_tracing_exporter",
        "RAY_SERVE_TRACING_SAMPLING_RATIO": "1.0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    sys.path.insert(0, here)
    try:
        text = json.dumps(record(place), indent=1, ensure_ascii=False) + "\n"
        late = time.monotonic() + 60
        while left_behind(place) and time.monotonic() < late:
            time.sleep(1)
        if left := left_behind(place):
            sys.exit(f"processes of Ray are left: {left}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for secret in (place, here, sys.prefix, socket.gethostname(), "127.0.0.1", "pid="):
        if secret in text:
            sys.exit(f"the recording tells {secret!r}")
    with open(output, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
