"""A filter of system calls, for what Landlock does not see where a program runs as the same user as the server.

Sockets of the UNIX kind are connected to by their path, which Landlock does not check: the monitor of a virtual machine
would obey. Older kernels do not check `truncate` either, and `io_uring` goes around filters.
"""

import ctypes
import struct

from stateward.drivers.confinement.syscalls import IO_URING_SETUP, call, numbers

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 13  # EACCES
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
AF_UNIX = 1


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install() -> None:
    """Refuse this thread, and what it starts, to open UNIX sockets, to truncate by path, and to use io_uring."""
    known = numbers()
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 7, known.audit),  # a call of another architecture has other numbers
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 5, 0, known.truncate),
        (JUMP_IF_EQUAL, 4, 0, IO_URING_SETUP),
        (JUMP_IF_EQUAL, 0, 2, known.socket),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 1, 0, AF_UNIX),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    call(known.seccomp, 1, 0, ctypes.byref(program), doing="seccomp")
