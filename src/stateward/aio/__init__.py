"""Asyncio building blocks that know nothing of Stateward: back-off, batches, supervision, polling, token buckets."""
