"""What all tests share: a real PostgreSQL for those that ask for it."""

from tests.servers import postgres_server

__all__ = ["postgres_server"]
