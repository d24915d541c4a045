"""The HTTP API of the ovc domain, under `/api/v1/ovc/NAMESPACE`."""
