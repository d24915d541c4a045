"""The programs of simulated containers: what a command would write and how it would end.

They behave like the programs of the same name as far as the tests and the demonstration use them. A program that is
not known runs until it is stopped, as a server does.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.containers.container_records import LogChunk, LogStream


class ProgramRun(Struct, frozen=True):
    """The run of a program: its output, and its exit code after some seconds; None: it runs until it is stopped."""

    output: tuple[LogChunk, ...] = ()
    exit_code: int | None = None
    seconds: float = 0.0


class ProgramInput(Struct, frozen=True):
    """What a program finds: its arguments, its environment and the files of its container."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}


Program = Callable[[ProgramInput], ProgramRun]


def stdout(data: bytes) -> LogChunk:
    """Return output on stdout."""
    return LogChunk(LogStream.STDOUT, data)


def stderr(data: bytes) -> LogChunk:
    """Return output on stderr."""
    return LogChunk(LogStream.STDERR, data)


def _echo(given: ProgramInput) -> ProgramRun:
    return ProgramRun((stdout(f"{' '.join(given.argv[1:])}\n".encode()),), 0)


def _cat(given: ProgramInput) -> ProgramRun:
    chunks = []
    for path in given.argv[1:]:
        missing = stderr(f"cat: can't open '{path}': No such file or directory\n".encode())
        chunks.append(stdout(given.files[path]) if path in given.files else missing)
    return ProgramRun(tuple(chunks), int(any(path not in given.files for path in given.argv[1:])))


def _env(given: ProgramInput) -> ProgramRun:
    return ProgramRun((stdout("".join(f"{name}={value}\n" for name, value in given.env.items()).encode()),), 0)


def _sleep(given: ProgramInput) -> ProgramRun:
    return ProgramRun((), 0, float(given.argv[1]))


def _sh(given: ProgramInput) -> ProgramRun:
    """Run one plain command, as in `sh -c "echo hello"`; `exit` is one of the shell's own."""
    words = shlex.split(given.argv[2])
    if words[:1] == ["exit"]:
        return ProgramRun((), int(words[1]))
    return run_program(replace(given, argv=words))


PROGRAMS: Mapping[str, Program] = {
    "cat": _cat,
    "echo": _echo,
    "env": _env,
    "false": lambda _: ProgramRun((), 1),
    "sh": _sh,
    "sleep": _sleep,
    "true": lambda _: ProgramRun((), 0),
}


def run_program(given: ProgramInput, programs: Mapping[str, Program] = PROGRAMS) -> ProgramRun:
    """Return the run of a container's first program."""
    program = programs.get(given.argv[0].rpartition("/")[2]) if given.argv else None
    return program(given) if program else ProgramRun()
