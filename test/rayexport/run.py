"""Exports the spans of real Ray Serve through the relay, and counts them at a back end:
python run.py WHEEL SPANS, in an environment with Ray. make test-ray-export makes both.

A cluster with a proxy and three replicas gets HTTP, streaming and gRPC requests. While it
is redeployed under load, the plugin and the relay are killed (SIGKILL), KILLS times each.
Ray Serve's own span files are the record of the spans that were made. Each must arrive,
field by field, and none twice but what was in flight in a killed process. No request may
fail. Everything is on 127.0.0.1, in a temporary folder; no process is left behind.
"""

import collections
import glob
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "ray"), os.path.join(HERE, "..", "..", "python", "tests")]

import record as recorder  # of test/ray
from receiver import Receiver

KILLS = 3
CALLERS = 8
PATIENCE = 120  # seconds that a step may take
IN_FLIGHT = 2048  # spans of a batch
PROCESSES = 7  # the proxy, and three replicas with their successors
CALLER_SPAN = "b7ad6b7169203331"
IDS = ("serve.task_id", "serve.request_id", "serve.replica_id", "ray.task_id", "ray.actor_id", "ray.job_id", "ray.request_id")


def wait_for(what, condition):
    """Returns the first true value of the condition."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {PATIENCE} s")
        time.sleep(0.1)
    return value


class BackEnd(Receiver):
    """An OTLP receiver that keeps every span with the times of its arrivals. It is no
    server of grpcio, because Ray forks this process."""

    def __init__(self):
        self.spans, self.arrivals = {}, collections.defaultdict(list)
        super().__init__(("127.0.0.1", 0))

    def take(self, body):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        now = time.time()
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans[span.span_id.hex()] = (group.resource, scope.scope, span)
                    self.arrivals[span.span_id.hex()].append(now)


class Load:
    """Requests of all kinds, and what became of them."""

    KINDS = ("unary", "stream", "grpc", "grpc stream")

    def __init__(self, http_port, grpc_port):
        import grpc
        from google.protobuf.wrappers_pb2 import StringValue

        self.port, self.message, self.lock = http_port, StringValue, threading.Lock()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self.got, self.stopping = collections.Counter(), threading.Event()

    def one(self, kind):
        """Makes a request and counts its outcome."""
        try:
            if kind.startswith("grpc"):
                saw = self.rpc(kind)
            else:
                saw = self.get("stream" if kind == "stream" else "unary")
        except Exception as e:
            saw = f"{type(e).__name__}: {e}"
        with self.lock:
            self.got[kind, saw] += 1

    def get(self, path):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            conn.request("GET", f"/http/{path}?text=a-b", headers={"traceparent": f"00-{os.urandom(16).hex()}-{CALLER_SPAN}-01"} if path == "stream" else {})
            response = conn.getresponse()
            return f"{response.status} {response.read().decode()}"
        finally:
            conn.close()

    def rpc(self, kind):
        make, method = (self.channel.unary_unary, "Unary") if kind == "grpc" else (self.channel.unary_stream, "Stream")
        call = make(f"/spans.v1.Plain/{method}", request_serializer=self.message.SerializeToString, response_deserializer=self.message.FromString)
        answer = call(self.message(value="a"), metadata=(("application", "rpc"),), timeout=PATIENCE)
        return "OK " + (answer.value if kind == "grpc" else "".join(m.value for m in answer))

    def start(self):
        def run(number):
            while not self.stopping.is_set():
                number += 1
                self.one(self.KINDS[number % len(self.KINDS)])

        self.threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(CALLERS)]
        for t in self.threads:
            t.start()

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join()
        self.channel.close()

    def check(self):
        """Exits if a request failed."""
        want = {"unary": "200 A-B", "stream": "200 ab", "grpc": "OK a", "grpc stream": "OK 012"}
        wrong = {k: n for k, n in self.got.items() if k[1] != want[k[0]]}
        print("requests:", {f"{kind}: {saw}": n for (kind, saw), n in self.got.items()})
        if wrong or {kind for kind, _ in self.got} != set(want):
            sys.exit(f"requests failed: {wrong}")


def relay_pid(place):
    """Returns the process that listens at the relay's socket, or None."""
    for path in glob.glob(f"{place}/servetrace-*/relay-*.sock"):
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(path)
            except OSError:
                continue
            return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def plugin_pid(place):
    """Returns the plugin of the relay, or None."""
    relay = relay_pid(place)
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            pid, parent = int(stat.split("/")[2]), int(open(stat).read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == relay:
            return pid


def kill_by_turns(place, backend, load, deploy, spans):
    """Redeploys under load, and kills the plugin and the relay in between, until the back
    end has so many spans. Returns the times of the kills."""
    kills = []
    for n in range(KILLS):
        for what, find in (("plugin", plugin_pid), ("relay", relay_pid)):
            seen, before = len(backend.spans), kills[-1][2] if kills else None
            wait_for("spans", lambda: len(backend.spans) > seen + spans // 8)
            pid = wait_for(f"a {what}", lambda: (found := find(place)) != before and found)
            kills.append((what, time.time(), pid))
            os.kill(pid, signal.SIGKILL)
            print(f"killed the {what} at {len(backend.spans)} spans", flush=True)
        if n == 1:
            deploy()
            print("redeployed", flush=True)
    wait_for(f"{spans} spans", lambda: len(backend.spans) >= spans)
    load.stop()
    return kills


def read_record(folder):
    """Returns the spans of Ray Serve's files by id."""
    spans = {}
    for name in glob.glob(os.path.join(folder, "spans-*.json")):
        with open(name) as f:
            text = f.read()
        for part in text.split("\n}\n")[:-1]:  # a span's end is the only brace in column 0
            span = json.loads(part + "}")
            spans[span["context"]["span_id"].removeprefix("0x")] = span
    return spans


def in_rays_form(resource, scope, span):
    """Returns a span of OTLP as Ray Serve's file has it."""
    from datetime import datetime, timezone

    def when(nanos):
        return datetime.fromtimestamp(nanos / 1e9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def value(v):
        kind = v.WhichOneof("value")
        return [value(x) for x in v.array_value.values] if kind == "array_value" else getattr(v, kind) if kind else None

    def attributes(a):
        return {x.key: value(x.value) for x in a}

    from opentelemetry.proto.trace.v1 import trace_pb2

    status = {"status_code": trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_")}
    return {
        "name": span.name,
        "context": {"trace_id": "0x" + span.trace_id.hex(), "span_id": "0x" + span.span_id.hex(), "trace_state": f"[{span.trace_state}]"},
        "kind": trace_pb2.Span.SpanKind.Name(span.kind).replace("SPAN_KIND_", "SpanKind."),
        "parent_id": "0x" + span.parent_span_id.hex() if span.parent_span_id else None,
        "start_time": when(span.start_time_unix_nano),
        "end_time": when(span.end_time_unix_nano),
        "status": status | ({"description": span.status.message} if span.status.message else {}),
        "attributes": attributes(span.attributes),
        "events": [{"name": e.name, "timestamp": when(e.time_unix_nano), "attributes": attributes(e.attributes)} for e in span.events],
        "links": [{"context": {"trace_id": "0x" + x.trace_id.hex(), "span_id": "0x" + x.span_id.hex(), "trace_state": f"[{x.trace_state}]"}, "attributes": attributes(x.attributes)} for x in span.links],
        "resource": {"attributes": attributes(resource.attributes), "schema_url": ""},
    }


def check_fields(record, backend):
    """Exits if a span differs from Ray Serve's record of it, or lacks Ray's ids."""
    for span_id, want in record.items():
        got = in_rays_form(*backend.spans[span_id])
        ids = {k: got["attributes"].pop(k, None) for k in IDS}
        task, request = ids["serve.task_id"] or "", ids["serve.request_id"]
        ours = (ids["ray.task_id"], ids["ray.actor_id"], ids["ray.job_id"], ids["ray.request_id"])
        replica, process = want["attributes"].get("replica_id"), ids["serve.replica_id"] or ""
        if (
            len(task) != 48 or ours != (task, task[16:], task[40:], request) or not request
            or want["attributes"].get("request_id", request) != request or replica and not process.endswith("#" + replica)
        ):
            sys.exit(f"Ray's ids are {ids}, of {want}")
        if got != want:
            sys.exit(f"a span differs:\nRay's {json.dumps(want)}\nours  {json.dumps(got)}")
    print(f"{len(record)} spans are equal to Ray Serve's own, field by field")


def check_counts(record, backend, kills):
    """Exits if a span is missing, or came twice without having been in flight."""
    missing = record.keys() - backend.spans.keys()
    strange = backend.spans.keys() - record.keys()
    twice = {k: t for k, t in backend.arrivals.items() if len(t) > 1}
    print(f"spans: {len(record)} made, {len(backend.spans)} arrived, {len(twice)} of them twice; kills: {[k[0] for k in kills]}")
    if missing or strange:
        names = collections.Counter(record[k]["name"] for k in missing)
        sys.exit(f"{len(missing)} spans are missing ({names}), {len(strange)} came that Ray Serve has no record of")
    for times in twice.values():
        # In flight when a process was killed: it came shortly before, and again after.
        if not any(killed - 10 < times[0] < killed + 1 and times[1] > killed for _, killed, _ in kills):
            sys.exit(f"a span came at {times}; the kills were at {kills}")
    if len(twice) > len(kills) * PROCESSES * IN_FLIGHT:
        sys.exit(f"{len(twice)} spans came twice")


def run(place, spans):
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions, gRPCOptions

    import exporting

    backend = BackEnd()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://%s:%d" % backend.address
    http_port, grpc_port = recorder.free_ports(2)

    def deploy():
        for app, name, prefix in exporting.applications():
            serve.run(app, name=name, route_prefix=prefix)

    try:
        # Ray gives its folder mode 0777, in which no plugin may be.
        ray.init(num_cpus=20, include_dashboard=False, log_to_driver=False, _temp_dir=f"{place}/ray", _node_ip_address="127.0.0.1")
        serve.start(
            http_options=HTTPOptions(host="127.0.0.1", port=http_port),
            grpc_options=gRPCOptions(port=grpc_port, grpc_servicer_functions=["exporting.add_service"]),
        )
        deploy()
        load = Load(http_port, grpc_port)
        for kind in load.KINDS:
            load.one(kind)
        load.start()
        kills = kill_by_turns(place, backend, load, deploy, spans)
        load.check()
        folder = os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "serve", "spans")
        wait_for("all spans", lambda: len(backend.spans) >= len(read_record(folder)))
        serve.shutdown()
        record = read_record(folder)
        check_counts(record, backend, kills)
        check_fields(record, backend)
        for name in glob.glob(os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "serve", "*.log")):
            with open(name) as f:
                lines = [line for line in f if "servetrace: " in line]
            print(os.path.basename(name), *lines[:3], sep="\n  ")
    finally:
        ray.shutdown()
        backend.stop()


def main(wheel, spans):
    place = tempfile.mkdtemp(prefix="rx")
    os.environ |= {
        "HOME": place,
        "TMPDIR": place,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([f"{place}/site", HERE, os.path.join(os.path.dirname(HERE), "ray")]),
        "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "exporting:span_processors",
        "RAY_SERVE_TRACING_SAMPLING_RATIO": "1.0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": str(PATIENCE),
        "SERVE_TRACING_EXPORTER_PLUGIN": "otlp",
        "SERVE_RELAY_LINGER": "3s",
        "SERVE_RAY_CONTEXT": "on",
    }
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    tempfile.tempdir = place
    try:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", f"{place}/site", wheel], check=True)
        run(place, spans)
        wait_for("the end of all processes", lambda: not recorder.left_behind(place))
        print("PASS")
    except SystemExit:
        for log in glob.glob(f"{place}/servetrace-*/*.log"):
            with open(log) as f:
                print(log, *f.readlines()[-40:], sep="\n")
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
