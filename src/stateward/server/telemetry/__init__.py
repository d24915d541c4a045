"""Telemetry: metrics, traces and logs of a server process."""
