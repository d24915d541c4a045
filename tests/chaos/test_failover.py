"""PostgreSQL with real failover: the primary's machine dies under a deployment at work.

The suite tests what chooses a host (tests/unit/store/test_failover.py) and lets a server die and come back
(test_chaos_postgres.py).
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

import pytest

from tests.chaos.processes import ROOT
from tests.long_forms import in_long_form
from tests.rehearsal.required_programs import missing


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(600)
@pytest.mark.parametrize("agents", in_long_form([10, 100], short=[]))
async def test_two_servers_three_workers_and_their_agents_survive_the_death_of_the_primary(
    say: Callable[[object], None], agents: int
) -> None:
    # Not in this test's own folder: every run of pytest closes those to others, and PostgreSQL is not run by root.
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rehearsal", "--short", f"--agents={agents}",
        cwd=ROOT, env=os.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # it leaves nothing behind
            await process.wait()
    say(f"failover: {said}")
    assert process.returncode == 0, said
