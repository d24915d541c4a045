"""Fixtures of all tests: a real PostgreSQL for those that ask for it."""

from hypothesis import settings

from stateward.aio.open_files import raise_open_file_limit
from tests.poolers import pgbouncer
from tests.servers import postgres_server
from tools.reaper import restore_signals

# How long an example takes depends on what else the machine does: no test is to fail by that.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

restore_signals()
raise_open_file_limit()  # a test may hold a thousand connections

__all__ = ["pgbouncer", "postgres_server"]
