import contextlib
import logging
import os
import sys
import tempfile
import textwrap
import threading
import types
import unittest
from pathlib import Path

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from servetrace import plugin, runner

TASK = "0123456789abcdef" + "fedcba9876543210fedcba98" + "01000000"


def setUpModule():
    logging.disable()
    unittest.addModuleCleanup(logging.disable, logging.NOTSET)


class Call:
    """The parts of grpc's context that a Batch reads."""

    def __init__(self, batch_id, seconds):
        self.batch_id, self.seconds = batch_id, seconds

    def invocation_metadata(self):
        return (("servetrace-batch-id", self.batch_id),)

    def time_remaining(self):
        return self.seconds


def batch(*names, batch_id="b-1", seconds=30.0):
    """Returns a batch of spans of these names, in one trace."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for name in names:
        attributes = {"serve.task_id": TASK, "serve.request_id": "request-" + name}
        provider.get_tracer("test").start_span(name, attributes=attributes).end()
    return plugin.Batch(encode_spans(exporter.get_finished_spans()).SerializeToString(), Call(batch_id, seconds))


class Exporter(SpanExporter):
    """An exporter that fails while fail is set."""

    def __init__(self):
        self.batches, self.calls, self.fail = [], [], False

    def export(self, spans):
        if self.fail:
            return SpanExportResult.FAILURE
        self.batches.append([span.name for span in spans])
        self.spans = list(spans)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis=30000):
        self.calls.append(("force_flush", timeout_millis > 0))
        return True

    def shutdown(self):
        self.calls.append("shutdown")


class Recorder(SpanProcessor):
    """A processor of its own kind, which writes its calls into a list."""

    def __init__(self):
        self.calls, self.flushed = [], True

    def on_start(self, span, parent_context=None):
        span.set_attribute("started", span.name)
        self.calls.append(("on_start", span.name, span.is_recording(), parent_context))

    def on_end(self, span):
        self.calls.append(("on_end", span.name, span.attributes.get("started"), span.end_time is not None))

    def force_flush(self, timeout_millis=30000):
        self.calls.append(("force_flush",))
        return self.flushed

    def shutdown(self):
        self.calls.append(("shutdown",))


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(lambda: [os.unlink(f) for f in self.folder.glob("*.py")] and self.folder.rmdir())
        self.stdout = (self.folder / "stdout").open("wb")
        self.addCleanup((self.folder / "stdout").unlink)
        self.addCleanup(self.stdout.close)
        # What configure changes of this process.
        for name, value in (("stdout", sys.stdout), ("dont_write_bytecode", sys.dont_write_bytecode)):
            self.addCleanup(setattr, sys, name, value)
        modules = dict(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(m) for m in set(sys.modules) - set(modules)])
        self.addCleanup(sys.path.remove, str(self.folder))
        sys.path.insert(0, str(self.folder))

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text))

    def configure(self, function="exporter:function", config=b""):
        """Returns the runner and the setup of a function, which was configured."""
        context = types.SimpleNamespace(job="02000000", node="node-1")
        setup = plugin.Setup({}, config, context, plugin.Output(self.stdout.fileno()))
        made = runner.Runner(*function.split(":"))
        made.configure(setup)
        return made, setup

    def running(self, *processors):
        """Returns the runner of a function that returns these processors."""
        self.write("exporter.py", "def function(): return processors")
        import exporter

        exporter.processors = list(processors)
        for p in processors:
            self.addCleanup(p.shutdown)
        made, _ = self.configure()
        return made

    def refusal(self, text, function="exporter:function"):
        """Returns the error for a module with this text."""
        self.write("exporter.py", text)
        with self.assertRaises(plugin.ConfigError) as caught:
            self.configure(function)
        return str(caught.exception)


class TestExport(Case):
    def test_exporter_of_a_stock_processor_gets_the_batch(self):
        for kind in (BatchSpanProcessor, SimpleSpanProcessor):
            with self.subTest(kind.__name__):
                exporter = Exporter()
                self.running(kind(exporter)).export(batch("a", "b"))
                self.assertEqual(exporter.batches, [["a", "b"]])
                self.assertEqual(exporter.calls, [("force_flush", True)])
                sys.modules.pop("exporter")

    def test_failure_of_an_exporter_is_no_delivery(self):
        exporter = Exporter()
        exporter.fail = True
        with self.assertRaisesRegex(RuntimeError, r"^BatchSpanProcessor\(Exporter\) could not export 1 spans; the log has the reason$"):
            self.running(BatchSpanProcessor(exporter)).export(batch("a"))

    def test_other_processor_gets_on_start_on_end_and_force_flush(self):
        recorder = Recorder()
        self.running(recorder).export(batch("a", "b"))
        self.assertEqual(
            recorder.calls,
            [
                ("on_start", "a", True, None),
                ("on_start", "b", True, None),
                ("on_end", "a", "a", True),
                ("on_end", "b", "b", True),
                ("force_flush",),
            ],
        )

    def test_processor_that_does_not_flush_is_no_delivery(self):
        recorder = Recorder()
        recorder.flushed = False
        with self.assertRaisesRegex(TimeoutError, "^Recorder has not flushed its spans in time$"):
            self.running(recorder).export(batch("a"))

    def test_subclass_with_an_on_end_of_its_own_is_called_by_it(self):
        ended = []

        class Own(SimpleSpanProcessor):
            def on_end(self, span):
                ended.append(span.name)

        exporter = Exporter()
        self.running(Own(exporter)).export(batch("a"))
        self.assertEqual((ended, exporter.batches), (["a"], []))

    def test_on_start_of_all_processors_comes_before_the_exporters(self):
        exporter, recorder = Exporter(), Recorder()
        self.running(SimpleSpanProcessor(exporter), recorder).export(batch("a"))
        self.assertEqual(exporter.spans[0].attributes["started"], "a")

    def test_further_attempt_calls_only_the_processors_that_failed(self):
        good, bad, recorder = Exporter(), Exporter(), Recorder()
        bad.fail = True
        made = self.running(SimpleSpanProcessor(good), SimpleSpanProcessor(bad), recorder)
        for _ in range(2):
            with self.assertRaises(RuntimeError):
                made.export(batch("a"))
        bad.fail = False
        made.export(batch("a"))
        self.assertEqual((good.batches, bad.batches), ([["a"]], [["a"]]))
        self.assertEqual([call[0] for call in recorder.calls], ["on_start", "on_end", "force_flush"])
        made.export(batch("b"))  # the id is delivered, and no longer known
        self.assertEqual(good.batches, [["a"], ["b"]])

    def test_failed_batches_are_kept_within_a_bound(self):
        bad, recorder = Exporter(), Recorder()
        bad.fail = True
        made = self.running(recorder, SimpleSpanProcessor(bad))

        def starts(number):
            """Returns the number of calls of on_start in an attempt."""
            before = len(recorder.calls)
            with self.assertRaises(RuntimeError):
                made.export(batch("a", batch_id=f"b-{number}"))
            return [call[0] for call in recorder.calls[before:]].count("on_start")

        self.assertEqual([starts(number) for number in range(5)], [1] * 5)
        self.assertEqual(starts(4), 0)  # it is kept
        self.assertEqual(starts(0), 1)  # it was dropped for the others

    def test_hook_that_raises_rejects_the_batch(self):
        class Broken(SpanProcessor):
            def on_start(self, span, parent_context=None):
                return None.request_id

        exporter = Exporter()
        text = "^Broken.on_start raises AttributeError: 'NoneType' object has no attribute 'request_id'$"
        with self.assertRaisesRegex(plugin.Permanent, text):
            self.running(Broken(), SimpleSpanProcessor(exporter)).export(batch("a"))
        self.assertEqual(exporter.batches, [])

    def test_one_export_at_a_time(self):
        started, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        class Slow(Exporter):
            def export(self, spans):
                started.set()
                go_on.wait()
                return super().export(spans)

        exporter = Slow()
        made = self.running(SimpleSpanProcessor(exporter))
        first = threading.Thread(target=made.export, args=(batch("a", batch_id="b-1"),))
        first.start()
        started.wait()
        with self.assertRaisesRegex(TimeoutError, "^the exporter still works on an earlier batch$"):
            made.export(batch("b", batch_id="b-2", seconds=0.01))
        go_on.set()
        first.join()
        self.assertEqual(exporter.batches, [["a"]])

    def test_flush_and_shutdown_reach_every_processor(self):
        exporter, recorder = Exporter(), Recorder()

        class Broken(SpanProcessor):
            calls = 0

            def shutdown(self):
                self.calls += 1
                if self.calls == 1:
                    raise OSError("disk full")

        made = self.running(Broken(), SimpleSpanProcessor(exporter), recorder)
        made.flush(1.0)
        with self.assertRaisesRegex(OSError, "disk full"):
            made.shutdown(1.0)
        self.assertEqual(exporter.calls, [("force_flush", True), "shutdown"])
        self.assertEqual(recorder.calls, [("force_flush",), ("shutdown",)])


class TestRay(Case):
    GUIDE = """
        import ray
        from opentelemetry.sdk.trace import SpanProcessor

        class Hook(SpanProcessor):
            def on_start(self, span, parent_context=None):
                context = ray.get_runtime_context()
                span.set_attribute("ids", [context.get_job_id(), context.get_actor_id(), context.get_task_id()])
                span.set_attribute("request", ray.serve.context._serve_request_context.get().request_id)

        def function():
            return [Hook(), *others]

        others, job = [], ray.get_runtime_context().get_job_id()
        """

    def test_stand_in_answers_from_the_span(self):
        self.write("exporter.py", self.GUIDE)
        made, setup = self.configure()
        self.assertEqual(setup._close(), ([], False))
        import exporter

        sink = Exporter()
        made._processors.append(runner._Processor(SimpleSpanProcessor(sink)))
        made.export(batch("a", "b"))
        self.assertEqual(exporter.job, "02000000")
        ids = ["01000000", TASK[-32:], TASK]
        got = [(list(span.attributes["ids"]), span.attributes["request"]) for span in sink.spans]
        self.assertEqual(got, [(ids, "request-a"), (ids, "request-b")])

    def test_ray_that_is_installed_stays_and_is_a_warning(self):
        self.write("ray.py", "installed = True")
        self.write("exporter.py", "import ray\nassert ray.installed\ndef function(): return []")
        _, setup = self.configure()
        texts = [d.text for d in setup._close()[0]]
        self.assertRegex(texts[0], "^the module ray is installed for .*, and exporter imports it: .* SERVE_TRACING_PYTHON$")

    def test_member_that_the_stand_in_lacks(self):
        self.assertIn(
            "the module ray is a stand-in without init: it has get_runtime_context() and serve.context",
            self.refusal("import ray\nray.init()\ndef function(): return []"),
        )


class TestConfigure(Case):
    def test_print_and_console_exporter_reach_the_services_standard_output(self):
        self.write("exporter.py", "import sys\nprint('loaded')\ndef function():\n    sys.stdout.write('half ')\n    print('line')\n    return []")
        _, setup = self.configure()
        self.assertEqual((self.folder / "stdout").read_text(), "loaded\nhalf line\n")
        self.assertEqual([d.text for d in setup._close()[0]], ["exporter:function returns no span processor: its spans go nowhere"])

    def test_configuration_is_refused(self):
        self.write("exporter.py", "def function(): return []")
        _, setup = self.configure(config=b"key: 1")
        diagnostics, failed = setup._close()
        self.assertTrue(failed)
        self.assertEqual(diagnostics[0].text, "an exporter function takes no configuration; remove it, and set variables in its place")

    def test_no_module(self):
        text = self.refusal("", "exporter_dd:function")
        self.assertRegex(text, f"^there is no module 'exporter_dd' for {sys.executable} in {self.folder}, ")
        self.assertRegex(text, "; put exporter_dd.py into one of them, or its folder on PYTHONPATH$")

    def test_no_package(self):
        self.assertIn("there is no module 'no_such' for ", self.refusal("", "no_such.exporter:function"))

    def test_module_without_its_packages(self):
        self.assertEqual(
            self.refusal("\nfrom opentelemetry.no_such import X"),
            f"the module 'exporter' needs 'opentelemetry.no_such' ({self.folder}/exporter.py:2):"
            f" run {sys.executable} -m pip install opentelemetry-no-such",
        )

    def test_module_that_raises(self):
        self.assertEqual(
            self.refusal("import os\nos.environ['NO_SUCH_KEY']"),
            f"the module 'exporter' cannot be imported: KeyError: 'NO_SUCH_KEY' ({self.folder}/exporter.py:2)",
        )

    def test_module_with_a_syntax_error(self):
        self.assertEqual(
            self.refusal("def function(:"),
            "the module 'exporter' cannot be imported: SyntaxError: invalid syntax (exporter.py, line 1)",
        )

    def test_no_function(self):
        self.assertEqual(
            self.refusal("from os import getenv\ndef other(): pass\ndef another(): pass"),
            f"{self.folder}/exporter.py has no function 'function'; it has other, another",
        )

    def test_no_plain_function(self):
        self.assertEqual(
            self.refusal("function = 7"),
            f"'function' in {self.folder}/exporter.py is 7 of type int; want a plain function",
        )
        sys.modules.pop("exporter")
        self.assertIn("; want a plain function", self.refusal("async def function(): pass"))

    def test_function_with_parameters(self):
        self.assertEqual(
            self.refusal("def function(name, level=1): pass"),
            f"function(name, level=1) in {self.folder}/exporter.py has parameters; want a function without any",
        )

    def test_function_that_raises(self):
        self.assertEqual(
            self.refusal("def function(): raise ValueError('no key')"),
            "exporter:function raises ValueError: no key",
        )

    def test_wrong_results(self):
        for returned, want in {
            "None": "exporter:function returns None of type NoneType; want a list of span processors",
            "(1,)": "exporter:function returns (1,) of type tuple; want a list of span processors",
            "[7]": "item 0 of exporter:function is 7 of type int; want a span processor",
        }.items():
            with self.subTest(returned):
                self.assertEqual(self.refusal(f"def function(): return {returned}"), want)
                sys.modules.pop("exporter")

    def test_exporter_in_place_of_a_processor(self):
        text = self.refusal(
            "from opentelemetry.sdk.trace.export import ConsoleSpanExporter\ndef function(): return [ConsoleSpanExporter()]"
        )
        self.assertRegex(text, r"^item 0 of exporter:function is <.*> of type ConsoleSpanExporter, an exporter; want BatchSpanProcessor\(ConsoleSpanExporter\(…\)\)$")


class TestArguments(Case):
    def test_words_that_name_no_function(self):
        for words in ([], ["exporter"], ["--path", "/srv"], [":function"]):
            with self.subTest(words), contextlib.ExitStack() as stack:
                stack.callback(setattr, sys, "argv", sys.argv)
                sys.argv = ["runner", *words]
                with self.assertRaisesRegex(SystemExit, "want MODULE:FUNCTION, such as exporter:default_tracing_exporter, not "):
                    runner.main()


if __name__ == "__main__":
    unittest.main()
