"""The plugin side of servetrace's contract: an exporter plugin in Python is two functions.

    from servetrace import plugin

    def configure(setup):
        global out
        out = setup.stdout

    def export(batch):
        for resource, scope, span in batch.spans():
            out.write(span.name + "\\n")

    plugin.main("names", "1.0", env=[], configure=configure, export=export)

The module uses stock grpcio and OpenTelemetry's own messages; nothing is generated. It
needs no other module of this package, so it can be copied. The contract is
proto/servetrace/plugin/v1/plugin.proto. docs/how-to/write-a-plugin-in-another-language.md
explains it.

The life of a plugin:

 1. The host starts the process. main opens a socket in the host's folder and prints one
    line, the handshake, to standard output. From then on standard output is the log, so
    that an accidental print does no harm.
 2. The host asks for the description, sends the variables and the configuration, and
    main calls configure.
 3. main calls export for each batch, several at a time. When it returns, the batch
    counts as delivered.
 4. The plugin ends if the host asks for it, on SIGTERM, and if the host has ended. Calls
    in progress finish first, then flush and shutdown are called.

The module keeps no queue and retries nothing: the host does. Unlike the Go SDK it does
not check the user of a connection, because only this user can reach the socket. Read
main first, then Setup and Batch.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import enum
import errno
import faulthandler
import fcntl
import io
import json
import logging
import os
import re
import secrets
import select
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from concurrent import futures
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when grpc is loaded

try:
    import grpc
    from google.protobuf import any_pb2, descriptor_pool, duration_pb2, message_factory
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    from opentelemetry.proto.common.v1 import common_pb2
except ImportError as missing:
    raise ImportError(
        f"{missing}: a plugin needs grpcio and opentelemetry-proto; run:"
        f" {sys.executable} -m pip install grpcio opentelemetry-proto"
    ) from None

# ---------------------------------------------------------------- for authors


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of one call. Zero is the host's default: a little under 4 MiB, and four calls."""

    max_batch_spans: int = 0
    max_batch_bytes: int = 0  # at most 64 MiB
    max_concurrency: int = 0  # 1: one batch at a time


class ConfigError(Exception):
    """Raised by configure. path names a variable, or a path in the configuration."""

    def __init__(self, path: str, text: str):
        super().__init__(text)
        self.path = path


class Permanent(Exception):
    """Raised by export: the batch is counted as rejected and never sent again."""


class RetryAfter(Exception):
    """Raised by export: the host sends the batch again, after so many seconds at the earliest."""

    def __init__(self, text: str, seconds: float):
        super().__init__(text)
        self.seconds = seconds


@dataclasses.dataclass(frozen=True)
class Partial:
    """Returned by export: rejected spans are counted as rejected, the rest as delivered."""

    rejected: int
    message: str


def main(
    name: str,
    version: str,
    env: list[str],
    configure: Callable[[Setup], None],
    export: Callable[[Batch], Partial | None],
    *,
    flush: Callable[[float], int | None] | None = None,
    shutdown: Callable[[float], int | None] | None = None,
    description: str = "",
    limits: Limits = Limits(),
) -> NoReturn:
    """Runs the plugin as this process; call it from the main thread. It does not return.

    name is short: lower-case letters, digits and dashes. env lists the variables that
    the plugin reads, "DD_SITE" or "DD_*"; the host sends no other. Without a host, the
    program describes itself; --help, --version and --describe work.

    configure(setup) is called once, before the first batch. If it raises, or calls
    setup.error, the host does not use the plugin, and the operator sees the reason.

    export(batch) delivers the batch. Its answers:

        returns None          delivered
        returns Partial       delivered, except for some spans
        raises Permanent      rejected: the host does not send the batch again
        raises RetryAfter     the host sends the batch again, after the given time
        raises grpc.RpcError  follows its code, as in OTLP
        raises TypeError, LookupError or another sign of a bug
                              rejected, and the log has the stack
        raises another error  the host sends the batch again, until it is too old

    Calls overlap, up to limits.max_concurrency, each in a thread of its own.

    flush(seconds), if given, delivers the spans that export has buffered; it may overlap
    export. shutdown(seconds), if given, releases all resources; no call follows it. Both
    may return the number of spans that could not be delivered in time.
    """
    spec = _Spec(name, version, list(env), configure, export, flush, shutdown, description, limits)
    faults = spec.faults()
    if faults:
        sys.exit("\n".join(f"plugin {name!r}: {fault}" for fault in faults))
    if not _answered_by_hand(spec):
        _run(spec)
    sys.exit(0)


class Setup:
    """The argument of configure.

    env      the declared variables that are set, as a dict; os.environ has them too,
             besides the few variables that every plugin has
    config   the operator's configuration, JSON or YAML, as bytes; empty if there is none
    context  the origin of the spans: application, deployment, replica, node, job,
             service_name, plugin_name, sampling_ratio, terminal, terminal_columns; each
             empty if the host does not know it
    stdout   write(text) prints to the service's standard output, line by line, and blocks
             while the reader is slow. If the host does not share it, it is the log
    log      a logging.Logger that writes to the service's log, from level INFO up, like
             all loggers of this process. extra={...} gives fields
    """

    def __init__(self, env: dict[str, str], config: bytes, context: Any, stdout: Output):
        self.env, self.config, self.context = env, config, context
        self.stdout = stdout
        self.log = logging.getLogger()
        self._lock = threading.Lock()
        self._open = True
        self._diagnostics: list[Any] = []

    def warn(self, path: str, text: str) -> None:
        """Reports to the operator that a setting is probably a mistake. The host still uses the plugin."""
        self._add(_WARNING, path, text)

    def error(self, path: str, text: str) -> None:
        """Reports an error in a setting to the operator. The host does not use the plugin. Call it for each error."""
        self._add(_ERROR, path, text)

    def _add(self, severity: int, path: str, text: str) -> None:
        with self._lock:
            if self._open:
                self._diagnostics.append(_Diagnostic(severity=severity, path=_text(path), text=_text(text)))

    def _close(self) -> tuple[list[Any], bool]:
        with self._lock:
            self._open = False
            return self._diagnostics, any(d.severity == _ERROR for d in self._diagnostics)


class Batch:
    """Some finished spans, as one ExportTraceServiceRequest of OTLP.

    id        the batch's name, the same on every attempt; empty from another sender
    attempt   counts from 1; from 2 on, spans may have been delivered before
    given_up  a threading.Event: set when the host no longer waits for the answer;
              batch.given_up.wait(5) is a sleep that ends in time
    """

    def __init__(self, data: bytes, context: grpc.ServicerContext):
        metadata = dict(context.invocation_metadata())
        self.id = _utf8(metadata.get("servetrace-batch-id", ""))
        attempt = _utf8(metadata.get("servetrace-attempt", ""))
        self.attempt = max(1, int(attempt)) if attempt.isdecimal() else 1
        self.given_up = threading.Event()
        self._data = data
        self._context = context
        self._request: trace_service_pb2.ExportTraceServiceRequest | None = None
        self._filtered: dict[str, int] = {}

    @property
    def request(self) -> trace_service_pb2.ExportTraceServiceRequest:
        """The decoded batch. It may be edited."""
        if self._request is None:
            try:
                self._request = trace_service_pb2.ExportTraceServiceRequest.FromString(self._data)
            except DecodeError as error:
                raise Permanent(f"malformed batch: {error}") from None
        return self._request

    @property
    def encoded(self) -> bytes:
        """The batch as bytes, edits included. A batch that was not decoded has its own bytes."""
        return self._data if self._request is None else self._request.SerializeToString()

    def spans(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yields (resource, scope, span) for each span, OTLP's own messages."""
        for of_resource in self.request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    yield of_resource.resource, of_scope.scope, span

    def __len__(self) -> int:
        return sum(len(s.spans) for r in self.request.resource_spans for s in r.scope_spans)

    def filter(self, processor: str, keep: Callable[[Any], bool]) -> None:
        """Drops the spans for which keep returns false. The host counts them under the processor's name."""
        if not _NAME.fullmatch(processor):
            raise TypeError(f"processor {processor!r}: want lower-case letters, digits and dashes")
        for of_resource in self.request.resource_spans:
            for of_scope in of_resource.scope_spans:
                for i in reversed(range(len(of_scope.spans))):
                    if not keep(of_scope.spans[i]):
                        del of_scope.spans[i]
                        self._filtered[processor] = self._filtered.get(processor, 0) + 1

    def time_left(self) -> float | None:
        """Returns the seconds until the host gives the batch up, or None without a deadline."""
        return self._context.time_remaining()


def set_attribute(owner: Any, key: str, value: Any) -> None:
    """Sets an attribute of a span, an event, a link, a scope or a resource. It replaces an attribute with the same key."""
    encoded = _any_value(value)
    for attribute in owner.attributes:
        if attribute.key == key:
            attribute.value.CopyFrom(encoded)
            return
    owner.attributes.add(key=key).value.CopyFrom(encoded)


def attributes(owner: Any) -> dict[str, Any]:
    """Returns the attributes of a span, an event, a link, a scope or a resource, as Python's own values."""
    return {attribute.key: value(attribute.value) for attribute in owner.attributes}


def _any_value(value: Any) -> Any:
    if isinstance(value, bool):  # before int: a bool is an int
        return common_pb2.AnyValue(bool_value=value)
    if isinstance(value, int):
        return common_pb2.AnyValue(int_value=value)
    if isinstance(value, float):
        return common_pb2.AnyValue(double_value=value)
    if isinstance(value, str):
        return common_pb2.AnyValue(string_value=_text(value))
    if isinstance(value, bytes):
        return common_pb2.AnyValue(bytes_value=value)
    if isinstance(value, (list, tuple)):
        return common_pb2.AnyValue(array_value=common_pb2.ArrayValue(values=[_any_value(v) for v in value]))
    if isinstance(value, dict):
        members = [common_pb2.KeyValue(key=k, value=_any_value(v)) for k, v in value.items()]
        return common_pb2.AnyValue(kvlist_value=common_pb2.KeyValueList(values=members))
    raise TypeError(f"attribute of type {type(value).__name__}: want str, bool, int, float, bytes, list or dict")


def value(any_value: Any) -> Any:
    """Returns OTLP's AnyValue as Python's own value."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(v) for v in any_value.array_value.values]
    if kind == "kvlist_value":
        return {member.key: value(member.value) for member in any_value.kvlist_value.values}
    return None if kind is None else getattr(any_value, kind)


class Output:
    """A descriptor to write to. Safe for concurrent use."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, text: str | bytes) -> None:
        """Writes all of text without interruption by other threads. It raises OSError if that fails."""
        rest = memoryview(_text(text).encode() if isinstance(text, str) else text)
        with self._lock:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # another process made it non-blocking
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()


# --------------------------------------------------------------- the contract

# The parts of the contract between host and plugin that are not in plugin.proto.
_COOKIE = ("SERVETRACE_PLUGIN_MAGIC_COOKIE", "6f1d0a52c7b84c1e9d3b0c6a54e2f97a")
_PROTOCOL = 1
_MAX_MESSAGE = 64 << 20
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_ENV_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]+_\*")

# proto/servetrace/plugin/v1/plugin.proto as a FileDescriptorProto, from which the messages
# are made, with any version of protobuf. Written by
# `go test ./examples/python-plugin -run TestContractIsFresh -update`.
_CONTRACT = """
CiFzZXJ2ZXRyYWNlL3BsdWdpbi92MS9wbHVnaW4ucHJvdG8SFHNlcnZldHJhY2UucGx1Z2luLnYxGh5nb29nbGUvcHJvdG9idWYv
ZHVyYXRpb24ucHJvdG8iJgoOUHJvY2Vzc1JlcXVlc3QSFAoFYmF0Y2gYASABKAxSBWJhdGNoImgKD1Byb2Nlc3NSZXNwb25zZRIz
CgVwYXRjaBgBIAEoCzIbLnNlcnZldHJhY2UucGx1Z2luLnYxLlBhdGNoSABSBXBhdGNoEhYKBWJhdGNoGAIgASgMSABSBWJhdGNo
QggKBnJlc3VsdCI/CgVQYXRjaBI2CgdzcGxpY2VzGAEgAygLMhwuc2VydmV0cmFjZS5wbHVnaW4udjEuU3BsaWNlUgdzcGxpY2Vz
IkwKBlNwbGljZRISCgRrZWVwGAEgASgNUgRrZWVwEhYKBnJlbW92ZRgCIAEoDVIGcmVtb3ZlEhYKBmluc2VydBgDIAEoDFIGaW5z
ZXJ0IjoKD0Rlc2NyaWJlUmVxdWVzdBIhCgxob3N0X3ZlcnNpb24YASABKAlSC2hvc3RWZXJzaW9uSgQIAhAQIsACChBEZXNjcmli
ZVJlc3BvbnNlEhIKBG5hbWUYASABKAlSBG5hbWUSGAoHdmVyc2lvbhgCIAEoCVIHdmVyc2lvbhIrCgNzZGsYAyABKAsyGS5zZXJ2
ZXRyYWNlLnBsdWdpbi52MS5TZGtSA3NkaxIuCgRraW5kGAQgASgOMhouc2VydmV0cmFjZS5wbHVnaW4udjEuS2luZFIEa2luZBI0
CgZsaW1pdHMYBSABKAsyHC5zZXJ2ZXRyYWNlLnBsdWdpbi52MS5MaW1pdHNSBmxpbWl0cxIhCgxlbnZfcGF0dGVybnMYBiADKAlS
C2VudlBhdHRlcm5zEiAKC2Rlc2NyaXB0aW9uGAcgASgJUgtkZXNjcmlwdGlvbhIgCgxlbnZfYXRfc3RhcnQYCCABKAhSCmVudkF0
U3RhcnRKBAgJEBAiTwoDU2RrEhIKBG5hbWUYASABKAlSBG5hbWUSGAoHdmVyc2lvbhgCIAEoCVIHdmVyc2lvbhIaCghsYW5ndWFn
ZRgDIAEoCVIIbGFuZ3VhZ2UigQEKBkxpbWl0cxImCg9tYXhfYmF0Y2hfc3BhbnMYASABKA1SDW1heEJhdGNoU3BhbnMSJgoPbWF4
X2JhdGNoX2J5dGVzGAIgASgNUg1tYXhCYXRjaEJ5dGVzEicKD21heF9jb25jdXJyZW5jeRgDIAEoDVIObWF4Q29uY3VycmVuY3ki
6gEKEENvbmZpZ3VyZVJlcXVlc3QSQQoDZW52GAEgAygLMi8uc2VydmV0cmFjZS5wbHVnaW4udjEuQ29uZmlndXJlUmVxdWVzdC5F
bnZFbnRyeVIDZW52EhYKBmNvbmZpZxgCIAEoDFIGY29uZmlnEj0KB2NvbnRleHQYAyABKAsyIy5zZXJ2ZXRyYWNlLnBsdWdpbi52
MS5TdGF0aWNDb250ZXh0Ugdjb250ZXh0GjYKCEVudkVudHJ5EhAKA2tleRgBIAEoCVIDa2V5EhQKBXZhbHVlGAIgASgJUgV2YWx1
ZToCOAFKBAgEEBAiwwIKDVN0YXRpY0NvbnRleHQSIAoLYXBwbGljYXRpb24YASABKAlSC2FwcGxpY2F0aW9uEh4KCmRlcGxveW1l
bnQYAiABKAlSCmRlcGxveW1lbnQSGAoHcmVwbGljYRgDIAEoCVIHcmVwbGljYRISCgRub2RlGAQgASgJUgRub2RlEhAKA2pvYhgF
IAEoCVIDam9iEiEKDHNlcnZpY2VfbmFtZRgGIAEoCVILc2VydmljZU5hbWUSHwoLcGx1Z2luX25hbWUYByABKAlSCnBsdWdpbk5h
bWUSJQoOc2FtcGxpbmdfcmF0aW8YCCABKAFSDXNhbXBsaW5nUmF0aW8SGgoIdGVybWluYWwYCSABKAhSCHRlcm1pbmFsEikKEHRl
cm1pbmFsX2NvbHVtbnMYCiABKA1SD3Rlcm1pbmFsQ29sdW1ucyJdChFDb25maWd1cmVSZXNwb25zZRJCCgtkaWFnbm9zdGljcxgB
IAMoCzIgLnNlcnZldHJhY2UucGx1Z2luLnYxLkRpYWdub3N0aWNSC2RpYWdub3N0aWNzSgQIAhAQInAKCkRpYWdub3N0aWMSOgoI
c2V2ZXJpdHkYASABKA4yHi5zZXJ2ZXRyYWNlLnBsdWdpbi52MS5TZXZlcml0eVIIc2V2ZXJpdHkSEgoEcGF0aBgCIAEoCVIEcGF0
aBISCgR0ZXh0GAMgASgJUgR0ZXh0IkMKDEZsdXNoUmVxdWVzdBIzCgd0aW1lb3V0GAEgASgLMhkuZ29vZ2xlLnByb3RvYnVmLkR1
cmF0aW9uUgd0aW1lb3V0Ii4KDUZsdXNoUmVzcG9uc2USHQoKc3BhbnNfbGVmdBgBIAEoBFIJc3BhbnNMZWZ0IkYKD1NodXRkb3du
UmVxdWVzdBIzCgd0aW1lb3V0GAEgASgLMhkuZ29vZ2xlLnByb3RvYnVmLkR1cmF0aW9uUgd0aW1lb3V0IjEKEFNodXRkb3duUmVz
cG9uc2USHQoKc3BhbnNfbGVmdBgBIAEoBFIJc3BhbnNMZWZ0KkMKBEtpbmQSFAoQS0lORF9VTlNQRUNJRklFRBAAEhEKDUtJTkRf
RVhQT1JURVIQARISCg5LSU5EX1BST0NFU1NPUhACKk4KCFNldmVyaXR5EhgKFFNFVkVSSVRZX1VOU1BFQ0lGSUVEEAASFAoQU0VW
RVJJVFlfV0FSTklORxABEhIKDlNFVkVSSVRZX0VSUk9SEAIy8QIKCUxpZmVjeWNsZRJZCghEZXNjcmliZRIlLnNlcnZldHJhY2Uu
cGx1Z2luLnYxLkRlc2NyaWJlUmVxdWVzdBomLnNlcnZldHJhY2UucGx1Z2luLnYxLkRlc2NyaWJlUmVzcG9uc2USXAoJQ29uZmln
dXJlEiYuc2VydmV0cmFjZS5wbHVnaW4udjEuQ29uZmlndXJlUmVxdWVzdBonLnNlcnZldHJhY2UucGx1Z2luLnYxLkNvbmZpZ3Vy
ZVJlc3BvbnNlElAKBUZsdXNoEiIuc2VydmV0cmFjZS5wbHVnaW4udjEuRmx1c2hSZXF1ZXN0GiMuc2VydmV0cmFjZS5wbHVnaW4u
djEuRmx1c2hSZXNwb25zZRJZCghTaHV0ZG93bhIlLnNlcnZldHJhY2UucGx1Z2luLnYxLlNodXRkb3duUmVxdWVzdBomLnNlcnZl
dHJhY2UucGx1Z2luLnYxLlNodXRkb3duUmVzcG9uc2UyYwoJUHJvY2Vzc29yElYKB1Byb2Nlc3MSJC5zZXJ2ZXRyYWNlLnBsdWdp
bi52MS5Qcm9jZXNzUmVxdWVzdBolLnNlcnZldHJhY2UucGx1Z2luLnYxLlByb2Nlc3NSZXNwb25zZUJNWktnaXRodWIuY29tL3Nl
cnZldHJhY2Uvc2VydmV0cmFjZS9pbnRlcm5hbC9nZW4vc2VydmV0cmFjZS9wbHVnaW4vdjE7cGx1Z2ludjFiBnByb3RvMw==
"""

_pool = descriptor_pool.Default()
_pool.AddSerializedFile(base64.b64decode(_CONTRACT))


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName("servetrace.plugin.v1." + name))


_Diagnostic = _message("Diagnostic")
_WARNING, _ERROR = (
    _pool.FindEnumTypeByName("servetrace.plugin.v1.Severity").values_by_name["SEVERITY_" + level].number
    for level in ("WARNING", "ERROR")
)
_KIND_EXPORTER = _pool.FindEnumTypeByName("servetrace.plugin.v1.Kind").values_by_name["KIND_EXPORTER"].number


@dataclasses.dataclass(frozen=True)
class _Spec:
    """The arguments of main."""

    name: str
    version: str
    env: list[str]
    configure: Callable[[Setup], None]
    export: Callable[[Batch], Partial | None]
    flush: Callable[[float], int | None] | None
    shutdown: Callable[[float], int | None] | None
    description: str
    limits: Limits

    def faults(self) -> list[str]:
        """Returns a text for each mistake in the arguments of main."""
        faults = []
        if not _NAME.fullmatch(self.name):
            faults.append("name: want lower-case letters, digits and dashes, beginning with a letter")
        for pattern in self.env:
            if not _ENV_PATTERN.fullmatch(pattern):
                faults.append(
                    f"variable {pattern!r}: want a name, or a prefix of three characters or more"
                    " that ends in an underscore, and a star"
                )
        for limit, value in dataclasses.asdict(self.limits).items():
            if not 0 <= value < 1 << 31:
                faults.append(f"limit {limit} is {value}: want 0 (the host's default) to 2147483647")
        for function in ("configure", "export"):
            if not callable(getattr(self, function)):
                faults.append(f"{function} is not a function")
        return faults

    def describe(self) -> Any:
        """Returns the answer to Describe."""
        limits = dataclasses.asdict(self.limits)
        limits["max_batch_bytes"] = min(limits["max_batch_bytes"], _MAX_MESSAGE)
        return _message("DescribeResponse")(
            name=self.name,
            version=self.version,
            sdk=_message("Sdk")(name="servetrace.plugin", version="1", language="python"),
            kind=_KIND_EXPORTER,
            limits=_message("Limits")(**limits),
            env_patterns=self.env,
            description=self.description,
        )


def _retry_info(code: grpc.StatusCode, text: str, seconds: float) -> bytes:
    """Returns a google.rpc.Status with RetryInfo, without the package that defines it."""

    def member(number: int, payload: bytes) -> bytes:
        size, length = len(payload), bytearray()
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([number << 3 | 2]) + bytes(length) + bytes([size]) + payload

    delay = duration_pb2.Duration()
    delay.FromNanoseconds(int(max(0.0, seconds) * 1e9))
    info = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=member(1, delay.SerializeToString()))
    return b"\x08" + bytes([code.value[0]]) + member(2, text.encode()) + member(3, info.SerializeToString())


def _text(text: Any) -> str:
    """Returns text without lone surrogates, which protobuf cannot carry."""
    return str(text).encode("utf-8", "replace").decode()


def _utf8(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# ----------------------------------------------------------------- the plugin


class _State(enum.Enum):
    """The state of a plugin. It never returns to an earlier state of this list."""

    DESCRIBED = "not configured"
    CONFIGURING = "being configured"
    REFUSED = "refused its configuration"
    READY = "ready"
    STOPPING = "stopping"


# Exceptions that show a bug in the plugin. The batch is not sent again, because it would fail again.
_BUGS = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    NotImplementedError,
)


class _Plugin:
    """The services, the calls in progress and the state. stop changes the state, waits
    for the calls in progress, and shuts the plugin down."""

    def __init__(
        self,
        spec: _Spec,
        stdout: Output,
        release: Callable[[], None] | None,  # None: started by hand, hosts attach
        debug: bool = False,  # no call is given up, because of breakpoints
    ):
        self._spec, self._stdout, self._release, self._debug = spec, stdout, release, debug
        self._stopped = threading.Event()  # then _left and _fault may be read
        self._left = 0
        self._fault: BaseException | None = None
        self._changed = threading.Condition()  # guards the fields below
        self._state = _State.DESCRIBED
        self._configured = False
        self._inside = 0
        self._waiting: set[threading.Event] = set()  # of the calls of export in progress
        self._streams: set[threading.Event] = set()  # of the open streams
        self._draining = False

    @property
    def was_shut_down(self) -> bool:
        with self._changed:
            return self._state is _State.STOPPING

    @property
    def is_ready(self) -> bool:
        with self._changed:
            return self._state is _State.READY

    @property
    def is_busy(self) -> bool:
        with self._changed:
            return self._inside > 0

    # The services.

    def describe(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        return self._spec.describe()

    def configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._refuse_attached(context)
        with self._admit(context, _State.DESCRIBED, _State.CONFIGURING):
            diagnostics = self.build(dict(request.env), request.config, request.context)
        return _message("ConfigureResponse")(diagnostics=diagnostics)

    def build(self, env: dict[str, str], config: bytes, where: Any) -> list[Any]:
        """Calls the author's configure. The plugin is ready unless a diagnostic has severity ERROR."""
        setup = Setup(env, config, where, self._stdout)
        for name, value in env.items():
            try:
                os.environ[name] = value
            except (OSError, ValueError) as error:
                setup.error(name, str(error))
        try:
            self._spec.configure(setup)
        except ConfigError as error:
            setup.error(error.path, str(error))
        except BaseException as error:  # also sys.exit, for its text
            logging.error("configure: %s", _say(error), exc_info=True)
            setup.error("", _say(error))
        diagnostics, failed = setup._close()
        with self._changed:
            self._configured = not failed
            if self._state is not _State.STOPPING:  # else stop was called meanwhile
                self._state = _State.REFUSED if failed else _State.READY
        return diagnostics

    def export(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        with self._admit(context, _State.READY, _State.READY):
            batch = Batch(data, context)
            with self._waits(self._waiting, batch.given_up, context):
                answer = self._call(context, "export", lambda: _checked(self._spec.export(batch)))
            if batch._filtered:  # with an error, the host counts the whole batch
                context.set_trailing_metadata(
                    tuple(("servetrace-filtered", f"{name}={count}") for name, count in batch._filtered.items())
                )
        response = trace_service_pb2.ExportTraceServiceResponse()
        if answer is not None:
            response.partial_success.rejected_spans = answer.rejected
            response.partial_success.error_message = _text(answer.message)
        return response.SerializeToString()

    def flush(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._admit(context, _State.READY, _State.READY):
            seconds = _seconds(request.timeout, context)
            left = self._call(context, "flush", lambda: self._spec.flush(seconds) if self._spec.flush else 0)
        return _message("FlushResponse")(spans_left=left or 0)

    def shutdown(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._refuse_attached(context)
        left = self._call(context, "shutdown", lambda: self.stop(_seconds(request.timeout, context)))
        return _message("ShutdownResponse")(spans_left=left)

    def health(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if request not in (b"", b"\x0a\x06plugin"):  # HealthCheckRequest{service: "plugin"}
            context.abort(grpc.StatusCode.NOT_FOUND, 'unknown service: this plugin knows "plugin"')
        return b"\x08\x01"  # HealthCheckResponse{status: SERVING}

    def release(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        """Serves go-plugin's GRPCController.Shutdown: the process must end."""
        if self._release is not None:
            self._release()
        return b""

    def stdio(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Serves go-plugin's GRPCStdio: open and empty until the end, because the log has all output."""
        ended = threading.Event()
        with self._waits(self._streams, ended, context):
            ended.wait()
        yield from ()

    # The calls.

    def _refuse_attached(self, context: grpc.ServicerContext) -> None:
        if self._release is None:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "plugin was started by hand: it has configured itself, and is ended by hand",
            )

    @contextlib.contextmanager
    def _admit(self, context: grpc.ServicerContext, want: _State, then: _State) -> Iterator[None]:
        """Admits a call if the state is want, and changes the state to then. Otherwise it ends the call."""
        with self._changed:
            state = self._state
            if state is want:
                self._state = then
                self._inside += 1
        if state is _State.STOPPING:  # another process can take the batch
            context.abort(grpc.StatusCode.UNAVAILABLE, "plugin is stopping")
        if state is not want:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"plugin is {state.value}, want {want.value}")
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def _waits(
        self, among: set[threading.Event], event: threading.Event, context: grpc.ServicerContext
    ) -> Iterator[None]:
        """Sets event when the call is cancelled, or, for a stream, when the plugin begins to end."""
        with self._changed:
            among.add(event)
            if self._draining and among is self._streams:
                event.set()
        patient = self._debug and among is self._waiting
        if not patient and not context.add_callback(event.set):  # it has ended already
            event.set()
        try:
            yield
        finally:
            with self._changed:
                among.discard(event)

    def _call(self, context: grpc.ServicerContext, what: str, function: Callable[[], Any]) -> Any:
        """Calls the author's code, and ends the call with its exception."""
        try:
            return function()
        except RetryAfter as error:
            text = _clip(str(error))
            details = _retry_info(grpc.StatusCode.UNAVAILABLE, text, error.seconds)
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode.UNAVAILABLE, text)
        except BaseException as error:
            code = _code(error)
            if code is grpc.StatusCode.INTERNAL:
                logging.error("%s: %s", what, _say(error), exc_info=True)
            if isinstance(error, grpc.RpcError):
                self._pass_details_on(context, error)
            context.abort(code, _clip(str(error) if isinstance(error, Permanent) else _say(error)))

    @staticmethod
    def _pass_details_on(context: grpc.ServicerContext, error: grpc.RpcError) -> None:
        """Passes a back end's RetryInfo on: without it, RESOURCE_EXHAUSTED is final."""
        trailing: Any = getattr(error, "trailing_metadata", tuple)() or ()
        details = tuple((key, value) for key, value in trailing if key == "grpc-status-details-bin")
        if details:
            context.set_trailing_metadata(details)

    # The end.

    def end_streams(self) -> None:
        with self._changed:
            self._draining = True
            for event in self._streams:
                event.set()

    def stop(self, seconds: float) -> int:
        """Ends the plugin's work, once, and returns the number of spans left. A further call
        waits for the first."""
        with self._changed:
            first = self._state is not _State.STOPPING
            self._state = _State.STOPPING
        if first:
            try:
                self._stop(seconds)
            except BaseException as error:
                self._fault = error
            finally:
                self._stopped.set()
        elif not self._stopped.wait(seconds):
            raise TimeoutError("plugin is stopping: its shutdown is not done")
        if self._fault is not None:
            raise self._fault
        return self._left

    def _stop(self, seconds: float) -> None:
        """Gives calls in progress two thirds of the time, and then cancels them. The rest is for flush and shutdown."""
        deadline = time.monotonic() + seconds
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside == 0, seconds * 2 / 3):
                for event in self._waiting:
                    event.set()
                self._changed.wait_for(lambda: self._inside == 0, seconds / 6)
            inside, configured = self._inside, self._configured
        fault: BaseException | None = None
        if inside:
            fault = TimeoutError(f"{inside} calls in flight did not end in time")
        for function in (self._spec.flush, self._spec.shutdown) if configured else ():
            if function is None:
                continue
            try:
                self._left += function(max(0.0, deadline - time.monotonic())) or 0
            except BaseException as error:  # the other function is called all the same
                fault = fault or error
        if fault is not None:
            raise fault

    # The table of methods for grpc.

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns the five services. Batches and go-plugin's own messages stay bytes."""

        def lifecycle(name: str, function: Callable[..., Any]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(
                function, _message(name + "Request").FromString, _message(name + "Response").SerializeToString
            )

        raw = grpc.unary_unary_rpc_method_handler
        services = {
            "servetrace.plugin.v1.Lifecycle": {
                "Describe": lifecycle("Describe", self.describe),
                "Configure": lifecycle("Configure", self.configure),
                "Flush": lifecycle("Flush", self.flush),
                "Shutdown": lifecycle("Shutdown", self.shutdown),
            },
            "opentelemetry.proto.collector.trace.v1.TraceService": {"Export": raw(self.export)},
            "grpc.health.v1.Health": {"Check": raw(self.health)},
            "plugin.GRPCController": {"Shutdown": raw(self.release)},
            "plugin.GRPCStdio": {"StreamStdio": grpc.unary_stream_rpc_method_handler(self.stdio)},
        }
        return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()]


def _checked(answer: Any) -> Partial | None:
    """Returns the answer of export, or raises TypeError for a value without a meaning."""
    if answer is None or isinstance(answer, Partial):
        return answer
    raise TypeError(f"export returned {answer!r}: want None, which means delivered, or a Partial")


def _code(error: BaseException) -> grpc.StatusCode:
    """Returns the gRPC code for an exception, by which the host rejects or repeats the batch."""
    if isinstance(error, Permanent):
        return grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", lambda: None)()
        known = isinstance(code, grpc.StatusCode) and code is not grpc.StatusCode.OK
        return code if known else grpc.StatusCode.UNAVAILABLE
    if isinstance(error, _BUGS) or not isinstance(error, Exception):
        return grpc.StatusCode.INTERNAL
    return grpc.StatusCode.UNAVAILABLE


def _say(error: BaseException) -> str:
    details = getattr(error, "details", None)
    if isinstance(error, grpc.RpcError) and callable(details):
        return str(details())
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _clip(text: str) -> str:
    """Returns the first kilobyte: a host keeps no more, and headers are bounded."""
    return _text(text[:1024])


def _seconds(timeout: Any, context: grpc.ServicerContext) -> float:
    """Returns the smaller of the request's timeout and the call's deadline."""
    asked = timeout.ToNanoseconds() / 1e9
    bounds = [s for s in (asked if asked > 0 else None, context.time_remaining()) if s is not None]
    return max(0.0, min(bounds, default=_DRAIN))


# ---------------------------------------------------------------- the process

# Bounds of the time for the end of the plugin, in seconds. A host may kill the process earlier.
_DRAIN = 10.0  # after SIGTERM: enough for one call with the host's default deadline
_ORPHAN = 1.0  # after the end of the host: the plugin must have ended two seconds after it
_PARENT_POLL = 0.5
_PARENT_GRACE = 0.2  # the time for which a dying host may still be the parent


class _Ending(enum.Enum):
    """The reason for which the plugin ends."""

    SIGNALLED = "asked to end"
    RELEASED = "released by the host"
    HOST_DONE = "host closed standard input after shutdown"
    HOST_GONE = "host closed standard input without shutdown"
    ORPHANED = "parent process has ended"


class _Reasons:
    """A pipe by which threads and signals report reasons to end the plugin.

    A signal handler in Python runs only when the main thread executes code. That thread may
    sleep on if the signal came to another thread, or just before it slept. The interpreter's
    own handler writes to the pipe, which wakes it."""

    def __init__(self, signals: dict[int, _Ending | None]):
        self._signals = signals
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda *_: None)

    def put(self, why: _Ending) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of reasons
            os.write(self._write, bytes([self._CODES.index(why) + self._NO_SIGNAL]))

    def get(self) -> _Ending:
        while True:
            number = os.read(self._read, 1)[0]
            why = self._CODES[number - self._NO_SIGNAL] if number >= self._NO_SIGNAL else self._signals.get(number)
            if why is not None:
                return why

    _CODES = list(_Ending)
    _NO_SIGNAL = 128  # above the numbers of signals


def _run(spec: _Spec) -> NoReturn:
    """Runs the plugin under a host, to its end."""
    parent = os.getppid()
    handshake = os.dup(1)
    os.dup2(2, 1)  # prints go to the log from here on
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    _log_to(Output(2))
    if os.environ.get("PLUGIN_CLIENT_CERT"):
        logging.error(
            "host asks for AutoMTLS (PLUGIN_CLIENT_CERT), which a plugin on a private Unix socket"
            " does not speak: switch it off in the host"
        )
        sys.exit(1)
    versions = os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "")
    if versions and str(_PROTOCOL) not in versions.split(","):
        # Like go-plugin's server: answer with the own version, and the host reports both.
        logging.warning(
            "host and plugin have no protocol version in common: install the package servetrace of the host's version",
            extra={"host": versions, "plugin": _PROTOCOL},
        )

    # A terminal sends SIGINT to the host's whole group, and the host decides. Children do
    # not inherit a handler, unlike SIG_IGN.
    reasons = _Reasons({signal.SIGTERM: _Ending.SIGNALLED, signal.SIGINT: None})

    plugin = _Plugin(spec, _stdout("SERVETRACE_STDOUT_FD"), lambda: reasons.put(_Ending.RELEASED))
    server = _server(spec, plugin)
    folder, path = _listen(server)
    try:
        server.start()
        os.write(handshake, _handshake(path))
        os.close(handshake)  # the host reads to the end
        _watch_stdin(lambda: reasons.put(_Ending.HOST_DONE if plugin.was_shut_down else _Ending.HOST_GONE))
        orphaned = threading.Event()
        _watch_parent(parent, orphaned, lambda: reasons.put(_Ending.ORPHANED))
        why = reasons.get()
        logging.info("plugin stops", extra={"reason": why.value})
        ended = _end(plugin, server, why, orphaned)
    finally:
        _tidy(path, folder)
    _outlive(parent, why)
    _exit(ended)


# Threads for the calls besides Export: health checks, go-plugin's stream, flush, shutdown.
_OTHER_CALLS = 8


def _server(spec: _Spec, plugin: _Plugin) -> grpc.Server:
    return grpc.server(
        futures.ThreadPoolExecutor((spec.limits.max_concurrency or 4) + _OTHER_CALLS, "call"),
        handlers=plugin.handlers(),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.max_send_message_length", _MAX_MESSAGE)],
    )


def _stdout(variable: str) -> Output:
    """Returns the descriptor in the variable, or the log if there is none."""
    number = os.environ.get(variable, "")
    if not number:
        return Output(2)
    try:
        descriptor = int(number)
        if descriptor < 3:
            raise ValueError("want 3 or more")
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
        os.set_inheritable(descriptor, False)
        return Output(descriptor)
    except (OSError, ValueError) as error:
        logging.warning(
            "the host's standard output cannot be used; output goes to the log",
            extra={"variable": variable, "value": number, "error": str(error)},
        )
        return Output(2)


def _listen(server: grpc.Server) -> tuple[str, str]:
    """Opens a socket that only this user can reach. It returns the folder, if it is the plugin's own, and the path."""
    folder = ""
    where = os.environ.get("PLUGIN_UNIX_SOCKET_DIR", "")
    if not where:
        where = folder = tempfile.mkdtemp(prefix="servetrace-plugin-")  # mode 0700
    path = os.path.join(os.path.abspath(where), "plugin" + secrets.token_hex(5))
    fault = _bind(server, path)
    if fault:
        _tidy(path, folder)
        logging.error(fault)
        sys.exit(1)
    return folder, path


def _bind(server: grpc.Server, path: str) -> str:
    """Makes the server listen on path, for this user only. It returns the fault, or an empty text."""
    size = len(os.fsencode(path))
    if size > 103:  # macOS has 104 bytes with the final zero, Linux 108
        return f"open socket {path!r}: the path has {size} bytes, the system takes 103: use a shorter one"
    mask = os.umask(0o177)
    try:
        server.add_insecure_port("unix:" + urllib.parse.quote(path))
    except RuntimeError as error:
        return f"open socket {path!r}: {error}"
    finally:
        os.umask(mask)
    return ""


def _handshake(path: str) -> bytes:
    """Returns go-plugin's line: core version, protocol version, network, address, protocol, and an empty certificate."""
    line = f"1|{_PROTOCOL}|unix|{path}|grpc|"
    if os.environ.get("PLUGIN_MULTIPLEX_GRPC"):
        line += "|false"  # there is no broker; other hosts cannot read the field
    return os.fsencode(line + "\n")


def _watch_stdin(ended: Callable[[], None]) -> None:
    """Calls ended when standard input ends, if it is a pipe or a socket of a host."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1 << 16):
                pass
        ended()

    with contextlib.suppress(OSError):
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            threading.Thread(target=read, name="stdin", daemon=True).start()


def _watch_parent(parent: int, orphaned: threading.Event, gone: Callable[[], None]) -> None:
    """Sets orphaned and calls gone when the parent process has changed: the kernel's signal
    and the end of standard input may both be missing."""

    def poll() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL)
        orphaned.set()
        gone()

    threading.Thread(target=poll, name="parent", daemon=True).start()


class _Ended(enum.Enum):
    """The result of _end, the end of the plugin."""

    CLEAN = "clean"
    FAULT = "the shutdown was not clean"
    STUCK = "a call, or the shutdown, hangs in a thread"


def _end(plugin: _Plugin, server: grpc.Server, why: _Ending, orphaned: threading.Event) -> _Ended:
    """Refuses new calls, lets calls in progress finish, shuts the plugin down and closes
    the server. There is less time if the host has ended."""
    bound = _ORPHAN if why in (_Ending.HOST_GONE, _Ending.ORPHANED) else _DRAIN
    clean = threading.Event()

    def stop() -> None:
        try:
            plugin.stop(bound)
            clean.set()
        except BaseException as error:
            bug = _code(error) is grpc.StatusCode.INTERNAL
            logging.error("plugin did not end cleanly", extra={"error": _say(error)}, exc_info=bug)
        stopped.set()

    plugin.end_streams()
    stopped = threading.Event()
    threading.Thread(target=stop, name="stop", daemon=True).start()
    hurried = bound == _ORPHAN
    deadline = time.monotonic() + bound + 0.1  # so that stop itself can report the late part
    while not stopped.wait(0.05) and time.monotonic() < deadline:
        if orphaned.is_set() and not hurried:  # the host has ended meanwhile
            hurried, deadline = True, min(deadline, time.monotonic() + _ORPHAN)
    if not stopped.is_set():
        logging.error("the plugin's shutdown did not end in time")
    # The server may still be sending answers. A call that hangs is cancelled.
    grace = max(0.1, min(1.0, deadline - time.monotonic()))
    server.stop(grace).wait(grace + 0.1)
    if not stopped.is_set() or plugin.is_busy:
        return _Ended.STUCK
    return _Ended.CLEAN if clean.is_set() else _Ended.FAULT


def _tidy(path: str, folder: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # the server has removed it, if it could
    if folder:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _outlive(parent: int, why: _Ending) -> None:
    """Cleans up if the host has ended: removes the empty folders of the socket, and kills the
    plugin's children."""
    grace = _PARENT_GRACE if why in (_Ending.HOST_GONE, _Ending.SIGNALLED) else 0.0  # the kernel may have sent the signal
    deadline = time.monotonic() + grace
    while os.getppid() == parent:
        if time.monotonic() >= deadline:
            return
        time.sleep(_PARENT_GRACE / 20)
    folder = os.environ.get("PLUGIN_UNIX_SOCKET_DIR", "")
    up = os.path.dirname(os.path.abspath(folder))
    if folder and os.path.basename(up).startswith("servetrace-"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(up, "host.lock"))  # a host's sign of life
        for empty in (folder, up):
            with contextlib.suppress(OSError):
                os.rmdir(empty)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # this process too


def _exit(ended: _Ended) -> NoReturn:
    """Ends the process after the libraries' exit handlers, and does not wait for threads that hang."""
    code = 0 if ended is _Ended.CLEAN else 1
    if ended is _Ended.STUCK:
        sys.stdout.flush()
        os._exit(code)
    late = threading.Timer(_ORPHAN, os._exit, (code,))
    late.daemon = True
    late.start()
    sys.exit(code)


# -------------------------------------------------------------------- the log


def _log_to(output: Output) -> None:
    """Makes every logger write hclog's JSON lines. An exception that ends a thread is a line, too."""
    handler = _LogHandler(output)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook = lambda *info: logging.error("unhandled exception", exc_info=info)
    threading.excepthook = lambda args: logging.error("unhandled exception in a thread", exc_info=args.exc_value)
    with contextlib.suppress(OSError, ValueError):  # standard error is closed
        faulthandler.enable()


# The fields of every record; the rest are from extra={...}.
_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"), (logging.DEBUG, "debug"))
_MAX_STACK = 6000  # the host bounds a line to 8 KiB


class _LogHandler(logging.Handler):
    """Writes records as hclog's JSON. A host keeps their level and fields."""

    def __init__(self, output: Output):
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._output.write(self._line(record))
        except Exception as error:
            if not (isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EBADF)):
                self.handleError(record)  # a host that has ended reads no log

    @staticmethod
    def _line(record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "@level": next((name for level, name in _LEVELS if record.levelno >= level), "trace"),
            "@message": record.getMessage(),
            "@timestamp": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="microseconds"),
        }
        if record.name != "root":
            line["@module"] = record.name
        for key, value in vars(record).items():
            if key not in _RECORD:
                safe = "_" + key if key.startswith("@") else key
                line[safe] = value if isinstance(value, (str, int, float, bool)) else str(value)
        if record.exc_info and record.exc_info[0] is not None:
            line["stack"] = "".join(traceback.format_exception(*record.exc_info))[-_MAX_STACK:]
        return json.dumps(line) + "\n"


# -------------------------------------------------------------------- by hand


def _answered_by_hand(spec: _Spec) -> bool:
    """Answers a flag, or a start without a host. It returns false under a host."""
    flag = sys.argv[1] if len(sys.argv) > 1 else ""
    if flag == "--version":
        print(spec.name, spec.version)
    elif flag == "--describe":
        limits = dataclasses.asdict(spec.limits)
        sdk = spec.describe().sdk
        description = {
            "name": spec.name,
            "version": spec.version,
            "description": spec.description,
            "kind": "exporter",
            "sdk": {"name": sdk.name, "version": sdk.version, "language": sdk.language},
            "limits": limits,
            "env_patterns": spec.env,
        }
        print(json.dumps({k: v for k, v in description.items() if v != ""}, indent=2, ensure_ascii=False))
    elif flag in ("--help", "-h"):
        print(_greeting(spec) + _help(spec), end="")
    elif "--listen" in sys.argv[1:]:
        _serve_by_hand(spec)
    elif os.environ.get(_COOKIE[0]) == _COOKIE[1]:
        return False
    else:
        sys.exit(_greeting(spec).rstrip("\n") + "\n")
    return True


def _serve_by_hand(spec: _Spec) -> NoReturn:
    """Runs the plugin without a host, for hosts that attach, until SIGINT or SIGTERM. Its own
    environment and the file configure it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--listen", required=True, metavar="PATH")
    parser.add_argument("--config", metavar="FILE")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", force=True)
    path = os.path.abspath(arguments.listen.removeprefix("unix://"))
    config = b""
    try:
        if arguments.config:
            with open(arguments.config, "rb") as file:
                config = file.read()
        _free(path)
    except OSError as error:
        sys.exit(f"{spec.name}: {error}")

    plugin = _Plugin(spec, Output(1), None, arguments.debug)
    env = {name: value for name, value in os.environ.items() if any(_matches(p, name) for p in spec.env)}
    for diagnostic in plugin.build(env, config, _message("StaticContext")()):
        level = logging.ERROR if diagnostic.severity == _ERROR else logging.WARNING
        logging.log(level, "%s: %s" if diagnostic.path else "%s%s", diagnostic.path, diagnostic.text)
    if not plugin.is_ready:
        sys.exit(1)
    reasons = _Reasons({signal.SIGTERM: _Ending.SIGNALLED, signal.SIGINT: _Ending.SIGNALLED})
    server = _server(spec, plugin)
    fault = _bind(server, path)
    if fault:
        sys.exit(f"{spec.name}: {fault}")
    try:
        server.start()
        relaxed = "SERVE_TRACING_EXPORT_TIMEOUT=1h SERVE_TRACING_MAX_AGE=24h " if arguments.debug else ""
        print(f"{relaxed}SERVE_TRACING_EXPORTER_PLUGIN=unix://{_escaped(path)}", flush=True)
        ended = _end(plugin, server, reasons.get(), threading.Event())
    finally:
        _tidy(path, "")
    _exit(ended)


def _free(path: str) -> None:
    """Removes a socket that a dead process has left. It raises OSError for any other file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is another file: choose another path, or remove it", path)
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise FileExistsError(errno.EADDRINUSE, "another process listens there: end it, or choose another path", path)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _escaped(path: str) -> str:
    """Returns path with the escapes of the list of plugins."""
    for character, escaped in ((",", "%2C"), ("=", "%3D"), ("@", "%40")):
        path = path.replace(character, escaped)
    return path


def _greeting(spec: _Spec) -> str:
    # A program that wraps this plugin sets the variable to its own path.
    program = _escaped(os.path.abspath(os.environ.get("SERVETRACE_PLUGIN_PROGRAM") or sys.argv[0]))
    about = f": {spec.description}" if spec.description else ""
    return f"""{spec.name} {spec.version}{about}

This is an exporter plugin of servetrace. It does nothing on its own: a service
starts it, and sends it the service's spans. Name it where the service starts:

    SERVE_TRACING_EXPORTER_PLUGIN={program} your-service

"""


def _help(spec: _Spec) -> str:
    variables = ""
    if spec.env:
        variables = "It reads these variables of the service's environment:\n\n    " + "\n    ".join(spec.env) + "\n\n"
    return (
        variables
        + """Flags:

    --version    print name and version
    --describe   print the description for a host, as JSON
    --help       print this
    --listen PATH [--config FILE] [--debug]
                 serve hosts that attach by a Unix socket; prints the variable
                 to set there. --debug: no call is cancelled at a breakpoint
"""
    )
