import tomllib
import unittest
from pathlib import Path

import servetrace

PYTHON = Path(servetrace.__file__).parents[1]


class Package(unittest.TestCase):
    def test_dependencies_are_pinned_for_the_tests(self):
        def name(line):
            return line.split("==")[0].split(">=")[0].lower().replace("_", "-")

        pinned = {name(line) for line in (PYTHON / "requirements.txt").read_text().splitlines() if "==" in line}
        project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
        self.assertEqual({name(line) for line in project["dependencies"]} - pinned, set())


if __name__ == "__main__":
    unittest.main()
