"""Measures a call of one deployment by another in real Ray Serve: python hop.py [SECONDS]

The callee returns its argument, and tracing is off. CPU is of the two replicas' processes,
without Ray's own processes. bench/internal/serveload measures the same of ours and of grpc-go.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time

import record  # free_ports


def serve_and_measure(place, seconds):
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    @serve.deployment(max_ongoing_requests=100)
    class Echo:
        async def __call__(self, text):
            return text

        async def used(self):
            return os.getpid(), time.process_time()

    @serve.deployment(max_ongoing_requests=100)
    class Caller:
        def __init__(self, echo):
            self.echo = echo

        async def measure(self, callers, seconds):
            took = []

            async def call(until):
                while time.perf_counter() < until:
                    began = time.perf_counter()
                    assert await self.echo.remote("the quick brown fox") == "the quick brown fox"
                    took.append(time.perf_counter() - began)

            async def turn(length):
                took.clear()
                until = time.perf_counter() + length
                await asyncio.gather(*[call(until) for _ in range(callers)])

            await turn(2)  # to warm up
            pid, before = await self.echo.used.remote()
            assert pid != os.getpid()
            before += time.process_time()
            await turn(seconds)
            _, after = await self.echo.used.remote()
            after += time.process_time()
            took.sort()
            return (after - before) / len(took), took[len(took) // 2], took[len(took) * 99 // 100]

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, _temp_dir=place, _node_ip_address="127.0.0.1")
    try:
        serve.start(http_options=HTTPOptions(host="127.0.0.1", port=record.free_ports(1)[0]))
        handle = serve.run(Caller.bind(Echo.bind()))
        for callers in (1, 32):
            cpu, p50, p99 = handle.measure.remote(callers, seconds).result()
            print(f"Ray Serve {ray.__version__}, {callers} at a time: {cpu * 1e6:.0f} us of CPU a call, p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms", flush=True)
        serve.shutdown()
    finally:
        ray.shutdown()


def main(seconds):
    place = tempfile.mkdtemp(prefix="ray")
    os.environ |= {"HOME": place, "PYTHONDONTWRITEBYTECODE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        serve_and_measure(place, seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
