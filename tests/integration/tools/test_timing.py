"""The check that refuses tests which depend on the speed of the machine."""

import pytest

from tools.timing import violations


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.sleep(0.1)",
        "time.sleep(delay)",
        "sleep(self.latency)",
        "chance = Random()",
        "port = free_port()",
        "engine = Engine(store, lease_s=3.0)",
        "LEASE = 1.5",
        "def opened(*, lease: float = 3.0): ...",
        "for number in range(3):\n        time.sleep(0.1 * number)",
        "while True:\n        def later():\n            time.sleep(1)",
    ],
)
def test_what_depends_on_the_machine_is_refused_without_a_reason(line: str) -> None:
    (found,) = violations(f"async def test_it():\n    {line}\n")
    lines = f"async def test_it():\n    {line}\n".split("\n")
    lines[found[0] - 1] += "  # real time: only it shows this"
    assert list(violations("\n".join(lines))) == []


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.sleep(0)",
        "await asyncio.sleep(3600)",
        "await job.sleep(0.5, step='rest')",
        "while not done():\n        time.sleep(0.01)",
        "for pause_s in pauses():\n        if done():\n            break\n        time.sleep(pause_s)",
        "chance = Random(seed)",
        "engine = Engine(store, lease_s=15.0)",
        "worker = a_worker(lease=-1.0)",
        "time.sleep(0.1)  # real time: nothing happens meanwhile",
    ],
)
def test_waits_for_conditions_and_reasons_are_accepted(line: str) -> None:
    assert list(violations(f"async def test_it():\n    {line}\n")) == []


def test_a_reason_for_the_whole_file_exempts_pauses_and_leases_only() -> None:
    source = "# real time: kills come at any time\nLEASE = 1.5\ntime.sleep(1)\nchance = Random()\n"
    assert [line for line, _ in violations(source)] == [4]


def test_virtual_time_needs_no_reasons() -> None:
    assert list(violations("from stateward.testing import simulate\nasyncio.sleep(5.0)\n")) == []
