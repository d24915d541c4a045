"""Filters of system calls: they refuse what neither Landlock nor a namespace keeps from a program.

A keyring of the kernel belongs to a user number and outlives the user's processes, so the next program with the number
could read it. No program gets to keyrings.

Programs that run as the server's user share more with it. Landlock does not check the paths of UNIX sockets, so a
program could send commands to the monitor of a virtual machine. Any process of a user can set limits, priorities and
processors of the user's other processes: a limit of processor time would kill the server. Shared memory, semaphores and
message queues of a user are open to all of the user's processes. Older kernels do not check `truncate` either, and
`io_uring` bypasses filters. One limit of a program is the label by which its processes are found, so it stays as it is.
"""

import ctypes
import platform
import resource
import struct
from collections.abc import Iterator, Sequence

from stateward.workloads.confinement.syscalls import call, number_of

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
LOAD, AND, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT = 0, 4, 16, 24, 32
AF_UNIX, SOCK_DGRAM, SOCK_TYPES = 1, 2, 0xF
OTHER_INTERFACE = 0x40000000
"""From this number on, x86_64 has the same calls again, in the x32 ABI."""

LABEL_LIMIT = resource.RLIMIT_RTTIME
"""The limit that identifies the processes of a program; unlimited by default, and only real-time priorities use it."""

Step = tuple[int, int, int, int]


AUDIT_NUMBERS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The number of each architecture in the kernel's audit interface."""


KEYRING_CALLS = {0xC000003E: 248, 0x40000003: 286, 0xC00000B7: 217, 0x40000028: 309}
"""The first of `add_key`, `request_key` and `keyctl` by architecture: x86_64, i386, aarch64 and 32-bit ARM."""

SHARED = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
)  # fmt: skip
"""The calls of shared memory, semaphores and queues: also those that take an id, which a program could guess."""


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def refuse_reach() -> None:
    """Refuse calls that reach other processes and sockets, for this thread and the processes that it starts."""
    _install(list(_reach_steps()))


def refuse_keyrings() -> None:
    """Refuse the keyrings of the kernel, for this thread and the processes that it starts."""
    _install(list(_keyring_steps()))


def _install(steps: Sequence[Step]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    call(number_of("seccomp"), 1, 0, ctypes.byref(program), doing="seccomp")


def _keyring_steps() -> Iterator[Step]:
    """Check the number in the table of the calling program, which may be of 32 bits."""
    for architecture, first in KEYRING_CALLS.items():
        yield LOAD, 0, 0, ARCHITECTURE
        yield JUMP_IF_EQUAL, 0, 6, architecture
        yield LOAD, 0, 0, NUMBER
        yield AND, 0, 0, OTHER_INTERFACE - 1
        yield JUMP_IF_AT_LEAST, 0, 2, first
        yield JUMP_IF_AT_LEAST, 1, 0, first + 3
        yield RETURN, 0, 0, REFUSE
        yield RETURN, 0, 0, ALLOW
    yield RETURN, 0, 0, ALLOW


def _reach_steps() -> Iterator[Step]:
    yield LOAD, 0, 0, ARCHITECTURE
    yield JUMP_IF_EQUAL, 1, 0, AUDIT_NUMBERS[platform.machine()]  # other architectures have other numbers
    yield RETURN, 0, 0, REFUSE
    yield LOAD, 0, 0, NUMBER
    yield JUMP_IF_AT_LEAST, 0, 1, OTHER_INTERFACE
    yield RETURN, 0, 0, REFUSE
    for name in ("truncate", "io_uring_setup", "setpriority", "ioprio_set", *SHARED):
        yield from _when(name, (RETURN, 0, 0, REFUSE))
    yield from _when("setrlimit", (LOAD, 0, 0, FIRST_ARGUMENT), *_refuse_if(LABEL_LIMIT))
    yield from _when("prlimit64", *_own_limits_but_the_label())
    for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
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


def _own_limits_but_the_label() -> Iterator[Step]:
    """Allow the limits of the calling process (pid 0); the label can only be read: without a new limit."""
    yield LOAD, 0, 0, FIRST_ARGUMENT
    yield JUMP_IF_EQUAL, 0, 7, 0
    yield LOAD, 0, 0, SECOND_ARGUMENT
    yield JUMP_IF_EQUAL, 0, 4, LABEL_LIMIT
    yield LOAD, 0, 0, THIRD_ARGUMENT
    yield JUMP_IF_EQUAL, 0, 3, 0
    yield LOAD, 0, 0, THIRD_ARGUMENT + 4
    yield JUMP_IF_EQUAL, 0, 1, 0
    yield RETURN, 0, 0, ALLOW
    yield RETURN, 0, 0, REFUSE


def _refuse_if(value: int) -> tuple[Step, ...]:
    return (JUMP_IF_EQUAL, 0, 1, value), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)


def _when(name: str, *steps: Step) -> Iterator[Step]:
    """Apply some steps, which end with a verdict, to one system call; skip them for any other."""
    yield JUMP_IF_EQUAL, 0, len(steps), number_of(name)
    yield from steps
