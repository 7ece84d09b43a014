"""The span processor that hands spans to the relay.

1. ``on_end`` packs a sampled span and puts it on a bounded queue, without waiting.
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

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from servetrace import encode
from servetrace.client import Client, counts
from servetrace.relay import RelayError, seconds

BATCH_AGE, QUEUE_SIZE = "SERVE_TRACING_BATCH_AGE", "OTEL_BSP_MAX_QUEUE_SIZE"

# The first number of waiting spans makes a batch full. The other two bound a request.
BATCH_SPANS, MOST_SPANS, MOST_BYTES = 512, 2048, 4 << 20
_REPORT_SECONDS = 10.0
_LONGEST_PAUSE = 2.0
_PROVIDER_SECONDS = 1.0  # wait of the start line for the application's TracerProvider
_LAST_SECONDS = 1.0  # of a shutdown, for the thread to end


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
        if client := getattr(self, "_client", None):
            client.forget()
        self._client = Client(self.relay)
        self._queue = collections.deque()
        self._lock = threading.Lock()
        self._lost = collections.Counter()
        self._told = collections.Counter()  # of the lost spans, the relay knows these
        self._reported, self._reported_at = 0, 0.0
        self._fault = None  # the last that was logged
        self._some, self._full, self._over = threading.Event(), threading.Event(), threading.Event()
        self._deadline = None
        self._thread = None
        self._taken = 0  # of the batch under way

    @property
    def lost(self):
        """The number of lost spans by reason: "queue_full", "shutdown", "encode", or
        "refused" by the relay."""
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
            try:
                queue.append(encode.item(span, added))
            except Exception as e:
                self.log.warning("servetrace: span cannot be encoded: %r", e)
                self._lose(1, "encode")
                return
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
            self._client.cut()
            self._thread.join(_LAST_SECONDS)
        self._lose_rest()
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
                while self._queue and not self._is_late():
                    if batch := self._take():
                        self._deliver(batch)
                    self._report()
                if self._is_late():
                    self._lose_rest()
                if self._untold():
                    self._send(b"")
        except Exception:
            self.log.exception("servetrace: the sender ended")
        finally:
            self._client.close()

    def _is_late(self, pause=0.0):
        """Reports whether the time of a shutdown is over after the pause."""
        return self._deadline is not None and time.monotonic() + pause >= self._deadline

    def _announce(self):
        """Starts the relay and logs one line about it. An empty request connects, because a
        relay without a connection ends."""
        found = self._ensure()
        if found:
            self._note(self._send(b"").text)
        end = time.monotonic() + _PROVIDER_SECONDS
        while found and not hasattr(trace.get_tracer_provider(), "sampler") and time.monotonic() < end and not self._some.wait(0.01):
            pass
        sampler = getattr(trace.get_tracer_provider(), "sampler", None)
        description = sampler.get_description() if sampler else "unknown"
        ratio = re.search(r"TraceIdRatioBased{([^}]*)}", description)
        if found:
            log = f" log={self.relay.log}" if self.relay.log else ""
            self.log.info("servetrace: plugins=%s ratio=%s relay=%s (%s)%s", self.relay.plugins, ratio[1] if ratio else description, self.relay.address, found, log)

    def _ensure(self):
        """Returns how the relay was found, or None if there is none; logs the reason once."""
        try:
            return self.relay.ensure()
        except Exception as e:
            self._note("no relay, so spans wait: " + (str(e) if isinstance(e, RelayError) else repr(e)))

    def _note(self, fault):
        """Logs a fault if it is not the last one. An empty fault ends it."""
        if fault and fault != self._fault:
            self.log.error("servetrace: %s", fault)
        self._fault = fault

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
        try:
            body = encode.compact(batch)
        except Exception as e:
            self._note(f"{len(batch)} spans cannot be encoded: {e!r}")
            self._lose(len(batch), "encode")
            self._taken -= len(batch)
            return
        answer = self._answer(body) if len(body) <= MOST_BYTES or len(batch) == 1 else None
        if len(batch) > 1 and (answer is None or answer.is_divisible):
            self._deliver(batch[: len(batch) // 2])
            self._deliver(batch[len(batch) // 2 :])
            return
        if answer.is_retryable:
            self._lose(len(batch), "shutdown")
        elif answer.status != 200:
            self._note(f"the relay refused {len(batch)} spans: {answer.status}: {answer.text}")
            self._lose(len(batch), "refused")
        elif answer.text:
            self.log.warning("servetrace: partial success: %s", answer.text)
        self._taken -= len(batch)

    def _answer(self, body):
        """Sends a request until its answer is final, or the time of a shutdown is over."""
        pause = 0.0
        while (answer := self._send(body)).is_retryable and not self._is_late(pause):
            if answer.status == 0 and self._ensure() and answer.text:
                self._note(answer.text)
            self._wait(answer.pause or pause)
            pause = min(max(2 * pause, 0.05), _LONGEST_PAUSE)
            self._report()
        return answer

    def _wait(self, pause):
        if self._deadline:
            time.sleep(max(0.0, min(pause, self._deadline - time.monotonic())))
        else:
            self._over.wait(pause)

    def _send(self, body):
        """Makes a request and returns the answer."""
        timeout = self._timeout if self._deadline is None else max(0.1, self._deadline - time.monotonic())
        untold = self._untold()
        answer = self._client.post(body, timeout, untold)
        if answer.status == 200:
            self._fault = None
            self._told += untold
        return answer

    def _untold(self):
        """Returns the numbers of lost spans, by reason, that were not reported to the relay yet."""
        with self._lock:
            return self._lost - self._told

    def _lose(self, count, reason):
        if count:
            with self._lock:
                self._lost[reason] += count

    def _lose_rest(self):
        """Counts the spans on the queue as lost."""
        with self._lock:
            left = sum(not isinstance(item, threading.Event) for item in self._queue)
            self._queue.clear()
        self._lose(left, "shutdown")

    def _report(self, now=False):
        """Logs the lost spans if there are new ones, once in a while. During a shutdown
        they are logged once, at its end."""
        lost = self.lost
        total = sum(lost.values())
        if total > self._reported and (now or self._deadline is None and time.monotonic() - self._reported_at > _REPORT_SECONDS):
            cause = f"; for the cause, see {self.relay.log or 'the log of the relay'}, or run python -m servetrace doctor"
            self.log.warning("servetrace: %d %s lost: %s%s", total, "span is" if total == 1 else "spans are", counts(lost), cause)
            self._reported, self._reported_at = total, time.monotonic()


def _whole_number(name, default):
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdigit() and int(text) > 0 else default
