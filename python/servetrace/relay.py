"""Finds the relay of this machine, or starts it.

A relay is the command ``servetrace relay``. Its socket is in a private folder, and its
name has a hash of the tracing variables: processes with other variables get another
relay.
"""

import difflib
import fnmatch
import hashlib
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

EXPORTER_PLUGIN = "SERVE_TRACING_EXPORTER_PLUGIN"
PLUGIN_ENV = "SERVE_TRACING_PLUGIN_ENV"
RELAY = "SERVE_TRACING_RELAY"
AUTOSTART = "SERVE_TRACING_RELAY_AUTOSTART"
LINGER = "SERVE_RELAY_LINGER"  # of the command, too
BINARY = "SERVE_TRACING_RELAY_BINARY"

NO_COMMAND = f"no such command: install the wheel for this platform, or set {BINARY} to the servetrace binary"
START_SECONDS = 3.0  # bound on the wait for a started relay
_UNIX = "unix://"
_LONGEST_SOCKET = 100  # the kernel's bound is 108 bytes
_HASHED = ["SERVE_TRACING_*", "SERVE_RELAY_*", "SERVE_CONSOLE_*", "SERVE_DATADOG_*", "SERVE_RAY_CONTEXT", "OTEL_EXPORTER_*", "DD_*"]
# The relay does not read these, and would warn of them.
_NOT_FOR_RELAY = ["SERVE_TRACING_RELAY*", "RAY_SERVE_TRACING_*"]


class RelayError(Exception):
    """There is no relay, with the reason and what to do."""


def relay_from_env(environ=None):
    """Returns the Relay that the variables name, or None if they turn tracing off.
    Raises RelayError for a wrong value. Starts nothing."""
    environ = os.environ if environ is None else environ
    plugins = environ.get(EXPORTER_PLUGIN, "").strip()
    if not plugins:
        return None
    address = environ.get(RELAY, "").strip()
    if address:
        return Relay(plugins, _checked(address))
    autostart = environ.get(AUTOSTART, "").strip().lower() or "on"
    if autostart not in ("on", "off", "true", "false"):
        raise RelayError(f'{AUTOSTART}={autostart}: write "on" or "off"')
    binary = find_binary(environ)
    command = None
    path = _folder() / f"relay-{_variables_hash(environ, binary)}.sock"
    if autostart in ("on", "true"):
        linger = environ.get(LINGER, "").strip() or "30s"
        seconds(linger, LINGER)
        command = [binary or "servetrace", "relay", "--http", f"unix://{path}", "--linger", linger]
    return Relay(plugins, f"unix://{path}", command, environ)


def misspelt(environ=None):
    """Returns a variable whose name is nearly that of the list of plugins, or None."""
    environ = os.environ if environ is None else environ
    likely = difflib.get_close_matches(EXPORTER_PLUGIN, environ, n=2, cutoff=0.9)
    return next((name for name in likely if name != EXPORTER_PLUGIN), None)


class Relay:
    """The address of a relay, and the command that starts it.

    ``plugins`` is the list of plugins, ``address`` "unix:///path" or "host:port" of its
    listener for HTTP, ``command`` the command that starts the relay, or None if this
    process must not start it. ``environ`` is the environment of the command.
    """

    def __init__(self, plugins, address, command=None, environ=None):
        self.plugins, self.address, self._command = plugins, address, command
        self._environ = {k: v for k, v in (environ or {}).items() if not _matches(k, _NOT_FOR_RELAY)}

    @property
    def path(self):
        """The path of the socket, or None if the address is not a Unix socket."""
        return self.address.removeprefix(_UNIX) if self.address.startswith(_UNIX) else None

    @property
    def log(self):
        """The file of the log of a relay that this process may start, or None."""
        return self.path + ".log" if self._command else None

    def ensure(self, seconds=START_SECONDS):
        """Returns how the relay was found: "listens" or "started". Blocks up to the given
        seconds for a started relay. Raises RelayError if there is none. The caller retries."""
        if not (fault := fault_of(self.path or self.address)):
            return "listens"
        if self._command is None:
            raise RelayError(f"no process listens at {self.path or self.address} ({fault}): start `servetrace relay --http {self.address}`")
        if not shutil.which(self._command[0]):
            raise RelayError(f"{self._command[0]}: {NO_COMMAND}")
        _make_private(os.path.dirname(self.path))
        self._spawn()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not fault_of(self.path):
                return "started"
            time.sleep(0.02)
        raise RelayError(f"the relay did not listen at {self.path} within {seconds:g} s: see {self.log}")

    def _spawn(self):
        """Starts the command detached. Ray kills the children of a worker and its process
        group, so the relay is in a session of its own, and its parent has ended."""
        subprocess.run(
            ["/bin/sh", "-c", 'log=$0; "$@" </dev/null >>"$log" 2>&1 &', self.log, *self._command],
            env=self._environ, start_new_session=True, stdin=subprocess.DEVNULL, check=True, timeout=START_SECONDS,
        )


def _checked(address):
    address = _UNIX + address if address.startswith("/") else address.removeprefix("http://").removesuffix("/")
    if not re.fullmatch(r"unix:///.+|[^/]+:\d+", address):
        raise RelayError(f"{RELAY}={address}: write unix:///path or host:port of a relay's --http")
    return address


def fault_of(address):
    """Returns the reason for which no process accepts connections at the path of a Unix
    socket or at host:port, or "" if one does."""
    host, _, port = address.rpartition(":")
    try:
        if address.startswith("/"):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(1)
                s.connect(address)
        else:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
        return ""
    except OSError as e:
        return e.strerror or str(e)


def seconds(text, name):
    """Returns a duration such as "100ms" or "1m30s" in seconds."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)", text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise RelayError(f"{name}={text}: not a duration such as 100ms, 30s or 1m30s")
    return sum(float(n) * units[u] for n, u in parts)


def find_binary(environ):
    """Returns the path of the servetrace binary, or None."""
    named = environ.get(BINARY, "").strip()
    if named:
        return named
    packaged = Path(__file__).parent / "bin" / "servetrace"
    return str(packaged) if packaged.is_file() else shutil.which("servetrace", path=environ.get("PATH"))


def _folder():
    for root in (tempfile.gettempdir(), "/tmp"):
        folder = Path(root) / f"servetrace-{os.getuid()}"
        if len(os.fsencode(folder / "relay-0123456789abcdef.sock")) <= _LONGEST_SOCKET:
            return folder
    raise RelayError(f"{folder}: the path is too long for a socket")


def _make_private(folder):
    os.makedirs(folder, mode=0o700, exist_ok=True)
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise RelayError(f"{folder}: not a folder of user {os.getuid()} with mode 0700: remove it, or set {RELAY}")


def _variables_hash(environ, binary):
    granted = [entry.partition(":")[2] for entry in environ.get(PLUGIN_ENV, "").split(",") if ":" in entry]
    found = sorted(f"{k}={v}" for k, v in environ.items() if _matches(k, _HASHED + granted) and not _matches(k, _NOT_FOR_RELAY))
    return hashlib.sha256("\0".join([str(binary), *found]).encode(errors="surrogateescape")).hexdigest()[:16]


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)
