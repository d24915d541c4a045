"""The sites of edge agents: clusters and apps as processes, and as containers."""
