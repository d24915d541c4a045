"""The test kit: an engine in virtual time, crashes at every point, random workloads with faults, and model checking."""
