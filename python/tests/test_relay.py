import os
import socket
import sys
import unittest
from pathlib import Path
from unittest import mock

import servetrace
from servetrace import relay
from servetrace.relay import RelayError, relay_from_env
from support import PATIENCE, Logs, socket_path

# A stand-in for the command: listens at the path of --http until the test removes it.
STAND_IN = """#!{python}
import os, socket, sys
path = sys.argv[sys.argv.index("--http") + 1].removeprefix("unix://")
s = socket.socket(socket.AF_UNIX)
s.bind(path + ".new")
s.listen()
print("args", sys.argv[1:], "parent", os.getppid(), "session", os.getsid(0) != os.getsid({parent}), sorted(k for k in os.environ if "SERVE" in k), flush=True)
os.rename(path + ".new", path)
s.accept()  # the look that found it
s.settimeout({patience})
while s.accept()[0].recv(1) != b"q":
    pass
"""


class FromEnvironment(unittest.TestCase):
    def setUp(self):
        self.path = socket_path(self)
        patch = mock.patch.object(relay.tempfile, "tempdir", str(self.path.parent))
        patch.start()
        self.addCleanup(patch.stop)

    def environ(self, **more):
        return {"SERVE_TRACING_EXPORTER_PLUGIN": "console", "PATH": os.environ["PATH"], **more}

    def test_off(self):
        self.assertIsNone(relay_from_env({}))
        self.assertIsNone(relay_from_env({"SERVE_TRACING_EXPORTER_PLUGIN": " ", "SERVE_TRACING_RELAY": "unix:///x"}))

    def test_named_relay_is_not_started(self):
        for value, address, path in [("unix:///run/r.sock", "unix:///run/r.sock", "/run/r.sock"), ("/run/r.sock", "unix:///run/r.sock", "/run/r.sock"), ("127.0.0.1:4318", "127.0.0.1:4318", None), ("http://relay:4318/", "relay:4318", None)]:
            found = relay_from_env(self.environ(SERVE_TRACING_RELAY=value))
            self.assertEqual((found.address, found.path), (address, path))
        with self.assertRaisesRegex(RelayError, "no process listens at .*: start `servetrace relay --http unix:///"):
            relay_from_env(self.environ(SERVE_TRACING_RELAY=str(self.path))).ensure()

    def test_relay_at_an_address(self):
        """The error has the reason and the command."""
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            found = relay_from_env(self.environ(SERVE_TRACING_RELAY="localhost:%d" % server.getsockname()[1]))
            with self.assertRaisesRegex(RelayError, rf"no process listens at {found.address} \(Connection refused\): start `servetrace relay --http {found.address}`"):
                found.ensure()
            server.listen()
            self.assertEqual((found.ensure(), found.log), ("listens", None))

    def test_misspelt_variable(self):
        """Tracing is off, and the log names the variable."""
        for name in ("SERVE_TRACING_EXPORTER_PLUGINS", "SERVE_TRACE_EXPORTER_PLUGIN"):
            with mock.patch.dict(os.environ, {name: "console"}, clear=True):
                log = Logs()
                self.assertEqual(servetrace.processors_or_none(log, None), [])
                self.assertEqual(log.lines, [f"WARNING: servetrace: no spans are sent: {name} is set; did you mean SERVE_TRACING_EXPORTER_PLUGIN?"])
        for environ in ({}, {"SERVE_TRACING_EXPORTER_PLUGIN": ""}, {"SERVE_TRACING_PROCESSOR_PLUGIN": "redact"}):
            self.assertIsNone(relay.misspelt(environ))

    def test_socket_depends_on_tracing_variables_alone(self):
        def path(**more):
            return relay_from_env(self.environ(**more)).path

        self.assertEqual(path(), path(OTHER="1", OTEL_SERVICE_NAME="x"))
        variants = [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, {"DD_ENV": "a"}, {"DD_ENV": "b"}, {"SERVE_TRACING_BATCH_AGE": "1s"}, {"SERVE_TRACING_RELAY_BINARY": "/x"}]
        granted = [{"SERVE_TRACING_PLUGIN_ENV": "mine:MY_*", "MY_KEY": k} for k in "ab"]
        self.assertEqual(len({path(**v) for v in variants + granted}), len(variants + granted))
        self.assertTrue(path().startswith(str(self.path.parent / f"servetrace-{os.getuid()}" / "relay-")), path())

    def test_long_temporary_folder(self):
        with mock.patch.object(relay.tempfile, "tempdir", "/tmp/" + "x" * 100):
            self.assertTrue(relay_from_env(self.environ()).path.startswith(f"/tmp/servetrace-{os.getuid()}/"))

    def test_wrong_values(self):
        for name, value, message in [("SERVE_TRACING_RELAY_AUTOSTART", "maybe", '=maybe: write "on" or "off"'), ("SERVE_RELAY_LINGER", "30", "=30: not a duration such as"), ("SERVE_TRACING_RELAY", "https://x:1", "=https://x:1: write unix:///path or host:port")]:
            with self.assertRaisesRegex(RelayError, name + message):
                relay_from_env(self.environ(**{name: value}))

    def test_autostart_off(self):
        with self.assertRaisesRegex(RelayError, "no process listens"):
            relay_from_env(self.environ(SERVE_TRACING_RELAY_AUTOSTART="off")).ensure()

    def test_no_command(self):
        with self.assertRaisesRegex(RelayError, "/none: no such command: install the wheel .* or set SERVE_TRACING_RELAY_BINARY"):
            relay_from_env(self.environ(SERVE_TRACING_RELAY_BINARY="/none")).ensure()

    def test_folder_that_others_can_read(self):
        found = relay_from_env(self.environ(SERVE_TRACING_RELAY_BINARY="/bin/true"))
        os.makedirs(os.path.dirname(found.path), mode=0o755)
        os.chmod(os.path.dirname(found.path), 0o755)
        with self.assertRaisesRegex(RelayError, "not a folder of user .* with mode 0700"):
            found.ensure()

    def test_relay_that_does_not_start(self):
        with self.assertRaisesRegex(RelayError, r"did not listen at .* within 0.1 s: see .*\.log"):
            relay_from_env(self.environ(SERVE_TRACING_RELAY_BINARY="/bin/false")).ensure(seconds=0.1)

    def test_start(self):
        command = self.path.parent / "stand-in"
        command.write_text(STAND_IN.format(python=sys.executable, parent=os.getpid(), patience=PATIENCE))
        command.chmod(0o700)
        found = relay_from_env(self.environ(SERVE_TRACING_RELAY_BINARY=str(command), SERVE_RELAY_LINGER="1m", RAY_SERVE_TRACING_SAMPLING_RATIO="1"))
        self.assertEqual(found.ensure(seconds=PATIENCE), "started")
        self.assertEqual(found.ensure(), "listens")
        log = Path(found.log).read_text()
        self.assertIn(f"['relay', '--http', 'unix://{found.path}', '--linger', '1m']", log)
        self.assertNotIn(f"parent {os.getpid()} ", log)
        self.assertIn("session True ['SERVE_RELAY_LINGER', 'SERVE_TRACING_EXPORTER_PLUGIN']", log)
        self.assertEqual(os.stat(os.path.dirname(found.path)).st_mode & 0o777, 0o700)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(found.path)
            s.sendall(b"q")
            s.recv(1)  # until the process has ended

    def test_seconds(self):
        self.assertEqual([relay.seconds(t, "N") for t in ("100ms", "1m30s", "0.5s", "2h")], [0.1, 90, 0.5, 7200])
        for text in ("", "5", "5 s", "s", "-1s", "1s2"):
            with self.assertRaisesRegex(RelayError, f"N={text}: not a duration"):
                relay.seconds(text, "N")


if __name__ == "__main__":
    unittest.main()
