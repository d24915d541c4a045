"""The end of an app's output, as one line for an error."""

from collections.abc import Collection

MAX_OUTPUT_LINES, MAX_OUTPUT_CHARS = 5, 500
"""Limits on the output of a failed app in its error."""


def last_output(text: str, beginnings: Collection[str]) -> str:
    """Return the last lines of a log after a start line, as one short line without control characters."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line in beginnings), -1)
    plain = ("".join(char for char in line if char.isprintable()).strip() for line in lines[begin + 1 :])
    return " | ".join([line for line in plain if line and line not in beginnings][-MAX_OUTPUT_LINES:])[
        -MAX_OUTPUT_CHARS:
    ]
