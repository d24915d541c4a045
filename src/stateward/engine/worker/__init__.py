"""The worker: claims, prefetching, attempts, the lease, due times."""
