"""Declared health probes of apps: what an agent asks an app, how often, and how many failures in a row count."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from stateward.validation_texts import describe_pattern

PROBE_PATH = describe_pattern(r"^/[!-~]*\Z", "a path such as /healthy, of visible ASCII characters without spaces")
Port = Annotated[int, Meta(ge=1, le=65535)]
ProbeSeconds = Annotated[float, Meta(ge=0.1, le=3600)]
Threshold = Annotated[int, Meta(ge=1, le=100)]
ProbePath = Annotated[str, Meta(min_length=1, max_length=1000, pattern=PROBE_PATH)]
ProbeCommand = Annotated[str, Meta(min_length=1, max_length=4000)]


class HttpProbe(Struct, frozen=True, tag="http", tag_field="type"):
    """A GET request to the app; an answer from 200 to 399 is a success."""

    port: Port
    path: ProbePath = "/"
    interval_s: ProbeSeconds = 10.0
    timeout_s: ProbeSeconds = 5.0
    threshold: Threshold = 3


class TcpProbe(Struct, frozen=True, tag="tcp", tag_field="type"):
    """A connection to the app; it is closed at once."""

    port: Port
    interval_s: ProbeSeconds = 10.0
    timeout_s: ProbeSeconds = 5.0
    threshold: Threshold = 3


class CommandProbe(Struct, frozen=True, tag="command", tag_field="type"):
    """A command where the app runs; the exit code 0 is a success."""

    command: ProbeCommand
    interval_s: ProbeSeconds = 10.0
    timeout_s: ProbeSeconds = 5.0
    threshold: Threshold = 3


Probe: TypeAlias = HttpProbe | TcpProbe | CommandProbe
"""The health changes after `threshold` equal results in a row, in both directions: one result alone may be chance."""
