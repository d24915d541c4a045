"""Confinement of the programs that the server starts on this host: they cannot reach the server's files or processes.

The machines of the process driver, the services of local systems and the apps of edge agents run programs of tenants.
Unconfined, such a program could read the server's data folder, tokens and environment, and could kill the server.

If the server is root, a program gets its own user, no capabilities, its own shared memory, and a mount namespace in
which its folder has a fixed path and the server's folders are hidden. Otherwise it runs as the server's user: Landlock
restricts it to the system's programs and its own folders, and seccomp refuses what reaches other processes. A thread
confines itself and then starts the program. That is cheap, because it needs no second interpreter and no copy of the
server's memory.

A program that cannot be confined is not started.
"""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from stateward.config import Config
from stateward.workloads.confinement import landlock, seccomp, secret_files, syscalls
from stateward.workloads.confinement.uids import UidClaims, uid_range

T = TypeVar("T")

DEFAULT_UIDS = "70000-79999"
"""The default user numbers of programs: above those of accounts, below those of containers."""

RUN = Path("/run/stateward")
HOME, EMPTY, SECRETS = RUN / "home", RUN / "empty", RUN / "secrets"
"""In a mount namespace: the program's own folder, the empty folder that covers ours, and the files with secrets."""

PATH = "/usr/local/bin:/usr/bin:/bin"
"""The PATH of programs. The server's own may contain folders that they cannot read, or that others can write to."""

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each program has its own
PREFIXES = ("/", "/usr", "/usr/local", sys.prefix, sys.base_prefix)
PROGRAM_FOLDERS = (
    "bin", "games", "include", "lib", "lib32", "lib64", "libexec", "libx32", "pyvenv.cfg", "sbin", "share",
)  # fmt: skip
"""Where programs are installed, and the folders that they have there."""

SYSTEM = (
    "/proc", "/sys",
    *(f"/etc/{name}" for name in (
        "alternatives", "ca-certificates", "gai.conf", "group", "host.conf", "hosts", "inputrc", "ld.so.cache",
        "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release",
        "passwd", "profile", "protocols", "resolv.conf", "services", "shells", "ssl/cert.pem", "ssl/certs",
        "ssl/openssl.cnf", "terminfo", "timezone",
    )),
    "/run/systemd/resolve", "/run/resolvconf",
)  # fmt: skip
"""Further paths that a program may read as the server's user.

File modes protect nothing from a program that has the server's user. So it gets folders in which nobody keeps secrets,
and neither all of /etc nor /opt or /usr/local/etc, where files of the server may be that only its user can read.
"""

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"))


class Sandbox(Struct, frozen=True):
    """The folder of a program, the paths in it that it may change, its working directory, and its own user, if any.

    `files` are secret files for the program, by name.
    """

    folder: Path
    writable: tuple[str, ...] = ("work", "tmp")
    work_dir: str = "work"
    uid: int | None = None
    files: Mapping[str, str] = {}

    @property
    def secrets_dir(self) -> Path:
        """The path of the secret files for the program."""
        return secret_files.host_dir(self.folder) if self.uid is None else SECRETS

    @property
    def home(self) -> Path:
        """The path of the folder for the program."""
        return self.folder if self.uid is None else HOME

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the program; it inherits only the language and the time zone."""
        passed = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
        own = {"PATH": PATH, "HOME": str(self.home / self.work_dir), "TMPDIR": str(self.home / "tmp")}
        return passed | own


class ConfinementFailed(PermissionError):
    """A program cannot be confined here, so it is not started."""

    def __init__(self, why: object) -> None:
        super().__init__(f"a program of this host cannot be confined: {why} (setting confinement)")


def _confinement_error(error: OSError) -> OSError:
    """Return the error of a program that was not started: another attempt can succeed where files or memory ran out."""
    is_shortage = error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
    return OSError(error.errno, str(error.strerror)) if is_shortage else ConfinementFailed(error)


class Confinement:
    """Starts confined programs; `hidden` are the server's own paths, and `readable` further paths for the programs."""

    def __init__(
        self,
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        uids: str = DEFAULT_UIDS,
        *,
        required: bool = True,
    ) -> None:
        self._hidden = tuple(path.resolve() for path in hidden)
        self._readable, self._required = tuple(readable), required
        self._uids = UidClaims(uid_range(uids))

    def hiding(self, *paths: Path) -> "Confinement":
        """Return a copy that hides further paths."""
        other = Confinement((*self._hidden, *paths), self._readable, required=self._required)
        other._uids = self._uids
        return other

    def create_sandbox(self, folder: Path, changes: tuple[str, ...] = ("work", "tmp")) -> Sandbox:
        """Create a program's folders, and claim a user for it if the server is root."""
        for name in ("work", "tmp"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        if not self._required or not _is_root():
            return Sandbox(folder, changes)
        try:
            for path in (RUN, HOME, EMPTY, SECRETS):
                path.mkdir(exist_ok=True)
                path.chmod(0o755)  # regardless of our umask
            uid = self._uids.claim(folder)
        except OSError as error:
            raise _confinement_error(error) from error
        folder.chmod(0o711)
        for name in changes:
            _change_owner(folder / name, uid)
        return Sandbox(folder, changes, uid=uid)

    @staticmethod
    def write_secret_files(box: Sandbox) -> None:
        """Write the secret files of a program that is to be started, if it sees the folders of the host."""
        if box.files and box.uid is None:
            secret_files.write_files(box.secrets_dir, box.files)

    @staticmethod
    def remove_secret_files(folder: Path) -> None:
        """Remove the secret files of a program that has ended."""
        secret_files.remove_files(folder)

    def run(self, box: Sandbox, start: Callable[[], T]) -> T:
        """Call a function that starts a program, in a confined thread."""
        if not self._required:
            return start()

        def confined() -> T:
            try:
                self._enter(box)
            except OSError as error:
                raise _confinement_error(error) from error
            return start()

        return syscalls.run_in_new_thread(confined, "starts a program")

    def folder_problem(self, folder: Path) -> str:
        """Return what a folder must be for a program to use it as its own; empty if it can, as far as is known now.

        Of what no confined program may see, the answer does not tell whether it is there.
        """
        if not folder.is_absolute():
            return "an absolute path"
        try:
            seen = folder.resolve()
            nearest = next(path for path in (seen, *seen.parents) if path.is_dir())
            if self._required and not self._can_enter(nearest):
                return "readable by everybody, or named in the setting machine_paths"
            return "" if folder.resolve(strict=True).is_dir() else "a folder"
        except (OSError, ValueError, RuntimeError) as error:  # a RuntimeError: links lead to each other
            return f"a folder of this host ({getattr(error, 'strerror', None) or error})"

    def _can_enter(self, folder: Path) -> bool:
        """Tell whether a confined program sees a folder; as root, it is another user with other mounts."""
        named = next((path for path in self._readable if folder.is_relative_to(path)), None)
        if not _is_root():
            covered = any(folder.is_relative_to(path) for path in self._hidden)
            return not covered and (named is not None or any(folder.is_relative_to(path) for path in system_paths()))
        covered = any(folder.is_relative_to(path) for path in (*self._hidden, *map(Path, TEMPORARY)))
        own = [parent for parent in (folder, *folder.parents) if named is None or parent.is_relative_to(named)]
        return not (covered and named is None) and all(parent.stat().st_mode & 0o001 for parent in own)

    def end(self, folder: Path, uid: int) -> None:
        """Kill every process of a program's own user, in whatever group it is, and release the user."""
        self._uids.release(uid, folder)

    def kill(self, folder: Path, uid: int) -> None:
        """Kill every process of a program's own user; the program keeps the user."""
        self._uids.kill_all_of(uid, folder)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _enter(self, box: Sandbox) -> None:
        if box.uid is None:
            self._enter_as_own_user(box)
        else:
            self._enter_as(box, box.uid)

    def _enter_as(self, box: Sandbox, uid: int) -> None:
        """Change to private namespaces of mounts and of shared memory, and to another user without capabilities."""
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
        os.umask(0o022)  # only of this thread, like its mounts
        with ExitStack() as handles:  # this thread shares its open files with all others
            readable = [
                (path, handles.enter_context(syscalls.open_handle(path, os.O_PATH)))
                for path in self._readable
                if path.is_dir()
            ]
            _bind(box.folder, HOME)
            for path in self._hidden:
                if path.exists():
                    _bind(EMPTY if path.is_dir() else Path(os.devnull), path)
            for name in TEMPORARY:
                if Path(name).is_dir():
                    _bind(HOME / "tmp", Path(name))
            for path, handle in readable:
                _expose(path, handle, uid)
            if box.files:
                secret_files.mount_files(SECRETS, box.files, uid)
        syscalls.mount(
            "proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC, "hidepid=2"
        )
        os.chdir(box.home / box.work_dir)
        syscalls.drop_bounding_set()
        syscalls.become(uid)
        syscalls.clear_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.refuse_keyrings()
        if landlock.version():
            everything = landlock.every_right()
            own = [(box.home / name, everything) for name in box.writable]
            temporary = [(Path(name), everything) for name in TEMPORARY]
            devices = [(Path(name), landlock.OF_FILES) for name in DEVICES]
            landlock.restrict([(Path("/"), landlock.READ), *own, *temporary, *devices])

    def _enter_as_own_user(self, box: Sandbox) -> None:
        """Keep our user, and give up its rights by Landlock and seccomp."""
        if not landlock.version():
            raise OSError("the server is not root, and the kernel has no Landlock")
        syscalls.unshare(syscalls.CLONE_FS)
        os.chdir(box.home / box.work_dir)
        syscalls.drop_bounding_set()
        syscalls.clear_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        system = landlock.without(system_paths(), self._hidden)
        readable = landlock.without(self._readable, self._hidden)
        rules = [(path, landlock.READ) for path in (*system, *readable)]
        rules += [(Path(name), landlock.OF_FILES | landlock.READ_DIR) for name in DEVICES]
        if box.files:
            rules.append((box.secrets_dir, landlock.READ))
        landlock.restrict([*rules, *((box.folder / name, landlock.every_right()) for name in box.writable)])
        seccomp.refuse_keyrings()
        seccomp.refuse_reach()


def confinement_of(config: Config, hidden: Sequence[Path]) -> Confinement:
    """Return the confinement that the settings ask for; `hidden` are paths of the server or agent."""
    readable = [Path(name).resolve() for name in config.machine_paths.split(":") if name]
    return Confinement(hidden, readable, config.machine_uids, required=config.confinement == "required")


def system_paths() -> list[Path]:
    """Return what a program may read of the system as the server's user: the real paths, without links."""
    names = [*SYSTEM, *(f"{prefix}/{name}" for prefix in PREFIXES for name in PROGRAM_FOLDERS)]
    return [Path(name) for name in dict.fromkeys(os.path.realpath(name) for name in names if os.path.lexists(name))]


def seal_process() -> None:
    """Keep other processes of our user from tracing us, and from our environment and memory in /proc."""
    with suppress(OSError):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _is_root() -> bool:
    return os.geteuid() == 0 and syscalls.has_capability(syscalls.CAP_SYS_ADMIN)


def _bind(source: Path, target: Path) -> None:
    syscalls.mount(str(source), str(target), None, syscalls.MS_BIND | syscalls.MS_REC)


def _expose(path: Path, handle: int, uid: int) -> None:
    """Make a folder reachable for a user: parent folders that are closed to the user are covered by empty ones."""
    for above in reversed(path.parents):
        if not above.exists():
            break
        status = above.stat()
        if status.st_uid != uid and not status.st_mode & 0o001:
            syscalls.mount("none", str(above), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=64k")
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(handle)):
        path.mkdir(parents=True, exist_ok=True)
        _bind(Path(f"/proc/self/fd/{handle}"), path)


def _change_owner(path: Path, uid: int) -> None:
    """Change the owner of a file or folder, and of everything in it, unless the user owns it already."""
    status = os.lstat(path)
    if status.st_uid == uid:
        return
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, uid, uid, follow_symlinks=False)
    os.chown(path, uid, uid, follow_symlinks=False)
