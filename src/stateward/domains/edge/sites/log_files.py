"""Logs in files of a node: scripts that the node runs to read a part of one, or to bound them, and their results.

The node reads the file, not the agent: the app owns it, and may have replaced it with a link. A cursor is an offset in
bytes. A file that has become shorter was emptied: after the rest of its copy, it is read from its beginning.
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
        'if [ "$begin" -gt "$size" ]; then\n'
        '  old=0; [ ! -f "$file.old" ] || old=$(wc -c <"$file.old")\n'
        '  if [ "$begin" -lt "$old" ]; then file=$file.old size=$old next=0; else begin=0; fi\n'
        "fi\n"
        f"end=$((size - begin > {most} ? begin + {most} : size))\n"
        '[ "$end" = "$size" ] && echo "${next-$end}" || echo "$end"\n'
        'tail -c +$((begin + 1)) "$file" | head -c $((end - begin))\n'
    )


def emptying_script(files: str, limit: int) -> str:
    """Return a script that copies and empties each log that is longer, while its processes write.

    Each of their writes appends to what there is.
    """
    return (
        f"for file in {files}; do\n"
        '  [ -f "$file" ] && [ "$(wc -c <"$file")" -gt ' + str(limit) + " ] || continue\n"
        '  cp -f "$file" "$file.copy" && mv -f "$file.copy" "$file.old" && : >"$file"\n'
        "done\n"
    )


def read_log_parts(printed: str) -> list[LogPart]:
    """Read what the script has printed; an app that has written nothing yet has no part."""
    end, _, text = printed.partition("\n")
    return [LogPart(LOG_PART, text, str(int(end)))] if end else []
