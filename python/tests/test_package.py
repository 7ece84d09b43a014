import os
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

import servetrace
from servetrace.relay import NO_COMMAND

PYTHON = Path(servetrace.__file__).parents[1]


class Package(unittest.TestCase):
    def test_dependencies_are_pinned_for_the_tests(self):
        def name(line):
            return line.split("==")[0].split(">=")[0].lower().replace("_", "-")

        pinned = {name(line) for line in (PYTHON / "requirements.txt").read_text().splitlines() if "==" in line}
        project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
        self.assertEqual({name(line) for line in project["dependencies"]} - pinned, set())

    @unittest.skipUnless((PYTHON / "servetrace/bin/servetrace").exists(), "make python-binaries")
    def test_command(self):
        """Runs with its arguments, and finds the plugins of the package."""
        ran = subprocess.run([sys.executable, "-m", "servetrace", "plugin", "info", "console"], cwd=PYTHON, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout.split()[:2], ran.stderr), (0, ["name", "console"], ""))

    @unittest.skipUnless((PYTHON / "servetrace/bin/servetrace").exists(), "make python-binaries")
    def test_command_names_itself_in_advice(self):
        env = {"PATH": os.environ["PATH"], "SERVE_TRACING_EXPORTER_PLUGIN": "/bin/false"}
        ran = subprocess.run([sys.executable, "-m", "servetrace", "doctor"], cwd=PYTHON, env=env, capture_output=True, text=True)
        self.assertIn(f"next: {os.path.basename(sys.executable)} -m servetrace plugin info /bin/false\n", ran.stdout)

    def test_command_that_is_missing(self):
        ran = subprocess.run([sys.executable, "-m", "servetrace"], cwd=PYTHON, env={"SERVE_TRACING_RELAY_BINARY": "/none"}, capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stderr), (1, f"/none: {NO_COMMAND}\n"))


if __name__ == "__main__":
    unittest.main()
