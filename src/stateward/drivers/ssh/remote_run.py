"""Runs: commands that a machine runs once, whatever becomes of the connection or of the process that asked for them.

A run has an id, and a folder of that name on the machine. Whoever can make the folder (`mkdir` is atomic) starts the
run; everybody else follows it. Output and exit statuses are files there, so the commands outlive the connection.

A run is ended by the tree of its processes, by a label in their environment, which descendants inherit even if their
parent has ended, and by its process group if the SSH server gives each session one of its own. It must not leave the
group of its session itself: a machine may be a process group.

All of this is one script for a POSIX shell, sent as its input. The script is a function that is called in its last
line: a part of it does nothing. A report is text between lines that begin with a mark that nobody can guess.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

FOLDER = ".stateward/runs"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
SMALL_NUMBER, SIZE = re.compile(r"[0-9]{1,3}\Z"), re.compile(r"[0-9]{1,15}\Z")
MAX_OUTPUT_BYTES = 65_536
"""How much of the end of each output a report has, unless the caller wants less."""

CHUNK_BYTES = 65_536
"""How much of an output one poll reads."""

KEPT_RUNS, KEPT_DAYS = 100, 8
"""A new run removes folders of older runs, if there are that many; a command has ended long before."""

MARK_OVERHEAD = 4_096
MAKE_BASE = '[ -d "$base" ] || mkdir -p -m 700 "$base"'


RUN_VARIABLE, SESSION_VARIABLE = "STATEWARD_RUN", "STATEWARD_SESSION"
"""The labels of processes: the run that they belong to, and the SSH session, if the server of the machine names it.

A shell that a command forks has the environment with which its own program was started, and so the label of the session
only.
"""

FIND_TREE = f"""
all=" $pid "; more=1
set -- -e "{RUN_VARIABLE}=$run/"
[ -z "$session" ] || set -- "$@" -e "{SESSION_VARIABLE}=$session"
for file in $(grep -lsF "$@" /proc/[0-9]*/environ 2>/dev/null); do
  one=${{file#/proc/}}; one=${{one%/environ}}
  [ "$one" = "$outer" ] || [ "$one" = "$$" ] || all="$all$one "
done
while [ $more = 1 ]; do
  more=0
  for file in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$file" || continue
    set -- "${{line%% *}}" ${{line##*) }}
    case "$all" in *" $1 "*) continue;; esac
    case "$all" in *" $3 "*) all="$all$1 "; more=1;; esac
  done
done
end_all() {{
  for one in $all; do kill -"$1" "$one" 2>/dev/null; done
  [ "$group" = 0 ] || kill -"$1" "-$group" 2>/dev/null
}}"""
"""Shell code that finds the processes of a run with all their descendants, and can send them a signal.

The shell that started the run (`outer`) waits for it and reports its end.
"""


class RunResult(Struct, frozen=True):
    """One command of a run: its output, and its exit status if it has ended.

    Of a long output it has the end; `stdout_cut` and `stderr_cut` are how many bytes are left out before that.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    status: int | None = None
    stdout_cut: int = 0
    stderr_cut: int = 0

    @property
    def written_bytes(self) -> int:
        """How much the command has written."""
        return len(self.stdout) + self.stdout_cut + len(self.stderr) + self.stderr_cut


class RunReport(Struct, frozen=True):
    """The report of a run: its commands in order, how it ended, and what the shell said before."""

    results: tuple[RunResult, ...]
    end: str
    trouble: str = ""


class OutputChunk(Struct, frozen=True):
    """New output of one command: what it wrote behind the offsets, and whether it has ended."""

    stdout: bytes
    stderr: bytes
    has_ended: bool


def new_mark() -> str:
    """Return a mark for one report."""
    return f"--{secrets.token_hex(12)}"


def most_bytes(commands: int, stream_bytes: int = MAX_OUTPUT_BYTES) -> int:
    """Return the largest size of a report."""
    return commands * 2 * (stream_bytes + 1) + MARK_OVERHEAD * (commands + 1)


def _beginning(run: str) -> str:
    if RUN_ID.match(run) is None:
        raise ValueError(f"a run cannot be called {run!r}")
    return f'base="${{HOME:-.}}/{FOLDER}"\nrun={run}\ndir="$base/{run}"\n'


def _function(lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return f"main() {{\nexec 2>&1\n{body}\n}}\nmain\n"


def start_script(
    run: str,
    commands: Sequence[str],
    secret_values: Mapping[str, str],
    mark: str,
    stream_bytes: int = MAX_OUTPUT_BYTES,
) -> str:
    """Return the script that starts a run, or follows it if it was started, and reports how it ended."""
    exports = [f"export {name}={quote(value)}" for name, value in secret_values.items()]
    lines = [
        _beginning(run),
        "trap '' HUP",
        MAKE_BASE,
        'if mkdir -m 700 "$dir" 2>/dev/null; then',
        *exports,
        f"({_runner(commands)}) </dev/null >/dev/null 2>&1 &",
        "wait $!",
        "else",
        f'[ -d "$dir" ] || {{ printf "\\n%s end refused\\n" {mark}; return; }}',
        "fi",
        _wait_for_end(),
        *_report(len(commands), mark, stream_bytes),
        _clean_up(),
    ]
    return _function(lines)


def _runner(commands: Sequence[str]) -> str:
    """Return the shell code that runs commands in order until one fails, in a subshell of the script.

    Each command has a subshell of its own, which is cheaper than another shell: starting programs is most of the work.
    """
    lines = [
        "read -r me rest </proc/self/stat",
        "set -- ${rest##*) }",  # behind the name of the program: its state, parent and group
        'group=0; [ "$3" = "$$" ] && group=$3',
        f'export {RUN_VARIABLE}="$run/"',  # no id has a slash, so that none is the beginning of another
        f'cd "${{HOME:-.}}"; echo "$me $group $$ ${{{SESSION_VARIABLE}:-}}" >"$dir/pid"',
    ]
    for number, command in enumerate(commands):
        lines += [
            f'(set --; eval {quote(command)}) >"$dir/{number}.out" 2>"$dir/{number}.err"',
            f's=$?; echo $s >"$dir/{number}.status"',
            '[ $s -eq 0 ] || { : >"$dir/done"; exit; }',
        ]
    return "\n".join([*lines, ': >"$dir/done"'])


def _wait_for_end() -> str:
    """Return the shell code that waits until a run has ended, or its process is gone, or it did not begin.

    A killed process stays as a zombie where the first process of a machine does not reap its children.
    """
    return """
n=0
while [ ! -e "$dir/done" ]; do
  if [ -s "$dir/pid" ]; then
    read pid group others <"$dir/pid"
    line=; { read -r line <"/proc/$pid/stat"; } 2>/dev/null
    case "${line##*) }" in Z*) pid=none;; esac
    kill -0 "$pid" 2>/dev/null || { [ -e "$dir/done" ] || break; }
  else
    n=$((n + 1)); [ $n -gt 25 ] && break
  fi
  sleep 0.2
done"""


def _report(commands: int, mark: str, stream_bytes: int) -> list[str]:
    lines = []
    for number in range(commands):
        lines += [
            f'if [ -e "$dir/{number}.out" ]; then',
            *(_tail(number, kind, mark, stream_bytes) for kind in ("out", "err")),
            f's=; [ -s "$dir/{number}.status" ] && read s <"$dir/{number}.status"',
            f'printf "\\n%s status {number} %s\\n" {mark} "$s"',
            "fi",
        ]
    ended = 'e=lost; [ -s "$dir/pid" ] && e=interrupted; [ -e "$dir/done" ] && e=done; [ -e "$dir/ended" ] && e=ended'
    return [*lines, ended, f'printf "\\n%s end %s\\n" {mark} "$e"']


def _tail(number: int, kind: str, mark: str, stream_bytes: int) -> str:
    """Return the shell code that reports the size of an output, and its end: up to that size, as it may still grow."""
    file = f'"$dir/{number}.{kind}"'
    end = f"tail -c +$((n > {stream_bytes} ? n - {stream_bytes} + 1 : 1)) {file} | head -c {stream_bytes}"
    size = f"n=0; [ -s {file} ] && n=$(($(wc -c <{file})))"
    return f'{size}; printf "\\n%s {kind} {number} $n\\n" {mark}; [ $n = 0 ] || {end}'


def _clean_up() -> str:
    return f"""
set -- "$base"/*
[ $# -gt {KEPT_RUNS} ] && find "$base" -mindepth 1 -maxdepth 1 -mtime +{KEPT_DAYS} -exec rm -rf {{}} + 2>/dev/null
:"""


def end_script(run: str, mark: str) -> str:
    """Return the script that ends a run with all its processes, and keeps one from starting that has not begun."""
    return _function(
        [
            _beginning(run),
            MAKE_BASE,
            'if mkdir -m 700 "$dir" 2>/dev/null; then',
            ': >"$dir/ended"; : >"$dir/done"',
            f'printf "\\n%s end never\\n" {mark}; return',
            "fi",
            f'[ -e "$dir/done" ] && {{ printf "\\n%s end done\\n" {mark}; return; }}',
            ': >"$dir/ended"',
            "n=0",
            'while [ ! -s "$dir/pid" ] && [ $n -lt 10 ]; do n=$((n + 1)); sleep 0.1; done',
            'if [ -s "$dir/pid" ]; then',
            'read pid group outer session <"$dir/pid"',
            FIND_TREE,
            "end_all TERM; n=0",
            'while kill -0 "$pid" 2>/dev/null && [ $n -lt 20 ]; do n=$((n + 1)); sleep 0.1; done',
            "end_all KILL",
            "fi",
            ': >"$dir/done"',
            f'printf "\\n%s end ended\\n" {mark}',
        ]
    )


def poll_script(run: str, number: int, stdout: int, stderr: int, mark: str) -> str:
    """Return the script that reads what a command has written behind two offsets."""
    lines = [_beginning(run), f's=no; [ -s "$dir/{number}.status" ] && s=yes']
    for kind, offset in (("out", stdout), ("err", stderr)):
        read = f'tail -c +{offset + 1} "$dir/{number}.{kind}" | head -c {CHUNK_BYTES}'
        lines.append(f'printf "\\n%s {kind} {number}\\n" {mark}; [ -s "$dir/{number}.{kind}" ] && {read}')
    return _function([*lines, f'printf "\\n%s end %s\\n" {mark} "$s"'])


def read_chunk(report: bytes, mark: str) -> OutputChunk:
    """Read the answer to a poll."""
    parts, end, _ = _parts(report, mark)
    streams = {kind: content for kind, _, _, content in parts}
    return OutputChunk(streams.get("out", b""), streams.get("err", b""), end == "yes")


def read_report(report: bytes, commands: int, mark: str, stream_bytes: int = MAX_OUTPUT_BYTES) -> RunReport:
    """Read a report; one without an end is an error, because the shell was cut off."""
    parts, end, trouble = _parts(report, mark)
    results: dict[int, RunResult] = {}
    for kind, number, value, content in parts:
        if number is None or number >= commands:
            continue
        was = results.get(number, RunResult())
        if kind == "status":
            results[number] = replace(was, status=_small_number(value))
        else:
            kept = content[-stream_bytes:]
            cut = max(0, (int(value) if SIZE.match(value) else len(content)) - len(kept))
            streams = {"stdout": kept, "stdout_cut": cut} if kind == "out" else {"stderr": kept, "stderr_cut": cut}
            results[number] = replace(was, **streams)
    return RunReport(tuple(results[number] for number in sorted(results)), end, trouble)


def _parts(report: bytes, mark: str) -> tuple[list[tuple[str, int | None, str, bytes]], str, str]:
    """Return the parts of a report (kind, number, value, content), its end, and the text before the first mark."""
    first, *pieces = report.split(f"\n{mark} ".encode())
    parts: list[tuple[str, int | None, str, bytes]] = []
    end = ""
    for piece in pieces:
        head, _, content = piece.partition(b"\n")
        kind, _, rest = head.decode(errors="replace").partition(" ")
        if kind == "end":
            end = rest.strip()
            continue
        number, _, value = rest.partition(" ")
        parts.append((kind, _small_number(number), value.strip(), content))
    return parts, end, first.decode(errors="replace").strip()


def _small_number(text: str) -> int | None:
    """Return a number of at most three digits: the machine writes the text, and `int` fails on thousands of digits."""
    return int(text) if SMALL_NUMBER.match(text) else None


def copy_script(path: str, name: str, mode: str = "") -> str:
    """Return the command that writes its input to a path of a machine at once, or into the folder of that path.

    With a mode, the file has these permissions (octal digits), and nobody else can read it before that.
    """
    begin, end = ("umask 077; ", f'chmod {quote(mode)} "$t" && ') if mode else ("", "")
    code = f"""p={quote(path)}; n={quote(name)}
case "$p" in */) p="$p$n";; *) [ -d "$p" ] && p="$p/$n";; esac
case "$p" in /*) ;; *) p="./$p";; esac
t="$p.stateward-$$"
{begin}cat >"$t" && {end}mv -f -- "$t" "$p" || {{ s=$?; rm -f -- "$t"; exit $s; }}"""
    return f"exec /bin/sh -c {quote(code)}"
