"""OpenvCloud objects: one action at a time, durable queues, a recycle bin."""
