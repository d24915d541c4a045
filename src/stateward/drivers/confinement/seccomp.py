"""A filter of system calls, for what Landlock does not see where a program runs as the same user as the server.

Sockets of the UNIX kind are connected to by their path, which Landlock does not check: the monitor of a virtual machine
would obey. Limits, priorities and processors of a process can be set by any process of its user: a limit of processor
time would end the server. Older kernels do not check `truncate` either, and `io_uring` goes around filters.
"""

import ctypes
import platform
import struct
from collections.abc import Iterator

from msgspec import Struct

from stateward.drivers.confinement.syscalls import call, numbers

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
AF_UNIX, SOCK_DGRAM, SOCK_TYPES = 1, 2, 0xF
OTHER_INTERFACE = 0x40000000
"""From this number on x86_64 has the same calls once more, under another convention (x32)."""

Step = tuple[int, int, int, int]


class Filtered(Struct, frozen=True):
    """The numbers of the calls that are filtered on one architecture, and the architecture's own."""

    audit: int
    socket: int
    socketpair: int
    truncate: int
    setpriority: int
    ioprio_set: int
    prlimit64: int
    sched_setaffinity: int
    sched_setscheduler: int
    sched_setparam: int
    sched_setattr: int
    io_uring_setup: int = 425


FILTERED = {
    #                   audit       socket  pair  truncate  setprio  ioprio  prlimit  affinity  scheduler  param  attr
    "x86_64":  Filtered(0xC000003E, 41,     53,   76,       141,     251,    302,     203,      144,       142,   314),
    "aarch64": Filtered(0xC00000B7, 198,    199,  45,       140,     30,     261,     122,      119,       118,   274),
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install() -> None:
    """Refuse this thread, and what it starts, the calls that reach processes and sockets outside."""
    steps = list(_steps(FILTERED[platform.machine()]))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    call(numbers().seccomp, 1, 0, ctypes.byref(program), doing="seccomp")


def _steps(known: Filtered) -> Iterator[Step]:
    yield LOAD, 0, 0, ARCHITECTURE
    yield JUMP_IF_EQUAL, 1, 0, known.audit  # a call of another architecture has other numbers
    yield RETURN, 0, 0, REFUSE
    yield LOAD, 0, 0, NUMBER
    yield JUMP_IF_AT_LEAST, 0, 1, OTHER_INTERFACE
    yield RETURN, 0, 0, REFUSE
    for number in (known.truncate, known.io_uring_setup, known.setpriority, known.ioprio_set):
        yield from _when(number, (RETURN, 0, 0, REFUSE))
    for number in (known.prlimit64, known.sched_setaffinity, known.sched_setscheduler, known.sched_setparam):
        yield from _own_only(number)
    yield from _own_only(known.sched_setattr)
    yield from _when(known.socket, (LOAD, 0, 0, FIRST_ARGUMENT), *_refuse_if(AF_UNIX))
    # Two sockets of a pair reach each other alone, unless they send datagrams: those can be sent to any path.
    kind = (LOAD, 0, 0, SECOND_ARGUMENT), (AND, 0, 0, SOCK_TYPES)
    yield from _when(known.socketpair, *kind, *_refuse_if(SOCK_DGRAM))
    yield RETURN, 0, 0, ALLOW


def _own_only(number: int) -> Iterator[Step]:
    """Allow a call about the calling process (0), and refuse it about any other."""
    own = (JUMP_IF_EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)
    yield from _when(number, (LOAD, 0, 0, FIRST_ARGUMENT), *own)


def _refuse_if(value: int) -> tuple[Step, ...]:
    return (JUMP_IF_EQUAL, 0, 1, value), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)


def _when(number: int, *steps: Step) -> Iterator[Step]:
    """Do some steps, which end with a verdict, for a call of this number; pass on any other."""
    yield JUMP_IF_EQUAL, 0, len(steps), number
    yield from steps
