"""The limit on open files of a process, which is also the limit on its connections.

Login shells allow 1,024, which a thousand agents or open consoles exceed; the hard limit is usually far higher.
"""

import resource

WANTED_OPEN_FILES = 65_536
"""Not the hard limit, which may be a billion: some programs that drivers start close that many files one by one."""


def raise_open_file_limit() -> None:
    """Allow this process, and those that it starts, as many open files as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
