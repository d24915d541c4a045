"""Guards: checks inside the transaction that accepts a request."""
