"""Live updates: the feed of the journal, its WebSocket stream, and the followers of operations."""
