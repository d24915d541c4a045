"""What all tests share: a real PostgreSQL for those that ask for it."""

from hypothesis import settings

from tests.servers import postgres_server

# How long an example takes depends on what else the machine does: no test is to fail by that.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

__all__ = ["postgres_server"]
