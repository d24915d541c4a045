"""A filter of system calls, for programs that run as the server's user: it refuses what Landlock does not check.

Landlock does not check the paths of UNIX sockets, so a program could send commands to the monitor of a virtual machine.
Any process of a user can set limits, priorities and processors of the user's other processes: a limit of processor time
would kill the server. Older kernels do not check `truncate` either, and `io_uring` bypasses filters.
"""

import ctypes
import platform
import struct
from collections.abc import Iterator

from stateward.drivers.confinement.syscalls import call, number_of

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
AF_UNIX, SOCK_DGRAM, SOCK_TYPES = 1, 2, 0xF
OTHER_INTERFACE = 0x40000000
"""From this number on, x86_64 has the same calls again, in the x32 ABI."""

Step = tuple[int, int, int, int]


AUDIT_NUMBERS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The number of each architecture in the kernel's audit interface."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install() -> None:
    """Refuse calls that reach other processes and sockets, for this thread and the processes that it starts."""
    steps = list(_steps())
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    call(number_of("seccomp"), 1, 0, ctypes.byref(program), doing="seccomp")


def _steps() -> Iterator[Step]:
    yield LOAD, 0, 0, ARCHITECTURE
    yield JUMP_IF_EQUAL, 1, 0, AUDIT_NUMBERS[platform.machine()]  # other architectures have other numbers
    yield RETURN, 0, 0, REFUSE
    yield LOAD, 0, 0, NUMBER
    yield JUMP_IF_AT_LEAST, 0, 1, OTHER_INTERFACE
    yield RETURN, 0, 0, REFUSE
    for name in ("truncate", "io_uring_setup", "setpriority", "ioprio_set"):
        yield from _when(name, (RETURN, 0, 0, REFUSE))
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        yield from _own_only(name)
    yield from _when("socket", (LOAD, 0, 0, FIRST_ARGUMENT), *_refuse_if(AF_UNIX))
    # The two sockets of a pair reach only each other, unless they send datagrams: those can go to any path.
    kind = (LOAD, 0, 0, SECOND_ARGUMENT), (AND, 0, 0, SOCK_TYPES)
    yield from _when("socketpair", *kind, *_refuse_if(SOCK_DGRAM))
    yield RETURN, 0, 0, ALLOW


def _own_only(name: str) -> Iterator[Step]:
    """Allow a call on the calling process (pid 0), and refuse it on any other."""
    own = (JUMP_IF_EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)
    yield from _when(name, (LOAD, 0, 0, FIRST_ARGUMENT), *own)


def _refuse_if(value: int) -> tuple[Step, ...]:
    return (JUMP_IF_EQUAL, 0, 1, value), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)


def _when(name: str, *steps: Step) -> Iterator[Step]:
    """Apply some steps, which end with a verdict, to one system call; skip them for any other."""
    yield JUMP_IF_EQUAL, 0, len(steps), number_of(name)
    yield from steps
