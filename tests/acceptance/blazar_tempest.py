"""A runner of Blazar's own API tests, for the environment that tempest is installed in: `blazar_tempest.py URL`.

The tests are the YAML files of blazar-tempest-plugin, as they were published. The plug-in's own loader sends them to
port 80 of this host, where a test may not listen; so they are loaded here in the same way with another URL. What became
of each test is printed as JSON.
"""

import json
import sys
import unittest
from pathlib import Path
from typing import Any

from blazar_tempest_plugin.tests.api import fixtures, test_blazar_api
from gabbi import driver
from tempest import config


class Results(unittest.TestResult):
    """The result of each test: an empty text, or why it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, str] = {}

    def addSuccess(self, test: Any) -> None:
        self.told[_name(test)] = ""

    def addFailure(self, test: Any, error: Any) -> None:
        self.told[_name(test)] = str(error[1]) or error[0].__name__

    def addError(self, test: Any, error: Any) -> None:
        self.addFailure(test, error)

    def addSkip(self, test: Any, reason: str) -> None:
        self.told[_name(test)] = f"skipped: {reason}"


def _name(test: Any) -> str:
    return str(test.id()).removesuffix(".test_request").rpartition(".")[2]


def main(url: str) -> None:
    """Run all of them, in their order."""
    config.CONF.set_config_path("tempest.conf")
    folder = Path(test_blazar_api.__file__).parent / test_blazar_api.TESTS_DIR
    loader = unittest.TestLoader()
    suite = driver.build_tests(
        str(folder), loader, url=url, test_loader_name=test_blazar_api.__name__, fixture_module=fixtures
    )
    results = Results()
    suite.run(results)
    sys.stdout.write(json.dumps(results.told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
