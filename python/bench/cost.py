"""Measures the CPU of a Python process per span: python cost.py [--ray] [LAPS]

    none    the span itself, without a processor
    stock   OpenTelemetry's BatchSpanProcessor and OTLPSpanExporter (gRPC)
    own     servetrace's processor
    ray     servetrace's processor for Ray Serve, which adds four ids; with --ray alone

All send to the same relay, whose plugin's back end is this program. Spans have the name,
the attributes and the parent of Ray Serve's replica span. Each lap is a new process, or
with --ray a new actor of a local Ray; the kinds take turns. The result is the median of
CPU time above "none", and its ratio to "stock".
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests"))

from receiver import Receiver

SPANS, WARM_UP = 20_000, 4_000
KINDS = ["none", "stock", "own"]
ATTRIBUTES = {
    "request_id": "005a8871-4a26-4610-b2c5-b9e7cfc34224", "replica_id": "pwxu9gf0", "deployment": "Upper", "app": "default",
    "call_method": "__call__", "route": "/", "multiplexed_model_id": "", "is_streaming": False,
}
NAME = "replica_handle_request Upper __call__"


def processors(kind):
    from servetrace import processor
    from servetrace.relay import relay_from_env

    relay = relay_from_env()
    if kind == "none":
        return []
    if kind == "stock":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        relay.ensure(60)
        return [BatchSpanProcessor(OTLPSpanExporter(endpoint=os.environ["SERVE_RELAY_GRPC"], insecure=True), max_queue_size=SPANS)]
    if kind == "ray":
        from ray.serve import context
        from servetrace.ray_serve import RayProcessor

        context._serve_request_context.set(context._RequestContext(request_id=ATTRIBUTES["request_id"]))
        return [RayProcessor(relay, queue_spans=SPANS)]
    return [processor.RelayProcessor(relay, queue_spans=SPANS)]


def lap(kind):
    """Returns the microseconds of CPU per span of this process."""
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(shutdown_on_exit=False)
    for p in processors(kind):
        provider.add_span_processor(p)
    tracer = provider.get_tracer("ray.serve._private.tracing_utils")

    def spans(n):
        for _ in range(n):
            with tracer.start_as_current_span(NAME) as span:
                span.set_attributes({"resource.name": NAME})
                span.set_attributes(ATTRIBUTES)
        if not provider.force_flush(60_000):
            sys.exit(f"{kind}: spans were not delivered within a minute")

    spans(WARM_UP)
    start = time.process_time()
    spans(SPANS)
    used = time.process_time() - start
    lost = [p.lost for p in provider._active_span_processor._span_processors if getattr(p, "lost", None)]
    provider.shutdown()
    if lost:
        sys.exit(f"{kind}: spans were lost: {lost}")
    return used / SPANS * 1e6


class BackEnd(Receiver):
    """An OTLP receiver that decodes nothing. It is no server of grpcio, because Ray forks
    this process."""

    def take(self, body):
        pass


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def in_ray(place):
    """Returns a function that makes a lap in a new actor, and one that ends Ray."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=f"{place}/ray", _node_ip_address="127.0.0.1")

    @ray.remote
    class Lap:
        def run(self, kind):
            sys.path.insert(0, HERE)
            import cost
            from ray import serve  # noqa: F401  every actor of Ray Serve has it, and the garbage collector its objects

            return cost.lap(kind)

    def run(kind):
        actor = Lap.remote()
        try:
            return ray.get(actor.run.remote(kind))
        finally:
            ray.kill(actor)

    return run, ray.shutdown


def in_process(kind):
    return json.loads(subprocess.run([sys.executable, "-B", __file__, "lap", kind], check=True, stdout=subprocess.PIPE).stdout)


def main(laps, with_ray):
    back_end = BackEnd(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory(prefix="cost") as place:
        os.environ |= {
            "TMPDIR": place, "HOME": place, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "SERVE_TRACING_EXPORTER_PLUGIN": "otlp", "SERVE_RELAY_LINGER": "2s", "SERVE_RELAY_GRPC": f"127.0.0.1:{free_port()}", "RAY_USAGE_STATS_ENABLED": "0",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://%s:%d" % back_end.address,
        }
        run, end = in_ray(place) if with_ray else (in_process, lambda: None)
        kinds = KINDS + ["ray"] if with_ray else KINDS
        try:
            took = {kind: [] for kind in kinds}
            for _ in range(laps):
                for kind in kinds:
                    took[kind].append(run(kind))
        finally:
            end()
            back_end.stop()
    stock = [x - n for x, n in zip(took["stock"], took["none"])]
    print(f"CPU per span in microseconds, median of {laps} laps of {SPANS} spans{' in an actor of Ray' if with_ray else ''}")
    print(f"none     {statistics.median(took['none']):6.1f}")
    for kind in kinds[1:]:
        above = [x - n for x, n in zip(took[kind], took["none"])]
        ratio = statistics.median(a / s for a, s in zip(above, stock))
        print(f"{kind:8} {statistics.median(took[kind]):6.1f}   above none {statistics.median(above):6.1f}   of stock {ratio:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["lap"]:
        print(json.dumps(lap(sys.argv[2])))
    else:
        numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
        main(numbers[0] if numbers else 5, "--ray" in sys.argv)
