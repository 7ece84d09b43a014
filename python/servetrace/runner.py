"""Runs an exporter function of Ray Serve as a plugin, unchanged.

    python3 -m servetrace.runner [--path FOLDER] MODULE:FUNCTION

A host starts this for the entry python:MODULE:FUNCTION of SERVE_TRACING_EXPORTER_PLUGIN.
FUNCTION takes no arguments and returns a list of OpenTelemetry's span processors.
docs/how-to/run-a-ray-exporter-function.md explains it.

 1. configure sets sys.stdout to the service's standard output, imports OpenTelemetry and
    the module, and calls the function, like Ray Serve in each replica.
 2. For each batch, export calls on_start of each processor for each span, then delivers the
    spans. A BatchSpanProcessor or SimpleSpanProcessor has a public span_exporter: export
    calls it with the whole batch, so that the answer means delivered. Other processors get
    on_end for each span, then force_flush.
 3. shutdown calls shutdown of each processor.

If a processor fails, the host sends the batch again. The processors that have delivered
it already do not get it again.

The module is the only user of OpenTelemetry's SDK in a plugin, and imports it in configure:
the SDK reads variables and sys.stdout when it is imported. replay.py makes the SDK's spans.
standin.py replaces the module ray if that is not installed.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import inspect
import io
import logging
import os
import sys
import threading
import traceback
from typing import Any, NoReturn

from servetrace import plugin, standin

# The families of variables of the exporters in Anyscale's tracing guide.
# SERVE_TRACING_PLUGIN_ENV grants other variables.
VARIABLES = ["OTEL_*", "DD_*", "HONEYCOMB_*"]

# The spans that are kept for a further attempt, of at most so many batches.
_KEPT = 4


def main() -> NoReturn:
    """Runs the function in sys.argv as a plugin. It does not return."""
    folder, path, rest = _arguments(sys.argv[1:])
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not name:
        sys.exit(f"servetrace.runner: want MODULE:FUNCTION, such as exporter:default_tracing_exporter, not {path!r}")
    if folder:
        sys.path.insert(0, folder)
    sys.argv[1:] = rest
    runner = Runner(module, name)
    plugin.main(
        "python-exporter",
        "1.0.0",
        env=VARIABLES,
        configure=runner.configure,
        export=runner.export,
        flush=runner.flush,
        shutdown=runner.shutdown,
        description=f"runs the exporter function {path}",
        # A processor expects calls from one thread at a time. A small batch is answered soon.
        limits=plugin.Limits(max_batch_spans=512, max_concurrency=1),
    )


def _arguments(words: list[str]) -> tuple[str, str, list[str]]:
    """Returns the folder of --path, the function, and the words for plugin.main."""
    folder = ""
    if words[:1] == ["--path"]:
        folder, words = "".join(words[1:2]), words[2:]
    return folder, "".join(words[:1]), words[1:]


class Runner:
    """One exporter function and its processors, for the functions of plugin.main."""

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name
        self._processors: list[_Processor] = []
        self._lock = threading.Lock()  # held by one export, which a cancelled call may leave behind
        self._kept: collections.OrderedDict[str, _Delivery] = collections.OrderedDict()

    def configure(self, setup: plugin.Setup) -> None:
        """Imports the module, calls the function and checks its result."""
        if setup.config:
            setup.error("", "an exporter function takes no configuration; remove it, and set variables in its place")
            return
        sys.stdout = _text_of(setup.stdout)
        try:
            from servetrace import replay
        except ImportError as missing:
            raise _refused(f"{missing}; an exporter function needs OpenTelemetry's SDK: {_pip('opentelemetry-sdk')}") from None
        self._replay = replay
        stands_in = standin.install(setup.context.job, setup.context.node)
        function = _function(self._module, self._name)
        if not stands_in and "ray" in sys.modules:
            setup.warn(
                "",
                f"the module ray is installed for {sys.executable}, and {self._module} imports it: outside of Ray's processes"
                " it knows no task and no request; name another interpreter with SERVE_TRACING_PYTHON",
            )
        try:
            result = function()
        except Exception as error:
            logging.exception("%s:%s", self._module, self._name)
            raise _refused(f"{self._module}:{self._name} raises {_named(error)}") from None
        self._processors = [_Processor(p) for p in _checked(f"{self._module}:{self._name}", result)]
        if not self._processors:
            setup.warn("", f"{self._module}:{self._name} returns no span processor: its spans go nowhere")
        setup.log.info("exporter function called", extra={"processors": ", ".join(p.name for p in self._processors)})

    def export(self, batch: plugin.Batch) -> None:
        """Delivers the batch by all processors."""
        if not self._lock.acquire(timeout=batch.time_left() or -1):
            raise TimeoutError("the exporter still works on an earlier batch")
        try:
            delivery = self._kept.pop(batch.id, None) or self._start(batch)
            try:
                self._deliver(delivery, batch)
            except Exception:
                if batch.id:
                    self._kept[batch.id] = delivery
                    while len(self._kept) > _KEPT:
                        self._kept.popitem(last=False)
                raise
        finally:
            self._lock.release()

    def _start(self, batch: plugin.Batch) -> _Delivery:
        """Decodes the spans, and calls on_start of all processors."""
        hooks = [p for p in self._processors if p.starts]
        replays = [self._replay.Replay(*parts) for parts in self._replay.decode(batch.request)]
        for replay in replays if hooks else ():
            span = replay.starting()
            token = standin.CURRENT.set(span)
            try:
                for p in hooks:
                    p.call("on_start", span, None)
            finally:
                standin.CURRENT.reset(token)
        return _Delivery([replay.ended() for replay in replays], list(self._processors))

    def _deliver(self, delivery: _Delivery, batch: plugin.Batch) -> None:
        """Calls the remaining processors of a delivery, and reports the first failure."""
        failure: Exception | None = None
        for p in list(delivery.remaining):
            try:
                p.deliver(delivery.spans, batch.time_left())
                delivery.remaining.remove(p)
            except plugin.Permanent:
                raise
            except Exception as error:  # the others deliver all the same
                failure = failure or error
        if failure is not None:
            raise failure

    def flush(self, seconds: float) -> None:
        for p in self._processors:
            p.flush(seconds)

    def shutdown(self, seconds: float) -> None:
        """Shuts all processors down, and reports the first failure."""
        failure: Exception | None = None
        for p in self._processors:
            try:
                p.processor.shutdown()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


@dataclasses.dataclass
class _Delivery:
    """The spans of a batch, and the processors that have not delivered them."""

    spans: list[Any]
    remaining: list[_Processor]


class _Processor:
    """A span processor of the function."""

    def __init__(self, processor: Any):
        from opentelemetry.sdk.trace import SpanProcessor
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

        self.processor, self.name = processor, type(processor).__name__
        stock = (SpanProcessor.on_start, BatchSpanProcessor.on_start, SimpleSpanProcessor.on_start)
        self.starts = type(processor).on_start not in stock
        # A subclass with an on_end of its own is called by it.
        taken_apart = type(processor).on_end in (BatchSpanProcessor.on_end, SimpleSpanProcessor.on_end)
        self.exporter = processor.span_exporter if taken_apart else None
        if self.exporter is not None:
            self.name = f"{self.name}({type(self.exporter).__name__})"

    def call(self, method: str, *arguments: Any) -> None:
        """Calls a method that must not fail. The batch is rejected if it does."""
        try:
            getattr(self.processor, method)(*arguments)
        except Exception as error:
            text = f"{self.name}.{method} raises {_named(error)}"
            logging.exception(text)
            raise plugin.Permanent(text) from None

    def deliver(self, spans: list[Any], seconds: float | None) -> None:
        """Delivers the spans, or raises."""
        if self.exporter is None:
            for span in spans:
                self.call("on_end", span)
        elif getattr(self.exporter.export(spans), "name", "") != "SUCCESS":
            raise RuntimeError(f"{self.name} could not export {len(spans)} spans; the log has the reason")
        self.flush(seconds)

    def flush(self, seconds: float | None) -> None:
        """Waits until the processor has delivered its spans. It raises TimeoutError if that takes too long."""
        flush = getattr(self.exporter or self.processor, "force_flush", None)
        if flush is not None and flush(int(1000 * (10 if seconds is None else seconds))) is False:
            raise TimeoutError(f"{self.name} has not flushed its spans in time")


def _text_of(output: plugin.Output) -> io.TextIOWrapper:
    """Returns a text file that writes whole lines to output."""

    class Raw(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            output.write(bytes(data))
            return len(data)

    return io.TextIOWrapper(io.BufferedWriter(Raw()), "utf-8", "backslashreplace", line_buffering=True)


def _function(module: str, name: str) -> Any:
    """Imports the module and returns its function. ConfigError explains a failure."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            folders = ", ".join(dict.fromkeys(f for f in sys.path if not f.startswith((sys.prefix, sys.base_prefix)) and os.path.isdir(f)))
            raise _refused(
                f"there is no module {error.name!r} for {sys.executable} in {folders};"
                f" put {error.name.rpartition('.')[2]}.py into one of them, or its folder on PYTHONPATH"
            ) from None
        logging.exception("import %s", module)
        raise _refused(f"the module {module!r} needs {error.name!r}{_line_of(error)}: {_pip(_package(error.name))}") from None
    except Exception as error:
        logging.exception("import %s", module)
        raise _refused(f"the module {module!r} cannot be imported: {_named(error)}{_line_of(error)}") from None
    where = getattr(loaded, "__file__", None) or module
    function = getattr(loaded, name, None)
    if function is None:
        names = [n for n, f in vars(loaded).items() if inspect.isfunction(f) and f.__module__ == loaded.__name__]
        raise _refused(f"{where} has no function {name!r}; it has {', '.join(names) or 'none'}")
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise _refused(f"{name!r} in {where} is {_kind(function)}; want a plain function")
    if inspect.signature(function).parameters:
        raise _refused(f"{name}{inspect.signature(function)} in {where} has parameters; want a function without any")
    return function


def _checked(path: str, result: Any) -> list[Any]:
    """Returns the result of the function, if it is a list of span processors."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter

    if not isinstance(result, list):
        raise _refused(f"{path} returns {_kind(result)}; want a list of span processors")
    for i, p in enumerate(result):
        if isinstance(p, SpanExporter):
            raise _refused(f"item {i} of {path} is {_kind(p)}, an exporter; want BatchSpanProcessor({type(p).__name__}(…))")
        if not isinstance(p, SpanProcessor):
            raise _refused(f"item {i} of {path} is {_kind(p)}; want a span processor")
    return result


def _refused(text: str) -> plugin.ConfigError:
    return plugin.ConfigError("", text)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _kind(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} of type {type(value).__name__}"


def _line_of(error: BaseException) -> str:
    """Returns the place in a file of the user at which an import failed, or an empty text."""
    if isinstance(error, SyntaxError) and error.filename:
        return ""  # its text has the place
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<") and f.filename != __file__]
    frames = [f for f in frames if os.sep + "importlib" + os.sep not in f.filename]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _package(module: str | None) -> str:
    """Returns the name of the package of one of OpenTelemetry's modules, else the module's first word."""
    words = (module or "").split(".")
    if words[0] == "opentelemetry" and len(words) > 1:
        return "-".join(words).replace("_", "-")
    return words[0]


def _pip(package: str) -> str:
    return f"run {sys.executable} -m pip install {package}"


if __name__ == "__main__":
    main()
