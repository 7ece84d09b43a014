"""The span processor that hands spans to the relay.

1. ``on_end`` puts a sampled span on a bounded queue, without waiting; in the compact form
   it is packed before.
2. A thread takes a batch when it is full or old enough, and makes a request of it.
3. The batch is sent, and kept until the relay answers that it is delivered. A relay
   that is gone is started again, and gets the same batch.
"""

import collections
import logging
import os
import re
import threading
import time
import weakref

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import SpanProcessor

from servetrace import encode
from servetrace.relay import RelayError, seconds

# The methods of a relay. Any OTLP receiver has the first.
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PUT = "/servetrace.relay.v1.Spans/Put"
# The relay must answer for what a plugin has delivered, so that a batch is not lost with it.
WAIT_DELIVERED = (("servetrace-wait", "delivered"),)

BATCH_AGE, QUEUE_SIZE = "SERVE_TRACING_BATCH_AGE", "OTEL_BSP_MAX_QUEUE_SIZE"

BATCH_SPANS, MOST_SPANS = 512, 2048  # a batch is sent from the first on, and has at most the second
_REPORT_SECONDS = 10.0
_LONGEST_PAUSE = 2.0
_PROVIDER_SECONDS = 1.0  # wait of the start line for the application's TracerProvider
_Code = grpc.StatusCode
# The codes that OTLP calls retryable. RESOURCE_EXHAUSTED is retryable with RetryInfo; without,
# the request is too large.
_RETRYABLE = {_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.CANCELLED, _Code.ABORTED, _Code.OUT_OF_RANGE, _Code.DATA_LOSS}


class RelayProcessor(SpanProcessor):
    """Sends ended spans to a relay. Safe for concurrent use and after a fork.

    ``queue_spans`` bounds the waiting spans (OTEL_BSP_MAX_QUEUE_SIZE, 16384), ``age`` is
    the time in seconds until a batch is sent (SERVE_TRACING_BATCH_AGE, 0.1 s), and
    ``timeout`` bounds one call; it is longer than the relay retries a batch.
    """

    def __init__(self, relay, log=None, queue_spans=None, age=None, timeout=90.0):
        self.relay, self.log = relay, log or logging.getLogger("servetrace")
        self._bound = queue_spans or _whole_number(QUEUE_SIZE, 16384)
        self._age = age if age is not None else seconds(os.environ.get(BATCH_AGE, "").strip() or "100ms", BATCH_AGE)
        self._timeout = timeout
        self._reset()
        if hasattr(os, "register_at_fork"):
            after_fork = weakref.WeakMethod(self._reset)
            os.register_at_fork(after_in_child=lambda: (reset := after_fork()) and reset())
        self._start()

    def _reset(self):
        """Sets the state of a process without thread and spans. A forked child has none of
        its parent's: the parent sends them."""
        self._queue = collections.deque()
        self._lock = threading.Lock()
        self._lost = collections.Counter()
        self._reported, self._reported_at = 0, 0.0
        self._details = ""  # of the last answer that was an error
        self._missing = None  # the reason why there is no relay
        self._some, self._full, self._over = threading.Event(), threading.Event(), threading.Event()
        self._deadline = None
        self._thread = self._channel = self._call = None
        self._compact = encode.msgpack is not None  # the form of the calls
        self._taken = 0  # of the batch under way

    @property
    def lost(self):
        """The number of lost spans by reason: "queue_full", "shutdown", "encode", or the
        final code of the relay."""
        with self._lock:
            return dict(self._lost)

    @property
    def waiting(self):
        """The number of spans that are not answered."""
        return len(self._queue) + self._taken

    def on_end(self, span):
        self.put(span, None)

    def put(self, span, added):
        """Queues an ended span, with attributes that it gets in addition, or None."""
        try:
            if not span.context.trace_flags.sampled:
                return
            queue = self._queue
            waiting = len(queue)
            if waiting >= self._bound or self._over.is_set():
                self._lose(1, "shutdown" if self._over.is_set() else "queue_full")
                return
            queue.append(encode.item(span, added, self._compact))
            if not self._some.is_set():
                self._some.set()
            if waiting >= BATCH_SPANS and not self._full.is_set():
                self._full.set()
            if self._thread is None:
                self._start()
        except Exception:
            self.log.exception("servetrace: span not taken")

    def force_flush(self, timeout_millis=30000):
        """Reports whether every span that ended before was answered within the time."""
        if self._over.is_set():
            return not self.waiting
        answered = threading.Event()
        self._queue.append(answered)
        self._full.set()
        self._some.set()
        self._start()
        return answered.wait(timeout_millis / 1000)

    def shutdown(self, seconds=5.0):
        """Sends the waiting spans for at most the given seconds, and counts the rest as
        lost. Spans that end later are lost."""
        if self._over.is_set() or self._thread is None:
            self._over.set()
            return
        self._deadline = time.monotonic() + seconds
        self._over.set()
        self._full.set()
        self._some.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._channel and self._channel.close()  # cancels the call
            self._thread.join(1.0)
        with self._lock:
            left = sum(not isinstance(item, threading.Event) for item in self._queue)
            self._queue.clear()
        self._lose(left, "shutdown")
        self._report(now=True)

    def _start(self):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="servetrace", daemon=True)
                self._thread.start()

    def _run(self):
        try:
            self._announce()
            while not (self._over.is_set() and not self._queue):
                self._some.wait()
                self._full.wait(self._age)
                self._some.clear()
                self._full.clear()
                while self._queue:
                    self._deliver(self._take())
                    self._report()
        except Exception:
            self.log.exception("servetrace: the sender ended")
        finally:
            if self._channel:
                self._channel.close()

    def _announce(self):
        """Starts the relay and logs one line about it. An empty request connects, because a
        relay without a connection ends."""
        found = self._ensure()
        if found:
            if self._send(b"")[0] is _Code.UNIMPLEMENTED:
                self._use(compact=False)
        end = time.monotonic() + _PROVIDER_SECONDS
        while found and not hasattr(trace.get_tracer_provider(), "sampler") and time.monotonic() < end and not self._some.wait(0.01):
            pass
        sampler = getattr(trace.get_tracer_provider(), "sampler", None)
        description = sampler.get_description() if sampler else "unknown"
        ratio = re.search(r"TraceIdRatioBased{([^}]*)}", description)
        if found:
            self.log.info("servetrace: plugins=%s ratio=%s relay=%s (%s) form=%s", self.relay.plugins, ratio[1] if ratio else description, self.relay.address, found, "compact" if self._compact else "otlp")

    def _ensure(self):
        """Returns how the relay was found, or None if there is none; logs the reason once."""
        try:
            found = self.relay.ensure()
            self._missing = None
            return found
        except Exception as e:
            reason = str(e) if isinstance(e, RelayError) else repr(e)
            if reason != self._missing:
                self._missing = reason
                self.log.error("servetrace: no relay, so spans wait: %s", reason)

    def _take(self):
        """Returns the next batch. A flush that is first on the queue is answered."""
        batch = []
        while self._queue and len(batch) < MOST_SPANS:
            if isinstance(self._queue[0], threading.Event):
                if batch:
                    break
                self._queue.popleft().set()
            else:
                batch.append(self._queue.popleft())
        self._taken = len(batch)
        return batch

    def _deliver(self, batch):
        """Sends a batch until the relay has answered. A batch that is too large or has a span
        that the relay does not take is sent in two parts."""
        body, batch = self._encode(batch)
        pause = 0.0
        while batch:
            code, asked = self._send(body)
            if code is _Code.UNIMPLEMENTED and self._compact:
                self._use(compact=False)
                body, batch = self._encode(batch)
                continue
            if (code is _Code.INVALID_ARGUMENT or code is _Code.RESOURCE_EXHAUSTED and asked is None) and len(batch) > 1:
                for part in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                    self._deliver(part)
                return
            if code in _RETRYABLE or code is _Code.RESOURCE_EXHAUSTED and asked is not None:
                if self._deadline is None or time.monotonic() + pause < self._deadline:
                    if code is _Code.UNAVAILABLE:
                        self._redial()
                    self._wait(asked or pause)
                    pause = min(max(2 * pause, 0.05), _LONGEST_PAUSE)
                    self._report()
                    continue
                self._lose(len(batch), "shutdown")
            elif code:
                self.log.error("servetrace: the relay refused %d spans: %s: %s", len(batch), code.name, self._details)
                self._lose(len(batch), code.name.lower())
            break
        self._taken -= len(batch)

    def _wait(self, pause):
        if self._deadline:
            time.sleep(max(0.0, min(pause, self._deadline - time.monotonic())))
        else:
            self._over.wait(pause)

    def _send(self, body):
        """Makes one call. Returns (None, None) for an answer, else the code and the pause
        in seconds that the relay asked for."""
        try:
            if self._call is None:
                self._use(self._compact)
            timeout = self._timeout if self._deadline is None else max(0.1, self._deadline - time.monotonic())
            answer = self._call(body, timeout=timeout, metadata=WAIT_DELIVERED)
        except grpc.RpcError as e:
            self._details = e.details()
            return e.code(), _retry_delay(e)
        except ValueError:  # the channel was closed by shutdown
            return _Code.CANCELLED, None
        if answer.partial_success.error_message:
            self.log.warning("servetrace: %d spans were not delivered: %s", answer.partial_success.rejected_spans, answer.partial_success.error_message)
        return None, None

    def _use(self, compact):
        """Connects if necessary, and chooses the form of the next calls."""
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.relay.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._compact = compact
        self._call = self._channel.unary_unary(PUT if compact else EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)

    def _redial(self):
        """Ends the channel, whose backoff would delay the next call, and sees to a relay."""
        if self._channel:
            self._channel.close()
        self._channel = self._call = None
        self._ensure()
        self._use(self._compact)

    def _encode(self, batch):
        """Returns the bytes of a batch, and the part of the batch that they have."""
        form = encode.compact if self._compact else encode.otlp
        try:
            return form(batch), batch
        except Exception:
            alone = [(self._encode_alone(form, item), item) for item in batch]
            return b"".join(body for body, _ in alone), [item for body, item in alone if body]

    def _encode_alone(self, form, item):
        for prepare in (lambda span: span, encode.cleaned):
            try:
                return form([(*item[:2], item[2] if isinstance(item[2], bytes) else (prepare(item[2][0]), item[2][1]))])
            except Exception as e:
                fault = e
        self.log.warning("servetrace: span cannot be encoded: %r", fault)
        self._lose(1, "encode")
        self._taken -= 1
        return b""

    def _lose(self, count, reason):
        if count:
            with self._lock:
                self._lost[reason] += count

    def _report(self, now=False):
        """Logs the lost spans if there are new ones, once in a while."""
        lost = self.lost
        total = sum(lost.values())
        if total > self._reported and (now or time.monotonic() - self._reported_at > _REPORT_SECONDS):
            self.log.warning("servetrace: %d spans are lost: %s", total, ", ".join(f"{k}={v}" for k, v in sorted(lost.items())))
            self._reported, self._reported_at = total, time.monotonic()


def _whole_number(name, default):
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdigit() and int(text) > 0 else default


def _retry_delay(error):
    """Returns the seconds of google.rpc.RetryInfo in the details of a status, or None."""
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in _messages(value, 3):
            packed = Any.FromString(detail)
            if packed.type_url.endswith("google.rpc.RetryInfo"):
                for delay in _messages(packed.value, 1):
                    return Duration.FromString(delay).ToTimedelta().total_seconds()


def _messages(data, number):
    """Returns the values of a repeated message field, without the message's type."""
    return [f.data for f in UnknownFieldSet(Empty.FromString(data)) if f.field_number == number]
