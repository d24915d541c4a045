"""Logs in files of a node: the script that the node runs to read a part of one, and its result.

The node reads the file, not the agent: the app owns it, and may have replaced it with a link. A cursor is an offset in
bytes. A file that has become shorter is read from its beginning.
"""

from shlex import quote

from stateward.agents.messages import LogPart

LOG_PART = "log"


def log_script(file: str, after: str, most: int) -> str:
    """Return a script that prints the cursor of what comes next, and a part of a file: after a cursor, or its end."""
    if after and not (after.isascii() and after.isdecimal() and len(after) <= 18):
        raise ValueError(f"{after!r} is not the cursor of an earlier answer")
    begin = after or f"$((size > {most} ? size - {most} : 0))"
    return (
        f"file={quote(file)}\n"
        '[ -f "$file" ] || exit 0\n'
        'size=$(wc -c <"$file")\n'
        f"begin={begin}\n"
        '[ "$begin" -le "$size" ] || begin=0\n'
        f"end=$((size - begin > {most} ? begin + {most} : size))\n"
        "echo $end\n"
        'tail -c +$((begin + 1)) "$file" | head -c $((end - begin))\n'
    )


def read_log_parts(printed: str) -> list[LogPart]:
    """Read what the script has printed; an app that has written nothing yet has no part."""
    end, _, text = printed.partition("\n")
    return [LogPart(LOG_PART, text, str(int(end)))] if end else []
