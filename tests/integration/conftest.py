"""What the tests on a real PostgreSQL share."""

from tests.servers import postgres_dsn

__all__ = ["postgres_dsn"]
