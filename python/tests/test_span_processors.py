import os
import subprocess
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

import servetrace
import servetrace_ray
from support import PATIENCE, FakeRelay, provider, socket_path

PYTHON = Path(servetrace.__file__).parents[1]
TASK = "b933bc877e9b2adf9b5a2759f15cba01fb8a26e201000000"


class StandIn:
    """Stands for the parts of Ray that servetrace uses."""

    def __init__(self, name="SERVE_REPLICA::app#Upper#loqjhi4j"):
        self.name, self.task, self.request = name, TASK, None
        self.fault = None

    def get_runtime_context(self):
        if self.fault:
            raise self.fault
        return types.SimpleNamespace(get_actor_name=lambda: self.name, get_task_id=lambda: self.task)

    def get(self):
        return self.request

    def modules(self):
        ray, serve, context = types.ModuleType("ray"), types.ModuleType("ray.serve"), types.ModuleType("ray.serve.context")
        ray.get_runtime_context, ray.serve, serve.context, context._serve_request_context = self.get_runtime_context, serve, context, self
        return {"ray": ray, "ray.serve": serve, "ray.serve.context": context, "servetrace.ray_serve": None}


class SpanProcessors(unittest.TestCase):
    def setUp(self):
        self.path = socket_path(self)
        environ = {"SERVE_TRACING_EXPORTER_PLUGIN": "console", "SERVE_TRACING_RELAY": str(self.path), "PATH": os.environ["PATH"]}
        patch = mock.patch.dict(os.environ, environ, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def with_ray(self, stand_in):
        patch = mock.patch.dict(sys.modules, stand_in.modules())
        patch.start()
        del sys.modules["servetrace.ray_serve"]
        self.addCleanup(patch.stop)

    def made(self, function):
        processors = function()
        self.assertIs(type(processors), list)
        for p in processors:
            self.addCleanup(p.shutdown, 0)
        return processors

    def sent(self, stand_in, before_end=lambda: None, **attributes):
        """Returns the attributes of a span of the stand-in as the relay gets them."""
        self.with_ray(stand_in)
        fake = FakeRelay(str(self.path))
        self.addCleanup(fake.stop)
        p = provider(self, self.made(servetrace_ray.span_processors)[0])
        span = p.get_tracer("x").start_span("x")
        before_end()
        span.set_attributes({"own": "1", **attributes})
        span.end()
        self.assertTrue(p.force_flush(PATIENCE * 1000))
        return fake.requests[0][0][1][9]

    def test_one_processor_each(self):
        self.with_ray(StandIn())
        self.assertEqual([type(p).__name__ for p in self.made(servetrace.span_processors)], ["RelayProcessor"])
        self.assertEqual([type(p).__name__ for p in self.made(servetrace_ray.span_processors)], ["RayProcessor"])

    def test_nothing_to_do(self):
        for environ in ({}, {"SERVE_TRACING_EXPORTER_PLUGIN": " "}):
            with mock.patch.dict(os.environ, environ, clear=True):
                self.assertEqual(servetrace.span_processors(), [])
                self.assertEqual(servetrace_ray.span_processors(), [])

    def test_failures_give_an_empty_list_and_a_line(self):
        no_msgpack = {"msgpack": None, "servetrace.encode": None, "servetrace.processor": None, "servetrace.ray_serve": None}
        faults = [
            mock.patch.dict(sys.modules, no_msgpack),
            mock.patch("servetrace.relay.relay_from_env", side_effect=RuntimeError("injected")),
            mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")),
            mock.patch("os.register_at_fork", side_effect=OSError("injected")),
            mock.patch.dict(os.environ, {"SERVE_TRACING_RELAY": "", "SERVE_TRACING_RELAY_AUTOSTART": "maybe"}),
            mock.patch.dict(os.environ, {"SERVE_TRACING_BATCH_AGE": "soon"}),
        ]
        self.with_ray(StandIn())
        for function, logger in ((servetrace.span_processors, "servetrace"), (servetrace_ray.span_processors, "ray.serve.servetrace")):
            for number, fault in enumerate(faults):
                with self.subTest(logger, fault=number), fault, self.assertLogs(logger, "ERROR"):
                    self.assertEqual(function(), [])

    def test_without_ray(self):
        with mock.patch.dict(sys.modules, {"ray": None}), self.assertLogs("ray.serve.servetrace", "ERROR"):
            self.assertEqual(servetrace_ray.span_processors(), [])

    def test_ids_of_a_replica(self):
        stand_in = StandIn()
        stand_in.request = types.SimpleNamespace(request_id="r-1")
        self.assertEqual(self.sent(stand_in), {"own": "1", "serve.replica_id": "app#Upper#loqjhi4j", "serve.task_id": TASK, "serve.request_id": "r-1"})

    def test_ids_are_the_ids_at_the_start(self):
        stand_in = StandIn()
        stand_in.request = types.SimpleNamespace(request_id="r-1")

        def other_task():
            stand_in.task, stand_in.request = "other", types.SimpleNamespace(request_id="r-2")

        got = self.sent(stand_in, other_task)
        self.assertEqual((got["serve.task_id"], got["serve.request_id"]), (TASK, "r-1"))

    def test_ids_of_a_proxy_outside_of_requests(self):
        self.assertEqual(self.sent(StandIn("SERVE_PROXY_ACTOR-ee70")), {"own": "1", "serve.task_id": TASK})

    def test_ids_of_a_span_outside_of_tasks(self):
        """The span has the task that made the actor."""
        stand_in = StandIn()
        tasks = iter([TASK, None])
        stand_in.get_runtime_context = lambda: types.SimpleNamespace(get_actor_name=lambda: stand_in.name, get_task_id=lambda: next(tasks))
        self.assertEqual(self.sent(stand_in), {"own": "1", "serve.replica_id": "app#Upper#loqjhi4j", "serve.task_id": TASK})

    def test_failures_of_ray_cost_the_ids_alone(self):
        stand_in = StandIn()
        stand_in.fault = RuntimeError("injected")
        self.assertEqual(self.sent(stand_in), {"own": "1"})

    def test_request_id_that_ray_sets_later(self):
        self.assertEqual(self.sent(StandIn(), request_id="r-1")["serve.request_id"], "r-1")

    def test_spans_that_never_end_are_bounded(self):
        self.with_ray(StandIn())
        processor = self.made(servetrace_ray.span_processors)[0]
        tracer = provider(self, processor).get_tracer("x")
        with mock.patch("servetrace.ray_serve._MOST_STARTED", 10):
            for _ in range(30):
                tracer.start_span("never ends")
        self.assertEqual(len(processor._started), 10)

    def test_no_grpc(self):
        """grpcio has threads, and a process that forks during a call of it may end."""
        code = "import sys, servetrace.processor; sys.exit('grpc' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], cwd=PYTHON).returncode, 0)

    def test_import_is_light(self):
        """A runner replaces sys.stdout before anything imports OpenTelemetry."""
        code = "import sys, servetrace, servetrace_ray; sys.exit(any(m.split('.')[0] in ('opentelemetry', 'msgpack') for m in sys.modules))"
        self.assertEqual(subprocess.run([sys.executable, "-S", "-c", code], cwd=PYTHON).returncode, 0)


if __name__ == "__main__":
    unittest.main()
