#!/usr/bin/env python3
"""Run the program that CHROMIUM names, unable to notice changes of the host's network.

Chromium ends the requests that wait for a connection when an interface or an address of the host changes, whether they
use it or not (ERR_NETWORK_CHANGED). Containers and network namespaces of other tests cause such changes all the time.
Chromium learns of them from netlink sockets and works without them, so a seccomp filter refuses these.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Where a call's number, architecture and first argument are."""
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
AF_NETLINK = 16
SOCKET_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The architecture and the number of `socket`, by machine."""


def refuse_netlink(architecture: int, socket_call: int) -> None:
    """Refuse netlink sockets to this process and all that it starts."""
    program = (
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 5, architecture),
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 0, 3, socket_call),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, AF_NETLINK),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    )
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    filter_ = ctypes.create_string_buffer(struct.pack("H6xP", len(program), ctypes.addressof(instructions)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")


if __name__ == "__main__":
    if sys.platform == "linux" and platform.machine() in SOCKET_CALLS:
        refuse_netlink(*SOCKET_CALLS[platform.machine()])
    os.execv(os.environ["CHROMIUM"], [os.environ["CHROMIUM"], *sys.argv[1:]])
