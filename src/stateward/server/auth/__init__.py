"""Authentication, authorization, rate limits and the audit log of the server."""
