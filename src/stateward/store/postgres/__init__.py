"""The store on PostgreSQL: any number of processes on one database."""

from stateward.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
