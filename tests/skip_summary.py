"""One summary at the end of a run: how many tests were skipped, and which packages and rights they need."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from shutil import which

import pytest

from tools.setup import PROGRAMS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary, if anything was skipped."""
    reasons = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section(f"{reasons.total()} skipped: what is missing here")
        for line in describe(reasons, missing_packages(), is_root=os.geteuid() == 0):
            terminalreporter.line(line)


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def missing_packages() -> list[str]:
    """Return the Debian packages that tests use and that are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return sorted({package for program, package in PROGRAMS.items() if which(program, path=path) is None})


def describe(reasons: Counter[str], packages: Iterable[str], *, is_root: bool) -> Iterator[str]:
    """Yield the lines of the summary."""
    if names := " ".join(packages):
        yield f"packages: apt-get install {names} (`make test` installs them for root)"
    if not is_root:
        yield "rights: root, for programs of other users, real containers, network namespaces and mounts"
    for reason, number in reasons.most_common():
        yield f"{number:5} {reason}"
