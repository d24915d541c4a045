"""Reports of runs are text that a machine writes: whatever it is, it can be read."""

import pytest

from stateward.drivers.ssh.remote_run import RunResult, read_report

MARK = "--mark"


@pytest.mark.parametrize("status", ["9" * 5_000, "9" * 4_200, "1000", "-1", "+1", "\u0661", "1_0", "", "x"])
def test_an_exit_status_that_is_no_number_of_three_digits_is_unknown(status: str) -> None:
    report = f"\n{MARK} out 0\nhi\n{MARK} status 0 {status}\n\n{MARK} end done\n".encode()
    assert read_report(report, 1, MARK).results == (RunResult(b"hi"),)


def test_the_parts_of_unknown_commands_are_ignored() -> None:
    report = f"\n{MARK} out {'9' * 5_000}\nhi\n{MARK} status 1 0\n\n{MARK} status 0 7\n\n{MARK} end done\n".encode()
    assert read_report(report, 1, MARK).results == (RunResult(status=7),)
