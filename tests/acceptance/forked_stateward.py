"""`stateward` for a shell: the fork server of the tests runs the command, and no new interpreter loads the program.

A server is executed, because a page may kill it, and so is a command that reads what is piped to it, or that lists
what is installed: a page may have installed something.
"""

import json
import os
import socket
import sys

PROGRAM, FORK_SERVER = os.environ["FORKED_PROGRAM"], int(os.environ["FORK_SERVER"])
if {"serve", "secret", "plugins"} & set(sys.argv):
    os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
command = {"arguments": [PROGRAM, *sys.argv[1:]], "environ": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 - starts faster
server = socket.socket(fileno=FORK_SERVER)
socket.send_fds(server, [json.dumps(command).encode()], [1, 2, theirs.fileno()])
theirs.close()
ours.recv(100)  # its number
sys.exit(int(ours.recv(100)))
